"""Reads rules as code, applies them, explains their verdicts, and writes them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from stageb.guidance.rules.conditions import OutOfReach, Points, compile_expression
from stageb.guidance.rules.conditions.logic import join_words
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.predicates import CompiledRule, Ruling, make_judge, unreadable
from stageb.guidance.rules.prompts import Words, choose_grammar, name_labels, spell
from stageb.guidance.rules.value_types import Reading
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.word_lists import find_deciding, find_word_lists
from stageb.guidance.rules.wordings import EN, Grammar
from stageb.guidance.words.types import (
    HEADLINE_KEY,
    PASS_FAIL,
    Guidance,
    Operation,
    Proposal,
    Refusal,
    Rule,
    Verdict,
)

MOST_TOLD = 5  # conditions that an explanation of a ticket's points names


def begin_rule(verdict: Verdict, words: Words) -> tuple[str, str]:
    """Return the texts before a rule's condition and behind it, in the language and the verdict
    words of ``words``."""
    grammar = choose_grammar(words)
    return f"{spell(verdict, words)}{grammar.if_[0]}", grammar.end


def write_rule(
    code: RuleCode, words: Words, called: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Write ``code`` in the language and the verdict words of ``words``, with the phrases by which
    fields are ``called``."""
    grammar, verdict = replace(choose_grammar(words), called=called), spell(code.verdict, words)
    if code.condition is None:
        assert code.exception is not None  # it says something
        return f"{verdict}{grammar.unless[0]}{code.exception.write(grammar)}{grammar.end}"
    exception = f"{grammar.unless[1]}{code.exception.write(grammar)}" if code.exception else ""
    return f"{verdict}{grammar.if_[0]}{code.condition.write(grammar)}{exception}{grammar.end}"


@dataclass(frozen=True, slots=True)
class CodedRule:
    """A rule, and its code."""

    key: str
    text: str
    code: RuleCode | OutOfReach
    is_provisional: bool = False


@dataclass(frozen=True, slots=True)
class CodedRules:
    """The rules of a mission as code."""

    each: Sequence[CodedRule]
    # as ``Guidance`` has them, but the label that its headline gives first
    labels: tuple[Verdict, ...] = PASS_FAIL
    words: Words = field(default=EN, repr=False)  # by which they were read

    @property
    def grammar(self) -> Grammar:
        """The grammar of the language in which they are written."""
        return choose_grammar(self.words)

    def compile(self) -> Callable[[Reading], Ruling]:
        """Make a judge of tickets, as ``predicates.make_judge`` says."""
        return make_judge(
            (_compile_rule(rule, self.labels) for rule in self.each), HEADLINE_KEY, self.labels
        )


def read_rules(
    guidance: Guidance, vocabulary: Vocabulary, words: Words, is_whole: bool = True
) -> CodedRules:
    """Read all rules of ``guidance``, those that are out of reach included; the headline only if it
    is not the neutral one.

    Where ``vocabulary`` is not the ``is_whole`` one that rules were learnt by, a value or word that
    it lacks is taken as it stands, if it can be read in one way alone; but a rule that can be read
    by what the guidance keeps is read by that.
    """
    words, lists = name_labels(words, guidance.labels), find_word_lists(guidance.rules)
    own = Vocabulary.of_named(
        [(vocabulary.field(name) or name, value) for name, value in guidance.named]
    )
    own, vocabulary = (replace(each, lists=lists) for each in (own, vocabulary))

    def parse(text: str) -> RuleCode | OutOfReach:
        read = parse_rule(text, vocabulary if is_whole else own, words)
        return (
            read
            if is_whole or isinstance(read, RuleCode)
            else _parse_allowing_unknown(text, vocabulary, words)
        )

    return collect_rules(guidance.rules, guidance.labels, words, parse)


def collect_rules(
    rules: Sequence[Rule],
    labels: tuple[Verdict, ...],
    words: Words,
    parse: Callable[[str], RuleCode | OutOfReach],
) -> CodedRules:
    """Collect the rules of a guidance that speak, each as ``parse`` reads it, and the verdict of
    tickets that none speaks of."""
    coded = [
        CodedRule(rule.key, rule.text, parse(rule.text), rule.is_provisional)
        for rule in speaking_rules(rules, words)
    ]
    default = next(
        (each for each, text in words.headlines.items() if rules[:1] and rules[0].text == text),
        labels[0],
    )
    return CodedRules(coded, tuple(sorted(labels, key=lambda label: label != default)), words)


