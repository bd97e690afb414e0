"""CSV files of tickets, read by the same reader as JSON Lines."""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow
import pytest
from guidance.made_sheets import write_xlsx
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from stageb.errors import BadInputError, ConfigError
from stageb.guidance.config import LoopConfig
from stageb.guidance.rules.value_types import clean_value
from stageb.guidance.tickets.headers import list_roles
from stageb.guidance.tickets.tables import read_object
from stageb.guidance.tickets.tickets import describe_left_out, read_entries, read_tickets
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import UNKNOWN, Ticket, Verdict
from stageb.untrusted.strict_json import FaultError

OWN = ColumnsConfig(
    mission="Station", group_id="ID", label="Result", passes=["OK", "i.O."], fails=["NG"]
)


def write(tmp_path: Path, content: str | bytes, name: str = "t.csv") -> str:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def faults(path: str, columns: ColumnsConfig = OWN) -> list[tuple[int, str, str]]:
    with pytest.raises(BadInputError) as raised:
        read_tickets([path], "error", columns)
    assert {bad.path for bad in raised.value.bad} == {path}
    return [(bad.line, bad.what, bad.remedy) for bad in raised.value.bad]


def test_a_table_as_a_spreadsheet_writes_it(tmp_path: Path) -> None:
    text = (
        "\ufeffID,Station,Part,Finding,Result,image_2,Inspector\r\n"
        '7,"racks, hall 1",seal,"worn,\r\ntorn ""badly""",ng,seen from\r\nbehind,Ann\r\n'
    ).replace("seen from\r\nbehind", '"seen from\r\nbehind"')
    text += "\r\n,,,,,,\r\n8,racks,hose,,I.O.,,Bo\r\n"
    columns = ColumnsConfig(**{**OWN.__dict__, "texts": ["Finding", "Part", "image_2"]})
    tickets, bad = read_tickets([write(tmp_path, text)], "error", columns)
    assert bad == []
    assert [(each.mission, each.group_id, each.label) for each in tickets] == [
        ("racks, hall 1", "7", "fail"),
        ("racks", "8", "pass"),
    ]
    assert tickets[0].per_image == (
        ("image_1", 'Finding: worn, torn "badly"; Part: seal'),
        ("image_2", "seen from\r\nbehind"),
    )
    assert tickets[1].per_image == (("image_1", "Part: hose"),)
    assert tickets[0].extra == {"Inspector": "Ann"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "mission;group_id;label;part\nm;1;pass;a,b\n"),
        ("t.TSV", "mission\tgroup_id\tlabel\tpart\nm\t1\tpass\ta,b\n"),
        ("t.csv", 'mission,group_id,label,part\nm,1,PASS,"a,b"'),
        ("t.csv", "mission|group_id|label|part\nm|1|pass|a,b\n"),
        ("t.csv", "mission\tgroup_id\tlabel\tpart\nm\t1\tpass\ta,b\n"),
        ("t.csv", '"mission"\t"group_id"\t"label"\t"part"\n"m"\t"1"\t"pass"\t"a,b"\n'),
        ("t.csv", 'mission;group_id;label;part;"b,c,d,e,f"\nm;1;pass;a,b;\n'),
        ("t.csv", "mission;group_id;label;part;Torque, Nm\nm;1;pass;a,b;\n"),
    ],
)
def test_what_parts_cells_is_told_by_the_header(tmp_path: Path, name: str, text: str) -> None:
    tickets, _ = read_tickets([write(tmp_path, text, name)], "error")
    assert [(each.key, each.per_image) for each in tickets] == [
        ("1::pass", (("image_1", "part: a,b"),))
    ]


def test_missions_and_groups_need_no_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "label,seal\npass,new\nfail,worn\n")
    tickets, _ = read_tickets([path], "error", ColumnsConfig(mission_name="racks", group_id=None))
    assert {each.mission for each in tickets} == {"racks"} and len(
        {each.group_id for each in tickets}
    ) == 2


def test_what_stands_in_a_column_without_a_name_is_nobodys_reason(tmp_path: Path) -> None:
    text = "mission,group_id,label,seal,,Why\nm,1,fail,worn,a note,torn\nm,2,pass,new,,\n"
    path = write(tmp_path, text)
    for columns, reasons in (
        (ColumnsConfig(), ["", ""]),
        (ColumnsConfig(reason="Why"), ["torn", ""]),
    ):
        tickets, _ = read_tickets([path], "error", columns)
        assert [each.reason for each in tickets] == reasons


