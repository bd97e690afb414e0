import pytest
from engines.contract import check_contract, check_resumer

from stageb import seeds
from stageb.engines import Completion, Decode, Prompt, Request, build
from stageb.engines.config import ModelConfig
from stageb.engines.scripted import ScriptedEngine
from stageb.errors import ConfigError

WORDS = ("Verdict:", "pass", "fail", "Reason:", "red", "阀门", "valve\n", "closed")


def babble(prompt: Prompt, decode: Decode, key: int) -> str:
    """Words drawn from the stream that the prompt, the setting and the key make."""
    draw = seeds.stream(prompt.system, prompt.user, decode.seed, key)
    return " ".join(WORDS[seeds.bits(draw, place) % len(WORDS)] for place in range(3 + key % 5))


def ask(text: str, **decode: object) -> Completion:
    engine = ScriptedEngine(lambda prompt, setting, key: text)
    return engine.generate([Request(Prompt("", "?"), Decode(**decode), (1,))])[0][0]  # type: ignore[arg-type]


def test_contract() -> None:
    check_contract(ScriptedEngine(babble))
    check_resumer(ScriptedEngine(babble))


def test_text_tokens_and_finish() -> None:
    assert ask("Verdict: pass\nReason: ok") == Completion("Verdict: pass\nReason: ok", 5, "stop")
    assert ask("one  two three four", max_new_tokens=2) == Completion("one  two", 2, "length")
    assert ask("one two", max_new_tokens=2) == Completion("one two", 2, "length")
    assert ask("") == Completion("", 1, "stop")


def test_stops_before_the_first_stop_string() -> None:
    assert ask("one two three", stop=("three", "wo")) == Completion("one t", 3, "stop")
    assert ask("one two three", stop=("three",), max_new_tokens=2) == Completion(
        "one two", 2, "length"
    )


def test_counts_words() -> None:
    assert ScriptedEngine(babble).count_tokens([Prompt("a b", " c\nd "), Prompt("", "x")]) == [4, 1]


def test_built_from_a_name() -> None:
    engine = build(ModelConfig(engine="scripted", model_name_or_path="test_scripted:babble"), "cpu")
    assert engine.generate([Request(Prompt("", "?"), Decode(), (9,))])[0][0].text == babble(
        Prompt("", "?"), Decode(), 9
    )


@pytest.mark.parametrize(
    "name",
    [
        "my-model",
        "no_such_package.module:respond",
        "test_scripted:no_such_name",
        "test_scripted:WORDS",
        ":",
        "a:",
    ],
)
def test_bad_names(name: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.model_name_or_path") as caught:
        build(ModelConfig(engine="scripted", model_name_or_path=name), "cpu")
    assert caught.value.value == name