def keep_named(guidance: Guidance, vocabulary: Vocabulary, words: Words) -> Guidance:
    """Return ``guidance`` with all that its rules speak of, so that they are read alike beside any
    tickets."""
    found: dict[tuple[str, str], None] = {}
    for code in (
        rule.code for rule in read_rules(guidance, vocabulary, words, is_whole=False).each
    ):
        for condition in code.expression.conditions() if isinstance(code, RuleCode) else ():
            found |= dict.fromkeys(condition.named)
            for name in condition.fields:
                numbers = [f"0 {unit}".rstrip() for unit in sorted(vocabulary.units.get(name, ()))]
                others = vocabulary.scales.get(name) or sorted(vocabulary.list_kinds(name)) or ("",)
                found |= dict.fromkeys((name, value) for value in (*numbers, *others))
    return replace(guidance, named=tuple(found))


def speaking_rules(rules: Sequence[Rule], words: Words) -> list[Rule]:
    """Return the ``rules`` that decide, and a headline that is not neutral, which says what happens
    where none of these speaks."""
    headline = [rule for rule in rules if rule.key == HEADLINE_KEY]
    neutral = words.headlines.values()
    return [
        *(rule for rule in headline if rule.text not in neutral and not rule.is_background),
        *find_deciding(rules),
    ]


def make_explainer(rules: CodedRules) -> Callable[[Ruling, Reading], str]:
    """Return a function that says why a ticket is judged so, in the language of the rules: the text
    of the rule that decides, or what the ticket has points for, the most first; where no rule
    speaks of it, its number of points. Without a verdict: the rules that it hangs on, and what the
    ticket does not say."""
    texts = {rule.key: rule.text for rule in rules.each}
    cards = make_counters(rules)
    grammar = rules.grammar

    def explain(ruling: Ruling, ticket: Reading) -> str:
        if ruling.verdict is None:
            hangs_on = (rule for rule in rules.each if rule.key in ruling.unknown)
            return grammar.part.join(
                f"{rule.key}: {_why_unknown(rule.code, ticket, grammar)}" for rule in hangs_on
            )
        if ruling.rule in cards:
            return grammar.colon.join(filter(None, cards[ruling.rule](ticket)))
        sums = (
            ""
            if ruling.rule in texts
            else grammar.part.join(count(ticket)[0] for count in cards.values())
        )
        return texts.get(ruling.rule) or grammar.silent + (sums.join(grammar.aside) if sums else "")

    return explain


def make_counters(rules: CodedRules) -> dict[str, Callable[[Reading], tuple[str, str]]]:
    """Make, for each rule with points, by key, a function that counts a ticket's points and says
    what they are for."""
    return {
        rule.key: _make_counter(code.verdict, card, rules.words)
        for rule in rules.each
        if isinstance(code := rule.code, RuleCode) and (card := code.expression.as_points)
    }


def _make_counter(
    verdict: Verdict, card: Points, words: Words
) -> Callable[[Reading], tuple[str, str]]:
    grammar = choose_grammar(words)
    parts = [(part, compile_expression(part[1])) for part in card.scored]

    def count(ticket: Reading) -> tuple[str, str]:
        met = sorted(
            (part for part, holds in parts if holds(ticket)), key=lambda part: -abs(part[0])
        )
        told = [(points, part.unlist()) for points, part in met[:MOST_TOLD]]
        said = [*replace(card, scored=join_words(told)).write_scored(grammar)]
        if others := [points for points, _ in met[MOST_TOLD:]]:
            said.append(grammar.others.format(total=sum(others), count=len(others)))
        total, spelled = card.start + sum(points for points, _ in met), words.verdicts[verdict]
        tally = grammar.tally.format(
            total=total, s="s" * (total != 1), verdict=spelled, least=card.limit
        )
        return tally, grammar.part.join(said)

    return count


def _parse_allowing_unknown(
    text: str, vocabulary: Vocabulary, words: Words
) -> RuleCode | OutOfReach:
    """Read a rule where tickets may lack its values. In a list, a value may be a part of a longer
    one, so there is no one way to read it."""
    read = first = parse_rule(text, vocabulary, words)
    added: set[tuple[str, str]] = set()
    while isinstance(read, OutOfReach) and read.value:
        added.add((read.field, read.value))
        vocabulary = vocabulary.with_value(read.field, read.value)
        read = parse_rule(text, vocabulary, words)
    if isinstance(read, OutOfReach):
        return first
    lists = [each for each in read.expression.conditions() if each.needed and len(each.named) > 1]
    return first if any(not added.isdisjoint(each.named) for each in lists) else read


