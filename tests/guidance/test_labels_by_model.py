"""Labels of a mission's own where a model judges and proposes: prompts, order of rules,
demonstrations and calibration."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, cast

import pytest
from guidance.rules.made_rules import ticket
from guidance.test_labels import INSTRUCT, KEYS, learn, plant, read_rows
from programs import small

from stageb.__main__ import main
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Decode, Question
from stageb.engines.scripted import ScriptedEngine
from stageb.guidance.config import (
    LoopConfig,
    PromptConfig,
    ReflectionConfig,
    RunnerConfig,
    SamplerConfig,
)
from stageb.guidance.judging.follower import respond
from stageb.guidance.judging.loading import Models, load_judge
from stageb.guidance.learning.calibrate import calibrate, fit_calibration
from stageb.guidance.learning.gate.race import cut_chunks
from stageb.guidance.learning.proposals import parse_proposal
from stageb.guidance.learning.reflect import choose_cases
from stageb.guidance.learning.tools import Tools
from stageb.guidance.rules import rules_as_text
from stageb.guidance.rules.demonstrations import demonstrate
from stageb.guidance.rules.edits import apply
from stageb.guidance.rules.guidance_json import from_json, to_json
from stageb.guidance.rules.prompts import (
    WORDS,
    Case,
    ReflectionInput,
    name_labels,
    reflection_prompt,
    rollout_prompt,
)
from stageb.guidance.rules.read_guidance import read_guidance
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.calibration import find_shares
from stageb.guidance.words.types import (
    Calibration,
    Guidance,
    Judgement,
    Operation,
    Rule,
    Ticket,
    Verdict,
)
from stageb.job.world import World

LABELS = ("low", "high", "medium")
GREEDY = Decode(0.0)
HEADLINES = {
    "en": "A ticket is low unless a rule says otherwise.",
    "zh": "除非有规则另行判定，否则为low。",
}


def guidance(*texts: str, language: str = "en") -> Guidance:
    rules = [Rule(f"G{n}", text) for n, text in enumerate((HEADLINES[language], *texts))]
    return Guidance("m", 0, tuple(rules), len(rules), labels=LABELS)


def case(text: str, label: Verdict, right: bool = False, reason: str | None = None) -> Case:
    return Case(Ticket("m", text, label, (("image_1", text),)), right, reason)


def add(*texts: str) -> list[Operation]:
    return [Operation("add", None, (), text, "", ()) for text in texts]


def texts_of(edited: Guidance) -> list[str]:
    return [rule.text for rule in edited.rules[1:]]


# Rules in their order


def test_a_new_rule_stands_before_those_that_judge_its_tickets_wrong() -> None:
    before = guidance("High if seal is torn.", "Medium if part is hose.")
    after = apply(before, add("Medium if seal is torn and part is hose.", "Low if part is pipe."))
    assert texts_of(after) == [
        "Medium if seal is torn and part is hose.",
        "Low if part is pipe.",
        *texts_of(before),
    ]
    assert [rule.key for rule in after.rules] == [
        "G0",
        "G3",
        "G4",
        "G1",
        "G2",
    ] and after.next_number == 5


def test_a_rule_that_is_added_again_moves_to_the_front_and_fixed_ones_stay_there() -> None:
    before = guidance("High if seal is torn.", "Medium if part is hose.")
    assert texts_of(apply(before, add("Medium if part is hose."))) == [
        "Medium if part is hose.",
        "High if seal is torn.",
    ]
    headline, first, second = before.rules
    fixed = replace(before, rules=(headline, replace(first, metadata={"fixed": True}), second))
    assert texts_of(apply(fixed, add("Low if part is pipe.")))[0] == "High if seal is torn."
    assert apply(fixed, add("High if seal is torn.")) is fixed


def test_files_keep_the_order_that_decides(tmp_path: Path) -> None:
    edited = apply(guidance("High if seal is torn."), add("Medium if part is hose."))
    assert from_json(json.loads(json.dumps(to_json(edited))), "g.json")["m"] == edited
    (tmp_path / "rules.txt").write_text(rules_as_text.write([edited]))
    assert texts_of(read_guidance(tmp_path / "rules.txt")["m"]) == texts_of(edited)


# Prompts, and who follows them


@pytest.mark.parametrize(
    ("language", "if_", "is_", "end"), [("en", " if ", " is ", "."), ("zh", "：若", "为", "。")]
)
def test_the_follower_judges_and_proposes_by_the_labels_of_its_prompt(
    language: str, if_: str, is_: str, end: str
) -> None:
    def write(label: str, name: str, value: str) -> str:
        return f"{label}{if_}{name}{is_}{value}{end}"

    words = name_labels(WORDS[language], LABELS)
    rules = guidance(
        write("High", "seal", "torn"), write("Medium", "part", "hose"), language=language
    )
    asked = [
        ticket({"seal": seal, "part": part})
        for seal, part in (("torn", "hose"), ("new", "hose"), ("new", "pipe"))
    ]
    said = [
        respond(rollout_prompt(each, rules, words), GREEDY, 0).splitlines()[0] for each in asked
    ]
    assert said == ["Verdict: high", "Verdict: medium", "Verdict: low"]
    cases = [
        case("seal: new; part: pipe", "low", right=True),
        case("seal: torn; part: pipe", "high", right=True),
        case("seal: worn; part: pipe", "medium"),
        case("seal: worn; part: tank", "medium"),
    ]
    shown = ReflectionInput(tuple(cases))
    text = respond(reflection_prompt(shown, rules, words, 1), GREEDY, 1)
    (operation,) = parse_proposal(text, shown, rules, ReflectionConfig(), words, 0).operations
    assert (operation.op, operation.text) == ("add", write("Medium", "seal", "worn"))


def test_reflection_names_labels_and_sets_one_against_the_others() -> None:
    cases = [case(f"seal: s{n}", LABELS[n % 3], right=n % 4 > 0) for n in range(60)]
    (label, _), shown = choose_cases(cases, guidance(), 12, 3)
    assert {each.ticket.label for each in shown if not each.right} == {label}
    assert {each.ticket.label for each in shown if each.right} == {*LABELS} - {label}
    for words in (WORDS["en"], INSTRUCT):
        own = name_labels(words, LABELS)
        prompt = reflection_prompt(ReflectionInput(tuple(shown)), guidance(), own, 1)
        assert prompt.user.count(f"should be {label}:") == 1
        assert all(prompt.user.count(f"Right as {other}:") == (other != label) for other in LABELS)
        assert "pass" not in (prompt.system + prompt.user).lower().replace("passes", "")
    assert (
        "A rule begins with low, high or medium"
        in reflection_prompt(
            ReflectionInput(tuple(shown)), guidance(), name_labels(WORDS["en"], LABELS), 1
        ).system
    )


def test_a_proposed_rule_names_a_label_of_the_mission() -> None:
    shown, words = (
        ReflectionInput((case("seal: worn", "medium"),)),
        name_labels(WORDS["en"], LABELS),
    )

    def read(text: str) -> int:
        answer = {"operations": [{"op": "add", "text": text, "rationale": "", "evidence": ["T1"]}]}
        return len(
            parse_proposal(
                json.dumps(answer), shown, guidance(), ReflectionConfig(), words, 0
            ).operations
        )

    assert (read("Medium if seal is worn."), read("Fail if seal is worn.")) == (1, 0)


# What it is shown, raced on and calibrated by


def test_demonstrations_show_every_label_in_turn() -> None:
    cases = [case(f"seal: s{n}", LABELS[min(2, n // 35)]) for n in range(72)]
    vocabulary = Vocabulary.of(each.ticket for each in cases)
    shown = demonstrate(
        guidance(), cases, vocabulary, name_labels(INSTRUCT, LABELS), lambda _: 1, 100
    ).shown
    said = [each.verdict for each in shown]
    assert (
        said[:6] == ["medium", "high", "low"] * 2 and len(said) == 32 and said.count("medium") == 2
    )


def test_labels_that_are_not_judged_wrong_are_most_of_those_judged_right() -> None:
    kinds = [("a", False)] * 20 + [(label, True) for _ in range(20) for label in "abc"]
    first = [kinds[place] for place in cut_chunks(kinds, 24)[0]]
    assert [first.count((label, True)) for label in "abc"] == [2, 5, 5] and first.count(
        ("a", False)
    ) == 12


def judge_with_bias(
    count: int, bias: float, seed: int = 1
) -> tuple[list[tuple[float, ...]], list[Verdict]]:
    """Scores that tell labels fairly well, but for what is added to the last one."""
    rng = random.Random(seed)
    labelled = [LABELS[int(3 * rng.random() ** 1.5)] for _ in range(count)]
    said = [
        tuple(
            2.0 * (label == mine) + bias * (label == LABELS[-1]) + rng.gauss(0, 0.8)
            for label in LABELS
        )
        for mine in labelled
    ]
    return said, labelled


def count_right(
    said: list[tuple[float, ...]], labelled: list[Verdict], calibration: Calibration
) -> int:
    weighed = [calibration.weigh(each) for each in said]
    return sum(
        LABELS[each.index(max(each))] == label
        for each, label in zip(weighed, labelled, strict=True)
    )


def test_a_bias_towards_one_label_is_taken_off_by_numbers_of_each() -> None:
    said, labelled = judge_with_bias(300, bias=4.0)
    calibration = fit_calibration(said, labelled, LABELS)
    assert (
        count_right(said, labelled, Calibration())
        < 150
        < 250
        < count_right(said, labelled, calibration)
    )
    assert [label for label, _ in calibration.offsets] == [*LABELS] and calibration.offsets[0][
        1
    ] == 0.0
    (known,) = from_json(to_json(replace(guidance(), calibration=calibration)), "g.json").values()
    assert known.calibration == calibration
    sure = [max(find_shares(calibration.weigh(each), 1.0)) for each in said]
    assert abs(sum(sure) / len(sure) - count_right(said, labelled, calibration) / len(said)) < 0.06


def test_rules_as_code_count_for_the_label_that_they_give() -> None:
    said, labelled = judge_with_bias(300, bias=4.0)
    vague = [tuple(each / 10 for each in scores) for scores in said]
    right = fit_calibration(vague, labelled, LABELS, labelled)
    wrong = fit_calibration(
        vague, labelled, LABELS, [LABELS[LABELS.index(label) - 1] for label in labelled]
    )
    assert right.rules > 2 and wrong.rules == 0.0
    given_high = right.given("high").weigh((0.0, 0.0, 0.0))
    assert given_high.index(max(given_high)) == 1


def test_calibrations_in_turn_are_one() -> None:
    said, labelled = judge_with_bias(60, bias=2.0)
    judged = {
        n: Judgement(find_shares(scores, 0.7)[LABELS.index(label)], 0, scores=scores)
        for n, (label, scores) in enumerate(zip(labelled, said, strict=True))
    }
    once, p_correct = calibrate(
        guidance(), judged, [Ticket("m", "g", label, ()) for label in labelled], 0.7
    )
    assert sum(p_correct.values()) > sum(each.p_correct for each in judged.values())
    twice = once.calibration.after(once.calibration).weigh(said[0])
    assert all(
        abs(a - b) < 1e-9
        for a, b in zip(twice, once.calibration.weigh(once.calibration.weigh(said[0])), strict=True)
    )


@pytest.mark.parametrize(
    "calibration",
    [
        {"slope": 1.0},
        {"slope": 1.0, "offsets": {"low": 1.0}},
        {"offsets": dict.fromkeys(LABELS, "1")},
        {"offsets": 1},
    ],
)
def test_a_calibration_that_lacks_a_label_is_refused(calibration: dict[str, Any]) -> None:
    body = to_json(guidance())
    body["m"]["calibration"] = calibration
    with pytest.raises(Exception, match="calibration: not a slope"):
        from_json(body, "g.json")


# Through the loop


def test_a_model_that_proposes_rules_bundle_by_bundle_learns_labels(tmp_path: Path) -> None:
    keys = {
        "runner.judge": "model",
        "reflection.scope": "bundle",
        "runner.epochs": 2,
        "reflection.batch_size": 48,
    }
    run = learn(plant(tmp_path / "t.jsonl", 3, 1), tmp_path / "out", **keys)
    before, *_, after = [
        row["acc"] for row in read_rows(run, "metrics.jsonl") if row["split"] == "test"
    ]
    assert before < 0.65 and after > 0.85
    assert {"Queue b if field 1 is v0.", "Queue c if field 2 is v0."} <= {
        *texts_of(read_guidance(run)["mail"])
    }


WEIGHED = {
    "model.engine": "programs.weighing:build",
    "model.model_name_or_path": "some/model",
    "prompt.style": "instruct",
    "prompt.prefill": True,
}


@pytest.mark.slow
def test_a_model_that_judges_is_given_what_code_learns_with_a_calibration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tickets = plant(tmp_path / "t.jsonl", 3, 1, tickets=320)
    keys = {**WEIGHED, "runner.judge": "model", "reflection.scope": "bundle", "gate.race_size": 48}
    run = learn(tickets, tmp_path / "out", **keys, **{"early_stop.reflections": 1})
    made = read_guidance(run)["mail"]
    assert made.calibration.rules > 0 and len(made.calibration.offsets) == 3
    assert {each.verdict for each in made.shown} == {*made.labels}
    (edit,) = read_rows(run, "reflection.jsonl")[0]["gate"]["edits"]
    before, after = edit["test"]["calibration_errors"]
    assert edit["outcome"] == "accepted" and after < before / 2
    first, *_, last = [
        row["acc"] for row in read_rows(run, "metrics.jsonl") if row["split"] == "test"
    ]
    assert first < 0.5 and last > 0.9
    assert main(["guidance", "show", str(run)]) == 0
    assert "more for the label that they give a ticket" in capsys.readouterr().out
    given = {
        "guidance": run,
        "tickets": tickets,
        "output": tmp_path / "rows.jsonl",
        "vocabulary": tickets,
        **WEIGHED,
    }
    given |= {"prompt.prefill": "true", "fabric.accelerator": "cpu", "by": "model"}
    assert main(["predict", *(f"--{key}={value}" for key, value in given.items())]) == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert sum(row["verdict"] == row["label"] for row in rows) > 300
    assert all(1 / 3 < row["probability"] <= 1 for row in rows)


class Probed(ScriptedEngine):
    """A server's engine that keeps what it was asked first."""

    continues = False
    asked: ClassVar[list[Question]] = []

    def probe(self, question: Question) -> Probed:
        """See ``Served``."""
        self.asked.append(question)
        return self


