"""What a run's artifacts depend on, by which a folder knows whether a run may go on there."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stageb.engines.config import HOW_ASKED
from stageb.guidance.config import LoopConfig
from stageb.guidance.files.guidance_file import to_json
from stageb.guidance.inputs import Inputs
from stageb.store import commits
from stageb.store.commits import flatten

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


LIMITS = ("budget.rollouts", "budget.tokens", "budget.seconds", "runner.epochs")
"""Keys that may be higher when a run resumes: a run counts what it spends, and looks no further ahead."""


def shape(config: LoopConfig, inputs: Inputs) -> dict[str, Any]:
    """All of it that is known before the ranks are, nested."""
    shaping: dict[str, Any] = asdict(config)
    shaping["tickets"] = inputs.digest  # what they say, not where they lie
    shaping["first_guidance"] = [to_json(guidance) for guidance in inputs.guidance.values()]
    return shaping


def check_folder(config: LoopConfig, inputs: Inputs, fresh: bool) -> None:
    """Raise ``InputError`` where the run's folder cannot be made, or is taken; what only the ranks can tell comes later."""
    ignored = (*NOT_SHAPING, "tickets") if config.sampler.use_images else NOT_SHAPING  # images count once they were read
    known = {key: value for key, value in flatten(shape(config, inputs)).items() if not key.startswith(ignored)}
    commits.check_folder(config.output.folder, known, fresh or config.guidance.reset_on_rerun, LIMITS)
