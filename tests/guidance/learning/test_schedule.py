import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from guidance.made import tickets
from guidance.trials import World, numbered
from hypothesis import given
from hypothesis import strategies as st

from stageb.engines.config import ModelConfig
from stageb.guidance.config import (
    DecodeConfig,
    DistillConfig,
    EarlyStopConfig,
    GateConfig,
    LoopConfig,
    ReflectionConfig,
    RunnerConfig,
    SamplerConfig,
    SplitConfig,
)
from stageb.guidance.judging.questions import Dialogue, answer_all
from stageb.guidance.learning.gate.decide import decide
from stageb.guidance.learning.schedule import (
    JUDGED,
    LEARNT,
    Forecast,
    GuidanceSchedule,
    describe_learning,
)
from stageb.guidance.learning.state import MissionState, State, Tally
from stageb.guidance.learning.transitions import (
    UNCHANGED,
    has_learning_left,
    limit_passed,
    why_skip,
)
from stageb.guidance.loop import epochs, guidance_for
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.tickets.splits import SPLITS, list_missions, split_tickets
from stageb.guidance.words.calibration import CALIBRATED_ON
from stageb.guidance.words.costs import PriceConfig
from stageb.guidance.words.types import NOWHERE, Place, Round, Split, Ticket

CONFIG = LoopConfig(tickets=["t.jsonl"], runner=RunnerConfig(epochs=2))
WORLDS = st.builds(lambda one, other: [*one, *other], tickets("m"), tickets("n"))
SIZES = st.integers(1, 12)
CONFIGS = st.builds(
    lambda epochs, drawn, distill: replace(
        CONFIG,
        runner=RunnerConfig(epochs=epochs, tickets_per_epoch=drawn),
        distill=DistillConfig(size=distill),
    ),
    st.integers(0, 3),
    st.none() | st.integers(1, 9),
    st.integers(0, 1),
)


@dataclass
class Walk:
    """In a run's place in the loop: notes what the loop comes to, and rolls nothing out."""

    schedule: GuidanceSchedule
    config: LoopConfig
    places: list[Place] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    # by mission, a letter for each thing done
    written: dict[str, str] = field(default_factory=dict)
    # to be rolled out, were it no walk
    due: list[Round] = field(default_factory=list)
    states: list[State] = field(default_factory=list)  # after each of the places

    def skip(self, state: State, batch: Round, why: str) -> State:
        self.rounds.append(batch)
        letters = {"train": "r", "val": "v", "test": "t"}
        return self._note(
            state,
            batch.place,
            batch.mission,
            "d" if batch.kind == "distill" else letters[batch.split],
        )

    def record_epoch(self, state: State, epoch: int, mission: MissionState) -> State:
        return self._note(
            state.with_mission(mission),
            self.schedule.close(epoch, mission.guidance.mission),
            mission.guidance.mission,
            "c",
        )

    def record_choice(self, state: State, mission: MissionState) -> State:
        return self._note(
            state.with_mission(mission),
            self.schedule.choice(mission.guidance.mission),
            mission.guidance.mission,
            "o",
        )

    def _note(self, state: State, place: Place, mission: str, letter: str) -> State:
        self.places.append(place)
        self.written[mission] = self.written.get(mission, "") + letter
        self.states.append(replace(state, done=place))
        return self.states[-1]


def walked(
    world: Sequence[Ticket], size: int, config: LoopConfig = CONFIG, start: State | None = None
) -> Walk:
    """The loop itself, walked from its beginning, or from ``start``, to its end."""

    def lead(act: Callable[..., Any], state: State, batch: Round, config: LoopConfig) -> None:
        assert act is guidance_for  # and no round is rolled out
        if act(state, batch, config) is not None:
            walk.due.append(batch)

    def alone(act: Callable[..., State], *args: Any) -> State:
        return act(*args)

    def consult(answer: object, act: Callable[..., Dialogue[State]], *args: Any) -> State:
        return answer_all(
            act(*args), lambda question: pytest.fail("nothing is due, so nothing is asked")
        )

    splits = split_tickets(world, config)
    state = start or State(
        {name: MissionState(make_neutral(name, words_of(config.prompt))) for name in splits}
    )
    walk = Walk(GuidanceSchedule(splits, config, size), config)
    stand_in = SimpleNamespace(lead=lead, alone=alone, consult=consult)
    epochs(stand_in, walk, SimpleNamespace(answer=None), state)  # type: ignore[arg-type]
    return walk


