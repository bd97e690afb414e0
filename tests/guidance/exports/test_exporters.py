"""What all exporters have in common: found by name, refusing what they cannot say, before anything
is written."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonlogic_rs  # type: ignore[import-untyped]
import pytest
from guidance.exports.kinds import KINDS, make_missions
from guidance.exports.test_export import coded, ticket

from stageb.__main__ import main
from stageb.errors import InputError
from stageb.guidance.exports import registry
from stageb.guidance.exports.protocol import CodedMission, Exported
from stageb.guidance.exports.registry import EXPORTERS, list_exporters, make_exporter
from stageb.guidance.exports.sql import write_sql
from stageb.guidance.exports.sql_dialects import DIALECTS, Dialect
from stageb.guidance.rules.conditions import OneOf
from stageb.guidance.rules.judge import CodedRule, CodedRules
from stageb.guidance.rules.parse import RuleCode
from stageb.guidance.words.automation import Automation, Bound
from stageb.guidance.words.types import Content, Ticket
from stageb.untrusted.clean_text import fold_value

TABLE = (
    "id,Seal,Torque,Width,Grade,label\n1,worn,40,3 mm,2,fail\n2,new,30,4 mm,1.0,pass\n"
    "3,new,41.5,5 mm,A1,pass\n"
)
OF_TABLE = ["--tickets", "table.csv", "--columns", "group_id=id,label=label,mission_name=tickets"]
DECIDED = ("json-logic", "pmml", "dmn", "xlsx")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text(TABLE)
    return tmp_path


def export(form: str, *rules: str) -> int:
    Path("rules.txt").write_text("\n".join(["[tickets]", *rules]) + "\n")
    return main(
        ["guidance", "export", "rules.txt", "--format", form, "--output", f"out-{form}", *OF_TABLE]
    )


@pytest.mark.parametrize("form", EXPORTERS)
def test_rules_on_columns_leave_in_every_form(form: str, place: Path) -> None:
    assert (
        export(form, "Fail if Seal is worn and Torque is above 39.5.", "Fail if Torque is missing.")
        == 0
    )
    assert (place / f"out-{form}").exists()


@pytest.mark.parametrize("form", EXPORTERS)
def test_a_mission_leaves_as_if_there_were_no_other(form: str, place: Path) -> None:
    """Whatever the tickets of others hold in columns of the same names."""
    head, *rows = TABLE.replace("id,", "mission,id,").splitlines()
    own = [f"tickets,{row}" for row in rows]
    Path("rules.txt").write_text("[tickets]\nFail if Seal is worn and Torque is above 39.5.\n")
    for name, others in (
        ("alone", []),
        ("beside", ["lids,4,ÖL,much,wide,x,fail", "lids,5,,,,,pass"]),
    ):
        Path(f"{name}.csv").write_text("\n".join([head, *own, *others, ""]))
        wanted = ["--format", form, "--output", name, "--tickets", f"{name}.csv"]
        line = ["guidance", "export", "rules.txt", *wanted, "--columns", "group_id=id"]
        assert main(line) == 0
    assert read_export(place / "alone") == read_export(place / "beside")


@pytest.mark.parametrize("form", EXPORTERS)
@pytest.mark.parametrize("says", ["Seal: worn; Torque: 40", '{"Seal": "worn", "Torque": 40}'])
def test_a_known_ticket_that_says_nothing_changes_no_export(
    form: str, says: str, place: Path
) -> None:
    """Whether the others say something in prose or count."""
    Path("rules.txt").write_text("[tickets]\nFail if Seal is worn.\nFail if Torque is above 3.\n")
    said = [says, says.replace("worn", "new").replace("40", "3"), says.replace("40", "5"), ""]
    rows = [
        {"mission": "tickets", "group_id": f"{n}", "label": "fail", "per_image": {"image_1": text}}
        for n, text in enumerate(said)
    ]
    lines = [f"{json.dumps(row)}\n" for row in rows]
    for name, some in (("alone", lines[:-1]), ("beside", lines)):
        Path(f"{name}.jsonl").write_text("".join(some))
        wanted = ["--format", form, "--output", name, "--tickets", f"{name}.jsonl"]
        assert main(["guidance", "export", "rules.txt", *wanted]) == 0
    assert read_export(place / "alone") == read_export(place / "beside")


def read_export(path: Path) -> dict[str, bytes]:
    """What was written, but for when."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as book:
            names = (name for name in book.namelist() if "docProps" not in name)
            return {name: book.read(name) for name in names}
    files = path.iterdir() if path.is_dir() else [path]
    return {"" if file == path else file.name: file.read_bytes() for file in files}


