"""Learning from a bundle, as functions of where a mission stands and of what was judged: reflect, try, settle.

One bundle after another, since each edit changes what later answers read. Nothing here writes a file, speaks or remembers:
``run.py`` does, with what these functions return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from stageb.engines.protocol import Engine, Prompt
from stageb.guidance.config import GateConfig, LoopConfig
from stageb.guidance.gate.decide import Decision, Edit, Gate, decide
from stageb.guidance.gate.judge import Ask, Judge, digest
from stageb.guidance.gate.pool import Pool
from stageb.guidance.gate.pruning import Removal, earned, prune, traded
from stageb.guidance.prompts import rule_lines
from stageb.guidance.reflection.edits import apply, named
from stageb.guidance.reflection.reflect import Reflection, distinct, eligible, is_right, judged_again, reflect
from stageb.guidance.splits import SPLIT_SEED, Splits, split_seed
from stageb.guidance.state import MissionState
from stageb.guidance.types import Guidance, Proposal, Record, Rule, Ticket
from stageb.seeds import shuffled, stream

FEWEST_TO_PRUNE = 2  # rules beside the headline
CREDITED_ON = 96  # tickets that say what each rule earns


@dataclass(frozen=True, slots=True)
class Tools:
    """What learning works with, of one mission."""

    config: LoopConfig
    tickets: Sequence[Ticket]  # of the run
    splits: Splits
    pool: Pool  # what edits are tested on; not used where there is no gate
    engine: Engine  # that reflects
    ask: Ask  # judges tickets, over all ranks
    look: int  # tickets between two looks of a test

    def positions(self, records: Sequence[Record]) -> list[int]:
        """Where the records' tickets stand, each once, those set aside left out."""
        rolled_out = (record.ticket.key for record in records if not record.answers.set_aside)
        return list(dict.fromkeys(self.splits.by_key[key] for key in rolled_out))


@dataclass(frozen=True, slots=True)
class Bundle:
    """What one reflection is about."""

    name: str  # R1, R2, ...
    key: int  # of its random stream
    records: tuple[Record, ...]
    drawn: tuple[str, ...]  # ticket_keys of all that it held when it was first taken, whatever became of them
    cases: tuple[Record, ...]  # its records, and wrong ones of earlier bundles that taught nothing

    @property
    def why_not(self) -> str:
        """Why it cannot teach; empty where it can."""
        return eligible(self.cases)


@dataclass(frozen=True, slots=True)
class Learnt:
    """What became of edits, and what it took to know."""

    decision: Decision
    merits: Mapping[int, float] = field(default_factory=dict)  # position -> how the guidance from now on judges it
    judged: int = 0  # verdicts that this took
    tokens: int = 0


def due(mission: MissionState, size: int) -> bool:
    """Whether a bundle of ``size`` has gathered, or the last one has more to teach."""
    return bool(mission.again) or len(mission.pending) >= size


def take_bundle(mission: MissionState, config: LoopConfig) -> tuple[MissionState, Bundle]:
    """The mission without its oldest bundle, and that bundle.

    One that has taught something is taken again, as the edited guidance judges it, in place of another rollout.
    """
    size, name = config.reflection.batch_size, mission.guidance.mission
    records = mission.again or mission.pending[:size]
    drawn = mission.bundle if mission.again else tuple(dict.fromkeys(record.ticket.key for record in records))
    cases = {record.ticket.key: record for record in (*mission.unsolved, *records)}
    key = stream(config.seed, "reflection", name, mission.bundles)
    bundle = Bundle(f"R{mission.bundles + 1}", key, records, drawn, tuple(cases.values()))
    wrong = [record for record in bundle.cases if not is_right(record) and not record.answers.set_aside]
    pending = mission.pending if mission.again else mission.pending[size:]
    rest = replace(mission, pending=pending, again=(), bundle=(), bundles=mission.bundles + 1)
    return replace(rest, unsolved=tuple(wrong[-size:])), bundle


