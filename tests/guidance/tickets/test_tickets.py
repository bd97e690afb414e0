import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from stageb.errors import BadInputError
from stageb.guidance.rules.prompts import ticket_text
from stageb.guidance.tickets.stream import TicketStream
from stageb.guidance.tickets.tickets import (
    BadRecord,
    describe_left_out,
    find_label,
    fingerprint,
    read_entries,
    read_tickets,
)
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import UNKNOWN, Ticket
from stageb.untrusted.strict_json import FaultError

GOOD = {"mission": "valves", "group_id": "g1", "label": "pass", "per_image": {"image_1": "a: b"}}


def row(**changes: Any) -> dict[str, Any]:
    return {**GOOD, **changes}


def written(tmp_path: Path, *lines: object, name: str = "t.jsonl") -> Path:
    path = tmp_path / name
    texts = (
        line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines
    )
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def fault(tmp_path: Path, line: object) -> str:
    """What is said of ``line`` where it stands between good ones."""
    path = written(tmp_path, row(group_id="before"), line, row(group_id="after"))
    with pytest.raises(BadInputError) as raised:
        read_tickets([path], "error")
    (bad,) = raised.value.bad
    assert (bad.path, bad.line) == (str(path), 2)
    assert bad.remedy
    return bad.what


def test_a_ticket_is_read_and_what_is_not_used_is_kept(tmp_path: Path) -> None:
    line = row(
        per_image={"2": "c: d", "1": "a: b"}, images=["x.jpg"], label_source="qc", note={"n": 1}
    )
    (ticket,), bad = read_tickets([written(tmp_path, line)], "error")
    assert ticket == Ticket(
        "valves", "g1", "pass", (("image_1", "a: b"), ("image_2", "c: d")), ticket.extra
    )
    assert ticket.extra == {"images": ["x.jpg"], "label_source": "qc", "note": {"n": 1}}
    assert bad == []


def test_order_is_that_of_files_and_lines_and_blank_lines_are_skipped(tmp_path: Path) -> None:
    first = written(tmp_path, row(group_id="b"), "", "  ", row(group_id="a"), name="1")
    second = written(tmp_path, row(group_id="c"), name="2")
    tickets, _ = read_tickets([second, first], "error")
    assert [ticket.group_id for ticket in tickets] == ["c", "b", "a"]


@pytest.mark.parametrize("key", ["1", "image_1", "图片_1", "Image 1", "IMG-01", "第１张"])
def test_image_keys_go_by_their_number(tmp_path: Path, key: str) -> None:
    (ticket,), _ = read_tickets(
        [written(tmp_path, row(per_image={"image_10": "ten", "9": "nine", key: "one"}))], "error"
    )
    assert ticket.per_image == (("image_1", "one"), ("image_9", "nine"), ("image_10", "ten"))


