"""The records of the training-free loop: frozen dataclasses that use the words of a run's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

from stageb.guidance.words.automation import Automation
from stageb.guidance.words.calibration import UNCALIBRATED as UNCALIBRATED
from stageb.guidance.words.calibration import Calibration as Calibration
from stageb.guidance.words.calibration import Leads as Leads
from stageb.guidance.words.labels import PASS_FAIL as PASS_FAIL
from stageb.guidance.words.labels import Verdict as Verdict

Split = Literal["train", "val", "test"]
Fault = Literal[  # why an answer cannot be read
    "empty",
    "filtered",
    "gives its prompt back",
    "thinking never closed",
    "cut off",
    "refuses",
    "not the two-line answer",
]
OpName = Literal["add", "update", "merge", "remove"]

HEADLINE_KEY = "G0"
FIXED = "fixed"  # in a rule's metadata: that learning neither changes nor removes it
# in a rule's metadata: that it is no rule, but what the model should know before it reads them
BACKGROUND = "background"
# in a rule's metadata: that its proof is missing; and the outcome of its edit
PROVISIONAL = "provisional"
ESTIMATE = "estimate"  # in a provisional rule's metadata: what is hoped of it
JudgeName = Literal["", "rules", "model", "weighed"]
"""The judge that gives a mission's verdicts: rules as code, and the model where these give none;
the model; both, weighed. Empty: the judge that a run's config names, and elsewhere the model, by a
calibration that may weigh rules."""
# digits of a name for what a ticket says: two of a million tickets share one with a chance of .2 %
NAME_LENGTH = 12
BY_RULES = -1  # instead of an index into the decode grid: rules as code gave the answer
UNKNOWN: Verdict = ""
"""The label of a ticket that has none yet, or whose label is hidden from the judge. No ticket to
learn from has it."""

Place = tuple[int, int, int, int]
"""In the run's order: epoch (one more than the last one for what ends a run), phase, and the
mission's number and the round, the round first where missions learn in turn."""

NOWHERE: Place = (-1, 0, 0, 0)  # before everything


@dataclass(frozen=True, slots=True)
class Images:
    """A ticket's images, for a model."""

    files: tuple[tuple[str, str], ...]  # (image_{n}, path), in numeric order
    instead: bool  # whether they replace the summaries, rather than being shown beside them


class Content(NamedTuple):
    """A ticket's content, with name and value apart where its file has names."""

    fields: tuple[tuple[str, str], ...]  # (name, value) of a table's columns, or of JSON's keys
    prose: tuple[str, ...]  # summaries and remarks without names, each on its own
    is_counted: bool = False  # whether fields are counts, of which one that is not there is 0
    # those of all images together, as a model reads them; empty where a single image has any
    counts: str = ""


@dataclass(frozen=True, slots=True)
class Ticket:
    """One case to judge."""

    mission: str  # the inspection programme
    group_id: str  # what was inspected; may come back with another label
    label: Verdict  # the right verdict
    # (image_{n}, summary), in numeric order, as a model reads it
    per_image: tuple[tuple[str, str], ...]
    # every other key of the line, kept as it was
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    content: Content | None = None  # what it says as rules see it; None: its summaries are prose
    images: Images | None = None  # shown to the model that judges; None: it reads summaries alone
    # the group_id whose group it is of, where several say the same (``groups.py``); empty: its own
    equals: str = ""
    split: Split | None = None  # that it says it is of; None: shares deal it to one
    apart: bool = False  # whether it is a case of its own, whatever others say
    reason: str = ""  # why people gave it its label, of a train ticket; no verdict rests on it
    together: str = ""  # what it has in common with tickets that stay in its split; empty: nothing
    place: str = field(default="", compare=False)  # file:line, as far as known
    # of rules as code, where a calibration weighs it
    ruling: Verdict | None = field(default=None, compare=False)
    leads: Leads = field(default=(), compare=False)  # by their points, likewise

    @property
    def counts(self) -> str:
        """The counts of all its images together, as a model reads them; empty where one image alone
        counts."""
        return self.content.counts if self.content else ""

    @property
    def is_blank(self) -> bool:
        """Whether it says and shows nothing that a verdict could rest on."""
        return self.images is None and not any(text.strip() for _, text in self.per_image)

    @property
    def group(self) -> str:
        """The name of its group, which no split, fold or race divides."""
        return self.equals or self.group_id

    @property
    def key(self) -> str:
        """The ticket's identity within its mission."""
        return f"{self.group_id}::{self.label}" if self.label else self.group_id


