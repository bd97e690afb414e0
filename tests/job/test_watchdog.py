"""The watchdog over real sockets between forked processes: who is told to be lost, and how a job
ends in good order.

Whole jobs under every launcher are in ``test_failures.py``.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from programs.processes import child

from stageb.errors import ConfigError, RankError
from stageb.job import heartbeat, meeting
from stageb.job.meeting import Address
from stageb.job.watchdog import Watchdog

TIMEOUT_S, LOAD_TIMEOUT_S = 1.0, 4.0
FOREVER_S = 60.0
# what a rank does once all have met; it ends in good order where this returns
Act = Callable[[int, Watchdog], None]


def job(
    folder: Path, world_size: int, act: Act, meddle: Callable[[Address], None] | None = None
) -> tuple[list[int], str]:
    """Each rank's exit code, as shells see it, and what was said. ``meddle`` goes to rank 0's door
    before any rank."""
    said = folder / "err"
    said.write_text("")
    first = Watchdog(0, world_size, TIMEOUT_S, LOAD_TIMEOUT_S)
    address = first.listen("127.0.0.1")

    def on_rank(rank: int) -> None:
        os.dup2(os.open(said, os.O_WRONLY | os.O_APPEND), 2)
        dog = first if rank == 0 else Watchdog(rank, world_size, TIMEOUT_S, LOAD_TIMEOUT_S)
        dog.meet(address)
        act(rank, dog)
        dog.close()

    if meddle:
        meddle(address)
    ranks = [child(lambda rank=rank: on_rank(rank)) for rank in range(world_size)]  # type: ignore[misc]
    assert first._server is not None
    first._server.close()
    watch = threading.Timer(FOREVER_S / 2, kill, [ranks])
    watch.start()
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
    watch.cancel()
    return [128 - code if code < 0 else code for code in codes], said.read_text()


def kill(processes: list[int]) -> None:
    for process in processes:
        os.kill(process, signal.SIGKILL)


def ends_with(tmp_path: Path, act: Act, message: str, world_size: int = 2) -> list[int]:
    """Whether a job says ``message`` once and nothing else; its ranks' codes."""
    began = time.monotonic()
    codes, said = job(tmp_path, world_size, act)
    assert said == f"{message}\n"
    assert time.monotonic() - began < FOREVER_S / 2
    return codes


def sleep(rank: int = -1, dog: Watchdog | None = None) -> None:
    time.sleep(FOREVER_S)


def work(label: str) -> None:
    with heartbeat.at(label):
        sleep()


def wait(label: str) -> None:
    with heartbeat.at(label, "waiting"):
        sleep()


# --- Good order -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_bye_never_looks_like_a_loss(tmp_path: Path) -> None:
    """Whichever rank comes to its end first, and however close together."""

    def act(rank: int, dog: Watchdog) -> None:
        with heartbeat.at("parting"):
            time.sleep(random.Random(10 * turn + rank).choice([0.0, 0.0, 0.001, 0.01, 0.1]))

    for turn in range(20):
        assert job(tmp_path, 3, act) == ([0, 0, 0], ""), turn


def test_signs_of_life_and_waits_for_the_busy_are_no_failure(tmp_path: Path) -> None:
    """For three times the timeout: work that ticks on rank 1, rank 2 waits for it, rank 0 is at
    quiet work."""

    def act(rank: int, dog: Watchdog) -> None:
        if rank == 0:
            time.sleep(3 * TIMEOUT_S)
        elif rank == 1:
            with heartbeat.at("asking the server"):
                for _ in range(30):
                    time.sleep(0.1 * TIMEOUT_S)
                    heartbeat.tick()
        else:
            with heartbeat.at("gather", "waiting"):
                time.sleep(3 * TIMEOUT_S)

    assert job(tmp_path, 3, act) == ([0, 0, 0], "")


def test_a_rank_may_be_done_long_before_the_others(tmp_path: Path) -> None:
    assert job(tmp_path, 3, lambda rank, dog: time.sleep(2 * TIMEOUT_S * (rank == 0))) == (
        [0, 0, 0],
        "",
    )


# --- Meeting --------------------------------------------------------------------------------------