def test_a_row_without_a_name_is_called_by_what_it_says_and_a_copy_by_its_number(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "label,seal\npass,new\nfail,worn\npass,new\nfail,new\npass,new\n")
    tickets, _ = read_tickets([path], "error", ColumnsConfig(mission_name="racks", group_id=None))
    new, worn, *others = (each.group_id for each in tickets)
    assert all(re.fullmatch("row [0-9a-f]{16}", name) for name in (new, worn)) and new != worn
    assert others == [f"{new} (2)", new, f"{new} (3)"]


@pytest.mark.parametrize("role", ["together", "split", "reason"])
def test_what_a_column_says_of_a_ticket_is_no_field_of_it(role: str, tmp_path: Path) -> None:
    text = "mission,group_id,label,seal,Note\nm,1,fail,worn,train\nm,2,pass,new,val\n"
    path = write(tmp_path, text)
    columns = ColumnsConfig(**{role: "Note"})  # type: ignore[arg-type]
    tickets, _ = read_tickets([path], "error", columns)
    assert [each.per_image for each in tickets] == [
        (("image_1", "seal: worn"),),
        (("image_1", "seal: new"),),
    ]


def test_labels_may_be_missing_where_they_are_not_needed(tmp_path: Path) -> None:
    path = write(tmp_path, "mission,group_id,label,seal\nm,1,,new\nm,2,fail,worn\n")
    ((line, what, remedy),) = faults(path, ColumnsConfig())
    assert (line, what) == (2, "an empty label") and "columns.unlabelled skip" in remedy
    tickets, (left_out,) = read_tickets([path], "error", ColumnsConfig(unlabelled="skip"))
    assert [ticket.key for ticket in tickets] == ["2::fail"] and left_out.left_out == "unlabelled"
    assert list(describe_left_out([left_out])) == [
        f"1 row is without a label, and left out; the first is {path}:2"
    ]
    assert [entry.ticket(False).label for entry in read_entries(path, ColumnsConfig())] == [
        UNKNOWN,
        "fail",
    ]
    without = write(tmp_path, "mission,group_id,seal\nm,1,new\n", "without.csv")
    assert faults(without, ColumnsConfig())[0][1].startswith('no column "label" (columns.label)')
    assert [
        entry.ticket(False).key for entry in read_entries(without, ColumnsConfig(), labelled=False)
    ] == ["1"]


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
@pytest.mark.parametrize("unlabelled", ["skip", "refuse"])
def test_tickets_without_a_label_are_left_out_only_where_labels_are_needed(
    name: str, unlabelled: Any, tmp_path: Path
) -> None:
    """Those to be judged have none, by whatever columns guidance was learnt."""
    told: list[dict[str, Any]] = [{"label": "pass"}, {"label": "fail"}]
    told += [{"label": None}, {"label": ""}, {}]
    rows = [
        {"mission": "m", "group_id": f"g{place}", **label, "per_image": {"1": f"seal: {place}"}}
        for place, label in enumerate(told)
    ]
    lines = [json.dumps(row) for row in rows]
    if name == "t.csv":
        lines = ["mission,group_id,label,seal"]
        lines += [f"m,g{place},{label.get('label') or ''},new" for place, label in enumerate(told)]
    path = write(tmp_path, "".join(f"{line}\n" for line in lines), name)
    columns = ColumnsConfig(unlabelled=unlabelled)
    for labelled in (False, True):
        entries = [*read_entries(path, columns, labelled)]
        left_out = [place >= 2 and labelled and unlabelled == "skip" for place in range(5)]
        assert [entry.is_skipped for entry in entries] == left_out
    judged = [entry.ticket(False) for entry in read_entries(path, columns, labelled=False)]
    assert [(each.group_id, each.label) for each in judged] == [
        (f"g{place}", label.get("label") or UNKNOWN) for place, label in enumerate(told)
    ]


def test_a_row_of_too_few_cells_is_no_row_without_a_label(tmp_path: Path) -> None:
    path = write(tmp_path, "mission,group_id,seal,label\nm,1,new\nm,2,,,\nm,3,worn,fail\n")
    told = faults(path, ColumnsConfig(unlabelled="skip"))
    assert [(line, what) for line, what, _ in told] == [
        (2, "3 cells where the header names 4"),
        (3, "5 cells where the header names 4"),
    ]


def test_a_column_that_shall_keep_tickets_together_has_to_be_there(tmp_path: Path) -> None:
    """Or nothing would keep them out of two splits."""
    path = write(tmp_path, "mission,group_id,label,seal,Machine\nm,1,pass,new,a\nm,2,fail,worn,a\n")
    ((line, what, _),) = faults(path, ColumnsConfig(together="machine"))
    assert (line, what.partition(";")[0]) == (
        1,
        'no column "machine" (columns.together), did you mean "Machine"?',
    )
    tickets, _ = read_tickets([path], "error", ColumnsConfig(together="Machine"))
    assert len({ticket.group for ticket in tickets}) == 1


