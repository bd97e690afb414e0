from __future__ import annotations

import json
from dataclasses import fields, replace
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from guidance.made import guidances
from hypothesis import given, settings
from hypothesis import strategies as st

from stageb.errors import BadInputError
from stageb.guidance.commands.govern.shared import GuidanceChange, apply_change
from stageb.guidance.config import GateConfig
from stageb.guidance.learning.gate.budget import compute_spending, divide_budget
from stageb.guidance.rules.edits import apply
from stageb.guidance.rules.guidance_json import from_json, to_json
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.read_guidance import keep_origins, load_seed, make_neutral, read_guidance
from stageb.guidance.rules.rules_as_text import parse
from stageb.guidance.words.types import (
    NAME_LENGTH,
    NOTHING,
    UNCALIBRATED,
    Budget,
    Calibration,
    Estimate,
    Guidance,
    JudgeName,
    Operation,
    Rule,
)
from stageb.untrusted import strict_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.sampled_from(["", "G0", "a rule", "\n"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["step", "next_number", "experiences", "metadata", "G0", "G1", "G01", "m", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


TORN = {"source": "g1::fail", "per_image": {"image_1": "torn"}, "verdict": "fail"}
NO_DEMONSTRATIONS: list[Any] = [
    {},
    [TORN, "torn"],
    [TORN, 5],
    [TORN, None],
    [TORN, {}],
    [{**TORN, "per_image": [["image_1", "torn"]]}],
    [{**TORN, "per_image": {"image_1": 1}}],
    [{**TORN, "source": 7}],
    [{**TORN, "verdict": "maybe"}],
    [{**TORN, "more": "x"}],
]


def seed(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "guidance.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@given(guidances())
def test_json_and_back(guidance: Guidance) -> None:
    written = json.dumps(to_json(guidance), ensure_ascii=False)
    assert from_json(strict_json.loads(written), "x") == {guidance.mission: guidance}


def test_a_user_may_write_experiences_alone_in_any_order(tmp_path: Path) -> None:
    path = seed(
        tmp_path,
        {
            "m": {"experiences": {"G10": "ten", "G2": "two", "G0": "head"}},
            "n": {"experiences": {"G0": "h"}},
        },
    )
    missions = load_seed(path)
    assert [rule.key for rule in missions["m"].rules] == ["G0", "G2", "G10"]
    assert (missions["m"].step, missions["m"].next_number) == (0, 11)
    assert set(missions) == {"m", "n"}


def test_a_user_may_write_demonstrations_without_their_rules(tmp_path: Path) -> None:
    path = seed(tmp_path, {"m": {"experiences": {"G0": "h"}, "demonstrations": [TORN]}})
    [shown] = load_seed(path)["m"].shown
    assert (shown.source, shown.per_image, shown.verdict, shown.rule) == (
        "g1::fail",
        (("image_1", "torn"),),
        "fail",
        "",
    )


def test_a_byte_order_mark_is_forgiven(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"m": {"experiences": {"G0": "h"}}}).encode())
    assert load_seed(path)["m"].rules[0].text == "h"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "not an object"),
        ({}, "headline"),
        ({"experiences": {"G1": "one"}}, "headline"),
        ({"experiences": {"G0": "h", "G01": "x"}}, "'G01'"),
        ({"experiences": {"G0": "h", "rule": "x"}}, "'rule'"),
        ({"experiences": {"G0": "h", "G1": 5}}, "G1: not a text"),
        ({"experiences": {"G0": " "}}, "G0: an empty text"),
        ({"experiences": {"G0": "h", "G1": "a\nG2. b"}}, r"U\+000A"),
        ({"experiences": {"G0": "h", "G1": "a\u202eb"}}, r"U\+202E"),
        ({"experiences": {"G0": "h"}, "step": -1}, "step: -1"),
        ({"experiences": {"G0": "h"}, "step": True}, "step: True"),
        ({"experiences": {"G0": "h", "G4": "x"}, "next_number": 4}, "at least 5"),
        ({"experiences": {"G0": "h"}, "step": 10**50}, "beyond 999999"),  # no room to count on
        ({"experiences": {"G0": "h"}, "next_number": 10**50}, "beyond 999999"),
        ({"experiences": {"G0": "h", "G1000000": "x"}}, "beyond 999999"),
        ({"experiences": {"G0": "h", "G999999999999": "x"}}, "'G999999999999'"),
        ({"experiences": {"G0": "h"}, "metadata": []}, "metadata"),
        ({"experiences": {"G0": "h"}, "metadata": {"G3": {}}}, "'G3'"),
        ({"experiences": {"G0": "h"}, "named": [["Type"]]}, "named: not"),
        ({"experiences": {"G0": "h"}, "named": [["Type", 5]]}, "named: not"),
        ({"experiences": {"G0": "h"}, "named": [["Type", "a\nb"]]}, "named: not"),
        ({"experiences": {"G0": "h"}, "named": [["Type", "x" * 5000]]}, "named: not"),
        ({"experiences": {"G0": "h"}, "rules": {}}, "unknown field 'rules'"),
        *(
            ({"experiences": {"G0": "h"}, "demonstrations": shown}, "demonstrations: not")
            for shown in NO_DEMONSTRATIONS
        ),
    ],
)
def test_each_fault_names_file_mission_and_place(tmp_path: Path, body: object, says: str) -> None:
    path = seed(tmp_path, {"valves": body})
    with pytest.raises(BadInputError, match=says) as raised:
        load_seed(path)
    assert str(path) in str(raised.value)
    assert "mission 'valves'" in str(raised.value)