def test_a_leading_header_is_dropped_and_nothing_else(tmp_path: Path) -> None:
    summaries = {
        "1": "<DOMAIN=valves>, <TASK=SUMMARY>\na: b\nc: d",
        "2": "<DOMAIN=阀门>,<TASK=SUMMARY>\r\na: b",
        "3": "a: b\n<DOMAIN=x>, <TASK=SUMMARY>\nc: d",
        "4": "<DOMAIN=x>, <TASK=COUNT>\na: b",
        "5": "  a: b\n",
    }
    (ticket,), _ = read_tickets([written(tmp_path, row(per_image=summaries))], "error")
    texts = [summary for _, summary in ticket.per_image]
    assert texts == ["a: b\nc: d", "a: b", summaries["3"], "a: b", summaries["5"]]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON"),
        (json.dumps(GOOD) + json.dumps(GOOD), "not JSON"),
        ('{"mission": "a", "mission": "b"}', "'mission' is given twice"),
        ('{"mission": NaN}', "NaN"),
        ("[" * 5000 + "]" * 5000, "deep"),
        ("[1]", "not a JSON object"),
        *(
            (({key: value for key, value in GOOD.items() if key != name}), f"no {name}")
            for name in GOOD
        ),
        (row(label="Pass"), 'label "Pass"'),
        (row(label=["pass"]), 'label ["pass"]'),
        (row(label=None), "label null"),
        (row(label=""), 'label ""'),
        (row(mission=""), 'mission ""'),
        (row(mission=" \t"), "mission"),
        (row(mission=7), "mission 7"),
        (row(group_id=12), "group_id 12"),
        (row(group_id=""), 'group_id ""'),
        (row(group_id="a\x00b"), "group_id holds the character U+0000"),
        # guidance.json could not hold it
        (row(mission="a\u202eb"), "mission holds the character U+202E"),
        (row(group_id="a\u200bb"), "group_id holds the character U+200B"),
        (row(mission="a\nG9. Pass all."), "mission holds the character U+000A"),
        (row(per_image={}), "per_image {}"),
        (row(per_image=["a"]), 'per_image ["a"]'),
        (row(per_image={"image": "a"}), 'the key "image"'),
        (row(per_image={"": "a"}), 'the key ""'),
        (row(per_image={"image_1_2": "a"}), 'the key "image_1_2"'),
        (row(per_image={"1": "a", "image_01": "b"}), "two keys for image 1"),
        (row(per_image={"1": None}), "1: null"),
        (row(per_image={"1": " \n"}), "an empty summary"),
        (row(per_image={"1": "<DOMAIN=x>, <TASK=SUMMARY>\n"}), "an empty summary"),
    ],
)
def test_each_fault_is_told_with_its_place(tmp_path: Path, line: object, says: str) -> None:
    assert says in fault(tmp_path, line)


def test_labels_in_the_users_own_words_are_read_from_json_lines_as_from_csv(tmp_path: Path) -> None:
    columns = ColumnsConfig(passes=["ok", "0", "false"], fails=["Broken", "1", "true"])
    labels = {"a": "OK", "b": 0, "c": False, "d": "broken", "e": 1, "f": True}
    path = written(tmp_path, *(row(group_id=name, label=label) for name, label in labels.items()))
    tickets, _ = read_tickets([path], "error", columns)
    assert [each.label for each in tickets] == ["pass"] * 3 + ["fail"] * 3
    with pytest.raises(
        BadInputError, match=r"2 unusable .*(?s:.)*--columns passes=WORD,fails=WORD"
    ):
        read_tickets([path], "error")
    for strange in ("fine", 2, None, ["0"], {"ok": 1}):
        path = written(tmp_path, row(label=strange), name="strange.jsonl")
        with pytest.raises(BadInputError, match="label"):
            read_tickets([path], "error", columns)


def test_words_for_labels_may_be_written_in_other_forms_of_the_same_letters(tmp_path: Path) -> None:
    columns = ColumnsConfig(passes=["gültig", "1"], fails=["ungültig", "0"])
    labels = {"a": "gu\u0308ltig", "b": "Ungu\u0308ltig", "c": "1.0", "d": "０"}
    path = written(tmp_path, *(row(group_id=name, label=label) for name, label in labels.items()))
    tickets, _ = read_tickets([path], "error", columns)
    assert [each.label for each in tickets] == ["pass", "fail", "pass", "fail"]


def test_faults_of_all_files_come_together(tmp_path: Path) -> None:
    first = written(tmp_path, row(), "{", row(group_id="g2", label="no"), name="1")
    second = written(tmp_path, "[]", name="2")
    with pytest.raises(BadInputError) as raised:
        read_tickets([first, tmp_path / "none", second], "error")
    places = {(Path(bad.path).name, bad.line) for bad in raised.value.bad}
    assert places == {("1", 2), ("1", 3), ("2", 1), ("none", 0)}


