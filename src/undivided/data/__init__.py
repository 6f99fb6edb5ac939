"""Text and images on disk → batches of ids: corpora, subwords, token store, batches."""
