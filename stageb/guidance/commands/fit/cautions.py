"""Cautions to a person about tickets before learning from them: their labels, names, copies, fields
and numbers, and whether they are enough for a proof. The first lines matter most.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from math import ceil

from stageb.errors import write_option
from stageb.guidance.commands.fit.inputs import Inputs
from stageb.guidance.config import Language, LoopConfig
from stageb.guidance.learning.gate.decide import STRONG
from stageb.guidance.learning.gate.prequential import FIRST
from stageb.guidance.learning.gate.sequential import count_fewest_wins, next_level
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.value_types import parse_number, parse_quantity
from stageb.guidance.tickets.groups import normalize_text
from stageb.guidance.tickets.headers import hint_nearest
from stageb.guidance.tickets.splits import SPLITS
from stageb.guidance.words.column_names import is_table
from stageb.guidance.words.costs import EQUAL
from stageb.guidance.words.labels import has_labels, list_labels
from stageb.guidance.words.types import PASS_FAIL, TEACHING_FOLDS, Ticket

RARE = 0.1  # share of the rarer label below which accuracy hides it
HALF = 0.5  # share of the rarer label's tickets to win beyond which a proof is unlikely
# how alike a label that stands once is to the one that was meant: two letters exchanged in a word
# of four
SLIP = 0.75
# tickets of the rarer label from which on one field that tells the label is no accident
FEWEST_TICKETS = 5
# cases, in the mean, for each value of such a field: what is different everywhere tells nothing of
# others
REPEATS = 4
EMPTY = 0.05  # share of tickets that have a field, below which it is nearly always empty
# share of tickets without free text from which on these are forms, and a missing field is an empty
# one
FORMS = 0.9
_HAN = "\u4e00-\u9fff"
HAN, KANA = re.compile(f"[{_HAN}]"), re.compile("[\u3040-\u30ff]")
LETTER = re.compile(r"[^\W\d_]")
WORD = re.compile(f"[{_HAN}]|[^\\W\\d_{_HAN}]+")  # a Chinese character is one
NUMERAL = re.compile(r"[-+]?\d[\d.,:/-]*")
SHOWN = 5  # names of fields, at most


LONG = 5  # words of a text, numbers aside, that hardly comes twice by chance
COPIED = 0.2  # share of tickets with such a text that comes again, from which on it is told
MOST_COPIES = 20  # of a text in the mean, beyond which it is a form of words
DATES = re.compile(  # unlike versions, such as 1.2.3, which are names
    r"(?:\d{4}([-/.])\d\d?\1\d\d?|\d\d?([-/.])\d\d?\2\d{4}|\d\d([-/.])\d\d\3\d\d)(?:[T ].*)?"
)
CURRENCY_CODES = "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HUF|INR|JPY|KRW|NOK|PLN|RMB|SEK|TRY|USD"
# words before a number that is none of a measurement
ESTIMATED = (
    "(?:about|above|approx|approximately|around|below|ca|circa|less than|max|maximum|min|minimum|"
    "more than|over|under|up to|ab|bis|etwa|höchstens|maximal|mindestens|minimal|rund|über|unter|"
    "ungefähr)\\.? |(?:约|大约|大于|小于|至少|至多|超过|低于) ?"
)
# of numbers that no limit reads, by what they are
FORMATS: Sequence[tuple[str, re.Pattern[str]]] = (
    (
        "times: give minutes or hours as a number",
        re.compile(r"\d{1,3}:\d{2}(:\d{2}(\.\d+)?)?( ?[ap]m)?", re.IGNORECASE),
    ),
    ("dates: give a number, such as days since a date", DATES),
    (
        "numbers in tens of thousands or more: write them in full",
        re.compile(r"-?\d+([.,]\d+)? ?[万萬亿億].*"),
    ),
    (
        "numbers with thousands apart: export them without",
        re.compile(
            r"\D{0,4}\d{1,3}(([ '’.,])\d{3}(\2\d{3})*|(,\d\d)+,\d{3})(?!\d).*|-?\d{1,3}(_\d{3})+"
        ),
    ),
    ("numbers with the minus behind them: write it before", re.compile(r"\d+([.,]\d+)?-")),
    ("numbers in brackets: write a minus before those below 0", re.compile(r"\(\D?[\d.,]+\)")),
    ("numbers with a dash for the minus: write -", re.compile(r"[‐-―] ?[\d.,]*\d( ?\D{1,4})?")),
    (
        "bounds or estimates: give the number alone",
        re.compile(
            rf"(?:(?:[<>≤≥]=?|[~≈±]|ca?\.) ?[-+]?|{ESTIMATED})[\d.,]*\d( ?\D{{1,4}})?",
            re.IGNORECASE,
        ),
    ),
    (
        "numbers with the currency before them: write it behind",
        re.compile(rf"(?:{CURRENCY_CODES}|[A-Z]{{1,3}}\$|Rs\.?) ?-?\d+([.,]\d\d?)?"),
    ),
    (
        "two numbers in one: give each a column of its own",
        re.compile(
            r"[-+]?\d+([.,]\d+)?( ?(?:[/x×–±'′]|\+/?-)| to| bis) ?\d+([.,]\d+)?( ?\D{1,4})?"
        ),
    ),
    ("numbers with a fraction: write decimals", re.compile(r"-?\d+ ?([¼½¾⅓⅔⅛⅜⅝⅞]|\d/\d\d?).{0,4}")),
    ("numbers behind an apostrophe: take it off", re.compile(r"['’]-?[\d.,]*\d")),
    (
        "lengths of time: give hours as a number",
        re.compile(
            r"-?\d+ days?,?( [+-]?\d\d?:\d\d(:\d\d\S*)?)?|P[\dDTHMS.]+|"
            r"\d+ ?h(ours?)? ?\d+ ?(m(in)?(utes?)?)?"
        ),
    ),
    ("powers of ten: write 1e+5", re.compile(r"-?\d+([eE]|(\.\d+)? ?[x×*·] ?10\^?)[-+]?\d{1,2}")),
)
# share of a field's values that are numbers, from which on the others look like mistakes
NUMBERS = 0.9
FEWEST_NUMBERS = 20  # of such a field
MOST_UNITS = 5  # of what is one field's measure
MOST_FORMATS = 100  # fields that are looked at for these


def list_cautions(inputs: Inputs, config: LoopConfig) -> Iterator[str]:
    """Yield cautions about each mission's tickets."""
    for mission in inputs.splits:
        own = [ticket for ticket in inputs.tickets if ticket.mission == mission]
        yield from (
            f"{mission}: {line}"
            for line in chain(warn_of_tickets(own, config), warn_of_fields(own))
        )
    yield from warn_of_language(inputs.tickets, config.prompt.language)
    yield from warn_of_few(inputs, config)


