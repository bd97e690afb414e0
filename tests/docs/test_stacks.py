"""The examples for other stacks, against the libraries that they are for, where these are installed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from docs.pages import DOCS

EXAMPLES = DOCS / "examples"
WORDS = [f"w{n}" for n in range(40)]


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


class Silent:
    def log(self, message: str) -> None:
        """Nowhere."""


class Rules:
    """GEPA's adapter for a task without a model: an example fails if it holds the word that the candidate names."""

    propose_new_texts = None

    def evaluate(self, batch: Sequence[Any], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        from gepa.core.adapter import EvaluationBatch

        scores = [float((candidate["rule"] in words) == fails) for words, fails in batch]
        return EvaluationBatch(outputs=scores, scores=scores, trajectories=scores if capture_traces else None)

    def make_reflective_dataset(self, candidate: Any, batch: Any, components: Sequence[str]) -> dict[str, list[Any]]:
        return {name: [{"score": score} for score in batch.scores] for name in components}


def optimize(fails_by: str | None, seed: int, criterion: Any) -> Any:
    """A run of GEPA on examples that fail by a word, or for None by a coin, with words proposed by chance."""
    import gepa

    draw = random.Random(seed)
    words = [frozenset(draw.sample(WORDS, 12)) for _ in range(240)]
    examples = [(each, fails_by in each if fails_by else draw.random() < 0.4) for each in words]
    return gepa.optimize(
        seed_candidate={"rule": "none"},
        trainset=examples[:60],
        valset=examples[60:80],
        adapter=Rules(),
        custom_candidate_proposer=lambda candidate, dataset, components: {"rule": draw.choice(WORDS)},
        acceptance_criterion=criterion(examples[80:]),
        reflection_minibatch_size=6,
        max_metric_calls=900,
        logger=Silent(),
        seed=seed,
    )


def proven(held_out: Sequence[Any]) -> Any:
    from gepa_gate import ProvenBetter

    return ProvenBetter(lambda candidate, examples: Rules().evaluate(examples, candidate).scores, held_out)


def test_gepa_keeps_by_our_gate_what_helps_and_hardly_anything_else() -> None:
    gepa = pytest.importorskip("gepa")
    assert isinstance(proven([]), gepa.strategies.acceptance.AcceptanceCriterion)
    by_gate = [len(optimize(None, seed, proven).candidates) > 1 for seed in range(10)]
    by_luck = [len(optimize(None, seed, lambda _: "strict_improvement").candidates) > 1 for seed in range(10)]
    assert sum(by_gate) <= 2 < 8 <= sum(by_luck)
    found = [optimize("w7", seed, proven).best_candidate["rule"] for seed in range(5)]
    assert found.count("w7") >= 3, found
