"""What people bring from before: the first implementation's guidance.json and config keys, and keys
that were renamed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stageb.__main__ import main
from stageb.cli.draft import list_keys
from stageb.guidance.config import LoopConfig
from stageb.guidance.rules.guidance_json import to_json
from stageb.guidance.rules.read_guidance import load_seed

GUIDANCE = {
    "rack cabling": {
        "step": 4,
        "updated_at": "2025-12-24T08:00:00Z",
        "focus": "connectors and labels",
        "experiences": {
            "G0": "A ticket passes unless a rule fails it.",
            "G2": "Fail if label is missing.",
            "S1": "Fail if a connector is loose.",
            "S2": "Remarks are not evidence.",
        },
        "metadata": {
            "G2": {"rationale": "seen often"},
            "S1": {"updated_at": "2025-12-01T08:00:00Z"},
        },
    }
}


def test_its_guidance_loads_and_learning_leaves_read_only_rules_alone(tmp_path: Path) -> None:
    path = tmp_path / "guidance.json"
    path.write_text(json.dumps(GUIDANCE))
    guidance = load_seed(path)["rack cabling"]
    assert [(rule.key, rule.is_fixed) for rule in guidance.rules] == [
        ("G0", False),
        ("G2", False),
        ("G3", True),
        ("G4", True),
    ]
    assert (guidance.step, guidance.next_number, guidance.rules[2].text) == (
        4,
        5,
        "Fail if a connector is loose.",
    )
    assert guidance.rules[1].metadata == {"rationale": "seen often"}
    path.write_text(json.dumps(to_json(guidance)))
    assert load_seed(path)["rack cabling"] == guidance
    del GUIDANCE["rack cabling"]["experiences"]["G0"]  # type: ignore[attr-defined]
    path.write_text(json.dumps(GUIDANCE))
    assert load_seed(path)["rack cabling"].rules[0].text == "connectors and labels"


def test_its_config_keys_are_each_answered_in_a_line_by_keys_that_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "old.yaml"
    config.write_text(
        "stage_a_paths: [a.jsonl]\nmax_token_length: 4096\nrule_search:\n  train_sampler: "
        "{grid: []}\n  reflect_size: 16\n"
        "stage_b_distillation:\n  distill_size: 100\nticket_filter: {exclude_ticket_keys_path: "
        "keys.txt}\nseed: 3\n"
    )
    assert main(["fit", "--config", str(config)]) == 2
    lines = [line.strip() for line in capsys.readouterr().err.splitlines() if "old.yaml:" in line]
    assert lines == [
        f"{config}:{line}: there is no key {key}; {LoopConfig.former_keys[key]}"
        for line, key in (
            (1, "stage_a_paths"),
            (2, "max_token_length"),
            (4, "rule_search.train_sampler"),
            (5, "rule_search.reflect_size"),
            (7, "stage_b_distillation.distill_size"),
            (8, "ticket_filter.exclude_ticket_keys_path"),
        )
    ]
    named = {
        word.strip(",:")
        for said in LoopConfig.former_keys.values()
        if said.startswith("write ")
        for word in said.split()
    }
    keys = dict(list_keys(LoopConfig))
    assert {word for word in named if "." in word and not word.endswith(".")} <= set(keys)
    assert not set(LoopConfig.former_keys) & set(keys)


@pytest.mark.parametrize("command", ["fit", "evaluate"])
@pytest.mark.parametrize(
    ("former", "now"), [("fp_weight", "missed_failure"), ("fn_weight", "false_alarm")]
)
def test_the_former_keys_of_prices_are_refused_with_their_new_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, former: str, now: str
) -> None:
    config = tmp_path / "old.yaml"
    config.write_text(f"gate:\n  {former}: 20\n")
    for asked, place in (
        (["--config", str(config)], f"{config}:2"),
        ([f"--gate.{former}", "20"], "command line"),
        (["--gate", f"{former}=20"], "command line"),
    ):
        if command == "fit" or asked[0] != "--gate":  # evaluate has no section of that name
            assert main([command, "--tickets", "t.jsonl", *asked]) == 2
            said = capsys.readouterr().err
            assert f"{place}: there is no key gate.{former}; write price.{now}" in said, said


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "summarize"])
def test_what_places_a_model_is_told_where_a_config_has_a_device_map(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Of the design's configs: a model that is spread over devices would be another on each
    rank."""
    config = tmp_path / "design.yaml"
    config.write_text("model:\n  model_name_or_path: m\n  device_map: auto\n")
    for asked, place in (
        (["--config", str(config)], f"{config}:3"),
        (["--model.device_map", "auto"], "command line"),
    ):
        assert main([command, *asked]) == 2
        said = capsys.readouterr().err
        assert (
            f"{place}: there is no key model.device_map; leave it out: each rank has the whole "
            f"model on a device" in said
        )
        assert "fabric.devices" in said and "engine" not in said
