"""YAML as plain data: what config files and options may hold, checked before anything else reads them.

YAML 1.1, but that a date is a text, and ``1e-3``, which it takes for a text, a number. Tags, which name Python objects or
values that a scalar is not, keys that are no texts, anchors that hold themselves or grow without end, and nesting that
exhausts a parser have no place in a config.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import yaml

MAX_DEPTH = 64
MAX_NODES = 10_000  # keys and values, counted each time an anchor repeats them
MAX_DIGITS = 100
TEXT, WHOLE_NUMBER, NUMBER, MAPPING, SEQUENCE, MERGE, VALUE, DATE = (
    f"tag:yaml.org,2002:{name}" for name in "str int float map seq merge value timestamp".split()
)
POWER_OF_TEN = re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$")


class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads a power of ten without a point or a sign as the number it is, and a date as text."""

    yaml_implicit_resolvers: ClassVar = {
        letter: [(tag, form) for tag, form in forms if tag != DATE]
        for letter, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Puts a text in quotes that ``Loader`` would take for a number."""


for loader_or_dumper in (Loader, Dumper):
    loader_or_dumper.add_implicit_resolver(NUMBER, POWER_OF_TEN, list("-+0123456789"))
BARE = Loader("")


class YamlError(Exception):
    """What is wrong, the remedy, and the line from 1; 0 where the whole text is meant."""

    def __init__(self, line: int, what: str, remedy: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what
        self.remedy = remedy


class BrokenYamlError(YamlError):
    """No YAML at all, where the others are YAML of more than plain data."""


def compose(text: str) -> yaml.Node | None:
    """The root node of ``text``; None where it holds nothing. Raises ``YamlError``."""
    try:
        root = yaml.compose(text, Loader=Loader)
        if root is not None:
            _check(root, 0, [])
    except yaml.YAMLError as error:
        what = str(getattr(error, "problem", None) or error).partition("\n")[0]
        raise BrokenYamlError(_line_of(error, text), f"no valid YAML: {what}", "mend it here or just above") from None
    except RecursionError:
        raise YamlError(0, "nested too deeply", "write plain keys and values") from None
    return root


def entries(node: yaml.MappingNode) -> Iterator[tuple[str, int, yaml.Node, bool]]:
    """The keys of a mapping, merged ones first: name, line, value, and whether it stands there itself."""
    for key, value in node.value:
        if key.tag == MERGE:
            for merged in reversed(value.value) if isinstance(value, yaml.SequenceNode) else [value]:
                yield from ((name, line, inner, False) for name, line, inner, _ in entries(merged))
    yield from ((key.value, key.start_mark.line + 1, value, True) for key, value in node.value if key.tag != MERGE)


def unquoted(node: yaml.ScalarNode) -> yaml.ScalarNode:
    """A scalar as it would be read without quotes."""
    return yaml.ScalarNode(BARE.resolve(yaml.ScalarNode, node.value, (True, False)), node.value, node.start_mark)


def plain(node: yaml.ScalarNode) -> Any:
    """The text, number, truth value or null that a scalar stands for. Raises ``ValueError`` for a number that is none."""
    if node.tag == WHOLE_NUMBER and len(node.value) > MAX_DIGITS:
        raise ValueError("a number of too many digits")
    return BARE.construct_object(node)  # a ValueError for 0x_ and ._, numbers by their looks alone


def dump(values: Any) -> str:
    """Plain data as YAML text, in its own order."""
    text: str = yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    return text


def load(text: str) -> Any:
    """The plain data that ``dump`` made a text of."""
    return yaml.load(text, Loader=Loader)


def _line_of(error: yaml.YAMLError, text: str) -> int:
    mark, position = getattr(error, "problem_mark", None), getattr(error, "position", None)
    if mark is not None:
        return int(mark.line) + 1
    return 0 if position is None else text.count("\n", 0, position) + 1


def _check(node: yaml.Node, depth: int, seen: list[yaml.Node]) -> None:
    """Raise ``YamlError`` for anything but plain data at or under ``node``. ``seen`` gathers every node on the way."""
    line = node.start_mark.line + 1
    seen.append(node)
    if depth > MAX_DEPTH or len(seen) > MAX_NODES:
        raise YamlError(line, "nested too deeply, or too much of it", "write plain keys and values")
    if node.tag != TEXT and (node.tag != _plain_tag(node) or node.tag in (MERGE, VALUE)):
        raise YamlError(line, f"the tag {node.tag}", "write the value without it")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag == MERGE:
                merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
                if not all(isinstance(each, yaml.MappingNode) for each in merged):
                    raise YamlError(key.start_mark.line + 1, "<< merges what has no keys", "name an anchor of keys")
            elif key.tag != TEXT:
                raise YamlError(key.start_mark.line + 1, "a key that is no text", "put it in quotes, or write 'key: value'")
            else:
                _check(key, depth + 1, seen)
            _check(value, depth + 1, seen)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check(value, depth + 1, seen)


def _plain_tag(node: yaml.Node) -> str:
    """The tag that ``node`` has where none was written."""
    if isinstance(node, yaml.ScalarNode):
        return str(unquoted(node).tag)
    return MAPPING if isinstance(node, yaml.MappingNode) else SEQUENCE
