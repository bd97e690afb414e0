"""How soon a run on many ranks learns, reflecting bundle by bundle or on rounds: ``bin/bench rounds --ranks 1,2,4,8``

Ranks are forks of this process. Code follows rules in the model's place and makes them of the evidence; for the time that a
model would take, a rank sleeps, so that few cores do for many ranks. A rank's call for reflection answers (up to
``ranks.TOGETHER`` of them) takes ``--reflection-s``, each answer to a ticket ``--rollout-s``, and a verdict for the gate a
third of that. Shown is when the guidance was as good as the first arm's ever was, on tickets that nothing was learnt from.
Then the same runs, without sleep, must leave equal bytes at every number of ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache, partial
from typing import Literal

from lab.bench.heart import content, inputs_of, on_ranks
from lab.bench.learning.proposer import statistics
from lab.bench.rows import Row, write
from stageb.config import OutputConfig, require
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Completion, Decode, Prompt, Question, Request
from stageb.engines.scripted import ScriptedEngine
from stageb.guidance import loop
from stageb.guidance.config import (
    DecodeConfig,
    EarlyStopConfig,
    GateConfig,
    GuidanceConfig,
    LoopConfig,
    PromptConfig,
    ReflectionConfig,
    RunnerConfig,
    SamplerConfig,
)
from stageb.guidance.files.guidance_file import load_seed
from stageb.guidance.prompts import WORDS, answer_text, rollout_prompt
from stageb.guidance.rollout import as_decode
from stageb.guidance.rules.judge import compile_rules, read_rules
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.rules.reading import Reading, read_summaries
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.types import HEADLINE_KEY, Guidance, Rule, Ticket, Verdict
from stageb.job.world import World
from stageb.seeds import shuffled, stream, uniform

ROUND = 1024  # tickets, whatever the number of ranks: as in configs/guidance/eight-gpus.yaml
HELD_OUT = 2000
FIELDS, HIDDEN = 8, 20  # attributes, and rules to be found
ARMS = "bundle:32:64:16,round:10:64:16,round:10:256:32"
MISSIONS = {"pairs": (6, 2), "triples": (4, 3)}  # values of an attribute; attributes that a rule names
VERDICT = 1 / 3  # of a rollout's time
SLIPS = 1 / 30  # share of sampled verdicts that are not as the rules say
SURE = {True: -0.05, False: -3.0}  # log-probabilities
EN = WORDS["en"]
RULE = re.compile(r"^(G\d+)\. (.+)$", re.MULTILINE)
GREEDY = as_decode(DecodeConfig(temperature=0.0))


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to reflect."""

    scope: Literal["bundle", "round"]  # as ``reflection.scope``
    proposals: int  # of a bundle
    race_size: int  # as in ``gate``
    race_chunk: int

    @classmethod
    def of(cls, word: str) -> Arm:
        """``scope:proposals:race_size:race_chunk``."""
        scope, *numbers = word.split(":")
        fine = scope in ("bundle", "round") and len(numbers) == 3 and all(map(str.isdecimal, numbers))
        require(fine, "--arms", word, "bundle:32:64:16 or the like: scope, answers a bundle, gate.race_size and race_chunk")
        return cls("round" if scope == "round" else "bundle", *map(int, numbers))


@dataclass(frozen=True, slots=True)
class Climbed:
    """What came of a run."""

    seconds: float  # in all
    accuracies: list[tuple[float, float]]  # (seconds, accuracy on held-out tickets) of each guidance in turn
    spent: dict[str, int]  # as in a commit

    @property
    def best(self) -> float:
        """The highest accuracy that any guidance had."""
        return max(accuracy for _, accuracy in self.accuracies)

    def reached(self, level: float) -> float | None:
        """After how many seconds a guidance was at least so good; None where none was."""
        return next((at for at, accuracy in self.accuracies if accuracy >= level), None)


