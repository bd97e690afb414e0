"""Which tickets are learnt from, raced on, tested on, chosen by, sealed: the one place that says
so.

Tickets may say their split themselves. Else a group's split is a hash of its name, so it is the
same whatever other tickets there are, unless these say the same as its own (``groups.py``), and no
group is cut. Nor are labels dealt evenly to the splits, which would make a group's split a matter
of the others: by chance alone, test's share of 300 failures has a standard error of 2.3 points, of
50 one of 5.7. Of train, some groups are set apart: edits are raced on them, and reflection never
sees them.

Where the dearer error is of the rarer label, as with one failure in thirty and a missed one at the
price of twenty false alarms, most tickets would cost a verdict and tell next to nothing. So
learning draws groups by what it costs to judge them wrong (``draw_by_price``): all of the rare
ones, and a sample of the others, each of which speaks for those left out. Verdicts for the gate are
cheap, and those of rules as code cost nothing: it races and tests on several times as many of the
others as epochs roll out (``oversampling``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from stageb.errors import BadInputError, BadLine
from stageb.guidance.config import LoopConfig, SplitConfig
from stageb.guidance.tickets.groups import join_equal, name_content, whole_groups
from stageb.guidance.words.costs import EQUAL, Prices, describe_counts, find_cheapest
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import (
    PASS_FAIL,
    TEACHING_FOLDS,
    Guidance,
    Rule,
    Split,
    Ticket,
    Verdict,
)
from stageb.seeds import shuffled, stream, uniform
from stageb.untrusted.strict_json import short

SPLITS: tuple[Split, ...] = ("train", "val", "test")
# times as many of the cheaper label as price alone asks for: false alarms are proven by many small
# losses
FURTHER = 4
# where code judges; with 64 a test ends before it has seen failures enough to prove a narrow rule
# on
FURTHER_BY_CODE = 16
RACED = 1 / 3  # of train, at most, that edits are raced on
RACED_BY_PRICE = 1 / 6  # of the tickets drawn by price: evidence and tests need the rare ones more
# of the groups drawn by price: beyond it, the price speaks for those of the dearer label alone
MOST_DEAR = 0.5
SHOWN = 5  # of the names to leave out that no ticket has
SPLIT_SEED = "split_seed"  # in a rule's metadata: what named the split that it was learnt by


@dataclass(frozen=True, slots=True)
class Splits:
    """One mission's tickets, as positions in the run's."""

    train: tuple[int, ...]  # by ticket_key, as val and test: file order changes nothing
    val: tuple[int, ...]
    test: tuple[int, ...]
    race_set: tuple[int, ...]  # of train, those on which edits are raced, in an order of their own
    rollout_pool: tuple[
        int, ...
        # of train, the others, by ticket_key: epochs draw from them; where tickets are drawn by
        # price, one in ``oversampling`` of the cheaper label
    ]
    test_order: tuple[int, ...]  # the same, in the order in which every test looks at them
    by_key: Mapping[str, int]  # ticket_key -> position, of train
    # of val, by ticket_key, those that are judged: all, unless tickets are drawn by price
    val_sample: tuple[int, ...]
    # Position -> chance of being drawn where tickets were drawn by price, next to that of a ticket
    # of the dearer label; 1 where nothing stands here.
    inclusion_prob: Mapping[int, float] = field(default_factory=dict)
    # label -> tickets of a split for each that is judged; 1 where nothing stands here
    scale: Mapping[Split, Mapping[str, float]] = field(default_factory=dict)

    def of(self, split: Split) -> tuple[int, ...]:
        """The tickets of a split."""
        return {"train": self.train, "val": self.val, "test": self.test}[split]


def leave_out(tickets: Sequence[Ticket], names: Sequence[str]) -> tuple[list[Ticket], str]:
    """The tickets that none of ``names`` names, by group_id or key, and how many others there are,
    in words."""
    if not names:
        return list(tickets), ""
    named = frozenset(names)
    kept = [ticket for ticket in tickets if named.isdisjoint((ticket.key, ticket.group_id))]
    known = {name for ticket in tickets for name in (ticket.key, ticket.group_id)}
    unknown = [name for name in names if name not in known]
    said = f"left out by split.leave_out: {len(tickets) - len(kept):,} of {len(tickets):,} tickets"
    if unknown:
        more = ", ..." * (len(unknown) > SHOWN)
        said += f"; no ticket is called {', '.join(map(short, unknown[:SHOWN]))}{more}"
    if not kept:
        raise BadInputError(
            "tickets", [BadLine("split.leave_out", 0, "it names every ticket", "leave some in")]
        )
    return join_equal(kept), said


def split_seed(config: LoopConfig) -> int:
    """Return the seed of the split."""
    return config.seed if config.split.seed is None else config.split.seed


def split_tickets(tickets: Sequence[Ticket], config: LoopConfig) -> dict[str, Splits]:
    """Every mission's splits, missions in order of first appearance."""
    parts: dict[str, dict[Split, list[int]]] = {
        m: {split: [] for split in SPLITS} for m in list_missions(tickets)
    }
    seed = split_seed(config)
    for i in sorted(range(len(tickets)), key=lambda i: tickets[i].key):
        ticket = tickets[i]
        split = ticket.split or split_of(seed, ticket.mission, ticket.group, config.split)
        parts[ticket.mission][split].append(i)
    return {mission: _split_mission(mission, by, tickets, config) for mission, by in parts.items()}


