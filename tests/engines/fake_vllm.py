"""A little vLLM: the part of its offline API that benchmarks use, over logits that are a hash of
the tokens before them.

As strict as the real one about names: an argument that vLLM 0.22 does not take is a ``TypeError``
here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor

from stageb import seeds

__version__ = "0.22.1"

LONGEST = 4096


@dataclass
class SamplingParams:
    """What vLLM takes, with its defaults."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int | None = 16
    seed: int | None = None
    stop: str | list[str] | None = None
    detokenize: bool = True
    allowed_token_ids: list[int] | None = None

    def __post_init__(self) -> None:
        assert self.seed is None or 0 <= self.seed < 1 << 63
        assert not self.stop or (all(self.stop) and self.detokenize)


@dataclass
class CompletionOutput:
    text: str
    token_ids: list[int]
    finish_reason: str


@dataclass
class RequestOutput:
    outputs: list[CompletionOutput]


@dataclass
class Core:
    """vLLM's engine core, as far as it can be shut down."""

    running: bool = True

    def shutdown(self, timeout: float | None = None) -> None:
        self.running = False


@dataclass
class LegacyEngine:
    """vLLM's engine."""

    engine_core: Core = field(default_factory=Core)


class LLM:
    """Answers from logits that are a hash of all tokens before them."""

    forgot = 0  # times that a prefix cache was emptied

    def __init__(
        self,
        model: str,
        *,
        dtype: str = "auto",
        quantization: str | None = None,
        gpu_memory_utilization: float = 0.92,
        enable_prefix_caching: bool | None = None,
        max_model_len: int | None = None,
        use_tqdm_on_load: bool = True,
        load_format: str = "auto",
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        async_scheduling: bool | None = None,
        compilation_config: dict[str, Any] | None = None,
        disable_cascade_attn: bool = True,
    ) -> None:
        self.llm_engine = LegacyEngine()
        self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(model)
        self._model = transformers.AutoConfig.from_pretrained(model)

    def reset_prefix_cache(self) -> bool:
        type(self).forgot += 1
        return True

    def generate(
        self,
        prompts: Sequence[dict[str, list[int]]],
        sampling_params: Sequence[SamplingParams],
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        assert self.llm_engine.engine_core.running
        asked = zip(prompts, sampling_params, strict=True)
        return [self._answer(prompt["prompt_token_ids"], params) for prompt, params in asked]

    def _answer(self, prompt: list[int], params: SamplingParams) -> RequestOutput:
        if len(prompt) + 1 > LONGEST:
            raise ValueError("The decoder prompt is longer than the maximum model length")
        return RequestOutput([self._output(prompt, params, sample) for sample in range(params.n)])

    def _output(self, prompt: list[int], params: SamplingParams, sample: int) -> CompletionOutput:
        ids: list[int] = []
        text, reason = "", "length"
        while len(ids) < (params.max_tokens or LONGEST):
            ids.append(self._next(prompt + ids, params, sample, len(ids)))
            text = self._tokenizer.decode(ids, skip_special_tokens=True)
            if ids[-1] == self._tokenizer.eos_token_id or any(
                stop in text for stop in params.stop or ()
            ):
                reason = "stop"
                break
        return CompletionOutput(text, ids, reason)

    def _logits(self, before: list[int]) -> Tensor:
        made = torch.Generator().manual_seed(seeds.stream(*before) >> 1)
        return 3 * torch.randn(len(self._tokenizer), generator=made, dtype=torch.float64)

    def _next(self, before: list[int], params: SamplingParams, sample: int, place: int) -> int:
        logits = self._logits(before)
        if params.allowed_token_ids is not None:
            allowed = torch.full_like(logits, -torch.inf)
            allowed[params.allowed_token_ids] = 0
            logits = logits + allowed
        if params.temperature == 0:
            return int(logits.argmax())
        draws = seeds.stream("unseeded", sample) if params.seed is None else params.seed
        cumulative = (logits / params.temperature).softmax(-1).cumsum(-1)
        return int((cumulative <= seeds.uniform(draws, place)).sum().clamp(max=len(logits) - 1))