def warn_of_tickets(tickets: Sequence[Ticket], config: LoopConfig) -> Iterator[str]:
    """Say what a run, too, says of a mission's tickets before it begins."""
    told = (
        warn(tickets) for warn in (warn_of_names, warn_of_copies, warn_of_numbers, warn_of_units)
    )
    yield from chain(warn_of_labels(tickets, config), *told)


def warn_of_labels(tickets: Sequence[Ticket], config: LoopConfig) -> Iterator[str]:
    """One label alone, and one so rare that accuracy hides it while prices are equal; of several
    labels, those that are rare, and what one that stands once may be a slip of."""
    count = Counter(ticket.label for ticket in tickets)
    if has_labels(count):
        often = [label for label in count if count[label] >= FEWEST_TICKETS]
        slips = {label: hint_nearest(label, often, SLIP) for label in count if count[label] == 1}
        if few := [
            f"{label} ({n}{slips.get(label, '')})"
            for label, n in sorted(count.items())
            if n < FEWEST_TICKETS
        ]:
            named = ", ".join(few)
            yield (
                f"fewer than {FEWEST_TICKETS} tickets each have the labels {named}: hardly a "
                f"rule can be learnt for them"
            )
        return
    rare = min(PASS_FAIL, key=lambda label: count[label])
    common = next(label for label in PASS_FAIL if label != rare)
    if not count[rare]:
        yield (
            f"all {len(tickets):,} tickets are labelled {common}: nothing can be learnt, give "
            f"tickets labelled {rare} too"
        )
    elif count[rare] / len(tickets) < RARE and config.price.by_label == EQUAL:
        worth = "missed_failure" if rare == "fail" else "false_alarm"
        yield (
            f"{count[rare]:,} of {len(tickets):,} tickets are labelled {rare}, so always "
            f"{common} would score {count[common] / len(tickets):.1%}; if a missed one costs more "
            f"than a false alarm, say so: {write_option(f'price.{worth}', 20)}"
        )


def warn_of_language(tickets: Sequence[Ticket], language: Language) -> Iterator[str]:
    """Warn of rules in another language than tickets."""
    if language != "zh" and are_chinese(tickets):
        yield (
            f"most tickets are Chinese, and rules English; for Chinese ones say "
            f"{write_option('prompt.language', 'zh')}"
        )


def are_chinese(tickets: Sequence[Ticket]) -> bool:
    """Tell whether most tickets are Chinese; Japanese ones are not."""
    return 2 * sum(map(_is_chinese, tickets)) > len(tickets)


