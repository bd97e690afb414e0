from collections.abc import Sequence
from dataclasses import replace

from guidance.trials import PRESENT, TOKENS, World, numbered, rules, worlds
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.config import GateConfig
from stageb.guidance.judging.questions import Dialogue
from stageb.guidance.learning.gate.decide import Edit
from stageb.guidance.learning.gate.judgements import Judge, Verdicts, ask_once, digest
from stageb.guidance.words.costs import PriceConfig
from stageb.guidance.words.types import Calibration, Demonstration, Guidance

OF_LABELS, EVEN = (
    Calibration.of_labels(("high", "low", "none"), 1.0, offsets)
    for offsets in ((0.5, 0.0, 0.0), (0.0, 0.0, 0.0))
)

Asked = Sequence[tuple[Guidance, Sequence[int]]]


@given(worlds(), st.data())
def test_each_ticket_is_asked_once_under_each_text_and_counted(
    made: tuple[World, list[Edit], list[int], list[int]], data: st.DataObject
) -> None:
    world, edits, *_ = made
    judge, position = world.judge(), st.sampled_from(range(len(world.tickets)))
    world.by_rules = {rules(edit.guidance) for edit in edits[::2]}  # as code judges, for nothing
    # the last one reads as the first
    guidances = [PRESENT, *(edit.guidance for edit in edits), replace(PRESENT, step=9)]
    questions = st.lists(
        st.tuples(st.sampled_from(guidances), st.lists(position, max_size=9)), max_size=4
    )
    all_asked = data.draw(st.lists(questions, max_size=3))

    def in_turn(left: Sequence[Asked]) -> Dialogue[list[list[list[float]]]]:
        return (
            [(yield from judge.p_correct(left[0])), *(yield from in_turn(left[1:]))] if left else []
        )

    known = {rules(PRESENT): world.present, **world.table}
    assert world.answer(in_turn(all_asked)) == [
        [[known[rules(guidance)][i] for i in positions] for guidance, positions in asked]
        for asked in all_asked
    ]
    assert set(world.asked.values()) <= {1}
    assert world.verdicts.saved == sum(text in world.by_rules for text, _ in world.asked)
    assert world.verdicts.judged + world.verdicts.saved == len(world.asked)
    assert world.verdicts.tokens == TOKENS * len(world.asked)


def test_what_is_known_already_is_not_asked_for() -> None:
    world = World(numbered(4), [0.0, 1.0, 0.0, 1.0])
    known = Verdicts().plus(PRESENT, {0: 0.6, 1: 1.0, 2: 0.5})
    kinds, _ = world.answer(ask_once(world.judge().kinds([0, 1, 2, 3]), known))
    assert [right for _, right in kinds] == [True, True, False, True]
    assert dict(world.asked) == {(rules(PRESENT), 3): 1}


def test_gains_are_weighed_by_the_price_of_each_error() -> None:
    world = World(numbered(2), [0.0, 0.0])  # labelled pass, fail: answered fail, pass
    edit = world.edit("mends both", [1.0, 1.0])
    for price, gains in [
        (PriceConfig(), [1.0, 1.0]),
        (PriceConfig(missed_failure=4.0), [0.25, 1.0]),
        (PriceConfig(false_alarm=2.0), [1.0, 0.5]),
        (PriceConfig(missed_failure=2.0, false_alarm=8.0), [1.0, 0.25]),
    ]:
        assert world.answer(
            world.judge(prices=price.by_label).gains([(edit.guidance, [0, 1])])
        ) == [gains]


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12),
    st.sampled_from([(1.0, 1.0), (4.0, 1.0), (1.0, 20.0), (0.5, 0.25)]),
    st.dictionaries(st.integers(0, 11), st.sampled_from([0.05, 0.25, 0.5, 1.0])),
)
def test_verdicts_that_are_known_gain_as_much_as_those_that_are_asked_for(
    made: list[tuple[bool, bool]], prices: tuple[float, float], drawn: dict[int, float]
) -> None:
    """JudgedTicket by the price of each error, and by the chance that a ticket was drawn."""
    before, after = ([float(pair[place]) for pair in made] for place in (0, 1))
    world = World(numbered(len(made)), before)
    edit = world.edit("changes some", after)
    price = PriceConfig(*prices).by_label
    judge = Judge(world.tickets, GateConfig(), PRESENT, drawn, price)
    positions = [*range(len(made))][::-1]
    (asked,) = world.answer(judge.gains([(edit.guidance, positions)]))
    known = [{i: bool(each[i]) for i in positions} for each in (after, before)]
    assert judge.compare(*known) == asked


