"""A run's folder, opened and described."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stageb.engines.config import HOW_ASKED
from stageb.guidance.config import LoopConfig
from stageb.guidance.files.artifacts import append_some
from stageb.guidance.files.guidance_file import to_json
from stageb.guidance.inputs import BAD_RECORDS, Inputs
from stageb.guidance.ranks import Ranks
from stageb.runs import run
from stageb.store.journal import Journal

NOT_SHAPING = (  # keys that change no artifact, or do so through what is compared beside them
    "output.",
    "fabric.",
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


def open_journal(config: LoopConfig, resolved_yaml: str, fresh: bool, inputs: Inputs, ranks: Ranks) -> Journal:
    """The run's folder, new or to go on with, and the files that say what the run is."""
    shaping: dict[str, Any] = asdict(config)
    shaping["tickets"] = inputs.digest  # what they say, not where they lie
    shaping["round_size"] = ranks.round_size
    shaping["group_size"] = ranks.group_size
    shaping["first_guidance"] = [to_json(guidance) for guidance in inputs.guidance.values()]
    journal = run.open_journal(config.output, shaping, NOT_SHAPING, fresh or config.guidance.reset_on_rerun)
    run.describe(journal, resolved_yaml, ("torch", "lightning", "transformers"), ranks.world.facts())
    if journal.number == 0:
        rows = [
            {"file": bad.line.path, "line": bad.line.line, "what": bad.line.what, "raw": bad.raw} for bad in inputs.set_aside
        ]
        append_some(journal, BAD_RECORDS, rows)
    return journal
