"""Judging tickets round by round, by the rules as code or by the model, and committing a row for
each.

Every rank has a ``JudgedRounds``, but its methods are called on rank 0 alone, which has the rules
as code. The other ranks only get the tickets that the model is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from stageb.engines.config import HOW_ASKED
from stageb.errors import shown
from stageb.guidance.commands.use.columns import ColumnJudge, TableColumns
from stageb.guidance.commands.use.config import By, UseConfig
from stageb.guidance.commands.use.doubts import Doubts, Survey
from stageb.guidance.commands.use.rounds import Rounds
from stageb.guidance.commands.use.source import find_prices, find_vocabulary
from stageb.guidance.commands.use.verdict_rows import VerdictWriter, count_asked
from stageb.guidance.judging.answers import check_readable
from stageb.guidance.judging.automation import find_promises
from stageb.guidance.judging.coded import CodeJudge, code_rules
from stageb.guidance.judging.selection import load_selection_rule
from stageb.guidance.learning.gate.judgements import digest
from stageb.guidance.rules.judge import CodedRules
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.tickets.stream import TicketLine, make_check
from stageb.guidance.words.types import Guidance, Ticket
from stageb.runs.progress import console
from stageb.store import disk
from stageb.store.commits import flatten

if TYPE_CHECKING:  # torch
    from stageb.guidance.commands.use.predict_ranks import TicketAnswers

FindKnown = Callable[[], tuple[Sequence[Ticket], str]]  # see ``find_vocabulary``
MOST_UNCOMMITTED = 8192  # tickets between two commits, if code judges nearly all of them
SEEN = 4096  # tickets to find missing fields by, if those that taught the rules are not known
KNOWN = 20_000  # tickets to read rules by, if those that taught the rules are not known
DIGEST, CODE = "the tickets", "the rules as code"
# Keys that change no row, or do so through what is compared beside them.
NOT_SHAPING = (
    "by", "guidance", "compare", "price.", "max_error", "confidence", "tickets", "vocabulary",
    "output", "max_unreadable", "fabric.", *HOW_ASKED,
)  # fmt: skip
# Keys that say how the model is asked and its answers are taken; where rules judge alone, they
# change no row either.
OF_MODEL = (
    "model.",
    "sampler.",
    "selection",
    "manual_review.",
    "probability",
    "prompt.prefill",
    "round_size",
    "seed",
)
BY_CHANCE = ("round_size", "seed")  # of these, what an answer depends on by chance alone


class JudgedRounds:
    """The rounds of one output file, and how their tickets are judged."""

    def __init__(
        self,
        config: UseConfig,
        by: By,
        rounds: Rounds[TicketLine],
        guidance: Mapping[str, Guidance],
        missions: Collection[str],
        source: str,
    ) -> None:
        """``missions`` are those that tickets may be of; ``source`` names the guidance."""
        self.rounds, self.by, self.guidance = rounds, by, guidance
        self._config, self._missions, self._source = config, missions, source
        self._lines: list[TicketLine] = []  # of the round in progress
        self._rulings: list[Ruling | None] = []  # on them; None: the model is asked
        self._rows = VerdictWriter(guidance, find_promises(guidance, by, self.asked))
        is_plain = (
            not config.needs_labels
            and not config.sampler.use_images
            and rounds.tickets.places is None
        )
        tables = TableColumns(config.tickets, config.columns)
        # None: tickets are judged one by one
        self._tables = tables if by == "rules" and is_plain and tables else None

    @property
    def rules(self) -> Mapping[str, CodedRules] | None:
        """The rules as code, by mission, as ``begin`` has read them; None where the model judges
        all."""
        is_asked = self.by != "model" and (
            self.by != "learnt" or any(each.judge for each in self.guidance.values())
        )
        return self._rows.code.rules if self._rows.code and is_asked else None

    @property
    def doubts(self) -> Doubts:
        """Doubts, as ``begin`` has found them."""
        return Doubts(**self.rounds.state["doubts"])

    @property
    def asked(self) -> str:
        """A short name for how a model is asked."""
        plain = flatten(asdict(self._config))
        shaping = {key: value for key, value in plain.items() if key.startswith(OF_MODEL)}
        return disk.digest(
            repr(
                [
                    each
                    for each in shaping.items()
                    if not each[0].startswith((*HOW_ASKED, *BY_CHANCE))
                ]
            ),
            8,
        )

    @property
    def fingerprint(self) -> dict[str, Any]:
        """All that rows depend on, flat: keys and the guidance, but not the bytes of the tickets or
        what is derived from them."""
        config = self._config
        others = NOT_SHAPING + (OF_MODEL if self.by == "rules" else ())
        plain = {
            key: value
            for key, value in flatten(asdict(config)).items()
            if not key.startswith(others)
        }
        plain |= {"by": self.by, "ticket files": config.tickets}
        plain |= {
            f"decided alone of {mission}": repr(each.to_plain())
            for mission, each in self._rows.promises.items()
        }
        return plain | {
            f"guidance of {mission}": said
            for mission, said in fingerprint_guidance(self.guidance).items()
        }

    def make_check(self) -> Callable[[TicketLine], None]:
        """Make a check that raises ``FaultError`` for a ticket that cannot be judged."""
        guidance = {mission: self.guidance[mission] for mission in self._missions}
        return make_check(guidance, self._config.columns, once=self._config.needs_labels)

    def begin(self, fresh: bool) -> None:
        """Check all tickets, unless an earlier call did, and resume from the last commit."""
        # kept no longer than this: there may be many
        find_known = cache(partial(find_vocabulary, self._source, self._config))

        def survey() -> dict[str, Any]:
            found = self._look_over(find_known)
            found.check()
            prices = find_prices(self._config)
            for said in (*found.describe(prices), *self._rows.describe_promises()):
                console().print(shown(said, 400))
            return {
                "tickets": found.tickets.total(),
                "counts": {},
                "doubts": asdict(found.conclude()),
            }

        def fingerprint() -> dict[str, Any]:
            weighs = any(
                each.judge or each.calibration.weighs_rules for each in self.guidance.values()
            )
            if self.by in ("rules", "both") or weighs:
                self._rows = replace(self._rows, code=self._read_code(find_known))
            found, code = self.fingerprint | {DIGEST: self.rounds.tickets.digest()}, self._rows.code
            return found | ({CODE: code.digest} if code else {})

        self.rounds.begin(survey, fingerprint, fresh)

    def hand_out(self) -> list[TicketLine]:
        """The next tickets for the model; empty if all are done. Rounds that code judges whole are
        committed at once."""
        while True:
            self._take_round()
            asked = [
                line
                for line, ruling in zip(self._lines, self._rulings, strict=True)
                if ruling is None
            ]
            if asked or not self._lines:
                return asked
            self.commit([])

    def commit(self, judged: Sequence[TicketAnswers]) -> None:
        """Commit the rows of a round; ``judged`` are the model's answers to the tickets that it was
        asked for.

        Raises ``UnreadableError`` if too many of its first answers cannot be read.
        """
        config = self._config
        rule = load_selection_rule(self._config.selection)
        counts = self.rounds.state["counts"]
        if judged and not count_asked(counts):
            said = [candidate for answers, _ in judged for candidate in answers.candidates]
            words = words_of(config.prompt, config.model)
            check_readable(
                said,
                config.max_unreadable,
                words,
                "max_unreadable",
                "few tickets would get a verdict",
            )
        agreement, answered, made = config.manual_review.min_verdict_agreement, iter(judged), []
        for line, ruling in zip(self._lines, self._rulings, strict=True):
            if ruling is None:
                doubt = self.doubts.explain(line.ticket, by_code=False)
                row = self._rows.write_answered(
                    line.ticket, *next(answered), agreement, rule, doubt
                )
            else:
                row = self._write_ruled(line.ticket, ruling)
            made.append({**_name(line), **row})
        self._commit(made)

    def _commit(self, rows: Sequence[dict[str, Any]]) -> None:
        """Commit the rows of further tickets."""
        counts = self._rows.add_counts(self.rounds.state["counts"], rows)
        self.rounds.commit(rows, {**self.rounds.state, "counts": counts})

    def _judge_alone(self, ticket: Ticket) -> dict[str, Any]:
        """How rules judge a ticket, without what it is called."""
        ruling = self._rows.rule_on(ticket)
        assert ruling  # by rules alone
        return self._write_ruled(ticket, ruling)

    def _write_ruled(self, ticket: Ticket, ruling: Ruling) -> dict[str, Any]:
        doubt = self.doubts.explain(ticket, by_code=True) if ruling.verdict else ""
        return self._rows.write_ruled(ticket, ruling, doubt)

    def judge_columns(self) -> None:
        """Judge what is left by the rules alone, and commit it, where tickets are rows of tables by
        their columns. Raises ``InputError``."""
        if self._rows.code and self._tables:
            told = {mission: each.told for mission, each in self._rows.promises.items()}
            doubted = {
                mission: [*self.doubts.unusual.get(mission, ()), *told.get(mission, ())]
                for mission in self._missions
            }
            judge = ColumnJudge(self._rows.code.rules, doubted, self._judge_alone)
            self._tables.judge(self.rounds, judge, self._commit)

    def _take_round(self) -> None:
        """Take tickets until a full round is left to the model, or ``MOST_UNCOMMITTED`` are
        taken. A blank one is for a person."""
        self._lines, self._rulings, asked = [], [], 0
        while lines := self.rounds.take(
            min(self.rounds.size - asked, MOST_UNCOMMITTED - len(self._lines)), len(self._lines)
        ):
            for line in lines:
                ruling = self._rows.rule_on(line.ticket)
                if ruling and not self._is_decided(line.ticket, ruling):
                    if self.by != "both":  # the calibration of a model may weigh what the rules say
                        line = replace(
                            line,
                            ticket=replace(line.ticket, ruling=ruling.verdict, leads=ruling.leads),
                        )
                    ruling = None
                asked += ruling is None
                self._lines.append(line)
                self._rulings.append(ruling)

    def _is_decided(self, ticket: Ticket, ruling: Ruling) -> bool:
        """Whether what the rules as code say of a ticket is its verdict, or it says nothing."""
        if ticket.is_blank:
            return True
        if self.by == "learnt":
            return self.guidance[ticket.mission].is_decided(ruling.verdict, ruling.leads)
        return self.by == "rules" or (self.by == "both" and ruling.verdict is not None)

    def _look_over(self, find_known: FindKnown) -> Survey:
        """All tickets, checked and counted. Raises ``BadInputError``."""
        found = self._make_survey(find_known)
        if self._tables and self._tables.survey(found, self.make_check()):
            return found
        self._tables = None  # who reads them one by one tells all that is wrong
        found, check = self._make_survey(find_known), self.make_check()

        def look(line: TicketLine) -> None:
            check(line)
            found.add(line.ticket)

        self.rounds.tickets.survey(look)
        return found

    def _make_survey(self, find_known: FindKnown) -> Survey:
        """Nothing counted yet, beside what tickets said that taught the rules, as far as the
        guidance's run tells."""
        has_rules = any(len(each.rules) > 1 for each in self.guidance.values())
        taught, why = find_known() if has_rules else ((), "")
        known = (
            taught
            if taught
            else [line.ticket for line in islice(self.rounds.tickets.items(), SEEN)]
        )
        return Survey.of(
            self._config, self._source, self.guidance, known, not why, self.by in ("rules", "both")
        )

    def _read_code(self, find_known: FindKnown) -> CodeJudge:
        """The rules as code, by the tickets that they were learnt from; or else by those that are
        judged."""
        config = self._config
        known, why = find_known()
        if why:
            if any(len(each.rules) > 1 and not each.named for each in self.guidance.values()):
                console().print(
                    shown(
                        f"{self._source}: {why}; until then rules are read by the tickets to judge",
                        400,
                    )
                )
            known = [line.ticket for line in islice(self.rounds.tickets.items(), KNOWN)]
        words = words_of(config.prompt, config.model)
        code = CodeJudge(code_rules(self.guidance, known, words, is_whole=not why))
        for line in code.describe_unreadable() if self.by == "rules" else ():
            console().print(shown(line, 400))
        return code


def fingerprint_guidance(guidance: Mapping[str, Guidance]) -> dict[str, str]:
    """A short name for what each mission's guidance tells a model."""
    return {mission: f"step {each.step}, {digest(each)}" for mission, each in guidance.items()}


def _name(line: TicketLine) -> dict[str, Any]:
    """The name of a row's ticket, and its place."""
    of = line.ticket
    return {
        "file": line.file,
        "line": line.line,
        "mission": of.mission,
        "group_id": of.group_id,
        "label": line.label,
    }
