"""Table 2: the cost of training, and the WMT data."""
