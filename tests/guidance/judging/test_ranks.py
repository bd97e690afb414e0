"""What the ranks do for the loop that no ticket is named in: answering reflections together."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from stageb.config import FabricConfig
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Completion, Decode, Prompt, Question, Request
from stageb.engines.scripted import ScriptedEngine
from stageb.errors import ConfigError
from stageb.guidance.config import (
    DecodeConfig,
    DistillConfig,
    GateConfig,
    LoopConfig,
    PromptConfig,
    ReflectionConfig,
    RunnerConfig,
    SamplerConfig,
)
from stageb.guidance.judging.follower import respond
from stageb.guidance.judging.loading import load_engine
from stageb.guidance.judging.questions import (
    Dialogue,
    JudgeTickets,
    SampleAnswers,
    answer_all,
    sample_together,
)
from stageb.guidance.judging.ranks import TOGETHER, Group, GuidanceRanks
from stageb.guidance.learning.gate.judgements import Verdicts
from stageb.guidance.rules.prompts import WORDS, rollout_prompt
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.tickets.splits import SPLITS
from stageb.guidance.words.types import Answers, Judgement, Round, Rule, Ticket
from stageb.job.world import World, run

KINDS: tuple[Literal["round", "distill"], ...] = ("round", "distill")


def echo(prompt: Prompt, decode: Decode, key: int) -> str:
    """An answer that tells every part of its request."""
    return f"{prompt.system}|{prompt.user}|{decode}|{key}"


def test_a_reflection_is_answered_in_parts_and_comes_back_as_one_engine_would_answer_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decode = Decode(temperature=0.5, max_new_tokens=99, stop=("\n", "E"))
    count = 2 * TOGETHER + 1
    requests = [Request(Prompt("s", f"u{i}"), decode, (2**64 - i, i)) for i in range(count)]
    config = LoopConfig(
        tickets=["none"],
        model=ModelConfig(engine="scripted", model_name_or_path=f"{__name__}:echo"),
    )
    parts: list[int] = []
    given: list[tuple[Completion, ...]] = []

    def main(world: World) -> int:
        ranks = GuidanceRanks(config, [], world)
        ranks.load()

        generate = ranks.models.reflector.generate

        def counting(some: Sequence[Request]) -> list[tuple[Completion, ...]]:
            parts.append(len(some))
            return generate(some)

        monkeypatch.setattr(ranks.models.reflector, "generate", counting)
        given.extend(ranks.answer(SampleAnswers(tuple(requests))))
        assert ranks.answer(SampleAnswers(())) == []
        return 0

    assert run(FabricConfig(accelerator="cpu"), main) == 0
    assert given == ScriptedEngine(echo).generate(requests)
    assert parts == [TOGETHER, TOGETHER, 1], (
        "a rank's share is a whole part, so parts must be small for all to get one"
    )


def test_a_round_gives_every_rank_as_many_tickets_as_its_limit() -> None:
    tickets = [Ticket("m", f"g{i}", "pass", (("image_1", "a: b"),)) for i in range(70)]
    model = ModelConfig(engine="scripted", model_name_or_path=f"{__name__}:echo")
    config = LoopConfig(
        tickets=["none"], model=model, runner=RunnerConfig(per_rank_rollout_batch_size=35)
    )
    given: list[Sequence[Group]] = []

    def hold(name: str, work: object, groups: Sequence[Group], *more: object) -> list[Any]:
        given.append(groups)
        return []

    world: Any = SimpleNamespace(world_size=2, is_global_zero=False, map=hold)
    ranks = GuidanceRanks(config, tickets, world)
    ranks.roll_out(
        Round((0, 0, 2, 0), 0, "m", "val", 0, tuple(range(70)), last=True),
        make_neutral("m", WORDS["en"]),
        lambda count: None,
    )
    [groups] = given
    assert [sum(len(positions) for _, positions in groups[rank::2]) for rank in range(2)] == [
        35,
        35,
    ]


@pytest.mark.parametrize("judge", ["model", "both"])
@pytest.mark.parametrize("kind", ["round", "distill"])
def test_what_is_distilled_is_answered_by_the_model_whoever_judges(judge: Any, kind: Any) -> None:
    tickets = [Ticket("m", f"g{i}", "pass", (("image_1", f"a: {i % 2}"),)) for i in range(4)]
    model = ModelConfig(engine="scripted", model_name_or_path=f"{__name__}:echo")
    config = LoopConfig(tickets=["none"], model=model, runner=RunnerConfig(judge=judge))
    start = make_neutral("m", WORDS["en"])
    guidance = replace(start, rules=(*start.rules, Rule("G1", "Fail if a is 1.")), next_number=2)
    answers: list[Answers] = []

    def main(world: World) -> int:
        ranks = GuidanceRanks(config, tickets, world)
        ranks.load()
        batch = Round((0, 0, 2, 0), 0, "m", "train", 0, tuple(range(4)), last=True, kind=kind)
        answers.extend(ranks.roll_out(batch, guidance, lambda count: None))
        return 0

    assert run(FabricConfig(accelerator="cpu"), main) == 0
    assert [each.by_rules for each in answers] == [judge == "both" and kind == "round"] * 4


@pytest.mark.parametrize(
    ("kind", "epoch", "temperatures"),
    [("round", 1, [0.9, 0.9, 0.4, 0.4]), ("round", 0, [0.1] * 4), ("distill", 0, [0.2])],
    ids=["learns", "is judged", "is distilled"],
)
def test_a_round_is_sampled_as_what_it_is_for_asks(
    kind: Any, epoch: int, temperatures: list[float]
) -> None:
    config = LoopConfig(
        tickets=["none"],
        model=ModelConfig(engine="scripted", model_name_or_path=f"{__name__}:echo"),
        sampler=SamplerConfig(2, grid=[DecodeConfig(0.9), DecodeConfig(0.4)], eval_temperature=0.1),
        distill=DistillConfig(temperature=0.2),
    )
    answers: list[Answers] = []

    def main(world: World) -> int:
        ranks = GuidanceRanks(config, [Ticket("m", "g", "pass", (("image_1", "a: b"),))], world)
        ranks.load()
        batch = Round((epoch, 0, 2, 0), epoch, "m", "train", 0, (0,), last=True, kind=kind)
        answers.extend(ranks.roll_out(batch, make_neutral("m", WORDS["en"]), lambda count: None))
        return 0

    assert run(FabricConfig(accelerator="cpu"), main) == 0
    assert [each.temperature for each in answers[0].candidates] == temperatures


def test_a_round_that_learns_is_drawn_anew_in_each_epoch_and_others_are_not() -> None:
    """So under the same guidance val, test and what is distilled come out the same."""
    config = LoopConfig(
        tickets=["none"],
        model=ModelConfig(engine="scripted", model_name_or_path=f"{__name__}:echo"),
    )
    found: dict[Any, list[Answers]] = {}

    def main(world: World) -> int:
        ranks = GuidanceRanks(config, [Ticket("m", "g", "pass", (("image_1", "a: b"),))], world)
        ranks.load()
        for epoch, kind, split in product((1, 2), KINDS, SPLITS):
            batch = Round((epoch, 0, 2, 0), epoch, "m", split, 0, (0,), last=True, kind=kind)
            found[epoch, kind, split] = ranks.roll_out(
                batch, make_neutral("m", WORDS["en"]), lambda count: None
            )
        return 0

    assert run(FabricConfig(accelerator="cpu"), main) == 0
    for kind, split in product(KINDS, SPLITS):
        is_alike = found[1, kind, split] == found[2, kind, split]
        assert is_alike == (kind == "distill" or split != "train")
    # the answers tell the keys that they were drawn by
    drawn = [
        {each.text.rpartition("|")[2] for each in found[1, kind, "val"][0].candidates}
        for kind in KINDS
    ]
    assert not drawn[0] & drawn[1], "what is distilled is drawn anew"


def shout(prompt: Prompt, decode: Decode, key: int) -> str:
    return echo(prompt, decode, key).upper()


@pytest.mark.parametrize("own", [True, False])
def test_the_model_that_reflects_answers_reflections_and_is_the_one_that_judges_unless_named(
    own: bool,
) -> None:
    """Where it is another one, other ranks have none and answer nothing."""
    judge, other = (
        ModelConfig(engine="scripted", model_name_or_path=f"{__name__}:{name}")
        for name in ("echo", "shout")
    )
    config = LoopConfig(
        tickets=["none"], model=judge, reflection=ReflectionConfig(model=other if own else None)
    )
    question = SampleAnswers((Request(Prompt("s", "u"), Decode(), (1,)),))
    given: list[tuple[Completion, ...]] = []

    def main(world: World) -> int:
        ranks = GuidanceRanks(config, [], world)
        ranks.load()
        given.extend(ranks.answer(question))
        return 0

    assert run(FabricConfig(accelerator="cpu"), main) == 0
    assert given == ScriptedEngine(shout if own else echo).generate(question.requests)
    elsewhere: Any = SimpleNamespace(
        world_size=2, is_global_zero=False, map=lambda name, work, groups, *more: []
    )
    assert GuidanceRanks(config, [], elsewhere).answer(question) == []
    tickets = [Ticket("m", "g", "pass", (("image_1", "a: b"),))]
    judging = JudgeTickets(((make_neutral("m", WORDS["en"]), (0,)),))
    assert GuidanceRanks(config, tickets, elsewhere).answer(judging) == []


class Weighing(ScriptedEngine):
    """Holds the first answer for the more probable one."""

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        return [(-1.0, -2.0) for _ in questions]


def weigh(model: ModelConfig, device: str) -> Weighing:
    return Weighing(echo, thinks=model.thinking_ends is not None)


@pytest.mark.parametrize(
    ("asked", "engine", "thinks", "begun", "judges_by"),
    [
        ("auto", f"{__name__}:weigh", False, False, "probability"),
        ("auto", f"{__name__}:weigh", True, False, "answer"),
        ("auto", f"{__name__}:weigh", True, True, "probability"),
        ("answer", f"{__name__}:weigh", False, False, "answer"),
        ("probability", f"{__name__}:weigh", True, False, "probability"),
        ("auto", "scripted", False, False, "answer"),
        ("probability", "scripted", False, False, None),
    ],
)
def test_the_gate_judges_by_probability_where_the_model_can_and_does_not_think_first(
    asked: Any, engine: str, thinks: bool, begun: bool, judges_by: str | None
) -> None:
    config = LoopConfig(
        tickets=["none"],
        model=ModelConfig(
            engine=engine,
            model_name_or_path=f"{__name__}:echo",
            thinking_ends="</think>" if thinks else None,
        ),
        prompt=PromptConfig(prefill=begun),
        gate=GateConfig(judge_by=asked),
    )

    def main(world: World) -> int:
        ranks = GuidanceRanks(config, [], world)
        if judges_by is None:
            with pytest.raises(ConfigError, match="engine scripted cannot give probabilities"):
                ranks.load()
        else:
            ranks.load()
            assert ranks.models.judges_by == judges_by
            assert ranks.models.lets_think == (thinks and not begun)
        return 0

    assert run(FabricConfig(accelerator="cpu"), main) == 0


class Blind:
    """Answers with a text, and sees none."""

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        return [1] * len(prompts)

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        return [(Completion("Verdict: pass", 3, "stop"),) * len(each.keys) for each in requests]


def blind(model: ModelConfig, device: str) -> Blind:
    return Blind()


def test_an_engine_without_eyes_is_refused_where_it_is_to_see_and_nowhere_else() -> None:
    model = ModelConfig(engine=f"{__name__}:blind")

    def main(world: World) -> int:
        assert isinstance(load_engine(model, world), Blind)
        for use_images in (True, "instead"):
            with pytest.raises(ConfigError, match="it cannot show images"):
                load_engine(model, world, use_images)
        return 0

    assert run(FabricConfig(accelerator="cpu"), main) == 0


def test_a_round_is_cut_alike_at_every_world_size_only_where_bytes_have_to_be_equal() -> None:
    def cut(equal_bytes: bool) -> list[int]:
        return [
            GuidanceRanks(
                LoopConfig(
                    tickets=["none"],
                    runner=RunnerConfig(per_rank_rollout_batch_size=96 // world_size),
                    sampler=SamplerConfig(equal_bytes=equal_bytes),
                ),
                [],
                SimpleNamespace(world_size=world_size),  # type: ignore[arg-type]
            ).group_size
            for world_size in (1, 2, 4)
        ]

    assert len({*cut(True)}) == 1
    assert cut(False) == [96, 48, 24]


ASKED: list[Prompt] = []


def hear(prompt: Prompt, decode: Decode, key: int) -> str:
    ASKED.append(prompt)
    return respond(prompt, decode, key)


@pytest.mark.parametrize("judges", ["model", "both", "rules", "sure", "unsure"])
@pytest.mark.parametrize(
    ("labels", "texts"),
    [
        (("pass", "fail"), ("Pass if a is 0.", "Fail if it looks odd.")),
        (("low", "mid", "high"), ("High if a is 0.", "Mid if it looks odd.")),
    ],
)
def test_the_gate_asks_the_model_of_the_tickets_that_a_round_asks_it_of(
    judges: str, labels: tuple[str, ...], texts: Sequence[str]
) -> None:
    """What rules as code give costs nothing in either, and counts as saved, right or wrong. Where
    they are weighed beside a model, it is asked unless they are sure."""
    tickets = [
        Ticket("m", f"g{n}", labels[n % len(labels)], (("image_1", f"a: {n // 6}"),))
        for n in range(12)
    ]
    config = LoopConfig(
        tickets=["none"],
        model=ModelConfig(engine="scripted", model_name_or_path=f"{__name__}:hear"),
        runner=RunnerConfig(judge="both" if judges == "both" else "model"),
    )
    rules = tuple(Rule(f"G{n}", text) for n, text in enumerate(texts, 1))
    start = make_neutral("m", WORDS["en"], labels)
    guidance = replace(start, rules=(*start.rules, *rules))
    if judges in ("rules", "sure", "unsure"):
        reach = 0.5 if judges == "sure" else 1.5
        guidance = replace(
            guidance,
            judge="rules" if judges == "rules" else "weighed",
            calibration=replace(guidance.calibration, rules=1.0, reach=reach),
        )
    everyone = tuple(range(len(tickets)))
    ASKED.clear()
    told: list[int] = []
    answers: list[Answers] = []
    judgements: list[Judgement] = []

    def main(world: World) -> int:
        ranks = GuidanceRanks(config, tickets, world)
        ranks.load()
        batch = Round((0, 0, 2, 0), 0, "m", "train", 0, everyone, last=True)
        answers.extend(ranks.roll_out(batch, guidance, told.append))
        judgements.extend(*ranks.answer(JudgeTickets(((guidance, everyone),))))
        return 0

    assert run(FabricConfig(accelerator="cpu"), main) == 0
    decided = [judges not in ("model", "unsure") and n < 6 for n in everyone]
    assert [each.by_rules for each in answers] == decided
    assert [each.by_rules for each in judgements] == decided
    assert {prompt.user for prompt in ASKED} == {
        rollout_prompt(ticket, guidance, WORDS["en"]).user
        for ticket, is_decided in zip(tickets, decided, strict=True)
        if not is_decided
    }
    assert max(told) == len(tickets)
    assert [each.tokens == 0 for each in judgements] == decided
    verdict = texts[0].partition(" ")[0].lower()
    for ticket, judgement in zip(tickets, judgements, strict=True):
        if judgement.by_rules:
            assert judgement.p_correct == (ticket.label == verdict)
    counted = Verdicts().answered(guidance, dict(enumerate(judgements)))
    assert (counted.saved, counted.judged) == (sum(decided), len(tickets) - sum(decided))
    assert counted.tokens == sum(each.tokens for each in judgements)


# Dialogues that are led together


def request(name: str) -> Request:
    return Request(Prompt("", name), Decode(), (0,))


def asks(*questions: str) -> Dialogue[list[str]]:
    """Asks each of the questions in turn, a request for each letter, and returns all answers."""
    heard: list[str] = []
    for letters in questions:
        heard += yield SampleAnswers(tuple(map(request, letters)))
    return heard


def test_what_dialogues_ask_at_a_time_is_one_question_and_each_gets_its_own_answers() -> None:
    asked: list[str] = []

    def answer(question: SampleAnswers) -> list[str]:
        names = [each.prompt.user for each in question.requests]
        asked.append("".join(names))
        return [name.upper() for name in names]

    dialogues = [asks("ab"), asks(), asks("c", "de"), asks("f")]
    assert answer_all(sample_together(dialogues), answer) == [
        ["A", "B"],
        [],
        ["C", "D", "E"],
        ["F"],
    ]
    assert asked == ["abcf", "de"]


def test_one_alone_asks_what_it_would_have_asked_and_none_ask_nothing() -> None:
    assert next(sample_together([asks("ab")])) == next(asks("ab"))
    assert answer_all(sample_together([asks(), asks()]), lambda question: 1 / 0) == [[], []]
