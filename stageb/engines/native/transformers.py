"""Any causal or vision-language model that transformers can load, behind the engine Protocol.

This module finds and loads a checkpoint, and sorts the requests of a call by what they share.
Prompts become ids in ``chat.py``, images in ``vision.py``; answers are decoded in ``decoding.py``
and drawn in ``rows.py``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)
from transformers.utils.logging import disable_progress_bar

from stageb.config import require
from stageb.engines.chat import Chat
from stageb.engines.config import GGUF, KEY, ModelConfig, check_whole, find_checkpoint, find_code
from stageb.engines.native import memory
from stageb.engines.native.decoding import Decoder
from stageb.engines.native.products import check_device, quantize, use_half_products
from stageb.engines.native.rows import Answer, ScoreRequest
from stageb.engines.native.stepping import Draft
from stageb.engines.native.vision import ImageInputs, image_inputs_of
from stageb.engines.protocol import Completion, Ids, Prompt, Question, Request, Row, continue_row
from stageb.errors import ConfigError, EngineError, StagebError, shown
from stageb.tiny import NAME

_INSTALL_GGUF = "pip install 'stageb[gguf]'"
_TRUST = "set it to true if you trust its author, or choose another model"


class TransformersEngine:
    """An engine over a loaded ``model``, which reads and writes as ``chat`` does."""

    def __init__(
        self, model: Any, chat: Chat, eyes: Callable[[], ImageInputs] | None = None
    ) -> None:
        """``eyes`` is called when images are first asked for."""
        self._to_open = eyes
        self._eyes: ImageInputs | None = None
        self._chat = chat
        closing = _closing_ids(model, chat)
        self._decoder = Decoder(model.eval(), closing, chat.decode)

    @property
    def thinks(self) -> bool:
        """See ``thinking.thinks``."""
        return self._chat.thinks

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """See ``Engine``."""
        return [sum(map(len, self._encode(prompt))) for prompt in prompts]

    def open_eyes(self) -> None:
        """See ``ImageEngine``."""
        if self._eyes is None:
            if self._to_open is None:
                raise EngineError("this engine was given no eyes, and a prompt shows images")
            eyes = self._to_open()
            self._decoder.see(eyes)
            self._eyes = eyes

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """See ``Engine``. Requests with one system text are read together; equal rows are decoded
        once."""
        return [
            tuple(self._read_completion(request, answer) for answer in answers)
            for request, answers in zip(requests, self.answers(requests), strict=True)
        ]

    def resume(
        self, requests: Sequence[Request], begun: Sequence[Sequence[Ids]]
    ) -> list[tuple[Completion, ...]]:
        """See ``Resumer``. What is begun is read as part of the prompt, and each stream goes on
        where it was left."""
        wanted = []
        for request, each in zip(requests, begun, strict=True):
            shared, rows = self._make_rows(request)
            wanted.append(
                (shared, [continue_row(row, ids) for row, ids in zip(rows, each, strict=True)])
            )
        return [
            tuple(
                self._read_completion(request, replace(answer, ids=ids + answer.ids))
                for ids, answer in zip(each, answers, strict=True)
            )
            for request, each, answers in zip(
                requests, begun, self._decode_rows(wanted), strict=True
            )
        ]

    def answers(
        self, requests: Sequence[Request], draft: Draft | None = None
    ) -> list[tuple[Answer, ...]]:
        """As ``generate``, but token ids, with all that the model wrote. ``draft`` may save passes
        (``stepping.py``)."""
        return self._decode_rows([self._make_rows(request) for request in requests], draft)

    def _decode_rows(
        self, wanted: Sequence[tuple[Ids, list[Row]]], draft: Draft | None = None
    ) -> list[tuple[Answer, ...]]:
        groups: dict[Ids, dict[Row, None]] = {}  # equal rows once, in their order
        for shared, rows in wanted:
            groups.setdefault(shared, {}).update(dict.fromkeys(rows))
        done = {
            shared: dict(zip(group, self._decoder.answers(shared, list(group), draft), strict=True))
            for shared, group in groups.items()
        }
        return [tuple(done[shared][row] for row in rows) for shared, rows in wanted]

    def chances(self, answered: Sequence[tuple[Prompt, Ids]]) -> list[tuple[float, ...]]:
        """Of each prompt and answer the natural log-probability, at temperature 1, of every token
        of the answer."""
        encoded = [(*self._encode(prompt), ids) for prompt, ids in answered]
        return _score_by_shared(
            [(shared, ScoreRequest(own, (ids,))) for shared, own, ids in encoded],
            self._decoder.chances,
        )

    def forget(self) -> None:
        """The model's weights have changed: let go of what was read with the old ones."""
        self._decoder.forget()

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        """See ``Scorer``. Questions with one system text are read together; equal ones once."""
        return _score_by_shared(
            [self._make_choice(question) for question in questions], self._decoder.scores
        )

    def _make_choice(self, question: Question) -> tuple[Ids, ScoreRequest]:
        shared, own = self._encode(question.prompt)
        return shared, ScoreRequest(own, tuple(map(self._chat.encode_answer, question.answers)))

    def _make_rows(self, request: Request) -> tuple[Ids, list[Row]]:
        """The shared ids of a request, and a row per sample."""
        shared, own = self._encode(request.prompt)
        own += self._chat.encode_answer(request.begin)
        return shared, [Row(own, request.decode, key) for key in request.streams]

    def _encode(self, prompt: Prompt) -> tuple[Ids, Ids]:
        """The ids of the shared part and of the prompt's own, which begins with its images."""
        shared, own = self._chat.encode(prompt)
        if not prompt.images:
            return shared, own
        self.open_eyes()
        assert self._eyes is not None
        return shared, self._eyes.ids(prompt.images) + own

    def _read_completion(self, request: Request, answer: Answer) -> Completion:
        return self._chat.completion(
            answer.ids, answer.finish, request.decode.stop, bool(request.begin)
        )


