"""Budgets by mission: equal shares, what one leaves goes to the others, and what costs nothing
happens whatever was spent."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from guidance.test_stacking import KEYS
from guidance.trials import numbered
from hypothesis import example, given
from hypothesis import strategies as st
from programs import forks, small

from stageb.__main__ import main
from stageb.engines.config import ModelConfig
from stageb.guidance.commands.fit.stopping import RunLimits
from stageb.guidance.config import (
    BudgetConfig,
    EarlyStopConfig,
    LoopConfig,
    ReflectionConfig,
    RunnerConfig,
)
from stageb.guidance.learning.schedule import GuidanceSchedule
from stageb.guidance.learning.state import STOP, MissionState, Spent, State
from stageb.guidance.learning.transitions import find_over_budget, find_share, is_due, why_done
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.read_guidance import make_neutral, read_guidance
from stageb.guidance.tickets.splits import split_tickets
from stageb.store.commits import COMMIT
from stageb.store.journal import Journal

FILES = ("guidance.json", "metrics.jsonl", "reflection.jsonl", "selections.jsonl")

USED = st.lists(st.sampled_from([0, 10, 60, 80, 110, 150]), min_size=4, max_size=4)


@example(300, [0, 10, 0, 0], 3, 2)
@given(st.sampled_from([0, 200, 300]), USED, st.integers(1, 4), st.integers(0, 4))
def test_shares_are_equal_and_what_one_mission_leaves_goes_to_the_others(
    limit: int, amounts: list[int], missions: int, ended: int
) -> None:
    used = {f"m{n}": amount for n, amount in enumerate(amounts[:missions])}
    over = [*used][:ended]
    share, equal = find_share(limit, used, over), limit / len(used)
    assert share >= equal
    if len(over) < len(used):
        left = {name for name in over if used[name] < share}
        assert (
            abs(share * (len(used) - len(left)) + sum(used[name] for name in left) - limit) < 1e-6
        )
    assert find_share(limit, used, ()) == equal
    for names in permutations(over):
        assert find_share(limit, used, names) == pytest.approx(share), "in whichever order"


LIMITS = ("rollouts", "tokens", "seconds")
FEW = st.integers(0, 3)


@given(
    st.dictionaries(st.sampled_from(LIMITS), st.integers(2, 6), min_size=1),
    st.lists(
        st.tuples(st.tuples(FEW, FEW, FEW, FEW), st.booleans(), st.booleans()),
        min_size=2,
        max_size=3,
    ),
)
@example({"rollouts": 3}, [((0, 0, 0, 0), True, False), ((1, 1, 0, 0), False, False)])
@example({"rollouts": 4}, [((3, 3, 0, 0), True, True), ((1, 1, 0, 0), False, False)])
def test_a_mission_has_spent_the_first_budget_of_which_it_has_used_its_share(
    limits: dict[str, int], made: list[tuple[tuple[int, int, int, int], bool, bool]]
) -> None:
    """Rollouts and verdicts for the gate count together. A mission that has ended for another
    reason is not named, unless code alone taught it, for nothing; what it leaves is the others'."""
    config = LoopConfig(
        tickets=["t.jsonl"],
        budget=BudgetConfig(**limits),
        early_stop=EarlyStopConfig(reflections=1),
    )
    missions, seconds = dict[str, MissionState](), dict[str, float]()
    used: dict[str, dict[str, float]] = {limit: {} for limit in LIMITS}
    for n, ((rollouts, judged, tokens, taken), is_done, is_unpaid) in enumerate(made):
        name = f"m{n}"
        missions[name] = MissionState(
            make_neutral(name, WORDS["en"]),
            spent=Spent(rollouts, judged, reflections=999, tokens=tokens, saved=999),
            idle_bundles=int(is_done),
            unpaid=is_unpaid,
        )
        if taken:
            seconds[name] = taken
        for limit, amount in zip(LIMITS, (rollouts + judged, tokens, taken), strict=True):
            used[limit][name] = amount
    done = [name for name, mission in missions.items() if mission.idle_bundles]
    found = find_over_budget(State(missions), seconds, config)
    for name, mission in missions.items():
        reached = [
            f"budget.{limit}"
            for limit in LIMITS
            if limit in limits and used[limit][name] >= find_share(limits[limit], used[limit], done)
        ]
        learns_on = name not in done or mission.unpaid
        assert found.get(name) == (reached[0] if reached and learns_on else None)