# The order


@given(WORLDS, SIZES, CONFIGS)
def test_places_increase_along_the_loops_own_way(
    world: list[Ticket], size: int, config: LoopConfig
) -> None:
    """So a run goes on from a commit by passing over what is at or before its place."""
    places = [NOWHERE, *walked(world, size, config).places]
    assert all(before < after for before, after in itertools.pairwise(places))


@given(
    st.builds(lambda one, other: [*one, *other], tickets("m", 3, 6), tickets("n", 0, 3)),
    SIZES,
    CONFIGS,
    st.integers(1, 3),
)
def test_a_run_goes_on_from_wherever_it_was_interrupted_as_if_it_had_not_been(
    world: list[Ticket], size: int, config: LoopConfig, patience: int
) -> None:
    """Nothing is done twice: an epoch without an accepted edit counts once for
    ``early_stop.patience``, after which no train ticket is rolled out."""
    config = replace(config, early_stop=EarlyStopConfig(patience=patience))
    whole = walked(world, size, config)
    for done, state in enumerate(whole.states, 1):
        rest = walked(world, size, config, state)
        assert rest.places == whole.places[done:]
        assert rest.due == [batch for batch in whole.due if batch.place > state.done]
        assert [state, *rest.states][-1] == whole.states[-1]
    assert {batch.epoch for batch in whole.due if batch.learns} <= {*range(1, patience + 1)}
    for mission in whole.states[-1].missions.values():
        assert mission.idle_epochs == config.runner.epochs


@given(WORLDS, SIZES, CONFIGS)
def test_the_count_is_that_of_the_rounds_that_the_loop_comes_to(
    world: list[Ticket], size: int, config: LoopConfig
) -> None:
    walk = walked(world, size, config)
    assert walk.schedule.count() == len(walk.rounds)
    for place in [NOWHERE, *walk.places]:
        later = [batch for batch in walk.rounds if batch.place > place]
        assert walk.schedule.count(place) == len(walk.rounds) - len(later)
        learnt = sum(len(batch.tickets) for batch in later if batch.learns)
        judged = sum(len(batch.tickets) for batch in later) - learnt
        assert walk.schedule.to_come(place) == {LEARNT: learnt, JUDGED: judged}


@given(WORLDS, SIZES)
def test_every_epoch_learns_closes_and_judges_and_the_final_guidance_is_chosen_before_test(
    world: list[Ticket], size: int
) -> None:
    config = replace(CONFIG, distill=DistillConfig(size=1))
    walk = walked(world, size, config)
    for mission in list_missions(world):
        assert re.fullmatch("v*t*(r*cv*){2}ot*d*", walk.written[mission])
    for batch in walk.rounds:
        assert batch.learns == (
            batch.epoch > 0 and batch.split == "train" and batch.kind != "distill"
        )
    for mission, splits in split_tickets(world, config).items():
        drawn = [
            i
            for batch in walk.rounds
            if (batch.mission, batch.kind) == (mission, "distill")
            for i in batch.tickets
        ]
        assert sorted(drawn) == sorted(splits.train)


@given(WORLDS, SIZES)
def test_missions_learn_in_turn(world: list[Ticket], size: int) -> None:
    rounds = [batch for batch in walked(world, size).rounds if batch.learns]
    for epoch, some in itertools.groupby(rounds, key=lambda batch: batch.epoch):
        found = [(batch.number, batch.mission) for batch in some]
        missions = list_missions(world)
        assert found == sorted(found, key=lambda each: (each[0], missions.index(each[1]))), epoch


# The rounds


def rounds_of(rounds: Sequence[Round], epoch: int, mission: str, split: Split) -> list[Round]:
    wanted = (epoch, mission, split)
    return [
        batch
        for batch in rounds
        if batch.kind == "round" and (batch.epoch, batch.mission, batch.split) == wanted
    ]


