"""What only GPUs show: half-precision attention learns what the CPU does, and runs are what they
are elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from conformance import content, differing
from programs import detectors, forks
from torch import Tensor
from two_channel import made

from stageb.config import FabricConfig
from stageb.engines.protocol import Decode
from stageb.job.placement import Fabric
from stageb.job.world import World
from stageb.store.commits import COMMIT
from stageb.two_channel.config import DetectorConfig, PackingConfig
from stageb.two_channel.learning import packing
from stageb.two_channel.learning.learner import DetectorLearner
from stageb.two_channel.learning.losses import compute_losses
from stageb.two_channel.learning.rollout import Writer
from stageb.two_channel.learning.targets import make_true_target
from stageb.two_channel.model import model
from stageb.two_channel.model.model import Detector
from stageb.two_channel.types import Detection

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
ROOM = 150  # tokens of a pack: steps have several, of several lengths
GPUS = torch.cuda.device_count()
# as a run has it, and before CUDA is first used
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint and its images."""
    return made.folder_of(tmp_path_factory.mktemp("detector"))


def gradients(root: Path, device: str) -> tuple[float, dict[str, Tensor]]:
    """The loss of all images as one pack, and its gradient: in half precision on a GPU, in whole on
    the CPU."""
    found: Detector = made.detector(root)
    found.model.to(device)
    lines = [packing.make_line(found, *target) for target in made.taught(root, found)]
    head = found.head(lambda: torch.autocast("cuda", torch.bfloat16, enabled=device == "cuda"))
    with torch.autocast("cuda", torch.bfloat16, enabled=device == "cuda"):
        pack = packing.pack(found, lines, made.totals(lines))
        states = packing.forward(found.model, pack)
    loss = compute_losses(states, pack.taught, head, made.EVERY_LOSS).total
    loss.backward()
    named = found.model.named_parameters()
    return loss.item(), {
        name: each.grad.float().cpu() for name, each in named if each.grad is not None
    }


def test_a_gpu_in_half_precision_learns_what_a_cpu_does(root: Path) -> None:
    (loss, wanted), (half, found) = gradients(root, "cpu"), gradients(root, "cuda")
    assert half == pytest.approx(loss, rel=0.02)
    assert wanted.keys() == found.keys()
    apart = {
        name: float(torch.cosine_similarity(found[name].flatten(), wanted[name].flatten(), 0))
        for name in wanted
    }
    assert min(apart.values()) > 0.95, sorted(apart.items(), key=lambda item: item[1])[:8]
    for tower in ("visual", "language_model"):
        sizes = [
            sum(float(each.square().sum()) for name, each in some.items() if tower in name)
            for some in (wanted, found)
        ]
        assert sizes[1] == pytest.approx(sizes[0], rel=0.1)


def test_texts_of_several_blocks_learn_to_the_very_bytes(root: Path) -> None:
    """Attention over 600 tokens sums gradients from several blocks, whose order must not be left to
    chance."""

    def learnt() -> dict[str, Tensor]:
        found = made.detector(root, DetectorConfig())
        found.model.to("cuda")
        spelling = found.spelling
        crowd = [Detection("red circle", (at, 2 * at, at + 300, 2 * at + 300)) for at in range(60)]
        targets = [(sample, make_true_target(crowd, spelling)) for sample in made.samples(root)]
        config = made.config(packing=PackingConfig(8192, 2048))
        assert all(len(packing.make_line(found, *target)) >= 600 for target in targets)
        learner = DetectorLearner(
            World(Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")), found, config
        )
        for step in range(4):
            made.step(learner, step, targets)
        return {name: each.cpu() for name, each in found.model.state_dict().items()}

    once = learnt()
    for _ in range(3):
        assert all(torch.equal(each, once[name]) for name, each in learnt().items())


def learner_of(root: Path, **model: Any) -> tuple[DetectorLearner, list[Any]]:
    """One that learns packs of several lengths, and what it is taught."""
    found = made.detector(root, DetectorConfig())
    found.model.to("cuda")
    config = made.config(model=DetectorConfig(**model), packing=PackingConfig(ROOM, ROOM))
    targets = made.taught(root, found)
    return DetectorLearner(
        World(Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")), found, config
    ), targets


def test_compiled_and_recorded_layers_learn_what_others_do(root: Path) -> None:
    def learnt(compiled: bool) -> list[float]:
        learner, targets = learner_of(root, compile=compiled)
        return [sum(made.step(learner, step, targets).losses.values()) for step in range(3)]

    assert learnt(True) == pytest.approx(learnt(False), rel=0.02)


def test_recorded_layers_learn_to_the_very_bytes_whatever_was_recorded_before(root: Path) -> None:
    def steps(
        learner: DetectorLearner, targets: list[Any], begin: int, end: int
    ) -> DetectorLearner:
        for step in range(begin, end):
            made.step(learner, step, targets[step:])  # each step has packs of other lengths
        return learner

    whole, begun, resumed = (learner_of(root, compile=True) for _ in range(3))
    steps(*whole, 0, 4)
    resumed[0].take_up(steps(*begun, 0, 2).state())
    steps(*resumed, 2, 4)
    wanted = dict(whole[0].detector.model.named_parameters())
    assert all(
        torch.equal(each, wanted[name])
        for name, each in resumed[0].detector.model.named_parameters()
    )


def test_answers_do_not_rest_on_who_is_answered_beside_them(root: Path) -> None:
    halved = made.config(fabric=FabricConfig(precision="bf16-mixed"))
    writer = Writer(model.load(str(root / "model"), halved, (), "cuda", answers=True))
    samples, how = made.samples(root), Decode(1.0, 1.0, max_new_tokens=24)
    whole = writer.write(samples, range(6), how)
    assert [len(each.ids) for each in whole] == [24] * 6 or any(each.ended for each in whole)
    assert writer.write(samples, range(6), how) == whole


def middle_commit(operations: tuple[str, ...]) -> int:
    """Which operation it is: what a compiler keeps makes many more of them at the start of a
    run."""
    commits = [
        at
        for at, each in enumerate(operations)
        if each.startswith("os.rename") and each.endswith(f"/{COMMIT}")
    ]
    return commits[len(commits) // 2]


@pytest.mark.parametrize(
    ("precision", "compiled"), [("32-true", False), ("bf16-mixed", False), ("bf16-mixed", True)]
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_killed_run_goes_on_to_the_very_bytes(
    tmp_path: Path, ranks: int, precision: str, compiled: bool
) -> None:
    if ranks > GPUS:
        pytest.skip("there is no second GPU")
    keys: dict[str, object] = {"fabric__accelerator": "cuda", "fabric__precision": precision}
    keys["model__compile"] = compiled

    def line(folder: Path) -> list[str]:
        return detectors.brief(folder, ranks, **keys)

    # What compilers of layers and kernels keep for the next run is written once, and counted as
    # operations.
    forks.run(line(tmp_path / "first"), ranks, tmp_path / "first-job")
    whole = forks.run(line(tmp_path / "whole"), ranks, tmp_path / "job")
    assert set(whole.codes) == {0}, whole.err
    broken = tmp_path / "broken"
    killed = forks.run(
        line(broken), ranks, broken / "killed", middle_commit(whole.operations[0]) + 1
    )
    assert killed.codes[0] == 137
    resumed = forks.run(line(broken), ranks, broken / "resumed")
    assert set(resumed.codes) == {0}, resumed.err
    assert "resuming after" in resumed.err
    assert differing(content(broken / "run"), content(tmp_path / "whole" / "run")) == []
