"""Rules as Python: a module of the standard library alone.

Names and values come from tickets and texts from models, so none is trusted: each is written as a
literal of the language that it is written in, never into a comment as it came.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from stageb.guidance.exports.protocol import CodedMission, Exported, list_unwritten
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules import fields, predicates, value_types
from stageb.guidance.rules.conditions import Expression, OutOfReach
from stageb.guidance.rules.parse import RuleCode
from stageb.guidance.rules.predicates import Predicate
from stageb.guidance.words.texts import one_line
from stageb.guidance.words.types import HEADLINE_KEY, Content, Verdict
from stageb.untrusted import clean_text


class PythonExporter:
    """A module with ``judge(ticket)``."""

    is_typed = False

    def write(self, missions: Sequence[CodedMission], dialect: Dialect) -> Exported:
        """The module."""
        copied: Sequence[Any] = (
            one_line,
            Content,
            clean_text,
            value_types,
            predicates,
            fields,
            *_list_own_makers(missions),
        )
        parts = [_split_imports(inspect.getsource(each)) for each in copied]
        imports = _join_imports([node for nodes, _ in parts for node in nodes])
        header = [
            f'"""{_PYTHON_HEADER}"""',
            "",
            "from __future__ import annotations",
            "",
            *imports,
            "",
            "",
        ]
        lines = [*header, *(body for _, body in parts), *_write_missions(missions), _PYTHON_END]
        return Exported("\n".join(lines), list_unwritten(missions))


_PYTHON_HEADER = """\
Learnt rules as code: of the standard library alone, and safe to read (stageb guidance export --format python).

    judge({"mission": "rack cabling", "per_image": {"image_1": "Seal: worn; Label: present"}})
    judge({"Seal": "worn", "Label": "present"}, "rack cabling")

