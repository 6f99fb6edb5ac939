"""Table 3: variations of the base model."""
