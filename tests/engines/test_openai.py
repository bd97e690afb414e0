"""The openai engine against a real HTTP server in a thread, which a test tells how to behave."""

from __future__ import annotations

import base64
import io
import json
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from engines import tiny_models
from engines.contract import check_contract, check_scorer, requests
from engines.test_scripted import babble
from PIL import Image
from programs import small

from stageb import engines
from stageb.__main__ import main
from stageb.engines import Completion, Decode, Prompt, Question, Request
from stageb.engines.config import ModelConfig
from stageb.engines.remote import client, transport
from stageb.engines.remote.client import ATTEMPTS
from stageb.engines.remote.openai import OpenAIEngine, OpenAIScorer
from stageb.engines.scripted import ScriptedEngine
from stageb.errors import ConfigError, EngineError
from stageb.job import heartbeat
from stageb.seeds import stream, uniform
from stageb.untrusted import pictures
from stageb.untrusted.pictures import PictureError

Behave = Callable[["Handler", dict[str, Any]], None]

KEY = "sk-very-secret"
ASKED = Request(Prompt("rules", "a red valve"), Decode(temperature=1.0, max_new_tokens=20), (7,))


class Handler(BaseHTTPRequestHandler):
    """Hands a request to whatever the test asked for next, and answers as a model would when
    nothing was."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((time.monotonic(), self.path, dict(self.headers), body))
        behave = self.server.next.popleft() if self.server.next else self.server.usually
        behave(self, body)

    def do_GET(self) -> None:
        """Where a redirect would end."""
        self.server.seen.append((time.monotonic(), self.path, dict(self.headers), {}))
        self.reply(b"{}")

    def reply(self, data: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Not on the terminal."""


class Server(ThreadingHTTPServer):
    """What came in, and how to answer it."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[float, str, dict[str, str], dict[str, Any]]] = []
        self.next: deque[Behave] = deque()
        self.usually: Behave = well
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what some tests are about."""


def well(handler: Handler, body: dict[str, Any]) -> None:
    """As a model would: the scripted engine's answer."""
    system, user = ([{"content": ""}, *body["messages"]])[-2:]
    decode = Decode(
        body["temperature"],
        body["top_p"],
        max_new_tokens=body["max_tokens"],
        stop=tuple(body.get("stop", ())),
    )
    request = Request(Prompt(system["content"], user["content"]), decode, (body["seed"],))
    ((answer,),) = ScriptedEngine(babble).generate([request])
    handler.reply(json.dumps(chat(answer.text, answer.finish, answer.tokens)).encode())


def chat(text: str | None, finish: str, tokens: int | None = None) -> dict[str, Any]:
    """A chat completion."""
    usage = {} if tokens is None else {"usage": {"completion_tokens": tokens}}
    return {
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}],
        **usage,
    }


def says(answer: Any, status: int = 200, **headers: str) -> Behave:
    data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return lambda handler, body: handler.reply(
        data, status, {name.replace("_", "-"): text for name, text in headers.items()}
    )


