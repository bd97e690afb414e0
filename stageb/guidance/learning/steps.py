"""Learning from bundles, as functions of a mission's state and of what was judged: draw, reflect, gate, apply.

One bundle after another, since each edit changes what later answers read; or, with ``reflection.scope`` round, a bundle for
each fold: all are reflected on under one guidance, and their proposals tested in turn under what was accepted by then.
Nothing here writes a file, prints or keeps state: ``run.py`` does, with what these functions return.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from stageb.engines.protocol import Prompt
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging.questions import CountTokens, Dialogue, sample_together
from stageb.guidance.learning.calibration import calibrate
from stageb.guidance.learning.gate.budget import Pool
from stageb.guidance.learning.gate.decide import Choose, Decision, Edit, Gate, decide, decide_by
from stageb.guidance.learning.gate.judge import Judge, Verdicts, ask_once, digest
from stageb.guidance.learning.reflect import Reflection, case_of, merge_equal, reflect, why_ineligible
from stageb.guidance.learning.state import MissionState
from stageb.guidance.learning.transitions import needs_preparing
from stageb.guidance.rules.demonstrations import demonstrate
from stageb.guidance.rules.edits import apply, named
from stageb.guidance.rules.evidence_forms import reading
from stageb.guidance.rules.judge import check_proposal, find_touched, read_rules
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.rules.prompts import Case, Words, name_labels, rule_lines, words_of
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.word_lists import find_word_lists
from stageb.guidance.tickets.splits import (
    Splits,
    bundle_size,
    bundles_at_once,
    note_tickets,
    oversampling,
    sign_rules,
    split_seed,
    weigh_labels,
)
from stageb.guidance.words.calibration import CALIBRATED_ON
from stageb.guidance.words.costs import prices_of
from stageb.guidance.words.types import FOLDS, PASS_FAIL, Budget, Guidance, Proposal, Refusal, Ticket, Verdict
from stageb.seeds import shuffled, stream

LABELS = 8  # for so many, or fewer, are limits on what a model reads meant; for more they grow
NO_ROOM = "no room: the rules would be beyond reflection.max_rules or reflection.max_guidance_tokens"
REMEMBERED = 1024  # tickets, at most, of which a mission knows how they were rolled out


@dataclass(frozen=True, slots=True)
class Tools:
    """What the functions here need for one mission."""

    config: LoopConfig
    tickets: Sequence[Ticket]  # all of the run's; positions elsewhere point here
    splits: Splits
    pool: Pool  # what edits are made from and tested on
    vocabulary: Vocabulary  # of the train tickets: what a rule may name
    count_tokens: CountTokens
    look: int  # tickets between two looks of a test
    choose: Choose | None = None  # the user's own, in place of race and test
    weighs: bool = False  # whether the gate judges by probability, at a temperature above 0
    labels: tuple[Verdict, ...] = PASS_FAIL  # of the mission
    pause: Callable[[str], None] = lambda doing: (
        None
    )  # told what is learnt, between small steps; may raise ``LearningStopped``

    @property
    def words(self) -> Words:
        """What the model reads and writes."""
        return name_labels(words_of(self.config.prompt, self.config.model), self.labels)

    @property
    def temperature(self) -> float:
        """At which verdicts are weighed."""
        return self.config.sampler.grid[0].temperature


@dataclass(frozen=True, slots=True)
class Bundle:
    """The tickets of one fold that a reflection is about, as the present guidance judges them."""

    number: int  # from 0; modulo FOLDS, the fold that teaches
    key: int  # of its random stream
    judged: tuple[Case, ...]  # in the pool's order
    asked: int = 0  # verdicts that the model was asked for
    tokens: int = 0  # that these took
    saved: int = 0  # verdicts that rules as code gave

    @property
    def name(self) -> str:
        """R1, R2, ..."""
        return f"R{self.number + 1}"

    @property
    def why_not(self) -> str:
        """Why it cannot teach; empty where it can."""
        return why_ineligible(self.judged)


@dataclass(frozen=True, slots=True)
class Drafts:
    """The edits that a bundle's proposals come to."""

    edits: Sequence[Edit]
    verdicts: Verdicts = field(default_factory=Verdicts)  # known then, and what they took
    gate: Gate | None = None  # that they are put to; None: nothing tests them


