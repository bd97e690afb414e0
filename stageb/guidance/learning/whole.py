"""The whole guidance that tickets teach at once, where code judges: a list of rules or a scorecard, its size and its texts.

Forms are tried from the plainest on: lists of lines on single fields, added to the present rules or in their place, for one
verdict or the other; lines with conditions that mend few tickets; counts; cards; lines that compare or compute with two
fields. Each is learnt without each of ``FOLDS`` parts of the tickets, and each size of it judged on that part. Of the sizes
that have no more conditions than asked for, the one that costs least is taken, the smallest of those that cost the same; a
form takes the place of a plainer one if it costs less by ``_Form.enough`` standard errors, and by two errors, or if it says
as much in half of the conditions. What judges all tickets that taught it right is taken before what costs as much and does
not: tables without noise have such rules. None is taken where the present guidance costs as little.

Of labels other than pass and fail, each has a list of its own, learnt as if all others passed, but for the commonest: that
is what tickets have of which no list speaks (cf. Cohen, "Fast effective rule induction", 1995). Or each has a card, and
these are compared; lists that are right nine times in ten give way to cards by three standard errors alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from math import inf, sqrt
from operator import or_
from typing import NamedTuple

from stageb.guidance.learning.lists import FULL, Demands, cover, refine
from stageb.guidance.learning.scorecards import PAIRED, Cards, Scorecard, grow_cards, grow_compared, judge_compared
from stageb.guidance.learning.terms import Line, Masks, Term, find_counts, find_gap, guard, hold_any
from stageb.guidance.rules.evidence_forms import Condition
from stageb.guidance.words.types import Verdict

FOLDS = 5
GAIN, UNLIKE = 0.5, 2.0  # standard errors by which what is harder to follow must be better; comparisons of two fields
ERRORS = 2  # of the dearer kind, by which it must be better as well
RIGHTED = 2  # tickets that a condition more must set right in what judges all tickets right
FEWEST = 3  # conditions that a shorter one is hoped to have
SHORT = 0.5  # of the conditions of what is plainer: with fewer, it is enough to be no worse
SPELT_OUT = 5  # conditions of a card that may be written as a list
GOOD, FAR = 0.1, 3.0  # lists of labels that are wrong for a smaller share give way to cards, which are long, only by so much
OF_LABEL = 12  # conditions for each label of a mission's own, where it may have ``SIZE`` in all
SIZE, SIZES = {False: 30, True: 80}, {False: (5, 10, 20, 30, 60), True: (20, 40, 160)}  # conditions, by whether a
#   mission has labels of its own: of a guidance, and those of which the accuracy is estimated


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
    pause: Callable[[], None] = lambda: None  # between small steps; what it raises ends learning


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

    @property
    def size(self) -> int:
        """Its conditions, in all its lines and cards; each that a count counts is one."""
        lines = [line for each in (self, *self.lists) for line in (*each.lines, *(each.card.points if each.card else ()))]
        return sum(max(1, len(term.condition.parts)) for line in lines for term in line)


_Kind = Callable[[Material, int], "list[Whole]"]  # what tickets of a mask teach: one guidance a size, the smallest first


class _Form(NamedTuple):
    """Kinds of guidance that are equally hard to follow."""

    enough: float  # standard errors by which it must be better than what is plainer
    kinds: Sequence[_Kind]


class _Found(NamedTuple):
    """A whole guidance, and the tickets that it judges wrong out of fold."""

    cost: float  # of these
    size: int
    place: int  # of its kind among those of its form
    whole: Whole
    wrong: int
    misfits: int = 0  # tickets that taught it, and that it judges wrong


_FindCounts = Callable[[int, int], dict[Term, int]]
"""The counts that tell some tickets that fail from some that pass."""

_Chosen = dict[int, _Found]  # the best for each number of conditions that it may have; none where none is so small


def learn_whole(material: Material, folds: Sequence[int], sizes: Sequence[int]) -> dict[int, Whole]:
    """The guidance of each of the ``sizes``, conditions at most, that these tickets teach, each of them in one of the masks
    ``folds``; without those of which none is estimated to cost less than the present one."""
    among = sum(folds)
    present, count = (material.fails ^ material.judged_fail) & among, among.bit_count()
    if material.labelled:
        chosen = _learn_labels(material, folds, sizes)
    else:
        cards = [] if material.keeps else [_Form(GAIN, [_learn_cards])]
        chosen = _choose([*_list_forms(material, _ways(material), cards)], material, folds, sizes)
    return {
        size: replace(
            found.whole,
            cost=found.cost / count,
            present=_cost(present, material) / count,
            won=(present & ~found.wrong).bit_count() / count,
            lost=(found.wrong & ~present).bit_count() / count,
            gain=find_gain(found.wrong, present, material, among),
            wrong=found.wrong,
        )
        for size, found in chosen.items()
        if found.cost < _cost(present, material)
    }


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
    before = (0 if whole.verdict == "fail" else among) if whole.replaces else material.judged_fail
    return among & (before | held if whole.verdict == "fail" else before & ~held)


# Inside ------------------------------------------------------------------------------------------------------------------


def _choose(
    forms: Iterable[_Form], material: Material, folds: Sequence[int], sizes: Sequence[int], chosen: _Chosen | None = None
) -> _Chosen:
    """For each size the best guidance of the first form, or of a later one that is better by enough. ``chosen`` is what
    plainer forms have come to."""
    best = dict(chosen or {})
    for form in forms:
        perfect = _Found(0.0, FEWEST, 0, Whole("", False), 0)
        if not any(size not in best or _beats(perfect, best[size], form.enough, material, folds) for size in sizes):
            continue
        found = _try_kinds(form.kinds, material, folds)
        for size in sizes:
            small = [each for each in found if each.size <= size]
            least = _find_least(small, material) if small else None
            if least and (size not in best or _beats(least, best[size], form.enough, material, folds)):
                best[size] = least
    return best


def _find_least(found: Sequence[_Found], material: Material) -> _Found:
    """What costs least, the smallest of equals; or what alone is exact and costs about as much."""
    best = min(found, key=lambda each: each[:3])
    exact = (each for each in found if _is_exact(each, best, material))
    return min(exact, key=lambda each: each[:3], default=best)


def _beats(one: _Found, other: _Found, enough: float, material: Material, folds: Sequence[int]) -> bool:
    """Whether it costs less than what is plainer by ``enough`` standard errors, and by ``ERRORS``; or no more, and is
    ``SHORT``; or it alone is exact, and costs about as much. What is exact gives way to what is longer by more errors."""
    saved = other.cost - one.cost
    if _is_exact(one, other, material) or (saved >= 0 and one.size <= SHORT * other.size):
        return True
    if not other.misfits and one.size > other.size:
        enough = max(enough, UNLIKE)
    return saved > ERRORS * max(material.prices) and find_gain(one.wrong, other.wrong, material, sum(folds)) > enough


def _is_exact(one: _Found, other: _Found, material: Material) -> bool:
    """Whether ``one`` judges all tickets that taught it right, and ``other`` does not. By the estimate, it costs ``ERRORS``
    more at most, and each condition that it has more sets ``RIGHTED`` tickets right; wrong labels would take one each."""
    if one.misfits or not other.misfits or one.cost > other.cost + ERRORS * max(material.prices):
        return False
    return RIGHTED * (one.size - other.size) <= other.misfits


def _learn_labels(material: Material, folds: Sequence[int], sizes: Sequence[int]) -> _Chosen:
    """Lists of labels, or cards where these are better."""
    best: _Chosen = {}
    for each_label in sorted({_find_share(size) for size in sizes}):
        lists = _learn_by_label(material, folds, each_label)
        for size in sizes:
            if lists and lists.size <= size and (size not in best or lists[:2] < best[size][:2]):
                best[size] = lists
    largest = best.get(max(sizes))
    is_good = largest and largest.wrong.bit_count() < GOOD * sum(folds).bit_count()
    enough = FAR if is_good else GAIN
    longest = _find_share(max(sizes))
    forms = [_Form(enough, [partial(_learn_compared, longest, paired)]) for paired in (0, PAIRED)]
    return _choose(forms, material, folds, sizes, best)


def _find_share(size: int) -> int:
    """How many conditions each label may have of so many in all."""
    return -(-OF_LABEL * size // SIZE[True])


def _learn_by_label(material: Material, folds: Sequence[int], most: int) -> _Found | None:
    """A list for each label but the last, of ``most`` conditions, among the tickets that fixed rules and those before it
    leave, and the tickets that all of these judge wrong out of fold. What no list holds for has the last label. The label
    comes next that one line tells best."""
    among, claimed = sum(folds), material.held
    right, told = claimed & ~(material.fails ^ material.judged_fail), claimed  # told: what is spoken of out of fold
    fitted = right  # what they judge right of the tickets that taught them
    lists: list[Whole] = []
    *others, default = material.labelled
    while others:
        open_ = among & ~claimed
        label = max(others, key=lambda each: _find_purest(material, material.labelled[each] & open_, open_))
        others.remove(label)
        wanted = material.labelled[label] & among & ~claimed
        left = replace(material, fails=wanted | claimed, judged_fail=claimed)  # what is claimed plays no part
        found = _choose(_list_forms(left, [("fail", False)]), left, folds, [most]).get(most)
        if found and found.wrong.bit_count() < wanted.bit_count():
            lists.append(replace(found.whole, verdict=label))
            held = (found.wrong ^ wanted) & among & ~claimed & ~told
            right, told = right | held & wanted, told | held
            judged = judge_whole(found.whole, left, among) & ~claimed
            fitted, claimed = fitted | judged & wanted, claimed | judged
    right |= material.labelled[default] & among & ~told
    fitted |= material.labelled[default] & among & ~claimed
    if not lists:
        return None
    whole, wrong = Whole("", bool(material.verdicts), lists=tuple(lists)), among & ~right
    return _Found(_cost(wrong, material), whole.size, 0, whole, wrong, (among & ~fitted).bit_count())


def _find_purest(material: Material, wanted: int, among: int) -> tuple[float, int]:
    """How pure the best line for the ``wanted`` tickets ``among`` these is (Laplace), and how short."""
    lines = cover(material.masks, wanted, among & ~wanted, 0.5, most=1)
    if not lines:
        return 0.0, 0
    held = hold_any(material.masks, lines) & among
    return ((held & wanted).bit_count() + 1) / (held.bit_count() + 2), -len(lines[0])


def _list_forms(material: Material, ways: Sequence[tuple[Verdict, bool]], cards: Sequence[_Form] = ()) -> Iterator[_Form]:
    """Lists from the plainest on, and ``cards`` before those that compare or compute with two fields."""
    counts = cache(partial(find_counts, material.masks, material.gaps))  # for all kinds that learn from the same tickets
    plain = material.masks.plain
    # Of so few candidates as reasons of people name, chance brings fewer.
    named = material.masks.keep(term for term in material.masks if term.condition in material.named)

    def kinds(masks: Masks, sure: float, find: _FindCounts | None = None) -> list[_Kind]:
        return [_learn_lists(*way, Demands(sure=sure), masks, find) for way in ways]

    yield _Form(0.0, [*(kinds(named, FULL.sure) if named else []), *kinds(plain, FULL.sure)])
    yield _Form(GAIN, kinds(plain, 0.0))
    yield _Form(GAIN, [*kinds(plain, FULL.sure, counts), *kinds(plain, 0.0, counts)])
    yield from cards
    if len(plain) < len(material.masks):
        masks = material.masks
        yield _Form(UNLIKE, [*kinds(masks, FULL.sure), *kinds(masks, 0.0), *kinds(masks, FULL.sure, counts)])


def _ways(material: Material) -> list[tuple[Verdict, bool]]:
    """Verdicts of lines, and whether they replace the present rules."""
    if not material.verdicts:  # the headline alone: of all tickets it says the same
        return [("fail", bool(material.judged_fail)), ("pass", not material.judged_fail)]
    # A ticket that one rule passes no other can fail.
    added = [(each, False) for each in ("fail", "pass") if each == "pass" or "pass" not in material.verdicts]
    return added if material.keeps else [*added, ("fail", True), ("pass", True)]


def _learn_lists(verdict: Verdict, replaces: bool, demands: Demands, masks: Masks, find: _FindCounts | None) -> _Kind:
    """What learns lists of lines with a verdict, beside the present rules or in their place; with the counts that ``find``
    finds, or else none."""

    def learn(material: Material, among: int) -> list[Whole]:
        fails, passes = material.fails & among, among & ~material.fails
        missed, alarm = material.prices
        if not replaces:  # of the others nothing changes
            there = among & (~material.judged_fail if verdict == "fail" else material.judged_fail)
            fails, passes = fails & there, passes & there
        wanted, spared = (fails, passes) if verdict == "fail" else (passes, fails)
        least = (alarm if verdict == "fail" else missed) / (missed + alarm)
        counts = find(fails, passes) if find and fails and passes else {}
        if find and not counts:
            return []
        known = masks.plus(counts)
        lines = cover(known, wanted, spared, least, demands=demands)
        found = [refine(lines[:size], known, wanted, spared, least) for size in range(1, len(lines) + 1)]
        guarded = [tuple(guard(line, material.masks, material.gaps, among) for line in lines) for lines in found]
        return [Whole(verdict, replaces, lines) for lines in guarded]

    return learn


def _learn_cards(material: Material, among: int) -> list[Whole]:
    masks = material.masks.unguarded
    cards = grow_cards(masks, material.fails & among, among & ~material.fails, material.prices)
    return [_spell_out(card, material) or _pass_by_points(card) or Whole("fail", True, card=card) for card in cards]


def _spell_out(card: Scorecard, material: Material) -> Whole | None:
    """A card of few conditions as a list that says the same, where that is hardly longer."""
    terms = [term for line in card.points for term in line]
    if not len(card.points) == len(terms) <= SPELT_OUT or any(find_gap(term, material.gaps) for term in terms):
        return None
    sides = zip(("fail", "pass"), card.spell_out(), strict=True)
    whole = min((Whole(verdict, True, tuple(lines)) for verdict, lines in sides), key=lambda each: each.size)
    return whole if whole.lines and whole.size <= len(terms) + 1 else None


def _pass_by_points(card: Scorecard) -> Whole | None:
    """The same verdicts where a ticket without any point fails: by what it must have to pass. None where it passes."""
    points = {line: -points for line, points in card.points.items()}
    return Whole("pass", True, card=Scorecard(points, 1 - card.least)) if card.least <= 0 else None


def _learn_compared(longest: int, paired: int, material: Material, among: int) -> list[Whole]:
    masks = material.masks.unguarded
    grown = grow_compared(masks, material.labelled, among & ~material.held, longest, paired)
    each = [tuple(Whole(label, False, card=card) for label, card in cards.items()) for cards in grown]
    return [Whole("", bool(material.verdicts), lists=lists) for lists in each if lists]


def _try_kinds(kinds: Sequence[_Kind], material: Material, folds: Sequence[int]) -> list[_Found]:
    """All sizes of these kinds, learnt from all tickets, and which of them each judges wrong out of fold; one that has fewer
    sizes without some fold is judged there by its largest."""
    among, found = sum(folds), list[_Found]()
    for place, kind in enumerate(kinds):
        material.pause()
        by_fold = []
        for fold in folds:
            by_fold.append((fold, kind(material, among & ~fold)))
            material.pause()
        for number, whole in enumerate(kind(material, among)):
            wrong = 0
            for fold, wholes in by_fold:
                taught = wholes[min(number, len(wholes) - 1)] if wholes else Whole("fail", False)
                wrong |= _find_wrong(taught, material, fold)
            misfits = _find_wrong(whole, material, among).bit_count()
            found.append(_Found(_cost(wrong, material), whole.size, place, whole, wrong, misfits))
    return found


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
