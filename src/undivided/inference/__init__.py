"""Use a trained model: search, engines, `Translator`, generate, classify, score, many workers."""
