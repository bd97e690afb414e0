"""The convolutional stem: whole images are seen, in the order of patches; its checkpoints load as
others do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from programs import detectors
from two_channel import made

from stageb.__main__ import main
from stageb.errors import ConfigError
from stageb.two_channel.boxes import text
from stageb.two_channel.boxes.shapes import write_shapes
from stageb.two_channel.config import ScheduleConfig
from stageb.two_channel.learning import packing
from stageb.two_channel.learning.learner import make_optimizers
from stageb.two_channel.learning.rollout import Writer
from stageb.two_channel.learning.targets import make_true_target
from stageb.two_channel.model import model
from stageb.two_channel.model.model import Detector
from stageb.two_channel.model.tower import Stem

SMALL = replace(made.SMALL, stem="convolution")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint and six drawn images."""
    root = tmp_path_factory.mktemp("stem")
    write_shapes(root, "train", 6, seed=3)
    model.make_small(
        root / "model",
        SMALL,
        {each.desc for sample in made.samples(root) for each in sample.objects},
    )
    return root


def detector(folder: Path) -> Detector:
    return made.load(folder)


@pytest.fixture(scope="module")
def found(root: Path) -> Detector:
    """The detector, its choices far from even."""
    return made.roughened(detector(root / "model"))


@torch.no_grad()
def test_patches_are_put_back_to_images_and_places_stand_in_their_order(found: Detector) -> None:
    """As the convolutions of whole images, whichever are beside them."""
    stem, side = found.model.model.visual.stem, made.SMALL.patch_size
    generator, pixels = torch.Generator().manual_seed(1), found.eyes._plain
    assert pixels
    grids = [(4, 6), (6, 4), (4, 6), (2, 2)]
    images = [
        torch.rand(1, 3, rows * side, columns * side, generator=generator)
        for rows, columns in grids
    ]
    patches = torch.cat(
        [
            pixels.patches(image, grid)[0].flatten(1)
            for image, grid in zip(images, grids, strict=True)
        ]
    )
    embedded = stem(patches, torch.tensor([(1, *grid) for grid in grids]))
    assert embedded.shape == (len(patches), made.SMALL.vision_hidden_size)
    begin = 0
    for image, (rows, columns) in zip(images, grids, strict=True):
        whole = stem.proj(stem.layers(image))[0]
        assert whole.shape[1:] == (rows, columns)
        for row, column in [
            (0, 0),
            (0, 1),
            (1, 0),
            (1, 1),
            (0, 2),
            (2, 0),
            (rows - 1, columns - 1),
        ]:
            if row < rows and column < columns:
                square = (row // 2) * (columns // 2) + column // 2
                place = begin + 4 * square + 2 * (row % 2) + column % 2
                assert torch.allclose(embedded[place], whole[:, row, column], atol=1e-5)
        begin += rows * columns


def test_a_stem_is_a_halving_for_each_power_of_two(found: Detector) -> None:
    config = found.model.config.vision_config
    for side in (2, 8, 16):
        config_of = type(config)(**{**config.to_dict(), "patch_size": side})
        assert len(Stem(config_of).layers) == 3 * (side.bit_length() - 1)
    with pytest.raises(ConfigError, match=r"model\.small\.patch_size: 12: a power of two"):
        replace(SMALL, patch_size=12)


def test_the_checkpoint_names_its_stem_and_loads_with_it(
    found: Detector, root: Path, tmp_path: Path
) -> None:
    made.save(found, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "qwen3_vl_convolution" and "auto_map" not in config
    state = detector(tmp_path).model.state_dict()
    assert any("stem.layers" in name for name in state) and not any(
        "patch_embed" in name for name in state
    )
    assert all(torch.equal(each, state[name]) for name, each in found.model.state_dict().items())
    assert not torch.equal(
        detector(root / "model").model.state_dict()["lm_head.weight"], state["lm_head.weight"]
    )


def test_the_engine_and_the_learner_see_the_same(found: Detector) -> None:
    spelling = found.spelling
    writer, samples = Writer(found), made.samples(Path(found.model.name_or_path).parent)
    answers = [make_true_target(text.list_true_objects(sample), spelling) for sample in samples]
    lines = [packing.make_line(found, *each) for each in zip(samples, answers, strict=True)]
    told = writer.chances(samples, [each.ids for each in answers])
    for line, chances in zip(lines, told, strict=True):
        states = packing.forward(found.model, packing.pack(found, [line], made.totals([line])))
        taught = (
            found.head()
            .logits(states)
            .log_softmax(-1)
            .gather(1, torch.tensor(line.target.ids)[:, None])[:, 0]
        )
        assert taught.tolist() == pytest.approx(chances, abs=1e-3)


def test_muon_takes_the_filters(found: Detector) -> None:
    """Whose steps suit the learning rate of the other layers."""
    _, muon = make_optimizers(found.model, ScheduleConfig(optimizer="muon"))
    taken = {id(each) for group in muon.param_groups for each in group["params"]}
    stem = found.model.model.visual.stem
    assert {name for name, each in stem.named_parameters() if id(each) in taken} == {
        name for name, each in stem.named_parameters() if each.ndim == 4
    }


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_from_end_to_end(
    tmp_path: Path, optimizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {
        "model__small__stem": "convolution",
        "schedule__learning_rate": 0.003,
        "schedule__optimizer": optimizer,
    }
    assert main(detectors.arguments(tmp_path, **keys)) == 0
    run = tmp_path / "run"
    told = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert told[-1]["stage2/channel_b"] == 1 and told[-1]["loss/text"] < told[0]["loss/text"]
    data = str(tmp_path.parent / "shapes" / "test.jsonl")
    assert main(["evaluate", str(run), f"--data={data}", "--accelerator=cpu", "--pictures=0"]) == 0
    assert f"mAP      {told[-1]['eval/mAP']:.3f}" in capsys.readouterr().out
