"""A test without a model: the scripted engine puts a function in the model's place."""

from stageb import Decode, Guidance, Prompt, Request, Rule, Ticket
from stageb.engines.scripted import ScriptedEngine
from stageb.guidance.judging.answers import parse_answer
from stageb.guidance.rules.prompts import WORDS, rollout_prompt


def respond(prompt: Prompt, decode: Decode, key: int) -> str:
    verdict = "fail" if "connector: loose" in prompt.user else "pass"
    return f"Verdict: {verdict}\nReason: looked at the connector"


def test_a_loose_connector_fails() -> None:
    ticket = Ticket(
        "rack cabling", "rack-1", "fail", (("image_1", "connector: loose; label: printed"),)
    )
    rules = (Rule("G0", "A ticket passes unless a rule fails it."),)
    guidance = Guidance("rack cabling", step=0, rules=rules, next_number=1)
    prompt = rollout_prompt(ticket, guidance, WORDS["en"])
    [(completion,)] = ScriptedEngine(respond).generate([Request(prompt, Decode(), keys=(1,))])
    assert parse_answer(completion.text, WORDS["en"]) == ("fail", "looked at the connector")
