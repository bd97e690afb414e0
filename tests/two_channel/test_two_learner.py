"""The learner: what a step does to weights, however its samples are laid out; going on from a
checkpoint."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from programs.ranks import on_ranks
from torch import Tensor
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer
from two_channel import made

from stageb.config import FabricConfig
from stageb.engines.native.rows import PICTURE
from stageb.errors import ConfigError, InputError
from stageb.job.placement import Fabric
from stageb.job.world import World, pack, unpack
from stageb.training.step import NonFiniteError
from stageb.two_channel.boxes import text
from stageb.two_channel.boxes.metrics import match_prefix
from stageb.two_channel.config import DetectorConfig, LossConfig, PackingConfig, ScheduleConfig
from stageb.two_channel.learning import packing
from stageb.two_channel.learning.learner import DetectorLearner, StepFigures, make_optimizers
from stageb.two_channel.learning.losses import compute_losses
from stageb.two_channel.learning.packing import Line
from stageb.two_channel.learning.targets import make_corrected_target, make_true_target
from stageb.two_channel.model import model
from stageb.two_channel.model.model import Detector

Targets = list[Any]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint and its images."""
    return made.folder_of(tmp_path_factory.mktemp("detector"))


def world(precision: Literal["32-true", "bf16-mixed"] = "32-true") -> World:
    return World(Fabric(accelerator="cpu", devices=1, precision=precision))


def gradients(found: Detector) -> dict[str, Tensor]:
    """Of all weights, and nothing left behind."""
    kept = {
        name: each.grad.clone()
        for name, each in found.model.named_parameters()
        if each.grad is not None
    }
    found.model.zero_grad()
    return kept


def gradient_of(found: Detector, packs: list[list[Line]]) -> tuple[float, dict[str, Tensor]]:
    """The loss of packs, and its gradient."""
    total, totals = 0.0, made.totals(*packs)
    for lines in packs:
        pack = packing.pack(found, lines, totals)
        loss = compute_losses(
            packing.forward(found.model, pack), pack.taught, found.head(), made.EVERY_LOSS
        ).total
        loss.backward()
        total += loss.item()
    return total, gradients(found)


def alike(one: dict[str, Tensor], other: dict[str, Tensor], within: float = 1e-5) -> None:
    """Assert that gradients are equal, but for rounding."""
    assert one.keys() == other.keys() and one
    for name, gradient in one.items():
        assert torch.allclose(gradient, other[name], rtol=1e-4, atol=within), name


def test_packed_is_unpacked_in_loss_and_gradient_in_any_order(root: Path) -> None:
    found = made.detector(root)
    lines = [packing.make_line(found, *target) for target in made.taught(root, found)]
    assert len({len(line.prompt) for line in lines}) > 1
    loss, apart = gradient_of(found, [[line] for line in lines])
    for order in (lines, lines[::-1], random.Random(1).sample(lines, len(lines))):
        for packs in ([order], [order[:2], order[2:]]):
            packed, together = gradient_of(found, packs)
            assert packed == pytest.approx(loss, rel=1e-5)
            alike(together, apart)


def test_objects_and_ends_weigh_the_same_in_every_image_and_on_both_channels(root: Path) -> None:
    """Where a model said all there is, the end of its answer is the only text taught: no reason to
    weigh more."""
    found = made.detector(root)
    spelling = found.spelling
    truths = [(sample, text.list_true_objects(sample)) for sample in made.samples(root)]
    assert len({len(true) for _, true in truths}) > 1
    lines, corrected = [], []
    for sample, true in truths:
        target = make_true_target(true, spelling)
        lines.append(packing.make_line(found, sample, target))
        parsed = text.parse(target.ids, spelling)
        kept = make_corrected_target(
            target.ids, parsed, match_prefix(parsed.objects, true, 0.5), true, spelling
        )
        assert kept.ids == target.ids and sum(kept.taught) < sum(target.taught)
        corrected.append(packing.make_line(found, sample, kept))
    totals = made.totals(lines)
    one, other = (packing.pack(found, each, totals).taught for each in (lines, corrected))
    assert (one.object_share, one.word_share) == (other.object_share, other.word_share)
    assert one.object_share * len(one.slots) == pytest.approx(1) and one.word_share * len(
        one.words
    ) == pytest.approx(1)
    ends = (one.tokens == spelling.end).nonzero()[:, 0]
    assert set(ends.tolist()) <= set(one.words.tolist()) & set(other.words.tolist())


