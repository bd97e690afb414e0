"""Tables judged by their columns: the same files as ticket by ticket, and the same faults."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pyarrow
import pytest
from pyarrow import parquet
from times import TIMES

import stageb
from stageb.errors import StagebError
from stageb.guidance.commands.use import columns as by_column
from stageb.guidance.commands.use.rounds import Rounds
from stageb.guidance.tickets import batches
from stageb.guidance.tickets.batches import ColumnarBatch, has_columns
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.store.output import read_rows
from stageb.untrusted import workbook
from stageb.untrusted.workbook import write_value

RULES = {
    "presses": [
        "Fail if Torque is above 60 and Speed is below 1400.",
        "Pass if Type is H or M unless Wear is above 200.",
        "Fail if Speed × Torque is above 90000.",
        "Fail if a summary mentions leak.",
        "Fail if Note mentions worn or hot.",
    ],
    "mills": ["Fail if Torque is above 60.", "Fail if it looks odd."],
    "pumps": [
        "Fail if it has 3 points or more: 2 if Torque is above 40; 2 if Type is L; 1 if Wear is "
        "below 100.",
        "Fail if Air is Torque.",
    ],
}
NUMBERS = dict.fromkeys(("Torque", "Speed", "Wear", "Air"), "0")
NAMED = [
    *NUMBERS.items(),
    *(("Type", each) for each in "HML"),
    ("Note", "worn"),
    ("", "leak"),
    ("", "worn"),
    ("", "hot"),
]
VALUES: Mapping[str, Sequence[Any]] = {
    "Type": ["H", "M", "L", "h ", None, "x\ty", 'q"t', "二"],
    "Torque": [12.5, 40.0, 61.0, 75.5, None, float("nan"), -0.0],
    "Speed": [1300, 1400, 2900, None],
    "Wear": ["20", "99 min", "205 min", "", " 250 min", "1e-05", "n/a"],
    "Air": [40, 300, None],
    "Note": ["a leak; seal worn", "worn seal", "hot", None, "leaks", "fine, dry. new"],
    "label": ["pass", "fail", None],
    "station": ["presses", "pumps", "mills"],
    "case": ["a", "b", "ü"],
}
Keys = dict[str, Any]


@pytest.fixture
def predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[bytes, object]]:
    """What ``predict`` writes and counts of tables, a few rows at a time."""
    experiences = {
        mission: {
            "G0": "A ticket passes unless a rule fails it.",
            **{f"G{n}": text for n, text in enumerate(rules, 1)},
        }
        for mission, rules in RULES.items()
    }
    guidance = tmp_path / "g.json"
    guidance.write_text(
        json.dumps({name: {"experiences": of, "named": NAMED} for name, of in experiences.items()})
    )
    for module in (batches, workbook):
        monkeypatch.setattr(module, "MOST_ROWS", 37)
    # of many rows, no first look finds what is wrong
    for name in ("predict.AT_FIRST", "judged.SEEN"):
        monkeypatch.setattr(f"stageb.guidance.commands.use.{name}", 1)

    def act(
        tickets: Sequence[Path], by_columns: bool, name: str = "out.jsonl", **keys: Any
    ) -> tuple[bytes, object]:
        with monkeypatch.context() as patch:
            if not by_columns:
                patch.setattr(by_column, "has_columns", lambda files, columns: False)
            out, files = str(tmp_path / name), [*map(str, tickets)]
            made = stageb.predict(
                guidance=str(guidance),
                tickets=files,
                output=out,
                by="rules",
                **{"fresh": True, **keys},
            )
        return made.path.read_bytes(), made.counts

    return act


def write_table(path: Path, draw: Random, rows: int, **columns: Any) -> Path:
    """A table with rows in which nothing stands, or no field, and one that says what another
    does."""
    made = {
        name: [draw.choice(values) for _ in range(rows)] for name, values in VALUES.items()
    } | columns
    for place in draw.sample(range(rows), 10):
        for name, values in made.items():
            if place % 2 or name not in ("station", "case"):
                values[place] = None
    for values in made.values():
        values[-1] = values[0] = values[1]
    if path.suffix == ".parquet":
        table = pyarrow.table(made)
        parquet.write_table(
            table.set_column(0, "Type", table["Type"].dictionary_encode()), path, row_group_size=50
        )
        return path
    text = io.StringIO()
    csv.writer(text).writerows(
        [[*made], *([*map(write_value, row)] for row in zip(*made.values(), strict=True))]
    )
    path.write_text(text.getvalue(), "utf-8")
    return path


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("mission", ["station", None])
@pytest.mark.parametrize("name", ["case", None])
def test_rows_are_those_of_tickets_one_by_one(
    kind: str,
    mission: str | None,
    name: str | None,
    tmp_path: Path,
    predict: Callable[..., tuple[bytes, object]],
) -> None:
    columns: Keys = {
        "group_id": name,
        **({"mission": mission} if mission else {"mission_name": "presses"}),
    }
    for number in range(TIMES):
        draw = Random(f"{kind} {mission} {name} {number}")
        files = [write_table(tmp_path / f"{place}.{kind}", draw, 120) for place in range(2)]
        for out in ("out.jsonl", "out.csv"):
            found = predict(files, True, columns=columns, name=out)
            assert found == predict(files, False, columns=columns, name=out)
            assert (
                {"pass", "fail", None, ""}
                >= {row["verdict"] or None for row in read_rows(tmp_path / out)}
                > {"pass"}
            )


def test_a_row_is_read_as_a_ticket_once_for_all_alike(
    tmp_path: Path, predict: Callable[..., tuple[bytes, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Mock(side_effect=ColumnarBatch.ticket, autospec=True)
    monkeypatch.setattr(ColumnarBatch, "ticket", lambda *given: asked(*given))
    file = write_table(
        tmp_path / "in.parquet",
        Random(1),
        2000,
        Note=["leak"] * 2000,
        Speed=list(range(1000, 3000)),
    )
    predict([file], True, columns={"group_id": None, "mission_name": "presses"})
    assert asked.call_count < 500


def test_what_stops_amid_a_table_goes_on_as_if_it_had_not(
    tmp_path: Path, predict: Callable[..., tuple[bytes, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of rows count those that came before."""
    file = write_table(tmp_path / "in.parquet", Random(2), 200, case=["a"] * 200)
    keys: Keys = {"columns": {"group_id": None, "mission": "station"}}
    whole = predict([file], True, **keys)
    commit = Rounds.commit

    def stop(self: Rounds[Any], *given: Any) -> None:
        if self.done > 100:
            raise KeyboardInterrupt
        commit(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Rounds, "commit", stop)
        with pytest.raises(KeyboardInterrupt):
            predict([file], True, **keys)
    assert 100 < (tmp_path / "out.jsonl").read_bytes().count(b"\n") < 195
    assert predict([file], True, fresh=False, **keys) == whole
    assert predict([file], True, fresh=False, **keys) == whole  # all is done


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"station": [*["presses"] * 59, "lathes"]},
            "in.parquet:61: mission 'lathes', for which there is no guidance",
        ),
        ({"station": [*["presses"] * 40, *[None] * 20]}, 'in.parquet:42: mission ""'),
        ({"label": [*["pass"] * 59, "so so"]}, 'in.parquet:61: label "so so"'),
        ({"Air": [*[[1]] * 60]}, 'in.parquet:2: column "Air": a list: "[1]"'),
        (
            {"Wear": [*["3"] * 58, "1,5", "4"]},
            'in.parquet:60: column "Wear": "1,5" has a decimal comma',
        ),
        (
            {"Note": ["a", *["b" * 140_000] * 59]},
            "in.parquet:3: a cell of more than 131,072 characters",
        ),
    ],
)
def test_what_is_wrong_is_told_as_of_tickets_one_by_one(
    columns: Keys, said: str, tmp_path: Path, predict: Callable[..., tuple[bytes, object]]
) -> None:
    table = {
        name: [values[place % 2] for place in range(60)] for name, values in VALUES.items()
    } | columns
    parquet.write_table(pyarrow.table(table), tmp_path / "in.parquet")
    faults = []
    for by_columns in (True, False):
        with pytest.raises(StagebError) as caught:
            predict(
                [tmp_path / "in.parquet"],
                by_columns,
                columns={"group_id": None, "mission": "station"},
            )
        faults.append(str(caught.value))
    assert said in faults[0]
    assert faults[0] == faults[1]


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"Wear": [*["3"] * 18, "1,5", "4"]}, ':20: column "Wear": "1,5" has a decimal comma'),
        ({"Air": [*[[1]] * 20]}, ':2: column "Air": a list: "[1]"'),
        ({"station": [*["presses"] * 19, "lathes"]}, ":21: mission 'lathes'"),
        ({name: [] for name in VALUES}, ": no rows below the header"),
    ],
)
def test_what_is_wrong_in_one_of_several_tables_is_told_wherever_it_stands(
    columns: Keys,
    said: str,
    place: int,
    tmp_path: Path,
    predict: Callable[..., tuple[bytes, object]],
) -> None:
    files = [tmp_path / f"{number}.parquet" for number in range(3)]
    for number, path in enumerate(files):
        table = {name: [values[row % 2] for row in range(20)] for name, values in VALUES.items()}
        table |= columns if number == place else {}
        parquet.write_table(pyarrow.table(table), path)
    keys = {"group_id": None, "mission": "station"}
    faults = []
    for by_columns in (True, False):
        with pytest.raises(StagebError) as caught:
            predict(files, by_columns, columns=keys)
        faults.append(str(caught.value))
    assert f"{files[place].name}{said}" in faults[0]
    assert faults[0] == faults[1]


def test_columns_with_summaries_of_images_are_read_as_tickets(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('image_1,image_2\n"{""Torque"": 30}","{""Torque"": 31}"\n')
    assert not has_columns(
        [str(tmp_path / "in.csv")], ColumnsConfig(group_id=None, mission_name="pumps")
    )
