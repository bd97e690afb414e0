"""Cells: one method on one data set with one seed. Many at once, one thread each; a finished one is
not run again."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from lab.bench.learning import data
from lab.bench.learning.classic import LEARNERS
from lab.bench.learning.method import DTYPE, ENGLISH, CodeFirst, Judge, Learnt, Method, Task
from lab.bench.learning.proposer import idle
from stageb import engines
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Engine
from stageb.engines.scripted import ScriptedEngine
from stageb.errors import StagebError
from stageb.guidance.config import LoopConfig, SplitConfig
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.tickets.splits import SPLITS, split_tickets
from stageb.guidance.words.types import Split, Ticket
from stageb.store import disk

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Noise = Literal["shuffled", "permuted", "one-rule", "idle"]
"""Labels dealt anew, half of each: nothing to learn; in another order, as many of each as before;
dealt anew beside one true rule; proposals made up that change nothing in meaning."""
SPLIT = SplitConfig(train=0.6, val=0.2, test=0.2)


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of one method."""

    dataset: str
    method: str  # a key of METHODS, or of LEARNERS, which need no rollouts
    seed: int  # of the split and of the method
    budget: int  # rollouts
    noise: Noise | None = None  # what counts then is what it accepts, and not what it learns
    measured: bool = True  # whether test accuracy is measured along the way

    @property
    def name(self) -> str:
        """The name of its folder."""
        marks = [self.noise] if self.noise else []
        return "-".join([self.dataset, self.method, *marks, f"b{self.budget}", f"s{self.seed}"])


@dataclass(frozen=True, slots=True)
class Place:
    """Where cells are run."""

    out: Path  # a folder per cell goes under it
    data: Path | None  # folder of ticket files
    configs: tuple[Path, ...]  # of this loop
    model: str
    device: str  # cpu or cuda


def run_all(cells: Sequence[Cell], place: Place, workers: int) -> list[dict[str, Any]]:
    """The results of all cells, in order; a line on stderr for each that ends.

    Raises ``StagebError`` where some failed, after the others are done.
    """
    os.environ.update(dict.fromkeys(THREADS, "1"))
    left = [cell for cell in cells if not _result_path(cell, place).is_file()]
    failed: list[str] = []
    with ProcessPoolExecutor(
        max(1, min(workers, len(left))), mp_context=get_context("spawn")
    ) as pool:
        running = [pool.submit(attempt, cell, place) for cell in left]
        for number, future in enumerate(as_completed(running), 1):
            done, line = future.result()
            failed += [] if done else [line]
            print(f"{number}/{len(left)} {line}", file=sys.stderr, flush=True)
    if failed:
        raise StagebError("runs failed; the same command runs them again:\n" + "\n".join(failed))
    return [json.loads(_result_path(cell, place).read_text(encoding="utf-8")) for cell in cells]


def attempt(cell: Cell, place: Place) -> tuple[bool, str]:
    """Whether a cell's run ended well, and a line about it. Errors are told here: not all of them
    survive the way to another process, and one that does not would take the other cells with it."""
    try:
        return True, run(cell, place)
    except Exception as error:
        return False, f"{cell.name}: {type(error).__name__}: {error}"


def run(cell: Cell, place: Place) -> str:
    """Run one cell, write its result, and say how it went."""
    started = time.monotonic()
    tickets = data.load(cell.dataset, place.data)
    assert tickets is not None, f"{cell.dataset}: looked for before"
    ruled: Set[str] = frozenset()
    if cell.noise == "shuffled":
        tickets = data.shuffled_labels(tickets, cell.seed)
    if cell.noise == "permuted":
        tickets = data.permuted_labels(tickets, cell.seed)
    if cell.noise == "one-rule":
        tickets, ruled = data.one_rule(tickets, cell.seed)
    parts = split(tickets, cell.seed)
    outcome = (
        reached(cell, parts) if cell.method in LEARNERS else learnt(cell, place, tickets, parts)
    )
    seconds = time.monotonic() - started
    result = {
        **asdict(cell),
        **outcome,
        "ruled": marks([ticket.group_id in ruled for ticket in parts["test"]]),
        "tickets": {name: len(part) for name, part in parts.items()},
        "seconds": round(seconds, 1),
    }
    path = _result_path(cell, place)
    path.parent.mkdir(parents=True, exist_ok=True)
    disk.replace(path, (json.dumps(result, indent=1, ensure_ascii=False) + "\n").encode())
    last = result["curve"][-1]
    accuracy = (
        f"test {sum(map(int, last['right'])) / len(last['right']):.1%}, " if cell.measured else ""
    )
    return (
        f"{cell.name}: {accuracy}{result['accepted']} accepted, {result['rollouts']} "
        f"rollouts, {seconds:.0f} s"
    )