def closes(handler: Handler, body: dict[str, Any]) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def breaks_off(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def hangs(handler: Handler, body: dict[str, Any]) -> None:
    time.sleep(3)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setenv("no_proxy", "*")


def connect(server: Server, **options: Any) -> OpenAIEngine:
    config = ModelConfig(
        engine="openai", model_name_or_path="served", base_url=server.url, **options
    )
    built = engines.build(config, "cpu")
    assert isinstance(built, OpenAIEngine)
    return built


def ask(server: Server, request: Request = ASKED, **options: Any) -> Completion:
    ((completion,),) = connect(server, **options).generate([request])
    return completion


def bodies(server: Server) -> list[dict[str, Any]]:
    return [body for _, _, _, body in server.seen]


def test_contract(server: Server) -> None:
    check_contract(connect(server))


# What a server can do

VERDICTS = Question(Prompt("rules", "image_1: all is in order"), ("Verdict: pass", "Verdict: fail"))
CAN = ("Verdict", " pass", "pass", " fail", " p", " ", "y", "yes", "n", "a", "b", "通", "不")


def model(
    continues: bool = True,
    most: int = 20,
    refuses: str = "",
    status: int = 400,
    tokens: Sequence[str] = CAN,
) -> Behave:
    """A server as vLLM's: one that goes on from a begun answer or begins anew, whatever fields it
    is sent, that gives the probabilities of so many of ``tokens`` at most, and refuses requests
    with one field. What is torn fails; its probabilities know that too, but lean to pass."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        if refuses in body or body.get("top_logprobs", 0) > max(most, 1):
            handler.reply(
                f"{refuses or 'logprobs'} not supported".encode(),
                status if refuses in body else 400,
            )
            return
        user, last = ([{"content": ""}, *body["messages"]])[-2:]
        if last["role"] != "assistant" and "logprobs" not in body:
            well(handler, body)
            return
        word = "fail" if "torn" in user["content"] or "torn" in last["content"] else "pass"
        whole = f"Verdict: {word}\nReason: so it is"
        answer = chat(
            whole.removeprefix(last["content"]) if continues else whole,
            "length",
            body["max_tokens"],
        )
        if most and "logprobs" in body:
            leaning = {" pass": 9, " fail": 8 if word == "fail" else 5}
            odds = [
                leaning.get(token, 0) + uniform(stream("token", user["content"], token), 0)
                for token in tokens
            ]
            given = {
                token: odd - math.log(sum(map(math.exp, odds)))
                for token, odd in zip(tokens, odds, strict=True)
            }
            shown = sorted(given.items(), key=lambda each: -each[1])[: body["top_logprobs"]]
            answer["choices"][0]["logprobs"] = top(*shown)
        handler.reply(json.dumps(answer).encode())

    return behave


def goes_on_with(logprobs: Any) -> dict[str, Any]:
    """An answer that goes on with a verdict, and has these ``logprobs``."""
    answer = chat(" pass", "length", 1)
    answer["choices"][0]["logprobs"] = logprobs
    return answer


def top(*tokens: tuple[Any, Any]) -> dict[str, Any]:
    """The most probable tokens, as an answer has them."""
    return {
        "content": [
            {"top_logprobs": [{"token": token, "logprob": logprob} for token, logprob in tokens]}
        ]
    }


ODD: tuple[Any, ...] = (
    None, [], "no", {"content": None}, {"content": []}, {"content": "no"}, {"content": [{"token": " pass", "logprob": 0}]},
    {"tokens": [" pass"], "top_logprobs": [{" pass": -0.1}]}, top(), top((" pass", None)), top((" pass", "much")),
    top((" pass", float("nan"))), top((" pass", 10**400)),
)  # fmt: skip


@pytest.mark.slow
def test_a_server_that_weighs_keeps_the_contract_of_a_scorer(server: Server) -> None:
    server.usually = model()
    probed = connect(server).probe(VERDICTS)
    assert isinstance(probed, engines.Scorer)
    assert len(server.seen) == 1
    check_contract(probed)
    check_scorer(probed)


@pytest.mark.parametrize(
    ("behave", "continues", "scores"),
    [
        (model(), True, True),
        (model(most=5), True, True),
        (model(most=0), True, False),
        (model(continues=False), False, False),
        (model(refuses="continue_final_message"), True, True),  # llama.cpp's goes on without
        (model(continues=False, refuses="continue_final_message"), False, False),
        (model(refuses="logprobs"), True, False),
        (model(refuses="logprobs", status=500), True, False),
        (model(refuses="messages"), False, False),
        (says({"error": "the chat template raised an exception"}, 500), False, False),
        (model(tokens=(" ", "通")), True, False),  # the blank belongs to both
        (says(chat("The ticket is in order.", "stop")), False, False),
        (says(chat("", "content_filter")), False, False),
        *((says(goes_on_with(odd)), True, False) for odd in ODD),
    ],
)
def test_one_question_tells_what_a_server_can_do(
    server: Server, behave: Behave, continues: bool, scores: bool
) -> None:
    server.usually = behave
    unasked = connect(server)
    assert not isinstance(unasked, engines.Scorer)
    probed = unasked.probe(VERDICTS)
    assert (probed.continues, isinstance(probed, engines.Scorer)) == (continues, scores)
    assert 1 <= len(server.seen) <= ATTEMPTS  # what is refused is left out


def test_a_refused_question_leaves_later_requests_as_they_are(server: Server) -> None:
    server.usually = well
    ask(server)
    # of the begun answer
    server.usually = says({"message": "Conversation roles must alternate user/assistant/..."}, 400)
    probed = connect(server).probe(VERDICTS)
    server.usually = well
    probed.generate([ASKED])
    assert bodies(server)[-1] == bodies(server)[0]


def test_a_server_that_cannot_be_asked_is_told_at_the_start(server: Server) -> None:
    server.usually = says({"error": "no"}, 401)
    with pytest.raises(EngineError, match="api_key_env"):
        connect(server).probe(VERDICTS)


def test_verdicts_weigh_what_the_tokens_do_that_begin_them_alone(server: Server) -> None:
    def give(*tokens: tuple[str, float]) -> None:
        logs = [(token, math.log(share) if share else -9999.0) for token, share in tokens]
        server.usually = says(goes_on_with(top(*logs)))

    server.usually = model()
    probed = connect(server).probe(VERDICTS)
    assert isinstance(probed, OpenAIScorer)
    for tokens, passes, fails in (
        (((" pass", 0.6), (" fail", 0.3), ("\n", 0.1)), 0.6, 0.3),
        (((" pass", 0.5), ("pass", 0.1), (" p", 0.05), (" ", 0.05), (" fail", 0.3)), 0.65, 0.3),
        (((" pass", 0.9), (" passes", 0.06)), 0.9, 0.04),  # no more than what is left
        (((" pass", 0.6), (" the", 0.01)), 0.6, 0.01),  # nor than the least of those given
        (((" pass", 1.0), (" fail", 0.0)), 1.0, math.exp(-50)),
    ):
        give(*tokens)
        ((one, other),) = probed.score([VERDICTS])
        assert (one, other) == pytest.approx((math.log(passes), math.log(fails)), abs=1e-6)
    body = bodies(server)[-1]
    assert (body["max_tokens"], body["temperature"], body["logprobs"], body["top_logprobs"]) == (
        1,
        0.0,
        True,
        20,
    )
    assert body["messages"][-1] == {"role": "assistant", "content": "Verdict:"}
    server.usually = says(chat("", "content_filter"))
    ((one, other),) = probed.score([VERDICTS])
    assert one == other
    server.usually = says(chat(" pass", "length", 1))
    with pytest.raises(EngineError, match="lacks top_logprobs, which it gave at first"):
        probed.score([VERDICTS])


@pytest.mark.slow
@pytest.mark.parametrize("can", ["weigh", "go on", "neither"])
def test_a_run_through_a_server_does_what_the_server_can(
    server: Server, tmp_path: Path, can: str
) -> None:
    """With no key set: answers are begun, verdicts drawn and calibrated, and ``predict`` tells how
    sure they are. Where it can do neither, and no answer can be read, what code has learnt
    judges."""
    server.usually = {
        "weigh": model(),
        "go on": model(most=0),
        "neither": model(continues=False, most=0),
    }[can]
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=60)
    reached = {
        "model.engine": "openai",
        "model.model_name_or_path": "served",
        "model.base_url": server.url,
    }
    keys = {
        "split.train": 0.85,
        "split.val": 0.0,
        "runner.epochs": 1,
        "runner.max_unreadable": 1.0,
        "early_stop.reflections": 1,
    }
    assert main(small.arguments(tickets, tmp_path / "out", keys=reached | keys)) == 0
    judged = [
        body["messages"]
        for body in bodies(server)
        if "inspection" not in body["messages"][0]["content"]
    ]
    assert any(messages[-1]["role"] == "assistant" for messages in judged) == (can != "neither")
    run, out = tmp_path / "out" / "run", tmp_path / "out.jsonl"
    (guidance,) = json.loads((run / "valves" / "guidance.json").read_text()).values()
    assert ("calibration" in guidance) == (can == "weigh")
    given = {
        "guidance": run,
        "tickets": tickets,
        "output": out,
        "max_unreadable": 1.0,
        "fabric.accelerator": "cpu",
    }
    assert main(["predict", *(f"--{key}={value}" for key, value in (given | reached).items())]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 60
    assert all((row["probability"] is not None) == (can == "weigh") for row in rows)
    assert sum(row["verdict"] == row["label"] for row in rows) > 55


# Requests


def test_what_is_sent(server: Server) -> None:
    decode = Decode(0.5, top_p=0.9, top_k=5, max_new_tokens=9, stop=("\n",))
    connect(server, chat_template_kwargs={"enable_thinking": False}).generate(
        [Request(Prompt("s", "u"), decode, (3,))]
    )
    (_, path, headers, body) = server.seen[0]
    assert path == "/v1/chat/completions"
    assert "Authorization" not in headers
    seed = body.pop("seed")
    assert 0 <= seed < 1 << 31
    assert body == {
        "model": "served",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 9,
        "top_k": 5,
        "stop": ["\n"],
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_what_is_not_set_is_not_sent(server: Server) -> None:
    connect(server, chat_template_kwargs={}).generate([Request(Prompt("", "u"), Decode(), (3,))])
    (body,) = bodies(server)
    assert set(body) == {"model", "messages", "temperature", "top_p", "max_tokens", "seed"}
    assert body["messages"] == [{"role": "user", "content": "u"}]


def test_images_are_sent_as_they_are_shown_before_the_words(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "held.jpg"
    exif = Image.Exif()
    exif[pictures.ORIENTATION], exif[0x010F] = 6, "a maker"
    Image.new("RGB", (400, 200), "red").save(path, exif=exif)
    shown = Request(Prompt("s", "u", (str(path), str(path))), Decode(), (3,))
    asked = connect(server, image_pixels=20_000)
    asked.open_eyes()
    asked.generate([shown])
    (body,) = bodies(server)
    *images, words = body["messages"][1]["content"]
    assert words == {"type": "text", "text": "u"}
    assert [set(image) for image in images] == [{"type", "image_url"}] * 2
    head, _, data = images[0]["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        assert image.size == (100, 200)
        assert not image.info
    (more,), (less,) = (asked.count_tokens([prompt]) for prompt in (shown.prompt, Prompt("s", "u")))
    assert more == less + 2 * 26  # 20,000 pixels each
    path.write_bytes(b"broken")
    with pytest.raises(PictureError, match="not a picture of a known format"):
        asked.generate([shown])


def test_a_server_is_asked_to_go_on_from_what_an_answer_begins_with(server: Server) -> None:
    """In vLLM's words; where it does not know them, without, from then on."""
    begun = replace(ASKED, begin="Verdict:")
    built = connect(server)
    built.generate([begun])
    (body,) = bodies(server)
    assert body["messages"][1:] == [
        {"role": "user", "content": "a red valve"},
        {"role": "assistant", "content": "Verdict:"},
    ]
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    server.next.append(says({"detail": "Unexpected keys: continue_final_message"}, 422))
    built.generate([begun])
    built.generate([begun])
    assert ["continue_final_message" in body for body in bodies(server)] == [
        True,
        True,
        False,
        False,
    ]
    assert all(body["messages"][-1]["role"] == "assistant" for body in bodies(server))


def test_whether_a_model_thinks_is_told_by_the_config(server: Server) -> None:
    assert not connect(server).thinks
    assert connect(server, thinking_ends="</think>").thinks
    assert connect(server, chat_template_kwargs={"enable_thinking": True}).thinks


def test_every_key_has_a_seed_of_its_own(server: Server) -> None:
    connect(server).generate([replace(ASKED, keys=tuple(range(20)))])
    assert len({body["seed"] for body in bodies(server)}) == 20


def test_a_key_comes_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", f"{KEY}\n")
    ask(server, api_key_env="MY_KEY")
    assert server.seen[0][2]["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 520, 524, 529])
def test_a_status_that_passes_is_tried_again(server: Server, status: int) -> None:
    expected = ask(server)
    server.next.extend([says({"error": "busy"}, status)] * 2)
    assert ask(server) == expected
    assert len(server.seen) == 4
    assert len({json.dumps(body) for body in bodies(server)}) == 1  # the same seed again


@pytest.mark.parametrize(
    "behave",
    [
        closes,
        breaks_off,
        says(b"<html>oops"),
        says(b"\xff\xfe"),
        says(b"[" * 1_000_000),
        says([]),
        says({"choices": []}),
    ],
)
def test_a_broken_answer_is_asked_for_again(server: Server, behave: Behave) -> None:
    expected = ask(server)
    server.next.append(behave)
    assert ask(server) == expected


ODD_HEADERS = ("soon", "", "-1", "nan", f"Thu, 01 Jan {10**20} 00:00:00 GMT")


@pytest.mark.parametrize(
    ("header", "least"), [("0.5", 0.5), ("in 2 s", 0.8), *((odd, 0.0) for odd in ODD_HEADERS)]
)
def test_retry_after_is_heeded_or_passed_over_where_it_cannot_be_read(
    server: Server, header: str, least: float
) -> None:
    date = formatdate(time.time() + 2, usegmt=True)  # of whole seconds
    server.next.append(says({}, 429, Retry_After=header.replace("in 2 s", date)))
    ask(server)
    assert server.seen[1][0] - server.seen[0][0] >= least
    assert len(server.seen) == 2


@pytest.mark.parametrize(
    ("behave", "cause"),
    [
        (says({"error": "overloaded"}, 503), "HTTP status 503 .*overloaded"),
        (says(b"<html>Sign in"), "not JSON: <html>Sign in"),
        (says(b""), "not JSON: it is empty"),
        (says(b"[" * 1_000_000), "not JSON"),
        (says({"choices": [{}]}), "lacks choices"),
        (says({"error": {"message": "no credit is left"}}), "lacks choices.*no credit is left"),
        (closes, "RemoteDisconnected|ConnectionReset"),
    ],
)
def test_it_gives_up_with_the_url_and_what_was_wrong(
    server: Server, behave: Behave, cause: str
) -> None:
    server.usually = behave
    with pytest.raises(
        EngineError, match=f"{server.url}/chat/completions: .*({cause}).*after {ATTEMPTS} attempts"
    ):
        ask(server)
    assert len(server.seen) == ATTEMPTS


def test_it_gives_up_on_a_server_that_hangs(server: Server) -> None:
    server.usually = hangs
    with pytest.raises(EngineError, match=r"no answer within 0\.05 s \(model\.timeout_s\)"):
        ask(server, timeout_s=0.05)


REFUSED = f"no, not with {KEY}"
TOO_LONG = (
    "'max_tokens' is too large: 20. This model's maximum context length is 8 tokens, "
    "which is not supported"
)


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (REFUSED, 400, "status 400 .*no, not with .*chat_template_kwargs"),
        (REFUSED, 401, "status 401 .*no, not with .*model.api_key_env"),
        (REFUSED, 403, "status 403 .*no, not with .*model.api_key_env"),
        (REFUSED, 404, "status 404 .*no, not with .*model.base_url"),
        ({"code": "insufficient_quota"}, 429, "quota of the key's account is used up"),
        (
            "Unexpected endpoint or method.",
            200,
            r"Unexpected endpoint.*look at model\.base_url, which usually ends in /v1",
        ),
        ({"message": TOO_LONG}, 400, "max_prompt"),
        ({"message": "temperature must be between 0 and 1"}, 400, "take out of the config"),
        ({"message": "unknown model: seedy"}, 400, "take out of the config"),
    ],
)
def test_what_another_attempt_would_not_mend_is_told_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch, error: Any, status: int, told: str
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    server.usually = says({"error": error}, status)
    with pytest.raises(EngineError, match=told) as caught:
        ask(server, api_key_env="MY_KEY")
    assert len(server.seen) == 1
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-" + "0123456789" * 16, "sk-it's\\a\"quoted-one"])
def test_a_key_is_hidden_where_it_is_cut_or_written_as_json(
    server: Server, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """A server repeats it, so that where its words are cut, half of one is left."""
    monkeypatch.setenv("MY_KEY", key)
    whole = chat(key, "stop")
    for told in (f"{key * 2}{key[:100]}", f"{key} {json.dumps(key)} {key!r}", {"detail": key}):
        server.usually = says(told if isinstance(told, dict) else told.encode(), 401)
        with pytest.raises(EngineError) as caught:
            ask(server, api_key_env="MY_KEY")
        assert key[:12] not in str(caught.value)
        assert "quoted" not in str(caught.value)
    whole["choices"][0]["finish_reason"] = {key: key}
    server.usually = says(whole)
    with pytest.raises(EngineError, match="finish_reason") as caught:
        ask(server, api_key_env="MY_KEY")
    assert "quoted" not in str(caught.value)
    server.usually = says(chat(f"fine: {key[:-1]}", "length"))
    assert ask(server, api_key_env="MY_KEY").text == "fine: ***"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(
    server: Server, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    server.next.append(says({}, status, Location=f"{server.url}/elsewhere"))
    with pytest.raises(EngineError, match=f"{status} .*to {server.url}/elsewhere.* model.base_url"):
        ask(server, api_key_env="MY_KEY")
    assert len(server.seen) == 1


def test_an_answer_that_ended_otherwise(server: Server) -> None:
    server.usually = says(chat("Verdict: pass", "tool_calls" + "s" * 1_000_000))
    with pytest.raises(
        EngineError, match=f"{server.url}.*finish_reason 'tool_calls.*without tools"
    ) as caught:
        ask(server)
    assert len(str(caught.value)) < 400


PASS = "Verdict: pass"
TEXT = {"type": "text", "text": PASS}
HM = {"text": PASS, "thinking": "Hm."}


def said(**message: Any) -> dict[str, Any]:
    """An answer with this message."""
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (
            chat(PASS, "length", 20),
            {"text": PASS, "tokens": 20, "finish": "length", "thinking": ""},
        ),
        (chat(None, "stop", 1), {"text": "", "tokens": 1, "finish": "stop"}),
        # tokens that the server does not count, or that cannot be, are estimated
        (chat("twelve bytes", "stop"), {"tokens": 5}),
        (
            chat("much longer than the limit says " * 9, "length"),
            {"tokens": ASKED.decode.max_new_tokens},
        ),
        *(
            (chat("twelve bytes", "stop") | {"usage": usage}, {"tokens": 5})
            for usage in (
                {"completion_tokens": int("9" * 4000)},
                {"completion_tokens": True},
                {"completion_tokens": -1},
                [1],
            )
        ),
        # an end in other words
        *(
            (chat(PASS, finish), {"finish": "stop"})  # type: ignore[arg-type]
            for finish in (None, "STOP", "eos_token", "end_turn")
        ),
        (chat(PASS, "max_tokens"), {"finish": "length"}),
        # content in parts
        (
            said(content=[{"type": "text", "text": "Verdict: "}, {"type": "text", "text": "pass"}]),
            {"text": PASS},
        ),
        (
            said(
                content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, TEXT]
            ),
            HM,
        ),
        (said(content=[{"type": "thinking", "thinking": "Hm."}, {"type": "image"}, TEXT]), HM),
        # thoughts, whether or not the server parts them from the answer
        (said(content=f"<think>\nHm.\n</think>\n\n{PASS}"), HM),
        (said(content=f"\n\n{PASS}", reasoning_content="Hm.\n"), HM),
        (said(content=PASS, reasoning="Hm."), HM),
        (said(content=None, reasoning_content="Hm, hm"), {"text": "", "thinking": "Hm, hm"}),
        (said(reasoning_content="Hm, hm"), {"text": "", "thinking": "Hm, hm"}),
        (said(content=PASS, reasoning={"effort": 1}), {"text": PASS, "thinking": ""}),
        (said(content=PASS, reasoning_content=None), {"text": PASS, "thinking": ""}),
        # half of a surrogate pair, as a server writes it that cuts an emoji in two: no file in
        # UTF-8 could hold it
        (
            said(content="torn \ud83d", reasoning_content="\ude00 seal"),
            {"text": "torn \ufffd", "thinking": "\ufffd seal"},
        ),
    ],
)
def test_an_answer_is_read(server: Server, answer: dict[str, Any], wanted: dict[str, Any]) -> None:
    server.next.append(says(answer))
    made = ask(server)
    assert {name: getattr(made, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    "behave",
    [
        says(chat("Verdict: pass", "content_filter")),
        says({"choices": [{"finish_reason": "content_filter"}]}),
        says(
            {
                "error": {
                    "message": "The response was filtered",
                    "code": "content_filter",
                    "param": "prompt",
                }
            },
            400,
        ),
    ],
)
def test_an_answer_that_a_filter_withholds_ends_nothing(server: Server, behave: Behave) -> None:
    server.next.append(behave)
    first, second = connect(server, concurrency=1).generate([ASKED, replace(ASKED, keys=(8,))])
    assert first == (Completion("", 1, "filtered"),)
    assert second[0].finish == "stop"
    assert len(server.seen) == 2


REFUSALS = [
    (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead.",
        "max_tokens",
    ),
    ("Unsupported parameter: 'temperature' is not supported with this model.", "temperature"),
    (
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        "top_p",
    ),
    (
        '[{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not '
        'permitted"}]',
        "seed",
    ),
    ("Unrecognized request argument supplied: chat_template_kwargs", "chat_template_kwargs"),
    ("Unsupported parameter: 'stop' is not supported with this model.", "stop"),
]


@pytest.mark.parametrize(("words", "field"), REFUSALS, ids=[field for _, field in REFUSALS])
def test_a_field_that_the_server_refuses_is_left_out_from_then_on(
    server: Server, caplog: pytest.LogCaptureFixture, words: str, field: str
) -> None:
    request = replace(ASKED, decode=Decode(temperature=0.7, max_new_tokens=20, stop=("\n",)))
    server.next.append(says({"error": {"message": words}}, 400))
    server.usually = says(chat("Verdict: pass\nno", "stop"))
    built = connect(server)
    assert [built.generate([request])[0][0].text for _ in range(2)] == ["Verdict: pass"] * 2
    first, *others = bodies(server)
    for body in others:
        gained = {"max_completion_tokens": 20} if field == "max_tokens" else {}
        assert body == {name: value for name, value in first.items() if name != field} | gained
    assert len(others) == 2
    assert caplog.messages == [
        f"{server.url}/chat/completions: refuses {field}; asked without from now on"
    ]


def test_a_temperature_is_1_where_the_server_takes_no_other(server: Server) -> None:
    """And is left out where it does not take that, either."""
    refused = says(
        {"error": "'temperature' does not support 0.7. Only the default (1) value is supported."},
        400,
    )
    server.next += [refused, refused]
    server.usually = says(chat("Verdict: pass", "stop"))
    ask(server, replace(ASKED, decode=Decode(temperature=0.7)))
    assert [body.get("temperature") for body in bodies(server)] == [0.7, 1.0, None]


@pytest.mark.parametrize(
    "words",
    [
        "System role not supported",
        "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
        "Conversation roles must alternate user/assistant/user/assistant/...",
    ],
)
def test_where_there_is_no_system_role_the_user_says_its_words(server: Server, words: str) -> None:
    server.next.append(says({"message": words}, 400))
    server.usually = says(chat("Verdict: pass", "stop"))
    ask(server)
    assert bodies(server)[1]["messages"] == [{"role": "user", "content": "rules\n\na red valve"}]


def test_a_limit_of_requests_is_given_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.1)
    server.next.append(says({}, 429))
    ask(server)
    # at the least half of four times the usual pause
    assert server.seen[1][0] - server.seen[0][0] >= 0.2
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.001)
    server.usually = says({}, 429)
    with pytest.raises(EngineError, match=r"lower model\.concurrency, or have the limit raised"):
        ask(server)