give Ruling(verdict="fail", rule="G1", unknown=(), leads=()). The verdict is None where the rules cannot tell: it hangs on
a field that the ticket lacks, or on a rule that is not written as code (UNREADABLE says why); unknown names these rules.
"""

_PYTHON_END = '''
def judge(ticket: Mapping[str, object], mission: str | None = None) -> Ruling:
    """The verdict on a ticket, and the rule that gives it. A ticket is a line of a ticket file, or a row of a table by the
    names of its columns; one that says nothing has no verdict. ``mission``: by default the ticket's own, or the only one.
    Raises ``KeyError`` where it has no rules, ``ValueError`` for images without numbers."""
    return _judge(ticket, _find_mission(ticket, mission))[0]


def decides(ticket: Mapping[str, object], mission: str | None = None) -> str:
    """Who decides a ticket: "stageb", if its verdict is one of those that ALONE names with such a margin and it has all of
    TOLD, or "person"."""
    mission = _find_mission(ticket, mission)
    ruling, reading = _judge(ticket, mission)
    margin = ALONE[mission].get(ruling.verdict or "", {}).get(ruling.rule)
    is_sure = margin is not None and measure_margin(ruling, HEADLINE) >= margin
    has_all = reading.is_counted or reading.pairs.keys() >= {*TOLD[mission]}  # of counts, what is not there is 0
    return "stageb" if is_sure and has_all else "person"


def _judge(ticket: Mapping[str, object], mission: str) -> tuple[Ruling, Reading]:
    speaks, content = read_said(ticket, COLUMNS[mission])
    reading = read_content(content)
    return (_JUDGES[mission](reading) if speaks else Ruling(None)), reading


def _find_mission(ticket: Mapping[str, object], mission: str | None) -> str:
    if mission is None:
        named = ticket.get("mission")
        mission = named if isinstance(named, str) or len(RULES) != 1 else next(iter(RULES))
    return mission  # type: ignore[return-value]


_JUDGES = {name: make_judge(rules, HEADLINE, LABELS[name]) for name, rules in RULES.items()}
'''


def _list_own_makers(missions: Sequence[CodedMission]) -> Iterable[Callable[..., Predicate]]:
    """List what makes predicates beside classes of conditions, by names of ``predicates.py`` and
    ``value_types.py``."""
    codes = (
        rule.code
        for mission in missions
        for rule in mission.coded.each
        if isinstance(rule.code, RuleCode)
    )
    makers = (condition.call[0] for code in codes for condition in code.expression.conditions())
    return dict.fromkeys(make for make in makers if make.__module__ != predicates.__name__)


def _split_imports(source: str) -> tuple[list[ast.Import | ast.ImportFrom], str]:
    """The imports of a module, and what stands below them."""
    head = [
        node for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    first = max((node.end_lineno or 0 for node in head), default=0)
    return head, "\n".join(source.splitlines()[first:]).strip("\n") + "\n\n"


def _join_imports(nodes: Sequence[ast.Import | ast.ImportFrom]) -> Iterator[str]:
    """Those from the standard library, each module once."""
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    yield from (f"import {name}" for name in sorted(plain))
    named: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] not in (
            "stageb",
            "__future__",
        ):
            named.setdefault(node.module or "", set()).update(alias.name for alias in node.names)
    yield from (
        f"from {module} import {', '.join(sorted(names))}"
        for module, names in sorted(named.items())
    )


def _write_missions(missions: Sequence[CodedMission]) -> Iterator[str]:
    yield f"HEADLINE = {HEADLINE_KEY!r}  # stands for tickets that no rule speaks of"
    yield "RULES: dict[str, tuple[CompiledRule, ...]] = {"
    for mission in missions:
        yield from (f"    # {note}" for note in mission.notes)
        yield f"    {mission.name!r}: ("
        for rule in mission.coded.each:
            code = (
                f"CompiledRule({rule.key!r}, {rule.text!r}, "
                f"{_write_python_code(rule.code, mission.coded.labels)}),"
            )
            yield f"        {code}{'  # provisional: not proven to help' * rule.is_provisional}"
        yield "    ),"
    yield "}"
    labels = {mission.name: mission.coded.labels for mission in missions}
    alone = {mission.name: _list_alone(mission) for mission in missions}
    yield from _write_table(
        "LABELS: dict[str, tuple[str, ...]]",
        labels,
        "the first is that of tickets no rule speaks of",
    )
    yield from _write_table(
        "COLUMNS: dict[str, Columns]", {mission.name: mission.columns for mission in missions}
    )
    what = "verdict, rule, least margin; nothing: a person decides"
    yield from _write_table("ALONE: dict[str, dict[str, dict[str, float]]]", alone, what)
    told = {each.name: each.automation.told if each.automation else () for each in missions}
    what = "fields; who lacks one is for a person"
    yield from _write_table("TOLD: dict[str, tuple[str, ...]]", told, what)
    yield from _write_table(
        "UNREADABLE: dict[str, dict[str, str]]", {of.name: of.unreadable for of in missions}
    )


def _write_table(name: str, by_mission: Mapping[str, object], what: str = "") -> Iterator[str]:
    """A dictionary of this name and type."""
    yield f"{name} = {{" + (f"  # {what}" if what else "")
    yield from (f"    {mission!r}: {value!r}," for mission, value in by_mission.items())
    yield "}"


def _list_alone(mission: CodedMission) -> dict[Verdict, dict[str, float]]:
    """By verdict, the rules that decide alone, each with its least margin."""
    bounds = mission.automation.bounds if mission.automation else ()
    return {
        label: dict(each.least)
        for each in bounds
        for label in mission.coded.labels
        if each.verdict in ("", label)
    }


def _write_python_code(code: RuleCode | OutOfReach, labels: tuple[Verdict, ...]) -> str:
    if isinstance(code, OutOfReach):
        return f"{labels!r}, unreadable"
    return f"({code.verdict!r},), {_write_predicate(code.expression)}"


def _write_predicate(given: Any) -> str:
    """An expression as the call that makes its predicate, and an argument of it as it stands."""
    if isinstance(given, Expression):
        make, arguments = given.call
        return f"{make.__name__}({', '.join(map(_write_predicate, arguments))})"
    return f"({', '.join(map(_write_predicate, given))})" if type(given) is tuple else repr(given)
