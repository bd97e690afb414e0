"""Environments that ship, and what makes any of Gymnasium's one of them."""
