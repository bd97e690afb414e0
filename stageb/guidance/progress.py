"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere. On standard error, rank 0 alone."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from stageb.guidance.config import LoopConfig
from stageb.guidance.inputs import BAD_RECORDS, Inputs
from stageb.guidance.plan import Step
from stageb.guidance.state import State, Tally
from stageb.guidance.types import Guidance


class Progress:
    """Counts rounds and tickets of this process's part of the run, and says what reflection changed."""

    def __init__(self, config: LoopConfig, plan: Sequence[Step], state: State, resumed: bool) -> None:
        self._console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)
        self._every = config.runner.logging_steps
        self._seeded = config.guidance.path is not None
        self._started = time.monotonic()
        self._tickets = 0
        self._rounds_done = sum(step.kind == "round" for step in plan[: state.cursor])
        self._rounds = sum(step.kind == "round" for step in plan)
        if resumed:
            left = (
                "finished already"
                if state.cursor == len(plan)
                else f"going on after {self._rounds_done} of {self._rounds} rounds"
            )
            self._console.print(f"{config.output.root}/{config.output.run_name}: {left}")
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal or state.cursor == len(plan),
        )
        self._task = self._bar.add_task("starting", total=self._rounds, completed=self._rounds_done, figures="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def starts(self, inputs: Inputs) -> None:
        """What was found in the user's files that a person should know of."""
        if inputs.set_aside:
            self._console.print(f"{len(inputs.set_aside)} unusable ticket lines were set aside in {BAD_RECORDS}")
        neutral = [name for name, guidance in inputs.guidance.items() if len(guidance.rules) == 1]
        if self._seeded and neutral:
            self._console.print(f"guidance.path has no rules for: {', '.join(neutral)}")

    def within(self, tickets: int) -> None:
        """``tickets`` of the round in progress are answered."""
        self._bar.update(self._task, figures=f"{(self._tickets + tickets) / self._seconds():.1f} tickets/s")

    def round(self, step: Step, tally: Tally, guidance_step: int) -> None:
        """A round is done; ``tally`` is of its split so far in this epoch."""
        self._tickets += len(step.tickets)
        figures = f"{self._tickets / self._seconds():.1f} tickets/s, acc {tally.right / tally.n:.1%}, step {guidance_step}"
        self._one_more(step, figures)
        if not self._console.is_terminal and (self._rounds_done % self._every == 0 or step.last):
            self._console.print(f"{self._place(step)}: round {self._rounds_done}/{self._rounds}, {figures}")

    def reused(self, step: Step) -> None:
        """A round needed no rolling out: the guidance has not changed since the split was last judged."""
        self._one_more(step, "unchanged")

    def says(self, text: str) -> None:
        """What goes on between rounds."""
        self._bar.update(self._task, figures=text)

    def reflected(
        self,
        mission: str,
        reflection_id: str,
        why_not: str,
        gate: Mapping[str, Any] | None,
        before: Guidance,
        after: Guidance,
    ) -> None:
        """A bundle is dealt with: one line on what became of it."""
        changed = after.step > before.step
        if gate:
            outcome = f"{len(gate['contenders'])} edits tried, {'one' if changed else 'none'} accepted"
        else:
            outcome = "an edit applied untested" if changed else why_not or "no usable edit"
        lines = [f"{mission} {reflection_id}: {outcome}"]
        old, new = ({rule.key: rule.text for rule in guidance.rules} for guidance in (before, after))
        lines += [f"  - {key}. {text}" for key, text in old.items() if new.get(key) != text]
        lines += [f"  + {key}. {text}" for key, text in new.items() if old.get(key) != text]
        self._console.print("\n".join(lines))

    def _one_more(self, step: Step, figures: str) -> None:
        self._rounds_done += 1
        self._bar.update(self._task, completed=self._rounds_done, description=self._place(step), figures=figures)

    def _place(self, step: Step) -> str:
        return f"{step.mission}, epoch {step.epoch}, {step.split}"

    def _seconds(self) -> float:
        return max(1e-6, time.monotonic() - self._started)
