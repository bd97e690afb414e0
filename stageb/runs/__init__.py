"""What the runs of all loops have in common: their folder's life, progress, loggers, curves."""
