"""Loggers that a config names: what they are shown, what is refused, and that a run does not depend
on them."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from conformance import content
from lightning_fabric.loggers.csv_logs import CSVLogger
from lightning_fabric.loggers.logger import Logger
from programs import small, snakes

from stageb.__main__ import main
from stageb.config import LoggerConfig
from stageb.runs.loggers import Loggers

BREAKS = {"class_path": f"{__name__}.Breaking", "init_args": {"after": 3}}
ALL = ["CSVLogger", {"class_path": "lightning.pytorch.loggers.TensorBoardLogger"}, BREAKS]
SERVICE: dict[str, Any] = {"class_path": f"{__name__}.Service", "init_args": {"project": "tickets"}}
KEYS: dict[str, Any] = {"runner.epochs": 1, "runner.log_every_s": 0}


class Breaking(CSVLogger):
    """A service that goes away."""

    def __init__(self, root_dir: str, after: int) -> None:
        super().__init__(root_dir, name="breaking")
        self.left = after

    def log_metrics(self, *given: Any, **named: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("gone \x1b[2J")
        super().log_metrics(*given, **named)


class Service(Logger):
    """A service that keeps runs by their ids, as W&B and MLflow do; here a file a run, of all that
    it was told."""

    def __init__(self, save_dir: str, project: str, run_id: str | None = None) -> None:
        self.run = run_id or f"{project}-{len(list(Path(save_dir).glob('*.told')))}"
        self.file = Path(save_dir, f"{self.run}.told")

    def told(self, *what: Any) -> None:
        with self.file.open("a") as opened:
            opened.write(json.dumps(what) + "\n")

    @property
    def name(self) -> str:
        return "service"

    @property
    def version(self) -> str:
        return self.run

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self.told("config", params["loop"], params["runner"]["epochs"])

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.told("metrics", step)

    def finalize(self, status: str) -> None:
        self.told(status)


def told(folder: Path) -> dict[str, list[Any]]:
    return {
        path.stem: list(map(json.loads, path.open()))
        for path in sorted(folder.glob("logs.d/*.told"))
    }


def logged(folder: Path) -> list[dict[str, str]]:
    (file,) = folder.glob("logs.d/lightning_logs/version_0/metrics.csv")
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def test_loggers_see_the_figures_and_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=60)
    assert main(small.arguments(tickets, tmp_path / "plain", keys=KEYS)) == 0
    err = capsys.readouterr().err
    assert "\nvalves, epoch 1, train: round 3/6, acc " in err
    form = r"\nvalves, epoch 1, val: round 5/6, acc \d+\.\d%, step 1, 1 of \d+ edits accepted, \d+\.\d tickets/s"
    assert re.search(form, err), err
    keys = {**KEYS, "loggers": [*ALL, SERVICE], "log_level": "warning"}
    assert main(small.arguments(tickets, tmp_path / "logged", keys=keys)) == 0
    err = capsys.readouterr().err
    assert "Breaking is switched off from now on: ConnectionError: gone \\x1b[2J\n" in err
    assert "epoch" not in err
    run, plain = tmp_path / "logged/run", tmp_path / "plain/run"
    assert content(run) == content(plain)
    rows = logged(run)
    for row in (json.loads(line) for line in (run / "valves/metrics.jsonl").open()):
        name = f"valves/{row['split']}"
        seen = [each for each in rows if each[f"{name}/acc"] and each["epoch"] == f"{row['epoch']}"]
        assert [(float(each[f"{name}/acc"]), int(each[f"{name}/fp"])) for each in seen] == [
            (row["acc"], row["fp"])
        ]
    assert any(each["valves/train/round/tickets_per_second"] for each in rows)
    assert list(run.glob("logs.d/lightning_logs/version_*/events.*"))
    ((first, second, *_, last),) = told(run).values()
    assert (first, second, last) == (["metrics", 1], ["config", "guidance", 1], ["success"])


def test_a_run_that_goes_on_does_so_in_the_run_of_a_service(tmp_path: Path) -> None:
    tmp_path.joinpath("config.yaml").write_text("loop: guidance\nrunner: {epochs: 1}\n")
    asked = [LoggerConfig(SERVICE["class_path"], SERVICE["init_args"])]

    def part(steps: list[int], status: str) -> None:
        loggers = Loggers(asked, tmp_path, pytest.fail)
        for step in steps:
            loggers.log({"acc": 1.0}, step)
            loggers.save()
        loggers.close(status)

    part([1, 2], "aborted")
    part([3], "success")
    lines = [
        ["metrics", 1],
        ["config", "guidance", 1],
        ["metrics", 2],
        ["failed"],
        ["metrics", 3],
        ["success"],
    ]
    assert told(tmp_path) == {"tickets-0": lines}
    # another project does not know that run
    asked = [LoggerConfig(SERVICE["class_path"], {"project": "other"})]
    part([4], "success")
    assert told(tmp_path)["other-1"] == [["metrics", 4], ["config", "guidance", 1], ["success"]]
    (tmp_path / "logs.d/runs.json").write_text("{")
    part([5], "success")
    assert list(told(tmp_path)) == ["other-1", "other-2", "tickets-0"]


def test_snakes_rows_go_there_too(tmp_path: Path) -> None:
    keys = {"loggers": ALL[:1], "runner.total_steps": snakes.GAMES * 4 * 2, "log_level": "error"}
    assert (
        main(
            snakes.arguments(
                tmp_path, **{name.replace(".", "__"): value for name, value in keys.items()}
            )
        )
        == 0
    )
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    assert [float(row["policy_loss"]) for row in logged(tmp_path / "run")] == [
        row["policy_loss"] for row in rows
    ]


@pytest.mark.parametrize(
    ("loggers", "told"),
    [
        (["CVSLogger"], "there is no such class"),
        (["nowhere.CSVLogger"], "there is no such class"),
        (["lightning.fabric.loggers.CVSLogger"], "there is no such class"),
        (["lightning.fabric.Fabric"], "not a logger class"),
        (["lightning.fabric.loggers.logger.Logger"], "not a logger class"),
        (["os.system"], "not a logger class"),
        (
            [{"class_path": "lightning.fabric.loggers.CSVLogger", "init_args": {"plce": 1}}],
            "unexpected keyword argument 'plce'",
        ),
        ([{"class_path": BREAKS["class_path"]}], "missing a required argument: 'after'"),
        ([{"class_path": "lightning.fabric.loggers.CSVLogger", "init_arg": {}}], "there is no key"),
        ([5], "expected text, or keys"),
    ],
)
def test_a_logger_that_cannot_be_is_told_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], loggers: list[Any], told: str
) -> None:
    arguments = small.arguments(
        tmp_path / "none.jsonl", tmp_path / "out", keys={"loggers": loggers}
    )
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "loggers" in err
    assert not (tmp_path / "out").exists()
