"""The training script, scaled down to seconds, and the checkpoint that ships."""

import json
import random
from pathlib import Path

import pytest
import torch

from lab.tiny.evaluate import plain_row, verdict_accuracy
from lab.tiny.examples import rollout_row
from lab.tiny.packing import FULL, Packed, attention_mask, batch_of, fill, pack
from lab.tiny.tokens import Encoder, packaged, train_tokenizer
from lab.tiny.train import Recipe, Trunk, answer_loss, new_model, train
from lab.tiny.worlds import draw_world
from stageb.engines import Decode, Request, build
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Engine
from stageb.guidance.judging.answers import parse_answer
from stageb.guidance.rules.prompts import WORDS, rollout_prompt
from stageb.guidance.words.types import Guidance, Rule, Ticket, Verdict
from stageb.tiny import CHECKPOINT
from stageb.training.step import Muon

SMALL = Recipe(
    steps=4,
    rows=1,
    answers=900,
    layers=1,
    width=64,
    inner=64,
    heads=2,
    kv_heads=1,
    tokenizer_rows=60,
    warmup=2,
)


def test_packed_segments_see_their_prefix_and_themselves_alone() -> None:
    """The hidden states of packed documents are those of each segment read after its prefix by
    itself."""
    model = new_model(SMALL, "sdpa").eval()
    trunk = Trunk(model)
    documents = [
        ([5, 6, 7, 8], [([9, 10], [11, 12]), ([13], [14, 15, 16])]),
        ([17, 18], [([19], [20, 21])]),
    ]
    packed = [pack(prefix, parts, (), 16) for prefix, parts in documents]
    assert None not in packed
    (row,) = fill(
        iter([document for document in packed if document] + [Packed([0] * 99, [], [], [])] * FULL),
        1,
        20,
    )
    batch = batch_of([row], 20, 40)
    hidden = trunk(
        batch.ids, {"full_attention": attention_mask(batch.segments, None)}, batch.positions
    )
    start = 0
    for prefix, parts in documents:
        start += len(prefix)
        for own, answer in parts:
            size = len(own) + len(answer)
            alone = model.model(input_ids=torch.tensor([prefix + own + answer])).last_hidden_state
            torch.testing.assert_close(
                hidden[0, start : start + size], alone[0, len(prefix) :], rtol=1e-4, atol=1e-5
            )
            start += size
    loss, _ = answer_loss(hidden, trunk.weight, batch.spots, batch.targets, batch.weights)
    assert torch.isfinite(loss)


def test_only_answers_are_predicted_and_each_from_the_token_before_it() -> None:
    document = pack([5, 6], [([], [7, 8]), ([], [9, 10])], (1.5, 0.5), 16)
    assert document is not None
    batch = batch_of([document, document], 8, 10)
    predicted = [
        (int(s), int(t), float(w))
        for s, t, w in zip(batch.spots, batch.targets, batch.weights, strict=True)
        if w
    ]
    # the second answer's first token follows the prefix, which does not stand before it
    once = [(1, 7, 1.5), (2, 8, 1.5), (4, 10, 0.5)]
    assert predicted == once + [(spot + 8, target, weight) for spot, target, weight in once]


def test_documents_that_do_not_fit_are_cut_between_segments() -> None:
    assert pack([1] * 5, [([2], [3, 4]), ([2], [3, 4])], (), 9) == pack(
        [1] * 5, [([2], [3, 4])], (), 9
    )
    assert pack([1] * 5, [([2], [3, 4])], (), 7) is None


