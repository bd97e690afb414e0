"""What to try next where a run has learnt nothing, by what its files say. The first lines matter most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stageb.guidance.attempts import NO_CANDIDATE, Attempts
from stageb.guidance.cautions import RARE
from stageb.guidance.config import LoopConfig
from stageb.guidance.costs import EQUAL, LABELS, prices_of
from stageb.guidance.outcomes import count_of, explain_refusals

FEW = 4  # reflections, below which more of them are the first thing to try
MANY = 0.5  # share of what was proposed or tried, from which on it is the reason
UNPROVEN = ("unproven", "unlikely", "futile", "unpromising")


def advise(metrics: Sequence[Mapping[str, Any]], attempts: Attempts, config: LoopConfig, ended: str) -> Iterator[str]:
    """``metrics`` are a mission's rows of metrics.jsonl; ``ended`` is the budget that ended learning, if one did."""
    counts = {label: sum(row["classes"][label]["n"] for row in metrics if row["epoch"] == 0) for label in LABELS}
    total = sum(counts.values())
    rare = min(LABELS, key=lambda label: counts[label])
    if total and not counts[rare]:
        yield f"None of {count_of(total, 'val and test ticket')} is labelled {rare}: give tickets with both labels."
        return
    if metrics and all(row["acc"] == 1 for row in metrics):
        yield "Every ticket was judged right: there was nothing to learn."
        return
    if ended and not attempts.reflections:
        yield f"{ended} was spent on judging val and test, before the first reflection: raise it."
    elif ended:
        yield f"Learning ended at {ended}, after {count_of(attempts.reflections, 'reflection')}: raise it."
    elif attempts.reflections < FEW and config.reflection.scope != "all":
        yield (
            f"There {'was' if attempts.reflections == 1 else 'were'} {count_of(attempts.reflections, 'reflection')}: raise "
            "runner.epochs or runner.tickets_per_epoch."
        )
    if total and counts[rare] < RARE * total and prices_of(config.gating) == EQUAL:
        worth = "gate.fp_weight" if rare == "fail" else "gate.fn_weight"
        yield (
            f"Only {counts[rare]:,} of {total:,} val and test tickets are labelled {rare}. If a missed one costs more than "
            f"a wrong {rare}, say so: --{worth} 20 (docs/guides/rare.md)."
        )
    yield from _advise_on_edits(attempts)
    if config.gating.provisional == "drop" and any(each.outcome == "unproven" and each.estimate for each in attempts.edits):
        yield "The rules seem better without a proof: gate.provisional keep keeps them, marked."
    if config.guidance.path is None:
        yield (
            "Write a rule that you believe in, and start from it: --guidance.path rules.json; stageb evaluate says what it "
            "is worth."
        )


def _advise_on_edits(attempts: Attempts) -> Iterator[str]:
    refused, tried = sum(attempts.refused.values()), len(attempts.edits)
    if refused and refused >= MANY * (refused + tried):
        why = explain_refusals(attempts.refused)[0][0]
        yield (
            f"{refused:,} proposals could not be used, most of them since they {why}: let a larger model propose "
            "(reflection.model), or raise reflection.num_proposals."
        )
    ends = Counter(each.outcome for each in attempts.edits)
    if tried and ends["turns no evidence"] >= MANY * tried:
        yield (
            f"{ends['turns no evidence']:,} of {count_of(tried, 'edit')} fixed none of the tickets they were made for: "
            "the model does not follow such rules; take a larger one (model.model_name_or_path)."
        )
    near = sum(ends[outcome] for outcome in UNPROVEN)
    if near:
        yield f"{count_of(near, 'edit')} could not be proven on the tickets there are: give more train tickets."
    elif ends["dropped"]:
        yield (
            f"{count_of(ends['dropped'], 'edit')} lost their race, on tickets that are drawn once: raise gate.race_size, or "
            "let code judge (--config frugal), where every train ticket teaches and tests."
        )
    if NO_CANDIDATE in attempts.idle:
        yield "Nothing in the tickets tells their labels apart: give columns or texts that do, or look for wrong labels."
    elif not refused and not tried and attempts.idle:
        yield "The model was right and sure about the train tickets: look whether val and test are like them."
