"""``sampler.reasons``: verdicts first, and reasons where they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from programs import small

from stageb.__main__ import main
from stageb.demo import TICKETS
from stageb.engines import build
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Completion, Decode, Engine, Prompt, Question, Request, Resumer
from stageb.engines.scripted import ScriptedEngine
from stageb.errors import ConfigError
from stageb.guidance.config import DecodeConfig, PromptConfig, SamplerConfig
from stageb.guidance.judging.loading import check_reasons
from stageb.guidance.judging.questions import WriteReasons, add_reasons, answer_all
from stageb.guidance.judging.rollout import rollout, write_reasons
from stageb.guidance.judging.selection import select
from stageb.guidance.rules.prompts import WORDS, Words, rollout_prompt, words_of
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.tickets.tickets import read_tickets
from stageb.guidance.words.types import Candidate, Guidance, Record, Round, Rule, Ticket

EN, BEGUN = WORDS["en"], words_of(PromptConfig(prefill=True))
NAMES = (17, "rollout", 1)
TORN = Guidance(
    "valves",
    1,
    (Rule("G0", "A ticket passes unless a rule fails it."), Rule("G1", "Fail if state is torn.")),
    2,
)
SAMPLER = SamplerConfig(
    samples_per_decode=2, grid=[DecodeConfig(0.9, max_new_tokens=40), DecodeConfig(0.0, stop=["("])]
)


class Weighing(ScriptedEngine):
    """Is unsure of each verdict."""

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        return [(-1.0, -1.2) for _ in questions]


class Fixed:
    """Answers with a text, and cannot go on with it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        return [1] * len(prompts)

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        return [
            tuple(Completion(self.text, 3, "stop") for _ in request.keys) for request in requests
        ]


class JudgedTicket(Fixed):
    """Cannot go on with an answer, but weighs verdicts."""

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        return [(-1.0, -1.2) for _ in questions]


def valves(count: int) -> list[Ticket]:
    return [
        Ticket(row["mission"], row["group_id"], row["label"], tuple(row["per_image"].items()))
        for row in small.rows("valves", count)
    ]


def roll_out(
    tickets: Sequence[Ticket],
    guidance: Guidance,
    engine: Engine,
    sampler: SamplerConfig,
    words: Words,
    reasons: Any,
) -> list[tuple[tuple[Candidate, ...], tuple[tuple[int, ...], ...]]]:
    answers = rollout(tickets, guidance, engine, replace(sampler, reasons=reasons), words, NAMES)
    return [(each.candidates, each.openings) for each in answers]


def check_same_answers(
    tickets: Sequence[Ticket],
    guidance: Guidance,
    engine: Engine,
    sampler: SamplerConfig,
    words: Words,
) -> int:
    """That verdicts are the same whatever reasons are asked for, and so are the reasons that are;
    the tokens saved."""
    whole, first, none = (
        roll_out(tickets, guidance, engine, sampler, words, each)
        for each in ("all", "wrong", "none")
    )
    saved = 0
    for (all_of, no_openings), (begun, openings), (bare, none_either) in zip(
        whole, first, none, strict=True
    ):
        assert (no_openings, none_either) == ((), ())
        assert bare == begun
        assert len(openings) == len(begun) == len(all_of)
        assert [each.verdict for each in begun] == [each.verdict for each in all_of]
        for one, other in zip(begun, all_of, strict=True):
            assert other.text.startswith(one.text)
            assert one == other or (one.reason, one.format_ok, one.text) == (
                "",
                True,
                one.text.partition("\n")[0],
            )
            saved += other.tokens - one.tokens
    for place in range(len(whole[0][0])):
        starts = [
            (ticket, begun[place], openings[place])
            for ticket, (begun, openings) in zip(tickets, first, strict=True)
        ]
        found = write_reasons(starts, guidance, engine, sampler, words, NAMES)
        assert found == [all_of[place] for all_of, _ in whole]
    return saved


# Answers


@pytest.mark.parametrize("words", [EN, BEGUN], ids=["written", "begun"])
def test_verdicts_do_not_change_and_reasons_go_on_from_them(words: Words) -> None:
    scripted = build(
        ModelConfig(
            engine="scripted", model_name_or_path="stageb.guidance.judging.follower:respond"
        ),
        "cpu",
    )
    assert isinstance(scripted, ScriptedEngine)
    assert check_same_answers(valves(20), TORN, scripted, SAMPLER, words) > 0
    weighing = Weighing(lambda prompt, decode, key: f"because {key % 97} (G1)")
    assert (
        check_same_answers(valves(20), TORN, weighing if words.begin else scripted, SAMPLER, words)
        > 0
    )


