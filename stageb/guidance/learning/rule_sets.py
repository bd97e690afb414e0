"""The rule sets that tickets teach at once, where code judges: lists of rules or scorecards, one
for each size.

Tiers (``tiers.py``) are tried from the plainest on: lists of lines on single fields, added to the
present rules or in their place, for one verdict or the other; lines with conditions that mend few
tickets; word lists; counts; cards; lines that compare or compute with two fields. Each is learnt
without each of ``CV_FOLDS`` parts of the tickets, and each size of it is judged on that part. Of
the sizes that have no more conditions than asked for, the smallest is taken whose cost is within
``NEAR`` standard errors of the least (the 1 SE rule of Breiman et al., "Classification and
Regression Trees", 1984, 3.4.3); of word lists, each of which is one condition, the shortest. A tier
takes the place of a plainer one if it costs less by ``Tier.min_z_score`` standard errors, and by
two errors, or if it says as much in half of the conditions. A guidance that judges all tickets that
taught it right is preferred to one that costs as much and does not: tables without noise have such
rules. The best of several owes part of its lead to chance; that part (``find_optimism``) is taken
off. If no lead over the present guidance is left, nothing new is learnt.

Where labels are other than pass and fail, each has a list of its own, learnt as if all others
passed, but for the commonest: tickets that no list speaks of get that one (cf. Cohen, "Fast
effective rule induction", 1995). Or each has a card, and these are compared; lists that are right
nine times in ten give way to cards by three standard errors alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain, islice
from typing import NamedTuple

from stageb.guidance.learning.compared_cards import PAIRED
from stageb.guidance.learning.lists import learn_lines
from stageb.guidance.learning.material import (
    DecisionList,
    Material,
    MeasuredRuleSet,
    RuleSet,
    find_cost,
    find_optimism,
    find_wrong,
    find_z_score,
    judge_by_rule_set,
)
from stageb.guidance.learning.plain_forms import drop_needless, turn_list
from stageb.guidance.learning.scorecards import MOST_TERMS, Listing
from stageb.guidance.learning.terms import hold_any
from stageb.guidance.learning.tiers import (
    MIN_Z_COMPARED,
    MIN_Z_SCORE,
    Learner,
    Tier,
    find_polarities,
    learn_cards,
    learn_compared,
    list_tiers,
)
from stageb.guidance.learning.word_choice import LIST_LENGTHS, find_lists
from stageb.guidance.words.labels import has_labels, rank

CV_FOLDS = 5
NEAR = 1.0  # standard errors by which a smaller guidance may cost more than the best
ERRORS = 2  # of the dearer kind, by which a less plain form must be better as well
RIGHTED = 2  # tickets that each further condition of an exact guidance must set right
FEWEST_CONDITIONS = 3  # conditions: the least that a later form is hoped to need
SHORT = 0.5  # share of a plainer form's conditions: with no more than that, no worse is enough
# Lists of labels that judge a smaller share wrong are good: cards, which are longer, take their
# place only if these are better by so many standard errors.
MOST_WRONG_IN_GOOD_LISTS, MIN_Z_OVER_GOOD_LISTS = 0.1, 3.0
# conditions for each label of a mission's own, where it may have ``SIZE`` in all, ...
OF_LABEL = 12
# ... and for the first ones where it may have few: a line of one or two says too little
LEAST_OF_LABEL = 3
# conditions in a guidance, by whether the order of its rules decides: the default, and other sizes
# for which the accuracy is estimated
SIZE, SIZES = {False: 30, True: 80}, {False: (5, 10, 20, 30, 60), True: (20, 40, 160)}


class _Found(NamedTuple):
    """A whole guidance, and the tickets that it judges wrong out of fold."""

    cost: float  # of the tickets that it judges wrong
    size: int
    place: int  # of its learner among those of its tier
    rule_set: RuleSet
    wrong: int
    misfits: int = 0  # number of tickets that taught it and that it judges wrong

    @property
    def rank(self) -> tuple[float, int, int]:
        """Sorts the cheapest first, of equals the smallest, of these the kind that was named
        first."""
        return self.cost, self.size, self.place

    @property
    def length(self) -> tuple[int, int]:
        """Its conditions, and the words in its lists, each of which is one condition."""
        return self.size, sum(len(words) for card in self.rule_set.cards for words in card.lists)


NOTHING_LEARNT = RuleSet((), None)


class _Choice(NamedTuple):
    """The best guidances, and all that were tried."""

    # by the number of conditions that it may have; no entry where nothing is that small
    best: dict[int, _Found]
    tried: Sequence[_Found]  # all that it was chosen from


def learn_rule_sets(
    material: Material,
    folds: Sequence[int],
    sizes: Sequence[int],
    lengths: Sequence[int] = LIST_LENGTHS,
) -> dict[int, MeasuredRuleSet]:
    """Learn a guidance for each of the ``sizes`` (conditions at most), with word lists of one of
    the ``lengths`` (words of a verdict at most). ``folds`` are masks of the tickets that teach;
    each ticket is in one of them. Leave out sizes for which nothing is estimated to cost less than
    the present guidance."""
    among = sum(folds)
    if has_labels(material.labelled):  # each list hangs on the size of those before it
        searches = [_learn_labels(material, folds, size, lengths) for size in sizes]
    else:
        listed = _list_word_tiers(learn_cards, MOST_TERMS, material, folds, lengths)
        cards = (
            [] if material.keeps else [Tier(MIN_Z_SCORE, [partial(learn_cards, None, MOST_TERMS)])]
        )
        tiers = list_tiers(
            material, find_polarities(material), cards, [] if material.keeps else listed
        )
        searches = [_choose(tiers, material, folds, sizes)]
    measured = {
        size: _measure(found, [each for each in search.tried if each.size <= size], material, among)
        for search in searches
        for size, found in search.best.items()
    }
    return {
        size: _simplify(rule_set, material, among)
        for size, rule_set in measured.items()
        if rule_set
    }


# Inside -------------------------------------------------------------------------------------------


def _measure(
    found: _Found, tried: Sequence[_Found], material: Material, among: int
) -> MeasuredRuleSet | None:
    """Measure what was found against the present guidance, taking off what chance adds to the best
    of all that were ``tried``; None if it is not estimated to cost less."""
    present, count = material.wrong & among, among.bit_count()
    saved = find_cost(present, material) - found.cost
    if saved <= 0:
        return None
    options = [each.wrong for each in sorted(tried, key=lambda each: (*each.length, *each.rank))]
    optimism = find_optimism(options, found.wrong, NEAR, material, among)
    left = saved - optimism.cost * count
    if left <= 0:
        return None
    return MeasuredRuleSet(
        found.rule_set.parts,
        found.rule_set.default,
        found.wrong,
        cost=found.cost / count + optimism.cost,
        present=find_cost(present, material) / count,
        won=(present & ~found.wrong).bit_count() / count,
        lost=(found.wrong & ~present).bit_count() / count + optimism.wrong,
        z_score=find_z_score(found.wrong, present, material, among) * left / saved,
    )


def _simplify(rule_set: MeasuredRuleSet, material: Material, among: int) -> MeasuredRuleSet:
    """Say the same of all tickets that taught it in fewer conditions: without needless lines, and
    what fails in place of all that passes."""
    plain = drop_needless(rule_set, material, among)
    is_passing = [rank(part.verdict) < rank(plain.default or "") for part in plain.parts]
    if plain.lists and is_passing == [True]:
        plain = turn_list(plain, material, among) or plain
    return replace(rule_set, parts=plain.parts, default=plain.default)


def _choose(
    tiers: Iterable[Tier],
    material: Material,
    folds: Sequence[int],
    sizes: Sequence[int],
    plainer: _Found | None = None,
) -> _Choice:
    """Choose for each size the best guidance of the first form, or of a later one that is better by
    enough. ``plainer`` is the result of plainer tiers."""
    best = dict.fromkeys(sizes, plainer) if plainer else dict[int, _Found]()
    tried = [plainer] if plainer else list[_Found]()
    for tier in tiers:
        # a tier is left out where even a guidance without an error would not win
        perfect = _Found(0.0, FEWEST_CONDITIONS, 0, NOTHING_LEARNT, 0)
        if not any(
            size not in best or _beats(perfect, best[size], tier.min_z_score, material, folds)
            for size in sizes
        ):
            continue
        found = _try_learners(tier.learners, material, folds)
        tried += found
        for size in sizes:
            small = [each for each in found if each.size <= size]
            least = _find_smallest(small, material, folds) if small else None
            if least and (
                size not in best or _beats(least, best[size], tier.min_z_score, material, folds)
            ):
                best[size] = least
    return _Choice(best, tried)


def _find_smallest(found: Sequence[_Found], material: Material, folds: Sequence[int]) -> _Found:
    """Find the smallest of those that cost about as little as the best; or, if the best is not
    exact, one that is and costs about as much."""
    best = min(found, key=lambda each: each.rank)
    exact = [each for each in found if _is_exact(each, best, material)] if best.misfits else [best]
    if exact:
        return min(exact, key=lambda each: each.rank)
    near = (
        each for each in found if find_z_score(best.wrong, each.wrong, material, sum(folds)) <= NEAR
    )
    return min(near, key=lambda each: (*each.length, *each.rank))


def _beats(
    one: _Found, other: _Found, min_z_score: float, material: Material, folds: Sequence[int]
) -> bool:
    """Whether ``one`` takes the place of the plainer ``other``. One of these is enough: it is
    exact, and ``other`` is not, and costs about as much; it costs no more, with a share of
    ``SHORT`` of the conditions at most; or it costs less, by ``ERRORS`` and by ``min_z_score``
    standard errors (``MIN_Z_COMPARED``, where ``other`` is exact and shorter)."""
    saved = other.cost - one.cost
    if _is_exact(one, other, material) or (saved >= 0 and one.size <= SHORT * other.size):
        return True
    if not other.misfits and one.size > other.size:
        min_z_score = max(min_z_score, MIN_Z_COMPARED)
    return (
        saved > ERRORS * material.dearest
        and find_z_score(one.wrong, other.wrong, material, sum(folds)) > min_z_score
    )


def _is_exact(one: _Found, other: _Found, material: Material) -> bool:
    """Whether ``one`` judges all tickets that taught it right, and ``other`` does not. By the
    estimate, it may cost ``ERRORS`` more at most, and each condition that it has more sets
    ``RIGHTED`` tickets right; to fit wrong labels would take a condition each."""
    if one.misfits or not other.misfits or one.cost > other.cost + ERRORS * material.dearest:
        return False
    return RIGHTED * (one.size - other.size) <= other.misfits


def _learn_labels(
    material: Material, folds: Sequence[int], size: int, lengths: Sequence[int]
) -> _Choice:
    """Learn a list for each label, or cards where these are better."""
    each_label = max(LEAST_OF_LABEL, -(-OF_LABEL * size // SIZE[True]))
    lists = _learn_by_label(material, folds, each_label, size)
    is_good = lists and lists.wrong.bit_count() < MOST_WRONG_IN_GOOD_LISTS * sum(folds).bit_count()
    min_z_score = MIN_Z_OVER_GOOD_LISTS if is_good else MIN_Z_SCORE
    listed = _list_word_tiers(
        partial(learn_compared, 0), each_label, material, folds, lengths, min_z_score
    )
    cards = [
        Tier(min_z_score, [partial(learn_compared, paired, None, each_label)])
        for paired in (0, PAIRED)
    ]
    return _choose(chain(islice(listed, 1), cards, listed), material, folds, [size], lists)


def _learn_by_label(
    material: Material, folds: Sequence[int], each_label: int, conditions_left: int
) -> _Found | None:
    """Learn a decision list for each label but the last, of at most ``each_label`` conditions and
    ``conditions_left`` in total. Each learns from the tickets that fixed rules and earlier lists
    leave open. Return them with the tickets that they judge wrong out of fold.

    Tickets that no list covers get the last label. The next label is always the one that a single
    line separates best.
    """
    among, taken = sum(folds), material.held
    judged_right, decided_out_of_fold = taken & ~material.wrong, taken
    lists: list[DecisionList] = []
    *others, default = material.labelled
    while others and conditions_left:
        open_tickets, most_conditions = among & ~taken, min(each_label, conditions_left)
        label = max(
            others,
            key=lambda each: _find_purest(
                material, material.labelled[each] & open_tickets, open_tickets
            ),
        )
        others.remove(label)
        wanted = material.labelled[label] & open_tickets
        # Tickets that are taken play no part: they count as having the label already, and rightly.
        label_against_rest = replace(
            material, labelled={label: wanted | taken, "": open_tickets & ~wanted}, wrong=wanted
        )
        search = _choose(
            list_tiers(label_against_rest, [(label, None)]),
            label_against_rest,
            folds,
            [most_conditions],
        )
        found = search.best.get(most_conditions)
        if found and found.wrong.bit_count() < wanted.bit_count():
            lists += found.rule_set.lists
            conditions_left -= found.rule_set.size
            decided_now = (found.wrong ^ wanted) & open_tickets & ~decided_out_of_fold
            judged_right |= decided_now & wanted
            decided_out_of_fold |= decided_now
            taken |= judge_by_rule_set(found.rule_set, material.masks, open_tickets)[label]
    judged_right |= material.labelled[default] & ~decided_out_of_fold
    if not lists:
        return None
    rule_set, wrong = RuleSet(tuple(lists), default), among & ~judged_right
    misfits = find_wrong(rule_set, material, among).bit_count()
    return _Found(find_cost(wrong, material), rule_set.size, 0, rule_set, wrong, misfits)


def _find_purest(material: Material, wanted: int, among: int) -> tuple[float, int]:
    """Return how pure the best line for the ``wanted`` tickets in ``among`` is (Laplace), and how
    short."""
    lines = learn_lines(material.masks, wanted, among & ~wanted, 0.5, most=1)
    if not lines:
        return 0.0, 0
    held = hold_any(material.masks, lines) & among
    return ((held & wanted).bit_count() + 1) / (held.bit_count() + 2), -len(lines[0])


def _list_word_tiers(
    learn: Callable[[Listing, int, Material, int], list[RuleSet]],
    most_lines: int,
    material: Material,
    folds: Sequence[int],
    lengths: Sequence[int],
    min_z_score: float = MIN_Z_SCORE,
) -> Iterator[Tier]:
    """Yield cards of word lists alone, short lists and longer ones, then the best of these with at
    most ``most_lines`` further lines; nothing without words."""
    whole_words = frozenset(term.word for term in material.words)
    listings = [_make_listing(whole_words, most) for most in lengths if whole_words]
    alone = [_remember(partial(learn, listing, 0)) for listing in listings]
    if alone:
        yield Tier(min_z_score, alone)
    if found := _try_learners(alone, material, folds):
        best = _find_smallest(found, material, folds)
        yield Tier(min_z_score, [partial(learn, listings[best.place], most_lines)])


@cache
def _make_listing(whole_words: frozenset[str], most: int) -> Listing:
    """Return the same listing for the same words, so that results kept by listing are found
    again."""
    return partial(find_lists, whole_words=whole_words, most=most)


def _remember(learner: Learner) -> Learner:
    """Return the kind, made to learn from the tickets of each mask only once."""
    learnt: dict[int, list[RuleSet]] = {}

    def learn(material: Material, among: int) -> list[RuleSet]:
        if among not in learnt:
            learnt[among] = learner(material, among)
        return learnt[among]

    return learn


def _try_learners(
    learners: Sequence[Learner], material: Material, folds: Sequence[int]
) -> list[_Found]:
    """Learn all sizes by these learners from all tickets, and find those that each judges wrong
    out of fold. Where a learner has fewer sizes without some fold, its largest judges that fold."""
    among, found = sum(folds), list[_Found]()
    for place, learner in enumerate(learners):
        material.pause()
        by_fold = []
        for fold in folds:
            by_fold.append((fold, learner(material, among & ~fold)))
            material.pause()
        for number, rule_set in enumerate(learner(material, among)):
            wrong = 0
            for fold, rule_sets in by_fold:
                taught = rule_sets[min(number, len(rule_sets) - 1)] if rule_sets else NOTHING_LEARNT
                wrong |= find_wrong(taught, material, fold)
            misfits = find_wrong(rule_set, material, among).bit_count()
            found.append(
                _Found(find_cost(wrong, material), rule_set.size, place, rule_set, wrong, misfits)
            )
    return found
