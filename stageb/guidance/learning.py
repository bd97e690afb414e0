"""Learning from a bundle, as functions of where a mission stands and of what was judged: reflect, decide, settle.

One bundle after another, since each edit changes what later answers read. Nothing here writes a file, speaks or remembers:
``run.py`` does, with what these functions return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from stageb.engines.protocol import Engine, Prompt
from stageb.guidance.config import GateConfig, LoopConfig
from stageb.guidance.gate.decide import Ask, Contender, Decision, Jury, decide, prune, unseen
from stageb.guidance.gate.pruning import earned, lighter, traded
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
    engine: Engine  # that reflects
    ask: Ask  # judges tickets, over all ranks
    look: int  # tickets between two looks of a test


@dataclass(frozen=True, slots=True)
class Bundle:
    """What one reflection is about."""

    name: str  # R1, R2, ...
    key: int  # of its random stream
    records: tuple[Record, ...]
    cases: tuple[Record, ...]  # these, and wrong ones of earlier bundles that taught nothing

    @property
    def why_not(self) -> str:
        """Why it cannot teach; empty where it can."""
        return eligible(self.cases)


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of the edits that were tried."""

    decision: Decision
    merits: Mapping[int, float] = field(default_factory=dict)  # position -> how the guidance from now on judges it
    judged: int = 0  # verdicts that this took
    tokens: int = 0


def due(mission: MissionState, size: int) -> bool:
    """Whether a full bundle has gathered, or the last one has more to teach."""
    return bool(mission.again) or len(mission.pending) >= size


def take_bundle(mission: MissionState, config: LoopConfig) -> tuple[MissionState, Bundle]:
    """The mission without its oldest bundle, and that bundle.

    One that has taught something is taken again, as the edited guidance judges it, in place of another rollout.
    """
    size, name = config.reflection.batch_size, mission.guidance.mission
    records = mission.again or mission.pending[:size]
    cases = {record.ticket.key: record for record in (*mission.unsolved, *records)}
    key = stream(config.seed, "reflection", name, mission.bundles)
    bundle = Bundle(f"R{mission.bundles + 1}", key, records, tuple(cases.values()))
    wrong = [record for record in bundle.cases if not is_right(record) and not record.answers.set_aside]
    pending = mission.pending if mission.again else mission.pending[size:]
    unsolved = tuple(wrong[-size:])
    return replace(mission, pending=pending, again=(), unsolved=unsolved, bundles=mission.bundles + 1), bundle


def reflect_on(bundle: Bundle, guidance: Guidance, tools: Tools) -> Reflection:
    """What the model proposes."""
    return reflect(bundle.cases, guidance, tools.engine, tools.config.reflection, tools.config.prompt.language, bundle.key)


def try_edits(mission: MissionState, bundle: Bundle, proposals: Sequence[Proposal], tools: Tools) -> Tried:
    """Put what is proposed to the gate; without one, take the first edit that keeps to the limits."""
    gate = tools.config.gate
    if gate == "none":
        return Tried(Decision((), mission.left, _first_that_fits(mission.guidance, bundle, proposals, tools)))
    jury = _jury(mission, gate, tools)
    # Anew for each bundle, so that no edit owes its place to the same few tickets for good.
    race_on = shuffled(tools.splits.raced, stream(bundle.key, "race"))
    contenders = [
        each
        for each in _contenders(mission.guidance, bundle, proposals, jury, race_on, tools)
        if rule_lines(each.guidance) not in mission.failed
    ]

    def join(one: Contender, other: Contender) -> Contender | None:
        return _joined(mission, one, other, bundle.name, tools)

    def pool_of(contender: Contender) -> list[int]:
        return unseen(tools.splits.tested, contender.shown, tools.tickets)[: gate.pool_size]

    decision = decide(contenders, jury, join, race_on, pool_of, mission.left, tools.look, gate.race_chunk)
    after = decision.winner.guidance if decision.winner else mission.guidance
    if decision.winner:
        jury.merits([(after, _positions(bundle.cases, tools.splits))])
    return Tried(decision, jury.known(after), jury.judged, jury.tokens)


def try_without(mission: MissionState, gate: GateConfig, tools: Tools) -> tuple[Tried, list[Contender], dict[str, float]]:
    """Seek a rule that can go: what became of that, what was tried, and what each rule earns."""
    splits = tools.splits
    race_on, pool = splits.raced[:CREDITED_ON], splits.tested[: gate.pool_size]
    jury = _jury(mission, gate, tools)
    contenders = lighter(mission.guidance, f"P{mission.guidance.step}")
    decision = prune(contenders, jury, race_on, pool, gate.removal_margin, mission.left, tools.look)
    credit = earned(mission.guidance, jury, race_on)
    after = decision.winner.guidance if decision.winner else mission.guidance
    return Tried(decision, jury.known(after), jury.judged, jury.tokens), contenders, credit


def may_prune(mission: MissionState, config: LoopConfig) -> bool:
    """Whether the guidance has rules to spare, and has changed since none could be."""
    rules = len(mission.guidance.rules) - 1
    return config.gate != "none" and rules >= FEWEST_TO_PRUNE and mission.pruned_step != mission.guidance.step


