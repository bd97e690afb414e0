"""Rollouts per second of several engines on one workload: ``bin/bench rollout --workload demo-cpu
--engines ours,generate``.

An engine may be given fewer of the same tickets, where it is too slow for all: ``generate:32``.
Each is loaded, warmed up, timed over several passes, checked, and dropped before the next one is
loaded. Seconds run from handing the tickets out until rank 0 has all answers. A machine that is
busy with other work spreads them; rollouts per second of processor time, which stand beside them,
then say more of an engine on a CPU.

Two checks stand beside the figures. *Greedy*: on a few tickets, which share of the greedy answers
has the very tokens of ``generate`` in float arithmetic of the same kind, and how many tokens the
earliest difference lets pass; bfloat16 turns near-ties over, so equality can be expected of float32
alone. With random weights nearly every token is a near-tie: their answers in bfloat16 say nothing
and are not compared (``bin/bench precision`` compares a checkpoint's). *Keys*: the share of sampled
answers that stay the same where the same requests are asked in another order and cut.
"""

from __future__ import annotations

import statistics
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from lab.bench.contestants import CONTESTANTS
from lab.bench.floor import Device
from lab.bench.ranks import FailedError, Pass, Ranks, Row, fabric_of, facts, parser_of, workload_of
from lab.bench.rows import write
from lab.bench.workloads import dtype_of
from stageb.config import require
from stageb.job.world import World, run