RANDOM = random.Random(5).randbytes
STRANGERS = {
    "another word": b'[1, "here", 12, "nonce"]\nguess\n',
    "no JSON": b"GET / HTTP/1.1\r\n\r\n",
    "no list": b'{"a": 1}\n[]\n',
    "deeply nested": b"[" * 900 + b"\n" + b"[" * 900 + b"\n",
    "too long": b"x" * 20_000,
    "a frame of Connection": b"\0\0\0\1x",
    "two bytes": b"ab",
    "nothing at all": b"",
    "random bytes": RANDOM(5000),
    "many lines": b"\n" * 5000,
}


@pytest.mark.parametrize("message", STRANGERS.values(), ids=STRANGERS)
@pytest.mark.parametrize("stays", [True, False], ids=["stays", "leaves"])
def test_a_stranger_delays_nobody(tmp_path: Path, message: bytes, stays: bool) -> None:
    """Whatever it says, and whether it hangs up or holds on without a word."""
    strangers = []

    def meddle(address: Address) -> None:
        stranger = socket.create_connection(address[:2])
        stranger.sendall(message)
        if stays:
            strangers.append(stranger)
        else:
            stranger.close()

    began = time.monotonic()
    assert job(tmp_path, 2, lambda rank, dog: None, meddle) == ([0, 0], "")
    assert time.monotonic() - began < 4.0, "a stranger may stay for 5 s"


def test_a_flood_of_strangers_does_not_keep_ranks_apart(tmp_path: Path) -> None:
    """Some hold more connections than rank 0 may have open, others call as fast as they can and say
    what comes to mind."""
    pests = []

    def meddle(address: Address) -> None:
        def hold() -> None:
            held = []
            while True:
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(address[:2], 1.0))
                    held[-1].sendall(b"[")
                    held = held[-300:]

        def throw() -> None:
            draw = random.Random(os.getpid())
            while True:
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(address[:2], 1.0) as stranger,
                ):
                    stranger.sendall(
                        draw.choice([*STRANGERS.values(), draw.randbytes(draw.randrange(2000))])
                    )

        pests.extend([child(hold), child(hold), child(hold), child(throw)])
        time.sleep(1.0)

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, limits[1]))
    try:
        assert job(tmp_path, 4, lambda rank, dog: None, meddle) == ([0, 0, 0, 0], "")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for pest in pests:
            os.kill(pest, signal.SIGKILL)
            os.waitpid(pest, 0)


