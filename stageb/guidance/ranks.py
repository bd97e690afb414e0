"""What every rank does for the loop: hold the model, roll out its share of a round, answer what rank 0 asks.

All ranks have read the same tickets, so what travels of them is positions, and guidance with every request. Which rank
answers makes no difference to an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from stageb import engines
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Completion, Decode, Engine, Prompt, Request, Scorer, open_eyes
from stageb.engines.thinking import thinks
from stageb.errors import ConfigError, at
from stageb.guidance import rollout
from stageb.guidance.config import LoopConfig, UseImages
from stageb.guidance.files.guidance_file import from_json, to_json
from stageb.guidance.prompts import words_of
from stageb.guidance.schedule import Round
from stageb.guidance.state import answers_from_plain, answers_to_plain
from stageb.guidance.types import Answers, Guidance, Judgement, Ticket
from stageb.job import heartbeat
from stageb.job.world import Json, World, decode, encode

FOLLOWER = "stageb.guidance.follower:respond"  # what the scripted engine runs where no function is named
TOGETHER = 4  # reflection answers that a rank samples at once, at every world size; their long prompts fill a device


class Ranks:
    """The ranks of a run, as the loop sees them. ``load`` and ``roll_out`` are for all of them, the rest for rank 0."""

    def __init__(self, config: LoopConfig, tickets: Sequence[Ticket], world: World) -> None:
        self.config = config
        self.tickets = tickets
        self.world = world
        self.round_size = config.runner.per_rank_rollout_batch_size * world.world_size
        per_rank, most = config.runner.per_rank_rollout_batch_size, config.sampler.micro_batch_size
        self.group_size = rollout.group_size(self.round_size, per_rank, most)
        self.words = words_of(config.prompt)
        self._engine: Engine | None = None
        self._reflecting: Engine | None = None

    # On every rank

    def load(self) -> None:
        """Load the model on this rank's device, and be ready to be asked."""
        self._engine = load(self.config.model, self.world, self.config.sampler.use_images)
        self.world.agree("how the gate judges", self.judges_by)
        self.world.offer({"judge": self._judge, "generate": self._generate})

    def roll_out(self, batch: Round, guidance: Guidance, on_tickets: Callable[[int], None]) -> list[Answers]:
        """The answers to the round's tickets, in their order: all of them on rank 0, none elsewhere.

        Random streams are named by the epoch only where the round learns. What is distilled is answered once, at a
        temperature of its own. ``on_tickets`` is told on rank 0 how many tickets are answered, as far as it can tell.
        """
        sampler, distills = self.config.sampler, batch.kind == "distill"
        names = [self.config.seed, "distill" if distills else "rollout", batch.epoch if batch.learns else 0]
        if distills:
            grid = [replace(sampler.grid[0], temperature=self.config.distill.temperature)]
            sampler = replace(sampler, grid=grid, samples_per_decode=1)
        groups, mine, world = self._groups(batch.tickets), [], self.world

        def answers(some: Sequence[Ticket]) -> list[Json]:
            return [answers_to_plain(a) for a in rollout.rollout(some, guidance, self._model, sampler, self.words, names)]

        for done, group in enumerate(world.share(groups)):
            with world.at(f"rollout group {world.rank + done * world.world_size} of {len(groups)}"):
                mine.append(naming_tickets([self.tickets[batch.tickets[i]] for i in group], answers))
            if world.is_global_zero:
                on_tickets(min((done + 1) * world.world_size * self.group_size, len(batch.tickets)))
        gathered = world.gather(encode(mine))
        if not world.is_global_zero:
            return []
        rows = world.dealt([decode(part) for part in gathered])
        return in_order(groups, [[answers_from_plain(row) for row in group] for group in rows], len(batch.tickets))

    def _judge(self, common: Any, item: Any) -> Any:
        (guidance,) = from_json(common["guidances"][item["guidance"]], "a request").values()
        tickets = [self.tickets[i] for i in item["tickets"]]

        def judged(some: Sequence[Ticket]) -> list[Any]:
            found = rollout.judgements(some, guidance, self._model, self.config.sampler, self.words, self.judges_by)
            return [[each.merit, each.tokens] for each in found]

        return naming_tickets(tickets, judged)

    def _generate(self, common: Any, item: Any) -> Any:
        answers = self._model.generate([request_from_plain(each) for each in item])
        return [[asdict(completion) for completion in answer] for answer in answers]

    @property
    def judges_by(self) -> str:
        """How the gate judges a ticket: "probability" or "answer". Probabilities would be of verdicts without a thought."""
        asked = self.config.gate.judge_by if self.config.gate != "none" else "answer"
        able = isinstance(self._model, Scorer)
        if asked == "probability" and not able:
            remedy = f"engine {self.config.model.engine} cannot tell probabilities; set it to answer, or to auto"
            raise ConfigError("gate.judge_by", asked, remedy)
        return asked if asked != "auto" else "probability" if able and not self.lets_think else "answer"

    @property
    def lets_think(self) -> bool:
        """Whether the model thinks aloud before its answers, which are not begun for it then."""
        return thinks(self._model) and not self.words.begin

    @property
    def _model(self) -> Engine:
        assert self._engine is not None, "load first"
        return self._engine

    # On rank 0, while it leads

    def judge(self, asked: Sequence[tuple[Guidance, Sequence[int]]]) -> list[list[Judgement]]:
        """For each guidance and its tickets: how each is judged, over all ranks."""
        items: list[Json] = []
        groups = []
        for number, (_, positions) in enumerate(asked):
            cut = self._groups(positions)
            groups.append(cut)
            items += [{"guidance": number, "tickets": [positions[i] for i in group]} for group in cut]
        rows = iter(self.world.map("judge", {"guidances": [to_json(guidance) for guidance, _ in asked]}, items))
        return [
            [Judgement(*row) for row in in_order(cut, [next(rows) for _ in cut], len(positions))]
            for (_, positions), cut in zip(asked, groups, strict=True)
        ]

    def reflection_engine(self) -> Engine:
        """The model that reflects: its own, on rank 0, where the config names one; otherwise every rank's."""
        if self.config.reflection.model is None:
            return EveryRank(self._model, self.world)
        if self._reflecting is None:
            self._reflecting = load(self.config.reflection.model, self.world)
        return self._reflecting

    def _groups(self, positions: Sequence[int]) -> list[list[int]]:
        return rollout.micro_batches([self.tickets[i] for i in positions], self.group_size)


