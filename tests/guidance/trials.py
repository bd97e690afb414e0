"""Made-up worlds for the gate: how each guidance judges each ticket, as a table, and who asked for
what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hypothesis import strategies as st

from stageb.guidance.config import GateConfig
from stageb.guidance.judging.questions import Dialogue, JudgeTickets, answer_all
from stageb.guidance.learning.gate.decide import Edit, Gate
from stageb.guidance.learning.gate.judgements import Judge, Verdicts, ask_once
from stageb.guidance.tickets.groups import whole_groups
from stageb.guidance.words.costs import EQUAL, Prices
from stageb.guidance.words.types import Guidance, Judgement, Proposal, Rule, Ticket, Verdict

T = TypeVar("T")

MERIT = st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0])
PRESENT = Guidance("m", 3, (Rule("G0", "the headline"),), 1)
TOKENS = 7  # of one judgement


def numbered(count: int, labels: Sequence[Verdict] = ("pass", "fail")) -> list[Ticket]:
    """Tickets of groups of their own, labels in turn."""
    return [
        Ticket("m", f"g-{n}", labels[n % len(labels)], (("image_1", "a"),)) for n in range(count)
    ]


@dataclass
class World:
    """Merits of every ticket under the present guidance and under each edit, and the questions that
    were asked."""

    tickets: Sequence[Ticket]
    present: Sequence[float]
    table: dict[str, Sequence[float]] = field(default_factory=dict)  # an edit's rules -> p_correct
    # (rules, position) -> how often
    asked: Counter[tuple[str, int]] = field(default_factory=Counter)
    verdicts: Verdicts = field(default_factory=Verdicts)  # of the last answer
    # edits, by their rules, that code judges in the model's place
    by_rules: set[str] = field(default_factory=set)

    def edit(self, name: str, p_correct: Sequence[float], evidence: Sequence[int] = ()) -> Edit:
        """An edit that adds the rule ``name`` and judges as ``p_correct`` says."""
        guidance = replace(PRESENT, step=4, rules=(*PRESENT.rules, Rule("G1", name)), next_number=2)
        self.table[rules(guidance)] = p_correct
        return Edit((Proposal(len(self.table), "", (), ()),), 1, guidance, tuple(evidence))

    def join(self, one: Edit, other: Edit) -> Edit:
        """Both edits at once: what either makes of a ticket, the better or, where neither is
        better, the worse."""
        names = [rule.text for edit in (one, other) for rule in edit.guidance.rules[1:]]
        both = [self.table[rules(edit.guidance)] for edit in (one, other)]
        p_correct = [
            max(a, b) if max(a, b) > now else min(a, b)
            for a, b, now in zip(*both, self.present, strict=True)
        ]
        made = self.edit(" and ".join(names), p_correct, (*one.evidence, *other.evidence))
        return replace(made, proposals=(*one.proposals, *other.proposals))

    def gate(
        self,
        race_on: Sequence[int],
        others: Sequence[int],
        config: GateConfig | None = None,
        interim: int = 16,
        race_chunk: int = 16,
    ) -> Gate:
        """A gate that tests on ``others``."""
        return Gate(
            self.judge(config), race_on, race_chunk, whole_groups(others, self.tickets), interim
        )

    def answer(self, steps: Dialogue[T]) -> T:
        """What ``steps`` return, whose questions this world answers, each once; ``verdicts`` are
        those given by then."""
        result, self.verdicts = answer_all(ask_once(steps, Verdicts()), self._judged)
        return result

    def _judged(self, question: JudgeTickets) -> list[list[Judgement]]:
        assert question.asked
        assert all(positions for _, positions in question.asked)
        for guidance, positions in question.asked:
            self.asked.update((rules(guidance), i) for i in positions)
        known = {rules(PRESENT): self.present, **self.table}
        return [
            [
                Judgement(known[rules(guidance)][i], TOKENS, rules(guidance) in self.by_rules)
                for i in positions
            ]
            for guidance, positions in question.asked
        ]

    def judge(
        self, config: GateConfig | None = None, present: Guidance = PRESENT, prices: Prices = EQUAL
    ) -> Judge:
        """A judge of this world."""
        return Judge(self.tickets, config or GateConfig(), present, prices=prices)

    def seen_by(self, edit: Edit) -> set[int]:
        """The tickets that were judged under an edit."""
        return {i for text, i in self.asked if text == rules(edit.guidance)}


def rules(guidance: Guidance) -> str:
    """What tells guidances apart."""
    return " / ".join(rule.text for rule in guidance.rules)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, list[Edit], list[int], list[int]]:
    """A world, edits of all kinds, and the tickets to race and to test on."""
    count = draw(st.integers(2, 60))
    p_correct = st.lists(MERIT, min_size=count, max_size=count)
    world = World(numbered(count), draw(p_correct))
    cut = draw(st.integers(1, count))
    edits = []
    for name in range(draw(st.integers(0, 6))):
        better, worse = (
            draw(st.sets(st.integers(0, count - 1))),
            draw(st.sets(st.integers(0, count - 1), max_size=4)),
        )
        reached = draw(st.sampled_from([0.4, 0.9, 1.0, 1.0]))
        after = [
            max(p, reached) if i in better else 0.0 if i in worse else p
            for i, p in enumerate(world.present)
        ]
        evidence = draw(st.lists(st.integers(0, cut - 1), max_size=4, unique=True))
        edits.append(world.edit(f"edit {name}", after, evidence))
    return world, edits, list(range(cut)), list(range(cut, count))