def split_of(seed: int, mission: str, group: str, fractions: SplitConfig) -> Split:
    """The split of a group."""
    drawn = uniform(stream(seed, "split", mission, group), 0)
    shares = [(name, share) for name, share in fractions.shares.items() if share > 0]
    for name, share in shares:
        if drawn < share:
            return name
        drawn -= share
    return shares[-1][0]  # a rounding error below 1


def list_missions(tickets: Sequence[Ticket]) -> list[str]:
    """The missions, in order of first appearance."""
    return list(dict.fromkeys(ticket.mission for ticket in tickets))


def rank_labels(tickets: Sequence[Ticket], splits: Splits) -> tuple[Verdict, ...]:
    """The labels of a mission, first the one of most train tickets, then the rarest of the others
    first: pass and fail where it has no others."""
    count = Counter(tickets[i].label for split in SPLITS for i in splits.of(split))
    if not has_labels(count):
        return PASS_FAIL
    of_train = Counter(tickets[i].label for i in splits.train)
    *others, most = sorted(count, key=lambda label: (of_train[label], label))
    return most, *others


def find_default(
    tickets: Sequence[Ticket], splits: Splits, labels: tuple[Verdict, ...], prices: Prices
) -> Verdict:
    """The verdict of tickets that no rule speaks of, where no rule is known: the one that costs
    least if all train tickets get it."""
    counts = Counter(tickets[i].label for i in splits.train)
    return find_cheapest({label: counts[label] for label in labels}, prices)


def describe_labels(tickets: Sequence[Ticket], splits: Splits) -> list[str]:
    """For each split how many tickets it has, and how many of these are labelled fail, or have each
    label of their own."""
    counts = {split: Counter(tickets[i].label for i in splits.of(split)) for split in SPLITS}
    has_own = any(map(has_labels, counts.values()))

    def name(count: Counter[Verdict]) -> str:
        if not count:
            return ""
        return f": {describe_counts(count)}" if has_own else f", {count['fail']:,} of them fail"

    return [f"{count.total():,} {split} tickets{name(count)}" for split, count in counts.items()]


def _split_mission(
    mission: str, by: Mapping[Split, Sequence[int]], tickets: Sequence[Ticket], config: LoopConfig
) -> Splits:
    """One mission's splits. ``race_size`` train tickets are set apart for races, whole groups and
    no more than their share of ``train``; none where there is no gate. Train tickets that are not
    drawn are neither raced, studied nor tested on."""
    seed, times = split_seed(config), oversampling(config)
    prices = config.price.by_label if config.has_gate else EQUAL
    order = shuffled(by["train"], stream(seed, "gate", mission))
    train, val = tuple(by["train"]), tuple(by["val"])
    whole = Splits(
        train=train,
        val=val,
        test=tuple(by["test"]),
        race_set=(),
        rollout_pool=train,
        test_order=tuple(order),
        by_key={tickets[i].key: i for i in train},
        val_sample=val,
    )
    # every ticket teaches and tests
    if config.reflection.scope == "all" and config.runner.judge == "both":
        return whole
    order, drawn = draw_by_price(
        order, tickets, prices, stream(seed, "drawn by price", mission), times
    )
    size, most = config.gating.race_size, len(order) * RACED
    if drawn:
        size, most = size * times, len(order) * RACED_BY_PRICE
    raced = _choose_raced([tickets[i] for i in order], min(size, int(most)))
    studied = [
        i for i in sorted(order, key=lambda i: tickets[i].key) if tickets[i].group not in raced
    ]
    if drawn:
        key = stream(seed, "studied", mission)
        studied = [
            i
            for i in studied
            if i not in drawn or uniform(stream(key, tickets[i].group), 0) * times < 1
        ]
    key = stream(seed, "val drawn by price", mission)
    judged, _ = (
        draw_by_price(shuffled(by["val"], key), tickets, prices, key, 1)
        if drawn
        else (by["val"], {})
    )
    pairs: list[tuple[Split, Sequence[int]]] = (
        [("train", studied), ("val", judged)] if drawn else []
    )
    return replace(
        whole,
        race_set=tuple(i for i in order if tickets[i].group in raced),
        rollout_pool=tuple(studied),
        test_order=tuple(i for i in order if tickets[i].group not in raced),
        val_sample=tuple(sorted(judged, key=lambda i: tickets[i].key)),
        inclusion_prob=drawn,
        scale={split: _scale(by[split], some, tickets) for split, some in pairs},
    )


