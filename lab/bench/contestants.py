"""Contestants: ways to get the same answers from the same model, each behind the part of ``Engine``
that is timed.

``ours`` is the engine of the package. The others are what one would write with transformers or vLLM
alone; they read the very same token ids, since prompts are encoded here as the engine encodes them.

- ``generate``: ``model.generate`` with padding, one sample per row, 16 rows at a time.
- ``generate-n``: the same with ``num_return_sequences``, 64 rows at a time.
- ``vllm-n``: vLLM as one would call it without keys, one request per ticket with ``n`` samples;
  with its defaults, ``-tuned`` (all rows step together), and with its older runner, which reads a
  common prefix once (``-cascade``).

- ``rounds``, of run prompts: ``ours`` as rounds ask it, which draw verdicts by their probabilities.
- ``vllm-run``, of run prompts: vLLM, tuned, a verdict being one token among two; what is asked for
  behind it is in the same request (``-run``), or, ended where its line ends, in a further one
  (``-run-lines``); ``-run-cascade`` as above.

``-fp8`` is the same in float8; of vLLM it is the last of these, its fastest.

The engine is asked for ``batch`` tickets at a time, as the loops ask it, the others for a rank's
whole share. None of these has keys: their draws come from the global generator, seeded once per
call, and depend on the batch.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol
from unittest import mock

import torch
from transformers import GenerationConfig

from lab.bench.workloads import (
    CHAT_VARIABLES,
    RUN_WORDS,
    SHAPES,
    Workload,
    config_of,
    folder_of,
    model_of,
    tokenizer_of,
)
from stageb import engines
from stageb.config import require
from stageb.engines.chat import Chat
from stageb.engines.config import ModelConfig
from stageb.engines.native import products
from stageb.engines.native.transformers import TransformersEngine
from stageb.engines.protocol import Completion, Decode, Engine, Request
from stageb.guidance.judging.answers import sample_answers, sample_verdicts
from stageb.guidance.rules.prompts import REASON, verdict_lines
from stageb.guidance.words.types import UNCALIBRATED

GENERATE_ROWS = 16
GENERATE_N_ROWS = 64


class Answers(Protocol):
    """The part of ``Engine`` that is timed."""

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """Answer every request."""
        ...


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to answer."""

    load: Callable[[Workload, str], Answers]  # (workload, torch device string)
    keyed: bool  # a sample depends on its key and not on the batch
    # asked as the loops ask an engine; otherwise it gets a rank's whole share at once
    in_batches: bool
    # random weights of its own: its answers to made prompts are not those of the others
    own_weights: bool = False


