"""From a model folder to results: search, engines, `Translator`, generate, classify, score, many workers."""
