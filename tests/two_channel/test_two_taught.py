"""A stem that was taught before: its folded weights, which stay, and files that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from programs import detectors
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, pad, relu6
from transformers import AutoModelForImageTextToText

from stageb.__main__ import main
from stageb.cli.parsing import parse_run
from stageb.two_channel.boxes.data import read_inputs
from stageb.two_channel.model.model import make_small
from stageb.two_channel.model.taught import EPS, TaughtBlocks


def draw_weights() -> dict[str, Tensor]:
    """A file's weights, named as the packages name them, all drawn."""
    generator = torch.Generator().manual_seed(1)
    made: dict[str, Tensor] = {}

    def add(name: str, norm: str, conv: nn.Conv2d) -> None:
        made[f"{name}.weight"] = (
            torch.randn(conv.weight.shape, generator=generator) * conv.weight[0].numel() ** -0.5
        )
        for part, low in (
            ("weight", 0.5),
            ("bias", -0.5),
            ("running_mean", -0.5),
            ("running_var", 0.5),
        ):
            made[f"{norm}.{part}"] = torch.rand(len(conv.weight), generator=generator) + low

    blocks: Any = TaughtBlocks()
    add("_conv_stem", "_bn0", blocks.conv_stem)
    for number, block in enumerate(blocks.blocks):
        for norm, name in enumerate(("expand_conv", "depthwise_conv", "project_conv")):
            if getattr(block, name) is not None:
                add(
                    f"_blocks.{number}._{name}", f"_blocks.{number}._bn{norm}", getattr(block, name)
                )
    return made


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("taught") / "lite0.pth"
    torch.save({**draw_weights(), "_fc.bias": torch.zeros(1000)}, path)
    return path


@torch.no_grad()
def test_blocks_are_the_taught_ones_with_their_norms(weights: Path) -> None:
    """As written out: TensorFlow's padding, batch normalisation with the statistics of the file."""
    held = torch.load(weights, weights_only=True)

    def apply(x: Tensor, name: str, norm: str, stride: int = 1) -> Tensor:
        filters = held[f"{name}.weight"]
        zeros = max(0, filters.shape[-1] - stride)
        x = pad(x, (zeros // 2, zeros - zeros // 2) * 2)
        x = conv2d(x, filters, stride=stride, groups=x.shape[1] if filters.shape[1] == 1 else 1)
        mean, var, weight, bias = (
            held[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return batch_norm(x, mean, var, weight, bias, eps=EPS)

    images = torch.rand(2, 3, 64, 96, generator=torch.Generator().manual_seed(2)) * 2 - 1
    seen = relu6(apply(images, "_conv_stem", "_bn0", 2))
    for number in range(11):
        name, before = f"_blocks.{number}.", seen
        if f"{name}_expand_conv.weight" in held:
            seen = relu6(apply(seen, f"{name}_expand_conv", f"{name}_bn0"))
        seen = relu6(
            apply(seen, f"{name}_depthwise_conv", f"{name}_bn1", 2 if number in (1, 3, 5) else 1)
        )
        seen = apply(seen, f"{name}_project_conv", f"{name}_bn2")
        seen = seen + before if seen.shape == before.shape else seen
    blocks = TaughtBlocks()
    blocks.load(str(weights))
    assert seen.shape == (2, TaughtBlocks.CHANNELS, 4, 6)
    assert torch.allclose(blocks(images), seen, atol=1e-4)


def test_a_taught_stem_stays_as_it_is(weights: Path, tmp_path: Path) -> None:
    keys = {"stem": "efficientnet_lite0", "stem_weights": str(weights), "patch_size": 16}
    arguments = detectors.arguments(
        tmp_path,
        **{f"model__small__{name}": value for name, value in keys.items()},
        schedule__optimizer="muon",
        schedule__pattern=["A"],
        schedule__steps=3,
    )
    assert main(arguments) == 0
    config = parse_run(tmp_path / "run").config
    make_small(tmp_path / "begun", config.model.small, read_inputs(config).descs)
    begun, ended = (
        AutoModelForImageTextToText.from_pretrained(tmp_path / name)
        for name in ("begun", "run/model")
    )
    moved = {
        name: float((each - ended.state_dict()[name]).abs().mean())
        for name, each in begun.state_dict().items()
    }
    taught = {name: each for name, each in moved.items() if ".stem.layers.0." in name}
    assert len(taught) == 2 * (1 + 3 * 11 - 1) and moved["model.visual.stem.proj.weight"] > 1e-5
    assert not any(taught.values())


@pytest.mark.parametrize(
    "kept", ["none", "text", "list", "half", "other_shape", "not_finite", "b0"]
)
def test_what_is_no_such_file_is_said_before_anything_starts(
    kept: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number alone in place of many would spread to all of them; EfficientNet-B0 has all that
    Lite0 has."""
    path, held = tmp_path / "lite0.pth", draw_weights()
    others: dict[str, Any] = {
        "list": [1, 2],
        "half": {"_conv_stem.weight": held["_conv_stem.weight"]},
        "other_shape": held | {"_bn0.bias": torch.zeros(1)},
        "not_finite": held | {"_blocks.3._bn1.running_var": -held["_blocks.3._bn1.running_var"]},
        "b0": held | {"_blocks.0._se_reduce.weight": torch.zeros(8, 32, 1, 1)},
    }
    said = {
        "none": "No such file",
        "text": "torch cannot read it",
        "list": "no names",
        "half": "_bn0.weight is not (32,)",
    }
    said |= {
        "other_shape": "_bn0.bias is not (32,)",
        "not_finite": "_blocks.3._bn1 holds",
        "b0": "EfficientNet-B0",
    }
    if kept in others:
        torch.save(others[kept], path)
    elif kept == "text":
        path.write_text("weights")
    root = tmp_path / "runs"
    root.mkdir()
    keys = {"stem": "efficientnet_lite0", "stem_weights": str(path), "patch_size": 16}
    assert (
        main(
            detectors.arguments(
                root, **{f"model__small__{key}": value for key, value in keys.items()}
            )
        )
        == 2
    )
    err = capsys.readouterr().err
    assert "model.small.stem_weights" in err and said[kept] in err
    assert not list(root.iterdir())


def test_a_taught_stem_without_a_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for keys in ({"stem": "efficientnet_lite0", "patch_size": 16}, {"stem_weights": "lite0.pth"}):
        assert (
            main(
                detectors.arguments(
                    tmp_path, **{f"model__small__{key}": value for key, value in keys.items()}
                )
            )
            == 2
        )
        assert "model.small.stem_weights" in capsys.readouterr().err
