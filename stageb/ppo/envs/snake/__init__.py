"""Snake: the game on many boards at once, its network, its Gymnasium interface, and how it is watched."""
