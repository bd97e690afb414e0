"""What a user meets on the command line: keys, messages, exit codes. The loop is a stand-in that
notes its arguments."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
import yaml

from stageb import __version__
from stageb.__main__ import main
from stageb.cli import commands, parsing
from stageb.errors import EngineError
from stageb.guidance.config import BudgetConfig, GateConfig, LoopConfig
from stageb.guidance.words.column_names import ColumnsConfig

TICKETS = ["--tickets", "[my.jsonl]"]


class Fit:
    """Stands where ``stageb.guidance.start.fit`` will be, and keeps what it was called with."""

    def __init__(self) -> None:
        self.config = LoopConfig(tickets=["never called"])
        self.resolved = ""
        self.fresh = False
        self.outcome: int | BaseException = 0

    def __call__(self, config: LoopConfig, resolved_yaml: str, fresh: bool) -> int:
        self.config, self.resolved, self.fresh = config, resolved_yaml, fresh
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fit:
    stand_in = Fit()
    module = types.ModuleType("stageb.guidance.start")
    module.fit = stand_in  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stageb.guidance.start", module)
    monkeypatch.chdir(tmp_path)
    return stand_in


def wrong(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one message of a command line that must be refused."""
    assert main(["fit", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("stageb: ")
    assert "Traceback" not in err
    assert "usage:" not in err
    return err


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What ``--print_config`` prints after ``arguments``."""
    with pytest.raises(SystemExit) as end:
        main(["fit", *arguments, "--print_config"])
    assert end.value.code == 0
    return capsys.readouterr().out


# Keys ---------------------------------------------------------------------------------------------


def test_defaults_are_the_dataclasses_defaults(fit: Fit) -> None:
    assert main(["fit", *TICKETS]) == 0
    assert fit.config == LoopConfig(tickets=["my.jsonl"])
    assert fit.fresh is False


@pytest.mark.parametrize("form", ["file", "option", "json"])
def test_the_gate_can_be_switched_off_or_set(fit: Fit, tmp_path: Path, form: str) -> None:
    (tmp_path / "none.yaml").write_text("gate: none\n")
    (tmp_path / "pool.yaml").write_text("gate: {pool_size: 64}\n")
    off = {
        "file": ["--config", "none.yaml"],
        "option": ["--gate", "none"],
        "json": ["--gate=none"],
    }[form]
    on = {
        "file": ["--config=pool.yaml"],
        "option": ["--gate.pool_size", "64"],
        "json": ["--gate", '{"pool_size": 64}'],
    }[form]
    assert main(["fit", *TICKETS, *off]) == 0
    none = fit.config.gate
    assert main(["fit", *TICKETS, *on]) == 0
    assert (none, fit.config.gate) == ("none", GateConfig(pool_size=64))


def test_an_option_before_a_file_that_sets_its_key_to_something_else_is_refused(
    fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("seed: 5\nrunner: {epochs: 2}\n")
    told = wrong(capsys, *TICKETS, "--runner.epochs", "7", "--config", "a.yaml")
    assert (
        "a.yaml:2: sets runner.epochs, and --runner.epochs stands before it; put "
        "--runner.epochs behind --config" in told
    )
    assert main(["fit", *TICKETS, "--runner.epochs", "2", "--seed", "5", "--config", "a.yaml"]) == 0
    assert fit.config.runner.epochs == 2


def test_options_win_over_the_files_before_them_and_later_files_over_earlier_ones(
    fit: Fit, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("gate: none\nrunner: {epochs: 2}\nseed: 5\n")
    (tmp_path / "b.yaml").write_text("runner: {epochs: 3}\n")
    assert (
        main(["fit", *TICKETS, "--config", "a.yaml", "--config", "b.yaml", "--gate.alpha", "0.1"])
        == 0
    )
    assert (fit.config.seed, fit.config.runner.epochs) == (5, 3)
    assert fit.config.gate == GateConfig(alpha=0.1)


def test_of_an_option_that_is_given_twice_the_last_one_counts() -> None:
    given = {
        "loop": ("guidance", "ppo"),
        "seed": (1, 2),
        "seeds": (3, 4),
        "log_level": ("info", "error"),
    }
    words = [
        f"--{name}={value}"
        for several in zip(*given.values(), strict=True)
        for name, value in zip(given, several, strict=True)
    ]
    told = parsing.parse(words)
    found = (told.loop, told.config.seed, told.seeds, told.config.log_level)
    assert found == tuple(last for _, last in given.values())


def test_lists_nested_models_and_free_mappings_can_be_given_as_options(fit: Fit) -> None:
    grid = ["--sampler.grid", "[{temperature: 0.2}, {temperature: 1, stop: [END]}]"]
    model = [
        "--reflection.model.engine",
        "scripted",
        "--model.chat_template_kwargs.enable_thinking",
        "true",
    ]
    assert main(["fit", "--tickets+", "a.jsonl", "--tickets+", "b.jsonl", *grid, *model]) == 0
    assert fit.config.tickets == ["a.jsonl", "b.jsonl"]
    assert [decode.temperature for decode in fit.config.sampler.grid] == [0.2, 1.0]
    assert fit.config.sampler.grid[1].stop == ["END"]
    assert fit.config.reflection.model is not None
    assert fit.config.reflection.model.engine == "scripted"
    assert fit.config.model.chat_template_kwargs == {"enable_thinking": True}
    assert (
        main(["fit", *TICKETS, "--fabric.devices", "[0, 1]", "--seed=-1", "--gate.alpha", "1e-3"])
        == 0
    )
    assert (fit.config.fabric.devices, fit.config.seed) == ([0, 1], -1)
    assert fit.config.gate == GateConfig(alpha=0.001)


def test_one_ticket_file_needs_no_brackets_and_the_run_keeps_a_list(
    fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("tickets: my file.csv\ncolumns: {passes: OK, fails: 0}\n")
    listed = printed(capsys, "--config", "c.yaml", "--tickets", "[my.csv]", "--print_config")
    assert printed(capsys, "--config", "c.yaml", "--tickets", "my.csv", "--print_config") == listed
    assert main(["fit", "--config", "c.yaml"]) == 0
    assert fit.config.tickets == ["my file.csv"]
    assert (fit.config.columns.passes, fit.config.columns.fails) == (["OK"], ["0"])
    assert main(["fit", "--tickets", "a.csv", "--tickets+", "b.csv"]) == 0
    assert fit.config.tickets == ["a.csv", "b.csv"]


def test_several_keys_of_a_section_can_be_given_at_once(
    fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("columns: {mission: Site, texts: [part]}\ngate: none\n")
    file = ["--config", "c.yaml"]
    pairs = ["--columns", "label=Result (final),passes=OK,passes=yes,fails=NG,mission_name=null"]
    assert main(["fit", *TICKETS, *file, *pairs]) == 0
    columns = ColumnsConfig(
        mission="Site", label="Result (final)", passes=["OK", "yes"], fails=["NG"], texts=["part"]
    )
    assert fit.config.columns == columns
    assert main(["fit", *TICKETS, *file, "--columns=texts=a,texts=b", "--gate", "alpha=1e-2"]) == 0
    assert (fit.config.columns.texts, fit.config.gate) == (["a", "b"], GateConfig(alpha=0.01))
    assert "there is no key columns.misson; did you mean columns.mission?" in wrong(
        capsys, *TICKETS, "--columns=misson=x"
    )
    (tmp_path / "fails.yaml").write_text("columns: {fails: [ok]}\n")
    told = wrong(capsys, *TICKETS, "--config=fails.yaml", "--columns", "passes=OK")
    assert "columns.fails: ['ok']: no word that means pass as well: ok (fails.yaml:1)" in told
    told = wrong(capsys, *TICKETS, "--columns", "passes=OK,decimal=,")
    assert "a value with a comma has an option of its own: --columns.KEY VALUE" in told
    told = wrong(capsys, *TICKETS, "--columns", "passes=OK", "--columns.decimal", ",")
    assert "columns.decimal: ',': leave it out: it is of tables" in told  # so it was taken


def test_limits_can_be_set_and_lifted(fit: Fit) -> None:
    on = ["--budget.rollouts", "500", "--budget.seconds", "1.5", "--early_stop.patience", "3"]
    assert main(["fit", *TICKETS, *on]) == 0
    assert (fit.config.budget, fit.config.early_stop.patience) == (
        BudgetConfig(rollouts=500, seconds=1.5),
        3,
    )
    assert (
        main(["fit", *TICKETS, *on, "--budget.rollouts", "null", "--early_stop.patience", "null"])
        == 0
    )
    assert (fit.config.budget, fit.config.early_stop.patience) == (BudgetConfig(seconds=1.5), None)


def test_fresh_reaches_the_loop_but_no_config(fit: Fit, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *TICKETS, "--fresh"]) == 0
    assert fit.fresh is True
    assert "fresh" not in yaml.safe_load(fit.resolved)
    assert "fresh" not in yaml.safe_load(printed(capsys, "--fresh"))


def test_what_is_printed_and_what_a_run_keeps_is_the_same_config_again(
    fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        *TICKETS,
        *"--gate none --reflection.model.engine scripted --split.train 0.5 --split.val 0.3".split(),
    ]
    (tmp_path / "printed.yaml").write_text(printed(capsys, *options))
    assert main(["fit", *options]) == 0
    first, kept = fit.config, fit.resolved
    assert main(["fit", "--config", "printed.yaml"]) == 0
    assert (fit.config, fit.resolved) == (first, kept)
    assert (
        printed(capsys, "--config", "printed.yaml")
        == (tmp_path / "printed.yaml").read_text()
        == kept
    )


def test_a_config_without_tickets_prints_but_does_not_run(
    fit: Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = str(Path(__file__).parent.parent.parent / "configs" / "guidance" / "tickets.yaml")
    assert yaml.safe_load(printed(capsys, "--config", shipped))["tickets"] == []
    message = wrong(capsys, "--config", shipped)
    assert "tickets" in message
    assert "name ticket files: tickets.jsonl, or [a.jsonl, b.csv]" in message


# Messages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "key", "meant"),
    [
        (["--sede", "3"], "sede", "seed"),
        (["--see", "3"], "see", "seed"),
        (["--epochs=3"], "epochs", "runner.epochs"),
        (["--gate.pool_sise", "64"], "gate.pool_sise", "gate.pool_size"),
        (["--gate", "{pool_sise: 64}"], "gate.pool_sise", "gate.pool_size"),
        (
            ["--reflection.model.engin", "scripted"],
            "reflection.model.engin",
            "reflection.model.engine",
        ),
        (["--sampler.grid", "[{temperatur: 1}]"], "temperatur", "temperature"),
        (["--frsh"], "frsh", "fresh"),
    ],
)
def test_an_unknown_option_is_named_with_the_one_that_was_meant(
    fit: Fit, capsys: pytest.CaptureFixture[str], arguments: list[str], key: str, meant: str
) -> None:
    message = wrong(capsys, *arguments)
    assert f"there is no key {key}; did you mean {meant}" in message or (
        key in message and f"{meant}?" in message
    )


@pytest.mark.parametrize(
    ("text", "line", "key", "meant"),
    [
        ("seed: 1\nrunner:\n  epoch: 3\n", 3, "runner.epoch", "runner.epochs"),
        ("gate:\n  pool_sizes: 3\n", 2, "gate.pool_sizes", "gate.pool_size"),
        (
            "sampler:\n  grid:\n  - top_k: 1\n  - topp: 1\n",
            4,
            "sampler.grid.topp",
            "sampler.grid.top_p",
        ),
        (
            "reflection: {model: {engin: scripted}}\n",
            1,
            "reflection.model.engin",
            "reflection.model.engine",
        ),
        ("fresh: true\n", 1, "fresh", ""),
    ],
)
def test_an_unknown_key_of_a_file_is_named_with_its_line(
    fit: Fit,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    line: int,
    key: str,
    meant: str,
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    message = wrong(capsys, "--config", "c.yaml")
    assert f"c.yaml:{line}: there is no key {key};" in message
    assert meant in message


def test_all_faults_of_a_config_are_told_at_once(
    fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(
        "sede: 1\nrunner: {epochs: two}\nsampler:\n  grid:\n  - top_k: 1\n  - top_k: x\n"
    )
    message = wrong(capsys, "--config", "c.yaml", "--gate.alpha", "x", "--split", "train=y,seed=z")
    assert message.splitlines() == [
        "stageb: 6 unusable config keys:",
        "  c.yaml:1: there is no key sede; did you mean seed?",
        "  c.yaml:2: runner.epochs: 'two'; expected a whole number",
        "  c.yaml:6: sampler.grid.top_k: 'x'; expected a whole number",
        "  command line: gate.alpha: 'x'; expected a number",
        "  command line: split.train: 'y'; expected a number",
        "  command line: split.seed: 'z'; expected a whole number, or null",
    ]


@pytest.mark.parametrize(
    ("arguments", "key", "value", "expected"),
    [
        (["--seed", "x"], "seed", "x", "a whole number"),
        (["--seed", "1.5"], "seed", "1.5", "a whole number"),
        (["--prompt.language", "0x10"], "prompt.language", "'0x10'", "en or zh"),
        (["--prompt.language", "fr"], "prompt.language", "fr", "en or zh"),
        (["--tickets", "{my.jsonl: 1}"], "tickets", "my.jsonl", "a list in brackets"),
        (
            ["--runner.tickets_per_epoch", "x"],
            "runner.tickets_per_epoch",
            "x",
            "a whole number, or null",
        ),
        (["--gate", "off"], "gate", "", "or none"),
        (["--gate.pool_size", "x"], "gate.pool_size", "x", "a whole number"),
        (
            ["--price.missed_failure", "20:1"],
            "price.missed_failure",
            "'20:1'",
            "expected a number; write 20",
        ),
        (
            ["--price", "missed_failure=2.5:1"],
            "price.missed_failure",
            "'2.5:1'",
            "expected a number; write 2.5",
        ),
        (["--budget.rollouts", "1:30"], "budget.rollouts", "'1:30'", "a whole number, or null"),
        (["--gate.judge_by", "vote"], "gate.judge_by", "vote", "auto or probability or answer"),
        (["--budget.rollouts", "many"], "budget.rollouts", "many", "a whole number, or null"),
        (["--sampler.grid", "[{top_k: x}]"], "sampler.grid.top_k", "x", "a whole number"),
        (["--model", "none"], "model", "none", "keys (engine"),
        (
            ["--reflection.model.trust_remote_code", "3"],
            "reflection.model.trust_remote_code",
            "3",
            "true or false",
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_told_in_the_words_of_a_config_file(
    fit: Fit,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    key: str,
    value: str,
    expected: str,
) -> None:
    message = wrong(capsys, *arguments)
    assert message.startswith(f"stageb: config: {key}: ")
    assert value in message
    assert expected in message
    assert message.count("\n") == 1


def test_a_wrong_value_of_a_file_is_told_with_its_place_unless_an_option_replaced_it(
    fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "type.yaml").write_text("seed: 1\nrunner:\n  epochs: x\n")
    (tmp_path / "range.yaml").write_text("gate:\n  alpha: 3\n")
    assert "(type.yaml:3)" in wrong(capsys, *TICKETS, "--config", "type.yaml")
    message = wrong(capsys, *TICKETS, "--config", "range.yaml")
    assert message.startswith("stageb: config: gate.alpha: 3.0: ")
    assert "(range.yaml:2)" in message
    (tmp_path / "list.yaml").write_text("sampler:\n  grid:\n  - top_k: 1\n  - temperature: -1\n")
    assert "(list.yaml:4)" in wrong(capsys, *TICKETS, "--config", "list.yaml")
    (tmp_path / "list.yaml").write_text("columns:\n  fails:\n  - bad\n  - PASS\n")
    assert "(list.yaml:2)" in wrong(capsys, *TICKETS, "--config", "list.yaml")
    assert "range.yaml" not in wrong(
        capsys, *TICKETS, "--config", "range.yaml", "--gate.alpha", "0.9"
    )
    assert main(["fit", *TICKETS, "--config", "range.yaml", "--gate.alpha", "0.1"]) == 0


def test_a_text_that_yaml_takes_for_something_else_wants_quotes(
    fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("columns: {passes: [no], fails: [yes]}\n")
    told = wrong(capsys, *TICKETS, "--config", "c.yaml")
    assert "columns.passes: 'false'; expected text; put yes, no, on and off in quotes: 'no'" in told
    assert "columns.fails: 'true'; expected text; put yes, no, on and off in quotes: 'yes'" in told
    (tmp_path / "c.yaml").write_text("output: {run_name: 2048}\n")
    told = wrong(capsys, *TICKETS, "--config", "c.yaml")
    assert "output.run_name: '2048': expected text; put it in quotes: '2048' (c.yaml:1)" in told
    (tmp_path / "c.yaml").write_text("columns: {passes: ['no'], fails: ['yes']}\n")
    assert main(["fit", *TICKETS, "--config", "c.yaml"]) == 0
    assert "quotes" not in wrong(capsys, "--config", "c.yaml", "--columns.passes", "{a: 1}")


LAUGHS = b"model:\n  chat_template_kwargs:\n    a: &a0 [x]\n" + b"".join(
    b"    a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"seed: [1\nrunner: 2\n", "c.yaml:2: no valid YAML"),
        (b"a: \xff\n", "c.yaml: cannot be read"),
        (b"- seed\n", "c.yaml: holds no keys"),
        (b"", "c.yaml: holds no keys"),
        (
            b"seed: 1\nsplit:\n",
            "split: 'null': expected keys (train, val, test, seed, leave_out) (c.yaml:2)",
        ),
        (b"seed: 1\nseed: 2\n", "c.yaml:2: seed stands here twice"),
        (
            b"seed: 1\nsampler:\n  grid: {}\n",
            "sampler.grid: {}: expected a list in brackets, each item keys (temp",
        ),
        (b"reflection:\n  model: a.name\n", "reflection.model: 'a.name': expected keys (engine"),
        (
            b"split:\n  <<: {traain: 0.5}\n",
            "c.yaml:2: there is no key split.traain; did you mean split.train?",
        ),
        (b"seed: 1\n? [seed]\n: 1\n", "c.yaml:2: a key that is no text"),
        (b"seed: 1\nrunner: !!python/object/apply:os.mkdir [made]\n", "c.yaml:2: the tag"),
        (b"seed: !!int x\n", "c.yaml:1: the tag"),
        (b"seed: 1\n\x07", "c.yaml:2: no valid YAML"),
        (
            b'seed: 1\nprompt: {language: "\\uD800"}\n',
            "prompt.language: '\\ud800': expected en or zh (c.yaml:2)",
        ),
        (b"seed: 1\nprompt: <<\n", "c.yaml:2: the tag"),
        (b"seed: 1\noutput: {root: =}\n", "c.yaml:2: the tag"),
        (b"seed: 1\n<<: 3\n", "c.yaml:2: << merges what has no keys"),
        (b"seed: " + b"9" * 5000, ": expected a whole number (c.yaml:1)"),
        (b"tickets: " + b"[" * 200 + b"]" * 200, "c.yaml:1: nested too deeply"),
        (b"tickets: " + b"[" * 20_000, "c.yaml: nested too deeply"),
        (b"model: {chat_template_kwargs: &a {x: *a}}", "c.yaml:1: nested too deeply"),
        (LAUGHS, "c.yaml:3: nested too deeply, or too much of it"),
        (b"#" * 300_000, "c.yaml: 300000 bytes"),
        (None, "c.yaml: cannot be read"),
    ],
)
def test_an_unusable_file_is_named_with_the_line(
    fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, place: str
) -> None:
    if content is not None:
        (tmp_path / "c.yaml").write_bytes(content)
    assert place in wrong(capsys, "--config", "c.yaml")


def test_merged_keys_are_keys_like_others(fit: Fit, tmp_path: Path) -> None:
    text = (
        "model: &m {engine: scripted, torch_dtype: float32}\nreflection: {model: {<<: *m, "
        "torch_dtype: bfloat16}}\n"
    )
    (tmp_path / "c.yaml").write_text(text)
    assert main(["fit", *TICKETS, "--config", "c.yaml"]) == 0
    assert fit.config.reflection.model is not None
    assert (fit.config.reflection.model.engine, fit.config.reflection.model.torch_dtype) == (
        "scripted",
        "bfloat16",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "trap.Model"],
        ["--reflection.model", "trap.Model"],
        ["--gate", "trap.Model"],
        ["--gate", "{class_path: trap.Model}"],
        ["--sampler.grid", "[trap.Model]"],
        ["--sampler.grid+", "{<<: {class_path: trap.Model}}"],
    ],
)
def test_no_value_names_a_module_to_import(
    fit: Fit,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    key, value = arguments
    wrong(capsys, *TICKETS, *arguments)
    nested = "".join(
        f"{'  ' * depth}{name}:\n" for depth, name in enumerate(key.strip("-+").split("."))
    )
    (tmp_path / "c.yaml").write_text(f"{nested[:-1]} {value}\n")
    wrong(capsys, *TICKETS, "--config", "c.yaml")


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["--gate.alpha", "null"], "gate.alpha"),
        (["--sampler.grid", "[{temperature: .inf}]"], "sampler.grid.temperature"),
        (["--fabric.timeout_s", ".inf"], "fabric.timeout_s"),
        (["--model.chat_template_kwargs", "{a: [.nan]}"], "model.chat_template_kwargs.a"),
        (["--model.chat_template_kwargs", "{a: !!set {x}}"], "model.chat_template_kwargs"),
        (["--output.root", "a\0b"], "output.root"),
        (["--output.run_name", "a\udce9"], "output.run_name"),
        (["--seed", "!!timestamp x"], "seed"),
        (["--guidance.path", "!!timestamp x"], "guidance.path"),
        (["--fabric.devices", "&a [*a]"], "fabric.devices"),
        (["--tickets", "[" * 40_000], "tickets"),  # crashes a C parser
        (["--seed", "9" * 5000], "seed"),
        # out of range
        (["--split.train", "0.9"], "split"),
        (["--sampler.grid", "[{temperature: -1}]"], "sampler.grid.temperature"),
        (["--output.run_name", "a/b"], "output.run_name"),
        (["--gate.alpha", "3"], "gate.alpha"),
        (["--price.false_alarm", "0"], "price.false_alarm"),
        (["--budget.tokens", "0"], "budget.tokens"),
        (["--early_stop.patience", "0"], "early_stop.patience"),
        (["--distill.size=-1"], "distill.size"),
    ],
)
def test_values_that_cannot_be_or_that_no_run_could_write_down_are_one_message(
    fit: Fit, capsys: pytest.CaptureFixture[str], arguments: list[str], key: str
) -> None:
    message = wrong(capsys, *TICKETS, *arguments)
    assert message.startswith(f"stageb: config: {key}: ")
    assert message.count("\n") == 1
    assert len(message) < 600


def test_messages_hold_nothing_that_moves_a_terminal(
    fit: Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    for argument in ("--se\x1b[2Jed=1", "--seed=\u202e\x9b", "--seed=1\n2"):
        message = wrong(capsys, *TICKETS, argument)
        assert message.replace("\n", "").isprintable()


def test_arguments_that_make_no_sense_are_refused(
    fit: Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "extra" in wrong(capsys, *TICKETS, "extra")
    assert "arguments: ''" in wrong(capsys, *TICKETS, "")
    assert "--seed" in wrong(capsys, "--seed")
    assert main(["\x1b[2J"]) == 2
    assert "there is no command \\x1b[2J;" in capsys.readouterr().err
    assert main([]) == 2
    assert "fit" in capsys.readouterr().err
    assert main(["fitt"]) == 2
    assert "fitt" in capsys.readouterr().err


# Exit codes ---------------------------------------------------------------------------------------


def test_the_loops_outcome_is_the_exit_code(fit: Fit, capsys: pytest.CaptureFixture[str]) -> None:
    fit.outcome = EngineError("no such model: x; name a folder")
    assert main(["fit", *TICKETS]) == 1
    assert capsys.readouterr().err == "stageb: no such model: x; name a folder\n"
    fit.outcome = KeyboardInterrupt()
    assert main(["fit", *TICKETS]) == 130
    fit.outcome = 1
    assert main(["fit", *TICKETS]) == 1


def test_only_rank_0_says_what_is_wrong(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert main(["fit", "--seed", "x"]) == 2
    assert capsys.readouterr().err == ""


# The real command, in processes of its own --------------------------------------------------------

HEAVY = ("torch", "lightning", "lightning_fabric", "transformers", "numpy", "tokenizers")

QUESTIONS = [
    "--help",
    "--version",
    "fit --help",
    "fit --print_config",
    "fit --no_such_key 1",
    "predict --help",
    "evaluate --print_config",
]


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a question of any command prints."""
    try:
        code: object = main(words)
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert not err
    assert code == 0
    return out


COMMANDS = [
    *(f"fit --loop {name}" for name in commands.loops()),
    "validate",
    *(name for name, tool in commands.tools().items() if tool.config),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_that_help_prints_can_be_given(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ask = partial(answered, capsys, *command.split())
    values = yaml.safe_load(ask("--print_config"))
    Path("FILE").write_text("seed: 5\n" if "seed" in values else "port: 5\n")

    def default(key: str) -> Any:
        value: Any = values
        for name in key.split("."):
            value = (value if isinstance(value, dict) else values.get("model", {})).get(name, "x")
        return value

    def meant(option: str, metavar: str) -> str:
        """A value for ``option``, as its metavar says what that looks like."""
        key = option.removeprefix("--")
        if metavar in ("FILE", "N"):
            return {"FILE": "FILE", "N": "1"}[metavar]
        if metavar == "CONFIG":  # the help says: path to a configuration file
            Path(key).write_text(yaml.safe_dump(default(key)))
            return key
        if metavar == "NAME=VALUE,...":
            section = default(key) or values["model"]  # as reflection.model is, where it is null
            plain = {
                name: value for name, value in section.items() if not isinstance(value, list | dict)
            }
            return ",".join(f"{name}={json.dumps(value)}" for name, value in plain.items())
        if key.endswith("+"):
            items = default(key[:-1])
            of_numbers = any(name in key for name in ("devices", "scale_jitter"))
            return json.dumps(
                items[0] if isinstance(items, list) and items else 0 if of_numbers else "x"
            )
        return str(default(key)) if key == "loop" else json.dumps(default(key))

    asked, given = ["--help"], []
    for question in asked:
        for line in re.findall(r"^  (-.*?)(?:  |$)", ask(question), re.MULTILINE):
            for option, metavar in re.findall(r"(--[\w.]+\+?)(?: ([^\s]+?))?(?=, |$)", line):
                if option.endswith("help"):
                    asked += [option] if option not in asked else []
                elif metavar:
                    given.append(f"{option}={meant(option, metavar)}")
                else:
                    given.append(option)
    assert len(given) > 20
    ask(*given)


def test_a_config_that_is_no_file_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every rank reads it anew, and some never end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in ("/dev/zero", "/dev/null", tmp_path / "link", tmp_path / "pipe"):
        assert main(["fit", f"--config={path}"]) == 2
        assert (
            f"{path}: cannot be read (not a file); name a YAML file after --config"
            in capsys.readouterr().err
        )


REFUSED = {
    "fit --tickets [none.jsonl]": "none.jsonl: cannot be read",
    "fit --tickets [bad.csv]": "bad.csv",
    "fit --tickets [tickets.jsonl] --output.root tickets.jsonl": "tickets.jsonl is no folder; "
    "give another folder",
    "fit --tickets [tickets.jsonl] --output.root . --output.run_name other": "holds files but no run",
    "fit --tickets [tickets.jsonl] --output.root . --output.run_name old": "holds a run with another config",
    "fit --tickets [tickets.jsonl] --output.root /proc/none": "config: output.root: '/proc/none': /proc/none/run: cannot",
    "fit --loop ppo --output.root /proc/none": "config: output.root: '/proc/none': "
    "/proc/none/run: cannot be made",
    "validate --loop ppo --output.root /proc/none": "config: output.root: '/proc/none': "
    "/proc/none/run: cannot be made",
    "validate --tickets [none.jsonl]": "none.jsonl: cannot be read",
    "validate --tickets [bad.csv] --model.model_name_or_path ./none": "there is no such folder",
    "summarize --tickets none.jsonl --output new.jsonl": "none.jsonl: cannot be read",
    "summarize --tickets tickets.jsonl --output new.jsonl": "tickets.jsonl:1: no images",
    "predict --guidance none --tickets tickets.jsonl": "there is no such file or folder",
    "predict --guidance guidance.json --tickets none.jsonl": "none.jsonl: cannot be read",
    "predict --guidance guidance.json --tickets bad.csv": "bad.csv",
    "predict --guidance guidance.json --tickets tickets.jsonl --output other/file": "other/file: holds something",
    "predict --guidance guidance.json --tickets tickets.jsonl --output tickets.jsonl": "it holds the tickets",
    "evaluate --guidance guidance.json --tickets unlabelled.jsonl": "unlabelled.jsonl:2",
    "guidance show none": "none: No such file or directory",
    "report none": "none: no run lies there",
}

FILES = {"tickets.jsonl", "unlabelled.jsonl", "bad.csv", "guidance.json", "other", "old"}
ASKING = f"""
import contextlib, io, json, os, sys
from stageb.__main__ import main
for line in sys.argv[1:]:
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            code = main(line.split())
        except SystemExit as end:
            code = end.code
    loaded = [name for name in {HEAVY!r} if name in sys.modules]
    print(json.dumps([code, err.getvalue(), loaded, os.listdir()]))
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What one process that is asked all questions says of each, what it has loaded by then, and
    what lies in its folder."""
    place = tmp_path_factory.mktemp("asked")
    labels = enumerate(("pass", "fail") * 5)
    rows = [
        {"mission": "m", "group_id": str(i), "label": label, "per_image": {"image_1": f"seal: {i}"}}
        for i, label in labels
    ]
    (place / "tickets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    del rows[1]["label"]
    (place / "unlabelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "bad.csv").write_text("a,b\n1,2\n")
    (place / "guidance.json").write_text(
        json.dumps({"m": {"step": 1, "experiences": {"G0": "Look."}, "metadata": {}}})
    )
    (place / "other").mkdir()
    (place / "other" / "file").write_text("x")
    (place / "old").mkdir()
    commit = {"number": 1, "state": {}, "config": {"seed": 5}, "lengths": {}, "versions": {}}
    (place / "old" / "commit.json").write_text(json.dumps(commit))
    lines = [*QUESTIONS, *REFUSED]
    done = subprocess.run(
        [sys.executable, "-c", ASKING, *lines],
        capture_output=True,
        text=True,
        check=True,
        cwd=place,
    )
    return dict(zip(lines, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_are_answered_without_loading_torch(
    asked: dict[str, list[Any]], question: str
) -> None:
    code, err, loaded, files = asked[question]
    assert (code, loaded, set(files)) == (2 if "no_such_key" in question else 0, [], FILES), err


@pytest.mark.parametrize("command", REFUSED)
def test_what_cannot_be_used_is_refused_without_loading_torch(
    asked: dict[str, list[Any]], command: str
) -> None:
    code, err, loaded, files = asked[command]
    assert (code, loaded, set(files)) == (2, [], FILES), err
    assert REFUSED[command] in err


def test_python_m_stageb_and_bin_fit_are_the_same_command(tmp_path: Path) -> None:
    def run(*command: str) -> Any:
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        return done.returncode, done.stdout, done.stderr

    by_file = str(Path(__file__).parent.parent.parent / "bin" / "fit.py")
    assert run("-m", "stageb", "--version") == (0, f"stageb {__version__}\n", "")
    assert run("-m", "stageb", "fit", "--print_config") == run(by_file, "--print_config")
    assert run("-m", "stageb", "fit", "--seed", "x") == run(by_file, "--seed", "x")
    assert run(by_file, "--seed", "x")[0] == 2
    assert run(by_file, "--help")[0] == 0


def test_numbers_may_stand_in_a_list_of_texts(fit: Fit) -> None:
    Path("c.yaml").write_text("columns: {passes: [0], fails: [1, 2.5]}\n")
    assert main(["fit", *TICKETS, "--config", "c.yaml"]) == 0
    assert (fit.config.columns.passes, fit.config.columns.fails) == (["0"], ["1", "2.5"])
    keys = {"tickets": ["a"], "columns": {"passes": [0]}}
    assert parsing.from_keywords("fit", keys).columns.passes == ["0"]


def test_keywords_stack_configs_as_the_command_line_does(fit: Fit) -> None:
    Path("one.yaml").write_text("seed: 3\ngate: {alpha: 0.1}\n")
    Path("two.yaml").write_text("gate: {alpha: 0.2}\n")
    for names in (
        ["tickets", "frugal", "one.yaml", "two.yaml"],
        ["two.yaml", "one.yaml"],
        ["two.yaml"],
    ):
        assert main(["fit", *(f"--config={name}" for name in names), *TICKETS]) == 0
        for config in (names, list(map(Path, names))) if len(names) > 1 else (names, names[0]):
            assert (
                parsing.from_keywords("fit", {"tickets": ["my.jsonl"], "config": config})
                == fit.config
            )
    assert fit.config == replace(fit.config, seed=17, gate=GateConfig(alpha=0.2))


def test_keywords_take_the_numbers_of_numpy() -> None:
    """As those that a loop over ``numpy.arange`` gives."""
    keys = {"tickets": ["a"], "seed": numpy.int64(3), "gate": {"alpha": numpy.float32(0.5)}}
    config = parsing.from_keywords("fit", keys)
    assert (config.seed, config.gate.alpha) == (3, 0.5)


def test_a_key_within_a_list_is_told_how_the_list_is_given(
    fit: Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *TICKETS, "--sampler.grid.temperature", "0.5"]) == 2
    assert (
        'sampler.grid is a list: --sampler.grid "[{temperature: VALUE}]"' in capsys.readouterr().err
    )
