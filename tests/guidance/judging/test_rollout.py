import math
from collections.abc import Sequence
from dataclasses import fields, replace

import pytest
from guidance.made import tickets
from hypothesis import given, settings
from hypothesis import strategies as st

from stageb.engines import build
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Completion, Decode, Prompt, Question, Request, Scorer
from stageb.engines.scripted import ScriptedEngine
from stageb.guidance.config import DecodeConfig, PromptConfig, SamplerConfig
from stageb.guidance.judging.answers import parse_verdict
from stageb.guidance.judging.rollout import (
    cut_micro_batches,
    group_size,
    judge_tickets,
    keep_limit,
    make_decode,
    rollout,
    share_out,
)
from stageb.guidance.rules.prompts import WORDS, answer_text, rollout_prompt, ticket_text, words_of
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.words.calibration import Calibration, sigmoid
from stageb.guidance.words.types import Guidance, Judgement, Rule, Ticket
from stageb.seeds import stream, uniform

GUIDANCE = make_neutral("m", WORDS["en"])
NAMES = (17, "rollout", 2)
SAMPLER = SamplerConfig(
    samples_per_decode=2,
    grid=[DecodeConfig(temperature=0.9), DecodeConfig(temperature=0.3, seed=5)],
)


def respond(prompt: Prompt, decode: Decode, key: int) -> str:
    """Something that tells every argument: most answers are of the right form."""
    told = stream(prompt.system, prompt.user, str(decode), key)
    return (
        answer_text("pass" if told % 2 else "fail", f"because {told}", WORDS["en"])
        if told % 7
        else f"hm {told}"
    )


