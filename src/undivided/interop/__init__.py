"""Models from and to other libraries."""
