"""A run's folder, opened and described."""

from __future__ import annotations

from stageb.guidance.config import LoopConfig
from stageb.guidance.files.artifacts import append_some
from stageb.guidance.files.shape import LIMITS, NOT_SHAPING, shape
from stageb.guidance.inputs import BAD_RECORDS, Inputs
from stageb.guidance.ranks import Ranks
from stageb.runs import run
from stageb.store.journal import Journal


def open_journal(config: LoopConfig, resolved_yaml: str, fresh: bool, inputs: Inputs, ranks: Ranks) -> Journal:
    """The run's folder, new or to go on with, and the files that say what the run is. Where a limit that ended learning was
    raised, it is cut back to where learning ended."""
    shaping = {**shape(config, inputs), "round_size": ranks.round_size, "group_size": ranks.group_size}
    journal = run.open_journal(config.output, shaping, NOT_SHAPING, LIMITS, fresh or config.guidance.reset_on_rerun)
    for limit in journal.raised:
        journal.go_back(limit)
    run.describe(journal, resolved_yaml, ("torch", "lightning", "transformers"), ranks.world.facts())
    if journal.number == 0:
        rows = [
            {"file": bad.line.path, "line": bad.line.line, "what": bad.line.what, "raw": bad.raw} for bad in inputs.set_aside
        ]
        append_some(journal, BAD_RECORDS, rows)
    return journal
