"""What rules say as code while a run learns, under whatever guidance is in force or on trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial

from stageb.guidance.prompts import Words, answer_text
from stageb.guidance.reflection.conditions import reading
from stageb.guidance.rules.judge import CodedRule, compile_rules, speaking_rules
from stageb.guidance.rules.parse import OutOfReach, RuleCode, parse_rule
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.rules.reading import Reading
from stageb.guidance.rules.scales import Scale
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.types import BY_RULES, Answers, Candidate, Guidance, Rule, Ticket

KEPT = 256  # guidances that stay compiled


class Coder:
    """The rules of a run's missions as code. Names and values are those of all its tickets, as for who uses the rules after
    the run; every text is read once."""

    def __init__(self, tickets: Sequence[Ticket], words: Words, scales: Sequence[Scale] = ()) -> None:
        self._tickets, self._words, self._scales = tickets, words, scales
        self._parser = cache(self._make_parser)
        self._compiled = lru_cache(KEPT)(self._compile)

    def rule_on(self, guidance: Guidance, tickets: Sequence[Ticket]) -> list[Ruling | None]:
        """What the rules say of each ticket; None where they cannot tell."""
        judge = self._compiled(guidance.mission, guidance.rules)
        rulings = (judge(reading(ticket)) for ticket in tickets)
        return [ruling if ruling.verdict else None for ruling in rulings]

    def note_rulings(self, guidance: Guidance, tickets: Sequence[Ticket]) -> list[Ticket]:
        """``tickets`` with what the rules say of them, where the guidance's calibration weighs that."""
        if not guidance.calibration.rules:
            return list(tickets)
        rulings = self.rule_on(guidance, tickets)
        return [replace(one, ruling=each and each.verdict) for one, each in zip(tickets, rulings, strict=True)]

    def answer(self, guidance: Guidance, position: int, ruling: Ruling) -> Answers:
        """A ruling as the answer of a model that follows rules to the letter, which cost nothing."""
        rule = guidance.rule(ruling.rule)
        assert ruling.verdict and rule  # it was decided, by a rule or the headline
        reason = f"{rule.key}: {rule.text}"
        text = answer_text(ruling.verdict, reason, self._words)
        candidate = Candidate(0, BY_RULES, 0.0, text, ruling.verdict, reason, format_ok=True, tokens=0)
        return Answers(self._tickets[position].key, 0, (candidate,))

    def _compile(self, mission: str, rules: Sequence[Rule]) -> Callable[[Reading], Ruling]:
        parse = self._parser(mission)
        speaking = speaking_rules(rules, self._words)
        return compile_rules([CodedRule(rule.key, rule.text, parse(rule.text)) for rule in speaking])

    def _make_parser(self, mission: str) -> Callable[[str], RuleCode | OutOfReach]:
        vocabulary = Vocabulary.of((ticket for ticket in self._tickets if ticket.mission == mission), self._scales)
        return cache(partial(parse_rule, vocabulary=vocabulary, words=self._words))
