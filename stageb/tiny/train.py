"""Train the shipped model from nothing: ``python -m stageb.tiny.train --out FOLDER --steps 9000`` (one GPU, minutes).

What is trained is a Qwen3-shaped decoder on rows drawn without end from ``examples``; no row is seen twice. Hidden matrices
are updated by Muon (Jordan et al. 2024), the rest by AdamW. Left out on purpose: mixed corpora, distillation from another
model, reinforcement; the data's own teacher is exact and costs nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils.data import DataLoader, Dataset
from transformers import Qwen3Config, Qwen3ForCausalLM

from stageb import seeds
from stageb.tiny.examples import reflection_row, rollout_row
from stageb.tiny.tokens import VOCABULARY, Encoder, packaged, train_tokenizer

VERDICT_WEIGHT = 3.0  # a verdict is one token of twenty, and the one that counts


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the outcome."""

    seed: int = 1
    steps: int = 20000
    rows: int = 64  # rollout rows per batch; reflection batches hold as many tokens
    rollout_length: int = 1024
    reflection_length: int = 2048
    layers: int = 8
    width: int = 256
    inner: int = 576
    heads: int = 8
    kv_heads: int = 4
    learning_rate: float = 2e-3
    warmup: int = 200
    weight_decay: float = 0.05
    prompt_weight: float = 0.1  # of plain language modelling on prompts, in the first third of the steps
    chinese: float = 0.1
    tokenizer_rows: int = 4000


@dataclass(frozen=True)
class Batch:
    """Packed rows. All tensors are (rows, length)."""

    ids: torch.Tensor  # token ids
    positions: torch.Tensor  # a segment continues where the prefix ends
    segments: torch.Tensor  # 0: prefix, 1...: segments, -1: padding
    weights: torch.Tensor  # loss weight of predicting this token