class Listening(ScriptedEngine):
    """Remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(respond)
        self.asked: list[Request] = []

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        self.asked += requests
        return super().generate(requests)


class Weighing(ScriptedEngine):
    """Has a log-probability for each answer, drawn from the prompt, and remembers what it was
    asked."""

    def __init__(self, lead: float | None = None) -> None:
        super().__init__(respond)
        self.lead = lead  # of the first answer over the second
        self.questions: list[Question] = []

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        self.questions += questions
        if self.lead is not None:
            return [(-1.0, -1.0 - self.lead) for _ in questions]
        return [
            tuple(-9 * uniform(stream(str(each.prompt), answer), 0) for answer in each.answers)
            for each in questions
        ]


def ticket(group: str = "g", *summaries: str) -> Ticket:
    return Ticket(
        "m",
        group,
        "pass",
        tuple((f"image_{n}", text) for n, text in enumerate(summaries or ("a: b",), 1)),
    )


# Micro-batches


@pytest.mark.parametrize("limit", [7, 16, 32, 128])
@pytest.mark.parametrize("world_size", range(1, 13))
def test_no_rank_rolls_out_more_than_its_limit(world_size: int, limit: int) -> None:
    """Also where fewer tickets than a round are asked about."""
    for per_rank in range(1, 71):
        round_size = per_rank * world_size
        size = group_size(round_size, per_rank, limit)
        for asked in (round_size, round_size - 1, round_size * 3 // 4, round_size // 3):
            share = share_out(asked, size, 32)
            kept = keep_limit(share, asked, size, round_size)
            groups = [min(kept, asked - start) for start in range(0, asked, kept)]
            assert share <= kept <= size
            assert max(sum(groups[rank::world_size]) for rank in range(world_size)) <= per_rank, (
                per_rank,
                asked,
            )


def test_ranks_that_need_no_others_bytes_read_as_many_tickets_at_once_as_they_may() -> None:
    for world_size in (1, 2, 8):
        assert group_size(256 * world_size, 256, 256, world_size) == 256
        assert group_size(256 * world_size, 256, 128, world_size) == 128
        assert share_out(60 * world_size, 256, 1, world_size) == 60


def promised(round_size: int, limit: int) -> list[int]:
    """World sizes at which a round makes the same groups."""
    eighths = round_size / 8 >= min(limit, 16)
    return [
        size
        for size in (1, 2, 3, 4, 6, 8, 12, 24)
        if round_size % size == 0 and (eighths or 12 % size == 0)
    ]


@pytest.mark.parametrize(
    ("round_size", "limit", "size"),
    [
        (512, 128, 64),
        (512, 32, 32),
        (256, 32, 32),
        (128, 32, 16),
        (64, 32, 16),  # the demo's: its eighth would be slow to read
        (192, 32, 8),
        (96, 32, 8),
        (24, 8, 2),
        (24, 2, 1),  # 3 tickets a rank at 8, 8 at 3
        (480, 8, 5),  # 20 tickets a rank at 24
        (9, 32, 3),
        (35, 4, 1),
    ],
)
def test_groups_are_as_large_as_they_may_be(round_size: int, limit: int, size: int) -> None:
    sizes = [
        group_size(round_size, round_size // world_size, limit)
        for world_size in promised(round_size, limit)
    ]
    assert sizes == [size] * len(sizes)


@given(tickets(), st.integers(1, 9))
def test_micro_batches_partition_the_round(round_: list[Ticket], size: int) -> None:
    groups = cut_micro_batches(round_, size)
    assert sorted(i for group in groups for i in group) == list(range(len(round_)))
    assert [len(group) for group in groups] == [size] * (len(round_) // size) + [
        len(round_) % size
    ] * (len(round_) % size > 0)


@given(tickets(), st.integers(1, 9))
def test_micro_batches_hold_tickets_of_like_length(round_: list[Ticket], size: int) -> None:
    lengths = [
        len(ticket_text(round_[i])) for group in cut_micro_batches(round_, size) for i in group
    ]
    assert lengths == sorted(lengths, reverse=True)


@given(tickets(), st.integers(1, 9), st.data())
def test_the_order_within_a_round_makes_no_difference_to_its_groups(
    round_: list[Ticket], size: int, data: st.DataObject
) -> None:
    other = data.draw(st.permutations(round_))
    made = [[round_[i].key for i in group] for group in cut_micro_batches(round_, size)]
    assert [[other[i].key for i in group] for group in cut_micro_batches(other, size)] == made


@given(st.integers(0, 3000), st.sampled_from([1, 8, 16, 32, 128]), st.sampled_from([16, 32]))
def test_fewer_tickets_than_a_round_are_shared_out_among_eight_ranks(
    count: int, size: int, least: int
) -> None:
    share = share_out(count, size, least)
    groups = [min(share, count - start) for start in range(0, count, share)]
    assert share <= size
    if count >= 8 * size:
        assert share == size  # as in a round
    busiest = max(sum(groups[rank::8]) for rank in range(8))
    assert busiest <= max(math.ceil(count / 8) + size - 1, min(least, count))
    if least <= math.ceil(count / 8) <= size:
        assert busiest == math.ceil(count / 8)


# Rollout


@given(tickets(max_size=6))
def test_candidates_come_by_grid_then_sample_each_from_its_own_stream(round_: list[Ticket]) -> None:
    engine = Listening()
    answers = rollout(round_, GUIDANCE, engine, SAMPLER, WORDS["en"], NAMES)
    assert [each.ticket_key for each in answers] == [each.key for each in round_]
    keys = [
        [
            [stream(*NAMES, "m", each.key, entry, seed, sample) for sample in (0, 1)]
            for entry, seed in enumerate((0, 5))
        ]
        for each in round_
    ]
    for each, given_, (first, second) in zip(round_, answers, keys, strict=True):
        assert [candidate.index for candidate in given_.candidates] == [0, 1, 2, 3]
        assert [candidate.decode for candidate in given_.candidates] == [0, 0, 1, 1]
        assert [candidate.temperature for candidate in given_.candidates] == [0.9, 0.9, 0.3, 0.3]
        prompt = rollout_prompt(each, GUIDANCE, WORDS["en"])
        expected = [respond(prompt, Decode(temperature=0.9), key) for key in first]
        expected += [respond(prompt, Decode(temperature=0.3, seed=5), key) for key in second]
        assert [candidate.text for candidate in given_.candidates] == expected
    drawn = [key for request in engine.asked for key in request.keys]
    assert drawn == [key for entries in keys for entry in entries for key in entry]
    assert len(set(drawn)) == len(drawn)


@given(tickets(max_size=8), st.data())
def test_answers_do_not_depend_on_what_else_is_in_the_batch(
    round_: list[Ticket], data: st.DataObject
) -> None:
    engine = ScriptedEngine(respond)
    together = {
        each.ticket_key: each
        for each in rollout(round_, GUIDANCE, engine, SAMPLER, WORDS["en"], NAMES)
    }
    some = data.draw(st.permutations(round_))[: data.draw(st.integers(0, len(round_)))]
    assert rollout(some, GUIDANCE, engine, SAMPLER, WORDS["en"], NAMES) == [
        together[each.key] for each in some
    ]
    scorer = Weighing()
    for judge_by in ("answer", "probability"):
        judged = dict(
            zip(
                together,
                judge_tickets(round_, GUIDANCE, scorer, SAMPLER, WORDS["en"], judge_by),
                strict=True,
            )
        )
        assert judge_tickets(some, GUIDANCE, scorer, SAMPLER, WORDS["en"], judge_by) == [
            judged[each.key] for each in some
        ]


class Reasoning(Weighing):
    """Gives reasons, and remembers what it was asked to go on from."""

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        self.begun = [(request.begin, request.decode.stop, request.keys) for request in requests]
        return [
            tuple(Completion(f" by {key}", 3, "stop") for key in request.keys)
            for request in requests
        ]


@settings(max_examples=30)
@given(tickets(max_size=5), st.floats(-3, 3), st.integers(1, 9))
def test_a_begun_verdict_is_drawn_by_its_probability_and_the_reason_goes_on_from_it(
    round_: list[Ticket], lead: float, samples: int
) -> None:
    words, engine = words_of(PromptConfig(prefill=True)), Reasoning(lead)
    sampler = replace(SAMPLER, samples_per_decode=samples)
    given_ = rollout(round_, GUIDANCE, engine, sampler, words, NAMES)
    asked = {key: (begin, stop) for begin, stop, keys in engine.begun for key in keys}
    ratio = -1.0 - (-1.0 - lead)  # as the engine has it
    for each, answers in zip(round_, given_, strict=True):
        for candidate in answers.candidates:
            grid, sample = divmod(candidate.index, samples)
            key = stream(*NAMES, "m", each.key, grid, SAMPLER.grid[grid].seed, sample)
            share = sigmoid(ratio, candidate.temperature)
            verdict = "pass" if uniform(stream("verdict", key), 0) < share else "fail"
            assert (candidate.verdict, candidate.reason, candidate.fault) == (
                verdict,
                f"by {key}",
                None,
            )
            assert asked[key] == (f"Verdict: {verdict}\nReason:", ("\n",))
    assert rollout(round_[1:], GUIDANCE, engine, sampler, words, NAMES) == given_[1:]
    for judge_by, temperature in (("answer", 0.0), ("probability", 0.9)):
        judged = judge_tickets(round_, GUIDANCE, engine, sampler, words, judge_by)
        assert [each.p_correct for each in judged] == [
            sigmoid(ratio if each.label == "pass" else -ratio, temperature) for each in round_
        ]


def test_each_ticket_is_drawn_by_its_own_calibration_at_each_setting_of_the_grid() -> None:
    """What the rules as code say of a ticket moves its verdict: so far here that nothing else
    counts."""
    words, engine = words_of(PromptConfig(prefill=True)), Reasoning(0.0)
    guidance = replace(GUIDANCE, calibration=Calibration(rules=60.0))
    round_ = [
        replace(ticket(), group_id=f"g{n}", ruling="pass" if n % 2 else "fail") for n in range(5)
    ]
    for each, answers in zip(
        round_, rollout(round_, guidance, engine, SAMPLER, words, NAMES), strict=True
    ):
        assert len(answers.candidates) == 4
        assert {candidate.verdict for candidate in answers.candidates} == {each.ruling}


def test_an_engine_that_cannot_weigh_is_asked_to_go_on_from_the_first_word() -> None:
    engine = Listening()
    words = words_of(PromptConfig(prefill=True))
    rollout([ticket()], GUIDANCE, engine, SAMPLER, words, NAMES)
    judge_tickets([ticket()], GUIDANCE, engine, SAMPLER, words, "answer")
    assert {request.begin for request in engine.asked} == {"Verdict:"}


def test_an_engine_that_can_weigh_writes_its_own_verdicts_unless_they_are_begun_for_it() -> None:
    engine = Weighing()
    found = rollout([ticket()], GUIDANCE, engine, SAMPLER, WORDS["en"], NAMES)
    assert found == rollout([ticket()], GUIDANCE, Listening(), SAMPLER, WORDS["en"], NAMES)
    assert not engine.questions


def test_a_malformed_answer_stays_a_candidate_without_a_verdict() -> None:
    answers = rollout(
        [ticket(str(n)) for n in range(40)], GUIDANCE, Listening(), SAMPLER, WORDS["en"], NAMES
    )
    candidates = [candidate for each in answers for candidate in each.candidates]
    odd = [candidate for candidate in candidates if candidate.text.startswith("hm ")]
    assert 0 < len(odd) < len(candidates)
    assert all(
        (candidate.verdict, candidate.reason, candidate.format_ok) == (None, "", False)
        for candidate in odd
    )
    assert all(candidate.format_ok == (candidate not in odd) for candidate in candidates)
    assert all(candidate.tokens == len(candidate.text.split()) + 1 for candidate in candidates)


def test_a_long_prompt_is_set_aside_and_recorded_and_never_cut() -> None:
    engine = Listening()
    round_ = [ticket("short"), ticket("long", "a: " + "word " * 80), ticket("other", "a: c")]
    (length,) = engine.count_tokens([rollout_prompt(round_[1], GUIDANCE, WORDS["en"])])
    sampler = replace(SAMPLER, max_prompt_tokens=length - 1)
    short, long, other = rollout(round_, GUIDANCE, engine, sampler, WORDS["en"], NAMES)
    assert (long.ticket_key, long.prompt_tokens, long.candidates) == ("long::pass", length, ())
    assert (
        long.set_aside
        == f"prompt of {length} tokens, at most {length - 1} (sampler.max_prompt_tokens)"
    )
    assert [short, other] == rollout(
        [round_[0], round_[2]], GUIDANCE, engine, SAMPLER, WORDS["en"], NAMES
    )
    assert (short.set_aside, other.set_aside) == ("", "")
    assert {request.prompt for request in engine.asked} == {
        rollout_prompt(round_[i], GUIDANCE, WORDS["en"]) for i in (0, 2)
    }
    for judge_by in ("answer", "probability"):
        judged = judge_tickets(round_, GUIDANCE, Weighing(), sampler, WORDS["en"], judge_by)
        assert judged[1] == Judgement(0.0, 0)  # never right, and costs nothing
        others = judge_tickets(
            [round_[0], round_[2]], GUIDANCE, Weighing(), SAMPLER, WORDS["en"], judge_by
        )
        assert [judged[0], judged[2]] == others
    fits = rollout(
        round_, GUIDANCE, engine, replace(SAMPLER, max_prompt_tokens=length), WORDS["en"], NAMES
    )[1]
    assert len(fits.candidates) == 4
    enough = replace(SAMPLER, max_prompt_tokens=length)
    for judge_by in ("answer", "probability"):
        judged = judge_tickets(round_, GUIDANCE, Weighing(), enough, WORDS["en"], judge_by)
        assert judged == judge_tickets(round_, GUIDANCE, Weighing(), SAMPLER, WORDS["en"], judge_by)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_prompt_tells_neither_label_nor_group(language: str) -> None:
    guidance = Guidance(
        "m",
        3,
        (Rule("G0", "x"), Rule("G4", "Fail if a is b.", {"sources": ["secret-group::fail"]})),
        5,
    )
    one = Ticket("m", "secret-group", "fail", (("image_1", "a: b"),), {"note": "secret extra"})
    engine = Listening()
    rollout(
        [one, replace(one, group_id="another", label="pass")],
        guidance,
        engine,
        SAMPLER,
        WORDS[language],
        NAMES,
    )
    judge_tickets([one], guidance, engine, SAMPLER, WORDS[language], "answer")
    weighing = Weighing()
    judge_tickets([one], guidance, weighing, SAMPLER, WORDS[language], "probability")
    (prompt,) = {request.prompt for request in engine.asked} | {
        question.prompt for question in weighing.questions
    }
    assert "secret" not in prompt.system + prompt.user
    assert prompt.user == "image_1: a: b"
    assert prompt.system.endswith("\nG0. x\nG4. Fail if a is b.")


# Judgements


@pytest.mark.parametrize(
    ("answer", "p_correct"),
    [
        ("Verdict: pass\nReason: all is well", 1.0),
        ("Verdict: Fail", 0.0),
        ("Verdict: pass\nand then words without end", 1.0),
        ("\nVerdict: pass", 0.0),
        ("Verdict: maybe\nReason: who knows", 0.0),
        ("", 0.0),
    ],
)
def test_by_answer_the_verdict_is_read_off_the_first_line(answer: str, p_correct: float) -> None:
    seen: list[Decode] = []

    def answering(prompt: Prompt, decode: Decode, key: int) -> str:
        seen.append(decode)
        return answer

    engine = Weighing(-9.0)  # what it holds for more probable is not asked
    engine.respond = answering
    (judged,) = judge_tickets([ticket()], GUIDANCE, engine, SAMPLER, WORDS["en"], "answer")
    (read,) = engine.count_tokens([rollout_prompt(ticket(), GUIDANCE, WORDS["en"])])
    assert judged == Judgement(p_correct, read + len(answer.partition("\n")[0].split()) + 1)
    assert [(decode.temperature, decode.stop) for decode in seen] == [(0.0, ("\n",))]


def test_a_model_that_thinks_aloud_is_judged_by_its_greedy_answer_and_may_think_as_long_as_ever() -> (
    None
):
    seen: list[Decode] = []

    def answering(prompt: Prompt, decode: Decode, key: int) -> str:
        seen.append(decode)
        return "<think>hm\nVerdict: fail</think>Verdict: pass\nReason: all is well"

    engine = ScriptedEngine(answering, thinks=True)
    (judged,) = judge_tickets([ticket()], GUIDANCE, engine, SAMPLER, WORDS["en"], "answer")
    assert judged.p_correct == 1.0
    assert seen == [replace(make_decode(SAMPLER.grid[0]), temperature=0.0)]
    # nor is it waited for where answers are begun in its place
    begun = words_of(PromptConfig(prefill=True))
    judge_tickets([ticket()], GUIDANCE, engine, SAMPLER, begun, "answer")
    assert seen[-1].stop == ("\n",) and seen[-1].max_new_tokens < seen[0].max_new_tokens


def test_a_model_that_thinks_aloud_is_judged_by_the_verdict_that_its_answer_names() -> None:
    """Wherever an instruct model names it."""
    words = words_of(PromptConfig(style="instruct", prefill=False))
    said = "<think>hm</think>I looked at it.\n**Verdict:** pass\n**Reason:** all is well"
    engine = ScriptedEngine(lambda prompt, decode, key: said, thinks=True)
    both = [ticket(), replace(ticket(), label="fail")]
    judged = judge_tickets(both, GUIDANCE, engine, SAMPLER, words, "answer")
    assert [each.p_correct for each in judged] == [1.0, 0.0]


@given(st.floats(-40, 40), st.sampled_from([0.1, 0.7, 1.0, 2.0]))
def test_by_probability_the_two_verdict_lines_are_weighed_at_the_grids_temperature(
    lead: float, temperature: float
) -> None:
    engine, sampler = (
        Weighing(lead),
        SamplerConfig(grid=[DecodeConfig(temperature), DecodeConfig(5.0)]),
    )
    both = [ticket(), replace(ticket(), label="fail")]
    passes, fails = judge_tickets(both, GUIDANCE, engine, sampler, WORDS["en"], "probability")
    assert {question.answers for question in engine.questions} == {
        ("Verdict: pass", "Verdict: fail")
    }
    assert [question.prompt for question in engine.questions] == [
        rollout_prompt(each, GUIDANCE, WORDS["en"]) for each in both
    ]
    weights = [math.exp(-1 / temperature), math.exp((-1 - lead) / temperature)]
    assert passes.p_correct == pytest.approx(weights[0] / sum(weights), abs=1e-6)
    assert passes.p_correct + fails.p_correct == pytest.approx(1, abs=2e-6)
    assert passes.tokens == engine.count_tokens([engine.questions[0].prompt])[0] + 1


def test_greedily_the_more_probable_verdict_is_all_and_a_tie_is_never_right() -> None:
    assert [sigmoid(lead, 0) for lead in (-3.0, -1e-9, 0.0, 1e-9, 5.0)] == [0.0, 0.0, 0.0, 1.0, 1.0]
    sampler = SamplerConfig(grid=[DecodeConfig(temperature=0)])
    for lead, p_correct in ((0.3, [1.0, 0.0]), (-0.3, [0.0, 1.0]), (0.0, [0.0, 0.0])):
        both = [ticket(), replace(ticket(), label="fail")]
        judged = judge_tickets(both, GUIDANCE, Weighing(lead), sampler, WORDS["en"], "probability")
        assert [each.p_correct for each in judged] == p_correct
    assert sigmoid(1e9, 0.01) == 1.0
    assert sigmoid(-1e9, 0.01) == 0.0


def test_the_shipped_models_probability_is_the_share_of_its_sampled_verdicts() -> None:
    """Of answers that keep their form, to within sampling error; it is unsure of the first
    ticket."""
    engine = build(ModelConfig(), "cpu")
    assert isinstance(engine, Scorer)
    rules = (
        *GUIDANCE.rules,
        Rule("G1", "Fail if state is torn."),
        Rule("G2", "Pass if colour is a shade of red."),
    )
    guidance = replace(GUIDANCE, rules=rules, next_number=3)
    texts = ["state torn or not", "state: torn, colour: rose red"]
    round_ = [ticket(f"g{n}", text) for n, text in enumerate(texts)]
    temperature, samples = 1.5, 200
    sampler = SamplerConfig(
        samples, grid=[DecodeConfig(temperature, max_new_tokens=8, stop=["\n"])]
    )
    told = rollout(round_, guidance, engine, sampler, WORDS["en"], NAMES)
    judged = judge_tickets(round_, guidance, engine, sampler, WORDS["en"], "probability")
    unsure = 0
    for answers, judgement in zip(told, judged, strict=True):
        verdicts = [parse_verdict(candidate.text, WORDS["en"]) for candidate in answers.candidates]
        formed = [verdict for verdict in verdicts if verdict]
        assert len(formed) > samples / 2
        unsure += 0.05 < judgement.p_correct < 0.95
        error = math.sqrt(max(judgement.p_correct * (1 - judgement.p_correct), 0.01) / len(formed))
        assert formed.count("pass") / len(formed) == pytest.approx(
            judgement.p_correct, abs=4 * error
        )
    assert unsure


def test_an_entry_of_the_grid_reaches_the_engine_whole() -> None:
    decode = DecodeConfig(0.4, top_p=0.9, top_k=7, max_new_tokens=5, seed=3, stop=["END"])
    assert make_decode(decode) == Decode(
        0.4, top_p=0.9, top_k=7, max_new_tokens=5, seed=3, stop=("END",)
    )
    assert [field.name for field in fields(DecodeConfig)] == [
        field.name for field in fields(Decode)
    ]