def test_all_faults_come_together(tmp_path: Path) -> None:
    path = seed(tmp_path, {"a": {"experiences": {"G0": "", "x": "y"}}, "b": 3})
    with pytest.raises(BadInputError) as raised:
        load_seed(path)
    assert len(raised.value.bad) == 3


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "not JSON"), ("{", "not JSON"), ("[]", "not an object of missions"), ("{}", "not an object of missions"),
     ('{"m": {"experiences": {"G0": "a", "G0": "b"}}}', "'G0' is given twice"),
     ('{"a\\u202eb": {"experiences": {"G0": "x"}}}', "its name has the character U.202E")],
)  # fmt: skip
def test_files_that_hold_something_else(tmp_path: Path, content: str, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        load_seed(seed(tmp_path, content))


@pytest.mark.parametrize(
    ("rules", "line", "says"),
    [
        ('"G0": "a",\n"G1": "b: {\\"",\n"G1": "c"', 5, "'G1' is given twice"),
        ('"G0": "G0", "G1": "NaN",\n"G2": NaN', 4, "NaN is no JSON number"),
    ],
)
def test_what_is_no_json_is_told_with_its_line(
    tmp_path: Path, rules: str, line: int, says: str
) -> None:
    path = seed(
        tmp_path, '{"l": {"experiences": {"G0": "a"}},\n "m": {"experiences": {\n' + rules + "}}}"
    )
    with pytest.raises(BadInputError, match=says) as raised:
        load_seed(path)
    assert [bad.line for bad in raised.value.bad] == [line]


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="No such file"):
        load_seed(tmp_path / "none.json")
    with pytest.raises(BadInputError, match="directory"):
        load_seed(tmp_path)
    for name in ("a\0b", "\ud800"):
        with pytest.raises(BadInputError, match="name a readable"):
            load_seed(name)
    (tmp_path / "latin").write_bytes(b'{"m\xe9": 1}')
    with pytest.raises(BadInputError, match="not UTF-8"):
        load_seed(tmp_path / "latin")


def test_a_device_without_end_is_refused() -> None:
    with pytest.raises(BadInputError, match="more than 64 MiB"):
        load_seed("/dev/zero")


def test_a_run_can_count_on_from_the_highest_numbers(tmp_path: Path) -> None:
    path = seed(
        tmp_path, {"m": {"experiences": {"G0": "h", "G999999": "Fail if a."}, "step": 999_999}}
    )
    added = apply(
        load_seed(path)["m"], [Operation("add", None, (), "Fail if b.", "", ("g::fail",))]
    )
    assert added.rules[-1].key == "G1000000"
    assert from_json(to_json(added), "commit.json") == {"m": added}


