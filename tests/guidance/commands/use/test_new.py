"""``stageb new``, as somebody uses it who has a table and no config."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from guidance.made_sheets import write_xlsx

from stageb.__main__ import main
from stageb.cli.parsing import parse
from stageb.guidance.commands.use.guess import find_marks
from stageb.guidance.words.column_names import ColumnsConfig

RACKS = "Rack,Seal,Length,Checked\n" + "".join(
    f"r-{n},{'worn' if n % 3 else 'new'},3{n}.5,{'NG' if n % 3 else 'OK'}\n" for n in range(30)
)
TOPICS = "id,{},{}\n" + "".join(f"{n},{'abc'[n % 3]},{'xyz'[n // 3 % 3]}\n" for n in range(30))


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def new(text: str, *options: str) -> ColumnsConfig:
    """The columns of the config that is written for a table."""
    Path("my.csv").write_text(text, encoding="utf-8")
    assert main(["new", "my.csv", *options]) == 0
    columns: ColumnsConfig = parse(["--config", "my.yaml"]).config.columns
    return columns


def refuse(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The message of a call that must write nothing."""
    before = sorted(Path().iterdir())
    assert main(["new", *arguments]) == 2
    assert sorted(Path().iterdir()) == before
    return capsys.readouterr().err


def test_the_command_that_it_prints_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    columns = new(RACKS)
    roles = ColumnsConfig("mission", "my", "Rack", label="Checked")
    assert columns == replace(roles, passes=["OK"], fails=["NG"], texts=["Seal", "Length"])
    printed = capsys.readouterr().out
    assert "30 tickets: pass (10), fail (20)" in printed
    assert main(printed.splitlines()[-1].split()[1:]) == 0


