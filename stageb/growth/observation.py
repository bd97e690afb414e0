"""A controller's observation of an environment, and its memory of the episode.

Fifty are of the host and its slots, thirty are telemetry, ten of each slot. Slots always come as
early, mid, late. The numbers of a slot tell of that slot alone, and those of an empty one are
exactly 0. Losses x >= 0 become x / (1 + x), which is in [0, 1).

| index | what | range |
|---|---|---|
| 0 | epochs done, over those of the episode | 0 to 1 |
| 1 | steps done, in thousands: x / (1 + x) | 0 to 1 |
| 2, 3 | loss and accuracy on the fit set | 0 to 1 |
| 4, 5 | what they changed by since the epoch before: tanh of the loss's, the accuracy's | -1 to 1 |
| 6, 7 | the same on the validation set | -1 to 1 |
| 8 | epochs since the best validation loss, over those of the episode | 0 to 1 |
| 9, 10 | best validation loss and accuracy | 0 to 1 |
| 11 to 15 | validation losses of the last five epochs, newest first; 0 before the first | 0 to 1 |
| 16 to 20 | validation accuracies, likewise | 0 to 1 |
| 21 | parameters of seeds over all parameters | 0 to 1 |
| 22 | seeds germinated, over the epochs of the episode | 0 to 1 |
| 23 to 31 | early: has a seed, stage / 8, alpha, contribution, blueprint (one-hot of 5) | -1 to 1 |
| 32 to 40 | mid: the same | -1 to 1 |
| 41 to 49 | late: the same | -1 to 1 |
| 50 to 59 | early: telemetry | -1 to 1 |
| 60 to 69 | mid: telemetry | -1 to 1 |
| 70 to 79 | late: telemetry | -1 to 1 |

Telemetry of a slot: gradient norm x / (1 + x); 1 if that is neither vanishing nor exploding;
vanishing; exploding; epochs in its stage, over those of the episode; validation accuracy without
the seed; what the accuracy changed by in its stage; stage / 8; alpha; the seed's age in epochs,
over those of the episode. A slot that a cull has shut shows its stage, and 0 elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from stageb.growth.types import EnvironmentView, SlotView, Stage
from stageb.growth.views import REMEMBERED

SIZE = 80
HOST = 23  # numbers of the host
BASE = 9  # and of each slot beside it
TELEMETRY = 10
MOST_BLUEPRINTS = 5
LAST = max(Stage)


def observe(views: Sequence[EnvironmentView]) -> Tensor:
    """The observation of every view: float32 (views, 80)."""
    rows = [_numbers(view) for view in views]
    return torch.tensor(rows, dtype=torch.float32).reshape(len(rows), SIZE)


def _numbers(view: EnvironmentView) -> list[float]:
    """The 80 numbers of a view, in the order of the table."""
    numbers = _observe_host(view)
    for slot in view.slots:
        numbers += _observe_slot(slot)
    for slot in view.slots:
        numbers += _observe_telemetry(slot, view)
    return numbers


def _observe_host(view: EnvironmentView) -> list[float]:
    return [
        _share(view.epoch, view.epochs),
        _squash(view.steps / 1000),
        _squash(view.train_loss),
        _clip_unit(view.train_accuracy),
        _tanh(view.train_loss_delta),
        _clip_signed(view.train_accuracy_delta),
        _tanh(_change(view.loss_history)),
        _clip_signed(_change(view.accuracy_history)),
        _share(view.plateau, view.epochs),
        _squash(view.best_loss),
        _clip_unit(view.best_accuracy),
        *_list_newest(view.loss_history, _squash),
        *_list_newest(view.accuracy_history, _clip_unit),
        _share(view.extra_parameters, view.extra_parameters + view.host_parameters),
        _share(view.germinated, view.epochs),
    ]


def _observe_slot(slot: SlotView) -> list[float]:
    numbers = [0.0] * BASE
    numbers[1] = slot.stage / LAST
    if slot.stage.is_seeded:
        numbers[0], numbers[2], numbers[3] = (
            1.0,
            _clip_unit(slot.alpha),
            _clip_signed(slot.contribution),
        )
        numbers[4 + slot.blueprint] = 1.0
    return numbers


def _observe_telemetry(slot: SlotView, view: EnvironmentView) -> list[float]:
    if not slot.stage.is_seeded:
        return [0.0] * TELEMETRY
    return [
        _squash(slot.gradient_norm),
        float(not slot.vanishing and not slot.exploding),
        float(slot.vanishing),
        float(slot.exploding),
        _share(slot.epochs_in_stage, view.epochs),
        _clip_unit(slot.accuracy_without),
        _clip_signed(slot.improvement),
        slot.stage / LAST,
        _clip_unit(slot.alpha),
        _share(slot.age, view.epochs),
    ]


def _list_newest(history: Sequence[float], bound: Callable[[float], float]) -> list[float]:
    """Of the last epochs, newest first; 0 before the first."""
    newest = [bound(each) for each in reversed(history[-REMEMBERED:])]
    return newest + [0.0] * (REMEMBERED - len(newest))


def _squash(value: float) -> float:
    """x / (1 + x) for x >= 0: in [0, 1]; 1 for NaN and infinity."""
    return value / (1 + value) if 0 <= value < math.inf else float(not value < 0)


def _clip_unit(value: float) -> float:
    """``value`` clipped to [0, 1]; 0 for NaN."""
    return min(1.0, max(0.0, value)) if value == value else 0.0


def _clip_signed(value: float) -> float:
    """``value`` clipped to [-1, 1]; 0 for NaN."""
    return min(1.0, max(-1.0, value)) if value == value else 0.0


def _tanh(value: float) -> float:
    return math.tanh(value) if value == value else 0.0


def _share(part: float, whole: float) -> float:
    return _clip_unit(part / whole) if whole else 0.0


def _change(history: Sequence[float]) -> float:
    """The newest value less the one before; 0 if there is none."""
    return history[-1] - history[-2] if len(history) > 1 else 0.0


# A policy's memory of an episode: which blueprint was tried in which slot, and its last
# contribution.
#
# An observation shows the current content of a slot, which a cull removes, but a search for the
# right seed must remember what was tried. This memory is minimal: two numbers for each slot and
# blueprint, computed from observations alone. It needs no training, and the policy stays a function
# of the current observation and these numbers.

# slot, blueprint, (tried: 0 or 1; the last contribution seen, -1 to 1)
SHAPE = (3, MOST_BLUEPRINTS, 2)
_CONTRIBUTION, _ONE_HOT = 3, 4  # places in the numbers of a slot


def make_blank(count: int) -> Tensor:
    """The empty memory of ``count`` episodes: float32 (count, 3, 5, 2)."""
    return torch.zeros((count, *SHAPE))


def remember(memory: Tensor, observations: Tensor) -> Tensor:
    """``memory`` (N, 3, 5, 2) updated with observations (N, 80), which are not normalised."""
    slots = observations[:, HOST : HOST + 3 * BASE].reshape(-1, 3, BASE)
    here = slots[..., _ONE_HOT:] > 0
    contribution = slots[..., _CONTRIBUTION, None].expand_as(here)
    tried, seen = memory.unbind(-1)
    return torch.stack(
        [torch.where(here, 1.0, tried), torch.where(here, contribution, seen)], dim=-1
    )


def remember_all(observations: Tensor) -> Tensor:
    """The memory at every step of whole episodes: float32 (T, N, 3, 5, 2) from observations (T, N,
    80)."""
    memory, steps = make_blank(observations.shape[1]), []
    for each in observations:
        memory = remember(memory, each)
        steps.append(memory)
    return torch.stack(steps)