class Rows(Dataset[Batch]):
    """Batch ``index`` from streams of (seed, index) alone; even ones are rollouts, odd ones reflections."""

    def __init__(self, recipe: Recipe, tokenizer: Path, unseen: bool = False) -> None:
        self.recipe, self.tokenizer, self.unseen = recipe, tokenizer, unseen
        self.encoder: Encoder | None = None

    def __len__(self) -> int:
        return self.recipe.steps

    def __getitem__(self, index: int) -> Batch:
        if self.encoder is None:  # made in the worker
            self.encoder = Encoder(self.tokenizer)
        recipe = self.recipe
        reflecting = index % 2 == 1
        length = recipe.reflection_length if reflecting else recipe.rollout_length
        count = max(1, recipe.rows * recipe.rollout_length // length)
        difficulty = 1.0 if self.unseen else min(1.0, 0.2 + index / (0.2 * recipe.steps))
        rng = random.Random(seeds.stream(recipe.seed, "unseen" if self.unseen else "train", index))
        drawn = (self._row(rng, reflecting, difficulty, length) for _ in range(count))
        packed = [pack(prefix, parts, length) for prefix, parts in drawn]
        return Batch(*(torch.tensor([row[part] for row in packed]) for part in range(4)))

    def _row(
        self, rng: random.Random, reflecting: bool, difficulty: float, length: int
    ) -> tuple[list[int], list[tuple[list[int], list[int]]]]:
        assert self.encoder is not None
        while True:
            if reflecting:
                most = rng.choice((1500, 3000, 4500, 6000))
                row = reflection_row(rng, difficulty, self.unseen, self.recipe.chinese, most_characters=most)[0]
            else:
                row = rollout_row(rng, difficulty, self.unseen, self.recipe.chinese)
            prefix, parts = self.encoder.encode(row, rng, shared_user=reflecting, share=0.0 if self.unseen else 0.35)
            if len(prefix) + len(parts[0][0]) + len(parts[0][1]) <= length:
                return prefix, parts


def pack(prefix: list[int], parts: Sequence[tuple[list[int], list[int]]], length: int) -> tuple[Sequence[float], ...]:
    """ids, positions, segments, weights of one row; segments that do not fit are left out."""
    ids, positions, segments = list(prefix), list(range(len(prefix))), [0] * len(prefix)
    weights = [0.0] * len(prefix)
    for number, (own, answer) in enumerate(parts, 1):
        size = len(own) + len(answer)
        if len(ids) + size > length:
            break
        ids += own + answer
        positions += range(len(prefix), len(prefix) + size)
        segments += [number] * size
        # "Verdict:" is one or two tokens; the verdict itself is among the first four of an answer
        weights += [0.0] * len(own) + [VERDICT_WEIGHT if own and spot < 4 else 1.0 for spot in range(len(answer))]
    rest = length - len(ids)
    return ids + [0] * rest, positions + [0] * rest, segments + [-1] * rest, weights + [0.0] * rest


def visible(segments: torch.Tensor) -> Any:
    """The mask function: a token sees the prefix and its own segment, up to itself."""

    def mask(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return (k <= q) & ((segments[b, k] == 0) | (segments[b, k] == segments[b, q]))

    return mask


def attention_mask(segments: torch.Tensor, compiled_block_mask: Any) -> Any:
    """A block mask for flex attention on a GPU, a dense one of shape (rows, 1, length, length) elsewhere."""
    rows, length = segments.shape
    if segments.is_cuda:
        return compiled_block_mask(visible(segments), rows, None, length, length, device=segments.device)
    q, k = torch.arange(length)[:, None], torch.arange(length)[None, :]
    seen = (segments[:, None, :] == 0) | (segments[:, None, :] == segments[:, :, None])
    return ((k <= q)[None] & (seen | (k == q)[None]))[:, None]


def loss_of(model: Any, batch: Batch, mask: Any, prompt_weight: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean weighted cross-entropy of the next token, and which tokens are the most probable ones (rows, length - 1)."""
    hidden = model(batch.ids, {"full_attention": mask}, batch.positions)
    logits = functional.linear(hidden, model.weight)[:, :-1].float()
    target = batch.ids[:, 1:]
    # the first own token of a segment follows another segment in the row: never a target
    same = batch.segments[:, 1:] == batch.segments[:, :-1]
    weights = batch.weights[:, 1:]
    weights = torch.where((weights == 0) & same & (batch.segments[:, 1:] >= 0), prompt_weight, weights)
    each = functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view_as(weights)
    return (each * weights).sum() / weights.sum(), logits.argmax(-1) == target


class Trunk(torch.nn.Module):
    """The decoder without its cache and its output head, which packed rows do not need."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = model.model

    def forward(self, ids: torch.Tensor, mask: Any, positions: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.inner(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False
        ).last_hidden_state
        return hidden

    @property
    def weight(self) -> torch.Tensor:
        weight: torch.Tensor = self.inner.embed_tokens.weight
        return weight


def new_model(recipe: Recipe, attention: str) -> Any:
    """A Qwen3-shaped decoder with fresh weights."""
    torch.manual_seed(recipe.seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=recipe.width,
            intermediate_size=recipe.inner,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.kv_heads,
            head_dim=recipe.width // recipe.heads,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=3,
            pad_token_id=3,
            attn_implementation=attention,  # type: ignore[call-arg]  # taken by the base class
        )
    )


def optimizers(model: torch.nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for hidden matrices, AdamW for embeddings and norms."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    rate = recipe.learning_rate
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=recipe.weight_decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def schedule(step: int, progress: float, recipe: Recipe) -> float:
    """Share of the learning rate: linear warm-up, constant, linear to nothing over the last 60 % of the training."""
    return min(1.0, (step + 1) / recipe.warmup, max(0.01, (1 - progress) / 0.6))


def to_device(batch: Batch, device: str) -> Batch:
    """The batch on a device, with the integer type that embeddings need."""
    return Batch(
        *(part.to(device, non_blocking=True) for part in (batch.ids, batch.positions, batch.segments, batch.weights))
    )


def train(recipe: Recipe, out: Path, device: str, workers: int, limit_s: float) -> dict[str, Any]:
    """Train and write the checkpoint to ``out``; returns what ``training.json`` records. The schedule runs by
    steps or by ``limit_s`` seconds, whichever ends sooner."""
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    tokenizer = train_tokenizer(recipe.seed, recipe.tokenizer_rows)
    packaged(tokenizer).save_pretrained(out)
    path = out / "tokenizer.json"
    model = new_model(recipe, "flex_attention" if device.startswith("cuda") else "sdpa").to(device)
    trunk = Trunk(model)
    print(
        f"{sum(p.numel() for p in model.parameters()):,} parameters; tokenizer after {time.monotonic() - start:.0f} s",
        flush=True,
    )
    on_gpu = device.startswith("cuda")
    if on_gpu:
        trunk.compile()
    block_mask = torch.compile(create_block_mask) if on_gpu else None
    opts = optimizers(model, recipe)
    loader = DataLoader(
        Rows(recipe, path), batch_size=None, num_workers=workers, prefetch_factor=4 if workers else None, pin_memory=on_gpu
    )
    sums: dict[str, list[torch.Tensor]] = {"rollout": [], "reflection": []}
    for step, raw in enumerate(loader):
        batch = to_device(raw, device)
        progress = max(step / recipe.steps, (time.monotonic() - start) / limit_s)
        for opt in opts:
            for group in opt.param_groups:
                group["lr"] = recipe.learning_rate * schedule(step, progress, recipe)
        prompt_weight = recipe.prompt_weight if step < recipe.steps // 3 else 0.0
        with torch.autocast("cuda", torch.bfloat16, enabled=on_gpu):
            loss, _ = loss_of(trunk, batch, attention_mask(batch.segments, block_mask), prompt_weight)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        sums["reflection" if step % 2 else "rollout"].append(loss.detach())
        if step % 200 == 199 or step == 9:
            took = time.monotonic() - start
            shown = {k: round(float(torch.stack(v[-50:]).mean()), 4) for k, v in sums.items() if v}
            print(f"step {step + 1} {took:.0f} s {shown}", flush=True)
        if step % 2000 == 1999:
            print("   unseen:", score(trunk, recipe, path, device, block_mask, 4), flush=True)
        if time.monotonic() - start > limit_s:
            print(f"time limit at step {step + 1}", flush=True)
            break
    scores = score(trunk, recipe, path, device, block_mask, 24)
    report = {"recipe": asdict(recipe), "seconds": round(time.monotonic() - start), "steps": step + 1, "scores": scores}
    model.set_attn_implementation("sdpa")
    model.to(torch.bfloat16).save_pretrained(out)
    (out / "training.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(report), flush=True)
    return report


@torch.no_grad()
def score(trunk: Any, recipe: Recipe, path: Path, device: str, block_mask: Any, batches: int) -> dict[str, float]:
    """On fresh rows with unseen words: share of answer tokens and of verdicts predicted right; loss of reflections."""
    rows = Rows(recipe, path, unseen=True)
    right = total = verdicts_right = verdicts = 0
    losses = []
    for index in range(2 * batches):
        batch = to_device(rows[index], device)
        with torch.autocast("cuda", torch.bfloat16, enabled=device.startswith("cuda")):
            loss, hit = loss_of(trunk, batch, attention_mask(batch.segments, block_mask), 0.0)
        if index % 2:
            losses.append(float(loss))
            continue
        answer = batch.weights[:, 1:] > 0
        heavy = batch.weights[:, 1:] == VERDICT_WEIGHT
        total += int(answer.sum())
        right += int((hit & answer).sum())
        wrong_heads = (~hit & heavy).sum(1)  # at most the verdict itself can be wrong among the first tokens
        count = (heavy & ~torch.nn.functional.pad(heavy, (1, 0))[:, :-1]).sum(1)
        verdicts += int(count.sum())
        verdicts_right += int((count - torch.minimum(wrong_heads, count)).sum())
    return {
        "verdicts": round(verdicts_right / max(1, verdicts), 5),
        "answer_tokens": round(right / max(1, total), 5),
        "reflection_loss": round(sum(losses) / max(1, len(losses)), 4),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line: every field of the recipe is an option."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--limit_s", type=float, default=1e9, help="stop after this many seconds")
    for field, default in asdict(Recipe()).items():
        parser.add_argument(f"--{field}", type=type(default), default=default)
    given = vars(parser.parse_args(arguments))
    out, device, workers, limit = (given.pop(name) for name in ("out", "device", "workers", "limit_s"))
    train(Recipe(**given), out, device, workers, limit)


if __name__ == "__main__":
    main()
