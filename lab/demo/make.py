"""Writes the demo's tickets: ``python -m lab.demo.make``. The same bytes every time, on every
machine.

Two missions, each with hidden rules that stand here and in no config; learning has to find them. No
label is noise, so the rules together judge every ticket rightly.

- ``rack cabling``: eight attributes over three images. A ticket fails if the connector is loose, or
  the label is missing, or the seal is worn and the grounding is single.
- ``site photos``: three attributes, then two free-text notes. A ticket fails if a note mentions
  corrosion, or a crack, or a leak, or if the fence is open.

"All pass" is right for somewhat more than half of the tickets, and each rule adds some ten points
to that whatever the other rules are. Some attributes that no rule speaks of lean towards one label,
as they do in real tickets: a trap for a learner that trusts a few cases. A few groups come twice:
failed, mended, passed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from stageb import seeds
from stageb.demo import TICKETS

SEED = 20  # every rule is needed, and no other word tells the label: tests/demo
TICKETS_PER_MISSION = 480
RESUBMITTED = 0.06  # share of groups that come again with the other label

Facts = dict[str, str]
Options = Mapping[str, float]  # value -> weight

RACK: Mapping[str, Options] = {
    "connector": {"seated": 0.5, "taped": 0.3, "loose": 0.2},
    "label": {"printed": 0.5, "handwritten": 0.3, "missing": 0.2},
    "jacket": {"blue": 0.4, "grey": 0.4, "yellow": 0.2},
    "seal": {"new": 0.3, "good": 0.3, "worn": 0.4},
    "grounding": {"double": 0.35, "braided": 0.25, "single": 0.4},
    "tray": {"covered": 0.5, "open": 0.3, "shared": 0.2},
    "bend": {"wide": 0.3, "normal": 0.4, "tight": 0.3},
    "tie": {"velcro": 0.4, "plastic": 0.3, "steel": 0.2, "nylon": 0.1},
}
RACK_IF_FAILED: Mapping[str, Options] = {
    "jacket": {"blue": 0.35, "grey": 0.4, "yellow": 0.25},
    "bend": {"wide": 0.25, "normal": 0.4, "tight": 0.35},
}
RACK_IMAGES = (("connector", "label", "jacket"), ("seal", "grounding", "tray"), ("bend", "tie"))

SITE: Mapping[str, Options] = {
    "weather": {"dry": 0.5, "wet": 0.3, "windy": 0.2},
    "access": {"clear": 0.5, "narrow": 0.3, "steep": 0.2},
    "fence": {"intact": 0.5, "repaired": 0.34, "open": 0.16},
}
SITE_IF_FAILED: Mapping[str, Options] = {"weather": {"dry": 0.45, "wet": 0.35, "windy": 0.2}}
SITE_FINDINGS: Options = {"corrosion": 0.17, "crack": 0.17, "leak": 0.17}
PLACES = (
    "north wall of the cabinet",
    "base plate of the mast",
    "roof hatch",
    "cable entry behind the door",
    "drain cover beside the ramp",
    "rear door frame",
    "feed pipe near the pump",
    "lower antenna bracket",
)
HARMLESS = (
    "shows dust around two bolts",
    "has moss along the seam",
    "has frost under the cover",
    "has a stain near the corner",
    "shows a scratch below the joint",
    "has tape at the lower valve",
    "is dry and well lit",
    "looks clean since the last visit",
)
# in the words of the harmless ones, so that only the finding itself tells
FINDINGS: Mapping[str, Sequence[str]] = {
    "corrosion": (
        "shows corrosion around two bolts",
        "has corrosion along the seam",
        "has corrosion under the cover",
    ),
    "crack": (
        "has a crack near the corner",
        "shows a crack below the joint",
        "is cracked along the seam",
    ),
    "leak": (
        "has a leak under the cover",
        "shows a leak below the joint",
        "is leaking at the lower valve",
    ),
}
CLOSINGS = (
    "seen from below",
    "photo at noon",
    "in good light",
    "taken from inside",
    "as in spring",
)


class Draws:
    """Choices from one named stream, in the order in which they are asked for."""

    def __init__(self, *names: str | int) -> None:
        self.key = seeds.stream("demo", SEED, *names)
        self.position = 0

    def chance(self) -> float:
        """A uniform number in [0, 1)."""
        self.position += 1
        return seeds.uniform(self.key, self.position - 1)

    def pick(self, options: Sequence[str]) -> str:
        """One of ``options``."""
        return options[int(self.chance() * len(options))]

    def weighted(self, options: Options) -> str:
        """One of ``options`` by its weight."""
        left = self.chance() * sum(options.values())
        for value, weight in options.items():
            left -= weight
            if left < 0:
                return value
        return value


def rack_fails(facts: Facts) -> bool:
    """The hidden rules of ``rack cabling``."""
    loose, unlabelled = facts["connector"] == "loose", facts["label"] == "missing"
    return loose or unlabelled or (facts["seal"] == "worn" and facts["grounding"] == "single")


def rack_facts(draws: Draws) -> Facts:
    """One ticket of ``rack cabling``, label apart."""
    facts = {attribute: draws.weighted(options) for attribute, options in RACK.items()}
    leaning = {attribute: draws.weighted(options) for attribute, options in RACK_IF_FAILED.items()}
    return facts | leaning if rack_fails(facts) else facts


def rack_images(facts: Facts) -> list[str]:
    """The summaries of one ticket of ``rack cabling``."""
    return [
        "; ".join(f"{attribute}: {facts[attribute]}" for attribute in image)
        for image in RACK_IMAGES
    ]


def site_fails(facts: Facts) -> bool:
    """The hidden rules of ``site photos``."""
    return facts["fence"] == "open" or any(
        word in facts["first"] + facts["second"] for word in FINDINGS
    )


def site_facts(draws: Draws) -> Facts:
    """One ticket of ``site photos``, label apart. Two notes hold at most two findings."""
    facts = {attribute: draws.weighted(options) for attribute, options in SITE.items()}
    found = [word for word, chance in SITE_FINDINGS.items() if draws.chance() < chance][:2]
    notes = [draws.pick(FINDINGS[word]) for word in found] + [
        draws.pick(HARMLESS) for _ in range(2 - len(found))
    ]
    if draws.chance() < 0.5:
        notes.reverse()
    for name, note in zip(("first", "second"), notes, strict=True):
        facts[name] = f"{draws.pick(PLACES)} {note}, {draws.pick(CLOSINGS)}"
    leaning = {attribute: draws.weighted(options) for attribute, options in SITE_IF_FAILED.items()}
    return facts | leaning if site_fails(facts) else facts


def site_images(facts: Facts) -> list[str]:
    """The summaries of one ticket of ``site photos``."""
    return [
        "; ".join(f"{attribute}: {facts[attribute]}" for attribute in SITE),
        facts["first"],
        facts["second"],
    ]


Mission = tuple[Callable[[Draws], Facts], Callable[[Facts], bool], Callable[[Facts], list[str]]]
MISSIONS: Mapping[str, Mission] = {
    "rack cabling": (rack_facts, rack_fails, rack_images),
    "site photos": (site_facts, site_fails, site_images),
}


def tickets(mission: str) -> Iterator[dict[str, object]]:
    """The mission's tickets, as the lines of a ticket file hold them."""
    draw, fails, images = MISSIONS[mission]
    written = 0
    for group in range(TICKETS_PER_MISSION):
        draws = Draws(mission, group)
        facts = draw(draws)
        versions = [facts]
        if fails(facts) and draws.chance() < RESUBMITTED * 2:  # about half of the groups fail
            while fails(facts):
                facts = draw(draws)
            versions.append(facts)
        for version in versions[: TICKETS_PER_MISSION - written]:
            written += 1
            yield {
                "mission": mission,
                "group_id": f"{mission.split()[0]}-{group + 1:04d}",
                "label": "fail" if fails(version) else "pass",
                "per_image": {
                    f"image_{n}": summary for n, summary in enumerate(images(version), 1)
                },
            }


def text() -> str:
    """The whole ticket file."""
    return "".join(
        json.dumps(ticket, ensure_ascii=False) + "\n"
        for mission in MISSIONS
        for ticket in tickets(mission)
    )


if __name__ == "__main__":
    TICKETS.write_text(text(), encoding="utf-8", newline="\n")
    print(f"wrote {TICKETS}")
