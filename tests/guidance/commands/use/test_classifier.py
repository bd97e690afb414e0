"""``stageb.GuidanceClassifier``: scikit-learn's protocol, and the rules that the command learns."""

from __future__ import annotations

import importlib
import math
import pickle
import sys
import threading
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from times import TIMES

import stageb
from stageb.__main__ import main
from stageb.guidance.judging.selection import majority
from stageb.seeds import stream, uniform

pytest.importorskip("sklearn", reason="the extra baselines is not installed")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from stageb.guidance.commands.use import columns
from stageb.guidance.rules.fields import read_ticket

ROWS = [{"seal": ("worn", "good", "new")[n % 3], "length": n % 40} for n in range(240)]
CLASSES = ["NG" if row["seal"] == "worn" else "OK" for row in ROWS]
KINDS = [
    "urgent" if row["seal"] == "worn" else "repair" if int(row["length"]) > 20 else "fine"
    for row in ROWS
]
NOT_HERE: dict[str, str] = {}  # checks of scikit-learn that need not hold, and why


def frame(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(rows, index=range(5, 5 + len(rows)))


def series(classes: list[Any]) -> Any:
    return pytest.importorskip("pandas").Series(classes, range(5, 5 + len(classes)), "string")


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return [f"case {n}: a seal that is {row['seal']}" for n, row in enumerate(rows)]


def array(rows: list[dict[str, Any]]) -> Any:
    return np.array([[row["seal"] == "worn", row["length"]] for row in rows])


@pytest.mark.parametrize("kind", [list, frame, texts, array])
def test_rows_of_any_kind_teach_rules_that_say_why(kind: Any) -> None:
    learnt = stageb.GuidanceClassifier().fit(kind(ROWS), CLASSES)
    assert learnt.score(kind(ROWS), CLASSES) == 1.0
    assert learnt.fails_ == "NG" and len(learnt.rules_) == 2
    why = learnt.explain(kind(ROWS[:2]))
    if kind is frame:
        assert list(why.index) == [5, 6]
        why = why.to_dict("records")
    assert [(row["class"], row["rule"]) for row in why] == [("NG", "G1"), ("OK", "G0")]
    assert why[0]["text"] == learnt.rules_["G1"]
    assert not hasattr(learnt, "run_")


def test_it_learns_what_the_command_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {**row, "label": {"NG": "fail", "OK": "pass"}[each]}
        for row, each in zip(ROWS, CLASSES, strict=True)
    ]
    Path("t.csv").write_text(
        "\n".join(",".join(map(str, row)) for row in [rows[0], *(row.values() for row in rows)])
    )
    keys = {
        "model.engine": "scripted",
        "fabric.accelerator": "cpu",
        "fabric.devices": 1,
        "report": False,
        "seed": 5,
    }
    keys |= {
        "split": '{"train": 1, "val": 0, "test": 0}',
        "columns": "mission_name=tickets,group_id=null",
    }
    assert (
        main(
            [
                "fit",
                "--config=tickets",
                "--config=frugal",
                "--tickets=t.csv",
                *(f"--{k}={v}" for k, v in keys.items()),
            ]
        )
        == 0
    )
    learnt = stageb.GuidanceClassifier(seed=5, folder="own").fit(ROWS, CLASSES)
    (by_command,) = Path("out").rglob("guidance.json")
    (own,) = learnt.run_.folder.rglob("guidance.json")
    assert own.read_bytes() == by_command.read_bytes()
    assert "G1" in learnt.run_.report()._repr_html_()
    again = learnt.set_params(seed=6).fit(ROWS, CLASSES)  # as a notebook does, cell after cell
    assert again.run_.folder.is_dir() and again.run_.config.seed == 6


def test_it_is_a_classifier_among_others() -> None:
    first = stageb.GuidanceClassifier(seed=3)
    assert cross_val_score(clone(first), ROWS, CLASSES, cv=3).tolist() == [1.0] * 3
    assert clone(first).get_params() == first.get_params()
    piped = make_pipeline(
        FunctionTransformer(lambda rows: [{**row, "seal": row["seal"].upper()} for row in rows]),
        first.set_params(seed=4),
    )
    assert piped.fit(ROWS, CLASSES).score(ROWS, CLASSES) == 1.0
    assert pickle.loads(pickle.dumps(first)).predict(ROWS[:2]).tolist() == ["NG", "OK"]