@pytest.mark.parametrize("word", ["http_proxy", "HTTP_PROXY"])
def test_a_proxy_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    for name in ("no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(word, "http://me:word@127.0.0.1:9/")
    built = engines.build(
        ModelConfig(engine="openai", model_name_or_path="m", base_url="http://192.0.2.1/v1"), "cpu"
    )
    said = r"Connection refused.*by way of the proxy 127\.0\.0\.1:9/ \(http_proxy\).*add 192\.0\.2\.1 to NO_PROXY"
    with pytest.raises(EngineError, match=said) as caught:
        built.generate([ASKED])
    assert "word" not in str(caught.value)
    monkeypatch.setenv("no_proxy", "192.0.2.1")
    assert transport.find_proxy("http://192.0.2.1/v1") is None


def test_https_to_a_server_that_has_none_is_told(server: Server) -> None:
    config = ModelConfig(
        engine="openai", model_name_or_path="m", base_url=server.url.replace("http:", "https:")
    )
    with pytest.raises(EngineError, match=r"speaks no https: .* write http:// in model\.base_url"):
        engines.build(config, "cpu").generate([ASKED])


def speaks(first: bytes, body: bytes = b"") -> Behave:
    """An answer whose first line is as given."""

    def behave(handler: Handler, _: dict[str, Any]) -> None:
        handler.close_connection = True
        handler.wfile.write(first + f"\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    return behave


@pytest.mark.parametrize(
    "behave",
    [
        speaks(f"HTTP/1.1 401 No {KEY}".encode()),
        speaks(f"HTTP/1.1 503 No {KEY}".encode()),
        speaks(f"NOHTTP {KEY}".encode()),
        says(chat("Verdict: pass", KEY)),
        says(KEY.encode()),
        says({"choices": [], "key": KEY}),
    ],
)
def test_a_key_is_never_shown(
    server: Server, monkeypatch: pytest.MonkeyPatch, behave: Behave
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    server.usually = behave
    with pytest.raises(EngineError, match=r"\*\*\*") as caught:
        ask(server, api_key_env="MY_KEY")
    assert KEY not in str(caught.value)


def test_a_key_is_not_kept_with_an_answer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that servers without keys are given, such as EMPTY, is nothing to hide."""
    message = {"content": f"The bin is EMPTY, {KEY}", "reasoning": f"Hm, {KEY}"}
    server.usually = says({"choices": [{"message": message, "finish_reason": "stop"}]})
    monkeypatch.setenv("MY_KEY", KEY)
    answer = ask(server, api_key_env="MY_KEY")
    assert (answer.text, answer.thinking) == ("The bin is EMPTY, ***", "Hm, ***")
    monkeypatch.setenv("MY_KEY", "EMPTY")
    assert ask(server, api_key_env="MY_KEY").text == f"The bin is EMPTY, {KEY}"


def test_so_many_requests_are_under_way_at_once(server: Server) -> None:
    together = threading.Barrier(3, timeout=20)
    under_way, most = [0], [0]
    lock = threading.Lock()

    def waits(handler: Handler, body: dict[str, Any]) -> None:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        together.wait()  # three at once, or never
        with lock:
            under_way[0] -= 1
        well(handler, body)

    server.usually = waits
    connect(server, concurrency=3).generate([replace(ASKED, keys=tuple(range(12)))])
    assert most[0] == 3


def test_an_error_ends_the_wait_for_the_others(server: Server) -> None:
    """The others are in long pauses: nobody waits for those."""
    server.next.append(says({}, 401))
    server.usually = says({}, 429, Retry_After="50")
    began = time.monotonic()
    with pytest.raises(EngineError, match="401"):
        connect(server, concurrency=2).generate([replace(ASKED, keys=tuple(range(6)))])
    while any(thread.name.startswith("stageb-openai") for thread in threading.enumerate()):
        assert time.monotonic() - began < 25
        time.sleep(0.05)


def when_ticked(times: int) -> Behave:
    """Answers once so many more signs of life have been given; never, where there are none."""

    def waits(handler: Handler, body: dict[str, Any]) -> None:
        before = heartbeat.now().count
        for _ in range(2000):
            if heartbeat.now().count >= before + times:
                return well(handler, body)
            time.sleep(0.01)
        return handler.reply(b"no sign of life", 400)

    return waits


def test_a_slow_answer_gives_signs_of_life(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LOOK_S", 0.01)
    server.next.append(when_ticked(3))
    assert ask(server) == ask(server)


def test_so_does_a_pause_between_attempts(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LOOK_S", 0.01)
    counts: list[int] = []

    def refuses(handler: Handler, body: dict[str, Any]) -> None:
        handler.reply(b"", 429, {"Retry-After": "2"})
        for _ in range(2):
            time.sleep(0.7)  # longer than an attempt may take
            counts.append(heartbeat.now().count)

    server.next.append(refuses)
    ask(server, timeout_s=0.3)
    assert counts[0] < counts[1]


def test_each_answer_is_a_sign_of_life(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LOOK_S", 100.0)
    before = heartbeat.now().count
    connect(server, concurrency=1).generate([replace(ASKED, keys=tuple(range(5)))])
    assert before + 1 <= heartbeat.now().count <= before + 5


def drips(first: bytes, part: bytes, last: bytes = b"", headers: tuple[str, ...] = ()) -> Behave:
    """An answer of which ``part`` comes again and again, each well within the time limit; ``last``
    after two seconds."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        handler.close_connection = True
        handler.wfile.write(b"\r\n".join([first, *(header.encode() for header in headers), b""]))
        for _ in range(20):
            handler.wfile.write(part)
            time.sleep(0.1)
        handler.wfile.write(last)

    return behave


@pytest.mark.parametrize(
    "behave",
    [
        hangs,
        drips(b"HTTP/1.1 200 OK", b" ", b"{}", ("Content-Length: 22", "")),
        drips(b"HTTP/1.1 200 OK", b" ", b"{}", ("",)),
        drips(b"HTTP/1.1 200 OK", b"1\r\n \r\n", b"0\r\n\r\n", ("Transfer-Encoding: chunked", "")),
        drips(b"HTTP/1.1 200 OK", b"1", headers=("Transfer-Encoding: chunked", "")),
        drips(b"HTTP/1.1 200 OK", b"x", headers=("X: ",)),
        drips(b"HTTP/1.1 100 Continue", b"\r\nHTTP/1.1 100 Continue\r\n"),
    ],
)
def test_an_answer_that_comes_not_or_byte_by_byte_beyond_its_time_is_asked_for_again(
    server: Server, behave: Behave
) -> None:
    """Nothing else would end it: every byte comes in time. Headers, and lines between chunks, may
    drip too."""
    server.next.append(behave)
    began = time.monotonic()
    assert ask(server, timeout_s=0.5) == ask(server)
    assert time.monotonic() - began < 30
    assert len(server.seen) == 3


def test_the_clock_of_an_answer_stops_with_it(server: Server) -> None:
    """Thousands of requests would leave as many threads until their time limits."""
    connect(server, timeout_s=600).generate([replace(ASKED, keys=tuple(range(5)))])
    deadline = time.monotonic() + 20
    while any(isinstance(thread, threading.Timer) for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_error_is_told_by_its_status_though_its_words_drip(server: Server) -> None:
    server.next.append(drips(b"HTTP/1.1 401 No", b"n", headers=("",)))
    with pytest.raises(EngineError, match="HTTP status 401 No"):
        ask(server, timeout_s=0.5)


def test_a_long_answer_is_read(server: Server) -> None:
    """As a proxy may pad it: 20 MB."""
    server.next.append(
        says(b" " * 20_000_000 + json.dumps(chat("Verdict: pass", "stop", 4)).encode())
    )
    assert ask(server) == Completion("Verdict: pass", 4, "stop")


@pytest.mark.slow
@pytest.mark.parametrize(
    "chunk",
    [b"-1\r\n" + b" " * 65536, b"1\r\n \r\n" * 1000, b"10000\r\n" + b" " * 65536 + b"\r\n", b""],
)
def test_an_answer_without_end_fills_no_memory(
    server: Server, monkeypatch: pytest.MonkeyPatch, chunk: bytes
) -> None:
    """In chunks, small and large, or without: it is read so far and no further, and asked for
    again."""
    monkeypatch.setattr(transport, "MOST_BYTES", 200_000)

    def pours(handler: Handler, body: dict[str, Any]) -> None:
        handler.close_connection = True
        handler.wfile.write(
            b"HTTP/1.1 200 OK\r\n" + (b"Transfer-Encoding: chunked\r\n" if chunk else b"") + b"\r\n"
        )
        with suppress(OSError):
            while True:
                handler.wfile.write(chunk or b" " * 65536)

    server.usually = pours
    with pytest.raises(
        EngineError, match=r"the answer has more than 200000 bytes \(after 6 attempts\)"
    ):
        ask(server)


def test_lengths_are_estimated_without_a_tokenizer(server: Server) -> None:
    one = connect(server)
    assert one.count_tokens([Prompt("", ""), Prompt("abc", "abcd"), Prompt("阀门", "")]) == [
        16,
        19,
        18,
    ]
    assert server.seen == []


def test_lengths_are_exact_with_a_tokenizer(server: Server, tmp_path: Any) -> None:
    folder = tiny_models.save(tmp_path, "qwen3")
    prompts = [request.prompt for request in requests()]
    theirs = engines.build(ModelConfig(model_name_or_path=folder), "cpu")
    assert connect(server, tokenizer=folder).count_tokens(prompts) == theirs.count_tokens(prompts)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"base_url": None}, "model.base_url"),
        ({"model_name_or_path": "stageb-tiny"}, "model.model_name_or_path"),
        ({"api_key_env": "NO_SUCH_VARIABLE"}, "model.api_key_env"),
        ({"api_key_env": "HAS_A_BLANK"}, "model.api_key_env"),
        ({"tokenizer": "/no/such/folder"}, "model.tokenizer"),
    ],
)
def test_a_bad_config_is_told_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], key: str
) -> None:
    monkeypatch.setenv("HAS_A_BLANK", f"{KEY} {KEY}")
    fine = {"engine": "openai", "model_name_or_path": "served", "base_url": "http://127.0.0.1:1/v1"}
    with pytest.raises(ConfigError) as caught:
        engines.build(ModelConfig(**(fine | options)), "cpu")
    assert caught.value.key == key
    assert KEY not in str(caught.value)
