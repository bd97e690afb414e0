"""More that strangers hand on: checkpoints, templates, servers' answers, tables, exported rules,
outputs begun."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
import random
import re
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from bending import (
    PIPE,
    SUBFOLDER,
    VALUES,
    Files,
    Handed,
    Link,
    Surface,
    handed,
    heard,
    jsonish,
    lay,
    nasty,
    scratched,
    smudged,
    watched,
)

from stageb.engines.config import ModelConfig
from stageb.engines.protocol import USUAL, Decode, Prompt, Request
from stageb.errors import EngineError, StagebError
from stageb.store import disk

# Checkpoints --------------------------------------------------------------------------------------

TEMPLATES = [
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% "
    "endfor %}<|im_start|>assistant\n",
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% "
    "endif %}[INST] {{ messages[0]['content'] | trim }} [/INST]",
    "{%- set ns = namespace(s='') -%}{%- for m in messages -%}{%- if m.role == 'system' -%}{%- "
    "set ns.s = m.content -%}"
    "{%- else -%}<|start|>{{ m.role }}<|sep|>{{ ns.s }}\n{{ m.content }}<|end|>{%- endif -%}{%- "
    "endfor -%}{% if enable_thinking %}<think>\n{% endif %}",
    "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}",
]
SNIPPETS = [
    "{{ 9**(9**9) }}", "{{ 9 ** (9 ** 7) }}", "{{ 'x' * 10**10 }}", "{{ ['x'] * 10**10 }}", "{{ 'x'|center(10**10) }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "{{ range(10**9)|list }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ self.__init__.__globals__ }}", "{{ messages.__class__ }}", "{% include '/etc/passwd' %}", "{% import 'os' as os %}",
    "{{ cycler.__init__.__globals__.os.system('true') }}", "{{ raise_exception('\x1b[2J') }}", "{{ undefined.x.y }}",
    "{{ strftime_now('%d %b %Y') }}", "{{ messages[99].content }}", "{{ 1/0 }}", "{% if", "{{", "{% endfor %}", "{#",
    "{% generation %}x{% endgeneration %}", "{{ '%1000000000d' % 1 }}", "{{ '{:>1000000000}'.format(1) }}",
    "{{ 'x'|indent(10**9) }}", "{{ messages|tojson(indent=10**9) }}", "{{ lipsum(10**6) }}", "{{ 'ab'|wordwrap(1) }}",
    "{% set x = 'x' %}{% for i in range(40) %}{% set x = x ~ x %}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=99) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% " "endfor %}", "**bold**",
    "{% set ns = namespace(x='xx') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% " "endfor %}",
    "{{ ('x' ~ '\\n') | replace('x', 'x' * 99999) | replace('x', 'x' * 99999) }}", "{{ messages | map('upper') | list }}",
    "{{ messages.append(1) }}", "{{ tools[0] }}", "{{ dict(a=1).fromkeys(range(10**9)) }}", "</think>", "{{ none + 1 }}",
    "{% while true %}{% endwhile %}", "{% set messages = [] %}", "user-words-go-here", "{{ '\\ud800' }}", "\x00",
    "{% break %}",
]  # fmt: skip


def make_template(rng: random.Random) -> str:
    text = rng.choice(TEMPLATES)
    for _ in range(rng.choice([0, 1, 1, 2])):
        place = rng.choice([match.start() for match in re.finditer(r"\{[{%]|$", text)])
        text = (
            text[:place]
            + (rng.choice(SNIPPETS) if rng.random() < 0.8 else nasty(rng))
            + text[place:]
        )
    return scratched(rng, text) if rng.random() < 0.2 else text


@cache
def tokenizer() -> Any:
    """One of a tiny checkpoint."""
    from engines import tiny_models

    return tiny_models.bpe()


def meet_template(text: str) -> bool:
    from stageb.engines import chat

    mine = tokenizer()
    mine.chat_template = text
    with watched(), mock.patch.object(chat, "RENDER_S", 1.0):
        try:
            read = chat.Chat(mine, {"enable_thinking": False})
            for prompt in (Prompt("rules", "a red valve <|im_end|>"), Prompt("", "x")):
                assert len(sum(read.encode(prompt), ())) < 1 << 22
            read.encode_answer("Verdict:")
        except EngineError as error:
            heard(error, ["chat template", "chat_template"])
            return False
    return True


@cache
def checkpoint() -> Files:
    """The files of a small checkpoint, which works."""
    from engines import tiny_models

    place = handed() / "tiny"
    tiny_models.save(place, "qwen3")
    return {path.name: path.read_bytes() for path in place.iterdir()}


CONFIGURED: dict[str, list[Any]] = {
    "model_type": ["llama", "qwen2_moe", "gpt2", "bert", "t5", "qwen3_vl", "none", "", None, 3, "mamba", "whisper", "clip"],
    "architectures": [["LlamaForCausalLM"], ["Qwen3VLForConditionalGeneration"], [], None, ["trap.Model"], "x", [3]],
    "auto_map": [{"AutoConfig": "trap.Config", "AutoModelForCausalLM": "trap.Model"}, {"AutoModelForCausalLM": "a/b--c.M"}],
    "attn_implementation": ["who/kernel", "who/kernel@rev", "eager", "none", {"": "who/kernel"}, "paged|who/kernel"],
    "_attn_implementation": ["who/kernel", "flash_attention_2"],
    "_attn_implementation_internal": ["who/kernel"],
    "_experts_implementation": ["who/kernel"],
    "quantization_config": [{"quant_method": "trap"}, {"quant_method": "gptq", "bits": 4}, {"load_in_4bit": True}, {}, "x",
    []],
    "torch_dtype": ["float16", "trap", "int8", None, 3, "float64", "__class__"],
    "dtype": ["bfloat16", "load", "nn", "float8_e4m3fn", {"": "float32"}],
    "hidden_size": [10**9, 10**18, 0, -1, "32", 3.5, True, 33],
    "vocab_size": [10**9, 10**12, 0, 1, -5, 319, 10**30],
    "num_hidden_layers": [10**6, 10**9, 0, -1, 1, 3, "2"],
    "num_attention_heads": [0, 3, -4, 10**9, 5],
    "num_key_value_heads": [0, 3, 4, 8, -1],
    "head_dim": [0, 7, 10**9, -8, "x"],
    "intermediate_size": [10**12, 0, -3],
    "max_position_embeddings": [0, -1, 1, 10**12, 10**400, "x"],
    "rope_parameters": [{"rope_type": "trap"}, {"rope_type": "yarn"}, None, {"rope_theta": 0}, {"rope_theta": "x"}, []],
    "layer_types": [["full_attention"], ["trap", "trap"], [], "x", ["sliding_attention"] * 2],
    "eos_token_id": [10**9, -1, [1, 2], [], ["x"], "2", {"a": 1}, None],
    "pad_token_id": [10**9, -1, "x"],
    "hidden_act": ["trap", "silu", None, 3, "__import__"],
    "tie_word_embeddings": [False, "x", None],
    "transformers_version": ["999", 3, None],
    "_name_or_path": ["who/ever", "../private"],
    "base_model_name_or_path": ["who/ever"],
    "text_config": [{}, {"model_type": "llama"}, 3],
    "sliding_window": [0, -1, "x", 3],
    "use_sliding_window": [True],
    "is_encoder_decoder": [True],
    "rms_norm_eps": [0, -1, "x", float("nan")],
    "id2label": [{"0": "x"}, {"x": 0}, [1]],
    "num_labels": [10**9],
    "tokenizer_class": ["trap.Tokenizer", "LlamaTokenizer", "PreTrainedTokenizerFast", "", 3, "BertTokenizer"],
    "tokenizer_file": ["/etc/passwd", "~/private/commit.json"],
    "vocab_file": ["/etc/passwd", "~/private/commit.json"],
    "chat_template": ["{{ 9**(9**9) }}", 3, [{"name": "default", "template": "x"}], {"a": "b"}, ""],
    "model_max_length": [0, -1, "x", 1e400],
    "added_tokens_decoder": [{"x": {}}, {"0": {"content": ""}}, {"999999999": {"content": "x", "special": True}}],
    "extra_special_tokens": [["", "a"], {"a": "b"}, [3], "x"],
    "eos_token": ["", None, 3, {"content": "<|im_end|>"}, "none of the vocabulary"],
}  # fmt: skip
WRITTEN = ["adapter_config.json", "model.safetensors.index.json", "preprocessor_config.json", "special_tokens_map.json",
    "added_tokens.json", "tokenizer.model", "vocab.json", "merges.txt", "pytorch_model.bin", "modeling_trap.py",
    "processor_config.json", "chat_template.json", "additional_chat_templates/x.jinja"]  # fmt: skip
BESIDE: list[Any] = [
    {"base_model_name_or_path": "who/ever", "peft_type": "LORA", "task_type": "CAUSAL_LM"},
    {
        "base_model_name_or_path": "~/private",
        "peft_type": "LORA",
        "auto_mapping": {"base_model_class": "trap"},
    },
    {
        "metadata": {"total_size": 10**30},
        "weight_map": {"model.norm.weight": "../private/photo.png"},
    },
    {"weight_map": {"model.norm.weight": "model.safetensors"}},
    {
        "processor_class": "trap.P",
        "auto_map": {"AutoProcessor": "trap.P"},
        "image_processor_type": "x",
    },
    {"chat_template": "{{ 9**(9**9) }}"},
]


def bent_weights(rng: random.Random, data: bytes) -> bytes:
    """A safetensors file whose header is not quite its own."""
    size: int = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    name = rng.choice([name for name in header if name != "__metadata__"])
    match rng.randrange(7):
        case 0:
            return (
                struct.pack("<Q", rng.choice([0, 1, size + 1, 2**40, 2**63, 2**64 - 1])) + data[8:]
            )
        case 1:
            return data[: rng.randrange(len(data))]
        case 2:
            del header[name]
        case 3:
            header[name]["shape"] = rng.choice(
                [[10**12], [0], [-1], [2, 2], [[1]], ["x"], [2**62, 8], [], None]
            )
        case 4:
            header[name]["dtype"] = rng.choice(
                ["F64", "I64", "F8_E4M3", "BOOL", "X", 3, "BF16", "F4"]
            )
        case 5:
            header[name]["data_offsets"] = rng.choice(
                [[0, 2**60], [10, 0], [0, 0], [-4, 4], ["a"], [0, 4]]
            )
        case _:
            return data[: 8 + size] + bytes([255]) * (len(data) - 8 - size)
    text = (jsonish(rng, header) if rng.random() < 0.3 else json.dumps(header)).encode(
        "utf-8", "surrogatepass"
    )
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def make_checkpoint(rng: random.Random) -> Handed:
    files, changed = checkpoint(), dict[str, Any]()
    for _ in range(rng.choice([1, 1, 1, 2])):
        name = rng.choice(
            [*files, "config.json", "config.json", "tokenizer_config.json", "model.safetensors"]
        )
        data = files[name]
        assert isinstance(data, bytes)
        if rng.random() < 0.05:  # links may lead anywhere: a hub's cache is made of them
            changed[name] = rng.choice(
                [PIPE, SUBFOLDER, Link("none"), Link(name), Link("config.json")]
            )
        elif name == "model.safetensors":
            changed[name] = bent_weights(rng, data)
        elif name.endswith(".jinja"):
            changed[name] = make_template(rng).encode("utf-8", "surrogatepass")
        elif rng.random() < 0.6 and name in (
            "config.json",
            "tokenizer_config.json",
            "generation_config.json",
        ):
            content = json.loads(data)
            for key in rng.sample(list(CONFIGURED), rng.choice([1, 1, 2])):
                content[key] = rng.choice(CONFIGURED[key])
            changed[name] = json.dumps(content).replace("~", str(handed())).encode()
        else:
            changed[name] = smudged(rng, jsonish(rng, json.loads(data)))
    if rng.random() < 0.2:
        made = rng.choice(
            [
                json.dumps(rng.choice(BESIDE)).replace("~", str(handed())),
                jsonish(rng, rng.choice(BESIDE)),
                "x",
            ]
        )
        changed[rng.choice(WRITTEN)] = made.encode("utf-8", "surrogatepass")
    return Handed(changed, rng.choice(["build", "build", "outline"]))


def meet_checkpoint(made: Handed) -> bool:
    from stageb import engines
    from stageb.engines import chat
    from stageb.engines.outline import outline

    place = handed() / "checkpoint"
    lay(place, {**checkpoint(), **made.changed})
    model = ModelConfig(model_name_or_path=str(place))
    prompt = Prompt("rules", "a red valve")
    with watched(), mock.patch.object(chat, "RENDER_S", 1.0):
        try:
            if made.command == "outline":
                count = outline(model, "cpu").count_tokens
                assert count
                count([prompt])
            else:
                engine = engines.build(model, "cpu")
                engine.count_tokens([prompt])
                ((said,),) = engine.generate([Request(prompt, Decode(0.0, max_new_tokens=2), (1,))])
                said.text.encode("utf-8")
        except StagebError as error:
            heard(error, [str(place), "chat template", "model."])
            return False
    return True


# Servers ------------------------------------------------------------------------------------------

KEYS = ["sk-very-secret-0123456789", "sk-it's\\a\"quoted-one", "s3" + "k" * 160]
WELL: dict[str, Any] = {
    "id": "x", "object": "chat.completion", "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Verdict: pass\nReason: G0"}, "finish_reason": "stop",
         "logprobs": {"content": [{"token": "V", "logprob": -0.1, "bytes": [86], "top_logprobs": []}]}}
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16},
}  # fmt: skip
MESSAGES: list[Any] = [
    {"content": "KEY"}, {"content": "Verdict: KEY\nReason: KEY", "reasoning_content": "KEY"}, {"content": None},
    {"content": "<think>KEY"}, {"content": "x</think>KEY"}, {"content": [{"type": "text", "text": "KEY"}]},
    {"content": [{"type": "text", "text": {"value": "x"}}]}, {"content": [{"type": "thinking", "thinking": [[]]}, "x",
    None]},
    {"content": 3}, {"content": {}}, {}, None, [], "KEY", {"content": "x", "reasoning": 3}, {"content": "x" * (1 << 20)},
    {"content": None, "tool_calls": [{"function": {"name": "KEY"}}]}, {"content": None, "refusal": "KEY"},
    {"content": "a\nKEY\x1b[2J\u202e"}, {"content": "", "reasoning": "\ud800KEY"},
    {"content": [{"type": "text", "text": [{"type": "text", "text": [{"type": "text", "text": "x"}]}]}]},
]  # fmt: skip
FINISHES: list[Any] = [
    "stop",
    "length",
    "tool_calls",
    "KEY",
    "content_filter",
    None,
    "",
    3,
    [],
    {"KEY": "KEY"},
    "eos",
    "x" * 9999,
]
COUNTS: tuple[Any, ...] = (0, -1, 1.5, "7", 10**4299, True, None, 2**31, [])
USAGES: list[Any] = [{"completion_tokens": tokens} for tokens in COUNTS]
USAGES += [None, [], "x", 3]
SAID = [
    "Unsupported parameter: 'FIELD' is not supported with this model.", "unknown field FIELD KEY", "KEY" * 400,
    "`temperature` and `top_p` cannot both be specified", "Only the default (1) value is " "supported: temperature",
    "System role not supported: role system", "maximum context length is 9", "content_filter", "insufficient_quota",
    "not allowed: FIELD, FIELD", "<html>KEY</html>", "", "\x1b[2J\r\nKEY", "x" * 100_000, "é" * 3000, "\ud800",
    "roles must alternate", "Unexpected keys: continue_final_message", "extra inputs: FIELD\nFIELD",
]  # fmt: skip
FIELDS = "max_tokens max_completion_tokens temperature top_p seed stop top_k messages model system".split()
HEADERS = [
    "Retry-After: 1e400", "Retry-After: -5", "Retry-After: nan", "Retry-After: KEY", "Location: http://127.0.0.1:1/KEY",
    "Location: \x1b[2J", "Content-Encoding: gzip", "Transfer-Encoding: chunked", "Transfer-Encoding: KEY",
    "Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: KEY", "Content-Length: 5", "KEY: KEY",
    "no colon", ": x", " folded", "X: " + "y" * 70_000, "Set-Cookie: KEY", "Connection: close",
    "Content-Type: text/event-stream",
    "Retry-After: Thu, 01 Jan 99999999999999999999 00:00:00 GMT", "X: \xff\xfe",
    "Content-Type: application/json; charset=trap",
    "Retry-After: Fri, 31 Dec 9999 23:59:59 -9999", "WWW-Authenticate: Basic realm=KEY", "Proxy-Authenticate: KEY",
]  # fmt: skip
STATUSES = [200] * 50 + [400, 400, 422, 401, 403, 404, 408, 429, 500, 502, 503, 504, 520, 529, 301, 307, 308, 204, 304, 100,
    101, 206, 418, 0, 999, 600, 226]  # fmt: skip
LINES = ["HTTP/1.1 STATUS KEY", "HTTP/1.0 STATUS OK", "HTTP/1.1 STATUS", "HTTP/9.9 STATUS x", "KEY", "", "HTTP/1.1 abc KEY",
    "HTTP/1.1 99999 x", "HTTP/1.1 STATUS \x1b[2J\x9b", "HTTP/1.1 -200 KEY", "ICY STATUS OK",
    "HTTP/1.1 STATUS " + "x" * 70_000,
    "\x00\x01\x02", "SSH-2.0-OpenSSH_9.0 KEY"]  # fmt: skip


@dataclass(frozen=True)
class Served:
    """What a server sends back, one answer after the other, the last one for ever; and how it is
    asked."""

    answers: tuple[bytes, ...]  # KEY stands for the key that it was sent
    key: str
    begin: str
    cut: bool  # the connection stays open behind an answer


def make_body(rng: random.Random) -> bytes:
    """A chat completion, bent."""
    answer = json.loads(json.dumps(WELL))
    choice = answer["choices"][0]
    if rng.random() < 0.5:
        choice["message"] = rng.choice(MESSAGES)
    if rng.random() < 0.3:
        choice["finish_reason"] = rng.choice(FINISHES)
    if rng.random() < 0.3:
        answer["usage"] = rng.choice(USAGES)
    if rng.random() < 0.1:
        answer = {"error": {"message": rng.choice(SAID), "code": rng.choice(VALUES)}}
    if rng.random() < 0.1:
        whole = json.dumps(answer)
        return f"data: {whole}\n\ndata: [DONE]\n\n".encode("utf-8", "surrogatepass")
    with contextlib.suppress(ValueError):
        text = (
            jsonish(rng, answer)
            if rng.random() < 0.2
            else json.dumps(answer, ensure_ascii=rng.random() < 0.7)
        )
        return smudged(rng, text) if rng.random() < 0.1 else text.encode("utf-8", "surrogatepass")
    return json.dumps(choice["message"]).encode() + b"1" * 5000


def make_answer(rng: random.Random) -> bytes:
    status = rng.choice(STATUSES)
    line = (rng.choice(LINES) if rng.random() < 0.07 else LINES[0]).replace("STATUS", str(status))
    body = make_body(rng)
    if status not in (200, 204, 304) and rng.random() < 0.8:
        said = rng.choice(SAID).replace("FIELD", rng.choice(FIELDS))
        body = (
            json.dumps({"error": {"message": said}}).encode()
            if rng.random() < 0.5
            else said.encode("utf-8", "replace")
        )
    headers = rng.sample(HEADERS, rng.choice([0, 0, 0, 0, 0, 1, 2]))
    if "Transfer-Encoding: chunked" in headers:
        sizes = [
            f"{len(body):x}".encode(),
            b"-1",
            b"ffffffffffffffff",
            b"KEY",
            b"",
            b"0",
            b"5;x=KEY",
        ]
        body = (
            rng.choice(sizes)
            + b"\r\n"
            + body
            + rng.choice([b"\r\n0\r\n\r\n", b"", b"\r\n0\r\nKEY: x\r\n\r\n"])
        )
    elif rng.random() < 0.5 and not any("Length" in header for header in headers):
        headers.append(f"Content-Length: {len(body)}")
    if rng.random() < 0.02:
        headers += [f"X{n}: y" for n in range(200)]
    head = "\r\n".join([line, *headers]).encode("latin-1", "replace")
    whole = (
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 200 if rng.random() < 0.02 else b"")
        + head
        + b"\r\n\r\n"
        + body
    )
    return whole[: rng.randrange(len(whole))] if rng.random() < 0.05 else whole


def make_served(rng: random.Random) -> Served:
    answers = tuple(make_answer(rng) for _ in range(rng.choice([1, 1, 2, 3])))
    return Served(answers, rng.choice(KEYS), rng.choice(["", "", "Verdict:"]), rng.random() < 0.01)


class Teller:
    """A server that sends what it is told to, byte for byte, whatever it is asked."""

    def __init__(self) -> None:
        self.served, self.asked = Served((b"",), "", "", False), 0
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            connection.settimeout(5.0)
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        served, place = self.served, min(self.asked, len(self.served.answers) - 1)
        self.asked += 1
        with connection, contextlib.suppress(OSError):
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += connection.recv(1 << 16) or b"\r\n\r\n"
            head, _, body = asked.partition(b"\r\n\r\n")
            left = int(re.search(rb"Content-Length: (\d+)", head, re.I)[1]) - len(body)  # type: ignore[index]
            while left > 0:
                left -= len(connection.recv(1 << 16)) or left
            connection.sendall(served.answers[place].replace(b"KEY", served.key.encode()))
            if served.cut:
                connection.recv(1)  # until the client gives up


@cache
def teller() -> Teller:
    """The one of this process."""
    return Teller()


class Kept(logging.Handler):
    """What is logged."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def meet_served(served: Served) -> bool:
    from stageb.engines.remote import client
    from stageb.engines.remote.openai import OpenAIEngine
    from stageb.engines.remote.transport import ChatServer

    told, kept = teller(), Kept()
    told.served, told.asked = served, 0
    model = ModelConfig(
        engine="openai", model_name_or_path="m", base_url=told.url, timeout_s=0.3, concurrency=1
    )
    server = ChatServer(f"{told.url}/chat/completions", served.key, model.timeout_s)
    engine = OpenAIEngine(client.Client(server, model, USUAL), None)
    asked = Request(
        Prompt("rules", "a red valve"),
        Decode(0.7, max_new_tokens=20, stop=("\n\n",)),
        (1,),
        begin=served.begin,
    )
    client.log.addHandler(kept)
    level, client.log.level = client.log.level, logging.DEBUG
    try:
        with (
            mock.patch.object(client, "LONGEST_PAUSE_S", 0.0),
            mock.patch.object(client, "ATTEMPTS", 3),
        ):
            ((said,),) = engine.generate([asked])
    except EngineError as error:
        heard(error, [told.url])
        kept.said.append(str(error))
        assert "\n" not in str(error)
        assert "; " in str(error), error
        return False
    else:
        assert said.finish in ("stop", "length", "filtered")
        assert type(said.tokens) is int
        assert 0 < said.tokens < 1 << 31
        kept.said += [
            disk.json_text({"text": said.text, "thinking": said.thinking}),
            said.text,
            said.thinking,
        ]
        disk.encode(kept.said[-3])
    finally:
        client.log.level = level
        client.log.removeHandler(kept)
        for line in kept.said:
            for form in (served.key, repr(served.key)[1:-1], json.dumps(served.key)[1:-1]):
                assert form not in line, ("the key", line[:500])
            assert served.key[:20] not in line, ("part of the key", line[:500])
        assert told.asked <= 3 + len(FIELDS) + 4
    return True


