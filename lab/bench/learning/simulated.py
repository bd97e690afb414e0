"""Runs of the gate on made-up tickets, where it is known what each edit is worth: what comes through that should not.

No model and no text: a rule is a stream of draws that says which tickets it turns. The gate is the one of ``stageb fit``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stageb.guidance.config import GateConfig
from stageb.guidance.gate.decide import Edit, Gate, decide
from stageb.guidance.gate.judge import Judge
from stageb.guidance.gate.pool import Pool, whole_groups
from stageb.guidance.gate.pruning import Allowance, prune
from stageb.guidance.learning import CREDITED_ON
from stageb.guidance.run import LOOK
from stageb.guidance.types import Guidance, Judgement, Rule, Ticket
from stageb.seeds import shuffled, stream, uniform

CONFIG = GateConfig()
ERROR = 0.3  # share of the tickets judged wrong without a rule
BUNDLE = 64  # tickets
EDITS = 8  # of a bundle
RULES = 12  # that could go
SEARCHES = 16  # for a rule that can


class Turns(NamedTuple):
    """What a rule does: of the wrong tickets it mends some, of the right ones it breaks some, by chance."""

    key: int  # names its draws
    mends: float
    breaks: float
    knows: frozenset[int] = frozenset()  # tickets that it judges right, since it was made from them
    left_out: bool = False  # whether it is leaving the rule out that does so


@dataclass
class World:
    """Tickets, and what is made of them by guidance whose rules' texts name entries of ``rules``."""

    tickets: Sequence[Ticket]
    key: int  # names the draws that say which of them are judged wrong without a rule
    rules: dict[str, Turns] = field(default_factory=dict)

    def ask(self, asked: Sequence[tuple[Guidance, Sequence[int]]]) -> list[list[Judgement]]:
        """What a judge asks."""
        judged = [self.right(guidance, positions) for guidance, positions in asked]
        return [[Judgement(float(right), 0) for right in each] for each in judged]

    def right(self, guidance: Guidance, positions: Sequence[int]) -> list[bool]:
        """Whether tickets are judged right: each rule in turn may change that."""
        held = {rule.text for rule in guidance.rules}
        acting = [turns for name, turns in self.rules.items() if (name in held) != turns.left_out]
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
        return replace(guidance, step=guidance.step + 1, rules=rules, next_number=guidance.next_number + 1)


def world(key: int, count: int) -> World:
    """``count`` tickets, each a group of its own."""
    tickets = [Ticket("m", f"g{n}", "pass" if n % 2 else "fail", (("image_1", ""),)) for n in range(count)]
    return World(tickets, key)


START = Guidance("m", 0, (Rule("G0", "the headline"),), 1)


def after_a_first_acceptance(key: int, train: int, bundles: int) -> tuple[bool, bool, int]:
    """A run in which one edit is good, proposed first, and all that ``bundles`` bundles propose later is worthless: mends as
    many tickets as it breaks, but for those of its bundle, all of which it judges right. Whether the good edit was accepted,
    whether a worthless one was after it, and how many of these were tested.

    The bundle of the good edit comes twice, as in a run. Wrong tickets of the last bundle are further cases.
    """
    made, guidance, left = world(key, train), START, CONFIG.alpha
    raced, others = list(range(train))[: CONFIG.race_size], list(range(train))[CONFIG.race_size :]
    pool = Pool(whole_groups(others, made.tickets), made.tickets, CONFIG.pool_size)
    good, tested, drawn, unsolved = Turns(stream(key, "good"), 0.5, 0.02), 0, others[:BUNDLE], frozenset[int]()
    wrong = ERROR
    for number in range(bundles + 1):
        if number > 1:
            drawn = shuffled(others, stream(key, "bundle", number))[:BUNDLE]
        judge = Judge(made.ask, made.tickets, CONFIG, guidance, {})
        gate = Gate(judge, shuffled(raced, stream(key, "race", number)), CONFIG.race_chunk, pool, LOOK)
        shown = frozenset(drawn) | unsolved
        edits = [
            Edit((), 1, made.plus(guidance, turns), shown=tuple(sorted(shown)))
            for turns in ([good] if number == 0 else [worthless(key, number, each, wrong, shown) for each in range(EDITS)])
        ]
        decision = decide(edits, gate, lambda one, other: None, left)
        left = decision.left
        tested += sum(each.test is not None for each in decision.tried) if number else 0
        if number == 0:
            if decision.winner is None:
                return False, False, 0
            guidance, wrong = decision.winner.guidance, ERROR * (1 - good.mends) + (1 - ERROR) * good.breaks
        elif decision.winner is not None:
            return True, True, tested
        unsolved = frozenset(i for i, right in zip(drawn, made.right(guidance, drawn), strict=True) if not right)
    return True, False, tested


def worthless(key: int, number: int, each: int, wrong: float, shown: frozenset[int]) -> Turns:
    """An edit that changes a little or much, and makes nothing better where a share ``wrong`` is judged wrong."""
    name = stream(key, "worthless", number, each)
    mends = (0.05, 0.2, 0.5, 0.9)[each % 4]
    return Turns(name, mends, mends * wrong / (1 - wrong), shown)


def removals(key: int, pool: int, cost: float, noise: float, searches: int = SEARCHES) -> tuple[bool, int, float]:
    """A run of searches for rules that can go, on so many tickets, where each rule is worth ``cost`` of accuracy, and
    leaving it out turns a share ``noise`` of the tickets either way beside. Whether the first search let one go, how many
    went, and what all of them cost in truth."""
    made, guidance = world(key, CREDITED_ON + pool), START
    for number in range(RULES):
        breaks, mends = (cost + noise) / (1 - ERROR), noise / ERROR
        guidance = made.plus(guidance, Turns(stream(key, "rule", number), mends, breaks, left_out=True))
    others = whole_groups(range(CREDITED_ON, CREDITED_ON + pool), made.tickets)
    first, allowance = False, Allowance(CONFIG.removal_margin, CONFIG.alpha)
    for number in range(searches):
        judge = Judge(made.ask, made.tickets, CONFIG, guidance, {})
        gate = Gate(judge, range(CREDITED_ON), CONFIG.race_chunk, Pool(others, made.tickets, pool), LOOK)
        removal = prune(guidance, "P", gate, allowance)
        allowance = removal.left
        if removal.winner:
            guidance, first = removal.winner.guidance, first or number == 0
    gone = RULES + 1 - len(guidance.rules)
    return first, gone, gone * cost