@pytest.mark.slow
@pytest.mark.parametrize("words", [EN, BEGUN], ids=["written", "begun"])
def test_the_shipped_model_says_the_same_to_the_byte(words: Words) -> None:
    """Verdicts, reasons and tokens, sampled and greedy, although what goes on is computed in other
    batches."""
    every, _ = read_tickets([TICKETS], "error")
    tickets = [ticket for ticket in every if ticket.mission == every[0].mission][:24]
    rules = (
        Rule("G1", "Fail if seal is worn or connector is loose."),
        Rule("G2", "Fail if label is missing."),
    )
    neutral = make_neutral(tickets[0].mission, EN)
    guidance = replace(neutral, rules=(*neutral.rules, *rules), next_number=3)
    engine = build(ModelConfig(torch_dtype="float32"), "cpu")
    tokens = check_same_answers(tickets, guidance, engine, SAMPLER, words)
    assert tokens > 4 * len(tickets) * 4  # of four answers each


@pytest.mark.parametrize(
    ("text", "verdict", "reason"),
    [
        # a first line that is empty
        ("\n\nVerdict: pass\nReason: all is well", "pass", "all is well"),
        ("hm\nVerdict: pass\nReason: all is well", None, ""),
        ("I cannot judge that.\nSorry.", None, ""),
        ("", None, ""),
        ("Verdict: pass", "pass", ""),
        # an answer counts by its first line
        ("Verdict: pass\nReason: one\nand a third line", "pass", ""),
    ],
)
def test_what_is_no_verdict_is_sampled_whole(text: str, verdict: str | None, reason: str) -> None:
    engine = ScriptedEngine(lambda prompt, decode, key: text)
    ((whole, _), *_) = roll_out(valves(1), TORN, engine, SAMPLER, EN, "all")
    ((begun, openings),) = roll_out(valves(1), TORN, engine, SAMPLER, EN, "wrong")
    assert [(each.verdict, each.reason) for each in begun] == [(verdict, reason)] * 4
    assert [each.fault for each in begun] == [None if verdict else each.fault for each in whole]
    (written,) = write_reasons(
        [(valves(1)[0], begun[0], openings[0])], TORN, engine, SAMPLER, EN, NAMES
    )
    assert (written.verdict, written.reason) == (verdict, reason)  # never changed by what follows


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Verdict: pass\nReason: all is well", "all is well"),
        ("Verdict: pass\nNo, it is torn.\nVerdict: fail. Reason: torn", ""),
    ],
)
def test_a_reason_of_another_verdict_than_the_first_one_is_none(text: str, reason: str) -> None:
    """Which an instruct model may take back; what was selected stays."""
    words = words_of(PromptConfig(style="instruct", prefill=False))
    engine = ScriptedEngine(lambda prompt, decode, key: text)
    ((begun, openings),) = roll_out(valves(1), TORN, engine, SAMPLER, words, "wrong")
    starts = [(valves(1)[0], begun[0], openings[0])]
    (written,) = write_reasons(starts, TORN, engine, SAMPLER, words, NAMES)
    assert (begun[0].verdict, written.verdict, written.reason) == ("pass", "pass", reason)