# Tables, judged and exported ----------------------------------------------------------------------

NAMES = [
    "Seal", "No. of cracks", "Temp. [°C]", "Length, max", "A is B", 'say "so"', "it's", "a;b", "a--b", "a/*b*/", "select",
    "Mission",
    "Rule", "verdict", "t", "tickets", "and", "Fail if", "über", "阀门", "x" * 200, "{0}", "%s", "\\", "`a`", "[a]", "1",
    "1.5", "-1",
    "a b", "ＡＢ", "İ", "ß", "group", "label", "image_1", "image_2", "a.", ".a", "a:", ": a", "$x", "__class__", "ROWID",
    "*", "?",
    "is above 3", "a or b", "(a", "a)", "=1+1", "@x", "\u0301", "None", "true", "null", "per_image", "mission", "Checked",
    "Rack",
]  # fmt: skip
CELLS = [
    "worn", "fine", "Worn", "worn.", "1", "2.5", "3", "-4", "1,5", "12 mm", "1.2 cm", "", "", "dusty, cleaned", "=1+1",
    "N/A", "yes",
    "no", "阀", "straße", "1e400", "NaN", "9" * 400, "0x10", "a" * 5000, "null", "'; DROP TABLE tickets; --", '"', "{}",
    "[1]", "1/2",
    "worn worn", "\x1b[2J", "a\nb", "−3", "½", "1 000", "is worn", "Fail if x is y.", "\u200b", "É", "E\u0301", "10%", "$5",
]  # fmt: skip
WORDS_OF_RULES = [
    "Fail if {a} is {v}.", "Fail if {a} is above {n}.", "Fail if {a} is below {n} and {b} is {v}.",
    "Pass if {b} is {v} or {w}.",
    "Fail if {a} is not {v}.", "Fail if {a} is above {b}.", "Fail if {a} equals {b}.", "Fail unless {a} is {v}.",
    "Fail if {a} + {b} is above {n}.",
    "Fail if at least 2 of these hold: {a} is {v}; {b} is {w}; {a} is above {n}.", "Fail if the summaries mention {v}.",
    "Fail if {a} / {b} is below {n}.", "Fail if {a} is {v}, {w} or {n}.", "不通过：若{a}为{v}。", "不通过：若{a}大于{n}。",
    "Fail if it looks bad.",
    "Fail if {a} is at least {n} and at most {m}.", "Fail if {v} is mentioned.", "{a}", "Fail if {a}.",
    "Fail if {a} is missing.",
    "Fail if {a} is {v} and ({b} is {w} or {b} is above {n}).",
    "Fail if 3 points or more: 2 for {a} is {v}, 1 for {b} is {w}.",
]  # fmt: skip
KEYWORDS = "mission_name=racks,group_id=Rack,label=Checked,passes=OK,fails=NG"