def build(model: ModelConfig, device: str) -> Probed:
    """The engine of ``model.engine``."""
    return Probed(respond)


class Continuing(Probed):
    """One that goes on from what it is given."""

    continues = True


def build_continuing(model: ModelConfig, device: str) -> Continuing:
    return Continuing(respond)


@pytest.mark.parametrize(("name", "begins"), [("build", False), ("build_continuing", True)])
def test_answers_are_begun_for_a_server_that_goes_on_from_what_it_is_given(
    name: str, begins: bool
) -> None:
    model = ModelConfig(engine=f"{__name__}:{name}", model_name_or_path="some/model")
    config = LoopConfig(tickets=["none"], model=model, prompt=PromptConfig(style="instruct"))
    models = Models(config, cast(World, SimpleNamespace(device="cpu")))
    models.load({"pass"})
    assert bool(models.words.begin) is begins


def test_a_server_is_asked_at_first_whether_it_tells_these_labels_apart() -> None:
    model, world = (
        ModelConfig(engine=f"{__name__}:build"),
        cast(World, SimpleNamespace(device="cpu")),
    )
    Probed.asked.clear()
    for labels in ({"pass"}, {*LABELS}):
        load_judge(model, PromptConfig(), SamplerConfig(reasons="all"), world, labels)
    told, own = build(model, "cpu").asked
    assert (
        told.answers == ("Verdict: pass", "Verdict: fail") and "pass or fail" in told.prompt.system
    )
    assert (
        own.answers == ("Verdict: high", "Verdict: low", "Verdict: medium")
        and "high, low or medium" in own.prompt.system
    )


