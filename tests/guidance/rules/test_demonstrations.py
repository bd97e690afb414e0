from dataclasses import replace

import pytest

from stageb.engines.config import ModelConfig
from stageb.guidance.rules.judge import BY_LABEL, demonstrate
from stageb.guidance.rules.prompts import Case, rollout_prompt, words_of
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.config import PromptConfig
from stageb.guidance.words.types import Guidance, Rule, Ticket, Verdict

WORDS = words_of(PromptConfig(), ModelConfig(model_name_or_path="another"))
HEADLINE = Rule("G0", WORDS.neutral_headline)
LEAK, CRACK = Rule("G1", "Fail if a summary mentions leak."), Rule("G2", "Fail if a summary mentions crack.")


def case(number: int, label: Verdict, text: str, right: bool = True) -> Case:
    return Case(Ticket("m", f"g{number}", label, (("image_1", text),)), right, None)


CASES = [
    case(1, "fail", "a leak at the hose"),
    case(2, "fail", "one more leak", right=False),
    case(3, "pass", "a leak, mended"),
    case(4, "fail", "a crack in the glass"),
    case(5, "pass", "swap the oil"),
    case(6, "pass", "clean the filter"),
    case(7, "fail", "burnt out"),
]
VOCABULARY = Vocabulary.of(each.ticket for each in CASES)


def shown(rules: tuple[Rule, ...], cases: list[Case] = CASES, room: int = 1000, before: Guidance | None = None) -> Guidance:
    guidance = replace(before, rules=rules) if before else Guidance("m", 1, rules, 9)
    return demonstrate(guidance, cases, VOCABULARY, WORDS, lambda text: len(text.split()), room)


def test_each_rule_shows_a_ticket_that_it_judges_rightly_the_wrong_ones_first() -> None:
    found = {each.rule: each for each in reversed(shown((HEADLINE, LEAK, CRACK)).demonstrations) if each.rule != "G0"}
    assert found["G1"].source == "g2::fail"  # judged wrong; g3, of the other label, is never shown
    assert found["G2"].source == "g4::fail"


def test_where_no_rule_holds_passes_are_shown_and_no_fail_that_no_rule_explains() -> None:
    others = [each.source for each in shown((HEADLINE, LEAK)).demonstrations if each.rule == "G0"]
    assert others == ["g5::pass", "g6::pass"]


def test_without_rules_as_many_of_each_label_are_shown_in_turn() -> None:
    many = [case(n, "fail" if n % 2 else "pass", f"text {n}") for n in range(100)]
    found = shown((HEADLINE,), many).demonstrations
    assert [each.verdict for each in found] == ["fail", "pass"] * (BY_LABEL // 2)
    assert all(not each.rule for each in found)


def test_a_rule_that_goes_takes_its_demonstration_with_it() -> None:
    before = shown((HEADLINE, LEAK, CRACK))
    assert {each.rule for each in replace(before, rules=(HEADLINE, LEAK)).shown} == {"G0", "G1"}
    changed = Rule("G2", "Fail if a summary mentions burnt.")
    after = shown((HEADLINE, LEAK, changed), before=before)
    assert [each.source for each in after.shown if each.rule == "G2"] == ["g7::fail"]


def test_what_only_tells_a_label_makes_room_for_rules() -> None:
    many = [case(n, "fail" if n % 2 else "pass", f"text {n}") for n in range(100)]
    first = shown((HEADLINE,), many)
    after = shown((HEADLINE, LEAK, CRACK), before=first)
    assert {"G1", "G2"} <= {each.rule for each in after.demonstrations}
    assert len(after.demonstrations) == BY_LABEL


@pytest.mark.parametrize("room", [0, 30, 60])
def test_room_is_kept_to(room: int) -> None:
    found = shown((HEADLINE, LEAK, CRACK), room=room)
    prompt = rollout_prompt(CASES[0].ticket, found, WORDS)
    bare = rollout_prompt(CASES[0].ticket, replace(found, demonstrations=()), WORDS)
    assert len(prompt.system.split()) - len(bare.system.split()) <= room + 1  # the heading


def test_demonstrations_stand_before_the_ticket_in_what_all_tickets_share() -> None:
    prompt = rollout_prompt(CASES[0].ticket, shown((HEADLINE, LEAK)), WORDS)
    assert prompt.system.endswith("Verdict: pass\nReason: no other rule's condition is true (G0)")
    assert "one more leak\nVerdict: fail\nReason: Fail if a summary mentions leak (G1)" in prompt.system
    assert prompt.user == "Ticket:\nimage_1: a leak at the hose"
