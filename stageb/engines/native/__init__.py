"""The default engine: a decode loop of our own over models that transformers loads."""
