import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from guidance.made import tickets
from guidance.trials import PRESENT, TOKENS, World, numbered, rules
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.config import GateConfig
from stageb.guidance.gate.betting import spend
from stageb.guidance.gate.decide import Contender, Decision, decide, prune, unseen
from stageb.guidance.types import Guidance, Ticket, Verdict

MERIT = st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0])
ALPHA = 0.05


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, list[Contender], list[int], list[int]]:
    """A world, edits of all kinds, and the tickets to race and to test on."""
    count = draw(st.integers(2, 60))
    merits = st.lists(MERIT, min_size=count, max_size=count)
    world = World(numbered(count), draw(merits))
    cut = draw(st.integers(1, count))
    edits = []
    for name in range(draw(st.integers(0, 6))):
        better, worse = draw(st.sets(st.integers(0, count - 1))), draw(st.sets(st.integers(0, count - 1), max_size=4))
        reached = draw(st.sampled_from([0.4, 0.9, 1.0, 1.0]))
        after = [
            max(merit, reached) if i in better else 0.0 if i in worse else merit for i, merit in enumerate(world.present)
        ]
        evidence = draw(st.lists(st.integers(0, cut - 1), max_size=4, unique=True))
        edits.append(world.edit(f"edit {name}", after, evidence))
    return world, edits, list(range(cut)), list(range(cut, count))


def decided(
    world: World,
    edits: Sequence[Contender],
    race_on: Sequence[int],
    pool: Sequence[int],
    config: GateConfig | None = None,
    left: float = ALPHA,
    chunk: int = 16,
) -> Decision:
    return decide(edits, world.jury(config), world.join, race_on, world.pool_of(pool), left, chunk, 16)