def test_muon_takes_the_steps_of_torchs_muon() -> None:
    """Apart from bfloat16, in which both make matrices orthogonal, each in an order of its own."""
    torch.manual_seed(0)
    mine = [
        torch.nn.Parameter(torch.randn(shape))
        for shape in ((16, 16), (8, 16), (24, 16), (16, 24), (16, 16))
    ]
    theirs = [torch.nn.Parameter(matrix.detach().clone()) for matrix in mine]
    start = [matrix.detach().clone() for matrix in mine]
    one = Muon(mine, 0.02, weight_decay=0.05)
    other = torch.optim.Muon(
        theirs, lr=0.02, weight_decay=0.05, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    for _ in range(5):
        for a, b in zip(mine, theirs, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        one.step()
        other.step()
    for before, a, b in zip(start, mine, theirs, strict=True):
        assert (a - b).norm() < 0.05 * (b - before).norm()


def test_rows_are_cut_into_tokens_as_the_engine_feeds_prompts(tmp_path: Path) -> None:
    """The ids of prefix and own text are those of the chat template with the same texts."""
    tokenizer = packaged(train_tokenizer(1, 40))
    tokenizer.save_pretrained(tmp_path)
    rng = random.Random(1)
    row = rollout_row(rng, draw_world(rng))
    prefix, segments = Encoder(tmp_path / "tokenizer.json").encode(
        row, random.Random(1), shared_user=False, share=0.0
    )
    user, answer = row.segments[0]
    chat = [{"role": "system", "content": row.system}, {"role": "user", "content": user}]
    fed = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert prefix + segments[0][0] == fed
    assert tokenizer.decode(segments[0][1]) == answer + "<|end|>"


@pytest.mark.slow
def test_a_few_steps_leave_a_checkpoint_that_the_engine_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.tiny.train.SCORED", 1)
    report = train(SMALL, tmp_path, "cpu", workers=0, limit_s=1e9)
    assert report["steps"] == SMALL.steps
    assert json.loads((tmp_path / "training.json").read_text())["recipe"]["seed"] == SMALL.seed
    further = tmp_path / "further"
    assert (
        train(SMALL, further, "cpu", workers=0, limit_s=1e9, start=tmp_path)["started_from"][
            "steps"
        ]
        == SMALL.steps
    )
    engine = build(ModelConfig(model_name_or_path=str(further)), "cpu")
    ticket = Ticket("m", "g", "fail", (("image_1", "a: b"),))
    guidance = Guidance("m", 0, (Rule("G0", WORDS["en"].neutral_headline),), 1)
    request = Request(
        rollout_prompt(ticket, guidance, WORDS["en"]), Decode(temperature=0, max_new_tokens=4), (0,)
    )
    assert engine.generate([request])[0][0].tokens <= 4


@pytest.fixture(scope="module")
def shipped() -> Engine:
    return build(ModelConfig(), "cpu")


def test_the_shipped_checkpoint_keeps_within_its_size() -> None:
    assert sum(len(file.read_bytes()) for file in CHECKPOINT.iterdir()) <= 12_000_000


@pytest.mark.parametrize(
    ("rule", "summary", "verdict"),
    [
        ("Fail if the seal is torn.", "seal: torn; lid: shut", "fail"),
        ("Fail if the seal is torn.", "seal: whole; lid: torn", "pass"),
        ("Fail if seal is torn and lid is open.", "seal: torn; lid: shut", "pass"),
        ("Fail if seal is torn and lid is open.", "seal: torn; lid: open", "fail"),
        ("Fail if seal is torn unless lid is shut.", "seal: torn; lid: shut", "pass"),
        ("Fail unless zorv is quib.", "zorv: blap; lid: quib", "fail"),
        (
            "Fail if a summary mentions corrosion.",
            "visited the site, some corrosion near the door",
            "fail",
        ),
        (
            "Fail if a summary mentions corrosion.",
            "visited the site, no faults near the door",
            "pass",
        ),
    ],
)
def test_the_shipped_model_follows_unseen_rules(
    shipped: Engine, rule: str, summary: str, verdict: Verdict
) -> None:
    ticket = Ticket("door checks", "g", "pass", (("image_1", summary),))
    guidance = Guidance(
        "door checks", 1, (Rule("G0", WORDS["en"].neutral_headline), Rule("G1", rule)), 2
    )
    request = Request(
        rollout_prompt(ticket, guidance, WORDS["en"]),
        Decode(temperature=0, max_new_tokens=32),
        (0,),
    )
    parsed = parse_answer(shipped.generate([request])[0][0].text, WORDS["en"])
    assert parsed is not None
    assert parsed[0] == verdict


@pytest.mark.slow
def test_verdicts_on_unseen_words_stay_accurate(shipped: Engine) -> None:
    """A small draw of what ``lab.tiny.evaluate`` measures, without brackets, which the checkpoint
    has never learnt."""
    rng = random.Random(5)
    rows = (plain_row(rng, 10, 0.0) for _ in range(90))
    known = [
        row
        for row in rows
        if not any(bracket in user for user, _ in row.segments for bracket in ")]")
    ]
    assert len(known) >= 20
    assert verdict_accuracy(shipped, known[:25]) >= 0.8
