"""Score a checkpoint through the product's own engine: ``python -m lab.tiny.evaluate --model stageb-tiny``.

Verdicts: fresh missions with unseen words, judged greedily, by the kind of rules. Reflections: sampled as the loop samples
them, at the first stage of a run and at later ones; an answer is *usable* if the loop would take it, *admissible* if the
exact teacher knows it too, *best* if no edit that the teacher knows scores higher. Its *gain* is what it does to the whole
pool of tickets, executed to the letter, as a share of what the teacher's best edit does; ``gain_of_12`` is that of the best
of twelve, which is what a gate would pick. With ``--tickets FILE`` the same is measured on tickets of one's own, and how far
a run would climb if every verdict were exact.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.tiny.examples import Row, guidance_of, rollout_row
from lab.tiny.lessons import Lesson, draw_stage, lessons
from lab.tiny.rules import CANONICAL, COMPARISONS, Book, Condition, Facts, Kind, WorldRule
from lab.tiny.teacher import LOSS_PRICE, Pool, edited, options
from lab.tiny.worlds import World, draw_world
from stageb.engines import Decode, Engine, Prompt, Request, build
from stageb.engines.config import ModelConfig
from stageb.guidance.config import ReflectionConfig
from stageb.guidance.prompts import WORDS, reflection_prompt, rollout_prompt
from stageb.guidance.reflection.proposals import parse_proposal
from stageb.guidance.types import Operation, OpName, Ticket
from stageb.seeds import stream

SAMPLES = 12
NUMBERS = re.compile(
    r" (above|over|greater than|more than|no less than|at least|below|under|less than|at most|>=?|<=?) |大于|小于|至少|至多"
)
REFLECTION = Decode(temperature=0.9, top_p=0.95, max_new_tokens=160)
VERDICT = Decode(temperature=0, max_new_tokens=8, stop=("\n",))
RULES = ReflectionConfig(max_operations=1)


# --------------------------------------------------------------------------------------------------------------- verdicts


def plain_row(rng: random.Random, tickets: int, chinese: float) -> Row:
    """A mission whose rules compare no numbers."""
    return next(row for row in _rows(rng, tickets, chinese) if not NUMBERS.search(row.system))


def number_row(rng: random.Random, tickets: int, chinese: float) -> Row:
    """A mission with rules that compare numbers."""
    return next(row for row in _rows(rng, tickets, chinese) if NUMBERS.search(row.system))


def _rows(rng: random.Random, tickets: int, chinese: float) -> Iterator[Row]:
    while True:
        yield rollout_row(rng, draw_world(rng, unseen=True, chinese=chinese), unseen=True, tickets=tickets)


def look_alike_row(rng: random.Random, tickets: int, chinese: float) -> Row:
    """A mission in which attributes share their values, and values their pieces; rules of two and three conditions."""
    while True:
        world = draw_world(rng, 1.0, unseen=True, chinese=chinese)
        if len(set(world.values.values())) < len(world.values) and not world.vocabulary:
            return rollout_row(rng, world, unseen=True, tickets=tickets, single=0.1)


def verdict_accuracy(engine: Engine, rows: Sequence[Row]) -> float:
    """Share of right verdicts."""
    right = total = 0
    for row in rows:
        requests = [Request(Prompt(row.system, user), VERDICT, (0,)) for user, _ in row.segments]
        for (completion,), (_, answer) in zip(engine.generate(requests), row.segments, strict=True):
            right += completion.text.strip() == answer.partition("\n")[0]
            total += 1
    return right / total


# ------------------------------------------------------------------------------------------------------------ reflections


def reflection_quality(engine: Engine, taught: Sequence[Lesson], seed: int) -> dict[str, float]:
    """What the sampled answers to some English lessons are worth; see the head of this file."""
    count: Counter[str] = Counter()
    sums = {"gain": 0.0, "gain_of_12": 0.0}
    for number, lesson in enumerate(taught):
        known: dict[tuple[OpName, str | None, str], float] = {
            (o.op, o.key, o.rule.text("en", CANONICAL) if o.rule else ""): o.score for o in lesson.options
        }
        best = lesson.options[0]
        most = net_gain(lesson.stage.pool, lesson.stage.book, edited(lesson.stage.book, best.op, best.key, best.rule))
        gains = []
        for text in sampled(engine, Prompt(lesson.row.system, lesson.row.segments[0][0]), (seed, number)):
            proposal = parse_proposal(text, lesson.cases, lesson.guidance, RULES, "en", 0)
            gain = 0.0
            count["all"] += 1
            for operation in proposal.operations:
                score = known.get((operation.op, operation.key, operation.text))
                count["usable"] += 1
                count["admissible"] += score is not None
                count["best"] += score is not None and score >= best.score - 0.5
                after = executed(lesson.stage.book, operation)
                gain = net_gain(lesson.stage.pool, lesson.stage.book, after) / max(1, most) if after else 0.0
            gains.append(min(1.0, max(0.0, gain)))
        sums["gain"] += sum(gains) / len(gains)
        sums["gain_of_12"] += max(gains)
    shares = {name: count[name] / count["all"] for name in ("usable", "admissible", "best")}
    return {name: round(value, 4) for name, value in (shares | {name: sums[name] / len(taught) for name in sums}).items()}


def sampled(engine: Engine, prompt: Prompt, names: Sequence[int]) -> list[str]:
    """Answers as the loop samples them."""
    keys = tuple(stream("answer", *names, sample) for sample in range(SAMPLES))
    return [completion.text for completion in engine.generate([Request(prompt, REFLECTION, keys)])[0]]


def net_gain(pool: Pool, before: Book, after: Book) -> int:
    """Tickets of the pool that are judged right under one book, less those under the other."""
    return pool.right(after).bit_count() - pool.right(before).bit_count()


def careful_gain(pool: Pool, before: Book, after: Book) -> float:
    """Tickets of the pool turned right, less ``LOSS_PRICE`` times those turned wrong: what the loop's gate ranks by."""
    old, new = pool.right(before), pool.right(after)
    return (new & ~old).bit_count() - LOSS_PRICE * (old & ~new).bit_count()


