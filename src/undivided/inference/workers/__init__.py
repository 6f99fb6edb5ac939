"""A file of any size through several worker processes or a Ray cluster."""
