"""Train the shipped model: ``python -m lab.tiny.train --out FOLDER --limit_s 1380 --begin FOLDER``
(one GPU, minutes).

What is trained is a Qwen3-shaped decoder on rows drawn without end from ``examples`` and
``lessons``, each seen a few times. It starts from nothing, or from a checkpoint whose tokenizer it
keeps (``training.json`` keeps what that one records). Hidden matrices are updated by Muon, the rest
by AdamW. Left out on purpose: mixed corpora, distillation from another model, reinforcement; the
data's own teacher is exact and costs nothing. Under ``torchrun --nproc-per-node N -m
lab.tiny.train`` N GPUs train together, each on rows of its own: in the same minutes, a loss that
one GPU never came to.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils.data import DataLoader, Dataset
from transformers import Qwen3Config, Qwen3ForCausalLM

from lab.tiny.examples import Row, drill_row, labelled_row, rollout_row
from lab.tiny.lessons import lessons
from lab.tiny.packing import (
    VERDICT_WEIGHT,
    Batch,
    Packed,
    attention_mask,
    batch_of,
    fill,
    pack,
    to_device,
    with_prompt,
)
from lab.tiny.ranks import Ranks
from lab.tiny.tokens import VOCABULARY, Encoder, packaged, train_tokenizer
from lab.tiny.worlds import draw_world
from stageb import seeds
from stageb.training.step import Muon

# batches kept for further uses (2 MB each), and how many make a choice
RECENT, RECENT_LEAST = 4000, 100
SAVE_EVERY_S = 90.0
SCORED = 4  # batches of rollouts, and as many of reflections
# of the rollout rows: attributes that are all alike, for many conjunctions, comparisons and
# calculations
BOARDS = 0.35
LABELLED = 0.3  # of the rollout rows: labels of a mission's own
DRILLS = 0.7  # of the rollout rows of a world that has what they need


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the outcome."""

    seed: int = 1
    steps: int = 20000
    rows: int = 16  # per batch
    length: int = 4096  # tokens per row
    longest: int = 2816  # tokens of one document
    answers: int = 16384  # tokens per batch that are predicted, at most
    uses: int = 3  # of every batch, on average: one GPU learns faster than 16 cores draw rows
    reflections: float = 0.45  # share of the tokens that are reflections
    layers: int = 8
    width: int = 256
    inner: int = 576
    heads: int = 8
    kv_heads: int = 4
    learning_rate: float = 2e-3
    warmup: int = 200
    cooldown: float = 0.7  # share of the training over which the learning rate falls to nothing
    weight_decay: float = 0.05
    # of prompt tokens that are predicted too, in the first third of a training from nothing
    prompt_share: float = 0.1
    chinese: float = 0.08
    tokenizer_rows: int = 4000


