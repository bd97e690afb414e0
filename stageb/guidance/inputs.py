"""What a run starts from, read and checked before anything is started; and the folder that it writes to."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import stageb
from stageb.errors import BadInputError, BadLine
from stageb.guidance.config import LoopConfig
from stageb.guidance.crew import Crew
from stageb.guidance.files.artifacts import append_some, folder
from stageb.guidance.files.guidance_file import load_seed, neutral, to_json
from stageb.guidance.files.tickets import BadRecord, digest, read
from stageb.guidance.plan import missions_of, set_apart, split_tickets
from stageb.guidance.types import Guidance, Split, Ticket
from stageb.journal import Journal

BAD_RECORDS = "bad_records.jsonl"
NOT_SHAPING = (  # keys that change no artifact, or do so through what is compared beside them
    "output.",
    "fabric.",
    "stage_a_paths",
    "model.api_key_env",
    "model.concurrency",
    "model.memory_share",
    "model.timeout_s",
    "guidance.path",
    "guidance.reset_on_rerun",
    "runner.logging_steps",
    "runner.per_rank_rollout_batch_size",
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that a run starts from."""

    tickets: Sequence[Ticket]  # of all missions, in the files' order
    set_aside: Sequence[BadRecord]  # lines that could not be used
    parts: Mapping[str, Mapping[Split, Sequence[int]]]  # mission -> split -> positions in tickets
    raced: Mapping[str, Sequence[int]]  # mission -> positions of the train tickets that edits are raced on
    guidance: Mapping[str, Guidance]  # what each mission starts with


def read_inputs(config: LoopConfig) -> Inputs:
    """Tickets, splits and first guidance. Raises ``InputError`` with all that is wrong with them."""
    tickets, set_aside = read(config.stage_a_paths, config.on_bad_record)
    seeds = load_seed(config.guidance.path) if config.guidance.path else {}
    missions = missions_of(tickets)
    folders = Counter(map(folder, missions))
    shared = [name for name in missions if folders[folder(name)] > 1]
    if shared:  # no accident: names with one hash have to be searched for
        whats = [f"mission {name!r} would share the folder {folder(name)} with another" for name in shared]
        raise BadInputError("missions", [BadLine("stage_a_paths", 0, what, "rename one of them") for what in whats])
    parts = split_tickets(tickets, config)
    empty = [name for name in missions if not parts[name]["train"]]
    if empty:
        remedy = "give it more groups, or a larger split.train"
        raise BadInputError(
            "missions", [BadLine("split", 0, f"mission {name!r} has no train ticket", remedy) for name in empty]
        )
    first = {name: seeds.get(name) or neutral(name, config.prompt.language) for name in missions}
    return Inputs(tickets, set_aside, parts, set_apart(parts, tickets, config), first)


def open_journal(config: LoopConfig, resolved_yaml: str, fresh: bool, inputs: Inputs, crew: Crew) -> Journal:
    """The run's folder, new or to go on with, and the files that say what the run is."""
    shaping: dict[str, Any] = asdict(config)
    shaping["tickets"] = digest(inputs.tickets)
    shaping["round_size"] = crew.round_size
    shaping["first_guidance"] = [to_json(guidance) for guidance in inputs.guidance.values()]
    journal = Journal.open(
        config.output.root,
        config.output.run_name,
        shaping,
        fresh=fresh or config.guidance.reset_on_rerun,
        ignored=NOT_SHAPING,
        fresh_option="--fresh",
        name_option="another output.run_name",
    )
    if journal.number == 0:
        journal.replace("config.yaml", resolved_yaml)
        rows = [
            {"file": bad.line.path, "line": bad.line.line, "what": bad.line.what, "raw": bad.raw} for bad in inputs.set_aside
        ]
        append_some(journal, BAD_RECORDS, rows)
    journal.replace("run.json", json.dumps(machine_facts(crew), indent=2) + "\n")
    return journal


def machine_facts(crew: Crew) -> dict[str, Any]:
    """What ran the run: versions and devices, and nothing of the environment."""
    return {
        "stageb": stageb.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in ("torch", "lightning", "transformers")},
        **crew.runtime.facts(),
    }
