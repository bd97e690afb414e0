"""vLLM behind the engine Protocol.

Each rank has one vLLM engine on its own device, in a process of its own; ``stageb.job.world`` spreads the work.
``chat.py`` encodes prompts as for ``transformers``, and vLLM's prefix cache reads a shared text once. Every sample is a
request with a seed derived from its key, so its draws do not depend on its neighbours. Its logits may still move in their
last bits with the batch that the scheduler forms, so equal bytes between runs are not promised;
``VLLM_BATCH_INVARIANT=1`` asks vLLM for kernels that do not depend on the batch. Every step of its engine is a sign of
life (``stageb.job.heartbeat``).

Images are not handed over: for those, run vLLM as a server behind the ``openai`` engine.

An optional extra, ``pip install 'stageb[vllm]'``: it pins torch and much else, so it is imported on demand.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from transformers import AutoTokenizer

from stageb import seeds
from stageb.config import require
from stageb.engines.chat import Chat
from stageb.engines.config import GGUF, ModelConfig, find_checkpoint
from stageb.engines.protocol import Completion, Engine, Ids, Prompt, Question, Request, Row, continue_row, without_images
from stageb.errors import ConfigError, EngineError
from stageb.job import heartbeat, lifetime

MINIMUM = (0, 22)
_INSTALL = "vLLM 0.22 or later is needed: pip install 'stageb[vllm]'"
_DEVICES = "CUDA_VISIBLE_DEVICES"


class VllmEngine:
    """An engine over ``llm`` (a ``vllm.LLM``); ``sampling_params`` is vLLM's class, ``chat`` the checkpoint's."""

    def __init__(self, llm: Any, sampling_params: Any, chat: Chat) -> None:
        self.llm = llm
        self.sampling_params = sampling_params
        self._chat = chat

    @property
    def thinks(self) -> bool:
        """See ``thinking.thinks``."""
        return self._chat.thinks

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """See ``Engine``."""
        return [len(self._ids(prompt)) for prompt in prompts]

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """See ``Engine``. All requests are handed over at once, in order; equal rows are decoded once."""
        return self._answered(
            requests, [self._rows(request) for request in requests], [((),) * len(each.keys) for each in requests]
        )

    def resume(self, requests: Sequence[Request], begun: Sequence[Sequence[Ids]]) -> list[tuple[Completion, ...]]:
        """See ``Resumer``. vLLM's generators cannot go on where they were left, so what follows is drawn anew."""
        wanted = [
            [continue_row(row, ids) for row, ids in zip(self._rows(request), each, strict=True)]
            for request, each in zip(requests, begun, strict=True)
        ]
        return self._answered(requests, wanted, begun)

    def _answered(
        self, requests: Sequence[Request], wanted: Sequence[Sequence[Row]], begun: Sequence[Sequence[Ids]]
    ) -> list[tuple[Completion, ...]]:
        """The answers that ``wanted`` are the rows of, behind what is ``begun`` of each."""
        rows = list(dict.fromkeys(row for group in wanted for row in group))
        outputs = self._asked([row.own for row in rows], [self._params(row) for row in rows])
        done = dict(zip(rows, outputs, strict=True))
        return [
            tuple(self._completion(request, ids, done[row].outputs[0]) for row, ids in zip(group, each, strict=True))
            for request, group, each in zip(requests, wanted, begun, strict=True)
        ]

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        """See ``Scorer``. Each answer is read behind its prompt; vLLM reads such a prompt whole, past its prefix cache."""
        pairs = [
            (self._ids(question.prompt), self._chat.encode_answer(answer))
            for question in questions
            for answer in question.answers
        ]
        reads = list(dict.fromkeys(pairs))
        reading = self.sampling_params(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        outputs = self._asked([prompt + answer for prompt, answer in reads], [reading] * len(reads))
        done = {read: _tail(output.prompt_logprobs, read[1]) for read, output in zip(reads, outputs, strict=True)}
        scores = iter([done[pair] for pair in pairs])
        return [tuple(next(scores) for _ in question.answers) for question in questions]

    def close(self) -> None:
        """End vLLM's process and give its memory back."""
        self.llm.llm_engine.engine_core.shutdown()

    def _ids(self, prompt: Prompt) -> Ids:
        shared, own = self._chat.encode(without_images(prompt))
        return shared + own

    def _rows(self, request: Request) -> list[Row]:
        """A row per sample of ``request``, with the whole prompt as its own: vLLM's prefix cache finds what is shared."""
        ids = self._ids(request.prompt) + self._chat.encode_answer(request.begin)
        return [Row(ids, request.decode, key) for key in request.streams]

    def _params(self, row: Row) -> Any:
        decode = row.decode
        return self.sampling_params(
            temperature=decode.temperature,
            top_p=decode.top_p,
            top_k=decode.top_k,
            max_tokens=decode.max_new_tokens,
            repetition_penalty=decode.repetition_penalty,
            seed=seeds.bits(row.key, 0) >> 1,  # 63 bits: torch's generators take no more
            stop=list(decode.stop),
            detokenize=bool(decode.stop),  # its text is read for stop strings alone
        )

    def _asked(self, prompts: Sequence[Ids], params: Sequence[Any]) -> list[Any]:
        if not prompts:
            return []
        typed = [{"prompt_token_ids": list(ids)} for ids in prompts]
        outputs: list[Any] = self.llm.generate(typed, list(params), use_tqdm=False)
        return outputs

    def _completion(self, request: Request, begun: Ids, output: Any) -> Completion:
        """From the ids and not from vLLM's text: the same ids then read the same as from ``transformers``."""
        if output.finish_reason not in ("stop", "length"):
            raise EngineError(f"vLLM gave up on a request ({output.finish_reason}); its own log says why")
        ids = (*begun, *output.token_ids)
        return self._chat.completion(ids, output.finish_reason, request.decode.stop, bool(request.begin))


class DiesWithRank:
    """Mixed into vLLM's worker, which lives in a process of its own: that process must not outlive its rank.

    A rank that fails leaves by ``os._exit`` and may be killed, so nothing on its side can be relied on to end the worker.
    """

    def die_with_rank(self, rank: int) -> None:
        """Called in the worker, once; ``rank`` is the rank's process id."""
        if os.getpid() != rank:  # it may share the rank's process: VLLM_ENABLE_V1_MULTIPROCESSING=0
            os.environ[lifetime.PARENT] = str(rank)
            lifetime.die_with_launcher()


def build(model: ModelConfig, device: str) -> Engine:
    """Start vLLM on ``device`` with the checkpoint that ``model`` names.

    Raises ``ConfigError`` where vLLM is missing or too old, or a value of the config is at fault; ``EngineError`` where vLLM
    cannot load the checkpoint.
    """
    chosen = model.attn_implementation
    require(chosen is None, "model.attn_implementation", chosen, "the vllm engine decides that itself; set null")
    folder = find_checkpoint(model.model_name_or_path)
    if folder.endswith(GGUF):
        raise ConfigError("model.model_name_or_path", folder, "a GGUF file is for model.engine transformers, or a server")
    return load(import_vllm(), folder, model, device)


def load(vllm: Any, folder: str, model: ModelConfig, device: str, **options: Any) -> VllmEngine:
    """``build`` with the module ``vllm`` at hand; ``options`` go to ``vllm.LLM`` as they are."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=model.trust_remote_code)
        with isolate_device(device):
            settings: dict[str, Any] = {
                "model": folder,
                "dtype": model.torch_dtype,
                "quantization": model.quantize,
                "trust_remote_code": model.trust_remote_code,
                "enable_prefix_caching": True,
                "max_model_len": -1,  # as long as the model reads and the memory holds
                "gpu_memory_utilization": model.memory_share,
                "use_tqdm_on_load": False,
                "worker_extension_cls": f"{DiesWithRank.__module__}.{DiesWithRank.__qualname__}",
            }
            llm = vllm.LLM(**settings | options)
            llm.collective_rpc("die_with_rank", args=(os.getpid(),))
            llm.llm_engine.step = _ticking(llm.llm_engine.step)  # which LLM.generate calls until no request is left
    except Exception as error:  # vLLM, and the process that it starts, raise anything
        cause = str(error).strip() or type(error).__name__
        raise EngineError(
            f"model.model_name_or_path: {model.model_name_or_path!r} could not be loaded by vLLM on {device}: {cause}"
        ) from error
    return VllmEngine(llm, vllm.SamplingParams, Chat(tokenizer, model.chat_template_kwargs, model.thinking_ends))


def import_vllm() -> Any:
    """The module ``vllm``. Raises ``ConfigError`` where it is missing or too old."""
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # nothing about a run leaves the machine unless the user says so
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")  # from every rank, hundreds of lines otherwise
    try:
        vllm = importlib.import_module("vllm")
        vllm.LLM, vllm.SamplingParams  # noqa: B018 - both are imported when first named
    except (ImportError, AttributeError, OSError, RuntimeError) as error:
        raise ConfigError("model.engine", "vllm", f"vllm cannot be imported ({error}); {_INSTALL}") from error
    found = re.match(r"(\d+)\.(\d+)", vllm.__version__)  # a development build may have no number
    if found and (int(found[1]), int(found[2])) < MINIMUM:
        raise ConfigError("model.engine", "vllm", f"vLLM {vllm.__version__} is too old; {_INSTALL}")
    return vllm


@contextlib.contextmanager
def isolate_device(device: str) -> Iterator[None]:
    """While vLLM starts its process, let ``device`` be the only GPU in sight: it takes the first that it sees.

    That process is spawned, since a rank's threads and its hold on the GPU do not survive a fork.
    """
    changes = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    kind, _, index = device.partition(":")
    if kind == "cuda":
        seen = [name for name in os.environ.get(_DEVICES, "").split(",") if name]
        changes[_DEVICES] = seen[int(index or 0)] if seen else index or "0"
        if int(index or 0) and os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0":
            raise EngineError(f"VLLM_ENABLE_V1_MULTIPROCESSING=0 keeps vLLM on the first GPU, and this rank has {device}")
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _ticking(step: Callable[[], Any]) -> Callable[[], Any]:
    """``step``, with a sign of life after it."""

    def ticking() -> Any:
        done = step()
        heartbeat.tick()
        return done

    return ticking


def _tail(prompt_logprobs: Sequence[Any], answer: Ids) -> float:
    """The log-probability of ``answer``, which ends a prompt; one mapping of id to log-probability per token."""
    places = prompt_logprobs[len(prompt_logprobs) - len(answer) :]
    return float(sum(place[token].logprob for place, token in zip(places, answer, strict=True)))
