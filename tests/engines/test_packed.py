import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from engines import tiny_models

from stageb.engines.native import decoding, packed, products
from stageb.engines.native.decoding import Decoder
from stageb.engines.native.packed import Packed
from stageb.engines.native.rows import Answer, ScoreRequest
from stageb.engines.protocol import Decode, Row
from stageb.job import heartbeat

VOCABULARY = 300
SHARED = tuple(range(40, 60))
DECODE = Decode(temperature=1.0, max_new_tokens=9)
EOS = frozenset(range(0, VOCABULARY, 7))
SMALL: dict[str, Any] = {"vocab_size": VOCABULARY, "intermediate_size": 48, "num_hidden_layers": 3}
SMALL["max_position_embeddings"] = 256


@pytest.fixture(autouse=True)
def packs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows step packed on a CPU too."""
    torch.set_num_threads(1)
    monkeypatch.setattr(decoding, "STEPS_PACKED", {"cpu", "cuda"})
    yield


def text_of(ids: Any) -> str:
    return bytes(token % 256 for token in ids).decode("latin1")


def decoder(eos: frozenset[int] = frozenset(), kind: str = "qwen3") -> Decoder:
    return Decoder(tiny_models.model(kind, VOCABULARY), eos, text_of)


def plainly(work: Callable[[Decoder], Any], model: Any, eos: frozenset[int] = frozenset()) -> Any:
    """What comes of ``work`` where rows are not packed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "PACKS", set())
        return work(Decoder(model, eos, text_of))


