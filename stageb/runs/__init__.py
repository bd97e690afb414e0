"""Code that the runs of all loops share: their folder's life, progress, loggers, curves."""
