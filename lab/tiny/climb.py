"""How far a run would climb on tickets of one's own, if every verdict were exact."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.tiny.answers import RULES, SAMPLES, VERDICT, careful_gain, executed, net_gain, sampled
from lab.tiny.examples import guidance_of
from lab.tiny.lessons import Fold
from lab.tiny.pool import Pool
from lab.tiny.rules import CANONICAL, Book, Facts
from lab.tiny.worlds import World
from stageb.engines import Engine, Request
from stageb.guidance.learning.proposals import parse_proposal
from stageb.guidance.rules.prompts import WORDS, reflection_prompt, rollout_prompt
from stageb.guidance.words.types import Ticket
from stageb.seeds import stream

FOLDS = 3


class Table:
    """Tickets of one mission, read as ``attribute: value; ...`` or, where they are nothing of the kind, as words."""

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.tickets = [Ticket(x["mission"], x["group_id"], x["label"], tuple(x["per_image"].items())) for x in lines]
        self.facts = [self._facts([text for _, text in ticket.per_image]) for ticket in self.tickets]
        values: dict[str, dict[str, None]] = {}
        for each in self.facts:
            for attribute, value in each.values.items():
                values.setdefault(attribute, {})[value] = None
        spread = {attribute: tuple(found) for attribute, found in values.items()}
        even = {attribute: (1.0,) * len(found) for attribute, found in spread.items()}
        self.world = World(
            "en", self.tickets[0].mission, spread, even, {}, (), (), (1, 1), ": ", "; ", 1, layout=tuple(spread)
        )

    @staticmethod
    def _facts(texts: Sequence[str]) -> Facts:
        parts = [part.split(": ") for text in texts for part in text.split("; ")]
        if all(len(part) == 2 for part in parts):
            return Facts(dict(parts), ())
        return Facts({}, tuple(re.findall(r"[a-z]+", " ".join(texts).lower())))

    def pool(self, positions: Sequence[int]) -> TicketPool:
        """Some of the tickets."""
        chosen = [self.tickets[i] for i in positions]
        return TicketPool(self.world, [self.facts[i] for i in positions], chosen)


class TicketPool(Pool):
    """A pool whose tickets are written as they came."""

    def __init__(self, world: World, facts: Sequence[Facts], tickets: Sequence[Ticket]) -> None:
        super().__init__(world, facts, [ticket.label for ticket in tickets])
        self.tickets = tickets

    def ticket(self, position: int, rng: random.Random) -> Ticket:
        """The ticket itself."""
        return self.tickets[position]


def climb(engine: Engine, table: Table, seed: int, bundles: int) -> dict[str, Any]:
    """A run in which verdicts are exact and the gate takes the proposal of largest ``careful_gain`` on the other folds.

    Returns the accuracy on tickets kept apart as the run goes on, and at its end: executed to the letter and as the model
    judges them, and the share of model verdicts that are the executed ones; of the answers, the shares that are usable and
    that gain two tickets or more.
    """
    rng = random.Random(stream("climb", seed))
    order = rng.sample(range(len(table.tickets)), len(table.tickets))
    cut = round(0.6 * len(order))
    train, test = table.pool(order[:cut]), table.pool(order[cut:])
    book, path, gained = Book({}, "pass"), [], Counter[str]()
    headline = WORDS["en"].neutral_headline
    for number in range(bundles):
        guidance = guidance_of(table.world, book, headline, CANONICAL)
        fold = Fold(rng, train, book, range(number % FOLDS, cut, FOLDS), guidance)
        fold.lines = RULES.evidence
        tested = fold.tested
        books = []
        for sample in range(SAMPLES):
            stage, shown = fold.look(rng, 4500)
            if stage.wrong:
                prompt = reflection_prompt(shown, guidance, WORDS["en"], 1)
                (text,) = sampled(engine, prompt, (seed, number, sample), 1)
                operations = parse_proposal(text, shown, guidance, RULES, WORDS["en"], 0).operations
                books += [after for operation in operations if (after := executed(book, operation))]
        best = max(books, key=lambda after: careful_gain(train, tested, book, after), default=book)
        gained.update(usable=len(books), better=sum(net_gain(train, tested, book, after) > 1 for after in books))
        if net_gain(train, tested, book, best) >= 2:
            book = best
        path.append(round(test.right(book).bit_count() / len(test.facts), 4))
    return {"test_accuracy_after_bundles": path[3::4], **judged(engine, table, test, book)} | {
        name: round(count / (bundles * SAMPLES), 4) for name, count in gained.items()
    }


def judged(engine: Engine, table: Table, test: TicketPool, book: Book) -> dict[str, Any]:
    """How a book does on other tickets, executed and as the model follows it."""
    guidance = guidance_of(table.world, book, WORDS["en"].neutral_headline, CANONICAL)
    requests = [Request(rollout_prompt(ticket, guidance, WORDS["en"]), VERDICT, (0,)) for ticket in test.tickets]
    said = ["fail" if completion.text.strip() == "Verdict: fail" else "pass" for (completion,) in engine.generate(requests)]
    failed = test.fail(book)
    return {
        "test_accuracy_executed": round(test.right(book).bit_count() / len(test.facts), 4),
        "test_accuracy_judged": round(sum(a == b for a, b in zip(said, test.labels, strict=True)) / len(said), 4),
        "verdicts_as_executed": round(
            sum((v == "fail") == bool(failed >> i & 1) for i, v in enumerate(said)) / len(said), 4
        ),
        "rules": [rule.text("en", CANONICAL) for rule in book.rules.values()],
    }
