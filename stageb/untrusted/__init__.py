"""Strict readers of what others wrote: JSON, YAML, JSON Lines, names, pictures."""