class EveryRank:
    """One engine in the place of all ranks' models: what is asked of it, every rank answers a part of."""

    def __init__(self, model: Engine, world: World) -> None:
        self._model = model
        self._world = world

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """See ``Engine``."""
        return self._model.count_tokens(prompts)

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """See ``Engine``."""
        plain = [asdict(request) for request in requests]
        groups = [plain[start : start + TOGETHER] for start in range(0, len(plain), TOGETHER)]
        rows = self._world.map("generate", None, groups)
        return [tuple(Completion(**each) for each in answer) for group in rows for answer in group]


def with_follower(model: ModelConfig) -> ModelConfig:
    """``model``, with the shipped follower of rules where the scripted engine is to run and no function is named."""
    unnamed = model.engine == "scripted" and model.model_name_or_path == ModelConfig.model_name_or_path
    return replace(model, model_name_or_path=FOLLOWER) if unnamed else model


def load(model: ModelConfig, world: World, use_images: UseImages = False) -> Engine:
    """The model on this rank's device. Raises ``ConfigError`` where it is to be shown images and cannot be."""
    if world.world_size > 1 and model.device_map is not None:
        if world.is_global_zero:
            print(f"model.device_map {model.device_map!r} is set aside: every rank holds the whole model on its own device")
        model = replace(model, device_map=None)
    model = with_follower(model)
    with heartbeat.at("loading the model", "quiet"):
        engine = engines.build(model, world.device)
    if use_images:
        open_eyes(engine, model.engine)
    return engine


def request_from_plain(row: Mapping[str, Any]) -> Request:
    """The request that ``dataclasses.asdict`` and JSON made ``row`` of."""
    decode = row["decode"]
    prompt = row["prompt"]
    said = Prompt(**{**prompt, "images": tuple(prompt["images"])})
    return Request(said, Decode(**{**decode, "stop": tuple(decode["stop"])}), tuple(row["keys"]))


def naming_tickets(tickets: Sequence[Ticket], answer: Callable[[Sequence[Ticket]], list[Any]]) -> list[Any]:
    """``answer(tickets)``; what it raises carries a note that names the ticket (see ``errors.at``).

    A model reads many tickets at once and does not say which one it failed at: each is tried alone then.
    """
    try:
        return answer(tickets)
    except Exception as error:
        for ticket in tickets:
            with at(f"ticket {ticket.key} of mission {ticket.mission}"):
                answer([ticket])
        error.add_note(f"tickets {tickets[0].key} to {tickets[-1].key} of mission {tickets[0].mission}, read together")
        raise


def in_order(groups: Sequence[Sequence[int]], results: Sequence[Sequence[Any]], count: int) -> list[Any]:
    """The groups' results under their positions."""
    flat: list[Any] = [None] * count
    for group, result in zip(groups, results, strict=True):
        for position, value in zip(group, result, strict=True):
            flat[position] = value
    return flat