def test_a_row_of_a_program_says_what_its_texts_say_and_a_value_is_no_list() -> None:
    roles = list_roles(ColumnsConfig())
    row = {"mission": "m", "group_id": 1, "label": "pass", "seal": "worn", "gap": 0.5, "new": True}
    shown, content = read_object(row, roles)
    assert shown == {"image_1": "seal: worn; gap: 0.5; new: True"}
    assert dict(content.fields).keys() == {"seal", "gap", "new"}
    for silent in ({}, {"seal": ""}, {"seal": None, "gap": " "}):
        shown, content = read_object(silent, roles)
        assert (shown, content.fields) == ({"image_1": ""}, ())
    for value in (["worn"], {"is": "worn"}):
        with pytest.raises(FaultError, match="seal"):
            read_object({"seal": value}, roles)


def test_rows_without_names_of_their_own_that_differ_in_what_nobody_reads_are_told(
    tmp_path: Path,
) -> None:
    columns = ColumnsConfig(mission_name="m", group_id=None, texts=["seal"])
    files = [
        write(tmp_path, f"label,seal,by\nfail,worn,{by}\npass,worn,{by}\n", f"{by}.csv")
        for by in ("Ann", "Bo")
    ]
    tickets, _ = read_tickets(files[:1], "error", columns)
    assert len({ticket.group_id for ticket in tickets}) == 1, (
        "named by what they say, not by labels"
    )
    with pytest.raises(BadInputError, match="rows have no names of their own: leave one out"):
        read_tickets(files, "error", columns)


def test_every_bad_row_is_told_with_its_line(tmp_path: Path) -> None:
    text = 'ID,Station,Part,Result\n1,a,seal,OK\n2,a,seal\n3,a,seal,maybe\n,a,seal,OK\n5,a,,OK\n1,a,hose,OK\n6,a,"x\ny",\n'
    told = faults(write(tmp_path, text))
    assert [(line, what) for line, what, _ in told] == [
        (3, "3 cells where the header names 4"),
        (4, 'label "maybe"'),
        (5, 'group_id ""'),
        (6, "no text: every cell for it is empty"),
        (7, f"ticket '1::pass' of mission 'a' stands at {tmp_path / 't.csv'}:2 already"),
        (8, "an empty label"),
    ]
    assert told[4][2].startswith("keep one of the two, or give another group_id")
    assert told[1][2] == (
        "write one of OK, i.O., NG, or correct columns.passes and columns.fails in the config: "
        "--columns passes=WORD,fails=WORD"
    )
    tickets, bad = read_tickets([str(tmp_path / "t.csv")], "skip", OWN)
    assert len(tickets) == 1
    assert bad[-1].raw == '6,a,"x\ny",'


MUCH = "a cell of more than 131,072 characters"
QUOTE, BREAKS = "close every quote", "line breaks"


