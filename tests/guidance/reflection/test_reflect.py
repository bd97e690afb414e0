import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from stageb.engines.protocol import Completion, Prompt, Request
from stageb.guidance.config import ReflectionConfig
from stageb.guidance.prompts import ordered_cases
from stageb.guidance.reflection.reflect import Reflection, distinct, draw_cases, eligible, is_right, judged_again, reflect
from stageb.guidance.types import Answers, Guidance, Operation, Proposal, Record, Rule, Selection, Ticket, Verdict
from stageb.seeds import stream

GUIDANCE = Guidance("m", 2, (Rule("G0", "A ticket passes unless a rule fails it."), Rule("G1", "Fail if a is b.")), 2)
CONFIG = ReflectionConfig(num_proposals=6, max_cases=4)


def record(group: str, label: Verdict, match: bool = True, low: bool = False, set_aside: str = "") -> Record:
    ticket = Ticket("m", group, label, (("image_1", f"a: {group}"),))
    verdict = label if match else ("fail" if label == "pass" else "pass")
    selection = Selection(None if set_aside else verdict, f"why {group}", 0, 0.6 if low else 1.0, low, match, "")
    return Record(ticket, 1, 0, 2, Answers(ticket.key, 9, (), set_aside), selection)


def aside(group: str) -> Record:
    return record(group, "fail", match=False, set_aside="too long")


RECORDS = st.lists(
    st.builds(record, st.sampled_from("abcdefgh"), st.sampled_from(["pass", "fail"]), st.booleans(), st.booleans())
    | st.builds(aside, st.sampled_from("abcdefgh")),
    max_size=14,
)


