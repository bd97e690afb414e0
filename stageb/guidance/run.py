"""What rank 0 does with what the ranks bring: select, record, reflect, gate, choose; and after each of these, commit.

A ``Run`` stands on every rank, and its methods are called on rank 0 alone (``World.lead``). It holds the state, writes the
journal and speaks; what it decides it has decided by the functions of ``learning.py`` and ``selection.py``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from stageb.guidance import learning, summary
from stageb.guidance.answers import FEWEST, check_readable
from stageb.guidance.config import LoopConfig
from stageb.guidance.files import artifacts
from stageb.guidance.files.folder import open_journal
from stageb.guidance.gate.pool import Pool, whole_groups
from stageb.guidance.gate.pruning import Removal
from stageb.guidance.inputs import Inputs
from stageb.guidance.learning import Bundle, Learnt, Tools
from stageb.guidance.progress import Edits, Progress
from stageb.guidance.ranks import Ranks
from stageb.guidance.reflection.reflect import Reflection
from stageb.guidance.report import write
from stageb.guidance.schedule import Place, Round, Schedule
from stageb.guidance.selection import latest_of_the_best, select
from stageb.guidance.state import (
    Choice,
    MissionState,
    Spent,
    State,
    Tally,
    from_plain,
    mission_from_plain,
    mission_to_plain,
    to_plain,
)
from stageb.guidance.types import Answers, Candidate, Guidance, Record
from stageb.job import launching
from stageb.runs import run
from stageb.runs.loggers import Loggers
from stageb.runs.progress import finished_already

UNCHANGED = "unchanged"
LOOK = 32  # tickets, at the least, between two looks of a test; half a round where that is more, so that no rank is idle


class Run(run.Run):
    """One run: where it stands, and what is written and said of it."""

    progress: Progress  # from ``begin`` on, as this
    state: State

    def __init__(self, config: LoopConfig, resolved_yaml: str, inputs: Inputs, ranks: Ranks) -> None:
        self.config = config
        self.inputs = inputs
        self.ranks = ranks
        self.schedule = Schedule(inputs.splits, config, ranks.round_size)
        self._yaml = resolved_yaml
        self._pools: dict[str, Pool] = {}  # made when a mission first needs its own
        self._first: list[Candidate] = []  # answers, until they are enough to tell whether they can be read
        self._began = self._since = time.monotonic()

    # Beginning and end

    def finished(self, fresh: bool) -> bool:
        """Whether the folder holds this run, finished: then its table is shown again, and no model is needed."""
        if fresh or self.config.guidance.reset_on_rerun or not run.is_finished(self.config.output.folder):
            return False
        self.journal = open_journal(self.config, self._yaml, False, self.inputs, self.ranks)
        self._take_up()
        finished_already(self.config.output)
        self._shows()
        return True

    def begin(self, fresh: bool) -> None:
        """Open the folder, and take up where its last commit left off."""
        self.journal = open_journal(self.config, self._yaml, fresh, self.inputs, self.ranks)
        self._take_up()
        for mission in self.state.missions.values():
            artifacts.write_guidance(self.journal, mission.guidance, self.config.guidance.retention)
        self._began -= sum(row["seconds"] for row in self.journal.notes("timings.jsonl"))
        edits = Edits()
        for name in self.state.missions:
            for row in self.journal.rows(f"{artifacts.folder(name)}/reflection.jsonl"):
                edits = edits.plus(row)
        self.progress = Progress(self.config, self.schedule, self.state, edits)
        self.loggers = Loggers(self.config.loggers, self.journal.folder, partial(self.progress.tells, level="warning"))
        by = "answer after thinking" if self.ranks.lets_think and self.ranks.judges_by == "answer" else self.ranks.judges_by
        self.progress.starts(self.inputs, by)
        if self.journal.number:
            self._set_resume()

    def end(self) -> None:
        """Nothing is left to do: say what came of it."""
        self.progress.close()
        self._commit(replace(self.state, finished=True))
        self.loggers.close("success")
        self._shows()

    def _shows(self) -> None:
        """The table, and the page where it is wanted; a run that is over is over, whatever becomes of that."""
        summary.show(self.journal, self.config, self.state)
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
        self.state = from_plain(committed, missions)

    def _commit(self, state: State) -> None:
        """Make ``state`` the one to go on from: its head, and of the missions those that changed."""
        before = self.state.missions if self.journal.number else {}
        changed = {name: mission_to_plain(each) for name, each in state.missions.items() if each is not before.get(name)}
        self.state = self._ended(state)
        self.journal.commit(to_plain(self.state), changed)
        self._set_resume()
        now = time.monotonic()
        self.journal.note("timings.jsonl", [{"commit": self.journal.number, "seconds": round(now - self._since, 3)}])
        self._since = now

    def _set_resume(self) -> None:
        launching.set_resume("--guidance.reset_on_rerun false" if self.config.guidance.reset_on_rerun else "")

    # Rounds

    def guidance_for(self, batch: Round) -> Guidance | None:
        """The guidance to roll ``batch`` out under; None where it was done before, or is of no use any more."""
        if batch.place <= self.state.done:
            return None
        mission = self.state.missions[batch.mission]
        why = self._of_no_use(batch, mission)
        if not why:
            return mission.guidance
        if why == UNCHANGED and batch.last:
            step, tally = mission.judged[batch.split]
            artifacts.write_metrics(self.journal, batch, step, tally)
            self._log(batch, tally.row(), "")
        self.progress.passes(batch, why)
        self.state = replace(self.state, done=batch.place)  # with the next commit: to pass again costs nothing
        return None

    def _of_no_use(self, batch: Round, mission: MissionState) -> str:
        """Why a round need not be rolled out; empty where it must."""
        if batch.kind == "distill":
            return "enough" if mission.distilled >= self.config.distill.size else ""
        if batch.learns:
            return "" if self.learns(batch.mission) else f"learning ended: {self.state.ended or 'early_stop.patience'}"
        step, _ = mission.judged.get(batch.split, (None, None))
        # Under the same guidance the streams are the same: nothing would come out differently.
        return UNCHANGED if batch.epoch > 0 and step == mission.guidance.step else ""

    def within(self, tickets: int) -> None:
        """``tickets`` of the round in progress are answered."""
        self.progress.within(tickets)

    def select(self, batch: Round, answers: list[Answers]) -> None:
        """Select a verdict for each ticket of a round, record all of it, commit."""
        mission = self.state.missions[batch.mission]
        agreement, rule = self.config.manual_review.min_verdict_agreement, self.inputs.rule
        tickets = [self.inputs.tickets[i] for i in batch.tickets]
        records = [
            Record(ticket, batch.epoch, batch.number, mission.guidance.step, given, select(ticket, given, agreement, rule))
            for ticket, given in zip(tickets, answers, strict=True)
        ]
        candidates = [candidate for given in answers for candidate in given.candidates]
        if self.state.spent.rollouts < FEWEST:
            self._look_at_first(candidates)
        tokens = sum(given.prompt_tokens for given in answers if given.candidates) + sum(each.tokens for each in candidates)
        mission = (
            self._distilled(batch, mission, records) if batch.kind == "distill" else self._judged(batch, mission, records)
        )
        spent = self.state.spent.plus(rollouts=len(candidates), tokens=tokens)
        self._commit(replace(self.state.with_mission(mission), spent=spent, done=batch.place))

    def _look_at_first(self, candidates: Sequence[Candidate]) -> None:
        """Whether the model answers in a way that a run can learn by. Raises ``UnreadableError`` where it does not."""
        self._first += candidates
        most, words = self.config.runner.max_unreadable, self.ranks.words
        check_readable(self._first, most, words, "runner.max_unreadable", "nothing would be learnt")
        if any(candidate.thinking for candidate in candidates) and not self.ranks.lets_think:
            self.progress.tells("the model thinks aloud, but not for the gate: name its closing tag in model.thinking_ends")

    def _judged(self, batch: Round, mission: MissionState, records: list[Record]) -> MissionState:
        """The mission after a round; one of train waits to be reflected on."""
        artifacts.write_round(self.journal, batch, records, audit=self.config.jump_reflection)
        tally = Tally() if batch.number == 0 else mission.tally
        for record in records:
            tally = tally.plus(record.ticket, record.answers, record.selection)
        mission = replace(
            mission, tally=tally, pending=mission.pending + tuple(records) if batch.learns else mission.pending
        )
        self._log(batch, self.progress.round(batch, tally, mission.guidance.step), "round/")
        if batch.last:
            artifacts.write_metrics(self.journal, batch, mission.guidance.step, tally)
            self._log(batch, tally.row(), "")
            mission = replace(mission, judged={**mission.judged, batch.split: (mission.guidance.step, tally)})
            if batch.split == "val":
                mission = replace(mission, choices=(*mission.choices, Choice(mission.guidance, tally.right, tally.n)))
        return mission

    def _log(self, batch: Round, figures: Mapping[str, Any], kind: str) -> None:
        """Show figures of a round, or of a whole split, to the loggers, over the rounds of the run."""
        named = {f"{batch.mission}/{batch.split}/{kind}{name}": value for name, value in figures.items()}
        self.loggers.log({**named, "epoch": batch.epoch}, self.schedule.count(batch.place))

    def _distilled(self, batch: Round, mission: MissionState, records: list[Record]) -> MissionState:
        """The mission after right answers of a round were written as training data."""
        wanted = self.config.distill.size - mission.distilled
        right = [record for record in records if record.selection.label_match][:wanted]
        artifacts.write_distilled(self.journal, mission.guidance, right, self.ranks.words)
        self.progress.passes(batch, f"{mission.distilled + len(right)} right answers")
        return replace(mission, distilled=mission.distilled + len(right))

    # Learning

    def is_due(self, name: str, size: int) -> bool:
        """Whether a mission that learns has a bundle of ``size`` tickets to reflect on."""
        return learning.due(self.state.missions[name], size) and self.learns(name)

    def may_prune(self, name: str) -> bool:
        """Whether a mission that learns may have rules that earn nothing."""
        return self.learns(name) and learning.may_prune(self.state.missions[name], self.config)

    def is_closed(self, epoch: int, name: str) -> bool:
        """Whether a mission's epoch had its end before."""
        return self.schedule.close(epoch, name) <= self.state.done

    def close(self, epoch: int, name: str) -> None:
        """End a mission's epoch, which was idle where no edit was accepted."""
        mission = self.state.missions[name]
        idle = 0 if mission.changed else mission.idle_epochs + 1
        mission = replace(mission, changed=False, idle_epochs=idle, pending=(), again=False)
        self._commit(replace(self.state.with_mission(mission), done=self.schedule.close(epoch, name)))

    def choose(self, name: str) -> None:
        """The final guidance of a mission, by val alone."""
        place = self.schedule.choice(name)
        mission = self.state.missions[name]
        if place <= self.state.done or self.config.jump_reflection:
            return
        if mission.choices:
            chosen = latest_of_the_best(mission.choices)
            artifacts.write_choice(self.journal, name, mission.choices, chosen)
            if chosen.guidance.step != mission.guidance.step:
                self.progress.tells(f"{name}: back to guidance step {chosen.guidance.step}, which does better on val")
                guidance = replace(chosen.guidance, spent=mission.guidance.spent)  # nobody gets that back
                artifacts.write_guidance(self.journal, guidance, self.config.guidance.retention)
                mission = replace(mission, guidance=guidance)
        self._commit(replace(self.state.with_mission(mission), done=place))

    def learns(self, name: str) -> bool:
        """Whether a mission goes on learning: no budget has ended that, and it has not been idle for too long."""
        patience = self.config.early_stop.patience
        return not self.state.ended and (patience is None or self.state.missions[name].idle_epochs < patience)

    def record_reflection(self, bundle: Bundle, reflection: Reflection, learnt: Learnt, mission: MissionState) -> None:
        """Write down, show and commit what a bundle has taught; ``mission`` is where that leaves the mission."""
        name = mission.guidance.mission
        artifacts.write_refused(self.journal, name, bundle.name, reflection.proposals)
        tokens = bundle.tokens + reflection.tokens
        spent = self.state.spent.plus(judged=bundle.asked, reflections=len(reflection.proposals), tokens=tokens)
        self._settled(artifacts.reflection_row(name, bundle, reflection), mission, learnt, spent)

    def record_removal(self, removal: Removal, learnt: Learnt, mission: MissionState) -> None:
        """Write down, show and commit what came of a search for a rule that can go."""
        row = artifacts.removal_row(self.state.missions[mission.guidance.mission], removal)
        self._settled(row, mission, learnt, self.state.spent)

    def _settled(self, row: artifacts.Row, mission: MissionState, learnt: Learnt, spent: Spent) -> None:
        """Write down, show and commit what became of edits."""
        name, gated = mission.guidance.mission, self.config.gate != "none"
        before = self.state.missions[name]
        row |= {"epoch": self.state.done[0], **artifacts.outcome_row(before, mission, learnt, gated)}
        artifacts.write_reflection(self.journal, name, row)
        if mission.guidance != before.guidance:
            artifacts.write_guidance(self.journal, mission.guidance, self.config.guidance.retention)
        self.progress.learnt(name, row, before.guidance, mission.guidance)
        spent = spent.plus(judged=learnt.judged, tokens=learnt.tokens)
        self._commit(replace(self.state.with_mission(mission), spent=spent))

    def tools(self, name: str) -> Tools:
        """What learning works with, of one mission."""
        config, tickets, splits = self.config, self.inputs.tickets, self.inputs.splits[name]
        if name not in self._pools:
            most = config.gate.pool_size if config.gate != "none" else 0
            self._pools[name] = Pool(whole_groups(splits.tested, tickets), most)
        look, count_tokens = max(LOOK, self.ranks.round_size // 2), self.ranks.reflector.count_tokens
        return Tools(config, tickets, splits, self._pools[name], count_tokens, look, self.inputs.choose)

    def _ended(self, state: State) -> State:
        """The state, marked where learning has reached the end of a budget."""
        budget, spent = self.config.budget, state.spent
        limits = {
            "budget.rollouts": (spent.rollouts + spent.judged, budget.rollouts),
            "budget.tokens": (spent.tokens, budget.tokens),
            "budget.seconds": (time.monotonic() - self._began, budget.seconds),
        }
        over = (name for name, (used, limit) in limits.items() if limit is not None and used >= limit)
        return state if state.ended or not self._learning_ahead(state.done) else replace(state, ended=next(over, ""))

    def _learning_ahead(self, done: Place) -> bool:
        """Whether anything that learns comes after ``done``: elsewhere a budget ends nothing."""
        last = self.schedule.epochs[-1] if self.schedule.epochs else 0
        return bool(last) and done < self.schedule.close(last, self.schedule.missions[-1])
