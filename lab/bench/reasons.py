"""Rounds of train with reasons for all answers, for those that reflection reads, and for none: ``bin/bench reasons``

Each pass rolls out and selects the rounds of one epoch of a config's first mission, under the guidance that it begins with,
as ``stageb fit`` does, without journal and reflection; passes with the three values of ``sampler.reasons`` take turns.
``--set guidance.path=out/demo`` has them judge by learnt rules: the fewer are wrong, the fewer reasons there are. Beside
rollouts per second stand those per second of this process's processor time, which say more on a machine that is busy.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from lab.bench.rows import pairs, write
from stageb.cli.parsing import parse
from stageb.config import require
from stageb.guidance.commands.fit.inputs import Inputs, read_inputs
from stageb.guidance.judging.questions import Dialogue, add_reasons
from stageb.guidance.judging.ranks import Ranks
from stageb.guidance.judging.selection import select
from stageb.guidance.learning.schedule import Schedule
from stageb.guidance.words.config import LoopConfig
from stageb.guidance.words.types import Answers, Guidance, Record, Round, Verdict
from stageb.job.world import World, run

REASONS: tuple[Literal["all", "wrong", "none"], ...] = ("all", "wrong", "none")


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass brought, on rank 0."""

    seconds: float
    cpu_s: float  # of this rank's process
    verdicts: tuple[Verdict | None, ...]  # of every candidate, in order
    tickets: int
    tokens: int  # new ones
    reasons: int  # tickets whose chosen answer has one


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bin/bench reasons", description=__doc__)
    parser.add_argument("--config", default="configs/guidance/demo.yaml", help="of the run (default: the demo)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the run, as often as needed"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="timed passes of each kind, behind one that is not (default 3)"
    )
    parser.add_argument("--json", metavar="FILE", help="write what was measured, as JSON")
    given = parser.parse_args(arguments)
    require(given.repeats >= 1, "--repeats", given.repeats, "at least 1")
    config: LoopConfig = parse(
        ["--config", given.config, *(f"--{key}={value}" for key, value in pairs(given).items())]
    ).config
    inputs = read_inputs(config)
    return run(config.fabric, lambda world: measure(world, config, inputs, given))


def measure(world: World, config: LoopConfig, inputs: Inputs, given: argparse.Namespace) -> int:
    """On every rank: the passes; rank 0 prints."""
    ranks = Ranks(config, inputs.tickets, world)
    ranks.load()
    mission, guidance = next(iter(inputs.guidance.items()))
    rounds = list(Schedule(inputs.splits, config, ranks.round_size).train(1, mission))
    passes: dict[str, list[Pass]] = {reasons: [] for reasons in REASONS}
    for _ in range(1 + given.repeats):
        for reasons in REASONS:
            ranks.config = replace(config, sampler=replace(config.sampler, reasons=reasons))
            passes[reasons].append(pass_over(world, ranks, rounds, guidance))
    if world.is_global_zero:
        write(given.json, {reasons: tell(reasons, made, passes["all"]) for reasons, made in passes.items()})
    return 0


def pass_over(world: World, ranks: Ranks, rounds: Sequence[Round], guidance: Guidance) -> Pass:
    """All rounds, one after the other."""
    world.broadcast(None)
    begun, begun_cpu, records = time.perf_counter(), time.process_time(), list[Record]()
    for batch in rounds:
        answers = ranks.roll_out(batch, guidance, lambda tickets: None)
        records += world.consult(ranks.answer, select_all, ranks, batch, guidance, answers) or []
    seconds, cpu_s = time.perf_counter() - begun, time.process_time() - begun_cpu
    candidates = [candidate for record in records for candidate in record.answers.candidates]
    verdicts, tokens = tuple(each.verdict for each in candidates), sum(each.tokens for each in candidates)
    explained = sum(bool(record.selection.reason) for record in records)
    return Pass(seconds, cpu_s, verdicts, len(records), tokens, explained)


def select_all(ranks: Ranks, batch: Round, guidance: Guidance, answers: Sequence[Answers]) -> Dialogue[list[Record]]:
    """The round's records, with the reasons that are wanted."""
    agreement = ranks.config.manual_review.min_verdict_agreement
    records = [
        Record(ticket, batch.epoch, batch.number, guidance.step, each, select(ticket, each, agreement))
        for ticket, each in zip((ranks.tickets[i] for i in batch.tickets), answers, strict=True)
    ]
    return (yield from add_reasons(batch, records, guidance))


def tell(reasons: str, made: Sequence[Pass], whole: Sequence[Pass]) -> dict[str, Any]:
    """Print what passes with these reasons came to, beside those with all."""
    first, timed = made[0], made[1:]
    rates = [len(each.verdicts) / each.seconds for each in timed]
    row = {
        "rollouts_per_s": statistics.median(rates),
        "rollouts_per_s_range": [min(rates), max(rates)],
        "rollouts_per_cpu_s": statistics.median(len(each.verdicts) / each.cpu_s for each in timed),
        "tokens_per_rollout": first.tokens / len(first.verdicts),
        "explained": first.reasons / first.tickets,
        "verdicts_equal": sum(one == other for one, other in zip(first.verdicts, whole[0].verdicts, strict=True)),
        "rollouts": len(first.verdicts),
    }
    print(
        f"{reasons:<6}{row['rollouts_per_s']:8.1f} rollouts/s ({min(rates):.1f} to {max(rates):.1f}), "
        f"{row['rollouts_per_cpu_s']:.1f} a CPU second; {row['tokens_per_rollout']:.1f} tokens each; "
        f"reasons for {row['explained']:.0%} of {first.tickets} tickets; "
        f"{row['verdicts_equal']} of {row['rollouts']} verdicts as with all",
        flush=True,
    )
    return row
