"""The demo's tickets: what is shipped is what the script writes, and a learner has something to
find in them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial

import pytest

from lab.demo import make
from stageb.demo import TICKETS

Rule = Callable[[str], bool]

RULES: dict[str, list[Rule]] = {
    "rack cabling": [
        lambda text: "connector: loose" in text,
        lambda text: "label: missing" in text,
        lambda text: "seal: worn" in text and "grounding: single" in text,
    ],
    "site photos": [
        lambda text: "corrosion" in text,
        lambda text: "crack" in text,
        lambda text: "leak" in text,
        lambda text: "fence: open" in text,
    ],
}


def cases(mission: str) -> list[tuple[str, bool]]:
    """(what a model reads, whether it fails) of every ticket."""
    rows = [json.loads(line) for line in TICKETS.read_text(encoding="utf-8").splitlines()]
    return [
        (" | ".join(row["per_image"].values()), row["label"] == "fail")
        for row in rows
        if row["mission"] == mission
    ]


def contains(word: str, text: str) -> bool:
    return word in text


def accuracy(mission: str, rules: list[Rule]) -> float:
    judged = [any(rule(text) for rule in rules) == fails for text, fails in cases(mission)]
    return sum(judged) / len(judged)


def test_the_script_writes_the_shipped_bytes() -> None:
    assert make.text().encode() == TICKETS.read_bytes()


@pytest.mark.parametrize("mission", RULES)
def test_the_rules_explain_everything_and_each_is_needed(mission: str) -> None:
    rules = RULES[mission]
    nothing = accuracy(mission, [])
    assert 0.5 <= nothing <= 0.6
    assert accuracy(mission, rules) == 1.0
    for rule in rules:
        assert accuracy(mission, [rule]) >= nothing + 0.08
        assert accuracy(mission, [other for other in rules if other is not rule]) <= 1.0 - 0.08


@pytest.mark.parametrize("mission", RULES)
def test_nothing_else_tells_the_label(mission: str) -> None:
    """A rule on any one other word or value gains next to nothing over "all pass"."""
    words = {word for text, _ in cases(mission) for word in re.findall(r"\w+: \w+|\w+", text)}
    telling = re.compile(
        r"corrosion|crack|leak|loose|missing|worn|single|open|fence|connector|label|seal|grounding"
    )
    for word in words:
        if not telling.search(word):
            assert accuracy(mission, [partial(contains, word)]) <= accuracy(mission, []) + 0.05, (
                word
            )
