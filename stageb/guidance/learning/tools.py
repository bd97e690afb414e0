"""The tools that a mission learns with: its tickets, the limits on its guidance, and judges that
bring the two together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from stageb.engines.protocol import Prompt
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging.questions import CountTokens
from stageb.guidance.learning.gate.budget import Pool
from stageb.guidance.learning.gate.decide import Choose, Gate
from stageb.guidance.learning.gate.judgements import Judge, Verdicts
from stageb.guidance.learning.state import MissionState
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.judge import read_rules
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.rules.prompts import Words, name_labels, rule_lines, words_of
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.word_lists import find_word_lists, read_word_list
from stageb.guidance.tickets.groups import whole_groups
from stageb.guidance.tickets.splits import Splits, weigh_labels
from stageb.guidance.words.costs import Prices
from stageb.guidance.words.types import PASS_FAIL, Guidance, Rule, Ticket, Verdict

LABELS = 8  # limits on what a model reads are meant for up to so many; for more they grow


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of one mission's learning."""

    config: LoopConfig
    tickets: Sequence[Ticket]  # all of the run's; positions elsewhere point here
    splits: Splits
    pool: Pool  # the tickets that edits are made from and tested on
    vocabulary: Vocabulary  # of the train tickets: all that a rule may name
    count_tokens: CountTokens
    interim: int  # tickets between two interim analyses of a test
    choose: Choose | None = None  # the user's own, in place of race and test
    weighs: bool = False  # whether the gate judges by probability, at a temperature above 0
    labels: tuple[Verdict, ...] = PASS_FAIL  # of the mission
    # called between small steps with what is being learnt; may raise ``LearningStopped``
    pause: Callable[[str], None] = lambda doing: None

    @classmethod
    def of(
        cls,
        config: LoopConfig,
        tickets: Sequence[Ticket],
        splits: Splits,
        count_tokens: CountTokens,
        interim: int,
        labels: tuple[Verdict, ...] = PASS_FAIL,
    ) -> Self:
        """Return the tools of a mission, given the splits of its tickets."""
        pool = Pool(whole_groups(splits.test_order, tickets), config.gating.pool_size)
        vocabulary = Vocabulary.of(tickets[i] for i in splits.train)
        return cls(config, tickets, splits, pool, vocabulary, count_tokens, interim, labels=labels)

    @property
    def words(self) -> Words:
        """The words that the model reads and writes."""
        return name_labels(words_of(self.config.prompt, self.config.model), self.labels)

    @property
    def temperature(self) -> float:
        """The temperature at which verdicts are weighed."""
        return self.config.sampler.grid[0].temperature

    @property
    def prices(self) -> Prices:
        """The prices of errors, by label."""
        return self.config.price.by_label

    @property
    def weights(self) -> Mapping[Verdict, float]:
        """The weights of errors in what a bundle teaches, by label."""
        return weigh_labels(self.splits, self.prices)

    def count(self, text: str) -> int:
        """Count the tokens of a text."""
        full, empty = self.count_tokens([Prompt(text, ""), Prompt("", "")])
        return full - empty

    def fits(self, guidance: Guidance) -> bool:
        """Whether the rules of a guidance are within the limits on their number and tokens. Where
        code judges, it looks words up, so word lists do not count; and labels of the mission's own
        have these limits each."""
        config, labels, by_model = (
            self.config.reflection,
            guidance.labels,
            self.config.runner.judge == "model",
        )
        times = max(1.0, len(labels) / LABELS) if by_model or labels == PASS_FAIL else len(labels)
        read = (
            rule
            for rule in guidance.rules
            if not rule.is_background and (by_model or not read_word_list(rule.text))
        )
        guidance = replace(guidance, rules=tuple(read))
        # a ticket and demonstrations have the other half of a prompt
        most = config.max_guidance_tokens * times
        room = min(most, self.config.sampler.max_prompt_tokens // 2) if by_model else most
        return (
            len(guidance.rules) <= config.max_rules * times
            and self.count(rule_lines(guidance)) <= room
        )

    def know_lists(self, rules: Sequence[Rule]) -> Vocabulary:
        """Return the vocabulary with the word lists of these rules."""
        return replace(self.vocabulary, lists=find_word_lists(rules))

    def rule_on(self, guidance: Guidance, positions: Sequence[int]) -> list[Ruling]:
        """Judge these tickets by the rules as code."""
        judge = read_rules(guidance, self.vocabulary, self.words).compile()
        return [judge(reading(self.tickets[i])) for i in positions]

    def judge_by_code(self, guidance: Guidance, positions: Sequence[int]) -> list[bool]:
        """Whether the rules as code are right about each ticket; one that they say nothing about
        gets the first label."""
        rulings, default = self.rule_on(guidance, positions), guidance.labels[0]
        return [
            (each.verdict or default) == self.tickets[i].label
            for i, each in zip(positions, rulings, strict=True)
        ]

    def make_judge(self, present: Guidance) -> Judge:
        """Make a judge that asks how tickets are judged, beside the ``present`` guidance."""
        return Judge(
            self.tickets, self.config.gating, present, self.splits.inclusion_prob, self.prices
        )

    def make_gate(self, present: Guidance, race_on: Sequence[int], taught_by: int | None) -> Gate:
        """Make the gate for edits learnt from the fold of the bundle ``taught_by``; None: from no
        fold."""
        groups, chunk = self.pool.groups_outside(taught_by), self.config.gating.race_chunk
        return Gate(self.make_judge(present), race_on, chunk, groups, self.interim)

    def known_verdicts(self, mission: MissionState) -> Verdicts:
        """Return how the mission's present guidance judges tickets, as far as that is known."""
        by_key = self.splits.by_key
        return Verdicts().plus(
            mission.guidance, {by_key[key]: p for key, p in mission.p_correct.items()}
        )
