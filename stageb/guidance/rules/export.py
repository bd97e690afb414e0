"""Rules as code that needs nothing of this package: Python, SQL or JSON.

Names and values come from tickets and texts from models, so none is trusted: each is written as a literal of the language
that it is written in, never into a comment as it came.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stageb.guidance.rules import plain_tickets, predicates, reading
from stageb.guidance.rules.expression import MAKERS, All, Arithmetic, AtLeast, Atom, Expression, Not, Points, atoms, simplify
from stageb.guidance.rules.judge import CodedRule
from stageb.guidance.rules.parse import OutOfReach, RuleCode
from stageb.guidance.rules.reading import GOES_ON, Computed, fold_value, parse_number
from stageb.guidance.texts import one_line
from stageb.guidance.types import HEADLINE_KEY
from stageb.untrusted import clean_text

VERSION = 1  # of the JSON
NO_WORDS = OutOfReach("SQL sees columns, and no words of free text")
NO_LIMIT = OutOfReach("its limit is no number that SQL can hold")


@dataclass(frozen=True, slots=True)
class CodedMission:
    """One mission's rules."""

    name: str
    step: int  # of its guidance
    rules: Sequence[CodedRule]

    @property
    def unreadable(self) -> dict[str, str]:
        """By key, why a rule is not written as code."""
        return {rule.key: rule.code.why for rule in self.rules if isinstance(rule.code, OutOfReach)}


def write_python(missions: Sequence[CodedMission]) -> str:
    """A module of the standard library alone, with ``judge(ticket)``."""
    sources = [inspect.getsource(module) for module in (clean_text, reading, predicates, plain_tickets)]
    parts = [_split_imports(source) for source in (inspect.getsource(one_line), *sources)]
    imports = _join_imports([node for nodes, _ in parts for node in nodes])
    header = ["from __future__ import annotations", "", *imports, "", ""]
    return "\n".join(
        [
            f'"""{_PYTHON_HEADER}"""',
            "",
            *header,
            *(body for _, body in parts),
            *_write_missions(missions),
            _PYTHON_END,
        ]
    )


def write_json(missions: Sequence[CodedMission]) -> str:
    """The rules' expressions as a tree."""
    content = {"version": VERSION, "missions": {mission.name: _to_json(mission) for mission in missions}}
    text = json.dumps(content, ensure_ascii=False, indent=2)
    seen = (letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1] for letter in text)
    return "".join(seen) + "\n"


def write_sql(missions: Sequence[CodedMission]) -> str:
    """A query for each mission over a table ``tickets`` that has a column for each field."""
    statements = [_write_query(limit_to_sql(mission), len(missions) > 1) for mission in missions]
    return "\n".join(f"-- {line}".rstrip() for line in _SQL_HEADER.split("\n")) + "\n\n" + "\n".join(statements)


def limit_to_sql(mission: CodedMission) -> CodedMission:
    """The mission with what SQL cannot say marked as out of reach."""
    rules = []
    for rule in mission.rules:
        named = list(atoms(rule.code.expression)) if isinstance(rule.code, RuleCode) else []
        limits = [parse_number(limit) for atom in named if (limit := _limit_of(atom))]
        if any(atom.relation == "mentions" for atom in named):
            rule = replace(rule, code=NO_WORDS)
        elif any(limit is None or math.isinf(limit) for limit in limits):
            rule = replace(rule, code=NO_LIMIT)
        rules.append(rule)
    return replace(mission, rules=rules)


def _limit_of(atom: Atom | Arithmetic) -> str:
    """The number that it compares with, as it is written; empty where that is another field's."""
    if atom.relation not in ("above", "below"):
        return ""
    return atom.values[0] if isinstance(atom, Atom) else str(atom.right)


# Python ------------------------------------------------------------------------------------------------------------------

_PYTHON_HEADER = """\
Learnt rules as code: of the standard library alone, and safe to read (stageb guidance export --format python).

    judge({"mission": "rack cabling", "per_image": {"image_1": "Seal: worn; Label: present"}})
    judge({"Seal": "worn", "Label": "present"}, "rack cabling")

give Ruling(verdict="fail", rule="G1", unknown=()). The verdict is None where the rules cannot tell: it hangs on a field that
the ticket lacks, or on a rule that is not written as code (UNREADABLE says why); unknown names these rules.
"""

