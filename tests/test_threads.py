"""What a rank computes rests on the threads that its config gives it, and not on the cores of the
machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from stageb import engines
from stageb.config import FabricConfig
from stageb.demo import TICKETS
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Completion, Decode, Question, Request, Scorer
from stageb.errors import ConfigError
from stageb.guidance.rules.prompts import WORDS, rollout_prompt, verdict_lines
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.tickets.tickets import read_tickets
from stageb.job.world import World, run

Answered = tuple[list[tuple[float, ...]], list[tuple[Completion, ...]]]
AT_ONCE = 16  # tickets, as in a group of the demo


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def answered() -> Answered:
    """Scores and samples of the shipped model for some tickets of the demo, as a rank finds
    them."""
    tickets, _ = read_tickets([TICKETS], "error")
    words = WORDS["en"]
    lines = verdict_lines(words)
    some = tickets[: 3 * AT_ONCE]
    prompts = [
        rollout_prompt(ticket, make_neutral(ticket.mission, words), words) for ticket in some
    ]
    groups = [prompts[start : start + AT_ONCE] for start in range(0, len(prompts), AT_ONCE)]
    scores: list[tuple[float, ...]] = []
    samples: list[tuple[Completion, ...]] = []

    def main(world: World) -> int:
        engine = engines.build(ModelConfig(), world.device)
        assert isinstance(engine, Scorer)
        for group in groups:
            scores.extend(
                engine.score([Question(prompt, (lines["pass"], lines["fail"])) for prompt in group])
            )
        decode = Decode(temperature=0.7, max_new_tokens=12)
        samples.extend(
            engine.generate(
                [Request(prompt, decode, (place, 99)) for place, prompt in enumerate(groups[0])]
            )
        )
        return 0

    assert run(FabricConfig(accelerator="cpu", devices=1), main) == 0
    return scores, samples


@pytest.mark.slow
def test_a_rank_finds_the_same_bits_however_many_threads_the_machine_offers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for count in (1, 2, 4, 8):
        monkeypatch.setenv("OMP_NUM_THREADS", str(count))  # as torch finds it where it is imported
        torch.set_num_threads(count)
        found.append(answered())
        assert torch.get_num_threads() == count, "a caller's own threads are given back"
    assert [each == found[0] for each in found] == [True] * 4


def test_threads_are_the_configs() -> None:
    counts: list[int] = []

    def main(world: World) -> int:
        counts.append(torch.get_num_threads())
        assert world.facts()["torch_threads"] == counts[-1]
        return 0

    for settings in (FabricConfig(accelerator="cpu"), FabricConfig(accelerator="cpu", threads=3)):
        run(settings, main)
    assert counts == [1, 3]


def test_a_rank_has_a_thread_at_least() -> None:
    with pytest.raises(ConfigError, match=r"fabric\.threads: 0: at least 1"):
        FabricConfig(threads=0)