def test_right_answers_are_kept_as_training_data_in_the_words_of_the_labels(tmp_path: Path) -> None:
    run = learn(plant(tmp_path / "t.jsonl", 3, 1, 120), tmp_path / "out", **{"distill.size": 8})
    rows = read_rows(run, "distill_chatml.jsonl")
    assert len(rows) == 8 and all(
        row["messages"][2]["content"].startswith("Verdict: queue ") for row in rows
    )


@pytest.mark.slow
def test_the_shipped_model_judges_by_rules_of_any_labels_and_proposes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tickets = plant(tmp_path / "t.jsonl", 3, 1, 80)
    run = learn(tickets, tmp_path / "out")
    rows = tmp_path / "rows.jsonl"
    shipped = [
        "--by",
        "model",
        "--model.engine",
        "transformers",
        "--model.model_name_or_path",
        "stageb-tiny",
    ]
    assert (
        main(
            [
                "predict",
                "--guidance",
                str(run),
                "--tickets",
                str(tickets),
                *shipped,
                "--output",
                str(rows),
            ]
        )
        == 0
    )
    assert (
        sum(
            row["verdict"] == row["label"] for row in map(json.loads, rows.read_text().splitlines())
        )
        >= 73
    )
    keys = {**KEYS, "model.engine": "transformers", "reflection.scope": "bundle"}
    capsys.readouterr()
    assert main(small.arguments(tickets, tmp_path / "anew", keys=keys)) == 2
    said = capsys.readouterr().err
    assert (
        "reflection.scope" in said
        and "proposes rules of pass and fail alone" in said
        and "leave it at auto" in said
    )


