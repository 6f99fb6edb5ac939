"""The HTTP server and its page: LibreTranslate's API, and others, over batches that all clients share."""