@dataclass(frozen=True)
class Judged:
    """A table of tickets, as it stands in its file, and rules for it."""

    name: str
    data: bytes
    rules: tuple[str, ...]


def make_rules(rng: random.Random, names: Sequence[str], cells: Sequence[str]) -> tuple[str, ...]:
    def fill(text: str) -> str:
        a, b, v, w = (rng.choice([*pool]).strip() for pool in (names, names, cells, cells))
        n, m = (
            rng.choice(["1", "2.5", "-4", "12 mm", "1e400", "9" * 400, "1,5", "0"]) for _ in "nm"
        )
        made = text.format(a=a, b=b, v=v, w=w, n=n, m=m)
        return " ".join("".join(letter for letter in made if letter.isprintable()).split())

    texts = [fill(rng.choice(WORDS_OF_RULES)) for _ in range(rng.randrange(1, 5))]
    return tuple(dict.fromkeys(text for text in texts if text))


def make_judged(rng: random.Random) -> Judged:
    names = rng.sample(NAMES, rng.randrange(2, 5))
    names = [nasty(rng) if rng.random() < 0.05 else name for name in names]
    pool = [*rng.sample(CELLS, 6), nasty(rng) if rng.random() < 0.3 else "worn"]
    rows = [
        [f"r{n}", *(rng.choice(pool) for _ in names), rng.choice(["OK", "NG"])]
        for n in range(rng.randrange(1, 9))
    ]
    rules = make_rules(rng, names, pool)
    if rng.random() < 0.2:
        fields = [{"mission": "racks", "group_id": row[0], "label": "pass", "per_image": {
            "image_1": json.dumps(dict(zip(names, row[1:-1], strict=True)), ensure_ascii=False),
            "image_2": "; ".join(row[1:-1])}}
            for row in rows]  # fmt: skip
        text = "".join(f"{json.dumps(line, ensure_ascii=rng.random() < 0.5)}\n" for line in fields)
        return Judged("t.jsonl", text.encode("utf-8", "surrogatepass"), rules)
    tab = rng.random() < 0.1
    file = io.StringIO()
    writer = csv.writer(
        file,
        delimiter="\t" if tab else rng.choice([",", ",", ";"]),
        lineterminator=rng.choice(["\n", "\r\n"]),
    )
    with contextlib.suppress(csv.Error):
        writer.writerows([["Rack", *names, "Checked"], *rows])
    return Judged(
        "t.tsv" if tab else "t.csv", file.getvalue().encode("utf-8", "surrogatepass"), rules
    )