@dataclass(frozen=True, slots=True)
class Estimate:
    """Figures of learnt rules on train tickets, each judged by what the others taught, beside the
    rules without them."""

    tickets: int
    acc_before: float  # share judged right without these rules
    acc: float  # with them
    cost_before: float  # of a ticket, at the prices, without these rules
    cost: float  # with them

    @staticmethod
    def parse(figures: Any) -> Estimate | None:
        """The estimate that a file tells of; None where these are no such figures: what no run
        comes to, no line shows."""
        most = {"tickets": 10**9, "acc_before": 1, "acc": 1, "cost_before": 1e12, "cost": 1e12}
        told: dict[str, Any] = (
            {name: figures.get(name) for name in most} if isinstance(figures, dict) else {}
        )
        are_figures = (
            type(each) in (int, float) and 0 <= each <= most[name] for name, each in told.items()
        )
        return Estimate(**told) if told and all(are_figures) else None


@dataclass(frozen=True, slots=True)
class Rule:
    """One numbered line of guidance."""

    key: str  # G0, G1, ...; stable for the life of the rule
    text: str  # what the model reads
    # reflection_id, sources, rationale, ...
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def is_provisional(self) -> bool:
        """Whether its proof is missing."""
        return self.metadata.get(PROVISIONAL) is True

    @property
    def is_fixed(self) -> bool:
        """Whether learning leaves it as it is."""
        return self.is_background or self.metadata.get(FIXED) is True

    @property
    def is_background(self) -> bool:
        """Whether it decides nothing, and is read before the rules."""
        return self.metadata.get(BACKGROUND) is True

    @property
    def mark(self) -> str:
        """The mark behind its key where people read it."""
        marks = {
            BACKGROUND: self.is_background,
            FIXED: self.is_fixed,
            PROVISIONAL: self.is_provisional,
        }
        return next((f" ({mark})" for mark, holds in marks.items() if holds), "")

    @property
    def estimate(self) -> Estimate | None:
        """Its estimate, with the rules learnt with it; None where that is not known, as of a proven
        one."""
        return Estimate.parse(self.metadata.get(ESTIMATE))

    @property
    def sources(self) -> list[str]:
        """The keys of the tickets that the rule was learnt from. Metadata that a user wrote may
        hold anything."""
        keys = self.metadata.get("sources")
        return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A train ticket and its label, shown to the model before the ticket that it judges."""

    source: str  # the ticket's key
    per_image: tuple[tuple[str, str], ...]  # the ticket's summaries
    verdict: Verdict  # its label
    # the key of the rule that decides it, G0 where none holds; empty: nothing but the label is told
    rule: str = ""
    text: str = ""  # of that rule when the ticket was chosen: shown only while the guidance has it
    # what the ticket has points for, where the rule gives some: told in the place of its text
    points: str = ""

    @classmethod
    def parse(cls, plain: Any, labels: Sequence[Verdict]) -> Demonstration | None:
        """Read a demonstration in a guidance.json of these ``labels``, its summaries an object;
        None for anything else."""
        names = {each.name: each.default for each in fields(cls)}
        needed = {name for name, default in names.items() if default is MISSING}
        if (
            not isinstance(plain, dict)
            or not needed <= set(plain) <= set(names)
            or plain["verdict"] not in labels
        ):
            return None
        summaries = plain["per_image"]
        texts = [text for name, text in plain.items() if name != "per_image"]
        if not isinstance(summaries, dict) or not all(
            isinstance(text, str) for text in (*texts, *summaries.values())
        ):
            return None
        return cls(**{**plain, "per_image": tuple(summaries.items())})


TEACHING_FOLDS = (
    3  # parts of the train tickets: edits are learnt from one and tested on the others, in turn
)


@dataclass(frozen=True, slots=True)
class Budget:
    """An error budget of one mission, left or spent: probabilities of accepting an edit that is no
    better."""

    edits: tuple[float, ...] = (0.0,) * TEACHING_FOLDS  # by the fold that taught the edits

    @property
    def chance(self) -> float:
        """All probabilities together."""
        return sum(self.edits)

    def plus(self, other: Budget) -> Budget:
        """The sum of both, fold by fold."""
        return Budget(tuple(map(float.__add__, self.edits, other.edits)))

    def less(self, spent: Budget) -> Budget:
        """The budget that is left after ``spent``, fold by fold, never below 0."""
        return Budget(
            tuple(max(0.0, mine - its) for mine, its in zip(self.edits, spent.edits, strict=True))
        )

    def most(self, other: Budget) -> Budget:
        """The larger of both, fold by fold."""
        return Budget(tuple(map(max, self.edits, other.edits)))


NOTHING = Budget()


@dataclass(frozen=True, slots=True)
class Guidance:
    """A mission's numbered rules at one step."""

    mission: str  # whose guidance this is
    step: int  # grows by one with every accepted edit
    # in ascending number, of labels of its own in the order that decides; the first is G0
    rules: tuple[Rule, ...]
    # the number that the next new rule gets; never goes back, so a removed key is never given again
    next_number: int
    spent: Budget = NOTHING  # on the tickets that taught it, by all runs that led to it
    # names of what tickets say (``groups.name_content``) that taught or tested it
    taught_by: frozenset[str] = field(default=frozenset(), repr=False)
    # the same of those that chose it among others, or told when to stop
    chosen_by: frozenset[str] = field(default=frozenset(), repr=False)
    demonstrations: tuple[Demonstration, ...] = ()  # in the order in which the model reads them
    calibration: Calibration = UNCALIBRATED  # of the model's verdicts under it
    judge: JudgeName = ""  # the best one on train tickets that taught none of them
    # that a ticket may have; the first where no rule speaks of it
    labels: tuple[Verdict, ...] = PASS_FAIL
    # field and value, or a word alone, by which rules are read without its tickets
    named: tuple[tuple[str, str], ...] = ()
    # the promise about tickets decided alone; of other rules it tells nothing
    automation: Automation | None = None

    def is_decided(self, ruling: Verdict | None, leads: Leads) -> bool:
        """Whether its judge takes what the rules as code say of a ticket, and asks no model."""
        if self.judge == "weighed":
            return self.calibration.is_sure(ruling, leads, self.labels)
        return self.judge == "rules" and ruling is not None

    @property
    def shown(self) -> tuple[Demonstration, ...]:
        """The demonstrations that still hold: their rule is there, and says what it said."""
        texts = {rule.key: rule.text for rule in self.rules}
        return tuple(
            each
            for each in self.demonstrations
            if not each.rule or texts.get(each.rule) == each.text
        )

    def rule(self, key: str) -> Rule | None:
        """The rule named ``key``, or None."""
        return next((rule for rule in self.rules if rule.key == key), None)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One sampled answer."""

    index: int  # 0-based, over the decode grid and then its samples
    decode: int  # which entry of the decode grid made it; ``BY_RULES``: none, but rules as code
    temperature: float  # that entry's temperature
    text: str  # the raw answer
    verdict: Verdict | None  # None where the answer could not be parsed
    reason: str  # one line; empty where the answer could not be parsed
    format_ok: bool  # whether the strict two-line form was met
    tokens: int  # new tokens that it cost
    thinking: str = ""  # what the model thought aloud before it
    fault: Fault | None = None  # why it could not be parsed; None where it could


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to one ticket that was rolled out."""

    ticket_key: str  # whose answers these are
    prompt_tokens: int  # length of its prompt
    candidates: tuple[Candidate, ...]  # empty where the ticket was set aside
    set_aside: str = ""  # why it was never rolled out (a prompt over the limit); empty otherwise
    # each candidate's tokens up to its verdict, from which an engine can go on to the reason; none
    # at all where no reason may be asked for
    openings: tuple[tuple[int, ...], ...] = ()

    @property
    def by_rules(self) -> bool:
        """Whether rules as code gave the answer, and no model."""
        return any(candidate.decode == BY_RULES for candidate in self.candidates)


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a ticket is judged under some guidance, for the gate."""

    p_correct: float  # the share of answers, in [0, 1], that give the ticket's label
    tokens: int  # read and made; 0 where the ticket was not judged
    by_rules: bool = False  # whether rules as code gave it, and no model
    # the labels' log-probabilities, but for a constant; none where nothing is weighed
    scores: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """The verdict chosen for a ticket."""

    verdict: Verdict | None  # None where no candidate was usable; counts as wrong
    reason: str  # the winner's
    selected_candidate: int | None  # the winner's index
    # share of well-formed candidates that agree with the verdict; 0 where there are none
    vote_strength: float
    low_agreement: bool  # vote_strength below manual_review.min_verdict_agreement
    label_match: bool  # verdict equals the ticket's label
    manual_review: str  # why a person should look; empty where none needs to


@dataclass(frozen=True, slots=True)
class Record:
    """A ticket with its answers and its selection, kept for reflection."""

    ticket: Ticket
    epoch: int  # from 1; 0 is before learning
    round: int  # from 0 within the mission's epoch
    guidance_step: int  # the snapshot that the answers were made under
    answers: Answers
    selection: Selection

    @property
    def is_right(self) -> bool:
        """Whether its verdict is right and its candidates agree."""
        return self.selection.label_match and not self.selection.low_agreement


@dataclass(frozen=True, slots=True)
class Round:
    """Tickets that are rolled out together, on all ranks."""

    place: Place
    epoch: int  # from 1; 0 is before learning
    mission: str
    split: Split
    number: int  # from 0 within (epoch, mission, split)
    tickets: tuple[int, ...]  # positions in the run's tickets
    last: bool  # whether the split's metrics are complete after this one
    kind: Literal["round", "distill"] = "round"  # distill: for training data
    # label -> tickets of the split that each one judged stands for
    scale: Mapping[str, float] = field(default_factory=dict)

    @property
    def learns(self) -> bool:
        """Whether what this round brings may be reflected on."""
        return self.epoch > 0 and self.split == "train" and self.kind == "round"

    @property
    def names(self) -> tuple[str, int]:
        """The names of its answers' streams, behind the run's seed: by the epoch only where it
        learns."""
        return "distill" if self.kind == "distill" else "rollout", self.epoch if self.learns else 0


@dataclass(frozen=True, slots=True)
class Choice:
    """A guidance that could be the final one."""

    guidance: Guidance
    n: int  # tickets of val
    missed: Mapping[str, int]  # label -> its tickets that were not answered so
    scale: Mapping[str, float] = field(default_factory=dict)  # as in ``Round``

    @property
    def right(self) -> int:
        """Tickets of val judged right."""
        return self.n - sum(self.missed.values())


@dataclass(frozen=True, slots=True)
class Operation:
    """One edit of the guidance, checked."""

    op: OpName
    key: str | None  # the rule that update and remove name; None for add and merge
    merged_from: tuple[str, ...]  # the rules that merge joins, two or more
    text: str  # the new rule; empty for remove
    rationale: str  # why, in the model's words
    # ticket_keys of the bundle whose wrong verdicts the edit should turn right
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One operation, or a whole answer, that could not be used."""

    raw: str  # what the model wrote, as it came
    reason: str  # why it was refused


@dataclass(frozen=True, slots=True)
class Proposal:
    """One reflection answer, parsed."""

    index: int  # which of the bundle's samples
    text: str  # the raw answer
    operations: tuple[Operation, ...]  # what survived the checks
    refusals: tuple[Refusal, ...]  # what did not, and why
    cases: tuple[str, ...] = ()  # ticket_keys of the cases that the answer saw

    def refuse(self, why: str) -> Proposal:
        """It without its operations, each refused for this reason."""
        refused = (Refusal(each.text, why) for each in self.operations)
        return replace(self, operations=(), refusals=(*self.refusals, *refused))


def shallow(record: Any) -> dict[str, Any]:
    """The fields of one of these records by name. ``dataclasses.asdict`` also copies their
    contents, which took most of the time that rank 0 spends on a ticket."""
    return {name: getattr(record, name) for name in record.__slots__}