def test_probabilities_are_shares_of_the_rows_that_a_rule_decides() -> None:
    # 120 rows on, the same is NG
    classes = ["OK" if n in (0, 30, 60) else each for n, each in enumerate(CLASSES)]
    learnt = stageb.GuidanceClassifier().fit(ROWS, classes)
    decided = Counter(zip((row["rule"] for row in learnt.explain(ROWS)), classes, strict=True))
    assert learnt.classes_.tolist() == ["NG", "OK"] and len(decided) > 2
    for row, given in zip(learnt.explain(ROWS), learnt.predict_proba(ROWS), strict=True):
        both = [decided[row["rule"], name] + 1 for name in ("NG", "OK")]
        assert given == pytest.approx([count / sum(both) for count in both])


def test_a_row_that_lacks_what_rules_name_gets_the_commoner_class() -> None:
    learnt = stageb.GuidanceClassifier().fit(ROWS, CLASSES)
    assert learnt.predict([{"length": 3}]).tolist() == ["OK"]
    (why,) = learnt.explain([{"length": 3}])
    assert (why["class"], why["rule"]) == ("OK", "") and "G1" in why["text"]


def test_values_that_no_row_of_fit_had_are_warned_of(recwarn: pytest.WarningsRecorder) -> None:
    tiers = ["gold", "silver", "bronze"]
    rows = [{"tier": tiers[n % 3], "days": n} for n in range(120)]
    learnt = stageb.GuidanceClassifier().fit(
        rows, ["NG" if row["tier"] == "gold" else "OK" for row in rows]
    )
    learnt.predict([{"tier": "Gold", "days": 999}])
    assert not recwarn.list
    said = "^1 of 2 tickets have a value of 'tier' that no ticket of training had: 'tin'$"
    for judge in (learnt.predict, learnt.predict_proba, learnt.explain):
        with pytest.warns(UserWarning, match=said):
            judge([{"tier": "tin", "days": 3}, {"tier": "gold", "days": 4}])


@pytest.mark.parametrize(
    ("classes", "fails"), [([True, False], True), (["good", "odd"], "odd"), (["a", "b"], "b")]
)
def test_rules_speak_of_the_class_that_is_named_for_it_or_the_rarer_one(
    classes: list[Any], fails: object
) -> None:
    own = [classes[0] if n % 3 else classes[1] for n in range(30)]
    if fails == classes[0]:
        own = [classes[1] if n % 3 else classes[0] for n in range(30)]
    assert stageb.GuidanceClassifier().fit(ROWS[:30], own).fails_ == fails
    other = next(each for each in classes if each != fails)
    assert stageb.GuidanceClassifier(fails=other).fit(ROWS[:30], own).fails_ == other
    with pytest.raises(ValueError, match="no class of y"):
        stageb.GuidanceClassifier(fails="none").fit(ROWS[:30], own)


def test_of_classes_that_are_as_frequent_rules_speak_of_the_second() -> None:
    own = [["a", "b"][n % 2] for n in range(30)]
    assert stageb.GuidanceClassifier().fit(ROWS[:30], own).fails_ == "b"


def test_rules_of_more_than_two_classes_name_each() -> None:
    learnt = stageb.GuidanceClassifier().fit(ROWS, KINDS)
    assert (
        learnt.classes_.tolist() == ["fine", "repair", "urgent"]
        and learnt.score(ROWS, KINDS) == 1.0
    )
    assert "Urgent if seal is worn." in learnt.rules_.values() and "fine" in learnt.rules_["G0"]
    for row, given in zip(ROWS, learnt.predict_proba(ROWS), strict=True):
        assert sum(given) == pytest.approx(1.0) and min(given) > 0, row
    numbers = [{"fine": 0, "repair": 1, "urgent": 2}[each] for each in KINDS]
    assert stageb.GuidanceClassifier().fit(ROWS, numbers).predict(ROWS[:3]).tolist() == numbers[:3]
    with pytest.raises(ValueError, match="leave it out"):
        stageb.GuidanceClassifier(fails="urgent").fit(ROWS, KINDS)
    with pytest.raises(ValueError, match="'none' stands for something else"):
        stageb.GuidanceClassifier().fit(
            ROWS, ["none" if each == "fine" else each for each in KINDS]
        )


