"""Advice to a person on what to try next where a run has learnt nothing. The first lines matter most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stageb.errors import write_option
from stageb.guidance.commands.fit.artifacts import MissionFiles
from stageb.guidance.commands.fit.cautions import RARE
from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.attempts import (
    ALL_RIGHT,
    NO_CANDIDATE,
    NO_ROOM,
    Attempts,
    explain_refusals,
    name_last_stage,
)
from stageb.guidance.learning.state import STOP, State
from stageb.guidance.words.costs import EQUAL
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.texts import count_of
from stageb.guidance.words.types import PASS_FAIL
from stageb.store.journal import Journal

FEW = 4  # reflections, below which more of them are the first thing to try
MANY = 0.5  # share of what was proposed or tried, from which on it is the reason
UNPROVEN = ("unproven", "unlikely", "futile", "unpromising")


def advise_mission(
    journal: Journal, config: LoopConfig, state: State, mission: str
) -> Iterator[str]:
    """Advise what to try next where a run has changed nothing of a mission's guidance."""
    files = MissionFiles(journal, mission)
    attempts = files.list_attempts()
    if not config.runner.epochs or attempts.accepted:
        return
    why = STOP if state.ended == STOP else state.over.get(mission, "")
    lines = list(advise(files.read("metrics.jsonl"), attempts, config, why))
    shown = len(state.missions[mission].guidance.shown)
    if shown:
        yield (
            f"  The model is shown {count_of(shown, 'train ticket')} with their verdicts, and "
            f"told no rule."
        )
    what = "No rule was learnt" if shown else "Nothing was learnt"
    yield f"  {what}: {name_last_stage(attempts)}.{' What to try next:' if lines else ''}"
    yield from (f"  - {line}" for line in lines)


def advise(
    metrics: Sequence[Mapping[str, Any]], attempts: Attempts, config: LoopConfig, ended: str
) -> Iterator[str]:
    """``metrics`` are a mission's rows of metrics.jsonl; ``ended`` is what ended learning, a budget
    or ``STOP``."""
    judged = [
        row["classes"] for row in metrics if row["epoch"] == 0 and not has_labels(row["classes"])
    ]
    counts = {label: sum(classes[label]["n"] for classes in judged) for label in PASS_FAIL}
    total = sum(counts.values())
    rare = min(PASS_FAIL, key=lambda label: counts[label])
    if total and not counts[rare]:
        yield (
            f"None of {count_of(total, 'val and test ticket')} is labelled {rare}: give "
            f"tickets with both labels."
        )
        return
    if metrics and all(row["acc"] == 1 for row in metrics):
        yield "Every ticket was judged right: there was nothing to learn."
        return
    if ended == STOP:
        yield f"Learning was told to stop after {count_of(attempts.reflections, 'reflection')}."
    elif ended and not attempts.reflections:
        yield f"{ended} was spent on judging val and test, before the first reflection: raise it."
    elif ended:
        yield (
            f"Learning ended at {ended}, after {count_of(attempts.reflections, 'reflection')}: "
            f"raise it."
        )
    elif attempts.reflections < FEW and config.reflection.scope != "all":
        yield (
            f"There {'was' if attempts.reflections == 1 else 'were'} "
            f"{count_of(attempts.reflections, 'reflection')}: raise runner.epochs or "
            "runner.tickets_per_epoch."
        )
    if total and counts[rare] < RARE * total and config.price.by_label == EQUAL:
        worth = "price.missed_failure" if rare == "fail" else "price.false_alarm"
        yield (
            f"Only {counts[rare]:,} of {total:,} val and test tickets are labelled {rare}. If a "
            f"missed one costs more than a wrong {rare}, say so: {write_option(worth, 20)} "
            f"(docs/guides/rare.md)."
        )
    yield from _advise_on_edits(attempts, config.guidance.path is not None)
    if config.gating.provisional == "drop" and any(
        each.outcome == "unproven" and each.estimate for each in attempts.tried
    ):
        yield "The rules seem better without a proof: gate.provisional keep keeps them, marked."
    if config.guidance.path is None:
        yield (
            f"Write a rule that you believe in, and start from it: "
            f"{write_option('guidance.path', 'rules.json')}; stageb evaluate says what it is worth."
        )


def _advise_on_edits(attempts: Attempts, has_rules: bool) -> Iterator[str]:
    refused, tried = sum(attempts.refused.values()), len(attempts.tried)
    if refused and refused >= MANY * (refused + tried):
        why = explain_refusals(attempts.refused)[0][0]
        yield (
            f"{refused:,} proposals could not be used, most of them since they {why}: let a "
            f"larger model propose (reflection.model), or raise reflection.num_proposals."
        )
    ends = Counter(each.outcome for each in attempts.tried)
    if tried and ends["turns no evidence"] >= MANY * tried:
        yield (
            f"{ends['turns no evidence']:,} of {count_of(tried, 'edit')} fixed none of the "
            f"tickets they were made for: the model does not follow such rules; take a larger one "
            "(model.model_name_or_path)."
        )
    near = sum(ends[outcome] for outcome in UNPROVEN)
    if near:
        yield (
            f"{count_of(near, 'edit')} could not be proven on the tickets there are: give "
            f"more train tickets."
        )
    elif ends["dropped"]:
        yield (
            f"{count_of(ends['dropped'], 'edit')} lost their race, on tickets that are drawn "
            f"once: raise gate.race_size, or let code judge ({write_option('config', 'frugal')}), "
            f"where every train ticket teaches and tests."
        )
    if NO_ROOM in attempts.idle:
        yield (
            "Rules were found that have no room: raise reflection.max_rules or "
            "reflection.max_guidance_tokens, or learn fewer (reflection.size)."
        )
    if NO_CANDIDATE in attempts.idle and has_rules:
        yield "The rules that it began with stand: nothing better was found."
    elif NO_CANDIDATE in attempts.idle:
        yield (
            "Nothing in the tickets tells their labels apart: give columns or texts that do, "
            "or look for wrong labels."
        )
    elif not refused and not tried and attempts.idle.keys() == {ALL_RIGHT}:
        yield (
            "The model was right and sure about the train tickets: look whether val and test "
            "are like them."
        )
