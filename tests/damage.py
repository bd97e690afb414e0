"""Checkpoints that are not whole, and what loading them says."""

from pathlib import Path

from safetensors.torch import load_file, save_file

DAMAGES = [("cut short", "could not be loaded"), ("without a weight", "it lacks 1 of")]


def damage(weights: Path, how: str, name: str) -> None:
    """Cut a safetensors file short, or take the weight ``name`` out of it."""
    if how == "cut short":
        weights.write_bytes(weights.read_bytes()[:-100])
    else:
        kept = load_file(weights)
        del kept[name]
        save_file(kept, weights, {"format": "pt"})