@given(st.lists(st.integers(0, 100), max_size=6))
def test_seconds_of_all_steps_of_a_mission_count_and_of_no_other(steps: list[int]) -> None:
    config = LoopConfig(tickets=["t.jsonl"], budget=BudgetConfig(seconds=300))
    splits = dict.fromkeys(("m", "n"), split_tickets(numbered(20), config)["m"])
    limits = RunLimits(config, GuidanceSchedule(splits, config, 4), Path("of no run"))
    for seconds in steps:
        limits.count_seconds("m", seconds)
    state = State({name: MissionState(make_neutral(name, WORDS["en"])) for name in splits})
    over = {"m": "budget.seconds"} if sum(steps) >= 150 else {}
    assert limits.apply(state).over == over


BY_CODE = LoopConfig(
    tickets=["t.jsonl"],
    model=ModelConfig(model_name_or_path="some/model"),
    reflection=ReflectionConfig(scope="all"),
)
BY_MODEL = replace(BY_CODE, reflection=ReflectionConfig(scope="bundle"))
CODE_JUDGES = RunnerConfig(judge="both")


@pytest.mark.parametrize(
    ("config", "is_free"),
    [
        (BY_CODE, True),
        (replace(BY_CODE, runner=CODE_JUDGES), True),
        (BY_MODEL, True),  # code teaches such a model once, before it reflects
        (replace(BY_MODEL, runner=CODE_JUDGES), False),
        (replace(BY_MODEL, model=ModelConfig()), False),
        (replace(BY_MODEL, gate="none"), False),
    ],
)
def test_where_a_share_is_spent_nothing_is_due_but_one_lesson_by_code(
    config: LoopConfig, is_free: bool
) -> None:
    start = MissionState(make_neutral("m", WORDS["en"]), again=True)
    spent = State({"m": start}, over={"m": "budget.rollouts"})
    assert is_due(replace(spent, over={}), "m", 9, config)
    assert is_due(spent, "m", 9, config) == is_free
    assert not is_due(replace(spent, ended=STOP), "m", 9, config)
    taught = spent.with_mission(replace(start, bundles=1))
    assert not is_due(taught, "m", 9, config)


def test_before_a_share_is_spent_a_model_that_reflects_waits_for_as_many_records_as_it_takes() -> (
    None
):
    """Though code has not taught it yet, as where it starts from what was learnt before."""
    state = State({"m": MissionState(make_neutral("m", WORDS["en"]))})
    assert not is_due(state, "m", 9, BY_MODEL)


@pytest.mark.parametrize(
    ("early_stop", "idle", "key"),
    [
        (EarlyStopConfig(patience=None, reflections=None), (99, 99), ""),
        (EarlyStopConfig(patience=2, reflections=None), (1, 99), ""),
        (EarlyStopConfig(patience=2, reflections=None), (2, 0), "early_stop.patience"),
        (EarlyStopConfig(patience=None, reflections=3), (99, 2), ""),
        (EarlyStopConfig(patience=None, reflections=3), (0, 3), "early_stop.reflections"),
    ],
)
def test_learning_ends_early_once_so_much_in_a_row_was_idle_and_never_without_a_limit(
    early_stop: EarlyStopConfig, idle: tuple[int, int], key: str
) -> None:
    config = LoopConfig(tickets=["t.jsonl"], early_stop=early_stop)
    start = make_neutral("m", WORDS["en"])
    mission = MissionState(start, idle_epochs=idle[0], idle_bundles=idle[1])
    assert why_done(mission, config) == key


def write(folder: Path) -> Path:
    return small.write(folder / "tickets.jsonl", "valves", "pumps", groups=240)


def fit(tickets: Path, root: Path, budget: int | None, **keys: Any) -> Path:
    given = {**KEYS, "budget.rollouts": budget, "early_stop.reflections": 2, **keys}
    assert main(small.arguments(tickets, root, keys.pop("world_size", 1), given)) == 0
    return root / "run"


def read_accuracies(run: Path, name: str) -> list[float]:
    rows = map(json.loads, (run / name / "metrics.jsonl").read_text().splitlines())
    return [row["acc"] for row in rows if row["split"] == "test"]


