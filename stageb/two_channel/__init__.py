"""A detector that writes its boxes, taught by its own rollouts: ``loop.py`` is the table of contents."""