@dataclass(frozen=True, slots=True)
class GateResult:
    """The gate's decision on edits, and what it cost."""

    decision: Decision
    left: Budget  # of the mission's part in the run's false-acceptance budget
    verdicts: Verdicts = field(default_factory=Verdicts)  # known then, and what they took
    failed: tuple[tuple[str, int], ...] = ()  # as in ``MissionState``
    prepared: Guidance | None = None  # the present guidance, prepared anew, where no edit takes its place


def prepare(mission: MissionState, tools: Tools) -> Dialogue[tuple[MissionState, Verdicts]]:
    """The mission with its first guidance prepared, and the verdicts asked for it: a step further where there are
    demonstrations or a calibration, all by tickets that edits are raced on, and no test looks at."""
    positions = tools.splits.race_set or tools.splits.rollout_pool
    guidance = choose_demonstrations(mission.guidance, [Case(tools.tickets[i], False, None) for i in positions], tools)
    judge, verdicts, p_correct = make_judge(mission, tools), Verdicts(), dict[int, float]()
    if tools.weighs:
        named = {each.source for each in guidance.shown}
        others = [i for i in positions if tools.tickets[i].key not in named]
        _, verdicts = yield from ask_once(judge.p_correct([(guidance, others[:CALIBRATED_ON])]), verdicts)
        guidance, p_correct = calibrate(guidance, verdicts.known_under(guidance), tools.tickets, tools.temperature)
    if guidance == mission.guidance:
        return mission, verdicts
    known = {tools.tickets[i].key: p for i, p in p_correct.items()}
    guidance = note_tickets(replace(guidance, step=guidance.step + 1), tools.tickets, tools.splits)
    return replace(mission, guidance=guidance, p_correct=known), verdicts


def draw_bundles(mission: MissionState, tools: Tools) -> Dialogue[tuple[MissionState, tuple[Bundle, ...]]]:
    """The mission without its oldest records, and what the next fold can teach; with ``reflection.scope`` round, without
    all of its records, and what each fold can.

    A fold's tickets are those that were rolled out under the present guidance, or under an earlier one and since then by no
    edit touched or judged anew; where there are fewer than ``reflection.evidence_tickets``, with a gate, the first of the
    others, judged where it has not judged them yet. Which they are does not depend on where an earlier test stopped: that
    would tell of tickets that this bundle's edits are tested on. An accepted edit is followed by another bundle without
    another rollout: most of what it takes to know has just been judged by its test.
    """
    config, number = tools.config, mission.bundles
    mission = _take_records(mission, tools)
    numbers = range(number, number + bundles_at_once(config))
    mission = replace(mission, again=False, bundles=numbers.stop)
    keys = [stream(config.seed, "reflection", mission.guidance.mission, each) for each in numbers]
    if not config.has_gate:
        return mission, (Bundle(number, keys[0], tuple(filter(None, mission.seen.values()))),)
    judge = make_judge(mission, tools)
    wanted = config.reflection.evidence_tickets if config.reflection.evidence else 0
    wanted *= oversampling(config) if tools.splits.inclusion_prob else 1
    rolled_out = {tools.splits.by_key[key]: case for key, case in mission.seen.items()}
    folds, asked = [], [i for i, case in rolled_out.items() if case is None]
    for each in numbers:
        there = set(tools.pool.of_fold(each, rolled_out))
        further = list(islice((i for i in tools.pool.fold(each) if i not in there), max(0, wanted - len(there))))
        folds.append(tools.pool.of_fold(each, there.union(further)))
        asked += further
    _, verdicts = yield from ask_once(judge.p_correct([(mission.guidance, asked)]), known_verdicts(mission, tools))
    p_correct = verdicts.of(mission.guidance)
    weights = weigh_labels(tools.splits, prices_of(config.price))

    def case_at(position: int) -> Case:
        return rolled_out.get(position) or Case(tools.tickets[position], p_correct[position] > 0.5, None)

    def weighed(position: int) -> Case:
        return replace(case_at(position), weight=weights.get(tools.tickets[position].label, 1.0))

    first, *others = (
        Bundle(each, key, tuple(map(weighed, fold))) for each, key, fold in zip(numbers, keys, folds, strict=True)
    )
    first = replace(first, asked=verdicts.judged, tokens=verdicts.tokens, saved=verdicts.saved)  # for all of them, at once
    seen = {tools.tickets[i].key: case_at(i) for i in rolled_out}
    mission = replace(mission, seen=seen, p_correct={tools.tickets[i].key: p for i, p in p_correct.items()})
    return mission, (first, *others)