def halves(count: int) -> tuple[list[int], list[int]]:
    """To race on, and to test on."""
    return list(range(count // 4)), list(range(count // 4, count))


def outcomes(decision: Decision) -> dict[str, str]:
    return {rules(trial.contender.guidance).partition(" / ")[2]: trial.outcome for trial in decision.trials}


# Which tickets


@given(tickets(min_size=6), st.data())
def test_an_edit_is_tested_on_no_group_that_it_was_shown(made: list[Ticket], data: st.DataObject) -> None:
    pool = data.draw(st.permutations(range(len(made))))[: data.draw(st.integers(1, len(made)))]
    shown = data.draw(st.lists(st.integers(0, len(made) - 1), max_size=4, unique=True))
    told = {made[i].group_id for i in shown}
    assert unseen(pool, shown, made) == [i for i in pool if made[i].group_id not in told]


def test_each_edit_is_tested_on_its_own_pool_and_a_joined_one_on_what_neither_was_shown() -> None:
    count = 400
    world = World(numbered(count), [0.0] * count)
    halves_mended = [[float(i % 2 == n) for i in range(count)] for n in range(2)]
    edits = [world.edit(f"{n}", merits) for n, merits in enumerate(halves_mended)]
    edits = [replace(edit, shown=tuple(range(100 + 50 * n, 150 + 50 * n))) for n, edit in enumerate(edits)]
    decision = decided(world, edits, range(100), range(100, count))
    assert decision.winner
    assert set(decision.winner.shown) == set(range(100, 200))
    tested_on = world.seen_by(decision.winner) - set(range(100))
    assert min(tested_on) == 200
    alone = decided(world, edits[1:], range(100), range(100, count)).winner
    assert alone
    assert min(world.seen_by(alone) - set(range(100))) == 100


# The jury


@given(worlds(), st.data())
def test_a_jury_asks_once_for_each_text_and_ticket_and_counts_it(
    made: tuple[World, list[Contender], list[int], list[int]], data: st.DataObject
) -> None:
    world, edits, *_ = made
    jury, position = world.jury(), st.sampled_from(range(len(world.tickets)))
    guidances = [PRESENT, *(edit.guidance for edit in edits), replace(PRESENT, step=9)]  # the last one reads as the first
    questions = st.lists(st.tuples(st.sampled_from(guidances), st.lists(position, max_size=9)), max_size=4)
    for asked in data.draw(st.lists(questions, max_size=3)):
        merits = jury.merits(asked)
        known = {rules(PRESENT): world.present, **world.table}
        assert merits == [[known[rules(guidance)][i] for i in positions] for guidance, positions in asked]
    assert set(world.asked.values()) <= {1}
    assert (jury.judged, jury.tokens) == (len(world.asked), TOKENS * len(world.asked))


def test_what_is_known_already_is_not_asked_for() -> None:
    world = World(numbered(4), [0.0, 1.0, 0.0, 1.0])
    jury = world.jury()
    jury.known(PRESENT).update({0: 0.6, 1: 1.0, 2: 0.5})
    assert [right for _, right in jury.kinds([0, 1, 2, 3])] == [True, True, False, True]
    assert dict(world.asked) == {(rules(PRESENT), 3): 1}


def test_gains_are_weighed_by_the_price_of_each_error() -> None:
    world = World(numbered(2), [0.0, 0.0])  # labelled pass, fail: answered fail, pass
    edit = world.edit("mends both", [1.0, 1.0])
    for config, gains in [
        (GateConfig(), [1.0, 1.0]),
        (GateConfig(fp_weight=4.0), [0.25, 1.0]),
        (GateConfig(fn_weight=2.0), [1.0, 0.5]),
        (GateConfig(fp_weight=2.0, fn_weight=8.0), [1.0, 0.25]),
    ]:
        assert world.jury(config).gains([(edit.guidance, [0, 1])]) == [gains]


# What is accepted


@given(worlds(), st.sampled_from([1, 7, 64]), st.sampled_from([ALPHA, 0.5]))
def test_a_decision_keeps_its_promises(
    made: tuple[World, list[Contender], list[int], list[int]], chunk: int, budget: float
) -> None:
    world, edits, race_on, pool = made
    decision = decided(world, edits, race_on, pool, left=budget, chunk=chunk)
    assert set(world.asked.values()) <= {1}
    left, accepted = budget, []
    for trial in sorted((trial for trial in decision.trials if trial.test), key=lambda trial: -trial.test.level):  # type: ignore[union-attr]
        test = trial.test
        assert test is not None
        assert test.level == spend(left)
        assert test.gain.tickets <= len(pool)
        assert test.tickets == len(pool)
        if trial.outcome == "accepted":
            accepted.append(trial.contender)
            assert test.accepts
        else:
            left -= test.level
        assert test.gain.tickets
        tested = pool[: test.gain.tickets]
        gains = [world.table[rules(trial.contender.guidance)][i] - world.present[i] for i in tested]
        assert test.total == pytest.approx(sum(gains))
    assert decision.left == left
    assert accepted == ([decision.winner] if decision.winner else [])
    alone = {id(trial.contender): trial for trial in decision.trials}
    for edit in edits:
        trial = alone[id(edit)]
        turned = sum(world.table[rules(edit.guidance)][i] > max(0.5, world.present[i]) for i in edit.evidence)
        assert trial.turned == turned
        idle = bool(edit.evidence) and not turned
        assert (trial.outcome == "turns no evidence") == idle
        if idle:
            assert trial.form.seen == 0
            assert world.seen_by(edit) <= set(edit.evidence)
        if trial.test is None:
            assert world.seen_by(edit).isdisjoint(pool)


@given(worlds(), st.integers(0, 5))
def test_an_edit_that_changes_nothing_is_never_accepted(
    made: tuple[World, list[Contender], list[int], list[int]], place: int
) -> None:
    world, _, race_on, pool = made
    idle, harmful = world.edit("idle", world.present), world.edit("harmful", [0.0] * len(world.present))
    decision = decided(world, [idle, harmful], race_on, pool, left=0.5)
    assert decision.winner is None
    assert decision.left == 0.5
    assert world.seen_by(idle).isdisjoint(pool)


def test_an_edit_that_mends_much_is_accepted_before_the_pool_ends_and_its_level_comes_back() -> None:
    race_on, pool = halves(400)
    world = World(numbered(400), [float(i % 3 > 0) for i in range(400)])
    decision = decided(world, [world.edit("mends all", [1.0] * 400, [0])], race_on, pool)
    (trial,) = decision.trials
    assert decision.winner is trial.contender
    assert (trial.outcome, trial.turned, decision.left) == ("accepted", 1, ALPHA)
    assert trial.test is not None
    assert trial.test.gain.tickets < 100


def test_an_edit_that_shines_on_the_race_alone_fails_its_test_and_spends_the_level() -> None:
    race_on, pool = halves(200)
    world = World(numbered(200), [float(i % 2) for i in range(200)])
    seen = world.edit("seen", [1.0 if i in race_on else merit for i, merit in enumerate(world.present)])
    decision = decided(world, [seen], race_on, pool)
    assert outcomes(decision) == {"seen": "futile"}
    assert decision.trials[0].test is not None
    assert decision.trials[0].test.gain.tickets < len(pool)
    assert decision.left == ALPHA - spend(ALPHA)
    assert outcomes(decided(world, [seen], race_on, pool[:60])) == {"seen": "unproven"}


def test_a_pool_too_small_for_any_proof_costs_nothing() -> None:
    world = World(numbered(30), [0.0] * 30)
    decision = decided(world, [world.edit("mends all", [1.0] * 30)], range(24), range(24, 30))
    assert outcomes(decision) == {"mends all": "unpromising"}
    assert (decision.left, decision.winner) == (ALPHA, None)


def test_edits_that_win_on_different_tickets_are_joined() -> None:
    race_on, pool = halves(400)
    world = World(numbered(400), [float(i % 2) for i in range(400)])
    third = [[1.0 if i % 6 == k else merit for i, merit in enumerate(world.present)] for k in (0, 2, 4)]
    edits = [world.edit(f"mends {k}", merits, [k]) for k, merits in zip((0, 2, 4), third, strict=True)]
    decision = decided(world, edits, race_on, pool)
    assert decision.winner is not None
    assert sorted(p.index for p in decision.winner.proposals) == [1, 2, 3]
    assert outcomes(decision)["mends 0 and mends 2 and mends 4"] == "accepted"
    assert sorted(decision.winner.evidence) == [0, 2, 4]
    apart = decide(edits, world.jury(), lambda one, other: None, race_on, world.pool_of(pool), ALPHA, 16, 16)
    assert apart.winner is edits[0]


def test_an_edit_that_adds_nothing_is_not_joined() -> None:
    race_on, pool = halves(400)
    world = World(numbered(400), [float(i % 2) for i in range(400)])
    part = [1.0 if i % 4 == 0 else merit for i, merit in enumerate(world.present)]
    decision = decided(world, [world.edit("one", part), world.edit("the same", part)], race_on, pool)
    assert outcomes(decision) == {"one": "accepted", "the same": "dropped"}


def test_an_edit_that_breaks_much_of_what_it_mends_is_not_joined() -> None:
    race_on, pool = halves(400)
    world = World(numbered(400), [float(i % 2) for i in range(400)])
    one = world.edit("one", [1.0 if i % 4 == 0 else merit for i, merit in enumerate(world.present)])
    two = [1.0 if i % 4 == 2 else 0.0 if i % 8 == 1 else merit for i, merit in enumerate(world.present)]
    decision = decided(world, [one, world.edit("two", two)], race_on, pool)
    assert outcomes(decision) == {"one": "accepted", "two": "dropped"}


def test_a_careful_edit_is_tested_before_a_broad_one_of_more_gain_and_a_broad_one_before_none() -> None:
    race_on, pool = halves(800)
    world = World(numbered(800), [float(i % 2) for i in range(800)])
    careful = world.edit("careful", [1.0 if i % 6 == 0 else merit for i, merit in enumerate(world.present)])
    broad = world.edit("broad", [float(i % 2 == 0 or i % 3 > 0) for i in range(800)])

    def winner(*edits: Contender) -> Contender | None:
        return decide(edits, world.jury(), lambda one, other: None, race_on, world.pool_of(pool), ALPHA, 16, 16).winner

    assert winner(broad, careful) is careful
    assert winner(broad) is broad


def test_a_broad_edit_is_tested_where_the_careful_one_cannot_be_proven() -> None:
    race_on, pool = halves(240)
    world = World(numbered(240), [float(i % 2) for i in range(240)])
    careful = world.edit("careful", [1.0 if i % 96 == 0 else merit for i, merit in enumerate(world.present)])
    broad = world.edit("broad", [float(i % 2 == 0 or i % 3 > 0) for i in range(240)])
    decision = decide([careful, broad], world.jury(), lambda one, other: None, race_on, world.pool_of(pool), ALPHA, 16, 16)
    assert outcomes(decision) == {"careful": "unpromising", "broad": "accepted"}


@pytest.mark.parametrize(("config", "wins"), [(GateConfig(fp_weight=4), "fp"), (GateConfig(fn_weight=4), "fn")])
def test_weights_change_who_wins(config: GateConfig, wins: str) -> None:
    """Each of the two mends one kind of error and makes as many of the other."""
    race_on, pool = halves(400)
    world = World(numbered(400), [float(i % 4 > 1) for i in range(400)])
    strict = [1.0 if ticket.label == "fail" else 0.0 for ticket in world.tickets]
    edits = [world.edit("fp", strict), world.edit("fn", [1 - merit for merit in strict])]

    def winner(config: GateConfig) -> Contender | None:
        return decide(edits, world.jury(config), lambda one, other: None, race_on, world.pool_of(pool), ALPHA, 16, 16).winner

    assert winner(config) is edits[["fp", "fn"].index(wins)]
    assert winner(GateConfig()) is None


def test_a_small_gain_of_which_the_race_saw_little_is_tested_all_the_same() -> None:
    """One ticket in 40 is mended: by the one that the race saw, the pool would bring three quarters of a proof."""
    race_on, pool = list(range(39)), list(range(39, 480))
    world = World(numbered(480), [float(i % 2) for i in range(480)])
    small = world.edit("small", [1.0 if i % 40 == 0 else merit for i, merit in enumerate(world.present)])
    assert outcomes(decided(world, [small], race_on, pool)) == {"small": "accepted"}


# Where there is nothing to learn


def test_where_there_is_nothing_to_learn_a_run_accepts_as_rarely_as_alpha_says() -> None:
    """Labels are drawn at random; an edit is right on all of its bundle, and elsewhere it judges anew, by a coin."""
    alpha, runs, bundles, size = 0.25, 80, 6, 20
    accepted = tested = 0
    for run in range(runs):
        chance = random.Random(f"nothing {run}")
        labels: list[Verdict] = [chance.choice(("pass", "fail")) for _ in range(240)]
        world = World([replace(each, label=label) for each, label in zip(numbered(240), labels, strict=True)], ())
        world.present, left = [float(chance.random() < 0.5) for _ in labels], alpha
        others, race_on = list(range(200)), list(range(200, 240))
        for number in range(bundles):
            bundle, edits = list(range(number * size, (number + 1) * size)), []
            for name in range(4):
                anew = [float(chance.random() < 0.5) if chance.random() < 0.4 else merit for merit in world.present]
                anew = [1.0 if i in bundle else merit for i, merit in enumerate(anew)]
                edits.append(world.edit(f"{number} {name}", anew, chance.sample(bundle, 5)))
            edits = [replace(edit, shown=tuple(bundle)) for edit in edits]
            decision = decided(world, edits, race_on, others, left=left, chunk=32)
            left = decision.left
            tested += any(trial.test and trial.test.gain.tickets for trial in decision.trials)
            if decision.winner:
                accepted += 1
                break
    assert tested > 1.5 * runs  # they look good enough to be tested
    assert accepted <= runs * alpha + 3 * (runs * alpha * (1 - alpha)) ** 0.5


# Rules that can go


def without(world: World, name: str, merits: Sequence[float]) -> Contender:
    """The guidance without a rule."""
    return world.edit(f"without {name}", merits)


def pruned(world: World, contenders: Sequence[Contender], count: int, margin: float = 0.02) -> Decision:
    race_on, pool = halves(count)
    return prune(contenders, world.jury(), race_on, pool, margin, ALPHA, 64)


def test_the_rule_that_earns_nothing_goes_where_the_pool_can_prove_it() -> None:
    count = 1200
    world = World(numbered(count), [1.0] * count)
    used = without(world, "a rule that is used", [float(i % 5 > 0) for i in range(count)])
    idle = without(world, "an idle rule", [1.0] * count)
    decision = pruned(world, [used, idle], count)
    assert decision.winner is idle
    assert [trial.outcome for trial in decision.trials] == ["dropped", "accepted"]
    assert decision.left == ALPHA


def test_a_rule_that_does_harm_goes_soon() -> None:
    count = 400
    world = World(numbered(count), [float(i % 3 > 0) for i in range(count)])
    decision = pruned(world, [without(world, "a harmful rule", [1.0] * count)], count)
    assert decision.winner is not None


def test_rules_that_earn_their_place_stay_and_cost_no_budget() -> None:
    count = 1200
    world = World(numbered(count), [1.0] * count)
    kept = [without(world, f"{n}", [float(i % 20 != n) for i in range(count)]) for n in range(2)]
    decision = pruned(world, kept, count)
    assert (decision.winner, decision.left) == (None, ALPHA)
    assert {trial.outcome for trial in decision.trials} == {"dropped"}
    assert all(world.seen_by(each) <= set(range(count // 4)) for each in kept)


def test_where_the_pool_is_too_small_no_rule_goes() -> None:
    world = World(numbered(80), [1.0] * 80)
    decision = pruned(world, [without(world, "an idle rule", [1.0] * 80)], 80)
    assert decision.winner is None
    assert decision.left == ALPHA
    assert pruned(world, [], 80) == Decision((), ALPHA)


def test_a_rule_that_the_race_tickets_do_not_miss_but_others_do_stays() -> None:
    count = 1200
    world = World(numbered(count), [1.0] * count)
    missed = without(world, "missed later", [1.0 if i < count // 4 else float(i % 10 > 0) for i in range(count)])
    decision = pruned(world, [missed], count)
    assert decision.winner is None
    assert decision.left == ALPHA - spend(ALPHA)


def test_a_guidance_is_known_by_what_a_model_sees_of_it() -> None:
    """Step and metadata make no difference to a verdict, a rule's key does."""
    world = World(numbered(3), [1.0, 0.0, 1.0])
    jury = world.jury()
    jury.merits([(PRESENT, [0, 1, 2])])
    again = Guidance("m", 8, tuple(replace(rule, metadata={"sources": ["x"]}) for rule in PRESENT.rules), 9)
    assert jury.known(again) == {0: 1.0, 1: 0.0, 2: 1.0}
    assert jury.known(replace(PRESENT, rules=(replace(PRESENT.rules[0], key="G7"),))) == {}
