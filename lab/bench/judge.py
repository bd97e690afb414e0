"""A round of ``stageb predict`` on a workload: ``bin/bench judge --workload 4b-shared --tickets 512``.

The tickets say what the workload's prompts say, their guidance what these share, so the model reads about as much as in
``bin/bench rollout``, beside whose rate this one belongs: seconds run from handing a round out until rank 0 has all answers.
``--probability`` has verdicts weighed as well, as ``predict`` does unless told otherwise.
"""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict

from lab.bench.contestants import CONTESTANTS
from lab.bench.ranks import fabric_of, facts, parser_of, workload_of
from lab.bench.rows import write
from lab.bench.workloads import Workload, prompts_of
from stageb import engines
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Engine
from stageb.guidance.config import DecodeConfig, SamplerConfig
from stageb.guidance.types import UNKNOWN, Guidance, Rule, Ticket
from stageb.guidance.use.config import PredictConfig
from stageb.guidance.use.judging import JudgingRanks
from stageb.guidance.use.source import TicketLine
from stageb.guidance.use.waves import GroupAnswers, Waves
from stageb.job.world import World, run

ENGINE = "bench"  # its name in the registry, while this runs
MISSION = "made"


class Nowhere:
    """Keeps no answers of a round: what is measured is judging."""

    answered: Sequence[GroupAnswers] = ()

    def show(self, tickets: int) -> None:
        """Tells nobody."""

    def keep(self, answered: Sequence[GroupAnswers]) -> None:
        """Keeps nothing."""


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = parser_of("judge", __doc__)
    parser.add_argument("--probability", action="store_true", help="weigh verdicts as well")
    given = parser.parse_args(arguments)
    workload = workload_of(given)
    return run(fabric_of(given), lambda world: measure(world, workload, given))


def build(model: ModelConfig, device: str) -> Engine:
    """The engine of ``bin/bench rollout``; the workload comes as variables of the chat template."""
    made = CONTESTANTS["ours"].load(Workload(**model.chat_template_kwargs), device)
    assert isinstance(made, Engine)
    return made


def measure(world: World, workload: Workload, given: Namespace) -> int:
    """On every rank: judge the tickets as one round, several times over; rank 0 prints."""
    engines.ENGINES[ENGINE] = f"{__name__}:build"
    config = PredictConfig(
        guidance="none",
        tickets="none",
        probability=given.probability,
        model=ModelConfig(engine=ENGINE, chat_template_kwargs=asdict(workload)),
        sampler=SamplerConfig(
            samples_per_decode=workload.samples,
            max_prompt_tokens=1_000_000,
            micro_batch_size=workload.batch,
            grid=[DecodeConfig(temperature=workload.temperature, max_new_tokens=workload.new_tokens)],
        ),
    )
    prompts, judging, seconds = prompts_of(workload), JudgingRanks(config, world), []
    guidance = {MISSION: Guidance(MISSION, 0, (Rule("G0", prompts[0].system),), 1)}
    lines = [
        TicketLine("", n, Ticket(MISSION, f"g-{n}", UNKNOWN, (("image_1", prompt.user),)), None)
        for n, prompt in enumerate(prompts, 1)
    ]
    for _ in range(given.warmup + given.repeats):
        world.broadcast(None)
        begun = time.perf_counter()
        judging.judge(lines, guidance, Waves(Nowhere()))
        seconds.append(time.perf_counter() - begun)
    if world.is_global_zero:
        rates = [len(lines) * workload.samples / each for each in seconds[given.warmup :]]
        middle = statistics.median(rates)
        print(f"{middle:.1f} rollouts/s ({min(rates):.1f} to {max(rates):.1f}), {middle / workload.samples:.1f} tickets/s")
        record = {"workload": asdict(workload), "machine": facts(world), "probability": given.probability}
        write(given.json, record | {"rollouts_per_s": middle, "rollouts_per_s_range": [min(rates), max(rates)]})
    return 0