@given(WORLDS, SIZES, st.integers(0, 3))
def test_rounds_partition_what_each_epoch_judges(
    world: list[Ticket], size: int, epochs: int
) -> None:
    """Val and test before learning; train, without what edits are raced on, and val in each epoch;
    test once more at the end."""
    every = walked(world, size, replace(CONFIG, runner=RunnerConfig(epochs=epochs))).rounds
    held_out = {(0, "val"), (0, "test"), (epochs, "test")} | {
        (epoch, "val") for epoch in range(epochs + 1)
    }
    for epoch in range(epochs + 1):
        for mission, splits in split_tickets(world, CONFIG).items():
            for split in SPLITS:
                rounds = rounds_of(every, epoch, mission, split)
                judged = epoch > 0 if split == "train" else (epoch, split) in held_out
                times = 2 if (epoch, split) == (0, "test") and epochs == 0 else 1
                wanted = splits.rollout_pool if split == "train" else splits.of(split)
                assert sorted(i for batch in rounds for i in batch.tickets) == sorted(
                    [*wanted] * times * judged
                )
                assert all(0 < len(batch.tickets) <= size for batch in rounds)
                if times == 1:
                    assert [batch.number for batch in rounds] == list(range(len(rounds)))
                    assert [batch.last for batch in rounds] == [False] * (len(rounds) - 1) + [
                        True
                    ] * bool(rounds)
                    assert all(len(batch.tickets) == size for batch in rounds[:-1])


@given(tickets(min_size=1), SIZES, st.integers(1, 9))
def test_a_draw_of_train_tickets_leaves_val_and_test_whole(
    world: list[Ticket], size: int, drawn: int
) -> None:
    config = replace(CONFIG, runner=RunnerConfig(epochs=2, tickets_per_epoch=drawn))
    whole, some = (Counter[tuple[int, str]](), Counter[tuple[int, str]]())
    for counter, rounds in (
        (whole, walked(world, size).rounds),
        (some, walked(world, size, config).rounds),
    ):
        for batch in rounds:
            counter[batch.epoch, batch.split] += len(batch.tickets)
            assert len(set(batch.tickets)) == len(batch.tickets)
    for (epoch, split), count in whole.items():
        assert some[epoch, split] == (min(count, drawn) if split == "train" else count)


# The forecast


def forecast(world: Sequence[Ticket], config: LoopConfig) -> Forecast:
    return GuidanceSchedule(split_tickets(world, config), config, 12).forecast()


def test_a_mission_that_learns_no_more_waits_for_this_epochs_judgements_and_the_end_alone() -> None:
    tickets = [
        Ticket("m", f"g{n}", "pass" if n % 2 else "fail", (("image_1", f"seen {n}"),))
        for n in range(40)
    ]
    splits = split_tickets(tickets, CONFIG)
    schedule = GuidanceSchedule(splits, replace(CONFIG, runner=RunnerConfig(epochs=4)), 4)
    first = next(schedule.train(2))
    judged = [*schedule.val(2), *schedule.after()]
    on, over = schedule.to_come(first.place), schedule.to_come(first.place, {"m"})
    assert sum(over.values()) == sum(len(r.tickets) for r in judged) < sum(on.values())
    assert schedule.to_come(first.place, {"other"}) == on


def test_a_budget_that_ends_learning_leaves_room_for_every_val_and_test() -> None:
    world = [*numbered(100), *(replace(ticket, mission="n") for ticket in numbered(30))]
    one, other = (splits := split_tickets(world, CONFIG)).values()
    samples = CONFIG.sampler.samples_per_decode * len(CONFIG.sampler.grid)
    wanted = samples * sum(len(each) for of in (one, other) for each in (of.val, of.test))
    assert one.val and other.val
    assert GuidanceSchedule(splits, CONFIG, 12).forecast_rest() == wanted


