"""A caricature of hosts, for tests of controllers: no tensor is trained, accuracies follow curves
that are known.

An environment has a hidden answer: the slot and the blueprint that pay, or none. A host climbs to
its ceiling; the right seed lifts it once the host sees it, one that has the slot or the blueprint
alone a little; what a seed adds grows with the epochs that it has learnt. All figures carry noise,
as those of a validation set do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stageb import seeds
from stageb.growth.lifecycle import Rules
from stageb.growth.types import Action, EnvironmentView, Slots, SlotView, Stage

HOST_PARAMETERS, SEED_PARAMETERS = 1000, (60, 250, 120, 200, 90)
Answer = tuple[int, int] | None


def slots_of(slots: Iterable[SlotView]) -> Slots:
    """These slots, of which there are three."""
    first, second, third = slots
    return first, second, third


@dataclass(frozen=True)
class Made:
    """How the caricature behaves."""

    epochs: int = 20
    lift: float = 0.15  # of the accuracy, by the right seed fully grown
    # share of it that a seed brings with the right slot or the right blueprint alone
    near: float = 0.1
    noise: float = 0.01  # deviation of a measured accuracy


class Environment:
    """One made host, from its start to its end."""

    def __init__(self, made: Made, rules: Rules, answer: Answer, key: int) -> None:
        self.made, self.rules, self.answer, self.key = made, rules, answer, key
        self._at = 0
        self.base = 0.55 + 0.2 * self._uniform()
        self.learnt = [0.0, 0.0, 0.0]
        nothing = SlotView()
        start = EnvironmentView(
            0,
            made.epochs,
            0,
            2.3,
            0.1,
            2.3,
            0.1,
            (),
            (),
            math.inf,
            0.0,
            0,
            HOST_PARAMETERS,
            0,
            (nothing,) * 3,
        )
        self.view = self._epoch(start)

    def step(self, action: Action) -> EnvironmentView:
        """The epoch after an action; raises what the lifecycle raises."""
        slots, effects = self.rules.act(self.view, action)
        for slot, _ in effects:
            self.learnt[slot] = 0.0
        germinated = self.view.germinated + sum(effect.value == "make" for _, effect in effects)
        self.view = self._epoch(replace(self.view, slots=slots, germinated=germinated))
        return self.view

    def final(self) -> EnvironmentView:
        """The network that stays, judged once more."""
        slots, _ = self.rules.end(self.view)
        return self._judged(replace(self.view, slots=slots), self.made.noise)

    def _epoch(self, view: EnvironmentView) -> EnvironmentView:
        view = replace(view, epoch=view.epoch + 1, steps=view.steps + 8)
        slots = []
        for at, slot in enumerate(view.slots):
            since = slot.epochs_in_stage + 1
            seeded = slot.stage.is_seeded
            if seeded:
                self.learnt[at] += (1 - self.learnt[at]) * 0.4
            blend = min(1.0, since / self.rules.gates.blending_epochs)
            alpha = {Stage.BLENDING: blend, Stage.PROBATIONARY: 1.0, Stage.FOSSILIZED: 1.0}.get(
                slot.stage, 0.0
            )
            norm = 0.5 * self._worth(at, slot) + 0.3 * self._uniform() if seeded else 0.0
            now = replace(
                slot,
                epochs_in_stage=since,
                alpha=alpha,
                gradient_norm=norm,
                age=slot.age + 1 if seeded else 0,
            )
            slots.append(now)
        return self._judged(replace(view, slots=slots_of(slots)), self.made.noise)

    def _judged(self, view: EnvironmentView, noise: float) -> EnvironmentView:
        """``view`` with the figures of the validation set."""
        values = [self.learnt[at] * self._worth(at, slot) for at, slot in enumerate(view.slots)]
        seen = [
            value * slot.alpha if slot.stage.is_visible else 0.0
            for value, slot in zip(values, view.slots, strict=True)
        ]
        host = self.base * (1 - math.exp(-view.epoch / 4))
        accuracy = min(1.0, max(0.0, host + sum(seen) + self._normal() * noise))
        slots = []
        for slot, value, shown in zip(view.slots, values, seen, strict=True):
            told = (
                shown if slot.stage.is_visible else value * (slot.stage.is_seeded)
            ) + self._normal() * noise * (slot.stage.is_seeded)
            improved = accuracy - slot.accuracy_at_entry
            slots.append(
                replace(
                    slot, contribution=told, improvement=improved, accuracy_without=accuracy - told
                )
            )
        loss = -math.log(max(0.05, accuracy))
        best = loss < view.best_loss
        extra = sum(SEED_PARAMETERS[slot.blueprint] for slot in view.slots if slot.stage.is_seeded)
        return replace(
            view,
            train_loss=loss * 0.9,
            train_accuracy=accuracy,
            train_loss_delta=loss * 0.9 - view.train_loss,
            train_accuracy_delta=accuracy - view.train_accuracy,
            loss=loss,
            accuracy=accuracy,
            loss_history=(*view.loss_history, loss)[-5:],
            accuracy_history=(*view.accuracy_history, accuracy)[-5:],
            best_loss=min(loss, view.best_loss),
            best_accuracy=max(accuracy, view.best_accuracy),
            plateau=0 if best else view.plateau + 1,
            extra_parameters=extra,
            slots=slots_of(slots),
        )

    def _worth(self, at: int, slot: SlotView) -> float:
        if self.answer is None or slot.blueprint < 0:
            return 0.0
        right = (at == self.answer[0]) + (slot.blueprint == self.answer[1])
        return self.made.lift * (0.0, self.made.near, 1.0)[right]

    def _uniform(self) -> float:
        self._at += 1
        return seeds.uniform(self.key, self._at)

    def _normal(self) -> float:
        radius = math.sqrt(-2 * math.log(1 - self._uniform()))
        return radius * math.cos(2 * math.pi * self._uniform())


class TwoParameterHost(Environment):
    """A host of two parameters, ``a + b x``, fitted by least squares to a target that it cannot
    make.

    A seed adds a feature of ``x``. It is worth what the error falls by when all coefficients are
    fitted anew, so that brute force knows the best.
    """

    def __init__(self, rules: Rules, key: int, epochs: int = 24) -> None:
        self.x = np.linspace(-1, 1, 9)
        draw = np.random.default_rng(key)
        self.features = draw.normal(size=(3, rules.blueprints, len(self.x)))
        self.target = draw.normal(size=len(self.x))
        super().__init__(Made(epochs=epochs, lift=1.0, noise=0.0), rules, None, key)

    def error(self, *seeds: tuple[int, int]) -> float:
        """The mean squared error with ``seeds``, slots and blueprints, as a share of that of the
        host alone."""

        def left(*columns: np.ndarray) -> float:
            design = np.stack([np.ones_like(self.x), self.x, *columns], axis=1)
            fitted = design @ np.linalg.lstsq(design, self.target, rcond=None)[0]
            return float(np.square(self.target - fitted).mean())

        return left(*(self.features[each] for each in seeds)) / left()

    def brute_force(self) -> Mapping[tuple[int, int], float]:
        """What each pair adds that is grown alone."""
        pairs = [
            (slot, blueprint) for slot in range(3) for blueprint in range(self.rules.blueprints)
        ]
        return {pair: 0.3 * (1 - self.error(pair)) for pair in pairs}

    def _worth(self, at: int, slot: SlotView) -> float:
        return self.brute_force()[at, slot.blueprint] if slot.blueprint >= 0 else 0.0


def answers(count: int, blueprints: int, key: int, futile: float = 0.0) -> list[Answer]:
    """What pays in ``count`` environments: any slot and blueprint; none in a share of them."""

    def of(number: int) -> Answer:
        if seeds.uniform(key, 3 * number) < futile:
            return None
        return int(seeds.uniform(key, 3 * number + 1) * 3), int(
            seeds.uniform(key, 3 * number + 2) * blueprints
        )

    return [of(number) for number in range(count)]


def kept(view: EnvironmentView) -> set[tuple[int, int]]:
    """The slots and blueprints that stay."""
    return {
        (at, slot.blueprint) for at, slot in enumerate(view.slots) if slot.stage is Stage.FOSSILIZED
    }


def block(made: Made, rules: Rules, sought: Sequence[Answer], key: int) -> list[Environment]:
    """Environments side by side."""
    return [
        Environment(made, rules, answer, seeds.bits(key, at)) for at, answer in enumerate(sought)
    ]
