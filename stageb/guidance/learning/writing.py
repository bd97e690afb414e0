"""The texts of what was learnt at once: a rule for each line or card, as it is read back."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace

from stageb.guidance.learning.material import Whole
from stageb.guidance.learning.scorecards import Scorecard
from stageb.guidance.learning.terms import Line
from stageb.guidance.rules.evidence_forms import Condition
from stageb.guidance.rules.expression import All, Atom, Expression, Points, find_exact_count, join_words, negate
from stageb.guidance.rules.judge import begin_rule, write_rule
from stageb.guidance.rules.parse import OutOfReach, RuleCode, parse_rule
from stageb.guidance.rules.paths import call_counts
from stageb.guidance.rules.prompts import Words, choose_grammar, clue_text
from stageb.guidance.rules.value_types import ANY
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.word_lists import WordList, write_word_list
from stageb.guidance.words.types import Verdict

Read = Callable[[Condition], Expression | None]


@dataclass(frozen=True, slots=True)
class WrittenRule:
    """The text of one rule, and the lines that it says, one of which holds; none for a scorecard and for a word list."""

    text: str
    lines: tuple[Line, ...]
    verdict: Verdict  # of the tickets for which the rule holds


_Code = tuple[Expression, tuple[Line, ...]]


def write_whole(whole: Whole, vocabulary: Vocabulary, words: Words) -> list[WrittenRule]:
    """The rules of what was learnt, those of a verdict the shortest first, behind all word lists that they name, without
    those that would not be read back as meant: a value may look like two. ``vocabulary`` has the lists that are there."""
    lists: dict[str, WordList] = {}
    named: list[WrittenRule] = []
    for card_of in (whole, *whole.lists):
        for lines in card_of.card.lists if card_of.card else ():
            each = _name_list(lines, {*lists, *vocabulary.lists})
            lists[each.name] = each
            named.append(WrittenRule(write_word_list(each, choose_grammar(words)), (), card_of.verdict))
    vocabulary = replace(vocabulary, lists={**vocabulary.lists, **{each.name: each.words for each in lists.values()}})
    return [*named, *(rule for each in whole.lists or (whole,) for rule in _write_rules(each, vocabulary, words))]


def _name_list(lines: Sequence[Line], taken: Set[str]) -> WordList:
    """The words of a list, named by the most telling one that names none yet; as they are read, in alphabetical order."""
    words = [line[0].condition.value for line in lines]
    name = next((word for word in words if word not in taken), f"{words[0]} {len(taken)}")
    return WordList(name, tuple(sorted(words)))


def _write_rules(whole: Whole, vocabulary: Vocabulary, words: Words) -> list[WrittenRule]:
    """The rules of one verdict, or of one label."""

    def read(condition: Condition) -> Expression | None:
        opening, end = begin_rule([*words.verdicts][-1], words)
        code = parse_rule(f"{opening}{clue_text((condition,), words)}{end}", vocabulary, words)
        return None if isinstance(code, OutOfReach) else code.condition

    codes = _card_codes(whole.card, vocabulary, read) if whole.card else join_codes(_line_codes(whole.lines, read))
    rules = [(RuleCode(whole.verdict, expression), lines) for expression, lines in codes]
    called = call_counts(vocabulary, choose_grammar(words))
    texts = [(write_rule(code, words, called), code, lines) for code, lines in rules]
    return [
        WrittenRule(text, lines, whole.verdict)
        for text, code, lines in sorted(texts, key=lambda each: _count_parts(each[1].expression))
        if _is_same(parse_rule(text, vocabulary, words), code)
    ]


def join_codes(codes: Sequence[_Code]) -> list[_Code]:
    """The same in fewer rules: two that differ in the values of one field alone, or in one word, are one that has both."""
    joined: list[_Code] = []
    for expression, lines in codes:
        for place, (before, others) in enumerate(joined):
            if both := _join(before, expression):
                del joined[place]
                # What is joined may fit what could not be joined before.
                joined = join_codes([*joined, (both, (*others, *lines))])
                break
        else:
            joined.append((expression, lines))
    return joined


# Inside ------------------------------------------------------------------------------------------------------------------


def _join(one: Expression, other: Expression) -> Expression | None:
    """What holds where either does, where they differ in one condition on values of a field, or on words."""
    first, second = _parts(one), _parts(other)
    mine, theirs = ([part for part in some if part not in rest] for some, rest in ((first, second), (second, first)))
    if not (len(first) == len(second) and len(mine) == len(theirs) == 1):
        return None
    left, right = mine[0], theirs[0]
    if not (isinstance(left, Atom) and isinstance(right, Atom) and left.relation == right.relation):
        return None
    if left.relation not in ("is", "mentions") or (left.name, left.word_list) != (right.name, right.word_list):
        return None
    values = tuple(dict.fromkeys((*left.values, *right.values)))
    both = replace(left, values=_drop_implied(values) if left.relation == "mentions" else values)
    parts = tuple(both if part is left else part for part in first)
    return parts[0] if len(parts) == 1 else All(parts)


def _drop_implied(words: Sequence[str]) -> tuple[str, ...]:
    """The words, stems and phrases in alphabetical order, without those that others imply."""
    stems = {word.removesuffix(ANY) for word in words if word.endswith(ANY)}
    single = {word for word in words if " " not in word}

    def is_implied(word: str) -> bool:
        if word.endswith(ANY):
            return word[:-1].startswith(tuple(stems - {word[:-1]}))
        return any(each.startswith(tuple(stems)) or (each in single and each != word) for each in word.split())

    return tuple(sorted(word for word in words if not is_implied(word)))


def _parts(expression: Expression) -> tuple[Expression, ...]:
    return expression.parts if isinstance(expression, All) else (expression,)


def _count_parts(expression: Expression) -> int:
    return len(_parts(expression))


def _is_same(read: RuleCode | OutOfReach, code: RuleCode) -> bool:
    return isinstance(read, RuleCode) and (read.verdict, read.expression) == (code.verdict, code.expression)


def _card_codes(card: Scorecard, vocabulary: Vocabulary, read: Read) -> list[_Code]:
    """A card as one rule, or as none."""
    names = {words: name for name, words in vocabulary.lists.items()}
    parts: list[tuple[int, Expression]] = []
    for lines in card.lists:
        words, column = tuple(sorted(line[0].condition.value for line in lines)), lines[0][0].condition.name
        parts += [(card.points[lines[0]], Atom("mentions", column, (word,), names[words])) for word in words]
    listed = {line for lines in card.lists for line in lines}
    others = [(points, line) for line, points in card.points.items() if line not in listed]
    parts += [(points, meant) for points, line in others if (meant := _meant(line, read))]
    return [(Points(card.least, join_words(parts)), ())] if parts else []


def _line_codes(lines: Sequence[Line], read: Read) -> list[_Code]:
    """A rule for each line that can be read."""
    return [(meant, (line,)) for line in lines if (meant := _meant(line, read))]


def _meant(line: Line, read: Read) -> Expression | None:
    """What a line says; None where one of its conditions cannot be read."""
    parts = []
    for term in line:
        part = read(term.condition)
        if part is None:
            return None
        parts.append(negate(part) if term.is_denied else part)
    if len(parts) == 2 and find_exact_count(All((parts[1], parts[0]))):
        parts.reverse()
    return parts[0] if len(parts) == 1 else All(tuple(parts))
