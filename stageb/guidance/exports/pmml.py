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
    Same,
    Score,
    decide,
    list_missing,
    name_person,
)
from stageb.guidance.exports.markup import add, choose_only, write_document
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
        return Exported(write_document(_write_document(decide(choose_only(missions, _FORM), _FORM))))


def _write_document(decisions: Decisions) -> Element:
    mission, person = decisions.mission, name_person(decisions.mission.coded.labels)
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
    verdict = add(dictionary, "DataField", name="verdict", optype="categorical", dataType="string")
    for label in (*mission.coded.labels, person):
        add(verdict, "Value", value=label)
    model = add(root, "RuleSetModel", modelName=mission.name, functionName="classification")
    schema = add(model, "MiningSchema")
    for name, kind in decisions.kinds.items():
        counted = {"missingValueReplacement": "0"} if decisions.is_counted and kind == "number" else {}
        add(schema, "MiningField", name=name, **counted)
    add(schema, "MiningField", name="verdict", usageType="target")
    output = add(model, "Output")
    for name, feature in (("predicted", "predictedValue"), ("rule", "transformedValue")):
        field = add(output, "OutputField", name=name, feature=feature, dataType="string", optype="categorical")
    derived = add(model, "LocalTransformations")
    for name, kind in decisions.kinds.items():
        if kind == "text":
            folded = add(derived, "DerivedField", name=_name_folded(name), optype="categorical", dataType="string")
            folded.append(_fold(name))
    rules = add(model, "RuleSet")
    add(rules, "RuleSelectionMethod", criterion="firstHit")
    for number, case in enumerate(decisions.cases, 1):
        key = case.rule or f"{person} {number}"
        holds = add(derived, "DerivedField", name=f"{key} holds", optype="categorical", dataType="boolean")
        add(holds, "Extension", name="rule", value=case.said)
        holds.append(_write(case.when, decisions))
        rule = add(rules, "SimpleRule", id=key, score=case.verdict or person)
        add(rule, "SimplePredicate", field=f"{key} holds", operator="equal", value="true")
    field.append(_field("first rule"))
    first = add(derived, "DerivedField", name="first rule", optype="categorical", dataType="string")
    keys = [case.rule or f"{person} {number}" for number, case in enumerate(decisions.cases, 1)]
    said = _constant(keys[-1])
    for key in reversed(keys[:-1]):
        said = _call("if", _field(f"{key} holds"), _constant(key), said)
    first.append(said)
    return root


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
        cell = formula.field if is_flag else _name_folded(formula.field)
        function, join = ("equal", "or") if formula.is_in else ("notEqual", "and")
        given = [] if formula.is_in else [_call("isNotMissing", _field(formula.field))]  # what folds is never missing
        return _join(join, [*given, *(_call(function, _field(cell), value, is_strict=True) for value in values)])
    if isinstance(formula, Same):
        cells = [name if decisions.kinds[name] == "flag" else _name_folded(name) for name in (formula.one, formula.other)]
        given = [_call("isNotMissing", _field(name)) for name in (formula.one, formula.other)]
        return _join("and", [*given, _call("equal" if formula.is_same else "notEqual", *map(_field, cells), is_strict=True)])
    if isinstance(formula, Score):
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


def _name_folded(name: str) -> str:
    return f"{name} in small letters"


def _fold(name: str) -> Element:
    """A text as values are compared: in small letters, on one line, without a full stop behind it."""
    lower = _call("lowercase", _field(name))
    # Engines trim a constant that is a blank, and take an empty one for a missing one.
    single = _call("replace", lower, _constant(r"(\s)\s+"), _constant("$1"))
    return _call("replace", single, _constant(r"^\s*(.*?)[\s.]*$"), _constant("$1"))
