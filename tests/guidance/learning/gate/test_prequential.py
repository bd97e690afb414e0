"""Learning that is tested as it goes: at which block it bets, what it proves, and how seldom where
there is nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stageb.guidance.config import GateConfig
from stageb.guidance.judging.questions import Dialogue, answer_all
from stageb.guidance.learning.gate.judgements import Judge
from stageb.guidance.learning.gate.prequential import Bet, block_ends, prove_learning
from stageb.guidance.learning.gate.sequential import Wealth, kelly_stake
from stageb.guidance.learning.state import LearningStopped
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.tickets.groups import Group
from stageb.guidance.words.costs import EQUAL, PriceConfig, Prices
from stageb.guidance.words.types import Ticket, Verdict

PRESENT = make_neutral("m", WORDS["en"])
LEVEL = 0.05
ENDS = range(20, 141, 20)  # six blocks


def ticket(number: int) -> Ticket:
    return Ticket("m", f"g{number}", "fail", (("image_1", f"n: {number}"),))


def refuse(question: object) -> None:
    """Nothing is asked."""
    raise AssertionError(question)


def prove(
    rights: Sequence[tuple[bool, bool]],
    seen: list[int] | None = None,
    constant: Verdict = "",
    passes: int = 0,
    prices: Prices = EQUAL,
) -> bool:
    """Whether learning is proven where the present guidance and any learnt one judge tickets
    rightly like this; of every ten so many are labelled pass."""
    tickets = [
        replace(ticket(number), label="pass" if number % 10 < passes else "fail")
        for number in range(len(rights))
    ]

    def learn(
        groups: Sequence[Group], block: Sequence[Group], memory: None
    ) -> Dialogue[tuple[Bet | None, None]]:
        yield from ()
        if seen is not None:
            seen.append(len(groups))
        places = [place for (place,) in block]
        after = {place: rights[place][1] for place in places}
        nulls = {"present": {place: rights[place][0] for place in places}}
        if constant:
            nulls["constant"] = {place: tickets[place].label == constant for place in places}
        return Bet(
            0.3, 0.1, {name: judge.compare(after, before) for name, before in nulls.items()}
        ), None

    groups, judge = (
        [(position,) for position in range(len(rights))],
        Judge(tickets, GateConfig(), PRESENT, prices=prices),
    )
    proving = prove_learning(learn, groups, LEVEL, block_ends(len(groups)), None)
    return answer_all(proving, refuse)[0].is_accepted


@given(st.integers(1, 3000), st.none() | st.integers(1, 3000))
def test_blocks_cover_all_groups_but_the_first_that_teach(groups: int, first: int | None) -> None:
    first = min(first, groups) if first else None
    ends = block_ends(groups, first)
    assert ends[-1] == groups
    assert ends == sorted(set(ends))
    assert ends[0] == first if first else ends[0] <= max(1, groups // 4)


@pytest.mark.parametrize("after", [0, 2])
def test_a_test_that_is_told_to_stop_ends_where_it_stands(after: int) -> None:
    """With the tickets that were bet on by then: wealth may be looked at whenever one likes."""
    count, ends = 200, block_ends(200)

    def learn(
        groups: Sequence[Group], block: Sequence[Group], memory: None
    ) -> Dialogue[tuple[Bet | None, None]]:
        if len(groups) == ends[after]:
            raise LearningStopped
        yield from ()
        return Bet(0.3, 0.1, {"present": [float(place % 20 == 0) for (place,) in block]}), None

    proving = prove_learning(learn, [(place,) for place in range(count)], LEVEL, ends, None)
    test, _, is_stopped = answer_all(proving, refuse)
    assert (
        is_stopped
        and test.seen == ends[after] - ends[0]
        and test.mean == pytest.approx(0.06 * bool(after))
    )


@given(
    st.lists(
        st.tuples(st.floats(0, 0.5), st.floats(0, 0.5), st.sampled_from([-0.5, 0.0, 0.5])),
        min_size=6,
        max_size=6,
    )
)
def test_each_block_is_bet_on_as_much_as_its_own_bet_suggests(
    bets: list[tuple[float, float, float]],
) -> None:
    def learn(
        groups: Sequence[Group], block: Sequence[Group], memory: None
    ) -> Dialogue[tuple[Bet | None, None]]:
        yield from ()
        won, lost, gain = bets[ENDS.index(len(groups))]
        return Bet(won, lost, {"present": [gain] * len(block)}), None

    proving = prove_learning(learn, [(place,) for place in range(140)], 1e-30, ENDS, None)
    test, *_ = answer_all(proving, refuse)
    wealth = Wealth()
    for won, lost, gain in bets:
        wealth = replace(wealth, favourite=kelly_stake(won, lost)).plus([gain] * 20)
    assert (test.is_accepted, test.seen) == (False, 120)
    assert test.wealth.log == pytest.approx(wealth.log)


def test_what_helps_is_proven_and_learnt_from_ever_more() -> None:
    seen: list[int] = []
    assert not prove([(True, True)] * 200, seen)
    assert seen == block_ends(200)[:-1]
    assert prove([(False, True), *[(True, True)] * 5] * 20)
    assert not prove([(False, True), *[(True, False)] * 5] * 20)


@pytest.mark.parametrize("memory", [None, "of all blocks"])
def test_after_a_proof_only_what_is_remembered_has_further_blocks_learnt_from(
    memory: str | None,
) -> None:
    """A model is calibrated by all of them; of code, the proof is all that is wanted."""
    seen: list[int] = []

    def learn(
        groups: Sequence[Group], block: Sequence[Group], memory: str | None
    ) -> Dialogue[tuple[Bet | None, str | None]]:
        yield from ()
        seen.append(len(groups))
        return Bet(0.9, 0.0, {"present": [1.0] * len(block)}), memory

    proving = prove_learning(learn, [(place,) for place in range(140)], LEVEL, ENDS, memory)
    test, *_ = answer_all(proving, refuse)
    assert test.is_accepted and test.seen == 20
    assert seen == ([*ENDS][:-1] if memory else [20])


def test_what_is_learnt_must_also_beat_the_best_constant_verdict_where_one_is_named() -> None:
    better = [(n % 2 == 0, n % 10 < 8) for n in range(400)]  # right of half, and of four in five
    assert prove(better) and prove(better, constant="pass", passes=5)
    assert not prove(better, constant="fail", passes=2), "always fail is right of as many"


@pytest.mark.parametrize("constant", ["pass", "fail"])
def test_what_is_learnt_must_beat_the_constant_verdict_at_the_prices_of_errors(
    constant: Verdict,
) -> None:
    """Of ten tickets one has the other label. What is learnt finds it, for two false alarms, or two
    missed failures: too many at equal prices, few if that one is dear."""
    passes = {"pass": 9, "fail": 1}[constant]
    rare = {"pass": 9, "fail": 0}[constant]
    rights = [(n % 10 != rare, n % 10 not in (3, 6)) for n in range(400)]
    for price, is_proven in ((1.0, False), (8.0, True)):
        dear = PriceConfig(missed_failure=price) if rare else PriceConfig(false_alarm=price)
        assert prove(rights, constant=constant, passes=passes, prices=dear.by_label) == is_proven


NULLS = ("present", "constant")
GAINS = st.lists(st.sampled_from([-0.9, 0.0, 0.9]), min_size=6, max_size=6)


@given(st.tuples(GAINS, GAINS))
@example(([0.9, *[-0.9] * 4, 0.0], [0.0, *[0.9] * 5]))
def test_two_nulls_are_rejected_where_each_of_them_would_be_alone(
    gains: tuple[list[float], list[float]],
) -> None:
    """What is proven stays proven, whatever later blocks bring while the other catches up."""

    def accept(*nulls: str) -> bool:
        def learn(
            groups: Sequence[Group], block: Sequence[Group], memory: None
        ) -> Dialogue[tuple[Bet | None, None]]:
            yield from ()
            gained = {
                name: own[ENDS.index(len(groups))]
                for name, own in zip(NULLS, gains, strict=True)
                if name in nulls
            }
            return Bet(0.3, 0.1, {name: [one] * len(block) for name, one in gained.items()}), None

        proving = prove_learning(learn, [(place,) for place in range(140)], LEVEL, ENDS, None)
        return answer_all(proving, refuse)[0].is_accepted

    assert accept(*NULLS) == all(map(accept, NULLS))


def test_luck_proves_something_with_the_chance_of_the_level_at_most() -> None:
    draw, proven = Random(5), 0
    for _ in range(400):
        proven += prove([(draw.random() < 0.5, draw.random() < 0.5) for _ in range(120)])
    assert proven <= 400 * LEVEL + 2 * (400 * LEVEL) ** 0.5
