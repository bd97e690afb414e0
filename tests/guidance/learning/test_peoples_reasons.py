"""Reasons of people: learning reads those of train tickets, and nothing that judges a ticket reads
any."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from programs import small

from stageb.__main__ import main
from stageb.engines.protocol import Decode, Prompt
from stageb.guidance.commands.fit.inputs import read_inputs
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging import follower
from stageb.guidance.rules.conditions import Mentions
from stageb.guidance.rules.evidence import find_evidence, find_named
from stageb.guidance.rules.fields import read_images
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import Ticket

OF_REFLECTION = ("reflection.jsonl", "failure_malformed.jsonl")  # hold what the model wrote
asked: list[str] = []


def respond(prompt: Prompt, decode: Decode, key: int) -> str:
    """As the model of small runs, whose prompts are kept."""
    asked.append(f"{prompt.system}\n{prompt.user}")
    return follower.respond(prompt, decode, key)


@pytest.mark.parametrize("judge", ["model", "both"])
def test_reflection_alone_reads_reasons_and_of_train_alone(judge: str, tmp_path: Path) -> None:
    asked.clear()
    lines = [{**row, "why": f"REASON-{row['group_id']}, as a person saw"} for row in small.rows()]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    keys = {
        "columns.reason": "why",
        "model.model_name_or_path": f"{__name__}:respond",
        "runner.epochs": 1,
        "reflection.scope": "bundle",
    }
    assert main(small.arguments(path, tmp_path / "out", keys={**keys, "runner.judge": judge})) == 0
    reading = [text for text in asked if "REASON" in text]
    assert reading and all('"operations"' in text for text in reading), (
        "no prompt that asks for a verdict"
    )
    assert len(reading) < len(asked) or judge == "both"
    run = tmp_path / "out" / "run" / "valves"
    splits: dict[str, set[str]] = {}
    for row in map(json.loads, (run / "selections.jsonl").read_text().splitlines()):
        splits.setdefault(row["split"], set()).add(row["group_id"])
    read = {name for text in reading for name in re.findall("REASON-(g-[0-9]+)", text)}
    assert read and splits["test"] and splits["val"] and not read & (splits["test"] | splits["val"])
    left = "".join(
        file.read_text() for file in run.rglob("*.json*") if file.name not in OF_REFLECTION
    )
    assert "REASON" not in left, "demonstrations, selections and rules hold none"


def ticket(number: int, text: str, reason: str) -> Ticket:
    _, content = read_images([], dict(pair.split(": ") for pair in text.split("; ")))
    return Ticket("m", f"g{number}", "fail", (("image_1", text),), content=content, reason=reason)


def test_evidence_of_few_tickets_prefers_what_reasons_name() -> None:
    """Two conditions hold for the same tickets but one: the reasons tell which of them it was."""
    wrong = [f"seal: worn; belt: {'old' if n else 'new'}" for n in range(6)]
    right = [
        f"seal: {'good' if n % 2 else 'fine'}; belt: {'new' if n % 3 else 'fresh'}"
        for n in range(12)
    ]

    def first(reason: str) -> str:
        tickets = [ticket(n, text, reason) for n, text in enumerate(wrong)]
        others = [ticket(100 + n, text, "") for n, text in enumerate(right)]
        return find_evidence(tickets, others, 1).clues[0].conditions[0].fields[0]

    assert first("") == "seal"
    assert first("the belt is old") == "belt"
    assert first("the seal") == "seal"


@pytest.mark.parametrize(
    ("word", "reason"),
    [("leaking", "It leaks."), ("leak", "leaking"), ("bay B", "in Bays"), ("漏水", "阀门漏水了")],
)
def test_reasons_name_a_word_with_any_ending(word: str, reason: str) -> None:
    named, other = Mentions((word,)), Mentions(("noisy",))
    assert find_named({named: 0b11, other: 0b11}, [reason, reason]) == {named}


def test_reasons_of_val_and_test_are_dropped_as_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f"{json.dumps({**row, 'why': 'seen'})}\n" for row in small.rows()))
    inputs = read_inputs(LoopConfig(tickets=[str(path)], columns=ColumnsConfig(reason="why")))
    splits = inputs.splits["valves"]
    assert {inputs.tickets[i].reason for i in splits.train} == {"seen"}
    assert {inputs.tickets[i].reason for i in (*splits.val, *splits.test)} == {""}
