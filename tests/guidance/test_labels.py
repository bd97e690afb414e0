"""Missions whose tickets have labels of their own, from tickets to rules, report, evaluation and
export."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import log
from pathlib import Path
from typing import Any

import pytest
from guidance.rules.made_rules import Fields, judge_by_python, judge_by_sql, ticket
from hypothesis import given
from hypothesis import strategies as st
from programs import small

from stageb.__main__ import main
from stageb.cli.parsing import parse
from stageb.engines.protocol import Completion, Prompt, Question, Request
from stageb.errors import BadInputError
from stageb.guidance.config import DecodeConfig, PromptConfig, SamplerConfig
from stageb.guidance.exports.protocol import CodedMission
from stageb.guidance.judging.answers import parse_answer
from stageb.guidance.judging.rollout import judge_tickets, rollout
from stageb.guidance.judging.selection import select
from stageb.guidance.rules import rules_as_text
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.guidance_json import from_json, to_json
from stageb.guidance.rules.judge import read_rules
from stageb.guidance.rules.predicates import (
    CompiledRule,
    PointsReached,
    Ruling,
    make_judge,
    measure_margin,
    unreadable,
)
from stageb.guidance.rules.prompts import WORDS, name_labels, rollout_prompt, words_of
from stageb.guidance.rules.read_guidance import keep_origins, read_guidance
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.tickets.tickets import read_tickets
from stageb.guidance.words.types import PASS_FAIL

VALUES = 5
READING = reading(ticket({"seal": "new"}))
INSTRUCT = words_of(PromptConfig(style="instruct", prefill=False))
KEYS = {
    "runner.judge": "both",
    "reflection.scope": "all",
    "runner.epochs": 1,
    "split.train": 0.8,
    "split.val": 0.0,
    "split.test": 0.2,
}


def plant(path: Path, labels: int, seed: int, tickets: int = 600, anew: bool = False) -> Path:
    """Tickets of so many labels: each but the first has one value of a field that tells it.
    ``anew``: dealt by chance."""
    rng, names = random.Random(seed), [f"queue {chr(ord('a') + n)}" for n in range(labels)]
    fields = [f"field {n}" for n in range(max(4, labels))]
    said = [{name: f"v{rng.randrange(VALUES)}" for name in fields} for _ in range(tickets)]
    told = [
        next((names[n] for n in range(1, labels) if each[fields[n]] == "v0"), names[0])
        for each in said
    ]
    if anew:
        rng.shuffle(told)
    texts = ["; ".join(f"{name}: {value}" for name, value in each.items()) for each in said]
    return write(path, list(zip(told, texts, strict=True)))


def write(path: Path, rows: Sequence[tuple[object, str]]) -> Path:
    """A ticket file of labels and texts."""
    lines = (
        {"mission": "mail", "group_id": f"t{n}", "label": label, "per_image": {"image_1": text}}
        for n, (label, text) in enumerate(rows)
    )
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def learn(tickets: Path, root: Path, **keys: Any) -> Path:
    assert main(small.arguments(tickets, root, keys={**KEYS, **keys})) == 0
    return root / "run"


def read_rows(run: Path, file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "mail" / file).read_text().splitlines()]


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_room_for_few_labels_is_used_for_these(tmp_path: Path, size: int) -> None:
    """Six labels have a rule of one condition; of those that have no room, tickets get the
    commonest."""
    run = learn(plant(tmp_path / "t.jsonl", 7, 1, 360), tmp_path, **{"reflection.size": size})
    rules = list(
        json.loads((run / "mail" / "guidance.json").read_text())["mail"]["experiences"].values()
    )
    assert len(rules) == 1 + size and all(
        re.fullmatch(r"Queue \w if field \d is v0\.", rule) for rule in rules[1:]
    )


@pytest.mark.parametrize(
    ("labels", "seed"),
    [(3, 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((5, 2), (12, 3)))],
)
def test_planted_rules_are_found_and_proven(
    labels: int, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = learn(plant(tmp_path / "t.jsonl", labels, seed), tmp_path / "out", report=labels == 3)
    after = read_rows(run, "metrics.jsonl")[-1]
    assert after["split"] == "test" and after["acc"] > 0.97
    assert {
        edit["outcome"]
        for row in read_rows(run, "reflection.jsonl")
        for edit in row["gate"]["edits"]
    } == {"accepted"}
    guidance = read_guidance(run)["mail"]
    default, *others = guidance.labels
    assert guidance.rules[0].text == f"A ticket is {default} unless a rule says otherwise."
    assert {each.capitalize() for each in others} == {rule.text[:7] for rule in guidance.rules[1:]}
    assert "macro-F1" in capsys.readouterr().out
    if labels == 3:
        page = (run / "report.html").read_text()
        assert (
            "judged queue c" in page and "Found (recall)" in page and "Missed failure" not in page
        )


def test_a_line_judges_tickets_that_lack_its_field(tmp_path: Path) -> None:
    """Where no model knows the labels, nobody judges a ticket of which a line says neither yes nor
    no."""
    rng, rows = random.Random(1), []
    for _ in range(400):
        numbers = {name: rng.randrange(100) for name in ("amount", "age") if rng.random() < 0.85}
        about = rng.choice("abc")
        is_high = numbers.get("amount", 0) > 60 and about != "c"
        label = "queue b" if is_high else "queue c" if about == "b" else "queue a"
        rows.append(
            (
                label,
                "; ".join(
                    f"{name}: {value}" for name, value in [*numbers.items(), ("about", about)]
                ),
            )
        )
    run = learn(write(tmp_path / "t.jsonl", rows), tmp_path / "out")
    guidance = read_guidance(run)["mail"]
    assert any("amount (if given) " in rule.text for rule in guidance.rules)
    assert not any("points" in rule.text or "age" in rule.text for rule in guidance.rules)
    assert read_rows(run, "metrics.jsonl")[-1]["acc"] > 0.97


@pytest.mark.slow
def test_a_label_that_most_points_give_is_learnt_as_cards(tmp_path: Path) -> None:
    """Each label has points for values of all fields: no list of few conditions says that."""
    rng, rows = random.Random(1), []
    for _ in range(900):
        said = [rng.randrange(3) for _ in range(9)]
        points = [2 * said.count(value) + (said[0] == value) for value in range(3)]
        rows.append(
            (
                f"queue {'abc'[points.index(max(points))]}",
                "; ".join(f"field {n}: v{each}" for n, each in enumerate(said)),
            )
        )
    run = learn(write(tmp_path / "t.jsonl", rows), tmp_path / "out")
    assert read_rows(run, "metrics.jsonl")[-1]["acc"] > 0.9
    guidance = read_guidance(run)["mail"]
    default, *cards = guidance.rules
    assert default.text.startswith("A ticket is queue ") and len(cards) == 3
    assert all(
        re.match(r"Queue [abc] if it has -?\d+ points? or more: -?\d ", card.text) for card in cards
    )
    assert all(card.metadata["sources"] for card in cards)


@pytest.mark.parametrize("labels", [("pass", "fail"), ("low", "high", "mid")])
@pytest.mark.parametrize("engine", ["transformers", "scripted"])
@pytest.mark.parametrize("judge", ["both", "model"])
def test_what_tickets_settle_stands_in_the_config_of_the_run(
    labels: Sequence[str], engine: str, judge: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it can be learnt on from, and used, without them."""
    started: list[tuple[Any, str]] = []

    def start(config: Any, resolved_yaml: str, *_: object) -> int:
        started.append((config, resolved_yaml))
        return 0

    monkeypatch.setattr("stageb.guidance.loop.run", start)
    rows = [(labels[n % len(labels)], f"seal: v{n}") for n in range(60)]
    tickets = write(tmp_path / "t.jsonl", rows)
    keys = {"runner.judge": judge, "model.engine": engine, "reflection.scope": "auto"}
    assert main(small.arguments(tickets, tmp_path, keys=keys)) == 0
    ((config, resolved_yaml),) = started
    (tmp_path / "config.yaml").write_text(resolved_yaml)
    assert parse(["--config", str(tmp_path / "config.yaml")]).config == config


