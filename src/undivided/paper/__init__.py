"""The paper's tables, reproduced by name: `undivided paper table1` to `table4`, and its parser: `undivided paper parse`."""
