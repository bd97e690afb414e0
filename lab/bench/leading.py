"""What rank 0 does by itself, timed in one process beside a model that answers at once: a bundle of reflection, a commit.

Everything here is made up but what is timed. Work is CPU seconds of this process (``time.process_time``): what other
programs do, and what the disk takes, is left out; times on the clock stand beside it.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stageb.engines.protocol import Completion, Decode, Prompt, Request
from stageb.guidance import learning
from stageb.guidance.config import GateConfig, LoopConfig, SplitConfig
from stageb.guidance.files.guidance_file import make_neutral
from stageb.guidance.gate.budget import budget_per_mission
from stageb.guidance.gate.pool import Pool
from stageb.guidance.groups import whole_groups
from stageb.guidance.learning import Tools
from stageb.guidance.prompts import WORDS, answer_text
from stageb.guidance.questions import JudgeTickets, Question, WriteReasons, answer_all
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.run import LOOK
from stageb.guidance.selection import select
from stageb.guidance.splits import split_tickets
from stageb.guidance.state import MissionState, State, mission_to_plain, to_plain
from stageb.guidance.types import Answers, Candidate, Judgement, Record, Ticket, Verdict
from stageb.seeds import stream, uniform
from stageb.store.commits import COMMIT, PARTS
from stageb.store.journal import Journal, safe_name

REASON = "the connector in the second image is seated but the label beside it cannot be read, so nobody can tell the rack"
APPENDED = ("trajectories", "selections", "metrics", "reflection", "manual_review_queue", "failure_malformed", "choice")
SAMPLES = 4
CASES = [f"T{number}" for number in range(1, 25)]  # reflection.max_cases of them
STATES = ("new", "worn", "torn")


@dataclass(frozen=True, slots=True)
class Took:
    """Something that was done several times."""

    clock_ms: float  # median
    cpu_ms: float  # median
    least_cpu_ms: float


def timed(act: Callable[[], object], repeats: int) -> Took:
    """``act``, so many times after a first time that does not count."""
    act()
    spans = []
    for _ in range(repeats):
        clock, cpu = time.perf_counter(), time.process_time()
        act()
        spans.append((1e3 * (time.perf_counter() - clock), 1e3 * (time.process_time() - cpu)))
    clocks, cpus = zip(*spans, strict=True)
    return Took(statistics.median(clocks), statistics.median(cpus), min(cpus))


# --- Made up -------------------------------------------------------------------------------------------------------------


def made(count: int, mission: str = "m") -> list[Ticket]:
    """Tickets that fail if their state is torn."""
    states = [STATES[int(uniform(stream(mission, n), 0) * len(STATES))] for n in range(count)]
    labels: list[Verdict] = ["fail" if state == "torn" else "pass" for state in states]
    return [
        Ticket(mission, f"g-{n}", label, (("image_1", f"part: hose {n % 7}"), ("image_2", f"state: {state}; colour: red")))
        for n, (label, state) in enumerate(zip(labels, states, strict=True))
    ]


def respond(prompt: Prompt, decode: Decode, key: int) -> str:
    """An answer of usual length to any ticket."""
    return answer_text("pass" if uniform(key, 0) < 0.9 else "fail", REASON, WORDS["en"])


def recorded(tickets: Sequence[Ticket]) -> tuple[Record, ...]:
    """The tickets, each answered with pass by all samples."""
    said = tuple(
        Candidate(k, 0, 0.7, answer_text("pass", REASON, WORDS["en"]), "pass", REASON, True, 24) for k in range(SAMPLES)
    )
    answers = [Answers(ticket.key, 500, said) for ticket in tickets]
    return tuple(
        Record(ticket, 1, 0, 0, given, select(ticket, given, 0.8)) for ticket, given in zip(tickets, answers, strict=True)
    )


class Proposer:
    """An engine that proposes at once: with every answer another rule, about all the cases that it is shown."""

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """See ``Engine``."""
        return [len(prompt.system) // 4 for prompt in prompts]

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """See ``Engine``."""
        texts = [f"Fail tickets whose state is torn, {number}." for number in range(len(requests))]
        operations = [{"op": "add", "text": text, "rationale": "seen", "evidence": CASES} for text in texts]
        return [(Completion(json.dumps({"operations": [one]}), 40, "stop"),) for one in operations]


def table(tickets: Sequence[Ticket], turned: float) -> Callable[[JudgeTickets], list[list[Judgement]]]:
    """How tickets are judged: all pass, but with an edit a share ``turned`` of those that should fail is judged rightly."""
    rightly = [ticket.label == "pass" for ticket in tickets]
    drawn = [uniform(stream("turned", n), 0) for n in range(len(tickets))]

    def judge(question: JudgeTickets) -> list[list[Judgement]]:
        return [
            [Judgement(float(rightly[i] or (len(guidance.rules) > 1 and drawn[i] < turned)), 500) for i in positions]
            for guidance, positions in question.asked
        ]

    return judge


# --- Timed ---------------------------------------------------------------------------------------------------------------


def bundle(count: int, turned: float, repeats: int) -> tuple[Took, int, bool]:
    """One bundle in a mission of ``count`` train tickets, from its records to the state after it, where the merits of race
    and pool are known from earlier ones; verdicts that it asked for; whether an edit was accepted. If so, what the next
    bundle teaches is studied too, as happens at once then."""
    config = LoopConfig(tickets=["made up"], split=SplitConfig(1.0, 0.0, 0.0))
    assert config.gate != "none"
    tickets = made(count)
    splits = split_tickets(tickets, config)["m"]
    pool = Pool(whole_groups(splits.tested, tickets), config.gate.pool_size)
    proposer, judge = Proposer(), table(tickets, turned)

    def answer(question: Question) -> Sequence[Any]:
        assert not isinstance(question, WriteReasons)  # a bundle asks for none
        return judge(question) if isinstance(question, JudgeTickets) else proposer.generate(question.requests)

    vocabulary = Vocabulary.of(tickets)
    tools = Tools(config, tickets, splits, pool, vocabulary, proposer.count_tokens, look=LOOK)
    records = recorded([tickets[i] for i in splits.studied[: config.reflection.batch_size]])
    known = (*splits.raced, *splits.tested[: 2 * config.gate.pool_size])
    merits = {tickets[i].key: float(tickets[i].label == "pass") for i in known}
    start = MissionState(make_neutral("m", WORDS["en"]), budget_per_mission(GateConfig(), 1), pending=records, merits=merits)
    judged, accepted = 0, False

    def once() -> None:
        nonlocal judged, accepted
        mission, (studied,) = answer_all(learning.draw_bundles(start, tools), answer)
        (answered,) = answer_all(learning.reflect_on([studied], mission.guidance, tools), answer)
        learnt = answer_all(learning.gate_edits(mission, studied, answered.proposals, tools), answer)
        judged, accepted = studied.asked + learnt.verdicts.judged, learnt.decision.winner is not None
        mission = learning.apply_result(mission, learnt, tools)
        if accepted:
            _, (following,) = answer_all(learning.draw_bundles(mission, tools), answer)
            judged += following.asked

    return timed(once, repeats), judged, accepted


def commit(folder: Path, missions: int, pending: int, repeats: int) -> tuple[Took, int, int]:
    """A commit of so many missions with so many pending records each, of which one mission has changed; the bytes of
    commit.json, and of the mission's part."""
    records = recorded(made(pending))
    names = [f"mission {n}" for n in range(missions)]
    state = State({name: MissionState(make_neutral(name, WORDS["en"]), pending=records) for name in names})
    with Journal.open(folder, f"run-{missions}-{pending}", {"made": "up"}) as journal:
        for name in names:
            for file in APPENDED:
                journal.append(f"{safe_name(name)}/{file}.jsonl", [{"mission": name}])
        journal.commit(to_plain(state), {name: mission_to_plain(each) for name, each in state.missions.items()})
        file = f"{safe_name(names[0])}/{APPENDED[0]}.jsonl"

        def once() -> None:
            journal.append(file, [{"mission": names[0]}])
            journal.commit(to_plain(state), {names[0]: mission_to_plain(state.missions[names[0]])})

        took = timed(once, repeats)
        part = next((journal.folder / PARTS).glob(f"{safe_name(names[0])}-*"))
        return took, (journal.folder / COMMIT).stat().st_size, part.stat().st_size
