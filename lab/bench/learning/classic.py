"""Learners from train labels without a language model: a tree, a rule list, and two models that
nobody can read.

The tree is scikit-learn's, of depth 5, on ``name: value`` pairs, numbers and words. The rule list
is RIPPER (Cohen, Fast Effective Rule Induction, ICML 1995) over the conditions that this loop
counts (``rules/conditions/``): rules for the rarer label are grown on two thirds of the tickets by
FOIL's information gain, pruned on the others, added while the description length stays within 64
bits of the shortest; then each is grown anew and revised twice, and the shortest of the three is
kept. Tickets are sets of bits: one integer says which of them meet a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, lgamma, log, log2

from lab.bench.learning.clues import meets
from lab.bench.learning.method import ENGLISH
from stageb.guidance.commands.use.black_box import CLASSIFIERS, Classifier
from stageb.guidance.rules.candidates import find_conditions, reading
from stageb.guidance.rules.conditions import Expression
from stageb.guidance.rules.prompts import clue_text
from stageb.guidance.rules.value_types import parse_number
from stageb.guidance.words.costs import EQUAL
from stageb.guidance.words.types import Ticket, Verdict
from stageb.seeds import shuffled, stream

DEPTH = 5  # of the tree
GROWN_ON = 2 / 3  # of the tickets
SLACK = 64.0  # bits by which a further rule may lengthen the description
PASSES = 2  # in which every rule is looked at again

Rule = tuple[Expression, ...]
"""Conditions that hold together."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Learnt rules, and their verdicts on test."""

    rules: Sequence[str]  # in words
    right: Sequence[bool]  # whether the verdict on each test ticket is its label


Learner = Callable[[Sequence[Ticket], Sequence[Ticket], int], Reached]
"""Of train tickets, test tickets and a seed."""


