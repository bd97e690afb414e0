import time

import pytest

from stageb.untrusted import strict_json


def test_plain_json_passes() -> None:
    assert strict_json.loads(' {"a": [1, 2.5, null, true, "é\\u00e9", "\\ud83d\\ude00"]} ') == {
        "a": [1, 2.5, None, True, "éé", "😀"]
    }


def test_the_key_that_comes_twice_is_found_at_once_among_many() -> None:
    keys = "".join(f'"k{n}": 0, ' for n in range(50_000))
    begun = time.process_time()
    with pytest.raises(ValueError, match="'k49999' is given twice"):
        strict_json.loads(f'{{{keys} "k49999": 1}}')
    assert time.process_time() - begun < 1


def test_brackets_side_by_side_are_not_deep() -> None:
    assert len(strict_json.loads("[" + "[], {}, " * 500 + "0]")) == 1001
    assert strict_json.loads("[" * 64 + "]" * 64)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "a": 1}', "'a' is given twice"),
        ('[{"b": {"a": 1, "c": 0, "c": 2}}]', "'c' is given twice"),
        ("[NaN]", "NaN"),
        ("-Infinity", "-Infinity"),
        ("1e999", "too large"),
        ("9" * 5000, "4300"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udc00": 1}', "surrogate"),
        ("[" * 100_000, "deep"),
        ('{"a":' * 100_000, "deep"),
        ("[" * 65 + "0" + "]" * 65, "deep"),
        ("{} {}", "Extra data"),
        ("", "Expecting value"),
    ],
)
def test_what_the_standard_refuses_is_a_value_error(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        strict_json.loads(text)
