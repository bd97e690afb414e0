"""The page speaks to people who know no statistics: results first, costs last, nothing in codes,
loud where it matters."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from guidance.commands.report.runs import command, fit, page
from programs import small

from stageb.guidance.commands.report.charts import Point, draw_epochs, use_settings
from stageb.guidance.commands.report.sentences import (
    describe_attempt,
    describe_decided,
    describe_left_out,
    describe_outcome,
    mark_cut,
    name_ticket,
)
from stageb.guidance.learning import transitions
from stageb.guidance.learning.attempts import Attempt
from stageb.guidance.learning.reflection_file import RaceEntry
from stageb.guidance.words.costs import EQUAL

TORN: dict[str, Any] = {
    "valves": {
        "step": 1,
        "experiences": {
            "G0": "A ticket passes unless a rule fails it.",
            "G1": "Fail if state is torn.",
        },
    }
}


def plain(root: Path) -> str:
    """The page without its style and tags."""
    body = page(root).partition("<body>")[2]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one mission that finds its rule."""
    root = tmp_path_factory.mktemp("learnt")
    assert fit(root, small.write(root / "t.jsonl", "valves"), reflection__num_proposals=8).code == 0
    return root


def test_results_and_rules_come_first_and_costs_last(learnt: Path) -> None:
    text = plain(learnt)
    parts = [
        "Results",
        "the rules catch",
        "G1",
        "Accuracy",
        "Edits, accepted and refused",
        "The worst tickets",
        "Costs",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "always passing would catch none." in text
    assert re.search(r"Fail if state is torn\. Decides \d+ held-out tickets, all rightly\.", text)
    assert "tokens read and made" in text[places[-1] :]


def test_rules_that_val_has_not_judged_get_no_figures_of_the_rules_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run stands between an accepted edit and the val of its epoch."""

    def stop(*_: object) -> None:
        raise RuntimeError("stopped")

    monkeypatch.setattr(transitions, "after_epoch", stop)
    with pytest.raises(RuntimeError, match="stopped"):
        fit(tmp_path, small.write(tmp_path / "t.jsonl", "valves"), reflection__num_proposals=8)
    assert command("report", str(tmp_path / "run")).code == 0
    text = plain(tmp_path)
    assert "Fail if state is torn." in text
    assert (
        "G1 has not been measured on val yet: the figures below are of the rules before it." in text
    )
    assert re.search(r"\d+ val, at step 0", text)
    for said in ("NO BETTER THAN ALWAYS", "the rules catch", "Before learning", "→"):
        assert said not in text


def test_nothing_is_said_in_codes(learnt: Path) -> None:
    text = plain(learnt)
    for code in (
        "\\d+ to \\d+:|\\+[\\d.]+ −[\\d.]+ on \\d+|\\blevel 0|log "
        "wealth|\\bR\\d\\b|\\bP\\d\\b|JSON|dropped|unpromising|turns no evidence|::|interval"
    ).split("|"):
        assert not re.search(code, text), code
    assert "from reflection 1" in text
    assert "points of accuracy. Chance alone would hardly do that: it is proven." in text
    assert "Rows: what the label says. Columns: what was answered." in text
    assert "judged fail" in text
    assert "labelled fail" in text


def test_what_a_rule_decides_and_which_ticket_taught_it_are_told_in_words() -> None:
    told = [
        describe_decided({"decided": decided, "right": right})
        for decided, right in ((1, 1), (1, 0), (4, 0), (40, 38))
    ]
    assert told == [f"1 held-out ticket, {how}" for how in ("rightly", "wrongly")] + [
        "4 held-out tickets, none rightly",
        "40 held-out tickets, 38 of them rightly",
    ]
    assert [name_ticket(key) for key in ("a::b::fail", "by hand")] == [
        "a::b, labelled fail",
        "by hand",
    ]
    assert [mark_cut(letters * "w")[-2:] for letters in (199, 200)] == ["ww", "w…"]


def test_axes_of_counts_have_whole_numbers_and_no_line_joins_two_accuracies(learnt: Path) -> None:
    drawn = re.findall(r"<svg.*?</svg>", page(learnt), re.DOTALL)
    assert not [
        text
        for chart in drawn
        for text in re.findall(r"<text[^>]*>([^<]*)</text>", chart)
        if re.fullmatch(r"\d+\.\d+", text)
    ]
    [epochs] = [chart for chart in drawn if "Accuracy by epoch" in chart]
    sloping = re.findall(r'd="M ([\d.]+) ([\d.]+) L ([\d.]+) ([\d.]+)', epochs)
    assert sloping
    assert [line for line in sloping if line[0] != line[2] and line[1] != line[3]] == []


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.9), (0.1, 0.5)])
def test_a_bar_is_as_long_on_either_side_as_the_likely_range(low: float, high: float) -> None:
    with use_settings():
        drawn = draw_epochs({"val": [Point(1, 0.5, low, high)]}, always=0.5, name="c")
    bar = re.search(r'd="M ([\d.]+) ([\d.]+) L \1 ([\d.]+)"[^>]*class="s-val"', drawn)
    level = re.search(r'd="M [\d.]+ ([\d.]+) L [\d.]+ \1"[^>]*class="s-ink"', drawn)
    assert bar and level
    below, above = float(bar[2]) - float(level[1]), float(level[1]) - float(bar[3])
    assert (below > 10, above > 10) == (low < 0.5, high > 0.5)
    assert below + above == pytest.approx(max(below, above), abs=0.2)


@pytest.mark.parametrize("model", ["programs.models:idle", None])
def test_a_rule_that_the_model_does_not_apply_is_said_loudly(
    tmp_path: Path, model: str | None
) -> None:
    """The first model passes everything, whatever the rules; the other one keeps to their
    letter."""
    (tmp_path / "rules.json").write_text(json.dumps(TORN))
    tickets = small.write(tmp_path / "t.jsonl", "valves")
    keys = {"model__model_name_or_path": model} if model else {}
    ended = fit(
        tmp_path, tickets, guidance__path=str(tmp_path / "rules.json"), runner__epochs=0, **keys
    )
    assert ended.code == 0
    text = plain(tmp_path)
    torn = sum(row["label"] == "fail" for row in small.rows())
    of_rule = text.partition("G1 ")[2].partition("G1 ")[2]
    found = re.search(r"it decides (\d+) held-out tickets, all rightly", of_rule)
    assert found
    decided = int(found[1])
    assert 0 < decided < torn
    loud = (
        f"THE MODEL DOES NOT APPLY THIS RULE AS WRITTEN: it judged {decided} of these "
        f"{decided} tickets otherwise."
    )
    assert (loud in text) == (model is not None)
    said = (
        f"valves: the model does not apply G1 as written: it judged {decided} of its "
        f"{decided} tickets otherwise: "
    )
    assert (
        (said in ended.out)
        == ("as the rules are written: --by rules" in ended.out)
        == (model is not None)
    )


def test_a_rule_that_brings_nothing_measurable_is_said_so_though_it_stays(tmp_path: Path) -> None:
    rules = {
        "valves": {
            **TORN["valves"],
            "experiences": {**TORN["valves"]["experiences"], "G7": "Pass if state is new."},
        }
    }
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    tickets = small.write(tmp_path / "t.jsonl", "valves")
    ended = fit(tmp_path, tickets, guidance__path=str(tmp_path / "rules.json"))
    assert ended.code == 0
    text = plain(tmp_path)
    n = sum(map(int, re.findall(r"(?:val|test), epoch \d+: (\d+) tickets", text)))
    torn, new = re.findall(
        rf"Leaving it out (.*?) \(code judged all {n} held-out tickets with it and", text
    )
    assert re.fullmatch(r"\d+ more missed failures: -\d+.\d points of accuracy", torn)
    assert new == "changes nothing"


def test_figures_that_stand_for_more_tickets_than_were_judged_say_so(tmp_path: Path) -> None:
    rows = [
        {**row, "label": "fail" if n % 12 == 0 else "pass"}
        for n, row in enumerate(small.rows("valves", 400))
    ]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    said = (
        "Val has more tickets than were judged: all that are dear to judge wrong, and a "
        "sample of the others."
    )
    for weight, told in ((20, True), (1, False)):
        root = tmp_path / str(weight)
        keys = {"model__model_name_or_path": "programs.models:idle", "runner__epochs": 1}
        assert fit(root, tmp_path / "t.jsonl", price__missed_failure=weight, **keys).code == 0
        assert (said in plain(root)) == told


def test_the_worst_tickets_open_to_their_values(tmp_path: Path) -> None:
    tickets = small.write(tmp_path / "t.jsonl", "valves", groups=40)
    assert (
        fit(
            tmp_path, tickets, model__model_name_or_path="programs.models:idle", runner__epochs=0
        ).code
        == 0
    )
    opened = page(tmp_path).partition('<details class="ticket">')[2].partition("</details>")[0]
    assert re.search(r"<dt><bdi[^>]*>state</bdi></dt><dd><bdi[^>]*>torn</bdi></dd>", opened)


def test_edits_are_told_in_words() -> None:
    raced = Attempt(2, "R2", "dropped", (), 1, (3, 3), RaceEntry(72, 20.9, 0.0001), None)
    assert describe_attempt(raced, False) == (
        "On 72 train tickets set apart to compare edits: 21 judged better, 0 worse. "
        "So it was not tested: another edit promised more, or this one too little."
    )
    idle = replace(raced, outcome="turns no evidence", turned=(0, 1), race=None)
    assert (
        describe_attempt(idle, False)
        == "The one ticket that it was made for is not judged right with it."
    )


def test_what_leaving_a_rule_out_would_change_is_told_with_its_tickets_and_at_the_prices() -> None:
    row = {"verdict": "pass", "won": 4, "lost": 1}
    judged = "(code judged 80 of 90 held-out tickets with it and without it)"
    letter = {"decided": 80, "tickets": 90}
    said = f"4 more false alarms and 1 fewer missed failure: -3.8 points of accuracy {judged}"
    assert describe_left_out(row, letter, EQUAL) == said
    said = (
        f"4 more false alarms and 1 fewer missed failure: -0.075 in the cost of a ticket {judged}"
    )
    assert describe_left_out(row, letter, {"fail": 10.0, "pass": 1.0}) == said
    for unread in ({"out_of_reach": "it looks odd"}, {}):
        assert (
            describe_left_out(unread, letter, EQUAL)
            == "was not measured: code cannot judge by the rules"
        )


def test_what_test_says_of_failures_is_told_with_how_sure_it_is() -> None:
    classes = {
        "fail": {"n": 60, "recall": 41 / 60, "unanswered": 0},
        "pass": {"n": 119, "recall": 115 / 119, "unanswered": 0},
    }
    row: dict[str, Any] = {"split": "test", "n": 179, "acc": 0.872, "classes": classes}
    row["always"] = {"verdict": "pass", "acc": 0.665}
    more = describe_outcome(
        row | {"cost": 0.1, "always": row["always"] | {"cost": 0.3}}, EQUAL, 2
    ).more
    assert "Of all failures like these, 56% to 79% are likely to be caught" in more
    assert (
        "34% of these tickets are failures. If it were 1%, 1,000 tickets would bring about 7 "
        "failures caught" in more
    )
    assert "caught and 33 false alarms, at worst 82 (19 times in 20)." in more
    sampled = row | {"n": 100, "cost": 0.1, "always": row["always"] | {"cost": 0.3}}
    # classes stand for more tickets than were judged
    assert "19 times" not in describe_outcome(sampled, EQUAL, 2).more
