"""Writes docs/keys.md, every key of every loop, from where keys are declared: ``python -m lab.keys
> docs/keys.md``"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, cast

from stageb.cli import commands
from stageb.cli.draft import defaults
from stageb.settings import describe_keys, inner_of, section_of
from stageb.untrusted import strict_yaml

HEAD = """# Every key

Written by `python -m lab.keys` from where keys are declared; `stageb fit --loop NAME --help` prints the same. A section that
several loops have stands under the first of them. [The ten keys to set first](tickets-and-keys.md#the-ten-keys-to-set) have
a page of their own.
"""


def write_page() -> str:
    """The page."""
    seen: set[type] = set()
    parts = [HEAD]
    for name, loop in commands.loops().items():
        parts += [f"## {name}\n", *_write_section(commands.load_config_class(loop), "", seen)]
    return "\n".join(parts)


def _write_section(section: Any, prefix: str, seen: set[type]) -> Iterator[str]:
    """A section's keys as a table, then the sections in it, unless they were ``seen``, to which it
    adds."""
    seen.add(section)
    docs, values = read_docs(section), defaults(section)
    sections, rows = dict[str, Any](), list[str]()
    for name, key in describe_keys(section).items():
        below = section_of(key.annotation) or section_of(inner_of(key.annotation, list))
        if below:
            sections[name] = below
        if name in docs:
            default = "" if below else f"`{_escape(strict_yaml.dump_line(values[name]))}`"
            rows.append(f"| `{prefix}{name}` | {default} | {_escape(docs[name])} |")
    if prefix:
        yield f"### {prefix.removesuffix('.')}\n"
    yield f"{inspect.cleandoc(section.__doc__ or '').replace('``', '`')}\n"
    if rows:
        yield "\n".join(["| key | default | |", "|---|---|---|", *rows, ""])
    for name, below in sections.items():
        if below not in seen:
            yield from _write_section(below, f"{prefix}{name}.", seen)


@cache
def read_docs(section: Any) -> dict[str, str]:
    """Return the docstring beneath each field of a section, and of the sections that it extends."""
    docs: dict[str, str] = {}
    for kind in reversed([each for each in section.__mro__ if dataclasses.is_dataclass(each)]):
        (body,) = (
            node.body
            for node in ast.parse(inspect.getsource(cast("type[Any]", kind))).body
            if isinstance(node, ast.ClassDef)
        )
        for field, doc in pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(doc, ast.Expr)
                and isinstance(doc.value, ast.Constant)
            ):
                docs[ast.unparse(field.target)] = " ".join(str(doc.value.value).split()).replace(
                    "``", "`"
                )
    return docs


def _escape(text: str) -> str:
    """``text`` in a cell of a table, which neither a bar nor a tag may break."""
    return re.sub(r"[|<]", r"\\\g<0>", text)


if __name__ == "__main__":
    print(write_page(), end="")
