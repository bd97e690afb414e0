"""Learning from bundle to bundle, on made-up missions: which tickets teach, which are tested on,
what it costs."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal, TypeVar

import pytest
from guidance.trials import numbered

from stageb.engines.protocol import Completion, Prompt
from stageb.errors import StagebError
from stageb.guidance.config import (
    GateConfig,
    LoopConfig,
    ReflectionConfig,
    RunnerConfig,
    SplitConfig,
)
from stageb.guidance.judging.questions import (
    Dialogue,
    JudgeTickets,
    Question,
    SampleAnswers,
    answer_all,
)
from stageb.guidance.learning import bundles as learning
from stageb.guidance.learning.attempts import NO_ROOM
from stageb.guidance.learning.bundles import Reflection
from stageb.guidance.learning.gate.budget import Pool
from stageb.guidance.learning.gate.decide import Decision, Edit, Gate, Outcome, Trial, decide
from stageb.guidance.learning.gate.sequential import ExactTest
from stageb.guidance.learning.proposer import Bundle, GateResult, Lesson
from stageb.guidance.learning.reflect import case_of
from stageb.guidance.learning.state import MissionState, State, Tally
from stageb.guidance.learning.tools import Tools
from stageb.guidance.learning.transitions import after_epoch, after_learning, is_due
from stageb.guidance.rules.edits import rebase
from stageb.guidance.rules.prompts import rule_lines
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.tickets.groups import whole_groups
from stageb.guidance.tickets.splits import FURTHER, split_tickets
from stageb.guidance.words.costs import PriceConfig
from stageb.guidance.words.types import (
    PASS_FAIL,
    TEACHING_FOLDS,
    Answers,
    Budget,
    Guidance,
    Judgement,
    Operation,
    Proposal,
    Record,
    Rule,
    Selection,
    Ticket,
    Verdict,
)
from stageb.seeds import stream, uniform

T = TypeVar("T")

GOOD_LISTS = 3  # of ten rules that are proposed, those below are good
TOKENS = 7  # of one judgement
LEFT = Budget((0.5,) * TEACHING_FOLDS)  # to spend on tests
NEUTRAL = Guidance("m", 0, (Rule("G0", "A ticket passes unless a rule fails it."),), 1)


@dataclass
class Mission:
    """Made-up tickets, an engine that proposes rules by number, and what was asked of the model."""

    tickets: list[Ticket]
    config: LoopConfig
    # (rules, position) -> how often it was judged
    asked: Counter[tuple[str, int]] = field(default_factory=Counter)
    tested_on: list[tuple[Sequence[Edit], Gate]] = field(default_factory=list)

    def tools(self) -> Tools:
        splits = split_tickets(self.tickets, self.config)["m"]
        pool = Pool(whole_groups(splits.test_order, self.tickets), self.config.gating.pool_size)
        return Tools(
            self.config,
            self.tickets,
            splits,
            pool,
            Vocabulary.of(self.tickets),
            self.count_tokens,
            16,
        )

    def p_correct(self, guidance: Guidance, i: int) -> float:
        """How a ticket is judged: good rules mend most tickets, others hardly change one."""
        number = max(
            (int(rule.text.split()[2].strip(".")) for rule in guidance.rules[1:]), default=99
        )
        name = self.tickets[i].key
        if number < GOOD_LISTS and uniform(stream("mended", name), 0) < 0.8:
            return 1.0
        return float(
            uniform(stream("merit", name if number >= GOOD_LISTS else f"{number} {name}"), 0) < 0.4
        )

    def answer(self, steps: Dialogue[T]) -> T:
        """What ``steps`` return, whose questions this mission answers."""

        def answered(question: Question) -> Sequence[Any]:
            if isinstance(question, JudgeTickets):
                return self._judged(question)
            assert isinstance(question, SampleAnswers)
            return self._says(question)

        return answer_all(steps, answered)

    def gated(
        self, mission: MissionState, bundle: Bundle, proposals: Sequence[Proposal], tools: Tools
    ) -> GateResult:
        """What the gate says of what is proposed."""
        return self.answer(
            Reflection(tools).prove(mission, bundle, Lesson(proposals=tuple(proposals)))
        )

    def _judged(self, question: JudgeTickets) -> list[list[Judgement]]:
        for guidance, positions in question.asked:
            self.asked.update((rule_lines(guidance), i) for i in positions)
        return [
            [Judgement(self.p_correct(guidance, i), TOKENS) for i in positions]
            for guidance, positions in question.asked
        ]

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        return [len(prompt.system) // 4 for prompt in prompts]

    def _says(self, question: SampleAnswers) -> list[tuple[Completion, ...]]:
        def answer(key: int) -> str:
            text = f"Fail if {int(uniform(key, 0) * 10)}."
            return json.dumps({"operations": [{"op": "add", "text": text, "evidence": ["T1"]}]})

        return [
            tuple(Completion(answer(key), 5, "stop") for key in request.keys)
            for request in question.requests
        ]

    def rolled_out(
        self, mission: MissionState, positions: Sequence[int], step: int | None = None
    ) -> MissionState:
        """The mission after a round of these tickets."""
        made = []
        for i in positions:
            ticket, match = self.tickets[i], uniform(stream("rolled", self.tickets[i].key), 0) < 0.5
            verdict: Verdict = (
                ticket.label if match else ("pass" if ticket.label == "fail" else "fail")
            )
            aside = "too long" if i % 11 == 0 else ""
            chosen = Selection(verdict, f"so (G{i % 2})", 0, 1.0, i % 7 == 0, match, "")
            at = mission.guidance.step if step is None else step
            made.append(Record(ticket, 1, 0, at, Answers(ticket.key, 9, (), aside), chosen))
        return replace(mission, pending=(*mission.pending, *made))


def made_up(chance: Random, **reflection: Any) -> Mission:
    """A mission of any size; a group in five comes back under the other label."""
    tickets = []
    for n in range(chance.randrange(12, 240)):
        labels: list[Verdict] = (
            ["pass", "fail"] if chance.random() < 0.2 else [chance.choice(("pass", "fail"))]
        )
        tickets += [
            Ticket("m", f"g{n}", label, (("image_1", f"a: {n % 5}; b: {n % 3}"),))
            for label in labels
        ]
    sizes = {
        "batch_size": chance.choice([1, 5, 20]),
        "evidence_tickets": chance.choice([0, 10, 40, 500]),
        "num_proposals": 4,
    }
    gate = GateConfig(
        race_size=chance.choice([8, 30]), pool_size=chance.choice([120, 1000]), race_chunk=8
    )
    config = LoopConfig(
        tickets=["x"],
        reflection=ReflectionConfig(**{**sizes, **reflection}),
        gate=gate,
        split=SplitConfig(1.0, 0.0, 0.0),
    )
    return Mission(tickets, config)


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[Edit], Gate]]:
    """What the gate is given, as it is given it."""
    heard: list[tuple[Sequence[Edit], Gate]] = []

    def decide_(edits: Sequence[Edit], gate: Gate, join: Any, left: float) -> Any:
        heard.append((edits, gate))
        return decide(edits, gate, join, left)

    monkeypatch.setattr(learning, "decide", decide_)
    return heard


def groups(tickets: Sequence[Ticket], positions: Any) -> set[str]:
    return {tickets[i].group_id for i in positions}


@pytest.mark.parametrize("seed", range(25))
def test_one_fold_teaches_and_the_others_test_whatever_the_run(
    seed: int, listening: list[Any]
) -> None:
    chance = Random(f"run {seed}")
    world = made_up(chance)
    tools = world.tools()
    tickets, config = world.tickets, world.config.reflection
    mission, cost, tokens = MissionState(NEUTRAL, left=LEFT), 0, 0
    for number in range(7):
        mission = world.rolled_out(
            mission, chance.choices(tools.splits.rollout_pool, k=chance.randrange(20))
        )
        before = mission
        mission, (bundle,) = world.answer(Reflection(tools).draw(mission))
        assert (bundle.number, bundle.name, mission.bundles) == (
            number,
            f"R{number + 1}",
            number + 1,
        )
        # What teaches is of one fold, each ticket once, as the present guidance judges it.
        fold = list(tools.pool.fold(number))
        where = [tools.splits.by_key[case.ticket.key] for case in bundle.judged]
        assert where == [i for i in fold if i in where]
        rolled_out = {i for i in fold if tickets[i].key in mission.seen}
        assert len(where) == max(len(rolled_out), min(len(fold), config.evidence_tickets))
        for case, i in zip(bundle.judged, where, strict=True):
            told = mission.seen.get(case.ticket.key)
            assert case == told or (
                told is None and case.right == (world.p_correct(mission.guidance, i) > 0.5)
            )
            assert told is not None or case.reason is None
        assert {case.ticket.key for case in bundle.judged} >= {
            key for key in mission.seen if tools.splits.by_key[key] in fold
        }
        assert len(mission.pending) == max(
            0, len(before.pending) - (0 if before.again else config.batch_size)
        )
        # What is tested shares no group with it, nor with the race.
        (reflection,) = world.answer(Reflection(tools).propose([bundle], mission.guidance))
        learnt = world.gated(mission, bundle, reflection.proposals, tools)
        edits, gate = listening[-1]
        tested = groups(tickets, (i for group in gate.groups for i in group))
        assert tested.isdisjoint(
            groups(tickets, where) | groups(tickets, fold) | groups(tickets, gate.race_on)
        )
        assert groups(tickets, gate.race_on).isdisjoint(groups(tickets, fold))
        for edit in edits:
            assert {key for each in edit.proposals for key in each.cases} <= {
                case.ticket.key for case in bundle.judged
            }
            assert set(edit.evidence) <= set(where)
        # A ticket is judged once under one guidance, and all of it is counted.
        cost, tokens = (
            cost + bundle.asked + learnt.verdicts.judged,
            tokens + bundle.tokens + learnt.verdicts.tokens,
        )
        assert cost == world.asked.total()
        assert tokens == TOKENS * cost
        present = rule_lines(mission.guidance)
        assert all(count <= 1 for (rules, _), count in world.asked.items() if rules == present)
        # What is learnt is another guidance: what is known of the old one teaches no more, and more
        # is sought at once.
        after = after_learning(mission, learnt, tools)
        assert (
            after.again
            == (learnt.decision.winner is not None)
            == (after.guidance.rules != mission.guidance.rules)
        )
        assert after.seen == ({} if after.again else mission.seen)
        assert is_due(State({"m": after}), "m", 1000, tools.config) == after.again
        if after.again:  # it may have been tried in vain before, and what that told is forgotten
            for key in [key for key in world.asked if key[0] == rule_lines(after.guidance)]:
                world.asked[key] = int(tickets[key[1]].key in after.p_correct)
            cost, tokens = world.asked.total(), TOKENS * world.asked.total()
        mission = after


def test_the_runs_of_these_tests_learn_now_and_then(listening: list[Any]) -> None:
    accepted = 0
    for seed in range(10):
        world = made_up(Random(f"run {seed}"))
        tools, mission = world.tools(), MissionState(NEUTRAL, left=LEFT)
        mission = world.rolled_out(mission, tools.splits.rollout_pool)
        for _ in range(4):
            mission, (bundle,) = world.answer(Reflection(tools).draw(mission))
            (answered,) = world.answer(Reflection(tools).propose([bundle], mission.guidance))
            mission = after_learning(
                mission, world.gated(mission, bundle, answered.proposals, tools), tools
            )
        accepted += len(mission.guidance.rules) - 1
    assert accepted >= 3


@pytest.mark.parametrize("seed", range(6))
def test_a_mission_that_was_committed_and_read_goes_on_as_it_would_have(seed: int) -> None:
    """Twice the same run; one is written and read after every step."""

    def run(committed: bool) -> list[tuple[MissionState, Bundle]]:
        chance = Random(f"commit {seed}")
        world = made_up(chance)
        tools = world.tools()
        known = {ticket.key: ticket for ticket in world.tickets}
        mission, steps = MissionState(NEUTRAL, left=LEFT), []
        for _ in range(5):
            mission = world.rolled_out(mission, chance.choices(tools.splits.rollout_pool, k=15))
            mission, (bundle,) = world.answer(Reflection(tools).draw(mission))
            (answered,) = world.answer(Reflection(tools).propose([bundle], mission.guidance))
            mission = after_learning(
                mission, world.gated(mission, bundle, answered.proposals, tools), tools
            )
            if committed:
                mission = MissionState.from_plain(
                    "m", json.loads(json.dumps(mission.to_plain())), known
                )
            steps.append((mission, bundle))
        return steps

    assert run(True) == run(False)


def records_of(world: Mission, count: int, step: int) -> MissionState:
    mission = MissionState(replace(NEUTRAL, step=4), left=LEFT)
    return world.rolled_out(mission, world.tools().splits.rollout_pool[:count], step)


@pytest.mark.parametrize("gate", ["none", "some"])
def test_records_of_an_older_guidance_do_not_teach(gate: str) -> None:
    world = made_up(Random("older"), evidence_tickets=0, batch_size=50)
    if gate == "none":
        world.config = replace(world.config, gate="none")
    tools = world.tools()
    mission, (bundle,) = world.answer(Reflection(tools).draw(records_of(world, 50, 3)))
    assert (bundle.judged, bundle.why_not, mission.seen, mission.pending) == (
        (),
        "no ticket was judged",
        {},
        (),
    )
    mission, (bundle,) = world.answer(Reflection(tools).draw(records_of(world, 50, 4)))
    assert bundle.judged
    rolled = {
        record.ticket.key: record
        for record in records_of(world, 50, 4).pending
        if not record.answers.set_aside
    }
    assert set(mission.seen) == set(rolled)
    assert all(case == case_of(rolled[case.ticket.key]) for case in bundle.judged)
    assert world.asked.total() == bundle.asked == 0


def test_of_a_ticket_that_was_rolled_out_twice_the_later_record_teaches() -> None:
    world = made_up(Random("twice"), evidence_tickets=0, batch_size=50)
    mission = records_of(world, 20, 4)
    turned = [
        replace(
            record,
            selection=replace(
                record.selection, label_match=not record.selection.label_match, low_agreement=False
            ),
        )
        for record in mission.pending
        if not record.answers.set_aside
    ]
    mission, _ = world.answer(
        Reflection(world.tools()).draw(replace(mission, pending=(*mission.pending, *turned)))
    )
    assert mission.seen == {record.ticket.key: case_of(record) for record in turned}


def test_a_mission_remembers_the_tickets_that_were_rolled_out_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learning, "REMEMBERED", 10)
    world = made_up(Random("many"), evidence_tickets=0, batch_size=1)
    tools, mission = world.tools(), MissionState(NEUTRAL)
    order = [i for i in tools.splits.rollout_pool if i % 11]  # not set aside
    for n, i in enumerate(order, 1):
        mission, _ = world.answer(Reflection(tools).draw(world.rolled_out(mission, [i])))
        assert list(mission.seen) == [world.tickets[j].key for j in order[max(0, n - 10) : n]]
    again = order[-10]  # what is rolled out anew counts as the last
    mission, _ = world.answer(Reflection(tools).draw(world.rolled_out(mission, [again])))
    mission, _ = world.answer(Reflection(tools).draw(world.rolled_out(mission, order[:1])))
    assert world.tickets[again].key in mission.seen
    assert len(mission.seen) == 10


@pytest.mark.parametrize(
    ("outcome", "is_tested", "is_barred"),
    [
        ("futile", True, True),
        ("unproven", True, True),
        ("turns no evidence", False, True),
        ("dropped", False, False),  # another race may bring other tickets
        ("unpromising", False, False),
    ],
)
def test_what_failed_is_not_tried_again_where_the_same_fold_teaches_and_is_where_another_does(
    outcome: Outcome, is_tested: bool, is_barred: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That a test failed tells of the tickets that it saw: another fold's edits are tested on some
    of them."""
    offered = []

    def fails(edits: Sequence[Edit], gate: Gate, join: Any, left: float) -> Dialogue[Decision]:
        yield from ()
        offered.append([edit.guidance.rules[1].text for edit in edits])
        test = ExactTest(0.01, 100) if is_tested else None
        return Decision(
            tuple(Trial(edit, outcome, test=test) for edit in edits if len(offered) == 1), left
        )

    monkeypatch.setattr(learning, "decide", fails)
    world = made_up(Random("barred"), batch_size=5)
    tools = world.tools()
    mission, (bundle,) = world.answer(
        Reflection(tools).draw(
            world.rolled_out(MissionState(NEUTRAL, left=LEFT), tools.splits.rollout_pool)
        )
    )
    proposals = world.answer(Reflection(tools).propose([bundle], NEUTRAL))[0].proposals
    mission = after_learning(mission, world.gated(mission, bundle, proposals, tools), tools)
    for number in range(3, 9):
        world.gated(mission, replace(bundle, number=number), proposals, tools)
    first, *later = offered
    assert first
    assert later == [
        [] if is_barred and number % TEACHING_FOLDS == 0 else first for number in range(3, 9)
    ]


