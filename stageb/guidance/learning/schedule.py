"""Says which tickets are rolled out when: the rounds of every epoch, as a function of config and
tickets alone.

Epoch 0 judges val and test before anything is learnt. Every later epoch learns from train tickets,
round by round, the missions in turn, and judges val. At the end the final guidance is chosen, by
val alone, and judged on test.

Everything that a run does has a *place*, and places are in order, so a run goes on from a commit by
passing over what is at or before the committed place. No list of a whole run is ever made: rounds
are drawn when the loop comes to them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from stageb.errors import write_option
from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.gate.prequential import block_ends
from stageb.guidance.learning.gate.race import FEWEST_EDITS, LAPS
from stageb.guidance.tickets.splits import Splits, bundle_size, bundles_at_once
from stageb.guidance.words.calibration import CALIBRATED_ON
from stageb.guidance.words.types import Place, Round, Split
from stageb.seeds import shuffled, stream

TRAIN, CLOSE, VAL, CHOOSE, TEST, DISTILL = range(6)  # the phases of an epoch, in order
LEARNT, JUDGED = "learnt from", "judged"  # what is done with tickets, which sets their cost
PHASES: Mapping[Split, int] = {"train": TRAIN, "val": VAL, "test": TEST}


def describe_learning(config: LoopConfig) -> str:
    """Describe a run in a sentence."""
    if config.reflection.scope == "all" and config.runner.judge == "model":
        return "Code learns rules from all train tickets at once; the model judges tickets by them."
    if config.reflection.scope == "all":
        return (
            "Code judges by rules that it learns from all train tickets at once; the model "
            "judges what code cannot."
        )
    by_code = write_option("config", "frugal")
    small = (
        " It is the small one that ships in the package, to try things with: name yours "
        f"(model.model_name_or_path), or let code learn ({by_code}), which is sooner and finds "
        "exact limits."
    )
    return (
        "The model judges tickets, proposes rules from its errors and tests them on other tickets."
        + small * config.model.is_shipped
    )


@dataclass(frozen=True, slots=True)
class _Span:
    """The rounds of one phase, not drawn yet."""

    at: tuple[int, int, int]  # epoch (as in places), phase, number of the mission
    epoch: int
    mission: str
    split: Split
    tickets: int  # number of tickets
    kind: Literal["round", "distill"] = "round"

    def place(self, number: int) -> Place:
        """Return the place of one of its rounds."""
        epoch, phase, mission = self.at
        return (
            (epoch, phase, number, mission) if phase == TRAIN else (epoch, phase, mission, number)
        )

    def count_done(self, rounds: int, done: Place) -> int:
        """Count how many of its ``rounds`` are over at the place ``done``."""
        epoch, phase, mission = self.at
        if (epoch, phase) != done[:2]:
            return rounds if self.at[:2] < done[:2] else 0
        if phase == TRAIN:
            return min(rounds, done[2] + (mission <= done[3]))
        return (
            min(rounds, done[3] + 1) if mission == done[2] else rounds if mission < done[2] else 0
        )


class GuidanceSchedule:
    """The rounds of a run. ``round_size`` is the number of tickets in each, save the last one of a
    split."""

    def __init__(self, splits: Mapping[str, Splits], config: LoopConfig, round_size: int) -> None:
        self.missions = tuple(splits)
        self.epochs = range(1, config.runner.epochs + 1)
        self._splits = splits
        self._config = config
        self._size = round_size
        self._number = {mission: number for number, mission in enumerate(splits)}

    def before(self) -> Iterator[Round]:
        """Yield epoch 0: val and test before anything is learnt."""
        return self._draw_all(0, VAL, TEST)

    def train(self, epoch: int) -> Iterator[Round]:
        """Yield train tickets to learn from, drawn anew for every epoch, a round of each mission in
        turn: no mission's learning waits for another's."""
        turns = zip_longest(
            *(self._draw(self._span(epoch, mission, TRAIN)) for mission in self.missions)
        )
        return (round_ for turn in turns for round_ in turn if round_)

    def val(self, epoch: int) -> Iterator[Round]:
        """Yield val, which chooses among the guidances that epochs end with."""
        return self._draw_all(epoch, VAL)

    def after(self) -> Iterator[Round]:
        """Yield test under the final guidance, and tickets to distil."""
        return self._draw_all(self._end, *self._last_phases)

    def bundle_size(self, mission: str) -> int:
        """Return the number of tickets to roll out before a mission's next reflection."""
        return bundle_size(self._splits[mission], self._config)

    def close(self, epoch: int, mission: str) -> Place:
        """Return the place where a mission's learning in an epoch ends."""
        return (epoch, CLOSE, self._number[mission], 0)

    def choice(self, mission: str) -> Place:
        """Return the place where a mission's final guidance is chosen."""
        return (self._end, CHOOSE, self._number[mission], 0)

    def count(self, until: Place | None = None) -> int:
        """Count all rounds, or those at or before a place."""
        counts = [(span, -(-span.tickets // self._size)) for span in self._spans()]
        return sum(
            rounds if until is None else span.count_done(rounds, until) for span, rounds in counts
        )

    def to_come(self, done: Place, over: Collection[str] = ()) -> dict[str, int]:
        """Count the tickets of the rounds after ``done``: those to learn from, and those that are
        only judged. Missions that learn no more (``over``) are judged in this epoch and at the
        end."""
        found = {LEARNT: 0, JUDGED: 0}
        for span in self._spans():
            studied = span.split == "train" and span.kind == "round"
            if (
                span.mission in over
                and span.at[0] != self._end
                and (studied or span.epoch > done[0])
            ):
                continue
            gone = span.count_done(-(-span.tickets // self._size), done) * self._size
            kind = LEARNT if studied else JUDGED
            found[kind] += max(0, span.tickets - gone)
        return found

    def forecast(self) -> Forecast:
        """Return the most that the run can cost: as if nothing ended early, every answer proposed
        another edit that does some good, and every test saw its whole pool. Two things that nobody
        can know yet are not counted: that an accepted edit is followed by another bundle at once,
        and that rules that can go are sought."""
        config, rollouts, bundles, judged = self._config, 0, 0, 0
        samples = config.sampler.samples_per_decode * len(config.sampler.grid)
        for span in self._spans():
            rollouts += span.tickets * (1 if span.kind == "distill" else samples)
            if span.split == "train" and span.kind == "round":
                full = self._count_bundles(span)
                bundles += full
                judged += full * _gate_cost(config, len(self._splits[span.mission].train))
        if config.has_gate and config.needs_preparing:
            judged += (
                sum(_cost_at_once(len(splits.train)) for splits in self._splits.values())
                if self.epochs
                else 0
            )
        return Forecast(rollouts, bundles, bundles * config.reflection.num_proposals, judged)

    def forecast_rest(self) -> int:
        """Return the most rollouts once a budget has ended learning: val under guidance learnt
        since val was last judged, test, and tickets to distil."""
        samples = self._config.sampler.samples_per_decode * len(self._config.sampler.grid)
        val = sum(len(self._judged(mission, "val")) for mission in self.missions)
        ends = [span for span in self._spans() if span.at[0] == self._end]
        return samples * val + sum(
            span.tickets * (1 if span.kind == "distill" else samples) for span in ends
        )

    def _count_bundles(self, span: _Span) -> int:
        """Count the bundles that the tickets of a span fill."""
        size = self.bundle_size(span.mission)
        if self._config.reflection.scope == "round":
            size = -(-size // self._size) * self._size
        return -(-span.tickets // size) * bundles_at_once(self._config)

    @property
    def _end(self) -> int:
        return self._config.runner.epochs + 1

    @property
    def _last_phases(self) -> list[int]:
        return [TEST, DISTILL] if self._config.distill.size else [TEST]

    def _spans(self) -> Iterator[_Span]:
        """All phases with tickets, in order."""
        plan = [
            (0, [VAL, TEST]),
            *((epoch, [TRAIN, VAL]) for epoch in self.epochs),
            (self._end, self._last_phases),
        ]
        for epoch, phases in plan:
            yield from (
                self._span(epoch, mission, phase) for phase in phases for mission in self.missions
            )

    def _span(self, epoch: int, mission: str, phase: int) -> _Span:
        at, splits = (epoch, phase, self._number[mission]), self._splits[mission]
        # the phases that end a run bear the name of its last epoch
        named = min(epoch, self._config.runner.epochs)
        if phase == DISTILL:
            return _Span(at, named, mission, "train", len(splits.train), "distill")
        split = next(split for split, number in PHASES.items() if number == phase)
        count = len(self._judged(mission, split))
        if phase == TRAIN:
            most = (
                0
                if self._config.reflection.scope == "all"
                else self._config.runner.tickets_per_epoch
            )
            count = (
                len(splits.rollout_pool) if most is None else min(most, len(splits.rollout_pool))
            )
        return _Span(at, named, mission, split, count)

    def _judged(self, mission: str, split: Split) -> Sequence[int]:
        """The tickets of a split that are judged."""
        splits = self._splits[mission]
        return splits.val_sample if split == "val" else splits.of(split)

    def _draw_all(self, epoch: int, *phases: int) -> Iterator[Round]:
        spans = (self._span(epoch, mission, phase) for phase in phases for mission in self.missions)
        return (each for span in spans for each in self._draw(span))

    def _draw(self, span: _Span) -> Iterator[Round]:
        """The rounds of a span."""
        mission, (epoch, phase, _), splits = span.mission, span.at, self._splits[span.mission]
        tickets: Sequence[int]
        if phase == TRAIN:
            tickets = shuffled(
                splits.rollout_pool, stream(self._config.seed, "epoch", mission, epoch)
            )[: span.tickets]
        elif phase == DISTILL:
            tickets = shuffled(splits.train, stream(self._config.seed, "distill", mission))
        else:
            tickets = self._judged(mission, span.split)
        scale = splits.scale.get(span.split, {})
        for number, start in enumerate(range(0, span.tickets, self._size)):
            batch, last = (
                tuple(tickets[start : start + self._size]),
                start + self._size >= span.tickets,
            )
            yield Round(
                span.place(number),
                span.epoch,
                mission,
                span.split,
                number,
                batch,
                last,
                span.kind,
                scale,
            )


@dataclass(frozen=True, slots=True)
class Forecast:
    """The most that a run may cost."""

    rollouts: int  # answers sampled
    bundles: int  # reflected on
    reflections: int  # reflection answers sampled
    judged: int  # verdicts given for the gate


def _cost_at_once(train: int) -> int:
    """Count the verdicts, at most, of a model on what code learns at once: on each train ticket
    under the present guidance and under what the blocks before have taught, and for each of these
    on the tickets that it is calibrated on."""
    return 2 * train + (len(block_ends(train)) + 1) * CALIBRATED_ON


def _gate_cost(config: LoopConfig, train: int) -> int:
    """Count the verdicts that one bundle can cost at most: on tickets that answers name, in the
    race, for joined edits, in two tests; and on each train ticket under the present guidance."""
    gate, reflection = config.gating, config.reflection
    if not config.has_gate:
        return 0
    running, cost = reflection.num_proposals, reflection.num_proposals * reflection.max_cases
    for _ in range(LAPS):
        cost += running * gate.race_chunk
        running = min(running, max(FEWEST_EDITS, -(-running // 2)))
    cost += (running - 1) * LAPS * gate.race_chunk + 2 * min(train, gate.pool_size)
    return cost + train