def test_with_no_key_set_labels_of_any_kind_are_learnt(tmp_path: Path) -> None:
    given = {
        "tickets": plant(tmp_path / "t.jsonl", 3, 1, 160),
        "output.root": tmp_path,
        "report": "false",
    }
    # a run of its own takes what there is
    given |= {"fabric.accelerator": "cpu", "fabric.devices": 1}
    assert main(["fit", *(f"--{key}={value}" for key, value in given.items())]) == 0
    run = next(path.parent for path in tmp_path.glob("*/config.yaml"))
    assert len(read_guidance(run)["mail"].rules) > 2
    assert read_rows(run, "metrics.jsonl")[-1]["acc"] > 0.9
    said = (run / "config.yaml").read_text()
    assert (
        "scope: all" in said and "judge: both" in said and "model_name_or_path: stageb-tiny" in said
    )


@pytest.mark.parametrize(
    ("judge", "labels", "most"),
    [("model", 12, 6), ("both", 12, 48), ("model", 3, 4), ("both", 3, 12)],
)
@pytest.mark.parametrize(
    "limit",
    [ReflectionConfig(max_rules=4), ReflectionConfig(max_rules=99, max_guidance_tokens=40)],
    ids=["rules", "tokens"],
)
def test_more_labels_have_more_room_and_each_that_code_judges_its_own(
    limit: ReflectionConfig, judge: Literal["model", "both"], labels: int, most: int
) -> None:
    config = LoopConfig(tickets=["t.jsonl"], runner=RunnerConfig(judge=judge), reflection=limit)
    tools = cast(
        Tools, SimpleNamespace(config=config, count=lambda text: 10 * len(text.splitlines()))
    )
    rules = [
        Rule(f"G{number}", f"Queue {number} if Remark is {number}.") for number in range(most + 1)
    ]
    names = tuple(f"queue {number}" for number in range(labels))
    for count, is_room in ((most, True), (most + 1, False)):
        guidance = Guidance("mail", 0, tuple(rules[:count]), count, labels=names)
        assert Tools.fits(tools, guidance) == is_room


@pytest.mark.parametrize("judge", ["model", "both"])
def test_words_that_code_looks_up_take_no_room(judge: Literal["model", "both"]) -> None:
    """Lists of Chinese words were refused for their tokens, and texts taught nothing."""
    config = LoopConfig(
        tickets=["t.jsonl"],
        runner=RunnerConfig(judge=judge),
        reflection=ReflectionConfig(max_rules=3),
    )
    tools = cast(Tools, SimpleNamespace(config=config, count=len))
    rules = (
        Rule("G0", "A ticket passes unless a rule fails it."),
        Rule("G1", 'Fail if a summary mentions a "leak" word.'),
    )
    words = ", ".join(f"leak{number}" for number in range(200))
    lists = tuple(Rule(f"G{number}", f'"leak{number}" words: {words}') for number in range(2, 6))
    assert Tools.fits(tools, Guidance("m", 0, rules, 2))
    assert Tools.fits(tools, Guidance("m", 0, (*rules, *lists), 6)) == (judge == "both")
