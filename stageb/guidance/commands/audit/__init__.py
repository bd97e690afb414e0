"""Watching whether what was promised of tickets decided alone still holds."""