def _why_unknown(code: RuleCode | OutOfReach, reading: Reading, grammar: Grammar) -> str:
    if isinstance(code, OutOfReach):
        return f"cannot be read as code: {code.why}"
    named = code.expression.fields
    missing = [name for name in named if name not in reading.pairs]
    return (grammar.untold if missing else grammar.incomparable).format(
        names=grammar.comma.join(missing or named)
    )


def _compile_rule(rule: CodedRule, labels: tuple[Verdict, ...]) -> CompiledRule:
    if isinstance(rule.code, OutOfReach):
        return CompiledRule(rule.key, rule.text, labels, unreadable)
    return CompiledRule(
        rule.key, rule.text, (rule.code.verdict,), compile_expression(rule.code.expression)
    )


def find_touched(
    before: Guidance, after: Guidance, vocabulary: Vocabulary, words: Words
) -> Callable[[Reading], bool]:
    """Return a function that says, by a ticket's reading, whether it may be judged otherwise
    ``after`` than ``before``.

    Rules are told apart by key and text, since reasons name keys. A rule that code cannot read may
    touch every ticket; any other rule may touch those for which it is unknown whether it holds.
    """

    def list_silent(guidance: Guidance) -> list[tuple[str, str]]:
        return [
            (rule.key, rule.text)
            for rule in guidance.rules
            if rule.is_background or rule.key == HEADLINE_KEY
        ]

    said, said_after = (
        {(rule.key, rule.text, rule.code) for rule in read_rules(each, vocabulary, words).each}
        for each in (before, after)
    )
    codes = [code for _, _, code in said ^ said_after]
    predicates = [
        compile_expression(code.expression) for code in codes if not isinstance(code, OutOfReach)
    ]
    if len(predicates) < len(codes) or list_silent(before) != list_silent(after):
        return lambda _: True
    return lambda ticket: any(holds(ticket) is not False for holds in predicates)


# Rules that name what no ticket has are refused when they are proposed. Where a run starts from
# them, an unknown field is refused, too; the run warns of an unknown value or word, which the next
# ticket may have.


def check_proposal(proposal: Proposal, vocabulary: Vocabulary, words: Words) -> Proposal:
    """Return ``proposal`` without the operations whose text names a field, value or word that no
    ticket has. A text that says something twice is made to say it once, and one that ranks values
    to list them: other tickets might rank them otherwise."""
    kept: list[Operation] = []
    refused: list[Refusal] = []
    for operation in proposal.operations:
        read = parse_rule(operation.text, vocabulary, words) if operation.text else None
        if isinstance(read, OutOfReach):
            if why := _why_unheard_of(read, vocabulary):
                refused.append(Refusal(operation.text, why))
                continue
        elif read and read.is_loose:
            operation = replace(operation, text=write_rule(read, words))
        kept.append(operation)
    return replace(proposal, operations=tuple(kept), refusals=(*proposal.refusals, *refused))


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A rule that names what no ticket has."""

    mission: str
    rule: str  # its key
    why: str  # with the nearest name that tickets have
    # whether it is a field, which further tickets will not have either; else a value or a word
    is_field: bool

    def __str__(self) -> str:
        return f"rule {self.rule} of mission {self.mission!r}: {self.why}"


def find_unknown(guidance: Guidance, vocabulary: Vocabulary, words: Words) -> Iterator[UnknownName]:
    """Find the rules of ``guidance`` that name a field, value or word that no ticket has."""
    for rule in read_rules(guidance, vocabulary, words).each:
        if (
            rule.key != HEADLINE_KEY
            and isinstance(rule.code, OutOfReach)
            and (why := _why_unheard_of(rule.code, vocabulary))
        ):
            yield UnknownName(guidance.mission, rule.key, why, rule.code.unknown == "field")


def _why_unheard_of(fault: OutOfReach, vocabulary: Vocabulary) -> str:
    """Say which name of the rule is unknown; empty where it may be free wording: for tickets
    without fields, anything but words may be."""
    return fault.why if fault.unknown == "word" or (fault.unknown and vocabulary.is_tabular) else ""