_PYTHON_END = '''
def judge(ticket: Mapping[str, object], mission: str | None = None) -> Ruling:
    """The verdict on a ticket, and the rule that gives it. A ticket is a line of a ticket file, or a row of a table by the
    names of its columns. ``mission``: by default the ticket's own, or the only one. Raises ``KeyError`` where it has no
    rules."""
    if mission is None:
        named = ticket.get("mission")
        mission = named if isinstance(named, str) or len(RULES) != 1 else next(iter(RULES))
    return _JUDGES[mission](read_ticket(ticket))  # type: ignore[index]


_JUDGES = {name: make_judge(rules, HEADLINE) for name, rules in RULES.items()}
'''


def _split_imports(source: str) -> tuple[list[ast.Import | ast.ImportFrom], str]:
    """The imports of a module, and what stands below them."""
    head = [node for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)]
    first = max((node.end_lineno or 0 for node in head), default=0)
    return head, "\n".join(source.splitlines()[first:]).strip("\n") + "\n\n"


def _join_imports(nodes: Sequence[ast.Import | ast.ImportFrom]) -> Iterator[str]:
    """Those from the standard library, each module once."""
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    yield from (f"import {name}" for name in sorted(plain))
    named: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] not in ("stageb", "__future__"):
            named.setdefault(node.module or "", set()).update(alias.name for alias in node.names)
    yield from (f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(named.items()))


def _write_missions(missions: Sequence[CodedMission]) -> Iterator[str]:
    yield f"HEADLINE = {HEADLINE_KEY!r}  # stands for tickets that no rule speaks of"
    yield "RULES: dict[str, tuple[CompiledRule, ...]] = {"
    for mission in missions:
        yield f"    {mission.name!r}: ("
        for rule in mission.rules:
            yield f"        CompiledRule({rule.key!r}, {rule.text!r}, {_write_python_code(rule.code)}),"
        yield "    ),"
    yield "}"
    yield "UNREADABLE: dict[str, dict[str, str]] = {"
    yield from (f"    {mission.name!r}: {mission.unreadable!r}," for mission in missions)
    yield "}"


def _write_python_code(code: RuleCode | OutOfReach) -> str:
    if isinstance(code, OutOfReach):
        return "('pass', 'fail'), unreadable"
    return f"({code.verdict!r},), {_write_predicate(code.expression)}"


def _write_predicate(expression: Expression) -> str:
    if isinstance(expression, Not):
        return f"deny({_write_predicate(expression.part)})"
    if isinstance(expression, Atom):
        simple = simplify(expression)
        if not isinstance(simple, Atom):
            return _write_predicate(simple)
        given = simple.values if simple.relation == "mentions" else (simple.name, *simple.values)
        made_by = "mentions" if simple.relation == "mentions" else MAKERS[simple.relation].__name__
        return f"{made_by}({', '.join(map(repr, given))})"
    if isinstance(expression, Arithmetic):
        return f"{MAKERS[expression.relation].__name__}({expression.left!r}, {expression.right!r})"
    if isinstance(expression, Points):
        scored = ", ".join(f"({points}, {_write_predicate(part)})" for points, part in expression.parts)
        return f"has_points({expression.least}, {scored})"
    parts = ", ".join(map(_write_predicate, expression.parts))
    if isinstance(expression, AtLeast):
        return f"at_least({expression.count}, {parts})"
    return f"{'every' if isinstance(expression, All) else 'some'}({parts})"


# JSON --------------------------------------------------------------------------------------------------------------------


def _to_json(mission: CodedMission) -> dict[str, Any]:
    coded = [(rule, rule.code) for rule in mission.rules if isinstance(rule.code, RuleCode)]
    gone = [(rule, rule.code) for rule in mission.rules if isinstance(rule.code, OutOfReach)]
    return {
        "step": mission.step,
        "rules": [
            {"key": rule.key, "text": rule.text, "verdict": code.verdict, "if": _to_tree(code.expression)}
            for rule, code in coded
        ],
        "unreadable": [{"key": rule.key, "text": rule.text, "why": code.why} for rule, code in gone],
    }


def _to_tree(expression: Expression) -> Mapping[str, Any]:
    if isinstance(expression, Not):
        return {"not": _to_tree(expression.part)}
    if isinstance(expression, Atom):
        if expression.relation == "mentions":
            return {"mentions": list(expression.values)}
        if expression.relation == "is":
            return {"field": expression.name, "is": list(expression.values)}
        if expression.relation in ("above", "below"):
            return {"field": expression.name, expression.relation: parse_number(expression.values[0])}
        return {"field": expression.name, expression.relation: {"field": expression.values[0]}}
    if isinstance(expression, Arithmetic):
        right = expression.right
        other = _to_quantity(right) if isinstance(right, Computed) else parse_number(right)
        return {**_to_quantity(expression.left), expression.relation: other}
    if isinstance(expression, Points):
        scored = [{"points": points, "if": _to_tree(part)} for points, part in expression.parts]
        return {"points_at_least": expression.least, "of": scored}
    parts = [_to_tree(part) for part in expression.parts]
    if isinstance(expression, AtLeast):
        return {"at_least": expression.count, "of": parts}
    return {"all" if isinstance(expression, All) else "any": parts}


