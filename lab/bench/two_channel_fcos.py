"""A detector of the usual kind from scratch, for comparison: ``bin/bench fcos --config configs/two_channel/bccd.yaml``.

torchvision's FCOS (Tian et al. 2019, arXiv 1904.01355) on a ResNet with a feature pyramid, no weights from elsewhere. A
config of loop ``two_channel`` names its data, and the views in which images are shown while it learns; it is judged by the
same code. AdamW, a warm-up, then a cosine to zero; a run costs ``--steps``, and the seconds of its training are told.

F1 needs a score from which a box counts: that which is best on val, or else on what it learnt from, never on test.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torchvision.models.detection import FCOS
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

from lab.bench.rows import device_name, write
from stageb.cli.parsing import parse
from stageb.config import require
from stageb.errors import InputError
from stageb.seeds import shuffled, stream
from stageb.training.schedules import share_done
from stageb.two_channel.boxes import data, metrics
from stageb.two_channel.boxes.augmentation import make_view, parse_name
from stageb.two_channel.boxes.data import DetectorData
from stageb.two_channel.boxes.metrics import Detections
from stageb.two_channel.boxes.text import bins_of
from stageb.two_channel.config import AugmentationConfig, TwoChannelConfig
from stageb.two_channel.model.views import DecodedImage, show_views, to_bytes
from stageb.two_channel.types import Detection, Sample
from stageb.untrusted import pictures
from stageb.untrusted.pictures import opened

AHEAD = 4  # batches that are made while one is learnt from
LEAST = 0.02  # score of a box that is told at all
CUTS = tuple(step / 40 for step in range(2, 39))  # scores tried for F1


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/bench fcos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, help="names data.train, data.test, data.images and augmentation")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the config")
    parser.add_argument("--val", help="JSON Lines by which the score for F1 is chosen (default: data.val, or data.train)")
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
    asked = parse(["--config", given.config, *(f"--{each}" for each in given.set)])
    if asked.loop != "two_channel":
        raise InputError(f"bin/bench: --config {given.config}: of loop {asked.loop}; name one of two_channel")
    config: TwoChannelConfig = asked.config
    read = data.read_inputs(config)
    require(bool(read.test), "data.test", config.data.test, "name the JSON Lines to be judged by")
    val = data.read([given.val], config.data.images) if given.val else read.val or read.train
    rows = []
    for seed in seeds:
        rows.append({"seed": seed, **run(read, val, seed, given, config.augmentation)})
        print(", ".join(f"{name} {value:.4g}" for name, value in rows[-1].items()), flush=True)
    machine = {"device": device_name(), "torch": torch.__version__}
    write(given.json, {"machine": machine, "given": vars(given), "rows": rows})
    return 0


def run(
    read: DetectorData, val: Sequence[Sample], seed: int, given: argparse.Namespace, views: AugmentationConfig
) -> dict[str, float]:
    """Train once, and judge."""
    descs, test = read.descs, read.test
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(seed)
    model = detector(given.backbone, len(descs), read.train).to(device)
    began = time.perf_counter()
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        fit(model, batches(read, given, (seed, views), pool), given, device)
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    cut = best_cut(val, told(model, val, descs, device))
    found = told(model, test, descs, device)
    counted = [metrics.count_matches(sample, kept(each, cut)) for sample, each in zip(test, found, strict=True)]
    parameters = sum(each.numel() for each in model.parameters()) / 1e6
    figures = {**metrics.compute_average_precision(test, found), **metrics.compute_f1(counted)}
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


Taught = tuple[Tensor, dict[str, Tensor]]  # an image, uint8 (3, height, width); its boxes (objects, 4) and labels, from 1


def batches(
    read: DetectorData, given: argparse.Namespace, drawn: tuple[int, AugmentationConfig], pool: ThreadPoolExecutor
) -> Iterator[list[Taught]]:
    """The batches of all steps, each image in a view of its own; made some steps ahead. ``drawn`` by a seed, and how."""
    seed, views = drawn
    held = {each.key: DecodedImage.of(opened(each.image, pictures.read(each.image), pixels=1 << 26)) for each in read.train}
    numbers = {desc: number for number, desc in enumerate(read.descs, 1)}

    def made(sample: Sample, step: int) -> Taught:
        key, done = stream(seed, "fcos", "view", step, sample.key), share_done(step, given.steps)
        seen = make_view(sample, key, views, done)
        noted, size = (sample.width, sample.height), (seen.width, seen.height)
        (image,) = show_views([held[sample.key]], [parse_name(seen.image)[1]], [noted], size)
        boxes = torch.tensor([each.box for each in seen.objects]).reshape(-1, 4)
        labels = torch.tensor([numbers[each.desc] for each in seen.objects], dtype=torch.int64)
        return image, {"boxes": boxes, "labels": labels}

    order: list[Sample] = []
    ahead: deque[list[Future[Taught]]] = deque()
    for step in range(given.steps):
        while len(order) < given.batch:
            order += shuffled(read.train, stream(seed, "fcos", step, len(order)))
        ahead.append([pool.submit(made, sample, step) for sample in order[: given.batch]])
        order = order[given.batch :]
        if len(ahead) > AHEAD:
            yield [each.result() for each in ahead.popleft()]
    for batch in ahead:
        yield [each.result() for each in batch]


def fit(model: FCOS, learnt: Iterable[list[Taught]], given: argparse.Namespace, device: torch.device) -> None:
    """Train."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.learning_rate, weight_decay=1e-4)
    for step, batch in enumerate(learnt):
        for group in optimizer.param_groups:
            group["lr"] = given.learning_rate * rate(step, given.steps)
        targets = [{name: each.to(device) for name, each in target.items()} for _, target in batch]
        with precise(device):
            losses = model([image.to(device) / 255 for image, _ in batch], targets)
        optimizer.zero_grad(set_to_none=True)
        torch.stack(list(losses.values())).sum().backward()
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
def told(model: FCOS, samples: Sequence[Sample], descs: Sequence[str], device: torch.device) -> list[Detections]:
    """What the model finds in each of ``samples``, the surest first."""
    model.eval()
    found = []
    for sample in samples:
        image = opened(sample.image, pictures.read(sample.image), pixels=1 << 26)
        (said,) = model([to_bytes(image).to(device) / 255])
        boxes, labels, scores = (said[name].tolist() for name in ("boxes", "labels", "scores"))
        objects = [
            (Detection(descs[label - 1], bins_of(tuple(box), sample.width, sample.height)), score)
            for box, label, score in zip(boxes, labels, scores, strict=True)
        ]
        found.append(Detections(tuple(each for each, _ in objects), tuple(score for _, score in objects)))
    return found


def kept(said: Detections, cut: float) -> list[Detection]:
    """The objects whose score is at least ``cut``."""
    return [each for each, score in zip(said.objects, said.scores, strict=True) if score >= cut]


def best_cut(samples: Sequence[Sample], found: Sequence[Detections]) -> float:
    """The score from which boxes count, such that F1 at IoU .5 is best."""

    def f1(cut: float) -> float:
        counts = [metrics.count_matches(sample, kept(each, cut)) for sample, each in zip(samples, found, strict=True)]
        return metrics.compute_f1(counts)["f1_50"]

    return max(CUTS, key=f1)
