"""Who decides: the policy that PPO trains, and those that it is compared with.

A controller chooses one action for each environment of a block at every epoch's end, among what is legal. It sees views and
observations and nothing else; what it draws, it draws from the streams that it is given. ``begin`` is called as the episodes
of a block begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from stageb import seeds
from stageb.growth import memory
from stageb.growth.lifecycle import Legal, Rules
from stageb.growth.normaliser import Normaliser
from stageb.growth.policy import Policy
from stageb.growth.types import Action, Op, Stage, View

WAIT = Action()


class Controller(Protocol):
    """What a block of environments asks."""

    def begin(self, count: int) -> None:
        """As many episodes begin."""

    def act(self, views: Sequence[View], observations: Tensor, legal: Tensor, keys: Sequence[int]) -> list[Action]:
        """A legal action for each view; observations are float32 (views, 80), ``legal`` are the masks of what each may do,
        bool (views, 4, 3), keys one stream for each."""


class PolicyController:
    """The policy that PPO trains."""

    def __init__(self, policy: Policy, normaliser: Normaliser, greedy: bool = False) -> None:
        """``greedy`` takes the most probable choices in place of drawn ones."""
        self.policy, self.normaliser, self.greedy = policy, normaliser, greedy
        self._memory = memory.blank(0)

    def begin(self, count: int) -> None:
        """Nothing was tried yet."""
        self._memory = memory.blank(count)

    def act(self, views: Sequence[View], observations: Tensor, legal: Tensor, keys: Sequence[int]) -> list[Action]:
        """Choices of the policy."""
        self._memory = memory.remember(self._memory, observations)
        return self.policy.decide((self.normaliser(observations), self._memory, legal), None if self.greedy else keys)


class Alone:
    """Controllers that look at one environment at a time and remember nothing."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def begin(self, count: int) -> None:
        """Nothing is remembered."""

    def act(self, views: Sequence[View], observations: Tensor, legal: Tensor, keys: Sequence[int]) -> list[Action]:
        """One environment after the other."""
        return [self.choose(*each) for each in zip(views, legal.tolist(), keys, strict=True)]

    def choose(self, view: View, legal: Legal, key: int) -> Action:
        """The action for one environment."""
        raise NotImplementedError


class Heuristic(Alone):
    """Grows wherever it can, and keeps what adds something.

    It looks at every enabled slot each epoch and does the first of these that any slot gives cause for: keep the seed that
    adds most, of those that may be kept; cull a seed that has had its time on probation and may not be kept, the one that
    adds least; germinate into the first empty slot, the blueprints in turn. Equal figures: the earliest slot.
    """

    def choose(self, view: View, legal: Legal, key: int) -> Action:
        """Deterministic: ``key`` is not used."""
        adds = [slot.contribution for slot in view.slots]
        if keep := _slots(legal, Op.FOSSILIZE):
            return Action(Op.FOSSILIZE, max(keep, key=lambda slot: adds[slot]))
        patience = self.rules.gates.probation_epochs
        on_trial = [slot for slot in _slots(legal, Op.CULL) if view.slots[slot].stage is Stage.PROBATIONARY]
        if failed := [slot for slot in on_trial if view.slots[slot].epochs_in_stage >= patience]:
            return Action(Op.CULL, min(failed, key=lambda slot: adds[slot]))
        if empty := _slots(legal, Op.GERMINATE):
            return Action(Op.GERMINATE, empty[0], view.germinated % self.rules.blueprints)
        return WAIT


class Random(Alone):
    """A legal operation, then a slot, then a blueprint, each uniformly."""

    def choose(self, view: View, legal: Legal, key: int) -> Action:
        """Positions 0, 1 and 2 of the stream."""

        def of(number: int, position: int) -> int:
            return int(seeds.uniform(key, position) * number)

        ops = [op for op in Op if op is Op.WAIT or _slots(legal, op)]
        op = ops[of(len(ops), 0)]
        if op is Op.WAIT:
            return WAIT
        slots = _slots(legal, op)
        slot = slots[of(len(slots), 1)]
        return Action(op, slot, of(self.rules.blueprints, 2) if op is Op.GERMINATE else None)


class Periodic(Alone):
    """Germinates by the clock, blueprints in turn, and keeps every seed that it may; culls none."""

    def __init__(self, rules: Rules, period: int) -> None:
        """``period`` is in epochs."""
        super().__init__(rules)
        self.period = period

    def choose(self, view: View, legal: Legal, key: int) -> Action:
        """The first slot where several would do."""
        if keep := _slots(legal, Op.FOSSILIZE):
            return Action(Op.FOSSILIZE, keep[0])
        empty = _slots(legal, Op.GERMINATE)
        if empty and view.epoch % self.period == 0:
            return Action(Op.GERMINATE, empty[0], view.germinated % self.rules.blueprints)
        return WAIT


class Static(Alone):
    """Changes nothing: the network stays as it begins, whether that is the bare host or a grown one."""

    def choose(self, view: View, legal: Legal, key: int) -> Action:
        """Wait."""
        return WAIT


class Oracle:
    """Knows what pays: germinates it at once, and keeps it as soon as it may; where nothing pays, it waits."""

    def __init__(self, answers: Sequence[tuple[int, int] | None]) -> None:
        """``answers``: slot and blueprint for each environment of the block, None where no growth pays."""
        self.answers = answers

    def begin(self, count: int) -> None:
        """Nothing is remembered."""

    def act(self, views: Sequence[View], observations: Tensor, legal: Tensor, keys: Sequence[int]) -> list[Action]:
        """What the answers say."""
        return [self._choose(may, answer) for may, answer in zip(legal.tolist(), self.answers, strict=True)]

    def _choose(self, legal: Legal, answer: tuple[int, int] | None) -> Action:
        if answer is None:
            return WAIT
        slot, blueprint = answer
        if legal[Op.FOSSILIZE][slot]:
            return Action(Op.FOSSILIZE, slot)
        return Action(Op.GERMINATE, slot, blueprint) if legal[Op.GERMINATE][slot] else WAIT


def _slots(legal: Legal, op: Op) -> list[int]:
    """The slots in which ``op`` may be done, in their order."""
    return [slot for slot, may in enumerate(legal[op]) if may]
