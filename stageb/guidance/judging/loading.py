"""Loads a model that judges or reflects, and finds out what it can do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stageb import engines
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Engine, Served, enable_images, thinks
from stageb.errors import ConfigError
from stageb.guidance.config import PromptConfig, SamplerConfig, UseImages
from stageb.guidance.judging.answers import can_write_reasons
from stageb.guidance.judging.follower import with_follower
from stageb.guidance.rules.guidance_file import make_neutral
from stageb.guidance.rules.prompts import (
    Words,
    begins_answers,
    name_labels,
    rollout_prompt,
    verdict_lines,
    words_of,
)
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
    ticket, known = (
        Ticket("inspection", "probe", "pass", (("image_1", "all is in order"),)),
        list_labels(labels),
    )
    asked, words = (
        rollout_prompt(ticket, make_neutral(ticket.mission, words, known), words),
        name_labels(words, known),
    )
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
