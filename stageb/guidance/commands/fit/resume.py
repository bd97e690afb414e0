"""Resuming a run: which keys and inputs must be as they were for its folder to be gone on with, what
may change, and how a new folder begins."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from stageb.engines.config import HOW_ASKED
from stageb.guidance.commands.fit.inputs import Inputs
from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.state import STOP
from stageb.guidance.rules.guidance_json import to_json
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.runs.folder import describe
from stageb.store import commits
from stageb.store.journal import Journal
from stageb.untrusted import strict_yaml

if TYPE_CHECKING:  # brings torch
    from stageb.guidance.judging.ranks import GuidanceRanks

BAD_RECORDS = "bad_records.jsonl"

# what these change is in what tickets say; which fields rules may compare is not
_SEEN_IN_TICKETS = tuple(
    f"columns.{each.name}" for each in fields(ColumnsConfig) if each.name != "comparable"
)

NOT_SHAPING = (  # keys that change no artifact, or do so through what is compared beside them
    "output.", "fabric.", *_SEEN_IN_TICKETS, *HOW_ASKED, "guidance.path", "log_level", "loggers",
    "runner.log_every_s", "runner.per_rank_rollout_batch_size", "report",
)  # fmt: skip

LIMITS = ("budget.rollouts", "budget.tokens", "budget.seconds", "runner.epochs")
"""Keys that may be higher when a run resumes: a run counts what it spends, and looks no further
ahead."""


def check_folder(config: LoopConfig, inputs: Inputs, fresh: bool) -> None:
    """Raise ``InputError`` where the run's folder cannot be made, or is taken; what only the ranks
    can tell comes later."""
    # images count once they were read
    ignored = (*NOT_SHAPING, "tickets") if config.sampler.use_images else NOT_SHAPING
    known = {
        key: value
        for key, value in commits.flatten(_list_shaping(config, inputs)).items()
        if not key.startswith(ignored)
    }
    commits.check_folder(config.output.folder, known, fresh, LIMITS, _tell_others(config))


def open_folder(
    config: LoopConfig, resolved_yaml: str, fresh: bool, inputs: Inputs, ranks: GuidanceRanks
) -> Journal:
    """The run's folder, new or to go on with, and the files that say what the run is. Where a limit
    that ended learning was raised, it is cut back to where learning ended."""
    shaping = {
        **_list_shaping(config, inputs),
        "round_size": ranks.round_size,
        "group_size": ranks.group_size,
    }
    place = config.output
    journal = Journal.open(
        place.root, place.run_name, shaping, fresh=fresh, ignored=NOT_SHAPING, limits=LIMITS
    )
    for limit in (*journal.raised, STOP) if journal.raised else ():
        journal.go_back(limit)
    if not (journal.state or {}).get("finished"):  # else it is only shown again, and stays as it is
        describe(
            journal, resolved_yaml, ("torch", "lightning", "transformers"), ranks.world.facts()
        )
    if journal.number == 0 and inputs.set_aside:
        lines = ((bad.line, bad.raw) for bad in inputs.set_aside)
        rows = (
            {"file": line.path, "line": line.line, "what": line.what, "raw": raw}
            for line, raw in lines
        )
        journal.append(BAD_RECORDS, rows)
    return journal


def _list_shaping(config: LoopConfig, inputs: Inputs) -> dict[str, Any]:
    """What shapes the artifacts and is known before the ranks are, nested."""
    shaping: dict[str, Any] = asdict(config)
    shaping["tickets"] = inputs.digest  # what they say, not where they lie
    shaping["first_guidance"] = [to_json(guidance) for guidance in inputs.guidance.values()]
    return shaping


def _tell_others(config: LoopConfig) -> dict[str, str]:
    """Return messages, by key, for a run in the folder that learnt from other tickets, or began
    with other guidance."""
    now, before = ", ".join(config.files), "others"
    with suppress(OSError, ValueError, strict_yaml.YamlError):
        given, _ = strict_yaml.read((config.output.folder / "config.yaml").read_text("utf-8"))
        files = given.get("tickets") if isinstance(given, dict) else None
        before = ", ".join(map(str, files)) if isinstance(files, list) else str(files)
    changed = f"what they say has changed since it learnt from them ({now})"
    return {
        "tickets": changed if before == now else f"learnt from {before}; these are {now}",
        "first_guidance": "a run of these tickets would begin with another guidance",
    }
