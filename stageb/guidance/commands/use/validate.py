"""``stageb validate``: what a fit with these keys would read and cost, at the rate of earlier runs.

It starts nothing and writes nothing.

Tickets, guidance and the model's config and tokenizer are read; no weights are loaded, no request
is sent. Every fault of all of them is told at once.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from stageb.cli.parsing import from_keywords
from stageb.engines.config import HOW_ASKED, ModelConfig
from stageb.engines.outline import Outline, check_name, outline
from stageb.engines.protocol import Prompt
from stageb.errors import BadInputError, BadLine, StagebError
from stageb.guidance.commands.fit.cautions import list_cautions
from stageb.guidance.commands.fit.inputs import Inputs, read_inputs
from stageb.guidance.commands.fit.progress import describe_time
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging.follower import with_follower
from stageb.guidance.learning.schedule import GuidanceSchedule, describe_learning
from stageb.guidance.rules.prompts import rollout_prompt, words_of
from stageb.guidance.rules.read_guidance import load_seed
from stageb.guidance.tickets.groups import find_repeats
from stageb.guidance.tickets.splits import SPLITS
from stageb.guidance.tickets.tickets import describe_left_out
from stageb.guidance.words.costs import describe_counts
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import NOWHERE
from stageb.runs.folder import RunFolder
from stageb.store.commits import COMMIT, flatten

# How fast earlier runs were, and so how long the next one may take.
#
# Most of a run's time goes into reflections and their tests, and where code judges, nearly all of
# it does. So what counts is not how many verdicts a second a run made, but what a bundle took that
# it reflected on, and a ticket of its rounds.

# keys that tell what a ticket takes
TIMED_ALIKE = ("model.", "sampler.", "reflection.", "runner.judge")


@dataclass(frozen=True)
class Rate:
    """How fast an earlier run was that judged and reflected in the same way."""

    run: str  # its folder
    seconds: float  # that all tickets and bundles to come take at its pace
    # rollouts and verdicts for the gate, which a budget counts; 0 where code gave them all
    verdicts_per_s: float
    machine: str  # that it ran on


def find_rate(config: LoopConfig, tickets: int, bundles: int) -> Rate | None:
    """How fast the latest run in ``output.root`` was that had this model, sampler, reflection and
    judge, and so what so many ``tickets`` and ``bundles`` take; None where no such run has timed
    both."""
    wanted = _pick_keys(flatten(asdict(config)))
    folders = [path.parent for path in Path(config.output.root).glob(f"*/{COMMIT}")]
    for folder in sorted(
        folders, key=lambda folder: (folder / COMMIT).stat().st_mtime, reverse=True
    ):
        try:
            run = RunFolder(folder)
            if _pick_keys(run.commit["config"]) == wanted:
                return _read_rate(run, tickets, bundles)
        except (StagebError, OSError, ValueError, TypeError, KeyError, ArithmeticError):
            # no run of this loop, not whole, or ended before it reflected: it tells nothing
            continue
    return None


def _read_rate(run: RunFolder, tickets: int, bundles: int) -> Rate:
    rows, facts = run.read_notes("timings.jsonl"), run.read_machine()
    rounds = [row for row in rows if row["tickets"]]
    whole, judging = (sum(row["seconds"] for row in some) for some in (rows, rounds))
    seconds = tickets * judging / sum(row["tickets"] for row in rounds)
    if bundles:
        seconds += bundles * (whole - judging) / sum(row["bundles"] for row in rows)
    spent = run.commit["state"]["spent"]
    machine = f"{facts['world_size']} x {facts['device_name']}"
    return Rate(str(run.path), seconds, (spent["rollouts"] + spent["judged"]) / whole, machine)


def _pick_keys(flat: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in flat.items()
        if key.startswith(TIMED_ALIKE) and key not in HOW_ASKED
    }


USES = {
    "train": "tickets to learn from (train)",
    "val": "to choose by (val)",
    "test": "for the final table (test)",
}
AT_ONCE = 1024  # prompts whose tokens are counted at once

Found = TypeVar("Found")


@dataclass(frozen=True)
class Lengths:
    """Prompts in tokens, under the guidance that the run starts with."""

    shortest: int
    median: int
    longest: int
    set_aside: int  # tickets whose prompt is longer than sampler.max_prompt_tokens


@dataclass(frozen=True)
class Memory:
    """Bytes that one rank holds; None where that cannot be known without loading the model."""

    weights: int | None
    # of the longest group of tickets that is read at once, all answers at full length
    caches: int | None


@dataclass(frozen=True)
class Validation:
    """The tickets that a fit would read, and its cost at most."""

    tickets: dict[str, dict[str, int]]  # mission -> split -> tickets
    labels: dict[str, dict[str, dict[str, int]]]  # the same by label, all of them in each split
    prompts: Lengths | None  # None where only the loaded model could tell
    memory: Memory
    learning: str  # what a run does
    rollouts: int  # as if no budget ended learning
    reflections: int
    verdicts: int  # for the gate; as if no budget ended learning
    rate: Rate | None  # None where no such run lies in output.root
    # rollouts and verdicts after which learning ends; None where it does not end before
    budget: int | None = None
    measuring: int = 0  # rollouts after that, of val and test, and what is distilled
    notices: list[str] = field(default_factory=list)  # what a person should know before starting

    @property
    def seconds(self) -> float | None:
        """At the rate of the earlier run, unless something but the budget of rollouts ends learning
        early."""
        if self.rate is None:
            return None
        if self.budget is None or not self.rate.verdicts_per_s:
            return self.rate.seconds
        return min(self.rate.seconds, (self.budget + self.measuring) / self.rate.verdicts_per_s)


def validate(**keys: Any) -> Validation:
    """Check what ``stageb fit`` with the same ``keys`` would read, and say what it would cost, as
    ``stageb validate`` does.

    ``config`` names YAML files of keys: one, or several of which later ones win. Raises
    ``stageb.InputError`` with everything that is wrong.
    """
    config: LoopConfig = from_keywords("validate", keys)
    return check_inputs(config)


def main(config: LoopConfig) -> int:
    """The command."""
    print("\n".join(describe(check_inputs(config))))
    return 0


def check_inputs(config: LoopConfig) -> Validation:
    """Read everything, load nothing. Raises ``InputError`` with everything that is wrong; of the
    model only what its name tells where tickets or guidance are at fault, since the rest takes
    seconds of imports."""
    try:
        inputs = read_inputs(config)
    except BadInputError as error:
        _, faults = _look_at_models(config, check_name)
        raise BadInputError(
            "places", [*faults, *error.bad, *_find_guidance_faults(config, error.bad)]
        ) from None
    outlines, faults = _look_at_models(
        config, partial(outline, accelerator=config.fabric.accelerator)
    )
    if faults:
        raise BadInputError("places", faults)
    return _assess(
        inputs.config,
        inputs,
        outlines["model"],
        outlines.get("reflection.model", outlines["model"]),
    )


def _look_at_models(
    config: LoopConfig, look: Callable[[ModelConfig], Found]
) -> tuple[dict[str, Found], list[BadLine]]:
    """Have ``look`` make something of each model, by its key; and list the faults of the others."""
    models = {"model": config.model} | (
        {"reflection.model": config.reflection.model} if config.reflection.model else {}
    )
    found: dict[str, Found] = {}
    faults: list[BadLine] = []
    for key, model in models.items():
        try:
            found[key] = look(with_follower(model))
        except StagebError as error:
            faults.append(BadLine(key, 0, str(error), "correct it"))
    return found, faults


def _count_labels(inputs: Inputs, mission: str) -> dict[str, dict[str, int]]:
    splits, labels = inputs.splits[mission], inputs.guidance[mission].labels
    counts = {split: Counter(inputs.tickets[i].label for i in splits.of(split)) for split in SPLITS}
    return {split: {label: counts[split][label] for label in labels} for split in SPLITS}


def _describe_labels(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Of pass and fail how many fail in each split; of others how often each comes in all."""
    labels = counts["train"]
    if not has_labels(labels):
        return "of these labelled fail: " + ", ".join(f"{of['fail']:,}" for of in counts.values())
    total = {each: sum(of[each] for of in counts.values()) for each in labels}
    return f"{len(labels)} labels: {describe_counts(total)}"


