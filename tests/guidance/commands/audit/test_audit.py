"""Watching a bound on tickets that are decided alone."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from math import comb, exp
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from guidance.commands.use import made
from hypothesis import given
from hypothesis import strategies as st
from times import TIMES

from stageb.__main__ import main
from stageb.errors import BadInputError, InputError
from stageb.guidance.commands.audit.files import (
    AuditFolder,
    AuditPlan,
    Drawn,
    Promise,
    read_export,
    read_sheet,
    take_answers,
)
from stageb.guidance.commands.audit.main import conclude, draw
from stageb.guidance.commands.audit.watch import (
    LEVEL,
    count_shares,
    describe_drift,
    find_fault,
    has_shifted,
    is_alarm,
    rank_rules,
    trace_wealth,
)
from stageb.guidance.rules.read_guidance import load_seed
from stageb.guidance.words.automation import Automation, Bound
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import Ticket

RULES = {"G0": made.HEADLINE, "G1": "Fail if Temp is above 95.", "G2": "Fail if Kind is odd."}
COLUMNS = "--columns=mission_name=valves"
WORDS = {"pass": "PASS", "fail": "FAIL"}


def answer(errors: float, count: int, random: Random) -> list[bool]:
    return [random.random() < errors for _ in range(count)]


@pytest.mark.parametrize("max_error", [0.02, 0.1, 0.5])
def test_false_alarms_are_as_rare_as_is_said_however_often_one_looks(max_error: float) -> None:
    random, runs = Random(1), 40 * TIMES
    alarms = sum(
        any(map(is_alarm, trace_wealth(answer(max_error, 500, random), max_error)))
        for _ in range(runs)
    )
    assert alarms <= LEVEL * runs + 3 * (runs * LEVEL * (1 - LEVEL)) ** 0.5


@given(
    st.sampled_from([0, 1, 99, 100, 199, 200]),
    st.integers(0, 2**32),
    st.sampled_from([0.02, 0.1, 0.5]),
)
def test_wealth_is_expected_to_stay_as_it_is_where_errors_are_as_frequent_as_is_allowed(
    count: int, key: int, max_error: float
) -> None:
    """Whatever was answered before, and where another bettor begins, too."""
    before = answer(max_error, count, Random(key))
    right, wrong = (exp([*trace_wealth([*before, each], max_error)][-1]) for each in (False, True))
    now = exp([*trace_wealth(before, max_error)][-1]) if before else 1.0
    assert max_error * wrong + (1 - max_error) * right == pytest.approx(now)


@pytest.mark.slow
def test_a_broken_bound_is_found_though_it_held_for_long() -> None:
    random = Random(1)
    for before in (0, 600):
        delays = []
        for _ in range(20):
            trace = list(
                trace_wealth(answer(0.01, before, random) + answer(0.1, 800, random), 0.02)
            )
            assert not any(map(is_alarm, trace[:before]))
            delays.append(
                next(place for place, wealth in enumerate(trace[before:]) if is_alarm(wealth))
            )
        assert sorted(delays)[10] < 200


def test_the_rule_at_fault_is_the_one_whose_errors_stand_out() -> None:
    random = Random(2)
    answers = [("G1", each) for each in answer(0.02, 300, random)] + [
        ("G2", each) for each in answer(0.15, 60, random)
    ]
    fault = find_fault(rank_rules(answers, 0.02))
    assert fault
    assert fault.rule == "G2"
    assert find_fault(rank_rules(answers[:300], 0.02)) is None
    assert find_fault(rank_rules([], 0.02)) is None


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.sampled_from([0.02, 0.1, 0.5]))
def test_a_rule_is_blamed_by_the_chance_of_as_many_errors_or_more(
    errors: list[bool], share: float
) -> None:
    (found,) = rank_rules([("G1", each) for each in errors], share)
    count, wrong = len(errors), sum(errors)
    chances = [
        comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(wrong, count + 1)
    ]
    assert (found.answered, found.wrong) == (count, wrong)
    assert found.p == pytest.approx(sum(chances), abs=1e-12)


def test_shares_that_chance_explains_have_not_shifted() -> None:
    random = Random(3)

    def count(shares: dict[str, float], tickets: int) -> dict[str, int]:
        drawn = random.choices([*shares], [*shares.values()], k=tickets)
        return {name: drawn.count(name) for name in shares}

    old, new = {"a": 0.5, "b": 0.4, "c": 0.1}, {"a": 0.4, "b": 0.4, "c": 0.2}
    assert sum(has_shifted(count(old, 500), count(old, 300)) for _ in range(300)) <= 3
    assert sum(has_shifted(count(old, 500), count(new, 300)) for _ in range(50)) > 25
    assert has_shifted({"a": 400}, {"b": 400})
    assert not has_shifted({"a": 400}, {"b": 9})  # too few to tell


def test_a_drift_is_told_by_the_value_whose_share_has_moved_most() -> None:
    """However many tickets there were before; and columns that are gone, in their order."""
    fields = [f"field {each}" for each in "kafbgcjdie"]
    gone = {field: {"x": 1000} for field in fields}
    before = {"Kind": {"a": 600, "b": 300, "c": 50, "d": 50}, **gone}
    now = {"Kind": {"a": 120, "b": 20, "c": 30, "d": 30}}
    drawn = [
        Drawn(f"day{day}", "", [], {"valves": shares}, {})
        for day, shares in enumerate((before, now))
    ]
    assert list(describe_drift(drawn)) == [
        *(f"valves: no {each} as before in day1" for each in fields),
        "valves: Kind in day1: 'b' in 10 % of the tickets, 30 % before",
    ]


@pytest.fixture(scope="module")
def promise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rules of which all three decide alone, since of odd parts all were bad."""
    folder = tmp_path_factory.mktemp("promise")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("shared.json").write_text(json.dumps({"valves": {"step": 1, "experiences": RULES}}))
        made.write_parts(Path("labelled.csv"), 900, 1, good=0.0)
        given = ["shared.json", "--tickets=labelled.csv", "--max_error=0.02", "--by=rules"]
        assert main(["automate", *given, COLUMNS]) == 0
        automation = load_seed("shared.json")["valves"].automation
    assert automation
    assert automation.deciders == {"G0", "G1", "G2"}
    return folder