def _is_chinese(ticket: Ticket) -> bool:
    """Whether most names of a ticket's fields are Chinese, or most words of what else it says. One
    Chinese name among others makes no ticket Chinese, and English names make no Chinese text
    English. Numbers are of no language."""
    read = reading(ticket)
    names = [name for name in read.pairs if LETTER.search(name)]
    words = [word for said in (*read.pairs.values(), *read.texts) for word in WORD.findall(said)]
    return not any(map(KANA.search, (*names, *words))) and any(
        2 * sum(bool(HAN.search(one)) for one in each) > len(each) for each in (names, words)
    )


def warn_of_names(tickets: Sequence[Ticket]) -> Iterator[str]:
    """Values of tables in columns that have no name."""
    if nameless := [ticket for ticket in tickets if ticket.extra.get("")]:
        first = nameless[0]
        what = "a column without a name: name it in the header where it is to be read"
        yield (
            f"{len(nameless):,} rows hold something, such as {first.extra['']!r}{_place(first)}, "
            f"in {what}"
        )


def warn_of_copies(tickets: Sequence[Ticket]) -> Iterator[str]:
    """Long texts that come again in other groups, but for numbers in them: as copies of one case
    they prove what they teach. Texts that come very often are forms of words."""
    groups: dict[str, list[Ticket]] = {}
    for ticket in tickets:
        if said := strip_numbers(" ".join(reading(ticket).texts)):
            groups.setdefault(said, []).append(ticket)
    repeated = [own for own in groups.values() if len({ticket.group for ticket in own}) > 1]
    count = sum(map(len, repeated))
    if count >= max(FEWEST_TICKETS, COPIED * len(tickets)) and count <= MOST_COPIES * len(repeated):
        one, other, *_ = repeated[0]
        yield (
            f"{len(repeated):,} texts come {count / len(repeated):.2g} times each, but for "
            f"numbers in them, in tickets that count as cases of their own, such as "
            f"{one.place or one.key} and {other.place or other.key}: what one teaches, "
            f"another would prove. Name the column that says which case it is: "
            f"{write_option('columns.together', 'NAME')}"
        )


def warn_of_fields(tickets: Sequence[Ticket]) -> Iterator[str]:
    """Fields that give the label away, and fields that nearly no ticket has."""
    columns: dict[str, dict[int, str]] = {}
    forms = 0
    for position, ticket in enumerate(tickets):
        read = reading(ticket)
        forms += not read.words
        for name, value in read.pairs.items():
            columns.setdefault(name, {})[position] = value
    count = Counter(ticket.label for ticket in tickets)
    if len(count) > 1 and min(count.values()) >= FEWEST_TICKETS:
        labels = [ticket.label for ticket in tickets]
        cases = len({ticket.together or ticket.group_id for ticket in tickets})
        telling = [name for name, column in columns.items() if tells_label(column, labels, cases)]
        for name in telling[:SHOWN]:
            yield (
                f"{name!r} alone tells the label of every ticket: if it is written down after "
                f"the verdict, leave it out (columns.texts names the columns to read)"
            )
    if forms >= FORMS * len(tickets):
        empty = [name for name, column in columns.items() if len(column) < EMPTY * len(tickets)]
        if empty:
            more = f" and {len(empty) - SHOWN} more" if len(empty) > SHOWN else ""
            yield (
                f"nearly always empty: {', '.join(map(repr, empty[:SHOWN]))}{more}; a rule on "
                f"them speaks of few tickets"
            )


def warn_of_numbers(tickets: Sequence[Ticket]) -> Iterator[str]:
    """Fields of numbers in which a few values are none, so that they count as fields of words."""
    others: dict[str, list[tuple[Ticket, str]]] = {}
    count: Counter[str] = Counter()
    for ticket in tickets:
        for name, value in reading(ticket).pairs.items():
            count[name] += 1
            if parse_number(value) is None:
                others.setdefault(name, []).append((ticket, value))
    found = {
        name: own
        for name, own in others.items()
        if count[name] - len(own) >= max(FEWEST_NUMBERS, NUMBERS * count[name])
    }
    for name, own in islice(others.items(), MOST_FORMATS):
        for what, form in FORMATS:
            if not any(form.fullmatch(value) for _, value in own[:FEWEST_NUMBERS]):
                continue
            alike = [each for each in own if form.fullmatch(each[1])]
            if len(alike) >= max(FEWEST_TICKETS, NUMBERS * len(own)):
                ticket, value = alike[0]
                found.pop(name, None)
                yield (
                    f"{name!r}: {len(alike):,} of {count[name]:,} values are not read as numbers, "
                    f"such as {value!r}{_place(ticket)}: they are {what}"
                )
                break
    for name, own in islice(found.items(), SHOWN):
        ticket, value = own[0]
        are = "is" if len(own) == 1 else "are"
        in_table = is_table(ticket.place.rpartition(":")[0])
        yield (
            f"{name!r}: {len(own):,} of {count[name]:,} values {are} no number, such as "
            f"{value!r}{_place(ticket)}: while they stand there, no limit on it is learnt; correct "
            "these values, or, where they mean that nothing is known, "
            f"{'name them in columns.missing' if in_table else 'leave them out'}"
        )
    if len(found) > SHOWN:
        yield f"{len(found) - SHOWN} more fields of numbers have values that are not numbers"