def operated(*operations: Operation) -> Proposal:
    return Proposal(0, "", operations, ())


@dataclass
class Offered:
    """A gate of a user's own, which notes what it is given, and takes the last."""

    edits: list[Edit] = field(default_factory=list)

    def __call__(self, edits: Sequence[Edit], gate: Gate) -> Dialogue[Edit | None]:
        yield from ()
        self.edits += edits
        return edits[-1]


def test_a_gate_of_ones_own_decides_and_spends_nothing() -> None:
    world, offered = made_up(Random("own")), Offered()
    tools, mission = replace(world.tools(), choose=offered), MissionState(NEUTRAL, left=LEFT)
    mission, (bundle,) = world.answer(Reflection(tools).draw(mission))
    asked, key = world.asked.total(), bundle.judged[0].ticket.key
    adds = [Operation("add", None, (), f"Fail if {n}.", "", (key,)) for n in (8, 9)]
    learnt = world.gated(mission, bundle, [*map(operated, adds)], tools)
    assert [edit.guidance.rules[-1].text for edit in offered.edits] == ["Fail if 8.", "Fail if 9."]
    assert learnt.decision.winner is offered.edits[1]
    assert [tried.outcome for tried in learnt.decision.tried] == ["dropped", "accepted"]
    assert (learnt.left, world.asked.total()) == (LEFT, asked)


