"""GEPA (Agrawal et al. 2025, arXiv:2507.19457) through its own package, ``gepa``, and its own
interfaces.

The candidate is the guidance as the model reads it. GEPA decides what is tried, accepted and handed
back; this loop's parts serve it: greedy verdicts score a candidate, and ``propose_new_texts``,
GEPA's extension point for proposals, asks the shipped model in the one prompt that it understands,
with the minibatch's tickets as cases, and writes the edited guidance down. An answer that cannot be
used is asked for again. Reasons, which the prompt shows of wrong cases, belong to the same greedy
answer as the verdict and are read for free. Merging is on, but finds nothing to do: GEPA merges
candidates of several components, and this one has one.

With evidence, the prompt shows what this loop's shows, counted over the train tickets that the
candidate has judged. Where these are too few, further ones are judged, which costs their rollouts.

By code, rules are applied as in this loop with ``runner.judge: both``: a rollout is what the model
is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gepa import EvaluationBatch, optimize

from lab.bench.learning.method import ENGLISH, CodeFirst, Learnt, Point, Task
from lab.bench.learning.proposals import Counting, parse_rules, propose
from stageb.guidance.config import DecodeConfig, SamplerConfig
from stageb.guidance.judging import rollout
from stageb.guidance.rules.candidates import SearchSpace
from stageb.guidance.rules.edits import apply
from stageb.guidance.rules.prompts import Case, rule_lines
from stageb.guidance.words.types import Answers, Ticket
from stageb.seeds import shuffled, stream

COMPONENT = "rules"
TRIES = 4  # answers asked for until one can be used
# by code, where rollouts end next to nothing; this loop asks for 16 to 400 then
MOST_REFLECTIONS = 400
MOST_CALLS = 100  # by code, verdicts for each rollout of the budget
GREEDY = SamplerConfig(
    samples_per_decode=1, grid=[DecodeConfig(temperature=0.0, max_new_tokens=40)]
)

Texts = dict[str, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of GEPA; all else is its default."""

    minibatch: int = 3  # tickets that a proposal sees and must improve on; GEPA's default
    most_val: int | None = None  # val tickets that accepted candidates are ranked on; None: all
    cache: bool = False  # GEPA's cache of evaluations
    # that evidence is counted over, at the least; None: no evidence is shown
    evidence_tickets: int | None = None
    # code judges wherever it can, and evidence has computed limits, as in ``frugal.yaml``
    by_code: bool = False
    # edit one of the Pareto front over val tickets, as GEPA does; otherwise always the best on val
    pool: bool = True