@pytest.mark.parametrize("form", DECIDED)
@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("Fail if a summary mentions new.", "it reads words of free text"),
        ("Fail if Width is above 3 mm.", "the column Width holds texts such as '3 mm'"),
        ("Fail if it looks odd.", "G2"),
        ("Fail if Torque equals Seal.", "a column of numbers with one of texts"),
        ("Fail if Grade is above 3.", "the column Grade holds texts such as 'A1'"),
        ("Fail if Seal equals Grade.", "the column Grade holds numbers and texts"),
    ],
)
def test_a_rule_that_a_form_cannot_say_is_named_before_anything_is_written(
    form: str, rule: str, why: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(form, "Fail if Seal is worn.", rule) == 2
    told = capsys.readouterr().err
    assert why in told
    assert "G2" in told
    assert not (place / f"out-{form}").exists()


def test_json_logic_refuses_a_column_whose_name_it_reads_as_a_path() -> None:
    for name in ("a.b", "a\\b"):
        with pytest.raises(InputError, match="as a path"):
            make_exporter("json-logic").write(
                [coded([f"Fail if {name} is missing."], [ticket({name: "x"})])], DIALECTS["sqlite"]
            )


def test_forms_of_one_mission_ask_which() -> None:
    mission = coded(["Fail if Seal is missing."], [ticket({"Seal": "x"})])
    with pytest.raises(InputError, match="choose one by --mission"):
        make_exporter("pmml").write([mission, mission], DIALECTS["sqlite"])


class OwnExporter:
    """As a package of others has it."""

    is_typed = False

    def write(self, missions: Sequence[CodedMission], dialect: Dialect) -> Exported:
        return Exported("\n".join(mission.name for mission in missions) + "\n")


def test_an_installed_package_brings_a_form_of_its_own(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside others, and never in the place of one that stands here."""
    modules = {"another": "no_module", "own": __name__, "sql": "no_module"}
    points = [
        EntryPoint(name, f"{module}:OwnExporter", "stageb.exports")
        for name, module in modules.items()
    ]
    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda group, name="": [each for each in points if name in ("", each.name)],
    )
    assert list_exporters() == [*EXPORTERS, "another", "own"]
    assert export("sql", "Fail if Seal is worn.") == 0
    assert export("own", "Fail if Seal is worn.") == 0
    assert (place / "out-own").read_text() == "tickets\n"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_queries_are_sentences_of_their_dialect(dialect: str) -> None:
    """Where the engine does not run, its grammar is read by another's parser."""
    sqlglot = pytest.importorskip("sqlglot")
    for name in ("table", "decimal commas", "numbers"):
        for mission, _ in make_missions(name, KINDS[name], 2, 20):
            assert sqlglot.parse(write_sql([mission], DIALECTS[dialect]), read=dialect)


def test_long_names_of_columns_stay_apart_where_a_database_cuts_them() -> None:
    names = [f"{'long_name_of_a_column_' * 3}{end}" for end in ("one", "other")]
    mission = coded(
        [f"Fail if {name} is above 3." for name in names], [ticket(dict.fromkeys(names, "3"))]
    )
    for dialect in ("postgres", "mysql"):
        query = write_sql([mission], DIALECTS[dialect])
        made = [
            line.rsplit(" AS ", 1)[1].rstrip(",")
            for line in query.splitlines()
            if " AS " in line and "FROM" not in line
        ]
        assert len(made) > 4 * len(names)
        assert len({*made}) == len(
            {name.encode()[: DIALECTS[dialect].longest_name] for name in made}
        )


HOSTILE = [
    "date",
    "verdict",
    "rule",
    "if",
    "G1 holds",
    "a \"b\" <c> & 'd' #1",
    "=1+1",
    "\\n\\d$1",
    "'{{ x }}'",
]


@pytest.mark.slow
@pytest.mark.parametrize("form", DECIDED)
def test_columns_and_values_of_any_name_stay_names(form: str) -> None:
    """Documents can be read, no name stands for two things, and engines that run here judge by
    them."""
    pairs = {name: f"{name} value" for name in HOSTILE if form != "json-logic" or "\\" not in name}
    known = Ticket("m", "g", "pass", (("image_1", "x"),), content=Content(tuple(pairs.items()), ()))
    codes = [RuleCode("fail", OneOf(name, (value,))) for name, value in pairs.items()]
    rules = [CodedRule(f"G{number}", "a rule", code) for number, code in enumerate(codes, 1)]
    mission = CodedMission("m", 1, CodedRules(rules), tickets=(known,))
    written: Any = make_exporter(form).write([mission], DIALECTS["sqlite"]).files
    if form == "json-logic":
        logic = json.loads(written)["missions"]["m"]["logic"]
        for name, value in pairs.items():
            row = {**dict.fromkeys(pairs, "x"), name: fold_value(value)}
            assert jsonlogic_rs.apply(logic, row)[0] == "fail"
    elif form == "xlsx":
        assert zipfile.ZipFile(io.BytesIO(written)).testzip() is None
    else:
        root = ElementTree.fromstring(written)
        kinds = ("DataField", "DerivedField") if form == "pmml" else ("inputData",)
        names = [each.get("name") for each in root.iter() if each.tag.partition("}")[2] in kinds]
        assert len(names) == len(set(names)) >= len(pairs)


@pytest.mark.parametrize("form", EXPORTERS)
def test_a_form_that_does_not_say_who_decides_says_so_and_names_one_that_does(form: str) -> None:
    row = ticket({"Torque": "40", "Width": "3"})
    bound = Bound("", 0.02, {"G1": 1}, 300, 200, 1)
    mission = replace(
        coded(
            ["Fail if it has 1 point or more: 1 if Torque is above 30; 1 if Width is below 4."],
            [row],
        ),
        tickets=(row,),
        numeric=frozenset({"Torque", "Width"}),
        automation=Automation(0.95, "x", "rules", "", 300, (), (bound,)),
    )
    said = "".join(make_exporter(form).write([mission], DIALECTS["duckdb"]).notes)
    tells = form in ("python", "json", "sql", "dbt")
    assert ("who decides is not written; --format python and sql have it" in said) == (not tells)