def test_a_gate_of_ones_own_that_returns_an_edit_of_its_own_is_told_what_it_may_return() -> None:
    def choose(edits: Sequence[Edit], gate: Gate) -> Dialogue[Edit | None]:
        yield from ()
        return replace(edits[0], times=edits[0].times + 1)

    world = made_up(Random("own"))
    tools, mission = replace(world.tools(), choose=choose), MissionState(NEUTRAL, left=LEFT)
    mission, (bundle,) = world.answer(Reflection(tools).draw(mission))
    proposals = proposing("Fail if 8.", bundle.judged[0].ticket.key)
    with pytest.raises(
        StagebError, match=r"gate\.choose returned .* one of the edits given, or None"
    ):
        world.gated(mission, bundle, proposals, tools)


@pytest.mark.parametrize("most", [2, 3])
def test_no_edit_is_tried_that_the_limits_leave_no_room_for(most: int) -> None:
    """There was room when it was proposed; an edit that was accepted since may have taken it."""
    world, offered = made_up(Random("room"), max_rules=most), Offered()
    tools = replace(world.tools(), choose=offered)
    rules = (*NEUTRAL.rules, Rule("G1", "Fail if 8."))
    mission = MissionState(replace(NEUTRAL, rules=rules, next_number=2), left=LEFT)
    mission, (bundle,) = world.answer(Reflection(tools).draw(mission))
    key = bundle.judged[0].ticket.key
    add = operated(Operation("add", None, (), "Fail if 9.", "", (key,)))
    winner = world.gated(mission, bundle, [add], tools).decision.winner
    assert bool(winner) == bool(offered.edits) == (most == 3)