def tree(train: Sequence[Ticket], test: Sequence[Ticket], seed: int) -> Reached:
    """A decision tree of depth 5."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.tree import DecisionTreeClassifier, export_text

    vectors = DictVectorizer()
    model = DecisionTreeClassifier(max_depth=DEPTH, random_state=seed)
    model.fit(vectors.fit_transform(map(features, train)), [ticket.label for ticket in train])
    said = model.predict(vectors.transform(map(features, test)))
    text = export_text(model, feature_names=list(vectors.get_feature_names_out()))
    return Reached(
        text.splitlines(),
        [verdict == ticket.label for verdict, ticket in zip(said, test, strict=True)],
    )


def rule_list(train: Sequence[Ticket], test: Sequence[Ticket], seed: int) -> Reached:
    """RIPPER's rules for the label that is rarer among the train tickets; the others have the other
    one."""
    verdicts: list[Verdict] = ["pass", "fail"]
    rare, common = sorted(
        verdicts, key=lambda verdict: sum(ticket.label == verdict for ticket in train)
    )
    rules = Ripper(train, rare, seed).rules()
    said = [
        rare if any(meets(reading(ticket), rule) for rule in rules) else common for ticket in test
    ]
    texts = [f"{rare.capitalize()} if {clue_text(rule, ENGLISH)}." for rule in rules]
    return Reached(
        texts, [verdict == ticket.label for verdict, ticket in zip(said, test, strict=True)]
    )


def _black_box(classify: Classifier) -> Learner:
    """A model that nobody can read, as ``fit`` and ``evaluate`` measure it."""

    def learn(train: Sequence[Ticket], test: Sequence[Ticket], seed: int) -> Reached:
        verdicts = classify(train, test, EQUAL, seed)
        return Reached(
            (), [verdict == ticket.label for verdict, ticket in zip(verdicts, test, strict=True)]
        )

    return learn


LEARNERS: Mapping[str, Learner] = {
    "tree": tree,
    "rules": rule_list,
    **{name: _black_box(classify) for name, classify in CLASSIFIERS.items()},
}


def features(ticket: Ticket) -> dict[str, str | float]:
    """A ticket for the tree: a value under every name, a number where it is one, and 1 for every
    word."""
    read = reading(ticket)
    words = dict.fromkeys((f"mentions {word}" for word in read.words), 1.0)
    numbers = {
        f"{name} as a number": found
        for name, value in read.pairs.items()
        if (found := parse_number(value)) is not None
    }
    return {**read.pairs, **numbers, **words}


class Ripper:
    """Rules for the tickets of one label."""

    def __init__(self, train: Sequence[Ticket], label: Verdict, seed: int) -> None:
        self.masks = find_conditions([reading(ticket) for ticket in train])
        self.all = (1 << len(train)) - 1
        self.wanted = sum(1 << i for i, ticket in enumerate(train) if ticket.label == label)
        order = shuffled(range(len(train)), stream("ripper", seed))
        sides = [
            [i for i in order if bool(self.wanted >> i & 1) == wanted] for wanted in (True, False)
        ]
        self.growing = sum(1 << i for side in sides for i in side[: round(len(side) * GROWN_ON)])

    def rules(self) -> list[Rule]:
        """The rules, in the order in which they were found."""
        rules = self._extended([])
        for _ in range(PASSES):
            for place in range(len(rules)):
                rest = [*rules[:place], *rules[place + 1 :]]
                ways = [rules[place], self._rule(rest, ()), self._rule(rest, rules[place])]
                rules[place] = min(
                    (way for way in ways if way), key=lambda way: self._bits([*rest, way])
                )
            rules = self._extended(rules)
        return self._shortest(rules)

    def covered(self, rules: Sequence[Rule]) -> int:
        """The tickets that any of the rules speaks of."""
        found = 0
        for rule in rules:
            found |= self._met(rule)
        return found

    def _extended(self, rules: list[Rule]) -> list[Rule]:
        """The rules and further ones, while they are right more often than not and the description
        stays short."""
        rules = list(rules)
        shortest = self._bits(rules)
        while self.wanted & ~self.covered(rules):
            rule = self._rule(rules, ())
            left = self._met(rule) & ~self.covered(rules) & ~self.growing if rule else 0
            if not rule or (left and 2 * (left & self.wanted).bit_count() < left.bit_count()):
                return rules
            bits = self._bits([*rules, rule])
            if bits > shortest + SLACK:
                return rules
            shortest = min(shortest, bits)
            rules.append(rule)
        return rules

    def _shortest(self, rules: list[Rule]) -> list[Rule]:
        """The rules without those that lengthen the description, from the last to the first."""
        for rule in reversed(rules):
            rest = [other for other in rules if other is not rule]
            if self._bits(rest) <= self._bits(rules):
                rules = rest
        return rules

    def _rule(self, others: Sequence[Rule], start: Rule) -> Rule:
        """A rule grown from ``start`` for the tickets that the others leave, and pruned; empty
        where none can be grown."""
        left = self.all & ~self.covered(others)
        rule, met = list(start), self._met(start) & left & self.growing
        while met & ~self.wanted and self.masks:
            gains = (
                (foil_gain(met, met & mask, self.wanted), condition)
                for condition, mask in self.masks.items()
            )
            gain, best = max(gains, key=lambda pair: pair[0])
            if gain <= 0:
                break
            rule.append(best)
            met &= self.masks[best]
        cuts = [tuple(rule[:size]) for size in range(len(rule), 0, -1)]
        return max(
            cuts, key=lambda cut: self._worth(self._met(cut) & left & ~self.growing), default=()
        )

    def _worth(self, met: int) -> float:
        """Return the figure that pruning maximises: (p - n) / (p + n)."""
        right = (met & self.wanted).bit_count()
        return (2 * right - met.bit_count()) / met.bit_count() if met else -inf

    def _met(self, rule: Rule) -> int:
        met = self.all
        for condition in rule:
            met &= self.masks[condition]
        return met

    def _bits(self, rules: Sequence[Rule]) -> float:
        """The description length: of the rules, and of the tickets that they get wrong (Quinlan,
        ICML 1995)."""
        met = self.covered(rules)
        false, missed = met & ~self.wanted, self.wanted & ~met
        size = len(self.masks)
        theory = sum(0.5 * (log2(1 + len(rule)) + subset_bits(size, len(rule))) for rule in rules)
        outside = self.all.bit_count() - met.bit_count()
        return (
            theory
            + subset_bits(met.bit_count(), false.bit_count())
            + subset_bits(outside, missed.bit_count())
        )


def foil_gain(before: int, after: int, wanted: int) -> float:
    """FOIL's information gain of narrowing one set of tickets to another (Quinlan 1990)."""
    right = (after & wanted).bit_count()
    if not right:
        return -inf
    return right * (
        log2(right / after.bit_count()) - log2((before & wanted).bit_count() / before.bit_count())
    )


def subset_bits(size: int, chosen: int) -> float:
    """Bits that say which ``chosen`` of ``size`` are meant."""
    return (lgamma(size + 1) - lgamma(chosen + 1) - lgamma(size - chosen + 1)) / log(2)
