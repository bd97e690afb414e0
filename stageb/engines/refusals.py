"""A server's words about a request that it will not answer: what to leave out of the next one, and what a person can do.

Servers that speak OpenAI's chat completions differ most in the fields that they take. What they say has no common form, so
it is searched for the names of fields beside words of refusal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

CONTINUE = {"add_generation_prompt": False, "continue_final_message": True}  # vLLM's words, and SGLang's
SYSTEM = "system"  # no field, but a role that some servers do not take
WARMTH = "a temperature other than 1"
DROPPABLE = (  # of two that a server names it can do without the first
    "continue_final_message add_generation_prompt chat_template_kwargs repetition_penalty top_k top_p temperature seed stop "
    "max_tokens max_completion_tokens"
).split()
REDIRECTS = (301, 302, 303, 307, 308)
LIMITED = 429
UNFIT = (400, 422)  # the server does not take the request as it is
_REFUSES = re.compile(
    r"unsupported|not (be )?support|not allow|not permit|forbidden|unrecogni[sz]ed|unknown|unexpected|extra|cannot both|"
    r"only one|only the default|must alternate|deprecated",
    re.IGNORECASE,
)
_SYSTEM_ROLE = re.compile(r"\brole.*\bsystem\b|\bsystem\b.*\brole|roles must alternate", re.IGNORECASE | re.DOTALL)
_FILTERED = re.compile("content_filter|content management policy|content_policy|data_inspection_failed", re.IGNORECASE)
_TOO_LONG = re.compile("context (length|window|size)|maximum context|prompt is too long", re.IGNORECASE)
_NO_QUOTA = re.compile("insufficient_quota|exceeded your current quota", re.IGNORECASE)

UP = "see that the server is up, and not overloaded"
SLOW = "raise model.timeout_s, or lower model.concurrency"
OTHER = "see that the server is up, and speaks OpenAI's chat completions at model.base_url, which usually ends in /v1"
_REMEDIES = {
    400: "take out of the config what this server does not know (model.chat_template_kwargs: {} is one to try)",
    401: "name the environment variable that holds the right key in model.api_key_env",
    403: "name the environment variable that holds the right key in model.api_key_env",
    404: "look at model.base_url, which usually ends in /v1, and at model.model_name_or_path",
    LIMITED: "lower model.concurrency, or have the limit raised",
}


def find_refused(said: str, body: Mapping[str, Any]) -> frozenset[str]:
    """What of ``body`` the server can be asked without, by its words; where these name nothing, going on from a beginning.
    Empty where there is nothing to leave out."""
    if _TOO_LONG.search(said) or is_filtered(said):
        return frozenset()
    named = [name for name in DROPPABLE if name in body and re.search(rf"(?<!\w){name}(?!\w)", said)]
    if _REFUSES.search(said) and named and named[0] not in CONTINUE:
        may_be_1 = named[0] == "temperature" and body["temperature"] != 1 and "default (1)" in said
        return frozenset({WARMTH} if may_be_1 else named[:1])
    if _REFUSES.search(said) and body["messages"][0]["role"] == "system" and _SYSTEM_ROLE.search(said):
        return frozenset({SYSTEM})
    return frozenset(CONTINUE) & body.keys()


def is_filtered(said: str) -> bool:
    """Whether a content filter refuses what was asked."""
    return _FILTERED.search(said) is not None


def find_remedy(status: int, said: str) -> str:
    """What to do about an HTTP status that ``said`` comes with."""
    if status == LIMITED and has_no_quota(said):
        return "the quota of the key's account is used up: see to that with the provider"
    if status in UNFIT and _TOO_LONG.search(said):
        return "lower sampler.max_prompt_tokens or the max_new_tokens asked for, or serve the model with more context"
    return _REMEDIES.get(status, "look at what the server says")


def has_no_quota(said: str) -> bool:
    """Whether an account is used up, which no pause mends."""
    return _NO_QUOTA.search(said) is not None