class Parrot:
    """An engine that answers every request with the same text and remembers what it was asked."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[Request] = []

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        return [11 for _ in prompts]

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        self.asked += requests
        return [tuple(Completion(self.text, 1, "stop") for _ in request.keys) for request in requests]


def test_right_means_matching_with_agreement() -> None:
    assert is_right(record("a", "pass"))
    assert not is_right(record("a", "pass", match=False))
    assert not is_right(record("a", "pass", low=True))


def test_a_bundle_without_errors_can_not_teach() -> None:
    assert eligible([record("a", "pass"), record("b", "fail")]) == "all right with high agreement"
    assert eligible([]) == "no records"
    assert eligible([aside("a")]) == "every ticket was set aside"
    assert eligible([record("a", "pass"), aside("b")]) == "all right with high agreement"
    assert eligible([record("a", "pass"), record("b", "fail", low=True)]) == ""


@given(RECORDS, st.integers(1, 9), st.integers(0, 99))
def test_cases_show_one_kind_of_error_and_its_contrast(records: list[Record], most: int, key: int) -> None:
    cases = draw_cases(records, most, key)
    assert bool(cases) == (eligible(records) == "")
    if not cases:
        return
    assert cases == draw_cases(records, most, key) == ordered_cases(cases)
    assert len(cases) <= most
    assert len({case.ticket.key for case in cases}) == len(cases)
    wrong = [case for case in cases if not case.right]
    right = [case for case in cases if case.right]
    (label,) = {case.ticket.label for case in wrong}
    assert all(case.ticket.label != label for case in right)
    latest = {each.ticket.key: each for each in records if not each.answers.set_aside}
    for case in cases:
        assert case.right == is_right(latest[case.ticket.key])
    errors = sum(not is_right(each) and each.ticket.label == label for each in latest.values())
    contrast = sum(is_right(each) and each.ticket.label != label for each in latest.values())
    assert len(cases) == min(most, errors + contrast)  # no place is left empty that could teach
    assert len(wrong) >= min(errors, max(1, most // 2))
    assert len(right) == min(contrast, most - min(errors, max(1, most // 2)))


def test_kinds_of_error_come_in_their_shares() -> None:
    records = [record(f"f{n}", "fail", match=False) for n in range(9)] + [
        record(f"p{n}", "pass", low=True) for n in range(3)
    ]
    kinds = Counter(draw_cases(records, 2, stream("share", n))[-1].ticket.label for n in range(2000))
    assert 0.71 < kinds["fail"] / 2000 < 0.79


def test_every_error_gets_its_turn() -> None:
    records = [record(f"f{n}", "fail", match=False) for n in range(30)] + [record(f"p{n}", "pass") for n in range(30)]
    seen = {case.ticket.key for n in range(200) for case in draw_cases(records, 4, stream("turn", n))}
    assert len(seen) == 60


def asked(records: list[Record], key: int) -> list[Request]:
    """What a model is asked of these records."""
    engine = Parrot("x")
    reflect(records, GUIDANCE, engine, CONFIG, "en", key)
    return engine.asked


def test_each_answer_sees_a_draw_of_its_own() -> None:
    records = [record(f"f{n}", "fail", match=False) for n in range(30)] + [record(f"p{n}", "pass") for n in range(30)]
    assert len({request.prompt for request in asked(records, 5)}) == CONFIG.num_proposals
    assert asked(records, 5) == asked(records, 5)


def test_of_a_ticket_that_comes_twice_the_later_record_counts() -> None:
    assert eligible([record("a", "pass", match=False), record("a", "pass")])
    assert eligible([record("a", "pass"), record("a", "pass", match=False)]) == ""


def test_requests_carry_the_config_and_a_stream_each() -> None:
    records = [record("a", "fail", match=False), record("b", "pass")]
    requests = asked(records, 5)
    assert len({key for request in requests for key in request.keys}) == 6
    assert {len(request.keys) for request in requests} == {1}
    assert {request.decode.temperature for request in requests} == {CONFIG.temperature}
    assert {request.decode.max_new_tokens for request in requests} == {CONFIG.max_new_tokens}
    assert all("T2. a: a" in request.prompt.user and "why a" in request.prompt.user for request in requests)
    assert {request.keys for request in requests}.isdisjoint(request.keys for request in asked(records, 6))


def test_reflect_parses_each_answer_against_the_cases_it_saw() -> None:
    text = json.dumps({"operations": [{"op": "add", "text": "Fail if c is d.", "evidence": ["T2"]}]})
    bundle = [record("a", "fail", match=False), record("b", "pass"), aside("c")]
    proposals = reflect(bundle, GUIDANCE, Parrot(text), CONFIG, "en", 5).proposals
    assert [proposal.index for proposal in proposals] == list(range(6))
    assert all(proposal.operations[0].evidence == ("a::fail",) for proposal in proposals)
    assert reflect(bundle, GUIDANCE, Parrot("nonsense"), CONFIG, "en", 5).proposals[0].refusals[0].raw == "nonsense"


def test_reflect_counts_what_was_read_and_written() -> None:
    bundle = [record("a", "fail", match=False), record("b", "pass")]
    assert reflect(bundle, GUIDANCE, Parrot("x"), CONFIG, "en", 5).tokens == 6 * (11 + 1)


def test_reflect_asks_nothing_of_a_bundle_that_can_not_teach() -> None:
    engine = Parrot("x")
    assert reflect([record("a", "pass")], GUIDANCE, engine, CONFIG, "en", 5) == Reflection()
    assert engine.asked == []


def test_equal_edits_are_one_whatever_their_reasons_and_order() -> None:
    add = Operation("add", None, (), "Fail if c is d.", "why", ("a::fail",))
    remove = Operation("remove", "G1", (), "", "", ("a::fail",))
    merge = Operation("merge", None, ("G1", "G2"), "Fail.", "", ("a::fail",))
    made = [
        Proposal(0, "", (), ()),
        Proposal(1, "", (add,), ()),
        Proposal(2, "", (remove, add), ()),
        Proposal(3, "", (replace(add, rationale="other", evidence=("b::fail",)),), ()),
        Proposal(4, "", (add, remove), ()),
        Proposal(5, "", (merge,), ()),
        Proposal(6, "", (replace(merge, merged_from=("G2", "G1")),), ()),
        Proposal(7, "", (replace(add, text="Fail if c is e."),), ()),
    ]
    assert distinct(made) == [(made[1], 2), (made[2], 2), (made[5], 2), (made[7], 1)]


# The same bundle under edited guidance


@given(RECORDS, st.data())
def test_cases_are_shown_again_as_they_are_judged_now_but_for_what_was_broken_and_what_would_tell_of_other_bundles(
    records: list[Record], data: st.DataObject
) -> None:
    keys = sorted({each.ticket.key for each in records})
    merits = {key: data.draw(st.sampled_from([0.0, 0.4, 0.5, 0.6, 1.0])) for key in keys if data.draw(st.booleans())}
    bundle = {key for key in keys if data.draw(st.booleans())}
    again = judged_again(records, merits, bundle)
    kept = {each.ticket.key for each in again}
    assert {key for key, merit in merits.items() if merit > 0.5 and key in bundle} <= kept <= set(merits)
    assert all(key in bundle or merits[key] <= 0.5 for key in kept)
    assert [is_right(each) for each in again] == [merits[each.ticket.key] > 0.5 for each in again]
    for each in records:
        right = merits.get(each.ticket.key, 0.0) > 0.5
        if not is_right(each) and each.ticket.key in merits and not right:
            assert each in again  # still wrong: as it was
        if is_right(each) and not right:
            assert each not in again
    assert all(each.selection.verdict == each.ticket.label for each in again if is_right(each))
