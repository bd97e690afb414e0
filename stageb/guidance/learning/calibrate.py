"""Calibrates a model's verdicts, and weighs them beside what rules say as code: by logistic
regression.

A model that orders tickets well may still put nearly all of them on one side: its log-odds carry
its general leaning to the words "pass" and "fail". A slope and an offset mend that (Platt,
"Probabilistic outputs for support vector machines", 1999); with labels of a mission's own, an
offset for each. Where rules can be read as code, what they say about a ticket is evidence beside
the model's and gets a weight of its own (stacking: Wolpert, "Stacked generalization", 1992), so
that the verdict follows whoever is right more often. A ridge keeps a few tickets that happen to be
separable from making every verdict certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from stageb.guidance.words.calibration import find_shares
from stageb.guidance.words.types import (
    PASS_FAIL,
    UNCALIBRATED,
    Calibration,
    Guidance,
    Judgement,
    Ticket,
    Verdict,
)

FEWEST_TO_FIT = 16  # tickets to fit on, at least
# penalty that draws the slope to 1 and the weights of rules to 0; a hundredth of it draws the
# offsets to 0
RIDGE = 1.0
LEAST_SLOPE = 0.05  # a model that is wrong more often than right is not turned round, nor are rules
STEPS = 25  # of Newton's method, at most
HALVINGS = 20  # of a step, at most
ROUNDING = 1e-9  # share of a loss by which it may be higher without having grown
FITTED = 1e-5  # weights whose steps are smaller are fitted
BINS = 10  # of probabilities, with about as many tickets each

Numbers = NDArray[np.float64]
Scores = Sequence[float]  # log-probabilities of a mission's labels, but for a constant


def fit_calibration(
    scores: Sequence[Scores],
    labelled: Sequence[Verdict],
    labels: tuple[Verdict, ...],
    rulings: Sequence[Verdict | None] = (),
    leads: Sequence[Sequence[float]] = (),
    counts: Sequence[float] = (),
) -> Calibration:
    """Fit the calibration under which tickets of these ``scores`` have their labels with the
    highest probability: a softmax over ``labels`` with one slope, an offset for each label but the
    first, and weights of what the rules as code say: their verdicts ``rulings``, and ``leads`` in
    points for each label. No calibration where tickets are too few, or all of one label. ``counts``
    are the tickets' weights, 1 each by default."""
    if len(labelled) < FEWEST_TO_FIT or len(set(labelled)) < 2:
        return UNCALIBRATED
    said, others = centre(scores), len(labels) - 1
    scale = max(1.0, find_spread(said))
    ruled = [
        [float(label == ruling) for label in labels] for _, ruling in zip_longest(labelled, rulings)
    ]
    is_other = np.broadcast_to(np.eye(len(labels))[:, 1:], (*said.shape, others))
    by_points = np.array(leads or np.zeros_like(said), float)
    rows = np.concatenate(
        [np.stack([said / scale, np.array(ruled), by_points], axis=2), is_other], axis=2
    )
    prior, ridge = (
        np.array([1.0, *[0.0] * (2 + others)]),
        np.array([*[RIDGE] * 3, *[RIDGE / 100] * others]),
    )
    wanted = np.array([[float(label == each) for label in labels] for each in labelled])
    fitted = _fit_softmax(rows, wanted, np.array(counts or [1.0] * len(rows)), prior, ridge)
    slope, rules, points, *offsets = fitted.tolist()
    slope, (rules, points) = (
        max(LEAST_SLOPE, slope / scale),
        (max(0.0, each) for each in (rules, points)),
    )
    found = Calibration.of_labels(labels, slope, [0.0, *offsets], rules, points)
    return found.rounded


def find_scores(judgement: Judgement, labels: Sequence[Verdict]) -> tuple[float, ...]:
    """Return the log-probabilities of ``labels``, but for a constant; equal ones for a ticket that
    was set aside."""
    return tuple(judgement.scores) or (0.0,) * len(labels)


def calibrate(
    guidance: Guidance,
    judged: Mapping[int, Judgement],
    tickets: Sequence[Ticket],
    temperature: float,
) -> tuple[Guidance, dict[int, float]]:
    """Calibrate ``guidance`` by how it judges some of ``tickets``, by position; also return how
    probable the right labels are then."""
    labels = guidance.labels
    # verdicts by rules are not weighed
    scores = {i: find_scores(each, labels) for i, each in judged.items() if not each.by_rules}
    further = fit_calibration(list(scores.values()), [tickets[i].label for i in scores], labels)
    after = {
        i: find_shares(further.weigh(each), temperature)[labels.index(tickets[i].label)]
        for i, each in scores.items()
    }
    decided = {i: each.p_correct for i, each in judged.items() if each.by_rules}
    return replace(guidance, calibration=further.after(guidance.calibration)), decided | after


def centre(scores: Sequence[Scores]) -> Numbers:
    """Return scores less their mean, ticket by ticket."""
    found = np.array(scores, float)
    centred: Numbers = found - found.mean(axis=1, keepdims=True)
    return centred


