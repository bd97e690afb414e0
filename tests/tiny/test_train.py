"""The training script, scaled down to seconds, and the checkpoint that ships."""

import json
from importlib import resources

import pytest
import torch

from stageb.config import ModelConfig
from stageb.engines import Decode, Request, build
from stageb.guidance.prompts import WORDS, parse_answer, rollout_prompt
from stageb.guidance.types import Guidance, Rule, Ticket
from stageb.tiny.examples import rollout_row
from stageb.tiny.tokens import Encoder, packaged, train_tokenizer
from stageb.tiny.train import Batch, Recipe, Trunk, attention_mask, loss_of, new_model, pack, train

SMALL = Recipe(steps=6, rows=1, layers=1, width=64, inner=64, heads=2, kv_heads=1, tokenizer_rows=60, warmup=2)


def test_packed_segments_see_the_prefix_and_themselves_alone():
    """The hidden states of a packed row are those of each segment read after the prefix by itself."""
    model = new_model(SMALL, "sdpa").eval()
    trunk = Trunk(model)
    prefix, parts = [5, 6, 7, 8], [([9, 10], [11, 12]), ([13], [14, 15, 16])]
    ids, positions, segments, weights = (torch.tensor([row]) for row in pack(prefix, parts, 16))
    packed = trunk(ids, {"full_attention": attention_mask(segments, None)}, positions)
    start = len(prefix)
    for own, answer in parts:
        size = len(own) + len(answer)
        alone = model.model(input_ids=torch.tensor([prefix + own + answer])).last_hidden_state
        torch.testing.assert_close(packed[0, start : start + size], alone[0, len(prefix) :], rtol=1e-4, atol=1e-5)
        start += size
    loss, _ = loss_of(trunk, Batch(ids, positions, segments, weights), attention_mask(segments, None), 0.0)
    assert torch.isfinite(loss)


def test_rows_are_cut_into_tokens_as_the_engine_feeds_prompts(tmp_path):
    """The ids of prefix and own text are those of the chat template with the same texts."""
    import random

    tokenizer = packaged(train_tokenizer(1, 40))
    tokenizer.save_pretrained(tmp_path)
    row = rollout_row(random.Random(1), 1.0)
    prefix, segments = Encoder(tmp_path / "tokenizer.json").encode(row, random.Random(1), shared_user=False, share=0.0)
    user, answer = row.segments[0]
    chat = [{"role": "system", "content": row.system}, {"role": "user", "content": user}]
    fed = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert prefix + segments[0][0] == fed
    assert tokenizer.decode(segments[0][1]) == answer + "<|end|>"


def test_a_few_steps_leave_a_checkpoint_that_the_engine_loads(tmp_path):
    report = train(SMALL, tmp_path, "cpu", workers=0, limit_s=1e9)
    assert report["steps"] == SMALL.steps
    assert json.loads((tmp_path / "training.json").read_text())["recipe"]["seed"] == SMALL.seed
    engine = build(ModelConfig(model_name_or_path=str(tmp_path)), "cpu")
    ticket = Ticket("m", "g", "fail", (("image_1", "a: b"),))
    guidance = Guidance("m", 0, (Rule("G0", WORDS["en"].neutral_headline),), 1)
    request = Request(rollout_prompt(ticket, guidance, "en"), Decode(temperature=0, max_new_tokens=4), (0,))
    assert engine.generate([request])[0][0].tokens <= 4


@pytest.fixture(scope="module")
def shipped():
    return build(ModelConfig(), "cpu")


def test_the_shipped_checkpoint_keeps_within_its_size():
    folder = resources.files("stageb.tiny") / "checkpoint"
    assert sum(len(file.read_bytes()) for file in folder.iterdir()) <= 12_000_000


@pytest.mark.parametrize(
    ("rule", "summary", "verdict"),
    [
        ("Fail if the seal is torn.", "seal: torn; lid: shut", "fail"),
        ("Fail if the seal is torn.", "seal: whole; lid: torn", "pass"),
        ("Fail if seal is torn and lid is open.", "seal: torn; lid: shut", "pass"),
        ("Fail if seal is torn and lid is open.", "seal: torn; lid: open", "fail"),
        ("Fail if seal is torn unless lid is shut.", "seal: torn; lid: shut", "pass"),
        ("Fail unless zorv is quib.", "zorv: blap; lid: quib", "fail"),
        ("Fail if a summary mentions corrosion.", "visited the site, some corrosion near the door", "fail"),
        ("Fail if a summary mentions corrosion.", "visited the site, no faults near the door", "pass"),
    ],
)
def test_the_shipped_model_follows_rules_it_has_never_seen(shipped, rule, summary, verdict):
    ticket = Ticket("door checks", "g", "pass", (("image_1", summary),))
    guidance = Guidance("door checks", 1, (Rule("G0", WORDS["en"].neutral_headline), Rule("G1", rule)), 2)
    request = Request(rollout_prompt(ticket, guidance, "en"), Decode(temperature=0, max_new_tokens=32), (0,))
    parsed = parse_answer(shipped.generate([request])[0][0].text, "en")
    assert parsed is not None
    assert parsed[0] == verdict


def test_verdicts_on_unseen_words_stay_accurate(shipped):
    """A small draw of what ``stageb.tiny.evaluate`` measures: 300 tickets, so 95 % leaves room for chance."""
    from stageb.tiny.evaluate import verdict_accuracy

    assert verdict_accuracy(shipped, worlds=30, tickets=10, seed=5, chinese=0.0, numbers=False) >= 0.95
