"""The state of a run: everything that a later step depends on, as plain data for a commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from types import MappingProxyType
from typing import Any, Self

from stageb.guidance.judging.answers import answers_from_plain, answers_to_plain
from stageb.guidance.rules.guidance_json import from_json, to_json
from stageb.guidance.rules.prompts import Case
from stageb.guidance.words.costs import (
    Prices,
    effective_counts,
    make_confusion,
    measure_classes,
    measure_confusion,
    measure_interval,
    measure_ratio,
    scale_up,
)
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import (
    NOTHING,
    NOWHERE,
    Answers,
    Budget,
    Candidate,
    Choice,
    Guidance,
    Place,
    Record,
    Selection,
    Ticket,
    Verdict,
    shallow,
)

STOP = "stop"
"""Ended the learning of a run that was told to stop: a file of that name in its folder."""

TOLD_TO_STOP = "learning was told to stop"


class LearningStopped(Exception):  # noqa: N818 - no error
    """Learning was told to stop between two of its small steps (``Tools.pause``)."""


class NoRoom(Exception):  # noqa: N818 - no error
    """Rules were found, and in no size are they within the limits on a guidance."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of verdicts on tickets of one split."""

    # label -> the verdict, or "none" -> number of tickets
    answered: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # the same for tickets that no person needs to see
    kept: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unreadable: int = 0  # candidates that could not be parsed
    rollouts: int = 0  # candidates sampled
    tokens: int = 0  # new tokens in them
    by_rules: int = 0  # tickets that rules as code decided

    @classmethod
    def of(cls, labels: Sequence[Verdict]) -> Tally:
        """Return an empty tally for a mission that has these labels."""
        return cls(make_confusion(labels), make_confusion(labels))

    def plus(self, ticket: Ticket, answers: Answers, selection: Selection) -> Tally:
        """Return the tally with one more ticket. One without a verdict is wrong, and neither fp nor
        fn."""
        judged = ticket.label, selection.verdict or "none"
        return Tally(
            _count(self.answered, *judged),
            self.kept if selection.manual_review else _count(self.kept, *judged),
            self.unreadable + sum(not candidate.format_ok for candidate in answers.candidates),
            self.rollouts + (0 if answers.by_rules else len(answers.candidates)),
            self.tokens + sum(candidate.tokens for candidate in answers.candidates),
            self.by_rules + answers.by_rules,
        )

    @property
    def n(self) -> int:
        """The number of tickets."""
        return sum(sum(row.values()) for row in self.answered.values())

    @property
    def missed(self) -> dict[str, int]:
        """By label, the number of tickets judged wrong, or without a verdict."""
        return {label: sum(row.values()) - row[label] for label, row in self.answered.items()}

    def accuracy(self, scale: Mapping[str, float]) -> float:
        """Return the share of right verdicts, where each ticket of a label stands for ``scale`` of
        them. There must be a ticket."""
        right, n = (
            effective_counts(self.answered, scale)
            if scale
            else (self.n - sum(self.missed.values()), self.n)
        )
        return right / n

    def row(
        self, prices: Prices, scale: Mapping[str, float] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Return the figures of ``metrics.jsonl``. Where each ticket of a label stands for
        ``scale`` of them, accuracy, costs and figures by label are of these; counts are of the
        tickets judged."""
        kept, found = measure_confusion(self.kept), measure_confusion(self.answered)
        if scale:
            counts = effective_counts(self.answered, scale)
            found |= {"acc": measure_ratio(*counts), "acc_interval": measure_interval(*counts)}
            kept["acc"] = None  # not counted by label
        return {
            **found,
            **measure_classes(scale_up(self.answered, scale), prices),
            **({"confusion": self.answered} if has_labels(self.answered) else {}),
            "without_review": {
                name: figure for name, figure in kept.items() if name in ("acc", "fp", "fn", "n")
            },
            "unreadable": measure_ratio(self.unreadable, self.rollouts),
            "rollouts": self.rollouts,
            "tokens": self.tokens,
        }


def _count(
    confusion: Mapping[str, Mapping[str, int]], label: Verdict, said: str
) -> Mapping[str, Mapping[str, int]]:
    row = confusion[label]
    return {**confusion, label: {**row, said: row[said] + 1}}


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of a run so far."""

    rollouts: int = 0  # answers sampled
    judged: int = 0  # verdicts given for the gate
    reflections: int = 0  # reflection answers sampled
    tokens: int = 0  # read and written, in all of these
    saved: int = 0  # rollouts and verdicts that rules as code have spared the model

    def plus(
        self,
        rollouts: int = 0,
        judged: int = 0,
        reflections: int = 0,
        tokens: int = 0,
        saved: int = 0,
    ) -> Spent:
        """Return the sum."""
        costs = (
            self.rollouts + rollouts,
            self.judged + judged,
            self.reflections + reflections,
            self.tokens + tokens,
        )
        return Spent(*costs, self.saved + saved)

    def on(self, records: Sequence[Record], samples: int) -> Spent:
        """Add the rollouts that brought ``records``, of ``samples`` answers each."""
        saved = samples * sum(record.answers.by_rules for record in records)
        answers = [record.answers for record in records if not record.answers.by_rules]
        candidates = [candidate for given in answers for candidate in given.candidates]
        read = sum(given.prompt_tokens for given in answers if given.candidates)
        tokens = read + sum(candidate.tokens for candidate in candidates)
        return self.plus(rollouts=len(candidates), tokens=tokens, saved=saved)


@dataclass(frozen=True, slots=True)
class MissionState:
    """One mission's part of the state."""

    guidance: Guidance
    left: Budget = NOTHING  # of the mission's part in the run's false-acceptance budget
    pending: tuple[Record, ...] = ()  # records that no bundle has held yet
    # whether another bundle is due at once, since the last one led to an accepted edit
    again: bool = False
    # ticket_key of each ticket rolled out -> how the present guidance judges it; None: to be asked
    seen: Mapping[str, Case | None] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)  # of the split being judged
    bundles: int = 0  # reflected on so far
    # split -> the guidance step under which it was judged, and the tally
    judged: Mapping[str, tuple[int, Tally]] = field(default_factory=dict)
    # by ticket_key, under the present guidance, if known
    p_correct: Mapping[str, float] = field(default_factory=dict)
    # edits that failed a test under the present guidance: the digest of the edited guidance, and
    # the fold that taught it, which does not teach it again
    failed: tuple[tuple[str, int], ...] = ()
    changed: bool = False  # whether the epoch has accepted an edit
    idle_epochs: int = 0  # in a row, without an accepted edit
    idle_bundles: int = 0  # the same
    choices: tuple[Choice, ...] = ()  # one per guidance that was judged on val
    distilled: int = 0  # rows written
    spent: Spent = field(default_factory=Spent)
    # whether it has learnt only what costs nothing since its share was spent
    unpaid: bool = False

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON data."""
        return {
            "guidance": to_json(self.guidance),
            "pending": [_record_to_plain(record) for record in self.pending],
            "seen": {key: case and [case.right, case.reason] for key, case in self.seen.items()},
            "tally": shallow(self.tally),
            "judged": {
                split: [step, shallow(tally)] for split, (step, tally) in self.judged.items()
            },
            "choices": [
                [to_json(choice.guidance), choice.n, dict(choice.missed), dict(choice.scale)]
                for choice in self.choices
            ],
            "failed": list(self.failed),
            "left": asdict(self.left),
            "spent": asdict(self.spent),
            **{name: getattr(self, name) for name in _PLAIN_FIELDS},
        }

    @classmethod
    def from_plain(cls, name: str, body: Mapping[str, Any], tickets: Mapping[str, Ticket]) -> Self:
        """Read what ``to_plain`` wrote about the mission of this name; ``tickets`` by
        ticket_key."""
        return cls(
            guidance=from_json(body["guidance"], "a commit")[name],
            pending=tuple(_record_from_plain(row, tickets) for row in body["pending"]),
            seen={key: case and Case(tickets[key], *case) for key, case in body["seen"].items()},
            tally=Tally(**body["tally"]),
            judged={
                split: (step, Tally(**tally)) for split, (step, tally) in body["judged"].items()
            },
            choices=tuple(
                Choice(from_json(plain, "a commit")[name], *counted)
                for plain, *counted in body["choices"]
            ),
            failed=tuple((name, fold) for name, fold in body["failed"]),
            left=Budget(tuple(body["left"]["edits"])),
            spent=Spent(**body["spent"]),
            **{field: body[field] for field in _PLAIN_FIELDS},
        )


@dataclass(frozen=True, slots=True)
class State:
    """The state of a run."""

    missions: Mapping[str, MissionState]
    done: Place = NOWHERE  # place of the last round, epoch's end or choice that is over
    # the first budget that ended the learning of a mission, or ``STOP``; else empty
    ended: str = ""
    # mission that has spent its share of a budget, and learns no more -> which budget
    over: Mapping[str, str] = field(default_factory=dict)
    finished: bool = False  # whether nothing is left to do
    # the model's first answers, until they are enough to tell whether they can be read
    first: tuple[Candidate, ...] = ()

    @property
    def spent(self) -> Spent:
        """The cost of all missions."""
        return reduce(
            lambda total, mission: total.plus(**asdict(mission.spent)),
            self.missions.values(),
            Spent(),
        )

    def with_mission(self, mission: MissionState) -> State:
        """Return the state with one mission's part replaced."""
        return replace(self, missions={**self.missions, mission.guidance.mission: mission})

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON data, save for its missions, which are committed each by
        itself."""
        return {
            "done": list(self.done),
            "spent": asdict(self.spent),
            "ended": self.ended,
            "over": dict(self.over),
            "finished": self.finished,
            "first": [shallow(candidate) for candidate in self.first],
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any], missions: Mapping[str, MissionState]) -> Self:
        """Read what ``to_plain`` wrote, and put the missions back."""
        first = tuple(Candidate(**each) for each in data["first"])
        return cls(
            missions, tuple(data["done"]), data["ended"], data["over"], data["finished"], first
        )


# JSON data already
_PLAIN_FIELDS = "again bundles p_correct changed idle_epochs idle_bundles distilled unpaid".split()


def _record_to_plain(record: Record) -> dict[str, Any]:
    made = {"answers": answers_to_plain(record.answers), "selection": shallow(record.selection)}
    return {**shallow(record), "ticket": record.ticket.key, **made}


def _record_from_plain(row: Mapping[str, Any], tickets: Mapping[str, Ticket]) -> Record:
    fields = {**row, "ticket": tickets[row["ticket"]], "selection": Selection(**row["selection"])}
    return Record(**{**fields, "answers": answers_from_plain(row["answers"])})
