"""How far bfloat16 and float8 part from float32, on a real checkpoint: ``bin/bench precision
--checkpoint FOLDER_OR_GGUF``.

Tickets of the demo are answered greedily, and their verdict lines weighed against each other (the
log-ratio that the gate reads), by the default engine (*ours*, in float8 as ``model.quantize: fp8``
too) and by transformers alone: ``generate``, and plain forward passes over prompt and line, one by
one. With random weights near-ties would decide. To read a GGUF file takes the package ``gguf``.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.utils.logging import disable_progress_bar

from lab.bench.contestants import GENERATE_ROWS, Generate
from lab.bench.rows import write
from lab.bench.workloads import CHAT_VARIABLES, WORKLOADS, prompts_of, requests_of
from stageb.config import require
from stageb.engines.chat import Chat
from stageb.engines.config import find_checkpoint
from stageb.engines.native import products
from stageb.engines.native.transformers import TransformersEngine
from stageb.engines.protocol import Completion, Prompt, Question, Request
from stageb.errors import ConfigError
from stageb.guidance.rules.prompts import WORDS, verdict_lines
from stageb.tiny import NAME as TINY

PASS_FAIL = (verdict_lines(WORDS["en"])["pass"], verdict_lines(WORDS["en"])["fail"])
DTYPES = (torch.float32, torch.bfloat16)

Way = tuple[str, torch.dtype]
# answers, and log-ratios of pass over fail
Detections = tuple[list[tuple[Completion, ...]], list[float]]
REFERENCE: Way = ("generate", torch.float32)


@dataclass(frozen=True, slots=True)
class Result:
    """One way, held against transformers."""

    way: str
    dtype: str
    # share of greedy answers equal to those of generate in the same precision (float8: in bfloat16)
    as_generate: float
    as_float32: float  # and to those of generate in float32
    # mean absolute difference of verdict log-ratios from those of transformers in float32
    lead_mean: float
    lead_most: float  # and the largest
    verdicts: float  # share of tickets whose likelier line is that of transformers in float32


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/bench precision",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--checkpoint", default=TINY, help=f"a folder, a hub name or a GGUF file (default {TINY})"
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="default: cpu")
    parser.add_argument("--tickets", type=int, default=64, help="default: 64")
    parser.add_argument(
        "--new-tokens", type=int, default=40, help="of an answer, at most (default 40)"
    )
    parser.add_argument("--json", metavar="FILE", help="write what was measured, as JSON")
    given = parser.parse_args(arguments)
    require(
        given.device == "cpu" or torch.cuda.is_available(),
        "--device",
        given.device,
        "there is no GPU",
    )
    workload = replace(WORKLOADS["demo-cpu"], tickets=given.tickets, new_tokens=given.new_tokens)
    prompts = prompts_of(workload)
    requests = requests_of(workload, prompts, range(len(prompts)), greedy=True)
    model, tokenizer = loaded(given.checkpoint)
    told: dict[Way, Detections] = {}
    for way, tell in {"generate": by_transformers, "ours": by_ours}.items():
        for dtype in DTYPES:
            told[way, dtype] = tell(
                in_precision(model, dtype).to(given.device), tokenizer, requests
            )
    small = in_precision(model, torch.bfloat16).to(given.device)
    products.quantize(small)
    told["ours", products.FLOAT8] = by_ours(small, tokenizer, requests)
    results = [compared(way, told) for way in told if way != REFERENCE]
    scale = fmean(map(abs, told[REFERENCE][1]))
    print(
        f"{Path(given.checkpoint).name}: {given.tickets} tickets, {given.new_tokens} new tokens "
        f"at most, {given.device}"
    )
    print(table(results, scale))
    ways = [asdict(row) for row in results]
    write(
        given.json, {**vars(given), "torch": torch.__version__, "lead_scale": scale, "ways": ways}
    )
    return 0


def loaded(checkpoint: str) -> tuple[Any, Any]:
    """The model in float32, on the CPU, and its tokenizer. Raises ``ConfigError``."""
    disable_progress_bar()
    file = Path(checkpoint).expanduser()
    try:
        if file.suffix != ".gguf":
            name = find_checkpoint(checkpoint)
            found: Any = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
            return found.eval(), AutoTokenizer.from_pretrained(name)
        where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
        config = AutoConfig.from_pretrained(**where)
        made: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        read = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=made)
        missing, unknown = made.load_state_dict(read["tensors"], strict=False)
        tied = {"lm_head.weight"} if made.config.tie_word_embeddings else set()
        require(
            not unknown and set(missing) <= tied,
            "--checkpoint",
            checkpoint,
            "its weights do not fit its config",
        )
        return made.eval(), AutoTokenizer.from_pretrained(**where)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise ConfigError("--checkpoint", checkpoint, f"it cannot be loaded: {error}") from error


def in_precision(model: Any, dtype: torch.dtype) -> Any:
    """A copy with weights of ``dtype``. Buffers stay as they are, as where transformers loads such
    weights."""
    other = copy.deepcopy(model)
    for weights in other.parameters():
        weights.data = weights.data.to(dtype)
    return other


def by_transformers(model: Any, tokenizer: Any, requests: Sequence[Request]) -> Detections:
    """Answer and score with transformers alone."""
    chat = Chat(tokenizer, CHAT_VARIABLES)
    answers = Generate(model, tokenizer, GENERATE_ROWS, samples_share=False).generate(requests)
    return answers, [plain_lead(model, chat, request.prompt) for request in requests]


@torch.inference_mode()
def plain_lead(model: Any, chat: Chat, prompt: Prompt) -> float:
    """The log-ratio of pass over fail, each line read whole behind its prompt."""
    shared, own = chat.encode(prompt)
    weights = []
    for line in map(chat.encode_answer, PASS_FAIL):
        logits = model(torch.tensor([[*shared, *own, *line]], device=model.device)).logits[
            0, -len(line) - 1 : -1
        ]
        chances = logits.log_softmax(-1, dtype=torch.float32)
        weights.append(chances[range(len(line)), list(line)].sum().item())
    return float(weights[0] - weights[1])


def by_ours(model: Any, tokenizer: Any, requests: Sequence[Request]) -> Detections:
    """Answer and score with the default engine."""
    engine = TransformersEngine(model, Chat(tokenizer, CHAT_VARIABLES))
    scores = engine.score([Question(request.prompt, PASS_FAIL) for request in requests])
    return engine.generate(requests), [passed - failed for passed, failed in scores]


def compared(way: Way, told: dict[Way, Detections]) -> Result:
    """One way against transformers."""
    answers, leads = told[way]
    pairs = list(zip(leads, told[REFERENCE][1], strict=True))
    apart = [abs(one - other) for one, other in pairs]
    verdicts = fmean((one > 0) == (other > 0) for one, other in pairs)
    alike = torch.bfloat16 if way[1] == products.FLOAT8 else way[1]

    def equal(other: Way) -> float:
        return fmean(one == same for one, same in zip(answers, told[other][0], strict=True))

    dtype = str(way[1]).removeprefix("torch.").removesuffix("_e4m3fn")
    return Result(
        way[0],
        dtype,
        equal(("generate", alike)),
        equal(REFERENCE),
        fmean(apart),
        max(apart),
        verdicts,
    )


def table(results: Sequence[Result], scale: float) -> str:
    """Lines to print."""
    lines = [
        f"{'':<18} {'greedy answers equal to':>30}   verdict log-ratios (of {scale:.2f} in the "
        f"mean)",
        f"{'':<18} {'generate':>10} {'generate, float32':>19}   part from float32 by: mean, "
        f"most; same verdict",
    ]
    for row in results:
        shares = f"{row.as_generate:>10.1%} {row.as_float32:>19.1%}"
        lines.append(
            f"{row.way:<9}{row.dtype:<9} {shares}   {row.lead_mean:.6f}, {row.lead_most:.6f}; "
            f"{row.verdicts:.1%}"
        )
    return "\n".join(lines)
