"""Functions that answer in a language model's place, for configs to name:
``programs.models:slow``."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from stageb.engines.protocol import Decode, Prompt
from stageb.guidance.judging.follower import respond

ANSWER_S = 0.02
HASTE = {"ANSWER_S": "0"}  # an environment in which ``slow`` is not
Respond = Callable[[Prompt, Decode, int], str]


def slow(prompt: Prompt, decode: Decode, key: int) -> str:
    """The follower's answer, after a while."""
    time.sleep(float(os.environ.get("ANSWER_S", ANSWER_S)))
    return respond(prompt, decode, key)


def stuck(prompt: Prompt, decode: Decode, key: int) -> str:
    """No answer for as long as a test can take."""
    print("stuck", file=sys.stderr, flush=True)
    time.sleep(1000.0)
    return respond(prompt, decode, key)


def deep(prompt: Prompt, decode: Decode, key: int) -> str:
    """No answer, from deep inside a library that looks at no signal."""
    print("deep", file=sys.stderr, flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
    return respond(prompt, decode, key)


def _raising(rank: int) -> Respond:
    def raising(prompt: Prompt, decode: Decode, key: int) -> str:
        if "\nG1. " in prompt.system and int(os.environ.get("LOCAL_RANK", "0")) == rank:
            raise ValueError("the lamp went out")
        return respond(prompt, decode, key)

    return raising


raising_on_0, raising_on_1, raising_on_2 = map(_raising, range(3))
"""The follower's answers; that rank raises once there is a learnt rule to judge by."""


def naming_last(prompt: Prompt, decode: Decode, key: int) -> str:
    """The follower's answer, with the rule at the end of the reason."""
    return re.sub(r"Reason: (G\d+): (.*)", r"Reason: \2 (\1)", respond(prompt, decode, key))


def idle(prompt: Prompt, decode: Decode, key: int) -> str:
    """Passes everything."""
    return "Verdict: pass\nReason: G0: fine"


def seeing(prompt: Prompt, decode: Decode, key: int) -> str:
    """Summarizes an image by its colour; judges images as if their summaries stood there too."""
    seen = [_seen(path) for path in prompt.images]
    if prompt.system.startswith("You look at images"):
        return f"{seen[0]}\nand nothing else"
    said = [f"image_{place}: {state}" for place, state in enumerate(seen, 1)]
    return respond(replace(prompt, user="\n".join([prompt.user, *said])), decode, key)


@cache
def _seen(path: str) -> str:
    from PIL import Image

    with Image.open(path) as image:
        red, green, _ = image.convert("RGB").tobytes()[:3]
    return f"state: {'torn' if red > 128 else 'new' if green > 128 else 'worn'}"