def find_spread(leads: Numbers) -> float:
    """Return how far apart the scores of two labels are: the root mean square over all pairs of
    labels. ``leads`` are scores less their mean."""
    return math.sqrt(2 * float((leads * leads).sum(axis=1).mean()) / (leads.shape[1] - 1))


def measure_calibration_error(
    scores: Sequence[Scores], labelled: Sequence[Verdict], labels: tuple[Verdict, ...] = PASS_FAIL
) -> float:
    """Return the expected calibration error: the distance between the probability of a label and
    its share of the tickets, in the mean over ``BINS`` bins of as many tickets each, in the order
    of probability (Naeini et al., AAAI 2015), and over labels."""
    chances = np.array([find_shares(each, 1.0) for each in scores])
    errors = []
    # of two labels, the second says the same
    for place, label in enumerate(labels[:1] if len(labels) == 2 else labels):
        mine, is_so = chances[:, place], np.array([each == label for each in labelled], float)
        # equal chances keep their order: sorted by label, each bin would hold one label
        order, count = np.argsort(mine, kind="stable"), len(mine)
        off = (mine - is_so)[order]
        bins = (off[spot * count // BINS : (spot + 1) * count // BINS] for spot in range(BINS))
        errors.append(sum(abs(float(each.sum())) for each in bins) / max(1, count))
    return sum(errors) / len(errors)


def fit_logistic(
    rows: Numbers,
    labels: Numbers,
    counts: Numbers,
    first: Numbers,
    ridge: Numbers,
    beside: Numbers | float = 0.0,
) -> Numbers:
    """Fit the weights of a logistic regression by Newton's method, from ``first`` on. Each row
    ``counts`` so much, and has log-odds ``beside`` added to those of the weights; ``ridge`` draws
    the weights to 0. Several regressions are fitted at once if the arrays have one more axis before
    theirs."""
    transposed, penalty = rows.swapaxes(-1, -2), np.diag(ridge)

    def measure(fitted: Numbers) -> Numbers:
        log_odds = _times(rows, fitted) + beside
        losses = counts * (np.logaddexp(0, log_odds) - labels * log_odds)
        loss: Numbers = losses.sum(axis=-1) + (ridge * fitted**2).sum(axis=-1) / 2
        return loss

    def differentiate(fitted: Numbers) -> tuple[Numbers, Numbers]:
        chances = find_probabilities(_times(rows, fitted) + beside)
        gradient = _times(transposed, counts * (chances - labels)) + ridge * fitted
        hessian = (
            transposed * (counts * chances * (1 - chances) + 1e-9)[..., None, :]
        ) @ rows + penalty
        return gradient, hessian

    return _minimize(measure, differentiate, first)


def find_probabilities(log_odds: Numbers) -> Numbers:
    """Return the probabilities that log-odds stand for."""
    chances: Numbers = 1 / (1 + np.exp(-np.clip(log_odds, -30, 30)))
    return chances


# Inside -------------------------------------------------------------------------------------------


def _fit_softmax(
    rows: Numbers, wanted: Numbers, counts: Numbers, prior: Numbers, ridge: Numbers
) -> Numbers:
    """Fit the weights of a softmax over labels by Newton's method, from ``prior`` on, to which
    ``ridge`` draws them. ``rows`` hold the parts of each label's score."""
    penalty = np.diag(ridge)

    def find_log_chances(fitted: Numbers) -> Numbers:
        scores = rows @ fitted
        log_chances: Numbers = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        return log_chances

    def measure(fitted: Numbers) -> Numbers:
        surprise = -(counts[:, None] * wanted * find_log_chances(fitted)).sum()
        loss: Numbers = surprise + (ridge * (fitted - prior) ** 2).sum() / 2
        return loss

    def differentiate(fitted: Numbers) -> tuple[Numbers, Numbers]:
        chances = np.exp(find_log_chances(fitted))
        apart = rows - np.einsum("ik,ikp->ip", chances, rows)[:, None]
        gradient = np.einsum("i,ik,ikp->p", counts, chances - wanted, rows) + ridge * (
            fitted - prior
        )
        hessian = np.einsum("ik,ikp,ikq->pq", counts[:, None] * chances, apart, apart) + penalty
        return gradient, hessian

    return _minimize(measure, differentiate, prior)


def _minimize(
    measure: Callable[[Numbers], Numbers],
    differentiate: Callable[[Numbers], tuple[Numbers, Numbers]],
    first: Numbers,
) -> Numbers:
    """Minimize a convex loss by Newton's method, from the weights ``first`` on. A step after which
    the loss would be higher goes too far, and is halved. Several losses are minimized at once if
    the arrays have one more axis before theirs."""
    fitted, loss = first, measure(first)
    for _ in range(STEPS):
        gradient, hessian = differentiate(fitted)
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        is_last = np.abs(step).max() < FITTED
        for _ in range(HALVINGS):
            after = measure(fitted - step)
            is_higher = after > loss + ROUNDING * np.abs(loss)
            if not is_higher.any():
                break
            step = np.where(is_higher[..., None], step / 2, step)
        fitted, loss = fitted - step, after
        if is_last:
            break
    return fitted


def _times(rows: Numbers, weights: Numbers) -> Numbers:
    found: Numbers = (rows @ weights[..., None])[..., 0]
    return found
