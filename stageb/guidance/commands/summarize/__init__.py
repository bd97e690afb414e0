"""``stageb summarize``: a model that can see writes the summaries that ``fit`` reads."""