class Rows(Dataset[Batch]):
    """Batch ``index`` of a rank from streams of (seed, number of the batch) alone."""

    def __init__(
        self,
        recipe: Recipe,
        tokenizer: Path,
        unseen: bool = False,
        from_nothing: bool = False,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        """``part``: which rank this is, and of how many."""
        self.recipe, self.tokenizer, self.unseen, self.from_nothing = (
            recipe,
            tokenizer,
            unseen,
            from_nothing,
        )
        self.rank, self.ranks = part
        self.encoder: Encoder | None = None

    def __len__(self) -> int:
        return self.recipe.steps

    def __getitem__(self, index: int) -> Batch:
        if self.encoder is None:  # made in the worker
            self.encoder = Encoder(self.tokenizer)
        recipe = self.recipe
        ramp = self.from_nothing and not self.unseen
        difficulty = min(1.0, 0.2 + index / (0.2 * recipe.steps)) if ramp else 1.0
        prompt_share = recipe.prompt_share if ramp and index < recipe.steps // 3 else 0.0
        rng = random.Random(
            seeds.stream(
                recipe.seed, "unseen" if self.unseen else "train", index * self.ranks + self.rank
            )
        )
        documents = self._documents(rng, difficulty, prompt_share)
        return batch_of(fill(documents, recipe.rows, recipe.length), recipe.length, recipe.answers)

    def _documents(
        self, rng: random.Random, difficulty: float, prompt_share: float
    ) -> Iterator[Packed]:
        """Rollouts and reflections in their shares of the tokens."""
        assert self.encoder is not None
        recipe = self.recipe
        made = {True: 0, False: 0}
        rows = {True: self._reflections(rng, difficulty), False: self._rollouts(rng, difficulty)}
        while True:
            reflecting = (
                made[True] * (1 - recipe.reflections) <= made[False] * recipe.reflections
                and recipe.reflections > 0
            )
            row = next(rows[reflecting])
            rough = 0.0 if self.unseen else 0.35
            document = pack(
                *self.encoder.encode(row, rng, reflecting, rough), row.shares, recipe.longest
            )
            if document is not None:
                made[reflecting] += len(document.ids)
                yield with_prompt(document, prompt_share, rng) if prompt_share else document

    def _reflections(self, rng: random.Random, difficulty: float) -> Iterator[Row]:
        while True:
            most = rng.choice((1500, 3000, 4500, 5500))
            taught = lessons(rng, difficulty, self.unseen, self.recipe.chinese, most)
            for _ in range(8):
                yield next(taught).row

    def _rollouts(self, rng: random.Random, difficulty: float) -> Iterator[Row]:
        while True:
            world = draw_world(
                rng, difficulty, self.unseen, self.recipe.chinese, rng.random() < BOARDS
            )
            if not self.unseen and rng.random() < LABELLED:
                yield labelled_row(rng, world)
                continue
            drill = drill_row(rng, world, self.unseen) if rng.random() < DRILLS else None
            yield drill or rollout_row(rng, world, difficulty, self.unseen)


def answer_loss(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    spots: torch.Tensor,
    targets: torch.Tensor,
    weights: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean weighted cross-entropy at the spots, and which targets are the most probable tokens
    (answers,)."""
    logits = functional.linear(hidden.flatten(0, 1)[spots], weight).float()
    each = functional.cross_entropy(logits, targets, reduction="none")
    return (each * weights).sum() / weights.sum(), logits.argmax(-1) == targets


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
    return [
        Muon(matrices, recipe.learning_rate, recipe.weight_decay),
        torch.optim.AdamW(others, lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def schedule(step: int, progress: float, recipe: Recipe) -> float:
    """Share of the learning rate: linear warm-up, constant, linear to nothing."""
    return min(1.0, (step + 1) / recipe.warmup, max(0.005, (1 - progress) / recipe.cooldown))


class Trainer:
    """A model with what it takes to compute its loss, compiled on a GPU."""

    def __init__(self, recipe: Recipe, device: str, start: Path | None) -> None:
        self.recipe, self.device, self.on_gpu = recipe, device, device.startswith("cuda")
        self.model = new_model(recipe, "flex_attention" if self.on_gpu else "sdpa")
        if start is not None:
            self.model.load_state_dict(
                Qwen3ForCausalLM.from_pretrained(start, dtype=torch.float32).state_dict()
            )
        self.model.to(device)
        self.trunk = Trunk(self.model)
        self.answer_loss: Any = answer_loss
        self.block_mask: Any = None
        if self.on_gpu:  # one shape for all batches: compiled once, for that shape
            self.trunk.compile(dynamic=False)
            self.answer_loss = torch.compile(answer_loss, dynamic=False)
            self.block_mask = torch.compile(create_block_mask, dynamic=False)

    def loss(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """``answer_loss`` of a batch on the device."""
        with torch.autocast("cuda", torch.bfloat16, enabled=self.on_gpu):
            mask = attention_mask(batch.segments, self.block_mask)
            hidden = self.trunk(batch.ids, {"full_attention": mask}, batch.positions)
            loss, hit = self.answer_loss(
                hidden, self.trunk.weight, batch.spots, batch.targets, batch.weights
            )
        return loss, hit

    def save(self, out: Path) -> None:
        """Write the weights as they are, in bfloat16."""
        copy = new_model(self.recipe, "sdpa")
        copy.load_state_dict(self.model.state_dict())
        copy.to(torch.bfloat16).save_pretrained(out)


def reused(batches: Iterator[Batch], recipe: Recipe, device: str) -> Iterator[Batch]:
    """A batch for every step, on the device: ``recipe.uses`` times as many as are drawn, by taking
    recent ones again."""
    recent: list[Batch] = []
    again = random.Random(recipe.seed)
    for step in range(recipe.steps):
        if step % recipe.uses == 0 or len(recent) < RECENT_LEAST:
            recent[: len(recent) + 1 - RECENT] = []
            recent.append(to_device(next(batches), device))
            yield recent[-1]
        else:
            yield again.choice(recent)


def train(
    recipe: Recipe, out: Path, device: str, workers: int, limit_s: float, start: Path | None = None
) -> dict[str, Any]:
    """Train and write the checkpoint to ``out``; returns what ``training.json`` records. The
    schedule runs by steps or by ``limit_s`` seconds, whichever ends sooner. The weights are also
    written now and then on the way."""
    began = time.monotonic()
    ranks = Ranks(device)
    path = out / "tokenizer.json"
    if ranks.rank == 0:
        put_tokenizer(out, recipe, start)
    ranks.wait()
    rows = Rows(recipe, path, from_nothing=start is None, part=(ranks.rank, ranks.size))
    loader = DataLoader(
        rows,
        batch_size=None,
        num_workers=workers,
        prefetch_factor=5 if workers else None,
        pin_memory=device != "cpu",
    )
    # the workers begin while the model is compiled
    batches = reused(iter(loader), recipe, ranks.device)
    trainer = Trainer(recipe, ranks.device, start)
    steps = run(trainer, batches, ranks, out, began, limit_s)
    report = {
        "recipe": asdict(recipe),
        "gpus": ranks.size,
        "seconds": round(time.monotonic() - began),
        "steps": steps,
        "scores": score(trainer, path, SCORED) if ranks.rank == 0 else {},
    }
    if start is not None and (start / "training.json").exists():
        report["started_from"] = json.loads((start / "training.json").read_text(encoding="utf-8"))
    if ranks.rank == 0:
        trainer.save(out)
        (out / "training.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        print(json.dumps(report), flush=True)
    ranks.end()
    return report


def put_tokenizer(out: Path, recipe: Recipe, start: Path | None) -> None:
    """The tokenizer that the checkpoint in ``out`` is to have: the one of ``start``, or a new
    one."""
    out.mkdir(parents=True, exist_ok=True)
    if start is None:
        packaged(train_tokenizer(recipe.seed, recipe.tokenizer_rows)).save_pretrained(out)
    else:
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copyfile(start / name, out / name)


def run(
    trainer: Trainer,
    batches: Iterator[Batch],
    ranks: Ranks,
    out: Path,
    began: float,
    limit_s: float,
) -> int:
    """All steps, as far as time allows; how many they were."""
    recipe, opts, weights = (
        trainer.recipe,
        optimizers(trainer.model, trainer.recipe),
        list(trainer.model.parameters()),
    )
    print(f"{sum(p.numel() for p in weights):,} parameters", flush=True)
    losses: list[torch.Tensor] = []
    waited, saved = 0.0, began
    for step in range(recipe.steps):
        asked = time.monotonic()
        batch = next(batches)
        waited += time.monotonic() - asked
        seconds = ranks.seconds(step, time.monotonic() - began)
        if seconds > limit_s:
            print(f"time limit at step {step}", flush=True)
            return step
        for opt in opts:
            for group in opt.param_groups:
                group["lr"] = recipe.learning_rate * schedule(
                    step, max(step / recipe.steps, seconds / limit_s), recipe
                )
        loss, _ = trainer.loss(batch)
        loss.backward()
        ranks.average(weights)
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        for opt in opts:
            opt.step()
            # where gradients move, Muon records anew, and the memory of that stays taken
            opt.zero_grad(set_to_none=False)
        losses.append(loss.detach())
        if ranks.rank == 0 and (step % 200 == 199 or step in (0, 9, 49)):
            mean = float(torch.stack(losses).mean())
            took = time.monotonic() - began
            print(
                f"step {step + 1} {took:.0f} s, {waited:.0f} s of them waiting for rows, loss "
                f"{mean:.4f}",
                flush=True,
            )
            losses.clear()
        if ranks.rank == 0 and time.monotonic() - saved > SAVE_EVERY_S:
            saved = time.monotonic()
            trainer.save(out)
    return recipe.steps


def score(trainer: Trainer, path: Path, batches: int) -> dict[str, float]:
    """On fresh rows with unseen words: share of answer tokens and of verdicts predicted right; loss
    of reflections.

    Gradients stay on though nothing is differentiated: without them the model would be compiled a
    second time.
    """
    right = total = verdicts_right = verdicts = 0
    losses = []
    rollouts, reflections = (
        Rows(replace(trainer.recipe, reflections=share), path, unseen=True) for share in (0.0, 1.0)
    )
    for index in range(batches):
        batch = to_device(rollouts[index], trainer.device)
        _, hit = trainer.loss(batch)
        answer, heavy = batch.weights > 0, batch.weights == VERDICT_WEIGHT
        total += int(answer.sum())
        right += int((hit & answer).sum())
        verdicts += int(heavy.sum()) // 4
        # only the verdict can be wrong in the head
        verdicts_right += int(heavy.sum()) // 4 - int((heavy & ~hit).sum())
        losses.append(
            float(trainer.loss(to_device(reflections[index], trainer.device))[0].detach())
        )
    return {
        "verdicts": round(verdicts_right / max(1, verdicts), 5),
        "answer_tokens": round(right / max(1, total), 5),
        "reflection_loss": round(sum(losses) / max(1, len(losses)), 4),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line: every field of the recipe is an option."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--begin", type=Path, default=None, help="a checkpoint to go on from")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--limit_s", type=float, default=1e9, help="stop after this many seconds")
    for field, default in asdict(Recipe()).items():
        parser.add_argument(f"--{field}", type=type(default), default=default)
    given = vars(parser.parse_args(arguments))
    out, start, device, workers, limit = (
        given.pop(name) for name in ("out", "begin", "device", "workers", "limit_s")
    )
    train(Recipe(**given), out, device, workers, limit, start)


if __name__ == "__main__":
    main()
