"""The tickets that are decided alone, and the promise about them; part of a guidance, as its
calibration is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import inf
from typing import Any

from stageb.guidance.words.labels import Verdict

MODEL = "model"  # the decider of a verdict that a model gave
STAGEB, PERSON = "stageb", "person"  # who decides a ticket


@dataclass(frozen=True, slots=True)
class Bound:
    """That of the verdicts decided alone at most a share is wrong."""

    verdict: Verdict  # of which it holds; empty: of all together
    max_error: float  # that share
    # decider -> the margin from which on it decides alone: a rule's key, ``MODEL``, whose margin is
    # how probable it holds its verdict, or how many of its answers agree
    least: Mapping[str, float] = field(hash=False)
    tickets: int  # with this verdict, of those that tested the bound
    decided: int  # of these, decided alone
    wrong: int  # of these, wrong

    @property
    def name(self) -> str:
        """Of what it holds, in words."""
        return f"those judged {self.verdict}" if self.verdict else "these"

    def covers(self, verdict: Verdict | None, decider: str, margin: float) -> bool:
        """Whether such a verdict is decided alone under it."""
        return (
            verdict is not None
            and self.verdict in ("", verdict)
            and margin >= self.least.get(decider, inf)
        )


@dataclass(frozen=True, slots=True)
class Automation:
    """The bounds of one guidance, which hold together with a stated confidence."""

    confidence: float
    # a short name for what the guidance says that they hold of; they tell nothing of another one
    guidance: str
    by: str  # who judges: rules, both, weighed or model
    asked: str  # a short name for how a model is asked; empty where none decides alone
    tickets: int  # that tested the bounds
    # fields that rules name and each of the pilot's tickets told: who lacks one is for a person,
    # since nothing was known of such tickets
    told: tuple[str, ...]
    # one of all verdicts, or one for each verdict that may be decided alone
    bounds: tuple[Bound, ...]

    @classmethod
    def parse(cls, plain: Any, labels: Sequence[Verdict]) -> Automation | None:
        """Read what ``to_plain`` wrote for a mission of these ``labels``; None for anything
        else."""
        if not isinstance(plain, dict) or plain.keys() != {each.name for each in fields(cls)}:
            return None
        bounds, told = plain["bounds"], plain["told"]
        if not isinstance(bounds, list) or not all(_is_bound(each, labels) for each in bounds):
            return None
        if not isinstance(told, list) or not _is_count(plain["tickets"]):
            return None
        texts = [*told, *(plain[name] for name in ("guidance", "by", "asked"))]
        if not all(isinstance(text, str) for text in texts):
            return None
        named = [each["verdict"] for each in bounds]
        if (
            not _is_share(plain["confidence"])
            or len({*named}) < len(named)
            or ("" in named and len(named) > 1)
        ):
            return None
        read = {"told": tuple(told), "bounds": tuple(Bound(**each) for each in bounds)}
        return cls(**{**plain, **read})

    def to_plain(self) -> dict[str, Any]:
        """It as JSON data."""
        return {
            **asdict(self),
            "told": list(self.told),
            "bounds": [{**asdict(each), "least": dict(each.least)} for each in self.bounds],
        }

    def decides(self, verdict: Verdict | None, decider: str, margin: float) -> bool:
        """Whether a verdict is decided alone."""
        return any(each.covers(verdict, decider, margin) for each in self.bounds)

    @property
    def deciders(self) -> set[str]:
        """Who may decide alone."""
        return {decider for each in self.bounds for decider in each.least}

    def describe(self) -> str:
        """Describe how many tickets are decided alone, and the promise about them."""
        decided = sum(each.decided for each in self.bounds)
        said = [
            f"at most {write_share(each.max_error)} of {each.name} are wrong"
            for each in self.bounds
            if each.max_error < 1
        ]
        promised = (
            f"; {', '.join(said)} ({write_share(self.confidence)} confidence)" if said else ""
        )
        return f"decides {100 * decided / max(1, self.tickets):.0f} % alone{promised}"


def write_share(share: float) -> str:
    """A share for people, to three digits."""
    return f"{100 * share:.3g} %"


def _is_bound(each: Any, labels: Sequence[Verdict]) -> bool:
    if not isinstance(each, dict) or each.keys() != {one.name for one in fields(Bound)}:
        return False
    least, counts = each["least"], [each[name] for name in ("wrong", "decided", "tickets")]
    if not isinstance(least, dict) or not all(
        type(value) in (int, float) and abs(value) < inf for value in least.values()
    ):
        return False
    are_counts = all(map(_is_count, counts)) and counts == sorted(counts)
    return (
        are_counts
        and each["verdict"] in ("", *labels)
        and (each["max_error"] == 1 or _is_share(each["max_error"]))
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < 1