def executed(book: Book, operation: Operation) -> Book | None:
    """The book after an operation; None for a text that is no canonical rule, and for edits of the headline."""
    rule = read_rule(operation.text) if operation.text else None
    if (operation.op != "remove" and rule is None) or operation.op == "merge" or operation.key == "G0":
        return None
    return edited(book, operation.op, operation.key, rule)


_KINDS: tuple[tuple[str, Kind], ...] = (
    (" is neither ", "none"),
    (" is not ", "not"),
    (" is above ", "above"),
    (" is below ", "below"),
    (" is at least ", "least"),
    (" is at most ", "most"),
    (" is ", "in"),
)


def read_rule(text: str) -> WorldRule | None:
    """The rule that a canonical English text states; None where it is none."""
    found = re.fullmatch(r"(Fail|Pass) (if|unless) (.+?)(?: unless (.+))?\.", text)
    if found is None:
        return None
    conditions = [read_condition(part) for part in found[3].split(" and ")]
    exception = read_condition(found[4]) if found[4] else None
    known = tuple(condition for condition in conditions if condition is not None)
    if len(known) < len(conditions) or (found[4] and exception is None):
        return None
    return WorldRule("fail" if found[1] == "Fail" else "pass", known, exception, found[2] == "unless")


def read_condition(text: str) -> Condition | None:
    """The condition that a canonical English text states."""
    for start, said in (("a summary mentions ", "mentions"), ("no summary mentions ", "silent")):
        if text.startswith(start):
            return Condition("mentions" if said == "mentions" else "silent", "", _values(text.removeprefix(start)))
    for middle, kind in _KINDS:
        attribute, found, rest = text.partition(middle)
        if found:
            values = _values(rest) if kind in ("in", "none") else (rest,)
            if kind in COMPARISONS and not rest[:1].isdigit():
                return None
            return Condition("is" if kind == "in" and len(values) == 1 else kind, attribute, values)
    return None


def _values(text: str) -> tuple[str, ...]:
    return tuple(re.split(r", | or | nor ", text))


