"""``stageb serve`` as programs meet it: a real process, asked over real connections."""

from __future__ import annotations

import csv
import http.client
import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from programs.processes import Job, wait_until

import stageb
from stageb.__main__ import main
from stageb.errors import InputError
from stageb.guidance.commands.serve.served import RequestError, load_served
from stageb.guidance.commands.use.config import ServeConfig
from stageb.guidance.judging.automation import name_guidance
from stageb.guidance.rules.guidance_json import format_file
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.words.automation import Automation, Bound
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import Guidance, JudgeName, Rule
from stageb.store import disk

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("starlette", reason="the extra serve is not installed")

JSON = {"content-type": "application/json"}
RULES = (
    "Fail if Torque Nm is above 60 and Speed rpm is below 1400.",
    "Fail if Wear min is above 200 and Type is L or M.",
    "Pass if Type is H.",
    "Fail if a summary mentions leak.",
)
NAMED = (
    ("Torque Nm", "0"),
    ("Speed rpm", "0"),
    ("Wear min", "0"),
    ("Type", "H"),
    ("Type", "L"),
    ("Type", "M"),
    ("", "leak"),
)
WORN = {"Torque Nm": 20, "Speed rpm": 2000, "Wear min": 220.5, "Type": "L"}


def make_guidance(*texts: str, step: int = 3, mission: str = "milling") -> Guidance:
    all_texts = (WORDS["en"].neutral_headline, *texts)
    rules = tuple(Rule(f"G{n}", text) for n, text in enumerate(all_texts))
    return Guidance(mission, step, rules, len(rules), named=NAMED)


