"""A byte-level tokenizer with the coordinate tokens added, and strategies for objects, samples and
rollouts."""

from __future__ import annotations

from functools import cache

from engines.tiny_models import bpe
from hypothesis import strategies as st
from tokenizers import AddedToken

from stageb.two_channel.boxes.text import COORDINATES, Spelling, find_spelling
from stageb.two_channel.types import BINS, Detection

DESCS = ("RBC", "WBC", "Platelets", 'a 12" pipe', "back\\slash\\", "红色 阀门", '", "bbox_2d": [')


@cache
def spelling(box_first: bool = False) -> Spelling:
    tokenizer = bpe()
    tokenizer.add_tokens(
        [AddedToken(token, special=False, normalized=False) for token in COORDINATES]
    )
    return find_spelling(tokenizer, box_first)


@st.composite
def placed(draw: st.DrawFn, descs: tuple[str, ...] = DESCS) -> Detection:
    """An object whose box has area."""
    (x1, x2), (y1, y2) = (
        sorted(draw(st.lists(st.integers(0, BINS - 1), min_size=2, max_size=2, unique=True)))
        for _ in range(2)
    )
    return Detection(draw(st.sampled_from(descs)), (x1, y1, x2, y2))
