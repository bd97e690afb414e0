"""What rank 0 records, and what people call."""