def test_a_pass_is_the_models_own(root: Path) -> None:
    """That of transformers itself, but for rounding."""
    found = made.detector(root)
    target = made.taught(root, found)[0]
    line = packing.make_line(found, *target)
    pack = packing.pack(found, [line], made.totals([line]))
    states = packing.forward(found.model, pack)
    logits = found.head().logits(states)

    ids = torch.tensor([found.eyes.replace_images(line.prompt + line.target.ids)])
    image = made.samples(root)[0].image
    shown = found.eyes.process(
        images=[found.eyes._opened(image, line.prompt[_first_picture(line)])], return_tensors="pt"
    )
    found.model.set_attn_implementation("eager")
    kinds = (ids == found.model.config.image_token_id).int()
    plain = found.model(
        input_ids=ids, mm_token_type_ids=kinds, attention_mask=torch.ones_like(ids), **shown
    ).logits[0]
    begin = len(line.prompt)
    assert torch.allclose(logits, plain[begin - 1 : -1], atol=1e-4)
    by_hand = torch.nn.functional.cross_entropy(
        plain[begin - 1 : -1][torch.tensor(line.target.taught)],
        torch.tensor(line.target.ids)[torch.tensor(line.target.taught)],
    )
    told = compute_losses(states, pack.taught, found.head(), LossConfig())
    assert float(told.text) == pytest.approx(float(by_hand), rel=1e-4)


def _first_picture(line: Line) -> int:
    return next(place for place, token in enumerate(line.prompt) if token >= PICTURE)


def steps(
    learner: DetectorLearner, targets: Targets, count: int = 3, begin: int = 0
) -> list[StepFigures]:
    return [made.step(learner, step, targets) for step in range(begin, begin + count)]


def learner_of(root: Path, there: World, **sections: Any) -> DetectorLearner:
    return DetectorLearner(
        there, made.detector(root, sections.get("model")), made.config(**sections)
    )


def test_ranks_with_unequal_numbers_of_packs_learn_what_one_does(root: Path) -> None:
    """Three packs on two ranks; then a step with one pack, where a rank has none."""

    def learnt(there: World) -> tuple[list[StepFigures], dict[str, Tensor], int]:
        learner = learner_of(root, there)
        targets = made.taught(root, learner.detector)
        made_steps = 0

        def count(*_: Any) -> None:
            nonlocal made_steps
            made_steps += 1

        learner.optimizers[0].register_step_post_hook(count)
        figures = [*steps(learner, targets), *steps(learner, targets[:1], 1)]
        return figures, dict(learner.detector.model.state_dict()), made_steps

    (alone, one, made_alone), *others = [
        result for size in (1, 2) for result in on_ranks(size, learnt)
    ]
    assert alone[0].packs == 3 and alone[-1].packs == 1 and made_alone == 4
    # of all but the last, which holds what is left
    assert alone[0].fill == pytest.approx(0.9, abs=0.1)
    for figures, state, made_there in others:
        assert made_there == 4
        for mine, theirs in zip(alone, figures, strict=True):
            assert theirs.losses == pytest.approx(mine.losses, rel=1e-4, abs=1e-6)
            assert (theirs.packs, theirs.fill, theirs.tokens) == (
                mine.packs,
                mine.fill,
                mine.tokens,
            )
        for name, weight in one.items():
            assert torch.allclose(weight, state[name], atol=2e-5), name
    assert all(torch.equal(others[0][1][name], others[1][1][name]) for name in one)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_it_goes_on_from_a_checkpoint_bit_by_bit(
    root: Path, optimizer: Literal["adamw", "muon"]
) -> None:
    sections = {"schedule": ScheduleConfig(optimizer=optimizer)}
    whole = learner_of(root, world(), **sections)
    targets = made.taught(root, whole.detector)
    begun = learner_of(root, world(), **sections)
    steps(begun, targets, 2)
    state = unpack(pack(begun.state()))
    again = learner_of(root, world(), **sections)
    again.take_up(state)
    steps(whole, targets, 4), steps(again, targets, 2, begin=2)
    pairs = zip(
        whole.detector.model.state_dict().items(),
        again.detector.model.state_dict().items(),
        strict=True,
    )
    assert all(
        name == other and torch.equal(mine, theirs) for (name, mine), (other, theirs) in pairs
    )


