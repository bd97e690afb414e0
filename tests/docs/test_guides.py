"""The guides, as a reader follows them: what a page tells to type runs, in order, and does what it
should.

A block ``sh`` is run; ``console`` is for what cannot run here (GPUs, networks), and must at least
be a command line that exists; ``text`` is what comes out.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from docs.pages import DOCS, GUIDES, PAGES, ROOT, Block, blocks, find_commands
from guidance.made_sheets import write_xlsx
from programs.processes import clean_environment
from programs.shell import Shell

import stageb
from stageb.__main__ import COMMANDS
from stageb.cli import commands
from stageb.cli.draft import LOOP, ConfigFile, Draft
from stageb.cli.parsing import FLAGS, find_loop, read_file, split
from stageb.errors import StagebError
from stageb.guidance.rules.read_guidance import read_guidance

INFOS = {"sh", "console", "text", "python", "json", "yaml", "toml", "csv", "html"}
NOT_HERE = {"__pycache__", "out", "build", "dist"}  # of a checkout: what is made in it
LAUNCHERS = ("fabric", "torchrun", "srun", "python")
OTHERS = set(
    "cd curl docker export git mlflow pip sbatch source tensorboard transformers unzip vllm wandb".split()
)
# whose commands take more than five seconds
LONG = {"extending", "governance", "images", "many-rows", "own-environment", "report", "sweep"}
SECONDS = 200  # for one block, on a busy machine


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder like a checkout's root, with nothing made in it yet."""
    for path in ROOT.iterdir():
        if (
            not path.name.startswith(".")
            and path.name not in NOT_HERE
            and not path.name.endswith(".egg-info")
        ):
            (tmp_path / path.name).symlink_to(path)
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem in LONG else [])
        for page in GUIDES
    ],
)
def test_what_a_guide_tells_to_type_runs(page: Path, checkout: Path, shell: Shell) -> None:
    if page.stem == "sweep":
        pytest.importorskip("optuna")
    own = [checkout / name for name in sorted(files_of_a_reader())]
    for path in own:
        path.write_text("the reader's own")
    ended_in = shell.folder / "ended-in"
    ended_in.write_text(str(checkout))
    offline = {
        "HF_HUB_OFFLINE": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    environment = (
        clean_environment()
        | offline
        | {
            "PATH": os.pathsep.join(
                [str(shell.folder), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "no_proxy": "127.0.0.1,localhost",
            "ENDED_IN": str(ended_in),
        }
    )
    printed = ""
    for block in blocks(page):
        if block.info == "sh":
            done = subprocess.run(
                ["bash", "-eu", "-c", f'{block.text}\npwd > "$ENDED_IN"'],
                cwd=ended_in.read_text().strip(),  # as in one terminal
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            assert done.returncode == 0, (
                f"{block} ended with {done.returncode}:\n{block.text}\n{done.stdout[-4000:]}"
            )
            printed += done.stdout
            assert [path.name for path in own if path.read_text() != "the reader's own"] == [], (
                f"{block} writes over these"
            )
    for rule in re.findall(r"It learns `(.+?)`", page.read_text(encoding="utf-8")):
        assert f". {rule}" in printed


def test_the_readmes_table_is_read_as_its_commands_say(checkout: Path, quick_starts: None) -> None:
    found = list(blocks(ROOT / "README.md"))
    lines = [
        line
        for each in found
        for line in each.text.splitlines()
        if line.startswith(("stageb new", "stageb validate"))
    ]
    rows = [
        f"r-{n},{'worn' if n % 3 else 'new'},printed,{'NG' if n % 3 else 'OK'}" for n in range(90)
    ]
    (checkout / "my.csv").write_text("\n".join(["Rack,Seal,Label,Checked", *rows, ""]))
    for line in lines:
        command = [sys.executable, "-m", *shlex.split(line)]
        done = subprocess.run(
            command, cwd=checkout, env=clean_environment() | {"PYTHONPATH": str(ROOT)}, check=False
        )
        assert done.returncode == 0, line
    assert len(lines) == 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_say_what_they_hold_and_commands_that_cannot_run_here_exist(page: Path) -> None:
    for block in blocks(page):
        known = block.info in INFOS or block.info.startswith("{")  # a directive of the site's
        assert known, f"{block}: write one of {', '.join(sorted(INFOS))} behind the fence"
        if block.info == "python":
            assert_names_exist(ast.parse(block.text))
        if block.info == "console":
            assert_all_exist(block)


@pytest.mark.parametrize(
    "line",
    ["stageb foot", "stageb fit --no.such 1", "bin/none", "torchrun bin/fit.py --seeds 1", "fitt"],
)
def test_one_that_does_not_exist_is_found(line: str) -> None:
    with pytest.raises((AssertionError, StagebError)):
        for words in find_commands(line):
            assert_exists(words)


@pytest.mark.slow
def test_the_cells_of_the_page_on_python_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_starts: None
) -> None:
    pytest.importorskip("sklearn", reason="the extra baselines is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks(ROOT / "docs" / "guides" / "python.md"):
        exec(compile(block.text, str(block), "exec"), names)
    assert names["learnt"].score(names["rows"], names["checked"]) > 0.97
    assert [row["verdict"] for row in names["told"]] == ["pass"] * 3
    assert names["found"].figures["figures"]["guidance"]["all"]["acc"] > 0.97


@pytest.mark.slow
def test_the_page_of_the_python_api_has_every_public_name_with_code_that_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick_starts: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("sklearn", reason="the extra baselines is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(DOCS / "examples"))
    monkeypatch.setenv("PYTHONPATH", str(DOCS / "examples"))
    names: dict[str, Any] = {}
    found = blocks(DOCS / "api.md")
    for block in found:
        if block.info == "python":
            exec(compile(block.text, str(block), "exec"), names)
    assert [rule.text for rule in names["run"].guidance["racks"].rules][1:] == [
        "Fail if seal is torn."
    ]
    assert (names["measured"].figures["figures"]["guidance"]["all"]["acc"], names["summary"]) == (
        1.0,
        {"image_1": "seal: whole"},
    )
    code = " ".join(block.text for block in found if block.info == "python")
    shown = " ".join(block.text for block in found if block.info == "{eval-rst}")
    for public in stageb.__all__:
        assert re.search(rf":: stageb\.{public}\b", shown), f"{public} is not on the page"
        assert re.search(rf"\b{public}\b", code), f"no example has {public}"


@pytest.mark.slow
def test_the_notebook_goes_from_a_table_to_rules_that_others_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    names = run_notebook("racks")
    said = capfd.readouterr().out
    assert (
        "round: test" in said
        and "edit: A ticket passes unless a rule fails it. Fail if seal is worn" in said
    )
    assert set(read_guidance("shared.json")["racks"].rules[-1].metadata) >= {"fixed"}
    assert list(names["told"]["verdict"]) == ["fail", "pass"]
    assert "<iframe" in names["run"].report()._repr_html_()


@pytest.mark.slow
def test_a_notebook_corrects_and_approves_labels_from_a_spreadsheet(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    quick_starts: None,
) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)

    def write(table: Any, path: str, index: bool) -> None:  # which asks for one more package
        write_xlsx(Path(path), [list(table), *table.values.tolist()])

    monkeypatch.setattr(pandas.DataFrame, "to_excel", write)
    names = run_notebook("requests")
    assert set(names["doubts"]["group_id"]) == {"r-11", "r-57", "r-141"}, (
        "the labels that are wrong"
    )
    assert "corrected.tsv: requests.xlsx with 3 labels corrected" in capfd.readouterr().out
    assert len(read_guidance("approved.json")["requests"].rules) == 3
    assert set(pandas.read_csv("queues.csv")["verdict"]) == {"routine", "soon", "urgent"}


def test_a_notebook_has_rules_in_a_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("sklearn", reason="the extra baselines is not installed")
    monkeypatch.chdir(tmp_path)
    names = run_notebook("pumps")
    assert min(names["scores"]) > 0.97
    assert names["told"][["class", "rule"]].values.tolist() == [["failed", "G1"], ["ran", "G0"]]


def run_notebook(name: str) -> dict[str, Any]:
    """What the cells of a notebook leave, run in order."""
    names: dict[str, Any] = {"shell": shell_of_a_notebook}
    for cell in json.loads((DOCS / "examples" / f"{name}.ipynb").read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(
                re.sub("^!(.*)", r'shell("""\1""")', "".join(cell["source"]), flags=re.MULTILINE),
                names,
            )
    return names


def shell_of_a_notebook(line: str) -> None:
    """What a line that begins with ! runs."""
    subprocess.run([sys.executable, "-m", *shlex.split(line)], check=True, timeout=SECONDS)


def files_of_a_reader() -> set[str]:
    """What the README tells a reader to bring and to make, which a guide must leave alone."""
    told = (block.text for block in blocks(ROOT / "README.md") if block.info == "console")
    found = {name for text in told for name in re.findall(r"[\w-]+\.(?:csv|jsonl?|yaml)\b", text)}
    assert {"my.csv", "my.yaml", "new.csv", "shared.json"} <= found
    return found


def assert_all_exist(block: Block) -> None:
    """Raise unless all commands of ``block`` exist."""
    for words in find_commands(block.text):
        try:
            assert_exists(words)
        except (AssertionError, StagebError) as error:
            raise AssertionError(f"{block}: {shlex.join(words)}: {error}") from error


def assert_names_exist(program: ast.Module) -> None:
    """Raise unless ``program`` imports what the package has."""
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "stageb":
            module = importlib.import_module(str(node.module))
            known = getattr(module, "__all__", dir(module))
            assert [alias.name for alias in node.names if alias.name not in known] == [], (
                ast.unparse(node)
            )


def assert_exists(words: Sequence[str]) -> None:
    """Raise unless these words are a command that this package has, or one that others bring."""
    name = words[0]
    if name == "stageb":
        assert_parses(words[1:])
    elif name in LAUNCHERS and "bin/fit.py" in words:
        assert_parses(["fit", *words[words.index("bin/fit.py") + 1 :]])
    elif name == "bin/stageb.sh":
        assert_parses(["fit", *(f"--{word}" for word in words[1:] if not word.startswith("gpus="))])
    elif "/" in name:
        assert (ROOT / name).exists() or name.startswith(".venv/"), name
    else:
        assert name in OTHERS or name in LAUNCHERS or shutil.which(name), name


def assert_parses(words: Sequence[str]) -> None:
    """Raise unless ``stageb`` has this command, and its keys. What commands of runs take is their
    loop's to say."""
    name, *rest = (word for word in words if word != "...")  # what a reader is to fill in
    tools = commands.tools()
    assert name in {*COMMANDS, *tools, *commands.run_commands()} or name.startswith("--"), (
        f"stageb {name}"
    )
    of_keys = not rest or rest[0].startswith("--")
    if name != "fit" and not (name in tools and tools[name].config and of_keys):
        return
    options = [
        (option, read_file(str(ROOT / str(text))) if option == "config" else text)
        for option, text in split(rest)
        if option != "config" or is_here(text)
    ]
    entry = tools[name] if name in tools else commands.loops()[find_loop(options)]
    draft = Draft(commands.load_config_class(entry))
    for option, value in options:
        if isinstance(value, ConfigFile):
            draft.add_file(value)
        elif option not in (LOOP, *FLAGS) and not option.endswith(".help"):
            draft.add_option(option, value)
    draft.check()


def is_here(path: str | None) -> bool:
    """Whether ``path`` lies in the checkout; a file that a reader is to have made does not."""
    return path is not None and (ROOT / path).exists()
