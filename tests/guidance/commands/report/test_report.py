"""A report as a reader finds it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from conformance import content
from guidance.commands.report import runs
from guidance.commands.report.runs import CHINESE, HOSTILE, MISSIONS, command, fit, page
from hypothesis import given, settings
from hypothesis import strategies as st

from stageb.cli.parsing import parse
from stageb.errors import InputError
from stageb.guidance.commands.report import REPORT, section, write
from stageb.guidance.commands.report import page as pages
from stageb.guidance.commands.report.read import RunReport, collect_verdicts, read_run
from stageb.guidance.commands.report.sentences import escape_unseen
from stageb.guidance.learning.attempts import Attempts
from stageb.guidance.rules.read_guidance import load_seed
from stageb.store.journal import safe_name

ASKS = {
    "script",
    "iframe",
    "img",
    "link",
    "object",
    "embed",
    "form",
    "base",
    "audio",
    "video",
    "image",
    "foreignobject",
}
VOID = {"meta", "br"}


class Parsed(HTMLParser):
    """A page, taken apart as a browser would."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def read(root: Path) -> RunReport:
    config = parse(["--config", str(root / "run" / "config.yaml")]).config
    return read_run(root / "run", config)


def test_the_command_makes_the_same_page_again_and_touches_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)  # where the run was started
    before = content(root / "run", frozenset())
    ended = command("report", str(root / "run"), "--output", str(tmp_path / "deep" / "page.html"))
    assert ended == runs.Ended(0, f"Report: {tmp_path / 'deep' / 'page.html'}\n", "")
    assert (tmp_path / "deep" / "page.html").read_text("utf-8") == page(root)
    assert content(root / "run", frozenset()) == before
    (root / "run" / REPORT).unlink()
    assert command("report", str(root / "run")).code == 0
    assert content(root / "run", frozenset()) == before


def test_nothing_in_it_runs_or_asks_for_anything(root: Path) -> None:
    parsed = Parsed(page(root))
    assert parsed.open == []
    assert not ASKS & set(parsed.tags)
    assert not [
        name
        for _, name, _ in parsed.attributes
        if name.startswith("on") or name in ("style", "src", "srcset")
    ]
    policy = next(value for value in parsed.values("content") if value.startswith("default-src"))
    [style] = re.findall(r"<style>(.*?)</style>", page(root), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert (
        policy
        == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"url\(|@import|//", style)
    names = parsed.values("id")
    assert len(names) == len(set(names))
    followed = [
        *parsed.values("href"),
        *(value.removeprefix("url(").removesuffix(")") for value in parsed.values("clip-path")),
    ]
    assert followed
    assert {
        reference for reference in followed if reference[1:] not in names or reference[0] != "#"
    } == set()
    text = "".join(parsed.text)
    assert escape_unseen(HOSTILE) in text
    assert "\\u202eover\\u2066ride\\u200f" in text
    assert "(5,000 characters)" in text
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\0]", page(root))


def test_every_chart_is_told_in_words(root: Path) -> None:
    parsed = Parsed(page(root))
    assert parsed.tags["svg"] == 1 + 3 * len(MISSIONS)
    assert parsed.tags["svg"] == parsed.values("role").count("img") == parsed.tags["figcaption"]
    names = set(parsed.values("id"))
    assert all(set(value.split()) <= names for value in parsed.values("aria-labelledby"))


def test_it_says_what_the_files_hold(root: Path) -> None:
    text = re.sub(r"\s+", " ", "".join(Parsed(page(root)).text))
    run = read(root)
    assert [mission.name for mission in run.missions] == list(MISSIONS)
    for mission in run.missions:
        rows = [
            json.loads(line)
            for line in (root / "run" / mission.folder / "metrics.jsonl").read_text().splitlines()
        ]
        for row in rows:
            assert f"{row['acc']:.1%}" in text
        first, *_, last = [row for row in rows if row["split"] == "test"]
        assert f"{first['acc']:.1%} → {last['acc']:.1%}" in text
        fails = last["classes"]["fail"]
        has_rules = len(mission.steps[mission.final].guidance.rules) > 1
        who = "the rules catch" if has_rules else "the model without rules catches"
        caught = f"{who} {round(fails['recall'] * fails['n'])} of {fails['n']} failures and raise"
        assert f"On {last['n']} test tickets that learning never saw, {caught}" in text
        for rule in load_seed(root / "run" / mission.folder / "guidance.json")[mission.name].rules:
            assert rule.text in text
    spent = json.loads((root / "run" / "commit.json").read_text())["state"]["spent"]
    assert all(f"{value:,}" in text for value in spent.values())


