"""This loop: a run of ``stageb fit`` in a process of its own, and what its files say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.bench.learning import data
from lab.bench.learning.method import DTYPE, Learnt, Point, Task
from stageb.cli.parsing import parse
from stageb.errors import StagebError
from stageb.guidance.config import LoopConfig
from stageb.guidance.rules.guidance_json import from_json, to_json
from stageb.guidance.words.types import BY_RULES, Guidance
from stageb.store.journal import safe_name

FEWEST_ROLLOUTS = 100  # rollouts of an epoch: so many epochs are planned that the budget ends first
RUN = "run"
IDLE = "lab.bench.learning.proposer:idle"
STATISTICS = "lab.bench.learning.proposer:statistics"


def learn(task: Task, reflector: str | None = None) -> Learnt:
    """Run the command until its budget is spent. Raises ``StagebError`` with its last words where
    it fails.

    ``reflector`` is a function that reflects in the model's place, as the scripted engine names it.
    """
    tickets = task.folder / "tickets.jsonl"
    data.write(task.tickets, tickets)
    first = task.folder / "first.json"
    first.write_text(json.dumps(to_json(task.first)), encoding="utf-8")
    options: dict[str, object] = {
        "tickets": json.dumps([str(tickets)]),
        "guidance.path": first,  # as the other methods start, whatever verdict is the cheaper one
        "seed": task.seed,
        "model.model_name_or_path": task.model,
        "model.torch_dtype": DTYPE,
        "output.root": task.folder,
        "output.run_name": RUN,
        "guidance.retention": 1_000_000,
        "runner.epochs": max(1, task.budget // FEWEST_ROLLOUTS),
        "fabric.accelerator": task.device,
        "fabric.devices": 1,
        "report": "false",
    }
    reflector = IDLE if task.idle else reflector
    if reflector:
        options |= {
            "reflection.model.engine": "scripted",
            "reflection.model.model_name_or_path": reflector,
        }
    given = [("config", path) for path in task.configs] + [*options.items()]
    words = [word for key, value in given for word in (f"--{key}", str(value))]
    config: LoopConfig = parse(words).config
    by_code = config.runner.judge == "both"
    words += ["--budget.rollouts", str(task.budget + (0 if by_code else measuring(task, config)))]
    done = subprocess.run(
        [sys.executable, "-m", "stageb", "fit", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # where lab, not installed, is found
        env=os.environ | {"COLUMNS": "120", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    (task.folder / "log.txt").write_text(done.stdout, encoding="utf-8")
    if done.returncode:
        raise StagebError(f"stageb fit ended with {done.returncode}: {done.stdout[-2000:]}")
    return replace(
        read(task.folder / RUN / safe_name(task.first.mission), task), judges_by_code=by_code
    )


def measuring(task: Task, config: LoopConfig) -> int:
    """Rollouts that judge test before anything is learnt: the loop's budget counts them, this
    benchmark does not. Where code judges, they may be none."""
    return len(task.parts["test"]) * config.sampler.samples_per_decode * len(config.sampler.grid)


def read(place: Path, task: Task) -> Learnt:
    """Read the result in the mission's folder.

    What counts are train rollouts, verdicts of the gate and for the evidence, and val rollouts,
    since val chooses what is handed back. All that was spent under earlier steps of the guidance
    was spent before a step was reached.
    """
    learning = [
        r
        for r in rows(place / "trajectories.jsonl")
        if r["split"] == "val" or (r["split"] == "train" and r["epoch"])
    ]
    decisions = rows(place / "reflection.jsonl")
    costs = [(row["guidance_step"], 1) for row in learning if row["decode"] != BY_RULES]
    costs += [(row["guidance_step_before"], row["judged"]) for row in decisions]
    costs += [
        (row["guidance_step_before"], row["gate"]["judged"]) for row in decisions if row["gate"]
    ]
    spent = sum(cost for _, cost in costs)
    points = [Point(0, task.first)]
    for path in sorted((place / "snapshots").glob("guidance-*.json")):
        guidance = load(path)
        if guidance.step:
            points.append(
                Point(sum(cost for step, cost in costs if step < guidance.step), guidance)
            )
    points.append(Point(spent, load(place / "guidance.json")))
    return Learnt(
        points,
        rollouts=spent,
        reflections=sum(len(row["proposals"]) for row in decisions if "eligible" in row),
        accepted=sum(row["applied"] for row in decisions if "eligible" in row),
    )


def load(path: Path) -> Guidance:
    """The guidance of a run's file."""
    (guidance,) = from_json(json.loads(path.read_text(encoding="utf-8")), str(path)).values()
    return guidance


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of a run; none where there is no such file."""
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if path.is_file()
        else []
    )