@dataclass(frozen=True)
class Running:
    """A service that was started."""

    job: Job
    port: int

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = JSON
    ) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def judge(self, said: Any) -> Any:
        """The rows of tickets, which must be judged."""
        status, body = self.ask("POST", "/judge", json.dumps(said).encode())
        assert status == 200, body
        return json.loads(body)

    def refuse(
        self, body: bytes, headers: Mapping[str, str] = JSON
    ) -> tuple[int, list[dict[str, str]]]:
        """The status and the faults of a request that is refused."""
        status, answer = self.ask("POST", "/judge", body, headers)
        return status, json.loads(answer)["faults"]

    @property
    def health(self) -> Any:
        return json.loads(self.ask("GET", "/health")[1])

    @property
    def metrics(self) -> list[str]:
        return self.ask("GET", "/metrics")[1].decode().splitlines()


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts services, with guidance in ``rules.json`` unless it is there, and ends them with the
    test."""
    monkeypatch.chdir(tmp_path)
    jobs = list[Job]()

    def begin(*words: str, guidance: Sequence[Guidance] = (make_guidance(*RULES),)) -> Running:
        if guidance:
            Path("rules.json").write_text(format_file(guidance))
        line = [sys.executable, "-m", "stageb", "serve", "rules.json", "--port", "0", *words]
        jobs.append(job := Job.start(line, tmp_path / f"job{len(jobs)}"))
        assert wait_until(lambda: "serving" in job.out or job.parent.poll() is not None, 60)
        assert "serving" in job.out, job.err
        return Running(job, int(job.out.split("http://127.0.0.1:")[1].split()[0]))

    yield begin
    for job in jobs:
        job.clear()


def make_cells(dice: random.Random) -> dict[str, str]:
    """A row of a table, with cells as people leave them."""
    odd = [
        "",
        " ",
        "n/a",
        "1,5",
        "12 mm",
        "-3",
        "１２",
        "0.0",
        "1e3",
        "70.0",
        "yes; leak at the flange",
        "worn, old",
    ]
    plain = {
        "Torque Nm": f"{dice.uniform(3, 77):.1f}",
        "Speed rpm": str(dice.randrange(1100, 2900)),
        "Wear min": str(dice.randrange(250)),
        "Type": dice.choice("HLMhlm"),
        "Remarks": dice.choice(
            ["", "a leak", "leaking, said the night shift", "no fault; dust", "quote \" and 'more'"]
        ),
    }
    return {name: dice.choice(odd) if dice.random() < 0.1 else cell for name, cell in plain.items()}


def test_a_ticket_is_judged_as_predict_judges_it(start: Start) -> None:
    dice = random.Random(5)
    tickets = [{"Case": f"c-{n}", **make_cells(dice)} for n in range(400)]
    running = start("--columns", "group_id=Case")
    with Path("tickets.csv").open("w", newline="") as opened:
        table = csv.DictWriter(opened, [*tickets[0]])
        table.writeheader()
        table.writerows(tickets)
    found = stageb.predict(
        guidance="rules.json",
        tickets="tickets.csv",
        output="out.jsonl",
        by="rules",
        columns={"group_id": "Case", "mission_name": "milling"},
    )
    wanted = [
        {name: cell for name, cell in row.items() if name not in ("file", "line", "label")}
        for row in found
    ]
    assert running.judge(tickets) == wanted
    assert [running.judge(ticket) for ticket in tickets[:20]] == wanted[:20]
    assert {row["verdict"] for row in wanted} == {"pass", "fail", None}
    counted = sum(
        int(line.split()[-1])
        for line in running.metrics
        if line.startswith("stageb_tickets_total{")
    )
    assert counted == 420


def test_numbers_are_read_as_those_of_parquet_and_summaries_as_those_of_json_lines(
    start: Start,
) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    dice = random.Random(6)
    rows = [
        {
            "Torque Nm": dice.uniform(55, 65),
            "Speed rpm": dice.choice([1399, 1400.0, None]),
            "Wear min": dice.randrange(180, 220),
            "Type": "L",
        }
        for _ in range(60)
    ]
    running = start()
    parquet.write_table(pyarrow.Table.from_pylist(rows), "t.parquet")
    columns = {"group_id": None, "mission_name": "milling"}
    found = stageb.predict(
        guidance="rules.json", tickets="t.parquet", output="p.jsonl", by="rules", columns=columns
    )
    assert [row["verdict"] for row in running.judge(rows)] == [row["verdict"] for row in found]
    lines = [
        {
            "mission": "milling",
            "group_id": "g-1",
            "per_image": {"image_2": "dust", "图片_1": "Type: H; Wear min: 9"},
        },
        {
            "mission": "milling",
            "group_id": "g-2",
            "per_image": {"1": '{"Torque Nm": 70, "Speed rpm": 1200, "Type": "L"}'},
        },
        {"mission": "milling", "group_id": "g-3", "per_image": {"1": " "}},
    ]
    Path("t.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = stageb.predict(guidance="rules.json", tickets="t.jsonl", output="j.jsonl", by="rules")
    told = [(row["group_id"], row["verdict"], row["rule"], row["why"]) for row in found]
    assert [
        (row["group_id"], row["verdict"], row["rule"], row["why"]) for row in running.judge(lines)
    ] == told
    assert [row[1] for row in told] == ["pass", "fail", None]


@pytest.mark.parametrize(
    "rename",
    [
        {"Torque": "Torque Nm", "Last change": "Remarks"},
        {"Wear min": "Speed rpm", "Speed rpm": "Wear min", "Kind": "Type"},
        {"Kind": "Type", "Type": "Case", "Line": "mission"},
    ],
)
@pytest.mark.parametrize("texts", [[], ["Torque Nm", "Speed rpm", "Wear min", "Type"]])
def test_a_ticket_with_renamed_columns_is_judged_as_predict_judges_it(
    rename: dict[str, str], texts: list[str], tmp_path: Path
) -> None:
    """Also where two columns swap their names, and where one names the ticket or its mission."""
    dice, back = random.Random(7), {name: column for column, name in rename.items()}
    named = [
        {"Case": f"c-{n}", "mission": dice.choice(("milling", "turning")), **make_cells(dice)}
        for n in range(60)
    ]
    tickets = [{back.get(name, name): cell for name, cell in row.items()} for row in named]
    rules, table = tmp_path / "rules.json", tmp_path / "tickets.csv"
    other = make_guidance("Fail if Type is H.", "Pass if Wear min is below 150.", mission="turning")
    rules.write_text(format_file([make_guidance(*RULES), other]))
    with table.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, [*tickets[0]])
        writer.writeheader()
        writer.writerows(tickets)
    columns = ColumnsConfig(group_id="Case", texts=texts, rename=rename)
    found = stageb.predict(
        guidance=str(rules),
        tickets=str(table),
        output=str(tmp_path / "out.jsonl"),
        by="rules",
        columns={"group_id": "Case", "texts": texts, "rename": rename},
    )
    wanted = [
        {name: cell for name, cell in row.items() if name not in ("file", "line", "label")}
        for row in found
    ]
    assert {row["verdict"] for row in wanted} >= {"pass", "fail"}
    served = load_served(ServeConfig(guidance=str(rules), columns=columns))
    assert served.judge_all(tickets, is_batch=True, ends=inf) == wanted


@pytest.mark.parametrize(
    ("columns", "said", "fault"),
    [
        ({}, {"Type": "L", "type": "H"}, "which rules cannot tell apart"),
        ({"rename": {"type": "Make"}}, {"Type": "L", "type": "H"}, ""),
        ({"texts": ["Type", "Wear min"]}, {"Type": "L", "type": "H"}, ""),
        ({"group_id": "type"}, {"Type": "L", "type": "H"}, ""),
        ({"rename": {"Make": "type"}}, {"Type": "L", "Make": "H"}, "which rules cannot tell apart"),
        ({"rename": {"Kind": "Type"}}, {"Type": "L", "Kind": "H"}, 'two columns "Type"'),
    ],
)
def test_columns_that_are_read_are_told_apart_by_the_names_that_rules_know(
    columns: dict[str, Any], said: dict[str, str], fault: str, tmp_path: Path
) -> None:
    """A table with these columns is refused for the same, or judged the same."""
    (rules := tmp_path / "rules.json").write_text(format_file([make_guidance(*RULES)]))
    row, table = {**said, "Wear min": "220"}, tmp_path / "tickets.csv"
    table.write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    roles = {"group_id": None, "mission_name": "milling", **columns}
    given: dict[str, Any] = {"guidance": str(rules), "tickets": str(table), "by": "rules"}
    given |= {"output": str(tmp_path / "out.jsonl"), "columns": roles}
    served = load_served(ServeConfig(guidance=str(rules), columns=ColumnsConfig(**roles)))
    if fault:
        with pytest.raises(InputError, match=fault):
            stageb.predict(**given)
        with pytest.raises(RequestError) as refused:
            served.judge_all([row], is_batch=False, ends=inf)
        assert fault in refused.value.faults[0].what
    else:
        (found,) = stageb.predict(**given)
        (judged,) = served.judge_all([row], is_batch=False, ends=inf)
        assert judged["verdict"] == found["verdict"] == "fail"


def test_a_group_is_told_by_the_name_that_its_ticket_gave_it(shared: Running) -> None:
    """Whatever word that is; and by none where it gave none."""
    plain, prose = {"Type": "H"}, {"mission": "milling", "per_image": {"1": "Type: H"}}
    for name in ("g-1", "ticket", "None"):
        rows = shared.judge([{**each, "group_id": name} for each in (plain, prose)])
        assert [row["group_id"] for row in rows] == [name, name]
    rows = shared.judge([plain, {**plain, "group_id": None}, {**plain, "group_id": " "}, prose])
    assert [row["group_id"] for row in rows] == [None] * 4


LABELS = ["pass", "fail", "Late", "urgent", "", " ", None, 3, True, 0.5]


@pytest.mark.parametrize("label", [*LABELS, ["urgent"], {"is": "late"}])
def test_the_label_of_a_ticket_is_not_read_whatever_it_is(label: Any, tmp_path: Path) -> None:
    """So the labelled lines of a ticket file can be posted as they are, also those of missions with
    labels of their own, and those that no mission knows."""
    texts = ("A ticket is late unless a rule says otherwise.", "Urgent if Type is L.")
    rules = tuple(Rule(f"G{n}", text) for n, text in enumerate(texts))
    own = Guidance("mail", 1, rules, 2, labels=("late", "urgent"), named=NAMED)
    (tmp_path / "rules.json").write_text(format_file([make_guidance(*RULES), own]))
    served = load_served(ServeConfig(guidance=str(tmp_path / "rules.json")))
    lines: list[dict[str, Any]] = [
        {"mission": mission, "group_id": f"g-{cells}", "per_image": {"1": cells}}
        for mission in ("milling", "mail")
        for cells in ("Type: L; Wear min: 220", "Type: H; Wear min: 3", " ")
    ]
    if label in LABELS:  # those that a cell of a table can be
        lines += [{"mission": "mail", "Case": n, "Type": kind} for n, kind in enumerate("LH")]
    unread = served.judge_all(lines, is_batch=True, ends=inf)
    assert {row["verdict"] for row in unread} >= {"pass", "fail", "late", "urgent", None}
    labelled = [{**line, "label": label} for line in lines]
    assert served.judge_all(labelled, is_batch=True, ends=inf) == unread
    first = [{"label": label, **line} for line in lines]
    assert served.judge_all(first, is_batch=True, ends=inf) == unread


def test_who_decides_is_what_was_promised_of_these_rules(start: Start) -> None:
    plain = make_guidance(*RULES)
    bound, told = Bound("", 0.02, {"G2": 0}, 400, 300, 1), ("Torque Nm",)
    other = make_guidance("Fail if Type is L.", mission="turning")
    promised = replace(
        plain, automation=Automation(0.95, name_guidance(plain), "rules", "", 400, told, (bound,))
    )
    stale = replace(
        other, automation=Automation(0.95, "of other rules", "rules", "", 400, told, (bound,))
    )
    running = start(guidance=[promised, stale])
    rows = running.judge(
        [
            {"mission": "milling", **WORN},
            {"mission": "milling", "Type": "H", "Torque Nm": 1},
            {"mission": "turning", "Type": "L"},
            {"mission": "milling", **WORN, "Torque Nm": None},
        ]
    )
    assert [(row["verdict"], row["decides"]) for row in rows] == [
        ("fail", "stageb"),
        ("pass", "person"),
        ("fail", None),
        ("fail", "person"),
    ]
    assert rows[1]["why"] == "not decided alone"
    assert rows[3]["why"] == "not decided alone: no Torque Nm"
    missions = running.health["missions"]
    assert missions["milling"]["promise"].startswith("decides 75 % alone; at most 2 %")
    assert missions["turning"]["promise"] is None
    assert "turning: nothing is promised" in running.job.err


@pytest.mark.parametrize(
    ("body", "status", "at", "what"),
    [
        (b"", 400, "line 1 column 1", "not JSON"),
        (b'{"Type": "L"', 400, "line 1 column 13", "not JSON"),
        (b'{"Type": "L",\n "Type": "H"}', 400, "line 2", "'Type' is given twice"),
        (b'{"Torque Nm": NaN}', 400, "line 1", "NaN is no JSON number"),
        (b'{"Torque Nm": 1e999}', 400, "", "too large"),
        (b"[" * 100_000, 400, "", "nested too deeply"),
        (b'{"Type": "\xff"}', 400, "byte 10", "not UTF-8"),
        (b'{"Type": "\\ud800"}', 400, "", "half a surrogate pair"),
        (b'"L"', 422, "", "no object"),
        (b"[{}, 3]", 422, "[1]", "no object"),
        (b'[{"Type": "L"}, {"Type": {"is": "L"}}]', 422, "[1]", '"Type": {"is": "L"}'),
        (b'{"Type": "L", "type": "H"}', 422, "", "cannot tell apart"),
        (b'{"mission": "drilling", "Type": "L"}', 422, "", "no guidance"),
        (b'{"per_image": "worn"}', 422, "", "per_image"),
        (b'{"per_image": {"one": "worn"}}', 422, "", "one"),
        (b'{"per_image": {"1": ["worn"]}}', 422, "", "1"),
    ],
)
def test_what_is_no_ticket_is_refused_with_its_place_and_the_remedy(
    shared: Running, body: bytes, status: int, at: str, what: str
) -> None:
    found, faults = shared.refuse(body)
    assert (found, faults[0]["at"]) == (status, at)
    assert what in faults[0]["what"]
    assert faults[0]["remedy"]


def test_hostile_strings_take_no_time(shared: Running) -> None:
    began = time.monotonic()
    assert shared.refuse(b'{"a": {"b": 1, "b": 2}, "' + b'\\"' * 400_000)[0] == 400
    assert (
        shared.ask("POST", "/judge", json.dumps({"Remarks": "a is " * 200_000}).encode())[0] == 200
    )
    assert time.monotonic() - began < 20


def test_no_request_leads_to_a_file(shared: Running, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # who opens it waits for good
    images = {"image_1": str(tmp_path / "pipe")}
    [row] = shared.judge(
        [
            {
                "mission": "milling",
                "group_id": "g",
                "per_image": {"1": "Type: L; Wear min: 220"},
                "images": images,
            }
        ]
    )
    assert row["verdict"] == "fail"
    for path in (
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/judge/rules.json",
        "//etc/passwd",
        f"/{tmp_path}/pipe",
    ):
        assert shared.ask("GET", path)[0] == 404
    assert shared.ask("GET", "/judge")[0] == 405


def test_only_json_is_taken(shared: Running) -> None:
    """A page in a browser may send anything else to this machine without asking."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert shared.refuse(b"{}", {"content-type": kind})[0] == 415
    assert (
        shared.ask(
            "POST", "/judge", b'{"Type": "H"}', {"content-type": "application/json; charset=utf-8"}
        )[0]
        == 200
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One service for requests that leave nothing behind."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "rules.json").write_text(format_file([make_guidance(*RULES)]))
    line = [sys.executable, "-m", "stageb", "serve", str(folder / "rules.json"), "--port", "0"]
    job = Job.start(line, folder / "job")
    assert wait_until(lambda: "serving" in job.out, 60), job.err
    yield Running(job, int(job.out.split("http://127.0.0.1:")[1].split()[0]))
    job.clear()


def test_the_page_and_the_document_say_what_can_be_asked(shared: Running) -> None:
    document = json.loads(shared.ask("GET", "/openapi.json")[1])
    assert document["openapi"].startswith("3.1")
    assert {"/judge", "/health", "/metrics"} <= set(document["paths"])
    schemas = document["components"]["schemas"]
    assert schemas["Ticket"]["example"] == {
        "mission": "milling",
        **dict.fromkeys(["Torque Nm", "Speed rpm", "Wear min", "Type"], "..."),
    }
    assert list(schemas["Verdict"]["properties"]) == list(shared.judge({"Type": "H"}))
    for named in _find_references(document):
        assert named.removeprefix("#/components/schemas/") in schemas
    page = shared.ask("GET", "/")[1].decode()
    assert "POST /judge" in page
    assert "Torque Nm" in page
    assert not any(word in page for word in ("<script", "src=", "href=", "http:", "https:"))


def _find_references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (inner for name, inner in value.items() if name == "$ref")
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _find_references(inner)


@pytest.mark.slow
def test_a_request_has_limits(start: Start) -> None:
    running = start("--max_tickets", "5", "--max_kib", "2", "--max_seconds", "1.5")
    room = 2048 - len(json.dumps({"Remarks": ""}))
    for most, more in (
        ([WORN] * 5, [WORN] * 6),
        ({"Remarks": "x" * room}, {"Remarks": "x" * (room + 1)}),
    ):
        assert running.judge(most)
        assert running.refuse(json.dumps(more).encode())[0] == 413
    assert (
        _send(
            running,
            b"POST /judge HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n",
        )
        == 413
    )
    chunked = b"POST /judge HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (
        _send(running, chunked + b"5dc\r\n" + b" " * 1500 + b"\r\n5dc\r\n" + b" " * 1500 + b"\r\n")
        == 413
    )
    began = time.monotonic()
    assert (
        _send(
            running,
            b"POST /judge HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
        )
        == 408
    )
    assert _send(running, b"POST /judge HTTP/1.1\r\nHo") == 0  # closed
    assert _send(running, b"") == 0
    assert 4 < time.monotonic() - began < 15
    assert running.judge({"Type": "H"})["verdict"] == "pass"