@pytest.mark.parametrize("most", [1, 2])
def test_what_is_proposed_beyond_the_limits_is_refused_with_that_reason(most: int) -> None:
    world = made_up(Random("room"), max_rules=most)
    tools = world.tools()
    _, (bundle,) = world.answer(Reflection(tools).draw(MissionState(NEUTRAL, left=LEFT)))
    (lesson,) = world.answer(Reflection(tools).propose([bundle], NEUTRAL))
    assert len(lesson.proposals) == 4
    for proposal in lesson.proposals:
        assert bool(proposal.operations) == (most == 2)
        assert [each.reason for each in proposal.refusals] == [NO_ROOM] * (most == 1)


@pytest.mark.parametrize(
    ("judge", "labels", "most"),
    [
        ("model", 2, 4),
        ("both", 2, 4),
        ("model", 3, 4),  # a model reads all of it at once
        ("both", 3, 12),  # four rules each
        ("model", 16, 8),  # limits are meant for eight labels
    ],
)
def test_limits_count_what_a_model_reads_or_code_has_for_each_label(
    judge: Literal["model", "both"], labels: int, most: int
) -> None:
    """Background is no rule; where code judges, a list of words is looked up, and is none."""
    world = made_up(Random("limits"), max_rules=4, max_guidance_tokens=9999)
    config = replace(world.config, runner=RunnerConfig(judge=judge))
    tools = replace(world.tools(), config=config, count_tokens=lambda some: [9] * len(some))
    names = PASS_FAIL if labels == 2 else tuple(f"label {n}" for n in range(labels))

    def fits(*more: Rule) -> bool:
        rules = [Rule(f"G{n}", f"Fail if {n}.") for n in range(most)]
        return tools.fits(Guidance("m", 1, (*rules, *more), 99, labels=names))

    assert fits() and not fits(Rule("G90", "Fail if 90."))
    assert fits(Rule("G90", "Valves are old.", {"background": True}))
    assert fits(Rule("G90", '"leak" words: drip, leak, seep')) == (judge == "both")