def make_table(rng: random.Random) -> Judged:
    made = make_judged(rng)
    data = made.data
    match rng.randrange(5):
        case 0:
            data = scratched(rng, data.decode("utf-8", "surrogatepass")).encode(
                "utf-8", "surrogatepass"
            )
        case 1:
            at = rng.randrange(len(data) + 1)
            data = (
                data[:at]
                + rng.choice(
                    [b"\0", b'"', b"\r", b"\xff", b",,,,", b"\n\n", b'"' * 3, b"\x1a", b"\t"]
                )
                + data[at:]
            )
        case 2:
            data = smudged(rng, data.decode("utf-8", "surrogatepass"))
        case 3 if rng.random() < 0.1:
            data = data.replace(b"worn", b"a" * 200_000) + b"x," * rng.choice([0, 5000])
    return replace(made, data=data)


def lay_judged(place: Path, made: Judged) -> list[str]:
    """Table and guidance in a folder of their own; what a command says of tickets."""
    rules = {
        f"G{n}": text
        for n, text in enumerate(["A ticket passes unless a rule fails it.", *made.rules])
    }
    guidance = json.dumps({"racks": {"step": 1, "experiences": rules}}, ensure_ascii=False)
    lay(
        place,
        {
            made.name: made.data,
            "g.json": guidance.encode("utf-8", "surrogatepass"),
            "out": SUBFOLDER,
        },
    )
    return [str(place / made.name), *([] if made.name == "t.jsonl" else ["--columns", KEYWORDS])]