def _score_by_shared(
    wanted: Sequence[tuple[Ids, ScoreRequest]],
    score: Callable[[Ids, list[ScoreRequest]], list[tuple[float, ...]]],
) -> list[tuple[float, ...]]:
    """``score`` called once for each shared text with its different requests; the results in the
    order of ``wanted``."""
    groups: dict[Ids, dict[ScoreRequest, None]] = {}
    for shared, request in wanted:
        groups.setdefault(shared, {})[request] = None
    done = {
        shared: dict(zip(group, score(shared, list(group)), strict=True))
        for shared, group in groups.items()
    }
    return [done[shared][request] for shared, request in wanted]


def build(model: ModelConfig, device: str) -> TransformersEngine:
    """Load the checkpoint that ``model`` names onto ``device``.

    Raises ``ConfigError`` where a value of the config is at fault, ``EngineError`` where the
    checkpoint cannot be reached or read.
    """
    disable_progress_bar()  # a bar per rank would say nothing
    if model.quantize:
        check_device(device, model.quantize)
    if device.startswith("cpu"):
        memory.keep_freed()
    name, gguf = split_gguf(find_checkpoint(model.model_name_or_path))
    options: dict[str, Any] = {"trust_remote_code": model.trust_remote_code} | (
        {"gguf_file": gguf} if gguf else {}
    )
    # ``auto`` is the checkpoint's own type on a GPU; float32 on a CPU, the fastest there but for
    # products.
    is_free = model.torch_dtype == "auto" and device.startswith("cpu")
    weights = options | {
        "dtype": "float32" if is_free else model.torch_dtype,
        "use_safetensors": True,
    }
    if model.attn_implementation is not None:
        weights["attn_implementation"] = model.attn_implementation
    # that none can turn off
    bars = contextlib.redirect_stderr(io.StringIO()) if gguf else contextlib.nullcontext()
    try:
        if not gguf:
            refuse_code(name, model)
        with bars:
            loaded, tokenizer, config = _load(name, options, weights)
        loaded = loaded.to(device)
        if not gguf and is_free and config.get_text_config(decoder=True).dtype == torch.bfloat16:
            use_half_products(loaded)  # as what it holds is in bfloat16 anyway
        if model.quantize:
            halved = loaded.dtype in (torch.bfloat16, torch.float16)
            require(
                halved,
                "model.torch_dtype",
                model.torch_dtype,
                "bfloat16, where model.quantize is set",
            )
            quantize(loaded)
        eyes = partial(image_inputs_of, loaded, name, model)
        return TransformersEngine(
            loaded, Chat(tokenizer, model.chat_template_kwargs, model.thinking_ends), eyes
        )
    except StagebError:
        raise
    # what strangers wrote makes transformers and tokenizers stumble in any way
    except Exception as error:
        raise explain_failure(error, model, device) from error


