"""Rules as PMML 4.4 (dmg.org): a RuleSetModel of which the first rule that holds decides.

Whether it holds is a derived field of its name, made of PMML's functions, which are untrue where a value is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from stageb.guidance.exports.decisions import (
    Compare,
    Decisions,
    Every,
    Formula,
    Given,
    OneOf,
    PointSum,
    Same,
    export_only,
    list_missing,
    name_person,
)
from stageb.guidance.exports.markup import add, free_name, write_document
from stageb.guidance.exports.missions import CodedMission
from stageb.guidance.exports.protocol import Exported
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules.value_types import Computed

_FORM = "PMML"
_TYPES = {"number": ("continuous", "double"), "flag": ("categorical", "string"), "text": ("categorical", "string")}
_SIGNS = {">": "greaterThan", "<": "lessThan", ">=": "greaterOrEqual", "<=": "lessOrEqual", "=": "equal", "<>": "notEqual"}


class PmmlExporter:
    """A document of one mission."""

    is_typed = True

    def write(self, missions: Sequence[CodedMission], dialect: Dialect) -> Exported:
        """The document. Raises ``InputError``, which names a rule that PMML cannot say."""
        return export_only(missions, _FORM, lambda decisions: write_document(_write_document(decisions)))


def _write_document(decisions: Decisions) -> Element:
    mission = decisions.mission
    root = Element("PMML", {"version": "4.4", "xmlns": "http://www.dmg.org/PMML-4_4"})
    header = add(root, "Header", description=f"learnt rules of {mission.name}, step {mission.step}")
    add(header, "Application", name="stageb")
    for note in mission.notes:
        add(header, "Annotation", note)
    dictionary = add(root, "DataDictionary")
    for name, kind in decisions.kinds.items():
        optype, type_ = _TYPES[kind]
        column = add(dictionary, "DataField", name=name, optype=optype, dataType=type_)
        for value in ("true", "false") if kind == "flag" else ():
            add(column, "Value", value=value)  # since engines take a boolean that is missing for a false one
        if kind != "number":
            add(column, "Value", value="", property="missing")
    target = free_name("verdict", decisions.kinds)
    verdict = add(dictionary, "DataField", name=target, optype="categorical", dataType="string")
    for label in (*mission.coded.labels, name_person(mission.coded.labels)):
        add(verdict, "Value", value=label)
    model = add(root, "RuleSetModel", modelName=mission.name, functionName="classification")
    schema = add(model, "MiningSchema")
    for name, kind in decisions.kinds.items():
        counted = {"missingValueReplacement": "0"} if decisions.is_counted and kind == "number" else {}
        add(schema, "MiningField", name=name, **counted)
    add(schema, "MiningField", name=target, usageType="target")
    _write_rules(decisions, model)
    return root


def _write_rules(decisions: Decisions, model: Element) -> None:
    """What decides, and which rule does."""
    person, output = name_person(decisions.mission.coded.labels), add(model, "Output")
    derived, rules = add(model, "LocalTransformations"), add(model, "RuleSet")
    for name, kind in decisions.kinds.items():
        if kind == "text":
            folded = add(
                derived, "DerivedField", name=_name_folded(name, decisions), optype="categorical", dataType="string"
            )
            folded.append(_fold(name))
    add(rules, "RuleSelectionMethod", criterion="firstHit")
    keys = [case.rule or f"{person} {number}" for number, case in enumerate(decisions.cases, 1)]
    names = [free_name(f"{key} holds", decisions.kinds) for key in keys]
    for key, name, case in zip(keys, names, decisions.cases, strict=True):
        holds = add(derived, "DerivedField", name=name, optype="categorical", dataType="boolean")
        add(holds, "Extension", name="rule", value=case.said)
        holds.append(_write(case.when, decisions))
        rule = add(rules, "SimpleRule", id=key, score=case.verdict or person)
        add(rule, "SimplePredicate", field=name, operator="equal", value="true")
    first = _constant(keys[-1])
    for key, name in reversed([*zip(keys[:-1], names, strict=False)]):
        first = _call("if", _field(name), _constant(key), first)
    chosen = free_name("first rule", decisions.kinds)
    add(derived, "DerivedField", name=chosen, optype="categorical", dataType="string").append(first)
    for name, feature in (("predicted", "predictedValue"), ("rule", "transformedValue")):
        free = free_name(name, decisions.kinds)
        field = add(output, "OutputField", name=free, feature=feature, dataType="string", optype="categorical")
    field.append(_field(chosen))  # engines do not tell a rule's id


def _write(formula: Formula, decisions: Decisions) -> Element:
    """What is true or false."""
    if isinstance(formula, Given):
        return _call("isNotMissing" if formula.is_given else "isMissing", _field(formula.field))
    if isinstance(formula, Compare):
        compared = _call(_SIGNS[formula.sign], _number(formula.left), _number(formula.right), is_strict=True)
        divisors = list_missing(formula, decisions)[1]
        return _join(
            "and", [*(_call("notEqual", _field(name), _constant(0.0), is_strict=True) for name in divisors), compared]
        )
    if isinstance(formula, OneOf):
        is_flag = decisions.kinds[formula.field] == "flag"
        values = [_constant(value) for value in formula.values]
        cell = formula.field if is_flag else _name_folded(formula.field, decisions)
        function, join = ("equal", "or") if formula.is_in else ("notEqual", "and")
        given = [] if formula.is_in else [_call("isNotMissing", _field(formula.field))]  # what folds is never missing
        return _join(join, [*given, *(_call(function, _field(cell), value, is_strict=True) for value in values)])
    if isinstance(formula, Same):
        names = (formula.one, formula.other)
        cells = [name if decisions.kinds[name] == "flag" else _name_folded(name, decisions) for name in names]
        given = [_call("isNotMissing", _field(name)) for name in names]
        return _join("and", [*given, _call("equal" if formula.is_same else "notEqual", *map(_field, cells), is_strict=True)])
    if isinstance(formula, PointSum):
        scored = [_call("if", _write(part, decisions), _constant(points), _constant(0)) for points, part in formula.parts]
        return _call("greaterOrEqual" if formula.is_reached else "lessThan", _call("sum", *scored), _constant(formula.least))
    return _join("and" if isinstance(formula, Every) else "or", [_write(part, decisions) for part in formula.parts])


def _join(function: str, parts: Sequence[Element]) -> Element:
    return _call(function, *parts) if len(parts) > 1 else parts[0] if parts else _constant(function == "and")


def _call(function: str, *given: Element, is_strict: bool = False) -> Element:
    """A function of what is given; ``is_strict``: false where anything is missing."""
    made = Element("Apply", {"function": function, **({"mapMissingTo": "false"} if is_strict else {})})
    made.extend(given)
    return made


def _constant(value: float | str | bool) -> Element:
    kind = {bool: "boolean", str: "string", int: "double", float: "double"}[type(value)]
    made = Element("Constant", {"dataType": kind})
    made.text = str(value).lower() if isinstance(value, bool) else str(value)
    return made


def _field(name: str) -> Element:
    return Element("FieldRef", {"field": name})


def _number(of: float | str | Computed) -> Element:
    if isinstance(of, float):
        return _constant(of)
    if isinstance(of, str):
        return _field(of)
    return _call(of.operator.replace("×", "*"), _field(of.first), _field(of.second))


def _name_folded(name: str, decisions: Decisions) -> str:
    return free_name(f"{name} in small letters", decisions.kinds)


def _fold(name: str) -> Element:
    """A text as values are compared: in small letters, on one line, without a full stop behind it."""
    lower = _call("lowercase", _field(name))
    # Engines trim a constant that is a blank, and take an empty one for a missing one.
    single = _call("replace", lower, _constant(r"(\s)\s+"), _constant("$1"))
    return _call("replace", single, _constant(r"^\s*(.*?)[\s.]*$"), _constant("$1"))