def reflect_on(bundle: Bundle, guidance: Guidance, tools: Tools) -> Reflection:
    """What the model proposes."""
    return reflect(bundle.cases, guidance, tools.engine, tools.config.reflection, tools.config.prompt.language, bundle.key)


def try_edits(mission: MissionState, bundle: Bundle, proposals: Sequence[Proposal], tools: Tools) -> Learnt:
    """Put what is proposed to the gate; without one, take the first edit that keeps to the limits."""
    if tools.config.gate == "none":
        edits = (
            Edit((proposal,), times, apply(mission.guidance, proposal.operations, bundle.name))
            for proposal, times in distinct(proposals)
        )
        return Learnt(Decision((), mission.left, next((edit for edit in edits if _fits(edit.guidance, tools)), None)))
    # Anew for each bundle, so that no edit owes its place to the same few tickets for good.
    race_on = shuffled(tools.splits.raced, stream(bundle.key, "race"))
    gate = _gate(mission, tools.config.gate, race_on, tools)
    edits_to_try = [
        edit
        for edit in _edits(mission.guidance, bundle, proposals, gate, tools)
        if digest(edit.guidance) not in mission.failed
    ]
    decision = decide(edits_to_try, gate, partial(_joined, mission, bundle.name, tools), mission.left)
    after = decision.winner.guidance if decision.winner else mission.guidance
    if decision.winner:
        gate.judge.merits([(after, tools.positions(bundle.cases))])
    return Learnt(decision, gate.judge.known(after), gate.judge.judged, gate.judge.tokens)


def settle(mission: MissionState, learnt: Learnt, tools: Tools) -> MissionState:
    """Where the mission stands after what was learnt from a bundle."""
    failed = tuple(digest(tried.edit.guidance) for tried in learnt.decision.tried if tried.test)
    mission = replace(mission, left=learnt.decision.left, failed=(*mission.failed, *failed))
    return replace(_edited(mission, learnt, tools), changed=mission.changed or learnt.decision.winner is not None)


def look_again(mission: MissionState, bundle: Bundle, learnt: Learnt, tools: Tools) -> MissionState:
    """The mission with the bundle that has just taught something put back, where it can teach more."""
    merits = {tools.tickets[i].key: merit for i, merit in learnt.merits.items()}
    again = tuple(judged_again(bundle.cases, merits, set(bundle.drawn)))
    return mission if eligible(again) else replace(mission, again=again, bundle=bundle.drawn)


def may_prune(mission: MissionState, config: LoopConfig) -> bool:
    """Whether the guidance has rules to spare, and has changed since none could be."""
    rules = len(mission.guidance.rules) - 1
    return config.gate != "none" and rules >= FEWEST_TO_PRUNE and mission.pruned_step != mission.guidance.step


def try_without(mission: MissionState, tools: Tools) -> tuple[Removal, Learnt]:
    """Seek a rule that can go."""
    assert tools.config.gate != "none"  # ``may_prune`` has looked
    gate = _gate(mission, tools.config.gate, tools.splits.raced[:CREDITED_ON], tools)
    removal = prune(mission.guidance, f"P{mission.guidance.step}", gate, mission.allowance)
    after = removal.winner.guidance if removal.winner else mission.guidance
    decision = Decision(removal.tried, mission.left, removal.winner)
    return removal, Learnt(decision, gate.judge.known(after), gate.judge.judged, gate.judge.tokens)


def settle_removal(mission: MissionState, removal: Removal, learnt: Learnt, tools: Tools) -> MissionState:
    """Where the mission stands after a search for idle rules. One that goes is no accepted edit: nobody learns on for it."""
    searched = mission.pruned_step if removal.winner else mission.guidance.step
    return replace(_edited(mission, learnt, tools), allowance=removal.left, pruned_step=searched)


# Inside ------------------------------------------------------------------------------------------------------------------


