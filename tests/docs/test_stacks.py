"""The examples for other stacks, against the libraries that they are for, where these are
installed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
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
    """GEPA's adapter for a task without a model: an example fails if it holds the word that the
    candidate names."""

    propose_new_texts = None

    def evaluate(
        self, batch: Sequence[Any], candidate: dict[str, str], capture_traces: bool = False
    ) -> Any:
        from gepa.core.adapter import EvaluationBatch

        scores = [float((candidate["rule"] in words) == fails) for words, fails in batch]
        return EvaluationBatch(
            outputs=scores, scores=scores, trajectories=scores if capture_traces else None
        )

    def make_reflective_dataset(
        self, candidate: Any, batch: Any, components: Sequence[str]
    ) -> dict[str, list[Any]]:
        return {name: [{"score": score} for score in batch.scores] for name in components}


def optimize(fails_by: str | None, seed: int, criterion: Any) -> Any:
    """A run of GEPA on examples that fail by a word, or for None by a coin, with words proposed by
    chance."""
    import gepa

    draw = random.Random(seed)
    words = [frozenset(draw.sample(WORDS, 12)) for _ in range(240)]
    examples = [(each, fails_by in each if fails_by else draw.random() < 0.4) for each in words]
    return gepa.optimize(
        seed_candidate={"rule": "none"},
        trainset=examples[:60],
        valset=examples[60:80],
        adapter=Rules(),
        custom_candidate_proposer=lambda candidate, dataset, components: {
            "rule": draw.choice(WORDS)
        },
        acceptance_criterion=criterion(examples[80:]),
        reflection_minibatch_size=6,
        max_metric_calls=900,
        logger=Silent(),
        seed=seed,
    )


def proven(held_out: Sequence[Any]) -> Any:
    from gepa_gate import ProvenBetter

    return ProvenBetter(
        lambda candidate, examples: Rules().evaluate(examples, candidate).scores, held_out
    )


def test_gepa_keeps_by_our_gate_what_helps_and_hardly_anything_else() -> None:
    gepa = pytest.importorskip("gepa")
    assert isinstance(proven([]), gepa.strategies.acceptance.AcceptanceCriterion)
    by_gate = [len(optimize(None, seed, proven).candidates) > 1 for seed in range(10)]
    by_luck = [
        len(optimize(None, seed, lambda _: "strict_improvement").candidates) > 1
        for seed in range(10)
    ]
    assert sum(by_gate) <= 2 < 8 <= sum(by_luck)
    found = [optimize("w7", seed, proven).best_candidate["rule"] for seed in range(5)]
    assert found.count("w7") >= 3, found


ROWS = [{"seal": ("worn", "good", "new")[n % 3], "length": str(300 + n)} for n in range(120)]


def judge_row(row: dict[str, str]) -> str:
    return "no" if row["seal"] == "worn" and int(row["length"]) > 330 else "yes"


def test_an_mlflow_judge_gets_the_rules_that_people_judged_by() -> None:
    pytest.importorskip("mlflow.genai.judges", exc_type=ImportError)
    pytest.importorskip("sklearn")
    from types import SimpleNamespace as Made

    from mlflow.genai.judges import make_judge
    from mlflow_judge import LearntRules

    def trace(row: dict[str, str], value: str, by: str = "HUMAN") -> Any:
        told = Made(name="sealed", feedback=Made(value=value), source=Made(source_type=by))
        return Made(
            info=Made(assessments=[told]), data=Made(request=json.dumps(row), response='"seen"')
        )

    judge = make_judge(
        name="sealed",
        instructions="Is it sealed? {{ inputs }} {{ outputs }}",
        model="openai:/gpt-4o-mini",
    )
    traces = [
        *(trace(row, judge_row(row)) for row in ROWS),
        trace(ROWS[0], "maybe", by="LLM_JUDGE"),
    ]
    optimizer = LearntRules(fails="no")
    aligned = judge.align(traces, optimizer=optimizer)
    assert (aligned.name, aligned.model) == ("sealed", judge.model)
    assert (
        aligned.instructions.startswith(judge.instructions)
        and "Fail means no, pass means yes" in aligned.instructions
    )
    assert all(rule in aligned.instructions for rule in optimizer.rules)
    assert "seal" in str(optimizer.rules) and "length" in str(optimizer.rules)
    with pytest.raises(ValueError, match="fewer than two values"):
        judge.align(traces[:1], optimizer=optimizer)


def test_a_dspy_program_gets_the_instruction_that_fit_has_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dspy = pytest.importorskip("dspy", exc_type=ImportError)
    from dspy_instruction import LearntInstruction

    monkeypatch.chdir(tmp_path)
    examples = [
        dspy.Example(**row, verdict=judge_row(row)).with_inputs("seal", "length") for row in ROWS
    ]
    student = dspy.Predict("seal, length -> verdict")
    keys: dict[str, Any] = {"fabric": {"accelerator": "cpu", "devices": 1}, "report": False}
    optimizer = LearntInstruction("verdict", fails=("no",), **keys)
    compiled = optimizer.compile(student, trainset=examples)
    instruction = compiled.signature.instructions
    assert (
        instruction.startswith(student.signature.instructions)
        and "Fail means verdict no" in instruction
    )
    assert optimizer.run is not None and optimizer.run.is_finished
    told = optimizer.run.predict(ROWS, by="rules")
    assert [row["verdict"] for row in told] == [
        "fail" if judge_row(row) == "no" else "pass" for row in ROWS
    ]
    assert all(rule.text in instruction for rule in optimizer.run.guidance["examples"].rules)
