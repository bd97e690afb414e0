"""YAML as plain data: what config files and options may hold, checked before anything else reads them.

Tags, which name Python objects or values that a scalar is not, keys that are no texts, anchors that hold themselves or
grow without end, and nesting that a C parser would crash on have no place in a config.
"""

from __future__ import annotations

import yaml

MAX_DEPTH = 64
MAX_NODES = 10_000  # keys and values, counted each time an anchor repeats them
MAX_DIGITS = 100
TEXT, WHOLE_NUMBER, NULL, MAPPING, SEQUENCE, MERGE, VALUE = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "null", "map", "seq", "merge", "value")
)


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
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            _check(root, 0, [], yaml.SafeLoader(""))
        yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # who reads it next refuses a little more
    except yaml.YAMLError as error:
        what = str(getattr(error, "problem", None) or error).partition("\n")[0]
        raise BrokenYamlError(_line_of(error, text), f"no valid YAML: {what}", "mend it here or just above") from None
    except RecursionError:
        raise YamlError(0, "nested too deeply", "write plain keys and values") from None
    return root


def _line_of(error: yaml.YAMLError, text: str) -> int:
    mark, position = getattr(error, "problem_mark", None), getattr(error, "position", None)
    if mark is not None:
        return int(mark.line) + 1
    return 0 if position is None else text.count("\n", 0, position) + 1


def _check(node: yaml.Node, depth: int, seen: list[yaml.Node], resolver: yaml.SafeLoader) -> None:
    """Raise ``YamlError`` for anything but plain data at or under ``node``. ``seen`` gathers every node on the way."""
    line = node.start_mark.line + 1
    seen.append(node)
    if depth > MAX_DEPTH or len(seen) > MAX_NODES:
        raise YamlError(line, "nested too deeply, or too much of it", "write plain keys and values")
    if node.tag != _plain_tag(node, resolver):
        raise YamlError(line, f"the tag {node.tag}", "write the value without it")
    if node.tag == WHOLE_NUMBER and len(node.value) > MAX_DIGITS:
        raise YamlError(line, f"a number of {len(node.value)} digits", "write a smaller one")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag == MERGE:
                merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
                if not all(isinstance(each, yaml.MappingNode) for each in merged):
                    raise YamlError(key.start_mark.line + 1, "<< merges what has no keys", "name an anchor of keys")
            elif key.tag != TEXT:
                raise YamlError(key.start_mark.line + 1, "a key that is no text", "put it in quotes, or write 'key: value'")
            else:
                _check(key, depth + 1, seen, resolver)
            _check(value, depth + 1, seen, resolver)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check(value, depth + 1, seen, resolver)


def _plain_tag(node: yaml.Node, resolver: yaml.SafeLoader) -> str:
    """The tag that ``node`` has where none was written."""
    if isinstance(node, yaml.MappingNode):
        return MAPPING
    if isinstance(node, yaml.SequenceNode):
        return SEQUENCE
    implied: str = resolver.resolve(yaml.ScalarNode, node.value, (True, False))
    return TEXT if node.tag == TEXT or implied in (MERGE, VALUE) else implied
