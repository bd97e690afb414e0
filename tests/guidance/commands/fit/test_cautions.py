import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from stageb.guidance.commands.fit.cautions import (
    list_cautions,
    warn_of_copies,
    warn_of_few,
    warn_of_fields,
    warn_of_labels,
    warn_of_names,
    warn_of_numbers,
    warn_of_units,
)
from stageb.guidance.commands.fit.forecast import describe_inputs, forecast
from stageb.guidance.commands.fit.inputs import Inputs, read_inputs
from stageb.guidance.config import (
    GateConfig,
    GuidanceConfig,
    LoopConfig,
    PromptConfig,
    ReflectionConfig,
    RunnerConfig,
)
from stageb.guidance.learning.schedule import GuidanceSchedule
from stageb.guidance.tickets.groups import join_equal
from stageb.guidance.tickets.tickets import read_tickets
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.costs import PriceConfig
from stageb.guidance.words.types import Budget, Rule, Ticket, Verdict

TEXTS = [
    " ".join(f"w{a}{chr(97 + n)}{chr(97 + n * k % 26)}" for k, a in enumerate("pqrstu"))
    for n in range(20)
]
COLUMNS = ColumnsConfig(mission_name="m", group_id="id", passes=["OK"], fails=["NG"])
CONFIG = LoopConfig(tickets=["t.jsonl"])


def made(count: int, fails: Callable[[int], bool], says: Callable[[int], str]) -> list[Ticket]:
    labels: dict[bool, Verdict] = {True: "fail", False: "pass"}
    return [Ticket("m", f"g-{n}", labels[fails(n)], (("image_1", says(n)),)) for n in range(count)]


