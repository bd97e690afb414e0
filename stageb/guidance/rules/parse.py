"""A rule's text as an expression: exactly, by a mission's own names and values, or said to be out of reach.

    rule       = Verdict "if" some ["unless" some] | Verdict "unless" some
    some       = all {"or" all}
    all        = atom {"and" atom}
    atom       = NAME "is" ["not"] VALUE {"," VALUE} ["or" VALUE]
               | NAME "is" ["not"] ("above" | "below") (NUMBER | NAME)      and what says the same, as "is at least"
               | NAME "is" ["not"] ("above" | "below") VALUE      of a field whose values have an order (``vocabulary.py``)
               | NAME "is above" NUMBER "and below" NUMBER | NAME "is" ["not"] "missing"      unless that is a value of it
               | NAME ("equals" | "differs from") NAME
               | COMPUTED "is" ["not"] ("above" | "below") (NUMBER | COMPUTED)
               | TEXT ("mentions" | "does not mention") (WORD {"," WORD} ["or" WORD] | "a" LISTED)      leak*: what begins so
               | "at" ("least" | "most") COUNT "of (" atom {";" atom} ")"      of different atoms
               | "it has" INTEGER "points or more:" scored {";" scored}      the whole of a condition
    scored     = INTEGER "if" all | INTEGER "for each" ("of" WORD {"," WORD} | LISTED) "that" TEXT "mentions"
    TEXT       = NAME | "a summary"      which is any text of the ticket
    LISTED     = '"' NAME '" word'      of a word list (``word_lists.py``)
    COMPUTED   = NAME ("+" | "-" | "×" | "/") NAME

Names and values may hold these words themselves, so a text is cut wherever it may be, and what is cut is looked up: of all
cuts into atoms that the tickets know, the one of most atoms counts, and of two such ones neither: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from typing import Literal, TypeAlias, TypeVar

from stageb.guidance.rules.expression import (
    All,
    Arithmetic,
    AtLeast,
    Atom,
    Expression,
    Points,
    Relation,
    Some,
    join_values,
    negate,
)
from stageb.guidance.rules.paths import PhraseReader
from stageb.guidance.rules.prompts import Words, choose_grammar
from stageb.guidance.rules.value_types import (
    NUMBER,
    OPERATORS,
    Computed,
    fold_text,
    fold_value,
    parse_number,
    parse_quantity,
)
from stageb.guidance.rules.vocabulary import Vocabulary, is_mentionable
from stageb.guidance.rules.wordings import Grammar, compile_form
from stageb.guidance.words.types import Verdict

LONGEST = 4000  # characters of a rule that is read
PIECES = 24  # between "and" and "or", at most
_OPERATOR = re.compile(rf" ([{re.escape(''.join(OPERATORS))}]) ")


@dataclass(frozen=True, slots=True)
class RuleCode:
    """What a rule says: its verdict for tickets of which ``condition`` holds."""

    verdict: Verdict
    condition: Expression | None  # if this holds; None: always
    exception: Expression | None = None  # unless this does
    is_loose: bool = False  # whether the text says twice what once would do, or ranks values where a list of them would do

    @property
    def expression(self) -> Expression:
        """What holds of the tickets that it speaks of."""
        parts = [self.condition] if self.condition else []
        parts += [negate(self.exception)] if self.exception else []
        return parts[0] if len(parts) == 1 else All(tuple(parts))


@dataclass(frozen=True, slots=True)
class OutOfReach:
    """Why a rule cannot be read as code."""

    why: str
    unknown: Literal["field", "value", "word", ""] = ""  # what it names that no ticket has
    field: str = ""  # that it names where ``unknown`` is a field or a value
    value: str = ""  # the value or the word that is unknown, where no other way to read it is left
    nearest: Callable[[], str] = str  # looks for what may have been meant; nothing by default

    def with_hint(self) -> OutOfReach:
        """The same for a reader. Parsing meets many faults that nobody is told of, and looking for what is near is slow."""
        near = self.nearest()
        return replace(self, why=f"{self.why}; the nearest is {near!r}" if near else self.why, nearest=str)


NO_RULE = OutOfReach("it does not begin with a verdict and 'if' or 'unless'")
TWO_WAYS = OutOfReach("it can be read in two ways")

T = TypeVar("T")
_Atom: TypeAlias = Expression | OutOfReach
_Cut: TypeAlias = list[tuple[Expression, bool]]  # atoms, each with whether "and" stands before it


def parse_rule(text: str, vocabulary: Vocabulary, words: Words) -> RuleCode | OutOfReach:
    """What ``text`` says of tickets that hold what ``vocabulary`` does, in the language and verdict words of ``words``."""
    grammar = choose_grammar(words)
    text = " ".join(text.split()).removesuffix(grammar.end)
    folded, begins = text.casefold(), (*grammar.if_, grammar.unless[0])
    spelled = {verdict: word for verdict, word in words.verdicts.items() if folded.startswith(word.casefold())}
    verdict = next((verdict for verdict, word in spelled.items() if text.startswith(begins, len(word))), None)
    if verdict is None:
        return NO_RULE
    if len(text) > LONGEST:
        return OutOfReach(f"it has more than {LONGEST:,} characters")
    rest, reader = text[len(words.verdicts[verdict]) :], _RuleReader(grammar, vocabulary)
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
    """``text`` as a whole, and cut in two at each ``mark``."""
    yield text, ""
    for found in re.finditer(re.escape(mark), text):
        yield text[: found.start()], text[found.end() :]


class _RuleReader:
    """Reads conditions by what tickets hold."""

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary) -> None:
        self._grammar, self._vocabulary = grammar, vocabulary
        self._atom, self._lists = cache(self._read_atom), cache(self._read_lists)
        self._phrases = PhraseReader(vocabulary, grammar)
        self._subject = cache(lambda text: self._phrases.find_field(text) or self._read_computed(text))  # that is compared
        comma, either = re.escape(grammar.comma), f"(?:{re.escape(grammar.or_)}|{re.escape(grammar.nor)})"
        after_comma = f"(?:{re.escape(grammar.or_.lstrip())}|{re.escape(grammar.nor.lstrip())})"
        self._separator = re.compile(f"{comma}{after_comma}|{comma}|{either}")
        self._parting = re.compile("|".join((self._separator.pattern, *map(re.escape, (grammar.and_, *grammar.unless)))))
        longest_first = sorted(grammar.relations.items(), key=lambda item: -len(item[0]))
        self._relations = [(re.compile(re.escape(mark)), *said) for mark, said in longest_first]
        counted = {"count": r"\d{1,2}", "parts": f".+{re.escape(grammar.part)}.+"}
        self._counts = {compile_form(form, **counted): is_denied for form, is_denied in grammar.counts.items()}
        self._exactly = compile_form(grammar.exactly, **counted)
        self._points = compile_form(grammar.points + "{parts}", least=r"-?\d{1,3}", s="s?", parts=".+")
        self._limits = compile_form(grammar.within, name=".+?", low=".+?", high=".+")
        self._of_list = re.compile("{}(.+?){}".format(*map(re.escape, grammar.of_list)))
        self._scored = re.compile(rf"(-?\d{{1,2}})({re.escape(grammar.scored)})?(.+)")
        forms = {grammar.each_of_list: grammar.of_list, grammar.each_word: ("", "")}
        self._each = {compile_form(form, words=".+", name=".*?"): around for form, around in forms.items()}
        self.is_loose = False

    def read(self, text: str) -> _Atom:
        """The condition, or why it is out of reach."""
        if scored := self._points.fullmatch(text):
            return self._read_points(int(scored["least"]), scored["parts"])
        marks = re.compile(f"{re.escape(self._grammar.and_)}|{re.escape(self._grammar.or_)}")
        found = [(match.start(), match.end(), match[0] == self._grammar.and_) for match in marks.finditer(text)]
        if len(found) >= PIECES:
            return OutOfReach(f"it has more than {PIECES} parts")
        best = self._best_cuts(text, found)
        if len(best) != 1:
            return TWO_WAYS if best else self._why_not(text, found)
        disjuncts: list[list[Expression]] = []
        for expression, is_and in best[0]:
            if not is_and or not disjuncts:
                disjuncts.append([])
            disjuncts[-1].append(expression)
        alls = [self._once(parts) for parts in disjuncts]
        wholes = self._once([parts[0] if len(parts) == 1 else All(parts) for parts in alls])
        listed = join_values(wholes)
        self.is_loose |= listed != wholes
        return listed[0] if len(listed) == 1 else Some(listed)

    def _once(self, items: Sequence[T]) -> tuple[T, ...]:
        """Each item once, in order."""
        once = tuple(dict.fromkeys(items))
        self.is_loose |= len(once) < len(items)
        return once

    def _best_cuts(self, text: str, marks: Sequence[tuple[int, int, bool]]) -> list[_Cut]:
        """The cuts into atoms of which there are most; two of them at most."""
        ends = [*(start for start, _, _ in marks), len(text)]
        best: list[list[_Cut]] = []  # of what stands before each end
        for last, end in enumerate(ends):
            cuts: list[_Cut] = []
            for first in range(last + 1):
                begin, is_and = marks[first - 1][1:] if first else (0, True)
                expression = self._atom(text[begin:end])
                if not isinstance(expression, OutOfReach):
                    before: list[_Cut] = best[first - 1] if first else [[]]
                    cuts += [[*cut, (expression, is_and)] for cut in before]
            most = max(map(len, cuts), default=0)
            best.append([cut for cut in cuts if len(cut) == most][:2])
        return best[-1]

    def _why_not(self, text: str, marks: Sequence[tuple[int, int, bool]]) -> OutOfReach:
        """What is wrong with the first piece of which no atom can be made, with others or alone."""
        begins = [0, *(end for _, end, _ in marks)]
        ends = [*(start for start, _, _ in marks), len(text)]
        for piece in range(len(ends)):
            around = [(i, piece) for i in range(piece + 1)] + [(piece, i) for i in range(piece, len(ends))]
            tried = [self._atom(text[begins[first] : ends[last]]) for first, last in around]
            wrong = [each for each in tried if isinstance(each, OutOfReach)]
            if len(wrong) == len(tried):
                alone = self._atom(text[begins[piece] : ends[piece]])
                return alone if isinstance(alone, OutOfReach) and alone.unknown else _worst(wrong)
        return OutOfReach("it does not come apart into comparisons")

    def _read_atom(self, text: str) -> _Atom:
        """One comparison, if the tickets know what it names."""
        for form, is_denied in self._counts.items():
            if counted := form.fullmatch(text):
                return self._read_count(int(counted["count"]), counted["parts"], is_denied)
        if counted := self._exactly.fullmatch(text):
            return _both([self._read_count(int(counted["count"]), counted["parts"], denied) for denied in (False, True)])
        tried = [
            self._compare(text[: found.start()], relation, is_denied, text[found.end() :])
            for mark, relation, is_denied in self._relations
            for found in mark.finditer(text)
        ]
        tried += [self._within(*found.groups())] if (found := self._limits.fullmatch(text)) else []
        tried += self._phrases.read(text)
        right = list(dict.fromkeys(each for each in tried if not isinstance(each, OutOfReach))) or self._read_missing(text)
        if len(right) == 1:
            return right[0]
        return TWO_WAYS if right else _worst([each for each in tried if isinstance(each, OutOfReach)])

    def _read_missing(self, text: str) -> list[Expression]:
        for ending, is_denied in self._grammar.missing.items():
            if text.endswith(ending) and (field := self._vocabulary.field(text.removesuffix(ending))):
                return [negate(found) if is_denied else found for found in (Atom("missing", field, ()),)]
        return []

    def _read_count(self, count: int, text: str, is_denied: bool) -> _Atom:
        least = count + is_denied  # at most two: not at least three
        parts = [self._atom(part) for part in text.split(self._grammar.part)]
        if wrong := [part for part in parts if isinstance(part, OutOfReach)]:
            return wrong[0]
        right = [part for part in parts if not isinstance(part, OutOfReach)]
        if len({*right}) < len(right):
            return OutOfReach("it counts a condition twice")
        if not 1 <= least <= len(right):
            return OutOfReach(f"it counts {count} of {len(right)} conditions")
        return negate(AtLeast(least, tuple(right))) if is_denied else AtLeast(least, tuple(right))

    def _read_points(self, least: int, text: str) -> _Atom:
        parts: list[tuple[int, Expression]] = []
        for piece in text.split(self._grammar.part):
            if not (scored := self._scored.fullmatch(piece)):
                return OutOfReach(f"{piece!r} does not say what has points")
            part = self.read(scored[3]) if scored[2] else self._read_each(scored[3])
            if isinstance(part, OutOfReach):
                return part
            if isinstance(part, Some | Points):
                return OutOfReach(f"{piece!r} gives points for more than conditions that hold together")
            each = part if not scored[2] and isinstance(part, Atom) else None
            single = [replace(each, values=(word,)) for word in each.values] if each else [part]
            parts += [(int(scored[1]), one) for one in single]
        return Points(least, tuple(parts))

    def _read_each(self, text: str) -> _Atom:
        """What each of several words has points for, as one condition."""
        for form, around in self._each.items():
            if found := form.fullmatch(text):
                return self._mention(found["name"], found["words"].join(around))
        return OutOfReach(f"{text!r} does not say what has points")

    def _mention(self, name: str, listed: str) -> _Atom:
        """That a field mentions one of the words ``listed``, or any summary does, or none."""
        known, named, summaries = self._vocabulary, self._of_list.fullmatch(listed), self._grammar.summaries
        field = known.field(name) or ("" if name.casefold() in summaries else None)
        if field is None:
            return OutOfReach(f"no ticket has {name!r}", "field", name, nearest=partial(known.nearest_name, name))
        if named:
            of_list = known.lists.get(named[1])
            missing = OutOfReach(f"no word list is called {named[1]!r}", "word")
            return Atom("mentions", field, of_list, named[1]) if of_list else missing
        words = [fold_text(word) for word in self._separator.split(listed)]
        for word in words:
            if word not in known.words and not known.holds_stem(word) and not known.holds_phrase(word):
                lacks = f"no ticket mentions {word!r}"
                why = f"{word!r} is no single word, and no phrase of two or three" if known.holds(word) else lacks
                value, nearest = word if is_mentionable(word) else "", partial(known.nearest_word, word)
                return OutOfReach(why, "word", value=value, nearest=nearest if why == lacks else str)
        return Atom("mentions", field, self._once(words))

    def _compare(self, name: str, relation: Relation, is_denied: bool, value: str) -> _Atom:
        if relation == "mentions":
            found = self._mention(name, value)
            is_denied = is_denied != self._grammar.summaries.get(name.casefold(), False)  # no summary mentions it
            return negate(found) if is_denied and not isinstance(found, OutOfReach) else found
        known, field = self._vocabulary, self._subject(name)
        if isinstance(field, Computed):
            return self._compare_computed(field, relation, is_denied, value)
        if field is None:
            return OutOfReach(f"no ticket has {name!r}", "field", name, nearest=partial(known.nearest_name, name))
        other = self._phrases.find_field(value)
        if relation == "is":
            lists = self._lists(field, value)
            if len(lists) > 1:
                return TWO_WAYS
            if not lists:
                wrong = next((e for e in self._separator.split(value) if fold_value(e) not in known.values[field]), value)
                if field in known.units and parse_number(wrong) is None:  # a wording of its own
                    return OutOfReach(f"{field!r} is compared with no number")
                nearest = partial(known.nearest_value, field, wrong)
                left = "" if self._parting.search(value) else value
                return OutOfReach(f"no ticket has {field!r} as {wrong!r}", "value", field, left, nearest)
            found = Atom("is", field, self._once(lists[0]))
        elif relation in ("above", "below"):
            if field not in known.units and field in known.scales:
                return self._rank(field, relation == "above", is_denied, value)
            if field not in known.units:
                return OutOfReach(f"{field!r} is no number in any ticket", "field", field)
            if other is None and (why_not := self._limit_fault(field, value)):
                return why_not
            beside: Relation = "over" if relation == "above" else "under"
            found = Atom(relation, field, (value,)) if other is None else Atom(beside, field, (other,))
        elif other is None:
            return OutOfReach(f"no ticket has {value!r}", "field", value, nearest=partial(known.nearest_name, value))
        else:
            found = Atom(relation, field, (other,))
        return negate(found) if is_denied else found

    def _within(self, name: str, low: str, high: str) -> _Atom:
        return _both([self._compare(name, "above", False, low), self._compare(name, "below", False, high)])

    def _limit_fault(self, field: str, value: str) -> OutOfReach | None:
        """Why a field cannot be compared with a limit; None where it can."""
        known, limit = self._vocabulary, parse_quantity(value)
        if limit is None:
            why = f"{value!r} is neither a number nor a field"
            return OutOfReach(why, "field", nearest=partial(known.nearest_name, value))
        if limit.unit and limit.unit not in known.units[field]:
            return OutOfReach(f"no ticket has {field!r} in {limit.unit!r}")
        return None

    def _rank(self, field: str, is_above: bool, is_denied: bool, value: str) -> _Atom:
        """A comparison by rank as a list of values: "is at least med" as "is med or high"."""
        held = self._vocabulary.list_beyond(field, value, is_above, is_denied)
        if held is None:
            nearest = partial(self._vocabulary.nearest_value, field, value)
            return OutOfReach(f"no ticket has {field!r} as {value!r}", "value", field, nearest=nearest)
        if not held:
            return OutOfReach(f"no ticket can have {field!r} {'above' if is_above else 'below'} {value!r}")
        self.is_loose = True
        return Atom("is", field, held)

    def _read_computed(self, text: str) -> Computed | None:
        """``A × B``, where both are fields that have numbers; None where it is not, or may be cut in two ways."""
        found = [
            (self._vocabulary.field(text[: mark.start()]), mark[1], self._vocabulary.field(text[mark.end() :]))
            for mark in _OPERATOR.finditer(text)
        ]
        numeric = [Computed(a, mark, b) for a, mark, b in found if a and b and {a, b} <= self._vocabulary.units.keys()]
        return numeric[0] if len(numeric) == 1 else None

    def _compare_computed(self, left: Computed, relation: Relation, is_denied: bool, value: str) -> _Atom:
        if relation not in ("above", "below"):
            return OutOfReach(f"{str(left)!r} is compared by above or below alone")
        other = self._read_computed(value)
        if other is None and not re.fullmatch(NUMBER, value):
            return OutOfReach(f"{value!r} is no number that {str(left)!r} is compared with")
        beside: Literal["over", "under"] = "over" if relation == "above" else "under"
        found = Arithmetic(beside, left, other) if other else Arithmetic(relation, left, value)
        return negate(found) if is_denied else found

    def _read_lists(self, field: str, listed: str) -> list[tuple[str, ...]]:
        """How "a, b or c" is a list of values of the field, which may hold these marks themselves: two ways at most."""
        known = self._vocabulary.values[field]
        ways: list[tuple[str, ...]] = [(listed,)] if fold_value(listed) in known else []
        for mark in islice(self._separator.finditer(listed), PIECES):
            first = listed[: mark.start()]
            if fold_value(first) in known:
                ways += [(first, *rest) for rest in self._lists(field, listed[mark.end() :])]
        return ways[:2]


def _both(sides: Sequence[_Atom]) -> _Atom:
    """What holds where all sides do; or what to tell where some cannot be read."""
    right = tuple(side for side in sides if not isinstance(side, OutOfReach))
    return All(right) if len(right) == len(sides) else _worst([side for side in sides if isinstance(side, OutOfReach)])


def _worst(faults: Sequence[OutOfReach]) -> OutOfReach:
    """What to tell of several readings that fail: a name that is not there, rather than a wording."""
    return next((fault for fault in faults if fault.unknown), OutOfReach("it compares no fields"))