@pytest.fixture
def promised(promise: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the working folder."""
    shutil.copytree(promise, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def predict(name: str, parts: int, key: int, good: float = 0.0, kinds: float = 0.3) -> str:
    tickets = made.write_parts(Path(f"{name}.csv"), parts, key, good=good, kinds=kinds)
    given = [
        "--guidance=shared.json",
        f"--tickets={tickets}",
        f"--output={name}.jsonl",
        "--by=rules",
        COLUMNS,
    ]
    assert main(["predict", *given]) == 0
    return f"{name}.jsonl"


def fill(
    sheet: Path, tickets: Path, count: int | None = None, words: Mapping[str, str] = WORDS
) -> None:
    """Write the right labels into a sheet, as people do."""
    right = {row["group_id"]: row["label"] for row in csv.DictReader(tickets.open())}
    rows = list(csv.DictReader(sheet.open(encoding="utf-8-sig")))
    assert "verdict" not in rows[0]  # people are not told what to say
    for row in islice(rows, count):
        row["right_label"] = words[right[row["group_id"]]]
    with sheet.open("w", newline="") as opened:
        table = csv.DictWriter(opened, rows[0], delimiter=";")  # as some spreadsheets do
        table.writeheader()
        table.writerows(rows)


@pytest.mark.slow
def test_a_week_with_a_drift_on_the_fourth_day(
    promised: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the fourth day on more parts are odd, and of these half are good. People write words of
    their own, which only the first call names."""
    words = {"pass": "good", "fail": "bad"}
    own = "--columns={mission_name: valves, passes: [pass, good], fails: [fail, bad]}"
    for day in range(1, 6):
        drifts = day > 3
        out = predict(f"day{day}", 1000, day + 1, good=0.5 * drifts, kinds=0.5 if drifts else 0.3)
        begins = ["--guidance=shared.json", "--share=0.2", own] if day == 1 else []
        assert main(["audit", out, *begins]) == int(day > 4)
        said = capsys.readouterr().out
        assert ("field Kind in day4.jsonl: 'odd' in" in said) == (day == 4)
        assert ("ALARM" in said) == (day > 4)
        fill(Path(f"audit/sheet-{day:04}.csv"), Path(f"day{day}.csv"), words=words)
    assert main(["audit"]) == 1
    said = capsys.readouterr().out
    assert "more than 2 % are wrong: G2, " in said
    page = Path("audit/audit.html").read_text()
    assert "ALARM since answer" in page
    assert page.count("<svg") == 1
    assert "script" not in page


def test_an_audit_of_a_shared_file_knows_columns_and_words_as_predict_did(promised: Path) -> None:
    """Of a file, nothing else says what columns mean; copied predictions are asked with it."""
    own = "--columns={mission_name: valves, passes: [pass, good], fails: [fail, bad]}"
    made.write_parts(Path("day.csv"), 400, 2, good=0.0)
    given = ["--guidance=shared.json", "--tickets=day.csv", "--output=day.jsonl", "--by=rules"]
    assert main(["predict", *given, own]) == 0
    begins = ["--guidance=shared.json", "--share=0.2"]
    assert main(["audit", "day.jsonl", *begins]) == 0
    sheet = Path("audit/sheet-0001.csv")
    fill(sheet, Path("day.csv"), words={"pass": "good", "fail": "bad"})
    assert main(["audit"]) == 0
    shutil.copy("day.jsonl", "copied.jsonl")
    assert main(["audit", "copied.jsonl", *begins, "--folder=other"]) == 2
    assert main(["audit", "copied.jsonl", *begins, "--folder=other", own]) == 0
    fill(Path("other/sheet-0001.csv"), Path("day.csv"), words={"pass": "fine", "fail": "broken"})
    assert main(["audit", "--folder=other"]) == 2
    words = "--columns={passes: [pass, fine], fails: [fail, broken]}"  # of this call alone
    assert main(["audit", "--folder=other", words]) == 0
    assert main(["audit", "--folder=other"]) == 2


def test_what_was_judged_before_the_promise_has_to_be_judged_anew(
    promised: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.guidance(Path("bare.json"), {"valves": RULES["G1"]})
    made.write_parts(Path("day.csv"), 50, 2)
    given = ["--tickets=day.csv", "--output=day.jsonl", "--by=rules", COLUMNS]
    assert main(["predict", "--guidance=bare.json", *given]) == 0
    capsys.readouterr()
    assert main(["audit", "day.jsonl", "--guidance=shared.json", COLUMNS]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "nothing was promised of its verdicts: have predict judge them" in said


def test_an_export_that_cannot_be_read_is_told_from_one_of_something_else(
    promised: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "--guidance=shared.json", COLUMNS]) == 0
    Path("other.json").write_text('{"tasks": 3}')
    for name, said in (
        ("gone.json", "gone.json: cannot be read: No such file"),
        ("other.json", "other.json: no export of these tasks"),
    ):
        capsys.readouterr()
        assert main(["audit", "--answers", name]) == 2
        assert said in " ".join(capsys.readouterr().err.split())


def test_a_share_holds_until_another_is_given(
    promised: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = []
    shares: Sequence[list[str]] = (
        ["--share=0.5", "--guidance=shared.json", COLUMNS],
        [],
        ["--share=0.05"],
        [],
    )
    for day, words in enumerate(shares, 1):
        assert main(["audit", predict(f"day{day}", 400, day + 1), *words]) == 0
        said = capsys.readouterr().out
        assert ("from now on 5 % of the tickets decided alone are drawn, 50 %" in said) == (
            day == 3
        )
        sheet = Path(f"audit/sheet-{day:04}.csv").read_text(encoding="utf-8-sig")
        counts.append(len(list(csv.DictReader(sheet.splitlines()))))
    assert min(counts[:2]) > 150 > 40 > max(counts[2:])


PROMISES = {"valves": Promise(("pass", "fail"), Automation(0.95, "", "rules", "", 9, (), ()))}


KEPT: dict[str, object] = {
    "labels": ["pass", "fail"],
    "automation": PROMISES["valves"].automation.to_plain(),
}


@pytest.mark.parametrize(
    ("changed", "is_whole"),
    [
        ({}, True),
        ({"share": 1}, True),
        ({"share": "half"}, False),
        ({"columns": []}, False),
        ({"missions": {}}, False),
        ({"missions": [KEPT]}, False),
        ({"missions": {"valves": KEPT, "pumps": [KEPT]}}, False),
        ({"missions": {"valves": {**KEPT, "labels": []}}}, False),
        ({"missions": {"valves": {**KEPT, "automation": {"confidence": 0.95}}}}, False),
    ],
)
def test_a_plan_that_another_program_changed_is_refused(
    changed: dict[str, object], is_whole: bool, tmp_path: Path
) -> None:
    folder, plan = AuditFolder(tmp_path), AuditPlan(PROMISES, ColumnsConfig(), 1.0)
    folder.keep(plan)
    path = tmp_path / "audit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    if is_whole:
        assert folder.read_plan() == plan
    else:
        with pytest.raises(InputError, match="another program changed it; restore it"):
            folder.read_plan()


def test_predictions_that_were_all_left_to_people_send_to_what_predict_said(tmp_path: Path) -> None:
    row = {"file": "day.csv", "line": 2, "mission": "valves", "group_id": "1"}
    row |= {"verdict": "fail", "rule": "G1", "decides": "person"}
    (path := tmp_path / "day.jsonl").write_text(json.dumps(row) + "\n")
    plan = AuditPlan(PROMISES, ColumnsConfig(), 1.0)
    with pytest.raises(InputError, match="no ticket was decided alone there; predict says why"):
        draw(str(path), "", plan, plan.columns, [])


def test_shares_are_of_verdicts_and_rules_and_of_fields_that_have_few_values() -> None:
    """Where no rule decides, that is counted, too."""
    said = [f"kind: k{n % 32}; name: part {n}" for n in range(64)]
    tickets = {
        ("day.csv", n): Ticket("valves", f"{n}", "pass", (("image_1", text),))
        for n, text in enumerate(said)
    }
    rows = [
        {
            "file": "day.csv",
            "line": n,
            "mission": "valves",
            "verdict": "fail" if n % 4 else "",
            "rule": "G1" if n % 4 else "",
        }
        for n in range(64)
    ]
    shares, edges = count_shares(rows, tickets, [])
    assert shares["valves"] == {
        "verdicts": {"none": 16, "fail": 48},
        "rules": {"none": 16, "G1": 48},
        "field kind": {f"k{n}": 2 for n in range(32)},
    }
    assert edges == {"valves": {"kind": [], "name": []}}


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_numbers_that_move_are_noted_by_the_intervals_of_the_first_file(
    shift: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In half of a standard deviation, and not by chance, whatever is not told or no number."""
    monkeypatch.chdir(tmp_path)
    random, plan = Random(1), AuditPlan(PROMISES, ColumnsConfig(mission_name="valves"), 0.1)
    drawn: list[Drawn] = []
    for day in range(3):
        heat = [f"{random.gauss(20 + shift * (day == 2), 1):.3f}" for _ in range(600)]
        rows = [
            (f"{day}-{n}", "" if n % 50 == 0 else "?" if n % 51 == 0 and day else each, n % 5)
            for n, each in enumerate(heat)
        ]
        name = f"day{day}"
        Path(f"{name}.csv").write_text(
            "group_id,heat,step\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows)
        )
        said = {"file": f"{name}.csv", "mission": "valves", "verdict": "fail", "rule": "G1"}
        judged = [
            {**said, "line": line, "group_id": row[0], "decides": "stageb"}
            for line, row in enumerate(rows, 2)
        ]
        Path(f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in judged))
        drawn.append(draw(f"{name}.jsonl", name, plan, plan.columns, drawn)[0])
        assert drawn[-1].edges == drawn[0].edges and len(drawn[0].edges["valves"]["heat"]) == 7
    assert drawn[0].edges["valves"]["step"] == []
    notes = [note for note in describe_drift(drawn) if "heat" in note]
    assert bool(notes) == bool(shift)
    if shift:
        assert "field heat in day2.jsonl: 'up to 18." in notes[0] or "'above 21." in notes[0]


@pytest.mark.usefixtures("promised")
def test_files_are_drawn_from_alike_in_one_call_and_in_one_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Numbers are counted in the intervals of the first file, and the same drift is told."""
    days = [predict(f"day{n}", 150, n, kinds=0.2 * n) for n in (1, 2)]
    begins = ["--guidance=shared.json", "--share=0.2"]
    assert main(["audit", *days, *begins, "--folder=once"]) == 0
    assert main(["audit", days[0], *begins, "--folder=each"]) == 0
    assert main(["audit", days[1], "--folder=each"]) == 0
    once, each = (AuditFolder(Path(name)).read_drawn() for name in ("once", "each"))
    assert once == each and [drawn.file for drawn in once] == days
    assert once[0].edges == once[1].edges and len(once[0].edges["valves"]["Temp"]) > 2
    capsys.readouterr()
    for folder in ("once", "each"):
        assert main(["audit", f"--folder={folder}"]) == 0
    said = capsys.readouterr().out.replace("once/", "each/").splitlines()
    assert said[: len(said) // 2] == said[len(said) // 2 :]


@pytest.mark.parametrize("share", [0.1, 0.5, 1])
def test_of_a_group_that_is_drawn_every_ticket_is_as_likely_as_any_other(
    share: float, tmp_path: Path
) -> None:
    """Errors on the later photos of a case would never be seen by people."""
    cases, photos = 600, 3
    table, out = tmp_path / "day.csv", tmp_path / "day.jsonl"
    rows = [(case, photo) for case in range(cases) for photo in range(photos)]
    table.write_text("group_id,photo\n" + "".join(f"{case},{photo}\n" for case, photo in rows))
    said = {"file": str(table), "mission": "valves", "verdict": "fail", "rule": "G1"}
    judged = [
        {**said, "line": line, "group_id": f"{case}", "decides": "stageb"}
        for line, (case, _) in enumerate(rows, 2)
    ]
    out.write_text("".join(f"{json.dumps(row)}\n" for row in judged))
    columns = ColumnsConfig(mission_name="valves")
    drawn, says = draw(str(out), "digest", AuditPlan(PROMISES, columns, share), columns, [])
    assert len(drawn.tickets) == len({ticket.group_id for ticket in says.values()})
    counts = Counter(text for ticket in says.values() for _, text in ticket.per_image)
    assert counts.keys() == {f"photo: {photo}" for photo in range(photos)}
    for count, chance in [(counts.total(), share)] + [(n, share / photos) for n in counts.values()]:
        assert abs(count - cases * chance) <= 4 * (cases * chance * (1 - chance)) ** 0.5


def test_what_cannot_be_used_begins_no_audit_and_keeps_no_share(
    promised: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, begins = predict("day", 100, 2), ["--guidance=shared.json", COLUMNS]
    assert main(["audit", out, "gone.jsonl", *begins]) == 2
    assert not Path("audit").exists()
    assert main(["audit", out, *begins]) == 0
    kept = {path: path.read_bytes() for path in Path("audit").iterdir()}
    assert main(["audit", "gone.jsonl", "--share=0.9"]) == 2
    assert {path: path.read_bytes() for path in Path("audit").iterdir()} == kept


def test_answers_are_read_once_and_in_part_and_what_was_drawn_is_not_drawn_again(
    promised: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = predict("day", 500, 2)
    assert main(["audit", out, "--share=0.1", COLUMNS, "--guidance=shared.json", "--tasks"]) == 0
    sheet, tasks = (
        Path("audit/sheet-0001.csv"),
        json.loads(Path("audit/sheet-0001.json").read_text()),
    )
    drawn = len(tasks)
    assert 25 < drawn < 80
    fill(sheet, Path("day.csv"), count=10)
    capsys.readouterr()
    assert main(["audit", out]) == 0
    said = capsys.readouterr().out
    assert "day.jsonl: was drawn from before" in said
    assert (
        "valves: 0 of 10 answers say that the verdict is wrong; no proof that more than 2 % are wrong"
        in said
    )
    assert f"{drawn - 10} of {drawn} tickets drawn have no answer yet" in said
    chosen = {"value": {"choices": ["pass"]}, "from_name": "verdict"}
    done = [{**tasks[place], "annotations": [{"result": [chosen]}]} for place in range(10, 14)]
    Path("export.json").write_text(json.dumps([*done, {**tasks[20], "annotations": []}]))
    assert main(["audit", "--answers", "export.json"]) == 0
    assert " of 14 answers say" in capsys.readouterr().out
    assert len(Path("audit/answers.jsonl").read_text().splitlines()) == 14


LABEL, ID = st.sampled_from(["pass", "fail"]), st.sampled_from(["1", "2", "3"])


@given(
    known=st.dictionaries(ID, LABEL, max_size=2),
    found=st.lists(
        st.tuples(st.sampled_from(["sheet-0001.csv:2", "export.json: task 1"]), ID, LABEL),
        max_size=6,
    ),
)
def test_answers_agree_wherever_they_were_written_or_none_of_them_counts(
    known: dict[str, str], found: list[tuple[str, str, str]]
) -> None:
    promise = Promise(("pass", "fail"), Automation(0.95, "", "rules", "", 0, (), ()))
    said = {*known.items(), *((name, label) for _, name, label in found)}
    named = [name for name, _ in said]
    given = (found, dict.fromkeys(named, "valves"), {"valves": promise}, ColumnsConfig(), known)
    if len(named) == len({*named}):
        rows = take_answers(*given)
        assert len(rows) == len(said) - len(known)
        assert {(row["id"], row["label"]) for row in rows} == said - known.items()
    else:
        with pytest.raises(BadInputError, match="; answers stay") as refused:
            take_answers(*given)
        assert all(
            each.what.endswith((" was pass before", " was fail before"))
            and each.remedy.startswith("answers stay")
            for each in refused.value.bad
        )


@given(
    texts=st.lists(st.text(st.sampled_from('a ,;"\t\n\v\f\x1c\x85\u2028'), max_size=4), min_size=1),
    separator=st.sampled_from(",;\t"),
    ends=st.sampled_from(["\n", "\r\n"]),
)
def test_an_answer_is_read_whatever_its_ticket_says_and_however_the_sheet_was_saved(
    texts: list[str], separator: str, ends: str
) -> None:
    with TemporaryDirectory() as folder:
        with (path := Path(folder, "sheet.csv")).open(
            "w", newline="", encoding="utf-8-sig"
        ) as opened:
            table = csv.writer(opened, delimiter=separator, lineterminator=ends)
            table.writerow(["id", "says", "right_label"])
            table.writerows((n, text, "pass" if n % 3 else "") for n, text in enumerate(texts))
        found = [(name, word) for _, name, word in read_sheet(path)]
    assert found == [(f"{n}", "pass") for n in range(len(texts)) if n % 3]


def test_a_cell_that_no_csv_holds_is_named_with_its_line(tmp_path: Path) -> None:
    (path := tmp_path / "sheet.csv").write_text(
        f"id,says,right_label\n1,worn,pass\n2,{'worn ' * 40_000},fail\n"
    )
    with pytest.raises(BadInputError, match=r"sheet\.csv:3: field larger .*; empty that cell"):
        list(read_sheet(path))


@given(st.lists(st.tuples(LABEL, st.booleans()), max_size=4))
def test_the_last_annotation_of_a_task_that_was_not_cancelled_is_its_answer(
    written: list[tuple[str, bool]],
) -> None:
    task = {
        "data": {"id": "1"},
        "annotations": [
            {"result": [{"value": {"choices": [label]}}], "was_cancelled": is_cancelled}
            for label, is_cancelled in written
        ],
    }
    with TemporaryDirectory() as folder:
        (path := Path(folder, "export.json")).write_text(json.dumps([task]))
        found = [(name, label) for _, name, label in read_export(path)]
    assert found == [("1", label) for label, is_cancelled in written if not is_cancelled][-1:]


def test_an_answer_speaks_of_the_bounds_of_its_mission_and_of_the_verdict_that_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of valves that were judged fail every fourth is good; nothing else is wrong."""
    promises = {
        mission: Promise(
            ("pass", "fail"),
            Automation(
                0.95, "", "rules", "", 9, (), tuple(Bound(*each, {}, 9, 9, 0) for each in of)
            ),
        )
        for mission, of in {
            "valves": [("pass", 0.02), ("fail", 0.02)],
            "pumps": [("", 0.02)],
        }.items()
    }
    tickets, answers = list[dict[str, str]](), list[dict[str, str]]()
    for number in range(240):
        mission = "valves" if number % 2 else "pumps"
        verdict = "pass" if number % 3 else "fail"
        is_wrong = mission == "valves" and verdict == "fail" and number % 4 == 1
        tickets.append({"id": f"{number}", "mission": mission, "verdict": verdict, "rule": "G1"})
        answers.append({"id": f"{number}", "label": "pass" if is_wrong else verdict})
    folder = AuditFolder(tmp_path)
    folder.add_answers(answers)
    assert conclude(folder, promises, [Drawn("day.jsonl", "", tickets, {}, {})]) == 1
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(" answers say")[0] for line in told[:3]] == [
        "valves: 0 of 80",
        "valves: 20 of 40",
        "pumps: 0 of 120",
    ]
    assert ["ALARM" in line for line in told[:3]] == [False, True, False]


def test_a_bound_that_was_shown_to_be_broken_stays_so_whatever_is_answered_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bounds = (Bound("", 0.02, {}, 9, 9, 0),)
    of_rules = Automation(0.95, "", "rules", "", 9, (), bounds)
    folder, drawn, alarms = AuditFolder(tmp_path), list[dict[str, str]](), list[str]()
    for label, count in (("pass", 3), ("fail", 60)):
        new = [f"{label}-{number}" for number in range(count)]
        drawn += [
            {"id": name, "mission": "valves", "verdict": "fail", "rule": "G1"} for name in new
        ]
        folder.add_answers([{"id": name, "label": label} for name in new])
        told = {"valves": Promise(("pass", "fail"), of_rules)}
        assert conclude(folder, told, [Drawn("day.jsonl", "", drawn, {}, {})]) == 1
        alarms += re.findall("ALARM since answer [0-9]+", capsys.readouterr().out)
    assert len(alarms) == 2 and alarms[0] == alarms[1]
    assert not is_alarm([*trace_wealth([True] * 3 + [False] * 60, 0.02)][-1])


def test_answers_that_cannot_be_used_are_named_with_their_line(
    promised: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["audit", predict("day", 300, 2), "--share=0.2", COLUMNS, "--guidance=shared.json"])
        == 0
    )
    sheet = Path("audit/sheet-0001.csv")
    fill(sheet, Path("day.csv"))
    assert main(["audit"]) == 0
    answered = sheet.read_text()
    for old, new, said in (
        (";PASS", ";maybe", 'right_label "maybe"; write one of pass, fail'),
        (";PASS", ";FAIL", "was pass before; answers stay"),
        ("-3;valves", "-9999;valves", "was never drawn"),
        ("right_label", "label", "no columns id and right_label"),
    ):
        sheet.write_text(answered.replace(old, new, 1))
        capsys.readouterr()
        assert main(["audit"]) == 2
        told = " ".join(capsys.readouterr().err.split())
        assert said in told
        assert "audit/sheet-0001.csv:" in told
    sheet.write_bytes(answered.encode("utf-16"))
    assert main(["audit"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "audit/sheet-0001.csv: not UTF-8 at byte 0; save the sheet as CSV in UTF-8" in told


def test_what_cannot_be_watched_is_refused(
    promised: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = predict("day", 50, 2)
    made.guidance(Path("bare.json"), {"valves": RULES["G1"]})
    Path("edited.json").write_text(Path("shared.json").read_text().replace("above 95", "above 96"))
    for arguments, said in (
        ([out], "no audit has begun there; name what is watched: --guidance SOURCE"),
        (
            [out, "--guidance=bare.json"],
            "nothing is promised of its rules; begin with: stageb automate bare.json",
        ),
        ([out, "--guidance=edited.json"], "nothing is promised of its rules"),
        ([out, "--guidance=shared.json", "--share=2"], "a share of the tickets decided alone"),
        (["labelled.csv", "--guidance=shared.json"], "no rows of predict"),
        (["gone.jsonl", "--guidance=shared.json"], "gone.jsonl: No such file"),
    ):
        assert main(["audit", *arguments, COLUMNS]) == 2
        assert said in " ".join(capsys.readouterr().err.split())
    assert main(["audit", "--guidance=shared.json", COLUMNS]) == 0
    given = [
        "shared.json",
        "--tickets=labelled.csv",
        "--max_error=0.03",
        "--by=rules",
        COLUMNS,
        "--fresh",
    ]
    assert main(["automate", *given]) == 0
    assert main(["audit", out, "--guidance=shared.json", COLUMNS]) == 2
    assert "watches what shared.json promised before; name another --folder" in " ".join(
        capsys.readouterr().err.split()
    )
    Path("day.csv").write_text("group_id,Temp,Kind,label\nother,1,odd,pass\n")
    assert main(["audit", out]) == 2
    assert "does not hold '2-0' any more" in " ".join(capsys.readouterr().err.split())
