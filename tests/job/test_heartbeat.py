"""What a process says that it is at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stageb.job import heartbeat
from stageb.job.heartbeat import Heartbeat


@pytest.fixture
def heard() -> Iterator[list[Heartbeat]]:
    """What a listener is told; afterwards this process is at what it was at before."""
    before, told = heartbeat.now(), list[Heartbeat]()
    heartbeat.listen(told.append)
    yield told
    heartbeat.listen(None)
    heartbeat.name(before.label)


def test_work_and_waits_are_told_and_end_where_they_began(heard: list[Heartbeat]) -> None:
    heartbeat.name("leading")
    with heartbeat.at("judge item 3"), heartbeat.at("gather", "waiting"):
        assert (heartbeat.now().label, heartbeat.now().kind) == ("gather", "waiting")
    told = [(each.label, each.kind) for each in heard]
    work, wait = ("judge item 3", "working"), ("gather", "waiting")
    assert told == [("leading", "quiet"), work, wait, work, ("leading", "quiet")]


def test_what_is_raised_passes_and_ends_the_work(heard: list[Heartbeat]) -> None:
    heartbeat.name("leading")
    with pytest.raises(KeyError), heartbeat.at("judge item 3"):
        raise KeyError
    assert (heard[-1].label, heard[-1].kind) == ("leading", "quiet")


def test_every_sign_of_life_makes_another_heartbeat(heard: list[Heartbeat]) -> None:
    """Two pieces of work with one label are told apart, and so is work that only ticks."""
    seen = [heartbeat.now()]
    with heartbeat.at("rollout group 3"):
        seen.append(heartbeat.now())
        heartbeat.tick()
        seen.append(heartbeat.now())
    with heartbeat.at("rollout group 3"):
        seen.append(heartbeat.now())
    assert len({each.count for each in seen}) == 4
    assert [each.count for each in seen] == sorted(each.count for each in seen)
    assert len(heard) == 4, "a tick is looked at by whoever looks, and costs the worker no message"
