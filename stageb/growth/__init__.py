"""PPO that grows networks slot by slot: ``loop.py`` is the table of contents."""
