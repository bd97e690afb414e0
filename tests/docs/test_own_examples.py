"""The examples that the guides on extending show do what it says, in the places that they are
for."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from docs.pages import DOCS
from engines import contract
from programs import small

from stageb import seeds
from stageb.__main__ import main
from stageb.engines import Decode, Prompt, Request, build
from stageb.engines.config import ModelConfig
from stageb.engines.scripted import ScriptedEngine
from stageb.errors import ConfigError, EngineError
from stageb.store.journal import safe_name

EXAMPLES = DOCS / "examples"
OWN = {"gate.choose": "own_gate:best_by_far", "selection": "own_selection:any_fault"}


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_an_example_is_read_in_one_go() -> None:
    lengths = {
        path.name: len(path.read_text(encoding="utf-8").splitlines())
        for path in EXAMPLES.glob("*.py")
    }
    assert len(lengths) == 9
    assert max(lengths.values()) <= 80, lengths


# The engine


class Answers(BaseHTTPRequestHandler):
    """A service that answers with words drawn by the seed."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        decode = Decode(1.0, max_new_tokens=asked["max_tokens"], stop=tuple(asked["stop"]))
        request = Request(Prompt(asked["system"], asked["user"]), decode, (asked["seed"],))
        ((answer,),) = ScriptedEngine(babble).generate([request])
        body = json.dumps(
            {"text": answer.text, "tokens": answer.tokens, "cut": answer.finish == "length"}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not on the terminal."""


def babble(prompt: Prompt, decode: Decode, key: int) -> str:
    draw = seeds.stream(prompt.system, prompt.user, key)
    return " ".join(
        ("red", "阀门", "closed\n")[seeds.bits(draw, place) % 3] for place in range(3 + key % 5)
    )


@pytest.fixture
def service() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    yield f"http://127.0.0.1:{server.server_port}/ask"
    server.shutdown()
    server.server_close()


def test_an_engine_of_ones_own_keeps_the_contract(service: str) -> None:
    engine = build(ModelConfig(engine="own_engine:build", base_url=service), "cpu")
    for check in (
        "protocol",
        "lengths_and_order",
        "greedy_ignores_keys",
        "limits",
        "stops",
        "count_tokens",
    ):
        getattr(contract, f"check_{check}")(engine)


def test_it_says_what_is_amiss() -> None:
    with pytest.raises(ConfigError, match=r"model\.base_url: None: say where"):
        build(ModelConfig(engine="own_engine:build"), "cpu")
    nobody = build(ModelConfig(engine="own_engine:build", base_url="http://127.0.0.1:9/ask"), "cpu")
    with pytest.raises(EngineError, match="no answer"):
        nobody.generate([Request(Prompt("", "?"), Decode(), (1,))])


# The gate and the selection rule, in a run


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / safe_name("valves") / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_gate_and_a_selection_rule_of_ones_own_decide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # the scripted model slips now and then
    tickets = small.write(tmp_path / "tickets.jsonl", "valves")
    keys = {"sampler.samples_per_decode": 3, "runner.epochs": 1, **OWN}
    assert main(small.arguments(tickets, tmp_path / "out", keys=keys)) == 0
    assert (
        "own_gate:best_by_far decides what is accepted, without a guarantee"
        in capsys.readouterr().err
    )
    run = tmp_path / "out" / "run"

    bundles = [row for row in rows(run, "reflection") if row["gate"]]
    outcomes = [edit["outcome"] for row in bundles for edit in row["gate"]["edits"]]
    assert outcomes.count("accepted") == sum(row["applied"] for row in bundles) >= 1
    assert {edit["test"] for row in bundles for edit in row["gate"]["edits"]} == {None}
    assert (
        len({row["gate"][when] for row in bundles for when in ("budget_before", "budget_after")})
        == 1
    )

    votes = defaultdict(list)
    for row in rows(run, "trajectories"):
        votes[row["epoch"], row["ticket_key"]].append(row["verdict"])
    selections = rows(run, "selections")
    for row in selections:
        assert row["verdict"] == (
            "fail" if "fail" in votes[row["epoch"], row["ticket_key"]] else "pass"
        )
    # no majority
    assert any(row["verdict"] == "fail" and row["vote_strength"] <= 0.5 for row in selections)


def nonsense(*_: object) -> str:
    return "nonsense"


def nonsense_of_edits(*_: object) -> Generator[Any, Any, str]:
    yield from ()
    return "nonsense"


def nothing(*_: object) -> None:
    return None


@pytest.mark.parametrize(
    ("key", "name", "code", "message"),
    [
        ("selection", "minority", 2, "name a function, written package.module:function"),
        ("selection", "own_selection:none", 2, "PYTHONPATH=. has it look into this folder"),
        ("gate.choose", "no_such_module:best", 2, "PYTHONPATH=. has it look into this folder"),
        ("model.engine", "llama", 2, "or name one of your own"),
        (
            "selection",
            "test_own_examples:nonsense",
            1,
            "returned 'nonsense'; return one of the candidates",
        ),
        (
            "gate.choose",
            "test_own_examples:nonsense_of_edits",
            1,
            "returned 'nonsense'; return one of the edits",
        ),
        ("gate.choose", "test_own_examples:nonsense", 2, "make it a generator function"),
        ("selection", "test_own_examples:nothing", 0, ""),
    ],
)
def test_what_a_function_must_not_do_is_said(
    key: str,
    name: str,
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Any,
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=90)
    ended = main(small.arguments(tickets, tmp_path / "out", keys={"runner.epochs": 1, key: name}))
    said = capfd.readouterr().err
    assert (ended, "Traceback" in said) == (code, False), said
    assert message in said
    assert (tmp_path / "out").exists() == (code != 2)
    if code == 0:
        queue = rows(tmp_path / "out" / "run", "manual_review_queue")
        assert all(row["why"].startswith("no verdict chosen from ") for row in queue)