@pytest.mark.parametrize(
    "spent",
    [
        [],
        {"edits": [0, 0]},
        {"edits": [-0.01, 0, 0]},
        {"edits": [0, 0, True]},
        {"edits": [0, 0, 1.01]},
        {"edits": [0, 0, "0"]},
        {"removals": 0},
    ],
)
def test_what_was_spent_cannot_be_written_so_that_more_is_left(
    tmp_path: Path, spent: object
) -> None:
    path = tmp_path / "guidance.json"
    path.write_text(json.dumps({"m": {"experiences": {"G0": "headline"}, "spent": spent}}))
    with pytest.raises(BadInputError, match=r"mission 'm': spent: .*0 to 1 each"):
        load_seed(path)


SPENT = Budget((0.01, 0.0, 0.02))


def test_a_step_back_does_not_give_back_what_was_spent(tmp_path: Path) -> None:
    path = tmp_path / "shared.json"
    rules = (Rule("G0", "headline"),)
    for guidance in (
        Guidance("m", 0, rules, 1),
        Guidance("m", 1, (*rules, Rule("G1", "Fail if a is b.")), 2, SPENT),
    ):
        apply_change(
            path,
            GuidanceChange("promoted from", "", guidance, new=True),
            lambda before, after: True,
        )
    assert read_guidance(f"{path}@0")["m"] == Guidance("m", 0, rules, 1, SPENT)
    by_hand = Guidance("m", 9, (*rules, Rule("G1", "Fail if c is d.")), 2)
    apply_change(
        path, GuidanceChange("promoted from", "", by_hand, new=True), lambda before, after: True
    )
    assert read_guidance(path)["m"].spent == SPENT
    # the same rules, on which a run has spent more
    more = replace(by_hand, spent=SPENT.plus(SPENT))
    apply_change(
        path, GuidanceChange("promoted from", "", more, new=True), lambda before, after: True
    )
    assert read_guidance(path)["m"].spent == SPENT.plus(SPENT)


SEEN = st.frozensets(st.sampled_from([f"{n:012x}" for n in range(4)]))


