"""Rules as PMML 4.4 (dmg.org): a RuleSetModel of which the first rule that holds decides.

Whether it holds is a derived field of its name, made of PMML's functions, which are untrue where a
value is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from stageb.guidance.exports.decisions import (
    DecisionExporter,
    Decisions,
    DecisionWriter,
    Number,
    Sign,
    list_divisors,
    name_person,
)
from stageb.guidance.exports.markup import add, free_name, write_document

_TYPES = {
    "number": ("continuous", "double"),
    "flag": ("categorical", "string"),
    "text": ("categorical", "string"),
}
_SIGNS = {
    ">": "greaterThan",
    "<": "lessThan",
    ">=": "greaterOrEqual",
    "<=": "lessOrEqual",
    "=": "equal",
    "<>": "notEqual",
}


class PmmlExporter(DecisionExporter):
    """A document of one mission."""

    form = "PMML"

    def write_decisions(self, decisions: Decisions) -> str:
        return write_document(_write_document(decisions))


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
            # since engines take a boolean that is missing for a false one
            add(column, "Value", value=value)
        if kind != "number":
            add(column, "Value", value="", property="missing")
    target = free_name("verdict", decisions.kinds)
    verdict = add(dictionary, "DataField", name=target, optype="categorical", dataType="string")
    for label in (*mission.coded.labels, name_person(mission.coded.labels)):
        add(verdict, "Value", value=label)
    model = add(root, "RuleSetModel", modelName=mission.name, functionName="classification")
    schema = add(model, "MiningSchema")
    for name in decisions.kinds:
        counted = {"missingValueReplacement": "0"} if decisions.has_count(name) else {}
        add(schema, "MiningField", name=name, **counted)
    add(schema, "MiningField", name=target, usageType="target")
    _write_rules(decisions, model)
    return root


def _write_rules(decisions: Decisions, model: Element) -> None:
    """The rules, and the outputs: what is predicted, and by which rule."""
    person, output = name_person(decisions.mission.coded.labels), add(model, "Output")
    derived = add(model, "LocalTransformations")
    rules = add(model, "RuleSet")
    writer = _Functions(decisions)
    for name, kind in decisions.kinds.items():
        if kind == "text":
            folded = writer.name_cell(name)
            add(
                derived, "DerivedField", name=folded, optype="categorical", dataType="string"
            ).append(_fold(name))
    add(rules, "RuleSelectionMethod", criterion="firstHit")
    keys = [case.rule or f"{person} {number}" for number, case in enumerate(decisions.cases, 1)]
    names = [free_name(f"{key} holds", decisions.kinds) for key in keys]
    for key, name, case in zip(keys, names, decisions.cases, strict=True):
        holds = add(derived, "DerivedField", name=name, optype="categorical", dataType="boolean")
        add(holds, "Extension", name="rule", value=case.said)
        holds.append(case.when.accept(writer))
        rule = add(rules, "SimpleRule", id=key, score=case.verdict or person)
        add(rule, "SimplePredicate", field=name, operator="equal", value="true")
    first = _constant(keys[-1])
    for key, name in reversed([*zip(keys[:-1], names, strict=False)]):
        first = _call("if", _field(name), _constant(key), first)
    chosen = free_name("first rule", decisions.kinds)
    add(derived, "DerivedField", name=chosen, optype="categorical", dataType="string").append(first)
    for name, feature in (("predicted", "predictedValue"), ("rule", "transformedValue")):
        free = free_name(name, decisions.kinds)
        field = add(
            output,
            "OutputField",
            name=free,
            feature=feature,
            dataType="string",
            optype="categorical",
        )
    field.append(_field(chosen))  # engines do not tell a rule's id


class _Functions(DecisionWriter[Element]):
    """Expressions as functions that are true or false."""

    def write_comparison(self, left: Number, sign: Sign, right: Number | float) -> Element:
        guards = [self.write_comparison(name, "<>", 0.0) for name in list_divisors(left, right)]
        named = [
            name
            for name in (left, right)
            if isinstance(name, str) and self.decisions.kinds[name] != "number"
        ]
        guards += [self.write_given(name, True) for name in named]  # what folds is never missing
        compared = _call(
            _SIGNS[sign], self._write_value(left), self._write_value(right), is_strict=True
        )
        return self.join([*guards, compared], True)

    def write_one_of(self, field: str, values: tuple[str, ...], is_in: bool) -> Element:
        cell, function = self.name_cell(field), "equal" if is_in else "notEqual"
        given = [] if is_in else [self.write_given(field, True)]
        found = [
            _call(function, _field(cell), _constant(value), is_strict=True) for value in values
        ]
        return self.join([*given, *found], not is_in)

    def write_given(self, field: str, is_given: bool) -> Element:
        return _call("isNotMissing" if is_given else "isMissing", _field(field))

    def write_sum(
        self, scored: Sequence[tuple[int, Element]], least: int, is_reached: bool
    ) -> Element:
        total = _call(
            "sum", *(_call("if", part, _constant(points), _constant(0)) for points, part in scored)
        )
        return _call("greaterOrEqual" if is_reached else "lessThan", total, _constant(least))

    def join(self, parts: Sequence[Element], is_all: bool) -> Element:
        if len(parts) > 1:
            return _call("and" if is_all else "or", *parts)
        return parts[0] if parts else _constant(is_all)

    def name_cell(self, name: str) -> str:
        """The field that holds a number or a flag, or a text as it is compared."""
        kinds = self.decisions.kinds
        return free_name(f"{name} in small letters", kinds) if kinds[name] == "text" else name

    def _write_value(self, of: Number | float) -> Element:
        if isinstance(of, float):
            return _constant(of)
        if isinstance(of, str):
            return _field(self.name_cell(of))
        return _call(of.operator.replace("×", "*"), _field(of.first), _field(of.second))


def _call(function: str, *given: Element, is_strict: bool = False) -> Element:
    """A function of what is given; ``is_strict``: false where anything is missing."""
    made = Element(
        "Apply", {"function": function, **({"mapMissingTo": "false"} if is_strict else {})}
    )
    made.extend(given)
    return made


def _constant(value: float | str | bool) -> Element:
    kind = {bool: "boolean", str: "string", int: "double", float: "double"}[type(value)]
    made = Element("Constant", {"dataType": kind})
    made.text = str(value).lower() if isinstance(value, bool) else str(value)
    return made


def _field(name: str) -> Element:
    return Element("FieldRef", {"field": name})


def _fold(name: str) -> Element:
    """A text as values are compared: in small letters, on one line, without a full stop behind
    it."""
    lower = _call("lowercase", _field(name))
    # Engines trim a constant that is a blank, and take an empty one for a missing one.
    single = _call("replace", lower, _constant(r"(\s)\s+"), _constant("$1"))
    return _call("replace", single, _constant(r"^\s*(.*?)[\s.]*$"), _constant("$1"))