def test_a_rank_does_not_follow_who_only_stands_at_rank_0s_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever listens there must prove that it knows the word; to give back what the rank sends
    proves nothing."""
    monkeypatch.setattr(meeting, "MEET_S", 1.0)
    heard = []

    def echo(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = listener.accept()
                caller.settimeout(0.2)
                with contextlib.suppress(OSError):
                    while data := caller.recv(4096):
                        heard.append(data)
                        caller.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=echo, args=(listener,), daemon=True).start()
        with pytest.raises(RankError, match="rank 1 failed at launch: the ranks could not connect"):
            Watchdog(1, 2, TIMEOUT_S, LOAD_TIMEOUT_S).meet(
                ("127.0.0.1", listener.getsockname()[1], "the word")
            )
    assert heard and b"the word" not in b"".join(heard)


def test_who_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "MEET_S", 0.3)
    dog = Watchdog(0, 3, TIMEOUT_S, LOAD_TIMEOUT_S)
    with pytest.raises(
        RankError,
        match=r"rank 0 failed at launch: the ranks could not connect: rank 1, rank 2 did not",
    ):
        dog.meet(dog.listen("127.0.0.1"))


def test_rank_0_listens_where_the_others_reach_it_and_nowhere_else() -> None:
    def open_at(host: str) -> str:
        dog = Watchdog(0, 2, TIMEOUT_S, LOAD_TIMEOUT_S)
        dog.listen(host)
        assert dog._server is not None
        with dog._server as server:
            return str(server.getsockname()[0])

    mine = open_at("192.0.2.1")  # of no machine, as an address that a router translates
    assert mine not in ("0.0.0.0", "192.0.2.1")
    assert open_at(mine) == mine
    assert open_at("127.0.0.1") == "127.0.0.1"


# --- What ranks send ------------------------------------------------------------------------------

UNREADABLE = {
    "no JSON": b"heartbeat\n",
    "no message": b"[]\n",
    "another shape": b'["heartbeat", {"label": 1}]\n',
    "a kind that is none": b'["heartbeat", {"label": "a", "kind": "b", "count": 1}]\n',
    "an error of another shape": b'["error", 7, 8]\n',
    "deeply nested": b"[" * 100_000 + b"\n",
    "not UTF-8": b"\xff\xfe\n",
}


@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_ends_the_job_with_a_clear_error(tmp_path: Path, line: bytes) -> None:
    def act(rank: int, dog: Watchdog) -> None:
        if rank == 1:
            dog._peers[0].channel.connection.sendall(line)
        sleep()

    codes, said = job(tmp_path, 2, act)
    assert (
        said.startswith("rank 1 failed at start: it sent a message that cannot be read: ")
        and said.count("\n") == 1
    )
    assert len(said) < 300
    assert codes == [1, 1]


def test_a_message_without_end_is_not_taken_in(tmp_path: Path) -> None:
    def act(rank: int, dog: Watchdog) -> None:
        if rank == 1:
            # no sign of life in between, which would end a line
            with contextlib.suppress(OSError), dog._peers[0].lock:
                while True:
                    dog._peers[0].channel.connection.sendall(b"x" * 100_000)
        sleep()

    ends_with(
        tmp_path,
        act,
        "rank 1 failed at start: it sent a message that cannot be read: a message longer than "
        "2000000 bytes",
    )


def test_half_a_message_is_silence(tmp_path: Path) -> None:
    def act(rank: int, dog: Watchdog) -> None:
        if rank == 1:
            with dog._peers[0].lock:  # so nothing else is sent
                dog._peers[0].channel.connection.sendall(b'["pul')
                sleep()
        sleep()

    assert ends_with(
        tmp_path, act, f"rank 1 failed at start: no sign of life for {TIMEOUT_S:g} s"
    ) == [1, 137]


def test_an_error_of_any_length_is_told(tmp_path: Path) -> None:
    """A traceback of a deep recursion, a message that holds a whole batch."""

    def act(rank: int, dog: Watchdog) -> None:
        if rank == 1:
            dog.fail(
                RankError(
                    1,
                    "ticket 7",
                    "\U0001f600" * 1_000_000,
                    "Traceback\n" + "x" * 3_000_000 + "\nthe end\n",
                )
            )
        sleep()

    codes, said = job(tmp_path, 2, act)
    assert codes == [1, 1]
    assert "\nthe end\nrank 1 failed at ticket 7: \U0001f600" in said


# --- Bad order ------------------------------------------------------------------------------------


def test_an_error_is_said_by_rank_0(tmp_path: Path) -> None:
    def act(rank: int, dog: Watchdog) -> None:
        if rank == 2:
            dog.fail(RankError(2, "ticket 7", "out of memory"))
        sleep()

    assert ends_with(tmp_path, act, "rank 2 failed at ticket 7: out of memory", 3) == [1, 1, 1]


@pytest.mark.parametrize("rank_0_too", [True, False])
def test_bad_input_is_said_by_rank_0_in_its_own_words_if_it_has_them(
    tmp_path: Path, rank_0_too: bool
) -> None:
    error = ConfigError("seed", "x", "a whole number")

    def act(rank: int, dog: Watchdog) -> None:
        heartbeat.name("reading")
        if rank == 1:
            dog.fail(error)
        time.sleep(0.7 * TIMEOUT_S)
        if rank_0_too:
            dog.fail(error)
        wait("gather")

    said = str(error) if rank_0_too else f"rank 1 failed at reading: {error}"
    assert ends_with(tmp_path, act, said) == [2 if rank_0_too else 1] * 2


def test_a_closed_connection(tmp_path: Path) -> None:
    def act(rank: int, dog: Watchdog) -> None:
        heartbeat.name("square item 3")
        time.sleep(0.3)
        if rank == 1:
            os._exit(0)
        sleep()

    assert ends_with(tmp_path, act, "rank 1 failed at square item 3: its connection closed", 3) == [
        1,
        0,
        1,
    ]


def test_silence(tmp_path: Path) -> None:
    def act(rank: int, dog: Watchdog) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        sleep()

    assert ends_with(
        tmp_path, act, f"rank 1 failed at start: no sign of life for {TIMEOUT_S:g} s", 3
    ) == [1, 137, 1]


@pytest.mark.parametrize("rank", [0, 1])
def test_no_progress(tmp_path: Path, rank: int) -> None:
    def act(mine: int, dog: Watchdog) -> None:
        work("rollout group 3") if mine == rank else wait("gather")

    cause = f"no progress for {TIMEOUT_S:g} s (fabric.timeout_s): considered hung"
    assert ends_with(tmp_path, act, f"rank {rank} failed at rollout group 3: {cause}") == [1, 1]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_hang_in_quiet_work(tmp_path: Path, rank: int) -> None:
    """Such as loading, or rank 0's own between two maps; it may take longer than work that shows
    signs of life."""

    def act(mine: int, dog: Watchdog) -> None:
        if mine == rank:
            heartbeat.name("loading the model")
            sleep()
        wait("gather")

    cause = (
        f"no sign of life and no disk traffic for {LOAD_TIMEOUT_S:g} s "
        f"(fabric.load_timeout_s): considered hung"
    )
    assert ends_with(tmp_path, act, f"rank {rank} failed at loading the model: {cause}") == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_slow_disk_is_no_hang(tmp_path: Path, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(mine: int, dog: Watchdog) -> None:
        if mine == rank:
            monkeypatch.setattr(heartbeat, "disk_traffic", time.monotonic_ns)
            time.sleep(1.5 * LOAD_TIMEOUT_S)
        else:
            with heartbeat.at("gather", "waiting"):
                time.sleep(1.5 * LOAD_TIMEOUT_S)

    assert job(tmp_path, 2, act) == ([0, 0], "")


def test_ranks_that_are_stuck_at_one_place_are_all_named(tmp_path: Path) -> None:
    """One of them may hold up the others: nobody can tell which."""

    def act(rank: int, dog: Watchdog) -> None:
        wait("gather") if rank == 1 else work("parting")

    codes, said = job(tmp_path, 3, act)
    cause = f"no progress for {TIMEOUT_S:g} s (fabric.timeout_s): considered hung"
    first_to_come = ((0, 2), (2, 0))
    assert said in [
        f"rank {rank} failed at parting: {cause}; rank {other} is there too\n"
        for rank, other in first_to_come
    ]
    assert codes == [1, 1, 1]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_does_not_come_to_its_end_after_the_others(tmp_path: Path, rank: int) -> None:
    """The others are in ``close`` already."""

    def act(mine: int, dog: Watchdog) -> None:
        if mine == rank:
            work("parting")

    cause = f"no progress for {TIMEOUT_S:g} s (fabric.timeout_s): considered hung"
    assert ends_with(tmp_path, act, f"rank {rank} failed at parting: {cause}") == [1, 1]


def test_ranks_that_all_wait_never_meet(tmp_path: Path) -> None:
    said = (
        "every rank waits for the others: rank 1 at gather; rank 2 at broadcast; they ran "
        "different code"
    )
    codes = ends_with(
        tmp_path,
        lambda rank, dog: wait("gather" if rank == 1 else "broadcast"),
        f"rank 0 failed at broadcast: {said}",
        3,
    )
    assert codes == [1, 1, 1]


@pytest.mark.parametrize(
    ("mishap", "why"),
    [(os._exit, "its connection closed"), (os.kill, f"no sign of life for {1.5 * TIMEOUT_S:g} s")],
    ids=["gone", "stopped"],
)
def test_rank_1_speaks_where_rank_0_is_lost(
    tmp_path: Path, mishap: Callable[..., None], why: str
) -> None:
    def act(rank: int, dog: Watchdog) -> None:
        time.sleep(0.3)
        if rank == 0:
            mishap(0) if mishap is os._exit else mishap(os.getpid(), signal.SIGSTOP)
        sleep()

    codes = ends_with(tmp_path, act, f"rank 0 failed at leading: {why}, as rank 1 sees it", 3)
    assert codes[1:] == [1, 1]
