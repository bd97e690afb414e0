"""A shared file under any changes, one after the other."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stageb.guidance.commands.govern.shared import GuidanceChange, apply_change
from stageb.guidance.rules.read_guidance import load_seed, read_guidance, read_past
from stageb.guidance.words.types import Guidance, Rule

TEXTS = [f"Fail if state is {word}." for word in ("torn", "worn", "bent")]
MISSION, NUMBER = st.sampled_from(["m", "n"]), st.integers(0, 5)
CHANGE = st.tuples(st.sampled_from(["promote", "roll back", "edit"]), MISSION, NUMBER, NUMBER)


def list_texts(guidance: Guidance) -> list[str]:
    return [rule.text for rule in guidance.rules]


PROMOTIONS = [("promote", "m", number, 0) for number in range(3)]


@settings(max_examples=60)
@given(st.lists(CHANGE, max_size=8))
@example([*PROMOTIONS, ("roll back", "m", 0, 0), ("promote", "m", 2, 0)])
@example([*PROMOTIONS, ("edit", "m", 0, 0), ("roll back", "m", 2, 0)])
def test_a_step_is_the_same_guidance_for_good_whatever_is_promoted_rolled_back_or_edited(
    changes: list[tuple[str, str, int, int]],
) -> None:
    """And what was in use can be had back, though a person wrote it into the file."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "shared.json")
        steps: dict[str, dict[int, list[str]]] = {"m": {}, "n": {}}
        for action, mission, number, step in changes:
            known, there = steps[mission], load_seed(path) if path.exists() else {}
            if action == "edit" and mission in there:
                content = json.loads(path.read_text())
                content[mission]["experiences"]["G1"] = TEXTS[number % 3]
                path.write_text(json.dumps(content))
                continue
            rules = (Rule("G0", "A headline."), Rule("G1", TEXTS[number % 3]))
            change = GuidanceChange("promoted from", "x", Guidance(mission, step, rules, 2), True)
            if action == "roll back" and known:
                wanted = sorted(known)[number % len(known)]
                past = read_guidance(f"{path}@{wanted}", mission)[mission]
                assert (past.step, list_texts(past)) == (wanted, known[wanted])
                change = GuidanceChange("rolled back", "", past, new=False)
            after = apply_change(path, change, lambda *_: True)
            assert after and load_seed(path)[mission] == after
            assert list_texts(after) == list_texts(change.guidance)
            for name, of in steps.items():
                past_steps = read_past(path, name).items()
                noted = {each: list_texts(guidance) for each, guidance in past_steps}
                assert of.items() <= noted.items()
                assert name == mission or of == noted
                steps[name] = noted
            before = there.get(mission)
            assert before in (None, after) or list_texts(before) in steps[mission].values()


def test_nobody_is_asked_to_put_in_use_what_is_in_use_already(tmp_path: Path) -> None:
    """But an earlier step that has the same rules is another step."""
    path = tmp_path / "shared.json"
    for number in (0, 1, 0):
        rules = (Rule("G0", "A headline."), Rule("G1", TEXTS[number]))
        change = GuidanceChange("promoted from", "x", Guidance("m", 0, rules, 2), True)
        assert apply_change(path, change, lambda *_: True)
    in_use, there = load_seed(path)["m"], {each: each.read_bytes() for each in tmp_path.iterdir()}
    assert in_use.step == 2
    for again in (change, GuidanceChange("rolled back", "", in_use, new=False)):
        assert apply_change(path, again, lambda *_: pytest.fail("nothing is to be asked")) == in_use
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == there
    past = read_guidance(f"{path}@0", "m")["m"]
    assert apply_change(path, GuidanceChange("rolled back", "", past, new=False), lambda *_: True)
    assert load_seed(path)["m"] == past != in_use
