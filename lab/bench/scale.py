"""The same batch per rank on 1, 2, 4, ... ranks: ``bin/bench scale --devices 4 --workload 4b-shared
--tickets 128``.

All ranks are launched once and hold their model. A round is what it is in a loop: rank 0 hands out,
every rank answers its share of the batches, the answers are gathered; on k ranks the first k have a
share and the others none. ``--tickets`` is per rank. *Linear* is k times the rate of one rank; the
*orchestration* share is the part of a round in which not even the slowest rank's engine was at
work: handing out, gathering, encoding.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lab.bench.contestants import CONTESTANTS
from lab.bench.ranks import FailedError, Pass, Ranks, fabric_of, facts, parser_of, workload_of
from lab.bench.rows import write
from stageb.config import require
from stageb.errors import EngineError
from stageb.job.world import World, run


@dataclass(frozen=True, slots=True)
class Result:
    """The measurements on so many ranks."""

    ranks: int
    rollouts_per_s: float  # median over the rounds
    rollouts_per_s_range: tuple[float, float]  # of all rounds
    share_of_linear: float  # of ``ranks`` times the median rate on one
    # median: seconds of a round outside the slowest rank's engine, by all its seconds
    orchestration_share: float


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = parser_of("scale", __doc__)
    parser.add_argument("--engine", default="ours", choices=list(CONTESTANTS), help="default: ours")
    given = parser.parse_args(arguments)
    per_rank = workload_of(given)
    require(given.devices >= 1, "--devices", given.devices, "at least 1")
    # As many tickets as the largest round takes; what a rank is handed in smaller ones is the same.
    ranks = Ranks(replace(per_rank, tickets=per_rank.tickets * given.devices))

    def on_rank(world: World) -> int:
        ranks.bind(world)
        try:
            return scale(ranks, given, per_rank.tickets)
        except FailedError as error:
            raise EngineError(f"{error}\n{error.trace}") from error

    return run(fabric_of(given), on_rank)


def scale(ranks: Ranks, given: Namespace, per_rank: int) -> int:
    """On every rank: measure one number of ranks after the other; rank 0 prints."""
    machine = ranks.lead(begin, ranks, given.engine, per_rank)
    results: list[Result] = []
    for count in counts(ranks.world.world_size):
        batches = deal_batches(ranks, given.engine, per_rank, count)
        for _ in range(given.warmup):
            ranks.round(batches)
        rounds = [one for _ in range(given.repeats) if (one := ranks.round(batches))]
        if not ranks.world.is_global_zero:
            continue
        results.append(result(count, rounds, results))
        print(line(results[-1]), flush=True)
        rows = [asdict(row) for row in results]
        write(
            given.json,
            {
                "workload": asdict(ranks.workload),
                "engine": given.engine,
                "machine": machine,
                "rounds": rows,
            },
        )
    return 0


def begin(ranks: Ranks, engine: str, per_rank: int) -> dict[str, Any]:
    """On rank 0: the heading, and every rank's model loaded. Returns the machine's facts."""
    machine = facts(ranks.world)
    print(f"{ranks.workload.model}: {per_rank} tickets x {ranks.workload.samples} samples per rank")
    print(
        f"{machine['world_size']} x {machine['device_name']}, {machine['torch_threads']} "
        f"threads a rank"
    )
    print(
        f"{'ranks':>5} {'rollouts/s':>10} {'(range)':>17} {'linear':>7} {'orchestration':>14}",
        flush=True,
    )
    ranks.load(engine)
    return machine


def counts(world_size: int) -> list[int]:
    """1, 2, 4, ... up to the world size, which ends the list in any case."""
    powers = [1 << power for power in range(world_size.bit_length()) if 1 << power < world_size]
    return [*powers, world_size]


def deal_batches(ranks: Ranks, name: str, per_rank: int, count: int) -> list[list[int]]:
    """Batches for the first ``count`` ranks, ``per_rank`` tickets each; a batch without tickets for
    every other rank."""
    world = ranks.world.world_size
    shares = [
        ranks.batches_among(name, range(rank * per_rank, (rank + 1) * per_rank), per_rank)
        for rank in range(count)
    ]
    rounds = max(map(len, shares))
    turns = range(rounds)
    return [
        shares[rank][turn] if rank < count and turn < len(shares[rank]) else []
        for turn in turns
        for rank in range(world)
    ]


def result(count: int, rounds: Sequence[Pass], before: Sequence[Result]) -> Result:
    """Summarize ``rounds`` on ``count`` ranks; ``before`` holds the results on fewer."""
    rates = [one.rollouts / one.seconds for one in rounds]
    rate = statistics.median(rates)
    alone = before[0].rollouts_per_s if before else rate
    outside = statistics.median(1 - one.engine_s / one.seconds for one in rounds)
    return Result(count, rate, (min(rates), max(rates)), rate / (count * alone), outside)


def line(row: Result) -> str:
    """One number of ranks."""
    low, high = row.rollouts_per_s_range
    return (
        f"{row.ranks:>5} {row.rollouts_per_s:>10.1f} {f'({low:.1f}-{high:.1f})':>17} "
        f"{row.share_of_linear:>7.1%} {row.orchestration_share:>14.2%}"
    )