def test_edits_are_joined_unless_they_name_the_same_rule_or_have_no_room_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joins = []

    def keep(edits: Sequence[Edit], gate: Gate, join: Any, left: float) -> Dialogue[Decision]:
        yield from ()
        for pair in ((0, 1), (0, 2), (2, 3)):
            joined = join(*(edits[place] for place in pair))
            joins.append(joined and [rule.text for rule in joined.guidance.rules[1:]])
        return Decision((), left)

    monkeypatch.setattr(learning, "decide", keep)
    world = made_up(Random("join"), max_rules=3)
    rules = (*NEUTRAL.rules, Rule("G1", "Fail if 6."))
    mission = MissionState(replace(NEUTRAL, rules=rules, next_number=2), left=LEFT)
    tools = world.tools()
    mission, (bundle,) = world.answer(Reflection(tools).draw(mission))
    key = bundle.judged[0].ticket.key
    operations = [
        *(Operation("update", "G1", (), f"Fail if {n}.", "", (key,)) for n in (7, 8)),
        *(Operation("add", None, (), f"Fail if {n}.", "", (key,)) for n in (9, 5)),
    ]
    world.gated(mission, bundle, [*map(operated, operations)], tools)
    assert joins == [None, ["Fail if 7.", "Fail if 9."], None]


def test_a_guidance_that_was_prepared_anew_is_a_step_further_so_it_is_judged_anew() -> None:
    tools, before = made_up(Random("anew")).tools(), replace(NEUTRAL, step=4)
    anew = replace(before, judge="model")
    mission = replace(MissionState(before, left=LEFT), judged={"val": (4, Tally())})
    result = GateResult(Decision((), 0.0, None), LEFT, prepared=anew)
    after = after_learning(mission, result, tools)
    assert (after.guidance.step, after.guidance.judge) == (5, "model")
    assert after.guidance.rules == NEUTRAL.rules


def test_what_failed_beside_a_former_guidance_is_forgotten_with_it_and_kept_without() -> None:
    world = made_up(Random("barred"), batch_size=5)
    tools = world.tools()
    mission = replace(MissionState(NEUTRAL, left=LEFT), failed=(("1234", 0),), idle_bundles=2)
    learnt = replace(
        NEUTRAL, step=1, rules=(*NEUTRAL.rules, Rule("G1", "Fail if a is b.")), next_number=2
    )
    for winner, failed, idle_bundles in (
        (None, (("1234", 0), ("5678", 1)), 3),
        (Edit((), 1, learnt), (), 0),
    ):
        result = GateResult(Decision((), 0.0, winner), LEFT, failed=(("5678", 1),))
        after = after_learning(mission, result, tools)
        assert (after.failed, after.idle_bundles) == (failed, idle_bundles)
        assert (after.guidance.step, after.changed) == (int(bool(winner)), bool(winner))


@pytest.mark.parametrize(("changed", "idle_epochs"), [(False, 3), (True, 0)])
def test_an_epoch_that_changed_something_starts_the_count_of_idle_ones_anew(
    changed: bool, idle_epochs: int
) -> None:
    """Records of the epoch teach no more in the next, and no follow-up is due."""
    world = made_up(Random("epoch"))
    mission = world.rolled_out(MissionState(NEUTRAL, left=LEFT), [0, 1, 2])
    ended = after_epoch(replace(mission, changed=changed, idle_epochs=2, again=True))
    assert ended == MissionState(NEUTRAL, left=LEFT, idle_epochs=idle_epochs)


def test_what_was_judged_for_a_bundle_is_not_asked_for_again_after_it() -> None:
    """However many tickets teach, beside those that test."""
    world = made_up(Random("known"), evidence_tickets=500)
    world.config = replace(world.config, gate=replace(world.config.gating, pool_size=3))
    tools = world.tools()
    mission, (bundle,) = world.answer(Reflection(tools).draw(MissionState(NEUTRAL, left=LEFT)))
    assert bundle.asked == len(mission.p_correct) > 2 * 3
    after = after_learning(mission, world.gated(mission, bundle, [], tools), tools)
    assert after.p_correct == mission.p_correct