@pytest.mark.parametrize("kind", [list, series, lambda y: np.array(y, dtype=object)])
@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_rows_without_a_class_are_told_with_their_number(kind: Any, nothing: object) -> None:
    given: list[object] = [*CLASSES]
    given[3] = given[7] = nothing
    with pytest.raises(
        ValueError,
        match="2 of 240 labels are missing, the first in row 3, counted from 0: drop these rows",
    ):
        stageb.GuidanceClassifier().fit(ROWS, kind(given))
    with pytest.raises(ValueError, match="1 of 3 labels are missing"):
        stageb.GuidanceClassifier().fit(ROWS[:3], np.array([0.0, 1.0, np.nan]))


def interrupt(mission: str, candidates: Any) -> Any:
    """A selection that is interrupted once rules are learnt, as the only tickets judged after that
    are those of test."""
    calls.append(0)
    if len(calls) > 30:
        raise KeyboardInterrupt
    return majority(mission, candidates)


calls: list[int] = []


def test_an_interrupt_keeps_what_is_learnt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls.clear()
    keys = {"selection": f"{__name__}:interrupt", "split": {"train": 0.9, "val": 0.0, "test": 0.1}}
    learnt = stageb.GuidanceClassifier(keys=keys, folder=str(tmp_path)).fit(ROWS, CLASSES)
    assert len(calls) > 30 and not learnt.run_.is_finished
    assert learnt.predict(ROWS[:2]).tolist() == ["NG", "OK"]
    assert capsys.readouterr() == ("", "")


def test_rows_that_say_the_same_are_one_case_unless_they_are_said_to_be_cases_of_their_own() -> (
    None
):
    same = [{"seal": row["seal"]} for row in ROWS]
    with pytest.warns(UserWarning, match="no rule was learnt from 240 rows, of which 3 differ"):
        assert len(stageb.GuidanceClassifier().fit(same, CLASSES).rules_) == 1
    apart = stageb.GuidanceClassifier(keys={"columns": {"repeats": "apart"}}).fit(same, CLASSES)
    assert apart.score(same, CLASSES) == 1.0


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "stageb.guidance.commands.use.classifier", raising=False)
    with pytest.raises(ImportError, match=r"stageb\[baselines\]"):
        importlib.import_module("stageb.guidance.commands.use.classifier")


STRANGE = [
    "label",
    "mission",
    "group_id",
    "label_",
    " label ",
    "per_image",
    "image_1",
    "split",
    "reason",
    "together",
    " x0 ",
    "Label",
]


@pytest.mark.parametrize("kind", [list, frame])
@pytest.mark.parametrize("name", STRANGE)
def test_a_column_may_be_called_anything(kind: Any, name: str) -> None:
    rows = [{name: row["seal"], "length": row["length"]} for row in ROWS]
    learnt = stageb.GuidanceClassifier().fit(kind(rows), CLASSES)
    assert learnt.predict(kind(rows)).tolist() == CLASSES
    assert {row["rule"] for row in learnt.explain(rows)} == {"G0", "G1"}


@pytest.mark.parametrize(
    ("taught", "asked"), [(frame, array), (array, frame), (array, list), (list, array)]
)
@pytest.mark.filterwarnings("ignore:X (has|does not have) (valid )?feature names")
def test_rows_without_names_are_read_by_their_places(taught: Any, asked: Any) -> None:
    rows = [{"is worn": int(row["seal"] == "worn"), "length": row["length"]} for row in ROWS]

    def write(kind: Any) -> Any:
        return array(ROWS) if kind is array else kind(rows)

    learnt = stageb.GuidanceClassifier().fit(write(taught), CLASSES)
    assert learnt.predict(write(asked)).tolist() == CLASSES
    few = array(ROWS)[:, :1] if asked is array else [{"other": 1}]
    with pytest.raises(ValueError, match=r"1 (columns|features)"):
        learnt.predict(few)


