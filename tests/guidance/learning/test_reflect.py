import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.engines.protocol import Completion, Prompt, Request
from stageb.guidance.commands.fit.reflection_row import make_row
from stageb.guidance.config import LoopConfig, ReflectionConfig
from stageb.guidance.judging.questions import answer_all
from stageb.guidance.learning.gate.decide import Decision
from stageb.guidance.learning.proposer import Bundle, GateResult, Lesson, why_ineligible
from stageb.guidance.learning.reflect import (
    ErrorKind,
    case_of,
    choose_cases,
    deciding_rule,
    merge_equal,
    of_kind,
    reflect,
)
from stageb.guidance.learning.state import MissionState, State
from stageb.guidance.rules.evidence import find_evidence
from stageb.guidance.rules.prompts import WORDS, Case, ordered_cases
from stageb.guidance.words.types import (
    Answers,
    Guidance,
    Operation,
    Proposal,
    Record,
    Rule,
    Selection,
    Ticket,
    Verdict,
)
from stageb.seeds import stream

GUIDANCE = Guidance(
    "m",
    2,
    (Rule("G0", "A ticket passes unless a rule fails it."), Rule("G1", "Fail if a is b.")),
    2,
)
CONFIG = ReflectionConfig(num_proposals=6, max_cases=4)
REASONS = ["so (G1)", "G1: a is b", "(G0)", "(G7)", "因为a为b（G1）", "not G1 but (G2)", "", None]


def record(match: bool = True, low: bool = False) -> Record:
    ticket = Ticket("m", "g", "pass", (("image_1", "a: b"),))
    selection = Selection(
        "pass" if match else "fail", "why", 0, 0.6 if low else 1.0, low, match, ""
    )
    return Record(ticket, 1, 0, 2, Answers(ticket.key, 9, ()), selection)


def case(group: str, label: Verdict, right: bool = True, reason: str | None = "why") -> Case:
    return Case(Ticket("m", group, label, (("image_1", f"a: {group}"),)), right, reason)


