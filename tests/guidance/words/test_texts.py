import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.words.texts import (
    LONGEST_LABEL,
    find_copied,
    find_renamed,
    label_fault,
    one_line,
    verdict_words_fault,
)
from stageb.untrusted.clean_text import text_fault

SUMMARY = "Valve 7: the left flange is loose, and oil drips on the floor"


@pytest.mark.parametrize(
    "text",
    [
        "Fail if a is b.",
        "若阀门为松动，则不通过。",
        "naïve – “quoted” · 5 °C",
        "a\u3000b",
        "⚠\ufe0f is e\u0301",
    ],
)
def test_plain_lines_have_no_fault(text: str) -> None:
    assert text_fault(text) == ""


@pytest.mark.parametrize(
    "character",
    [
        "\n",
        "\r",
        "\t",
        "\x00",
        "\x85",
        "\u2028",
        "\u202e",
        "\u2066",
        "\u200b",
        "\ufeff",
        "\ud800",
        "\u3164",
        "\U000e0141",
    ],
)
def test_line_breaks_controls_and_invisible_characters_are_named(character: str) -> None:
    assert f"U+{ord(character):04X}" in text_fault(f"Fail if a{character}is b.")


def test_a_verdict_word_has_at_most_forty_characters_and_at_least_one() -> None:
    assert verdict_words_fault({"pass": "a" * 40, "fail": "b" * 40}) == ""
    for word in ("a" * 41, ""):
        assert "of 1 to 40 printable characters" in verdict_words_fault({"pass": word, "fail": "b"})


def test_a_label_is_a_short_line_with_single_spaces() -> None:
    for label in ("a", "low risk", "漏油", "a" * LONGEST_LABEL):
        assert label_fault(label) == ""
    for other in ("", " ", " low", "low  risk", "a|b", "a\nb", "a" * (LONGEST_LABEL + 1), 1, None):
        assert f"a text of 1 to {LONGEST_LABEL} characters" in label_fault(other)


@given(st.text(max_size=60), st.integers(1, 40))
def test_one_line_is_clean_and_short(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert not line or text_fault(line) == ""
    assert one_line(line, limit) == line


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("TSH (µU/ml)", "TSH"),
        ("Temp °C", "Temperatur °C"),
        ("Seal", "seal "),
        ("pressure", "inlet pressure, bar"),
        ("length", ""),
        ("T4 (ng/ml)", ""),  # another quantity of the same unit
        ("TT3 (ng/ml)", "T3 (ng/ml)"),
        ("Thickness in mm", "thick"),
    ],
)
def test_a_column_has_the_name_that_is_nearest_or_holds_the_same_words(
    name: str, near: str
) -> None:
    names = ["T3 (ng/ml)", "TSH", "Temperatur °C", "seal ", "inlet pressure, bar", "", "thick"]
    assert find_renamed(name, names) == near


def test_six_words_in_a_row_are_a_copy() -> None:
    assert (
        find_copied("Fail if THE LEFT FLANGE is loose; and so on", [SUMMARY])
        == "the left flange is loose and"
    )
    assert find_copied("Fail if the left flange is loose", [SUMMARY]) == ""
    assert (
        find_copied("Fail if the left flange is very loose, and oil drips on it", [SUMMARY]) == ""
    )


def test_twelve_cjk_characters_in_a_row_are_a_copy() -> None:
    summary = "左侧法兰松动并且有油滴落在地面上"
    assert find_copied("若左侧法兰松动并且有油滴落，则不通过", [summary])
    assert find_copied("若左侧法兰松动并且有油滴，则不通过", [summary]) == ""


def test_mixed_runs_weigh_a_word_as_two_characters() -> None:
    summary = "阀门 DN50 左侧法兰 loose 有油滴"
    assert find_copied("若阀门DN50左侧法兰loose有油则不通过", [summary])  # 2 + 2 + 4 + 2 + 2
    assert find_copied("若阀门DN50左侧法兰loose有则不通过", [summary]) == ""


def test_short_summaries_can_not_be_copied() -> None:
    assert find_copied("Fail if doors is 3 and persons is 2", ["doors: 3; persons: 2"]) == ""


WORDS = st.lists(st.sampled_from(["a", "bb", "油", "滴", "Left", "7"]), max_size=20).map(" ".join)


@given(WORDS, WORDS, WORDS)
def test_a_copy_is_found_wherever_it_stands(before: str, middle: str, after: str) -> None:
    whole = find_copied(middle, [middle])
    found = find_copied(f"{before} {middle} {after}", [middle])
    assert not whole or found
    if found:
        assert found in " ".join(middle.casefold().split())
