"""Which tickets a page shows as judged worst."""

from __future__ import annotations

from typing import Any

from stageb.guidance.commands.report.read import collect_verdicts


def selection(ticket: str, strength: float, epoch: int = 1, right: bool = False) -> dict[str, Any]:
    row = {
        "ticket_key": ticket,
        "split": "val",
        "epoch": epoch,
        "guidance_step": 0,
        "label": "fail",
        "vote_strength": strength,
    }
    return {**row, "verdict": "fail" if right else "pass", "label_match": right}


def test_the_worst_are_wrong_most_often_then_most_surely() -> None:
    rows = [selection("sure", 1.0), selection("torn", 0.6), selection("also", 1.0), selection("right", 1.0, right=True)]
    rows += [selection("often", 0.5), selection("often", 0.5, epoch=2)]
    assert [each.row["ticket_key"] for each in collect_verdicts(rows, [], 0).worst] == ["often", "also", "sure", "torn"]
