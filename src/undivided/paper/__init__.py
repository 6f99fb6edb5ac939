"""The paper's tables, reproduced by name: `undivided paper table1` to `table4`, its parser: `undivided paper parse`,
and the questions learners ask: `undivided paper faq`."""
