"""What a fit reads, writes and shows on rank 0."""
