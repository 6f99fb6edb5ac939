"""Constituency parsing: trees, parsers, Table 4."""
