"""Which tickets are one group: those of one ``group_id``, and those that say the same.

What says the same is no independent case, whatever it is called: to learn from one and be tested on
the other is to be tested on what was learnt. So equal tickets of a mission are of one group, and
with them all tickets of their group_ids, and all that ``columns.together`` keeps together, such as
those of one machine. Nothing parts a group: no split, no fold, no race; and a test counts it once.

Two tickets say the same if their summaries are equal one by one, but for

- upper and lower case, full and half width (Unicode's NFKC), and how much white space there is,
- the marks ``. , ; : ! ?`` at the end of a word, and a hyphen between two letters,
- what stands in a number behind its third decimal, in one below 1 behind its third digit from the
  first that is not 0: a table that another program has written again holds the same cases.

Other digits, signs and symbols count, and so do the order of images and marks inside numbers: rows
of small tables differ in nothing else. Labels do not count. Where a model is shown images, their
files must hold the same as well, and these alone count where they stand instead of the summaries.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stageb.errors import write_option
from stageb.guidance.tickets.images import list_image_files
from stageb.guidance.words.types import NAME_LENGTH, Ticket
from stageb.store import disk

Group = tuple[int, ...]
"""The positions of one group's tickets."""

MANY = 4  # group_ids of a group in the mean: copies alone hardly make so many
# of numbers, not of versions and dates
_DECIMALS = re.compile(r"(?<![\w.,-])-?\d{1,15}\.\d+(?![\d.,])")
_MARKS = re.compile(r"(?<=\w)[.,;:!?。、]+(?=\s|\Z)|(?<=[^\W\d_])-(?=[^\W\d_])")


def advise_apart() -> str:
    """Say what to set where equal tickets are no copies."""
    apart = write_option("columns.repeats", "apart")
    return f"where tickets can say but a few different things, make each a case of its own: {apart}"


def join_equal(tickets: Sequence[Ticket]) -> list[Ticket]:
    """``tickets``, those that say the same under one ``group``: the shortest of their group_ids,
    and of these the first by its letters. So in what grows line by line a group keeps its name."""
    # (mission, group_id) -> one of the same group, nearer its name
    groups: dict[tuple[str, str], tuple[str, str]] = {}

    def name_of(one: tuple[str, str]) -> tuple[str, str]:
        while (other := groups.get(one, one)) != one:
            groups[one] = groups.get(other, other)
            one = other
        return one

    first: dict[Hashable, tuple[str, str]] = {}
    for ticket, said in zip(tickets, _list_contents(tickets), strict=True):
        own = ticket.mission, ticket.group_id
        alike = [] if ticket.apart else [first.setdefault((ticket.mission, said), own)]
        if ticket.together:
            alike.append(first.setdefault((ticket.mission, "together", ticket.together), own))
        for one in alike:
            name, other = sorted(
                (name_of(own), name_of(one)), key=lambda each: (len(each[1]), each[1])
            )
            groups[other] = name
    named = ((ticket, name_of((ticket.mission, ticket.group_id))[1]) for ticket in tickets)
    return [
        replace(ticket, equals="" if name == ticket.group_id else name) for ticket, name in named
    ]


def whole_groups(positions: Iterable[int], tickets: Sequence[Ticket]) -> list[Group]:
    """``positions`` of one mission by group, in the order in which the groups first appear. Made
    once for a run."""
    groups: dict[str, list[int]] = {}
    for position in positions:
        groups.setdefault(tickets[position].group, []).append(position)
    return [tuple(group) for group in groups.values()]


