"""Learnt guidance in people's hands: look at it, compare it, take it elsewhere, and decide which is
in use."""
