"""Rules as code: read exactly or not at all, checked against what tickets hold, and judged as the
follower judges."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, compress, pairwise, product

import pytest
from guidance.rules.made_rules import judge_by_python, judge_by_sql, ticket, tickets_of
from hypothesis import given, settings
from hypothesis import strategies as st

from stageb.engines.protocol import Decode
from stageb.guidance.exports.protocol import CodedMission
from stageb.guidance.judging.answers import parse_answer
from stageb.guidance.judging.follower import respond
from stageb.guidance.rules import value_types
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.conditions import (
    All,
    Expression,
    Limit,
    Mentions,
    Not,
    OneOf,
    OutOfReach,
    Some,
    compile_expression,
)
from stageb.guidance.rules.conditions.base import TWO_WAYS
from stageb.guidance.rules.conditions.words import is_mentionable
from stageb.guidance.rules.judge import (
    begin_rule,
    check_proposal,
    find_unknown,
    read_rules,
    write_rule,
)
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.predicates import PointsReached, mentions
from stageb.guidance.rules.prompts import WORDS, rollout_prompt
from stageb.guidance.rules.value_types import (
    ANY,
    Reading,
    find_mentioned,
    find_phrases,
    has_phrase,
    read_content,
)
from stageb.guidance.rules.vocabulary import Vocabulary, order_values
from stageb.guidance.words.types import Content, Guidance, Operation, Proposal, Rule, Ticket

EN = WORDS["en"]


@pytest.mark.parametrize(
    ("language", "said", "canonical"),
    [
        ("en", "Torque is not below 40", "Torque is at least 40"),
        ("en", "Torque is greater than 40 Nm", "Torque is above 40 Nm"),
        ("en", "Torque is no more than 40", "Torque is at most 40"),
        ("en", "Torque < 40 and Type = H", "Torque is below 40 and Type is H"),
        ("en", "Type is neither H nor L", "Type is not H or L"),
        (
            "en",
            "Type is H or Type is L or Torque is above 40",
            "Type is H or L or Torque is above 40",
        ),
        ("zh", "Torque至少40", "Torque不小于40"),
        ("zh", "Torque至多40 Nm", "Torque不大于40 Nm"),
        ("zh", "摘要没有提到nm", "摘要未提到nm"),
    ],
)
def test_common_wordings_say_what_ours_do(language: str, said: str, canonical: str) -> None:
    words = WORDS[language]
    begin, end = begin_rule("fail", words)
    vocabulary = Vocabulary.of(
        [ticket({"Torque": f"{40 + i} Nm", "Type": kind}) for i, kind in enumerate("HLM")]
    )
    code = parse_rule(f"{begin}{said}{end}", vocabulary, words)
    assert isinstance(code, RuleCode)
    assert write_rule(code, words) == f"{begin}{canonical}{end}"


@pytest.mark.parametrize(
    ("said", "written"), [("1", "1.0"), ("1.0", "1"), ("2.5", "2.50"), ("H", "h")]
)
def test_a_value_is_the_same_however_a_program_writes_it(said: str, written: str) -> None:
    code = parse_rule(
        f"Fail if A300 is {said}.",
        Vocabulary.of([ticket({"A300": said}), ticket({"A300": "0"})]),
        WORDS["en"],
    )
    assert isinstance(code, RuleCode)
    holds = compile_expression(code.expression)
    assert holds(reading(ticket({"A300": written})))
    assert not holds(reading(ticket({"A300": f"{written}1"})))
    assert isinstance(
        parse_rule(
            f"Fail if A300 is {written}.", Vocabulary.of([ticket({"A300": said})]), WORDS["en"]
        ),
        RuleCode,
    )


@pytest.mark.parametrize(
    "said", ["Torque is high", "Torque is above 40 kg", "Torque is between 40 Nm and 41 Nm"]
)
def test_a_wording_of_a_number_that_is_not_read_is_out_of_reach_but_refused_by_nobody(
    said: str,
) -> None:
    vocabulary = Vocabulary.of(
        [ticket({"Torque": f"{40 + i} Nm", "Type": kind}) for i, kind in enumerate("HLM")]
    )
    read = parse_rule(f"Fail if {said}.", vocabulary, WORDS["en"])
    assert isinstance(read, OutOfReach)
    assert not read.unknown


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from("Fail if is and or , Type H not above unless Pass".split())).map(
        " ".join
    )
)
def test_any_text_is_read_or_refused(text: str) -> None:
    read = parse_rule(text, Vocabulary.of(tickets_of("en")), EN)
    assert isinstance(read, OutOfReach) or parse_rule(
        write_rule(read, EN), Vocabulary.of(tickets_of("en")), EN
    ) == RuleCode(read.verdict, read.condition, read.exception)


def test_names_with_and_and_or_in_them_are_found_by_the_tickets() -> None:
    read = parse_rule(
        "Fail if cap and seal is torn or worn and Type is H or L.",
        Vocabulary.of(tickets_of("en")),
        EN,
    )
    assert read == RuleCode(
        "fail", All((OneOf("cap and seal", ("torn or worn",)), OneOf("Type", ("H", "L"))))
    )


def test_of_all_ways_to_cut_a_rule_one_has_the_most_conditions_or_none_is_read() -> None:
    """Each value may hold the words of what follows it."""
    pieces = ["a is x", "b is y", "c is z"]
    spans = {(i, j): " and ".join(pieces[i:j]) for i, j in combinations(range(4), 2)}
    cuts = [(0, *ends, 3) for most in range(3) for ends in combinations((1, 2), most)]
    kept = 0
    for flags in product((False, True), repeat=len(spans)):
        known = {*compress(spans, flags)}
        vocabulary = Vocabulary.of(
            [
                Ticket("m", "g", "pass", (), content=Content(((field, value),), ()))
                for field, _, value in (spans[span].partition(" is ") for span in known)
            ]
        )
        ways = [len(cut) - 1 for cut in cuts if known.issuperset(pairwise(cut))]
        read = parse_rule(f"Fail if {spans[0, 3]}.", vocabulary, EN)
        if ways and ways.count(max(ways)) == 1:
            assert isinstance(read, RuleCode)
            assert read.expression.size == max(ways)
            kept += 1
        else:
            assert isinstance(read, OutOfReach)
            assert (read == TWO_WAYS) == bool(ways)
    assert kept > 20


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "Fail if TorationalSpeed rpm is below 1390.",
            "no ticket has 'TorationalSpeed rpm'; the nearest is 'RotationalSpeed rpm'",
        ),
        ("Fail if Type is Q.", "no ticket has 'Type' as 'Q'"),
        (
            "Fail if a summary mentions steins.",
            "no ticket mentions 'steins'; the nearest is 'stain'",
        ),
        ("Fail if Type is above 3.", "'Type' is no number in any ticket"),
        ("Fail if Torque Nm is above many.", "'many' is neither a number nor a field"),
        (
            "Fail if Torque Nm is above 2,5.",
            "'2,5' is neither a number nor a field; the nearest is '2.5'",
        ),
    ],
)
def test_what_no_ticket_has_is_named_with_the_nearest(text: str, why: str) -> None:
    vocabulary = Vocabulary.of(tickets_of("en"))
    proposal = Proposal(0, "{}", (Operation("add", None, (), text, "", ()),), ())
    checked = check_proposal(proposal, vocabulary, EN)
    assert (checked.operations, [refusal.reason for refusal in checked.refusals]) == ((), [why])
    rules = Guidance("m", 0, (Rule("G0", EN.neutral_headline), Rule("G1", text)), 2)
    assert [(each.rule, each.why) for each in find_unknown(rules, vocabulary, EN)] == [("G1", why)]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Torque Nm is above 3 kg", "no ticket has 'Torque Nm' in 'kg'"),
        (
            "Torque Nm - RotationalSpeed rpm is above 1 mm",
            "'Torque Nm - RotationalSpeed rpm' has no unit; write the number alone, without 'mm'",
        ),
        (
            "Torque Nm - RotationalSpeed rpm is 3",
            "'Torque Nm - RotationalSpeed rpm' is compared by above or below alone",
        ),
        ("it looks odd", "it compares no fields"),
    ],
)
def test_what_no_code_can_compare_is_said_with_the_reason(said: str, why: str) -> None:
    code = parse_rule(f"Fail if {said}.", Vocabulary.of(tickets_of("en")), EN)
    assert isinstance(code, OutOfReach) and code.why == why


def test_free_wording_stays_possible() -> None:
    vocabulary = Vocabulary.of(tickets_of("en"))
    proposal = Proposal(
        0, "{}", (Operation("add", None, (), "Fail if anything looks unsafe.", "", ()),), ()
    )
    assert check_proposal(proposal, vocabulary, EN) == proposal
    texts = Vocabulary.of(
        [Ticket("m", "g", "pass", (("image_1", "the hose leaks at the coupling"),))]
    )
    proposal = Proposal(
        0, "{}", (Operation("add", None, (), "Fail if the order is about a leak.", "", ()),), ()
    )
    assert check_proposal(proposal, texts, EN) == proposal


def test_a_field_is_missing_unless_some_ticket_has_that_as_its_value() -> None:
    tickets = [
        ticket({"Seal": "worn", "Hose": "missing"}),
        ticket({"Hose": "new"}),
        ticket({"Seal": "", "Hose": "missing"}),
    ]
    for said, wanted in (
        ("Seal is missing", [0, 1, 1]),
        ("Seal is not missing", [1, 0, 0]),
        ("Hose is missing", [1, 0, 1]),
    ):
        code = parse_rule(f"Fail if {said}.", Vocabulary.of(tickets), EN)
        assert isinstance(code, RuleCode)
        assert [compile_expression(code.expression)(reading(each)) for each in tickets] == wanted


def test_what_is_said_twice_is_said_once() -> None:
    vocabulary = Vocabulary.of(tickets_of("en"))
    texts = [
        "Fail if a summary mentions lid, stain or lid.",
        "Fail if Type is H or H and Type is H.",
    ]
    proposal = Proposal(
        0, "{}", tuple(Operation("add", None, (), text, "", ()) for text in texts), ()
    )
    said = [operation.text for operation in check_proposal(proposal, vocabulary, EN).operations]
    assert said == ["Fail if a summary mentions lid or stain.", "Fail if Type is H."]


def test_a_phrase_is_found_whole_and_in_order_with_endings_or_without() -> None:
    texts = [
        "the hose leaks, oil on the floor",
        "leaking hoses at the pump",
        "hose: leak oil",
        "an oil leak",
    ]
    tickets = [Ticket("m", text, "pass", (("image_1", text),)) for text in texts]
    vocabulary = Vocabulary.of(tickets)
    for phrase, found in {
        "hose leak": "0",
        "leak hose": "1",
        "leak oil": "2",
        "oil leak": "3",
        "the floor": "0",
    }.items():
        code = parse_rule(f"Fail if a summary mentions {phrase}.", vocabulary, EN)
        assert isinstance(code, RuleCode)
        holds = compile_expression(code.expression)
        assert [str(place) for place, each in enumerate(tickets) if holds(reading(each))] == [found]
    # all that are counted may be named
    assert all(is_mentionable(each) for text in texts for each in find_phrases(text))
    for phrase in ("leak, oil", "leaks oil", "oil the floor", "oil on the floor"):
        read = parse_rule(f"Fail if a summary mentions {phrase}.", vocabulary, EN)
        assert isinstance(read, OutOfReach) or read.condition == Mentions(("leak", "oil")), phrase


@pytest.mark.parametrize(
    "said",
    [
        "at least 2 of (Type is H; Type is H; is sealed is no)",
        "at least 4 of (Type is H; Torque Nm is above 40; is sealed is no)",
        "at most 3 of (Type is H; Torque Nm is above 40; is sealed is no)",
        "at least 0 of (Type is H; is sealed is no)",
        "at least 2 of (Type is H)",
        "at least 2 of (Type is H; Torque Nm is above 40; is sealed is no",
        "at least 2 of (Type is H; at least 1 of (Torque Nm is above 40; is sealed is no))",
        "at least 2 of (Type is H; Torque Nm is above 40 and is sealed is no)",
        "at least two of (Type is H; is sealed is no)",
    ],
)
def test_a_count_that_is_not_exact_is_out_of_reach(said: str) -> None:
    assert isinstance(
        parse_rule(f"Fail if {said}.", Vocabulary.of(tickets_of("en")), EN), OutOfReach
    )


@pytest.mark.parametrize("text", ["Fail if .", "Fail unless .", "Fail if  ."])
def test_a_rule_without_a_condition_is_out_of_reach_rather_than_about_all_tickets(
    text: str,
) -> None:
    assert isinstance(parse_rule(text, Vocabulary.of(tickets_of("en")), EN), OutOfReach)


def test_a_rule_that_is_too_long_is_told_so() -> None:
    """And not that it is worded wrongly."""
    for many, why in (
        (30, "it has more than 24 parts"),
        (200, "it has more than 4,000 characters"),
    ):
        said = " or ".join(["Torque Nm is above 40"] * many)
        read = parse_rule(f"Fail if {said}.", Vocabulary.of(tickets_of("en")), EN)
        assert isinstance(read, OutOfReach) and read.why == why
    read = parse_rule("If it is so, then fail" * 200, Vocabulary.of(tickets_of("en")), EN)
    assert (
        isinstance(read, OutOfReach)
        and read.why == "it does not begin with a verdict and 'if' or 'unless'"
    )


def test_a_count_holds_where_so_many_do_and_is_unknown_where_it_hangs_on_what_is_not_told() -> None:
    text = (
        "Fail if at least 2 of (Type is H or L; Torque Nm is above 40; is sealed is no) and "
        "Grade is 1."
    )
    code = parse_rule(text, Vocabulary.of(tickets_of("en")), EN)
    assert isinstance(code, RuleCode)
    assert write_rule(code, EN) == text
    holds = compile_expression(code.expression)
    first = {"Grade": "1", "Type": "H"}
    assert holds(reading(ticket({**first, "is sealed": "no"}))) is True
    assert holds(reading(ticket(first))) is None
    assert holds(reading(ticket({**first, "Torque Nm": "12.5"}))) is None
    assert holds(reading(ticket({**first, "Torque Nm": "12.5", "is sealed": "yes"}))) is False


def test_what_a_ticket_does_not_tell_is_unknown_and_spreads_only_where_it_matters() -> None:
    bare = reading(ticket({"Type": "H"}))
    torque, type_h = Limit("Torque Nm", "above", "40"), OneOf("Type", ("H",))
    type_l = OneOf("Type", ("L",))
    assert compile_expression(torque)(bare) is None
    assert compile_expression(Not(torque))(bare) is None
    assert compile_expression(All((type_h, torque)))(bare) is None
    assert compile_expression(All((type_l, torque)))(bare) is False
    assert compile_expression(Some((type_h, torque)))(bare) is True
    assert compile_expression(Some((type_l, torque)))(bare) is None


RULES = st.lists(
    st.builds(
        lambda verdict, join, names: (
            f"{verdict} {join} " + " and ".join(f"{name} {value}" for name, value in names) + "."
        ),
        st.sampled_from(["Pass", "Fail"]),
        st.sampled_from(["if", "unless"]),
        st.lists(
            st.sampled_from(["Type", "state", "colour"]).flatmap(
                lambda name: st.sampled_from(["is H", "is L", "is not H"]).map(
                    lambda rest: (name, rest)
                )
            ),
            min_size=1,
            max_size=2,
            unique_by=lambda term: term[0],
        ),
    ),
    max_size=4,
)


@settings(deadline=None)
@given(
    RULES,
    st.fixed_dictionaries(
        {name: st.sampled_from(["H", "L"]) for name in ("Type", "state", "colour")}
    ),
)
def test_verdicts_are_those_of_a_model_that_follows_rules_by_their_letter(
    texts: list[str], fields: dict[str, str]
) -> None:
    rules = tuple(Rule(f"G{n}", text) for n, text in enumerate([EN.neutral_headline, *texts]))
    guidance, one = Guidance("m", 0, rules, len(rules)), ticket(fields)
    vocabulary = Vocabulary.of(ticket(dict.fromkeys(fields, value)) for value in ("H", "L"))
    answer = parse_answer(
        respond(rollout_prompt(one, guidance, EN), Decode(temperature=0.0), 0), EN
    )
    assert answer is not None
    coded = read_rules(guidance, vocabulary, EN)
    ruling = coded.compile()(reading(one))
    assert ruling.verdict == answer[0]
    exported = CodedMission("m", 0, coded)
    assert judge_by_python([exported])(fields).verdict == answer[0]
    assert judge_by_sql(exported, [fields]) == [(answer[0], ruling.rule)]


Q, RUST = OneOf("Type", ("Q",)), Mentions(("rust",))


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("Fail if Type is Q and a summary mentions rust.", All((Q, RUST))),
        ("Fail if Type is Q and Torque Nm is above 3.", All((Q, Limit("Torque Nm", "above", "3")))),
        ("Fail if Type is not Q.", Not(Q)),
        ("Fail if a summary mentions rust or lid.", Mentions(("rust", "lid"))),
        ("Fail if Type is Q or a summary mentions rust.", Some((Q, RUST))),
        ("Fail if Type is Q or Z.", None),  # one value or two?
        ("Fail if Type is Q or H.", None),
        ("Fail if Type is H or Q.", None),
        ("Fail if Type is H, Q or L.", None),
        ("Fail if Type is Q and lid is no.", None),
        ("Fail if Typ is H.", None),
        ("Fail if Type is above 3.", None),
        ("Fail if a summary mentions rusty nails.", Mentions(("rusty nails",))),
        ("Fail if a summary mentions nail*.", Mentions(("nail*",))),
        ("Fail if a summary mentions na*.", None),
        ("Fail if a summary mentions four very rusty nails.", None),
    ],
)
def test_where_tickets_may_lack_a_value_it_is_taken_as_it_stands_if_that_is_all_it_can_be(
    text: str, condition: Expression | None
) -> None:
    vocabulary = Vocabulary.of(tickets_of("en"))
    guidance = Guidance("m", 0, (Rule("G0", EN.neutral_headline), Rule("G1", text)), 2)
    (closed,), (opened,) = (
        read_rules(guidance, vocabulary, EN, is_whole).each for is_whole in (True, False)
    )
    assert isinstance(closed.code, OutOfReach)
    assert opened.code == (RuleCode("fail", condition) if condition else closed.code)


def test_a_rule_out_of_reach_leaves_open_what_hangs_on_it() -> None:
    vocabulary = Vocabulary.of(tickets_of("en"))
    rules = (
        Rule("G0", EN.neutral_headline),
        Rule("G1", "Fail if anything looks odd."),
        Rule("G2", "Pass if Type is H."),
    )
    judge = read_rules(Guidance("m", 0, rules, 3), vocabulary, EN).compile()
    assert judge(reading(ticket({"Type": "H"}))).verdict == "pass"
    assert judge(reading(ticket({"Type": "L"}))).verdict is None


def test_a_hostile_list_is_read_in_time() -> None:
    vocabulary = Vocabulary.of(
        [ticket({"state": value}) for value in ("a", "a or a", "a or a or a")]
    )
    read = parse_rule("Fail if state is " + " or ".join(["a"] * 300), vocabulary, EN)
    assert isinstance(read, OutOfReach)
    read = parse_rule("Fail if state is " + "a or " * 20 + "b", vocabulary, EN)
    assert isinstance(read, OutOfReach)


# Values that have an order, and rules that rank by them

VALUES = ["vhigh", "med", "Low", "high"]
VOCABULARY = Vocabulary.of(
    ticket({"cost": value, "colour": hue}) for value, hue in zip(VALUES, "abcd", strict=True)
)


@pytest.mark.parametrize(
    ("values", "ordered"),
    [
        (["vhigh", "med", "low", "high"], ("low", "med", "high", "vhigh")),
        (["Big", "small", "medium"], ("small", "medium", "Big")),
        (["very_low", "LOW", "High"], ("very_low", "LOW", "High")),
        (["low", "high"], ()),
        (["low", "med", "high", "blue"], ()),
        (["low", "med", "medium"], ()),
        (["red", "green", "blue"], ()),
        ([], ()),
    ],
)
def test_an_order_is_guessed_where_all_values_stand_on_a_well_known_scale(
    values: list[str], ordered: tuple[str, ...]
) -> None:
    assert order_values(values) == ordered


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ("is at least med", ("med", "high", "vhigh")),
        ("is at most med", ("Low", "med")),
        ("is above med", ("high", "vhigh")),
        ("is below med", ("Low",)),
        ("is not above low", ("Low",)),
        ("is no less than high", ("high", "vhigh")),
        ("is at least VHIGH", ("vhigh",)),
    ],
)
def test_a_rule_that_ranks_is_the_same_as_one_that_lists(
    said: str, values: tuple[str, ...]
) -> None:
    code = parse_rule(f"Fail if cost {said}.", VOCABULARY, EN)
    assert isinstance(code, RuleCode)
    assert code.condition == OneOf("cost", values)


@pytest.mark.parametrize(
    "said",
    ["cost is above vhigh", "cost is below low", "cost is at least huge", "colour is above a"],
)
def test_a_rank_that_nobody_has_is_out_of_reach(said: str) -> None:
    assert isinstance(parse_rule(f"Fail if {said}.", VOCABULARY, EN), OutOfReach)


def test_a_proposed_rule_that_ranks_is_written_as_a_list_which_other_tickets_read_alike() -> None:
    text = "Fail if cost is at least high and colour is a."
    proposal = Proposal(0, "{}", (Operation("add", None, (), text, "", ()),), ())
    (checked,) = check_proposal(proposal, VOCABULARY, EN).operations
    assert checked.text == "Fail if cost is high or vhigh and colour is a."


# What a ticket mentions

SAID = st.text("ab sedingé,.:;=-漏油", max_size=60)
ASKED = st.lists(
    st.one_of(
        st.sampled_from(["a", "be", "bed", "bes", "abé", "漏油", "b-d", "a*", "be*", "漏*"]),
        st.text("ab sedingé", min_size=1, max_size=8)
        .map(lambda word: " ".join(word.split()))
        .filter(bool),
        st.text("absedingé", max_size=4).map(lambda stem: stem + ANY),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=400)
@given(
    st.lists(SAID, max_size=2), st.lists(st.tuples(SAID.filter(str.strip), SAID), max_size=2), ASKED
)
def test_a_ticket_mentions_what_any_of_its_texts_does(
    prose: list[str], fields: list[tuple[str, str]], asked: list[str]
) -> None:
    read = read_content(Content(tuple(fields), tuple(prose)))
    in_pairs = [text for pair in read.pairs.items() for text in pair]
    words = read.words.union(*map(find_mentioned, in_pairs))
    expected = any(
        word in words
        or (word.endswith(ANY) and any(each.startswith(word.removesuffix(ANY)) for each in words))
        or (" " in word and any(has_phrase(text, word) for text in (*read.texts, *in_pairs)))
        for word in asked
    )
    assert mentions("", *asked)(read) is expected


def test_words_longer_than_those_that_count_are_found_in_phrases() -> None:
    for long in (46, 48, 49, 60):
        word = "a" * long
        assert mentions("", f"{word} is")(Reading({"note": f"{word}ing is new"}, frozenset()))
        assert not mentions("", f"{word} is")(Reading({"note": f"{word}ung is new"}, frozenset()))


def test_a_text_is_gone_through_once_for_all_words_that_rules_ask_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone: Counter[str] = Counter()

    def count(text: str) -> tuple[tuple[str, ...], ...]:
        gone[text] += 1
        return split(text)

    split = value_types.split_words
    monkeypatch.setattr(value_types, "split_words", count)
    read = Reading(
        {"note": "the hose is not open, and the seal is worn"},
        frozenset(),
        ("the hose leaks again",),
    )
    asked = [f"{one} {other}" for one in ("hose", "not", "the") for other in ("open", "worn", "is")]
    assert PointsReached(2, *((1, mentions("", phrase)) for phrase in asked)).count_above(read) == 0
    assert gone == {"note": 1, read.pairs["note"]: 1, "the hose leaks again": 1}
