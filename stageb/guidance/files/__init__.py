"""What the loop reads and writes: ticket files, guidance.json, the rows of a run."""