@pytest.mark.parametrize("gated", [True, False])
def test_the_guidance_is_made_again_step_by_step(root: Path, tmp_path: Path, gated: bool) -> None:
    """Without a gate nearly every reflection changes something: rules are added, changed, and
    go."""
    if not gated:
        root, tickets = tmp_path, root / "tickets.jsonl"
        assert fit(root, tickets, gate="none", guidance__retention=99, runner__epochs=3).code == 0
        assert "<b>There was no gate</b>" in page(root)
    changed = 0
    for mission in read(root).missions:
        for snapshot in (root / "run" / mission.folder / "snapshots").iterdir():
            [kept] = load_seed(snapshot).values()
            [step] = [step.guidance for step in mission.steps if step.guidance.step == kept.step]
            signed = [
                {k: v for k, v in rule.metadata.items() if k != "split_seed"} for rule in kept.rules
            ]
            assert [rule.metadata for rule in step.rules] == signed
            assert [(rule.key, rule.text) for rule in step.rules] == [
                (rule.key, rule.text) for rule in kept.rules
            ]
            changed += kept.step > 0
        [last] = load_seed(root / "run" / mission.folder / "guidance.json").values()
        assert mission.steps[mission.final].guidance.step == last.step
    assert changed > (0 if gated else 10)


def test_the_worst_tickets_are_wrong_under_the_guidance_in_force(root: Path) -> None:
    for mission in read(root).missions:
        step = mission.steps[mission.final].guidance.step
        rows = [
            json.loads(line)
            for line in (root / "run" / mission.folder / "selections.jsonl")
            .read_text()
            .splitlines()
        ]
        present = {row["ticket_key"]: row for row in rows if row["guidance_step"] == step}
        wrong = {key for key, row in present.items() if not row["label_match"]}
        assert (mission.judged.present, mission.judged.wrong) == (len(present), len(wrong))
        assert {each.row["ticket_key"] for each in mission.judged.worst} <= wrong
        for each in mission.judged.worst:
            mine = [row for row in rows if row["ticket_key"] == each.row["ticket_key"]]
            assert (each.judged, each.wrong) == (
                len(mine),
                sum(not row["label_match"] for row in mine),
            )
            assert [candidate["candidate_index"] for candidate in each.candidates] == [0, 1]
        for count in mission.judged.counts:
            of = [row for row in rows if (row["split"], row["epoch"]) == (count.split, count.epoch)]
            assert count.verdicts == Counter((row["label"], row["verdict"]) for row in of)


def test_an_unfinished_run_is_shown_as_far_as_it_is_committed(root: Path, tmp_path: Path) -> None:
    """With half a row behind its last commit, as a crash leaves it."""
    ended = fit(
        tmp_path, root / "tickets.jsonl", model__model_name_or_path="programs.models:raising_on_0"
    )
    assert ended.code == 1
    assert not (tmp_path / "run" / REPORT).exists()
    with (tmp_path / "run" / safe_name(CHINESE) / "selections.jsonl").open("a") as file:
        file.write("half a row")
    assert command("report", str(tmp_path / "run")).code == 0
    assert "This run is not finished." in page(tmp_path)
    assert "raising_on_0" in page(tmp_path)
    (tmp_path / "run" / "commit.json").unlink()
    ended = command("report", str(tmp_path / "run"))
    assert (ended.code, "commit.json: another program removed it" in ended.err) == (2, True)
    shutil.rmtree(tmp_path / "run" / "commit.d")  # so that it is as before its first commit
    ended = command("report", str(tmp_path / "run"))
    assert (ended.code, "nothing is committed yet" in ended.err) == (2, True)


