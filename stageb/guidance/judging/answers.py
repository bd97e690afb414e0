"""What a model's answer to a rollout says, and where it cannot be read, why.

The answer is untrusted text: what cannot be read is kept with its *fault*, and where most of a run's first answers cannot be
read, the run ends before it learns anything, with one of them, the likely cause and the remedy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from stageb.engines.protocol import Completion, Prompt
from stageb.errors import InputError, shown
from stageb.guidance.rules.prompts import Words, first_verdict, parse_answer
from stageb.guidance.words.types import HEADLINE_KEY, Candidate, Fault, Verdict

FEWEST = 16  # answers that a share is told from
ECHO = 24  # characters of a ticket's text, at the least, that tell that an answer gives its prompt back
EXAMPLE = 300  # characters of the answer that is shown

_KEY = re.compile(r"\bG\d+\b", re.ASCII)  # ASCII: Chinese letters may touch a key
_REFUSES = re.compile(
    r"\W*(I('|\u2019)?m sorry|I am sorry|Sorry|I can('|\u2019)?t|I cannot|I('|\u2019)?m unable|I am unable|As an AI|"
    r"抱歉|对不起|很抱歉|我无法|我不能)",
    re.IGNORECASE,
)
_REMEDIES: dict[Fault, str] = {
    "empty": "the model said nothing: look at its chat template, or at what the server logs",
    "filtered": "the server's content filter withholds answers: have it relaxed there, or choose another server",
    "gives its prompt back": "the server returns the prompt within the answer: its chat template and the way in which it "
    "reads answers do not fit this checkpoint; serve it otherwise, or take model.engine transformers or vllm",
    "thinking never closed": "the model thought aloud to the end of its tokens: raise sampler.grid's max_new_tokens, or end "
    "its thinking (model.chat_template_kwargs: {enable_thinking: false}, or prompt.prefill: true)",
    "cut off": "sampler.grid's max_new_tokens cut the answer before it had two lines: raise that. prompt.prefill: true "
    "begins answers that would never come to them; a model that thinks behind a tag of its own needs model.thinking_ends",
    "refuses": "the model refuses to judge: choose another, or prompt.prefill: true",
    "not the two-line answer": "the model does not keep to the two lines: prompt.prefill: true begins its answers, prompt."
    "verdict_words gives it words of its own; or choose a larger model",
}
_BEGUN = (  # the remedy where prompt.prefill was tried already
    "the answers are begun for the model, and it does not go on in form: a server may not go on from a last message of the "
    "assistant's, see what docs/engines.md says of it; or choose a larger model"
)


class UnreadableError(InputError):
    """Most of the first answers cannot be read: with this model and these keys there is nothing to learn, or to tell."""


def read_answer(
    completion: Completion, prompt: Prompt, words: Words, alone: bool = False
) -> tuple[str, Verdict | None, str, Fault | None]:
    """The answer as a whole, what was begun for it included; its verdict, its reason, and what is wrong with it if it has no
    verdict. Where verdicts are sampled ``alone``, an answer has the verdict of its first line, and a reason or none."""
    text, begin = completion.text, words.begin
    if begin and not text.lstrip().startswith(begin) and (text or not completion.thinking):
        text = begin + text
    parsed = parse_answer(text, words)
    if alone and not parsed and (verdict := first_verdict(text, words)):
        parsed = verdict, ""
    return (text, *parsed, None) if parsed else (text, None, "", _fault(completion, text, prompt))


def _fault(completion: Completion, text: str, prompt: Prompt) -> Fault:
    """Why ``text``, which is no answer, is none."""
    if completion.finish == "filtered":
        return "filtered"
    if not completion.text.strip():
        return "thinking never closed" if completion.thinking else "empty"
    if len(prompt.user) >= ECHO and prompt.user in text:
        return "gives its prompt back"
    if completion.finish == "length":
        return "cut off"
    return "refuses" if _REFUSES.match(completion.text) else "not the two-line answer"


def check_readable(candidates: Sequence[Candidate], most: float, words: Words, key: str, loss: str) -> None:
    """Raise ``UnreadableError`` where a larger share than ``most`` of ``candidates`` cannot be read, and they are enough to
    tell. ``key`` is what sets the share, and ``loss`` what would come of them."""
    faulty = [candidate for candidate in candidates if candidate.fault]
    if len(candidates) < FEWEST or len(faulty) <= most * len(candidates):
        return
    ((fault, count),) = Counter(candidate.fault for candidate in faulty).most_common(1)
    example = next(candidate for candidate in faulty if candidate.fault == fault)
    said = shown(example.text or example.thinking, EXAMPLE)
    assert fault is not None  # they are faulty
    remedy = _BEGUN if words.begin and "prompt.prefill" in _REMEDIES[fault] else _REMEDIES[fault]
    raise UnreadableError(
        f"{len(faulty)} of the first {len(candidates)} answers cannot be read ({count} of them: {fault}), so {loss}. "
        f"One of them:\n  {said}\nWhat to do: {remedy}. Then begin anew (--fresh); {key} says how many may be unreadable"
    )


def find_cited_rule(reason: str) -> str:
    """The key of the rule that a reason names last, as the model is asked to do; empty if it names none, or the headline,
    which decides where no rule does."""
    key = next(reversed(_KEY.findall(reason)), "")
    return "" if key == HEADLINE_KEY else key
