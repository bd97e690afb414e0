"""Three synthetic missions whose labels follow hidden rules, each of another kind. The same tickets
on every machine.

``plain``: single conditions. ``exceptions``: conjunctions, and a rule that passes tickets which
others would fail. ``notes``: words in free text, with a tenth of the labels wrong. Their words are
none that the shipped model was trained on (``lab.tiny.words.english`` keeps a tenth of English
apart, by hash).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stageb.guidance.words.types import Ticket
from stageb.seeds import bits, stream, uniform

TICKETS = 1200  # per mission
FLIPPED = 0.1  # share of wrong labels in notes

Facts = Mapping[str, str]

VALUES: Mapping[str, str] = {  # attribute -> values, each as common as it is repeated
    "rivet": "pewter pewter nickel nickel zinc zinc cobalt",
    "awning": "amber amber walnut lilac lilac",
    "hopper": "wet wet stiff stiff taut",
    "stamp": "star star moss jib jib",
    "storage": "packed packed packed empty empty empty stale",
    "chain": "external intermediate intermediate leftmost leftmost",
    "covers": "weak weak weak secure broken",
    "trim": "ribbed embedded floating",
}
FILLER = (
    "building bottom center shape holding behind left pressing stay willow feather walnut "
    "harbour awning hopper cornice finial sluice steps covers trim city copy"
).split()
# word -> how often
FINDINGS: Mapping[str, float] = {"seepage": 0.12, "lichen": 0.12, "icicle": 0.09, "peel": 0.09}


class Draws:
    """The random numbers of one ticket, in order."""

    def __init__(self, *names: str | int) -> None:
        self._key = stream("bench mission", *names)
        self._position = -1

    def chance(self) -> float:
        """A uniform number in [0, 1)."""
        self._position += 1
        return uniform(self._key, self._position)

    def pick(self, options: Sequence[str]) -> str:
        """One of the options."""
        self._position += 1
        return options[bits(self._key, self._position) % len(options)]


def attributes(draws: Draws) -> dict[str, str]:
    """A value for every attribute."""
    return {name: draws.pick(values.split()) for name, values in VALUES.items()}


def described(facts: Facts) -> list[str]:
    """The attributes as two summaries."""
    shown = [f"{name}: {value}" for name, value in facts.items()]
    return ["; ".join(shown[:4]), "; ".join(shown[4:])]


def plain_fails(facts: Facts) -> bool:
    """The hidden rules of ``plain``."""
    return (
        facts["rivet"] == "cobalt"
        or facts["hopper"] == "taut"
        or facts["storage"] == "stale"
        or facts["covers"] == "broken"
    )


def exceptions_fails(facts: Facts) -> bool:
    """The hidden rules of ``exceptions``: the last one wins over the others."""
    fails = (
        (facts["awning"] == "lilac" and facts["hopper"] == "stiff")
        or (facts["stamp"] == "star" and facts["rivet"] == "zinc")
        or facts["chain"] == "external"
    )
    return fails and facts["covers"] != "secure"


def noted(draws: Draws) -> dict[str, str]:
    """Two attributes and a free text, in which findings stand among harmless words."""
    words = [draws.pick(FILLER) for _ in range(5)]
    for finding, chance in FINDINGS.items():
        if draws.chance() < chance:
            words.insert(int(draws.chance() * (len(words) + 1)), finding)
    return {name: draws.pick(VALUES[name].split()) for name in ("rivet", "chain")} | {
        "text": " ".join(words)
    }


def notes_described(facts: Facts) -> list[str]:
    """The attributes as one summary, the text as another."""
    return [f"rivet: {facts['rivet']}; chain: {facts['chain']}", facts["text"]]


def notes_fails(facts: Facts) -> bool:
    """The hidden rules of ``notes``, before labels are flipped."""
    return facts["rivet"] == "cobalt" or any(word in FINDINGS for word in facts["text"].split())


@dataclass(frozen=True, slots=True)
class Mission:
    """A synthetic mission."""

    title: str  # its name in tickets
    draw: Callable[[Draws], Facts]  # one ticket's facts
    describe: Callable[[Facts], list[str]]  # its summaries
    fails: Callable[[Facts], bool]  # the hidden rules
    flipped: float = 0.0  # share of labels that say the opposite


MISSIONS: Mapping[str, Mission] = {
    "plain": Mission("fuse isolator", attributes, described, plain_fails),
    "exceptions": Mission("curlew sluice", attributes, described, exceptions_fails),
    "notes": Mission("harbour building", noted, notes_described, notes_fails, FLIPPED),
}


def tickets(name: str) -> list[Ticket]:
    """The tickets of a synthetic mission."""
    mission = MISSIONS[name]
    made = []
    for number in range(TICKETS):
        draws = Draws(name, number)
        facts = mission.draw(draws)
        fails = mission.fails(facts) != (draws.chance() < mission.flipped)
        images = tuple(
            (f"image_{n}", summary) for n, summary in enumerate(mission.describe(facts), 1)
        )
        made.append(
            Ticket(mission.title, f"{name}-{number:04d}", "fail" if fails else "pass", images)
        )
    return made
