"""Workloads: which tickets are answered how often, and by which model. One definition that every
engine is put to.

Prompts are either *demo* ones, the tickets in the package as ``stageb fit`` renders them under a
neutral headline, or *made* ones, random words of a tokenizer in which every token is one word: so
their lengths in tokens are exactly those asked for, whatever the model's size. That tokenizer has
no closing token, hence every answer to a made prompt has ``new_tokens`` tokens. *Run* ones are
tickets under guidance that a run has learnt, as its rounds put them to an instruct model: verdicts
are begun, and with one new token nothing else is asked for.

A model is a checkpoint, or a shape from ``SHAPES``, made on the device with random weights:
throughput does not depend on what the weights say, and nothing need be downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen3Config,
)
from transformers.utils.logging import disable_progress_bar

from stageb.config import require
from stageb.demo import TICKETS
from stageb.engines.protocol import Decode, Prompt, Request
from stageb.guidance.config import PromptConfig
from stageb.guidance.judging.rollout import group_size
from stageb.guidance.rules.prompts import WORDS, rollout_prompt, words_of
from stageb.guidance.rules.read_guidance import make_neutral, read_guidance
from stageb.guidance.tickets.tickets import read_tickets
from stageb.seeds import bits, stream
from stageb.tiny import CHECKPOINT
from stageb.tiny import NAME as TINY

CHAT_VARIABLES = {"enable_thinking": False}
WEIGHTS_SEED = 17

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-4b": {
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 9728,
        "vocab_size": 151936,
    },
    "small": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "vocab_size": 512,
    },
}


@dataclass(frozen=True, slots=True)
class Workload:
    """Tickets to answer, and the model that answers."""

    model: str  # a name in SHAPES (random weights), or what model.model_name_or_path takes
    prompts: Literal["demo", "made", "run"]
    tickets: int
    samples: int  # per ticket
    new_tokens: int  # of one answer, at most; exactly, for made prompts
    temperature: float
    batch: int  # tickets handed to an engine at once (sampler.micro_batch_size)
    shared_tokens: int = 0  # of made prompts: what all tickets share
    own_tokens: int = 0  # of made prompts: what is a ticket's own
    # as model.torch_dtype; auto for a shape: bfloat16 on a GPU, float32 on a CPU
    dtype: str = "auto"
    seed: int = 17  # names the streams of prompts and samples
    guidance: str = ""  # of run prompts: the run's folder, or a guidance.json
    data: str = ""  # of run prompts: the file of its tickets

    def __post_init__(self) -> None:
        for name in ("tickets", "samples", "new_tokens", "batch"):
            require(
                getattr(self, name) >= 1,
                f"--{name.replace('_', '-')}",
                getattr(self, name),
                "at least 1",
            )
        require(
            self.temperature > 0,
            "--temperature",
            self.temperature,
            "above 0; the check is greedy by itself",
        )
        made = self.prompts == "made"
        require(
            made == (self.model in SHAPES),
            "--model",
            self.model,
            f"made prompts take a shape ({', '.join(SHAPES)})",
        )
        require(not made or self.own_tokens >= 1, "--own-tokens", self.own_tokens, "at least 1")


RUN_WORDS = words_of(PromptConfig(style="instruct", prefill=True))
DEMO_GROUP = group_size(round_size=64, per_rank=32, micro_batch_size=32)

WORKLOADS = {
    # An epoch's draw of the demo, in the groups that its rounds of 64 are cut into.
    "demo-cpu": Workload(
        TINY, "demo", tickets=96, samples=3, new_tokens=40, temperature=0.7, batch=DEMO_GROUP
    ),
    "4b-shared": Workload(
        "qwen3-4b",
        "made",
        tickets=128,
        samples=4,
        new_tokens=128,
        temperature=0.7,
        batch=512,
        shared_tokens=1000,
        own_tokens=500,
    ),
    # An epoch's draw under one-gpu.yaml, in the groups of its rounds.
    "run": Workload(
        TINY,
        "run",
        tickets=512,
        samples=1,
        new_tokens=128,
        temperature=0.7,
        batch=group_size(256, 256, 128),
    ),
    "small": Workload(
        "small",
        "made",
        tickets=16,
        samples=2,
        new_tokens=16,
        temperature=0.7,
        batch=8,
        shared_tokens=32,
        own_tokens=16,
    ),
}


def prompts_of(workload: Workload) -> list[Prompt]:
    """The prompts, one per ticket."""
    if workload.prompts == "made":
        vocabulary = SHAPES[workload.model]["vocab_size"]
        shared = _words(stream("shared", workload.seed), workload.shared_tokens, vocabulary)
        return [
            Prompt(
                shared,
                _words(stream("own", workload.seed, ticket), workload.own_tokens, vocabulary),
            )
            for ticket in range(workload.tickets)
        ]
    if workload.prompts == "run":
        require(
            bool(workload.guidance and workload.data),
            "--guidance",
            workload.guidance,
            "one, and its tickets as --data",
        )
        (guidance,) = read_guidance(workload.guidance).values()
        shown = {each.source for each in guidance.shown}
        tickets = [
            ticket
            for ticket in read_tickets([workload.data], "error")[0]
            if ticket.key not in shown
        ]
        return [
            rollout_prompt(ticket, guidance, RUN_WORDS) for ticket in tickets[: workload.tickets]
        ]
    tickets, _ = read_tickets([TICKETS], "error")
    require(
        workload.tickets <= len(tickets),
        "--tickets",
        workload.tickets,
        f"the demo has {len(tickets)} tickets",
    )
    by_mission: dict[str, list[Any]] = {}
    for ticket in tickets:
        by_mission.setdefault(ticket.mission, []).append(ticket)
    mixed = [ticket for alike in zip(*by_mission.values(), strict=False) for ticket in alike]
    return [
        rollout_prompt(ticket, make_neutral(ticket.mission, WORDS["en"]), WORDS["en"])
        for ticket in mixed[: workload.tickets]
    ]


def requests_of(
    workload: Workload, prompts: Sequence[Prompt], positions: Sequence[int], greedy: bool
) -> list[Request]:
    """Return the requests for the tickets at ``positions``: ``samples`` keyed ones each, or one
    greedy one."""
    decode = Decode(
        temperature=0.0 if greedy else workload.temperature, max_new_tokens=workload.new_tokens
    )
    samples = 1 if greedy else workload.samples
    begin = RUN_WORDS.begin if workload.prompts == "run" else ""
    return [
        Request(
            prompts[i],
            decode,
            tuple(stream("bench", workload.seed, i, sample) for sample in range(samples)),
            begin,
        )
        for i in positions
    ]


def batches_of(prompts: Sequence[Prompt], positions: Sequence[int], size: int) -> list[list[int]]:
    """``positions`` as a round of the loop cuts them: one system text a batch, longest first,
    ``size`` at most."""
    by_system: dict[str, list[int]] = {}
    for i in sorted(positions, key=lambda i: (-len(prompts[i].user), i)):
        by_system.setdefault(prompts[i].system, []).append(i)
    return [
        alike[start : start + size]
        for alike in by_system.values()
        for start in range(0, len(alike), size)
    ]


def _words(key: int, count: int, vocabulary: int) -> str:
    return " ".join(f"w{bits(key, place) % vocabulary}" for place in range(count))


# Models -------------------------------------------------------------------------------------------


def folder_of(name: str) -> str:
    """Return the path or name that transformers loads where a config says ``name``."""
    return str(CHECKPOINT if name == TINY else Path(name).expanduser())


def config_of(workload: Workload) -> Any:
    """The model's config, as transformers has it."""
    if workload.model not in SHAPES:
        return AutoConfig.from_pretrained(folder_of(workload.model))
    shape = SHAPES[workload.model]
    room = workload.shared_tokens + workload.own_tokens + workload.new_tokens
    return Qwen3Config(
        **shape,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=None,
        tie_word_embeddings=True,
        max_position_embeddings=max(4096, room + 1),
        architectures=["Qwen3ForCausalLM"],
        dtype="bfloat16",
    )


def tokenizer_of(workload: Workload) -> Any:
    """The tokenizer: the checkpoint's own, or one whose tokens are the words w0, w1, ..."""
    if workload.model not in SHAPES:
        return AutoTokenizer.from_pretrained(folder_of(workload.model))
    words = {f"w{i}": i for i in range(SHAPES[workload.model]["vocab_size"])}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made)


def model_of(workload: Workload, device: str) -> Any:
    """The model on ``device``, in eval mode. Random weights are the same for the same kind of
    device and dtype."""
    disable_progress_bar()
    dtype = dtype_of(workload, device)
    if workload.model in SHAPES:
        torch.manual_seed(WEIGHTS_SEED)
        with torch.device(device):
            made: Any = AutoModelForCausalLM.from_config(config_of(workload), dtype=dtype)
            return made.eval()
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder_of(workload.model), dtype=dtype)
    return loaded.to(device).eval()


def dtype_of(workload: Workload, device: str) -> torch.dtype:
    """Return the type of the weights."""
    name = workload.dtype
    if name == "auto":
        name = "float32" if device.startswith("cpu") else "bfloat16"
    dtype: torch.dtype = getattr(torch, name)
    return dtype
