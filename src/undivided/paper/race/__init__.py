"""What came before the Transformer, raced beside it."""
