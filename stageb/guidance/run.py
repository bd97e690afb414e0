"""The recorder of a run: it holds the state, writes the journal, reports progress, and commits after every step.

Every rank has a ``Run``, but its methods are called on rank 0 alone (``World.lead``). It decides nothing: the state after
each step comes from ``transitions.py`` and ``learning.py``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from stageb.guidance import summary
from stageb.guidance.answers import FEWEST, check_readable
from stageb.guidance.config import LoopConfig
from stageb.guidance.costs import prices_of
from stageb.guidance.files import artifacts
from stageb.guidance.files.folder import open_journal
from stageb.guidance.gate.judge import Judge
from stageb.guidance.gate.pool import Pool, whole_groups
from stageb.guidance.gate.pruning import Removal
from stageb.guidance.inputs import Inputs
from stageb.guidance.learning import Bundle, GateResult, Tools
from stageb.guidance.progress import EditCounts, Progress
from stageb.guidance.ranks import Ranks
from stageb.guidance.reflection.reflect import Reflection
from stageb.guidance.report import write
from stageb.guidance.rules.scales import parse_scales
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.schedule import Place, Round, Schedule
from stageb.guidance.selection import latest_of_the_best
from stageb.guidance.state import (
    MissionState,
    Spent,
    State,
    Tally,
    from_plain,
    mission_from_plain,
    mission_to_plain,
    to_plain,
)
from stageb.guidance.transitions import UNCHANGED, budget_reached, learns_ahead, limit_passed
from stageb.guidance.types import Answers, Candidate, Record
from stageb.job import lifetime
from stageb.runs import run
from stageb.runs.loggers import Loggers
from stageb.runs.progress import finished_already

GO_ON = "To learn on, run the same command with a higher runner.epochs, or with a higher budget if one ended learning."
LOOK = 32  # tickets between two looks of a test, at least; half a round if that is more, so that no rank is idle


class Run(run.Run):
    """One run: its state, its files and its messages."""

    progress: Progress  # from ``begin`` on, as this
    state: State

    def __init__(self, config: LoopConfig, resolved_yaml: str, inputs: Inputs, ranks: Ranks) -> None:
        self.config = config
        self.prices = prices_of(config.gating)
        self.inputs = inputs
        self.ranks = ranks
        self.schedule = Schedule(inputs.splits, config, ranks.round_size)
        self._yaml = resolved_yaml
        self._committed = State({})  # as of the last commit
        self._tools: dict[str, Tools] = {}  # made when a mission first needs its own
        self._first: list[Candidate] = []  # answers, until they are enough to tell whether they can be read
        self._bundles = 0  # reflected on since the last commit
        self._began = self._since = time.monotonic()

    # Beginning and end

    def show_if_finished(self, fresh: bool) -> bool:
        """Whether the folder holds this run and it is finished: then its table is shown again, without loading a model. A
        run that continues under a higher limit is not finished."""
        if fresh or self.config.guidance.reset_on_rerun or not run.is_finished(self.config.output.folder):
            return False
        self.journal = open_journal(self.config, self._yaml, False, self.inputs, self.ranks)
        self._take_up()
        if not self.state.finished:
            self.journal.close()
            return False
        for mission in self.state.missions.values():
            artifacts.restore_current(self.journal, mission.guidance)
        finished_already(self.config.output, "" if self.config.jump_reflection else GO_ON)
        self._show_result()
        return True

    def begin(self, fresh: bool) -> None:
        """Open the folder, and take up where its last commit left off."""
        self.journal = open_journal(self.config, self._yaml, fresh, self.inputs, self.ranks)
        self._take_up()
        for mission in self.state.missions.values():
            if self.journal.number:
                artifacts.write_current(self.journal, mission.guidance)
            else:
                artifacts.write_guidance(self.journal, mission.guidance, self.config.guidance.retention)
        self._began -= sum(row["seconds"] for row in self.journal.notes("timings.jsonl"))
        raised = self.journal.raised
        if raised:
            ended = self.state.ended if self.state.ended not in raised else ""
            self.state = self._committed = self._check_budget(replace(self.state, ended=ended))
        edits = EditCounts()
        for name in self.state.missions:
            for row in self.journal.rows(f"{artifacts.folder(name)}/reflection.jsonl"):
                edits = edits.plus(row)
        self.progress = Progress(self.config, self.schedule, self.state, edits)
        self.loggers = Loggers(self.config.loggers, self.journal.folder, partial(self.progress.print_line, level="warning"))
        by = "answer after thinking" if self.ranks.lets_think and self.ranks.judges_by == "answer" else self.ranks.judges_by
        self.progress.show_start(self.inputs, by)
        if raised:
            self.progress.print_line(f"with a higher {' and '.join(raised)}; everything after learning ended is done again")
        beside = "--guidance.reset_on_rerun false" if self.config.guidance.reset_on_rerun else ""
        lifetime.set_resume(beside, commit=self.journal.commit_file)

    def finish(self) -> None:
        """Commit that nothing is left to do, and show the result."""
        self.progress.close()
        self._commit(replace(self.state, finished=True))
        self.loggers.close("success")
        self._show_result()

    def _show_result(self) -> None:
        """Print the table, and write the report if it is wanted. A report that fails does not fail the run."""
        summary.show(self.journal, self.config, self.state, self.inputs.tickets)
        if self.config.report:
            print(write.at_the_end(self.journal.folder, self.config, self.inputs.tickets), flush=True)

    def _take_up(self) -> None:
        """The committed state, or a first one."""
        tickets, committed = self.inputs.tickets, self.journal.state
        if committed is None:
            guidance, budget = self.inputs.guidance, self.inputs.budget
            self.state = State({name: MissionState(first, budget[name]) for name, first in guidance.items()})
            return
        missions = {}
        for name, splits in self.inputs.splits.items():
            by_key = {tickets[i].key: tickets[i] for i in splits.train}
            missions[name] = mission_from_plain(name, self.journal.part(name), by_key)
        self.state = self._committed = from_plain(committed, missions)

    # Steps of the loop

    def show_answered(self, tickets: int) -> None:
        """``tickets`` of the round in progress are answered."""
        self.progress.show_answered(tickets)

    def check_first_answers(self, answers: Sequence[Answers]) -> None:
        """Raise ``UnreadableError`` if too many of the model's first answers cannot be read, so that nothing could be
        learnt."""
        if self.state.spent.rollouts >= FEWEST:
            return
        candidates = [candidate for given in answers if not given.by_rules for candidate in given.candidates]
        self._first += candidates
        most, words = self.config.runner.max_unreadable, self.ranks.words
        check_readable(self._first, most, words, "runner.max_unreadable", "nothing would be learnt")
        if any(candidate.thinking for candidate in candidates) and not self.ranks.lets_think:
            self.progress.print_line(
                "the model thinks aloud, but not for the gate: name its closing tag in model.thinking_ends"
            )

    def tools(self, name: str) -> Tools:
        """What learning needs for one mission; made once."""
        if name not in self._tools:
            config, tickets, splits = self.config, self.inputs.tickets, self.inputs.splits[name]
            pool = Pool(whole_groups(splits.tested, tickets), config.gating.pool_size)
            vocabulary = Vocabulary.of((tickets[i] for i in splits.train), parse_scales(config.reflection.scales or ()))
            look, count_tokens = max(LOOK, self.ranks.round_size // 2), self.ranks.reflector.count_tokens
            weighs = self.ranks.judges_by == "probability" and config.sampler.grid[0].temperature > 0
            known = config, tickets, splits, pool, vocabulary, count_tokens, look
            self._tools[name] = Tools(*known, self.inputs.choose, weighs)
        return self._tools[name]

    def skip(self, batch: Round, why: str) -> None:
        """Skip a round that needs no rollout. Not committed by itself, since skipping it again costs nothing."""
        mission = self.state.missions[batch.mission]
        if why == UNCHANGED and batch.last:
            self._write_metrics(batch, *mission.judged[batch.split])
        self.progress.show_skipped(batch, why)
        self.state = replace(self.state, done=batch.place)

    def record_round(self, batch: Round, records: Sequence[Record], mission: MissionState) -> None:
        """Write down, show and commit a round; ``mission`` is where that leaves the mission, as below."""
        artifacts.write_round(self.journal, batch, records, audit=self.config.jump_reflection)
        step = mission.guidance.step
        self._log(batch, self.progress.show_round(batch, mission.tally, step), "round/")
        if batch.last:
            self._write_metrics(batch, step, mission.tally)
        self._finish_step(mission, batch.place, self.state.spent.on(records, self._samples), batch)

    def record_distilled(self, batch: Round, records: Sequence[Record], mission: MissionState) -> None:
        """Write down the right answers of a round as training data, as many as are wanted, and commit."""
        before = self.state.missions[batch.mission].distilled
        right = [record for record in records if record.selection.label_match][: mission.distilled - before]
        artifacts.write_distilled(self.journal, mission.guidance, right, self.ranks.words)
        self.progress.show_skipped(batch, f"{mission.distilled} right answers")
        self._finish_step(mission, batch.place, self.state.spent.on(records, 1), batch)

    def record_epoch(self, epoch: int, mission: MissionState) -> None:
        """Commit the end of a mission's epoch."""
        self._finish_step(mission, self.schedule.close(epoch, mission.guidance.mission))

    def record_choice(self, mission: MissionState) -> None:
        """Write down and commit which of the guidances that epochs ended with is final."""
        name, guidance = mission.guidance.mission, mission.guidance
        if mission.choices:
            artifacts.write_choice(self.journal, name, mission.choices, latest_of_the_best(mission.choices, self.prices))
        if guidance.step != self.state.missions[name].guidance.step:
            self.progress.print_line(f"{name}: back to guidance step {guidance.step}, which does better on val")
            artifacts.write_current(self.journal, guidance)
        self._finish_step(mission, self.schedule.choice(name))

    def record_preparation(self, mission: MissionState, judge: Judge) -> None:
        """Write down a first guidance with its demonstrations, calibrated; ``judge`` says what that took. The caller
        commits, with what is learnt at once."""
        artifacts.write_guidance(self.journal, mission.guidance, self.config.guidance.retention)
        spent = self.state.spent.plus(judged=judge.judged, tokens=judge.tokens)
        self.state = replace(self.state.with_mission(mission), spent=spent)

    def record_reflection(self, bundle: Bundle, reflection: Reflection, learnt: GateResult, mission: MissionState) -> None:
        """Write down and show what a bundle taught; ``mission`` is the mission's state after it. The caller commits, so that
        bundles drawn together count all or not at all."""
        name = mission.guidance.mission
        self._bundles += bool(reflection.proposals)
        artifacts.write_refused(self.journal, name, bundle.name, reflection.proposals)
        tokens = bundle.tokens + reflection.tokens
        spent = self.state.spent.plus(judged=bundle.asked, reflections=len(reflection.proposals), tokens=tokens)
        spent = spent.plus(saved=bundle.saved)
        self._record_edits(artifacts.reflection_row(name, bundle, reflection), mission, learnt, spent)
        if mission.idle_bundles == self.config.early_stop.reflections:
            idle = f"{mission.idle_bundles} reflections in a row without an accepted edit"
            self.progress.print_line(f"{name}: {idle}: it stops learning (early_stop.reflections)")

    def record_removal(self, removal: Removal, learnt: GateResult, mission: MissionState) -> None:
        """Write down, show and commit the result of a search for a removable rule."""
        row = artifacts.removal_row(self.state.missions[mission.guidance.mission], removal)
        self._record_edits(row, mission, learnt, self.state.spent)
        self.commit()

    def _record_edits(self, row: artifacts.Row, mission: MissionState, learnt: GateResult, spent: Spent) -> None:
        """Write down and show the outcome of edits, and take over the mission's new state."""
        name, before = mission.guidance.mission, self.state.missions[mission.guidance.mission]
        row |= {"epoch": self.state.done[0], **artifacts.outcome_row(before, mission, learnt, self.config.has_gate)}
        artifacts.write_reflection(self.journal, name, row)
        if mission.guidance != before.guidance:
            artifacts.write_guidance(self.journal, mission.guidance, self.config.guidance.retention)
        self.progress.show_edits(name, row, before.guidance, mission.guidance)
        spent = spent.plus(judged=learnt.judged, tokens=learnt.tokens, saved=learnt.saved)
        self.state = replace(self.state.with_mission(mission), spent=spent)

    def commit(self) -> None:
        """Commit the present state, so that the run resumes from here."""
        self._commit(self.state)

    def _write_metrics(self, batch: Round, step: int, tally: Tally) -> None:
        """Write down and show the figures of a whole split."""
        figures = tally.row(self.prices, batch.scale)
        if self.config.runner.judge == "both":
            figures["by_rules"] = tally.by_rules
        artifacts.write_metrics(self.journal, batch, step, figures)
        self._log(batch, figures, "")

    def _log(self, batch: Round, figures: Mapping[str, Any], kind: str) -> None:
        """Show figures of a round, or of a whole split, to the loggers, over the rounds of the run."""
        named = {f"{batch.mission}/{batch.split}/{kind}{name}": value for name, value in figures.items()}
        self.loggers.log({**named, "epoch": batch.epoch}, self.schedule.count(batch.place))

    def _finish_step(
        self, mission: MissionState, done: Place, spent: Spent | None = None, batch: Round | None = None
    ) -> None:
        """Commit that everything up to ``done`` is over, with the new state of a mission; ``batch`` is the round, if any."""
        self._commit(replace(self.state.with_mission(mission), spent=spent or self.state.spent, done=done), batch)

    def _commit(self, state: State, batch: Round | None = None) -> None:
        """Commit ``state``, of its missions only those that changed, and note how long the step took and what for: tickets
        of a round, or bundles reflected on."""
        before = self._committed
        changed = {
            name: mission_to_plain(each) for name, each in state.missions.items() if each is not before.missions.get(name)
        }
        self.state = self._check_budget(state)
        self.journal.commit(to_plain(self.state), changed, keep=limit_passed(before, self.state, self.schedule))
        self._committed = self.state
        now = time.monotonic()
        row = {"commit": self.journal.number, "seconds": round(now - self._since, 3)}
        row |= {"tickets": len(batch.tickets) if batch else 0, "bundles": self._bundles}
        self.journal.note("timings.jsonl", [row])
        self._since, self._bundles = now, 0

    def _check_budget(self, state: State) -> State:
        """The state, which ends learning where a budget is reached."""
        if state.ended or not learns_ahead(state, self.schedule):
            return state
        return replace(state, ended=budget_reached(state.spent, time.monotonic() - self._began, self.config.budget))

    @property
    def _samples(self) -> int:
        """Answers for each ticket of a round."""
        return self.config.sampler.samples_per_decode * len(self.config.sampler.grid)