def main(arguments: Sequence[str]) -> int:
    """The command line. Exit code 1 where runs at different numbers of ranks left different bytes."""
    parser = argparse.ArgumentParser(prog="bin/bench rounds", description=__doc__)
    parser.add_argument("--ranks", default="1,2,4,8", help="the last is timed, all leave equal bytes (default 1,2,4,8)")
    parser.add_argument("--arms", default=ARMS, help=f"scope:answers:race_size:race_chunk of each (default {ARMS})")
    parser.add_argument("--mission", default="triples", choices=list(MISSIONS), help="what rules name (default triples)")
    parser.add_argument("--tickets", type=int, default=8000, help="of the mission (default 8000)")
    parser.add_argument("--rounds", type=int, default=4, help="to learn from, in each of two epochs (default 4)")
    parser.add_argument("--seed", type=int, default=17, help="of the runs (default 17)")
    parser.add_argument("--reflection-s", type=float, default=2.0, help="seconds of a call for answers (default 2)")
    parser.add_argument("--rollout-s", type=float, default=0.005, help="seconds of an answer to a ticket (default 0.005)")
    parser.add_argument("--json", metavar="FILE", help="write what was measured, as JSON")
    given = parser.parse_args(arguments)
    worlds = [int(word) for word in given.ranks.split(",") if word.isdecimal()]
    fine = bool(worlds) and all(size and ROUND % size == 0 for size in worlds)
    require(fine, "--ranks", given.ranks, f"numbers that divide {ROUND}, such as 1,2,4,8")
    arms = [Arm.of(word) for word in given.arms.split(",")]
    tickets = made(given.mission, given.tickets, "learnt from")
    rows: list[Row] = []
    for arm in arms:
        climbed = climb(arm, worlds[-1], f"{given.reflection_s} {given.rollout_s}", tickets, given)
        level = rows[0]["best"] if rows else climbed.best
        reached = climbed.reached(level)
        row = {**asdict(arm), **asdict(climbed), "best": climbed.best, "level": level, "reached_s": reached}
        at = "never" if reached is None else f"after {reached:.0f} s"
        print(f"{arm}: {level:.1%} {at}, at best {climbed.best:.1%}; {climbed.seconds:.0f} s in all", flush=True)
        equal = is_equal(arm, worlds, tickets, given)
        print(f"  equal bytes at {given.ranks} ranks: {equal}", flush=True)
        rows.append({**row, "equal_bytes": equal})
    write(given.json, {"ranks": worlds[-1], "arms": rows})
    return 0 if all(row["equal_bytes"] for row in rows) else 1


def climb(arm: Arm, ranks: int, pace: str, tickets: Sequence[Ticket], given: argparse.Namespace) -> Climbed:
    """A run on so many ranks, timed."""
    held_out = made(given.mission, HELD_OUT, "held out")
    with tempfile.TemporaryDirectory() as root:
        config = config_of(arm, root, ranks, pace, given)
        begun, seconds = on_ranks(ranks, partial(whole, config=config, tickets=tickets))
        paths = sorted((config.output.folder / "m" / "snapshots").iterdir())
        accuracies = [(path.stat().st_mtime - begun, accuracy(load_seed(path)["m"], held_out)) for path in paths]
        spent = json.loads((config.output.folder / "commit.json").read_text("utf-8"))["state"]["spent"]
        return Climbed(seconds, accuracies, spent)


def is_equal(arm: Arm, worlds: Sequence[int], tickets: Sequence[Ticket], given: argparse.Namespace) -> bool:
    """Whether runs without sleep leave equal bytes at all these numbers of ranks."""
    found = []
    for ranks in worlds:
        with tempfile.TemporaryDirectory() as root:
            config = config_of(arm, root, ranks, "0 0", given)
            on_ranks(ranks, partial(whole, config=config, tickets=tickets))
            found.append(content(config.output.folder))
    return all(each == found[0] for each in found)


def whole(world: World, config: LoopConfig, tickets: Sequence[Ticket]) -> tuple[float, float]:
    """A run: when it began on the clock, and its seconds."""
    begun, start = time.time(), time.perf_counter()
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        loop.main(world, config, "tickets: [made up]\n", True, inputs_of(config, tickets))
    return begun, time.perf_counter() - start


def config_of(arm: Arm, root: str, ranks: int, pace: str, given: argparse.Namespace) -> LoopConfig:
    """The config of a run, whose model takes its time as ``pace`` says (``build``)."""
    return LoopConfig(
        tickets=["made up"],
        seed=given.seed,
        model=ModelConfig(engine="lab.bench.rounds:build", model_name_or_path=pace),
        prompt=PromptConfig(style="shipped"),
        guidance=GuidanceConfig(retention=1000),
        output=OutputConfig(root=root, run_name="run"),
        sampler=SamplerConfig(samples_per_decode=4, micro_batch_size=128),
        runner=RunnerConfig(
            epochs=2, per_rank_rollout_batch_size=ROUND // ranks, tickets_per_epoch=given.rounds * ROUND, judge="model"
        ),
        reflection=ReflectionConfig(scope=arm.scope, num_proposals=arm.proposals),
        gate=GateConfig(race_size=arm.race_size, race_chunk=arm.race_chunk),
        early_stop=EarlyStopConfig(patience=None, reflections=None),
        report=False,
    )


