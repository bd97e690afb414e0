"""Writes what was learnt at once as texts: a rule for each line or card, as it is read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain

from stageb.guidance.learning.material import DecisionList, RuleSet
from stageb.guidance.learning.scorecards import Scorecard
from stageb.guidance.learning.terms import Conjunction, is_guard
from stageb.guidance.rules.conditions import All, Expression, Mentions, OutOfReach, Points, conjoin
from stageb.guidance.rules.conditions.logic import join_words
from stageb.guidance.rules.judge import begin_rule, write_rule
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.paths import call_counts
from stageb.guidance.rules.prompts import Words, choose_grammar
from stageb.guidance.rules.value_types import ANY
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.word_lists import WordList, write_word_list
from stageb.guidance.words.types import Verdict


@dataclass(frozen=True, slots=True)
class WrittenRule:
    """The text of one rule, and the lines that it says, one of which holds. A word list has the
    lines of the rule that names it; a scorecard and its lists have none."""

    text: str
    lines: tuple[Conjunction, ...]
    verdict: Verdict  # of the tickets for which the rule holds


NAMED = 4  # words in a rule from which on they become a list
# words that tell something of a ticket, but make no good name for a list
FUNCTION_WORDS = frozenset(
    (
        "after again against around back before down during ever every few first last least less "
        "many more most much never new next no not now off often one only other out over same "
        "second since some still two under up very while within without"
    ).split()
)

_Code = tuple[Expression, tuple[Conjunction, ...]]
_Named = tuple[WordList, tuple[Conjunction, ...]]  # a list, and the lines of the rule that names it


def write_rule_set(rule_set: RuleSet, vocabulary: Vocabulary, words: Words) -> list[WrittenRule]:
    """Write the rules of what was learnt, those of a verdict the shortest first, behind all word
    lists that they name. Rules that would not be read back as meant are left out: a value may look
    like two. ``vocabulary`` has the lists that exist already."""
    grammar, named, rules = choose_grammar(words), list[WrittenRule](), list[WrittenRule]()
    for card in rule_set.cards:
        for lines in card.lists:
            each = _name_list(lines, vocabulary.lists.keys())
            vocabulary = _know(vocabulary, [each])
            named.append(WrittenRule(write_word_list(each, grammar), (), card.verdict))
    for part in rule_set.parts:
        lists, written = _write_rules(part, vocabulary, words)
        vocabulary = _know(vocabulary, (each for each, _ in lists))
        named += [
            WrittenRule(write_word_list(each, grammar), of_rule, part.verdict)
            for each, of_rule in lists
        ]
        rules += written
    return [*named, *rules]


def _know(vocabulary: Vocabulary, lists: Iterable[WordList]) -> Vocabulary:
    """Return the vocabulary with these lists added."""
    return replace(
        vocabulary, lists={**vocabulary.lists, **{each.name: each.words for each in lists}}
    )


def _name_list(lines: Sequence[Conjunction], taken: Set[str]) -> WordList:
    """Name the words of a list by the surest one that names no list yet, and sort them, as they are
    read."""
    words = [line[0].word for line in lines]
    return WordList(_choose_name(words, taken), tuple(sorted(words)))


def _choose_name(words: Sequence[str], taken: Set[str]) -> str:
    """Choose the first of the words that names no list yet, one that says something by itself if
    there is any."""
    free = [word for word in words if word not in taken]
    return next(chain(filter(_says_something, free), free), f"{words[0]} {len(taken)}")


def _says_something(word: str) -> bool:
    """Whether the word is more than a number, a word that holds others together, or two letters of
    a script in which these are hardly a word."""
    is_word = not any(map(str.isdigit, word)) and (len(word) > 2 or not word.isascii())
    return is_word and word not in FUNCTION_WORDS


def _name_words(codes: Sequence[_Code], taken: Set[str]) -> tuple[list[_Code], list[_Named]]:
    """Put a name in the place of many words in the codes, and return these with the lists. Names
    that are ``taken`` are not used."""
    named: list[_Code] = []
    found: list[_Named] = []
    for expression, lines in codes:
        parts = [*expression.conjuncts]
        for place, part in enumerate(parts):
            if len(listed := part.listable) >= NAMED:
                name = _choose_name(
                    [word.removesuffix(ANY) for word in listed],
                    {*taken, *(each.name for each, _ in found)},
                )
                parts[place] = part.enlist(name)
                found.append((WordList(name, listed), lines))
        named.append((conjoin(parts), lines))
    return named, found


def _write_rules(
    part: DecisionList | Scorecard, vocabulary: Vocabulary, words: Words
) -> tuple[list[_Named], list[WrittenRule]]:
    """Write the rules of one verdict, and the lists that they alone name."""
    (opening, end), grammar = begin_rule(part.verdict, words), choose_grammar(words)

    def is_readable(line: Conjunction) -> bool:
        """Whether each of its conditions is read back as meant."""
        each = [literal.affirmed for literal in line]
        read = [
            parse_rule(f"{opening}{atom.write(grammar)}{end}", vocabulary, words) for atom in each
        ]
        return [code.condition if isinstance(code, RuleCode) else None for code in read] == each

    if isinstance(part, Scorecard):
        codes: list[_Code] = [(card, ()) for card in _write_card(part, vocabulary, is_readable)]
    else:
        codes = join_codes(
            [(_join_literals(line), (line,)) for line in part.lines if is_readable(line)]
        )
    codes, named = _name_words(codes, vocabulary.lists.keys())
    vocabulary = _know(vocabulary, (each for each, _ in named))
    rules = [(RuleCode(part.verdict, expression), lines) for expression, lines in codes]
    called = call_counts(vocabulary, grammar)
    texts = [(write_rule(code, words, called), code, lines) for code, lines in rules]
    written = [
        WrittenRule(text, lines, part.verdict)
        for text, code, lines in sorted(texts, key=lambda each: len(each[1].expression.conjuncts))
        if _is_same(parse_rule(text, vocabulary, words), code)
    ]
    return [
        (each, lines) for each, lines in named if any(rule.lines == lines for rule in written)
    ], written


def join_codes(codes: Sequence[_Code]) -> list[_Code]:
    """Write the same in fewer rules: two that differ in the values of one field alone, or in one
    word, are one that has both."""
    joined: list[_Code] = []
    for expression, lines in codes:
        for place, (before, others) in enumerate(joined):
            if both := _join(before, expression):
                del joined[place]
                # The joined rule may fit one that neither part fitted.
                joined = join_codes([*joined, (both, (*others, *lines))])
                break
        else:
            joined.append((expression, lines))
    return joined


# Inside -------------------------------------------------------------------------------------------


def _join(one: Expression, other: Expression) -> Expression | None:
    """Join two lines that differ in one condition on values of a field, or on words."""
    first, second = one.conjuncts, other.conjuncts
    mine, theirs = (
        [part for part in some if part not in rest]
        for some, rest in ((first, second), (second, first))
    )
    if not (len(first) == len(second) and len(mine) == len(theirs) == 1):
        return None
    if not (both := mine[0].join(theirs[0])):
        return None
    return conjoin([both.simplify() if part is mine[0] else part for part in first])


def _is_same(read: RuleCode | OutOfReach, code: RuleCode) -> bool:
    return isinstance(read, RuleCode) and (read.verdict, read.expression) == (
        code.verdict,
        code.expression,
    )


def _write_card(
    card: Scorecard, vocabulary: Vocabulary, is_readable: Callable[[Conjunction], bool]
) -> Iterator[Points]:
    """Write a card as the condition of one rule, or of none."""
    names = {words: name for name, words in vocabulary.lists.items()}
    scored: list[tuple[int, Expression]] = []
    for lines in card.lists:
        words, column = tuple(sorted(line[0].word for line in lines)), "".join(lines[0][0].fields)
        scored += [
            (card.points[lines[0]], Mentions((word,), column, names[words])) for word in words
        ]
    listed = {line for lines in card.lists for line in lines}
    scored += [
        (points, _join_literals(line))
        for line, points in card.points.items()
        if line not in listed and is_readable(line)
    ]
    if scored:
        yield Points(card.least, join_words(scored))


def _join_literals(line: Conjunction) -> Expression:
    """Join the literals of a line: "at least" before "at most" where it counts exactly, limits on
    one field side by side, and that a field is present right before what is said of it."""
    turned = All(line[::-1])
    return turned if turned.find_exact_count() else conjoin(_gather_guards(_gather_limits(line)))


def _gather_guards(line: Conjunction) -> Conjunction:
    """Move each guard before the first term that speaks of its field alone."""
    gathered = [term for term in line if not is_guard(term)]
    for guard in filter(is_guard, line):
        spoken = (place for place, term in enumerate(gathered) if term.fields == guard.fields)
        gathered.insert(next(spoken, 0), guard)
    return tuple(gathered)


def _gather_limits(line: Conjunction) -> Conjunction:
    """Move the upper limit on a field behind its lower one, to the place of the first of the
    two."""
    gathered: list[Expression] = []
    for term in conjoin(line).conjuncts:
        limit, others = term.as_limit, [each.as_limit for each in gathered]
        low = [
            place + 1
            for place, other in enumerate(others)
            if limit and other and other.is_below(limit)
        ]
        high = [
            place for place, other in enumerate(others) if limit and other and limit.is_below(other)
        ]
        place = next(iter([*low, *high]), len(gathered))
        gathered.insert(place, term)
    return tuple(gathered)