def oversampling(config: LoopConfig) -> int:
    """Where tickets are drawn by price: of the cheaper label the gate sees so many times as many as
    epochs roll out."""
    return FURTHER_BY_CODE if config.runner.judge == "both" else FURTHER


def bundle_size(splits: Splits, config: LoopConfig) -> int:
    """Tickets to roll out before the next reflection: where they are drawn by price, fewer teach as
    much."""
    size = config.reflection.batch_size
    return -(-size // oversampling(config)) if splits.inclusion_prob else size


def bundles_at_once(config: LoopConfig) -> int:
    """Bundles that are reflected on under one guidance: one for each fold where whole rounds are
    reflected on."""
    return TEACHING_FOLDS if config.reflection.scope == "round" and config.has_gate else 1


def weigh_labels(splits: Splits, prices: Prices) -> dict[str, float]:
    """Return the cost of judging one of a label's tickets wrong, as they were drawn: 1 for the
    dearer label."""
    most, chance = max(prices.values()), min(splits.inclusion_prob.values(), default=1.0)
    return {label: min(1.0, price / most / chance) for label, price in prices.items()}


def _scale(
    whole: Sequence[int], some: Sequence[int], tickets: Sequence[Ticket]
) -> dict[str, float]:
    """For how many tickets of the whole each one of some stands, by label."""
    of, among = (Counter(tickets[i].label for i in positions) for positions in (whole, some))
    return {label: of[label] / among[label] for label in among}


def draw_by_price(
    order: Sequence[int], tickets: Sequence[Ticket], prices: Prices, key: int, times: int
) -> tuple[list[int], dict[int, float]]:
    """Those of ``order`` that learning looks at, whole groups, and with which chance each was drawn
    next to one of the dearer label, where that is below 1. All of them, as they stand, unless the
    dearer label is the rarer one.

    Whether the next group is one of the dearer label is drawn with the share that these have of the
    price of judging all groups wrong, were the others ``times`` times as dear, ``MOST_DEAR`` at
    most; it ends where none is left. So groups come independently of each other, as the gate's
    tests have it, and a gain that is weighed by price and divided by the chance of being drawn is,
    but for a factor, the mean over all groups (Horvitz & Thompson, JASA 1952).
    """
    dearer = max(prices, key=lambda label: prices[label])
    groups = whole_groups(order, tickets)
    dear = [group for group in groups if any(tickets[i].label == dearer for i in group)]
    cheap = [group for group in groups if all(tickets[i].label != dearer for i in group)]
    worth = max(prices.values()) * len(dear)
    share = (
        min(worth / (worth + times * min(prices.values()) * len(cheap)), MOST_DEAR) if dear else 0.0
    )
    if len(dear) >= share * len(groups):
        return list(order), {}
    sides = {True: iter(dear), False: iter(cheap)}
    drawn: list[int] = []
    for place in range(len(groups)):
        group = next(sides[uniform(key, place) < share], None)
        if group is None:
            break
        drawn += group
    chance = (1 - share) / share * len(dear) / len(cheap)
    return drawn, {i: chance for group in cheap for i in group}


def _choose_raced(order: Sequence[Ticket], wanted: int) -> set[str]:
    """The groups to race on: those of the first ``wanted`` tickets. A group of several group_ids
    may have any number of tickets: it is taken whole, or skipped if there is no room for all of it,
    unless no other is left."""
    equal = {ticket.equals for ticket in order if ticket.equals}
    sizes = Counter(ticket.group for ticket in order if ticket.group in equal)
    raced: set[str] = set()
    room = wanted
    for ticket in order:
        if room <= 0:
            break
        taken = (
            1 if ticket.group not in sizes else 0 if ticket.group in raced else sizes[ticket.group]
        )
        if taken <= room:
            raced.add(ticket.group)
            room -= taken
    if wanted and not raced:
        smallest = min(sizes, key=lambda name: sizes[name])
        raced |= {smallest} if 3 * sizes[smallest] <= len(order) else set()
    return raced


def note_tickets(guidance: Guidance, tickets: Sequence[Ticket], splits: Splits) -> Guidance:
    """The guidance, with what the tickets say that taught, tested or chose it: all of train and
    val."""
    train, val = (
        frozenset(name_content(tickets[i]) for i in each) for each in (splits.train, splits.val)
    )
    return replace(
        guidance, taught_by=guidance.taught_by | train, chosen_by=guidance.chosen_by | val
    )


def sign_rules(guidance: Guidance, seed: int) -> Guidance:
    """The guidance, its new rules marked with the split they were learnt by: they have seen what
    another split holds out."""

    def says(rule: Rule) -> Rule:
        new = "sources" in rule.metadata and SPLIT_SEED not in rule.metadata
        return replace(rule, metadata={**rule.metadata, SPLIT_SEED: seed}) if new else rule

    return replace(guidance, rules=tuple(says(rule) for rule in guidance.rules))