def test_columns_that_are_not_those_of_fit_are_refused_and_values_that_are_gone_warned_of() -> None:
    learnt = stageb.GuidanceClassifier().fit(ROWS, CLASSES)
    with pytest.raises(ValueError, match="3 columns, and none of those that fit had: seal, length"):
        learnt.predict([{"a": 1, "b": 2, "c": 3}])
    with pytest.warns(UserWarning, match="^30 of 30 rows have no 'seal', which rules name$"):
        learnt.predict([{"Seal": row["seal"], "length": row["length"]} for row in ROWS[:30]])


@pytest.mark.parametrize("strange", ["n.m.", "> 20", math.inf])
def test_a_cell_that_is_no_number_does_not_hide_a_limit(strange: object) -> None:
    rows = [{"size": strange if n == 7 else n / 10, "line": "abc"[n % 3]} for n in range(120)]
    classes = ["NG" if n > 60 else "OK" for n in range(120)]
    with pytest.warns(UserWarning, match=r"'size': \['.*'\] beside numbers: read as missing ones"):
        learnt = stageb.GuidanceClassifier().fit(rows, classes)
    assert learnt.predict(rows).tolist() == classes
    assert learnt.predict([{"size": 2.5, "line": "a"}, {"size": 11.0, "line": "a"}]).tolist() == [
        "OK",
        "NG",
    ]


@pytest.mark.parametrize("kind", [list, frame])
def test_a_length_of_time_is_a_number_of_hours(kind: Any) -> None:
    rows = [{"open": timedelta(minutes=6 * n)} for n in range(120)]
    classes = ["NG" if n > 60 else "OK" for n in range(120)]
    learnt = stageb.GuidanceClassifier().fit(kind(rows), classes)
    assert [*learnt.rules_.values()][1:] == ["Fail if open is above 6."]
    assert learnt.score(kind(rows), classes) == 1.0


@pytest.mark.parametrize("nothing", [None, float("nan"), np.nan, "NaT", "NA"])
def test_what_is_no_number_is_an_empty_cell_in_any_kind_of_rows(nothing: object) -> None:
    pandas = pytest.importorskip("pandas")
    nothing = getattr(pandas, nothing) if isinstance(nothing, str) else nothing
    rows = [
        {"seal": nothing if n % 4 == 0 else row["seal"], "length": row["length"]}
        for n, row in enumerate(ROWS)
    ]
    classes = ["NG" if n % 4 == 0 else "OK" for n, _ in enumerate(rows)]
    learnt = stageb.GuidanceClassifier().fit(rows, classes)
    assert "missing" in learnt.rules_["G1"]
    with warnings.catch_warnings(action="error"):  # objects have names, as frames do
        for kind in (list, frame):
            assert learnt.predict(kind(rows)).tolist() == classes
    cells = np.array([[*row.values()] for row in rows], dtype=object)
    assert stageb.GuidanceClassifier().fit(cells, classes).predict(cells).tolist() == classes


@pytest.mark.parametrize(
    ("before", "classes_before", "after", "classes"),
    [(array, CLASSES, list, KINDS), (list, KINDS, array, CLASSES)],
)
def test_nothing_of_an_earlier_fit_is_left_in_a_later_one_nor_after_one_that_failed(
    before: Any, classes_before: list[str], after: Any, classes: list[str]
) -> None:
    learnt, new = stageb.GuidanceClassifier(), stageb.GuidanceClassifier()
    learnt.fit(before(ROWS), classes_before).automate(before(ROWS), classes_before)
    learnt.fit(after(ROWS), classes)
    assert vars(learnt).keys() == vars(new.fit(after(ROWS), classes)).keys()
    assert learnt.explain(after(ROWS)) == new.explain(after(ROWS))
    assert (learnt.predict_proba(after(ROWS)) == new.predict_proba(after(ROWS))).all()
    with pytest.raises(NotFittedError):
        learnt.decides_alone(after(ROWS))
    with pytest.raises(ValueError, match="one class"):
        learnt.fit(ROWS, ["OK"] * len(ROWS))
    check_is_unfitted(learnt)


def check_is_unfitted(untaught: stageb.GuidanceClassifier) -> None:
    for ask in (untaught.predict, untaught.predict_proba, untaught.explain, untaught.decides_alone):
        with pytest.raises(NotFittedError):
            ask(ROWS)