def test_chinese_tickets_get_chinese_rules(capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(
        f"单{n},{'密封圈磨损' if n % 3 else '密封圈完好'},{'不合格' if n % 3 else '合格'}\n"
        for n in range(30)
    )
    new(f"工单号,检查描述,结论\n{rows}")
    assert (
        "most tickets are Chinese, so rules will be, too: prompt.language zh"
        in capsys.readouterr().out
    )
    assert parse(["--config", "tickets", "--config", "my.yaml"]).config.prompt.language == "zh"
    with pytest.raises(SystemExit):
        main(["predict", "--config", "my.yaml", "--print_config"])
    assert "language: zh" in capsys.readouterr().out


NAMES = "id,size,speed,load,state,shift,Result"
CHINESE = "id,尺寸,转速,负载,状态,班次,Result"


@pytest.mark.parametrize(
    ("header", "values", "language"),
    [
        (NAMES, "{n},3{n},5.5,worn,early", "en"),
        # whatever stands in one column, its name makes no ticket Chinese
        (NAMES.replace("size", "密封圈的外部尺寸"), "{n},3{n},5.5,worn,early", "en"),
        (NAMES.replace("state", "状态"), "{n},3{n},5.5,worn,early", "en"),
        (NAMES.replace("state", "状态"), "{n},3{n},5.5,2,7", "en"),
        (NAMES, "{n},3{n},5.5,worn,早", "en"),
        # numbers are of no language, and codes and units are few words
        (CHINESE, "{n},3{n},5.5,2,7", "zh"),
        (CHINESE, "{n} mm,3{n},5.5,A12,7", "zh"),
        # names in English, as programs write them
        (NAMES, "{n},3{n},5.5,密封圈磨损,早", "zh"),
        (NAMES, "{n},3{n},5.5,漏油,7", "zh"),
        (CHINESE, "bolt,red,line 4,worn,early", "zh"),
        (NAMES, "A12,B{n},line 4,轴承异响，需更换密封圈，清洗外壳后再测一次,7", "zh"),
        (NAMES, "{n},3{n},5.5,シール摩耗,7", "en"),
    ],
)
def test_rules_are_in_the_language_of_most_names_or_most_words(
    header: str, values: str, language: str
) -> None:
    rows = "".join(f"r{n},{values.format(n=n)},{'NG' if n % 3 else 'OK'}\n" for n in range(30))
    new(f"{header}\n{rows}", "--group", "id", "--label", "Result")
    assert parse(["--config", "tickets", "--config", "my.yaml"]).config.prompt.language == language


def test_predict_reads_the_same_config(capsys: pytest.CaptureFixture[str]) -> None:
    new(RACKS)
    with pytest.raises(SystemExit) as end:
        main(["predict", "--config", "my.yaml", "--tickets", "new.csv", "--print_config"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert "tickets:\n- new.csv" in printed
    assert "group_id: Rack" in printed


@pytest.mark.parametrize(
    ("text", "options", "key", "value"),
    [
        ("mission,id,x,Result\na,1,u,ok\nb,2,v,Not OK\n", (), "mission", "mission"),
        ("mission,id,x,Result\na,1,u,ok\nb,2,v,Not OK\n", (), "fails", ["Not OK"]),
        ("id,x,part,Result\n1,u,Train,ok\n2,v,test,ng\n", (), "split", "part"),
        ("id,x,part,Result\n1,u,train,ok\n2,v,bus,ng\n", (), "split", None),
        ("id,x,Reason,Result\n1,u,,ok\n2,v,it leaks,ng\n", (), "reason", "Reason"),
        ("id,x,Reason,Result\n1,u,,ok\n2,v,it leaks,ng\n", (), "texts", ["x"]),
        (
            "id,x,on,at,v,Result\n1,u,2024-03-01,1/2/2024 7:30,1.2.3,ok\n2,v,,02.03.24,1.3.1,ng\n",
            (),
            "texts",
            ["x", "v"],
        ),
        ("id,x,结果\n1,u,合格\n2,v,不合格\n", (), "fails", ["不合格"]),
        ("id,x,Ergebnis\n1,u,i.O.\n2,v,n.i.O.\n", (), "fails", ["n.i.O."]),
        ("id;x;Result\n1;0,5;ok\n2;0,7;ng\n", (), "decimal", ","),
        ("id;x;y;Result\n1;0,5;a;ok\n2;0,7;b;ng\n3;n/a;a;ok\n", (), "decimal", ","),
        ("id;x;y;Result\n1;0,5;a;ok\n2;0,7;b;ng\n3;n/a;a;ok\n", (), "missing", ["n/a"]),
        # it names a machine, not a case
        ("machine,x,Result\nm,u,ok\nm,v,ok\nm,w,ng\n", (), "group_id", None),
        ("id,x,Result\n1,u,ok\n2,v,ng\n", ("--group", "null"), "group_id", None),
        ("x,y,z\n1,ok,up\n2,ng,down\n", ("--label", "z", "--passes", "up"), "fails", ["down"]),
        (
            "id,x,Result\n1,u,OK\n2,v,rework\n3,w,NG\n",
            ("--passes", "OK", "rework"),
            "passes",
            ["OK", "rework"],
        ),
        (
            "x,defective\n1,'yes'\n2,'no'\n",
            ("--label", "defective", "--fails", "'yes'"),
            "passes",
            ["'no'"],
        ),
        (
            "x,defective\n1,yes\n2,no\n",
            ("--label", "defective", "--fails", "yes"),
            "fails",
            ["yes"],
        ),
        ("x,MachineFailure\n1,0\n2,1\n", (), "fails", ["1"]),  # a fault, said yes or no to
        ("x,Faulty\n1,no\n2,YES\n", (), "fails", ["YES"]),
        ("x,class\n1,low\n2,high\n3,medium\n", (), "label", "class"),  # labels of their own
        ("x,class\n1,low\n2,high\n3,medium\n", (), "passes", ["pass"]),
        # of several that mean it, a name that tells, then the last
        ("x,Before,After\n1,ok,ng\n2,ng,ng\n3,ng,ok\n", (), "label", "After"),
        ("x,Result,After\n1,ok,ng\n2,ng,ng\n3,ng,ok\n", (), "label", "Result"),
        ("x,Result 1,Result 2,By\n1,ok,ng,a\n2,ng,ng,b\n3,ng,ok,a\n", (), "label", "Result 2"),
        ("x,First result,Second result\n1,ok,u\n2,ng,v\n", (), "label", "First result"),
        # by its name and its values, which come again
        (TOPICS.format("Queue", "Text"), (), "label", "Queue"),
        (TOPICS.format("Routed To", "Text"), (), "label", "Routed To"),
        (TOPICS.format("Ticket type", "Verdict"), (), "label", "Verdict"),
        (TOPICS.format("Category", "Priority"), ("--label", "Priority"), "label", "Priority"),
        ("x,Severity,Scrapped\n" + "1,low,0\n2,high,1\n" * 3, (), "label", "Scrapped"),
        # which says both, and few other things
        ("x,A,B\n" + "1,OK,ok\n2,NG,ok\n" * 3, (), "label", "A"),
        ("x,A,B\n" + "1,OK,ng\n2,NG,ng\n" * 3, (), "label", "A"),
        (
            "x,A,B\n1,OK,ok\n2,NG,ng\n" + "".join(f"{n},OK,part {n}\n" for n in range(9)),
            (),
            "label",
            "A",
        ),
        ("x,Passed?\n1,yes\n2,no\n", (), "passes", ["yes"]),
        ("x,is_ok\n1,True\n2,False\n", (), "fails", ["False"]),
        ("x,Nonconforming\n1,yes\n2,no\n", (), "fails", ["yes"]),
        ("x,Fehler\n1,ja\n2,nein\n", (), "fails", ["ja"]),
        ("x,合格\n1,是\n2,否\n", (), "fails", ["否"]),
        ("x,不合格\n1,是\n2,否\n", (), "fails", ["是"]),
        ("Passenger,Result\nyes,ok\nno,ng\n", (), "label", "Result"),
        ("x,Defect\n1,yes\n2,no\n", ("--passes", "yes"), "fails", ["no"]),
        ("x,Defect\n1,yes\n2,no\n", ("--fails", "no"), "passes", ["yes"]),
    ],
)
def test_what_is_guessed_and_what_options_say(
    text: str, options: tuple[str, ...], key: str, value: object
) -> None:
    assert getattr(new(text, *options), key) == value


def test_marks_of_missing_values_among_numbers_are_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        f"{n if n % 7 else '?'},{'N/A' if n % 9 == 1 else n / 4},{'up' if n % 2 else '-'}"
        for n in range(40)
    ]
    columns = new(
        "\n".join(
            [
                "Speed,Gap,Way,Checked",
                *(f"{row},{'OK' if n % 3 else 'NG'}" for n, row in enumerate(rows)),
            ]
        )
    )
    assert columns.missing == ["?", "N/A"]
    told = (
        'read as missing: "?", "N/A", which are no numbers, or of another unit, in "Speed", "Gap"'
    )
    assert told in capsys.readouterr().out


def test_what_is_no_mark_of_missing_values_is_left_as_it_is() -> None:
    rows = [f"{n if n % 7 else '#REF!'},{'OK' if n % 3 else 'NG'}" for n in range(40)]
    assert new("\n".join(["Speed,Checked", *rows])).missing == []


def test_a_column_is_one_of_numbers_where_it_has_more_of_them_than_marks() -> None:
    assert find_marks({"a": ["1", "?"]}) == find_marks({"a": ["1", "?", ""]}) == {}
    assert find_marks({"a": ["1", "2", "?", "", "2"], "b": ["1"] * 5}) == {"a": ["?"]}
    assert find_marks({"a": ["1 mm", "2,5 mm", "?"], "b": ["1"] * 3}) == {"a": ["?"]}
    assert find_marks({"a": ["1", "2", "3", "?", "up"]}) == {}  # a word that says something


MEASURED = [str(n / 4) for n in range(36)]


@pytest.mark.parametrize(
    ("cells", "marks"),
    [
        ([*MEASURED, "n.m."], ["n.m."]),
        ([*MEASURED, "> 20", "#REF!", "> 20"], ["#REF!", "> 20"]),
        ([f"{each} mm" for each in MEASURED] + ["out of reach"], ["out of reach"]),
        ([f"{each} mm" for each in MEASURED] + ["1.5 cm", "9"], ["1.5 cm"]),
        ([f"{each} {'cm' if n % 3 else 'mm'}" for n, each in enumerate(MEASURED)], []),
        ([*MEASURED, *["n.m."] * 5], []),  # one of ten, and it may say something
        ([*MEASURED[:19], "n.m."], []),  # few numbers
        (["1", "2", "3"] * 20 + ["spare"], []),  # numbers of machines
        ([*MEASURED * 9, *"abcdef"], []),  # many words
        ([*MEASURED, "leaks"], []),  # a word of another column
        ([*MEASURED, "LEAKS"], []),
    ],
)
def test_a_few_cells_that_are_no_numbers_stand_for_missing_ones(
    cells: list[str], marks: list[str]
) -> None:
    """One of them would make a column of words of it, in which no limit is learnt."""
    words = [("leaks", "good")[n % 2] for n in range(len(cells))]
    assert find_marks({"a": cells, "b": words}) == ({"a": marks} if marks else {})
    assert find_marks({"a": cells}) == {}  # a row would say nothing


def test_a_limit_is_learnt_beside_a_cell_that_is_no_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sizes = ["n.m.", *(n / 10 for n in range(40, 160))]
    rows = [f"{size},{'abc'[n % 3]},{'NG' if n > 80 else 'OK'}" for n, size in enumerate(sizes)]
    new("\n".join(["Size,Line,Checked", *rows]))
    words = "--config tickets --config frugal --config my.yaml --model.engine scripted"
    assert (
        main(["fit", *words.split(), "--fabric.devices", "1", "--fabric.accelerator", "cpu"]) == 0
    )
    assert re.search(r"Fail if Size (.if given. )?is above 1[12]\.\d\.", capsys.readouterr().out)


def test_other_columns_that_may_be_the_label_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        new("id,Priority,Check,Queue\n" + "1,low,OK,a\n2,high,NG,b\n" * 6, "--group", "null").label
        == "Check"
    )
    said = 'Note: the label is column "Check"; "Priority", "Queue" would do as well: --label COLUMN'
    assert said in capsys.readouterr().out.splitlines()


def test_rows_that_say_few_things_are_cases_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Else nothing could be learnt: nine things said are nine cases."""
    rows = [f"{'abc'[n % 3]},{'xyz'[n // 3 % 3]},{'NG' if n % 3 else 'OK'}" for n in range(300)]
    assert new("\n".join(["Seal,Shop,Checked", *rows])).repeats == "apart"
    assert "rows say but few different things" in Path("my.yaml").read_text()
    assert main(capsys.readouterr().out.splitlines()[-1].split()[1:]) == 0
    assert "say the same" not in capsys.readouterr().out


def test_a_label_that_looks_mistyped_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    new(
        "x,class\n"
        + "1,high\n2,low\n3,minor\n4,major\n" * 5
        + "5,hihg\n6,other\n7,Lowly\n8,Lowly\n"
    )
    assert (
        'labels Lowly (2), hihg (1, did you mean "high"?), other (1): hardly a rule'
        in capsys.readouterr().out
    )


def test_a_person_at_a_terminal_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = io.StringIO("z\nfail\npass\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    columns = new("x,z\n1,up\n2,down\n")
    assert (columns.label, columns.passes, columns.fails) == ("z", ["down"], ["up"])
    assert 'does "up" mean pass or fail?' in capsys.readouterr().err


def words(n: int) -> str:
    return " ".join(
        f"{'abcdefgh'[n * k % 8]}{'xyz'[n // 8 % 3]}{'uvw'[n // 24 % 3]}{k}" for k in range(1, 7)
    )


JUDGED = [
    (
        n,
        n // 3,
        f"2025-01-0{n % 9 + 1}",
        f"{n * 7 % 10}.5",
        words(n // 3),
        "OK" if n // 3 % 2 else "NG",
    )
    for n in range(90)
]


def judge(*columns: int, header: str) -> str:
    return (
        "\n".join([header, *(",".join(str(row[column]) for column in columns) for row in JUDGED)])
        + "\n"
    )


@pytest.mark.parametrize(
    ("header", "columns", "together", "texts"),
    [
        (
            "annotation_id,id,annotator,created_at,lead_time,text,verdict",
            (0, 1, 0, 2, 3, 4, 5),
            "id",
            ["text"],
        ),
        ("id,checked_by,Remark,Result", (0, 0, 4, 5), "Remark", ["Remark"]),
        ("id,Judge,Remark,Result", (0, 0, 4, 5), "Remark", ["Remark"]),
        ("id,worker_id,Remark,Result", (0, 0, 4, 5), "Remark", ["Remark"]),
        # of a delivery, it may be
        ("id,lead_time,Remark,Result", (0, 3, 4, 5), "Remark", ["lead_time", "Remark"]),
        # all that is said of it
        ("row_id,part_id,inspector,Gap,Result", (0, 1, 0, 1, 5), "part_id", ["Gap"]),
        # parts that were measured again
        ("row_id,part_id,inspector,Gap,Result", (0, 1, 0, 0, 5), None, ["part_id", "Gap"]),
        ("id,Remark,Result", (0, 3, 5), None, ["Remark"]),
        # which is no name of a text
        ("id,machine no,Remark,Result", (0, 1, 3, 5), None, ["machine no", "Remark"]),
    ],
)
def test_rows_of_one_text_stay_together_and_who_judged_it_is_no_text(
    header: str,
    columns: tuple[int, ...],
    together: str | None,
    texts: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = new(judge(*columns, header=header))
    assert (found.together, found.texts) == (together, texts) and (
        not together or found.repeats == "together"
    )
    said = capsys.readouterr().out
    assert (f'Note: 90 rows are of 30 different "{together}"' in said) == (together is not None)
    assert ("(who judged a row, and when)" in said) == any(
        each in header for each in ("annotator", "checked_by", "inspector", "Judge", "worker_id")
    )


@pytest.mark.parametrize(
    ("name", "words", "is_left_out"),
    [
        ("target", ("0", "1"), True),
        ("Colour", ("ok", "bad"), True),  # by its words
        ("Colour", ("ok", "red"), False),
    ],
)
def test_a_second_label_is_named_and_left_out(
    name: str, words: tuple[str, str], is_left_out: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(
        f"{n},{'worn' if n % 3 else 'new'},{words[n % 3 > 0]},{'NG' if n % 3 else 'OK'}\n"
        for n in range(60)
    )
    texts = new(f"id,Seal,{name},Checked\n{rows}", "--label", "Checked").texts
    assert texts == (["Seal"] if is_left_out else ["Seal", name])
    said = f'"{name}" (it alone tells the label of every row, as a second label does)'
    assert (said in capsys.readouterr().out) == is_left_out


def test_what_alone_tells_the_label_under_another_name_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = "".join(
        f"{n},{'ab'[n % 2]},{30 * (n % 3 > 0) + n % 5},{'NG' if n % 3 else 'OK'}\n"
        for n in range(60)
    )
    assert new(f"id,Delivered by,Rework minutes,Checked\n{rows}").texts == [
        "Delivered by",
        "Rework minutes",
    ]
    assert "Note: 'Rework minutes' alone tells the label of every ticket" in capsys.readouterr().out


@pytest.mark.parametrize("judgements", [2, 5, 9])
def test_what_is_written_again_for_each_judgement_of_a_case_tells_no_label(
    judgements: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (
        f"{n},{words(n // judgements)},{'NG' if n // judgements % 2 else 'OK'}\n"
        for n in range(20 * judgements)
    )
    assert new("id,Remark,Result\n" + "".join(rows)).together == "Remark"
    assert "alone tells the label" not in capsys.readouterr().out


def test_exact_copies_leave_a_name_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"T-{n:03},{n % 7},{'NG' if n % 3 else 'OK'}\n" for n in range(60)]
    assert new("Teil,Temp,Ergebnis\n" + "".join([*rows, *rows[:25]])).group_id == "Teil"
    assert (
        "Note: 25 rows are exact copies of others, which count once; the first is my.csv:62"
        in capsys.readouterr().out
    )
    assert (
        main(["validate", "--config", "tickets", "--config", "frugal", "--config", "my.yaml"]) == 0
    )
    assert "Note: 25 rows are exact copies" in capsys.readouterr().out
    Path("my.yaml").unlink()
    assert new("Length,Result\n" + "312,OK\n313,OK\n500,NG\n" * 2).group_id is None


@pytest.mark.parametrize(("header", "start"), [("No", 1), ("Nr.", 1), ("#", 0), ("Unnamed: 0", 0)])
def test_the_number_of_a_row_names_no_case_where_a_column_of_codes_does(
    header: str, start: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor does it hide that some rows are copies."""
    rows = [f"T-{n:03},{n % 7},{'NG' if n % 3 else 'OK'}" for n in range(60)]

    def guess(names: str, texts: list[str]) -> ColumnsConfig:
        Path("my.yaml").unlink(missing_ok=True)
        return new(
            "\n".join([f"{header},{names}", *(f"{n},{t}" for n, t in enumerate(texts, start))])
        )

    columns = guess("Teil,Temp,Ergebnis", rows)
    assert (columns.group_id, columns.texts) == ("Teil", ["Temp"])
    assert f'"{header}" (it numbers the rows)' in capsys.readouterr().out
    columns = guess("Teil,Temp,Ergebnis", [*rows, *rows[:25]])
    assert (columns.together, columns.texts) == ("Teil", ["Temp"])
    words = [f"{'ab'[n % 2] * n},{'NG' if n % 3 else 'OK'}" for n in range(1, 40)]
    assert guess("Word,Ergebnis", words).texts == ["Word"]  # it is no code


def test_rows_without_a_label_may_be_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    text = "x,Result\n1,OK\n2,NG\n3,\n"
    assert new(text, "--unlabelled", "skip").unlabelled == "skip"
    assert (
        "Note: 1 row is without a label, and left out; the first is my.csv:4"
        in capsys.readouterr().out
    )


def test_a_sheet_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    table = [["id", "Seal", "Result"], ["a", "new", "OK"], ["b", "worn", "NG"]]
    write_xlsx(Path("my.xlsx"), [["notes"]], table)
    assert '"S1", "S2"; name one by columns.sheet (stageb new: --sheet)' in refuse(
        capsys, "my.xlsx"
    )
    assert main(["new", "my.xlsx", "--sheet", "S2"]) == 0
    columns: ColumnsConfig = parse(["--config", "my.yaml"]).config.columns
    assert (columns.sheet, columns.texts) == ("S2", ["Seal"])


@pytest.mark.parametrize("mark", ["", "n/a", "-", "NULL", "?"])
def test_columns_without_a_value_are_left_out(
    mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever stands for one that is missing; beside words, such a mark may be one of them."""
    rows = [f"new,{mark},{mark},OK", f"worn,{mark},2024-05-02,NG"] * 9
    found = new("\n".join(["Seal,Note,Checked,Result", *rows]))
    assert found.texts == ["Seal"]
    why = "dates alone, of which rules read nothing, or no value at all"
    assert f'no texts to judge by: "Note", "Checked" ({why})' in capsys.readouterr().out


def test_columns_that_hold_no_texts_or_numbers_are_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_xlsx(
        Path("my.xlsx"),
        [["id", "Seal", "Sum", "Result"], ["a", "new", "=1+1", "OK"], ["b", "worn", "=A1", "NG"]],
    )
    assert main(["new", "my.xlsx"]) == 0
    assert (
        'no texts to judge by: "Sum" (cells that are no text or number)' in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", (), "empty"),
        ("x,Result\n", (), "no rows below the header"),
        (
            "x,y\n1,2\n",
            (),
            'which column holds the right verdict, of "x", "y"? Say it with --label COLUMN',
        ),
        ("x,y\n1,2\n", ("--label", "w"), 'there is no column "w"; there are "x", "y"'),
        (
            "x,Result\n1,OK\n",
            ("--label", "Resul"),
            'no column "Resul", did you mean "Result"?; there are "x", "Result"',
        ),
        (
            ",".join("abcdefghijklmnopqrs") + ",Queue\n" + "1," * 19 + "up\n",
            (),
            '"r", "s", "Queue"? Say it with --label',
        ),
        (
            TOPICS.format("Category", "Priority"),
            (),
            'the right verdict, of "Category", "Priority"? Say it with --label COLUMN',
        ),
        (
            "x,Outcome,Status\n1,a,b\n2,b,c\n",
            (),
            'the right verdict, of "Outcome", "Status"? Say it with --label COLUMN',
        ),
        # no value comes again
        ("x,Queue\n" + "".join(f"1,{n}\n" for n in range(8)), (), 'of "x", "Queue"?'),
        ("x,Result\n1,OK\n2,OK\n", (), 'column "Result" says "OK" alone, so nothing can be learnt'),
        ("x,Result\n1,up\n2,down\n", (), 'does "up" mean pass or fail? Say it with --passes'),
        ("x,Result\n1,OK\n2,NG\n", ("--passes", "fine"), 'column "Result" nowhere says "fine"'),
        (
            "x,Result\n" + "".join(f"1,{n}\n" for n in range(33)),
            ("--label", "Result"),
            "holds 33 different values",
        ),
        ("x,Result\n1,OK\n2,NG\n3,\n", (), "my.csv:4"),  # the table does not fit: no label
        ("x,Result\n1,OK\n2,NG\n", ("--to", "my.csv"), "it holds the tickets"),
        ("x,Result\n1,OK\n2,NG\n", ("--to", "none/my.yaml"), "name another file with --to"),
    ],
)
def test_a_table_that_cannot_be_used(
    text: str, options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("my.csv").write_text(text)
    assert message in refuse(capsys, "my.csv", *options)


def test_a_file_that_is_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.xlsx").write_bytes(b"PK\x03\x04\0")
    Path("named.csv").write_bytes(b"PK\x03\x04\0")
    assert "damaged, or not of the kind" in refuse(capsys, "my.xlsx")
    assert "save it as CSV (UTF-8)" in refuse(capsys, "named.csv")
    for name in ("none.csv", "none.xlsx", "none.parquet"):
        assert "cannot be read: No such file or directory; name a readable file" in refuse(
            capsys, name
        )
    assert "JSON Lines need no such config" in refuse(capsys, "my.jsonl")


def test_a_config_that_is_there_stays(capsys: pytest.CaptureFixture[str]) -> None:
    new(RACKS)
    assert "my.yaml: exists already; name another file with --to" in refuse(capsys, "my.csv")