def predicted(place: Path, made: Judged) -> list[dict[str, Any]]:
    """The rows that ``predict --by rules`` writes. Raises ``StagebError``."""
    from stageb.__main__ import run

    output = place / "out" / "o.jsonl"
    words = ["--tickets", *lay_judged(place, made), "--output", str(output), "--by=rules"]
    assert run(["predict", "--guidance", str(place / "g.json"), *words]) == 0
    assert sorted(path.name for path in output.parent.iterdir()) == [
        "o.jsonl",
        "o.jsonl.commit.json",
    ]
    return [json.loads(line) for line in output.read_bytes().decode("utf-8").split("\n")[:-1]]


def meet_table(made: Judged) -> bool:
    place = handed() / "judged"
    with watched():
        try:
            rows = predicted(place, made)
        except StagebError as error:
            heard(error, [str(place), "racks", "columns", "config: "])
            assert not list((place / "out").iterdir())
            return False
    assert rows
    assert [row["line"] for row in rows] == sorted({row["line"] for row in rows})
    assert all(
        row["verdict"] in ("pass", "fail", None) and (row["verdict"] or row["why"]) for row in rows
    )
    if made.name == "t.jsonl":
        assert len(rows) == sum(
            bool(line.strip()) for line in made.data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        )
    return True


