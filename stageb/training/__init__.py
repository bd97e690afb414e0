"""What loops that learn weights share."""