def test_before_fit_and_after_one_that_failed_it_says_that_it_is_not_fitted() -> None:
    untaught = stageb.GuidanceClassifier()
    check_is_unfitted(untaught)
    with pytest.raises(ValueError, match="one class"):
        untaught.fit(ROWS, ["OK"] * len(ROWS))
    check_is_unfitted(untaught)


def test_threads_that_fit_leave_the_standard_streams_as_they_were_and_hide_nothing_of_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, done = (sys.stdout, sys.stderr), threading.Event()

    def speak() -> None:
        while not done.wait(0.01):
            print("x", end="")

    speaker = threading.Thread(target=speak)
    speaker.start()
    with ThreadPoolExecutor(3) as pool:
        fits = [
            pool.submit(stageb.GuidanceClassifier(seed=seed).fit, ROWS, CLASSES)
            for seed in range(3)
        ]
        assert [each.result().rules_["G1"] for each in fits] == ["Fail if seal is worn."] * 3
    done.set()
    speaker.join()
    assert (sys.stdout, sys.stderr) == before
    said = capsys.readouterr()
    assert set(said.out) == {"x"} and len(said.out) > 10 and said.err == ""


@pytest.mark.slow
def test_scikit_learn_finds_nothing_amiss() -> None:
    check_estimator(stageb.GuidanceClassifier(), expected_failed_checks=NOT_HERE, on_skip=None)


