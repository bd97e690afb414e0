"""How often each rule was right on a run's val: what it takes to know which verdicts a person should see.

A model that is sure and wrong agrees with itself, so agreement does not find it; the rule that it names does. Val taught no
rule and tested none, but it chose among what was learnt, so these shares flatter a little.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from stageb.guidance.files.artifacts import folder as folder_of
from stageb.guidance.files.guidance_file import split_step
from stageb.guidance.types import Guidance
from stageb.runs.folder import RunFolder

FEWEST = 5  # tickets of val that a rule decided, below which nothing is known of it
TELLING = 20  # from which on a rule that was often wrong is named without being asked for
OFTEN_WRONG = 0.9  # share of right verdicts below which it is

RuleRecord = Mapping[str, tuple[int, float]]
"""By the rule that reasons name, empty where they name none: tickets of val that it decided, the share of right verdicts."""


def cited_rule(reason: str) -> str:
    """The rule that a reason names last, as the model is asked to do; empty where it names none."""
    return next(reversed(re.findall(r"\bG\d+\b", reason)), "")


def read_record(source: str, guidance: Guidance) -> dict[str, tuple[int, float]]:
    """How often the rules of a run's folder were right on its val, each ticket weighed by those that it stands for; nothing
    of a file, and of a step that val never judged."""
    path, _ = split_step(source)
    files, place = RunFolder(path), folder_of(guidance.mission)
    if not path.is_dir() or not files.commit["number"]:
        return {}
    rows = [row for row in files.read_committed(f"{place}/selections.jsonl") if _is_of(row, guidance)]
    rows = [row for row in rows if row["epoch"] == rows[-1]["epoch"]]
    figures = [row for row in files.read_committed(f"{place}/metrics.jsonl") if _is_of(row, guidance)]
    counted = Counter(row["label"] for row in rows)
    scale = {label: figures[-1]["classes"][label]["n"] / n for label, n in counted.items()} if figures else {}
    tickets: Counter[str] = Counter()
    weights: dict[str, list[float]] = {}
    for row in rows:
        key = cited_rule(row["reason"])
        tickets[key] += 1
        right, whole = weights.setdefault(key, [0.0, 0.0])
        weight = scale.get(row["label"], 1.0)
        weights[key] = [right + weight * row["label_match"], whole + weight]
    return {key: (n, round(weights[key][0] / weights[key][1], 6)) for key, n in sorted(tickets.items())}


def explain_doubt(record: RuleRecord, reason: str, wanted: float) -> str:
    """Why a person should see a verdict with this reason; empty where its rule was right often enough."""
    key = cited_rule(reason)
    name = key or "no rule"
    tickets, share = record.get(key, (0, 0.0))
    if tickets < FEWEST:
        return f"{name} decided {tickets} val tickets, too few to know it"
    return f"{name} was right for {share:.0%} of {tickets:,} val tickets" if share < wanted else ""


def name_doubtful(mission: str, record: RuleRecord) -> list[str]:
    """A line for each rule that was often wrong."""
    return [
        f"{mission}: {key or 'no rule'} was right for {share:.0%} of the {tickets:,} val tickets that it decided; "
        f"predict --min_rule_accuracy {OFTEN_WRONG} sends its verdicts to review"
        for key, (tickets, share) in record.items()
        if tickets >= TELLING and share < OFTEN_WRONG
    ]


def _is_of(row: Mapping[str, Any], guidance: Guidance) -> bool:
    return bool(row["split"] == "val" and row["guidance_step"] == guidance.step)