def test_a_forecast_counts_the_rounds() -> None:
    config = replace(
        CONFIG,
        sampler=SamplerConfig(samples_per_decode=3),
        distill=DistillConfig(size=1),
        gate="none",
    )
    config = replace(config, reflection=ReflectionConfig(batch_size=20, num_proposals=5))
    splits = split_tickets(numbered(100), config)["m"]
    train, val, test = map(len, (splits.train, splits.val, splits.test))
    bundles = 2 * -(-train // 20)
    wanted = Forecast(3 * (2 * train + 3 * val + 2 * test) + train, bundles, 5 * bundles, 0)
    assert forecast(numbered(100), config) == wanted


@pytest.mark.parametrize(("batch_size", "rounds"), [(1, 1), (12, 1), (13, 2), (24, 2), (25, 3)])
def test_a_forecast_of_whole_rounds_counts_a_bundle_for_each_third_of_train(
    batch_size: int, rounds: int
) -> None:
    reflection = ReflectionConfig(scope="round", batch_size=batch_size, num_proposals=5)
    config = replace(CONFIG, reflection=reflection, runner=RunnerConfig(epochs=1))
    together = -(-len(split_tickets(numbered(200), config)["m"].rollout_pool) // (12 * rounds))
    found = forecast(numbered(200), config)
    assert (found.bundles, found.reflections) == (3 * together, 15 * together)
    found = forecast(numbered(200), replace(config, gate="none"))
    assert found.bundles == -(
        -len(split_tickets(numbered(200), replace(config, gate="none"))["m"].rollout_pool)
        // (12 * rounds)
    )


@given(st.data(), st.integers(1, 13), st.integers(1, 30), st.integers(1, 90), st.integers(1, 120))
def test_no_bundle_costs_the_gate_more_than_was_forecast(
    data: st.DataObject, proposals: int, batch_size: int, race_size: int, pool_size: int
) -> None:
    """Each edit mends tickets of its own, so that all look good and join."""
    train = data.draw(st.integers(batch_size, 160))
    gate = GateConfig(
        race_size=race_size, race_chunk=data.draw(st.integers(1, 24)), pool_size=pool_size
    )
    reflection = ReflectionConfig(batch_size=batch_size, num_proposals=proposals, max_cases=6)
    one_bundle = RunnerConfig(epochs=1, tickets_per_epoch=batch_size)
    config = replace(
        CONFIG,
        gate=gate,
        reflection=reflection,
        runner=one_bundle,
        split=SplitConfig(1.0, 0.0, 0.0),
    )
    world = World(numbered(train), [0.0] * train)
    splits = split_tickets(world.tickets, config)["m"]
    pool = splits.test_order[:pool_size]
    better = [[float(i % proposals == n) for i in range(train)] for n in range(proposals)]
    edits = [
        world.edit(f"{n}", p_correct, range(min(6, batch_size))[n % 2 :])
        for n, p_correct in enumerate(better)
    ]
    tried_with = world.gate(
        splits.race_set, pool, gate, data.draw(st.sampled_from([1, 32, 999])), gate.race_chunk
    )
    world.answer(decide(edits, tried_with, world.join, 0.5))
    expected = forecast(world.tickets, config)
    assert expected.bundles == 1
    assert world.verdicts.judged <= expected.judged


def test_a_forecast_counts_each_verdict_that_the_gate_may_ask_for() -> None:
    reflection = ReflectionConfig(batch_size=20, num_proposals=9, max_cases=6)
    gate = GateConfig(race_size=50, race_chunk=8, pool_size=30)
    config = replace(CONFIG, reflection=reflection, gate=gate, runner=RunnerConfig(epochs=1))
    train = len(split_tickets(numbered(200), config)["m"].train)
    raced = 8 * (9 + 5 + 4 + 4 + 4 + 4)  # the better half goes on, but four at least
    joined = 3 * 6 * 8  # each of three joins sees the whole race
    one_bundle = 9 * 6 + raced + joined + 2 * 30 + train
    found = forecast(numbered(200), config)
    assert found.judged == found.bundles * one_bundle > 0


def test_a_forecast_counts_the_answers_of_every_entry_of_the_grid() -> None:
    grid = [DecodeConfig(), DecodeConfig(temperature=0.0)]
    sampler = SamplerConfig(samples_per_decode=3, grid=grid)
    config = replace(CONFIG, sampler=sampler, distill=DistillConfig(size=1))
    splits = split_tickets(numbered(100), config)
    train, val, test = (
        len(of) for of in (splits["m"].rollout_pool, splits["m"].val, splits["m"].test)
    )
    distilled = len(splits["m"].train)  # with one answer each
    schedule = GuidanceSchedule(splits, config, 12)
    assert schedule.forecast().rollouts == 6 * (2 * train + 3 * val + 2 * test) + distilled
    assert schedule.forecast_rest() == 6 * (val + test) + distilled


BY_CODE = replace(
    CONFIG,
    model=ModelConfig(model_name_or_path="some/model"),
    reflection=ReflectionConfig(scope="all"),
)


@pytest.mark.parametrize("tickets_per_epoch", [None, 9])
def test_where_code_learns_from_all_train_tickets_none_is_rolled_out_to_learn_from(
    tickets_per_epoch: int | None,
) -> None:
    runner = RunnerConfig(epochs=2, tickets_per_epoch=tickets_per_epoch)
    config = replace(BY_CODE, runner=runner)
    schedule = GuidanceSchedule(split_tickets(numbered(60), config), config, 8)
    assert not [batch for epoch in schedule.epochs for batch in schedule.train(epoch)]
    found = schedule.forecast()
    assert (found.bundles, found.reflections) == (0, 0) and found.judged > 0


def test_what_is_learnt_at_once_may_have_a_model_judge_each_further_train_ticket_twice() -> None:
    """Under the present guidance, and under what is learnt; a further block or two are calibrated
    on tickets of their own."""
    config = replace(BY_CODE, split=SplitConfig(1.0, 0.0, 0.0))
    few, many = (forecast(numbered(count), config).judged for count in (1000, 1900))
    assert 2 * 900 <= many - few <= 2 * 900 + 2 * CALIBRATED_ON


@pytest.mark.parametrize(
    "config",
    [
        replace(BY_CODE, runner=RunnerConfig(epochs=0)),
        replace(BY_CODE, reflection=ReflectionConfig(scope="bundle"), gate="none"),
        replace(BY_CODE, runner=RunnerConfig(judge="both")),
    ],
)
def test_what_is_not_learnt_or_not_tested_or_judged_by_code_asks_for_no_verdict(
    config: LoopConfig,
) -> None:
    assert forecast(numbered(60), config).judged == 0


def test_tickets_to_distil_are_drawn_in_an_order_of_their_own() -> None:
    config = replace(CONFIG, distill=DistillConfig(size=1))
    splits = split_tickets(numbered(60), config)
    (drawn,) = (
        batch.tickets
        for batch in GuidanceSchedule(splits, config, 60).after()
        if batch.kind == "distill"
    )
    assert [*drawn] != [*splits["m"].train] and sorted(drawn) == sorted(splits["m"].train)


@pytest.mark.parametrize("epochs", [0, 2])
def test_a_split_is_judged_once_under_one_guidance(epochs: int) -> None:
    """Without an epoch, test is not judged twice either: the same answers would come again."""
    config = replace(CONFIG, runner=RunnerConfig(epochs=epochs))
    schedule = GuidanceSchedule(split_tickets(numbered(60), config), config, 8)
    start = MissionState(make_neutral("m", words_of(config.prompt)))
    judged = replace(start, judged=dict.fromkeys(("val", "test"), (0, Tally())))
    learnt = replace(judged, guidance=replace(start.guidance, step=1))

    def skipped(mission: MissionState, rounds: Iterable[Round]) -> set[str]:
        return {why_skip(batch, State({"m": mission}), config) for batch in rounds}

    later = [*(batch for epoch in schedule.epochs for batch in schedule.val(epoch))]
    later += schedule.after()
    assert skipped(start, [*schedule.before(), *later]) == {""}
    assert skipped(judged, later) == {UNCHANGED}
    assert skipped(learnt, later) == {""}


def test_tickets_are_distilled_until_enough_answers_are_right() -> None:
    config = replace(CONFIG, distill=DistillConfig(size=5))
    schedule = GuidanceSchedule(split_tickets(numbered(60), config), config, 8)
    mission = MissionState(make_neutral("m", words_of(config.prompt)))
    for distilled, why in ((4, ""), (5, "enough")):
        state = State({"m": replace(mission, distilled=distilled)})
        rounds = [batch for batch in schedule.after() if batch.kind == "distill"]
        assert {why_skip(batch, state, config) for batch in rounds} == {why}


def test_no_learning_is_ahead_once_the_last_mission_has_closed_the_last_epoch() -> None:
    """Before, a budget may end it; and without more epochs, none may follow."""
    splits = dict.fromkeys(("m", "n"), split_tickets(numbered(20), CONFIG)["m"])
    schedule = GuidanceSchedule(splits, CONFIG, 4)
    ends = [schedule.close(1, "n"), schedule.close(2, "m"), schedule.close(2, "n")]
    assert [has_learning_left(State({}, end), schedule) for end in ends] == [True, True, False]
    none = GuidanceSchedule(splits, replace(CONFIG, runner=RunnerConfig(epochs=0)), 4)
    assert not has_learning_left(State({}), none)
    chosen = schedule.choice("m")
    for begin, end, limit in (
        (ends[0], ends[1], "budget.tokens"),
        (ends[-1], chosen, "runner.epochs"),
        (ends[0], schedule.choice("n"), "runner.epochs"),
        (chosen, schedule.choice("n"), "budget.tokens"),
    ):
        before = State({}, begin, "budget.tokens")
        assert limit_passed(before, State({}, end), schedule) == limit


@pytest.mark.parametrize(
    ("scope", "judge", "said"),
    [
        ("all", "model", "Code learns rules .* the model judges tickets by them"),
        ("all", "both", "Code judges by rules that it learns .* the model judges what code cannot"),
        ("bundle", "model", "The model judges tickets, proposes rules"),
        ("bundle", "both", "The model judges tickets, proposes rules"),
    ],
)
def test_a_run_is_described_by_who_learns_and_who_judges(
    scope: Literal["bundle", "all"], judge: Literal["model", "both"], said: str
) -> None:
    reflection, runner = ReflectionConfig(scope=scope), RunnerConfig(judge=judge)
    config = replace(CONFIG, reflection=reflection, runner=runner)
    assert re.match(said, describe_learning(config))


def test_a_run_by_the_small_model_that_ships_says_so_and_what_to_do() -> None:
    small = "It is the small one that ships in the package"
    shipped = replace(CONFIG, model=replace(CONFIG.model, model_name_or_path="stageb-tiny"))
    assert small in describe_learning(shipped)
    assert "--config frugal" in describe_learning(shipped)
    for other in (
        replace(shipped.model, model_name_or_path="mine"),
        replace(shipped.model, engine="scripted"),
    ):
        assert small not in describe_learning(replace(shipped, model=other))


def test_epochs_draw_orders_of_their_own() -> None:
    first, second = (
        batch.tickets for batch in walked(numbered(60), 60).rounds if batch.split == "train"
    )
    assert first != second
    assert sorted(first) == sorted(second)


def test_of_what_is_drawn_by_price_rounds_roll_out_no_other_ticket_and_count_no_other() -> None:
    """Before learning and in every epoch, val as train; test is whole. The forecast, the rest of it
    and the time left go by the same."""
    config = replace(
        CONFIG, price=PriceConfig(missed_failure=20.0), split=SplitConfig(0.6, 0.3, 0.1)
    )
    given = [
        replace(ticket, label="pass" if n % 25 else "fail")
        for n, ticket in enumerate(numbered(1500))
    ]
    splits = split_tickets(given, config)["m"]
    schedule = GuidanceSchedule({"m": splits}, config, 32)
    rounds = [
        *schedule.before(),
        *(
            each
            for epoch in schedule.epochs
            for each in (*schedule.train(epoch), *schedule.val(epoch))
        ),
    ]
    rounds += schedule.after()
    assert set(splits.val_sample) < set(splits.val) and set(splits.rollout_pool) < set(splits.train)
    for epoch in (0, *schedule.epochs):
        of = {
            split: [
                i
                for each in rounds
                if (each.epoch, each.split) == (epoch, split)
                for i in each.tickets
            ]
            for split in SPLITS
        }
        assert sorted(of["val"]) == sorted(splits.val_sample)
        assert sorted(of["train"]) == (sorted(splits.rollout_pool) if epoch else [])
        assert sorted(of["test"]) == (
            sorted(splits.test) if epoch in (0, config.runner.epochs) else []
        )
    samples = config.sampler.samples_per_decode * len(config.sampler.grid)
    assert schedule.forecast().rollouts == samples * sum(len(each.tickets) for each in rounds)
    assert schedule.forecast_rest() == samples * (len(splits.val_sample) + len(splits.test))
    assert sum(schedule.to_come(NOWHERE).values()) == sum(len(each.tickets) for each in rounds)
    assert len(rounds) == schedule.count()
