"""What a process says that it is at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stageb import pulse
from stageb.pulse import Pulse


@pytest.fixture
def heard() -> Iterator[list[Pulse]]:
    """What a listener is told; afterwards this process is at what it was at before."""
    before, told = pulse.now(), list[Pulse]()
    pulse.listen(told.append)
    yield told
    pulse.listen(None)
    pulse.name(before.label)


def test_work_and_waits_are_told_and_end_where_they_began(heard: list[Pulse]) -> None:
    pulse.name("leading")
    with pulse.at("judge item 3"), pulse.at("gather", "waiting"):
        assert (pulse.now().label, pulse.now().kind) == ("gather", "waiting")
    told = [(each.label, each.kind) for each in heard]
    work, wait = ("judge item 3", "working"), ("gather", "waiting")
    assert told == [("leading", "quiet"), work, wait, work, ("leading", "quiet")]


def test_what_is_raised_passes_and_ends_the_work(heard: list[Pulse]) -> None:
    pulse.name("leading")
    with pytest.raises(KeyError), pulse.at("judge item 3"):
        raise KeyError
    assert (heard[-1].label, heard[-1].kind) == ("leading", "quiet")


def test_every_sign_of_life_makes_another_pulse(heard: list[Pulse]) -> None:
    """Two pieces of work with one label are told apart, and so is work that only ticks."""
    seen = [pulse.now()]
    with pulse.at("rollout group 3"):
        seen.append(pulse.now())
        pulse.tick()
        seen.append(pulse.now())
    with pulse.at("rollout group 3"):
        seen.append(pulse.now())
    assert len({each.count for each in seen}) == 4
    assert [each.count for each in seen] == sorted(each.count for each in seen)
    assert len(heard) == 4, "a tick is looked at by whoever looks, and costs the worker no message"
