"""A model that nobody can read, on the same tickets: how much the labels have to give, beside
learnt rules.

Logistic regression on words, weighed by how rare they are, for tickets of free text; gradient
boosting on values and numbers for tables. Both are scikit-learn's, as they come, and where that is
not installed nothing is measured (extra ``baselines``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise

from stageb.guidance.config import LoopConfig
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.value_types import parse_number
from stageb.guidance.tickets.splits import split_tickets
from stageb.guidance.words.costs import Prices, make_confusion, measure_classes, measure_confusion
from stageb.guidance.words.labels import list_labels
from stageb.guidance.words.types import Ticket, Verdict

FEWEST_TICKETS = 3  # train tickets with a value or a word, below which boosting does not look at it
MOST_TRAINED_ON = 20_000  # train tickets that are learnt from, the first ones: more take minutes
WORDED = 0.5  # share of tickets with free text from which on words are what tells

Classifier = Callable[[Sequence[Ticket], Sequence[Ticket], Prices, int], "list[Verdict]"]
"""Of train tickets with two labels or more, tickets to judge, prices and a seed: the verdicts."""


@dataclass(frozen=True, slots=True)
class BlackBox:
    """Figures of one such model."""

    name: str
    trained_on: int  # tickets
    judged: int  # tickets
    acc: float  # share of these judged right
    acc_interval: tuple[float, float]
    cost: float  # of a ticket at the prices

    def describe(self, prices: Prices) -> str:
        """In a sentence, without its full stop."""
        low, high = self.acc_interval
        which = "first" if self.trained_on == MOST_TRAINED_ON else "same"
        said = (
            f"a model that nobody can read ({self.name}, taught by the {which} "
            f"{self.trained_on:,} train tickets) has "
        )
        said += f"{self.acc:.1%} ({low:.0%}-{high:.0%})"
        return (
            f"{said}, at a cost of {self.cost:.3f} a ticket"
            if prices["fail"] != prices["pass"]
            else said
        )


def measure_on_test(config: LoopConfig, tickets: Sequence[Ticket]) -> dict[str, BlackBox]:
    """By mission, the figures of a model on a run's test tickets, as ``measure_on`` does."""
    if not tickets:
        return {}
    test = [tickets[i] for splits in split_tickets(tickets, config).values() for i in splits.test]
    return measure_on(test, config, tickets, config.price.by_label)


def measure_on(
    judged: Sequence[Ticket], config: LoopConfig, tickets: Sequence[Ticket], prices: Prices
) -> dict[str, BlackBox]:
    """By mission, the figures of a model on the tickets ``judged`` that a run's train tickets
    taught; ``tickets`` are all of the run's. Nothing of missions where nothing can be learnt or
    judged, and where scikit-learn is not installed."""
    if not find_spec("sklearn"):
        return {}
    found = {}
    for mission, splits in split_tickets(tickets, config).items():
        mine = [ticket for ticket in judged if ticket.mission == mission]
        if box := _measure([tickets[i] for i in splits.train], mine, prices, config.seed):
            found[mission] = box
    return found


def _measure(
    train: Sequence[Ticket], judged: Sequence[Ticket], prices: Prices, seed: int
) -> BlackBox | None:
    """Measure the model that suits these ``train`` tickets; None where they have one label alone or
    say nothing, or none is ``judged``."""
    train = train[:MOST_TRAINED_ON]
    says_something = any(read.pairs or read.words for read in map(reading, train))
    if not judged or len({ticket.label for ticket in train}) < 2 or not says_something:
        return None
    worded = sum(bool(reading(ticket).words) for ticket in train)
    name = "logistic" if worded >= WORDED * len(train) else "boosting"
    labels = list_labels(ticket.label for ticket in (*train, *judged))
    answered = make_confusion(labels)
    for ticket, verdict in zip(judged, CLASSIFIERS[name](train, judged, prices, seed), strict=True):
        answered[ticket.label][verdict] += 1
    found, cost = measure_confusion(answered), measure_classes(answered, prices)["cost"]
    return BlackBox(
        NAMES[name], len(train), len(judged), found["acc"], tuple(found["acc_interval"]), cost
    )


def classify_by_words(
    train: Sequence[Ticket], judged: Sequence[Ticket], prices: Prices, seed: int
) -> list[Verdict]:
    """By logistic regression on words, pairs of words, and values under their names (TF-IDF)."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    vectors = TfidfVectorizer(analyzer=_list_words, sublinear_tf=True)
    model = LogisticRegression(C=10.0, max_iter=1000, random_state=seed)
    model.fit(
        vectors.fit_transform(train), [ticket.label for ticket in train], _weigh(train, prices)
    )
    return list(map(str, model.predict(vectors.transform(judged))))


def classify_by_boosting(
    train: Sequence[Ticket], judged: Sequence[Ticket], prices: Prices, seed: int
) -> list[Verdict]:
    """By gradient boosting on numbers, values and words."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    features, asked = ([dict(_list_features(one)) for one in some] for some in (train, judged))
    counts = Counter(name for each in features for name in each)
    columns = [name for name in counts if counts[name] >= FEWEST_TICKETS] or list(counts)

    def tabulate(rows: Sequence[Mapping[str, float]]) -> list[list[float]]:
        return [[row.get(name, float("nan")) for name in columns] for row in rows]

    with threadpool_limits(1):  # a process with threads of OpenMP cannot be forked safely
        model = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
        model.fit(tabulate(features), [ticket.label for ticket in train], _weigh(train, prices))
        return list(map(str, model.predict(tabulate(asked))))


CLASSIFIERS: Mapping[str, Classifier] = {
    "logistic": classify_by_words,
    "boosting": classify_by_boosting,
}
NAMES = {"logistic": "logistic regression on words", "boosting": "gradient boosting"}


# Inside -------------------------------------------------------------------------------------------


def _list_words(ticket: Ticket) -> list[str]:
    read = reading(ticket)
    phrases = (" ".join(pair) for text in read.texts for pair in pairwise(text.split()))
    return [
        *(f"{name}={value}" for name, value in read.pairs.items()),
        *sorted(read.words),
        *phrases,
    ]


def _list_features(ticket: Ticket) -> Iterator[tuple[str, float]]:
    """Numbers under their names; 1 for every other value, and for every word."""
    read = reading(ticket)
    for name, value in read.pairs.items():
        number = parse_number(value)
        yield (f"{name}={value}", 1.0) if number is None else (name, number)
    yield from ((f"mentions {word}", 1.0) for word in sorted(read.words))


def _weigh(tickets: Sequence[Ticket], prices: Prices) -> list[float]:
    """The weight of each ticket, 1 in the mean."""
    weights = [prices.get(ticket.label, 1.0) for ticket in tickets]
    return [weight * len(weights) / sum(weights) for weight in weights]