def test_what_a_bundle_reads_does_not_depend_on_where_an_earlier_test_stopped() -> None:
    """One that stopped early has judged few tickets of the next fold, one that went on has judged
    most of them."""
    world = made_up(Random("stopped"), evidence_tickets=10, batch_size=1)
    tools = world.tools()
    read = []
    for judged in (tools.splits.rollout_pool[:3], tools.splits.rollout_pool):
        known = {world.tickets[i].key: world.p_correct(NEUTRAL, i) for i in judged}
        _, (bundle,) = world.answer(
            Reflection(tools).draw(MissionState(NEUTRAL, left=LEFT, p_correct=known))
        )
        read.append(bundle.judged)
    assert read[0] == read[1]
    assert len(read[0]) == 10 < len(list(tools.pool.fold(0)))


def test_a_test_spends_the_part_of_the_fold_that_taught_its_edit_and_the_guidance_tells_what_was_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def spends(edits: Sequence[Edit], gate: Gate, join: Any, left: float) -> Dialogue[Decision]:
        yield from ()
        asked.append(left)
        return Decision((), left / 2, edits[0] if len(asked) == 4 else None)

    monkeypatch.setattr(learning, "decide", spends)
    world = made_up(Random("parts"), batch_size=5)
    tools, before = world.tools(), replace(NEUTRAL, spent=Budget((0.1, 0.0, 0.0)))
    mission = MissionState(before, Budget((0.4, 0.2, 0.1)))
    for number in range(4):
        mission, (bundle,) = world.answer(
            Reflection(tools).draw(world.rolled_out(mission, tools.splits.rollout_pool[:20]))
        )
        (answered,) = world.answer(Reflection(tools).propose([bundle], mission.guidance))
        mission = after_learning(
            mission, world.gated(mission, bundle, answered.proposals, tools), tools
        )
        if number == 1:
            assert mission.left == Budget((0.2, 0.1, 0.1))
            assert mission.guidance.spent.edits == pytest.approx((0.3, 0.1, 0.0))
    assert asked == [0.4, 0.2, 0.1, 0.2]
    assert mission.left == Budget((0.1, 0.1, 0.05))
    assert len(mission.guidance.rules) == 2
    assert mission.guidance.spent.edits == pytest.approx((0.4, 0.1, 0.05))


@pytest.mark.parametrize("dear", ["pass", "fail"])
def test_what_is_looked_at_weighs_by_its_price_whether_rolled_out_or_judged(dear: Verdict) -> None:
    """The fewer of a cheap label were drawn, the more does each stand for."""
    world = made_up(Random("prices"), batch_size=9, evidence_tickets=20)
    price = PriceConfig(**{"false_alarm" if dear == "pass" else "missed_failure": 8.0})
    world.config = replace(world.config, price=price)
    tools = world.tools()
    start = world.rolled_out(MissionState(NEUTRAL, left=LEFT), tools.splits.rollout_pool[:9])
    mission, (bundle,) = world.answer(Reflection(tools).draw(start))
    keys = {case.ticket.key for case in bundle.judged}
    assert keys & {*mission.seen} and keys - {*mission.seen}
    drawn = min(tools.splits.inclusion_prob.values(), default=1.0)
    for case in bundle.judged:
        cost = price.by_label[case.ticket.label] / 8.0
        assert case.weight == pytest.approx(1.0 if case.ticket.label == dear else cost / drawn)
    assert len({case.weight for case in bundle.judged}) == 2


@pytest.mark.parametrize(("price", "times"), [(1.0, 1), (20.0, FURTHER)])
def test_where_tickets_are_drawn_by_price_further_ones_are_judged_for_each_that_is_wanted(
    price: float, times: int
) -> None:
    """A verdict costs less than the answers of a rollout."""
    world = made_up(Random("rare"), evidence_tickets=4, batch_size=1)
    rare = [
        replace(each, label="pass" if n % 25 else "fail") for n, each in enumerate(numbered(1500))
    ]
    config = replace(world.config, price=PriceConfig(missed_failure=price))
    world = replace(world, tickets=rare, config=config)
    tools = world.tools()
    assert bool(tools.splits.inclusion_prob) == (price > 1)
    _, (bundle,) = world.answer(Reflection(tools).draw(MissionState(NEUTRAL, left=LEFT)))
    assert len(bundle.judged) == bundle.asked == 4 * times


def test_where_nothing_is_counted_no_further_ticket_is_judged() -> None:
    world = made_up(Random("none"), evidence=0, evidence_tickets=500)
    _, (bundle,) = world.answer(
        Reflection(world.tools()).draw(
            world.rolled_out(MissionState(NEUTRAL), world.tools().splits.rollout_pool[:9])
        )
    )
    assert (bundle.asked, world.asked.total()) == (0, 0)


def test_without_a_gate_all_that_was_rolled_out_teaches_and_the_first_edit_is_taken() -> None:
    world = made_up(Random("no gate"), batch_size=30)
    world.config = replace(world.config, gate="none")
    tools, mission = world.tools(), MissionState(NEUTRAL)
    for _ in range(3):
        mission = world.rolled_out(mission, tools.splits.rollout_pool[:30])
        mission, (bundle,) = world.answer(Reflection(tools).draw(mission))
        assert {case.ticket.key for case in bundle.judged} == set(mission.seen)
        assert len(bundle.judged) > len(list(tools.pool.fold(0))) / TEACHING_FOLDS
        (answered,) = world.answer(Reflection(tools).propose([bundle], mission.guidance))
        learnt = world.gated(mission, bundle, answered.proposals, tools)
        assert learnt.decision.winner
        assert learnt.decision.winner.proposals[0] == answered.proposals[0]
        assert learnt.verdicts.judged == bundle.asked == world.asked.total() == 0
        mission = after_learning(mission, learnt, tools)
    assert len(mission.guidance.rules) == 4


