"""Who decides: the policy that PPO trains, and those that it is compared with.

A controller is made for one block and chooses one action for each of its environments at every
epoch's end, among what is legal. It sees views and observations and nothing else; what it draws, it
draws from the streams that it is given.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from torch import Tensor

from stageb import seeds
from stageb.growth import observation
from stageb.growth.lifecycle import Legal, Rules
from stageb.growth.policy import FIRST, Policy
from stageb.growth.types import Action, EnvironmentView, Op, SlotView, Stage
from stageb.training.ppo import RunningNorm

WAIT = Action()


class Controller:
    """Interface of a controller, which chooses an action for each environment of a block."""

    def act(
        self,
        views: Sequence[EnvironmentView],
        observations: Tensor,
        legal: Tensor,
        keys: Sequence[int],
    ) -> list[Action]:
        """A legal action for each view; observations are float32 (views, 80), ``legal`` are the
        masks of what each may do, bool (views, 4, 3), keys one stream for each."""
        raise NotImplementedError


class PolicyController(Controller):
    """The policy that PPO trains."""

    def __init__(
        self, policy: Policy, normaliser: RunningNorm, count: int, greedy: bool = False
    ) -> None:
        """``count`` is the number of environments; ``greedy`` takes the most probable choices in
        place of drawn ones."""
        self.policy, self.normaliser, self.greedy = policy, normaliser, greedy
        self._memory = observation.make_blank(count)

    def act(
        self,
        views: Sequence[EnvironmentView],
        observations: Tensor,
        legal: Tensor,
        keys: Sequence[int],
    ) -> list[Action]:
        """Choices of the policy."""
        self._memory = observation.remember(self._memory, observations)
        return self.policy.decide(
            (self.normaliser(observations), self._memory, legal), None if self.greedy else keys
        )


class StatelessController(Controller):
    """Controllers that look at one environment at a time and remember nothing."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def act(
        self,
        views: Sequence[EnvironmentView],
        observations: Tensor,
        legal: Tensor,
        keys: Sequence[int],
    ) -> list[Action]:
        """One environment after the other."""
        return [self.choose(*each) for each in zip(views, legal.tolist(), keys, strict=True)]

    def choose(self, view: EnvironmentView, legal: Legal, key: int) -> Action:
        """The action for one environment."""
        raise NotImplementedError


class Heuristic(StatelessController):
    """Grows wherever it can, and keeps what adds something.

    It looks at every enabled slot each epoch and does the first of these that any slot gives cause
    for: keep the seed that adds most, of those that may be kept; cull a seed that has had its time
    on probation and may not be kept, the one that adds least; germinate into the first empty slot,
    the blueprints in turn. Equal figures: the earliest slot.
    """

    def choose(self, view: EnvironmentView, legal: Legal, key: int) -> Action:
        """Deterministic: ``key`` is not used."""
        adds = [slot.contribution for slot in view.slots]
        if keep := _list_slots(legal, Op.FOSSILIZE):
            return Action(Op.FOSSILIZE, max(keep, key=lambda slot: adds[slot]))
        patience = self.rules.gates.probation_epochs
        on_trial = [
            slot
            for slot in _list_slots(legal, Op.CULL)
            if view.slots[slot].stage is Stage.PROBATIONARY
        ]
        if failed := [slot for slot in on_trial if view.slots[slot].epochs_in_stage >= patience]:
            return Action(Op.CULL, min(failed, key=lambda slot: adds[slot]))
        if empty := _list_slots(legal, Op.GERMINATE):
            return Action(Op.GERMINATE, empty[0], view.germinated % self.rules.blueprints)
        return WAIT