@pytest.mark.parametrize(
    ("content", "line", "what", "remedy"),
    [
        ("", 0, "empty", ""),
        ("\n\n", 0, "empty", ""),
        ("ID,Station,Result,Part\n", 0, "no rows below the header", ""),
        (
            "ID,Part\n1,a\n",
            1,
            'no column "Station" (columns.mission), "Result" (columns.label); there are ID, Part',
            "",
        ),
        (
            "ID,Station,Result\n1,a,OK\n",
            1,
            "no column for the text; there are ID, Station, Result",
            "",
        ),
        ("ID,Station,Result,Part,Part\n", 1, 'two columns "Part"', ""),
        (
            "Racks of 2025\n\nID;Station;Result;Part\n1;a;OK;x\n",
            1,
            'row 1 is a title, "Racks of 2025"; the header',
            "above",
        ),
        (
            "ID,Station,Seen,,Result\n,,Seal,mm,\n1,a,x,3,OK\n2,a,x,4,OK\n",
            1,
            "the header goes on in row 2",
            "in one row",
        ),
        (
            "Racks,,,\n,,,\nID,Station,Result,Part\n1,a,OK,x\n",
            1,
            'row 1 is a title, "Racks"; the header seems',
            "above",
        ),
        (
            "Racks,,,\nWritten on,2025-03-01,by,Lee\n,,,\nID,Station,Result,Part\n1,a,OK,x\n",
            1,
            'row 1 is a title, "Racks"; the header seems to stand in row 4',
            "above",
        ),
        (
            "ID,Station,Result,Part\n1,a,OK,x\nID,Station,Result,Part\n2,a,OK,x\n",
            3,
            "the header again",
            "take out every row",
        ),
        (
            "sep=;\nID;Station;Result;Part\n1;a;OK;x\n",
            1,
            '"sep=", a line for a spreadsheet alone',
            "",
        ),
        (
            'ID,Station,Result,Part\n1,a,OK,x\n2,a,OK,"never\nclosed\n',
            3,
            "no row of a table begins here",
            QUOTE,
        ),
        ('ID,Station,Result,Part\n1,a,OK,"x"y\n', 2, "no row of a table begins here", QUOTE),
        (b"ID,Station,Result,Part\n1,a,OK,caf\xe9\n", 2, "not UTF-8 at byte 10 of the line", ""),
        ("ID,Station".encode("utf-16"), 0, "UTF-16, not UTF-8", ""),
        (f"ID,Station,Result,Part\n1,a,OK,x\n2,a,OK,{'x' * 140_000}\n", 3, MUCH, "shorten"),
        (f'ID,Station,Result,Part\n1,a,OK,"x\n{"2,a,OK,x" * 20_000}\n', 2, MUCH, "quote"),
        (
            "ID,Station,Result,Part\r1,a,OK,x\r",
            1,
            "lines that end with a carriage return alone",
            BREAKS,
        ),
        (
            "ID,Station,Result,Part\n1,a,OK,x\n2,a,OK,x\ry\n",
            3,
            "a carriage return amid the line",
            BREAKS,
        ),
        ("ID,Station,Result,Part\n1,a,OK,x\ry", 2, "a carriage return amid the line", BREAKS),
        ("ID,Station\r,Result,Part\n1,a,OK,x\n", 1, "a carriage return amid the line", BREAKS),
    ],
)
def test_what_is_no_table_stops_whatever_is_skipped(
    tmp_path: Path, content: str | bytes, line: int, what: str, remedy: str
) -> None:
    path = write(tmp_path, content)
    ((found, said, do),) = faults(path)
    assert (found, said[: len(what)]) == (line, what)
    assert remedy in do
    with pytest.raises(BadInputError):
        read_tickets([path], "skip", OWN)


@pytest.mark.parametrize("columns", range(4, 13))
def test_a_first_row_that_names_half_of_the_columns_is_their_header(
    tmp_path: Path, columns: int
) -> None:
    further = columns - 4
    rows = [
        ",".join([f"r-{n}", "a", "OK", "x", *(f"y{n}-{k}" for k in range(further))])
        for n in range(3)
    ]
    path = write(tmp_path, "\n".join([f"ID,Station,Result,Part{',' * further}", *rows]) + "\n")
    if columns <= 2 * 4:
        assert [each.group_id for each in read_tickets([path], "error", OWN)[0]] == [
            "r-0",
            "r-1",
            "r-2",
        ]
    else:
        assert faults(path)[0][1].startswith('row 1 is a title, "ID"')


def test_a_table_of_very_many_columns_is_read_in_time(tmp_path: Path) -> None:
    """As those of genes are: a header that was searched for each column took hours."""
    names = [f"c{place}" for place in range(100_000)]
    path = write(
        tmp_path, f"ID,Station,Result,{','.join(names)}\n1,a,OK,{','.join('1' for _ in names)}\n"
    )
    began = time.process_time()
    assert len(read_tickets([path], "skip", OWN)[0]) == 1
    assert time.process_time() - began < 30


def test_all_columns_that_are_missing_are_told_at_once_with_the_keys_that_name_them(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "part,state\nseal,worn\n")
    ((_, what, remedy),) = faults(path, ColumnsConfig(texts=["part", "State"]))
    assert what == (
        'no column "mission" (columns.mission), "group_id" (columns.group_id), "label" '
        "(columns.label), "
        '"State" (columns.texts), did you mean "state"?; there are part, state'
    )
    assert [
        key in remedy for key in ("mission_name TEXT", "group_id null", "label=NAME", "texts=NAME")
    ] == [True] * 4


def test_a_column_that_was_renamed_is_told_apart_from_those_that_still_are_what_they_were(
    tmp_path: Path,
) -> None:
    """Another measurement with the same unit has a name that is more alike, but is there under its
    own."""
    others = ["T3 (ng/ml)", *(f"value {n}" for n in range(20))]
    path = write(
        tmp_path,
        f"ID,Station,Result,TSH,{','.join(others)}\n1,a,OK,7.5,{','.join('1' for _ in others)}\n",
    )
    known = replace(OWN, texts=["TSH (µU/ml)", *others])
    ((_, what, remedy),) = faults(path, known)
    assert what == (
        'no column "TSH (µU/ml)" (columns.texts), did you mean "TSH"?; there are TSH, 24 that '
        "the config names"
    )
    assert remedy.endswith("""--columns.rename '{"TSH": "TSH (µU/ml)"}'""")
    (ticket,), _ = read_tickets([path], "error", replace(known, rename={"TSH": "TSH (µU/ml)"}))
    assert ticket.content and dict(ticket.content.fields)["TSH (µU/ml)"] == "7.5"


