"""Models as they are: that think aloud, that do not keep to the form, that are served in the wrong
way."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from programs import small

from stageb.__main__ import main
from stageb.engines import Completion, Decode, Prompt
from stageb.errors import ConfigError
from stageb.guidance.commands.fit.run import FitRun
from stageb.guidance.config import PromptConfig, ReflectionConfig
from stageb.guidance.judging.answers import (
    FEWEST_ANSWERS,
    UnreadableError,
    check_readable,
    read_answer,
)
from stageb.guidance.judging.follower import respond
from stageb.guidance.learning.proposals import parse_proposal
from stageb.guidance.learning.state import State
from stageb.guidance.rules.prompts import (
    WORDS,
    Case,
    ReflectionInput,
    reflection_prompt,
    rollout_prompt,
    verdict_lines,
    words_of,
)
from stageb.guidance.rules.read_guidance import load_seed, make_neutral
from stageb.guidance.words.types import Answers, Candidate, Ticket

OWN = {"pass": "OK", "fail": "NG"}
TICKET = Ticket("m", "g", "fail", (("image_1", "state: torn; colour: red"),))
ASKED = rollout_prompt(TICKET, make_neutral("m", WORDS["en"]), WORDS["en"])


def fit(folder: Path, **keys: Any) -> tuple[int, str]:
    """A small run in ``folder``: its exit code, and what it says on standard error."""
    dotted = {key.replace("__", "."): value for key, value in keys.items()}
    tickets = small.write(folder / "tickets.jsonl", "valves")
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        return main(small.arguments(tickets, folder / "out", keys=dotted)), said.getvalue()


def rows(folder: Path, file: str) -> list[dict[str, Any]]:
    path = folder / "out" / "run" / "valves" / f"{file}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


# Models for configs to name


def thinking(prompt: Prompt, decode: Decode, key: int) -> str:
    """Thinks in several lines, and of another answer, before it says what the follower says."""
    return f"<think>\nFirst of all,\nVerdict: pass\n</think>\n\n{respond(prompt, decode, key)}"


def echoing(prompt: Prompt, decode: Decode, key: int) -> str:
    return f"<|user|>{prompt.user}<|end|>\x1b[2J{respond(prompt, decode, key)}"


def own_words(prompt: Prompt, decode: Decode, key: int) -> str:
    """Fails what is torn, in words of its own, and proposes a rule in them."""
    if "JSON" in prompt.system:
        wrong = re.findall(r"^(T\d+)\. ", prompt.user, re.M)[-1]
        return json.dumps(
            {"operations": [{"op": "add", "text": "NG if state is torn.", "evidence": [wrong]}]}
        )
    torn = "torn" in prompt.user and "G1. " in prompt.system
    return f"Verdict: {'ng' if torn else 'OK'}\nReason: looked at it"


# Thinking


def test_a_model_that_thinks_aloud_learns_and_its_thoughts_are_kept(tmp_path: Path) -> None:
    keys = {"model__model_name_or_path": "guidance.test_readable:thinking", "runner__epochs": 1}
    code, said = fit(tmp_path / "untold", **keys | {"runner__epochs": 0})
    assert code == 0
    assert (
        "the model thinks aloud, but not for the gate: name its closing tag in model.thinking_ends"
        in said
    )
    code, said = fit(tmp_path, model__thinking_ends="</think>", **keys)
    assert code == 0
    assert "thinks aloud" not in said
    assert "by its greedy answer, the thoughts before it decoded too" in said
    learnt = load_seed(tmp_path / "out" / "run" / "valves" / "guidance.json")["valves"]
    assert [rule.text for rule in learnt.rules[1:]] == ["Fail if state is torn."]
    told = rows(tmp_path, "trajectories")
    assert {row["thinking"] for row in told} == {"First of all,\nVerdict: pass"}
    assert not any("think" in row["text"] for row in told)
    for row in rows(tmp_path, "metrics"):
        of = [
            each for each in told if (each["epoch"], each["split"]) == (row["epoch"], row["split"])
        ]
        if of:
            assert row["unreadable"] == round(
                sum(not each["format_ok"] for each in of) / len(of), 6
            )
    assert any(row["unreadable"] for row in rows(tmp_path, "metrics"))
    assert re.search(r", \d+ of \d+ answers unreadable, ", said)


def test_thoughts_without_end_are_no_proposal_and_no_verdict() -> None:
    answer = Completion("", 9, "length", "Verdict: fail")
    assert read_answer(answer, ASKED, WORDS["en"]) == ("", None, "", "thinking never closed")
    begun = words_of(PromptConfig(prefill=True))
    assert read_answer(answer, ASKED, begun) == ("", None, "", "thinking never closed")
    assert read_answer(Completion("", 9, "stop"), ASKED, begun) == ("Verdict:", None, "", "empty")


# Faults


@pytest.mark.parametrize(
    ("text", "finish", "fault"),
    [
        ("Verdict: fail\nReason: torn", "stop", None),
        (" \n", "stop", "empty"),
        ("", "filtered", "filtered"),
        (
            f"<|user|>{ASKED.user}<|end|>Verdict: fail\nReason: torn",
            "length",
            "gives its prompt back",
        ),
        ("Verdict: fail\nReason: torn\nand so", "length", "cut off"),
        ("I'm sorry, but I can't judge people.", "stop", "refuses"),
        ("抱歉，我不能判断。", "stop", "refuses"),
        ("It fails.", "stop", "not the two-line answer"),
    ],
)
def test_why_an_answer_cannot_be_read(text: str, finish: Any, fault: str | None) -> None:
    assert read_answer(Completion(text, 5, finish), ASKED, WORDS["en"])[3] == fault


def test_a_short_prompt_may_stand_in_an_answer() -> None:
    said = Completion("It is worn, so it fails.", 5, "stop")
    assert read_answer(said, Prompt("Judge.", "worn"), WORDS["en"])[3] == "not the two-line answer"


def test_a_beginning_is_put_before_what_goes_on_from_it_and_never_twice() -> None:
    words = words_of(PromptConfig(prefill=True))
    for said in (
        " fail\nReason: torn",
        "Verdict: fail\nReason: torn",
        "\nVerdict: fail\nReason: torn",
    ):
        for thoughts in ("", "so it is torn"):
            text, *read = read_answer(Completion(said, 5, "stop", thoughts), ASKED, words)
            assert text.strip() == "Verdict: fail\nReason: torn"
            assert read == ["fail", "torn", None]


def candidates(readable: int, *faults: Any) -> list[Candidate]:
    good = [Candidate(0, 0, 0.7, "", "pass", "x", True, 5)] * readable
    return [
        *good,
        *(Candidate(0, 0, 0.7, f"{fault}!", None, "", False, 5, "hm", fault) for fault in faults),
    ]


def test_most_answers_must_be_readable_where_they_are_enough_to_tell() -> None:
    check_readable(candidates(8, *["empty"] * 8), 0.5, WORDS["en"], "key", "loss")
    check_readable(
        candidates(0, *["empty"] * (FEWEST_ANSWERS - 1)), 0.5, WORDS["en"], "key", "loss"
    )
    check_readable(candidates(0, *["empty"] * 99), 1.0, WORDS["en"], "key", "loss")
    with pytest.raises(
        UnreadableError,
        match=r"9 of the first 16 answers .*7 of them: cut off.*\n  cut off!\n.*max_new_tok",
    ):
        check_readable(
            candidates(7, *["empty"] * 2, *["cut off"] * 7), 0.5, WORDS["en"], "key", "loss"
        )
    wrong = candidates(0, *["not the two-line answer"] * 16)
    with pytest.raises(UnreadableError, match=r"prompt\.prefill: true begins"):
        check_readable(wrong, 0.5, WORDS["en"], "key", "loss")
    # no remedy that was taken already
    with pytest.raises(UnreadableError, match="begun for the model"):
        check_readable(wrong, 0.5, words_of(PromptConfig(prefill=True)), "key", "loss")
    # where nothing is said, what was thought
    mute = [replace(each, text="") for each in candidates(0, *["thinking never closed"] * 16)]
    with pytest.raises(UnreadableError, match=r"\n  hm\n"):
        check_readable(mute, 0.5, WORDS["en"], "key", "loss")
    withheld = candidates(0, *["filtered"] * 16)
    with pytest.raises(UnreadableError, match="have it relaxed there"):
        check_readable(withheld, 0.5, words_of(PromptConfig(prefill=True)), "key", "loss")


def test_a_first_round_that_cannot_be_read_ends_the_run_before_anything_is_learnt(
    tmp_path: Path,
) -> None:
    """And the mended command goes on in the same folder."""
    code, said = fit(tmp_path, model__model_name_or_path="guidance.test_readable:echoing")
    assert code == 2
    assert re.search(
        r"^stageb: (\d+) of the first \1 answers cannot be read \(\1 of them: gives its prompt back\)",
        said,
        re.M,
    )
    assert "<|end|>\\x1b[2JVerdict: " in said
    assert "What to do: the server returns the prompt within the answer" in said
    assert not (tmp_path / "out" / "run" / "valves" / "reflection.jsonl").exists()
    assert fit(tmp_path, runner__epochs=1)[0] == 0
    assert (
        fit(
            tmp_path / "on",
            model__model_name_or_path="guidance.test_readable:echoing",
            runner__max_unreadable=1.0,
            runner__epochs=1,
        )[0]
        == 0
    )


def test_first_answers_of_small_rounds_count_together_also_where_the_run_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And selecting changes neither the state nor the run that it is given: again, it comes to the
    same."""
    echo = {
        "model__model_name_or_path": "guidance.test_readable:echoing",
        "runner__per_rank_rollout_batch_size": 2,
    }
    rounds: list[int] = []

    def interrupt(run: FitRun, state: State, answers: Sequence[Answers]) -> State:
        rounds.append(len(state.first))
        if len(rounds) == 3:
            raise RuntimeError("interrupted")
        assert check(run, state, answers) == check(run, state, answers)
        return check(run, state, answers)

    check = FitRun.check_first_answers
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="interrupted"):
        patched.setattr(FitRun, "check_first_answers", interrupt)
        fit(tmp_path, sampler__samples_per_decode=2, **echo)
    assert rounds == [0, 4, 8]
    code, said = fit(tmp_path, sampler__samples_per_decode=2, **echo)
    assert code == 2 and "16 of the first 16 answers cannot be read" in said
    assert len(rows(tmp_path, "selections")) == 6


