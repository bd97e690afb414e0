"""The page of all keys says what their declarations say."""

from __future__ import annotations

import dataclasses

import pytest
from docs.pages import DOCS

from lab import keys
from stageb.cli import registry
from stageb.cli.draft import dotted
from stageb.settings import section_of


def test_the_page_is_as_the_declarations_say() -> None:
    page = (DOCS / "keys.md").read_text(encoding="utf-8")
    assert page == keys.write_page(), "write it anew: python -m lab.keys > docs/keys.md"


@pytest.mark.parametrize("loop", registry.LOOPS)
def test_every_key_is_documented(loop: str) -> None:
    kind = registry.config_of(registry.LOOPS[loop])
    sections = [kind, *filter(None, (section_of(annotation) for _, annotation in dotted(kind, items=True)))]
    bare = [
        f"{section.__name__}.{field.name}"
        for section in sections
        for field in dataclasses.fields(section)
        if field.name not in keys.read_docs(section) and section_of(dict(dotted(section))[field.name]) is None
    ]
    assert bare == []