def normalize_text(text: str) -> str:
    """``text`` without what makes no difference to whether two say the same."""
    marked = _MARKS.sub(" ", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(_DECIMALS.sub(_round, marked).split())


def _round(found: re.Match[str]) -> str:
    number = float(found[0])
    return f"{number:.3f}".rstrip("0").rstrip(".") if abs(number) >= 1 else f"{number:.3g}"


def name_content(ticket: Ticket) -> str:
    """A short name for what a ticket says, whatever it is called, unless that makes it a case of
    its own: 12 hexadecimal digits."""
    said = b"" if ticket.apart else _list_texts(ticket)
    return (said or hashlib.blake2b(ticket.key.encode()).digest()).hex()[:NAME_LENGTH]


@dataclass(frozen=True, slots=True)
class Repeats:
    """Tickets of a mission that are of one group under several group_ids: they say the same, or are
    kept together."""

    mission: str
    tickets: int  # all of the mission's
    groups: int  # that they make
    group_ids: int  # that they have
    mixed: int  # groups of several group_ids whose tickets are labelled pass and fail
    example: tuple[str, str]  # where two of one group stand

    @property
    def is_coarse(self) -> bool:
        """Whether tickets can say but a few different things, so that as one case each hardly any
        are left."""
        return self.group_ids >= MANY * self.groups

    def __str__(self) -> str:
        mixed = f" ({self.mixed:,} of them labelled both ways)" if self.mixed else ""
        remedy = f"; {advise_apart()}" if self.is_coarse else ""
        return (
            f"{self.mission}: some tickets say the same, or are kept together, under several "
            f"group_ids: the {self.group_ids:,} group_ids of {self.tickets:,} tickets make "
            f"{self.groups:,} groups{mixed}, and no split parts these; for one, {self.example[0]} "
            f"and {self.example[1]}{remedy}"
        )


def find_repeats(tickets: Sequence[Ticket]) -> Iterator[Repeats]:
    """Yield the repeats of each mission whose tickets ``join_equal`` has joined."""
    by_mission: dict[str, list[Ticket]] = {}
    for ticket in tickets:
        by_mission.setdefault(ticket.mission, []).append(ticket)
    for mission, own in by_mission.items():
        names = {ticket.equals for ticket in own if ticket.equals}
        if names:
            labels = Counter(
                name
                for name, _ in {(ticket.group, ticket.label) for ticket in own}
                if name in names
            )
            groups = {ticket.group for ticket in own}
            group_ids = {ticket.group_id for ticket in own}
            mixed = sum(count > 1 for count in labels.values())
            first: dict[str, Ticket] = {}
            alike = (
                (first[ticket.group].place, ticket.place)
                for ticket in own
                if first.setdefault(ticket.group, ticket).group_id != ticket.group_id
            )
            yield Repeats(mission, len(own), len(groups), len(group_ids), mixed, next(alike))


def _list_contents(tickets: Sequence[Ticket]) -> Iterator[Hashable]:
    """Yield the content of each ticket, in a form that is equal where tickets say the same. Image
    files are read where others have their sizes alone."""
    plain = [
        (_list_texts(ticket), tuple(map(_size, list_image_files(ticket)))) for ticket in tickets
    ]
    count = Counter(plain) if any(ticket.images for ticket in tickets) else Counter()
    for ticket, said in zip(tickets, plain, strict=True):
        yield (
            (said, tuple(map(_digest, list_image_files(ticket))))
            if ticket.images and count[said] > 1
            else said
        )


def _list_texts(ticket: Ticket) -> bytes:
    if ticket.images and ticket.images.instead:
        return b""
    said = json.dumps([normalize_text(summary) for _, summary in ticket.per_image])
    return hashlib.blake2b(said.encode(), digest_size=16).digest()


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:  # gone since it was looked at, as who reads it will say
        return 0


def _digest(path: str) -> bytes:
    try:
        with disk.open_file(path) as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()
    except OSError:
        return path.encode()


class RepeatCounter:
    """Count how often texts came, in 12 to 24 bytes for each that differs: of millions of rows,
    most are themselves alone.

    They are told apart by 63 bits of their digests (``disk.digest`` of 8 bytes): of a billion, two
    share these with a chance of 5 %, and the later is taken for a repeat.
    """

    def __init__(self) -> None:
        self._places = array("Q", bytes(8 << 10))  # open addressing; 0: free
        self._known = 0
        self._more: dict[int, int] = {}  # of those that came again, how often

    def add(self, digest: str) -> int:
        """Return how often the text of a ``digest`` came, this time included."""
        key = int(digest, 16) | 1
        if self._put(key):
            if 3 * self._known > 2 * len(self._places):
                former = self._places
                self._places = array("Q", bytes(16 * len(self._places)))
                self._known = 0
                for each in filter(None, former):
                    self._put(each)
            return 1
        count = self._more[key] = self._more.get(key, 1) + 1
        return count

    def _put(self, key: int) -> bool:
        """Put a key into its place; tell whether it is new."""
        places, size = self._places, len(self._places)
        place = (key >> 1) % size
        while there := places[place]:
            if there == key:
                return False
            place = (place + 1) % size
        places[place] = key
        self._known += 1
        return True