# Outputs that were begun, and annotations of other tools ------------------------------------------


@cache
def begun() -> tuple[Files, Judged, bytes]:
    """An output of which half of the rows are committed, what it was made from, and the whole."""
    from stageb.store.output import Output

    table = "Rack,Seal,Checked\n" + "".join(
        f"r{n},{'worn' if n % 3 else 'fine'} {n},OK\n" for n in range(8)
    )
    made, place, kept = (
        Judged("t.csv", table.encode(), ("Fail if Seal is worn 4.",)),
        handed() / "begun",
        list[Files](),
    )
    add = Output.add

    def keep(self: Output, *words: Any, **more: Any) -> None:
        add(self, *words, **more)
        kept.append({path.name: path.read_bytes() for path in (place / "out").iterdir()})

    with mock.patch.object(Output, "add", keep), watched():
        again(place, made)
    return kept[1], made, (place / "out" / "o.jsonl").read_bytes()


def again(place: Path, made: Judged, files: Files | None = None) -> None:
    """``predict`` in rounds of two, behind what is there."""
    from stageb.__main__ import run

    words = lay_judged(place, made)
    for name, entry in (files or {}).items():
        lay_one(place / "out" / name, entry)
    output, batches = place / "out" / "o.jsonl", "stageb.guidance.tickets.batches"
    with (
        mock.patch("stageb.guidance.commands.use.judged.MOST_UNCOMMITTED", 2),
        mock.patch(f"{batches}.MOST_ROWS", 2),
    ):
        run(
            [
                "predict",
                "--guidance",
                str(place / "g.json"),
                "--tickets",
                *words,
                "--output",
                str(output),
                "--by=rules",
            ]
        )


