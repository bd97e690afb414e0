import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from guidance.trials import World, numbered, rules, worlds
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.config import GateConfig
from stageb.guidance.learning.gate.decide import STRONG, WEAK, Decision, Edit, decide
from stageb.guidance.learning.gate.sequential import BettingTest, ExactTest, next_level
from stageb.guidance.words.costs import PriceConfig
from stageb.guidance.words.types import Verdict

ALPHA = 0.05


def decided(
    world: World,
    edits: Sequence[Edit],
    race_on: Sequence[int],
    pool: Sequence[int],
    config: GateConfig | None = None,
    left: float = ALPHA,
    chunk: int = 16,
) -> Decision:
    return world.answer(decide(edits, world.gate(race_on, pool, config, chunk), world.join, left))


def apart(one: Edit, other: Edit) -> None:
    """Nothing is joined."""


def halves(count: int) -> tuple[list[int], list[int]]:
    """To race on, and to test on."""
    return list(range(count // 4)), list(range(count // 4, count))


def outcomes(decision: Decision) -> dict[str, str]:
    return {
        rules(tried.edit.guidance).partition(" / ")[2]: tried.outcome for tried in decision.tried
    }


# What is accepted


def left_after(tests: Sequence[tuple[bool, float]], budget: float) -> Iterator[float]:
    """What may be left of a budget after tests, (accepted, level) each, in an order in which each
    got a share of its due."""
    for ordered in permutations(tests):
        left = budget
        for accepted, level in ordered:
            if level not in (next_level(left, STRONG), next_level(left, WEAK)):
                break
            left -= 0.0 if accepted else level
        else:
            yield left


@given(worlds(), st.sampled_from([1, 7, 64]), st.sampled_from([ALPHA, 0.5]))
def test_a_decision_keeps_its_promises(
    made: tuple[World, list[Edit], list[int], list[int]], chunk: int, budget: float
) -> None:
    world, edits, race_on, pool = made
    decision = decided(world, edits, race_on, pool, left=budget, chunk=chunk)
    assert set(world.asked.values()) <= {1}
    tests = [(tried, tried.test) for tried in decision.tried if tried.test]
    spent = [(tried.outcome == "accepted", test.level) for tried, test in tests]
    assert any(after == decision.left for after in left_after(spent, budget))
    assert [tried.edit for tried, _ in tests if tried.outcome == "accepted"] == (
        [decision.winner] if decision.winner else []
    )
    for tried, test in tests:
        assert test.is_accepted == (tried.outcome == "accepted")
        assert 0 < test.tickets <= len(pool) == test.groups
        tested = pool[: test.tickets]
        gains = [world.table[rules(tried.edit.guidance)][i] - world.present[i] for i in tested]
        assert sum(test.gains) == pytest.approx(sum(gains))
    alone = {id(tried.edit): tried for tried in decision.tried}
    for edit in edits:
        tried = alone[id(edit)]
        turned = sum(
            world.table[rules(edit.guidance)][i] > max(0.5, world.present[i]) for i in edit.evidence
        )
        assert tried.turned == turned
        idle = bool(edit.evidence) and not turned
        assert (tried.outcome == "turns no evidence") == idle
        if idle:
            assert tried.score.seen == 0
            assert world.seen_by(edit) <= set(edit.evidence)
        if tried.test is None:
            assert world.seen_by(edit).isdisjoint(pool)


@given(worlds(), st.integers(0, 5))
def test_an_edit_that_changes_nothing_is_never_accepted(
    made: tuple[World, list[Edit], list[int], list[int]], place: int
) -> None:
    world, _, race_on, pool = made
    idle, harmful = (
        world.edit("idle", world.present),
        world.edit("harmful", [0.0] * len(world.present)),
    )
    decision = decided(world, [idle, harmful], race_on, pool, left=0.5)
    assert decision.winner is None
    assert decision.left == 0.5
    assert world.seen_by(idle).isdisjoint(pool)


def test_edits_that_code_judges_see_the_whole_race_and_others_are_cut() -> None:
    """A narrow rule mends tickets of which a race's first laps hold none; five others mend one
    early ticket each."""
    count = 800
    race_on, pool = halves(count)
    world = World(numbered(count), [0.0 if i % 2 == 0 else 1.0 for i in range(count)])
    narrow = world.edit(
        "narrow", [1.0 if i % 10 == 4 and i > 60 else now for i, now in enumerate(world.present)]
    )
    others = [
        world.edit(
            f"one of the first {n}", [1.0 if i == n else now for i, now in enumerate(world.present)]
        )
        for n in range(0, 10, 2)
    ]
    assert decided(world, [narrow, *others], race_on, pool).winner is None
    world.by_rules = {rules(edit.guidance) for edit in (narrow, *others)}
    winner = decided(world, [narrow, *others], race_on, pool).winner
    assert winner is not None
    assert set(narrow.proposals) <= set(winner.proposals)


def test_an_edit_that_mends_much_is_accepted_before_the_pool_ends_and_its_level_comes_back() -> (
    None
):
    race_on, pool = halves(400)
    world = World(numbered(400), [float(i % 3 > 0) for i in range(400)])
    decision = decided(world, [world.edit("mends all", [1.0] * 400, [0])], race_on, pool)
    (tried,) = decision.tried
    assert decision.winner is tried.edit
    assert (tried.outcome, tried.turned, decision.left) == ("accepted", 1, ALPHA)
    assert tried.test is not None
    assert tried.test.tickets < 100


@pytest.mark.parametrize(
    ("limits", "is_refused"),
    [
        (GateConfig(), False),
        (GateConfig(max_changed_verdicts=0.2), True),
        (GateConfig(max_changed_verdicts=0.5, max_false_passes=0.04), True),
        (GateConfig(max_changed_verdicts=0.5, max_false_passes=0.2), False),
    ],
)
def test_a_proven_edit_is_refused_beyond_a_limit_and_its_level_is_spent(
    limits: GateConfig, is_refused: bool
) -> None:
    """It mends three tickets of ten that should pass, and lets one of ten pass that should fail."""
    race_on, pool = halves(400)
    world = World(
        numbered(400, labels=["pass"] * 9 + ["fail"]), [float(i % 10 > 2) for i in range(400)]
    )
    edit = world.edit("mends some", [float(i % 10 < 9) for i in range(400)], [0])
    decision = decided(world, [edit], race_on, pool, limits)
    assert [tried.outcome for tried in decision.tried] == [
        "over a limit" if is_refused else "accepted"
    ]
    assert (decision.winner is None) == is_refused == (decision.left < ALPHA)


def test_an_edit_that_shines_on_the_race_alone_fails_its_test_and_spends_the_level() -> None:
    race_on, pool = halves(200)
    world = World(numbered(200), [float(i % 2) for i in range(200)])
    seen = world.edit("seen", [1.0 if i in race_on else p for i, p in enumerate(world.present)])
    decision = decided(world, [seen], race_on, pool)
    assert outcomes(decision) == {"seen": "futile"}
    assert decision.tried[0].test is not None
    assert decision.tried[0].test.tickets < len(pool)
    assert decision.left == ALPHA - next_level(ALPHA, STRONG)
    assert outcomes(decided(world, [seen], race_on, pool[:60])) == {"seen": "unproven"}


def test_what_is_not_proven_is_said_to_be_so_even_where_it_is_beyond_a_limit() -> None:
    """It mends as many of the tickets that test it as it breaks."""
    race_on, pool = halves(400)
    world = World(numbered(400), [float(i % 2) for i in range(400)])
    turned = [
        1.0 if i in race_on else float(i % 20 == 0 or (i % 20 > 1 and i % 2)) for i in range(400)
    ]
    none = GateConfig(max_changed_verdicts=0.0, max_false_passes=0.0)
    for groups, outcome in ((pool, "futile"), (pool[:90], "unproven")):
        found = decided(world, [world.edit("turns", turned)], race_on, groups, none)
        assert outcomes(found) == {"turns": outcome}


def test_an_edit_with_a_strong_race_is_tested_at_a_larger_level() -> None:
    race_on, pool = halves(400)
    world = World(numbered(400), [float(i % 2) for i in range(400)])

    def level(one_in: int) -> float:
        mends = [1.0 if i % one_in == 0 else p for i, p in enumerate(world.present)]
        (tried,) = decided(world, [world.edit(f"one in {one_in}", mends)], race_on, pool).tried
        assert tried.test is not None
        return tried.test.level

    assert level(10) == next_level(ALPHA, STRONG)
    assert level(50) == next_level(ALPHA, WEAK)
    mixed = [0.0 if i % 12 == 1 else 1.0 if i % 6 == 0 else p for i, p in enumerate(world.present)]
    (tried,) = decided(world, [world.edit("breaks half as many", mixed)], race_on, pool).tried
    assert tried.test and tried.test.level == next_level(ALPHA, WEAK)


def test_the_test_suits_what_the_race_showed_of_the_gains() -> None:
    """Verdicts that turn are counted as won and lost; probabilities that rise a little everywhere
    are bet on."""
    race_on, pool = halves(400)
    world = World(numbered(400), [0.1] * 400)
    turned = world.edit("turned", [1.0 if i % 3 == 0 else 0.1 for i in range(400)])
    risen = world.edit("risen", [0.4] * 400)
    for edit, kind in ((turned, ExactTest), (risen, BettingTest)):
        (tried,) = decided(world, [edit], race_on, pool).tried
        assert isinstance(tried.test, kind)
        assert tried.outcome == "accepted"
        if isinstance(tried.test, BettingTest):  # of gains without a loss, four fifths are staked
            assert tried.test.wealth.favourite == pytest.approx(0.8)


def test_what_is_drawn_of_gains_between_0_and_1_depends_on_the_edit_and_on_nothing_else() -> None:
    race_on, pool = halves(400)
    world = World(numbered(400), [0.1] * 400)
    edits = [
        world.edit(name, [0.9 if i % 3 == 0 else 0.1 for i in range(400)])
        for name in ("one", "two", "one")
    ]
    drawn = []
    for edit in edits:
        (tried,) = decided(world, [edit], race_on, pool).tried
        assert isinstance(tried.test, ExactTest)
        drawn.append(tried.test)
    assert drawn[0] == drawn[2]
    assert drawn[0].gains[: drawn[1].seen] == drawn[1].gains[: drawn[0].seen]
    assert drawn[0].key != drawn[1].key


def test_where_no_edit_turns_what_it_names_nothing_is_raced() -> None:
    world = World(numbered(40), [float(i % 2) for i in range(40)])
    idle = [world.edit(name, world.present, [0, 2]) for name in ("one", "other")]
    decision = decided(world, idle, range(10, 20), range(20, 40))
    assert outcomes(decision) == dict.fromkeys(("one", "other"), "turns no evidence")
    assert {i for _, i in world.asked} == {0, 2}


def test_a_pool_too_small_for_any_proof_costs_nothing() -> None:
    world = World(numbered(30), [0.0] * 30)
    decision = decided(world, [world.edit("mends all", [1.0] * 30)], range(24), range(24, 28))
    assert outcomes(decision) == {"mends all": "unpromising"}
    assert (decision.left, decision.winner) == (ALPHA, None)


def test_edits_that_win_on_different_tickets_are_joined() -> None:
    race_on, pool = halves(400)
    world = World(numbered(400), [float(i % 2) for i in range(400)])
    third = [[1.0 if i % 6 == k else p for i, p in enumerate(world.present)] for k in (0, 2, 4)]
    edits = [
        world.edit(f"mends {k}", p_correct, [k])
        for k, p_correct in zip((0, 2, 4), third, strict=True)
    ]
    decision = decided(world, edits, race_on, pool)
    assert decision.winner is not None
    assert sorted(p.index for p in decision.winner.proposals) == [1, 2, 3]
    assert outcomes(decision)["mends 0 and mends 2 and mends 4"] == "accepted"
    assert sorted(decision.winner.evidence) == [0, 2, 4]
    assert world.answer(decide(edits, world.gate(race_on, pool), apart, ALPHA)).winner is edits[0]


def test_an_edit_that_adds_nothing_is_not_joined() -> None:
    race_on, pool = halves(400)
    world = World(numbered(400), [float(i % 2) for i in range(400)])
    part = [1.0 if i % 4 == 0 else p for i, p in enumerate(world.present)]
    decision = decided(
        world, [world.edit("one", part), world.edit("the same", part)], race_on, pool
    )
    assert outcomes(decision) == {"one": "accepted", "the same": "dropped"}


def test_an_edit_that_breaks_much_of_what_it_mends_is_not_joined() -> None:
    race_on, pool = halves(400)
    world = World(numbered(400), [float(i % 2) for i in range(400)])
    one = world.edit("one", [1.0 if i % 4 == 0 else p for i, p in enumerate(world.present)])
    two = [1.0 if i % 4 == 2 else 0.0 if i % 8 == 1 else p for i, p in enumerate(world.present)]
    decision = decided(world, [one, world.edit("two", two)], race_on, pool)
    assert outcomes(decision) == {"one": "accepted", "two": "dropped"}


def test_edits_that_break_the_same_tickets_are_joined_since_the_second_breaks_no_more() -> None:
    race_on, pool = halves(800)
    world = World(numbered(800), [float(i % 2) for i in range(800)])
    edits = [
        world.edit(
            f"mends {k}",
            [1.0 if i % 4 == k else 0.0 if i % 8 == 1 else p for i, p in enumerate(world.present)],
        )
        for k in (0, 2)
    ]
    winner = decided(world, edits, race_on, pool).winner
    assert winner is not None
    assert len(winner.proposals) == 2


def test_a_careful_edit_is_tested_before_a_broad_one_of_more_gain_and_a_broad_one_before_none() -> (
    None
):
    race_on, pool = halves(800)
    world = World(numbered(800), [float(i % 2) for i in range(800)])
    careful = world.edit("careful", [1.0 if i % 6 == 0 else p for i, p in enumerate(world.present)])
    broad = world.edit("broad", [float(i % 2 == 0 or i % 3 > 0) for i in range(800)])

    def winner(*edits: Edit) -> Edit | None:
        return world.answer(decide(edits, world.gate(race_on, pool), apart, ALPHA)).winner

    assert winner(broad, careful) is careful
    assert winner(broad) is broad


def test_a_broad_edit_is_tested_where_the_careful_one_cannot_be_proven() -> None:
    race_on, pool = halves(240)
    world = World(numbered(240), [float(i % 2) for i in range(240)])
    careful = world.edit(
        "careful", [1.0 if i % 96 == 0 else p for i, p in enumerate(world.present)]
    )
    broad = world.edit("broad", [float(i % 2 == 0 or i % 3 > 0) for i in range(240)])
    decision = world.answer(decide([careful, broad], world.gate(race_on, pool), apart, ALPHA))
    assert outcomes(decision) == {"careful": "unpromising", "broad": "accepted"}


@pytest.mark.parametrize(
    ("price", "wins"), [(PriceConfig(4.0, 1.0), "missed"), (PriceConfig(1.0, 4.0), "alarms")]
)
def test_prices_change_who_wins(price: PriceConfig, wins: str) -> None:
    """Each of the two mends one kind of error and makes as many of the other."""
    race_on, pool = halves(400)
    world = World(numbered(400), [float(i % 4 > 1) for i in range(400)])
    strict = [1.0 if ticket.label == "fail" else 0.0 for ticket in world.tickets]
    edits = [world.edit("missed", strict), world.edit("alarms", [1 - p for p in strict])]

    def winner(price: PriceConfig) -> Edit | None:
        gate = world.gate(race_on, pool)
        priced = replace(gate, judge=replace(gate.judge, prices=price.by_label))
        return world.answer(decide(edits, priced, apart, ALPHA)).winner

    assert winner(price) is edits[["missed", "alarms"].index(wins)]
    assert winner(PriceConfig()) is None


def test_a_small_gain_of_which_the_race_saw_little_is_tested_all_the_same() -> None:
    """One ticket in 40 is mended: by the one that the race saw, the pool would bring three quarters
    of a proof."""
    race_on, pool = list(range(39)), list(range(39, 480))
    world = World(numbered(480), [float(i % 2) for i in range(480)])
    small = world.edit("small", [1.0 if i % 40 == 0 else p for i, p in enumerate(world.present)])
    assert outcomes(decided(world, [small], race_on, pool)) == {"small": "accepted"}


# Where there is nothing to learn


@pytest.mark.slow
def test_where_there_is_nothing_to_learn_a_run_accepts_as_rarely_as_alpha_says() -> None:
    """Labels are drawn at random; an edit is right on all of the tickets that taught it, and
    elsewhere it judges anew, by a coin."""
    alpha, runs, bundles, size = 0.25, 80, 6, 20
    accepted = tested = 0
    for run in range(runs):
        chance = random.Random(f"nothing {run}")
        labels: list[Verdict] = [chance.choice(("pass", "fail")) for _ in range(240)]
        world = World(
            [replace(each, label=label) for each, label in zip(numbered(240), labels, strict=True)],
            (),
        )
        world.present, left = [float(chance.random() < 0.5) for _ in labels], alpha
        others, race_on = list(range(200)), list(range(200, 240))
        for number in range(bundles):
            taught, edits = list(range(number * size, (number + 1) * size)), []
            for name in range(4):
                anew = [
                    float(chance.random() < 0.5) if chance.random() < 0.4 else p
                    for p in world.present
                ]
                anew = [1.0 if i in taught else p for i, p in enumerate(anew)]
                edits.append(world.edit(f"{number} {name}", anew, chance.sample(taught, 5)))
            decision = decided(
                world, edits, race_on, [i for i in others if i not in taught], left=left, chunk=32
            )
            left = decision.left
            tested += any(tried.test and tried.test.tickets for tried in decision.tried)
            if decision.winner:
                accepted += 1
                break
    assert tested > 1.5 * runs  # they look good enough to be tested
    assert accepted <= runs * alpha + 3 * (runs * alpha * (1 - alpha)) ** 0.5
