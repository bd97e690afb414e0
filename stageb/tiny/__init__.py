"""The language model that ships with the package, as transformers loads it. ``lab/tiny`` in the
repository trains it."""

from pathlib import Path

NAME = "stageb-tiny"  # what model.model_name_or_path calls it
CHECKPOINT = Path(__file__).with_name("checkpoint")