# Verdict words


def test_verdict_words_are_read_and_written_and_files_say_pass_and_fail(tmp_path: Path) -> None:
    keys = {
        "model__model_name_or_path": "guidance.test_readable:own_words",
        "distill__size": 200,
        "runner__epochs": 1,
    }
    assert fit(tmp_path, prompt__verdict_words=OWN, **keys)[0] == 0
    assert {row["verdict"] for row in rows(tmp_path, "selections")} == {"pass", "fail"}
    learnt = load_seed(tmp_path / "out" / "run" / "valves" / "guidance.json")["valves"]
    assert [rule.text for rule in learnt.rules] == [
        "A ticket is OK unless a rule says NG.",
        "NG if state is torn.",
    ]
    distilled = [row["messages"][2]["content"] for row in rows(tmp_path, "distill_chatml")]
    assert {text.partition("\n")[0] for text in distilled} == {"Verdict: OK", "Verdict: NG"}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("own", [OWN, {"pass": "合格", "fail": "{不合格} <pass>"}])
def test_prompts_speak_verdict_words_alone(language: Any, own: dict[str, str]) -> None:
    words = words_of(PromptConfig(language=language, verdict_words=own))
    guidance = make_neutral("m", words)
    asked = rollout_prompt(TICKET, guidance, words)
    assert all(word in asked.system.split("Verdict: ")[1].splitlines()[0] for word in own.values())
    assert all(word in guidance.rules[0].text for word in own.values())
    for verdict, line in verdict_lines(words).items():
        assert read_answer(Completion(f"{line.upper()}\nReason: x", 5, "stop"), asked, words)[
            1
        ] in (verdict, None)
        assert read_answer(Completion(f"{line}\nReason: x", 5, "stop"), asked, words)[1] == verdict
    shown = ReflectionInput((Case(TICKET, False, "r"), Case(TICKET, True, None)))
    prompt = reflection_prompt(shown, guidance, words, 1)
    default = {"en": ("Pass", " fail"), "zh": ("通过",)}[language]
    assert not any(word in asked.system + prompt.system + prompt.user for word in default)
    edit = {"op": "add", "text": f"{own['fail']}: torn", "evidence": ["T1"]}
    for text, kept in ((edit["text"], 1), ("Fail if torn", 0)):
        answer = json.dumps({"operations": [{**edit, "text": text}]})
        assert (
            len(parse_proposal(answer, shown, guidance, ReflectionConfig(), words, 0).operations)
            == kept
        )


@pytest.mark.parametrize(
    "own",
    [
        {"pass": "OK"},
        {"pass": "OK", "fail": "NG", "maybe": "?"},
        {"pass": "OK", "fail": "ok"},
        {"pass": "pass", "fail": "passable"},
        {"pass": "Not bad", "fail": "not"},
        {"pass": "", "fail": "NG"},
        {"pass": " OK", "fail": "NG"},
        {"pass": "O\nK", "fail": "NG"},
        {"pass": "OK\x1b", "fail": "NG"},
    ],
)
def test_verdict_words_that_cannot_be_told_apart_are_refused(own: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"prompt\.verdict_words"):
        PromptConfig(verdict_words=own)