def lay_one(path: Path, entry: Any) -> None:
    """One entry, as ``lay`` lays many."""
    lay(path.parent / "one", {"x": entry})
    (path.parent / "one" / "x").rename(path)
    (path.parent / "one").rmdir()


def make_output(rng: random.Random) -> Handed:
    files, _, _ = begun()
    name = rng.choice(["o.jsonl", "o.jsonl.commit.json", "o.jsonl.commit.json"])
    data = files[name]
    assert isinstance(data, bytes)
    at = rng.randrange(len(data) + 1)
    changed: Any = (
        rng.choice([PIPE, SUBFOLDER, Link("none"), Link(name)]) if rng.random() < 0.1 else data[:at]
    )
    if rng.random() < 0.2:
        changed = data[:at] + rng.randbytes(rng.choice([1, 5])) + data[at + rng.randrange(2) :]
    elif rng.random() < 0.8 and name != "o.jsonl":
        changed = smudged(rng, jsonish(rng, json.loads(data)))
    return Handed({name: changed}, "")


def meet_output(made: Handed) -> bool:
    files, judged, whole = begun()
    place = handed() / "begun"
    both = {**files, **made.changed}
    with watched():
        try:
            again(place, judged, both)
        except StagebError as error:
            heard(error, [str(place)])
            for name, entry in both.items():  # what was there is there
                assert (
                    not isinstance(entry, bytes) or (place / "out" / name).read_bytes() == entry
                ), name
            return False
    rows, kept = both["o.jsonl"], files["o.jsonl"]
    assert isinstance(rows, bytes)
    assert isinstance(kept, bytes)
    assert (place / "out" / "o.jsonl").read_bytes() == rows[: len(kept)] + whole[len(kept) :]
    return True


SURFACES = {
    "chat templates": Surface(make_template, meet_template, 4),
    "checkpoints": Surface(make_checkpoint, meet_checkpoint, 2),
    "servers": Surface(make_served, meet_served, 26),
    "tables": Surface(make_table, meet_table, 10),
    "outputs begun": Surface(make_output, meet_output, 3),
}