class Adapter:
    """The system that GEPA optimises; see ``GEPAAdapter`` in ``gepa.core.adapter``."""

    def __init__(self, task: Task, evidence_tickets: int | None, by_code: bool = False) -> None:
        self.task = task
        self.evidence_tickets = evidence_tickets
        self.coder = CodeFirst(task.judge, task.tickets) if by_code else None
        self.rollouts = 0
        self.reflections = 0
        self.train = {ticket.key: ticket for ticket in task.parts["train"]}
        # candidate -> ticket_key -> how it judges that train ticket
        self.judged: dict[str, dict[str, Case]] = {}

    def evaluate(
        self, batch: list[Ticket], candidate: Texts, capture_traces: bool = False
    ) -> EvaluationBatch[Ticket, bool]:
        """1 for a right greedy verdict, 0 for any other."""
        guidance = parse_rules(self.task.first.mission, candidate[COMPONENT])
        if self.coder:
            before = self.coder.asked
            right = self.coder.right(guidance, batch)
            self.rollouts += self.coder.asked - before
        else:
            right = self.task.judge.right(guidance, batch)
            self.rollouts += len(batch)
        seen = self.judged.setdefault(candidate[COMPONENT], {})
        for ticket, each in zip(batch, right, strict=True):
            if ticket.key in self.train:
                seen.setdefault(ticket.key, Case(ticket, each, None))
        return EvaluationBatch(right, list(map(float, right)), batch)

    def make_reflective_dataset(
        self,
        candidate: Texts,
        eval_batch: EvaluationBatch[Ticket, bool],
        components_to_update: list[str],
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """The minibatch with verdicts and reasons; code gives none."""
        guidance = parse_rules(self.task.first.mission, candidate[COMPONENT])
        tickets = eval_batch.trajectories or []
        if self.coder:
            return {
                COMPONENT: [
                    {"case": self.judged[candidate[COMPONENT]][ticket.key]} for ticket in tickets
                ]
            }
        answers = rollout.rollout(tickets, guidance, self.task.engine, GREEDY, ENGLISH, ["greedy"])
        cases = [case(*pair) for pair in zip(tickets, answers, strict=True)]
        self.judged[candidate[COMPONENT]].update({each.ticket.key: each for each in cases})
        return {COMPONENT: [{"case": each} for each in cases]}

    def propose_new_texts(
        self,
        candidate: Texts,
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> Texts:
        """The guidance after the model's edit; nothing where no answer could be used."""
        guidance = parse_rules(self.task.first.mission, candidate[COMPONENT])
        cases = [row["case"] for row in reflective_dataset[COMPONENT]]
        counted = (
            () if self.evidence_tickets is None else self.counted(candidate, self.evidence_tickets)
        )
        counting = Counting(counted, SearchSpace(arithmetic=self.coder is not None))
        for _ in range(TRIES):
            key = stream(self.task.seed, "gepa", self.reflections)
            proposals, asked = propose(cases, guidance, self.task.reflector, 1, key, counting)
            self.reflections += asked
            if proposals:
                return {COMPONENT: rule_lines(apply(guidance, proposals[0].operations))}
        return {}

    def counted(self, candidate: Texts, least: int) -> Sequence[Case]:
        """The train tickets that the candidate has judged; so many at the least, where there are so
        many."""
        seen = self.judged[candidate[COMPONENT]]
        others = [ticket for key, ticket in self.train.items() if key not in seen]
        self.evaluate(
            shuffled(others, stream(self.task.seed, "counted"))[: max(0, least - len(seen))],
            candidate,
        )
        return list(seen.values())


def case(ticket: Ticket, answers: Answers) -> Case:
    """A greedy answer as reflection reads it."""
    (candidate,) = answers.candidates
    return Case(ticket, candidate.verdict == ticket.label, candidate.reason)


class Watch:
    """A callback that keeps GEPA's progress."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.points: list[Point] = []
        self.accepted = 0

    def on_valset_evaluated(self, event: Mapping[str, Any]) -> None:
        """A candidate entered the pool; where it is the best on val, it would be handed back."""
        if event["is_best_program"]:
            task = self.adapter.task
            self.points.append(
                Point(
                    self.adapter.rollouts,
                    parse_rules(task.first.mission, event["candidate"][COMPONENT]),
                )
            )

    def on_candidate_accepted(self, event: Mapping[str, Any]) -> None:
        """A proposal did better on its minibatch."""
        self.accepted += 1


class Silent:
    """GEPA's log goes nowhere: what is kept of a run, ``Watch`` keeps."""

    def log(self, message: str) -> None:
        """Nothing."""


def learn(task: Task, settings: Settings) -> Learnt:
    """Run GEPA until the budget is spent; by code, until the model has reflected as often as this
    loop lets it, at most."""
    adapter = Adapter(task, settings.evidence_tickets, settings.by_code)
    watch = Watch(adapter)
    val = shuffled(task.parts["val"], stream(task.seed, "gepa val"))[: settings.most_val]
    optimize(
        seed_candidate={COMPONENT: rule_lines(task.first)},
        trainset=list(task.parts["train"]),
        valset=val,
        adapter=adapter,
        reflection_minibatch_size=settings.minibatch,
        candidate_selection_strategy="pareto" if settings.pool else "current_best",
        use_merge=True,
        cache_evaluation=settings.cache,
        max_metric_calls=task.budget * (MOST_CALLS if settings.by_code else 1),
        stop_callbacks=lambda _: (  # GEPA does not see what evidence costs
            adapter.rollouts >= task.budget
            or (settings.by_code and adapter.reflections >= MOST_REFLECTIONS)
        ),
        callbacks=[watch],
        logger=Silent(),
        seed=task.seed,
    )
    points = [Point(0, task.first), *watch.points]
    return Learnt(points, adapter.rollouts, adapter.reflections, watch.accepted, settings.by_code)
