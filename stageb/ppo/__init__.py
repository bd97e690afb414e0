"""PPO: one agent that learns in any environment, its gradients reduced over ranks. ``loop.py`` is the table of contents."""
