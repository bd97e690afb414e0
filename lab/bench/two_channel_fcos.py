"""A detector of the usual kind from scratch, for comparison: ``bin/bench fcos --train FILE --test FILE``.

torchvision's FCOS (Tian et al. 2019, arXiv 1904.01355) on a ResNet with a feature pyramid, no weights from elsewhere, on the
same files that loop ``two_channel`` reads, and judged by the same code. All images are held on the device. AdamW, a warm-up,
then a cosine to zero; what a run costs is ``--steps``, and the seconds of its training are told.

F1 needs a score from which a box counts: that which is best on ``--val``, or else on ``--train``, never on ``--test``.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision.models.detection import FCOS
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

from stageb.config import require
from stageb.pictures import opened, read
from stageb.seeds import shuffled, stream
from stageb.two_channel import data, metrics
from stageb.two_channel.metrics import Told
from stageb.two_channel.text import bins_of
from stageb.two_channel.types import Placed, Sample

LEAST = 0.02  # score of a box that is told at all
CUTS = tuple(step / 40 for step in range(2, 39))  # scores tried for F1


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/bench fcos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", required=True, help="JSON Lines to learn from")
    parser.add_argument("--val", help="JSON Lines by which the score for F1 is chosen (default: --train)")
    parser.add_argument("--test", required=True, help="JSON Lines to be judged by")
    parser.add_argument("--images", help="the folder that images of all files are relative to")
    parser.add_argument("--train-images", help="the same for --train, where it is another")
    parser.add_argument("--backbone", default="resnet50", help="a ResNet of torchvision's (default resnet50)")
    parser.add_argument("--steps", type=int, default=2000, help="(default 2000)")
    parser.add_argument("--batch", type=int, default=16, help="images of a step (default 16)")
    parser.add_argument("--learning-rate", type=float, default=5e-4, help="at its highest (default 5e-4)")
    parser.add_argument("--seeds", default="1,2,3", help="a run for each (default 1,2,3)")
    parser.add_argument("--json", metavar="FILE", help="write what was measured, as JSON")
    given = parser.parse_args(arguments)
    for name in ("steps", "batch"):
        require(getattr(given, name) >= 1, f"--{name}", getattr(given, name), "at least 1")
    seeds = [int(word) for word in given.seeds.split(",") if word.isdecimal()]
    require(bool(seeds), "--seeds", given.seeds, "numbers such as 1,2,3")
    train = data.read([given.train], given.train_images or given.images)
    val, test = (data.read([path], given.images) if path else train for path in (given.val, given.test))
    rows = []
    for seed in seeds:
        rows.append({"seed": seed, **run(train, val, test, seed, given)})
        print(", ".join(f"{name} {value:.4g}" for name, value in rows[-1].items()), flush=True)
    if given.json:
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        machine = {"device": device, "torch": torch.__version__}
        Path(given.json).write_text(json.dumps({"machine": machine, "given": vars(given), "rows": rows}, indent=2) + "\n")
    return 0


def run(
    train: Sequence[Sample], val: Sequence[Sample], test: Sequence[Sample], seed: int, given: argparse.Namespace
) -> dict[str, float]:
    """Train once, and judge."""
    descs = sorted({each.desc for sample in train for each in sample.objects})
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(seed)
    model = detector(given.backbone, len(descs), train).to(device)
    learnt = held(train, descs, device)
    began = time.perf_counter()
    fit(model, learnt, seed, given)
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    cut = best_cut(val, told(model, val, descs, device))
    found = told(model, test, descs, device)
    counted = [metrics.count(sample, kept(each, cut)) for sample, each in zip(test, found, strict=True)]
    parameters = sum(each.numel() for each in model.parameters()) / 1e6
    figures = {**metrics.average_precision(test, found), **metrics.f1(counted)}
    return {"parameters_m": parameters, "train_s": seconds, "cut": cut, **figures}


def detector(backbone: str, descs: int, samples: Sequence[Sample]) -> FCOS:
    """An untrained FCOS that sees images in their own size."""
    levels = LastLevelP6P7(256, 256)
    body = resnet_fpn_backbone(
        backbone_name=backbone,
        weights=None,
        norm_layer=torch.nn.BatchNorm2d,
        trainable_layers=5,
        returned_layers=[2, 3, 4],
        extra_blocks=levels,
    )
    least = max(min(sample.width, sample.height) for sample in samples)
    most = max(max(sample.width, sample.height) for sample in samples)
    return FCOS(body, num_classes=descs + 1, min_size=least, max_size=most, score_thresh=LEAST)


@dataclass(frozen=True)
class Held:
    """One image on the device."""

    image: Tensor  # uint8 (3, height, width)
    target: dict[str, Tensor]  # boxes (objects, 4) in pixels, labels (objects,) from 1


def held(samples: Sequence[Sample], descs: Sequence[str], device: torch.device) -> list[Held]:
    """Images, and what is in them."""
    numbers = {desc: number for number, desc in enumerate(descs, 1)}
    return [
        Held(
            pixels(sample, device),
            {
                "boxes": torch.tensor([each.box for each in sample.objects], device=device).reshape(-1, 4),
                "labels": torch.tensor([numbers[each.desc] for each in sample.objects], device=device, dtype=torch.int64),
            },
        )
        for sample in samples
    ]


def pixels(sample: Sample, device: torch.device) -> Tensor:
    """An image as uint8 (3, height, width)."""
    image = opened(sample.image, read(sample.image), pixels=1 << 26)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().to(device)


def fit(model: FCOS, learnt: Sequence[Held], seed: int, given: argparse.Namespace) -> None:
    """Train."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.learning_rate, weight_decay=1e-4)
    order: list[Held] = []
    for step in range(given.steps):
        while len(order) < given.batch:
            order += shuffled(learnt, stream(seed, "fcos", step, len(order)))
        batch, order = order[: given.batch], order[given.batch :]
        for group in optimizer.param_groups:
            group["lr"] = given.learning_rate * rate(step, given.steps)
        with precise(batch[0].image.device):
            losses = model([each.image / 255 for each in batch], [each.target for each in batch])
        optimizer.zero_grad(set_to_none=True)
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()