def describe(found: Validation) -> list[str]:
    """The lines that the command prints."""
    lines = [
        f"{mission}: {', '.join(f'{count:,} {USES[split]}' for split, count in splits.items())}; "
        f"{_describe_labels(found.labels[mission])}"
        for mission, splits in found.tickets.items()
    ]
    if found.prompts:
        each = found.prompts
        lines.append(
            f"The model reads {each.shortest:,} to {each.longest:,} tokens (pieces of words) to "
            f"judge a ticket, half of the time up to {each.median:,}"
        )
    memory = found.memory
    if memory.weights is not None:
        held = _format_bytes(memory.weights + (memory.caches or 0))
        caches = (
            f", its caches up to {_format_bytes(memory.caches)}"
            if memory.caches is not None
            else ""
        )
        lines.append(
            f"Memory: {held} for each process (rank), plus what a step of the model needs; its "
            f"weights are {_format_bytes(memory.weights)}{caches}"
        )
    if found.budget is None:
        lines.append(f"{found.learning} At most {found.rollouts:,} answers on tickets (rollouts)")
        if found.reflections:
            lines[-1] += (
                f", {found.reflections:,} that propose rules (reflections) and "
                f"{found.verdicts:,} verdicts that test these (for the gate); what accepted "
                f"rules call for comes on top"
            )
        elif found.verdicts:
            lines[-1] += (
                f" and {found.verdicts:,} verdicts that calibrate the model and test rules (for "
                f"the gate)"
            )
    else:
        lines.append(
            f"At most {found.budget:,} rollouts and verdicts for the gate together until "
            f"budget.rollouts ends learning, plus {found.measuring:,} to measure val and test; "
            f"what the last step goes beyond the budget comes on top"
        )
    if found.rate and found.seconds is not None:
        lines.append(
            f"Time: {describe_time(found.seconds)} at the pace of {found.rate.run} on "
            f"{found.rate.machine}, reflections and all; less where learning ends early, more "
            "where more rules are accepted"
        )
    else:
        lines.append(
            "Time: unknown, since output.root has no run that judges and learns in this way"
        )
        if found.reflections:
            lines[-1] += (
                "; fit estimates it after its first reflection, since reflections take most of it"
            )
    return [
        *lines,
        *(f"Note: {notice}" for notice in found.notices),
        "Nothing was started, and nothing written.",
    ]


