"""Rollouts, targets, losses and steps, as every rank takes them."""