def test_what_is_judged_of_a_table_with_renamed_columns_is_what_is_judged_of_it_as_it_was(
    tmp_path: Path,
) -> None:
    """Also where a comma parts decimals; names of rows hang on what stands in them alone."""
    rows = "".join(f"{n};s;OK;{n},5;{n} mm\n" for n in range(9))
    tables = [
        write(tmp_path, f"ID;Station;Result;{names}\n{rows}", f"{names[:2]}.csv")
        for names in ("Temp;Gap", "T °C;G")
    ]
    known, renamed = replace(OWN, decimal=",", group_id=None), {"T °C": "Temp", "G": "Gap"}
    was, found = (
        read_tickets([path], "error", replace(known, rename=renamed))[0] for path in tables
    )
    assert [replace(each, place="") for each in found] == [replace(each, place="") for each in was]


@pytest.mark.parametrize("mark", ["NA", "n/a", " ? ", "-"])
def test_cells_that_stand_for_missing_values_say_nothing(tmp_path: Path, mark: str) -> None:
    rows = "".join(f"{n},s,{'OK' if n % 2 else 'NG'},{{}},{n} mm\n" for n in range(4))
    paths = [
        write(tmp_path, "ID,Station,Result,Temp,Gap\n" + rows.format(*cells), f"{name}.csv")
        for name, cells in (("marked", (1, mark, 3, mark)), ("empty", (1, "", 3, "")))
    ]
    told = replace(OWN, missing=[mark.upper()])
    marked, empty = (read_tickets([path], "error", told)[0] for path in paths)
    assert [replace(each, place="") for each in marked] == [
        replace(each, place="") for each in empty
    ]
    # Of what is seen alone: labels and names stay what they are.
    others, _ = read_tickets([paths[1]], "error", replace(OWN, missing=["ng", "s", "2"]))
    assert [replace(each, place="") for each in others] == [
        replace(each, place="") for each in empty
    ]


def test_columns_may_change_their_names_and_none_may_take_two(tmp_path: Path) -> None:
    path = write(tmp_path, "ID,Station,Result,a,b\n1,s,OK,1,2\n")
    (ticket,), _ = read_tickets(
        [path], "error", replace(OWN, rename={"a": "b", "b": "a", "ID of old": "ID"})
    )
    assert ticket.content and dict(ticket.content.fields) == {"b": "1", "a": "2"}
    assert faults(path, replace(OWN, rename={"a": "b"}))[0][1] == 'two columns "b"'
    ((line, what, _),) = faults(path, replace(OWN, rename={"Reslt": "c"}))
    assert (line, what) == (1, 'no column "Reslt" (columns.rename), did you mean "Result"?')
    with pytest.raises(ConfigError, match=r"columns\.rename: .*b stands for several"):
        ColumnsConfig(rename={"a": "b", "c": "b"})
    with pytest.raises(ConfigError, match=r"columns\.rename: .*leave it out"):
        ColumnsConfig(rename={"a": "b"}).check_files(["t.jsonl"])


@pytest.mark.parametrize(
    ("first", "second"), [("Seal", "SEAL"), ("Köln", "Ko\u0308ln"), ("Seal  state", "Seal state")]
)
def test_columns_that_rules_cannot_tell_apart_are_refused(
    tmp_path: Path, first: str, second: str
) -> None:
    path = write(tmp_path, f"ID,Station,{first},{second},Result\n1,racks,90,10,NG\n")
    ((line, what, remedy),) = faults(path)
    assert (line, remedy[:10]) == (1, "rename one")
    assert what == f'columns "{first}" and "{second}", which rules cannot tell apart'
    tickets, _ = read_tickets([path], "error", replace(OWN, texts=[first]))
    assert len(tickets) == 1


def test_of_many_columns_the_nearest_the_first_and_the_last_are_named(tmp_path: Path) -> None:
    names = [f"mean value of measurement {n}" for n in range(30)]
    path = write(tmp_path, f"id,{','.join(names)},diagnosis\n")
    ((_, what, _),) = faults(path, ColumnsConfig(mission_name="m", group_id="id", label="Diagnose"))
    assert what.startswith(
        'no column "Diagnose" (columns.label), did you mean "diagnosis"?; there are mean value'
    )
    assert what.endswith(
        "23 more, mean value of measurement 27, mean value of measurement 28, mean value of "
        "measurement 29, diagnosis, 1 that the config names"
    )
    assert len(what) < 400
    named = ColumnsConfig(mission_name="m", group_id=None, label="Diagnose")
    ((_, what, _),) = faults(path, named)
    assert what.endswith("measurement 29, diagnosis")