def _load(name: str, options: dict[str, Any], weights: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Model, tokenizer and config of a checkpoint."""
    config = AutoConfig.from_pretrained(name, **options)
    tokenizer = AutoTokenizer.from_pretrained(name, **options)
    loaded, loading = auto_class(config).from_pretrained(
        name, config=config, output_loading_info=True, **weights
    )
    check_whole(loading)
    return loaded, tokenizer, config


def refuse_code(name: str, model: ModelConfig) -> None:
    """Raise ``ConfigError`` where the checkpoint ``name`` names code that would run, and ``model``
    does not trust it."""
    if not model.trust_remote_code and (code := find_code(name)):
        remedy = f"{name}: its config.json has {code}, code that would be fetched and run; {_TRUST}"
        raise ConfigError("model.trust_remote_code", model.trust_remote_code, remedy)


def split_gguf(path: str) -> tuple[str, str | None]:
    """Split a path that ``find_checkpoint`` found, as transformers takes it: a folder or hub name,
    and the GGUF file in it if it is one.

    Raises ``ConfigError`` where a package that reads such files is missing.
    """
    if not path.endswith(GGUF):
        return path, None
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            KEY, path, f"GGUF files are read by the packages gguf and accelerate: {_INSTALL_GGUF}"
        )
    return str(Path(path).parent), Path(path).name


def auto_class(config: Any) -> Any:
    """The auto class for the architecture that a checkpoint says it is."""
    pictured = set(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values())
    if any(name in pictured for name in config.architectures or ()):
        return AutoModelForImageTextToText
    causal = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or hasattr(config, "auto_map")
    if not causal and config.model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return AutoModelForImageTextToText
    return AutoModelForCausalLM


def explain_failure(error: Exception, model: ModelConfig, device: str) -> ConfigError | EngineError:
    """Turn a failure to load into an error that tells the author of the config how to fix it."""
    cause = shown(" ".join(str(error).split()), 600) or type(error).__name__
    if "trust_remote_code" in cause:
        remedy = f"the checkpoint brings its own code; {_TRUST}"
        return ConfigError("model.trust_remote_code", model.trust_remote_code, remedy)
    if model.attn_implementation is not None and ("attn" in cause or "attention" in cause):
        return ConfigError(
            "model.attn_implementation",
            model.attn_implementation,
            f"choose another, or null: {cause}",
        )
    if isinstance(error, (RuntimeError, AssertionError)) and "mismatch" not in cause:
        return EngineError(
            f"{KEY}: {model.model_name_or_path!r} could not be put on {device}: {cause}"
        )
    return EngineError(
        f"{KEY}: {model.model_name_or_path!r} could not be loaded: {cause}; name a folder with "
        f"a causal language model in safetensors, a model of the hub that this machine can reach, "
        f"or {NAME}"
    )


def _closing_ids(model: Any, chat: Chat) -> frozenset[int]:
    """The ids that end an answer, by the generation config and by the tokenizer."""
    named = getattr(model.generation_config, "eos_token_id", None)
    several = named if isinstance(named, (list, tuple)) else [named]
    return frozenset(token for token in (*several, chat.end) if token is not None)