def test_reasons_are_asked_for_where_a_verdict_is_wrong_and_records_keep_no_tokens() -> None:
    tickets, sampler = valves(12), replace(SAMPLER, reasons="wrong")
    mute = rollout_prompt(tickets[0], TORN, EN).user

    def respond(prompt: Prompt, decode: Decode, key: int) -> str:
        return "who knows" if prompt.user == mute else "Verdict: fail\nReason: torn"

    engine = ScriptedEngine(respond)
    answers = rollout(tickets, TORN, engine, sampler, EN, NAMES)
    records = [
        Record(ticket, 1, 0, 1, given, select(ticket, given, 0.5))
        for ticket, given in zip(tickets, answers, strict=True)
    ]
    batch = Round((1, 0, 2, 0), 1, "valves", "train", 0, tuple(range(12)), last=True)
    asked: list[int] = []

    def answer(question: WriteReasons) -> list[Candidate]:
        asked.extend(position for position, _, _ in question.asked)
        starts = [(tickets[i], candidate, opening) for i, candidate, opening in question.asked]
        return write_reasons(starts, TORN, engine, sampler, EN, NAMES)

    found = answer_all(add_reasons(batch, records, TORN), answer)
    unread = [place for place, record in enumerate(records) if not record.selection.verdict]
    wrong = [place for place, record in enumerate(records) if record.ticket.label == "pass"]
    wrong = [place for place in wrong if place not in unread]
    assert asked == wrong and 0 < len(wrong) < 12 - len(unread) < 12
    assert [each.selection.reason for each in found] == [
        "torn" if place in wrong else "" for place in range(12)
    ]
    assert not any(each.answers.openings for each in found)
    for before, after in zip(records, found, strict=True):
        for one, other in zip(before.answers.candidates, after.answers.candidates, strict=True):
            is_chosen = one.index == before.selection.selected_candidate
            reason = after.selection.reason if is_chosen else ""
            assert replace(one, text="", tokens=0, reason=reason) == replace(
                other, text="", tokens=0
            )
    right = [record for record in records if record.selection.label_match]
    some = replace(batch, tickets=tuple(range(len(right))))
    assert answer_all(add_reasons(some, right, TORN), lambda question: 1 / 0)


def test_an_engine_that_cannot_go_on_still_answers_without_reasons() -> None:
    ((found, _),) = roll_out(valves(1), TORN, Fixed("Verdict: fail"), SAMPLER, EN, "none")
    assert [(each.verdict, each.reason, each.format_ok) for each in found] == [
        ("fail", "", True)
    ] * 4


# Who may


def test_what_an_engine_cannot_do_is_refused_with_the_key() -> None:
    fixed, thinking = Fixed("Verdict: fail"), ScriptedEngine(lambda *_: "", thinks=True)
    weighed = JudgedTicket("torn")
    assert not isinstance(fixed, Resumer) and not isinstance(weighed, Resumer)
    for reasons in ("all", "none"):
        check_reasons(fixed, "mine", SamplerConfig(reasons=reasons), EN)
    check_reasons(thinking, "mine", SamplerConfig(reasons="all"), EN)
    # reasons go on from verdicts that are begun in the model's place
    check_reasons(weighed, "mine", SamplerConfig(reasons="wrong"), BEGUN)
    with pytest.raises(
        ConfigError, match=r"sampler\.reasons.*engine mine cannot resume.*all or none"
    ):
        check_reasons(fixed, "mine", SamplerConfig(reasons="wrong"), EN)
    for reasons in ("wrong", "none"):
        with pytest.raises(
            ConfigError, match=r"sampler\.reasons.*thinks aloud.*all, or prompt\.prefill: true"
        ):
            check_reasons(thinking, "mine", SamplerConfig(reasons=reasons), EN)  # type: ignore[arg-type]
        check_reasons(thinking, "mine", SamplerConfig(reasons=reasons), BEGUN)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["fit", "validate"])