def test_a_word_cannot_mean_both() -> None:
    with pytest.raises(ConfigError, match=r"columns\.fails.*ok"):
        ColumnsConfig(passes=["OK"], fails=["ok", "NG"])


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
ROWS = st.lists(st.tuples(TEXT, TEXT, st.sampled_from(["pass", "fail"])), min_size=1, max_size=6)


@given(ROWS, st.sampled_from([",", ";"]))
def test_what_a_spreadsheet_quotes_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, Verdict]], parted_by: str
) -> None:
    rows = [("first of all", "", "pass"), *rows]
    made = io.StringIO(newline="")
    writer = csv.writer(made, delimiter=parted_by)
    writer.writerow(["label", "image_1", "note"])
    writer.writerows((label, image, note) for image, note, label in rows)
    path = write(tmp_path_factory.mktemp("any"), made.getvalue())
    tickets, bad = read_tickets([path], "skip", ColumnsConfig(mission_name="m", group_id=None))
    expected = []
    for image, note, label in rows:
        per_image = [("image_1", image.strip())] if image.strip() else []
        per_image += [("image_2", f"note: {clean_value(note)}")] if clean_value(note) else []
        expected.append((label, tuple(per_image)))
    assert [(each.label, each.per_image) for each in tickets] == [
        each for each in expected if each[1]
    ]
    assert len(tickets) + len(bad) == len(rows)
    assert all(isinstance(each, Ticket) for each in tickets)


NUMBERS = ColumnsConfig(mission_name="m", group_id=None)


@given(st.lists(st.integers(1, 120), min_size=1, max_size=12, unique=True))
@example([1, 2, 10])
def test_columns_of_images_say_what_a_line_of_json_does_by_the_numbers(numbers: list[int]) -> None:
    """In whatever order they stand, and not by their names: image_2 is before image_10."""
    said = {f"image_{number}": f"seen: {number}" for number in numbers}
    texts = {
        "t.csv": f"label,{','.join(said)}\npass,{','.join(said.values())}\n",
        "t.jsonl": json.dumps(
            {"mission": "m", "group_id": "g", "label": "pass", "per_image": said}
        ),
    }
    with TemporaryDirectory() as folder:
        (row, line) = (
            read_tickets([write(Path(folder), text, name)], "error", NUMBERS)[0][0]
            for name, text in texts.items()
        )
    assert row.per_image == tuple((f"image_{n}", f"seen: {n}") for n in sorted(numbers))
    assert replace(row, group_id="g") == line


@pytest.mark.parametrize(
    ("cells", "line", "what"),
    [
        (["0,1136", "2"], 2, '"0,1136" has a decimal comma'),
        (["", "7", "-26,5 mm", "310K"], 4, '"-26,5 mm" has a decimal comma'),
        (["1e-05", "2,5e-05"], 3, '"2,5e-05" has a decimal comma'),
        (
            ["1,234"],
            2,
            '"1,234" is 1.234 if the comma stands before decimals, 1234 if between thousands',
        ),
        (["1.5", "1,234,567"], 3, '"1,234,567" has a comma between thousands'),
        (["1,234.5"], 2, '"1,234.5" has a comma between thousands'),
        (["7", "6.037,39"], 3, '"6.037,39" has a point between thousands'),
        (["0,5", "6.037,39-"], 2, '"0,5" has a decimal comma'),
        (["12,50-"], 2, '"12,50-" has a decimal comma'),
        (["n/a", "7", "0,5", "N/A "], 4, '"0,5" has a decimal comma'),
    ],
)
def test_a_column_of_numbers_with_commas_is_refused(
    tmp_path: Path, cells: list[str], line: int, what: str
) -> None:
    columns = replace(NUMBERS, missing=["n/a"])
    rows = "".join(f"pass;new;{cell}\n" for cell in cells)
    path = write(tmp_path, f"label;seal;mean\n{rows}")
    ((found, said, remedy),) = faults(path, columns)
    assert (found, said) == (line, f'column "mean": {what}')
    assert what.endswith("between thousands") or 'columns.decimal: ","' in remedy
    with pytest.raises(BadInputError):
        read_tickets([path], "skip", columns)


def test_of_several_columns_of_such_numbers_one_that_no_key_mends_is_told_first(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "label;low;mean;high\npass;0,5;1.234,5;2,5\npass;;7;\n")
    ((line, what, remedy),) = faults(path, NUMBERS)
    assert (line, what) == (
        2,
        'column "mean": "1.234,5" has a point between thousands, as in 2 more columns',
    )
    assert remedy == "export the table without such marks"