# reflection.scope: round


def whole(world: Mission, **reflection: Any) -> Mission:
    """The same mission, which reflects on whole rounds."""
    config = replace(world.config.reflection, scope="round", **reflection)
    return replace(world, config=replace(world.config, reflection=config))


def accepting(text: str) -> Any:
    """A gate that accepts an edit of this text, whoever proposes it."""

    def decide_(edits: Sequence[Edit], gate: Gate, join: Any, left: float) -> Dialogue[Decision]:
        yield from ()
        return Decision(
            (), left, next((edit for edit in edits if edit.guidance.rules[-1].text == text), None)
        )

    return decide_


def proposing(text: str, case: str) -> list[Proposal]:
    operation = Operation("add", None, (), text, "", (case,))
    return [Proposal(0, "", (operation,), ())]


@pytest.mark.parametrize("seed", range(12))
def test_of_a_round_every_fold_has_a_bundle_and_each_is_tested_on_the_others(
    seed: int, listening: list[Any]
) -> None:
    chance = Random(f"whole {seed}")
    world = whole(made_up(chance))
    tools = world.tools()
    mission, cost, tokens = MissionState(NEUTRAL, left=LEFT), 0, 0
    for turn in range(4):
        mission = world.rolled_out(
            mission, chance.choices(tools.splits.rollout_pool, k=chance.randrange(1, 60))
        )
        rolled = [record.ticket.key for record in mission.pending if not record.answers.set_aside]
        assert is_due(State({"m": mission}), "m", 1, tools.config)
        mission, bundles = world.answer(Reflection(tools).draw(mission))
        assert [bundle.number for bundle in bundles] == [
            TEACHING_FOLDS * turn + fold for fold in range(TEACHING_FOLDS)
        ]
        assert mission.bundles == TEACHING_FOLDS * (turn + 1)
        assert mission.pending == ()
        assert set(rolled) <= set(mission.seen)
        for fold, bundle in enumerate(bundles):
            there = list(tools.pool.fold(fold))
            where = [tools.splits.by_key[case.ticket.key] for case in bundle.judged]
            assert where == [i for i in there if i in where]
            assert {i for i in there if world.tickets[i].key in mission.seen} <= set(where)
            assert len(where) >= min(len(there), world.config.reflection.evidence_tickets)
        assert [bundle.asked for bundle in bundles[1:]] == [0, 0]  # all is told by the first
        snapshot = mission.guidance
        reflections = world.answer(Reflection(tools).propose(bundles, snapshot))
        # What is sampled together is what would be sampled alone.
        assert reflections == [
            world.answer(Reflection(tools).propose([bundle], snapshot))[0] for bundle in bundles
        ]
        cost, tokens = cost + bundles[0].asked, tokens + bundles[0].tokens
        accepted = 0
        for bundle, reflection in zip(bundles, reflections, strict=True):
            proposals = rebase(reflection.proposals, snapshot, mission.guidance)
            learnt = world.gated(mission, bundle, proposals, tools)
            edits, gate = listening[-1]
            assert groups(world.tickets, (i for group in gate.groups for i in group)).isdisjoint(
                groups(world.tickets, tools.pool.fold(bundle.number))
            )
            # of what was accepted by then
            assert all(edit.guidance.step == mission.guidance.step + 1 for edit in edits)
            mission = after_learning(mission, learnt, tools)
            cost, tokens = cost + learnt.verdicts.judged, tokens + learnt.verdicts.tokens
            accepted += learnt.decision.winner is not None
            # one that taught something is not forgotten over the next
            assert mission.again == bool(accepted)
        assert mission.guidance.step == NEUTRAL.step + len(mission.guidance.rules) - 1
        assert (cost, tokens) == (world.asked.total(), TOKENS * cost)
        assert set(rolled) <= set(mission.seen)


