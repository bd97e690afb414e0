"""A run's folder: one writer, atomic files, append-only records, commits to resume from."""
