"""Low-rank adapters (LoRA, Hu et al. 2021), with peft.

The embeddings of the coordinate tokens are trained too: if the checkpoint did not have them, no
adapter could teach them. ``merge_weights`` gives the weights of an equivalent model without
adapters, which answers and is saved.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from stageb import seeds
from stageb.two_channel.types import BINS

SCALE = 2  # of an adapter's output, whatever its rank: alpha / rank


def add_adapters(model: Any, rank: int, first: int, seed: int) -> None:
    """Add adapters of ``rank`` to all linear layers of ``model``, in place, and freeze all else but
    the embeddings of the coordinate tokens, whose ids begin at ``first``. ``seed`` determines the
    initial adapters, the same on every rank."""
    # takes a second to import, and runs without adapters do without
    from peft import LoraConfig, get_peft_model

    names = {id(layer): name for name, layer in model.named_modules()}
    tables = [model.get_input_embeddings()]
    if model.get_output_embeddings().weight is not tables[0].weight:
        tables.append(model.get_output_embeddings())
    options: dict[str, Any] = {
        "r": rank,
        "lora_alpha": SCALE * rank,
        "target_modules": "all-linear",
        "trainable_token_indices": {
            names[id(table)]: list(range(first, first + BINS)) for table in tables
        },
    }
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft asks transformers by a name that it is about to change
        warnings.simplefilter("ignore", FutureWarning)
        torch.manual_seed(seeds.stream(seed, "two_channel", "adapters") >> 1)
        # puts them into the model itself; the wrapper is not needed
        get_peft_model(model, LoraConfig(**options))


def find_token_embeddings(model: Any) -> Iterator[Tensor]:
    """The trained embeddings of the coordinate tokens in a model with adapters; none in a model
    without."""
    return (each for name, each in model.named_parameters() if ".trainable_tokens_delta." in name)


def merge_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The weights of ``model`` under the names of a model without adapters; adapters are merged one
    layer at a time, in a copy."""
    adapted = {
        name: layer for name, layer in model.named_modules() if hasattr(layer, "get_base_layer")
    }
    for name, tensor in model.state_dict().items():
        if not any(name.startswith(f"{layer}.") for layer in adapted):
            yield name, tensor
    for name, layer in adapted.items():
        merged = copy.deepcopy(layer)
        merged.merge()
        for part, tensor in merged.get_base_layer().state_dict().items():
            yield f"{name.removesuffix('.token_adapter')}.{part}", tensor