@settings(max_examples=30)
@given(st.lists(st.tuples(SEEN, SEEN), min_size=2, max_size=4), st.data())
def test_no_step_forgets_which_tickets_taught_or_chose_what_came_later(
    made: list[tuple[frozenset[str], frozenset[str]]], data: st.DataObject
) -> None:
    """Neither a step back, nor one that a person takes: on these tickets nothing is proven anew."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "shared.json"

        def use(guidance: Guidance) -> None:
            change = GuidanceChange("promoted from", "", guidance, new=True)
            apply_change(path, change, lambda before, after: True)

        for step, (taught, chosen) in enumerate(made):
            rules = (Rule("G0", "headline"), Rule("G1", f"Fail if a is {step}."))
            use(Guidance("m", step, rules, 2, taught_by=taught, chosen_by=chosen))
        past = read_guidance(f"{path}@{data.draw(st.integers(0, len(made) - 1))}")["m"]
        use(replace(past, rules=past.rules[:1], taught_by=frozenset(), chosen_by=frozenset()))
        for guidance in (past, read_guidance(path)["m"]):
            assert guidance.taught_by == frozenset().union(*(taught for taught, _ in made))
            assert guidance.chosen_by == frozenset().union(*(chosen for _, chosen in made))


def test_what_was_spent_may_be_whole_numbers_as_the_remedy_shows_them_and_what_older_files_had(
    tmp_path: Path,
) -> None:
    file = tmp_path / "guidance.json"
    spent = {"edits": [0, 1, 0], "removals": 0.002, "margin": 0}
    file.write_text(
        json.dumps({"valves": {"experiences": {"G0": "A ticket passes."}, "spent": spent}})
    )
    more = Budget((0.25, 0.0, 0.0))
    assert load_seed(file)["valves"].spent.plus(more) == Budget((0.25, 1.0, 0.0))


def test_spent_counts_on_the_tickets_that_taught_and_never_makes_more_of_the_budget() -> None:
    whole = divide_budget(GateConfig(), 2)
    assert whole.chance == pytest.approx(GateConfig().alpha / 2)
    learnt = Guidance(
        "m",
        1,
        (Rule("G0", "headline"), Rule("G1", "a")),
        2,
        SPENT,
        taught_by=frozenset({"aa", "bb"}),
    )
    # whatever else was removed
    assert compute_spending(learnt, ["aa", "cc"]) == compute_spending(learnt, ["aa"]) == SPENT
    assert compute_spending(learnt, ["cc"]) == NOTHING
    # nobody knows what taught it
    assert compute_spending(replace(learnt, taught_by=frozenset()), ["cc"]) == SPENT
    left = whole.less(SPENT)
    assert left.edits[0] == 0 < left.edits[1] < 0.01
    assert left.edits[2] == 0


# Rules that a person writes in a text file: slips are told by line, and no wording is refused


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("G3 Fail if seal is worn.", "rules.txt:2: 'G3' is no number"),
        ("g3. Fail if seal is worn.", "rules.txt:2: 'g3.' is no number"),
        ("G3: Fail if seal is worn.", "rules.txt:2: 'G3:' is no number"),
        ("Gx Fail if seal is worn.", "rules.txt:2: 'Gx' is no number"),
        ("G. Fail if seal is worn.", "rules.txt:2: 'G.' is no number"),
        ("Fial if seal is worn.", "rules.txt:2: 'Fial' is no verdict; did you mean Fail?"),
        ("G3. Fial if seal is worn.", "rules.txt:2: 'Fial' is no verdict; did you mean Fail?"),
        ("Pas unless seal is worn.", "rules.txt:2: 'Pas' is no verdict; did you mean Pass?"),
    ],
)
def test_slips_are_told_by_line(line: str, told: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse(f"[m]\n{line}\n", "rules.txt", WORDS["en"])
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "Fails when worn.",
        "Go on if worn.",
        "GPU fans: fail if worn.",
        "A fail if worn.",
        "fail if worn",
        "Gauge: 3",
    ],
)
def test_other_wordings_stand(line: str) -> None:
    content, _ = parse(f"[m]\n{line}\n", "rules.txt", WORDS["en"])
    assert content["m"]["experiences"] == {"G0": WORDS["en"].neutral_headline, "G1": line}


@pytest.mark.parametrize("head", [[], ["G0. A lid is low unless a rule says more."]])
def test_labels_may_be_named_anywhere_in_their_mission(head: list[str]) -> None:
    rules = [*head, "High if seal is worn.", "Mid if seal is old."]
    found = []
    for place in range(len(rules) + 1):
        lines = ["[m]", *rules[:place], "labels: low | high | mid", *rules[place:]]
        found.append(parse("\n".join(lines), "rules.txt", WORDS["en"])[0])
    assert all(each == found[0] for each in found)
    headline = found[0]["m"]["experiences"]["G0"]
    assert [f"G0. {headline}"] == head or "low" in headline


@pytest.mark.parametrize("has_labels", [False, True])
def test_no_rule_is_lost_whichever_lines_have_numbers(has_labels: bool) -> None:
    """A line without one gets a number beyond all before it; one given twice is told."""
    start = ["[m]", *(["labels: low | high"] if has_labels else [])]
    read = 0
    for numbers in product((None, 1, 2, 3), repeat=4):
        keys: list[int] = []
        for number in numbers:
            keys.append(number or max(keys, default=0) + 1)
        rules = {f"G{key}": f"High if seal is {place}." for place, key in enumerate(keys)}
        lines = [
            f"G{number} (fixed). High if seal is {place}."
            if number
            else f"High if seal is {place}."
            for place, number in enumerate(numbers)
        ]
        text = "\n".join([*start, *lines])
        grow = all(before < after for before, after in pairwise(keys))
        if len(rules) < len(keys) or not (grow or has_labels):
            with pytest.raises(BadInputError, match=r"G\d after G\d"):
                parse(text, "rules.txt", WORDS["en"])
            continue
        content, places = parse(text, "rules.txt", WORDS["en"])
        assert list(content["m"]["experiences"].items())[1:] == list(rules.items())
        fixed = [key for key, number in zip(rules, numbers, strict=True) if number]
        assert [*content["m"]["metadata"]] == fixed
        assert [places["m", "experiences", key] - len(start) for key in rules] == [1, 2, 3, 4]
        read += 1
    assert read > 10


def test_a_calibration_stays_where_a_person_changed_no_rule_and_goes_where_one_did() -> None:
    """It was fitted to what the model was shown."""
    base = Guidance(
        "m",
        3,
        (Rule("G0", "headline"), Rule("G1", "Fail if a is b.")),
        2,
        calibration=Calibration(2.0, 0.5),
    )
    assert keep_origins(base, replace(base, step=0, calibration=UNCALIBRATED)) == base
    changed = replace(base, rules=(base.rules[0], Rule("G1", "Fail if a is c.")))
    kept = keep_origins(base, changed)
    assert (kept.step, kept.calibration) == (4, UNCALIBRATED)


@pytest.mark.parametrize(("judge", "left"), [("rules", "rules"), ("model", "")])
def test_rules_that_a_person_changed_are_judged_by_no_model_that_was_chosen_for_others(
    judge: JudgeName, left: JudgeName
) -> None:
    base = Guidance("m", 3, (Rule("G0", "headline"), Rule("G1", "Fail if a is b.")), 2, judge=judge)
    changed = replace(base, rules=(base.rules[0], Rule("G1", "Fail if a is c.")), judge="")
    assert keep_origins(base, replace(base, judge="")).judge == judge
    assert keep_origins(base, changed).judge == left


@given(guidances(), st.data())
def test_no_key_is_given_again_after_a_person_takes_rules_out_or_adds_one(
    base: Guidance, data: st.DataObject
) -> None:
    left = data.draw(st.integers(1, len(base.rules)))
    texts = {each.key: each.text for each in base.rules[:left]}
    if data.draw(st.booleans()):  # the person leaves numbers out
        texts[f"G{base.next_number + 1}"] = "Fail if it is the person's own."
    content = {base.mission: {"experiences": texts}}
    kept = keep_origins(base, from_json(content, "g.json")[base.mission])
    learnt = apply(kept, [Operation("add", None, (), "Fail if new.", "why", ("g1::fail",))])
    new = {each.key for each in learnt.rules} - {each.key for each in kept.rules}
    assert new.isdisjoint(each.key for each in base.rules)
    assert all(int(each.key[1:]) < kept.next_number for each in kept.rules)


@pytest.mark.parametrize("name", [each.name for each in fields(Estimate)])
@pytest.mark.parametrize("figure", [10**4000, 1e300, -1, True, "1", None, float("nan")])
def test_an_estimate_that_no_run_comes_to_is_none(name: str, figure: Any) -> None:
    """A file of guidance may come from others: of what it tells, lines for people are made."""
    estimate: dict[str, Any] = {
        "tickets": 237,
        "acc_before": 0.7,
        "acc": 0.9,
        "cost_before": 0.3,
        "cost": 0.1,
    }
    rule = Rule("G1", "Fail if Seal is worn.", {"provisional": True, "estimate": estimate})
    assert rule.estimate == Estimate(237, 0.7, 0.9, 0.3, 0.1)
    assert (
        replace(
            rule, metadata={"provisional": True, "estimate": {**estimate, name: figure}}
        ).estimate
        is None
    )


@given(
    st.frozensets(
        st.text("0123456789abcdef", min_size=NAME_LENGTH, max_size=NAME_LENGTH), min_size=2
    )
)
def test_what_taught_a_guidance_is_written_in_one_order(names: frozenset[str]) -> None:
    """Whatever the hashes of a process are: equal runs leave equal bytes."""
    plain = to_json(replace(make_neutral("m", WORDS["en"]), taught_by=names, chosen_by=names))["m"]
    for key in ("taught_by", "chosen_by"):
        written = [
            plain[key][place : place + NAME_LENGTH]
            for place in range(0, len(plain[key]), NAME_LENGTH)
        ]
        assert written == sorted(names)