@pytest.mark.parametrize("first", [2, 21, 22, 23, 86, 250])
@pytest.mark.parametrize("mark", [".", ","])
def test_of_a_long_table_the_first_number_that_may_be_another_is_told(
    tmp_path: Path, first: int, mark: Literal[".", ","]
) -> None:
    """Whichever of its rows are looked at together, and whatever stands below."""
    other = "," if mark == "." else "."
    rows = "".join(f"pass;new;{n}{other if n >= first else mark}5\n" for n in range(2, 301))
    path = write(tmp_path, f"label;seal;mean\n{rows}")
    ((line, what, _),) = faults(path, replace(NUMBERS, decimal=mark))
    assert line == first and what.startswith(f'column "mean": "{first}{other}5" has a decimal')


@pytest.mark.parametrize(
    "cells", [["3,5", "none"], ["a,b"], ["01.02.2024", "3"], ["3, 5"], ["1.5", "2"]]
)
def test_commas_in_columns_of_more_than_numbers_are_left_alone(
    tmp_path: Path, cells: list[str]
) -> None:
    rows = "".join(f"pass;{cell}\n" for cell in cells)
    tickets, _ = read_tickets([write(tmp_path, f"label;mean\n{rows}")], "error", NUMBERS)
    assert [each.per_image[0][1] for each in tickets] == [f"mean: {cell}" for cell in cells]


def test_a_decimal_comma_is_read_as_a_point_where_the_config_says_so(tmp_path: Path) -> None:
    columns = replace(NUMBERS, decimal=",")
    path = write(
        tmp_path, "label;mean;note\npass;0,1136;a, b\nfail;-26,5 mm;3,5\npass;7,5e-05;worn\n"
    )
    tickets, _ = read_tickets([path], "error", columns)
    said = ["mean: 0.1136; note: a, b", "mean: -26.5 mm; note: 3.5", "mean: 7.5e-05; note: worn"]
    assert [each.per_image[0][1] for each in tickets] == said
    ((line, what, remedy),) = faults(write(tmp_path, "label;mean\npass;0,5\npass;1.234\n"), columns)
    assert (line, what) == (
        3,
        'column "mean": "1.234" is 1.234 if the point stands before decimals, 1234 if between '
        "thousands",
    )
    assert remedy.startswith("export the table with a decimal comma")


def test_a_minus_behind_a_number_with_a_decimal_comma_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, "label;mean;part\npass;12,50-;3-\nfail;7,5;a,5-\n")
    tickets, _ = read_tickets([path], "error", replace(NUMBERS, decimal=","))
    assert [each.per_image[0][1] for each in tickets] == [
        "mean: -12.50; part: 3-",
        "mean: 7.5; part: a,5-",
    ]
    path = write(tmp_path, "label;rate;mean\npass;0,5;6.037,39\n", "sap.csv")
    assert faults(path, NUMBERS)[0][1].startswith(
        'column "mean": "6.037,39" has a point between thousands'
    )  # no key mends it


def test_a_decimal_comma_is_of_tables_alone() -> None:
    with pytest.raises(ConfigError, match=r"columns\.decimal: ',': leave it out"):
        LoopConfig(tickets=["a.jsonl"], columns=ColumnsConfig(decimal=","))
    assert LoopConfig(tickets=["a.jsonl", "b.CSV"], columns=ColumnsConfig(decimal=","))


def test_a_row_without_a_name_keeps_the_one_that_its_texts_give_it_where_others_are_added(
    tmp_path: Path,
) -> None:
    columns = replace(OWN, group_id=None, together="ID")
    header, rows = (
        "ID,Station,Seal,Result\n",
        ["1,racks,new,OK", "1,racks,worn,NG", "2,racks,new,OK", "2,racks,new,NG"],
    )
    names = []
    for text in (rows, ["3,racks,torn,OK", *rows]):
        tickets, _ = read_tickets(
            [write(tmp_path, header + "\n".join(text) + "\n")], "error", columns
        )
        names.append([ticket.key for ticket in tickets][-4:])
        # those of one machine, and equal ones
        assert len({ticket.group for ticket in tickets}) == len(text) - 3
    assert names[0] == names[1] and len({*names[0]}) == 4


# Spreadsheets and Parquet files say what the same table says as CSV


COLUMNS = ColumnsConfig(mission_name="pumps", group_id="id")
HEADER = ["id", "label", "seal", "pressure", "seen"]
SHEET: list[list[Any]] = [
    [1, "pass", 'dry, "good"\nas new', 2.5, datetime.date(2024, 3, 1)],
    [2, "fail", None, 1e20, datetime.date(2024, 3, 2)],
    [3, "pass", "a\tb; ß", 0.1, None],
]
CSV = (
    "id,label,seal,pressure,seen\n"
    '1,pass,"dry, ""good""\nas new",2.5,2024-03-01\n'
    "2,fail,,100000000000000000000,2024-03-02\n"
    '3,pass,"a\tb; ß",0.1,\n'
)