class Random(StatelessController):
    """A legal operation by the log-odds with which the policy begins, then a slot, then a
    blueprint, each uniformly.

    So it is as good as a policy that has not learnt. Were operations as likely as each other, most
    seeds would be culled.
    """

    def choose(self, view: EnvironmentView, legal: Legal, key: int) -> Action:
        """Positions 0, 1 and 2 of the stream."""

        def of(number: int, position: int) -> int:
            return int(seeds.uniform(key, position) * number)

        ops = [op for op in Op if op is Op.WAIT or _list_slots(legal, op)]
        odds = list(accumulate(math.exp(FIRST[op]) for op in ops))
        op = ops[bisect_right(odds, seeds.uniform(key, 0) * odds[-1])]
        if op is Op.WAIT:
            return WAIT
        slots = _list_slots(legal, op)
        slot = slots[of(len(slots), 1)]
        return Action(op, slot, of(self.rules.blueprints, 2) if op is Op.GERMINATE else None)


class Periodic(StatelessController):
    """Germinates by the clock, once in a seed's shortest life, blueprints in turn, and keeps every
    seed that it may; culls none."""

    def choose(self, view: EnvironmentView, legal: Legal, key: int) -> Action:
        """The first slot where several would do."""
        if keep := _list_slots(legal, Op.FOSSILIZE):
            return Action(Op.FOSSILIZE, keep[0])
        empty = _list_slots(legal, Op.GERMINATE)
        if empty and view.epoch % self.rules.gates.shortest_life == 0:
            return Action(Op.GERMINATE, empty[0], view.germinated % self.rules.blueprints)
        return WAIT


Pair = tuple[int, int]
"""A slot and a blueprint."""


class Probe(Controller):
    """Tries every blueprint in every slot beside the host, then grows the one that added most.

    A trial lasts ``epochs`` epochs and ends with a cull. Trials in different slots overlap, since
    seeds in training do not see each other. Once all pairs were tried, or no more time is left than
    it takes to grow a seed, the best is germinated anew, if a cull has taken it out. Once it is
    kept, the pairs of the other slots are tried beside the network that it made, and so on while
    time is left (greedy forward selection). What adds no more than ``gates.least_contribution`` is
    not grown.
    """

    def __init__(self, rules: Rules, epochs: int, count: int) -> None:
        """``epochs``: at most ``gates.training_epochs``, so that the host never sees a trial;
        ``count`` is the number of environments."""
        self.rules, self.epochs = rules, epochs
        # what each seed added, as last seen in training
        self._tried: list[dict[Pair, float]] = [{} for _ in range(count)]
        self._chosen: list[Pair | None] = [None] * count

    def act(
        self,
        views: Sequence[EnvironmentView],
        observations: Tensor,
        legal: Tensor,
        keys: Sequence[int],
    ) -> list[Action]:
        """One environment after the other."""
        for view, tried in zip(views, self._tried, strict=True):
            training = [
                (place, slot)
                for place, slot in enumerate(view.slots)
                if slot.stage is Stage.TRAINING
            ]
            tried.update({(place, slot.blueprint): slot.contribution for place, slot in training})
        known = enumerate(zip(views, legal.tolist(), self._tried, strict=True))
        return [self.choose(member, *each) for member, each in known]

    def choose(
        self, member: int, view: EnvironmentView, legal: Legal, tried: dict[Pair, float]
    ) -> Action:
        """The action for one environment of the block. Deterministic; equal figures: the pair that
        was tried first. What is taken out of ``tried`` may be tried again."""
        stages, chosen = [slot.stage for slot in view.slots], self._chosen[member]
        if keep := _list_slots(legal, Op.FOSSILIZE):
            self._chosen[member] = None
            tried.clear()  # it was of a network that is no more
            return Action(Op.FOSSILIZE, keep[0])
        if chosen and stages[chosen[0]] is Stage.PROBATIONARY:
            if view.slots[chosen[0]].epochs_in_stage < self.rules.gates.probation_epochs:
                return WAIT
            self._chosen[member], tried[chosen] = None, -math.inf  # it may not be kept: not again
            return Action(Op.CULL, chosen[0])
        trials = [
            (place, slot)
            for place, slot in enumerate(view.slots)
            if slot.stage in (Stage.GERMINATED, Stage.TRAINING)
            and not (chosen and chosen[0] == place)
        ]
        best = chosen or self._find_best(tried, stages)
        for place, slot in trials:
            if slot.stage is Stage.TRAINING and slot.epochs_in_stage >= self.epochs:
                alone = len(trials) == 1 and not self._open(view, tried, best)
                in_time = view.epoch + self._shut(slot) < self._find_last_epoch(view)
                if chosen or (place, slot.blueprint) != best or (in_time and not alone):
                    return Action(Op.CULL, place)
                self._chosen[member] = best
                return WAIT
        if chosen:
            return WAIT
        left = self._open(view, tried, best)
        if now := [pair for pair in left if legal[Op.GERMINATE][pair[0]]]:
            return Action(Op.GERMINATE, *now[0])
        waits = bool(trials) and view.epoch + self.epochs < self._find_last_epoch(view)
        if best and not left and not waits and legal[Op.GERMINATE][best[0]]:
            self._chosen[member] = best
            return Action(Op.GERMINATE, *best)
        return WAIT

    def _find_best(self, tried: Mapping[Pair, float], stages: Sequence[Stage]) -> Pair | None:
        """Of what was tried: what added most, if that is enough."""
        enough = {
            pair: gain
            for pair, gain in tried.items()
            if gain > self.rules.gates.least_contribution
            and stages[pair[0]] is not Stage.FOSSILIZED
        }
        return max(enough, key=lambda pair: enough[pair]) if enough else None

    def _open(
        self, view: EnvironmentView, tried: Mapping[Pair, float], best: Pair | None
    ) -> list[Pair]:
        """The pairs that were not tried yet, and can be before the best so far must be germinated:
        blueprint by blueprint, each slot by slot."""
        found = []
        for blueprint in range(self.rules.blueprints):
            for place, slot in enumerate(view.slots):
                begins = view.epoch + self._shut(slot)
                until = begins if best is None else begins + self.epochs + 1
                if best is not None and best[0] == place:
                    until += self.rules.gates.embargo_epochs + 1
                fits = (
                    self.rules.enabled[place]
                    and slot.stage is not Stage.FOSSILIZED
                    and until <= self._find_last_epoch(view)
                )
                if fits and (place, blueprint) not in tried and slot.blueprint != blueprint:
                    found.append((place, blueprint))
        return found

    def _find_last_epoch(self, view: EnvironmentView) -> int:
        """The last epoch at whose end a seed may germinate."""
        return view.epochs - self.rules.gates.shortest_life - 1

    def _shut(self, slot: SlotView) -> int:
        """Epochs until a slot is empty, if its seed is culled now."""
        if slot.stage is Stage.DORMANT:
            return 0
        if slot.stage is Stage.RESETTING:
            return 1
        return 1 + (
            slot.dwell if slot.stage is Stage.EMBARGOED else 1 + self.rules.gates.embargo_epochs
        )


