"""The whole guidance that tickets teach at once, where code judges: a list of rules or a scorecard, its size and its texts.

Candidates are lists of lines, added to the present rules or in their place, for one verdict or the other, with a high or
a low price of computed conditions or of what people's reasons name alone, and cards. Each is learnt without each of
``FOLDS`` parts of the tickets, and each size of it judged on that part: the size that costs least is taken, the smallest of
those that cost the same, and none at all where the present guidance costs as little. What is harder to follow - lines with
conditions that mend few tickets, a card - is taken if it costs less by more than half a standard error, and than two errors.

Of labels other than pass and fail, each has a list of its own, learnt as if all others passed, but for the commonest: that
is what tickets have of which no list speaks (cf. Cohen, "Fast effective rule induction", 1995). Or each has a card, and
these are compared; lists that are right nine times in ten give way to cards by three standard errors alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from math import inf, sqrt
from operator import or_

from stageb.guidance.learning.lists import FULL, Demands, cover, refine
from stageb.guidance.learning.scorecards import (
    MOST_COMPARED,
    PAIRED,
    Cards,
    Scorecard,
    grow_cards,
    grow_compared,
    judge_compared,
)
from stageb.guidance.learning.terms import (
    Line,
    Masks,
    Term,
    find_counts,
    find_gap,
    guard,
    hold_any,
    hold_together,
    without_guards,
)
from stageb.guidance.rules.evidence_forms import Condition
from stageb.guidance.rules.expression import All, Expression, Points, join_words, negate
from stageb.guidance.rules.judge import begin_rule, write_rule
from stageb.guidance.rules.parse import OutOfReach, RuleCode, parse_rule
from stageb.guidance.rules.prompts import Words, clue_text
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import Verdict

FOLDS = 5
GAIN, ERRORS = 0.5, 2  # by how much what is harder to follow must be better: standard errors, and errors of the dearer kind
GOOD, FAR = 0.1, 3.0  # lists of labels that are wrong for a smaller share give way to cards, which are long, only by so much


@dataclass(frozen=True, slots=True)
class Material:
    """What is learnt from: tickets as bits of masks."""

    masks: Masks
    gaps: Mapping[str, int]  # field -> the tickets that lack it, where some do
    fails: int  # labelled fail
    judged_fail: int  # by the present guidance
    verdicts: frozenset[Verdict]  # that its rules give, as far as they can be read; none where it has no rule
    prices: tuple[float, float]  # of a ticket labelled fail that passes, and of one labelled pass that fails
    named: frozenset[Condition] = frozenset()  # by reasons of people
    # Of a mission with labels of its own, the tickets of each, that of tickets which no rule speaks of last; ``fails`` are
    # those of the others then.
    labelled: Mapping[Verdict, int] = field(default_factory=dict)
    held: int = 0  # tickets of such a mission that fixed rules speak of, before all that is learnt
    keeps: bool = False  # the present rules, as some are fixed: others stand beside them
    groups: Sequence[int] = ()  # of several tickets that say the same, or are kept together


@dataclass(frozen=True, slots=True)
class Whole:
    """What to make of the guidance: lines or a card, with the present rules or in their place."""

    verdict: Verdict  # of the tickets for which a line holds, or that reach the card; of ``lists``: of none
    replaces: bool  # the present rules: then a ticket without a line has the other verdict
    lines: tuple[Line, ...] = ()
    card: Scorecard | None = None
    lists: tuple[Whole, ...] = ()  # of labels of its own: the lines of each, where those before it do not hold; or the cards
    cost: float = 0.0  # of a ticket, estimated on tickets that did not teach it
    present: float = 0.0  # the same of the present guidance
    won: float = 0.0  # share of tickets that it judges better than the present guidance, estimated likewise
    lost: float = 0.0  # that it judges worse
    gain: float = 0.0  # what it costs less than the present guidance, in standard errors, estimated likewise
    wrong: int = 0  # the tickets that it judges wrong, estimated likewise

    @property
    def cards(self) -> Cards:
        """By label, where there are cards."""
        return {each.verdict: each.card for each in (self, *self.lists) if each.card}


_Kind = Callable[[Material, int], "list[Whole]"]  # what tickets of a mask teach: one guidance a size, the smallest first
_Found = tuple[Whole, int]  # a whole guidance, and the tickets that it judges wrong out of fold


def learn_whole(material: Material, folds: Sequence[int], longest: int = MOST_COMPARED) -> Whole | None:
    """The guidance that these tickets teach, each of them in one of the masks ``folds``, cards having ``longest`` lines at
    most; None where none is estimated to cost less than the present one."""
    among = sum(folds)
    present = (material.fails ^ material.judged_fail) & among
    if material.labelled:  # cards of plain conditions where those do
        cards = [[partial(_learn_compared, longest, paired)] for paired in (0, PAIRED)]
        lists = _learn_by_label(material, folds)
        is_good = lists and lists[1].bit_count() < GOOD * among.bit_count()
        best = _improve(lists, cards, material, folds, FAR if is_good else GAIN)
    else:
        cards = [] if material.keeps else [[partial(_learn_cards, longest)]]
        best = _improve(_learn_best_list(material, folds, _ways(material)), cards, material, folds)
    if not best or _cost(best[1], material) >= _cost(present, material):
        return None
    (whole, wrong), count = best, among.bit_count()
    return replace(
        whole,
        cost=_cost(wrong, material) / count,
        present=_cost(present, material) / count,
        won=(present & ~wrong).bit_count() / count,
        lost=(wrong & ~present).bit_count() / count,
        gain=find_gain(wrong, present, material, among),
        wrong=wrong,
    )


def shorten(whole: Whole, material: Material) -> Whole | None:
    """It without its last line, or of several lists the last line that judges fewest tickets right; None where nothing is
    left then."""
    if not whole.lists:
        return replace(whole, lines=whole.lines[:-1]) if len(whole.lines) > 1 else None

    def worth(each: Whole) -> int:
        *others, last = each.lines
        alone = hold_together(material.masks, last) & ~hold_any(material.masks, others)
        right = alone & material.labelled[each.verdict]
        return 2 * right.bit_count() - alone.bit_count()

    least = min(whole.lists, key=worth)
    lists = [replace(each, lines=each.lines[:-1]) if each is least else each for each in whole.lists]
    left = tuple(each for each in lists if each.lines)
    return replace(whole, lists=left) if left else None


def find_undecided(whole: Whole, material: Material, among: int) -> int:
    """The tickets ``among`` these of which lines cannot tell whether one holds, so that code does not judge them."""
    named = {each for line in whole.lines for term in line for each in (term, *map(Term, term.condition.parts))}
    possible = {
        term: material.masks[term] | find_gap(term, material.gaps) for term in named if term.condition.kind != "count"
    }
    return among & hold_any(Masks(possible), whole.lines) & ~hold_any(material.masks, whole.lines)


def judge_whole(whole: Whole, material: Material, among: int) -> int:
    """The tickets ``among`` these that fail under it."""
    held = hold_any(material.masks, whole.lines)
    if whole.card:
        held = judge_compared(whole.cards, material.masks, among)[whole.verdict]
    before = 0 if whole.verdict == "fail" else among
    if not whole.replaces:
        before = material.judged_fail
    return among & (before | held if whole.verdict == "fail" else before & ~held)


# Inside ------------------------------------------------------------------------------------------------------------------


def _improve(
    best: _Found | None, others: Sequence[Sequence[_Kind]], material: Material, folds: Sequence[int], enough: float = GAIN
) -> _Found | None:
    """What is best, or the best of others where that is better by ``enough`` standard errors. The others come by how
    hard they are to follow."""

    def beats(wrong: int) -> bool:
        if not best:
            return True
        saved = _cost(best[1], material) - _cost(wrong, material)
        return saved > ERRORS * max(material.prices) and find_gain(wrong, best[1], material, sum(folds)) > enough

    for kinds in others:
        found = _choose_size(kinds, material, folds) if beats(0) else None
        best = found if found and beats(found[1]) else best
    return best


def _learn_by_label(material: Material, folds: Sequence[int]) -> _Found | None:
    """A list for each label but the last, among the tickets that fixed rules and those before it leave, and the tickets that
    all of these judge wrong out of fold. What no list holds for has the last label. The label comes next that one line tells
    best."""
    among, claimed = sum(folds), material.held
    right, told = claimed & ~(material.fails ^ material.judged_fail), claimed  # told: what is spoken of out of fold
    lists: list[Whole] = []
    *others, default = material.labelled
    while others:
        open_ = among & ~claimed
        label = max(others, key=lambda each: _find_purest(material, material.labelled[each] & open_, open_))
        others.remove(label)
        wanted = material.labelled[label] & among & ~claimed
        left = replace(material, fails=wanted | claimed, judged_fail=claimed)  # what is claimed plays no part
        found = _learn_best_list(left, folds, [("fail", False)])
        if found and found[1].bit_count() < wanted.bit_count():
            list_, wrong = found
            lists.append(replace(list_, verdict=label))
            held = (wrong ^ wanted) & among & ~claimed & ~told
            right, told = right | held & wanted, told | held
            claimed |= judge_whole(list_, left, among)
    right |= material.labelled[default] & among & ~told
    return (Whole("", bool(material.verdicts), lists=tuple(lists)), among & ~right) if lists else None


def _find_purest(material: Material, wanted: int, among: int) -> tuple[float, int]:
    """How pure the best line for the ``wanted`` tickets ``among`` these is (Laplace), and how short."""
    lines = cover(material.masks, wanted, among & ~wanted, 0.5, most=1)
    if not lines:
        return 0.0, 0
    held = hold_any(material.masks, lines) & among
    return ((held & wanted).bit_count() + 1) / (held.bit_count() + 2), -len(lines[0])


def _learn_best_list(material: Material, folds: Sequence[int], ways: Sequence[tuple[Verdict, bool]]) -> _Found | None:
    weights = (FULL.computed, 1.0) if any(term.condition.is_computed for term in material.masks) else (1.0,)
    counts = cache(partial(find_counts, material.masks, material.gaps))  # for all kinds that learn from the same tickets

    # Of so few candidates as reasons of people name, chance brings fewer.
    named = material.masks.keep(term for term in material.masks if term.condition in material.named)

    def list_kinds(sure: float) -> list[_Kind]:
        kinds = [_learn_lists(*way, Demands(1.0, sure), named, lambda *_: {}) for way in ways if named]
        return kinds + [_learn_lists(*way, Demands(each, sure), material.masks, counts) for each in weights for way in ways]

    return _improve(None, [list_kinds(FULL.sure), list_kinds(0.0)], material, folds)


def _ways(material: Material) -> list[tuple[Verdict, bool]]:
    """Verdicts of lines, and whether they replace the present rules."""
    if not material.verdicts:  # the headline alone: of all tickets it says the same
        return [("fail", bool(material.judged_fail)), ("pass", not material.judged_fail)]
    # A ticket that one rule passes no other can fail.
    added = [(each, False) for each in ("fail", "pass") if each == "pass" or "pass" not in material.verdicts]
    return added if material.keeps else [*added, ("fail", True), ("pass", True)]


def _learn_lists(
    verdict: Verdict, replaces: bool, demands: Demands, masks: Masks, find: Callable[[int, int], dict[Term, int]]
) -> _Kind:
    """What learns lists of lines with a verdict, beside the present rules or in their place. ``find`` gives the counts that
    tell some tickets that fail from some that pass."""

    def learn(material: Material, among: int) -> list[Whole]:
        fails, passes = material.fails & among, among & ~material.fails
        missed, alarm = material.prices
        if not replaces:  # of the others nothing changes
            there = among & (~material.judged_fail if verdict == "fail" else material.judged_fail)
            fails, passes = fails & there, passes & there
        wanted, spared = (fails, passes) if verdict == "fail" else (passes, fails)
        least = (alarm if verdict == "fail" else missed) / (missed + alarm)
        counts = find(fails, passes) if fails and passes else {}
        known = masks.plus(counts)
        lines = cover(known, wanted, spared, least, demands=demands)
        found = [refine(lines[:size], known, wanted, spared, least) for size in range(1, len(lines) + 1)]
        guarded = [tuple(guard(line, material.masks, material.gaps, among) for line in lines) for lines in found]
        return [Whole(verdict, replaces, lines) for lines in guarded]

    return learn


def _learn_cards(longest: int, material: Material, among: int) -> list[Whole]:
    masks = without_guards(material.masks)
    cards = grow_cards(masks, material.fails & among, among & ~material.fails, material.prices, longest)
    return [_pass_by_points(card) if card.least <= 0 else Whole("fail", True, card=card) for card in cards]


def _pass_by_points(card: Scorecard) -> Whole:
    """The same verdicts where a ticket without any point fails: by what it must have to pass."""
    return Whole("pass", True, card=Scorecard({line: -points for line, points in card.points.items()}, 1 - card.least))


def _learn_compared(longest: int, paired: int, material: Material, among: int) -> list[Whole]:
    masks = without_guards(material.masks)
    grown = grow_compared(masks, material.labelled, among & ~material.held, longest, paired)
    each = [tuple(Whole(label, False, card=card) for label, card in cards.items()) for cards in grown]
    return [Whole("", bool(material.verdicts), lists=lists) for lists in each if lists]


def _choose_size(kinds: Sequence[_Kind], material: Material, folds: Sequence[int]) -> _Found | None:
    """Of these kinds the one and its size that costs least, learnt from all tickets, and which it judges wrong out of fold;
    a kind that has fewer sizes without some fold is judged there by its largest. None where nothing is found."""
    among = sum(folds)
    tried: list[tuple[float, int, int, _Kind, int]] = []
    for place, kind in enumerate(kinds):
        by_fold = [(fold, kind(material, among & ~fold)) for fold in folds]
        for size in range(1, max(len(wholes) for _, wholes in by_fold) + 1):
            wrong = 0
            for fold, wholes in by_fold:
                whole = wholes[min(size, len(wholes)) - 1] if wholes else Whole("fail", False)
                wrong |= _find_wrong(whole, material, fold)
            tried.append((_cost(wrong, material), size, place, kind, wrong))
    if not tried:
        return None
    best = min(tried, key=lambda each: each[:3])
    wholes = best[3](material, among)
    return (wholes[min(best[1], len(wholes)) - 1], best[4]) if wholes else None


def _find_wrong(whole: Whole, material: Material, among: int) -> int:
    """The tickets ``among`` these that it judges wrong, or not at all: nobody knows what a model would say."""
    if whole.cards and material.labelled:
        present, free = material.fails ^ material.judged_fail, among & ~material.held
        judged = judge_compared(whole.cards, material.masks, free)
        *_, default = material.labelled
        judged[default] = judged.get(default, 0) | free & ~sum(judged.values())
        right = sum(mask & material.labelled[label] for label, mask in judged.items())
        return free & ~right | among & material.held & present
    return among & (judge_whole(whole, material, among) ^ material.fails) | find_undecided(whole, material, among)


def _cost(wrong: int, material: Material) -> float:
    missed = (wrong & material.fails).bit_count()
    return material.prices[0] * missed + material.prices[1] * (wrong.bit_count() - missed)


def find_gain(one: int, other: int, material: Material, among: int) -> float:
    """How much less one set of wrong tickets costs than the other, in standard errors of that difference; tickets of a group
    are as one."""
    less, more = other & ~one, one & ~other

    def find_change(group: int) -> float:
        return _cost(less & group, material) - _cost(more & group, material)

    gained = find_change(among)
    squares = replace(material, prices=(material.prices[0] ** 2, material.prices[1] ** 2))
    single, joined = (less | more) & ~reduce(or_, material.groups, 0), [*map(find_change, material.groups)]
    variance = _cost(single, squares) + sum(each**2 for each in joined) - gained**2 / among.bit_count()
    return gained / sqrt(variance) if variance > 0 else inf if gained > 0 else 0.0


Read = Callable[[Condition], Expression | None]


@dataclass(frozen=True, slots=True)
class WrittenRule:
    """The text of one rule, and the line that it says; None for a scorecard."""

    text: str
    line: Line | None
    verdict: Verdict  # of the tickets for which the line holds


def write_whole(whole: Whole, vocabulary: Vocabulary, words: Words) -> list[WrittenRule]:
    """The rules of what was learnt, without those that would not be read back as meant: a value may look like two."""

    if whole.lists:
        return [rule for each in whole.lists for rule in write_whole(each, vocabulary, words)]

    def read(condition: Condition) -> Expression | None:
        opening, end = begin_rule([*words.verdicts][-1], words)
        code = parse_rule(f"{opening}{clue_text((condition,), words)}{end}", vocabulary, words)
        return None if isinstance(code, OutOfReach) else code.condition

    codes = [(_card_code(whole, whole.card, read), None)] if whole.card else _line_codes(whole, read)
    texts = [(write_rule(code, words), code, line) for code, line in codes if code]
    return [
        WrittenRule(text, line, whole.verdict)
        for text, code, line in texts
        if _is_same(parse_rule(text, vocabulary, words), code)
    ]


def _is_same(read: RuleCode | OutOfReach, code: RuleCode) -> bool:
    return isinstance(read, RuleCode) and (read.verdict, read.expression) == (code.verdict, code.expression)


def _card_code(whole: Whole, card: Scorecard, read: Read) -> RuleCode | None:
    """A card as one rule."""
    parts = [(points, meant) for line, points in card.points.items() if (meant := _meant(line, read))]
    return RuleCode(whole.verdict, Points(card.least, join_words(parts))) if parts else None


def _line_codes(whole: Whole, read: Read) -> list[tuple[RuleCode | None, Line | None]]:
    """A rule for each line."""
    return [(RuleCode(whole.verdict, meant), line) for line in whole.lines if (meant := _meant(line, read))]


def _meant(line: Line, read: Read) -> Expression | None:
    """What a line says; None where one of its conditions cannot be read."""
    parts = []
    for term in line:
        part = read(term.condition)
        if part is None:
            return None
        parts.append(negate(part) if term.is_denied else part)
    return parts[0] if len(parts) == 1 else All(tuple(parts))
