"""Code that loops that learn weights share."""