def reflect_on(bundles: Sequence[Bundle], guidance: Guidance, tools: Tools) -> Dialogue[list[Reflection]]:
    """What the model proposes for each bundle, all sampled at once, without operations that name what no ticket has, or that
    the limits leave no room for."""
    config, words = tools.config, tools.words
    found = yield from sample_together(
        [reflect(each.judged, guidance, tools.count_tokens, config.reflection, words, each.key) for each in bundles]
    )

    vocabulary = replace(tools.vocabulary, lists=find_word_lists(guidance.rules))

    def check(proposal: Proposal) -> Proposal:
        proposal = check_proposal(proposal, vocabulary, words)
        if not proposal.operations or fits(apply(guidance, proposal.operations), tools):
            return proposal
        refused = (Refusal(each.text, NO_ROOM) for each in proposal.operations)
        return replace(proposal, operations=(), refusals=(*proposal.refusals, *refused))

    return [replace(each, proposals=tuple(map(check, each.proposals))) for each in found]


def draft_edits(mission: MissionState, bundle: Bundle, proposals: Sequence[Proposal], tools: Tools) -> Dialogue[Drafts]:
    """The edits that the proposals come to, within the limits on rules and tokens; none that is barred."""
    if not tools.config.has_gate:
        guidance, name = mission.guidance, bundle.name
        edited = [(each, times, apply(guidance, each.operations, name)) for each, times in merge_equal(proposals)]
        return Drafts([Edit((each,), times, after) for each, times, after in edited if fits(after, tools)])
    # Anew for each bundle, so that no edit owes its place to the same few tickets for good.
    race_on = shuffled(tools.splits.race_set, stream(bundle.key, "race"))
    gate = make_gate(mission, race_on, tools, bundle.number)
    edits = _edits(mission.guidance, bundle, proposals, tools)
    edits_to_try = [edit for edit in edits if not _is_barred(mission, bundle, edit)]
    return Drafts(*(yield from _calibrate_edits(edits_to_try, gate, known_verdicts(mission, tools), tools)), gate)


def gate_edits(mission: MissionState, bundle: Bundle, drafts: Drafts, tools: Tools) -> Dialogue[GateResult]:
    """Put the edits to the gate; without a gate, take the first."""
    if drafts.gate is None:
        return GateResult(Decision((), 0.0, next(iter(drafts.edits), None)), mission.left)
    fold, parts = bundle.number % FOLDS, mission.left.edits
    if tools.choose:
        deciding = decide_by(tools.choose, drafts.edits, drafts.gate, parts[fold])
    else:
        deciding = decide(drafts.edits, drafts.gate, partial(_join, mission, bundle, tools), parts[fold])
    decision, verdicts = yield from ask_once(deciding, drafts.verdicts)
    left = replace(mission.left, edits=(*parts[:fold], decision.left, *parts[fold + 1 :]))
    failed = tuple(
        (digest(replace(tried.edit.guidance, calibration=mission.guidance.calibration)), fold)
        for tried in decision.tried
        if tried.test or tried.outcome == "turns no evidence"
    )
    return GateResult(decision, left, verdicts, failed)