def read(
    tickets: Sequence[Ticket], folder: Path, config: LoopConfig = CONFIG
) -> tuple[LoopConfig, Inputs]:
    path = folder / "tickets.jsonl"
    rows = (
        {
            "mission": t.mission,
            "group_id": t.group_id,
            "label": t.label,
            "per_image": dict(t.per_image),
        }
        for t in tickets
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = replace(config, tickets=[str(path)])
    return config, read_inputs(config)


def cautions(tickets: Sequence[Ticket], folder: Path, config: LoopConfig = CONFIG) -> list[str]:
    config, inputs = read(tickets, folder, config)
    return list(list_cautions(inputs, config))


def test_one_label_alone_teaches_nothing() -> None:
    (line,) = warn_of_labels(made(40, lambda n: False, lambda n: f"size: {n}"), CONFIG)
    assert line.startswith("all 40 tickets are labelled pass")


def test_rare_failures_at_equal_prices_are_told_with_what_always_passing_would_score() -> None:
    rare = made(100, lambda n: n < 4, lambda n: f"size: {n}")
    (line,) = warn_of_labels(rare, CONFIG)
    assert "4 of 100" in line
    assert "96.0%" in line
    assert "--price.missed_failure 20" in line
    assert not list(warn_of_labels(rare, replace(CONFIG, price=PriceConfig(missed_failure=20))))
    assert not list(warn_of_labels(made(100, lambda n: n < 20, lambda n: f"size: {n}"), CONFIG))


@pytest.mark.parametrize(
    ("says", "tells"),
    [
        (lambda n: f"state: {'broken' if n % 4 == 0 else 'whole'}; size: {n}", "state"),
        (lambda n: f"repair: {n + 100 if n % 4 == 0 else 0}; size: {n % 7}", "repair"),
        (lambda n: f"state: {'broken' if n % 4 == 0 or n == 3 else 'whole'}; size: {n}", None),
        # different everywhere: it tells nothing of others
        (lambda n: f"name: part {n}; size: {n % 7}", None),
    ],
)
def test_a_field_that_gives_the_label_away_is_named(
    says: Callable[[int], str], tells: str | None
) -> None:
    found = list(warn_of_fields(made(80, lambda n: n % 4 == 0, says)))
    assert [line.split("'")[1] for line in found] == ([tells] if tells else [])


def test_fields_that_are_nearly_always_empty_are_named_in_forms_alone() -> None:
    def says(n: int) -> str:
        return f"size: {n % 7}; remark: old" if n < 3 else f"size: {n % 7}"

    (line,) = warn_of_fields(made(100, lambda n: n % 2 == 0, says))
    assert line.startswith("nearly always empty: 'remark'")
    assert not list(
        warn_of_fields(made(100, lambda n: n % 2 == 0, lambda n: f"worn on one side. {says(n)}"))
    )


def test_broken_values_among_numbers_are_named_with_their_place() -> None:
    def says(n: int) -> str:
        return (
            f"perimeter: {'#REF!' if n in (7, 30) else n / 8}; size: "
            f"{'n/a' if n == 3 else f'{n} mm'}; code: A{n}"
        )

    tickets = [
        replace(t, place=f"my.csv:{n + 2}")
        for n, t in enumerate(made(80, lambda n: n % 4 == 0, says))
    ]
    found = list(warn_of_numbers(tickets))
    assert [line.split(":")[0] for line in found] == ["'size'", "'perimeter'"]
    assert "1 of 80 values is no number, such as 'n/a' (my.csv:5)" in found[0]
    assert "2 of 80 values are no number, such as '#REF!' (my.csv:9)" in found[1]
    assert all(line.endswith("name them in columns.missing") for line in found)
    of_lines = [replace(t, place=t.place.replace(".csv", ".jsonl")) for t in tickets]
    assert all(line.endswith("leave them out") for line in warn_of_numbers(of_lines))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("12.50-", "numbers with the minus behind"),
        ("1 days 03:00:00", "lengths of"),
        ("PT3H", "lengths of"),
        ("4 h 05 min", "lengths of"),
        ("(125)", "numbers in brackets"),
        ("–125", "numbers with a dash for the minus"),
        ("<0.1 mg", "bounds or estimates"),
        ("approx 8.1 mm", "bounds or estimates"),
        ("Up to 40", "bounds or estimates"),
        ("约8", "bounds or estimates"),
        ("CHF 125.50", "numbers with the currency before them"),
        ("CHF 12’500", "numbers with thousands apart"),
        ("5,43,445", "numbers with thousands apart"),
        ("12_500", "numbers with thousands apart"),
        ("4.35万", "numbers in tens of thousands"),
        ("120/80", "two numbers in one"),
        ("7.3 ± 0.1 mm", "two numbers in one"),
        ("7.3 +/- 0.1", "two numbers in one"),
        ("5–7", "two numbers in one"),
        ("5 to 7 days", "two numbers in one"),
        ("7½ in", "numbers with a fraction"),
        ("7 1/2", "numbers with a fraction"),
        ("4.35×10^4", "powers of ten"),
    ],
)
def test_forms_of_numbers_that_nobody_reads_are_named(value: str, what: str) -> None:
    (line,) = warn_of_numbers(
        made(40, lambda n: n % 2 == 0, lambda n: f"cost: {value if n % 2 else n}")
    )
    assert f"20 of 40 values are not read as numbers, such as '{value}': they are {what}" in line


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (lambda n: f"{n} {'mm' if n % 4 else 'cm'}", "mm (60), cm (20), the last such as in m:0"),
        (lambda n: f"{n}{'' if n % 2 else ' mm'}", ""),  # one of them may be left out
        (lambda n: f"{n % 9} {'pumps' if n % 4 else 'valves'}", ""),  # things that are counted
        (lambda n: f"{n} mm" if n % 2 else "worn", ""),  # no field of numbers
        (lambda n: f"{n} {'abcdefg'[n % 7] * 2}", ""),  # codes
    ],
)
def test_numbers_in_several_units_are_told(says: Callable[[int], str], told: str) -> None:
    tickets = [
        replace(each, place=f"m:{n}")
        for n, each in enumerate(made(80, lambda n: n % 4 == 0, lambda n: f"gap: {says(n)}"))
    ]
    assert [line.split(": ", 1)[1] for line in warn_of_units(tickets)] == (
        [f"numbers in several units, {told}: no limit on it is learnt; write them all in one"]
        if told
        else []
    )


def test_a_mark_of_missing_values_does_not_hide_that_the_others_are_numbers_nobody_reads() -> None:
    (line,) = warn_of_numbers(
        made(40, lambda n: n % 2 == 0, lambda n: f"cost: {'n/a' if n == 3 else f'12 {n + 500}'}")
    )
    assert "39 of 40 values are not read as numbers, such as '12 500'" in line