def test_rows_are_decided_alone_under_a_bound_on_their_errors() -> None:
    """Of odd rows, which a rule fails, four in ten are good."""

    def make(rows: int, key: int) -> tuple[list[dict[str, str]], list[str]]:
        made, checked = [], []
        for n in range(rows):
            heat, kind = 60 + 50 * uniform(stream(key, "heat"), n), uniform(stream(key, "kind"), n)
            fails = heat > 95 or (kind < 0.3 and uniform(stream(key, "odd"), n) < 0.6)
            made.append({"heat": f"{heat:.4f}", "kind": "odd" if kind < 0.3 else "even"})
            checked.append("NG" if fails else "OK")
        return made, checked

    learnt = stageb.GuidanceClassifier().fit(*make(600, 1))
    rows, checked = make(1200, 3)
    with pytest.raises(NotFittedError):
        learnt.decides_alone(rows)
    assert not learnt.automate(*make(40, 2), max_error=0.02).decides_alone(rows).any()
    learnt.automate(*make(600, 2), max_error=0.03)
    alone = learnt.decides_alone(rows)
    assert 0.5 < alone.mean() < 0.9
    wrong = np.asarray(checked, dtype=object) != learnt.predict(rows)
    assert wrong[alone].mean() <= 0.03 < wrong.mean()
    groups = [n // 50 for n in range(600)]
    # a dozen draws
    assert learnt.automate(*make(600, 2), max_error=0.03, groups=groups).automation_ is None
    with pytest.raises(ValueError, match="fit had no 'maybe'"):
        learnt.automate(rows[:2], ["OK", "maybe"])
    shares: list[tuple[str, dict[str, float]]] = [
        *(("max_error", {"max_error": share}) for share in (0.0, -0.1, 1.1)),
        *(("confidence", {"confidence": share}) for share in (0.0, 1.0, 95.0)),
    ]
    for named, share in shares:
        with pytest.raises(ValueError, match=f"{named}: {share[named]}: give a share"):
            learnt.automate(rows, checked, **share)


def test_a_row_that_lacks_what_no_row_of_fit_lacked_is_not_decided_alone() -> None:
    """A card gives what is not there no points, and the row a class."""
    signs = "abcde"
    rows = [
        {"part": f"p{n}", **{sign: "ny"[int(2 * uniform(stream(sign), n))] for sign in signs}}
        for n in range(900)
    ]
    checked = ["NG" if sum(row[sign] == "y" for sign in signs) >= 3 else "OK" for row in rows]
    learnt = stageb.GuidanceClassifier().fit(rows[:400], checked[:400])
    learnt.automate(rows[400:], checked[400:], max_error=0.05)
    assert learnt.automation_ and learnt.automation_.told == tuple(signs)
    whole = dict.fromkeys(("part", *signs), "y")
    given = [whole, *({**whole, sign: None} for sign in signs)]
    assert list(learnt.predict(given)) == ["NG"] * 6
    assert learnt.decides_alone(given).tolist() == [True] + [False] * 5


CELLS: dict[str, list[Any]] = {
    "Type": ["H", "M", "L", "h ", None, "x\ty", 'q"t', "二", "a\r\nb"],
    "Torque": ["12,5", "-4", "61,25 Nm", "75", float("nan"), "1e7", ""],
    "Wear": ["20 min", "99 min", "205 min", " 250 min", True, 3, -0.0],
    " Note": ["a leak; seal worn", "worn seal", "hot", None, "leaks", "fine, dry. new"],
    "长度": ["12 mm", "8 mm", "3 mm", "n/a", np.int8(3)],
}
SEEN = {"image_1": ['{"plug": 2, "state": "loose"}', '{"plug": 0}', "looks fine", None]}
TRUTHS: dict[str, Any] = {
    "value": lambda row: row["Type"] == "M" or row["长度"] == "12 mm",
    "number": lambda row: str(row["Torque"])[:2] in ("61", "75"),
    "text": lambda row: "leak" in str(row[" Note"]) or "worn" in str(row[" Note"]),
    "lacks": lambda row: row[" Note"] is None or row["长度"] == "n/a",
    "image": lambda row: str(row.get("image_1")).startswith('{"plug": 2'),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("asks", TRUTHS)
@pytest.mark.parametrize("kind", [list, frame])
def test_many_rows_are_judged_as_each_by_itself(kind: Any, asks: str) -> None:
    """Whatever cells hold: other types, commas before decimals, units, marks of missing values, a
    renamed column, columns that are gone."""
    roles = {"decimal": ",", "missing": ["n/a"], "rename": {"长度": "length"}}
    draw, cells = Random(asks), CELLS | (SEEN if asks == "image" else {})

    def make(rows: int) -> list[dict[str, Any]]:
        return [{name: draw.choice(of) for name, of in cells.items()} for _ in range(rows)]

    rows = make(200)
    classes = ["NG" if TRUTHS[asks](row) else "OK" for row in rows]
    learnt = stageb.GuidanceClassifier(keys={"columns": roles}).fit(kind(rows), classes)
    assert len(learnt.rules_) > 1
    for number in range(3 * TIMES if kind is list else TIMES):
        rows = make(20)
        # scikit-learn refuses a frame without one
        for name in draw.sample([*cells], number % 3 if kind is list else 0):
            rows = [{each: row[each] for each in row if each != name} for row in rows]
        for judge in (learnt.predict, learnt.predict_proba, learnt.explain):
            alone = [judge(kind([row]))[:1] for row in rows]
            if judge == learnt.explain and kind is frame:
                assert judge(kind(rows)).to_dict("records") == [
                    each.to_dict("records")[0] for each in alone
                ]
            else:
                assert list(map(str, judge(kind(rows)))) == [str(each[0]) for each in alone]


def test_rows_that_rules_cannot_tell_apart_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learnt = stageb.GuidanceClassifier().fit(ROWS, CLASSES)
    asked = Mock(side_effect=read_ticket)
    monkeypatch.setattr(columns, "read_ticket", asked)
    many = [{"seal": row["seal"], "length": n} for n, row in enumerate(ROWS)]
    assert learnt.predict(many).tolist() == CLASSES
    assert asked.call_count <= 3


def test_what_is_counted_and_not_there_is_not_missing(recwarn: pytest.WarningsRecorder) -> None:
    rows = [{"image_1": f'{{"plug": {n % 3}}}'} for n in range(240)]
    learnt = stageb.GuidanceClassifier(keys={"columns": {"repeats": "apart"}}).fit(
        rows, ["NG" if n % 3 == 2 else "OK" for n in range(240)]
    )
    assert "plug" in learnt.rules_["G1"]
    recwarn.clear()
    assert learnt.predict([{"image_1": '{"seal": 1}'}] * 20).tolist() == ["OK"] * 20
    assert not recwarn.list


def test_no_rows_have_no_classes() -> None:
    learnt = stageb.GuidanceClassifier().fit(frame(ROWS), CLASSES)
    assert learnt.predict(frame(ROWS)[:0]).tolist() == []