def test_a_ticket_that_was_drawn_more_rarely_speaks_for_those_left_out() -> None:
    """As drawn, both kinds of error count the same; none counts more than 1."""
    world = World(numbered(2), [0.0, 0.0])
    edit = world.edit("mends both", [1.0, 1.0])
    for chance, gain in ((0.25, 1.0), (0.5, 0.5), (1.0, 0.25)):
        judge = Judge(
            world.tickets, GateConfig(), PRESENT, {0: chance}, prices={"pass": 1.0, "fail": 4.0}
        )
        assert world.answer(judge.gains([(edit.guidance, [0, 1])])) == [[gain, 1.0]]


def test_an_edit_may_do_as_much_as_a_limit_says_and_no_more() -> None:
    """It lets one of ten pass that should fail, and turns two more. A verdict that is as likely as
    not is not right, before the edit or after it."""
    world = World(numbered(10), [0.5, 1.0, 0.5, 1.0, 0.0, 1.0, 0.0, *[1.0] * 3])
    edit = world.edit("turns three", [0.5, 0.0, 0.4, 1.0, 1.0, 1.0, 1.0, *[1.0] * 3])

    def exceeds(changed: float = 1.0, passes: float = 1.0) -> bool:
        limits = GateConfig(max_changed_verdicts=changed, max_false_passes=passes)
        judge = world.judge(limits)
        return world.answer(judge.exceeds_limits(edit.guidance, range(10)))

    assert not exceeds(changed=0.3)
    assert exceeds(changed=0.2)
    assert not exceeds(passes=0.1)
    assert exceeds(passes=0.09)


def test_where_there_is_no_limit_no_verdict_is_asked_for() -> None:
    world = World(numbered(4), [0.0] * 4)
    edit = world.edit("turns all", [1.0] * 4)
    assert not world.answer(world.judge().exceeds_limits(edit.guidance, range(4)))
    assert not world.asked


def test_a_guidance_is_known_by_what_a_model_sees_of_it() -> None:
    """Step and metadata make no difference to a verdict, a rule's key does."""
    world = World(numbered(3), [1.0, 0.0, 1.0])
    world.answer(world.judge().p_correct([(PRESENT, [0, 1, 2])]))
    again = Guidance(
        "m", 8, tuple(replace(rule, metadata={"sources": ["x"]}) for rule in PRESENT.rules), 9
    )
    assert world.verdicts.of(again) == {0: 1.0, 1: 0.0, 2: 1.0}
    others = (
        replace(PRESENT, rules=(replace(PRESENT.rules[0], key="G7"),)),
        replace(PRESENT, rules=(replace(PRESENT.rules[0], text="Look twice."),)),
        replace(PRESENT, demonstrations=(Demonstration("t", (("image_1", "x"),), "pass"),)),
        *(replace(PRESENT, judge=judge) for judge in ("rules", "weighed", "model")),
        *(replace(PRESENT, calibration=each) for each in (Calibration(2.0), OF_LABELS, EVEN)),
    )
    assert len({*map(digest, (PRESENT, *others))}) == len(others) + 1
    assert all(world.verdicts.of(other) == {} for other in others)


@given(worlds())
def test_a_digest_tells_apart_what_a_model_sees(
    made: tuple[World, list[Edit], list[int], list[int]],
) -> None:
    _, edits, *_ = made
    names = {rules(edit.guidance): digest(edit.guidance) for edit in edits}
    assert len(set(names.values())) == len(names)
    assert all(len(name) == 16 and int(name, 16) >= 0 for name in names.values())
    assert digest(replace(PRESENT, step=9)) == digest(PRESENT) != digest(replace(PRESENT, rules=()))
