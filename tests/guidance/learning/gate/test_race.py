from collections import Counter
from collections.abc import Callable, Collection, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stageb.guidance.judging.questions import Dialogue, answer_all
from stageb.guidance.learning.gate.race import (
    FEWEST_EDITS,
    LAPS,
    LEAST_SHARE,
    LOSS_PRICE,
    LUCK,
    EditGains,
    KindScore,
    Race,
    Score,
    TicketKind,
    cut_chunks,
    race,
    select_survivors,
)

CHUNK = 16
WRONG: TicketKind = ("fail", False)
RIGHT: TicketKind = ("pass", True)
KINDS: st.SearchStrategy[list[TicketKind]] = st.lists(
    st.tuples(st.sampled_from(["pass", "fail", "other"]), st.booleans()), min_size=1, max_size=150
)
SIZES = st.integers(1, 40)
GAIN = st.sampled_from([-1.0, -0.5, 0.0, 0.0, 0.25, 1.0])
KIND_SCORES = st.builds(KindScore, st.integers(1, 30), st.floats(0, 9), st.floats(0, 9))
SCORES = st.builds(
    lambda wrong, right: Score({WRONG: wrong, RIGHT: right}), KIND_SCORES, KIND_SCORES
)


@st.composite
def races(draw: st.DrawFn, most: int = 9) -> tuple[list[TicketKind], list[list[float]]]:
    """The tickets' kinds, and each edit's gains."""
    kinds = draw(KINDS)
    gains = st.lists(GAIN, min_size=len(kinds), max_size=len(kinds))
    return kinds, draw(st.lists(gains, min_size=1, max_size=most))


def told(
    gains: Sequence[Sequence[float]], free: Collection[int]
) -> Callable[..., Dialogue[list[EditGains]]]:
    def tell(asked: Sequence[tuple[int, Sequence[int]]]) -> Dialogue[list[EditGains]]:
        assert asked
        yield from ()  # nobody need be asked
        return [
            EditGains([gains[one][i] for i in positions], one in free) for one, positions in asked
        ]

    return tell


def run(
    kinds: Sequence[TicketKind],
    gains: Sequence[Sequence[float]],
    chunk: int = CHUNK,
    free: Collection[int] = (),
) -> Race:
    return answer_all(race(kinds, len(gains), told(gains, free), chunk), lambda question: None)


def scored(seen: int, won: float, lost: float) -> Score:
    """Won on tickets judged wrong, lost on others, so many seen of either."""
    return Score({WRONG: KindScore(seen, won), RIGHT: KindScore(seen, 0.0, lost)})


def whole(kinds: Sequence[TicketKind], gains: Sequence[float]) -> Score:
    return Score().plus(kinds, gains)


# Chunks


@example([], 1)
@given(KINDS, SIZES)
def test_chunks_partition_the_tickets(kinds: list[TicketKind], size: int) -> None:
    cut = cut_chunks(kinds, size)
    assert sorted(i for chunk in cut for i in chunk) == list(range(len(kinds)))
    assert all(len(chunk) == size for chunk in cut[:-1])
    assert all(0 < len(chunk) <= size for chunk in cut[-1:])


