import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from engines import tiny_models

from stageb.engines.native import decoding, memory, stepping
from stageb.engines.native.decoding import Decoder
from stageb.engines.native.rows import Answer, ScoreRequest
from stageb.engines.protocol import Decode, Row
from stageb.errors import EngineError
from stageb.job import heartbeat

VOCABULARY = 300
SHARED = tuple(range(40, 60))
DECODE = Decode(temperature=1.0, max_new_tokens=9)


def decoder(kind: str = "qwen3", eos: frozenset[int] = frozenset()) -> Decoder:
    torch.set_num_threads(1)
    return Decoder(
        tiny_models.model(kind, VOCABULARY),
        eos,
        lambda ids: bytes(token % 256 for token in ids).decode("latin1"),
    )


def rows(count: int, decode: Decode = DECODE) -> list[Row]:
    """Rows of ragged lengths, each prompt in two rows."""
    return [Row(tuple(range(3, 4 + (place // 2) % 7)), decode, place) for place in range(count)]


def alone(asked: list[Row], kind: str = "qwen3", eos: frozenset[int] = frozenset()) -> list[Answer]:
    return [decoder(kind, eos).answers(SHARED, [row])[0] for row in asked]


def test_rows_that_end_leave_and_the_others_go_on_unchanged() -> None:
    eos = frozenset(range(0, VOCABULARY, 7))
    asked = rows(16, replace(DECODE, max_new_tokens=40))
    together = decoder(eos=eos).answers(SHARED, asked)
    assert together == alone(asked, eos=eos)
    assert len({len(answer.ids) for answer in together}) > 5
    assert all(
        answer.ids[-1] in eos and not eos & set(answer.ids[:-1])
        for answer in together
        if answer.finish == "stop"
    )


def test_each_row_has_its_own_limit_and_setting() -> None:
    settings = [
        Decode(temperature=0.0, max_new_tokens=2),
        Decode(top_p=0.5, max_new_tokens=50),
        Decode(top_k=5),
        DECODE,
    ]
    asked = [replace(row, decode=settings[place % 4]) for place, row in enumerate(rows(12))]
    together = decoder().answers(SHARED, asked)
    assert [len(answer.ids) for answer in together] == [row.decode.max_new_tokens for row in asked]
    assert together == alone(asked)


def test_calls_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = rows(20)
    whole = decoder().answers(SHARED, asked)
    monkeypatch.setattr(memory, "ROWS", 7)
    assert decoder().answers(SHARED, asked) == whole
    monkeypatch.setattr(memory, "TOKENS", 100)  # three rows of some thirty
    assert decoder().answers(SHARED, asked) == whole
    monkeypatch.setattr(memory, "TOKENS", 1)
    assert decoder().answers(SHARED, asked) == whole


def test_looking_less_often_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    eos, asked = frozenset(range(0, VOCABULARY, 7)), rows(16, replace(DECODE, max_new_tokens=30))
    each_step = decoder(eos=eos).answers(SHARED, asked)
    monkeypatch.setattr(stepping, "STEPS_PER_LOOK", {"cpu": 4})  # as on a GPU
    assert decoder(eos=eos).answers(SHARED, asked) == each_step


@pytest.mark.parametrize("shared", [SHARED, ()])
@pytest.mark.parametrize("samples", [1, 2])  # of a prompt; several share its keys and values
def test_drafts_save_passes_and_change_no_answer(
    shared: tuple[int, ...], samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is drafted: what comes, what comes up to a place, or anything else."""
    eos = frozenset(range(0, VOCABULARY, 29))
    asked = [
        replace(row, decode=replace(DECODE, max_new_tokens=30 + place))
        for place, row in enumerate(rows(12))
    ]
    asked = asked[:: 3 - samples]
    plain = decoder(eos=eos).answers(shared, asked)
    known = {
        answer.ids[:count]: answer.ids for answer in plain for count in range(1, len(answer.ids))
    }
    passes: list[int] = []
    forward = Decoder._forward

    def counted(self: Decoder, *given: Any, **more: Any) -> torch.Tensor:
        passes.append(1)
        return forward(self, *given, **more)

    monkeypatch.setattr(Decoder, "_forward", counted)

    def drafted(right: int, wrong: int) -> int:
        """Passes with drafts of so many right tokens, and wrong ones behind them, now and then."""
        passes.clear()

        def draft(ids: Sequence[int]) -> tuple[int, ...]:
            coming = known[tuple(ids)][len(ids) : len(ids) + (right if len(ids) % 3 else 0)]
            return (*coming, *(1,) * (wrong if len(ids) % 2 else 0))

        assert decoder(eos=eos).answers(shared, asked, draft=draft) == plain
        return len(passes)

    assert any(answer.finish == "stop" for answer in plain) and any(
        answer.finish == "length" for answer in plain
    )
    alone = drafted(0, 0)
    assert drafted(0, 3) == alone
    assert drafted(5, 2) < 0.5 * alone
    assert drafted(99, 0) < 0.3 * alone


def test_nothing_shared() -> None:
    asked = rows(6)
    whole = [replace(row, own=SHARED + row.own) for row in asked]
    assert decoder().answers((), whole) == decoder().answers(SHARED, asked)


def test_what_is_kept_changes_nothing() -> None:
    engine, asked = decoder(), rows(5)
    texts = [(*SHARED, last) for last in range(decoding.SHARED + 3)]
    fresh = [decoder().answers(text, asked) for text in texts]
    for _ in range(2):
        assert [engine.answers(text, asked) for text in texts] == fresh


def test_a_prompt_as_long_as_the_context() -> None:
    engine = decoder("llama")  # of 512 tokens
    almost = Row(tuple(1 for _ in range(512 - len(SHARED) - 2)), DECODE, 0)
    short = Row((5, 6), replace(DECODE, max_new_tokens=12), 1)
    answers = engine.answers(SHARED, [almost, short])
    assert (len(answers[0].ids), answers[0].finish) == (2, "length")  # what there is room for
    assert answers[1] == alone([short], "llama")[0]
    with pytest.raises(EngineError, match=r"512 tokens leaves no room"):
        engine.answers(SHARED, [replace(almost, own=(*almost.own, 1, 1))])


def test_weights_that_are_not_numbers() -> None:
    model = tiny_models.model("llama", VOCABULARY)
    with torch.no_grad():
        model.lm_head.weight[3] = torch.nan
    with pytest.raises(EngineError, match="not numbers"):
        Decoder(model, frozenset(), lambda ids: "").answers(SHARED, rows(2))


def short_of_memory(limit: int) -> Decoder:
    """A decoder whose device holds ``limit`` rows."""
    model = tiny_models.model("qwen3", VOCABULARY)

    def refuse(module: Any, args: Any, inputs: dict[str, Any]) -> None:
        if len(inputs["input_ids"]) > limit:
            raise torch.cuda.OutOfMemoryError("no memory left")

    model.register_forward_pre_hook(refuse, with_kwargs=True)
    return Decoder(model, frozenset(), lambda ids: "")


def test_a_batch_that_does_not_fit_is_halved(caplog: pytest.LogCaptureFixture) -> None:
    asked = rows(20)
    with caplog.at_level(logging.WARNING):
        answers = short_of_memory(6).answers(SHARED, asked)
    assert answers == decoder().answers(SHARED, asked)
    assert "going on with 10" in caplog.text
    with pytest.raises(EngineError, match="does not fit"):
        short_of_memory(0).answers(SHARED, asked)


@pytest.mark.parametrize("kind", ["qwen3", "mistral"])  # the latter reads padded
def test_every_step_is_a_sign_of_life(kind: str) -> None:
    engine, asked = decoder(kind), rows(6)
    engine.answers(SHARED, asked)
    before = heartbeat.now().count
    engine.answers(
        SHARED, [replace(row, decode=replace(DECODE, max_new_tokens=30)) for row in asked]
    )
    assert 30 <= heartbeat.now().count - before <= 40
    before = heartbeat.now().count
    engine.scores(SHARED, [ScoreRequest(row.own, ((5, 6), (5, 7))) for row in asked])
    assert heartbeat.now().count > before


def test_so_is_going_on_with_less(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def refuse(engine: Decoder, shared: Any, given: list[Row], draft: Any) -> list[Answer]:
        seen.append(heartbeat.now().count)
        if len(given) > 2:
            raise torch.cuda.OutOfMemoryError("no memory left")
        return [Answer((1,), "length")] * len(given)

    monkeypatch.setattr(Decoder, "_answer_batch", refuse)
    decoder().answers(SHARED, rows(8))
    assert seen[0] < seen[1] < seen[2]


@pytest.mark.parametrize("kind", ["qwen3", "mistral"])  # read packed, and padded
def test_the_chance_of_every_token_of_an_answer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = decoder(kind)
    asked = rows(6, replace(DECODE, max_new_tokens=5))
    choices = [
        ScoreRequest(row.own, (answer.ids,))
        for row, answer in zip(asked, made.answers(SHARED, asked), strict=True)
    ]
    chances = made.chances(SHARED, choices)
    assert [len(each) for each in chances] == [5] * 6
    for each, (score,) in zip(chances, made.scores(SHARED, choices), strict=True):
        assert sum(each) == pytest.approx(score, abs=1e-4)
    monkeypatch.setattr(decoding, "LOGITS", 1)  # one at a time
    assert [pytest.approx(each, abs=1e-4) for each in made.chances(SHARED, choices)] == chances


def test_new_weights_are_used_once_the_old_ones_are_forgotten() -> None:
    made, asked = decoder(), rows(4, replace(DECODE, temperature=0.0))
    made.answers(SHARED, asked)
    made._model.load_state_dict(tiny_models.model("qwen3", VOCABULARY, seed=1).state_dict())
    made.forget()
    other = Decoder(tiny_models.model("qwen3", VOCABULARY, seed=1), frozenset(), str)
    assert made.answers(SHARED, asked) == other.answers(SHARED, asked)


def test_answers_of_any_common_beginning_are_weighed_together_as_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoding, "PACKS", set())
    choices = [ScoreRequest((3,), ((5, 6, 7), (5, 6, 8))), ScoreRequest((3, 4), ((5, 6), (5, 7)))]
    engine = decoder()
    for together, choice in zip(engine.scores(SHARED, choices), choices, strict=True):
        assert together == pytest.approx(engine.scores(SHARED, [choice])[0], abs=1e-4)
