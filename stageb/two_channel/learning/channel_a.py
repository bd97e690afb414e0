"""Channel A: training on the true answer, optionally in a soft context of the model's own expectations.

With one pass this is plain teacher forcing. With more, only the last has gradients; from the second on, the input at a
coordinate is the embedding that the model expected there in the pass before, instead of that of the true coordinate.
Cross-entropy is always taken on the first pass, whose inputs are the truth alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stageb.two_channel.learning.packing import Pack
from stageb.two_channel.model.model import Head
from stageb.two_channel.types import BINS


def forward(model: Any, pack: Pack) -> Tensor:
    """The hidden states (rows, width) of a pack at ``pack.keep``.

    Image features are put into the text here: the model itself would search for their places on the device, and the CPU
    would wait for the result.
    """
    seen = model.get_image_features(**pack.images, return_dict=True)
    embedded = model.get_input_embeddings()(pack.ids)
    embedded = embedded.index_copy(1, pack.places, torch.cat(seen.pooler_output)[None].to(embedded))
    text = model.model.language_model
    features = [torch.cat(each)[None] for each in getattr(seen, "deepstack_features", None) or ()]
    with add_features(text.layers, pack.places, features):
        found = text(inputs_embeds=embedded, **pack.inputs)
    states: Tensor = found[0][0, pack.keep]
    return states


def run_passes(model: Any, pack: Pack, head: Head, iterations: int) -> tuple[Tensor, Tensor]:
    """The hidden states (rows, width) of the first and of the last of ``iterations`` passes; with one, the same tensor.

    Passes in between, which only make the context of the next, are computed without gradient.
    """
    states = last = forward(model, pack)
    for iteration in range(1, iterations):
        context = compute_expected_embeddings(model, last.detach()[pack.taught.slots], head)
        with torch.set_grad_enabled(iteration == iterations - 1), feed(model, pack.keep[pack.taught.slots] + 1, context):
            last = forward(model, pack)
    return states, last


@torch.no_grad()
def compute_expected_embeddings(model: Any, states: Tensor, head: Head) -> Tensor:
    """The expected embeddings (..., width) of coordinates under ``states`` (..., width), given that the token is one."""
    ids = torch.arange(head.first, head.first + BINS, device=states.device)
    table: Tensor = model.get_input_embeddings()(ids)
    parts = [head.logits(part)[:, head.first : head.first + BINS] for part in torch.split(states.flatten(0, -2), head.rows)]
    return torch.cat([part.float().softmax(-1).to(table.dtype) @ table for part in parts]).view(*states.shape[:-1], -1)


@contextmanager
def feed(model: Any, places: Tensor, vectors: Tensor) -> Iterator[None]:
    """Context in which passes through ``model`` get ``vectors`` (..., width) as input embeddings at ``places`` (...)."""

    def put(_layer: nn.Module, _ids: Any, found: Tensor) -> Tensor:
        return found.index_put((torch.zeros_like(places), places), vectors.to(found.dtype))

    handle = model.get_input_embeddings().register_forward_hook(put)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def add_features(layers: Any, places: Tensor, features: Sequence[Tensor]) -> Iterator[None]:
    """Context in which ``features``, (1, places, width) for each of the first layers, are added to the outputs of ``layers``
    at ``places`` (Meng et al. 2024, "DeepStack")."""

    def adding(feature: Tensor) -> Any:
        return lambda _layer, _given, found: found.index_add(1, places, feature.to(found))

    handles = [layer.register_forward_hook(adding(feature)) for layer, feature in zip(layers, features, strict=False)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
