"""Where a run stands: everything that a later step depends on, as plain data for a commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from types import MappingProxyType
from typing import Any, Self

from stageb.guidance.judging.answers import answers_from_plain, answers_to_plain
from stageb.guidance.rules.guidance_file import from_json, to_json
from stageb.guidance.rules.prompts import Case
from stageb.guidance.words.costs import Prices, effective_counts, measure_classes, measure_interval, measure_ratio, scale_up
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
"""What ended the learning of a run that was told to stop: a file of that name in its folder."""

TOLD_TO_STOP = "learning was told to stop"


class LearningStopped(Exception):  # noqa: N818 - no error
    """Learning was told to stop between two of its small steps (``Tools.pause``)."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Verdicts counted over tickets of one split."""

    n: int = 0  # tickets
    right: int = 0
    fails: int = 0  # labelled fail
    fails_caught: int = 0  # of those, answered fail
    fp: int = 0  # answered pass, labelled fail
    fn: int = 0  # answered fail, labelled pass
    review: int = 0  # sent to manual review
    review_right: int = 0  # of those, right
    review_fp: int = 0
    review_fn: int = 0
    unreadable: int = 0  # candidates that could not be parsed
    rollouts: int = 0  # candidates sampled
    tokens: int = 0  # new tokens in them
    by_rules: int = 0  # tickets that rules as code decided
    # Of missions with labels of their own: label -> what was answered, one of them or none -> tickets.
    answered: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def plus(self, ticket: Ticket, answers: Answers, selection: Selection) -> Tally:
        """The tally with one more ticket. One without a verdict is wrong, and neither fp nor fn."""
        right, verdict = selection.label_match, selection.verdict
        fp, fn = verdict == "pass" and not right, verdict == "fail" and not right
        review = bool(selection.manual_review)
        return Tally(
            n=self.n + 1,
            right=self.right + right,
            fails=self.fails + (ticket.label == "fail"),
            fails_caught=self.fails_caught + (ticket.label == verdict == "fail"),
            fp=self.fp + fp,
            fn=self.fn + fn,
            review=self.review + review,
            review_right=self.review_right + (review and right),
            review_fp=self.review_fp + (review and fp),
            review_fn=self.review_fn + (review and fn),
            unreadable=self.unreadable + sum(not candidate.format_ok for candidate in answers.candidates),
            rollouts=self.rollouts + (0 if answers.by_rules else len(answers.candidates)),
            tokens=self.tokens + sum(candidate.tokens for candidate in answers.candidates),
            by_rules=self.by_rules + answers.by_rules,
            answered=self._answer(ticket.label, verdict or "none") if self.answered else {},
        )

    @classmethod
    def of(cls, labels: Sequence[Verdict]) -> Tally:
        """The tally of no ticket of a mission that has these labels."""
        has_own = has_labels(labels)
        return cls(answered={label: dict.fromkeys((*labels, "none"), 0) for label in labels} if has_own else {})

    def _answer(self, label: Verdict, said: str) -> Mapping[str, Mapping[str, int]]:
        row = self.answered[label]
        return {**self.answered, label: {**row, said: row[said] + 1}}

    @property
    def missed(self) -> dict[str, int]:
        """Tickets judged wrong, or without a verdict, by label."""
        return {label: sum(row.values()) - row[label] for label, row in self.confusion.items()}

    @property
    def confusion(self) -> Mapping[str, Mapping[str, int]]:
        """Label -> answered -> tickets."""
        if self.answered:
            return self.answered
        passed, caught = self.right - self.fails_caught, self.fails_caught
        return {
            "pass": {"pass": passed, "fail": self.fn, "none": self.n - self.fails - passed - self.fn},
            "fail": {"pass": self.fp, "fail": caught, "none": self.fails - caught - self.fp},
        }

    def accuracy(self, scale: Mapping[str, float]) -> float:
        """The share of right verdicts, each ticket of a label standing for ``scale`` of them; of one ticket at the least."""
        right, n = effective_counts(self.confusion, scale) if scale else (self.right, self.n)
        return right / n

    def row(self, prices: Prices, scale: Mapping[str, float] = MappingProxyType({})) -> dict[str, Any]:
        """The figures of ``metrics.jsonl``. Where each ticket of a label stands for ``scale`` of them, accuracy, costs and
        what is said by label are of these; counts are of the tickets judged."""
        kept = self.n - self.review
        right, n = effective_counts(self.confusion, scale) if scale else (self.right, self.n)
        errors, others = {"fp": self.fp, "fn": self.fn}, {"fp": self.fp - self.review_fp, "fn": self.fn - self.review_fn}
        return {
            "acc": measure_ratio(right, n),
            "acc_interval": measure_interval(right, n),
            **({} if self.answered else errors),
            "unanswered": sum(row["none"] for row in self.confusion.values()),
            "n": self.n,
            **measure_classes(scale_up(self.confusion, scale), prices),
            **({"confusion": self.answered} if self.answered else {}),
            "without_review": {
                "acc": None if scale else measure_ratio(self.right - self.review_right, kept),  # not counted by label
                **({} if self.answered else others),
                "n": kept,
            },
            "unreadable": measure_ratio(self.unreadable, self.rollouts),
            "rollouts": self.rollouts,
            "tokens": self.tokens,
        }


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has cost so far."""

    rollouts: int = 0  # answers sampled
    judged: int = 0  # verdicts for the gate
    reflections: int = 0  # reflection answers sampled
    tokens: int = 0  # read and made, in all of these
    saved: int = 0  # rollouts and verdicts that rules as code have spared the model

    def plus(self, rollouts: int = 0, judged: int = 0, reflections: int = 0, tokens: int = 0, saved: int = 0) -> Spent:
        """The sum."""
        costs = self.rollouts + rollouts, self.judged + judged, self.reflections + reflections, self.tokens + tokens
        return Spent(*costs, self.saved + saved)

    def on(self, records: Sequence[Record], samples: int) -> Spent:
        """With the rollouts that brought ``records``, of ``samples`` answers each."""
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
    again: bool = False  # whether another bundle is due at once, since the last one led to an accepted edit
    seen: Mapping[str, Case | None] = field(default_factory=dict)  # ticket_key, of what was rolled out -> how the present
    #   guidance judges it; None where that must be asked
    tally: Tally = field(default_factory=Tally)  # of the split being judged
    bundles: int = 0  # reflected on so far
    judged: Mapping[str, tuple[int, Tally]] = field(default_factory=dict)  # split -> guidance step, and what it brought
    p_correct: Mapping[str, float] = field(default_factory=dict)  # by ticket_key, under the present guidance, if known
    failed: tuple[tuple[str, int], ...] = ()  # what failed a test under the present guidance: the edited one's digest, and
    #   the fold that taught it, which does not teach it again
    changed: bool = False  # whether the epoch has accepted an edit
    idle_epochs: int = 0  # in a row, without an accepted edit
    idle_bundles: int = 0  # the same
    choices: tuple[Choice, ...] = ()  # one per guidance that was judged on val
    distilled: int = 0  # rows written
    spent: Spent = field(default_factory=Spent)
    unpaid: bool = False  # whether it has learnt what costs nothing, and nothing else, since its share was spent

    def to_plain(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "guidance": to_json(self.guidance),
            "pending": [_record_to_plain(record) for record in self.pending],
            "seen": {key: case and [case.right, case.reason] for key, case in self.seen.items()},
            "tally": _tally_to_plain(self.tally),
            "judged": {split: [step, _tally_to_plain(tally)] for split, (step, tally) in self.judged.items()},
            "choices": [
                [to_json(choice.guidance), choice.n, dict(choice.missed), dict(choice.scale)] for choice in self.choices
            ],
            "failed": list(self.failed),
            "left": asdict(self.left),
            "spent": asdict(self.spent),
            **{name: getattr(self, name) for name in _PLAIN_FIELDS},
        }

    @classmethod
    def from_plain(cls, name: str, body: Mapping[str, Any], tickets: Mapping[str, Ticket]) -> Self:
        """What ``to_plain`` wrote of the mission of this name; ``tickets`` by ticket_key."""
        return cls(
            guidance=from_json(body["guidance"], "a commit")[name],
            pending=tuple(_record_from_plain(row, tickets) for row in body["pending"]),
            seen={key: case and Case(tickets[key], *case) for key, case in body["seen"].items()},
            tally=Tally(**body["tally"]),
            judged={split: (step, Tally(**tally)) for split, (step, tally) in body["judged"].items()},
            choices=tuple(Choice(from_json(plain, "a commit")[name], *counted) for plain, *counted in body["choices"]),
            failed=tuple((name, fold) for name, fold in body["failed"]),
            left=Budget(tuple(body["left"]["edits"])),
            spent=Spent(**body["spent"]),
            **{field: body[field] for field in _PLAIN_FIELDS},
        )


@dataclass(frozen=True, slots=True)
class State:
    """Where a run stands."""

    missions: Mapping[str, MissionState]
    done: Place = NOWHERE  # of the last round, epoch's end or choice that is over
    ended: str = ""  # the first budget that ended the learning of a mission, or that all were told to stop; else empty
    over: Mapping[str, str] = field(default_factory=dict)  # mission that has spent its share of a budget, and learns no more
    #   -> which
    finished: bool = False  # whether nothing is left to do
    first: tuple[Candidate, ...] = ()  # the model's answers, until they are enough to tell whether they can be read

    @property
    def spent(self) -> Spent:
        """What all missions have cost."""
        return reduce(lambda total, mission: total.plus(**asdict(mission.spent)), self.missions.values(), Spent())

    def with_mission(self, mission: MissionState) -> State:
        """The state with one mission's part replaced."""
        return replace(self, missions={**self.missions, mission.guidance.mission: mission})

    def to_plain(self) -> dict[str, Any]:
        """The state as JSON data, but for its missions, which are committed each by itself."""
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
        """What ``to_plain`` wrote, with the missions put back."""
        first = tuple(Candidate(**each) for each in data["first"])
        return cls(missions, tuple(data["done"]), data["ended"], data["over"], data["finished"], first)


_PLAIN_FIELDS = "again bundles p_correct changed idle_epochs idle_bundles distilled unpaid".split()  # JSON data already


def _tally_to_plain(tally: Tally) -> dict[str, Any]:
    """As JSON data, for which a mission of pass and fail has no ``answered``."""
    plain = shallow(tally)
    return plain if tally.answered else {name: each for name, each in plain.items() if name != "answered"}


def _record_to_plain(record: Record) -> dict[str, Any]:
    made = {"answers": answers_to_plain(record.answers), "selection": shallow(record.selection)}
    return {**shallow(record), "ticket": record.ticket.key, **made}


def _record_from_plain(row: Mapping[str, Any], tickets: Mapping[str, Ticket]) -> Record:
    fields = {**row, "ticket": tickets[row["ticket"]], "selection": Selection(**row["selection"])}
    return Record(**{**fields, "answers": answers_from_plain(row["answers"])})
