"""Learning by code: the whole guidance at once, from all train tickets.

Where code judges (``runner.judge: both``), verdicts are free, so no ticket is set apart: every one teaches and tests in
turn (``learning/gate/prequential.py``), and what is kept is learnt from all of them (``learning/whole.py``). Where the proof
is missing, rules that seem better on tickets which did not teach them are kept as provisional (``gate.provisional``), unless
they would take the place of present ones.

A model that reads instruct texts and judges all tickets is given such rules too, once, before it reflects, if it does: with
demonstrations, and beside what they say as code (``stacking.py``). What they must beat is the present guidance with
demonstrations and a calibration by the same tickets, which is also what stays without them where no tests follow. Since that
may be worse than one verdict for all tickets, rules must beat the best of these, too. Where no gain is shown, rules that are
likely to be better than that verdict stay as provisional unless the model is better without them: what they say is weighed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from stageb.guidance.judging.questions import Dialogue, JudgeTickets, answer_all
from stageb.guidance.learning.gate.betting import BettingTest
from stageb.guidance.learning.gate.decide import STRONG, Decision, Edit, Outcome, Trial, decide_by
from stageb.guidance.learning.gate.judge import Judge, ask_once
from stageb.guidance.learning.gate.prequential import Taught, block_ends, prove_learning
from stageb.guidance.learning.gate.sequential import next_level
from stageb.guidance.learning.material import Material, Whole
from stageb.guidance.learning.reflect import Reflection
from stageb.guidance.learning.reflection_file import SizeEntry
from stageb.guidance.learning.scorecards import judge_compared
from stageb.guidance.learning.stacking import Stacker
from stageb.guidance.learning.state import LearningStopped, MissionState
from stageb.guidance.learning.steps import Bundle, GateResult, Tools, fits, known_verdicts, make_gate, make_judge, rule_on
from stageb.guidance.learning.terms import find_gaps, find_guards, find_terms, hold_any
from stageb.guidance.learning.transitions import needs_preparing
from stageb.guidance.learning.whole import FOLDS, SIZE, SIZES, learn_whole
from stageb.guidance.learning.writing import WrittenRule, write_whole
from stageb.guidance.rules.conditions.words import find_whole_words
from stageb.guidance.rules.edits import MEASURED, apply, mark_provisional
from stageb.guidance.rules.evidence import find_named
from stageb.guidance.rules.evidence_forms import Forms, reading
from stageb.guidance.rules.judge import read_rules, speaking_rules
from stageb.guidance.rules.limits import to_mask
from stageb.guidance.rules.parse import OutOfReach
from stageb.guidance.rules.prompts import Case
from stageb.guidance.rules.word_lists import find_word_lists
from stageb.guidance.tickets.groups import Group, whole_groups
from stageb.guidance.tickets.splits import find_default
from stageb.guidance.words.costs import has_labels, prices_of
from stageb.guidance.words.types import HEADLINE_KEY, Estimate, Guidance, Judgement, Operation, Proposal, Rule

LIKELY = 2.0  # standard errors by which provisional rules seem better: their size was chosen by the same estimate
NAMED = 3  # tickets that a rule names as its sources
REFERENCE = 96  # tickets by which prompts are made comparable, race tickets first
KEPT = ("accepted", "provisional")  # what stays


def learn_at_once(mission: MissionState, tools: Tools) -> Dialogue[tuple[Bundle, Reflection, GateResult]]:
    """What all train tickets teach, as one proposal, and what became of it; no proposal where they teach nothing."""
    judge, raced = make_judge(mission, tools), whole_groups(tools.splits.race_set, tools.tickets)
    groups = [*raced, *tools.pool.groups]
    stackers = None
    if needs_preparing(tools.config):
        stacker = Stacker(tools, judge, [i for group in groups for i in group][:REFERENCE])
        stackers = _Stackers(stacker, stacker)
    # Failures first: where they are few, masks of them are short.
    positions = sorted((i for group in groups for i in group), key=lambda i: tools.tickets[i].label)
    verdicts = known_verdicts(mission, tools)
    if stackers:
        is_right = _judge_by_code(mission.guidance, positions, tools)
    else:
        (p_correct,), verdicts = yield from ask_once(judge.p_correct([(mission.guidance, positions)]), verdicts)
        is_right = [p > 0.5 for p in p_correct]
    cases = tuple(Case(tools.tickets[i], right, None) for i, right in zip(positions, is_right, strict=True))
    bundle = Bundle(mission.bundles, 0, cases)
    teacher = _Teacher(mission.guidance, bundle, positions, groups, tools)
    found, is_stopped = teacher.learn_all()
    left, reflection, trial = mission.left, Reflection(is_stopped=is_stopped), None
    if found:
        reflection = replace(reflection, proposals=found.edit.proposals, sizes=teacher.list_sizes(found.by_size))
    # Tickets that calibrate the present guidance are no longer fit to test further edits of it.
    is_all = tools.config.reflection.scope == "all"
    prepares = stackers is not None and is_all and not (bundle.why_not or is_stopped)
    if found and tools.choose:
        deciding = decide_by(tools.choose, [found.edit], make_gate(mission, (), tools, None), sum(left.edits))
        decision, verdicts = yield from ask_once(deciding, verdicts)
        return bundle, reflection, GateResult(decision, left, verdicts)
    if not (found or prepares):
        return bundle, reflection, GateResult(Decision((), 0.0), left, verdicts)
    share = 1.0 if is_all else STRONG  # of the budget; with the rest, what a model proposes is tested
    proving = teacher.prove(raced, judge, next_level(sum(left.edits), share), stackers)
    (test, stackers, is_stopped), verdicts = yield from ask_once(proving, verdicts)
    if stackers and is_stopped:  # nobody knows yet how far to trust the rules beside the model
        return bundle, Reflection(is_stopped=True), GateResult(Decision((), 0.0), left, verdicts)
    if found:
        trial, verdicts = yield from ask_once(teacher.conclude(found, test, judge, stackers), verdicts)
        if not test.accepts:
            left = replace(left, edits=tuple(each - next_level(each, share) for each in left.edits))
    winner = trial.edit if trial and trial.outcome in KEPT else None
    prepared = None
    if stackers and prepares and winner is None:
        (prepared, _), verdicts = yield from ask_once(stackers.present.prepare(mission.guidance, positions), verdicts)
    decision = Decision((trial,) if trial else (), sum(left.edits), winner)
    return bundle, replace(reflection, is_stopped=is_stopped), GateResult(decision, left, verdicts, prepared=prepared)


def learn_by_code(mission: MissionState, tools: Tools) -> tuple[Bundle, Reflection, GateResult]:
    """The same for nothing: code judges all tickets, those of which it says nothing by the first label, and no model is
    asked."""
    tools = replace(tools, config=replace(tools.config, runner=replace(tools.config.runner, judge="both")))

    def judge(question: JudgeTickets) -> list[list[Judgement]]:
        judged = [_judge_by_code(guidance, positions, tools) for guidance, positions in question.asked]
        return [[Judgement(float(right), 0, by_rules=True) for right in rights] for rights in judged]

    return answer_all(learn_at_once(mission, tools), judge)


# Inside ------------------------------------------------------------------------------------------------------------------


class _Stackers(NamedTuple):
    """What prepares guidances for a model that judges: those with what is learnt, and the present one."""

    edited: Stacker
    present: Stacker


class _Learnt(NamedTuple):
    """What some groups teach, and the edit that puts it into the present guidance."""

    whole: Whole
    edit: Edit
    by_size: Mapping[int, Whole]  # the same where so many conditions are asked for


@dataclass(frozen=True)
class _Teacher:
    """What groups of a mission's train tickets teach under the present guidance."""

    present: Guidance
    bundle: Bundle
    positions: Sequence[int]  # of the tickets of ``bundle``, in its order
    groups: Sequence[Group]  # which they make
    tools: Tools
    _places: dict[int, int] = field(init=False, repr=False)
    _material: Material = field(init=False, repr=False)

    def __post_init__(self) -> None:
        config, words = self.tools.config, self.tools.words
        forms = Forms(config.reflection.arithmetic, wide=True, comparable=frozenset(config.columns.comparable))
        cases, prices = self.bundle.judged, prices_of(config.price)
        chance = min(self.tools.splits.inclusion_prob.values(), default=1.0)  # of a ticket of the cheaper label
        prices = {label: price if price == max(prices.values()) else price / chance for label, price in prices.items()}
        labels = self.present.labels
        labelled = {
            label: to_mask(place for place, case in enumerate(cases) if case.ticket.label == label)
            for label in (*labels[1:], labels[0])
        }
        fails = sum(labelled.values()) ^ labelled[labels[0]]
        wrong = to_mask(place for place, case in enumerate(cases) if not case.right)
        readings = [reading(case.ticket) for case in cases]
        places = {position: place for place, position in enumerate(self.positions)}
        masks = find_terms(readings, forms)
        coded = (rule.code for rule in read_rules(self.present, self.tools.vocabulary, words).each)
        fixed = [rule for rule in self.present.rules if rule.is_fixed]
        verdicts = {verdict for code in coded for verdict in (labels if isinstance(code, OutOfReach) else (code.verdict,))}
        gaps = find_gaps(masks, readings)
        masks = masks.plus(find_guards(gaps, (1 << len(readings)) - 1))
        plain = {term: mask for term, mask in masks.items() if not term.is_denied}
        whole_words = find_whole_words(readings)
        material = Material(
            masks,
            gaps,
            fails,
            fails ^ wrong,
            frozenset(verdicts),
            (prices["fail"], prices["pass"]),
            labelled=labelled if has_labels(labels) else {},
            named=find_named(plain, [case.ticket.reason for case in cases]),
            held=to_mask(self._find_held(fixed)) if has_labels(labels) else 0,
            keeps=bool(fixed),
            groups=[to_mask(places[position] for position in group) for group in self.groups if len(group) > 1],
            words=masks.keep(term for term in masks if term.word in whole_words),
        )
        object.__setattr__(self, "_material", material)
        object.__setattr__(self, "_places", places)

    def _find_held(self, fixed: Sequence[Rule]) -> Iterable[int]:
        """The places of tickets that fixed rules decide, or may."""
        rules = replace(self.present, rules=(*self.present.rules[:1], *(rule for rule in fixed if rule.key != HEADLINE_KEY)))
        rulings = rule_on(rules, [case.ticket for case in self.bundle.judged], self.tools)
        return (place for place, ruling in enumerate(rulings) if ruling.rule != HEADLINE_KEY)

    def prove(
        self, raced: Sequence[Group], judge: Judge, level: float, stackers: _Stackers | None
    ) -> Dialogue[tuple[BettingTest, _Stackers | None, bool]]:
        """The test of what all groups teach, race tickets first where a model judges: they only teach. See
        ``prove_learning``."""
        tools, tested, ends = self.tools, self.groups, block_ends(len(self.groups))
        if stackers:  # code starts from the best constant verdict, a model may be worse
            constant = find_default(tools.tickets, tools.splits, self.present.labels, prices_of(tools.config.price))
            judge = replace(judge, constant=constant)
        if stackers and raced:
            tested = [*raced, *tools.pool.groups_outside(None)]
            ends = [len(raced) * 2 // 3, *block_ends(len(tested), len(raced))]
        return (yield from prove_learning(self.teach, tested, judge, level, ends, stackers))

    def teach(
        self, groups: Sequence[Group], block: Sequence[Group], stackers: _Stackers | None
    ) -> Dialogue[tuple[Taught | None, _Stackers | None]]:
        """What ``groups`` teach, with what is hoped of it. Where a model judges, ``stackers`` prepare that and the present
        guidance, and have the ``block`` judged under both."""
        found = self.learn(groups)
        if stackers is None:
            return (Taught(found.edit.guidance, found.whole.won, found.whole.lost) if found else None), None
        taught, judged = ([i for group in some for i in group] for some in (groups, block))
        _, present = yield from stackers.present.prepare(self.present, taught, judged)
        if found is None:
            return None, stackers._replace(present=present)
        guidance, edited = yield from stackers.edited.prepare(found.edit.guidance, taught, judged)
        stackers, before = _Stackers(edited, present), present.rights(judged)
        if guidance is None or not before:  # too little is known yet to calibrate either
            return None, stackers
        return Taught(guidance, found.whole.won, found.whole.lost, edited.rights(judged), before), stackers

    def list_sizes(self, learnt: Mapping[int, Whole]) -> tuple[SizeEntry, ...]:
        """What all groups teach in each size, with what is hoped of it, and the same one once."""
        among = sum(self._cut(self.groups))
        listed: dict[int, SizeEntry] = {}
        for most, whole in sorted(learnt.items()):
            edit = self._edit(whole, among)
            if edit and fits(edit.guidance, self.tools) and _has_cards(edit, whole):
                (proposal,) = edit.proposals
                entry = SizeEntry(most, whole.size, _estimate(whole, self.bundle.judged), proposal.operations)
                listed.setdefault(whole.size, entry)
        return tuple(listed.values())

    def _cut(self, groups: Sequence[Group]) -> list[int]:
        """The masks of the folds of ``groups``."""
        parts = [[self._places[i] for group in groups[fold::FOLDS] for i in group] for fold in range(FOLDS)]
        return [to_mask(part) for part in parts if part]

    def learn_all(self) -> tuple[_Learnt | None, bool]:
        """What all groups teach, in other sizes, too, and whether learning was stopped before that was known."""
        try:
            return (None if self.bundle.why_not else self.learn(self.groups, with_others=True)), False
        except LearningStopped:
            return None, True

    def learn(self, groups: Sequence[Group], with_others: bool = False) -> _Learnt | None:
        """What ``groups`` teach, if asked for ``with_others`` of ``SIZES``; None where that is nothing, or has no room."""
        folds, has_own = self._cut(groups), has_labels(self.present.labels)
        if len(folds) < 2:
            return None
        most = self.tools.config.reflection.size or SIZE[has_own]
        smaller = [size for size in SIZES[has_own][::-1] if size < most]
        found = self._learn_sizes(folds, [most, *(SIZES[has_own] if with_others else ())])
        for size in (most, *smaller):  # smaller ones where there is no room
            whole = found.get(size) or self._learn_sizes(folds, [size]).get(size)
            edit = self._edit(whole, sum(folds)) if whole else None
            if whole is None or edit is None:
                break
            if fits(edit.guidance, self.tools) and _has_cards(edit, whole):
                return _Learnt(whole, edit, found)
        return None

    def _learn_sizes(self, folds: Sequence[int], sizes: Sequence[int]) -> dict[int, Whole]:
        """What is learnt in each of the ``sizes``. Those of pass and fail are found together; of labels, each list hangs on
        the size of those before it."""
        sizes = [*dict.fromkeys(sizes)]
        together = [[size] for size in sizes] if has_labels(self.present.labels) else [sizes]
        count = f"{sum(folds).bit_count():,} of {len(self.positions):,} tickets"
        material = replace(self._material, pause=partial(self.tools.pause, f"learning rules from {count} by code"))
        return {size: each for some in together for size, each in learn_whole(material, folds, some).items()}

    def conclude(self, learnt: _Learnt, test: BettingTest, judge: Judge, stackers: _Stackers | None) -> Dialogue[Trial]:
        """What becomes of what all groups teach, after its test."""
        config, (whole, edit, _) = self.tools.config, learnt
        if stackers:
            by_folds = {i: not whole.wrong >> place & 1 for i, place in self._places.items()}
            guidance, _ = yield from stackers.edited.prepare(edit.guidance, self.positions, by_folds=by_folds)
            edit = replace(edit, guidance=guidance or edit.guidance)
        elif config.runner.judge == "both":
            edit = replace(edit, guidance=replace(edit.guidance, judge="rules"))
        estimate = _estimate(whole, self.bundle.judged)
        is_likely = whole.gain > LIKELY  # better than the best constant verdict
        if stackers and test.standard_errors > LIKELY:
            is_likely = True
        elif stackers and is_likely:
            kept = self._keep_beside(whole, edit, stackers)
            edit, is_likely = kept or edit, kept is not None
        outcome: Outcome = "accepted" if test.accepts else "unproven" if is_likely else "unlikely"
        has_rules = speaking_rules(self.present.rules, self.tools.words)
        excess = yield from judge.exceeds_limits(edit.guidance, self.positions)
        if outcome == "unproven" and config.gating.provisional == "keep" and not (whole.replaces and has_rules):
            marked = mark_provisional(edit.guidance, self.bundle.name, estimate)
            edit, outcome = replace(edit, guidance=marked), "provisional"
        outcome = "over a limit" if excess and outcome in KEPT else outcome
        errors = stackers.edited.calibration_errors if stackers else None
        shares = stackers.edited.measure_judges() if stackers else {}
        return Trial(edit, outcome, test=test, estimate=estimate, calibration_errors=errors, judges=shares)

    def _keep_beside(self, whole: Whole, edit: Edit, stackers: _Stackers) -> Edit | None:
        """The edit, where it may take the place of the present guidance though no test shows that it is better; None where
        it may not. Its rules are likely to be better than the best constant verdict, and what they say is weighed beside
        what the model says: so that is kept unless the model without them is ahead by more than a standard error. Where too
        little is known to weigh by, its rules as code judge, if they are ahead by as much."""
        before, after = (each.rights(self.positions) for each in (stackers.present, stackers.edited))
        needed = -1.0
        if not after:
            rules = read_rules(edit.guidance, self.tools.vocabulary, self.tools.words).each
            if not self.tools.weighs or any(isinstance(rule.code, OutOfReach) for rule in rules):
                return None
            after = {i: not whole.wrong >> place & 1 for i, place in self._places.items()}
            edit, needed = replace(edit, guidance=replace(edit.guidance, judge="rules")), 1.0
        gains = stackers.present.judge.compare({i: after[i] for i in before if i in after}, before)
        return edit if sum(gains) >= needed * math.sqrt(sum(gain * gain for gain in gains)) else None

    def _edit(self, whole: Whole, among: int) -> Edit | None:
        """The edit that puts what was learnt into the present guidance; None where that changes nothing."""
        words = self.tools.words
        others = [rule for rule in self.present.rules if rule.is_fixed or not whole.replaces]
        rules = write_whole(whole, replace(self.tools.vocabulary, lists=find_word_lists(others)), words)
        if not rules:
            return None
        costs = f"cost {whole.cost:.3f} a ticket at the prices given, {whole.present:.3f} without them"
        if {*prices_of(self.tools.config.price).values()} == {1}:
            costs = f"judge {1 - whole.cost:.1%} rightly, {1 - whole.present:.1%} without them"
        why = f"{MEASURED} {costs} ({among.bit_count():,} tickets)"
        operations = [Operation("add", None, (), rule.text, why, self._sources(whole, rule, among)) for rule in rules]
        if whole.replaces:
            free = [rule for rule in self.present.rules if not rule.is_fixed]
            kept, former = [rule.text for rule in rules], [rule for rule in free if rule.key != HEADLINE_KEY]
            if whole.lists and kept == [rule.text for rule in former]:
                return None
            spare = [rule for rule in former if whole.lists or rule.text not in kept]
            operations += [Operation("remove", rule.key, (), "", "what is learnt at once says it", ()) for rule in spare]
            headline = words.failing_headline if whole.verdict == "pass" else words.neutral_headline
            if free[:1] and free[0].key == HEADLINE_KEY and free[0].text != headline:
                operations.append(Operation("update", HEADLINE_KEY, (), headline, "", operations[0].evidence))
        edited = apply(self.present, operations, self.bundle.name)
        if edited is self.present:
            return None
        return Edit((Proposal(0, "", tuple(operations), ()),), 1, edited)

    def _sources(self, whole: Whole, rule: WrittenRule, among: int) -> tuple[str, ...]:
        """The first tickets that a rule judges rightly, of those that it speaks of."""
        fails = self._material.fails
        of_verdict = self._material.labelled.get(rule.verdict, fails if rule.verdict == "fail" else ~fails)
        if rule.lines:
            held = hold_any(self._material.masks, rule.lines) & of_verdict
        else:
            held = judge_compared(whole.cards, self._material.masks, among)[rule.verdict] & of_verdict
        held = held & among or among
        places = (place for place, bit in enumerate(reversed(f"{held:b}")) if bit == "1")
        return tuple(self.bundle.judged[place].ticket.key for place in islice(places, NAMED))


def _estimate(whole: Whole, cases: Sequence[Case]) -> Estimate:
    """What is hoped of it on tickets like the ``cases``, each judged by what others taught."""
    right = sum(case.right for case in cases) / len(cases)
    figures = right, right + whole.won - whole.lost, whole.present, whole.cost
    return Estimate(len(cases), *(round(figure, 6) for figure in figures))


def _judge_by_code(guidance: Guidance, positions: Sequence[int], tools: Tools) -> list[bool]:
    """Whether the rules as code, under which a ticket of which they say nothing has the first label, give tickets theirs."""
    tickets = [tools.tickets[i] for i in positions]
    rulings = rule_on(guidance, tickets, tools)
    return [(each.verdict or guidance.labels[0]) == ticket.label for ticket, each in zip(tickets, rulings, strict=True)]


def _has_cards(edit: Edit, whole: Whole) -> bool:
    """Whether all cards became rules: one that is too long is not read back, and the others are nothing without it."""
    needed = len(whole.cards) + sum(len(card.lists) for card in whole.cards.values())
    return sum(operation.op == "add" for operation in edit.proposals[0].operations) >= needed
