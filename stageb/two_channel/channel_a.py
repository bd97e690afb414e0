"""Channel A: teaching on the truth, in a soft context of the model's own expectations where that is asked for.

With one pass this is plain teacher forcing. With more, all but the last are without gradient; from the second on, each
coordinate's place is fed the embedding that the model expected there in the pass before, rather than that of the true
coordinate. Cross-entropy is always taken on what the first pass came to, which saw the truth alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stageb.two_channel.losses import Head
from stageb.two_channel.packing import Pack
from stageb.two_channel.types import BINS


def forward(model: Any, pack: Pack) -> Tensor:
    """The hidden states (rows, width) of a pack that are looked at."""
    features = model.get_image_features(**pack.images, return_dict=True)
    outputs = model.model(**pack.inputs, mm_encoder_outputs={"image": features})
    states: Tensor = outputs[0][0, pack.keep]
    return states


def passes(model: Any, pack: Pack, head: Head, iterations: int) -> tuple[Tensor, Tensor]:
    """The hidden states of the first and of the last of ``iterations`` passes.

    With one they are the same tensor. What only makes a context for the next pass is computed without gradient.
    """
    states = last = forward(model, pack)
    for iteration in range(1, iterations):
        context = expected_embeddings(model, last.detach()[pack.taught.slots], head)
        with torch.set_grad_enabled(iteration == iterations - 1), fed(model, pack.keep[pack.taught.slots] + 1, context):
            last = forward(model, pack)
    return states, last


@torch.no_grad()
def expected_embeddings(model: Any, states: Tensor, head: Head) -> Tensor:
    """(..., width): what ``states`` (..., width) expect of a coordinate, given that it is one."""
    ids = torch.arange(head.first, head.first + BINS, device=states.device)
    table: Tensor = model.get_input_embeddings()(ids)
    parts = [head.logits(part)[:, head.first : head.first + BINS] for part in torch.split(states.flatten(0, -2), head.rows)]
    return torch.cat([part.float().softmax(-1).to(table.dtype) @ table for part in parts]).view(*states.shape[:-1], -1)


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