# Inside -------------------------------------------------------------------------------------------


def _assess(config: LoopConfig, inputs: Inputs, model: Outline, reflecting: Outline) -> Validation:
    """Assess sound inputs. Raises ``BadInputError`` for what does not fit the model."""
    lengths = _measure_prompts(config, inputs, model)
    faults, notices = _find_misfits(config, inputs, model, lengths), []
    if faults:
        raise BadInputError("places", faults)
    limit, reflection = config.sampler.max_prompt_tokens, config.reflection
    aside = sum(length > limit for length in lengths)
    if config.sampler.use_images:
        most = config.model.image_pixels
        notices.append(
            f"prompts are measured without their images: a token for some 1,024 pixels, "
            f"{most:,} each at most"
        )
    notices += [inputs.left_out] if inputs.left_out else []
    notices += map(str, find_repeats(inputs.tickets))
    if config.runner.judge == "both":
        notices.append(
            "code applies the rules and gives most of these answers and verdicts, at no cost"
        )
    notices += list_cautions(inputs, config)
    notices += describe_left_out(inputs.set_aside)
    if unusable := sum(not record.left_out for record in inputs.set_aside):
        notices.append(f"{unusable:,} unusable ticket lines would be set aside")
    if aside:
        notices.append(
            f"{aside:,} tickets are longer than sampler.max_prompt_tokens, {limit:,}, and would "
            f"be set aside"
        )
    longest = reflection.max_prompt_tokens + reflection.max_new_tokens
    if reflecting.window is not None and longest > reflecting.window and config.runner.epochs:
        notices.append(
            f"reflection.max_prompt_tokens and max_new_tokens, {longest:,} together, are more "
            f"than the {reflecting.window:,} that the model was made for"
        )
    if config.model.engine == "openai" and config.model.tokenizer is None:
        notices.append("lengths are estimates; name the model's tokenizer with model.tokenizer")
    schedule = GuidanceSchedule(inputs.splits, config, config.runner.per_rank_rollout_batch_size)
    cost, measuring, budget = schedule.forecast(), schedule.forecast_rest(), config.budget.rollouts
    if not schedule.epochs or (
        budget is not None and cost.rollouts + cost.judged <= budget + measuring
    ):
        budget = None
    prompts = (
        Lengths(min(lengths), int(statistics.median(lengths)), max(lengths), aside)
        if lengths
        else None
    )
    return Validation(
        tickets={
            name: {split: len(splits.of(split)) for split in SPLITS}
            for name, splits in inputs.splits.items()
        },
        labels={name: _count_labels(inputs, name) for name in inputs.splits},
        prompts=prompts,
        memory=Memory(model.weight_bytes, _estimate_caches(config, inputs, model, lengths)),
        learning=describe_learning(config),
        rollouts=cost.rollouts,
        reflections=cost.reflections,
        verdicts=cost.judged,
        rate=find_rate(config, sum(schedule.to_come(NOWHERE).values()), cost.bundles),
        budget=budget,
        measuring=0 if budget is None else measuring,
        notices=notices,
    )


