"""What a person sees while a run goes on: a forecast, a bar on a terminal, plain lines elsewhere. On standard error, rank 0
alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from stageb.guidance.config import LoopConfig
from stageb.guidance.gate.decide import STRONG
from stageb.guidance.gate.exact import smallest
from stageb.guidance.gate.pool import FOLDS
from stageb.guidance.gate.sequential import next_level
from stageb.guidance.inputs import BAD_RECORDS, Inputs
from stageb.guidance.schedule import Round, Schedule
from stageb.guidance.state import State, Tally
from stageb.guidance.types import Guidance

JUDGED_BY = {
    "probability": "by the probability of its verdict, nothing decoded",
    "answer": "by its greedy verdict, a few tokens decoded",
}


class Progress:
    """Counts rounds and tickets of this process's part of the run, and says what reflection changed."""

    def __init__(self, config: LoopConfig, schedule: Schedule, state: State, resumed: bool) -> None:
        self._console = _console()
        self._config = config
        self._schedule = schedule
        self._every = config.runner.logging_steps
        self._started = time.monotonic()
        self._tickets = 0
        self._rounds_done = schedule.count(state.done)
        self._rounds = schedule.count()
        self._resumed = resumed
        if resumed:
            place = f"{config.output.root}/{config.output.run_name}"
            self._console.print(f"{place}: going on after {self._rounds_done} of {self._rounds} rounds")
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=self._rounds, completed=self._rounds_done, figures="")

        self._bar.start()

    def close(self) -> None:
        """Give the terminal's line back."""
        self._bar.stop()

    def starts(self, inputs: Inputs, judges_by: str) -> None:
        """What was found in the user's files that a person should know of, and what the run may cost."""
        if inputs.set_aside:
            self._console.print(f"{len(inputs.set_aside)} unusable ticket lines were set aside in {BAD_RECORDS}")
        neutral = [name for name, guidance in inputs.guidance.items() if len(guidance.rules) == 1]
        if self._config.guidance.path is not None and neutral:
            self._console.print(f"guidance.path has no rules for: {', '.join(neutral)}")
        if not self._resumed:
            self._console.print("\n".join(self._forecast(inputs, judges_by)))

    def _forecast(self, inputs: Inputs, judges_by: str) -> list[str]:
        """Lines on what is ahead, at most."""
        config = self._config
        cost = self._schedule.forecast()
        lines = [f"At most {cost.rollouts:,} rollouts and {cost.reflections:,} reflections on {cost.bundles:,} bundles"]
        if config.gate != "none" and config.gate.choose:
            lines[0] += f"; {config.gate.choose} decides what is accepted: nothing is promised of it"
        elif config.gate != "none" and cost.bundles:
            lines[0] += f"; for the gate at most {cost.judged:,} verdicts, each ticket judged {JUDGED_BY[judges_by]}"
            lines[0] += "; what every accepted edit calls for comes on top"
            level = next_level(config.gate.alpha / len(inputs.splits), STRONG)
            for name, splits in inputs.splits.items():
                train = len(splits.train)
                pool = min(config.gate.pool_size, len(splits.tested) * (FOLDS - 1) // FOLDS)
                needed = smallest(level, pool)
                if needed > 0.25:
                    lines.append(
                        f"{name}: {train} train tickets leave {pool} to test an edit on, and it would have to win more than "
                        f"{min(needed, 1):.0%} of them. Give more tickets"
                    )
        return lines

    def within(self, tickets: int) -> None:
        """``tickets`` of the round in progress are answered."""
        self._bar.update(self._task, figures=f"{(self._tickets + tickets) / self._seconds():.1f} tickets/s")

    def round(self, batch: Round, tally: Tally, guidance_step: int) -> None:
        """A round is done; ``tally`` is of its split so far in this epoch."""
        self._tickets += len(batch.tickets)
        figures = f"{self._tickets / self._seconds():.1f} tickets/s, acc {tally.right / tally.n:.1%}, step {guidance_step}"
        self._one_more(batch, figures)
        if not self._console.is_terminal and (self._rounds_done % self._every == 0 or batch.last):
            self._console.print(f"{self._place(batch)}: round {self._rounds_done}/{self._rounds}, {figures}")

    def passes(self, batch: Round, why: str) -> None:
        """A round needed no rollout."""
        self._one_more(batch, why)

    def says(self, text: str) -> None:
        """What goes on between rounds."""
        self._bar.update(self._task, figures=text)

    def tells(self, text: str) -> None:
        """Something that is worth a line of its own."""
        self._console.print(text)

    def learnt(self, mission: str, row: Mapping[str, Any], before: Guidance, after: Guidance) -> None:
        """A bundle is dealt with, or a search for idle rules: one line on what became of it, and the rules that changed."""
        lines = [f"{mission} {row['reflection_id']}: {_outcome(row)}"]
        old, new = ({rule.key: rule.text for rule in guidance.rules} for guidance in (before, after))
        lines += [f"  - {key}. {text}" for key, text in old.items() if new.get(key) != text]
        lines += [f"  + {key}. {text}" for key, text in new.items() if old.get(key) != text]
        self._console.print("\n".join(lines))

    def _one_more(self, batch: Round, figures: str) -> None:
        self._rounds_done += 1
        self._bar.update(self._task, completed=self._rounds_done, description=self._place(batch), figures=figures)

    def _place(self, batch: Round) -> str:
        return f"{batch.mission}, epoch {batch.epoch}, {batch.split}"

    def _seconds(self) -> float:
        return max(1e-6, time.monotonic() - self._started)


def finished_already(config: LoopConfig) -> None:
    """Nothing is left to do for a run."""
    _console().print(f"{config.output.root}/{config.output.run_name}: finished already")


def _console() -> Console:
    return Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)


def _outcome(row: Mapping[str, Any]) -> str:
    """What became of a row of reflection.jsonl, in one line."""
    if row["gate"] is None:
        return "an edit applied untested" if row["applied"] else row["why_not"] or "no usable edit"
    tried = row["gate"]["edits"]
    if not tried:
        return row.get("why_not") or "no usable edit"
    what = "rules" if "credits" in row else "edits"
    if not row["applied"]:
        tested = [each["outcome"] for each in tried if each["test"] and each["test"]["tickets"]]
        why = f", {len(tested)} tested, {' and '.join(tested)}" if tested else ""
        if what == "rules":
            return f"none of {len(tried)} rules can be spared{why}"
        return f"{len(tried)} edit{'s' * (len(tried) > 1)} tried{why}"
    test = next(each["test"] for each in tried if each["outcome"] == "accepted")
    gain = f", mean gain {test['mean_gain']:+.1%} on {test['tickets']} tickets" if test else ""  # none of a user's own gate
    return f"one of {len(tried)} edits accepted{gain}" if what == "edits" else f"one of {len(tried)} rules let go{gain}"
