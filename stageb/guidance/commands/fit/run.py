"""The recorder of a run: it writes the journal, reports progress, and commits
after every step.

Every rank has a ``FitRun``, but its methods are called on rank 0 alone (``World.alone``). It
decides nothing: each method gets the state before a step and what the step led to
(``transitions.py``), and returns the state after it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from stageb.guidance.commands.fit.artifacts import MissionFiles
from stageb.guidance.commands.fit.inputs import Inputs
from stageb.guidance.commands.fit.progress import FitProgress
from stageb.guidance.commands.fit.reflection_row import make_row
from stageb.guidance.commands.fit.resume import open_folder
from stageb.guidance.commands.fit.stopping import RunLimits
from stageb.guidance.commands.fit.summary import show_result
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging.answers import FEWEST_ANSWERS, check_readable
from stageb.guidance.judging.ranks import GuidanceRanks
from stageb.guidance.learning.gate.judgements import Verdicts
from stageb.guidance.learning.proposer import Bundle, GateResult, Lesson
from stageb.guidance.learning.schedule import GuidanceSchedule
from stageb.guidance.learning.state import MissionState, State, Tally
from stageb.guidance.learning.tools import Tools
from stageb.guidance.learning.transitions import UNCHANGED
from stageb.guidance.words.types import Answers, Place, Record, Round
from stageb.job import lifetime
from stageb.runs.folder import RecordedRun, is_finished
from stageb.runs.loggers import Loggers
from stageb.runs.progress import say_finished

GO_ON = (
    "To learn on, run the same command with a higher runner.epochs, or with a higher budget "
    "if one ended learning."
)
# tickets between two interim analyses, at least; half a round if that is more, so that no rank is
# idle
INTERIM = 32


class FitRun(RecordedRun):
    """One run: its files and its messages."""

    progress: FitProgress  # from ``begin`` on
    limits: RunLimits  # as this

    def __init__(
        self, config: LoopConfig, resolved_yaml: str, inputs: Inputs, ranks: GuidanceRanks
    ) -> None:
        self.config = config
        self.prices = config.price.by_label
        self.inputs = inputs
        self.ranks = ranks
        self.schedule = GuidanceSchedule(inputs.splits, config, ranks.round_size)
        self._yaml = resolved_yaml
        self._committed = State({})  # as of the last commit
        self._tools: dict[str, Tools] = {}  # made when a mission first needs its own
        self._bundles = 0  # reflected on since the last commit
        self._since = time.monotonic()

    # Beginning and end

    def show_if_finished(self, fresh: bool) -> bool:
        """Whether the folder holds this run and it is finished: then its table is shown again,
        without loading a model. A run that continues under a higher limit is not finished."""
        if fresh or not is_finished(self.config.output.folder):
            return False
        self.journal = open_folder(self.config, self._yaml, False, self.inputs, self.ranks)
        state = self._take_up()
        if not state.finished:
            self.journal.close()
            return False
        for mission in state.missions.values():
            self._files(mission.guidance.mission).restore_current(mission.guidance)
        say_finished(self.config.output, GO_ON)
        show_result(self.journal, self.config, state, self.inputs.tickets)
        return True

    def begin(self, fresh: bool) -> State:
        """Open the folder, and take up where its last commit left off."""
        self.journal = open_folder(self.config, self._yaml, fresh, self.inputs, self.ranks)
        self.limits = RunLimits(self.config, self.schedule, self.journal.folder)
        state = self._take_up()
        for name, mission in state.missions.items():
            if self.journal.number:
                self._files(name).write_current(mission.guidance)
            else:
                self._write_guidance(mission)
        for row in self.journal.notes("timings.jsonl"):
            self.limits.count_seconds(row["mission"], row["seconds"])
        raised = self.journal.raised
        if raised:
            state = self._committed = self.limits.raise_limits(state, raised)
        edits = [self._files(name).list_attempts() for name in state.missions]
        self.progress = FitProgress(self.config, self.schedule, state, edits)
        self.loggers = Loggers(
            self.config.loggers, self.journal.folder, partial(self.progress.say, level="warning")
        )
        by = (
            "answer after thinking"
            if self.ranks.models.lets_think and self.ranks.models.judges_by == "answer"
            else self.ranks.models.judges_by
        )
        self.progress.show_start(self.inputs, by)
        if raised:
            self.progress.say(
                f"with a higher {' and '.join(raised)}; everything after learning ended is done "
                f"again"
            )
            for line in self.limits.describe_ended(state):
                self.progress.say(line, level="warning")
        lifetime.set_resume(commit=self.journal.commit_file)
        return state

    def finish(self, state: State) -> None:
        """Commit that nothing is left to do, and show the result."""
        self.progress.close()
        state = self.commit(replace(state, finished=True))
        self.loggers.close("success")
        show_result(self.journal, self.config, state, self.inputs.tickets)

    def _take_up(self) -> State:
        """The committed state, or a first one."""
        tickets, committed = self.inputs.tickets, self.journal.state
        if committed is None:
            guidance, budget = self.inputs.guidance, self.inputs.budget
            return State(
                {name: MissionState(first, budget[name]) for name, first in guidance.items()}
            )
        missions = {}
        for name, splits in self.inputs.splits.items():
            by_key = {tickets[i].key: tickets[i] for i in splits.train}
            missions[name] = MissionState.from_plain(name, self.journal.part(name), by_key)
        self._committed = State.from_plain(committed, missions)
        return self._committed

    # Steps of the loop

    def show_answered(self, tickets: int) -> None:
        """``tickets`` of the round in progress are answered."""
        self.progress.show_answered(tickets)

    def check_first_answers(self, state: State, answers: Sequence[Answers]) -> State:
        """Raise ``UnreadableError`` if too many of the model's first answers cannot be read, so
        that nothing could be learnt. Returns the state, with the answers so far where they are too
        few to tell."""
        if state.spent.rollouts >= FEWEST_ANSWERS:
            return state
        candidates = [
            candidate for given in answers if not given.by_rules for candidate in given.candidates
        ]
        first = (*state.first, *candidates)
        most = self.config.runner.max_unreadable
        words = self.ranks.models.words
        check_readable(first, most, words, "runner.max_unreadable", "nothing would be learnt")
        if any(candidate.thinking for candidate in candidates) and not self.ranks.models.lets_think:
            self.progress.say(
                "the model thinks aloud, but not for the gate: name its closing tag in "
                "model.thinking_ends"
            )
        return replace(state, first=first if len(first) < FEWEST_ANSWERS else ())

    def tools(self, name: str) -> Tools:
        """Return the tools to learn one mission with; made once."""
        if name not in self._tools:
            tools = Tools.of(
                self.ranks.models.config,
                self.inputs.tickets,
                self.inputs.splits[name],
                self.ranks.models.reflector.count_tokens,
                max(INTERIM, self.ranks.round_size // 2),
                self.inputs.guidance[name].labels,
            )
            is_warm = self.config.sampler.grid[0].temperature > 0
            self._tools[name] = replace(
                tools,
                choose=self.inputs.choose,
                weighs=self.ranks.models.judges_by == "probability" and is_warm,
                pause=partial(self._pause, name),
            )
        return self._tools[name]

    def _pause(self, name: str, doing: str) -> None:
        """Between two small steps of a mission's learning by code: show what it is ``doing``.
        Raises ``LearningStopped`` where it was told to stop."""
        self.progress.show_learning(name, doing)
        self.limits.raise_if_stopped()

    def skip(self, state: State, batch: Round, why: str) -> State:
        """Skip a round that needs no rollout. Not committed by itself, since skipping it again
        costs nothing."""
        mission = state.missions[batch.mission]
        if why == UNCHANGED and batch.last:
            self._write_metrics(batch, *mission.judged[batch.split])
        self.progress.show_skipped(batch, why)
        return replace(state, done=batch.place)

    def record_round(
        self, state: State, batch: Round, records: Sequence[Record], mission: MissionState
    ) -> State:
        """Write down, show and commit a round; ``mission`` is where that leaves the mission, as
        below."""
        self._files(batch.mission).write_round(batch, records)
        step = mission.guidance.step
        self._log(batch, self.progress.show_round(batch, mission.tally, step), "round/")
        if batch.last:
            self._write_metrics(batch, step, mission.tally)
        return self._finish_step(
            state,
            replace(mission, spent=mission.spent.on(records, self._samples)),
            batch.place,
            batch,
        )

    def record_distilled(
        self, state: State, batch: Round, records: Sequence[Record], mission: MissionState
    ) -> State:
        """Write down the right answers of a round as training data, as many as are wanted, and
        commit."""
        before = state.missions[batch.mission].distilled
        right = [record for record in records if record.selection.label_match][
            : mission.distilled - before
        ]
        self._files(batch.mission).write_distilled(mission.guidance, right, self.ranks.models.words)
        self.progress.show_skipped(batch, f"{mission.distilled} right answers")
        return self._finish_step(
            state, replace(mission, spent=mission.spent.on(records, 1)), batch.place, batch
        )

    def record_epoch(self, state: State, epoch: int, mission: MissionState) -> State:
        """Commit the end of a mission's epoch."""
        return self._finish_step(
            state, mission, self.schedule.close(epoch, mission.guidance.mission)
        )

    def record_choice(self, state: State, mission: MissionState) -> State:
        """Write down and commit which of the guidances that epochs ended with is final."""
        name, guidance = mission.guidance.mission, mission.guidance
        if mission.choices:
            self._files(name).write_choices(mission.choices, self.prices)
        if guidance.step != state.missions[name].guidance.step:
            self.progress.say(
                f"{name}: back to guidance step {guidance.step}, which does better on val"
            )
            self._files(name).write_current(guidance)
        return self._finish_step(state, mission, self.schedule.choice(name))

    def record_preparation(self, state: State, mission: MissionState, verdicts: Verdicts) -> State:
        """Write down a first guidance with its demonstrations, calibrated by ``verdicts``. The
        caller commits, with what is learnt at once."""
        self._write_guidance(mission)
        return state.with_mission(
            replace(
                mission, spent=mission.spent.plus(judged=verdicts.judged, tokens=verdicts.tokens)
            )
        )

    def record_reflection(
        self,
        state: State,
        bundle: Bundle,
        lesson: Lesson,
        learnt: GateResult,
        mission: MissionState,
    ) -> State:
        """Write down and show what a bundle taught, but for what was not tried before learning was
        told to stop; ``mission`` is the mission's state after it. The caller commits, so that
        bundles drawn together count all or not at all."""
        if learnt.is_stopped and not learnt.decision.tried:
            lesson = Lesson(is_stopped=True)
        name, verdicts = mission.guidance.mission, learnt.verdicts
        before, reflected = state.missions[name], len(lesson.proposals)
        self._bundles += bool(reflected)
        row = make_row(self.config, state, bundle, lesson, learnt, mission)
        self._files(name).write_reflection(row, lesson.proposals)
        if mission.guidance != before.guidance:
            self._write_guidance(mission)
        self.progress.show_edits(name, row, before.guidance, mission.guidance)
        if mission.idle_bundles == self.config.early_stop.reflections:
            idle = f"{mission.idle_bundles} reflections in a row without an accepted edit"
            self.progress.say(f"{name}: {idle}: it stops learning (early_stop.reflections)")
        asked, saved = bundle.asked + verdicts.judged, bundle.saved + verdicts.saved
        tokens = bundle.tokens + lesson.tokens + verdicts.tokens
        spent = before.spent.plus(judged=asked, reflections=reflected, tokens=tokens, saved=saved)
        return state.with_mission(replace(mission, spent=spent))

    def _files(self, mission: str) -> MissionFiles:
        return MissionFiles(self.journal, mission)

    def _write_guidance(self, mission: MissionState) -> None:
        self._files(mission.guidance.mission).write_guidance(
            mission.guidance, self.config.guidance.retention
        )

    def _write_metrics(self, batch: Round, step: int, tally: Tally) -> None:
        """Write down and show the figures of a whole split."""
        figures = tally.row(self.prices, batch.scale)
        if self.config.runner.judge == "both" or tally.by_rules:
            figures["by_rules"] = tally.by_rules
        self._files(batch.mission).write_metrics(batch, step, figures)
        self._log(batch, figures, "")

    def _log(self, batch: Round, figures: Mapping[str, Any], kind: str) -> None:
        """Show figures of a round, or of a whole split, to the loggers, over the rounds of the
        run."""
        named = {
            f"{batch.mission}/{batch.split}/{kind}{name}": value for name, value in figures.items()
        }
        self.loggers.log({**named, "epoch": batch.epoch}, self.schedule.count(batch.place))

    def _finish_step(
        self, state: State, mission: MissionState, done: Place, batch: Round | None = None
    ) -> State:
        """Commit that everything up to ``done`` is over, with the new state of a mission; ``batch``
        is the round, if any."""
        return self.commit(
            replace(state.with_mission(mission), done=done), mission.guidance.mission, batch
        )

    def commit(
        self, state: State, name: str = "", batch: Round | None = None, keep: str = ""
    ) -> State:
        """Commit ``state``, so that the run resumes from here; of its missions only those that
        changed. Notes how long the step took, of which mission and what for: tickets of a round, or
        bundles reflected on. Under the name ``keep``, or that of a limit that was passed, the
        commit before stays. Returns the state, in which missions learn no more that have reached
        their share of a budget."""
        now = time.monotonic()
        seconds = round(now - self._since, 3)
        self.limits.count_seconds(name, seconds)
        before, state = self._committed, self.limits.apply(state)
        changed = {
            name: each.to_plain()
            for name, each in state.missions.items()
            if each is not before.missions.get(name)
        }
        self.journal.commit(
            state.to_plain(), changed, keep=keep or self.limits.find_passed(before, state)
        )
        self._committed = state
        self.limits.forget_stop(state)
        row = {"commit": self.journal.number, "seconds": seconds, "mission": name}
        row |= {"tickets": len(batch.tickets) if batch else 0, "bundles": self._bundles}
        self.journal.note("timings.jsonl", [row])
        self._since, self._bundles = now, 0
        return state

    @property
    def _samples(self) -> int:
        """Answers for each ticket of a round."""
        return self.config.sampler.samples_per_decode * len(self.config.sampler.grid)