def apply_result(mission: MissionState, learnt: GateResult, tools: Tools) -> MissionState:
    """The mission after a bundle, with its new guidance, if there is one, and what was spent. Under new guidance, wrong
    tickets may be right and failed edits may pass, so what is known of them is reset. An accepted edit is followed by
    another bundle at once if there is a gate, whose test has just judged most of the tickets that this takes."""
    winner = learnt.decision.winner
    most = max(2 * tools.pool.size, FOLDS * tools.config.reflection.evidence_tickets)  # groups
    # Of what was judged, what may be asked again: without a limit it would only grow.
    asked_again = {*tools.splits.race_set, *(i for group in tools.pool.groups[:most] for i in group)}
    seen = _keep_untouched(mission, winner.guidance, tools) if winner else mission.seen
    asked_again.update(tools.splits.by_key[key] for key, case in seen.items() if case is None)
    judged = learnt.verdicts.of(winner.guidance if winner else mission.guidance)
    p_correct = {tools.tickets[i].key: p for i, p in judged.items() if i in asked_again}
    spent = mission.guidance.spent.plus(mission.left.less(learnt.left))
    mission = replace(mission, left=learnt.left, p_correct=p_correct)
    if winner is None:
        guidance, failed = mission.guidance, (*mission.failed, *learnt.failed)
        if learnt.prepared:
            guidance = note_tickets(replace(learnt.prepared, step=guidance.step + 1), tools.tickets, tools.splits)
        return replace(
            mission, guidance=replace(guidance, spent=spent), failed=failed, idle_bundles=mission.idle_bundles + 1
        )
    guidance = note_tickets(sign_rules(winner.guidance, split_seed(tools.config)), tools.tickets, tools.splits)
    mission = replace(mission, guidance=replace(guidance, spent=spent), seen=seen, failed=(), idle_bundles=0)
    return replace(mission, changed=True, again=mission.again or tools.config.has_gate)


# Inside ------------------------------------------------------------------------------------------------------------------


def _is_whole(tools: Tools) -> bool:
    """Whether all that is rolled out is reflected on at once."""
    return tools.config.reflection.scope == "round"


def _take_records(mission: MissionState, tools: Tools) -> MissionState:
    """The mission without the records that are due, their tickets the last of those that it has seen."""
    due = 0 if mission.again else bundle_size(tools.splits, tools.config)
    size = len(mission.pending) if _is_whole(tools) else due
    settles = _is_whole(tools) and tools.config.has_gate  # by probability what few answers leave open
    told = {
        record.ticket.key: None if settles and record.selection.low_agreement else case_of(record)
        for record in mission.pending[:size]
        if record.guidance_step == mission.guidance.step and not record.answers.set_aside
    }
    seen = {**{key: case for key, case in mission.seen.items() if key not in told}, **told}
    most = max(REMEMBERED, len(told))
    seen = dict(islice(seen.items(), max(0, len(seen) - most), None))
    return replace(mission, pending=mission.pending[size:], seen=seen)


def _keep_untouched(mission: MissionState, after: Guidance, tools: Tools) -> dict[str, Case | None]:
    """What is known of the tickets seen once the guidance is ``after``: as it was where the edit cannot touch a ticket,
    otherwise to be asked; nothing where bundles come one by one, and there is little to keep."""
    if not _is_whole(tools):
        return {}
    is_touched = find_touched(mission.guidance, after, tools.vocabulary, tools.words)
    return {key: case if case and not is_touched(reading(case.ticket)) else None for key, case in mission.seen.items()}


def rule_on(guidance: Guidance, tickets: Sequence[Ticket], tools: Tools) -> list[Ruling]:
    """What the rules as code say of each of these tickets."""
    judge = read_rules(guidance, tools.vocabulary, tools.words).compile()
    return [judge(reading(ticket)) for ticket in tickets]


def choose_demonstrations(guidance: Guidance, cases: Sequence[Case], tools: Tools) -> Guidance:
    """``guidance`` with demonstrations from these cases, if any are to be shown."""
    room = tools.config.prompt.demonstration_tokens
    if not room or not needs_preparing(tools.config):
        return guidance
    return demonstrate(guidance, cases, tools.vocabulary, tools.words, partial(_count, tools), room)


def _calibrate_edits(
    edits: Sequence[Edit], gate: Gate, verdicts: Verdicts, tools: Tools
) -> Dialogue[tuple[list[Edit], Verdicts]]:
    """``edits``, each calibrated on tickets that they race on, and no test looks at: new rules shift all verdicts, which
    would hide what they are worth. Also the verdicts known then."""
    if not tools.weighs or not needs_preparing(tools.config):
        return list(edits), verdicts
    some, calibrated = gate.race_on[:CALIBRATED_ON], []
    judged, verdicts = yield from ask_once(gate.judge.judgements([(edit.guidance, some) for edit in edits]), verdicts)
    for edit, each in zip(edits, judged, strict=True):
        judgements = dict(zip(some, each, strict=True))
        guidance, after = calibrate(edit.guidance, judgements, tools.tickets, tools.temperature)
        verdicts = verdicts.plus(guidance, after)
        calibrated.append(replace(edit, guidance=guidance))
    return calibrated, verdicts


