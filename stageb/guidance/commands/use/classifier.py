"""Written rules as a scikit-learn classifier, learnt and applied by code, without a model or a
GPU."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain, islice
from typing import Any, TextIO, TypeVar
from warnings import warn

import numpy as np

from stageb.guidance.commands.use.columns import KeyedRows
from stageb.guidance.commands.use.doubts import (
    StrangeValues,
    find_missing_fields,
    find_named_fields,
    find_shares,
    is_unusual,
)
from stageb.guidance.commands.use.fit import fit_here, in_kind, read_table
from stageb.guidance.commands.use.guess import find_marks
from stageb.guidance.commands.use.source import find_tickets
from stageb.guidance.commands.use.table_words import FAILS, PASSES
from stageb.guidance.judging.automation import find_bounds, name_guidance, weigh_ruling
from stageb.guidance.rules.fields import write_cell
from stageb.guidance.rules.judge import make_explainer, read_rules
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.rules.value_types import Reading, clean_value
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.tickets.headers import list_roles
from stageb.guidance.words.automation import Automation
from stageb.guidance.words.texts import labels_fault
from stageb.seeds import stream, uniform

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        check_consistent_length,
        check_is_fitted,
        column_or_1d,
        validate_data,
    )
except ImportError as error:
    raise ImportError(
        "GuidanceClassifier needs scikit-learn: python -m pip install 'stageb[baselines]'"
    ) from error

V = TypeVar("V")

MISSION = "tickets"
KEYS = {
    "model": {"engine": "scripted"},  # which nobody asks
    "fabric": {"accelerator": "cpu", "devices": 1},
    "split": {"train": 1.0, "val": 0.0, "test": 0.0},
    "report": False,
}
SAYS_NOTHING = (
    "no rule was learnt from {:,} rows, of which {:,} differ; verbose=True shows why. Rows that "
    "say the same are one case: "
    'keys={{"columns": {{"repeats": "apart"}}}} makes them cases of their own'
)
# fits of this process, which share its signals, loggers and standard streams
ONE_BY_ONE = threading.Lock()
LEAST = 0.5 + 1e-6  # how probable a verdict is, however many rows of its rule had the other class


class GuidanceClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Learn written rules from rows with labels of 2 to 32 classes, and judge rows by them.

    ``X`` is a DataFrame of pandas or polars, a set of ``datasets``, a list of mappings or of texts,
    or an array.

    - ``config`` and ``seed`` are as of ``stageb.fit``, and ``keys`` are further keys of it
    - ``fails`` of two classes is the one that rules speak of ("Fail if ..."); None: the one whose
      name says so, as NG does, or the rarer
    - ``folder`` keeps the files of the run, which ``run_`` names, and sets those of an earlier one
      aside; None: they are thrown away
    - ``verbose`` prints what ``stageb fit`` prints

    ``rules_`` holds the texts of the rules by their keys, ``guidance_`` all that was learnt. An
    interrupt of ``fit`` keeps what is learnt by then, if anything is.
    """

    def __init__(
        self,
        *,
        config: str | Sequence[str] = ("tickets", "frugal"),
        seed: int = 17,
        fails: object = None,
        keys: Mapping[str, Any] | None = None,
        folder: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.config = config
        self.seed = seed
        self.fails = fails
        self.keys = keys
        self.folder = folder
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> GuidanceClassifier:  # noqa: N803  # as scikit-learn calls it
        """Learn from rows and their classes. Raises ``stageb.StagebError`` for what cannot be used.
        Threads that fit at the same time wait for each other."""
        # nothing of an earlier fit stands beside what this one learns, or fails to learn
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        cells, classes = self._read(X, reset=True), column_or_1d(y, warn=True)
        check_consistent_length(*islice(cells.values(), 1), classes)
        # where NaN stands among texts, classes call it "nan"
        given = np.asarray(y, dtype=object).ravel()
        if missing := [
            n for n, each in enumerate(given) if each is None or str(each == each) != "True"
        ]:
            what = (
                f"{len(missing):,} of {len(given):,} labels are missing, the first in row "
                f"{missing[0]}, counted from 0"
            )
            raise ValueError(f"y: {what}: drop these rows")
        check_classification_targets(classes)
        self.classes_ = np.unique(classes)
        if len(self.classes_) < 2:
            raise ValueError("y holds one class; rules tell two classes apart, or more")
        self._labels = self._name_labels(classes)
        verdicts = [self._labels[each] for each in classes.tolist()]
        with tempfile.TemporaryDirectory() as folder:
            self._learn(cells, verdicts, self.folder or folder)
        rulings = self._key_rows(cells).judge(lambda ruling, _: ruling)
        rightly = (
            each for each, verdict in zip(rulings, verdicts, strict=True) if each.verdict == verdict
        )
        self._decided, self._right = Counter(rulings), Counter(rightly)
        self._pilot = [
            weigh_ruling(ruling, verdict) for ruling, verdict in zip(rulings, verdicts, strict=True)
        ]
        self.class_prior_ = np.array([np.mean(classes == each) for each in self.classes_])
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The class of each row; the commoner one where rules cannot tell, since the row lacks a
        field that they name. Warns of values that no row of ``fit`` had in such fields, and of
        fields that more rows lack than chance explains. Columns are those of ``fit`` by their
        names, or by their places where either had none. Raises ``ValueError`` for others,
        ``sklearn.exceptions.NotFittedError`` before ``fit``."""
        rates = self._rate(self._read_new(X))
        return self.classes_[rates.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """How probable each of ``classes_`` is: its share of the rows of ``fit`` that the same rule
        decides, with one more of each class; of those that no rule of a row names, in proportion to
        their rows."""
        return self._rate(self._read_new(X))

    def explain(self, X: Any) -> Any:  # noqa: N803
        """The class of each row, and key and text of the rule that gives it, in the kind of
        ``X``."""
        rows = self._read_new(X)
        explain, known = make_explainer(self._coded), self.classes_.tolist()

        def tell(ruling: Ruling, reading: Reading) -> dict[str, Any]:
            found = known[self._weigh(ruling).argmax()]
            return {"class": found, "rule": ruling.rule, "text": explain(ruling, reading)}

        return in_kind(rows.judge(tell), X)

    def automate(
        self,
        X: Any,  # noqa: N803
        y: Any,
        *,
        max_error: float = 0.02,
        confidence: float = 0.95,
        groups: Any = None,
    ) -> GuidanceClassifier:
        """Find which rows may be decided alone, so that with this ``confidence`` at most a share
        ``max_error`` of these is classified wrong: ``decides_alone`` tells which, ``automation_``
        what was found, None where nothing can be promised.

        The rows must be ones that ``fit`` has not seen. ``groups`` names what each belongs to: of a
        group one row is drawn, by default of rows that say the same. Raises ``ValueError`` where a
        row has a class that ``fit`` had not, and for shares that no rows can prove."""
        check_is_fitted(self)
        if not 0 < max_error <= 1:
            raise ValueError(f"max_error: {max_error!r}: give a share above 0, up to 1")
        if not 0 < confidence < 1:
            raise ValueError(f"confidence: {confidence!r}: give a share between 0 and 1")
        cells, classes = self._read(X, reset=False), column_or_1d(y)
        given = [] if groups is None else [groups]
        check_consistent_length(*islice(cells.values(), 1), classes, *given)
        if unknown := [each for each in classes.tolist() if each not in self._labels]:
            raise ValueError(f"y: fit had no {unknown[0]!r}; it had {self.classes_.tolist()}")
        named = map(str, zip(*cells.values(), strict=True) if groups is None else groups)
        places: dict[str, list[int]] = {}
        for place, name in enumerate(named):
            places.setdefault(name, []).append(place)
        drawn = [
            of[int(len(of) * uniform(stream(self.seed, "automate", name), 0))]
            for name, of in places.items()
        ]
        told = tuple(name for name, share in self._shares.items() if not share)
        rulings = self._key_rows(cells).judge(
            lambda ruling, row: Ruling(None) if find_missing_fields(told, row, True) else ruling
        )
        verdicts = [self._labels[each] for each in classes.tolist()]
        tested = [weigh_ruling(rulings[place], verdicts[place]) for place in drawn]
        bound = find_bounds(self._pilot, tested, {"": max_error}, confidence)[""].bound
        name = name_guidance(self.guidance_)
        self.automation_ = (
            Automation(confidence, name, "rules", "", len(tested), told, (bound,))
            if bound
            else None
        )
        return self

    def decides_alone(self, X: Any) -> Any:  # noqa: N803
        """Whether each row is decided alone, under the bound that ``automate`` found."""
        check_is_fitted(self, "automation_")
        found = self.automation_

        def decides(ruling: Ruling, row: Reading) -> bool:
            if found is None or find_missing_fields(found.told, row, by_code=True):
                return False
            of = weigh_ruling(ruling, "")
            return found.decides(of.verdict, of.decider, of.margin)

        return np.array(self._read_new(X).judge(decides), dtype=bool)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "class_prior_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags

    # Inside

    def _read(self, rows: Any, reset: bool) -> dict[str, Sequence[str]]:
        """Cells of rows as a table holds them, by the names of columns that ``fit`` had; ``reset``:
        these are the rows of it."""
        if hasattr(rows, "to_list") and not hasattr(rows, "columns"):  # of datasets, or a Series
            rows = rows.to_list()
        if isinstance(rows, Sequence) and rows and isinstance(rows[0], str):
            rows = [{"text": text} for text in rows]
        if hasattr(rows, "columns") and all(isinstance(name, str) for name in rows.columns):
            if reset or hasattr(self, "feature_names_in_"):  # rows of fit may have been objects
                validate_data(self, rows, reset=reset, skip_check_array=True)
            cells = read_table(rows)
        elif isinstance(rows, Sequence) and rows and isinstance(rows[0], Mapping):
            cells = read_table(rows)
        else:
            array = validate_data(self, rows, reset=reset, dtype=None, ensure_all_finite=False)
            cells = {f"x{n}": [*map(write_cell, column)] for n, column in enumerate(array.T)}
        if reset:
            self._names = [*cells]
        elif not {*cells} & {*self._names}:  # an array, or rows of other names: by their places
            if len(cells) != len(self._names):
                raise ValueError(
                    f"X has {len(cells)} columns, and none of those that fit had: "
                    f"{', '.join(self._names[:5])}"
                )
            cells = dict(zip(self._names, cells.values(), strict=True))
        return cells

    def _key_rows(self, cells: Mapping[str, Sequence[str]]) -> KeyedRows:
        return KeyedRows.of(cells, self._roles, self._coded, self._shares)

    def _read_new(self, X: Any) -> KeyedRows:  # noqa: N803
        """Rows to judge."""
        check_is_fitted(self)
        rows, strange = self._key_rows(self._read(X, reset=False)), StrangeValues(self._kinds)
        strange.add(rows.fields)
        count = len(rows)
        lacking = {
            name: rows.fields[name].count("") if name in rows.fields else count
            for name in self._shares
        }
        told = [
            f"{lacks:,} of {count:,} rows have no {name!r}, which rules name"
            for name, lacks in lacking.items()
            if lacks and is_unusual(lacks, count, self._shares[name])
        ]
        for said in (*strange.describe(count), *told):
            warn(said, stacklevel=3)
        return rows

    def _name_labels(self, classes: Any) -> dict[Any, str]:
        """The label of each class: pass and fail of two, their own names of more."""
        known = self.classes_.tolist()
        if len(known) == 2:
            self.fails_ = self._choose_fails(classes)
            return {each: "fail" if each == self.fails_ else "pass" for each in known}
        if self.fails is not None:
            raise ValueError(
                f"fails: {self.fails!r} was given, but rules of {len(known)} classes name each; "
                f"leave it out"
            )
        names = list(map(str, known))
        if why := labels_fault(names):
            raise ValueError(f"y: the classes: {why}")
        return dict(zip(known, names, strict=True))

    def _choose_fails(self, classes: Any) -> Any:
        if self.fails is not None:
            if self.fails not in self.classes_:
                raise ValueError(
                    f"fails: {self.fails!r} is no class of y; choose one of "
                    f"{self.classes_.tolist()}"
                )
            return self.fails
        named = [str(each).casefold() for each in self.classes_]
        for place, name in enumerate(named):
            if name in FAILS or named[1 - place] in PASSES:
                return self.classes_[place]
        first, second = ((classes == each).sum() for each in self.classes_)
        return self.classes_[int(second <= first)]

    def _learn(
        self, cells: Mapping[str, Sequence[str]], verdicts: Sequence[str], folder: str
    ) -> None:
        """Have rules learnt from rows."""
        label = "label"
        taken = set(map(clean_value, cells))  # as a table reads the names of its columns
        while label in taken:
            label += "_"
        keys = {
            **KEYS,
            "config": self.config,
            "seed": int(self.seed),
            "output": {"root": folder},
            **(self.keys or {}),
        }
        keys["columns"] = {
            "mission_name": MISSION,
            "group_id": None,
            "label": label,
            "missing": self._find_missing(cells),
            **keys.get("columns", {}),
        }
        rows = [*zip(*cells.values(), strict=True)]
        labelled = [
            dict(zip((*cells, label), (*row, verdict), strict=True))
            for row, verdict in zip(rows, verdicts, strict=True)
        ]
        with ONE_BY_ONE, nullcontext() if self.verbose else _hush():
            self.run_ = fit_here(labelled, is_table=True, **keys)
        config, guidance = self.run_.config, self.run_.guidance
        self.guidance_ = guidance[MISSION]
        self.rules_ = {rule.key: rule.text for rule in self.guidance_.rules}
        if len(self.rules_) == 1:
            warn(SAYS_NOTHING.format(len(rows), len({*rows})), stacklevel=3)
        tickets, _ = find_tickets(str(self.run_.folder), named=config.tickets)
        words, vocabulary = words_of(config.prompt, config.model), Vocabulary.of(tickets)
        self._coded = read_rules(self.guidance_, vocabulary, words)
        self._roles = list_roles(config.columns)
        named = find_named_fields(self.guidance_, vocabulary, words)
        self._kinds = StrangeValues.beside(vocabulary, named).kinds
        self._shares = find_shares(named, tickets)
        if self.folder is None:
            del self.run_

    def _find_missing(self, cells: Mapping[str, Sequence[str]]) -> list[str]:
        """The cells that stand for missing numbers, of which a warning tells."""
        marks = find_marks(cells)
        for name, own in marks.items():
            warn(f"{name!r}: {own} beside numbers: read as missing ones", stacklevel=4)
        return sorted({*chain(*marks.values())})

    def _rate(self, rows: KeyedRows) -> Any:
        """How probable each class is, of each row."""
        rates = rows.judge(lambda ruling, _: self._weigh(ruling))
        return np.array(rates).reshape(-1, len(self.classes_))

    def _weigh(self, ruling: Ruling) -> Any:
        """How probable each class is."""
        if ruling.verdict is None:
            return self.class_prior_
        given = np.array([self._labels[each] == ruling.verdict for each in self.classes_.tolist()])
        right = max((self._right[ruling] + 1) / (self._decided[ruling] + len(given)), LEAST)
        others = np.where(given, 0, self.class_prior_)
        return np.where(given, right, (1 - right) * others / others.sum())


class _Hushed:
    """A stream that one thread writes nothing to."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self.stream.write(text)

    def isatty(self) -> bool:
        return threading.get_ident() != self.thread and self.stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def _hush() -> Iterator[None]:
    """Nothing that this thread says is shown; what others say is."""
    hushed = {name: _Hushed(getattr(sys, name)) for name in ("stdout", "stderr")}
    for name, silent in hushed.items():
        setattr(sys, name, silent)
    try:
        yield
    finally:
        for name, silent in hushed.items():
            silent.thread = -1  # who has taken hold of it meanwhile is heard
            if getattr(sys, name) is silent:
                setattr(sys, name, silent.stream)