class Generate:
    """The usual loop over ``model.generate``: prompts padded on the left, ``rows`` answers at a
    time.

    ``samples_share``: a prompt stands once and is repeated by ``num_return_sequences``.
    """

    def __init__(self, model: Any, tokenizer: Any, rows: int, samples_share: bool) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._chat = Chat(tokenizer, CHAT_VARIABLES)
        self._rows = rows
        self._samples_share = samples_share

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """See ``Answers``. All requests of a call must ask for the same decode and the same number
        of samples."""
        samples = len(requests[0].keys)
        each = samples if self._samples_share else 1
        prompts = [
            joined(self._chat, request) for request in requests for _ in range(samples // each)
        ]
        torch.manual_seed(requests[0].keys[0])
        step = max(1, self._rows // each)
        found: list[Completion] = []
        for start in range(0, len(prompts), step):
            found += self._batch(prompts[start : start + step], requests[0], each)
        return grouped(found, samples)

    @torch.inference_mode()
    def _batch(self, prompts: list[list[int]], like: Request, each: int) -> list[Completion]:
        longest = max(map(len, prompts))
        device = self._model.device
        ids = torch.tensor(
            [[0] * (longest - len(prompt)) + prompt for prompt in prompts], device=device
        )
        mask = torch.tensor(
            [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device
        )
        settings = generation_config(self._model, self._tokenizer, like, num_return_sequences=each)
        whole = self._model.generate(ids, attention_mask=mask, generation_config=settings)
        closing = set(settings.eos_token_id or ())
        return [completion(self._tokenizer, row, closing) for row in whole[:, longest:].tolist()]


def forget(held: Answers) -> None:
    """Have a contestant forget the tickets of earlier passes, which a run would never ask for
    again: vLLM's cache of prefixes keeps all of them."""
    if isinstance(held, VllmN):
        held.llm.reset_prefix_cache()


class VllmN:
    """vLLM without keys: one request per ticket, all its samples at once."""

    def __init__(self, llm: Any, tokenizer: Any) -> None:
        self.llm = llm
        self.sampling_params = importlib.import_module("vllm").SamplingParams
        self._tokenizer = tokenizer
        self._chat = Chat(tokenizer, CHAT_VARIABLES)

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """See ``Answers``. All requests of a call must ask for the same decode and the same number
        of samples."""
        decode = requests[0].decode
        params = self.sampling_params(
            n=len(requests[0].keys),
            temperature=decode.temperature,
            max_tokens=decode.max_new_tokens,
            detokenize=False,
        )
        prompts = [{"prompt_token_ids": joined(self._chat, request)} for request in requests]
        outputs = self.llm.generate(prompts, [params] * len(prompts), use_tqdm=False)
        return [tuple(self._completion(one) for one in output.outputs) for output in outputs]

    def close(self) -> None:
        """Give the memory back."""
        self.llm.llm_engine.engine_core.shutdown()

    def _completion(self, output: Any) -> Completion:
        ids = list(output.token_ids)
        text = self._tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return Completion(text, len(ids), output.finish_reason)


class VllmRun(VllmN):
    """vLLM with run prompts, whose answers are begun."""

    def __init__(self, llm: Any, tokenizer: Any, in_lines: bool) -> None:
        super().__init__(llm, tokenizer)
        self._in_lines = in_lines
        begun = len(self._chat.encode_answer(RUN_WORDS.begin))
        self._verdicts = [
            self._chat.encode_answer(line)[begun:] for line in verdict_lines(RUN_WORDS).values()
        ]

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """See ``Answers``. All requests of a call must ask for the same decode and the same number
        of samples."""
        decode, count = requests[0].decode, len(requests[0].keys)
        prompts = [
            joined(self._chat, request) + list(self._chat.encode_answer(request.begin))
            for request in requests
        ]
        one_token = {"max_tokens": 1, "allowed_token_ids": [token for (token,) in self._verdicts]}
        if decode.max_new_tokens == 1:
            return grouped(self._asked(prompts, decode, count, one_token), count)
        if not self._in_lines:
            return grouped(
                self._asked(prompts, decode, count, {"max_tokens": decode.max_new_tokens}), count
            )
        verdicts = self._asked(prompts, decode, count, one_token)
        opening = self._chat.encode_answer(f"\n{REASON}")
        begun = [
            prompts[place // count] + [*verdict.ids, *opening]
            for place, verdict in enumerate(verdicts)
        ]
        line = {"max_tokens": decode.max_new_tokens, "stop": ["\n"], "detokenize": True}
        return grouped(self._asked(begun, decode, 1, line), count)

    def _asked(
        self, prompts: list[list[int]], decode: Decode, count: int, how: dict[str, Any]
    ) -> list[Completion]:
        params = self.sampling_params(
            **{"n": count, "temperature": decode.temperature, "detokenize": False} | how
        )
        typed = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self.llm.generate(typed, [params] * len(prompts), use_tqdm=False)
        return [
            replace(self._completion(one), ids=tuple(one.token_ids))
            for output in outputs
            for one in output.outputs
        ]


class Rounds:
    """The default engine with run prompts, as rounds ask it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """See ``Answers``. All requests of a call must ask for the same decode."""
        sample = sample_verdicts if requests[0].decode.max_new_tokens == 1 else sample_answers
        return sample(requests, self._engine, RUN_WORDS, [UNCALIBRATED] * len(requests))


def generation_config(model: Any, tokenizer: Any, like: Request, **more: Any) -> GenerationConfig:
    """``like``'s decode in transformers' words; nothing is left to defaults, which cut at the 50
    best tokens."""
    named = model.generation_config.eos_token_id
    several = named if isinstance(named, list) else [named]
    closing = sorted({token for token in (*several, tokenizer.eos_token_id) if token is not None})
    greedy = like.decode.temperature == 0
    sampling = {} if greedy else {"temperature": like.decode.temperature, "top_k": 0, "top_p": 1.0}
    return GenerationConfig(
        do_sample=not greedy,
        max_new_tokens=like.decode.max_new_tokens,
        eos_token_id=closing or None,
        pad_token_id=closing[0] if closing else 0,
        **sampling,
        **more,
    )


def joined(chat: Chat, request: Request) -> list[int]:
    """The ids of a request's prompt."""
    shared, own = chat.encode(request.prompt)
    return [*shared, *own]


def completion(tokenizer: Any, ids: list[int], closing: set[int]) -> Completion:
    """The answer that ``ids`` hold, up to the first closing one."""
    end = next((place for place, token in enumerate(ids, 1) if token in closing), None)
    ids = ids[:end]
    text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return Completion(text, len(ids), "stop" if end else "length")


def grouped(found: Sequence[Completion], samples: int) -> list[tuple[Completion, ...]]:
    """Answers in a row as one tuple per request."""
    return [tuple(found[start : start + samples]) for start in range(0, len(found), samples)]


def _ours_in_float8(workload: Workload, device: str) -> Answers:
    require(workload.model in SHAPES, "--engines", "ours-fp8", "a shape with random weights")
    model = model_of(workload, device)
    products.quantize(model)
    return TransformersEngine(model, Chat(tokenizer_of(workload), CHAT_VARIABLES))


def _ours(workload: Workload, device: str) -> Answers:
    if workload.model in SHAPES:
        return TransformersEngine(
            model_of(workload, device), Chat(tokenizer_of(workload), CHAT_VARIABLES)
        )
    return engines.build(
        ModelConfig(model_name_or_path=workload.model, torch_dtype=workload.dtype), device
    )


def _rounds(workload: Workload, device: str) -> Answers:
    return Rounds(
        engines.build(
            ModelConfig(model_name_or_path=workload.model, torch_dtype=workload.dtype), device
        )
    )


def _generate(workload: Workload, device: str) -> Answers:
    return Generate(
        model_of(workload, device), tokenizer_of(workload), GENERATE_ROWS, samples_share=False
    )


def _generate_n(workload: Workload, device: str) -> Answers:
    return Generate(
        model_of(workload, device), tokenizer_of(workload), GENERATE_N_ROWS, samples_share=True
    )


def _vllm(workload: Workload, device: str, **options: Any) -> Any:
    if workload.model not in SHAPES:
        folder = folder_of(workload.model)
    else:  # vLLM reads config and tokenizer from files, in its own process
        folder = tempfile.mkdtemp(prefix="stageb-bench-")
        config_of(workload).save_pretrained(folder)
        tokenizer_of(workload).save_pretrained(folder)
        options = {"load_format": "dummy", **options}
    kind, _, index = device.partition(":")
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    # Its process, which is spawned, as a hold on a GPU does not survive a fork, takes the first GPU
    # that it sees.
    sight = (
        {"CUDA_VISIBLE_DEVICES": seen[int(index or 0)] if any(seen) else index or "0"}
        if kind == "cuda"
        else {}
    )
    quiet = {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_NO_USAGE_STATS": "1"}
    with mock.patch.dict(os.environ, {"VLLM_WORKER_MULTIPROC_METHOD": "spawn", **quiet, **sight}):
        settings = {
            "dtype": workload.dtype,
            "max_model_len": -1,
            "gpu_memory_utilization": 0.9,
            **options,
        }
        return importlib.import_module("vllm").LLM(
            folder, enable_prefix_caching=True, use_tqdm_on_load=False, **settings
        )


def _vllm_n(workload: Workload, device: str, **options: Any) -> Answers:
    return VllmN(_vllm(workload, device, **options), tokenizer_of(workload))


def _vllm_run(workload: Workload, device: str, in_lines: bool = False, **options: Any) -> Answers:
    return VllmRun(_vllm(workload, device, **options), tokenizer_of(workload), in_lines)


def _cascade(
    load: Callable[..., Answers], workload: Workload, device: str, **options: Any
) -> Answers:
    """Cascade attention is of vLLM's older runner, and off unless asked for."""
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    graphs = options["compilation_config"] | {"cudagraph_mode": "PIECEWISE"}
    return load(
        workload, device, **options | {"disable_cascade_attn": False, "compilation_config": graphs}
    )


# All rows of a call at once; as long as the workload is and no longer; graphs for the batches that
# it has.
TUNED: dict[str, Any] = {
    "max_num_seqs": 2048,
    "max_num_batched_tokens": 16384,
    "max_model_len": 2048,
    "gpu_memory_utilization": 0.85,
    "async_scheduling": True,
    "compilation_config": {"cudagraph_capture_sizes": [64, 128, 256, 512, 1024, 2048]},
}

RUN: dict[str, Any] = TUNED | {
    "max_num_seqs": 512,
    "max_model_len": 4096,
    "gpu_memory_utilization": 0.4,  # beside others
    "compilation_config": {
        "cudagraph_capture_sizes": [8, 16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512]
    },
}

CONTESTANTS = {
    "ours": Contestant(_ours, keyed=True, in_batches=True),
    "ours-fp8": Contestant(_ours_in_float8, keyed=True, in_batches=True, own_weights=True),
    "rounds": Contestant(_rounds, keyed=True, in_batches=True),
    "generate": Contestant(_generate, keyed=False, in_batches=False),
    "generate-n": Contestant(_generate_n, keyed=False, in_batches=False),
    "vllm-n": Contestant(_vllm_n, keyed=False, in_batches=False, own_weights=True),
    "vllm-n-tuned": Contestant(
        partial(_vllm_n, **TUNED), keyed=False, in_batches=False, own_weights=True
    ),
    "vllm-n-cascade": Contestant(
        partial(_cascade, _vllm_n, **TUNED), keyed=False, in_batches=False, own_weights=True
    ),
    "vllm-n-fp8": Contestant(
        partial(_cascade, _vllm_n, **TUNED, quantization="fp8"),
        keyed=False,
        in_batches=False,
        own_weights=True,
    ),
    "vllm-run": Contestant(partial(_vllm_run, **RUN), keyed=False, in_batches=False),
    "vllm-run-lines": Contestant(
        partial(_vllm_run, in_lines=True, **RUN), keyed=False, in_batches=False
    ),
    "vllm-run-cascade": Contestant(
        partial(_cascade, _vllm_run, **RUN), keyed=False, in_batches=False
    ),
}
