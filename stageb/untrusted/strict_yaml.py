"""YAML as plain data: what config files and options may hold, checked before anything else reads
them.

YAML 1.1, but that dates are texts, as are numbers in base 60 (``20:1``, a ratio to people, is not
1201), and that ``1e-3``, which it takes for a text, is a number. Tags, which name Python objects or
values that a scalar is not, keys that are no texts or stand twice, anchors that hold themselves or
grow without end, and nesting that exhausts a parser are refused.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import yaml

MAX_DEPTH = 64
MAX_NODES = 10_000  # keys and values, counted each time an anchor repeats them
MAX_DIGITS = 100
TEXT, WHOLE_NUMBER, NUMBER, MERGE, VALUE, DATE = (
    f"tag:yaml.org,2002:{name}" for name in "str int float merge value timestamp".split()
)
POWER_OF_TEN = re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$")

KeyPath = tuple[str | int, ...]  # of a value: the keys, and places in lists, that lead to it


class YamlError(Exception):
    """A fault, its remedy, and its line from 1; 0 where the whole text is meant."""

    def __init__(self, line: int, what: str, remedy: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what
        self.remedy = remedy


class BrokenYamlError(YamlError):
    """No YAML at all, where the others are YAML of more than plain data."""


class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads a power of ten without a point or a sign as the number it is, and a date as text; takes
    no tags."""

    yaml_implicit_resolvers: ClassVar = {
        letter: [(tag, form) for tag, form in forms if tag != DATE]
        for letter, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: Any) -> Any:
        event = self.peek_event()
        if (tag := getattr(event, "tag", None)) not in (None, TEXT):
            raise YamlError(
                event.start_mark.line + 1, f"the tag {tag}", "write the value without it"
            )
        return super().compose_node(parent, index)


class Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Puts a text in quotes that ``Loader`` would take for a number."""


for loader_or_dumper in (Loader, Dumper):
    loader_or_dumper.add_implicit_resolver(NUMBER, POWER_OF_TEN, list("-+0123456789"))


def read(text: str) -> tuple[Any, dict[KeyPath, int]]:
    """The plain data that ``text`` holds, an empty text where it is blank; and the line of every
    key and item.

    Raises ``YamlError``.
    """
    try:
        root = yaml.compose(text, Loader=Loader)
        reader = _YamlReader()
        return "" if root is None else reader.data(root, ()), reader.lines
    except yaml.YAMLError as error:
        what = str(getattr(error, "problem", None) or error).partition("\n")[0]
        raise BrokenYamlError(
            _line_of(error, text), f"no valid YAML: {what}", "correct it here or just above"
        ) from None
    except RecursionError:
        raise YamlError(0, "nested too deeply", "write plain keys and values") from None


def dump(values: Any) -> str:
    """Plain data as YAML text, in its own order."""
    text: str = yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    return text


def dump_line(value: Any) -> str:
    """Plain data as YAML that stands behind a key, on one line."""
    text: str = yaml.dump(
        [value], Dumper=Dumper, default_flow_style=True, allow_unicode=True, width=float("inf")
    )
    return text.strip()[1:-1]


class _YamlReader:
    """Makes plain data of nodes, and counts them on the way."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._count = 0
        self._scalars = Loader("")

    def data(self, node: yaml.Node, path: KeyPath, depth: int = 0) -> Any:
        """Return the plain data at and under ``node``. Raises ``YamlError`` for anything else."""
        line = node.start_mark.line + 1
        self._count += 1
        if depth > MAX_DEPTH or self._count > MAX_NODES:
            raise YamlError(
                line, "nested too deeply, or too much of it", "write plain keys and values"
            )
        if isinstance(node, yaml.SequenceNode):
            self.lines |= {
                (*path, place): each.start_mark.line + 1 for place, each in enumerate(node.value)
            }
            return [
                self.data(each, (*path, place), depth + 1) for place, each in enumerate(node.value)
            ]
        return (
            self._mapping(node, path, depth)
            if isinstance(node, yaml.MappingNode)
            else self._scalar(node, line)
        )

    def _mapping(self, node: yaml.MappingNode, path: KeyPath, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        # what stands here comes first
        for key, value in sorted(node.value, key=lambda entry: bool(entry[0].tag == MERGE)):
            line, inner = key.start_mark.line + 1, (*path, key.value)
            if key.tag == MERGE:
                for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    merged = self.data(each, path, depth + 1)
                    if not isinstance(merged, dict):
                        raise YamlError(
                            line, "<< merges what has no keys", "name an anchor of keys"
                        )
                    found = merged | found
            elif key.tag != TEXT:
                raise YamlError(
                    line, "a key that is no text", "put it in quotes, or write 'key: value'"
                )
            elif key.value in found:
                raise YamlError(
                    line, f"{'.'.join(map(str, inner))} stands here twice", "keep one of the two"
                )
            else:
                self.lines.setdefault(inner, line)
                found[key.value] = self.data(value, inner, depth + 1)
        return found

    def _scalar(self, node: yaml.ScalarNode, line: int) -> Any:
        if node.tag in (MERGE, VALUE):
            raise YamlError(line, f"the tag {node.tag}", "write the value without it")
        if node.tag == WHOLE_NUMBER and len(node.value) > MAX_DIGITS:
            return node.value
        # in base 60, which nobody means
        if node.tag in (WHOLE_NUMBER, NUMBER) and ":" in node.value:
            return node.value
        try:
            return Loader.yaml_constructors[node.tag](self._scalars, node)
        except ValueError:  # 0x_ and ._ are numbers by their looks alone
            return node.value


def _line_of(error: yaml.YAMLError, text: str) -> int:
    mark, position = getattr(error, "problem_mark", None), getattr(error, "position", None)
    if mark is not None:
        return int(mark.line) + 1
    return 0 if position is None else text.count("\n", 0, position) + 1