def made(mission: str, count: int, name: str) -> list[Ticket]:
    """Tickets of which those fail that one of the hidden rules holds for."""
    most, terms = MISSIONS[mission]
    rules = []
    for n in range(HIDDEN):
        key = stream("hidden", n)
        rules.append([(field, int(uniform(key, field) * most)) for field in shuffled(range(FIELDS), key)[:terms]])
    tickets = []
    for n in range(count):
        values = [int(uniform(stream(name, n), field) * most) for field in range(FIELDS)]
        fails = any(all(values[field] == value for field, value in rule) for rule in rules)
        label: Verdict = "fail" if fails else "pass"
        said = "; ".join(f"part{field}: kind{FIELDS * value + field}" for field, value in enumerate(values))
        tickets.append(Ticket("m", f"{name}-{n}", label, (("image_1", said), ("image_2", f"seen as {n}"))))
    return tickets


def accuracy(guidance: Guidance, tickets: Sequence[Ticket]) -> float:
    """The share of these tickets that are judged right under it."""
    prompts = [rollout_prompt(ticket, guidance, EN) for ticket in tickets]
    return sum(ruling(each).verdict == ticket.label for each, ticket in zip(prompts, tickets, strict=True)) / len(tickets)


class SleepingEngine(ScriptedEngine):
    """Follows rules by their letter, makes rules of the evidence, weighs verdicts, and takes its time."""

    def __init__(self, reflection_s: float, rollout_s: float) -> None:
        super().__init__(respond)
        self._reflection_s, self._rollout_s = reflection_s, rollout_s

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """See ``Engine``."""
        reflects = any(is_reflection(request.prompt) for request in requests)
        time.sleep(self._reflection_s if reflects else self._rollout_s * sum(len(request.keys) for request in requests))
        return super().generate(requests)

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        """See ``Scorer``: nearly sure of what the rules say."""
        time.sleep(VERDICT * self._rollout_s * len(questions))
        said = [respond(each.prompt, GREEDY, 0) for each in questions]
        return [
            tuple(SURE[text.startswith(answer)] for answer in each.answers)
            for each, text in zip(questions, said, strict=True)
        ]


def build(model: ModelConfig, device: str) -> SleepingEngine:
    """The engine that takes the seconds in ``model.model_name_or_path``: of a call for reflection answers, of a rollout."""
    reflection_s, rollout_s = map(float, model.model_name_or_path.split())
    return SleepingEngine(reflection_s, rollout_s)


def respond(prompt: Prompt, decode: Decode, key: int) -> str:
    """The answer to either kind of prompt. One sampled verdict in thirty slips."""
    if is_reflection(prompt):
        return statistics(prompt, decode, key)
    said = ruling(prompt)
    verdict: Verdict = said.verdict or "pass"
    if decode.temperature > 0 and uniform(key, 0) < SLIPS:
        verdict = "pass" if verdict == "fail" else "fail"
    return answer_text(verdict, f"as written ({said.rule or HEADLINE_KEY})", EN)


def ruling(prompt: Prompt) -> Ruling:
    """What the rules of a rollout's prompt say of its ticket."""
    judge = compiled(tuple(RULE.findall(prompt.system)))
    return judge(read_summaries(tuple(line.partition(": ")[2] for line in prompt.user.splitlines())))


@lru_cache(4096)
def compiled(rules: tuple[tuple[str, str], ...]) -> Callable[[Reading], Ruling]:
    """Rules, by key and text, as code."""
    guidance = Guidance("m", 0, tuple(Rule(key, text) for key, text in rules), len(rules))
    return compile_rules(read_rules(guidance, vocabulary(), EN))


@cache
def vocabulary() -> Vocabulary:
    """What rules may name, in any mission."""
    return Vocabulary.of(ticket for mission in MISSIONS for ticket in made(mission, 200, "named"))


def is_reflection(prompt: Prompt) -> bool:
    """Whether a prompt asks for an edit."""
    return prompt.system.startswith(EN.reflection.partition("{")[0])