def _edited(mission: MissionState, learnt: Learnt, tools: Tools) -> MissionState:
    """The mission under what became of its guidance. What was wrong may be right then, and what failed may do."""
    gate, winner = tools.config.gate, learnt.decision.winner
    asked_again: set[int] = set()  # of what was judged: without a limit it would only grow
    if gate != "none":
        asked_again = {*tools.splits.raced, *(i for group in tools.pool.groups[: 2 * gate.pool_size] for i in group)}
    merits = {tools.tickets[i].key: merit for i, merit in learnt.merits.items() if i in asked_again}
    if winner is None:
        return replace(mission, merits=merits)
    guidance = _signed(winner.guidance, split_seed(tools.config))
    return replace(mission, guidance=guidance, merits=merits, unsolved=(), failed=())


def _signed(guidance: Guidance, seed: int) -> Guidance:
    """The guidance, whose new rules say by which split they were learnt: what another one seals they have seen."""

    def says(rule: Rule) -> Rule:
        new = "sources" in rule.metadata and SPLIT_SEED not in rule.metadata
        return replace(rule, metadata={**rule.metadata, SPLIT_SEED: seed}) if new else rule

    return replace(guidance, rules=tuple(says(rule) for rule in guidance.rules))


def _gate(mission: MissionState, config: GateConfig, race_on: Sequence[int], tools: Tools) -> Gate:
    known = {tools.splits.by_key[key]: merit for key, merit in mission.merits.items()}
    judge = Judge(tools.ask, tools.tickets, config, mission.guidance, known)
    return Gate(judge, race_on, config.race_chunk, tools.pool, tools.look)


def _edits(guidance: Guidance, bundle: Bundle, proposals: Sequence[Proposal], gate: Gate, tools: Tools) -> list[Edit]:
    """The different edits that are proposed, each with room made for it where it needs some."""
    train, edits = tools.splits.by_key, []
    for proposal, times in distinct(proposals):
        operations = proposal.operations
        if not _fits(apply(guidance, operations), tools):
            earns = earned(guidance, gate.judge, gate.race_on[:CREDITED_ON])
            room = traded(guidance, operations, lambda edited: _fits(edited, tools), earns)
            if room is None:
                continue
            operations = room
        evidence = dict.fromkeys(train[key] for operation in proposal.operations for key in operation.evidence)
        gone = tuple(str(operation.key) for operation in operations[len(proposal.operations) :])
        shown = dict.fromkeys(train[key] for key in (*bundle.drawn, *proposal.cases))
        edited = apply(guidance, operations, bundle.name)
        edits.append(Edit((proposal,), times, edited, tuple(evidence), gone, tuple(shown)))
    return edits


def _joined(mission: MissionState, name: str, tools: Tools, one: Edit, other: Edit) -> Edit | None:
    """The edit that does what both do; None where they name one rule, there is no room for both, or it failed before."""
    operations = [op for edit in (one, other) for proposal in edit.proposals for op in proposal.operations]
    touched = [key for operation in operations for key in named(operation)]
    if len(set(touched)) < len(touched):
        return None
    edited = apply(mission.guidance, operations, name)
    evidence = tuple(dict.fromkeys((*one.evidence, *other.evidence)))
    shown = tuple(dict.fromkeys((*one.shown, *other.shown)))
    together = Edit((*one.proposals, *other.proposals), min(one.times, other.times), edited, evidence, shown=shown)
    return together if _fits(edited, tools) and digest(edited) not in mission.failed else None


def _fits(guidance: Guidance, tools: Tools) -> bool:
    """Whether a guidance keeps to the limits; its length is counted without what surrounds every prompt."""
    config = tools.config.reflection
    full, empty = tools.engine.count_tokens([Prompt(rule_lines(guidance), ""), Prompt("", "")])
    return len(guidance.rules) <= config.max_rules and full - empty <= config.max_guidance_tokens
