"""The ways to run a model: PyTorch, which is the reference, and CTranslate2."""
