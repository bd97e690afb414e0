import pytest

from stageb.guidance.judging.answers import parse_answer, parse_verdict
from stageb.guidance.rules.prompts import WORDS


@pytest.mark.parametrize(
    ("text", "language", "parsed"),
    [
        ("Verdict: pass\nReason: G0: nothing wrong", "en", ("pass", "G0: nothing wrong")),
        ("\n Verdict:FAIL \r\n Reason :  a leak \n\n", "en", ("fail", "a leak")),
        ("Verdict: 不通过\nReason: 漏油", "zh", ("fail", "漏油")),
        ("Verdict: pass\nReason: Verdict: fail", "en", ("pass", "Verdict: fail")),
    ],
)
def test_two_lines_are_an_answer(text: str, language: str, parsed: tuple[str, str]) -> None:
    assert parse_answer(text, WORDS[language]) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Verdict: pass",
        "Reason: x\nVerdict: pass",
        "Verdict: pass Reason: x",
        "Verdict: pass\u2028Reason: x",
        "Verdict: pass\rReason: x",
        "Verdict: pass\n\nReason: x",
        "Verdict: pass\x85\nReason: x",
        "Verdict: pass\nReason:\nx",
        "Verdict: pass\nReason: x\nReason: y",
        "Verdict: pass\nReason: x\x0by",
        "Verdict: pass\nReason: x\x00y",
        "Verdict: pass\nReason: ",
        "Verdict: pass\nReason",
        "Verdict: pass\nBecause: x",
        "pass\nReason: x",
        "Verdict: pass or fail\nReason: x",
        "Verdict: 通过\nReason: x",
        "verdict: pass\nReason: x",
        "```\nVerdict: pass\nReason: x\n```",
        "Verdict: pass<|im_end|>\nReason: x",
        "Verdict: pass\u200b\nReason: x",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert parse_answer(text, WORDS["en"]) is None


def test_a_lone_verdict_line() -> None:
    assert parse_verdict(" Verdict: Fail ", WORDS["en"]) == "fail"
    assert parse_verdict("Verdict: pass\nReason: x", WORDS["en"]) is None
    assert parse_verdict("Verdict: pass", WORDS["zh"]) is None
    assert parse_verdict("pass", WORDS["en"]) is None