# ---------------------------------------------------------------------------------------------------- tickets of one's own


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
    """A run in which verdicts are exact and the gate takes the proposal of largest ``careful_gain`` on the train tickets.

    Returns the accuracy on the other tickets as the run goes on, and at its end: executed to the letter and as the model
    judges them, and the share of model verdicts that are the executed ones.
    """
    rng = random.Random(stream("climb", seed))
    order = rng.sample(range(len(table.tickets)), len(table.tickets))
    cut = round(0.6 * len(order))
    train, test = table.pool(order[:cut]), table.pool(order[cut:])
    book, path, gained = Book({}, "pass"), [], Counter[str]()
    headline = WORDS["en"].neutral_headline
    for number in range(bundles):
        stage, cases = draw_stage(rng, train, book, 4500)
        if stage.wrong:
            guidance = guidance_of(table.world, book, headline, CANONICAL)
            prompt = reflection_prompt(cases, guidance, "en", 1)
            books = []
            for text in sampled(engine, prompt, (seed, number)):
                for operation in parse_proposal(text, cases, guidance, RULES, "en", 0).operations:
                    after = executed(book, operation)
                    if after is not None:
                        books.append(after)
            taught = options(stage)
            if taught:
                most = net_gain(train, book, edited(book, taught[0].op, taught[0].key, taught[0].rule))
                gains = [min(1.0, max(0.0, net_gain(train, book, after) / max(1, most))) for after in books]
                gained.update({"gain": sum(gains) / SAMPLES, "gain_of_12": max(gains, default=0.0), "stages": 1.0})
            best = max(books, key=lambda after: careful_gain(train, book, after), default=book)
            if net_gain(train, book, best) >= 2:
                book = best
        path.append(round(test.right(book).bit_count() / len(test.facts), 4))
    guidance = guidance_of(table.world, book, headline, CANONICAL)
    requests = [Request(rollout_prompt(ticket, guidance, "en"), VERDICT, (0,)) for ticket in test.tickets]
    said = ["fail" if completion.text.strip() == "Verdict: fail" else "pass" for (completion,) in engine.generate(requests)]
    failed = test.fail(book)
    return {
        "test_accuracy_after_bundles": path[3::4],
        "test_accuracy_executed": path[-1],
        "test_accuracy_judged": round(sum(a == b for a, b in zip(said, test.labels, strict=True)) / len(said), 4),
        "verdicts_as_executed": round(
            sum((v == "fail") == bool(failed >> i & 1) for i, v in enumerate(said)) / len(said), 4
        ),
        "gain": round(gained["gain"] / gained["stages"], 4),
        "gain_of_12": round(gained["gain_of_12"] / gained["stages"], 4),
        "rules": [rule.text("en", CANONICAL) for rule in book.rules.values()],
    }


# ------------------------------------------------------------------------------------------------------- the command line


def scores(engine: Engine, worlds: int, seed: int) -> dict[str, Any]:
    """Everything about made-up missions."""
    rng = random.Random(stream("evaluate", seed))
    kinds = {
        "verdicts": [plain_row(rng, 10, 0.0) for _ in range(worlds)],
        "verdicts_chinese": [plain_row(rng, 10, 1.0) for _ in range(worlds)],
        "verdicts_with_number_rules": [number_row(rng, 10, 0.0) for _ in range(worlds)],
        "verdicts_with_look_alikes": [look_alike_row(rng, 10, 0.0) for _ in range(worlds)],
    }
    found: dict[str, Any] = {name: round(verdict_accuracy(engine, rows), 4) for name, rows in kinds.items()}
    first: list[Lesson] = []
    later: list[Lesson] = []
    for lesson in lessons(rng, 1.0, unseen=True, chinese=0.0):
        into = later if len(lesson.stage.book.rules) >= 2 else first if not lesson.stage.book.rules else None
        if into is not None and len(into) < worlds // 2:
            into.append(lesson)
        if len(first) + len(later) == 2 * (worlds // 2):
            break
    found["reflections_first"] = reflection_quality(engine, first, seed)
    found["reflections_later"] = reflection_quality(engine, later, seed)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="stageb-tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tickets", type=Path, default=None, help="a ticket file of one mission: measure on it instead")
    parser.add_argument("--bundles", type=int, default=32, help="reflections of a climb on --tickets")
    given = parser.parse_args(arguments)
    engine = build(ModelConfig(model_name_or_path=given.model), given.device)
    if given.tickets is not None:
        print(json.dumps(climb(engine, Table(given.tickets), given.seed, given.bundles), indent=2))
    else:
        print(json.dumps(scores(engine, given.worlds, given.seed), indent=2))


if __name__ == "__main__":
    main()
