"""Judges tickets by rules as code: those of a run as it learns, and learnt ones in use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial

from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.conditions import OutOfReach
from stageb.guidance.rules.judge import CodedRules, collect_rules, make_explainer, read_rules
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.rules.prompts import Words, answer_text, name_labels
from stageb.guidance.rules.value_types import Reading
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.word_lists import find_word_lists
from stageb.guidance.words.types import (
    BY_RULES,
    HEADLINE_KEY,
    Answers,
    Candidate,
    Guidance,
    Rule,
    Ticket,
    Verdict,
)
from stageb.store import disk

KEPT = 256  # guidances that stay compiled


class Coder:
    """The rules of a run's missions as code. Names and values are those of all its tickets, as for
    people who use the rules after the run; every text is read once."""

    def __init__(self, tickets: Sequence[Ticket], words: Words) -> None:
        self._tickets, self._words = tickets, words
        self._parser = lru_cache(KEPT)(self._make_parser)
        self._vocabulary = cache(self._find_vocabulary)
        self._compiled = lru_cache(KEPT)(self._compile)

    def rule_on(self, guidance: Guidance, tickets: Sequence[Ticket]) -> list[Ruling]:
        """Judge each ticket by the rules."""
        judge = self._compiled(guidance.mission, guidance.labels, guidance.rules)
        return [judge(reading(ticket)) for ticket in tickets]

    def note_rulings(self, guidance: Guidance, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Return ``tickets`` with what the rules say about them, if the guidance's calibration
        weighs that."""
        if not guidance.calibration.weighs_rules:
            return list(tickets)
        rulings = self.rule_on(guidance, tickets)
        return [
            replace(one, ruling=each.verdict, leads=each.leads)
            for one, each in zip(tickets, rulings, strict=True)
        ]

    def answer(self, guidance: Guidance, position: int, ruling: Ruling) -> Answers:
        """Return a ruling as the answer of a model that follows rules to the letter, which cost
        nothing."""
        rule = guidance.rule(ruling.rule)
        assert ruling.verdict and rule  # it was decided, by a rule or the headline
        reason = f"{rule.key}: {rule.text}"
        text = answer_text(ruling.verdict, reason, name_labels(self._words, guidance.labels))
        candidate = Candidate(
            0, BY_RULES, 0.0, text, ruling.verdict, reason, format_ok=True, tokens=0
        )
        return Answers(self._tickets[position].key, 0, (candidate,))

    def _compile(
        self, mission: str, labels: tuple[Verdict, ...], rules: Sequence[Rule]
    ) -> Callable[[Reading], Ruling]:
        lists = find_word_lists(rules)
        parse = self._parser(mission, labels, tuple(lists.items()))
        return collect_rules(rules, labels, name_labels(self._words, labels), parse).compile()

    def _make_parser(
        self,
        mission: str,
        labels: tuple[Verdict, ...],
        lists: tuple[tuple[str, tuple[str, ...]], ...],
    ) -> Callable[[str], RuleCode | OutOfReach]:
        vocabulary = replace(self._vocabulary(mission), lists=dict(lists))
        return cache(
            partial(parse_rule, vocabulary=vocabulary, words=name_labels(self._words, labels))
        )

    def _find_vocabulary(self, mission: str) -> Vocabulary:
        return Vocabulary.of(ticket for ticket in self._tickets if ticket.mission == mission)


def code_rules(
    guidance: Mapping[str, Guidance], tickets: Iterable[Ticket], words: Words, is_whole: bool = True
) -> dict[str, CodedRules]:
    """Read the rules of each mission by what its ``tickets`` hold; ``is_whole`` as ``read_rules``
    takes it."""
    of: dict[str, list[Ticket]] = {mission: [] for mission in guidance}
    for ticket in tickets:
        of.get(ticket.mission, []).append(ticket)
    return {
        mission: read_rules(guidance[mission], Vocabulary.of(mine), words, is_whole)
        for mission, mine in of.items()
    }


class CodeJudge:
    """Judges the tickets of missions by their rules as code."""

    def __init__(self, rules: Mapping[str, CodedRules]) -> None:
        self.rules = rules
        self._explainers = {mission: make_explainer(of) for mission, of in rules.items()}
        self._marks = {
            (mission, rule.key): " (provisional)"
            for mission, of in rules.items()
            for rule in of.each
            if rule.is_provisional
        }
        self.judges = {mission: of.compile() for mission, of in rules.items()}

    @property
    def digest(self) -> str:
        """A short name for what the rules say."""
        return disk.digest(repr(self.rules), 8)

    def describe_unreadable(self) -> Iterator[str]:
        """Say which rules cannot be read as code, a line each."""
        for mission, of in self.rules.items():
            for rule in of.each:
                if isinstance(rule.code, OutOfReach):
                    why = f"{rule.key} cannot be read as code ({rule.code.why})"
                    yield f"{mission}: {why}: tickets that hang on it are for a person"

    def judge(self, ticket: Ticket) -> Ruling:
        """Give the verdict on a ticket of one of the missions."""
        return self.judges[ticket.mission](reading(ticket))

    def is_silent(self, ruling: Ruling) -> bool:
        """Whether no rule gives the verdict, or only the headline."""
        return ruling.rule in ("", HEADLINE_KEY)

    def explain(self, ruling: Ruling, ticket: Ticket) -> str:
        """Name the rule that gives a verdict, and say why; or say why there is none."""
        why = self._explainers[ticket.mission](ruling, reading(ticket))
        return (
            f"{ruling.rule}{self._marks.get((ticket.mission, ruling.rule), '')}: {why}"
            if ruling.verdict
            else why
        )