def _find_guidance_faults(config: LoopConfig, told: Sequence[BadLine]) -> list[BadLine]:
    """The faults of the guidance to start from, unless it was ``told`` already."""
    try:
        if config.guidance.path:
            load_seed(config.guidance.path)
    except BadInputError as error:
        return [line for line in error.bad if line not in told]
    return []


def _measure_prompts(config: LoopConfig, inputs: Inputs, model: Outline) -> list[int]:
    """The length of every ticket's prompt, in tokens; none where only the loaded model could
    tell."""
    if model.count_tokens is None:
        return []
    lengths: list[int] = []
    words = words_of(config.prompt, config.model)
    for start in range(0, len(inputs.tickets), AT_ONCE):
        some = inputs.tickets[start : start + AT_ONCE]
        prompts = [
            rollout_prompt(ticket, inputs.guidance[ticket.mission], words) for ticket in some
        ]
        lengths += model.count_tokens(prompts)
    return lengths


def _find_misfits(
    config: LoopConfig, inputs: Inputs, model: Outline, lengths: Sequence[int]
) -> list[BadLine]:
    """The keys that ask what the model cannot do."""
    faults = []
    if config.gating.judge_by == "probability" and model.scores is False:
        what = f"engine {config.model.engine} cannot give probabilities"
        faults.append(BadLine("gate.judge_by", 0, what, "set it to answer, or to auto"))
    is_drawn = words_of(config.prompt, config.model).begin and model.scores
    if config.sampler.reasons == "wrong" and model.resumes is False and not is_drawn:
        what = f"engine {config.model.engine} cannot resume an answer from its exact tokens"
        faults.append(BadLine("sampler.reasons", 0, what, "set it to all or none"))
    answer = max(decode.max_new_tokens for decode in config.sampler.grid)
    room = (model.window or 0) - answer
    asked = [i for i, length in enumerate(lengths) if length <= config.sampler.max_prompt_tokens]
    long = [i for i in asked if lengths[i] > room] if model.window is not None else []
    if long:
        first = inputs.tickets[long[0]]
        what = (
            f"{len(long):,} prompts are longer than the model's {model.window:,} tokens leave "
            f"beside an answer of {answer:,}; the first: ticket {first.key} of mission "
            f"{first.mission}, {lengths[long[0]]:,}"
        )
        remedy = (
            f"set it to {room} to set such tickets aside"
            if room > 0
            else "allow shorter answers: sampler.grid"
        )
        faults.append(
            BadLine("sampler.max_prompt_tokens", 0, what, f"{remedy}, or choose another model")
        )
    return faults


def _estimate_caches(
    config: LoopConfig, inputs: Inputs, model: Outline, lengths: Sequence[int]
) -> int | None:
    """Bytes of keys and values while the longest tickets of a mission are read together, each
    answer at full length. What a mission's prompts share is read once."""
    if model.cache_bytes is None or model.count_tokens is None:
        return None
    size = min(config.runner.per_rank_rollout_batch_size, config.sampler.micro_batch_size)
    answers = config.sampler.samples_per_decode * sum(
        decode.max_new_tokens for decode in config.sampler.grid
    )
    most = 0
    for mission, splits in inputs.splits.items():
        places = [*splits.train, *splits.val, *splits.test]
        words = words_of(config.prompt, config.model)
        system = rollout_prompt(inputs.tickets[places[0]], inputs.guidance[mission], words).system
        (shared,) = model.count_tokens([Prompt(system, "")])
        fitting = (lengths[i] for i in places if lengths[i] <= config.sampler.max_prompt_tokens)
        longest = sorted(fitting, reverse=True)[:size]
        most = max(most, shared + sum(max(0, length - shared) + answers for length in longest))
    return most * model.cache_bytes


def _format_bytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"
