"""Reads a rule's text as an expression: exactly, by a mission's own names and values, or says that
it is out of reach.

    rule       = Verdict "if" some ["unless" some] | Verdict "unless" some
    some       = all {"or" all}
    all        = atom {"and" atom}
    atom       = NAME "is" ["not"] VALUE {"," VALUE} ["or" VALUE]
               | NAME "is" ["not"] ("above" | "below") (NUMBER | NAME)
                 and what says the same, as "is at least"
               | NAME "is" ["not"] ("above" | "below") VALUE
                 of a field whose values have an order (``vocabulary.py``)
               | NAME "is above" NUMBER "and below" NUMBER
               | NAME "is" ["not"] "missing"      unless that is a value of it
               | NAME ("equals" | "differs from") NAME
               | COMPUTED "is" ["not"] ("above" | "below") (NUMBER | COMPUTED)
               | TEXT ("mentions" | "does not mention") (WORD {"," WORD} ["or" WORD] | "a" LISTED)
                 leak*: what begins so
               | "at" ("least" | "most") COUNT "of (" atom {";" atom} ")"      of different atoms
               | "it has" INTEGER "points or more:" [INTEGER "to begin with;"] scored {";" scored}
                 the whole of a condition
    scored     = INTEGER "if" all
               | INTEGER "for each" ("of" WORD {"," WORD} | LISTED) "that" TEXT "mentions"
    TEXT       = NAME | "a summary"      which is any text of the ticket
    LISTED     = '"' NAME '" word'      of a word list (``word_lists.py``)
    COMPUTED   = NAME ("+" | "-" | "×" | "/") NAME

Names and values may hold these words themselves, so a text is cut into pieces wherever it may be,
and each piece is looked up. Of all cuts into atoms that the tickets know, the one with most atoms
counts. If two have equally many, the text can be read in two ways, and code does not judge by it.
An atom is read as a condition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import NamedTuple, TypeAlias, TypeVar

from stageb.guidance.rules.conditions import (
    KINDS,
    All,
    AtLeast,
    Expression,
    Missing,
    OutOfReach,
    Points,
    Some,
    conjoin,
    negate,
)
from stageb.guidance.rules.conditions.base import TWO_WAYS, Read
from stageb.guidance.rules.conditions.logic import join_values
from stageb.guidance.rules.conditions.words import read_words
from stageb.guidance.rules.paths import PhraseReader
from stageb.guidance.rules.prompts import Words, choose_grammar
from stageb.guidance.rules.value_types import OPERATORS, Computed
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.wordings import Grammar, compile_form
from stageb.guidance.words.types import Verdict
from stageb.untrusted.clean_text import fold_value

LONGEST = 4000  # characters in a rule that is read, at most
PIECES = 24  # pieces between "and" and "or" in a rule, at most
_OPERATOR = re.compile(rf" ([{re.escape(''.join(OPERATORS))}]) ")


@dataclass(frozen=True, slots=True)
class RuleCode:
    """A rule as code: its verdict for tickets for which ``condition`` holds."""

    verdict: Verdict
    condition: Expression | None  # "if" this holds; None: always
    exception: Expression | None = None  # "unless" this holds
    # whether the text says something twice, or ranks values where a list of them would do
    is_loose: bool = False

    @property
    def expression(self) -> Expression:
        """The condition, less its exception."""
        parts = [self.condition] if self.condition else []
        parts += [negate(self.exception)] if self.exception else []
        return conjoin(parts)


NO_RULE = OutOfReach("it does not begin with a verdict and 'if' or 'unless'")

T = TypeVar("T")
# the conditions that a text is cut into, each with whether "and" stands before it
_Pieces: TypeAlias = list[tuple[Expression, bool]]


class _Joint(NamedTuple):
    """An "and" or "or" at which a text may be cut."""

    start: int
    end: int
    is_and: bool


_TEXT_START = _Joint(0, 0, True)  # where the first piece begins


def parse_rule(text: str, vocabulary: Vocabulary, words: Words) -> RuleCode | OutOfReach:
    """Read what ``text`` says about tickets like those of ``vocabulary``, in the language and
    verdict words of ``words``."""
    grammar = choose_grammar(words)
    text = " ".join(text.split()).removesuffix(grammar.end)
    folded, begins = text.casefold(), (*grammar.if_, grammar.unless[0])
    spelled = {
        verdict: word
        for verdict, word in words.verdicts.items()
        if folded.startswith(word.casefold())
    }
    verdict = next(
        (verdict for verdict, word in spelled.items() if text.startswith(begins, len(word))), None
    )
    if verdict is None:
        return NO_RULE
    if len(text) > LONGEST:
        return OutOfReach(f"it has more than {LONGEST:,} characters")
    rest, reader = text[len(words.verdicts[verdict]) :], RuleReader(grammar, vocabulary)
    if rest.startswith(grammar.unless[0]):
        cuts = [("", rest.removeprefix(grammar.unless[0]))]
    else:
        opening = next(mark for mark in grammar.if_ if rest.startswith(mark))
        cuts = list(_cuts(rest.removeprefix(opening), grammar.unless[1]))
    codes, faults = [], [NO_RULE]
    for cut in filter(any, cuts):  # a rule without a condition would speak of all tickets
        halves = [reader.read(half) if half else None for half in cut]
        faults += [half for half in halves if isinstance(half, OutOfReach)]
        condition, exception = (None if isinstance(half, OutOfReach) else half for half in halves)
        if not any(isinstance(half, OutOfReach) for half in halves):
            codes.append(RuleCode(verdict, condition, exception, reader.is_loose))
    return codes[0] if len(codes) == 1 else TWO_WAYS if codes else faults[-1].with_hint()


def _cuts(text: str, mark: str) -> Iterator[tuple[str, str]]:
    """Yield ``text`` as a whole, and cut in two at each ``mark``."""
    yield text, ""
    for found in re.finditer(re.escape(mark), text):
        yield text[: found.start()], text[found.end() :]


class RuleReader:
    """Reads conditions, given all that tickets hold."""

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary) -> None:
        self.grammar, self.vocabulary = grammar, vocabulary
        self.is_loose = False  # as ``RuleCode`` has it
        comma = re.escape(grammar.comma)
        either = f"(?:{re.escape(grammar.or_)}|{re.escape(grammar.nor)})"
        after_comma = f"(?:{re.escape(grammar.or_.lstrip())}|{re.escape(grammar.nor.lstrip())})"
        # stands between values or words that are listed
        self.separator = re.compile(f"{comma}{after_comma}|{comma}|{either}")
        self.parting = re.compile(
            "|".join((self.separator.pattern, *map(re.escape, (grammar.and_, *grammar.unless))))
        )
        self.of_list = re.compile("{}(.+?){}".format(*map(re.escape, grammar.of_list)))
        self.lists, self.read_computed = cache(self._read_lists), cache(self._read_computed)
        self._phrases = PhraseReader(vocabulary, grammar)
        self.look_up = self._phrases.find_field  # a field, or None
        self._subject = cache(lambda text: self.look_up(text) or self._read_computed(text))
        self._condition = cache(self._read_condition)
        marks = [
            (mark, kind, meaning)
            for kind in KINDS
            for mark, meaning in kind.marks.get(grammar.language, {}).items()
        ]
        self._marks = [
            (re.compile(re.escape(mark)), *said)
            for mark, *said in sorted(marks, key=lambda each: -len(each[0]))
        ]
        counted = {"count": r"\d{1,2}", "parts": f".+{re.escape(grammar.part)}.+"}
        self._counts = {
            compile_form(form, **counted): is_denied for form, is_denied in grammar.counts.items()
        }
        self._exactly = compile_form(grammar.exactly, **counted)
        self._points = compile_form(
            grammar.points + "{parts}", least=r"-?\d{1,3}", s="s?", parts=".+"
        )
        self._start = compile_form(grammar.start, points=r"\d{1,3}")
        self._scored = re.compile(rf"(-?\d{{1,2}})({re.escape(grammar.scored)})?(.+)")
        forms = {grammar.each_of_list: grammar.of_list, grammar.each_word: ("", "")}
        self._each = {
            compile_form(form, words=".+", name=".*?"): around for form, around in forms.items()
        }

    def read(self, text: str) -> Read:
        """Read a condition, or say why it is out of reach."""
        if scored := self._points.fullmatch(text):
            return self._read_points(int(scored["least"]), scored["parts"])
        marks = re.compile(f"{re.escape(self.grammar.and_)}|{re.escape(self.grammar.or_)}")
        joints = [
            _Joint(match.start(), match.end(), match[0] == self.grammar.and_)
            for match in marks.finditer(text)
        ]
        if len(joints) >= PIECES:
            return OutOfReach(f"it has more than {PIECES} parts")
        best = self._best_cuts(text, joints)
        if len(best) != 1:
            return TWO_WAYS if best else self._why_not(text, joints)
        disjuncts: list[list[Expression]] = []
        for expression, is_and in best[0]:
            if not is_and or not disjuncts:
                disjuncts.append([])
            disjuncts[-1].append(expression)
        wholes = self.drop_repeats([conjoin(self.drop_repeats(parts)) for parts in disjuncts])
        listed = join_values(wholes)
        self.is_loose |= listed != wholes
        return listed[0] if len(listed) == 1 else Some(listed)

    def drop_repeats(self, items: Sequence[T]) -> tuple[T, ...]:
        """Return each item once, in order, and note that the text was loose if there were
        repeats."""
        kept = tuple(dict.fromkeys(items))
        self.is_loose |= len(kept) < len(items)
        return kept

    def find_subject(self, name: str) -> str | Computed | OutOfReach:
        """Find the field of this name, or the number computed from two; or say why it is
        neither."""
        unknown = OutOfReach(
            f"no ticket has {name!r}",
            "field",
            name,
            nearest=partial(self.vocabulary.nearest_name, name),
        )
        return self._subject(name) or unknown

    def find_field(self, name: str) -> str | OutOfReach:
        """Find the field of this name; or say why it is none."""
        found = self.find_subject(name)
        return (
            OutOfReach(f"{str(found)!r} is compared by above or below alone")
            if isinstance(found, Computed)
            else found
        )

    def conjoin(self, sides: Sequence[Read]) -> Read:
        """Join all sides; or say why some cannot be read."""
        right = [side for side in sides if not isinstance(side, OutOfReach)]
        return (
            conjoin(right)
            if len(right) == len(sides)
            else _worst([side for side in sides if isinstance(side, OutOfReach)])
        )

    # Inside

    def _best_cuts(self, text: str, joints: Sequence[_Joint]) -> list[_Pieces]:
        """The ways to cut the text into the most conditions. At most two are kept: a second one is
        enough to show that the text is ambiguous."""
        ends = [*(joint.start for joint in joints), len(text)]
        best: list[list[_Pieces]] = []  # for the text before each end
        for last, end in enumerate(ends):
            cuts: list[_Pieces] = []
            for first in range(last + 1):
                joint = joints[first - 1] if first else _TEXT_START
                expression = self._condition(text[joint.end : end])
                if not isinstance(expression, OutOfReach):
                    before: list[_Pieces] = best[first - 1] if first else [[]]
                    cuts += [[*cut, (expression, joint.is_and)] for cut in before]
            most = max(map(len, cuts), default=0)
            best.append([cut for cut in cuts if len(cut) == most][:2])
        return best[-1]

    def _why_not(self, text: str, joints: Sequence[_Joint]) -> OutOfReach:
        """Find the fault: the first piece that no condition can be made from, alone or joined to
        neighbours."""
        begins = [0, *(joint.end for joint in joints)]
        ends = [*(joint.start for joint in joints), len(text)]
        for piece in range(len(ends)):
            around = [(i, piece) for i in range(piece + 1)] + [
                (piece, i) for i in range(piece, len(ends))
            ]
            tried = [self._condition(text[begins[first] : ends[last]]) for first, last in around]
            wrong = [each for each in tried if isinstance(each, OutOfReach)]
            if len(wrong) == len(tried):
                alone = self._condition(text[begins[piece] : ends[piece]])
                return alone if isinstance(alone, OutOfReach) and alone.unknown else _worst(wrong)
        return OutOfReach("it does not come apart into comparisons")

    def _read_condition(self, text: str) -> Read:
        """Read one condition, if the tickets know all that it names."""
        for form, is_denied in self._counts.items():
            if counted := form.fullmatch(text):
                return self._read_count(int(counted["count"]), counted["parts"], is_denied)
        if counted := self._exactly.fullmatch(text):
            return self.conjoin(
                [
                    self._read_count(int(counted["count"]), counted["parts"], no)
                    for no in (False, True)
                ]
            )
        tried = [*self._read_given(text)]
        tried += [each for kind in KINDS for each in kind.read_whole(text, self)]
        tried += [
            kind.read(text[: found.start()], meaning, text[found.end() :], self)
            for mark, kind, meaning in self._marks
            for found in mark.finditer(text)
        ]
        tried += self._phrases.read(text)
        right = list(dict.fromkeys(each for each in tried if not isinstance(each, OutOfReach)))
        if len(right) == 1:
            return right[0]
        return (
            TWO_WAYS if right else _worst([each for each in tried if isinstance(each, OutOfReach)])
        )

    def _read_given(self, text: str) -> Iterator[Read]:
        """Read what is said about a field that is to be present."""
        for mark in re.finditer(re.escape(self.grammar.given), text):
            name = text[: mark.start()]
            said = self._condition(name + text[mark.end() :])
            if isinstance(said, OutOfReach):
                yield said
            elif (field := self.vocabulary.field(name)) and said.fields == (field,):
                yield All((negate(Missing(field)), *said.conjuncts))

    def _read_count(self, count: int, text: str, is_denied: bool) -> Read:
        least = count + is_denied  # at most two: not at least three
        parts = [self._condition(part) for part in text.split(self.grammar.part)]
        if wrong := [part for part in parts if isinstance(part, OutOfReach)]:
            return wrong[0]
        right = [part for part in parts if not isinstance(part, OutOfReach)]
        if len({*right}) < len(right):
            return OutOfReach("it counts a condition twice")
        if not 1 <= least <= len(right):
            return OutOfReach(f"it counts {count} of {len(right)} conditions")
        return negate(AtLeast(least, tuple(right))) if is_denied else AtLeast(least, tuple(right))

    def _read_points(self, least: int, text: str) -> Read:
        parts: list[tuple[int, Expression]] = []
        first, *others = text.split(self.grammar.part)
        if start := self._start.fullmatch(first) if others else None:
            least -= int(start["points"])
        for piece in others if start else (first, *others):
            if not (scored := self._scored.fullmatch(piece)):
                return OutOfReach(f"{piece!r} does not say what has points")
            part = self.read(scored[3]) if scored[2] else self._read_each(scored[3])
            if isinstance(part, OutOfReach):
                return part
            if not part.may_have_points:
                return OutOfReach(
                    f"{piece!r} gives points for more than conditions that hold together"
                )
            parts += [(int(scored[1]), one) for one in ([part] if scored[2] else part.split())]
        return Points(least, tuple(parts))

    def _read_each(self, text: str) -> Read:
        """Read several words that have points each, as one condition."""
        for form, around in self._each.items():
            if found := form.fullmatch(text):
                return read_words(found["name"], found["words"].join(around), self)
        return OutOfReach(f"{text!r} does not say what has points")

    def _read_computed(self, text: str) -> Computed | None:
        """Read ``A × B``, where both are fields that have numbers; None if it is something else, or
        may be cut in two ways."""
        found = [
            (
                self.vocabulary.field(text[: mark.start()]),
                mark[1],
                self.vocabulary.field(text[mark.end() :]),
            )
            for mark in _OPERATOR.finditer(text)
        ]
        numeric = [
            Computed(a, mark, b)
            for a, mark, b in found
            if a and b and {a, b} <= self.vocabulary.units.keys()
        ]
        return numeric[0] if len(numeric) == 1 else None

    def _read_lists(self, field: str, listed: str) -> list[tuple[str, ...]]:
        """Read "a, b or c" as a list of values of the field, which may hold these marks themselves:
        at most two ways."""
        known = self.vocabulary.values[field]
        ways: list[tuple[str, ...]] = [(listed,)] if fold_value(listed) in known else []
        for mark in islice(self.separator.finditer(listed), PIECES):
            first = listed[: mark.start()]
            if fold_value(first) in known:
                ways += [(first, *rest) for rest in self.lists(field, listed[mark.end() :])]
        return ways[:2]


def _worst(faults: Sequence[OutOfReach]) -> OutOfReach:
    """Choose among the faults of several readings: an unknown name rather than a wording, or else
    the first."""
    unknown = (fault for fault in faults if fault.unknown)
    return next(unknown, faults[0] if faults else OutOfReach("it compares no fields"))