def settle(mission: MissionState, tried: Tried, tools: Tools) -> MissionState:
    """Where the mission stands after a decision."""
    decision, gate = tried.decision, tools.config.gate
    kept: set[int] = set()
    if gate != "none":  # what may be asked for again; the others would only grow
        kept = {*tools.splits.raced, *tools.splits.tested[: 2 * gate.pool_size]}
    merits = {tools.tickets[i].key: merit for i, merit in tried.merits.items() if i in kept}
    failed = tuple(rule_lines(trial.contender.guidance) for trial in decision.trials if trial.test)
    mission = replace(mission, left=decision.left, merits=merits, failed=(*mission.failed, *failed))
    if decision.winner is None:
        return mission
    # What was wrong may be right now, and what failed may do.
    guidance = _sealed(decision.winner.guidance, split_seed(tools.config))
    return replace(mission, guidance=guidance, changed=True, unsolved=(), failed=())


def look_again(mission: MissionState, bundle: Bundle, tried: Tried, tools: Tools) -> MissionState:
    """The mission with the bundle that has just taught something put back, where it can teach more."""
    merits = {tools.tickets[i].key: merit for i, merit in tried.merits.items()}
    again = tuple(judged_again(bundle.cases, merits))
    return mission if eligible(again) else replace(mission, again=again)


# Inside -------------------------------------------------------------------------------------------------------------


def _jury(mission: MissionState, gate: GateConfig, tools: Tools) -> Jury:
    known = {tools.splits.by_key[key]: merit for key, merit in mission.merits.items()}
    return Jury(tools.ask, tools.tickets, gate, mission.guidance, known)


def _sealed(guidance: Guidance, seed: int) -> Guidance:
    """The guidance, whose new rules say by which split they were learnt: what another one seals they have seen."""

    def says(rule: Rule) -> Rule:
        new = "sources" in rule.metadata and SPLIT_SEED not in rule.metadata
        return replace(rule, metadata={**rule.metadata, SPLIT_SEED: seed}) if new else rule

    return replace(guidance, rules=tuple(says(rule) for rule in guidance.rules))


def _positions(records: Sequence[Record], splits: Splits) -> list[int]:
    """Where the records' tickets stand, each once, those set aside left out."""
    return list(dict.fromkeys(splits.by_key[record.ticket.key] for record in records if not record.answers.set_aside))


def _contenders(
    guidance: Guidance, bundle: Bundle, proposals: Sequence[Proposal], jury: Jury, race_on: Sequence[int], tools: Tools
) -> list[Contender]:
    """The different edits that are proposed, each with room made for it where it needs some."""
    train, drawn = tools.splits.by_key, _positions(bundle.records, tools.splits)
    contenders = []
    for proposal, times in distinct(proposals):
        operations = proposal.operations
        if not fits(apply(guidance, operations), tools):
            earns = earned(guidance, jury, race_on[:CREDITED_ON])
            room = traded(guidance, operations, lambda edited: fits(edited, tools), earns)
            if room is None:
                continue
            operations = room
        evidence = dict.fromkeys(train[key] for operation in proposal.operations for key in operation.evidence)
        gone = tuple(str(operation.key) for operation in operations[len(proposal.operations) :])
        shown = dict.fromkeys([*drawn, *(train[key] for key in proposal.cases)])
        edited = apply(guidance, operations, bundle.name)
        contenders.append(Contender((proposal,), times, edited, tuple(evidence), gone, tuple(shown)))
    return contenders


def _joined(mission: MissionState, one: Contender, other: Contender, name: str, tools: Tools) -> Contender | None:
    """The edit that does what both do; None where they name one rule, there is no room for both, or it failed before."""
    operations = [op for contender in (one, other) for proposal in contender.proposals for op in proposal.operations]
    touched = [key for operation in operations for key in named(operation)]
    if len(set(touched)) < len(touched):
        return None
    edited = apply(mission.guidance, operations, name)
    evidence = tuple(dict.fromkeys((*one.evidence, *other.evidence)))
    shown = tuple(dict.fromkeys((*one.shown, *other.shown)))
    together = Contender((*one.proposals, *other.proposals), min(one.times, other.times), edited, evidence, shown=shown)
    return together if fits(edited, tools) and rule_lines(edited) not in mission.failed else None


def _first_that_fits(guidance: Guidance, bundle: Bundle, proposals: Sequence[Proposal], tools: Tools) -> Contender | None:
    edits = (
        Contender((proposal,), times, apply(guidance, proposal.operations, bundle.name))
        for proposal, times in distinct(proposals)
    )
    return next((edit for edit in edits if fits(edit.guidance, tools)), None)


def fits(guidance: Guidance, tools: Tools) -> bool:
    """Whether a guidance keeps to the limits; its length is counted without what surrounds every prompt."""
    config = tools.config.reflection
    full, empty = tools.engine.count_tokens([Prompt(rule_lines(guidance), ""), Prompt("", "")])
    return len(guidance.rules) <= config.max_rules and full - empty <= config.max_guidance_tokens
