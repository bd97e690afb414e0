"""Snake: one agent that learns by PPO, its gradients reduced over ranks. ``loop.py`` is the table of contents."""
