"""Channel A: teaching on the truth, in a soft context of the model's own expectations where that is asked for.

With one pass this is plain teacher forcing. With more, all but the last are without gradient; from the second on, each
coordinate's place is fed the embedding that the model expected there in the pass before, rather than that of the true
coordinate. Cross-entropy is always taken on the first pass's logits, which saw the truth alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stageb.two_channel.packing import Pack
from stageb.two_channel.types import BINS


def forward(model: Any, pack: Pack) -> Tensor:
    """The logits (rows, vocabulary) of a pack that are looked at."""
    features = model.get_image_features(**pack.images, return_dict=True)
    outputs = model(**pack.inputs, mm_encoder_outputs={"image": features}, logits_to_keep=pack.keep)
    logits: Tensor = outputs.logits[0]
    return logits


def passes(model: Any, pack: Pack, first: int, iterations: int) -> tuple[Tensor, Tensor]:
    """The logits of the first and of the last of ``iterations`` passes; ``first`` is the coordinate token of bin 0.

    With one they are the same tensor. What only makes a context for the next pass is computed without gradient.
    """
    logits = last = forward(model, pack)
    for iteration in range(1, iterations):
        context = expected_embeddings(model, last.detach()[pack.taught.slots], first)
        with torch.set_grad_enabled(iteration == iterations - 1), fed(model, pack.keep[pack.taught.slots] + 1, context):
            last = forward(model, pack)
    return logits, last


@torch.no_grad()
def expected_embeddings(model: Any, logits: Tensor, first: int) -> Tensor:
    """(..., width): what ``logits`` (..., vocabulary) expect of a coordinate, given that it is one."""
    ids = torch.arange(first, first + BINS, device=logits.device)
    table: Tensor = model.get_input_embeddings()(ids)
    return logits[..., first : first + BINS].float().softmax(-1).to(table.dtype) @ table


@contextmanager
def fed(model: Any, places: Tensor, vectors: Tensor) -> Iterator[None]:
    """Within, a pass through ``model`` is fed ``vectors`` (..., width) at ``places`` (...) instead of what stands there."""

    def put(_layer: nn.Module, _ids: Any, found: Tensor) -> Tensor:
        return found.index_put((torch.zeros_like(places), places), vectors.to(found.dtype))

    handle = model.get_input_embeddings().register_forward_hook(put)
    try:
        yield
    finally:
        handle.remove()