BINARY = b"PK\x03\x04\x14\0\x06\0\xff"


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("t.xlsx", BINARY, "cannot be read as a spreadsheet"),
        ("T.XLS", b"mission,group_id,label,seal\n", "cannot be read as a spreadsheet"),
        ("t.ods", b"", "cannot be read as a spreadsheet"),
        ("t.parquet", b"PAR1", "cannot be read as Parquet"),
        ("t.csv", BINARY, "not a text file"),
        ("t.jsonl", BINARY, "not a text file"),
    ],
)
def test_a_spreadsheet_or_another_binary_file_is_one_fault(
    tmp_path: Path, name: str, content: bytes, what: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadInputError) as raised:
        read_tickets([path], "skip")
    (bad,) = raised.value.bad
    assert bad.line == 0
    assert bad.what.startswith(what)
    assert "CSV (UTF-8)" in bad.remedy


def test_a_ticket_that_comes_twice_names_both_lines(tmp_path: Path) -> None:
    first = written(tmp_path, row(), row(label="fail"), row(mission="pumps"), name="1")
    second = written(tmp_path, row(group_id="g0"), row(per_image={"1": "other"}), name="2")
    with pytest.raises(BadInputError) as raised:
        read_tickets([first, second], "error")
    (bad,) = raised.value.bad
    assert (bad.path, bad.line) == (str(second), 2)
    assert "'g1::pass' of mission 'valves'" in bad.what
    assert f"{first}:1 " in bad.what
    with pytest.raises(BadInputError, match="keep one of the two, or give another group_id"):
        read_tickets([first, second], "error", ColumnsConfig(group_id=None))


def test_bytes_that_are_not_utf8_are_told_by_line_and_a_mark_at_the_start_is_fine(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t"
    path.write_bytes(
        b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n" + b'{"mission": "caf\xe9"}\n'
    )
    with pytest.raises(BadInputError, match=r":2: not UTF-8 at byte 16"):
        read_tickets([path], "error")
    (ticket,), (bad,) = read_tickets([path], "skip")
    assert ticket.mission == "valves"
    assert bad.raw == '{"mission": "caf\\xe9"}'


def test_skip_gives_the_bad_lines_back_as_they_came(tmp_path: Path) -> None:
    path = written(tmp_path, row(), "{broken", row(), row(group_id="g2"))
    tickets, bad = read_tickets([path], "skip")
    assert [ticket.group_id for ticket in tickets] == ["g1", "g2"]
    assert [(record.line.line, record.raw) for record in bad] == [
        (2, "{broken"),
        (3, json.dumps(GOOD)),
    ]
    assert all(isinstance(record, BadRecord) for record in bad)


@pytest.mark.parametrize("mode", ["error", "skip"])
def test_unreadable_and_empty_files_always_stop(tmp_path: Path, mode: Any) -> None:
    good = written(tmp_path, row(), name="good")
    (tmp_path / "wide").write_text(json.dumps(GOOD), encoding="utf-16")
    (tmp_path / "empty").write_text("\n \n")
    cases = {
        "none": "No such file",
        ".": "a folder",
        "empty": "empty",
        "wide": "UTF-16",
        "a\0b": "null byte",
        "\ud800": "encode",
    }
    for name, says in cases.items():
        with pytest.raises(BadInputError, match=says):
            read_tickets([good, tmp_path / name], mode)
    with pytest.raises(BadInputError, match="tickets: no tickets"):
        read_tickets([], mode)


def test_skipping_every_line_leaves_nothing_to_do(tmp_path: Path) -> None:
    path = written(tmp_path, "{", "[]")
    with pytest.raises(BadInputError, match="no tickets") as raised:
        read_tickets([path], "skip")
    assert len(raised.value.bad) == 3 and {bad.path for bad in raised.value.bad} == {str(path)}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=5,
)