def test_what_an_edit_cannot_touch_stays_and_the_rest_is_judged_anew_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "Fail if a is 1."
    monkeypatch.setattr(learning, "decide", accepting(text))
    monkeypatch.setattr(
        Mission, "p_correct", lambda self, guidance, i: float(len(guidance.rules) % 2 == i % 2)
    )
    world = whole(made_up(Random("touched")), evidence_tickets=0, batch_size=1)
    tools = world.tools()
    mission = world.rolled_out(MissionState(NEUTRAL, left=LEFT), tools.splits.rollout_pool)
    mission, bundles = world.answer(Reflection(tools).draw(mission))
    before, asked = dict(mission.seen), world.asked.total()
    known = {ticket.key: ticket for ticket in world.tickets}
    learnt = world.gated(
        mission, bundles[0], proposing(text, bundles[0].judged[0].ticket.key), tools
    )
    mission = after_learning(mission, learnt, tools)
    after, new = world.answer(Reflection(tools).draw(mission))

    def holds(ticket: Ticket) -> bool:
        return "a: 1;" in ticket.per_image[0][1]

    judged = {case.ticket.key: case for bundle in new for case in bundle.judged}
    assert judged.keys() == after.seen.keys() == before.keys()
    assert 0 < sum(holds(case.ticket) for case in judged.values()) < len(judged)
    for key, case in judged.items():
        if holds(case.ticket):
            right = world.p_correct(mission.guidance, tools.splits.by_key[key]) > 0.5
            assert (case.right, case.reason) == (right, None)
        else:
            assert case == before[key]
    touched = {
        (rule_lines(mission.guidance), tools.splits.by_key[key])
        for key, case in judged.items()
        if holds(case.ticket)
    }
    assert world.asked.total() == asked + len(touched) == asked + new[0].asked
    assert all(world.asked[each] == 1 for each in touched)
    # So it is where another bundle of the same round has an edit accepted before anyone asks.
    other = "Fail if a is 2."
    monkeypatch.setattr(learning, "decide", accepting(other))
    also = world.gated(
        mission, bundles[1], proposing(other, bundles[1].judged[0].ticket.key), tools
    )
    twice = after_learning(mission, also, tools)
    assert {key for key, case in twice.seen.items() if case is None} == {
        key for key in before if any(f"a: {n};" in known[key].per_image[0][1] for n in (1, 2))
    }
    # What was judged anew stays too, as long as no edit touches it.
    text = "Fail if b is 1."
    monkeypatch.setattr(learning, "decide", accepting(text))
    learnt = world.gated(after, new[1], proposing(text, new[1].judged[0].ticket.key), tools)
    later, last = world.answer(Reflection(tools).draw(after_learning(after, learnt, tools)))
    assert last[0].asked == sum("b: 1" in case.ticket.per_image[0][1] for case in judged.values())
    assert all(
        later.seen[key] == case
        for key, case in judged.items()
        if "b: 1" not in case.ticket.per_image[0][1]
    )


def test_after_an_edit_that_code_cannot_read_all_of_a_round_is_judged_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learning, "decide", accepting("Fail if 5."))
    world = whole(made_up(Random("unreadable")), evidence_tickets=0, batch_size=1)
    tools = world.tools()
    mission = world.rolled_out(MissionState(NEUTRAL, left=LEFT), tools.splits.rollout_pool)
    mission, bundles = world.answer(Reflection(tools).draw(mission))
    proposals = proposing("Fail if 5.", bundles[0].judged[0].ticket.key)
    learnt = world.gated(mission, bundles[0], proposals, tools)
    mission = after_learning(mission, learnt, tools)
    assert set(mission.seen.values()) == {None}
    known = {ticket.key: ticket for ticket in world.tickets}
    assert (
        MissionState.from_plain("m", json.loads(json.dumps(mission.to_plain())), known) == mission
    )
    _, new = world.answer(Reflection(tools).draw(mission))
    assert new[0].asked == len(mission.seen) == sum(len(bundle.judged) for bundle in new)


def test_of_a_round_a_verdict_settles_what_answers_leave_open() -> None:
    world = whole(made_up(Random("open")), evidence_tickets=0, batch_size=1)
    tools = world.tools()
    mission = world.rolled_out(MissionState(NEUTRAL), tools.splits.rollout_pool)
    records = {
        record.ticket.key: record for record in mission.pending if not record.answers.set_aside
    }
    _, bundles = world.answer(Reflection(tools).draw(mission))
    for case in (case for bundle in bundles for case in bundle.judged):
        record = records[case.ticket.key]
        if record.selection.low_agreement:
            assert (case.right, case.reason) == (
                world.p_correct(NEUTRAL, tools.splits.by_key[case.ticket.key]) > 0.5,
                None,
            )
        else:
            assert case == case_of(record)
    assert (
        bundles[0].asked == sum(record.selection.low_agreement for record in records.values()) > 0
    )


def test_without_a_gate_a_round_is_one_bundle_and_what_the_edit_may_touch_teaches_no_more() -> None:
    world = whole(made_up(Random("no gate, whole")), batch_size=1)
    world.config = replace(world.config, gate="none")
    tools = world.tools()
    mission = world.rolled_out(MissionState(NEUTRAL), tools.splits.rollout_pool)
    mission, (bundle,) = world.answer(Reflection(tools).draw(mission))
    assert {case.ticket.key for case in bundle.judged} == set(mission.seen)
    learnt = world.gated(
        mission, bundle, proposing("Fail if a is 1.", bundle.judged[0].ticket.key), tools
    )
    mission = after_learning(mission, learnt, tools)
    assert not mission.again
    _, (following,) = world.answer(Reflection(tools).draw(mission))
    assert following.judged == tuple(
        case for case in bundle.judged if "a: 1;" not in case.ticket.per_image[0][1]
    )
    assert world.asked.total() == following.asked == 0


def test_of_a_large_round_nothing_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "REMEMBERED", 10)
    world = whole(made_up(Random("large")), evidence_tickets=0, batch_size=1)
    tools = world.tools()
    mission, _ = world.answer(
        Reflection(tools).draw(world.rolled_out(MissionState(NEUTRAL), tools.splits.rollout_pool))
    )
    assert len(mission.seen) == sum(i % 11 > 0 for i in tools.splits.rollout_pool) > 10
