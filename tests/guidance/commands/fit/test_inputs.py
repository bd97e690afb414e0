"""What a run makes of a config before it begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from stageb.engines.config import ModelConfig
from stageb.errors import ConfigError
from stageb.guidance.commands.fit.checks import check_use
from stageb.guidance.commands.fit.inputs import settle_scope
from stageb.guidance.config import LoopConfig, ReflectionConfig, RunnerConfig
from stageb.guidance.words.types import Verdict

OTHER = ModelConfig(model_name_or_path="somebody/else")
OWN, USUAL = ("urgent", "repair", "fine"), ("pass", "fail")
CONFIG = LoopConfig(tickets=["t.jsonl"])


@pytest.mark.parametrize(
    ("config", "labels", "scope", "judge"),
    [
        (CONFIG, USUAL, "bundle", "model"),
        (CONFIG, OWN, "all", "both"),
        (replace(CONFIG, gate="none"), OWN, "bundle", "model"),
        (replace(CONFIG, runner=RunnerConfig(judge="both")), USUAL, "all", "both"),
        (replace(CONFIG, model=OTHER), USUAL, "all", "model"),
        (replace(CONFIG, model=OTHER), OWN, "all", "model"),
        # the shipped one proposes, and knows pass and fail alone
        (
            replace(CONFIG, model=OTHER, reflection=ReflectionConfig(model=ModelConfig())),
            OWN,
            "all",
            "both",
        ),
        (replace(CONFIG, reflection=ReflectionConfig(model=OTHER)), OWN, "bundle", "model"),
        (replace(CONFIG, reflection=ReflectionConfig(scope="round")), OWN, "round", "model"),
    ],
)
def test_code_learns_at_once_where_it_judges_or_the_model_needs_it(
    config: LoopConfig, labels: tuple[Verdict, ...], scope: str, judge: Literal["model", "both"]
) -> None:
    settled = settle_scope(config, labels)
    assert (settled.reflection.scope, settled.runner.judge) == (scope, judge)
    runner = replace(config.runner, judge=judge)
    assert replace(settled, reflection=config.reflection) == replace(config, runner=runner)


@pytest.mark.parametrize(
    ("config", "labels", "is_refused"),
    [
        (CONFIG, OWN, True),
        (CONFIG, USUAL, False),
        (replace(CONFIG, model=OTHER), OWN, False),
        (replace(CONFIG, model=OTHER, reflection=ReflectionConfig(model=ModelConfig())), OWN, True),
        (replace(CONFIG, runner=RunnerConfig(epochs=0)), OWN, False),
        (
            replace(
                CONFIG, reflection=ReflectionConfig(scope="all"), runner=RunnerConfig(judge="both")
            ),
            OWN,
            False,
        ),
    ],
)
def test_the_shipped_model_is_asked_for_no_rules_of_labels_that_it_does_not_know(
    config: LoopConfig, labels: tuple[Verdict, ...], is_refused: bool
) -> None:
    if not is_refused:
        check_use(config, "m", labels)
        return
    with pytest.raises(ConfigError, match="proposes rules of pass and fail alone") as refused:
        check_use(config, "m", labels)
    assert refused.value.key == "reflection.scope"
