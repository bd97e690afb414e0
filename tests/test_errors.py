import pytest

from stageb.errors import CALLER, IN_PYTHON, BadInputError, BadLine, ConfigError, write_option


def test_every_bad_line_is_one_line_that_a_terminal_shows_as_it_is() -> None:
    error = BadInputError(
        "lines",
        [
            BadLine("a\nb", 3, "the key '\x1b[2J\u202e\u2028'", "mend it"),
            BadLine("c", 0, "x" * 5000, "!"),
        ],
    )
    head, first, second = str(error).split("\n")
    assert head == "2 unusable lines:"
    assert first == "  a\\nb:3: the key '\\x1b[2J\\u202e\\u2028'; mend it"
    assert second.endswith("xxx...; !")
    assert len(second) < 500
    assert error.bad[1].what == "x" * 5000


def test_many_equal_faults_are_told_once_with_their_number_and_first_places() -> None:
    labels = ['label "Class I"', 'label "Class II"']
    strange = [
        BadLine("t.csv", line, labels[line % 2], "say what it means") for line in range(2, 302)
    ]
    error = BadInputError("places", [*strange, BadLine("t.csv", 302, "no label", "write one")])
    assert str(error).splitlines() == [
        "301 unusable places:",
        '  t.csv:2: label "Class I" (on 150 lines: 2, 4, 6, ...); say what it means',
        '  t.csv:3: label "Class II" (on 150 lines: 3, 5, 7, ...); say what it means',
        "  t.csv:302: no label; write one",
    ]
    assert len(error.bad) == 301
    error = BadInputError(
        "places",
        [*strange[:80], *(BadLine("u.csv", line, f"what {line}", "-") for line in range(30))],
    )
    assert str(error).endswith("\n  ... and 12 more")


def test_a_config_error_shows_a_long_value_in_part() -> None:
    error = ConfigError("seed", "9" * 5000, "a whole number")
    assert len(str(error)) < 300
    assert str(error).endswith("999...: a whole number")
    assert str(ConfigError("a.质\n", "质量", "x")) == "config: a.质\\n: '质量': x"


@pytest.mark.parametrize(
    ("key", "value", "in_a_shell", "in_python"),
    [
        ("fresh", True, "--fresh", "fresh=True"),
        ("price.missed_failure", 20, "--price.missed_failure 20", "price={'missed_failure': 20}"),
        ("columns.group_id", None, "--columns.group_id null", "columns={'group_id': None}"),
        ("columns", {"a": "X", "b": "Y"}, "--columns a=X,b=Y", "columns={'a': 'X', 'b': 'Y'}"),
    ],
)
def test_options_are_written_as_the_caller_gives_them(
    key: str, value: object, in_a_shell: str, in_python: str
) -> None:
    assert write_option(key, value) == in_a_shell
    CALLER.set(IN_PYTHON)
    assert write_option(key, value) == in_python
