"""From text to a model folder: prepare → task → loop → checkpoint."""
