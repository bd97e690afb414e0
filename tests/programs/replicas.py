"""A block of hosts that all ranks train together while it grows: random lifecycle operations, an epoch after each."""

from __future__ import annotations

import torch

from stageb import seeds
from stageb.growth import bank, hosts, training
from stageb.growth.config import HostConfig
from stageb.growth.ddp import Together, digests
from stageb.growth.kinds import Form
from stageb.growth.data import Split
from stageb.world import World

MEMBERS, FEATURES, CLASSES, EXAMPLES, STEPS, BATCH = 2, 6, 3, 64, 2, 12
CONFIG = HostConfig(kind="mlp", width=8, blueprints=["norm", "mlp", "low_rank"], blend="gated", batch_size=BATCH)
PHASES = {"none": None, "beside": (0.0, True), "blending": (0.4, True), "kept": (1.0, True)}  # alpha, whether it learns
NEXT = {"beside": "blending", "blending": "kept", "kept": "kept"}


def operate(world: World, count: int) -> list[tuple[str, dict[str, str]]]:
    """Do ``count`` operations, each drawn by rank 0; after each, what was done, and digests of all that this rank holds."""
    plan = hosts.plan(CONFIG, Form((FEATURES,), CLASSES))
    state = training.begin(plan, bank.drawn(plan, hosts.HOST, range(MEMBERS)), world.device)
    together = Together(world)
    slots = {(member, slot): ("none", -1) for member in range(MEMBERS) for slot in range(3)}
    found = []
    for step in range(count):
        done = together.decide(step, lambda step=step: drawn(slots, step, len(plan.blueprints)))
        apply(state, slots, done, step)
        phases = [[slots[member, slot] for slot in range(3)] for member in range(MEMBERS)]
        active = torch.tensor([[index for _, index in row] for row in phases])
        alphas = torch.tensor([[(PHASES[phase] or (0.0, False))[0] for phase, _ in row] for row in phases])
        generator = torch.Generator().manual_seed(step)
        batches = torch.randint(0, EXAMPLES, (MEMBERS, STEPS, BATCH), generator=generator)
        part = together.part(batches)
        training.epoch(state, active, alphas, active >= 0, fit_set(world), part, together.mean)
        together.agree(f"operation {step}", [list(map(list, row)) for row in phases], state.state())
        found.append((done[0], digests(state.state())))
    return found


def drawn(slots: dict[tuple[int, int], tuple[str, int]], step: int, blueprints: int) -> tuple[str, int, int, int]:
    """An operation that the slots allow: what, member, slot, blueprint."""
    key = seeds.stream("replicas", step)
    member, slot = seeds.bits(key, 0) % MEMBERS, seeds.bits(key, 1) % 3
    if slots[member, slot][0] == "none":
        return "germinate", member, slot, seeds.bits(key, 2) % blueprints
    return ("cull" if seeds.uniform(key, 3) < 0.4 else "advance"), member, slot, -1


def apply(state: training.Hosts, slots: dict[tuple[int, int], tuple[str, int]], done: tuple[str, int, int, int], step: int) -> None:
    """Do an operation, as every rank does."""
    what, member, slot, blueprint = done
    if what == "germinate":
        training.germinate(state, member, slot, blueprint, seeds.stream("seed", step))
        slots[member, slot] = "beside", blueprint
    elif what == "cull":
        training.cull(state, member, slot)
        slots[member, slot] = "none", -1
    else:
        phase, index = slots[member, slot]
        slots[member, slot] = NEXT[phase], index


def fit_set(world: World) -> Split:
    """Made-up examples, the same on every rank."""
    x = torch.randn(EXAMPLES, FEATURES, generator=torch.Generator().manual_seed(1))
    return Split(x, x[:, :CLASSES].argmax(1)).stacked(MEMBERS).to(world.device)