def rows(count: int, decode: Decode = DECODE) -> list[Row]:
    """Rows of ragged lengths, each prompt in two rows."""
    return [Row(tuple(range(3, 4 + (place // 2) % 7)), decode, place) for place in range(count)]


def warmed(made: Any) -> Any:
    """A model of this config whose best token is the best by more than the last bits."""
    torch.manual_seed(0)
    made.initializer_range = 0.3
    return transformers.AutoModelForCausalLM.from_config(made).eval()


ODD = {
    "one key head": transformers.Qwen3Config(
        **SMALL,
        hidden_size=48,
        num_attention_heads=6,
        num_key_value_heads=1,
        head_dim=12,
        tie_word_embeddings=False,
    ),
    "a key head each": transformers.LlamaConfig(
        **SMALL, hidden_size=40, num_attention_heads=5, num_key_value_heads=5
    ),
    "three to one": transformers.Qwen2Config(
        **SMALL, hidden_size=48, num_attention_heads=6, num_key_value_heads=2
    ),
    "gemma": transformers.GemmaConfig(
        **SMALL,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=24,
        pad_token_id=None,
    ),
    "granite": transformers.GraniteConfig(
        **SMALL,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        attention_multiplier=0.3,
    ),
}


@pytest.mark.parametrize("made", ODD.values(), ids=ODD.keys())
def test_packed_answers_and_scores_are_the_plain_ones(made: Any) -> None:
    model = warmed(made)
    asked = rows(15)
    choices = [ScoreRequest(row.own, ((5, 6), (5, 7), (5,))) for row in asked]
    answers = plainly(lambda it: it.answers(SHARED, asked), model, EOS)
    scores = plainly(lambda it: it.scores(SHARED, choices), model)
    engine = Decoder(model, EOS, text_of)
    assert engine._packed is not None
    assert engine.answers(SHARED, asked) == answers
    for found, expected in zip(engine.scores(SHARED, choices), scores, strict=True):
        assert found == pytest.approx(expected, abs=1e-4)


HEADS: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
FLOAT8 = transformers.Qwen3Config(**SMALL, **HEADS, hidden_size=48)
MIXED = transformers.Qwen3MoeConfig(
    **SMALL,
    **HEADS,
    hidden_size=32,
    moe_intermediate_size=24,
    num_experts=4,
    num_experts_per_tok=2,
    decoder_sparse_step=1,
)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize(
    ("made", "fused"),
    [
        *((made, False) for made in ODD.values()),
        (MIXED, False),
        (ODD["one key head"], True),
        (ODD["gemma"], True),
    ],
    ids=[*ODD, "experts", "one key head, fused", "gemma, fused"],
)
def test_packed_answers_and_scores_on_a_gpu_are_the_plain_ones(
    made: Any, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "FUSE_FROM", 0 if fused else 1 << 62)
    monkeypatch.setattr(packed, "FEW", 4)
    model = warmed(made).to("cuda")
    asked = rows(15, replace(DECODE, max_new_tokens=30))
    choices = [ScoreRequest(row.own, ((5, 6), (5, 7), (5,))) for row in asked]
    answers = plainly(lambda it: it.answers(SHARED, asked), model, EOS)
    scores = plainly(lambda it: it.scores(SHARED, choices), model)
    engine = Decoder(model, EOS, text_of)
    # float32 experts sort on the host, which no graph captures
    assert engine._packed is not None or made is MIXED
    assert engine.answers(SHARED, asked) == answers
    for found, expected in zip(engine.scores(SHARED, choices), scores, strict=True):
        assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("quantized", [False, True])
def test_layers_are_compiled_once_for_all_batches(
    quantized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "FUSE_FROM", 0)
    compiled = torch._dynamo.utils.counters["stats"]
    model = warmed(FLOAT8 if quantized else ODD["a key head each"]).to("cuda")
    if quantized:
        products.quantize(model.bfloat16())
    engine = Decoder(model, EOS, text_of)
    engine.answers(SHARED, rows(15))
    before = compiled["unique_graphs"]
    for count in (3, 7, 30):  # the compiler takes a line of one token for a shape of its own
        engine.answers(SHARED, rows(count))
        engine.scores(SHARED, [ScoreRequest(row.own, ((5, 6), (5, 7))) for row in rows(count)])
    assert compiled["unique_graphs"] == before


def test_an_attention_that_asks_for_more_goes_the_plain_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = tiny_models.model("llama", VOCABULARY)
    attend = model.model.layers[1].self_attn.forward
    model.model.layers[1].self_attn.forward = lambda *given, **named: attend(
        *given, **named, tempering=5.0
    )
    expected = plainly(lambda it: it.answers(SHARED, rows(4)), model)
    with caplog.at_level(logging.WARNING):
        assert Decoder(model, frozenset(), text_of).answers(SHARED, rows(4)) == expected
    assert "not packed" in caplog.text
    assert "tempering" in caplog.text


def test_positions_that_a_model_makes_itself_go_the_plain_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = tiny_models.model("llama", VOCABULARY)
    forward = model.model.rotary_emb.forward
    model.model.rotary_emb.forward = lambda x, position_ids: forward(
        x, torch.arange(x.shape[1])[None]
    )
    with caplog.at_level(logging.WARNING):
        Decoder(model, frozenset(), text_of).answers(SHARED, rows(2))
    assert "logits differ" in caplog.text


def test_rows_that_end_leave_and_the_others_go_on_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed, "FEW", 0)
    asked = rows(16, replace(DECODE, max_new_tokens=40))
    kept, keep = [], packed._PackedRows.keep_rows

    def noted(
        batch: packed._PackedRows, rows: list[int], index: torch.Tensor
    ) -> packed._PackedRows:
        kept.append(len(rows))
        return keep(batch, rows, index)

    monkeypatch.setattr(packed._PackedRows, "keep_rows", noted)
    together = decoder(EOS).answers(SHARED, asked)
    assert len(kept) > 1
    assert together == [decoder(EOS).answers(SHARED, [row])[0] for row in asked]
    assert len({len(answer.ids) for answer in together}) > 5


@pytest.mark.parametrize(
    ("name", "value"), [("CHUNK_WHOLE", 9), ("ROWS", 3), ("STEPS_PER_LOOK", 1), ("CUT_ROWS", 2)]
)
def test_cuts_change_nothing(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    asked = rows(11, replace(DECODE, top_p=0.9)) + rows(
        5, replace(DECODE, temperature=0.0, max_new_tokens=4)
    )
    whole = decoder(EOS).answers(SHARED, asked)
    monkeypatch.setattr(packed, name, value)
    assert decoder(EOS).answers(SHARED, asked) == whole


def test_batches_hold_what_memory_holds_and_keep_prompts_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = decoder()._packed
    assert engine is not None
    asked = rows(30)[::-1]
    assert sorted(index for batch in engine.batches(asked) for index in batch) == list(range(30))
    (whole,) = engine.batches(asked)
    owns = [asked[index].own for index in whole]
    assert [len(own) for own in owns] == sorted(len(own) for own in owns)
    monkeypatch.setattr(engine, "_free_bytes", lambda: 30_000)
    assert 1 < len(list(engine.batches(asked))) < 30
    monkeypatch.setattr(engine, "_free_bytes", lambda: 1)
    assert [len(batch) for batch in engine.batches(asked)] == [1] * 30


class Card:
    """A GPU's memory, as torch tells of it, on a machine without one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, total: int) -> None:
        self.total = total
        self.used = 0
        self.cached = 0  # held by torch for later use
        monkeypatch.setattr(
            torch.cuda, "mem_get_info", lambda device: (total - self.used - self.cached, total)
        )
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: vars(self).update(cached=0))


def planned(engine: Packed, asked: list[Row]) -> list[int]:
    """How many rows each batch gets on a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_device", torch.device("cuda", 0))
        return [len(batch) for batch in engine.batches(asked)]


def test_what_another_model_holds_is_planned_around_from_the_next_call_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = decoder()._packed
    assert engine is not None
    asked = rows(30)
    card = Card(monkeypatch, total=400_000)
    assert planned(engine, asked) == [30]
    card.used = 300_000
    cut = planned(engine, asked)
    assert sum(cut) == 30
    # new tokens in two layers, and logits
    row_bytes = 9 * 2 * 2 * engine._like[0, :, 0].nbytes + 6 * VOCABULARY
    assert 50_000 < max(cut) * row_bytes < 100_000


def test_what_models_keep_for_later_use_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = decoder()._packed
    assert engine is not None
    card = Card(monkeypatch, total=400_000)
    card.cached = 390_000
    assert planned(engine, rows(30)) == [30]


def test_a_little_that_is_kept_does_not_move_the_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = decoder()._packed
    assert engine is not None
    card = Card(monkeypatch, total=320_000)
    cuts = []
    for used in (260_001, 265_000, 269_999):  # of the same 32nd of the memory
        card.used = used
        cuts.append(planned(engine, rows(60)))
    assert cuts[0] == cuts[1] == cuts[2]
    assert len(cuts[0]) > 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_two_models_share_a_gpu_without_running_out_of_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The second comes after the first has answered, as a model for reflection does, and takes half
    of the memory."""
    monkeypatch.setattr(packed, "FUSE_FROM", 1 << 62)
    made = transformers.LlamaConfig(
        **(SMALL | {"num_hidden_layers": 8, "max_position_embeddings": 1 << 15}),
        hidden_size=512, num_attention_heads=8, num_key_value_heads=8, head_dim=128,
    )  # fmt: skip
    first, second = (
        transformers.AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16).cuda()
        for _ in range(2)
    )
    total = torch.cuda.get_device_properties(0).total_memory
    per_row = 8 * 2 * 8 * 128 * 2 * 8192
    asked = rows(int(0.8 * total) // per_row, replace(DECODE, max_new_tokens=8192))
    # answers end at once; room is made for the whole of them
    closing = frozenset(range(1, VOCABULARY))
    with caplog.at_level(logging.WARNING):
        one = Decoder(first.eval(), closing, text_of)
        one.answers(SHARED, asked)
        second.ballast = torch.nn.Parameter(
            torch.empty(total // 2, dtype=torch.uint8, device="cuda"), requires_grad=False
        )
        other = Decoder(second.eval(), closing, text_of)
        for engine in (other, one, other, one):
            assert len(engine.answers(SHARED, asked)) == len(asked)
    assert [
        record.getMessage() for record in caplog.records if record.name.startswith("stageb")
    ] == []


def test_every_look_is_a_sign_of_life() -> None:
    engine, asked = decoder(), rows(6, replace(DECODE, max_new_tokens=41))
    engine.answers(SHARED, asked)
    before = heartbeat.now().count
    engine.answers(SHARED, asked)
    assert 10 <= heartbeat.now().count - before <= 13


def test_so_is_every_chunk_of_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asked = decoder(), rows(20, replace(DECODE, max_new_tokens=1))
    engine.answers(SHARED, asked)
    monkeypatch.setattr(packed, "CHUNK_WHOLE", 5)
    before = heartbeat.now().count
    engine.answers(SHARED, asked)
    assert heartbeat.now().count - before >= 5


def test_many_samples_of_one_prompt() -> None:
    asked = [Row((3, 4, 5), DECODE, key) for key in range(70)]
    assert decoder().answers(SHARED, asked) == plainly(
        lambda it: it.answers(SHARED, asked), tiny_models.model("qwen3", VOCABULARY)
    )


def test_stop_strings_and_the_end_of_the_context() -> None:
    free = decoder(kind="llama").answers(SHARED, rows(6, replace(DECODE, max_new_tokens=30)))
    stops = tuple(text_of(answer.ids[5:7]) for answer in free[:3])
    asked = rows(6, replace(DECODE, max_new_tokens=30, stop=stops))
    assert any(answer.finish == "stop" for answer in decoder(kind="llama").answers(SHARED, asked))
    long = [Row(tuple(1 for _ in range(512 - len(SHARED) - 2)), DECODE, 0), *asked]
    answers: list[Answer] = decoder(kind="llama").answers(SHARED, long)
    assert (len(answers[0].ids), answers[0].finish) == (2, "length")
    assert answers[1:] == decoder(kind="llama").answers(SHARED, asked)


def test_prompts_that_read_alike_with_answers_of_other_lengths_are_scored_each_for_itself() -> None:
    """(1, 2) and then (3, 4) is the text of (1, 2, 3) and then (4,), but keeps another number of
    places."""
    model = decoder()
    together = [ScoreRequest((1, 2), ((3, 4),)), ScoreRequest((1, 2, 3), ((4,),))]
    scores = model.scores(SHARED, together)
    alone = [score for each in together for score in model.scores(SHARED, [each])]
    assert [len(score) for score in scores] == [1, 1]
    assert [score[0] for score in scores] == pytest.approx([score[0] for score in alone], abs=1e-4)
    turned = model.scores(SHARED, together[::-1])[::-1]
    assert [score[0] for score in turned] == pytest.approx([score[0] for score in alone], abs=1e-4)