def _to_quantity(computed: Computed) -> Mapping[str, Any]:
    return {"compute": computed.operator, "fields": [computed.first, computed.second]}


# SQL ---------------------------------------------------------------------------------------------------------------------

_SQL_HEADER = """\
Learnt rules as SQL (stageb guidance export --format sql), tried with SQLite.
The table tickets has a column for each field that rules name: its value as text or number, NULL or empty where a ticket has
none. verdict is 'pass', 'fail', or NULL where the rules cannot tell; rule is the key of the rule that decides, G0 where none
speaks of the ticket. Values are compared in any case; letters beyond ASCII as they stand, in small letters, in capitals, or
with a capital at the beginning. A value is a number if nothing follows its digits, or a power of ten with its sign as in
1e-05, but a unit that has none (or m2, m3), and no sign; digits are 0 to 9. 10³, 5½ and 5万 are none."""


def _write_query(mission: CodedMission, is_one_of_many: bool) -> str:
    sides: dict[str, list[tuple[str, str]]] = {"pass": [], "fail": []}  # by verdict: keys and conditions
    for rule in mission.rules:
        code = rule.code
        for verdict, side in sides.items():
            if isinstance(code, OutOfReach):
                side.append((rule.key, "NULL"))
            elif code.verdict == verdict:
                side.append((rule.key, f"({_write_condition(code.expression)})"))
    passes, fails = ("(" + (" OR ".join(test for _, test in side) or "1 = 0") + ")" for side in sides.values())
    lines = [f"-- mission {json.dumps(mission.name)}, step {mission.step}"]
    lines += [f"-- {rule.key}. {json.dumps(rule.text)}" for rule in mission.rules]
    lines += [f"-- not written: {key}: {json.dumps(why)}" for key, why in mission.unreadable.items()]
    return "\n".join(
        [
            *lines,
            "SELECT t.*,",
            "  CASE",
            f"    WHEN {passes} THEN 'pass'",
            f"    WHEN NOT {fails} THEN 'pass'",
            f"    WHEN {passes} IS NULL THEN NULL",
            f"    WHEN {fails} THEN 'fail'",
            "  END AS verdict,",
            "  CASE",
            *(f"    WHEN {test} THEN {_quote(key)}" for key, test in sides["pass"] if test != "NULL"),
            f"    WHEN NOT {fails} THEN {_quote(HEADLINE_KEY)}",
            f"    WHEN {passes} IS NULL THEN NULL",
            *(f"    WHEN {test} THEN {_quote(key)}" for key, test in sides["fail"] if test != "NULL"),
            "  END AS rule",
            "FROM tickets AS t" + (f" WHERE t.mission = {_quote(mission.name)};" if is_one_of_many else ";"),
            "",
        ]
    )


def _write_condition(expression: Expression) -> str:
    if isinstance(expression, Not):
        return f"NOT ({_write_condition(expression.part)})"
    if isinstance(expression, Atom):
        return _write_comparison(expression)
    if isinstance(expression, Arithmetic):
        right = expression.right
        other = _write_computed(right) if isinstance(right, Computed) else repr(parse_number(right))
        return f"{_write_computed(expression.left)} {_SIGNS[expression.relation]} {other}"
    if isinstance(expression, AtLeast):
        return _write_count(expression)
    if isinstance(expression, Points):
        scored = (f"CASE WHEN {_write_condition(part)} THEN {points} ELSE 0 END" for points, part in expression.parts)
        return f"{' + '.join(scored)} >= {expression.least}"
    join = " AND " if isinstance(expression, All) else " OR "
    return join.join(f"({_write_condition(part)})" for part in expression.parts)


def _write_count(expression: AtLeast) -> str:
    """Unknown only where the parts that are unknown could turn it."""
    parts = [f"({_write_condition(part)})" for part in expression.parts]
    true = " + ".join(f"CASE WHEN {part} THEN 1 ELSE 0 END" for part in parts)
    possible = " + ".join(f"CASE WHEN NOT {part} THEN 0 ELSE 1 END" for part in parts)
    return f"CASE WHEN {true} >= {expression.count} THEN 1 = 1 WHEN {possible} < {expression.count} THEN 1 = 0 END"


