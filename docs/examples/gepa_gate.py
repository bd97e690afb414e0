"""This package's gate as GEPA's acceptance criterion: a candidate stays once it is proven better on
examples of its own.

    gate = ProvenBetter(lambda candidate, examples: adapter.evaluate(examples, candidate).scores,
    held_out) gepa.optimize(seed_candidate, trainset, valset, adapter=adapter,
    acceptance_criterion=gate, ...)

GEPA itself accepts what scores higher on the few examples that the candidate was made from, which
luck does often. Here that only admits it to a sequential test on ``held_out``, examples in neither
of GEPA's sets, whose scores are from 0 to 1. A test that accepts nothing spends its level, and all
levels together are at most ``alpha``: so a run accepts a candidate that is no better than its
parent with a probability of at most that. ``calls`` counts the evaluations that this took.
"""

from collections.abc import Callable, Sequence
from typing import Any

from stageb.guidance.learning.gate.sequential import ExactTest, next_level
from stageb.seeds import stream

SHARE = 0.2  # of what is left of alpha, for the next test
CHUNK = 16  # examples between two looks


class ProvenBetter:
    """``should_accept`` as ``gepa.strategies.acceptance.AcceptanceCriterion`` asks for it."""

    def __init__(
        self,
        evaluate: Callable[[dict[str, str], Sequence[Any]], Sequence[float]],
        held_out: Sequence[Any],
        alpha: float = 0.05,
    ) -> None:
        self._evaluate, self._held_out = evaluate, held_out
        self.left, self.tests, self.calls = alpha, 0, 0

    def should_accept(self, proposal: Any, state: Any) -> bool:
        """Whether the candidate is proven better than its parent, the first of several."""
        if sum(proposal.subsample_scores_after or ()) <= sum(
            proposal.subsample_scores_before or ()
        ):
            return False
        parent = state.program_candidates[proposal.parent_program_ids[0]]
        self.tests += 1
        test = ExactTest(
            next_level(self.left, SHARE), len(self._held_out), key=stream("gepa", self.tests)
        )
        for start in range(0, len(self._held_out), CHUNK):
            examples = self._held_out[start : start + CHUNK]
            before, after = (
                self._evaluate(candidate, examples) for candidate in (parent, proposal.candidate)
            )
            self.calls += 2 * len(examples)
            test = test.plus([[now - was] for was, now in zip(before, after, strict=True)])
            if test.is_decided:
                break
        self.left -= 0.0 if test.is_accepted else test.level
        return test.is_accepted

    def reject_reason(self, proposal: Any, state: Any) -> str:
        """What GEPA's log says of one that is not accepted."""
        return (
            f"not proven better on {len(self._held_out)} held-out examples; {self.left:.3f} "
            f"of alpha are left"
        )
