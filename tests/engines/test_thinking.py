"""Models that think aloud, and answers that are begun in a model's place, on real tiny models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engines import tiny_models

from stageb import engines
from stageb.engines import Decode, Prompt, Request
from stageb.engines.chat import Chat
from stageb.engines.config import ModelConfig
from stageb.engines.native.transformers import TransformersEngine
from stageb.engines.protocol import Thoughts, thinks
from stageb.errors import ConfigError

CHATML = tiny_models.CHATML
OPENS = CHATML + "{% if add_generation_prompt %}<think>\n{% endif %}"
QWEN3 = (
    CHATML
    + "{% if add_generation_prompt and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
PROMPT = Prompt("You judge.", "image_1: a red valve")


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("Verdict: pass\nReason: x", "", "Verdict: pass\nReason: x"),
        (
            "<think>\nIs it?\n</think>\n\nVerdict: pass\nReason: x",
            "Is it?",
            "Verdict: pass\nReason: x",
        ),
        (
            "Is it?</think>Verdict: pass\nReason: </think>",
            "Is it?",
            "Verdict: pass\nReason: </think>",
        ),
        ("\n<think>and so on", "and so on", ""),
        ("<think></think>", "", ""),
    ],
)
def test_thoughts_end_with_the_first_closing_tag(text: str, thinking: str, answer: str) -> None:
    assert Thoughts().split(text) == (thinking, answer)
    assert Thoughts("[/END]").split(
        text.replace("</think>", "[/END]").replace("<think>", "[END]")
    ) == (thinking, answer.replace("</think>", "[/END]"))


def test_what_is_opened_by_the_prompt_need_not_be_opened_by_the_model() -> None:
    assert Thoughts(opened=True).split("never done") == ("never done", "")
    assert Thoughts(opened=True).split("done</think>\nfine") == ("done", "fine")


@pytest.mark.parametrize(
    ("template", "variables", "closes", "expected", "told"),
    [
        (CHATML, {}, None, Thoughts("</think>"), False),
        (OPENS, {}, None, Thoughts("</think>", opened=True), True),
        (QWEN3, {"enable_thinking": False}, None, Thoughts("</think>"), False),
        (QWEN3, {"enable_thinking": True}, None, Thoughts("</think>"), True),
        (CHATML + "{# [THINK]...[/THINK] #}", {}, None, Thoughts("[/THINK]"), False),
        (OPENS, {}, "</other>", Thoughts("</other>"), True),
        (None, {}, None, Thoughts("</think>"), False),
    ],
)
def test_the_template_or_the_config_tells_how_a_model_thinks(
    template: str | None,
    variables: dict[str, Any],
    closes: str | None,
    expected: Thoughts,
    told: bool,
) -> None:
    chat = Chat(tiny_models.bpe(template=template), variables, closes)
    assert (chat.thoughts, chat.thinks) == (expected, told)


@pytest.mark.parametrize("special", [True, False])
def test_tags_are_read_whether_or_not_they_are_special_tokens(special: bool) -> None:
    tokenizer = tiny_models.bpe(template=OPENS)
    tokenizer.add_tokens(["<think>", "</think>"], special_tokens=special)
    chat = Chat(tokenizer, {})
    ids = tokenizer("Hm.</think>Verdict: pass<|im_end|>", add_special_tokens=False)["input_ids"]
    made = chat.completion(ids, "stop", (), begun=False)
    assert (made.thinking, made.text, made.tokens) == ("Hm.", "Verdict: pass", len(ids))


def test_an_answer_begun_in_the_models_place_stands_behind_closed_thoughts() -> None:
    tokenizer = tiny_models.bpe(template=OPENS)
    shared, own = Chat(tokenizer, {}).encode(PROMPT)
    begun = Chat(tokenizer, {}).encode_answer("Verdict: <|im_end|>")
    said = tokenizer.decode([*shared, *own, *begun])
    assert said.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\nVerdict: < |im_end|>")
    assert (
        tokenizer.decode(list(Chat(tiny_models.bpe(), {}).encode_answer("Verdict:"))) == "Verdict:"
    )


def test_the_default_engine_goes_on_from_what_an_answer_begins_with() -> None:
    """As if the beginning were a part of the prompt; and it says of a model that opens its thoughts
    that it thinks."""
    tokenizer, model = (
        tiny_models.bpe(template="{{ messages[-1]['content'] }}"),
        tiny_models.model("qwen3", 320),
    )
    engine = TransformersEngine(model, Chat(tokenizer, {}))
    decode = Decode(temperature=0.0, max_new_tokens=8)
    whole, begun = Prompt("", "abc defVerdict:"), Prompt("", "abc def")
    ((expected,),) = engine.generate([Request(whole, decode, (1,))])
    ((found,), (plain,)) = engine.generate(
        [Request(begun, decode, (1,), "Verdict:"), Request(begun, decode, (1,))]
    )
    assert found == expected
    assert found != plain
    assert not thinks(engine)
    thinking = TransformersEngine(model, Chat(tiny_models.bpe(template=OPENS), {}))
    assert thinks(thinking)
    ((made,),) = thinking.generate([Request(PROMPT, decode, (1,))])
    assert made.thinking or not made.text
    ((made,),) = thinking.generate([Request(PROMPT, decode, (1,), "Verdict:")])
    assert made.text
    assert not made.thinking


def test_gguf_files_are_found_and_what_reads_them_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    for name in (tmp_path, tmp_path / "one.gguf"):
        with pytest.raises(
            ConfigError, match=r"model\.model_name_or_path.*one\.gguf.*pip install 'stageb\[gguf\]'"
        ):
            engines.build(ModelConfig(model_name_or_path=str(name)), "cpu")
    (tmp_path / "two.gguf").write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match="2 GGUF files; name one of them"):
        engines.build(ModelConfig(model_name_or_path=str(tmp_path)), "cpu")