CASES = st.lists(
    st.builds(
        case,
        st.sampled_from("abcdefgh"),
        st.sampled_from(["pass", "fail"]),
        st.booleans(),
        st.sampled_from(REASONS),
    ),
    max_size=14,
    unique_by=lambda each: each.ticket.key,
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
        return [
            tuple(Completion(self.text, 1, "stop") for _ in request.keys) for request in requests
        ]


def reflection_of(
    judged: Sequence[Case], engine: Parrot, config: ReflectionConfig = CONFIG, key: int = 5
) -> Lesson:
    """What reflecting on ``judged`` brings, where ``engine`` answers."""
    steps = reflect(judged, GUIDANCE, engine.count_tokens, config, WORDS["en"], key)
    return answer_all(steps, lambda question: engine.generate(question.requests))


def test_right_means_matching_with_agreement() -> None:
    assert record().is_right
    assert not record(match=False).is_right
    assert not record(low=True).is_right
    assert case_of(record(low=True)) == Case(record().ticket, False, "why")


def test_tickets_without_errors_can_not_teach() -> None:
    assert why_ineligible([case("a", "pass"), case("b", "fail")]) == "all right with high agreement"
    assert why_ineligible([]) == "no ticket was judged"
    assert why_ineligible([case("a", "pass"), case("b", "fail", right=False)]) == ""


# Which cases


def test_the_rule_that_decided_is_the_last_that_a_reason_names() -> None:
    two = replace(GUIDANCE, rules=(*GUIDANCE.rules, Rule("G12", "Pass if c is d.")))
    for reason, rule in {
        "a is b (G1)": "G1",
        "G1: a is b": "G1",
        "因为a为b（G12）": "G12",
        "由于(G12)": "G12",
        "not G1 but (G12)": "G12",
        "G12 does not hold, G1 does": "G1",
        "no rule fails it (G0)": "",  # the headline decides where no rule does
        "G1 does not hold (G0)": "",
        "(G7)": "",  # no such rule
        "BIG1 and G1x and g1": "",
        "G" * 10_000 + "1" * 10_000: "",
        "": "",
        None: "",  # not asked for one
    }.items():
        assert deciding_rule(case("a", "fail", reason=reason), two) == rule, reason
    fixed = replace(two, rules=(*GUIDANCE.rules, Rule("G12", "Pass if c is d.", {"fixed": True})))
    assert deciding_rule(case("a", "fail", reason="c is d (G12)"), fixed) == "", "not to be mended"


@given(CASES, st.sampled_from(["pass", "fail"]), st.sampled_from(["", "G1"]))
def test_a_kind_of_error_is_a_label_and_where_a_rule_is_to_be_mended_its_tickets_alone(
    judged: list[Case], label: Verdict, rule: str
) -> None:
    errors, contrast = of_kind(judged, (label, rule), GUIDANCE)
    there = [each for each in judged if not rule or deciding_rule(each, GUIDANCE) == rule]
    assert errors == [
        each for each in there if (each.right, each.ticket.label == label) == (False, True)
    ]
    assert contrast == [
        each for each in there if (each.right, each.ticket.label == label) == (True, False)
    ]


@given(CASES, st.integers(1, 9), st.integers(0, 99))
def test_cases_show_one_kind_of_error_and_its_contrast(
    judged: list[Case], most: int, key: int
) -> None:
    kind, cases = choose_cases(judged, GUIDANCE, most, key)
    assert bool(cases) == (why_ineligible(judged) == "")
    if not cases:
        return
    assert (kind, cases) == choose_cases(judged, GUIDANCE, most, key)
    assert cases == ordered_cases(cases)
    assert len(cases) <= most
    assert len({each.ticket.key for each in cases}) == len(cases)
    errors, contrast = of_kind(judged, kind, GUIDANCE)
    wrong = [each for each in cases if not each.right]
    right = [each for each in cases if each.right]
    assert all(each in errors for each in wrong)
    assert all(each in contrast for each in right)
    # no place is left empty that could teach
    assert len(cases) == min(most, len(errors) + len(contrast))
    assert len(wrong) >= min(len(errors), max(1, most // 2))
    assert len(right) == min(len(contrast), most - min(len(errors), max(1, most // 2)))
    if kind[1]:  # one error of a rule says nothing of it
        assert len(errors) >= 2
        assert {deciding_rule(each, GUIDANCE) for each in cases} == {kind[1]} == {"G1"}


def kinds(judged: list[Case]) -> Counter[ErrorKind]:
    """Of 2000 answers, how many look at each kind of error."""
    return Counter(choose_cases(judged, GUIDANCE, 2, stream("share", n))[0] for n in range(2000))


def test_kinds_of_error_come_in_their_shares() -> None:
    judged = [case(f"f{n}", "fail", right=False) for n in range(9)] + [
        case(f"p{n}", "pass", right=False) for n in range(3)
    ]
    assert 0.71 < kinds(judged)["fail", ""] / 2000 < 0.79


def test_half_of_the_answers_that_meet_errors_of_a_rule_mend_it() -> None:
    judged = [
        case(f"p{n}", "pass", right=False, reason="(G1)" if n < 6 else "(G0)") for n in range(8)
    ]
    assert 0.34 < kinds(judged)["pass", "G1"] / 2000 < 0.41
    assert set(kinds(judged)) == {("pass", "G1"), ("pass", "")}
    assert set(kinds(judged[4:])) == {("pass", "G1"), ("pass", "")}  # two of it are enough
    assert set(kinds(judged[5:])) == {("pass", "")}


def test_no_rule_is_mended_where_nobody_knows_what_it_decides_rightly() -> None:
    """As with ``sampler.reasons: wrong``, where rightly judged tickets have no reasons."""
    wrong = [case(f"p{n}", "pass", right=False, reason="(G1)") for n in range(6)]
    unknown = [case(f"f{n}", "fail", reason=None) for n in range(3)]
    assert set(kinds(wrong + unknown)) == {("pass", "")}
    known = [*unknown, case("f9", "fail", reason="(G1)")]
    assert set(kinds(wrong + known)) == {("pass", "G1"), ("pass", "")}


def test_a_verdict_without_a_reason_was_asked_for_none() -> None:
    one = record(match=False)
    assert case_of(replace(one, selection=replace(one.selection, reason=""))).reason is None
    assert (
        case_of(replace(one, selection=replace(one.selection, verdict=None, reason=""))).reason
        == ""
    )


def test_every_error_gets_its_turn() -> None:
    seen = {
        each.ticket.key
        for n in range(200)
        for each in choose_cases(MANY, GUIDANCE, 4, stream("turn", n))[1]
    }
    assert len(seen) == 60


# What is asked

MANY = [case(f"f{n}", "fail", right=False) for n in range(30)] + [
    case(f"p{n}", "pass") for n in range(30)
]


def asked(judged: list[Case], key: int) -> list[Request]:
    """What a model is asked of these tickets."""
    engine = Parrot("x")
    reflection_of(judged, engine, CONFIG, key)
    return engine.asked


def test_each_answer_sees_a_draw_of_its_own() -> None:
    assert len({request.prompt for request in asked(MANY, 5)}) == CONFIG.num_proposals
    assert asked(MANY, 5) == asked(MANY, 5)


def test_requests_carry_the_config_and_a_stream_each() -> None:
    judged = [case("a", "fail", right=False), case("b", "pass")]
    requests = asked(judged, 5)
    assert len({key for request in requests for key in request.keys}) == 6
    assert {len(request.keys) for request in requests} == {1}
    assert {request.decode.temperature for request in requests} == {CONFIG.temperature}
    assert {request.decode.max_new_tokens for request in requests} == {CONFIG.max_new_tokens}
    assert all("T2. a: a => why" in request.prompt.user for request in requests)
    assert {request.keys for request in requests}.isdisjoint(
        request.keys for request in asked(judged, 6)
    )


def test_reflect_parses_each_answer_against_the_cases_it_saw() -> None:
    text = json.dumps(
        {"operations": [{"op": "add", "text": "Fail if c is d.", "evidence": ["T2"]}]}
    )
    judged = [case("a", "fail", right=False), case("b", "pass")]
    answered = reflection_of(judged, Parrot(text))
    assert [proposal.index for proposal in answered.proposals] == list(range(6))
    assert all(proposal.operations[0].evidence == ("a::fail",) for proposal in answered.proposals)
    assert [proposal.cases for proposal in answered.proposals] == [
        tuple(each.ticket.key for each in shown.cases) for shown in answered.shown
    ]
    assert reflection_of(judged, Parrot("nonsense")).proposals[0].refusals[0].raw == "nonsense"


@pytest.mark.parametrize(
    ("thinking", "why"),
    [
        ("on and on", "thinking never closed: raise reflection.max_new_tokens"),
        ("", "not one JSON object"),
    ],
)
def test_an_answer_without_a_text_is_refused_for_its_thoughts_if_it_has_any(
    thinking: str, why: str
) -> None:
    class Thinker(Parrot):
        def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
            return [(Completion("", 1, "length", thinking),) for _ in requests]

    judged = [case("a", "fail", right=False), case("b", "pass")]
    for proposal in reflection_of(judged, Thinker("")).proposals:
        (refused,) = proposal.refusals
        assert (proposal.operations, refused.raw) == ((), thinking)
        assert refused.reason.startswith(why)


def test_reflect_counts_what_was_read_and_written() -> None:
    judged = [case("a", "fail", right=False), case("b", "pass")]
    assert reflection_of(judged, Parrot("x")).tokens == 6 * (11 + 1)


def test_evidence_is_counted_over_all_tickets_of_the_kind_and_not_over_the_cases_alone() -> None:
    judged = [
        *(case("b", "fail", right=False, reason=None), case("b2", "fail", right=False)),
        *(
            replace(each, ticket=replace(each.ticket, per_image=(("image_1", "x: y"),)))
            for each in MANY
        ),
    ]
    for shown in reflection_of(judged, Parrot("x")).shown:
        assert len(shown.cases) == CONFIG.max_cases
        assert (shown.evidence.wrong, shown.evidence.right) == (32, 30)
    none = replace(CONFIG, evidence=0)
    assert all(not shown.evidence.clues for shown in reflection_of(judged, Parrot("x"), none).shown)


def test_a_bundles_row_has_what_was_counted_of_each_kind_of_error_once() -> None:
    judged = [
        case(f"{label}{n}", label, right=n > wrong, reason=None)
        for label, wrong in (("pass", 3), ("fail", 5))
        for n in range(9)
    ]
    lesson, mission = reflection_of(judged, Parrot("x")), MissionState(GUIDANCE)
    learnt = GateResult(Decision((), 0.0), mission.left)
    config, bundle = LoopConfig(tickets=["t.jsonl"]), Bundle(0, 5, tuple(judged))
    row = make_row(config, State({"m": mission}), bundle, lesson, learnt, mission)
    told = [(each["rule"], each["wrong"], each["right"]) for each in row["evidence"]]
    assert sorted(told) == [("", 4, 3), ("", 6, 5)]


@given(st.sampled_from([0.05, 0.2, 0.7, 1.0, 1.4, 5.0, 20.0]))
def test_a_clue_mends_more_than_it_breaks_at_the_prices_of_both(price: float) -> None:
    """Beside values that tell, some are so rare among errors that no price makes a rule of them."""
    counts = {"x": (40, 20), "y": (30, 60), "z": (10, 120)}  # errors, and tickets judged right
    judged = [
        Case(Ticket("m", f"{value}{n}", label, (("image_1", f"a: {value}"),)), is_right, None, cost)
        for value, both in counts.items()
        for label, is_right, cost, count in zip(
            ("fail", "pass"), (False, True), (price, 1.0), both, strict=True
        )
        for n in range(count)
    ]
    clues = reflection_of(judged, Parrot("x")).shown[0].evidence.clues
    single = {(each.wrong, each.right) for each in clues}
    for value in "xy":
        wrong, right = counts[value]
        assert (counts[value] in single) == (wrong * price > right), clues
    assert counts["z"] not in single


def test_evidence_to_mend_a_rule_is_counted_between_tickets_that_it_decided() -> None:
    def told(group: str, label: Verdict, right: bool, reason: str, text: str) -> Case:
        return Case(Ticket("m", group, label, (("image_1", text),)), right, reason)

    judged = [
        *(told(f"w{n}", "pass", False, "(G1)", "a: b; c: d") for n in range(9)),
        *(told(f"r{n}", "fail", True, "(G1)", "a: b; c: e") for n in range(9)),
        *(told(f"o{n}", "fail", True, "(G0)", "a: z; c: d") for n in range(9)),
    ]
    shown = reflection_of(judged, Parrot("x"), replace(CONFIG, num_proposals=20)).shown
    assert {each.rule for each in shown} == {"", "G1"}
    for each in shown:
        errors, contrast = of_kind(judged, ("pass", each.rule), GUIDANCE)
        wanted = find_evidence(
            [one.ticket for one in errors], [one.ticket for one in contrast], CONFIG.evidence
        )
        assert each.evidence == wanted
        assert (each.evidence.wrong, each.evidence.right) == ((9, 9) if each.rule else (9, 18))
        assert len(each.evidence.clues) == 1


def test_a_prompt_that_is_too_long_shows_fewer_cases_and_one_at_least() -> None:
    class Long(Parrot):
        def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
            return [
                100 + sum(line.startswith("T") for line in prompt.user.splitlines())
                for prompt in prompts
            ]

    config = replace(CONFIG, max_cases=20, max_prompt_tokens=107)
    assert {len(shown.cases) for shown in reflection_of(MANY, Long("x"), config).shown} == {7}
    config = replace(config, max_prompt_tokens=50)  # shorter than any prompt
    assert {len(shown.cases) for shown in reflection_of(MANY, Long("x"), config).shown} == {1}


# What is proposed


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
    assert merge_equal(made) == [(made[1], 2), (made[2], 2), (made[5], 2), (made[7], 1)]
