"""The demo's tickets. ``lab/demo`` in the repository makes them."""

from pathlib import Path

TICKETS = Path(__file__).with_name("tickets.jsonl")