def write_parquet(path: Path) -> Path:
    parquet.write_table(
        pyarrow.table([list(column) for column in zip(*SHEET, strict=True)], names=HEADER), path
    )
    return path


@pytest.mark.parametrize("kind", ["xlsx", "parquet"])
def test_a_sheet_says_what_its_csv_says(tmp_path: Path, kind: str) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    path = tmp_path / f"t.{kind}"
    _ = write_xlsx(path, [HEADER, *SHEET]) if kind == "xlsx" else write_parquet(path)
    said, _ = read_tickets([tmp_path / "t.csv"], "error", COLUMNS)
    found, _ = read_tickets([path], "error", COLUMNS)
    assert [(each.key, each.per_image, each.content) for each in found] == [
        (each.key, each.per_image, each.content) for each in said
    ]


def test_a_fault_names_the_row_of_the_sheet(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", [HEADER, SHEET[0], [], ["", "fail", "worn", 1, ""]])
    with pytest.raises(BadInputError) as raised:
        read_tickets([path], "error", COLUMNS)
    assert [bad.line for bad in raised.value.bad] == [4]


def test_of_several_sheets_none_is_guessed(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", [HEADER, *SHEET], [["notes"]])
    with pytest.raises(
        BadInputError,
        match=r'2 sheets with something in them: "S1", "S2"; name one by columns\.sheet',
    ):
        read_tickets([path], "error", COLUMNS)
    assert len(read_tickets([path], "error", replace(COLUMNS, sheet="S1"))[0]) == 3
    with pytest.raises(BadInputError, match='no sheet "S3"; there are "S1", "S2"'):
        read_tickets([path], "error", replace(COLUMNS, sheet="S3"))
    assert len(read_tickets([write_xlsx(path, [HEADER, *SHEET], [])], "error", COLUMNS)[0]) == 3


def test_columns_that_nobody_asks_for_may_have_one_name(tmp_path: Path) -> None:
    path = write(tmp_path, "ID,Station,Part,Result,Note,Note\n1,a,seal,OK,x,y\n")
    assert faults(path)[0][1] == 'two columns "Note"'
    assert len(read_tickets([path], "error", replace(OWN, texts=["Part"]))[0]) == 1
    assert faults(path, replace(OWN, texts=["Part"], reason="Note"))[0][1] == 'two columns "Note"'


def test_a_cell_that_cannot_be_read_is_a_fault_only_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = {
        "id": [1, 2],
        "label": ["pass", "fail"],
        "seal": ["new", "worn"],
        "boxes": [[1, 2], None],
    }
    parquet.write_table(pyarrow.table(table), path)
    with pytest.raises(
        BadInputError,
        match=r't.parquet:2: column "boxes": a list: "\[1, 2\]"; .* or leave the column out',
    ):
        read_tickets([path], "error", COLUMNS)
    assert len(read_tickets([path], "error", replace(COLUMNS, texts=["seal"]))[0]) == 2


def test_what_its_reader_stumbles_over_is_refused(tmp_path: Path) -> None:
    book = write_xlsx(tmp_path / "zip.xlsx", [HEADER, *SHEET])
    # of a later kind of archive
    book.write_bytes(book.read_bytes().replace(b"PK\1\2\x14\3\x14", b"PK\1\2\x14\3\xe9"))
    text = write_parquet(tmp_path / "text.parquet")
    text.write_bytes(text.read_bytes().replace(b"as new", b"as \xff\xff\xff"))
    for path in (book, text):
        with pytest.raises(BadInputError, match="cannot be read as"):
            read_tickets([path], "error", COLUMNS)


def test_cells_of_parquet_may_hold_what_parts_cells(tmp_path: Path) -> None:
    texts = [
        "plain",
        "a\tb",
        'he said "no"',
        '"',
        "two\nlines",
        "two\rlines",
        'a\t"b"\n',
        " blank ",
        "end\n",
        "\\",
        "'",
    ]
    rows = [
        {"Station": "a", "ID": f"g-{n}", "Seal": text, "Note": texts[-1 - n]}
        for n, text in enumerate(texts)
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    tickets = [
        entry.ticket(False)
        for entry in read_entries(str(tmp_path / "t.parquet"), OWN, labelled=False)
    ]
    told = [dict(ticket.content.fields) for ticket in tickets if ticket.content]
    assert told == [
        {"Seal": clean_value(row["Seal"]), "Note": clean_value(row["Note"])} for row in rows
    ]
