"""Turns what train tickets teach by code into one edit of the present guidance: a whole guidance,
its size and its texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NamedTuple, Self

from stageb.guidance.learning.gate.decide import Edit
from stageb.guidance.learning.gathering import gather_material
from stageb.guidance.learning.material import Material, MeasuredRuleSet, judge_by_rule_set
from stageb.guidance.learning.proposer import Bundle
from stageb.guidance.learning.reflection_file import SizeEntry
from stageb.guidance.learning.rule_sets import CV_FOLDS, SIZE, SIZES, learn_rule_sets
from stageb.guidance.learning.state import NoRoom
from stageb.guidance.learning.terms import hold_any
from stageb.guidance.learning.tools import Tools
from stageb.guidance.learning.word_choice import LIST_LENGTHS
from stageb.guidance.learning.writing import WrittenRule, write_rule_set
from stageb.guidance.rules.edits import MEASURED, apply
from stageb.guidance.rules.limits import to_mask
from stageb.guidance.tickets.groups import Group
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import HEADLINE_KEY, Estimate, Guidance, Operation, Proposal

NAMED = 3  # tickets that a rule names as its sources, at most


class Learnt(NamedTuple):
    """A guidance that some groups teach, and the edit that puts it into the present one."""

    rule_set: MeasuredRuleSet
    edit: Edit
    by_size: Mapping[int, MeasuredRuleSet]  # the guidance for each number of conditions asked for


@dataclass(frozen=True, slots=True)
class Teacher:
    """Learns from groups of a mission's train tickets, beside the present guidance."""

    present: Guidance
    bundle: Bundle
    groups: Sequence[Group]
    tools: Tools
    places: Mapping[int, int]  # position -> number of the ticket in the bundle
    material: Material  # its tickets as bits

    @classmethod
    def of(cls, present: Guidance, bundle: Bundle, groups: Sequence[Group], tools: Tools) -> Self:
        """Make the teacher of a bundle's tickets, as the ``present`` guidance judges them."""
        places = {
            tools.splits.by_key[case.ticket.key]: place for place, case in enumerate(bundle.judged)
        }
        return cls(
            present,
            bundle,
            groups,
            tools,
            places,
            gather_material(present, bundle.judged, places, groups, tools),
        )

    def learn(self, groups: Sequence[Group], with_others: bool = False) -> Learnt | None:
        """Learn from ``groups``, if asked for ``with_others`` of ``SIZES``; None where they teach
        nothing. Raises ``LearningStopped``, and ``NoRoom`` where rules of no size are within the
        limits."""
        folds, has_own = self._cut(groups), has_labels(self.present.labels)
        if len(folds) < 2:
            return None
        most = self.tools.config.reflection.size or SIZE[has_own]
        smaller = [size for size in SIZES[has_own][::-1] if size < most]
        has_lists = is_too_long = False
        # Where there is no room, smaller ones; then shorter lists, each of which is one condition.
        for count in range(len(LIST_LENGTHS), 0, -1):
            sizes, lengths = [most, *(SIZES[has_own] if with_others else ())], LIST_LENGTHS[:count]
            found = self._learn_sizes(folds, sizes, lengths)
            for size in (most, *smaller):
                rule_set = found.get(size) or self._learn_sizes(folds, [size], lengths).get(size)
                edit = self._edit(rule_set, sum(folds)) if rule_set else None
                if rule_set is None or edit is None:
                    break
                if self._has_room(edit, rule_set):
                    return Learnt(rule_set, edit, found)
                is_too_long = True
                has_lists = any(card.lists for card in rule_set.cards)
            if not is_too_long or not has_lists:
                break
        if is_too_long:
            raise NoRoom
        return None

    def list_sizes(self, learnt: Learnt) -> tuple[SizeEntry, ...]:
        """List what all groups teach in each size, with an estimate of each; equal ones once."""
        among = sum(self._cut(self.groups))
        listed: dict[int, SizeEntry] = {}
        for most, rule_set in sorted(learnt.by_size.items()):
            edit = self._edit(rule_set, among)
            if edit and self._has_room(edit, rule_set):
                (proposal,) = edit.proposals
                listed.setdefault(
                    rule_set.size,
                    SizeEntry(most, rule_set.size, self.estimate(rule_set), proposal.operations),
                )
        return tuple(listed.values())

    def estimate(self, rule_set: MeasuredRuleSet) -> Estimate:
        """Estimate the guidance on tickets like these, each judged by what others taught."""
        cases = self.bundle.judged
        right = sum(case.right for case in cases) / len(cases)
        figures = right, right + rule_set.won - rule_set.lost, rule_set.present, rule_set.cost
        return Estimate(len(cases), *(round(figure, 6) for figure in figures))

    def map_correctness(self, rule_set: MeasuredRuleSet) -> dict[int, bool]:
        """For each ticket, by position, whether code is right when it is learnt from the other
        folds."""
        return {i: not rule_set.wrong >> place & 1 for i, place in self.places.items()}

    def _cut(self, groups: Sequence[Group]) -> list[int]:
        """Return the masks of the folds of ``groups``."""
        parts = [
            [self.places[i] for group in groups[fold::CV_FOLDS] for i in group]
            for fold in range(CV_FOLDS)
        ]
        return [to_mask(part) for part in parts if part]

    def _learn_sizes(
        self, folds: Sequence[int], sizes: Sequence[int], lengths: Sequence[int]
    ) -> dict[int, MeasuredRuleSet]:
        """Learn a guidance in each of the ``sizes``, with word lists of these ``lengths``."""
        count = f"{sum(folds).bit_count():,} of {len(self.places):,} tickets"
        material = replace(
            self.material, pause=partial(self.tools.pause, f"learning rules from {count} by code")
        )
        return learn_rule_sets(material, folds, [*dict.fromkeys(sizes)], lengths)

    def _has_room(self, edit: Edit, rule_set: MeasuredRuleSet) -> bool:
        """Whether the rules are within the limits, and all cards became rules, with the lines
        before them: a card that is too long is not read back, and the others are nothing without
        it."""
        needed = sum(1 + len(card.lists) for card in rule_set.cards)
        needed += len(rule_set.lines) if rule_set.cards else 0
        written = sum(operation.op == "add" for operation in edit.proposals[0].operations)
        return written >= needed and self.tools.fits(edit.guidance)

    def _edit(self, rule_set: MeasuredRuleSet, among: int) -> Edit | None:
        """Make the edit that puts what was learnt into the present guidance; None where that
        changes nothing."""
        words = self.tools.words
        others = [rule for rule in self.present.rules if rule.is_fixed or not rule_set.replaces]
        rules = write_rule_set(rule_set, self.tools.know_lists(others), words)
        if not rules:
            return None
        cost, present = rule_set.cost, rule_set.present
        costs = f"cost {cost:.3f} a ticket at the prices given, {present:.3f} without them"
        if {*self.tools.prices.values()} == {1}:
            costs = f"judge {1 - cost:.1%} rightly, {1 - present:.1%} without them"
        why = f"{MEASURED} {costs} ({among.bit_count():,} tickets)"
        operations = [
            Operation("add", None, (), rule.text, why, self._sources(rule_set, rule, among))
            for rule in rules
        ]
        if rule_set.default is not None:
            free, is_ordered = (
                [rule for rule in self.present.rules if not rule.is_fixed],
                has_labels(self.present.labels),
            )
            kept, former = (
                [rule.text for rule in rules],
                [rule for rule in free if rule.key != HEADLINE_KEY],
            )
            if is_ordered and kept == [rule.text for rule in former]:
                return None
            spare = [rule for rule in former if is_ordered or rule.text not in kept]
            operations += [
                Operation("remove", rule.key, (), "", "what is learnt at once says it", ())
                for rule in spare
            ]
            headline = words.headlines[rule_set.default]
            if free[:1] and free[0].key == HEADLINE_KEY and free[0].text != headline:
                operations.append(
                    Operation("update", HEADLINE_KEY, (), headline, "", operations[0].evidence)
                )
        edited = apply(self.present, operations, self.bundle.name)
        if edited is self.present:
            return None
        return Edit((Proposal(0, "", tuple(operations), ()),), 1, edited)

    def _sources(self, rule_set: MeasuredRuleSet, rule: WrittenRule, among: int) -> tuple[str, ...]:
        """Name the first tickets that a rule judges right, of those that it speaks of."""
        masks, labelled = self.material.masks, self.material.labelled[rule.verdict] & among
        if rule.lines:
            held = hold_any(masks, rule.lines) & labelled or among
        else:
            held = judge_by_rule_set(rule_set, masks, among)[rule.verdict] & labelled or among
        places = (place for place, bit in enumerate(reversed(f"{held:b}")) if bit == "1")
        return tuple(self.bundle.judged[place].ticket.key for place in islice(places, NAMED))