def test_a_run_that_learns_nothing_says_so(tmp_path: Path) -> None:
    few = runs.tickets(tmp_path / "few.jsonl", "valves", groups=12)
    assert fit(tmp_path / "few", few, model__model_name_or_path="programs.models:idle").code == 0
    assert "Nothing was learnt: no edit was tried: " in page(tmp_path / "few")
    assert (
        fit(
            tmp_path / "off",
            few,
            runner__epochs=0,
            split__train=1.0,
            split__val=0.0,
            split__test=0.0,
        ).code
        == 0
    )
    off = page(tmp_path / "off")
    assert off.count("No ticket has been judged yet.") == 2
    assert "so there are no figures" in off


def test_what_is_missing_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    shutil.copytree(root / "run", tmp_path / "run")
    for name in ("timings.jsonl", "run.json"):
        (tmp_path / "run" / name).unlink()
    config = tmp_path / "run" / "config.yaml"
    kept = config.read_text()
    config.write_text(kept.replace("tickets.jsonl", "gone.jsonl"))
    assert command("report", str(tmp_path / "run")).code == 0
    for said in (
        "timings.jsonl</code> is not there",
        "run.json</code> is not there",
        "ticket files are not found from here",
    ):
        assert said in page(tmp_path)
    changed = tmp_path / "changed.jsonl"
    changed.write_text(
        (root / "tickets.jsonl").read_text()
        + '{"mission":"m","group_id":"g","label":"pass","per_image":{"1":"a"}}'
    )
    config.write_text(kept.replace(str(root / "tickets.jsonl"), str(changed)))
    assert command("report", str(tmp_path / "run")).code == 0
    assert "the ticket files have changed since the run" in page(tmp_path)


def test_a_long_run_is_cut_to_size_and_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = read(root)
    many = replace(
        run, missions=tuple(replace(run.missions[n % 2], name=f"mission {n}") for n in range(8))
    )
    monkeypatch.setattr(pages, "DETAILED", 6)
    monkeypatch.setattr(section, "_draw_charts", lambda number, mission: ())
    html = pages.render_page(many)
    assert "The first 6 of 8 missions" in html
    assert "mission 7" in html
    most = len(html) * 2 // 3
    monkeypatch.setattr(pages, "MOST_BYTES", most)
    smaller = pages.render_page(many)
    assert len(smaller.encode()) <= most
    assert "worst are shown" in smaller


ROLLOUTS, TOKENS = "budget.rollouts", "budget.tokens"