def reached(cell: Cell, parts: Mapping[Split, Sequence[Ticket]]) -> dict[str, Any]:
    """Learn from the labels of all train tickets, without a model."""
    found = LEARNERS[cell.method](parts["train"], parts["test"], cell.seed)
    point = {"rollouts": 0, "rules": list(found.rules), "right": marks(found.right)}
    return {"rollouts": 0, "reflections": 0, "accepted": len(found.rules), "curve": [point]}


def learnt(
    cell: Cell, place: Place, tickets: Sequence[Ticket], parts: Mapping[Split, Sequence[Ticket]]
) -> dict[str, Any]:
    """Learn by rollouts."""
    engine = engine_of(place.model, place.device)
    judge = Judge(engine)
    folder = _result_path(cell, place).parent
    folder.mkdir(parents=True, exist_ok=True)
    first = make_neutral(tickets[0].mission, ENGLISH)
    task = Task(
        tickets=tickets,
        parts=parts,
        first=first,
        model=place.model,
        engine=engine,
        reflector=ScriptedEngine(idle) if cell.noise == "idle" else engine,
        judge=judge,
        seed=cell.seed,
        budget=cell.budget,
        device=place.device,
        configs=place.configs,
        folder=folder,
        idle=cell.noise == "idle",
    )
    done = method(cell.method)(task)
    return {
        "rollouts": done.rollouts,
        "reflections": done.reflections,
        "accepted": done.accepted,
        **measured(done, judge, tickets, parts["test"], cell),
    }


def measured(
    learnt: Learnt, judge: Judge, tickets: Sequence[Ticket], test: Sequence[Ticket], cell: Cell
) -> dict[str, Any]:
    """The curve; of a method that judges by code, also how test goes in the end where the model
    applies all rules."""
    if not learnt.judges_by_code:
        return {"curve": list(curve(learnt, judge, test, cell))}
    by_model = judge.right(learnt.points[-1].guidance, test) if cell.measured else []
    return {
        "curve": list(curve(learnt, CodeFirst(judge, tickets), test, cell)),
        "right_by_model": marks(by_model),
    }


def curve(
    learnt: Learnt, judge: Judge | CodeFirst, test: Sequence[Ticket], cell: Cell
) -> Iterator[dict[str, Any]]:
    """Yield the guidance that the method would have handed back after how many rollouts, and how
    test goes under it: within the budget, but of noise all that it accepted, also by a test that
    went on beyond it."""
    shown = None
    for point in learnt.points:
        if (cell.noise or point.rollouts <= cell.budget) and point.guidance.rules != shown:
            shown = point.guidance.rules
            right = judge.right(point.guidance, test) if cell.measured else []
            yield {
                "rollouts": point.rollouts,
                "rules": [rule.text for rule in shown],
                "right": marks(right),
            }


def marks(right: Sequence[bool]) -> str:
    """A 1 for every ticket that is judged rightly, or that the one rule speaks of; a 0 for every
    other one."""
    return "".join("01"[each] for each in right)


def split(tickets: Sequence[Ticket], seed: int) -> dict[Split, list[Ticket]]:
    """The tickets of each split, as the loop splits them."""
    config = LoopConfig(tickets=["-"], seed=seed, split=SPLIT)
    (parts,) = split_tickets(tickets, config).values()
    return {name: [tickets[i] for i in parts.of(name)] for name in SPLITS}


@cache
def engine_of(model: str, device: str) -> Engine:
    """The model, loaded once per process, in 32 bits everywhere: all methods and machines see the
    same one."""
    if device == "cpu":
        import torch

        torch.set_num_threads(1)
    return engines.build(ModelConfig(model_name_or_path=model, torch_dtype=DTYPE), device)


def method(name: str) -> Method:
    """The method of that name."""
    return METHODS[name]()


def _ours() -> Method:
    from lab.bench.learning import ours

    return ours.learn


def _statistics() -> Method:
    from lab.bench.learning import ours

    return partial(ours.learn, reflector=ours.STATISTICS)


def _gepa(**settings: Any) -> Method:
    from lab.bench.learning import gepa_peer

    return partial(gepa_peer.learn, settings=gepa_peer.Settings(**settings))


# modules are imported when asked for: gepa may not be installed
METHODS: Mapping[str, Callable[[], Method]] = {
    "ours": _ours,
    "statistics": _statistics,
    "gepa-tuned": partial(_gepa, minibatch=24, most_val=128, cache=True),
    "gepa-evidence": partial(_gepa, minibatch=24, most_val=128, cache=True, evidence_tickets=192),
    "gepa-code": partial(
        _gepa, minibatch=24, cache=True, evidence_tickets=10_000, by_code=True
    ),  # counted over all of train
    "gepa": _gepa,
    # what the pool is worth
    "gepa-no-pool": partial(_gepa, minibatch=24, most_val=128, cache=True, pool=False),
}


def _result_path(cell: Cell, place: Place) -> Path:
    return place.out / "cells" / cell.name / "result.json"
