"""GEPA as its users run it, on an instruct model: python -m lab.bench.learning.gepa_prompt MODEL
TICKETS --seed 1

The candidate is the whole instruction, free text. GEPA's own proposer asks the same model to
rewrite it, in GEPA's words, from a minibatch of tickets with their verdicts and labels. A verdict
is the likeliest of the lines "Verdict: ...", one for each label, so that no answer is unreadable.
Minibatches of 24, 128 of the train tickets, half of them at most, to rank candidates on, and a
cache, as tuned for the shipped model. Train and test are those of
``configs/guidance/one-gpu.yaml`` with the same seed. It prints a row: percent of test right before
and after, and the instruction.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from gepa import EvaluationBatch, optimize

from lab.bench.learning.gepa_peer import Silent
from stageb import engines
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Decode, Engine, Prompt, Question, Request, Scorer
from stageb.guidance.config import LoopConfig, SplitConfig
from stageb.guidance.rules.prompts import ticket_text
from stageb.guidance.tickets.splits import split_tickets
from stageb.guidance.tickets.tickets import read_tickets
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import PASS_FAIL, Ticket
from stageb.seeds import shuffled, stream

COMPONENT = "instruction"
FIRST = "Judge the ticket of the mission {mission}: {question}?\nAnswer: {answers}."
MINIBATCH = 24
MOST_VAL = 128
BATCH = 128  # tickets that the model reads at once
REWRITE = Decode(temperature=1.0, max_new_tokens=512)
SPLIT = SplitConfig(train=0.8, val=0.0, test=0.2)

Texts = dict[str, str]


class Adapter:
    """The system that GEPA optimises; see ``GEPAAdapter`` in ``gepa.core.adapter``."""

    propose_new_texts = None  # GEPA's own proposer

    def __init__(self, engine: Engine, labels: Sequence[str], seed: int) -> None:
        assert isinstance(engine, Scorer)
        self.engine: Any = engine
        self.labels = labels
        self.seed = seed
        self.rollouts = 0
        self.reflections = 0

    def judge(self, instruction: str, tickets: Sequence[Ticket]) -> list[str]:
        """The verdict on each ticket, in order."""
        verdicts: list[str] = []
        lines = tuple(f"Verdict: {label}" for label in self.labels)
        for start in range(0, len(tickets), BATCH):
            prompts = [
                Prompt(instruction, ticket_text(ticket))
                for ticket in tickets[start : start + BATCH]
            ]
            scores = self.engine.score([Question(prompt, lines) for prompt in prompts])
            verdicts += [self.labels[row.index(max(row))] for row in scores]
        return verdicts

    def evaluate(
        self, batch: list[Ticket], candidate: Texts, capture_traces: bool = False
    ) -> EvaluationBatch[Any, str]:
        """1 for a right verdict, 0 for any other."""
        self.rollouts += len(batch)
        verdicts = self.judge(candidate[COMPONENT], batch)
        scores = [
            float(verdict == ticket.label) for verdict, ticket in zip(verdicts, batch, strict=True)
        ]
        return EvaluationBatch(verdicts, scores, list(zip(batch, verdicts, strict=True)))

    def make_reflective_dataset(
        self,
        candidate: Texts,
        eval_batch: EvaluationBatch[Any, str],
        components_to_update: list[str],
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """The minibatch: ticket, verdict, and what an inspector decided."""
        must = "this ticket must" if self.labels == PASS_FAIL else "the label is"
        return {
            COMPONENT: [
                {
                    "Inputs": ticket_text(ticket),
                    "Generated Outputs": f"Verdict: {verdict}",
                    "Feedback": "right"
                    if verdict == ticket.label
                    else f"wrong: {must} {ticket.label}",
                }
                for ticket, verdict in eval_batch.trajectories or []
            ]
        }

    def rewrite(self, prompt: str) -> str:
        """The model's answer to GEPA's prompt."""
        key = stream(self.seed, "gepa", self.reflections)
        self.reflections += 1
        ((answer,),) = self.engine.generate(
            [Request(Prompt("You are a helpful assistant.", prompt), REWRITE, (key,))]
        )
        return str(answer.text)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a folder or a hub name")
    parser.add_argument("tickets", type=Path, help="a ticket file of one mission")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--column", help="of the split, where the tickets name their own")
    parser.add_argument("--budget", type=int, default=5000, help="rollouts")
    parser.add_argument(
        "--seconds",
        type=float,
        default=inf,
        help="after which it ends, whatever is left of the budget",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    print(json.dumps(learn(parser.parse_args()), ensure_ascii=False))


def learn(given: argparse.Namespace) -> dict[str, Any]:
    """Run GEPA, then judge test."""
    columns = ColumnsConfig(split=given.column)
    tickets = read_tickets([given.tickets], "error", columns)[0]
    (parts,) = split_tickets(
        tickets, LoopConfig(tickets=["-"], seed=given.seed, split=SPLIT)
    ).values()
    train = shuffled([tickets[i] for i in parts.of("train")], stream(given.seed, "gepa val"))
    test = [tickets[i] for i in parts.of("test")]
    labels = tuple(sorted({ticket.label for ticket in tickets}, reverse=True))
    question = (
        "does it pass or fail"
        if labels == PASS_FAIL
        else f"which of the labels {', '.join(labels)} is its"
    )
    answers = ", or ".join(f"Verdict: {label}" for label in labels)
    config = ModelConfig(model_name_or_path=given.model, torch_dtype="bfloat16")
    adapter = Adapter(engines.build(config, given.device), labels, given.seed)
    first = {
        COMPONENT: FIRST.format(mission=tickets[0].mission, question=question, answers=answers)
    }
    end, ranked = time.monotonic() + given.seconds, min(MOST_VAL, len(train) // 2)
    found = optimize(
        seed_candidate=first,
        trainset=train[ranked:],
        valset=train[:ranked],
        adapter=adapter,
        reflection_lm=adapter.rewrite,
        reflection_minibatch_size=MINIBATCH,
        use_merge=True,
        cache_evaluation=True,
        max_metric_calls=given.budget,
        stop_callbacks=lambda _: time.monotonic() > end,
        logger=Silent(),
        seed=given.seed,
    )
    row: dict[str, Any] = {
        "tickets": given.tickets.parent.name,
        "seed": given.seed,
        "rollouts": adapter.rollouts,
    }
    row["reflections"] = adapter.reflections
    for name, texts in (("before", first), ("after", found.best_candidate)):
        verdicts = adapter.judge(texts[COMPONENT], test)
        right = sum(verdict == ticket.label for verdict, ticket in zip(verdicts, test, strict=True))
        row[name] = round(100 * right / len(test), 1)
    return row | {"instruction": found.best_candidate[COMPONENT]}


if __name__ == "__main__":
    main()