def _write_comparison(atom: Atom) -> str:
    column, value = _write_text(atom.name), atom.values[0]
    if atom.relation == "is":
        spelled = dict.fromkeys(each for text in map(fold_value, atom.values) for each in _spellings(text))
        folded = _write_folded(column) if any(parse_number(text) is not None for text in atom.values) else f"LOWER({column})"
        return f"{folded} IN ({', '.join(map(_quote, spelled))})"
    if atom.relation in ("equals", "differs"):
        return f"{column} {'=' if atom.relation == 'equals' else '<>'} {_write_text(value)}"
    other = repr(parse_number(value)) if atom.relation in ("above", "below") else _write_number(value)
    return f"{_write_number(atom.name)} {_SIGNS[atom.relation]} {other}"


_SIGNS: Mapping[str, str] = {"above": ">", "over": ">", "below": "<", "under": "<"}


def _write_computed(computed: Computed) -> str:
    second = _write_number(computed.second)
    sign = "*" if computed.operator == "×" else computed.operator
    return f"(({_write_number(computed.first)}) {sign} {f'NULLIF({second}, 0)' if sign == '/' else f'({second})'})"


def _write_folded(text: str) -> str:
    """What ``fold_value`` makes of a column's text."""
    digits = f"LTRIM({text}, '-.0123456789') = '' AND LTRIM({text}, '-') NOT LIKE '.%' AND {text} LIKE '%.%_'"
    one_of_each = f"{text} NOT LIKE '%.%.%' AND SUBSTR({text}, 2) NOT LIKE '%-%'"
    return f"CASE WHEN {digits} AND {one_of_each} THEN RTRIM(RTRIM({text}, '0'), '.') ELSE LOWER({text}) END"


def _spellings(value: str) -> Iterator[str]:
    """How LOWER, which in SQLite knows ASCII alone, may write a value."""
    for spelled in (value, value.casefold(), value.lower(), value.upper(), value.capitalize()):
        yield spelled.lower()
        yield "".join(letter.lower() if letter.isascii() else letter for letter in spelled)


def _write_text(field: str) -> str:
    # With the table's name before it, since SQLite takes a quoted name that is no column for a text.
    quoted = field.replace('"', '""')
    return f"NULLIF(TRIM(CAST(t.\"{quoted}\" AS TEXT)), '')"


def _write_number(field: str) -> str:
    """What ``parse_number`` makes of a column's text."""
    text = _write_text(field)
    rest = f"LTRIM({text}, '-.0123456789')"
    digits = f"SUBSTR({text}, 1, LENGTH({text}) - LENGTH({rest}))"
    number = f"RTRIM({digits}, '-.')"
    begins = f"({_is_digit(text, 1)} OR (SUBSTR({text}, 1, 1) = '-' AND {_is_digit(text, 2)}))"
    bare = f"RTRIM({text}, '-.')"
    is_signed = f"{text} LIKE '%-' AND {_is_digit(bare, f'LENGTH({bare})')}"  # at its end
    is_one = f"{begins} AND NOT ({is_signed}) AND {number} NOT LIKE '%.%.%' AND SUBSTR({number}, 2) NOT LIKE '%-%'"
    beyond = f"LTRIM(SUBSTR({rest}, 3), '0123456789')"  # what follows a power of ten
    power = f"SUBSTR({rest}, 1, 2) IN ('e-', 'e+', 'E-', 'E+') AND LENGTH({rest}) - LENGTH({beyond}) BETWEEN 3 AND 4"
    with_power = f"SUBSTR({text}, 1, LENGTH({text}) - LENGTH({beyond}))"
    return (
        f"CASE WHEN {is_one} AND {_is_unit(rest)} THEN CAST({number} AS DOUBLE PRECISION)"
        f" WHEN {is_one} AND {number} = {digits} AND {power} AND {_is_unit(beyond)}"
        f" THEN CAST({with_power} AS DOUBLE PRECISION) END"
    )


def _is_digit(text: str, place: int | str) -> str:
    return f"SUBSTR({text}, {place}, 1) BETWEEN '0' AND '9'"


def _is_unit(text: str) -> str:
    """Whether no digit is left but those of m2 and m3, and nothing goes on with the number itself."""
    unit = f"REPLACE(REPLACE({text}, 'm2', ' '), 'm3', ' ')"
    has_ended = f"LTRIM(LTRIM({text}, ' '), {_quote(GOES_ON)}) = LTRIM({text}, ' ')"
    figures = (f"{unit} NOT LIKE '%{figure}%'" for figure in "0123456789")  # nested calls overflow SQLite's parser
    return " AND ".join([has_ended, *figures])


def _quote(text: str) -> str:
    """A literal of SQL."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'"