def _send(running: Running, data: bytes) -> int:
    """The status of the answer to these bytes; 0 where the connection was closed without any."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as connection:
        connection.sendall(data)
        answer = connection.recv(1 << 16)
        return int(answer.split()[1]) if answer else 0


def test_promoted_guidance_is_taken_into_use_and_a_broken_file_is_not(start: Start) -> None:
    running = start()
    assert running.judge(WORN)["verdict"] == "fail"
    disk.write(Path("rules.json"), format_file([make_guidance("Fail if Type is M.", step=4)]))
    assert wait_until(lambda: running.health["missions"]["milling"]["step"] == 4, 20)
    assert running.judge(WORN)["verdict"] == "pass"
    disk.write(Path("rules.json"), '{"milling": {"experiences": {"G1": 3}}}')
    assert wait_until(lambda: running.health["refused"], 20)
    assert "rules.json" in running.health["refused"]
    assert running.judge(WORN)["guidance_step"] == 4
    assert "in use is still 'milling' step 4" in running.job.err
    assert 'stageb_reloads_total{result="refused"} 1' in running.metrics
    assert "stageb_guidance_refused 1" in running.metrics
    Path("rules.json").unlink()
    assert wait_until(lambda: "no such file" in running.health["refused"], 20)
    assert running.judge(WORN)["guidance_step"] == 4
    disk.write(Path("rules.json"), format_file([make_guidance(*RULES, step=6)]))
    assert wait_until(lambda: running.judge(WORN)["guidance_step"] == 6, 20)
    assert running.health["refused"] is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_once_what_was_asked_is_answered(
    start: Start, number: signal.Signals
) -> None:
    running = start()
    body = json.dumps([WORN] * 300).encode()
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as connection:
        connection.sendall(b"POST /judge HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n")
        connection.sendall(f"Content-Length: {len(body)}\r\n\r\n".encode() + body[:1000])
        time.sleep(0.5)
        running.job.parent.send_signal(number)
        time.sleep(0.5)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", running.port), timeout=2).close()
        connection.sendall(body[1000:])
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert len(json.loads(answer.read())) == 300
    assert running.job.wait(15)
    assert running.job.code == 0
    assert running.job.err == ""


def test_it_serves_the_folder_of_a_run(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(3)
    lines = ["mission,group_id,Seal,Age,label"]
    for n in range(300):
        seal, age = dice.choice(["worn", "new"]), dice.randrange(20)
        lines.append(f"valves,g-{n},{seal},{age},{'fail' if seal == 'worn' else 'pass'}")
    Path("t.csv").write_text("\n".join([*lines, ""]))
    words = (
        "fit --config tickets --config frugal --tickets t.csv --output.root . "
        "--output.run_name run --report false"
    )
    assert (
        main(
            [
                *words.split(),
                "--model.engine",
                "scripted",
                "--fabric.accelerator",
                "cpu",
                "--fabric.devices",
                "1",
            ]
        )
        == 0
    )
    Path("rules.json").symlink_to("run")
    running = start(guidance=())
    row = running.judge({"Seal": "worn", "Age": 3})
    assert (row["verdict"], row["by"]) == ("fail", "rules")
    assert running.judge({"Seal": "new", "Age": None})["verdict"] == "pass"


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("localhost", True), ("127.0.0.1", True), ("0.0.0.0", False), (socket.gethostname(), False)],
)
def test_whoever_serves_to_others_is_told_that_they_need_no_login(
    tmp_path: Path, host: str, is_own: bool
) -> None:
    try:
        socket.getaddrinfo(host, 0)
    except OSError:
        pytest.skip("this machine does not know its own name")
    (tmp_path / "rules.json").write_text(format_file([make_guidance(*RULES)]))
    line = [sys.executable, "-m", "stageb", "serve", str(tmp_path / "rules.json"), "--port", "0"]
    job = Job.start([*line, "--host", host], tmp_path / "job")
    try:
        assert wait_until(lambda: "serving" in job.out or job.parent.poll() is not None, 60)
        assert "serving" in job.out, job.err
        assert (f"whoever reaches {host} can ask, without a login" in job.err) == (not is_own)
    finally:
        job.clear()


def test_what_cannot_be_served_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    guidance = make_guidance(*RULES)
    judges: dict[str, JudgeName] = {"asks.json": "model", "weighs.json": "weighed"}
    for name, judge in judges.items():
        turning = make_guidance(*RULES, mission="turning")
        Path(name).write_text(format_file([guidance, replace(turning, judge=judge)]))
    Path("unnamed.json").write_text(format_file([replace(guidance, named=())]))
    Path("rules.json").write_text(format_file([guidance]))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, said in [
            (["asks.json"], "a model judges 'turning' better"),
            (["weighs.json"], "--by rules has the rules judge alone"),
            (["unnamed.json"], "--vocabulary FILE"),
            (["none.json"], "there is no such file"),
            (["rules.json"], "choose another, or 0"),
            (["rules.json", "--host", "no.such.host.invalid"], "name an address of this machine"),
            (["rules.json", "--port", "70000"], "at most 65535"),
        ]:
            # so that what should be refused does not serve for good
            assert main(["serve", words[0], "--port", port, *words[1:]]) == 2, words
            assert said in capsys.readouterr().err


def test_rules_judge_alone_where_that_is_asked_for(start: Start) -> None:
    running = start(
        "--by",
        "rules",
        guidance=[replace(make_guidance(*RULES, "Fail if it looks odd."), judge="model")],
    )
    assert running.judge({"Type": "H"})["verdict"] == "pass"
    assert "G5" in running.judge(WORN)["why"]  # on which it hangs
    assert "G5 cannot be read as code" in running.job.err