@pytest.mark.slow
def test_labels_dealt_by_chance_teach_nothing(tmp_path: Path) -> None:
    for seed in (0, 7):  # chance brings a rule and four that would do, were no proof asked for
        run = learn(
            plant(tmp_path / "t.jsonl", 4, seed, tickets=100, anew=True), tmp_path / str(seed)
        )
        assert len(read_guidance(run)["mail"].rules) == 1


def test_figures_of_a_run_and_of_evaluate_name_every_label(tmp_path: Path) -> None:
    tickets = plant(tmp_path / "t.jsonl", 3, 4, tickets=300)
    run = learn(tickets, tmp_path / "out")
    before = read_rows(run, "metrics.jsonl")[0]
    labels = {"queue a", "queue b", "queue c"}
    assert (
        labels
        == before["classes"].keys()
        == before["confusion"].keys()
        == {before["always"]["verdict"], *labels}
    )
    told = {label: row["queue a"] for label, row in before["confusion"].items()}
    assert (
        sum(told.values()) == before["n"]
        and before["macro_f1"] < before["acc"]
        and "fp" not in before
    )
    folder = tmp_path / "evaluation"
    arguments = [
        "--guidance",
        str(run),
        "--tickets",
        str(tickets),
        "--by",
        "rules",
        "--model.engine",
        "scripted",
    ]
    assert main(["evaluate", *arguments, "--output", str(folder)]) == 0
    figures = json.loads((folder / "evaluation.json").read_text())["figures"]["guidance"][
        "missions"
    ]["mail"]
    assert (
        figures["acc"] == figures["macro_f1"] == 1.0
        and figures["confusion"]["queue b"]["queue a"] == 0
    )
    assert main(["predict", *arguments, "--output", str(tmp_path / "rows.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == 300 and all(row["verdict"] == row["label"] for row in rows)


RULES = {
    "G0": "A ticket is low unless a rule says otherwise.",
    "G1": "High if seal is torn.",
    "G2": "Medium if seal is torn or worn.",
    "G3": "Low if part is hose.",
}


def test_rules_of_labels_are_judged_alike_by_python_and_sql() -> None:
    (guidance,) = from_json(
        {"m": {"experiences": RULES, "labels": ["low", "high", "medium"]}}, "g.json"
    ).values()
    pairs: list[Fields] = [
        {"seal": seal, "part": part}
        for seal in ("torn", "worn", "new", None)
        for part in ("hose", "pipe")
    ]
    tickets = list(map(ticket, pairs))
    coded = read_rules(guidance, Vocabulary.of(tickets), WORDS["en"])
    mission = CodedMission("m", 0, coded)
    by_rules, by_python = coded.compile(), judge_by_python([mission])
    found = [by_rules(reading(each)) for each in tickets]
    assert [(each.verdict, each.rule or None) for each in found] == judge_by_sql(mission, pairs)
    assert [by_python(pair) for pair in pairs] == found
    verdicts = ["high", "high", "medium", "medium", "low", "low", None, None]
    assert [each.verdict for each in found] == verdicts and found[-1].unknown == ("G1", "G2")
    assert from_json(to_json(guidance), "g.json") == {"m": guidance}


LABELS = ("a", "b", "c", "d")
HELD = st.lists(
    st.tuples(st.sampled_from(LABELS), st.sampled_from([True, False, None])), max_size=6
)


@given(HELD)
def test_a_verdict_is_given_where_all_that_is_unknown_leaves_it_the_same(
    held: list[tuple[str, bool | None]],
) -> None:
    def judge(of: Sequence[tuple[str, bool | None]]) -> str | None:
        rules = [
            CompiledRule(f"G{n}", "", (label,), partial(lambda it, _: it, it))
            for n, (label, it) in enumerate(of, 1)
        ]
        return make_judge(rules, "G0", LABELS)(READING).verdict

    places = [n for n, (_, it) in enumerate(held) if it is None]
    possible = set()
    for told in product([True, False], repeat=len(places)):
        known = dict(zip(places, told, strict=True))
        possible.add(judge([(label, known.get(n, it)) for n, (label, it) in enumerate(held)]))
    assert judge(held) == (possible.pop() if len(possible) == 1 else None)


def test_a_ruling_tells_how_far_points_reach_unless_a_rule_without_any_decides() -> None:
    card = CompiledRule("G1", "", ("fail",), PointsReached(4, (6, lambda _: True)))
    line = CompiledRule("G2", "", ("fail",), lambda _: True)
    labels = ("pass", "fail")
    assert make_judge([card], "G0", labels)(READING) == Ruling("fail", "G1", leads=(("fail", 2),))
    below = CompiledRule("G1", "", ("fail",), PointsReached(9, (6, lambda _: True)))
    assert make_judge([below], "G0", labels)(READING) == Ruling("pass", "G0", leads=(("fail", -3),))
    assert make_judge([below, line], "G0", labels)(READING) == Ruling("fail", "G2")


@given(
    st.lists(st.tuples(st.sampled_from(LABELS), st.integers(-3, 3)), min_size=1, max_size=6),
    st.booleans(),
)
def test_of_cards_side_by_side_the_one_that_is_furthest_above_decides(
    above: list[tuple[str, int]], has_unread: bool
) -> None:
    cards = [
        CompiledRule(f"G{n}", "", (label,), PointsReached(-points, (0, lambda _: True)))
        for n, (label, points) in enumerate(above, 1)
    ]
    unread = [CompiledRule("G9", "", LABELS, unreadable)] if has_unread else []
    last = CompiledRule("G8", "", ("d",), lambda _: True)
    found = make_judge([*cards, *unread, last], "G0", LABELS)(READING)
    most = max(points for _, points in above)
    first = next(n for n, (_, points) in enumerate(above) if points == most)
    if has_unread:
        assert found == Ruling(None, "", ("G9",))
    else:
        assert found[:2] == ((above[first][0], f"G{first + 1}") if most >= 0 else ("d", "G8"))
        leads = {
            label: max(points for each, points in above if each == label) for label, _ in above
        }
        assert dict(found.leads) == (leads if most >= 0 else {})


@given(st.dictionaries(st.sampled_from(LABELS), st.integers(-3, 3), min_size=1))
def test_a_margin_is_to_the_next_card_that_is_reached_or_to_the_headline(
    above: dict[str, int],
) -> None:
    def measure(cards: dict[str, int]) -> int:
        best = max(cards, key=lambda label: cards[label])
        found = (best, "G1") if cards[best] >= 0 else (LABELS[0], "G0")
        return measure_margin(Ruling(*found, leads=tuple(cards.items())), "G0")

    reached = {label: points for label, points in above.items() if points >= 0}
    if reached:
        assert measure(above) == measure(reached) >= 0
    else:
        assert measure(above) == -max(above.values())


def test_a_model_is_told_the_labels_and_which_rule_wins() -> None:
    (guidance,) = from_json(
        {"m": {"experiences": RULES, "labels": ["low", "high", "medium"]}}, "g.json"
    ).values()
    for words in (WORDS["en"], INSTRUCT):
        system = rollout_prompt(ticket({"seal": "new"}), guidance, words).system
        assert "low, high or medium" in system and "rules disagree, the first wins" in system
        assert "pass" not in system.lower()
    words = name_labels(WORDS["en"], guidance.labels)
    assert parse_answer("Verdict: Medium\nReason: worn (G2)", words) == ("medium", "worn (G2)")
    assert parse_answer("Verdict: pass\nReason: worn (G2)", words) is None
    assert name_labels(WORDS["en"], PASS_FAIL) is WORDS["en"]


def test_of_labels_that_begin_alike_an_instruct_answer_has_the_one_that_it_names() -> None:
    labels = ("low", "Low risk", "low risk of leaks", "high")
    words = name_labels(INSTRUCT, labels)
    for label in labels:
        answer = f"Sure.\n**Verdict:** {label}\nReason: worn (G2)"
        assert parse_answer(answer, words) == (label, "worn (G2)")


class Weighing:
    """An engine that gives each prompt the same probabilities of three verdicts."""

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        return [1 for _ in prompts]

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        raise AssertionError("verdicts are weighed, not decoded")

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        assert all(
            each.answers == ("Verdict: low", "Verdict: high", "Verdict: medium")
            for each in questions
        )
        return [(log(0.3), log(0.5), log(0.2)) for _ in questions]


def test_a_model_that_weighs_verdicts_weighs_all_labels() -> None:
    (guidance,) = from_json(
        {"m": {"experiences": RULES, "labels": ["low", "high", "medium"]}}, "g.json"
    ).values()
    words = replace(INSTRUCT, begin="Verdict:")
    tickets = [replace(ticket({"seal": "new"}), label=label) for label in guidance.labels]
    for temperature, shares in ((1.0, [0.3, 0.5, 0.2]), (0.0, [0.0, 1.0, 0.0])):
        sampler = SamplerConfig(
            grid=[DecodeConfig(temperature=temperature)], samples_per_decode=10, reasons="none"
        )
        judged = judge_tickets(tickets, guidance, Weighing(), sampler, words, "probability")
        assert [each.p_correct for each in judged] == shares
        (answers,) = rollout(tickets[:1], guidance, Weighing(), sampler, words, ["seed"])
        said = [each.verdict for each in answers.candidates]
        assert [said.count(label) / 10 for label in guidance.labels] == shares
        selection = select(tickets[1], answers, 0.0)
        assert (selection.verdict, selection.label_match, selection.vote_strength) == (
            "high",
            True,
            max(shares),
        )


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (["pass", "fail", "maybe"], 'label "maybe"; write "pass" or "fail"'),
        (["good", "bad"], 'label "bad"; write "pass" or "fail"'),
        (["a", "b", True], 'label true; write "pass" or "fail"'),
        (["a", "b", "c  d"], "with single spaces"),
        (["a", "b", "x" * 41], "1 to 40 characters"),
        (["a", "b", "c|d"], "without |"),
        (["b", "a", "B", "c", "A"], ": 'A' and 'a', 'B' and 'b' are the same but for their case"),
        (["Köln", "Ko\u0308ln", "Bonn"], "'Köln' are the same but for how they are written"),
        (["0", "1.0", "1", "2"], "'1' and '1.0' are the same but for how they are written"),
        (["none", "minor", "major"], "'none' stands for something else"),
        ([f"l{n}" for n in range(33)], "33 of them: there may be 2 to 32"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(
    labels: list[object], says: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "t.jsonl", [(label, f"seal: s{n}") for n, label in enumerate(labels)])
    with pytest.raises(BadInputError) as refused:
        read_tickets([path], "error")
    assert says in str(refused.value)


def test_prices_which_pass_and_fail_alone_have_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = small.arguments(
        plant(tmp_path / "t.jsonl", 3, 1, 60),
        tmp_path / "out",
        keys={**KEYS, "price.missed_failure": 20},
    )
    assert main(given) == 2
    said = capsys.readouterr().err
    assert (
        "price.missed_failure" in said
        and "prices and limits are of pass and fail" in said
        and "queue a" in said
    )


def test_rules_written_as_text_start_a_run_and_stay_where_they_are_right(tmp_path: Path) -> None:
    tickets = plant(tmp_path / "t.jsonl", 3, 5, tickets=200)
    rules = "[mail]\nQueue b if field 1 is v0.\nQueue c if field 2 is v0.\n"
    (tmp_path / "rules.txt").write_text(rules)
    run = learn(tickets, tmp_path / "out", **{"guidance.path": str(tmp_path / "rules.txt")})
    guidance = read_guidance(run)["mail"]
    assert guidance.step == 0 and guidance.labels[0] == "queue a" and len(guidance.rules) == 3
    assert read_rows(run, "metrics.jsonl")[-1]["acc"] == 1.0


def test_rules_as_text_keep_their_labels(tmp_path: Path) -> None:
    (guidance,) = from_json(
        {"m": {"experiences": RULES, "labels": ["low", "high", "medium"]}}, "g.json"
    ).values()
    (tmp_path / "rules.txt").write_text(rules_as_text.write([guidance]))
    assert read_guidance(tmp_path / "rules.txt") == {"m": guidance}
    assert keep_origins(replace(guidance, step=3), guidance).labels == guidance.labels
    assert keep_origins(guidance, replace(guidance, labels=PASS_FAIL)).labels == guidance.labels
    (tmp_path / "short.txt").write_text("[m]\nlabels: low | high\nHigh if seal is torn.\n")
    short = read_guidance(tmp_path / "short.txt")["m"]
    assert (short.labels, short.rules[0].text) == (("low", "high"), RULES["G0"])
    (tmp_path / "bad.txt").write_text("[m]\n\nlabels: low\nHigh if seal is torn.\n")
    with pytest.raises(BadInputError, match=r"bad\.txt:3: mission 'm': labels: 1 of them"):
        read_guidance(tmp_path / "bad.txt")


def test_a_ticket_with_a_label_that_the_guidance_lacks_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "g.json").write_text(
        json.dumps({"mail": {"experiences": RULES, "labels": ["low", "high", "medium"]}})
    )
    tickets = write(tmp_path / "t.jsonl", [("low", "seal: new"), ("huge", "seal: torn")])
    arguments = ["--guidance", str(tmp_path / "g.json"), "--tickets", str(tickets), "--by", "rules"]
    assert main(["evaluate", *arguments, "--output", str(tmp_path / "e")]) == 2
    assert 't.jsonl:2: label "huge"; write one of low, high, medium' in capsys.readouterr().err
    assert (
        main(
            ["evaluate", *arguments, "--output", str(tmp_path / "e"), "--price.missed_failure", "3"]
        )
        == 2
    )
    assert "prices and limits are of pass and fail" in capsys.readouterr().err


def test_fixed_rules_stay_before_what_is_learnt_beside_them(tmp_path: Path) -> None:
    """What they hold for is theirs, right or wrong; of other rules those that are learnt take the
    place."""
    labels = ["queue a", "queue b", "queue c"]
    rules = {
        "G0": "A ticket is queue a unless a rule says otherwise.",
        "G1": "Queue a if field 3 is v1.",
        "G2": "Queue c if field 0 is v2.",
        "G3": "Queue b if field 1 is neither v1, v2, v3 nor v4.",
    }
    body = {
        "experiences": rules,
        "labels": labels,
        "metadata": {key: {"fixed": True} for key in ("G1", "G3")},
    }
    (tmp_path / "g.json").write_text(json.dumps({"mail": body}))
    tickets = plant(tmp_path / "t.jsonl", 3, 1, tickets=600)
    run = learn(tickets, tmp_path / "out", **{"guidance.path": str(tmp_path / "g.json")})
    guidance = read_guidance(run)["mail"]
    assert [rule.text for rule in guidance.rules] == [
        rules["G0"],
        rules["G1"],
        rules["G3"],
        "Queue c if field 2 is v0.",
    ]
    assert [rule.is_fixed for rule in guidance.rules] == [False, True, True, False]
    wrong = [
        row
        for row in read_rows(run, "selections.jsonl")
        if row["guidance_step"] and not row["label_match"]
    ]
    assert wrong and all(
        row["verdict"] == "queue a" and row["reason"].startswith("G1") for row in wrong
    )