class Static(StatelessController):
    """Changes nothing: the network stays as it begins, whether that is the bare host or a grown
    one."""

    def choose(self, view: EnvironmentView, legal: Legal, key: int) -> Action:
        """Wait."""
        return WAIT


class Oracle(Controller):
    """Knows what pays: germinates it at once, and keeps it as soon as it may; where nothing pays,
    it waits."""

    def __init__(self, answers: Sequence[Sequence[Pair]]) -> None:
        """``answers``: slots and blueprints for each environment of the block, none where no growth
        pays."""
        self.answers = answers

    def act(
        self,
        views: Sequence[EnvironmentView],
        observations: Tensor,
        legal: Tensor,
        keys: Sequence[int],
    ) -> list[Action]:
        """Return the actions that the answers name."""
        return [
            self._choose(may, answer)
            for may, answer in zip(legal.tolist(), self.answers, strict=True)
        ]

    def _choose(self, legal: Legal, answer: Sequence[Pair]) -> Action:
        keep = [Action(Op.FOSSILIZE, slot) for slot, _ in answer if legal[Op.FOSSILIZE][slot]]
        begin = [Action(Op.GERMINATE, *each) for each in answer if legal[Op.GERMINATE][each[0]]]
        return next(iter(keep + begin), WAIT)


def _list_slots(legal: Legal, op: Op) -> list[int]:
    """The slots in which ``op`` may be done, in their order."""
    return [slot for slot, may in enumerate(legal[op]) if may]
