"""How a mission's tickets were judged: confusion, agreement, and the tickets that it gets most wrong.

Rows are read once, one after the other; what is kept grows with the tickets, not with the epochs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from stageb.guidance.tickets.splits import SPLITS
from stageb.guidance.words.costs import measure_interval, measure_ratio
from stageb.runs.folder import RunRow

WORST = 50  # tickets kept, at the most, of which a page shows fewer


@dataclass(slots=True)
class VerdictCounts:
    """The verdicts on a split's tickets in one epoch."""

    split: str
    epoch: int
    steps: set[int] = field(default_factory=set)  # guidance steps that they were given under
    verdicts: Counter[tuple[str, str | None]] = field(default_factory=Counter)  # (label, verdict) -> tickets
    agreement: Counter[tuple[float, bool]] = field(default_factory=Counter)  # (share that agrees, right) -> tickets

    def add(self, row: RunRow) -> None:
        """One more ticket."""
        self.steps.add(row["guidance_step"])
        self.verdicts[row["label"], row["verdict"]] += 1
        if row["verdict"] is not None:
            self.agreement[round(row["vote_strength"], 2), row["label_match"]] += 1

    @property
    def tickets(self) -> int:
        """All of them."""
        return self.verdicts.total()


@dataclass(frozen=True, slots=True)
class WrongTicket:
    """How often a ticket was judged wrong, and how it was judged last: under the guidance in force, where it was."""

    row: RunRow  # of selections.jsonl
    judged: int  # times
    wrong: int  # times
    candidates: tuple[RunRow, ...] = ()  # of trajectories.jsonl


@dataclass(frozen=True, slots=True)
class AgreementLevel:
    """Tickets on which an equal share of answers agreed."""

    agreement: float
    right: int
    wrong: int

    @property
    def interval(self) -> list[float] | None:
        """Of the share that is right, 95 %."""
        return measure_interval(self.right, self.right + self.wrong)

    @property
    def accuracy(self) -> float | None:
        """The share that is right."""
        return measure_ratio(self.right, self.right + self.wrong)


@dataclass(frozen=True, slots=True)
class TicketVerdicts:
    """What selections.jsonl and trajectories.jsonl say of a mission."""

    counts: tuple[VerdictCounts, ...]  # one per split, under the guidance in force where it was judged under that
    present: int  # tickets that were judged under the guidance in force
    wrong: int  # of these, judged wrong
    stale: int  # judged wrong, and under earlier guidance alone
    worst: tuple[
        WrongTicket, ...
    ]  # of ``wrong``, of ``stale`` where none was judged under the guidance in force; worst first

    @property
    def held_out(self) -> list[VerdictCounts]:
        """The counts of val and test."""
        return [count for count in self.counts if count.split != "train"]

    @property
    def levels(self) -> list[AgreementLevel]:
        """Agreement over val and test, over train where neither was judged; the least agreement first."""
        counts = self.held_out or self.counts
        total = sum((count.agreement for count in counts), Counter[tuple[float, bool]]())
        levels = sorted({level for level, _ in total})
        return [AgreementLevel(level, total[level, True], total[level, False]) for level in levels]


def collect_verdicts(selections: Iterable[RunRow], trajectories: Iterable[RunRow], final_step: int) -> TicketVerdicts:
    """How a mission's tickets were judged. ``final_step`` is the step of the guidance in force; rows come in file order."""
    counts: dict[tuple[str, int], VerdictCounts] = {}
    latest: dict[str, WrongTicket] = {}
    for row in selections:
        counts.setdefault((row["split"], row["epoch"]), VerdictCounts(row["split"], row["epoch"])).add(row)
        known = latest.get(row["ticket_key"])
        times, off = (known.judged, known.wrong) if known else (0, 0)
        stays = known and known.row["guidance_step"] == final_step != row["guidance_step"]
        kept = known.row if known and stays else row
        latest[row["ticket_key"]] = WrongTicket(kept, times + 1, off + (not row["label_match"]))
    final = []
    for split in SPLITS:
        of_split = [count for count in counts.values() if count.split == split]
        final += [count for count in of_split if count.steps == {final_step}][-1:] or of_split[-1:]
    present = [each for each in latest.values() if each.row["guidance_step"] == final_step]
    stale = [each for each in latest.values() if each.row["guidance_step"] != final_step and not each.row["label_match"]]
    wrong = [each for each in present if not each.row["label_match"]]
    ranked = sorted(
        wrong if present else stale, key=lambda each: (-each.wrong, -each.row["vote_strength"], each.row["ticket_key"])
    )
    worst = _add_candidates(ranked[:WORST], trajectories)
    return TicketVerdicts(tuple(final), len(present), len(wrong), len(stale), worst)


def _add_candidates(worst: list[WrongTicket], trajectories: Iterable[RunRow]) -> tuple[WrongTicket, ...]:
    wanted: dict[tuple[str, int, str], list[RunRow]] = {_place(each.row): [] for each in worst}
    if wanted:
        for row in trajectories:
            if (place := _place(row)) in wanted:
                wanted[place].append(row)
    return tuple(replace(each, candidates=tuple(wanted[_place(each.row)])) for each in worst)


def _place(row: RunRow) -> tuple[str, int, str]:
    return row["ticket_key"], row["epoch"], row["split"]