def test_muon_takes_matrices_and_adamw_the_rest_each_weight_once(root: Path) -> None:
    found = made.detector(root).model
    adamw, muon = make_optimizers(found, ScheduleConfig(optimizer="muon"))
    names = {id(each): name for name, each in found.named_parameters()}
    theirs, its = (
        {names[id(each)] for group in one.param_groups for each in group["params"]}
        for one in (adamw, muon)
    )
    assert theirs | its == set(names.values()) and not theirs & its
    assert {
        name for name in its if "embed" in name or "norm" in name or name.endswith("bias")
    } == set()
    assert {name for name in theirs if "_proj" in name or "fc" in name or "qkv" in name} == {
        name
        for name in names.values()
        if name.endswith("bias") and ("_proj" in name or "fc" in name or "qkv" in name)
    }


def test_steps_that_come_to_no_finite_gradient_are_left_out_and_three_in_a_row_end_it(
    root: Path,
) -> None:
    learner = learner_of(root, world())
    targets = made.taught(root, learner.detector)[:2]
    weight = learner.detector.model.model.language_model.norm.weight
    before = {name: each.clone() for name, each in learner.detector.model.state_dict().items()}
    hook = weight.register_hook(lambda gradient: gradient * float("nan"))
    assert [each.skipped for each in steps(learner, targets, 2)] == [True, True]
    assert all(
        torch.equal(each, before[name])
        for name, each in learner.detector.model.state_dict().items()
    )
    hook.remove()
    assert [each.skipped for each in steps(learner, targets, 1)] == [False]
    weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(NonFiniteError, match="3 steps in a row"):
        steps(learner, targets, 3)


def test_steps_that_came_to_nothing_count_on_where_a_run_resumes(root: Path) -> None:
    begun, again = (learner_of(root, world()) for _ in range(2))
    targets = made.taught(root, begun.detector)[:2]
    for learner in (begun, again):
        weight = learner.detector.model.model.language_model.norm.weight
        weight.register_hook(lambda gradient: gradient * float("nan"))
    steps(begun, targets, 2)
    again.take_up(unpack(pack(begun.state())))
    with pytest.raises(NonFiniteError, match="3 steps in a row"):
        steps(again, targets, 1, begin=2)


def test_what_only_answers_is_halved_on_a_gpu_alone() -> None:
    mixed, whole = made.config(fabric=FabricConfig(precision="bf16-mixed")), made.config()
    assert model.find_dtype(mixed, "cuda:1", answers=True) == torch.bfloat16
    others = [(mixed, "cpu", True), (whole, "cuda:0", True), (mixed, "cuda:0", False)]
    assert {model.find_dtype(*each) for each in others} == {torch.float32}


def adapted(root: Path, **sections: Any) -> DetectorLearner:
    """A learner of adapters."""
    config = DetectorConfig(model_name_or_path=str(root / "model"), lora_rank=4)
    made.save(made.detector(root), root / "rough")
    return DetectorLearner(
        world(), made.load(root / "rough", config), made.config(model=config, **sections)
    )


@pytest.mark.slow
def test_adapters_merge_to_the_same_answers(root: Path, tmp_path: Path) -> None:
    plain = made.detector(root)
    learner = adapted(root)
    begun = dict(learner.detector.weights())
    before = plain.model.state_dict()
    assert all(torch.allclose(begun[name], each, atol=1e-6) for name, each in before.items())
    targets = made.taught(root, learner.detector)
    figures = steps(learner, targets, 8)
    assert figures[-1].losses["total"] < figures[0].losses["total"]
    merged = dict(learner.detector.weights())
    assert merged.keys() == before.keys()
    changed = {name for name, each in before.items() if not torch.equal(begun[name], merged[name])}
    assert any("visual" in name for name in changed) and not any(
        "norm" in name or "bias" in name for name in changed
    )
    moved = (merged["lm_head.weight"] != before["lm_head.weight"]).any(-1).nonzero()[:, 0]
    assert moved.min() >= plain.spelling.coordinates[0]  # of the tokens, coordinates alone

    plain.model.load_state_dict(merged)
    made.save(plain, tmp_path)
    logits = []
    for each in (learner.detector, made.load(tmp_path)):
        lines = [packing.make_line(each, *target) for target in targets]
        states = packing.forward(each.model, packing.pack(each, lines, made.totals(lines)))
        logits.append(each.head().logits(states))
    torch.testing.assert_close(logits[0], logits[1], atol=1e-4, rtol=1e-4)


