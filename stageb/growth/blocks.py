"""Many networks at once: their parameters stacked, allocated as one block, and their forward.

``torch.func.vmap`` over each of its stages.

Between the stages stand the slots, where members part: those with the same blueprint in a slot are
computed together, and nobody computes a seed that is not its own. What is judged in several
settings of alphas runs through as if it were more examples, from the first slot on where anything
stands.

A seed that is inactive, at alpha 0, or that blew up, cannot reach the output or the host's
gradients: it is left out, or the choice is made by ``where`` (0 * NaN is NaN), and what a seed
sends back through its input is stopped where it is not finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import torch
from torch import Tensor
from torch.func import vmap

from stageb import draws, seeds
from stageb.growth.blueprints import BLUEPRINTS, Spec, guard_gradient
from stageb.growth.hosts import HOST, Plan, name_segment
from stageb.growth.types import SLOTS

# The parameters of a block of networks: segments stacked over its members, allocated ahead and
# drawn from named streams.
#
# A member's numbers depend on its own key, the segment's name and the place in it: on no batch,
# order or rank. They are drawn on the CPU in float64, so that every device starts from the same
# bits.

PARTS = (HOST, *SLOTS)  # what is updated and measured as one


def find_part(segment: str) -> int:
    """The index in ``PARTS`` of what a segment belongs to."""
    return PARTS.index(segment.partition(".")[0])


def draw(plan: Plan, segment: str, keys: Sequence[int], teaching: bool = False) -> Tensor:
    """How a segment begins for the members that ``keys`` name: float64 (members, size) on the CPU.

    ``teaching``: as part of a teacher, whose seed's last layer is drawn too.
    """
    specs = plan.segments[segment]
    streams = torch.tensor([draws.signed(seeds.stream(key, "weights", segment)) for key in keys])
    places = torch.arange(sum(spec.size for spec in specs))
    uniforms = draws.uniforms(streams[:, None], places)
    fill = torch.cat([torch.full((spec.size,), spec.fill, dtype=torch.float64) for spec in specs])
    bound = torch.cat(
        [torch.full((spec.size,), _bound(spec, teaching), dtype=torch.float64) for spec in specs]
    )
    return fill + bound * (2.0 * uniforms - 1.0)


def _bound(spec: Spec, teaching: bool) -> float:
    return spec.teaching if teaching and spec.teaching is not None else spec.bound


# examples at once; and numbers of a hidden state, of one network in one setting
MOST_EXAMPLES, MOST_NUMBERS = 512, 1 << 17

StandingSeeds = Sequence[Sequence[tuple[int, bool] | None]]
"""Of each member and slot: the blueprint that stands there, and whether it learns; None where
nothing is to be computed."""


@dataclass(frozen=True, eq=False)
class Group:
    """Members of a block that have the same in a slot."""

    blueprint: int
    learns: bool
    segment: str
    rows: Tensor  # int64: which members


@dataclass(frozen=True)
class SlotGroups:
    """How the members of a block part at a slot."""

    groups: tuple[Group, ...]
    rest: Tensor  # int64: the members who have nothing there
    order: Tensor  # int64 (B,): where each stands when groups and rest follow one another


def group_members(plan: Plan, seeds: StandingSeeds, device: torch.device) -> tuple[SlotGroups, ...]:
    """How a block parts at its three slots."""

    def rows(of: list[int]) -> Tensor:
        return torch.tensor(of, dtype=torch.int64, device=device)

    slots = []
    for slot in range(len(SLOTS)):
        held = [of[slot] for of in seeds]
        kinds = sorted({seed for seed in held if seed is not None})
        members = [[member for member, seed in enumerate(held) if seed == kind] for kind in kinds]
        rest = [member for member, seed in enumerate(held) if seed is None]
        order = rows([*(member for some in members for member in some), *rest]).argsort()
        groups = [
            Group(index, learns, name_segment(plan, slot, index), rows(some))
            for (index, learns), some in zip(kinds, members, strict=True)
        ]
        slots.append(SlotGroups(tuple(groups), rows(rest), order))
    return tuple(slots)


def forward(
    plan: Plan,
    host: Tensor,
    slots: Sequence[SlotGroups],
    params: Mapping[Group, Tensor],
    x: Tensor,
    alphas: Tensor,
) -> Tensor:
    """Logits (B, S, N, classes) in S settings of ``alphas``, floats (B, S, 3).

    ``host`` is (B, size), ``params`` (members of the group, size) of each of the ``slots``' groups;
    ``x`` is every member's own, (B, N, *shape), or one for all, (N, *shape).
    """
    kind, parts = plan.built, open_segment(plan, HOST, host)
    own = x.dim() == len(plan.shape.example) + 2
    h = vmap(partial(kind.stem, plan.shape), in_dims=(0, 0 if own else None))(parts, x)
    count = h.shape[1]
    for number, slot in enumerate(slots):
        if number:
            h = vmap(partial(kind.body, plan.shape, number))(parts, h)
        if slot.groups:
            h = _apply_slot(
                plan,
                number,
                slot,
                params,
                h.view(len(h), -1, count, *h.shape[2:]),
                alphas[:, :, number],
            )
    logits: Tensor = vmap(partial(kind.head, plan.shape))(parts, h)
    return logits.view(len(h), -1, count, logits.shape[2]).expand(-1, alphas.shape[1], -1, -1)


def _apply_slot(
    plan: Plan,
    number: int,
    slot: SlotGroups,
    params: Mapping[Group, Tensor],
    h: Tensor,
    alphas: Tensor,
) -> Tensor:
    """The states that a slot hands on, (B, S * N, ...), of ``h``, (B, S or 1, N, ...), and its
    alphas, (B, S)."""
    settings = alphas.shape[1]
    alphas = alphas.view(*alphas.shape, *[1] * (h.dim() - 2)).to(h.dtype)
    pieces = []
    for group in slot.groups:
        before = h.index_select(0, group.rows)
        seed = open_segment(plan, group.segment, params[group])
        compute = vmap(BLUEPRINTS[plan.blueprints[group.blueprint]].branch, in_dims=(0, 0, None))
        branch = compute(seed, guard_gradient(before.flatten(1, 2)), plan.slots[number])
        pieces.append(
            add_branch(before, branch.view(before.shape), alphas.index_select(0, group.rows), 3)
        )
    if len(slot.rest):
        rest = h.index_select(0, slot.rest)
        pieces.append(rest.expand(-1, settings, *rest.shape[2:]))
    return torch.cat(pieces).index_select(0, slot.order).flatten(1, 2)


def choose_batch_size(plan: Plan) -> int:
    """How many examples are judged in one batch. The plan alone decides, since sums depend on it in
    their last bits."""
    return max(1, min(MOST_EXAMPLES, MOST_NUMBERS // (plan.width * prod(plan.slots[0].places))))


def open_segment(plan: Plan, name: str, flat: Tensor) -> dict[str, Tensor]:
    """The tensors of a segment by name: views of ``flat``, (..., size)."""
    specs = plan.segments[name]
    parts = torch.split(flat, [spec.size for spec in specs], -1)
    return {
        spec.name: part.view(*flat.shape[:-1], *spec.shape)
        for spec, part in zip(specs, parts, strict=True)
    }


def add_branch(h: Tensor, branch: Tensor, alpha: Tensor, axis: int) -> Tensor:
    """``h + alpha * branch`` where alpha is above 0 and the branch finite, else ``h``; examples lie
    before ``axis``.

    Whether it is finite, each example's own branch says: what one of them comes to hangs on no
    other.
    """
    total = branch.detach().float().sum(tuple(range(axis, branch.dim())), keepdim=True)
    # a sum is finite, if all its terms are and none is enormous
    reached = total.isfinite() & (alpha > 0)
    return torch.where(reached, h + alpha * branch, h)