def rate(step: int, steps: int) -> float:
    """The share of the learning rate: a warm-up of a twentieth, then a cosine to zero."""
    warm = max(1, steps // 20)
    return (step + 1) / warm if step < warm else (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm))) / 2


def precise(device: torch.device) -> AbstractContextManager[Any]:
    """bfloat16 where it is fast."""
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


@torch.no_grad()
def told(model: FCOS, samples: Sequence[Sample], descs: Sequence[str], device: torch.device) -> list[Told]:
    """What the model finds in each of ``samples``, the surest first."""
    model.eval()
    found = []
    for sample in samples:
        (said,) = model([pixels(sample, device) / 255])
        boxes, labels, scores = (said[name].tolist() for name in ("boxes", "labels", "scores"))
        objects = [
            (Placed(descs[label - 1], bins_of(tuple(box), sample.width, sample.height)), score)
            for box, label, score in zip(boxes, labels, scores, strict=True)
        ]
        found.append(Told(tuple(each for each, _ in objects), tuple(score for _, score in objects)))
    return found


def kept(said: Told, cut: float) -> list[Placed]:
    """The objects whose score is at least ``cut``."""
    return [each for each, score in zip(said.objects, said.scores, strict=True) if score >= cut]


def best_cut(samples: Sequence[Sample], found: Sequence[Told]) -> float:
    """The score from which boxes count, such that F1 at IoU .5 is best."""

    def f1(cut: float) -> float:
        counts = [metrics.count(sample, kept(each, cut)) for sample, each in zip(samples, found, strict=True)]
        return metrics.f1(counts)["f1_50"]

    return max(CUTS, key=f1)