def test_adapters_go_on_from_a_checkpoint_bit_by_bit(root: Path) -> None:
    whole, begun, again = (adapted(root) for _ in range(3))
    targets = made.taught(root, whole.detector)
    steps(begun, targets, 2)
    state = unpack(pack(begun.state()))
    assert sum(each.numel() for each in state["weights"].values()) < sum(
        each.numel() for each in whole.detector.model.parameters()
    )
    again.take_up(state)
    steps(whole, targets, 4), steps(again, targets, 2, begin=2)
    one, other = (dict(each.detector.weights()) for each in (whole, again))
    assert one.keys() == other.keys() and all(
        torch.equal(each, other[name]) for name, each in one.items()
    )


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_coordinate_tokens_learnt_beside_adapters_are_embeddings_to_the_optimisers(
    root: Path, optimizer: Any
) -> None:
    """Decay would draw them, which hold whole embeddings, towards zero."""
    found = adapted(root).detector.model
    first, *muon = make_optimizers(found, ScheduleConfig(optimizer=optimizer))
    names = {id(each): name for name, each in found.named_parameters()}
    still = {
        names[id(each)]
        for group in first.param_groups
        if not group["weight_decay"]
        for each in group["params"]
    }
    assert still == {name for name in names.values() if "trainable_tokens_delta" in name}
    given = [
        names[id(each)]
        for one in (first, *muon)
        for group in one.param_groups
        for each in group["params"]
    ]
    assert sorted(given) == sorted(
        name for name, each in found.named_parameters() if each.requires_grad
    )


def test_frozen_weights_are_halved_where_precision_is_and_adapters_are_not(root: Path) -> None:
    config = DetectorConfig(model_name_or_path=str(root / "model"), lora_rank=16)
    mixed = made.config(model=config, fabric=FabricConfig(precision="bf16-mixed"))
    found = model.load(str(root / "model"), mixed, (), "cpu")
    kinds = {(each.requires_grad, each.dtype) for each in found.model.parameters()}
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}
    figures = steps(DetectorLearner(world("bf16-mixed"), found, mixed), made.taught(root, found), 8)
    assert figures[-1].losses["total"] < figures[0].losses["total"]


def test_layers_are_not_compiled_without_a_compiler(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "/nonexistent/g++")
    with pytest.raises(ConfigError, match=r"model\.compile.*no compiler"):
        DetectorLearner(
            world(), made.detector(root), made.config(model=DetectorConfig(compile=True))
        )


def test_an_overlong_sample_is_refused_or_set_aside_and_counted(root: Path) -> None:
    found = made.detector(root)
    targets = made.taught(root, found)
    longest = max(len(packing.make_line(found, *target)) for target in targets)
    packs = PackingConfig(160, longest - 1)
    with pytest.raises(
        InputError, match=r"train/.*png: its prompt has \d+ tokens and its answer \d+.*max_length"
    ):
        steps(learner_of(root, world(), packing=packs), targets)
    (figures,) = steps(
        learner_of(root, world(), packing=replace(packs, overlong="set_aside")), targets, 1
    )
    assert figures.set_aside == 1 and not figures.skipped


def test_half_precision_and_layers_computed_twice_learn_the_same(root: Path) -> None:
    plain = learner_of(root, world())
    targets = made.taught(root, plain.detector)
    twice = learner_of(root, world(), model=DetectorConfig(gradient_checkpointing=True))
    halved = learner_of(root, world("bf16-mixed"))
    told = [steps(each, targets) for each in (plain, twice, halved)]
    for one, other, coarse in zip(*told, strict=True):
        assert other.losses == pytest.approx(one.losses, rel=1e-5)
        assert coarse.losses["total"] == pytest.approx(one.losses["total"], rel=0.05)
        assert coarse.losses != one.losses
    assert all(each.dtype == torch.float32 for each in halved.detector.model.parameters())


def test_a_made_model_is_a_checkpoint_of_transformers(root: Path, tmp_path: Path) -> None:
    found = made.load(root / "model")
    made.save(found, tmp_path)
    again = AutoModelForImageTextToText.from_pretrained(tmp_path)
    state = found.model.state_dict()
    assert all(torch.equal(each, state[name]) for name, each in again.state_dict().items())
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path)
    process = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": made.WORDS}]}],
        tokenize=False,
        add_generation_prompt=True,
    )
    ids = found.eyes.replace_images(found.prompt_ids(made.samples(root)[0].image))
    picture = int(found.model.config.image_token_id)
    alone = [
        token for place, token in enumerate(ids) if token != picture or ids[place - 1] != picture
    ]
    assert tokenizer(prompt)["input_ids"] == alone
    assert process.patch_size == made.SMALL.patch_size
