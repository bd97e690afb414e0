"""Tickets as they are read, grouped and split."""
