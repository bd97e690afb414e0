"""Rules that a person writes in a text file: slips are told by line, and no wording is refused."""

from __future__ import annotations

import pytest

from stageb.errors import BadInputError
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.rules_file import parse


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("G3 Fail if seal is worn.", "rules.txt:2: 'G3' is no number"),
        ("g3. Fail if seal is worn.", "rules.txt:2: 'g3.' is no number"),
        ("G3: Fail if seal is worn.", "rules.txt:2: 'G3:' is no number"),
        ("Gx Fail if seal is worn.", "rules.txt:2: 'Gx' is no number"),
        ("G. Fail if seal is worn.", "rules.txt:2: 'G.' is no number"),
        ("Fial if seal is worn.", "rules.txt:2: 'Fial' is no verdict; did you mean Fail?"),
        ("G3. Fial if seal is worn.", "rules.txt:2: 'Fial' is no verdict; did you mean Fail?"),
        ("Pas unless seal is worn.", "rules.txt:2: 'Pas' is no verdict; did you mean Pass?"),
    ],
)
def test_slips_are_told_by_line(line: str, told: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse(f"[m]\n{line}\n", "rules.txt", WORDS["en"])
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "line", ["Fails when worn.", "Go on if worn.", "GPU fans: fail if worn.", "A fail if worn.", "fail if worn", "Gauge: 3"]
)
def test_other_wordings_stand(line: str) -> None:
    content, _ = parse(f"[m]\n{line}\n", "rules.txt", WORDS["en"])
    assert content["m"]["experiences"] == {"G0": WORDS["en"].neutral_headline, "G1": line}