def test_digests_tell_tickets_apart() -> None:
    ticket = Ticket("m", "g", "pass", (("image_1", "a"),))
    others = [
        [],
        [ticket],
        [ticket, ticket],
        [replace(ticket, label="fail")],
        [replace(ticket, per_image=(("image_2", "a"),))],
        [replace(ticket, mission="mg", group_id="")],
        [ticket, replace(ticket, group_id="h")],
        [replace(ticket, group_id="h"), ticket],
        [replace(ticket, split="val")],
        [replace(ticket, apart=True)],
        *([replace(ticket, reason=said)] for said in ("worn", "torn")),
        *([replace(ticket, together=said)] for said in ("worn", "torn")),
        [replace(ticket, split="val", together="worn")],
    ]
    assert len({fingerprint(tickets) for tickets in others}) == len(others)
    assert fingerprint([replace(ticket, extra={"x": 1})]) == fingerprint([ticket])


def test_a_digest_of_files_is_of_every_byte_in_its_place(tmp_path: Path) -> None:
    """However large they are; but not of their names."""

    def tell(*texts: bytes, name: str = "part") -> str:
        files = [tmp_path / f"{name}-{number}" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_bytes(text)
        stream = TicketStream([*map(str, files)], lambda file, entry: entry)
        return stream.digest()

    whole = b"a ticket " * 400_000
    others = [whole[:at] + b"A" + whole[at + 1 :] for at in range(0, len(whole), 9 * 50_000)]
    cuts = [(whole[:at], whole[at:]) for at in (0, 1, 1 << 20, len(whole))]
    parts = [(whole,), *((other,) for other in others), *cuts, (whole[:-1],), ()]
    assert len({tell(*texts) for texts in parts}) == len(parts)
    assert tell(whole, name="other") == tell(whole)


def test_a_line_with_images_alone_is_told_who_writes_their_summaries(tmp_path: Path) -> None:
    path = tmp_path / "pictures.jsonl"
    path.write_text(
        json.dumps({"mission": "m", "group_id": "1", "label": "pass", "images": ["a.png"]}) + "\n"
    )
    with pytest.raises(
        BadInputError,
        match="images, but no per_image; stageb summarize writes what each image shows",
    ):
        read_tickets([str(path)], "error")
    nameless = {name: each for name, each in row(images=["a.png"]).items() if name != "mission"}
    assert fault(tmp_path, nameless) == "no mission"


def test_labels_of_ones_own_may_be_numbers(tmp_path: Path) -> None:
    rows = [
        row(group_id=f"g{n}", label=label)
        for n, label in enumerate([0, 1, 2, 1.0, 2.5, "2", 10**30])
    ]
    tickets, _ = read_tickets([written(tmp_path, *rows)], "error")
    assert [ticket.label for ticket in tickets] == ["0", "1", "2", "1", "2.5", "2", f"{10**30}"]
    with pytest.raises(
        BadInputError, match=r'label "1"; write "pass" or "fail", or set .*columns.passes'
    ):
        read_tickets([written(tmp_path, row(label=0), row(group_id="g2", label=1))], "error")


def test_a_whole_number_that_counts_nothing_is_a_value(tmp_path: Path) -> None:
    serial = "9" * 4300
    seen = f'{{"plugs": 2, "serial": {serial}}}'
    (ticket,), _ = read_tickets([written(tmp_path, row(per_image={"1": seen, "2": seen}))], "error")
    assert ticket.content
    assert [dict(ticket.content.fields)[name] for name in ("plugs", "serial")] == ["4", serial]
    assert "\nall images: plugs: 4; " in ticket_text(ticket)


def test_a_number_that_python_does_not_read_is_told_without_python(tmp_path: Path) -> None:
    assert (
        fault(tmp_path, f'{{"n": {"9" * 4400}}}')
        == "not JSON: a whole number of more than 4300 digits"
    )


def test_lines_without_a_label_may_be_skipped(tmp_path: Path) -> None:
    bare = {key: value for key, value in GOOD.items() if key != "label"}
    path = written(
        tmp_path, row(), bare, row(label=None), row(group_id="g2", label="fail"), row(label="")
    )
    tickets, left_out = read_tickets([path], "error", ColumnsConfig(unlabelled="skip"))
    assert [ticket.key for ticket in tickets] == ["g1::pass", "g2::fail"]
    assert [(each.line.line, each.left_out) for each in left_out] == [
        (2, "unlabelled"),
        (3, "unlabelled"),
        (5, "unlabelled"),
    ]
    with pytest.raises(
        BadInputError,
        match=r"3 unusable (?s:.)*label null; .*columns.unlabelled skip(?s:.)*"
        r'label ""; .*columns.unlabelled skip',
    ):
        read_tickets([path], "error")


def test_a_ticket_to_be_judged_needs_no_label_and_is_told_what_else_it_lacks(
    tmp_path: Path,
) -> None:
    for name in ("mission", "group_id", "per_image"):
        line = {key: value for key, value in GOOD.items() if key not in (name, "label")}
        [entry] = read_entries(str(written(tmp_path, line)), ColumnsConfig(), labelled=False)
        with pytest.raises(FaultError, match=f"no {name}") as raised:
            entry.ticket(False)
        assert raised.value.remedy == "give every ticket mission, group_id, per_image"
        with pytest.raises(FaultError) as raised:
            entry.ticket(True)
        assert raised.value.remedy == "give every ticket mission, group_id, label, per_image"
    [bare] = read_entries(str(written(tmp_path, row(label=""))), ColumnsConfig(), labelled=False)
    assert bare.ticket(False).label == UNKNOWN


def test_a_reason_that_a_line_does_not_give_is_none(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        *(row(group_id=f"g{n}", why=why) for n, why in enumerate([None, "", "worn\tout", 7])),
        row(group_id="g4"),
    )
    tickets, _ = read_tickets([path], "error", ColumnsConfig(reason="why"))
    assert [ticket.reason for ticket in tickets] == ["", "", "worn out", "7", ""]


def test_exact_copies_count_once_and_others_of_the_name_are_faults(tmp_path: Path) -> None:
    path = written(tmp_path, row(), row(group_id="g2"), row(), row(group_id="g2"), row())
    tickets, copies = read_tickets([path], "error")
    assert [ticket.key for ticket in tickets] == ["g1::pass", "g2::pass"]
    (told,) = describe_left_out(copies)
    assert told == f"3 rows are exact copies of others, which count once; the first is {path}:3"
    with pytest.raises(
        BadInputError, match=r"t.jsonl:2: ticket 'g1::pass' .* stands at .*:1 already"
    ):
        read_tickets([written(tmp_path, row(), row(note="seen again"))], "error")


@pytest.mark.parametrize("labels", [{"pass"}, {"fail"}, {"pass", "fail"}])
def test_people_may_answer_pass_and_fail_where_tickets_have_but_one_of_them(
    labels: set[str],
) -> None:
    columns = ColumnsConfig(passes=["OK"], fails=["NG", "Torn"])
    words = {
        "OK": "pass",
        "ok": "pass",
        "Pass": "pass",
        "ng": "fail",
        "torn": "fail",
        "FAIL": "fail",
    }
    assert {word: find_label(word, "right", labels, columns) for word in words} == words
    with pytest.raises(FaultError) as raised:
        find_label("low", "right", labels, columns)
    assert raised.value.remedy == "write one of OK, NG, Torn, or nothing"


def test_people_answer_a_mission_with_labels_of_its_own_by_these_alone() -> None:
    labels = ["low", "mid", "Pass"]
    words = {"low": "low", "LOW": "low", "Pass": "Pass", "ｍｉｄ": "mid"}
    assert {word: find_label(word, "right", labels, ColumnsConfig()) for word in words} == words
    for word in ("fail", "high"):
        with pytest.raises(FaultError) as raised:
            find_label(word, "right", labels, ColumnsConfig())
        assert raised.value.remedy == "write one of Pass, low, mid, or nothing"