def test_a_server_is_refused_before_it_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    tickets = small.write(tmp_path / "tickets.jsonl", "valves")
    server = {
        "model.engine": "openai",
        "model.base_url": "http://127.0.0.1:9/v1",
        "model.model_name_or_path": "theirs",
    }
    _, *options = small.arguments(
        tickets, tmp_path / "out", keys={**server, "sampler.reasons": "wrong"}
    )
    assert main([command, *options]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "sampler.reasons" in said
    assert (
        "engine openai cannot resume an answer from its exact tokens; set it to all or none" in said
    )
    assert not (tmp_path / "out").exists()


# Runs


def rows(run: Path, file: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (run / "valves" / f"{file}.jsonl").read_text("utf-8").splitlines()
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A run for each value of the key."""
    folder = tmp_path_factory.mktemp("reasons")
    tickets = small.write(folder / "tickets.jsonl", "valves")
    for reasons in ("all", "wrong", "none"):
        keys = {"sampler.reasons": reasons, "distill.size": 5, "output.run_name": reasons}
        assert main(small.arguments(tickets, folder / "out", keys=keys)) == 0
    return {reasons: folder / "out" / reasons for reasons in ("all", "wrong", "none")}


def key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(
        row.get(name)
        for name in ("epoch", "split", "round", "ticket_key", "guidance_step", "candidate_index")
    )


@pytest.mark.parametrize("reasons", ["wrong", "none"])
def test_a_run_selects_the_same_verdicts(runs: Mapping[str, Path], reasons: str) -> None:
    """Where the follower keeps to the form: a first line alone counts, which of a garbled answer is
    no verdict either."""
    expected = {key_of(row): row for row in rows(runs["all"], "selections")}
    found = {key_of(row): row for row in rows(runs[reasons], "selections")}
    shared = found.keys() & expected.keys()  # as far as both learnt alike
    assert len(shared) > 100
    for key in shared:
        one, other = found[key], expected[key]
        assert (one["verdict"], one["selected_candidate"]) == (
            other["verdict"],
            other["selected_candidate"],
        )
        wanted = (
            reasons == "wrong"
            and one["split"] == "train"
            and (not one["label_match"] or one["low_agreement"])
        )
        assert one["reason"] == (other["reason"] if wanted else "")
    assert any(row["reason"] for row in found.values()) == (reasons == "wrong")
    for split in ("train", "val", "test"):
        told = [
            row["reason"] for row in expected.values() if row["verdict"] and row["split"] == split
        ]
        assert told and all(told), split


def test_only_the_chosen_answer_of_a_ticket_has_a_reason(runs: Mapping[str, Path]) -> None:
    chosen = {
        key_of(row)[:5]: row["selected_candidate"]
        for row in rows(runs["wrong"], "selections")
        if row["reason"]
    }
    whole = {key_of(row): row["text"] for row in rows(runs["all"], "trajectories")}
    explained = [row for row in rows(runs["wrong"], "trajectories") if row["reason"]]
    assert {key_of(row)[:5]: row["candidate_index"] for row in explained} == chosen
    assert all(row["text"] == whole.get(key_of(row), row["text"]) for row in explained)
    others = [
        row for row in rows(runs["wrong"], "trajectories") if not row["reason"] and row["verdict"]
    ]
    assert {row["text"] for row in others} == {"Verdict: pass", "Verdict: fail"}


@pytest.mark.parametrize("reasons", ["wrong", "none"])
def test_it_learns_and_distills_whole_answers(runs: Mapping[str, Path], reasons: str) -> None:
    test = [row["acc"] for row in rows(runs[reasons], "metrics") if row["split"] == "test"]
    assert test[-1] > 0.9
    said = [row["messages"][-1]["content"] for row in rows(runs[reasons], "distill_chatml")]
    assert len(said) == 5
    assert all(text.partition("\n")[2].startswith("Reason: G") for text in said)


# Use


def use(command: str, *options: str) -> int:
    return main([command, *options, "--model.engine=scripted", "--fabric.accelerator=cpu"])


def test_who_predicts_gets_reasons_unless_they_want_none(
    runs: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        "--guidance",
        str(runs["wrong"]),
        "--tickets",
        str(runs["wrong"].parents[1] / "tickets.jsonl"),
    ]
    outputs = {name: tmp_path / f"{name}.jsonl" for name in ("all", "none", "wrong")}
    assert use("predict", *given, f"--output={outputs['all']}") == 0
    assert use("predict", *given, f"--output={outputs['none']}", "--sampler.reasons=none") == 0
    whole, bare = ([json.loads(line) for line in outputs[name].open()] for name in ("all", "none"))
    assert all(row["reason"] for row in whole)
    # rules are named in reasons
    assert [{**row, "reason": "", "rule": ""} for row in whole] == bare
    capsys.readouterr()
    assert use("predict", *given, f"--output={outputs['wrong']}", "--sampler.reasons=wrong") == 2
    assert "all or none: no answer is known to be wrong here" in " ".join(
        capsys.readouterr().err.split()
    )


def test_rules_are_known_by_what_code_says_where_val_gave_no_reasons(
    runs: Mapping[str, Path],
) -> None:
    from stageb.guidance.commands.use.record import read_record
    from stageb.guidance.rules.read_guidance import load_seed

    tickets, _ = read_tickets([str(runs["none"].parents[1] / "tickets.jsonl")], "error")
    guidance = load_seed(runs["none"] / "valves" / "guidance.json")["valves"]
    assert read_record(str(runs["none"]), guidance) == {}  # without the tickets nobody knows
    found = read_record(str(runs["none"]), guidance, tickets)
    assert found.keys() == {"", *(rule.key for rule in guidance.rules[1:])}
    assert sum(figures.tickets for figures in found.values()) > 10
