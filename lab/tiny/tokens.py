"""The shipped model's tokenizer: byte-level BPE of 2,048 tokens, digits apart, a chat template of
four special tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from lab.tiny.examples import Row, rollout_row
from lab.tiny.lessons import lessons
from lab.tiny.worlds import draw_world

SYSTEM, USER, ASSISTANT, END = "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% "
    "endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# how servers find the answer: transformers' would take the template of its Qwen3 shape for another
# one
READS = {
    "defaults": {"role": "assistant"},
    "start_anchor": ASSISTANT,
    "fields": {"content": {"close": END, "content": "text"}},
}
VOCABULARY = 2048


def corpus(seed: int, rows: int) -> Iterator[str]:
    """Texts that a tokenizer is trained on: rows of both kinds."""
    rng = random.Random(seed)
    taught = lessons(rng, 1.0)
    for index in range(rows):
        row = rollout_row(rng, draw_world(rng)) if index % 2 else next(taught).row
        yield row.system
        for user, answer in row.segments:
            yield user
            yield answer


def train_tokenizer(seed: int, rows: int) -> Tokenizer:
    """A byte-level BPE tokenizer; digits stand alone, so that numbers can be compared digit by
    digit."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[SYSTEM, USER, ASSISTANT, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=16,
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(seed, rows), trainer)
    return tokenizer


def packaged(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """The tokenizer as transformers loads it."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, model_max_length=4096
    )
    fast.chat_template = TEMPLATE
    fast.response_template = READS
    return fast


class Encoder:
    """Rows to token ids. With ``dropout`` a part of the prompts is cut into unusual pieces (BPE
    dropout, Provilkov et al. 2020), so that copying does not hang on one way to cut a word; answers
    never are."""

    def __init__(self, path: Path, dropout: float = 0.1) -> None:
        self.plain = Tokenizer.from_file(str(path))
        self.rough = Tokenizer.from_file(str(path))
        self.rough.model.dropout = dropout

    def encode(
        self, row: Row, rng: random.Random, shared_user: bool, share: float = 0.35
    ) -> tuple[list[int], list[tuple[list[int], list[int]]]]:
        """Prefix ids, and for every segment (own ids, answer ids). ``shared_user``: the user text
        belongs to the prefix."""
        tokenizer = self.rough if rng.random() < share else self.plain
        prefix = tokenizer.encode(f"{SYSTEM}{row.system}{END}{USER}").ids
        if shared_user:
            prefix = prefix + tokenizer.encode(f"{row.segments[0][0]}{END}{ASSISTANT}").ids
        segments = []
        for user, answer in row.segments:
            own = [] if shared_user else tokenizer.encode(f"{user}{END}{ASSISTANT}").ids
            segments.append((own, self.plain.encode(answer + END).ids))
        return prefix, segments