def make_gate(mission: MissionState, race_on: Sequence[int], tools: Tools, taught_by: int | None) -> Gate:
    """The gate for edits learnt from the fold of the bundle ``taught_by``; None: from no fold."""
    judge, chunk = make_judge(mission, tools), tools.config.gating.race_chunk
    return Gate(judge, race_on, chunk, tools.pool.groups_outside(taught_by), tools.look)


def make_judge(mission: MissionState, tools: Tools) -> Judge:
    """What asks how the mission's tickets are judged."""
    prices = prices_of(tools.config.price)
    return Judge(tools.tickets, tools.config.gating, mission.guidance, tools.splits.inclusion_prob, prices=prices)


def known_verdicts(mission: MissionState, tools: Tools) -> Verdicts:
    """How the mission's present guidance judges tickets, as far as that is known."""
    return Verdicts().plus(mission.guidance, {tools.splits.by_key[key]: p for key, p in mission.p_correct.items()})


def _edits(guidance: Guidance, bundle: Bundle, proposals: Sequence[Proposal], tools: Tools) -> list[Edit]:
    """The distinct edits that are proposed, but for those that others have left no room for."""
    train, edits = tools.splits.by_key, []
    for proposal, times in merge_equal(proposals):
        edited = apply(guidance, proposal.operations, bundle.name)
        if fits(edited, tools):
            evidence = dict.fromkeys(train[key] for operation in proposal.operations for key in operation.evidence)
            edited = choose_demonstrations(edited, bundle.judged, tools)
            edits.append(Edit((proposal,), times, edited, tuple(evidence)))
    return edits


def _is_barred(mission: MissionState, bundle: Bundle, edit: Edit) -> bool:
    """Whether this edit, learnt from the same fold, failed before. A failure of another fold's edit does not count: that was
    tested on tickets of this fold's tests, which must not influence which edits are tried."""
    return (digest(edit.guidance), bundle.number % FOLDS) in mission.failed


def _join(mission: MissionState, bundle: Bundle, tools: Tools, one: Edit, other: Edit) -> Edit | None:
    """The edit that does what both do; None where they name one rule, there is no room for both, or it is barred."""
    operations = [op for edit in (one, other) for proposal in edit.proposals for op in proposal.operations]
    touched = [key for operation in operations for key in named(operation)]
    if len(set(touched)) < len(touched):
        return None
    both = replace(apply(mission.guidance, operations, bundle.name), calibration=one.guidance.calibration)
    edited = choose_demonstrations(both, bundle.judged, tools)
    evidence = tuple(dict.fromkeys((*one.evidence, *other.evidence)))
    together = Edit((*one.proposals, *other.proposals), min(one.times, other.times), edited, evidence)
    return together if fits(edited, tools) and not _is_barred(mission, bundle, together) else None


def fits(guidance: Guidance, tools: Tools) -> bool:
    """Whether a guidance's rules are within the limits, in number and tokens: of each label of its own that code judges."""
    config, labels, by_model = tools.config.reflection, guidance.labels, tools.config.runner.judge == "model"
    times = max(1.0, len(labels) / LABELS) if by_model or labels == PASS_FAIL else len(labels)
    guidance = replace(guidance, rules=tuple(rule for rule in guidance.rules if not rule.is_background))
    most = config.max_guidance_tokens * times  # a ticket and demonstrations have the other half of a prompt
    room = min(most, tools.config.sampler.max_prompt_tokens // 2) if by_model else most
    return len(guidance.rules) <= config.max_rules * times and _count(tools, rule_lines(guidance)) <= room


def _count(tools: Tools, text: str) -> int:
    full, empty = tools.count_tokens([Prompt(text, ""), Prompt("", "")])
    return full - empty