@pytest.mark.parametrize("scope", ["auto", "bundle"])
def test_one_mission_does_not_spend_what_another_learns_by(
    scope: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = fit(write(tmp_path), tmp_path, 900, **{"reflection.scope": scope})
    for name in ("valves", "pumps"):
        made = read_guidance(run)[name]
        assert made.rules[1].text == "Fail if state is torn." and made.demonstrations, (
            "taught with the model"
        )
        assert read_accuracies(run, name)[-1] > 0.9
    assert "code alone" not in capsys.readouterr().out


@pytest.mark.parametrize("scope", ["auto", "bundle"])
def test_what_costs_nothing_is_learnt_whatever_was_spent_and_the_table_says_so(
    scope: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = fit(write(tmp_path), tmp_path, 10, **{"reflection.scope": scope})
    said = capsys.readouterr().out
    for name in ("valves", "pumps"):
        made = read_guidance(run)[name]
        assert (
            made.judge == "rules"
            and made.rules[1].text == "Fail if state is torn."
            and not made.demonstrations
        )
        row = json.loads((run / name / "reflection.jsonl").read_text())
        assert row["gate"]["judged"] == 0 and row["gate"]["edits"][0]["outcome"] == "accepted"
        assert read_accuracies(run, name)[-1] > 0.95
        table = said[: said.index("\n\n")]
        assert [
            line
            for line in table.splitlines()
            if name in line and "learnt by code alone: budget.rollouts spent" in line
        ]
    spent = json.loads((run / COMMIT).read_text())["state"]["spent"]
    first = sum(
        row["rollouts"]
        for name in ("valves", "pumps")
        for row in read_rows(run, name)
        if row["epoch"] == 0
    )
    assert spent["rollouts"] + spent["judged"] == first, "nothing but judging val and test before"


def read_rows(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / name / "metrics.jsonl").read_text().splitlines()]


def test_where_no_rule_can_be_learnt_for_nothing_the_table_says_that_nothing_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {
        "prompt.style": "auto",
        "model.engine": "scripted",
        "model.model_name_or_path": "stageb-tiny",
    }
    assert (
        main(small.arguments(write(tmp_path), tmp_path, keys={**keys, "budget.rollouts": 10})) == 0
    )
    assert capsys.readouterr().out.count("learnt nothing: budget.rollouts spent") == 2


@pytest.mark.slow
def test_a_higher_budget_leaves_what_it_would_have_left_from_the_start(tmp_path: Path) -> None:
    tickets = write(tmp_path)
    low, straight = (
        fit(tickets, tmp_path / name, budget)
        for name, budget in (("raised", 10), ("straight", 900))
    )
    assert any(
        (low / "pumps" / file).read_bytes() != (straight / "pumps" / file).read_bytes()
        for file in FILES
    )
    fit(tickets, tmp_path / "raised", 900)
    for name in ("valves", "pumps"):
        for file in FILES:
            assert (low / name / file).read_bytes() == (straight / name / file).read_bytes()


@pytest.mark.slow
def test_shares_leave_the_same_bytes_on_any_number_of_ranks_and_after_a_kill(
    tmp_path: Path,
) -> None:
    tickets = write(tmp_path)
    keys = {
        **KEYS,
        "budget.rollouts": 700,
        "reflection.scope": "bundle",
        "early_stop.reflections": 2,
    }

    def run(name: str, job: str, size: int = 1, kill_before: int | None = None) -> forks.Ended:
        return forks.run(
            small.arguments(tickets, tmp_path / name, size, keys), size, tmp_path / job, kill_before
        )

    def read(name: str) -> dict[str, bytes]:
        return {
            f"{m}/{file}": (tmp_path / name / "run" / m / file).read_bytes()
            for m in ("valves", "pumps")
            for file in FILES
        }

    whole, on_two = run("whole", "job"), run("two", "two-job", 2)
    assert (whole.codes, on_two.codes) == ((0,), (0, 0)), whole.err + on_two.err
    assert read("two") == read("whole")
    for part in (3, 2):
        killed = run("killed", f"killed-{part}", kill_before=len(whole.operations[0]) // part)
        assert killed.codes != (0,)
    assert run("killed", "resumed").codes == (0,)
    assert read("killed") == read("whole")


def test_seconds_that_an_interrupted_run_took_count_when_it_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = small.arguments(write(tmp_path), tmp_path, keys={**KEYS, "budget.seconds": 10_000})
    commit, commits = Journal.commit, list[int]()

    def interrupt(journal: Journal, *values: Any, **named: Any) -> None:
        commits.append(journal.number)
        if len(commits) == 4:
            raise RuntimeError("interrupted")
        commit(journal, *values, **named)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="interrupted"):
        patched.setattr(Journal, "commit", interrupt)
        main(given)
    timings = tmp_path / "run" / "timings.jsonl"
    rows = [{**json.loads(line), "seconds": 9_000.0} for line in timings.read_text().splitlines()]
    timings.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    capsys.readouterr()
    assert main(given) == 0
    assert "budget.seconds spent" in capsys.readouterr().out