@pytest.mark.parametrize(
    "value", ["ABC5", "AB-12", "Room 7", "A1_001", "1.2.3", "M8", "12-34", "to 7"]
)
def test_names_with_digits_are_not_taken_for_numbers(value: str) -> None:
    assert not list(warn_of_numbers(made(40, lambda n: n % 2 == 0, lambda n: f"part: {value}")))


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (lambda n: f"{TEXTS[n // 5]} ref {n * 7919 % 90000}", True),
        # words that hold digits are words where all do
        (lambda n: f"{TEXTS[n // 5].replace(' ', f'{n} ')} seen", False),
        (lambda n: TEXTS[n // 5], False),  # equal ones are of one group
        (lambda n: f"{TEXTS[n // 5]} {'abcde'[n % 5]}x", False),
        (lambda n: f"the torque at the bolt was {n} Nm", False),  # a form of words
        # no text
        (lambda n: f"seal: good; size: {n}; part: {n % 7}; cover: on; label: printed", False),
    ],
)
def test_texts_that_differ_in_numbers_alone_are_told(
    says: Callable[[int], str], told: bool
) -> None:
    tickets = [
        replace(each, place=f"t:{n}")
        for n, each in enumerate(join_equal(made(100, lambda n: n // 5 % 2 == 0, says)))
    ]
    found = list(warn_of_copies(tickets))
    assert [line.split(", such as")[0] for line in found] == (
        [
            "20 texts come 5 times each, but for numbers in them, in tickets that count as "
            "cases of their own"
        ]
        if told
        else []
    )


def test_values_of_columns_without_a_name_are_told(tmp_path: Path) -> None:
    rows = "".join(
        f"{n},{'NG' if n % 2 else 'OK'},{n % 3},{'loud' if n == 3 else ''}\n" for n in range(9)
    )
    (tmp_path / "t.csv").write_text(f"id,label,size,\n{rows}")
    tickets, _ = read_tickets([tmp_path / "t.csv"], "error", COLUMNS)
    (line,) = warn_of_names(tickets)
    assert line.startswith(
        f"1 rows hold something, such as 'loud' ({tmp_path}/t.csv:5), in a column without a name"
    )


@pytest.mark.parametrize(
    "says", [lambda n: f"size: {n if n % 5 else 'none'}", lambda n: f"size: {n if n else 'x'} {n}"]
)
def test_values_that_are_often_no_number_are_left_alone(says: Callable[[int], str]) -> None:
    assert not list(warn_of_numbers(made(80, lambda n: n % 4 == 0, says)))
    assert not list(
        warn_of_numbers(made(20, lambda n: n % 4 == 0, lambda n: f"size: {n or 'none'}"))
    )


def test_too_few_tickets_are_told_with_how_many_a_proof_takes(tmp_path: Path) -> None:
    few = made(40, lambda n: n % 2 == 0, lambda n: f"size: {n}; colour: {n % 5}")
    (line,) = cautions(few, tmp_path)
    assert line == (
        "m: 20 of 40 tickets are labelled fail, 3 of which test what is learnt: rules that tell "
        "fewer than 7 of these from the others cannot be proven. Give more, some 110 in all"
    )
    for proves_nothing in (
        replace(CONFIG, gate="none"),
        replace(CONFIG, runner=RunnerConfig(epochs=0)),
        replace(CONFIG, gate=GateConfig(choose="test_own_examples:never")),
    ):
        assert not list(warn_of_few(read(few, tmp_path)[1], proves_nothing))
    many = made(900, lambda n: n % 2 == 0, lambda n: f"size: {n}; colour: {n % 5}")
    assert not cautions(many, tmp_path)


def test_where_failures_are_dear_and_rare_they_are_what_a_proof_lacks(tmp_path: Path) -> None:
    config = replace(CONFIG, price=PriceConfig(missed_failure=20))
    rare = made(1000, lambda n: n % 40 == 0, lambda n: f"size: {n}; colour: {n % 7}")
    (line,) = cautions(rare, tmp_path, config)
    assert "25 of 1,000 tickets are labelled fail" in line


@pytest.mark.parametrize("scope", ["bundle", "all"])
def test_it_is_the_failures_that_must_not_be_few(
    scope: Literal["bundle", "all"], tmp_path: Path
) -> None:
    """Twelve in 150, too many for a warning that they are rare; half of 150 and, where every ticket
    tests, forty in 500 are enough."""
    runner = RunnerConfig(judge="both" if scope == "all" else "model")
    config = replace(
        CONFIG,
        reflection=ReflectionConfig(scope=scope),
        runner=runner,
        price=PriceConfig(missed_failure=2),
    )
    (line,) = cautions(
        made(150, lambda n: n * 7 % 150 < 12, lambda n: f"size: {n}; colour: {n % 7}"),
        tmp_path,
        config,
    )
    assert line.startswith("m: 12 of 150 tickets are labelled fail, ")
    assert not cautions(
        made(150, lambda n: n % 2 == 0, lambda n: f"size: {n}; colour: {n % 7}"), tmp_path, config
    )
    lines = cautions(
        made(500, lambda n: n * 7 % 500 < 40, lambda n: f"size: {n}; colour: {n % 7}"),
        tmp_path,
        config,
    )
    assert len(lines) == (scope == "bundle")


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("密封圈 {}: 磨损", True),
        ("seal {}: worn", False),
        ("シール {}: 摩耗した", False),
        ("{}", False),
    ],
)
def test_rules_in_another_language_than_tickets_are_told(
    text: str, is_told: bool, tmp_path: Path
) -> None:
    tickets = made(60, lambda n: n % 2 == 0, lambda n: f"{text.format(n)}; size: {n % 7}")
    told = [line for line in cautions(tickets, tmp_path) if "--prompt.language zh" in line]
    assert len(told) == is_told
    chinese = replace(CONFIG, prompt=PromptConfig("zh"))
    assert not any("Chinese" in line for line in cautions(tickets, tmp_path, chinese))


@pytest.mark.parametrize("path", [None, "rules.json"])
def test_missions_of_which_the_first_guidance_has_no_rules_are_named(
    path: str | None, tmp_path: Path
) -> None:
    """Where there is guidance to start from; and tickets that were left out are told."""
    each = made(60, lambda n: n % 2 == 0, lambda n: f"size: {n}; colour: {n % 5}")
    tickets = [replace(of, mission=f"m{number}") for number in range(2) for of in each]
    split = replace(CONFIG.split, leave_out=["g-3"])
    config, inputs = read(tickets, tmp_path, replace(CONFIG, split=split))
    first = inputs.guidance["m0"]
    whole = replace(first, rules=(*first.rules, Rule("G1", "Fail if size is above 5.")))
    inputs = replace(inputs, guidance={**inputs.guidance, "m0": whole})
    config = replace(config, guidance=GuidanceConfig(path=path))
    left_out = ("left out by split.leave_out: 2 of 120 tickets", "info")
    assert list(describe_inputs(inputs, config)) == [
        left_out,
        *([("guidance.path has no rules for: m1", "warning")] if path else []),
    ]
    ruled = replace(inputs, guidance=dict.fromkeys(inputs.guidance, whole))
    assert list(describe_inputs(ruled, config)) == [left_out]


@pytest.mark.parametrize("missions", [1, 3])
def test_what_is_left_of_a_budget_is_told_of_each_missions_own_part(
    missions: int, tmp_path: Path
) -> None:
    """And nothing where all of it is."""
    each = made(60, lambda n: n % 2 == 0, lambda n: f"size: {n}; colour: {n % 5}")
    tickets = [replace(of, mission=f"m{number}") for number in range(missions) for of in each]
    config, inputs = read(tickets, tmp_path)
    schedule = GuidanceSchedule(inputs.splits, config, 8)

    def describe(share: float) -> list[str]:
        left = {
            name: Budget(tuple(share * chance for chance in budget.edits))
            for name, budget in inputs.budget.items()
        }
        said = forecast(replace(inputs, budget=left), config, schedule, "answer")
        return [line for line, _ in said if "gate.alpha" in line]

    assert describe(1.0) == []
    told = describe(0.5)
    assert len(told) == missions
    assert all(" left 50% of its part of gate.alpha" in line for line in told)