REFERENCE = "generate"
NOT_COMPARED = (
    "greedy = -: not compared. With random weights nearly every token is a near-tie, which "
    "bfloat16 turns over;\n"
    "bin/bench precision tells how far it parts from float32 on a checkpoint."
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One engine on the command line: ``name`` or ``name:tickets``."""

    name: str
    tickets: int


@dataclass(frozen=True, slots=True)
class Result:
    """The measurements of one engine."""

    engine: str
    tickets: int
    rollouts_per_s: float  # median over the passes
    rollouts_per_s_range: tuple[float, float]  # of all passes
    new_tokens_per_s: float  # median
    new_tokens: int  # of one pass
    # median; on a machine that is busy with other work the steadier figure
    rollouts_per_cpu_s: float
    startup_s: float  # loading, on the slowest rank
    warmup_s: float  # the passes that did not count
    peak_bytes: int  # of the rank that held most
    floor_s: float  # least seconds for these very answers, parts in series
    floor_share: float  # of the median pass: 1 would be the floor itself
    overlapped_share: float  # of the median pass, where reading and computing overlap
    # share of greedy answers equal to those of generate; null: not comparable
    greedy_equal: float | None
    # tokens before the earliest difference; null: none, or not comparable
    greedy_first_difference: int | None
    keys_equal: float | None  # share of samples independent of order and cut; null: it has no keys


def main(arguments: Sequence[str]) -> int:
    """The command line. Returns 1 where an engine failed."""
    parser = parser_of("rollout", __doc__)
    parser.add_argument(
        "--engines",
        default="ours,generate",
        help=f"of {', '.join(CONTESTANTS)}; NAME:TICKETS for fewer",
    )
    parser.add_argument(
        "--check",
        type=int,
        default=16,
        help="tickets for the two checks (default 16; 0: no checks)",
    )
    given = parser.parse_args(arguments)
    workload = workload_of(given)
    entries = entries_of(given.engines, workload.tickets)
    require(
        0 <= given.check <= workload.tickets,
        "--check",
        given.check,
        f"at most {workload.tickets} tickets",
    )
    ranks = Ranks(workload)

    def on_rank(world: World) -> int:
        ranks.bind(world)
        return ranks.lead(compare, ranks, entries, given)

    return run(fabric_of(given), on_rank)


def entries_of(text: str, tickets: int) -> list[Entry]:
    """Parse ``--engines``. Raises ``ConfigError``."""
    entries = []
    for part in text.split(","):
        name, colon, count = part.strip().partition(":")
        require(name in CONTESTANTS, "--engines", part, f"choose from {', '.join(CONTESTANTS)}")
        right = not colon or (count.isdecimal() and 1 <= int(count) <= tickets)
        require(right, "--engines", part, f"NAME:TICKETS with 1 to {tickets} tickets")
        entries.append(Entry(name, int(count) if colon else tickets))
    return entries


def compare(ranks: Ranks, entries: Sequence[Entry], given: Namespace) -> int:
    """Measure and print one engine after the other. Returns 1 where one failed."""
    record: dict[str, Any] = {"workload": asdict(ranks.workload), "machine": facts(ranks.world)}
    device = ranks.measured()
    prompt_tokens = ranks.prompt_tokens()
    record |= {
        "prompt_tokens": sum(prompt_tokens),
        "measured": asdict(device),
        "engines": [],
        "failed": [],
    }
    print(heading(record), flush=True)
    telling = greedy_tells(ranks)
    asked = telling and any(comparable(ranks, entry.name) for entry in entries)
    reference = reference_of(ranks, given.check if asked else 0)
    for entry in entries:
        try:
            result = measure(ranks, entry, given, device, reference)
        except FailedError as error:
            print(error.trace, file=sys.stderr)
            print(f"{entry.name:<11} failed: {error}", flush=True)
            record["failed"].append({"engine": entry.name, "error": str(error)})
            ranks.on_each("drop")
            continue
        record["engines"].append(asdict(result))
        print(line(result), flush=True)
        write(given.json, record)
    if given.check and not telling:
        print(NOT_COMPARED, flush=True)
    write(given.json, record)
    return 1 if record["failed"] else 0


def greedy_tells(ranks: Ranks) -> bool:
    """Whether equal greedy answers can be expected at all: not of random weights in half
    precision."""
    return (
        ranks.workload.prompts != "made"
        or dtype_of(ranks.workload, ranks.world.device) == torch.float32
    )


def comparable(ranks: Ranks, name: str) -> bool:
    """Whether the contestant ``name`` answers from the same weights as ``generate``."""
    return not (CONTESTANTS[name].own_weights and ranks.workload.prompts == "made")


def reference_of(ranks: Ranks, check: int) -> dict[int, list[Row]]:
    """The greedy answers of ``generate`` to the tickets of the check."""
    if not check:
        return {}
    ranks.load(REFERENCE)
    answered = ranks.pass_over(ranks.batches(REFERENCE, check), greedy=True)
    ranks.on_each("drop")
    return answered.answers


def measure(
    ranks: Ranks, entry: Entry, given: Namespace, device: Device, reference: dict[int, list[Row]]
) -> Result:
    """All that is to be known of one engine. Raises ``FailedError``."""
    contestant = CONTESTANTS[entry.name]
    startup_s = ranks.load(entry.name)
    ranks.require_counts(entry.name)
    batches = ranks.batches(entry.name, entry.tickets)
    warmup_s = sum(ranks.pass_over(batches).seconds for _ in range(given.warmup))
    passes = [ranks.pass_over(batches) for _ in range(given.repeats)]
    middle = statistics.median_low([one.seconds for one in passes])
    typical = next(one for one in passes if one.seconds == middle)
    floor = ranks.floor_of(batches, typical, device)
    asked = bool(reference) and comparable(ranks, entry.name)
    equal, first = greedy_check(ranks, entry.name, reference) if asked else (None, None)
    keys_equal = (
        keys_check(ranks, typical, min(given.check, entry.tickets))
        if contestant.keyed and given.check
        else None
    )
    peak_bytes = max(ranks.on_each("peak"))
    ranks.on_each("drop")
    rates = [one.rollouts / one.seconds for one in passes]
    return Result(
        engine=entry.name,
        tickets=entry.tickets,
        rollouts_per_s=typical.rollouts / middle,
        rollouts_per_s_range=(min(rates), max(rates)),
        new_tokens_per_s=typical.tokens / middle,
        new_tokens=typical.tokens,
        rollouts_per_cpu_s=statistics.median(one.rollouts / one.cpu_s for one in passes),
        startup_s=startup_s,
        warmup_s=warmup_s,
        peak_bytes=peak_bytes,
        floor_s=floor.series_s,
        floor_share=floor.series_s / middle,
        overlapped_share=floor.overlapped_s / middle,
        greedy_equal=equal,
        greedy_first_difference=first,
        keys_equal=keys_equal,
    )


def greedy_check(
    ranks: Ranks, name: str, reference: dict[int, list[Row]]
) -> tuple[float, int | None]:
    """The share of greedy answers with the tokens of ``reference``, and how many tokens precede the
    earliest difference."""
    answers = ranks.pass_over(ranks.batches(name, len(reference)), greedy=True).answers
    tokens = ranks.tokens_of
    differing = [i for i, rows in reference.items() if answers[i] != rows]
    before = [common(tokens(answers[i][0][0]), tokens(reference[i][0][0])) for i in differing]
    return 1 - len(differing) / len(reference), min(before, default=None)


def keys_check(ranks: Ranks, answered: Pass, check: int) -> float:
    """The share of samples that come out again where their tickets are asked backwards and in
    batches of three."""
    order = list(range(check))[::-1]
    again = ranks.pass_over([order[start : start + 3] for start in range(0, check, 3)]).answers
    pairs = [
        (old, new) for i in order for old, new in zip(answered.answers[i], again[i], strict=True)
    ]
    return sum(old == new for old, new in pairs) / len(pairs)


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of what two sequences begin with alike."""
    alike = (
        place for place, (one, other) in enumerate(zip(left, right, strict=False)) if one != other
    )
    return next(alike, min(len(left), len(right)))


# Printing -----------------------------------------------------------------------------------------


def heading(record: dict[str, Any]) -> str:
    """Return the workload, the machine and the table's head, a line each."""
    workload, machine, measured = record["workload"], record["machine"], record["measured"]
    asked = (
        f"{workload['tickets']} tickets x {workload['samples']} samples, "
        f"{record['prompt_tokens']} prompt tokens"
    )
    place = (
        f"{machine['world_size']} x {machine['device_name']}, {machine['torch_threads']} "
        f"threads a rank"
    )
    best = (
        f"copy {measured['bytes_per_s'] / 1e9:.1f} GB/s, products "
        f"{measured['operations_per_s'] / 1e12:.2f} TFLOP/s"
    )
    titles = (
        f"{'engine':<11} {'tickets':>7} {'rollouts/s':>10} {'(range)':>17} {'per cpu-s':>9} "
        f"{'new tok/s':>10} {'floor':>7} {'overlap':>7} {'start s':>8} {'peak GB':>8} "
        f"{'greedy =':>9} {'from':>5} {'keys =':>7}"
    )
    return (
        f"{workload['model']}: {asked}, at most {workload['new_tokens']} new\n{place}; "
        f"{best}\n{titles}"
    )


def line(result: Result) -> str:
    """One engine's line."""
    low, high = result.rollouts_per_s_range

    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    first = "-" if result.greedy_first_difference is None else str(result.greedy_first_difference)
    return (
        f"{result.engine:<11} {result.tickets:>7} {result.rollouts_per_s:>10.1f} "
        f"{f'({low:.1f}-{high:.1f})':>17} {result.rollouts_per_cpu_s:>9.1f} "
        f"{result.new_tokens_per_s:>10.0f} {result.floor_share:>7.1%} "
        f"{result.overlapped_share:>7.1%} {result.startup_s:>8.1f} {result.peak_bytes / 1e9:>8.2f} "
        f"{share(result.greedy_equal):>9} {first:>5} {share(result.keys_equal):>7}"
    )
