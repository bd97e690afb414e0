"""A run's folder: opened, described, and asked whether its run is over."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import stageb
from stageb.commits import committed
from stageb.engines.config import HOW_ASKED
from stageb.guidance.config import LoopConfig
from stageb.guidance.files.artifacts import append_some
from stageb.guidance.files.guidance_file import to_json
from stageb.guidance.inputs import BAD_RECORDS, Inputs
from stageb.guidance.ranks import Ranks
from stageb.journal import Journal

NOT_SHAPING = (  # keys that change no artifact, or do so through what is compared beside them
    "output.",
    "fabric.",
    "stage_a_paths",
    "columns.",
    *HOW_ASKED,
    "guidance.path",
    "guidance.reset_on_rerun",
    "log_level",
    "loggers",
    "runner.log_every_s",
    "runner.per_rank_rollout_batch_size",
    "report",
)


def is_finished(config: LoopConfig) -> bool:
    """Whether a run that needs nothing more lies in the folder; of whose, ``open_journal`` tells."""
    state = committed(Path(config.output.root) / config.output.run_name)["state"]
    return bool(state and state.get("finished"))


def open_journal(config: LoopConfig, resolved_yaml: str, fresh: bool, inputs: Inputs, ranks: Ranks) -> Journal:
    """The run's folder, new or to go on with, and the files that say what the run is."""
    shaping: dict[str, Any] = asdict(config)
    shaping["tickets"] = inputs.digest
    shaping["round_size"] = ranks.round_size
    shaping["group_size"] = ranks.group_size
    shaping["first_guidance"] = [to_json(guidance) for guidance in inputs.guidance.values()]
    journal = Journal.open(
        config.output.root,
        config.output.run_name,
        shaping,
        fresh=fresh or config.guidance.reset_on_rerun,
        ignored=NOT_SHAPING,
        ways_out=("--fresh", "another output.run_name"),
    )
    if journal.number == 0:
        journal.replace("config.yaml", resolved_yaml)
        rows = [
            {"file": bad.line.path, "line": bad.line.line, "what": bad.line.what, "raw": bad.raw} for bad in inputs.set_aside
        ]
        append_some(journal, BAD_RECORDS, rows)
    journal.replace("run.json", json.dumps(machine_facts(ranks), indent=2) + "\n")
    return journal


def machine_facts(ranks: Ranks) -> dict[str, Any]:
    """What ran the run: versions and devices, and nothing of the environment."""
    return {
        "stageb": stageb.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in ("torch", "lightning", "transformers")},
        **ranks.world.facts(),
    }
