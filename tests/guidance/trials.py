"""Made-up worlds for the gate: how each guidance judges each ticket, as a table, and who asked for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from stageb.guidance.config import GateConfig
from stageb.guidance.gate.decide import Contender, Jury, Pool, unseen
from stageb.guidance.types import Guidance, Judgement, Proposal, Rule, Ticket, Verdict

PRESENT = Guidance("m", 3, (Rule("G0", "the headline"),), 1)
TOKENS = 7  # of one judgement


def numbered(count: int, labels: Sequence[Verdict] = ("pass", "fail")) -> list[Ticket]:
    """Tickets of groups of their own, labels in turn."""
    return [Ticket("m", f"g-{n}", labels[n % len(labels)], (("image_1", "a"),)) for n in range(count)]


@dataclass
class World:
    """Merits of every ticket under the present guidance and under each edit, and the questions that were asked."""

    tickets: Sequence[Ticket]
    present: Sequence[float]
    table: dict[str, Sequence[float]] = field(default_factory=dict)  # an edit's rules -> merits
    asked: Counter[tuple[str, int]] = field(default_factory=Counter)  # (rules, position) -> how often

    def edit(self, name: str, merits: Sequence[float], evidence: Sequence[int] = ()) -> Contender:
        """A contender that adds the rule ``name`` and judges as ``merits`` says."""
        guidance = replace(PRESENT, step=4, rules=(*PRESENT.rules, Rule("G1", name)), next_number=2)
        self.table[rules(guidance)] = merits
        return Contender((Proposal(len(self.table), "", (), ()),), 1, guidance, tuple(evidence))

    def join(self, one: Contender, other: Contender) -> Contender:
        """Both edits at once: what either makes of a ticket, the better or, where neither is better, the worse."""
        names = [rule.text for contender in (one, other) for rule in contender.guidance.rules[1:]]
        both = [self.table[rules(contender.guidance)] for contender in (one, other)]
        merits = [max(a, b) if max(a, b) > now else min(a, b) for a, b, now in zip(*both, self.present, strict=True)]
        made = self.edit(" and ".join(names), merits, (*one.evidence, *other.evidence))
        return replace(made, proposals=(*one.proposals, *other.proposals), shown=(*one.shown, *other.shown))

    def pool_of(self, others: Sequence[int]) -> Pool:
        """What a contender may be tested on, of ``others``."""
        return lambda contender: unseen(others, contender.shown, self.tickets)

    def ask(self, questions: Sequence[tuple[Guidance, Sequence[int]]]) -> list[list[Judgement]]:
        """What a jury asks."""
        assert questions
        assert all(positions for _, positions in questions)
        for guidance, positions in questions:
            self.asked.update((rules(guidance), i) for i in positions)
        known = {rules(PRESENT): self.present, **self.table}
        return [[Judgement(known[rules(guidance)][i], TOKENS) for i in positions] for guidance, positions in questions]

    def jury(self, config: GateConfig | None = None, present: Guidance = PRESENT) -> Jury:
        """A jury of this world."""
        return Jury(self.ask, self.tickets, config or GateConfig(), present, {})

    def seen_by(self, contender: Contender) -> set[int]:
        """The tickets that were judged under a contender."""
        return {i for text, i in self.asked if text == rules(contender.guidance)}


def rules(guidance: Guidance) -> str:
    """What tells guidances apart."""
    return " / ".join(rule.text for rule in guidance.rules)
