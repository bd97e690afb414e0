"""Runs of the gate on made-up tickets, where it is known what each edit is worth: what comes
through that should not.

No model and no text: a rule is a stream of draws that says which tickets it turns. The gate is the
one of ``stageb fit``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from stageb.guidance.commands.fit.run import INTERIM
from stageb.guidance.config import GateConfig, SplitConfig
from stageb.guidance.judging.questions import Dialogue, answer_all
from stageb.guidance.learning.gate.budget import Pool, divide_budget
from stageb.guidance.learning.gate.decide import Edit, Gate, decide
from stageb.guidance.learning.gate.judgements import Judge, Verdicts, ask_once
from stageb.guidance.learning.gate.prequential import Bet, block_ends, prove_learning
from stageb.guidance.tickets.groups import Group, whole_groups
from stageb.guidance.words.types import TEACHING_FOLDS, Guidance, Judgement, Rule, Ticket
from stageb.seeds import shuffled, stream, uniform

T = TypeVar("T")

CONFIG = GateConfig()
BUDGET = divide_budget(CONFIG, 1)
AT_ONCE = 0.8  # share of the tickets that is train, where code judges
ERROR = 0.3  # share of the tickets judged wrong without a rule
EDITS = 8  # of a bundle


class Turns(NamedTuple):
    """The effect of a rule: of the wrong tickets it mends some, of the right ones it breaks some,
    by chance."""

    key: int  # names its draws
    mends: float
    breaks: float
    knows: frozenset[int] = frozenset()  # tickets that it judges right, since it was made from them


@dataclass
class World:
    """Tickets, and what is made of them by guidance whose rules' texts name entries of
    ``rules``."""

    tickets: Sequence[Ticket]
    key: int  # names the draws that say which of them are judged wrong without a rule
    rules: dict[str, Turns] = field(default_factory=dict)

    def answer(self, steps: Dialogue[T]) -> T:
        """Run ``steps`` of the gate, answer their questions from this world, and return their
        result."""
        return answer_all(steps, lambda question: [self._judged(*each) for each in question.asked])

    def _judged(self, guidance: Guidance, positions: Sequence[int]) -> list[Judgement]:
        return [Judgement(float(right), 0) for right in self.right(guidance, positions)]

    def right(self, guidance: Guidance, positions: Sequence[int]) -> list[bool]:
        """Whether tickets are judged right: each rule in turn may change that."""
        held = {rule.text for rule in guidance.rules}
        acting = [turns for name, turns in self.rules.items() if name in held]
        return [self._right(acting, position) for position in positions]

    def _right(self, acting: Sequence[Turns], position: int) -> bool:
        right = uniform(self.key, position) >= ERROR
        for turns in acting:
            changes = uniform(turns.key, position) < (turns.breaks if right else turns.mends)
            right = position in turns.knows or right != changes
        return right

    def plus(self, guidance: Guidance, turns: Turns) -> Guidance:
        """``guidance`` with one more rule."""
        name = f"rule {turns.key}"
        self.rules[name] = turns
        rule = Rule(f"G{guidance.next_number}", name)
        rules = (*guidance.rules, rule)
        return replace(
            guidance, step=guidance.step + 1, rules=rules, next_number=guidance.next_number + 1
        )


def world(key: int, count: int) -> World:
    """``count`` tickets, each a group of its own."""
    tickets = [
        Ticket("m", f"g{n}", "pass" if n % 2 else "fail", (("image_1", ""),)) for n in range(count)
    ]
    return World(tickets, key)


START = Guidance("m", 0, (Rule("G0", "the headline"),), 1)


def one_edit(key: int, tickets: int, mended: float, broken: float, left: float) -> bool:
    """Whether an edit that mends and breaks such shares of all tickets, raced alone, is accepted in
    a mission of so many tickets with so much ``left`` of a fold's part of its budget."""
    train = round(SplitConfig().train * tickets)
    made, raced = world(key, train), min(CONFIG.race_size, train // 3)
    edited = made.plus(START, Turns(stream(key, "edit"), mended / ERROR, broken / (1 - ERROR)))
    pool = Pool(whole_groups(range(raced, train), made.tickets), CONFIG.pool_size)
    judge = Judge(made.tickets, CONFIG, START, {})
    gate = Gate(judge, range(raced), CONFIG.race_chunk, pool.groups_outside(0), INTERIM)
    decision = made.answer(decide([Edit((), 1, edited)], gate, lambda one, other: None, left))
    return decision.winner is not None


def at_once(key: int, tickets: int, mended: float, broken: float, level: float) -> bool:
    """Whether learning from all train tickets is proven, where each block teaches the edit that
    mends and breaks such shares of all tickets, unless those before it show no gain."""
    train = round(AT_ONCE * tickets)
    made = world(key, train)
    edited = made.plus(START, Turns(stream(key, "edit"), mended / ERROR, broken / (1 - ERROR)))

    def learn(
        groups: Sequence[Group], block: Sequence[Group], memory: None
    ) -> Dialogue[tuple[Bet | None, None]]:
        positions = [i for group in groups for i in group]
        turned = [
            now - before
            for now, before in zip(
                made.right(edited, positions), made.right(START, positions), strict=True
            )
        ]
        won, lost = (turned.count(sign) / len(turned) for sign in (1, -1))
        if won <= lost:
            return None, None
        (gains,) = yield from judge.gains([(edited, [i for group in block for i in group])])
        return Bet(won, lost, {"present": gains}), None

    groups, judge = whole_groups(range(train), made.tickets), Judge(made.tickets, CONFIG, START, {})
    test, *_ = made.answer(prove_learning(learn, groups, level, block_ends(len(groups)), None))
    return test.is_accepted


@dataclass
class Run:
    """A run on so many ``train`` tickets, to which edits are offered."""

    key: int
    train: int
    guidance: Guidance = START
    left: Sequence[float] = BUDGET.edits  # by the fold that teaches
    wrong: float = ERROR  # share of the tickets that the guidance judges wrong
    tested: int = 0  # edits

    def __post_init__(self) -> None:
        self._world = world(self.key, self.train)
        raced = min(CONFIG.race_size, self.train // 3)
        self._raced = range(raced)
        self._pool = Pool(
            whole_groups(range(raced, self.train), self._world.tickets), CONFIG.pool_size
        )
        self._known: dict[int, float] = {}  # p_correct under the guidance

    def accepts(self, number: int, rules: Sequence[Turns]) -> bool:
        """Whether one of the edits is accepted that each add one of the ``rules``, made from the
        tickets of a fold."""
        judge = Judge(self._world.tickets, CONFIG, self.guidance)
        race_on = shuffled(self._raced, stream(self.key, "race", number))
        gate = Gate(judge, race_on, CONFIG.race_chunk, self._pool.groups_outside(number), INTERIM)
        edits = [Edit((), 1, self._world.plus(self.guidance, turns)) for turns in rules]
        deciding = decide(edits, gate, lambda one, other: None, self.left[number % TEACHING_FOLDS])
        decision, verdicts = self._world.answer(
            ask_once(deciding, Verdicts().plus(self.guidance, self._known))
        )
        self.left = [
            decision.left if fold == number % TEACHING_FOLDS else left
            for fold, left in enumerate(self.left)
        ]
        self.tested += sum(each.test is not None for each in decision.tried)
        self.guidance = decision.winner.guidance if decision.winner else self.guidance
        self._known = verdicts.of(self.guidance)
        return decision.winner is not None

    def accepts_worthless(self, number: int) -> bool:
        """Whether one of a bundle of edits is accepted that mend as many tickets as they break, but
        for those of the fold that they were made from, all of which they judge right."""
        shown = frozenset(self._pool.fold(number))
        return self.accepts(
            number, [worthless(self.key, number, each, self.wrong, shown) for each in range(EDITS)]
        )


def with_nothing_to_learn(key: int, train: int, bundles: int) -> tuple[bool, int]:
    """A run in which no edit of so many ``bundles`` is any better. Whether one was accepted, and
    how many were tested."""
    run = Run(key, train)
    accepted = any(run.accepts_worthless(number) for number in range(bundles))
    return accepted, run.tested


def after_a_first_acceptance(key: int, train: int, bundles: int) -> tuple[bool, bool, int]:
    """A run in which one edit is good, proposed first, and none that ``bundles`` bundles propose
    later. Whether the good edit was accepted, whether a worthless one was after it, and how many of
    these were tested."""
    run, good = Run(key, train), Turns(stream(key, "good"), 0.5, 0.02)
    if not run.accepts(0, [good]):
        return False, False, 0
    run.wrong, run.tested = ERROR * (1 - good.mends) + (1 - ERROR) * good.breaks, 0
    accepted = any(run.accepts_worthless(number) for number in range(1, 1 + bundles))
    return True, accepted, run.tested


def chained(key: int, train: int, runs: int, bundles: int, carries: bool) -> int | None:
    """So many runs on the same tickets, of which each goes on from the guidance of the one before,
    and none is offered an edit that is any better: the number of the first that accepts one, None
    where none does. ``carries``: guidance tells the next run what was spent; otherwise that has a
    whole budget of its own."""
    run = Run(key, train)
    for number in range(runs):
        run.left = run.left if carries else BUDGET.edits
        if any(run.accepts_worthless(number * bundles + bundle) for bundle in range(bundles)):
            return number
    return None


def worthless(key: int, number: int, each: int, wrong: float, shown: frozenset[int]) -> Turns:
    """An edit that changes a little or much, and makes nothing better where a share ``wrong`` is
    judged wrong."""
    name = stream(key, "worthless", number, each)
    mends = (0.05, 0.2, 0.5, 0.9)[each % 4]
    return Turns(name, mends, mends * wrong / (1 - wrong), shown)
