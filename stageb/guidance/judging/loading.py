"""Loads a model that judges or reflects, and finds out what it can do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stageb import engines
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Engine, Scorer, Served, enable_images, thinks
from stageb.errors import ConfigError
from stageb.guidance.config import LoopConfig, PromptConfig, SamplerConfig, UseImages
from stageb.guidance.judging.answers import can_write_reasons
from stageb.guidance.judging.follower import with_follower
from stageb.guidance.rules.prompts import (
    Words,
    begins_answers,
    name_labels,
    rollout_prompt,
    verdict_lines,
    words_of,
)
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.words.labels import list_labels
from stageb.guidance.words.types import Ticket, Verdict
from stageb.job import heartbeat
from stageb.job.world import World


def load_judge(
    model: ModelConfig,
    prompt: PromptConfig,
    sampler: SamplerConfig,
    world: World,
    labels: Iterable[Verdict],
) -> tuple[Engine, PromptConfig]:
    """Load the model that judges tickets of these ``labels`` on this rank's device. Also return
    ``prompt``, which then says whether answers are begun for it: a server is asked what it can
    do."""
    engine, words = load_engine(model, world, sampler.use_images), words_of(prompt, model)
    check_reasons(engine, model.engine, sampler, words)
    if not isinstance(engine, Served):
        return engine, prompt
    ticket = Ticket("inspection", "probe", "pass", (("image_1", "all is in order"),))
    known = list_labels(labels)
    asked = rollout_prompt(ticket, make_neutral(ticket.mission, words, known), words)
    words = name_labels(words, known)
    with heartbeat.at("asking the server what it can do"):
        engine = engine.probe(engines.Question(asked, tuple(verdict_lines(words).values())))
    return engine, replace(prompt, prefill=begins_answers(prompt, model, engine.continues))


def load_engine(model: ModelConfig, world: World, use_images: UseImages = False) -> Engine:
    """Load the model on this rank's device. Raises ``ConfigError`` where it is to be shown images
    and cannot be."""
    model = with_follower(model)
    with heartbeat.at("loading the model", "quiet"):
        engine = engines.build(model, world.device)
    if use_images:
        enable_images(engine, model.engine)
    return engine


def check_reasons(engine: Engine, name: str, sampler: SamplerConfig, words: Words) -> None:
    """Raise ``ConfigError`` if ``engine``, called ``name`` in the config, cannot give reasons as
    ``sampler`` asks."""
    asked = sampler.reasons
    if asked != "all" and thinks(engine) and not words.begin:
        remedy = (
            "a model that thinks aloud has its reasons before its verdict; set it to all, "
            "or prompt.prefill: true"
        )
        raise ConfigError("sampler.reasons", asked, remedy)
    if asked == "wrong" and not can_write_reasons(engine, words):
        remedy = (
            f"engine {name} cannot resume an answer from its exact tokens; set it to all or none"
        )
        raise ConfigError("sampler.reasons", asked, remedy)


class Models:
    """The models of a run: the one that judges, which every rank holds, and the one that
    reflects."""

    def __init__(self, config: LoopConfig, world: World) -> None:
        self.config = config  # says once the model is loaded whether answers are begun for it
        self._world = world
        self._judge: Engine | None = None
        self._reflector: Engine | None = None

    def load(self, labels: Iterable[Verdict]) -> None:
        """Load the model that judges tickets of these ``labels`` on this rank's device."""
        config = self.config
        self._judge, prompt = load_judge(
            config.model, config.prompt, config.sampler, self._world, labels
        )
        self.config = replace(config, prompt=prompt)

    @property
    def words(self) -> Words:
        """The words of the prompts that the model reads which judges."""
        return words_of(self.config.prompt, self.config.model)

    @property
    def judge(self) -> Engine:
        """The model that judges."""
        assert self._judge is not None, "load first"
        return self._judge

    @property
    def reflector(self) -> Engine:
        """The model that reflects: its own, on rank 0, where the config names one; otherwise the
        one that judges."""
        asked = self.config.reflection.model
        if asked is None:
            return self.judge
        if self._reflector is None:
            self._reflector = load_engine(asked, self._world)
        return self._reflector

    @property
    def judges_by(self) -> str:
        """Whether the gate judges a ticket by "probability" or by "answer". Probabilities would be
        those of verdicts without a thought."""
        asked = self.config.gating.judge_by
        able = isinstance(self.judge, Scorer)
        if asked == "probability" and not able:
            remedy = (
                f"engine {self.config.model.engine} cannot give probabilities; set it to "
                f"answer, or to auto"
            )
            raise ConfigError("gate.judge_by", asked, remedy)
        if asked != "auto":
            return asked
        return "probability" if able and not self.lets_think else "answer"

    @property
    def lets_think(self) -> bool:
        """Whether the model that judges thinks aloud before its answers, which are then not begun
        for it."""
        return thinks(self.judge) and not self.words.begin