@pytest.mark.parametrize(
    ("ended", "over", "told"),
    [
        ("", {}, []),
        (ROLLOUTS, {"a": ROLLOUTS}, [f"Learning of a ended at {ROLLOUTS};"]),
        (ROLLOUTS, {"b": ROLLOUTS, "c": ROLLOUTS}, [f"Learning of b, c ended at {ROLLOUTS};"]),
        (ROLLOUTS, dict.fromkeys("abc", ROLLOUTS), [f"Learning ended at {ROLLOUTS};"]),
        (
            TOKENS,
            {"b": TOKENS, "a": ROLLOUTS},
            [f"Learning of a ended at {ROLLOUTS};", f"Learning of b ended at {TOKENS};"],
        ),
        ("stop", {}, ["Learning was told to stop;"]),
        (
            "stop",
            {"c": ROLLOUTS},
            ["Learning was told to stop;", f"Learning of c ended at {ROLLOUTS};"],
        ),
        (ROLLOUTS, {}, []),  # what others left was enough for whoever had spent its share
    ],
)
def test_each_mission_is_told_what_ended_its_own_learning(
    root: Path, ended: str, over: dict[str, str], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the head of the page, and where it says what to try since nothing was learnt."""
    monkeypatch.setattr(section, "_draw_charts", lambda number, mission: ())
    run = read(root)
    mission = replace(
        run.missions[0],
        steps=run.missions[0].steps[:1],
        final=0,
        attempts=Attempts(9, (), {}, {}, None),
    )
    missions = tuple(replace(mission, name=name) for name in "abc")
    html = pages.render_page(replace(run, missions=missions, ended=ended, over=over))
    head, *sections = html.split('<section aria-labelledby="m')
    said = "".join(Parsed(head[: head.index("</header>")]).text)
    assert re.findall(r"Learning[^;]*;", said) == told
    for name, each in zip("abc", sections, strict=True):
        lines = Parsed(each[: each.index("</section>")]).text
        own = ["Learning was told to stop after 9 reflections."]
        if ended != "stop":
            ends = [over[name]] if name in over else []
            own = [f"Learning ended at {key}, after 9 reflections: raise it." for key in ends]
        assert [line for line in lines if line.startswith("Learning")] == own


def test_a_report_that_fails_breaks_no_run(root: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    shutil.copytree(root / "run", tmp_path / "run", dirs_exist_ok=True)
    (tmp_path / "run" / REPORT).unlink()
    (tmp_path / "run" / REPORT / "in the way").mkdir(parents=True)
    ended = fit(tmp_path, root / "tickets.jsonl", gate__alpha=0.5, reflection__num_proposals=8)
    assert ended.code == 0
    last = ended.out.splitlines()[-1]
    assert last.startswith("Report: none was written (JournalError: ")
    assert last.endswith(f"once that is fixed: stageb report {tmp_path / 'run'}")
    # a folder stands where its file would
    assert command("report", str(tmp_path / "run")).code == 2


def test_files_of_another_program_are_refused(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "run", tmp_path / "run")
    for name, old, new in (
        ("reflection", '"reflection_id"', '"id"'),
        ("metrics", '"unanswered"', '"odd"'),
    ):
        path = tmp_path / "run" / safe_name(CHINESE) / f"{name}.jsonl"
        kept = path.read_bytes()
        path.write_text(kept.decode().replace(old, f"{new:<{len(old)}}", 1))
        ended = command("report", str(tmp_path / "run"))
        assert ended.code == 1
        assert ended.err.startswith(
            f"stageb: {tmp_path / 'run'}: a file does not hold what a run writes"
        )
        path.write_bytes(kept)
    with pytest.raises(InputError):
        read_run(tmp_path / "nowhere", read(root).config)


@settings(max_examples=40)
@given(st.text(max_size=40))
def test_what_is_shown_is_visible(text: str) -> None:
    assert all(letter.isprintable() or letter in "\n\u3000" for letter in escape_unseen(text))
    escape_unseen(text).encode("utf-8")


def test_writing_leaves_the_old_page_or_the_new_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(run: RunReport) -> str:
        raise MemoryError("too much")

    monkeypatch.setattr(pages, "render_page", fails)
    before = page(root)
    said = write.write_at_end(root / "run", read(root).config, [], {})
    assert "MemoryError: too much" in said
    assert page(root) == before


def selection(ticket: str, strength: float, epoch: int = 1, right: bool = False) -> dict[str, Any]:
    row = {
        "ticket_key": ticket,
        "split": "val",
        "epoch": epoch,
        "guidance_step": 0,
        "label": "fail",
        "vote_strength": strength,
    }
    return {**row, "verdict": "fail" if right else "pass", "label_match": right}


def test_the_worst_are_wrong_most_often_then_most_surely() -> None:
    rows = [
        selection("sure", 1.0),
        selection("torn", 0.6),
        selection("also", 1.0),
        selection("right", 1.0, right=True),
    ]
    rows += [selection("often", 0.5), selection("often", 0.5, epoch=2)]
    assert [each.row["ticket_key"] for each in collect_verdicts(rows, [], 0).worst] == [
        "often",
        "also",
        "sure",
        "torn",
    ]


@pytest.mark.parametrize("final_step", [0, 1, 2])
def test_counts_are_those_of_the_epoch_that_was_judged_under_the_guidance_in_force(
    final_step: int,
) -> None:
    """Also where val chose the guidance of an earlier epoch; of a split that it never judged, those
    of the last."""
    rows = [
        {**selection(f"t{n}", 0.5 + step / 10, step + 1, right=n < step), "guidance_step": step}
        for step in range(3)
        for n in range(4)
    ]
    rows += [{**row, "split": "test", "epoch": 3} for row in rows if row["guidance_step"] == 2]
    val, test = collect_verdicts(rows, [], final_step).counts
    assert (val.split, val.epoch, val.steps) == ("val", final_step + 1, {final_step})
    wrong = {("fail", "pass"): 4 - final_step}
    assert val.verdicts == Counter(wrong | {("fail", "fail"): final_step})
    assert {share for share, _ in val.agreement} == {0.5 + final_step / 10}
    assert (test.split, test.epoch, test.steps) == ("test", 3, {2})