@given(KINDS, SIZES)
def test_chunks_hold_half_of_each_while_there_are_both(kinds: list[TicketKind], size: int) -> None:
    wrong, right = (
        [i for i, kind in enumerate(kinds) if not kind[1]],
        [i for i, kind in enumerate(kinds) if kind[1]],
    )
    for chunk in cut_chunks(kinds, size):
        shares = len(set(chunk) & set(wrong)), len(set(chunk) & set(right))
        assert shares[0] >= min(len(wrong), size // 2)
        assert shares[1] >= min(len(right), size - size // 2)
        wrong, right = [i for i in wrong if i not in chunk], [i for i in right if i not in chunk]


@pytest.mark.parametrize(
    ("passing", "expected"),
    [(0, 1 - LEAST_SHARE), (5, 1 - LEAST_SHARE), (24, 0.5), (43, LEAST_SHARE), (48, LEAST_SHARE)],
)
def test_what_an_edit_threatens_is_most_of_what_is_judged_right(
    passing: int, expected: float
) -> None:
    """Where faults pass, an edit against them threatens what passes rightly, however little of it
    there is."""
    counts: dict[TicketKind, int] = {
        ("fail", True): 900,
        ("pass", True): 100,
        ("pass", False): passing,
        ("fail", False): 48 - passing,
    }
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    for chunk in cut_chunks(kinds, 16)[:6]:
        assert [kinds[i] for i in chunk].count(("pass", True)) == 8 * expected
        assert [kinds[i] for i in chunk].count(("fail", True)) == 8 * (1 - expected)


# Scores


@given(races(most=1), st.integers(0, 90))
def test_a_score_adds_up(made: tuple[list[TicketKind], list[list[float]]], cut: int) -> None:
    kinds, (gains,) = made
    score = whole(kinds, gains)
    parts = Score().plus(kinds[:cut], gains[:cut]).plus(kinds[cut:], gains[cut:])
    assert parts == score
    assert score.seen == len(gains)
    assert score.won - score.lost == pytest.approx(sum(gains))
    won, lost = score.rates(Counter(kinds))
    assert won - lost <= sum(gains) / len(gains) + 1e-9
    assert lost == pytest.approx(-sum(gain for gain in gains if gain < 0) / len(gains))
    assert score.expected(Counter(kinds)) == pytest.approx(sum(gains))
    lost = -sum(gain for gain in gains if gain < 0)
    assert score.expected(Counter(kinds), LOSS_PRICE) == pytest.approx(
        sum(gains) - (LOSS_PRICE - 1) * lost
    )


def test_rates_are_weighed_by_the_tickets_at_hand_and_not_by_the_chunk() -> None:
    """A chunk is half wrong, half right; where most tickets are judged right already, losses weigh
    more."""
    score = scored(32, 8.0, 2.0)
    mostly_right, even = {WRONG: 64, RIGHT: 448}, {WRONG: 256, RIGHT: 256}
    assert score.expected(mostly_right) == 64 * 8 / 32 - 448 * 2 / 32
    assert select_survivors([score], mostly_right) == []
    assert select_survivors([score], even) == [0]
    assert score.rates(mostly_right) == (64 / 512 * (8 - LUCK) / 32, 448 / 512 * 2 / 32)
    assert scored(32, LUCK / 2, 0.0).rates(mostly_right) == (0, 0)
    assert Score().expected(mostly_right) == 0


# Who goes on


@example([scored(30, 9.0, 2.5), *[scored(30, 3.0, 0.0)] * 9], 30, 30)
@given(st.lists(SCORES, max_size=12), st.integers(0, 200), st.integers(0, 200))
def test_the_better_half_goes_on_with_the_one_of_most_gain(
    scores: list[Score], wrong: int, right: int
) -> None:
    pool = {WRONG: wrong, RIGHT: right}
    kept = select_survivors(scores, pool)
    hopeful = [i for i, score in enumerate(scores) if score.expected(pool) > 0]
    assert set(kept) <= set(hopeful)
    assert len(set(kept)) == len(kept) == min(len(hopeful), max(FEWEST_EDITS, -(-len(scores) // 2)))
    if hopeful:
        most = max(scores[i].expected(pool) for i in hopeful)
        assert most in {scores[i].expected(pool) for i in kept}
    careful = [scores[i].expected(pool, LOSS_PRICE) for i in kept]
    assert careful[:-1] == sorted(careful[:-1], reverse=True)
    dropped = [scores[i].expected(pool, LOSS_PRICE) for i in hopeful if i not in kept]
    assert all(each <= min(careful[:-1], default=float("inf")) for each in dropped)


@given(st.lists(SCORES, max_size=12), st.integers(0, 200), st.integers(0, 200))
def test_at_first_free_places_go_to_those_that_one_ticket_more_would_make_hopeful(
    scores: list[Score], wrong: int, right: int
) -> None:
    pool = {WRONG: wrong, RIGHT: right}
    kept, early = select_survivors(scores, pool), select_survivors(scores, pool, early=True)
    assert early[: len(kept)] == kept
    assert len(set(early)) == len(early) <= max(FEWEST_EDITS, len(kept))
    for i in early[len(kept) :]:
        seen = scores[i].by_kind[WRONG]
        luckier = Score({**scores[i].by_kind, WRONG: KindScore(seen.seen, seen.won + 1, seen.lost)})
        assert luckier.expected(pool) > 0


@given(races(), SIZES)
def test_edits_that_cost_nothing_see_all_tickets(
    made: tuple[list[TicketKind], list[list[float]]], chunk: int
) -> None:
    kinds, gains = made
    outcome, at_once = run(kinds, gains, chunk, range(len(gains))), run(kinds, gains, len(kinds))
    assert sorted(outcome.positions) == sorted(at_once.positions) == list(range(len(kinds)))
    assert outcome.scores == tuple(
        whole([kinds[i] for i in outcome.positions], [each[i] for i in outcome.positions])
        for each in gains
    )
    assert len(outcome.ranked) == len(at_once.ranked)


def test_an_edit_that_costs_nothing_outlives_a_cut_and_others_do_not() -> None:
    """It breaks one of the first tickets and mends many of the last; beside it stand better
    ones."""
    kinds = [WRONG, RIGHT] * 48
    late = [-1.0 if i == 1 else float(kind == WRONG and i > 40) for i, kind in enumerate(kinds)]
    steady = [float(kind == WRONG and i % 8 == 0) for i, kind in enumerate(kinds)]
    gains = [*[steady] * 8, late]
    assert 8 not in run(kinds, gains).ranked
    outcome = run(kinds, gains, free=[8])
    assert outcome.leader == 8


def test_an_edit_that_happens_to_win_nothing_at_first_may_still_win_the_race() -> None:
    """It mends one wrong ticket in six, and none of the first chunk's eight."""
    kinds = [WRONG, RIGHT] * 48
    slow = [float(kind == WRONG and i > CHUNK and i % 12 == 0) for i, kind in enumerate(kinds)]
    assert run(kinds, [slow, [0.0] * len(kinds)]).ranked == (0,)


# The race


@given(races(), SIZES)
def test_those_that_are_ranked_saw_all_tickets_and_the_leader_gained_most_of_them(
    made: tuple[list[TicketKind], list[list[float]]], chunk: int
) -> None:
    kinds, gains = made
    outcome = run(kinds, gains, chunk)
    pool, seen = Counter(kinds), outcome.positions
    assert len(seen) == len(set(seen))
    assert len(outcome.scores) == len(gains)
    for one in outcome.ranked:
        assert outcome.scores[one] == whole([kinds[i] for i in seen], [gains[one][i] for i in seen])
        assert outcome.scores[one].expected(pool) > 0
    if outcome.ranked:
        assert len(seen) == min(len(kinds), LAPS * chunk)
        most = max(outcome.scores[one].expected(pool) for one in outcome.ranked)
        assert outcome.leader in outcome.ranked
        assert outcome.scores[outcome.leader].expected(pool) == most
    else:
        assert outcome.leader is None


@given(races(), SIZES)
@example(([WRONG] * (LAPS + 1), [[1.0] * (LAPS + 1)]), 1)
def test_what_a_race_costs_is_bounded(
    made: tuple[list[TicketKind], list[list[float]]], size: int
) -> None:
    """Halved after each chunk, rounding up, down to ``FEWEST_EDITS``."""
    kinds, gains = made
    seen = [score.seen for score in run(kinds, gains, size).scores]
    most, begun = len(gains), 0
    assert max(seen) <= LAPS * size
    for chunk in cut_chunks(kinds, size)[:LAPS]:
        assert sum(count > begun for count in seen) <= most
        most, begun = max(FEWEST_EDITS, -(-most // 2)), begun + len(chunk)


def test_losers_are_dropped_early() -> None:
    kinds = [WRONG, RIGHT] * (2 * CHUNK)
    idle, worse = [0.0] * len(kinds), [0.0, -1.0] * (2 * CHUNK)
    better = [1.0, 0.0] * (2 * CHUNK)
    outcome = run(kinds, [idle, worse, idle, better, worse, idle])
    assert (outcome.ranked, outcome.leader) == ((3,), 3)
    idle_too = 2 * CHUNK  # one ticket won in the first chunk would have done
    assert [score.seen for score in outcome.scores] == [
        idle_too,
        CHUNK,
        idle_too,
        len(kinds),
        CHUNK,
        idle_too,
    ]


def test_the_most_careful_comes_first_and_the_one_of_most_gain_leads() -> None:
    kinds = [WRONG] * 30 + [RIGHT] * 30
    careful = [float(i % 3 == 0) for i in range(30)] + [0.0] * 30
    broad = [1.0] * 30 + [-float(i % 3 == 0) for i in range(30)]
    outcome = run(kinds, [broad, careful])
    assert (outcome.ranked, outcome.leader) == ((1, 0), 0)