def warn_of_units(tickets: Sequence[Ticket]) -> Iterator[str]:
    """Fields of numbers in several units, which are not compared."""
    units: dict[str, dict[str, list[Ticket]]] = {}
    numbers: dict[str, set[float]] = {}
    count: Counter[str] = Counter()
    for ticket in tickets:
        for name, value in reading(ticket).pairs.items():
            count[name] += 1
            if found := parse_quantity(value):
                units.setdefault(name, {}).setdefault(found.unit, []).append(ticket)
                numbers.setdefault(name, set()).add(found.number)
    for name, of in units.items():
        named = sorted((unit for unit in of if unit), key=lambda unit: -len(of[unit]))
        are_numbers = sum(map(len, of.values())) >= NUMBERS * count[name]
        if are_numbers and 1 < len(named) <= MOST_UNITS and len(numbers[name]) >= FEWEST_NUMBERS:
            told = ", ".join(f"{unit} ({len(of[unit]):,})" for unit in named)
            yield (
                f"{name!r}: numbers in several units, {told}, the last such as in "
                f"{of[named[-1]][0].place or of[named[-1]][0].group_id}: no limit on it is learnt; "
                "write them all in one"
            )


def warn_of_few(inputs: Inputs, config: LoopConfig) -> Iterator[str]:
    """For each mission in which too few tickets have another label than most for a likely proof,
    how many have, and how many it takes: what is learnt can win no more against always giving that
    label."""
    if not config.has_gate or config.gating.choose or not config.runner.epochs:
        return
    is_whole = config.reflection.scope == "all"
    for name, splits in inputs.splits.items():
        budget = inputs.budget[name].edits
        level = sum(budget) if is_whole else next_level(max(budget), STRONG)
        # of what may be tested on, that has not taught
        share = 1 - FIRST if is_whole else (TEACHING_FOLDS - 1) / TEACHING_FOLDS
        share = (
            min(share, config.gating.pool_size / len(splits.test_order))
            if splits.test_order
            else 0.0
        )
        own = [inputs.tickets[i] for split in SPLITS for i in splits.of(split)]
        count = Counter(ticket.label for ticket in own)
        labels = list_labels(count)
        common = max(labels, key=lambda label: count[label])
        rare = (
            next(label for label in PASS_FAIL if label != common)
            if labels == PASS_FAIL
            else f"otherwise than {common}"
        )
        tested = share * len(
            {
                inputs.tickets[i].group
                for i in splits.test_order
                if inputs.tickets[i].label != common
            }
        )
        wins, others = count_fewest_wins(level) if level else 0, count.total() - count[common]
        if not others or not wins or wins <= HALF * tested:
            continue
        enough = (
            f", some {ceil(others * wins / (HALF * tested) / 10) * 10:,} in all" if tested else ""
        )
        yield (
            f"{name}: {others:,} of {len(own):,} tickets are labelled {rare}, {round(tested):,} "
            f"of which test what is learnt: rules that tell fewer than {wins} of these from the "
            f"others cannot be proven. Give more{enough}"
        )


def strip_numbers(text: str) -> str:
    """The words of a text that hold no digits, or, where nearly all do, those that are no numbers
    by themselves; empty where these are too few to tell it from others."""
    words = normalize_text(text).split()
    bare = [word for word in words if not any(map(str.isdigit, word))]
    if len(bare) < LONG:
        bare = [word for word in words if not NUMERAL.fullmatch(word)]
    return " ".join(bare) if len(bare) >= LONG else ""


def tells_label(column: Mapping[int, str], of: Sequence[str], cases: int) -> bool:
    """Whether every value of a field goes with one label, by itself or beyond a limit; ``of`` are
    the labels of all tickets, which are so many ``cases``, and ``column`` the values by their
    places."""
    if len(column) < len(of):
        return False
    labels: dict[str, set[str]] = {}
    for position, value in column.items():
        labels.setdefault(value, set()).add(of[position])
    if all(len(each) == 1 for each in labels.values()) and REPEATS * len(labels) <= cases:
        return True
    numbers: dict[str, list[float]] = {}
    for position, value in column.items():
        number = parse_number(value)
        if number is None:
            return False
        numbers.setdefault(of[position], []).append(number)
    ranges = sorted((min(own), max(own)) for own in numbers.values())
    return all(below[1] < above[0] for below, above in pairwise(ranges))


def _place(ticket: Ticket) -> str:
    return f" ({ticket.place})" if ticket.place else ""
