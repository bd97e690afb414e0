from dataclasses import replace
from typing import Any

import pytest

from lab.bench.workloads import (
    CHAT_VARIABLES,
    WORKLOADS,
    Workload,
    prompts_of,
    requests_of,
    tokenizer_of,
)
from stageb.engines.chat import Chat
from stageb.errors import ConfigError

SMALL = WORKLOADS["small"]


def test_made_prompts_have_the_lengths_asked_for() -> None:
    chat = Chat(tokenizer_of(SMALL), CHAT_VARIABLES)
    encoded = [chat.encode(prompt) for prompt in prompts_of(SMALL)]
    assert {(len(shared), len(own)) for shared, own in encoded} == {
        (SMALL.shared_tokens, SMALL.own_tokens)
    }
    assert len({shared for shared, _ in encoded}) == 1
    assert len({own for _, own in encoded}) == SMALL.tickets


def test_requests_name_every_sample_anew() -> None:
    prompts = prompts_of(SMALL)
    sampled = requests_of(SMALL, prompts, range(SMALL.tickets), greedy=False)
    keys = [key for request in sampled for key in request.keys]
    assert len(set(keys)) == SMALL.tickets * SMALL.samples
    assert requests_of(SMALL, prompts, [3], greedy=False) == [sampled[3]]
    assert all(
        len(one.keys) == 1 and one.decode.temperature == 0
        for one in requests_of(SMALL, prompts, [1], greedy=True)
    )


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"tickets": 0}, "--tickets"),
        ({"model": "stageb-tiny"}, "--model"),
        ({"own_tokens": 0}, "--own-tokens"),
    ],
)
def test_bad_workloads(change: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        replace(SMALL, **change)


def test_more_tickets_than_the_demo_has() -> None:
    many = Workload(
        "stageb-tiny", "demo", tickets=10**6, samples=1, new_tokens=1, temperature=1.0, batch=1
    )
    with pytest.raises(ConfigError, match=r"--tickets.*the demo has"):
        prompts_of(many)
