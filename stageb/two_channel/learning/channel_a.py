"""A forward pass over a pack, by teacher forcing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from stageb.two_channel.learning.packing import Pack


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
