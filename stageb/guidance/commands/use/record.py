"""How often rules were right on tickets that a run held out, each of them, and how often the model
judged as they say.

A model that is sure and wrong agrees with itself, so agreement does not find it; the rule that it
names does. Val taught no rule and tested none, but it chose among what was learnt, so these shares
flatter a little; those of test, where there is no val, do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stageb.cli.parsing import parse_run
from stageb.errors import write_option
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging.answers import find_cited_rule
from stageb.guidance.judging.coded import CodeJudge, code_rules
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.conditions import OutOfReach
from stageb.guidance.rules.judge import CodedRules
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.rules.read_guidance import split_step
from stageb.guidance.words.costs import EQUAL, Prices
from stageb.guidance.words.types import BY_RULES, HEADLINE_KEY, PASS_FAIL, Guidance, Ticket
from stageb.runs.folder import RunFolder, RunRow
from stageb.store.journal import safe_name

LOUD = 0.9  # share of a rule's tickets judged as it says, below which a person should know


def compare_with_code(
    judged: Iterable[tuple[Mapping[str, Any], Ticket]],
    coded: Mapping[str, CodedRules],
    by_model: bool = True,
) -> dict[str, Any]:
    """By mission, of rows of predictions with their tickets: ``decided`` tickets, those of which
    the rules as code alone tell a verdict, how many of them are ``right`` by that, and if the rows
    are ``by_model``, how many the model judged so (``followed``), and how many rightly
    (``model_right``); and the same for each rule, with its text, or why it cannot be read as code.
    The headline stands for tickets that no rule speaks of.

    Leaving a rule out changes the verdicts on tickets that it decides, and no others: of these,
    ``won`` are right with it alone, and ``lost`` without it alone; those of which the other rules
    tell no verdict are not right without it."""
    names = ("decided", "right", "won", "lost", *(("followed", "model_right") if by_model else ()))
    judges = {mission: rules.compile() for mission, rules in coded.items()}
    without = {
        (mission, left_out.key): replace(
            rules, each=[rule for rule in rules.each if rule is not left_out]
        ).compile()
        for mission, rules in coded.items()
        for left_out in rules.each
    }
    tickets: Counter[str] = Counter()
    counts: dict[str, dict[str, dict[str, int]]] = {mission: {} for mission in coded}
    for row, ticket in judged:
        mission = row["mission"]
        if mission not in coded:
            continue
        tickets[mission] += 1
        label, read = row["label"], reading(ticket)
        ruling = judges[mission](read)
        if ruling.verdict:
            count = counts[mission].setdefault(ruling.rule, dict.fromkeys(names, 0))
            is_right = ruling.verdict == label
            others = without.get((mission, ruling.rule), judges[mission])
            is_right_without = others(read).verdict == label
            gains = (is_right and not is_right_without, is_right_without and not is_right)
            facts = (
                True,
                is_right,
                *gains,
                ruling.verdict == row["verdict"],
                row["verdict"] == label,
            )
            for name, holds in zip(names, facts, strict=False):
                count[name] += holds
    return {
        mission: _describe(rules, counts[mission], names) | {"tickets": tickets[mission]}
        for mission, rules in coded.items()
        if tickets[mission]
    }


def warn_of_misread(mission: str, of: Mapping[str, Any]) -> list[str]:
    """Lines for a person: what the rules as code are worth, and which rules the model does not
    apply as written."""
    if not of["rules"] or not of["decided"] or "followed" not in of:
        return []
    right, followed = (of[name] / of["decided"] for name in ("right", "followed"))
    lines = [
        f"{mission}: by their letter the rules decide {of['decided']:,} of {of['tickets']:,} "
        f"tickets, {right:.1%} of them rightly; the model judged {followed:.1%} of these as the "
        f"rules say"
    ]
    return [*lines, *name_misread(mission, of)]


def name_misread(mission: str, of: Mapping[str, Any]) -> list[str]:
    """A line for each rule that the model does not apply as written, and what to do about them;
    none where there is none."""
    lines = [
        f"{mission}: the model does not apply {rule['rule']} as written: it judged "
        f"{rule['decided'] - rule['followed']:,} of its {rule['decided']:,} tickets otherwise: "
        f"{rule['text']}"
        for rule in of.get("rules", ())
        if is_misread(rule)
    ]
    if not lines:
        return []
    is_whole = not any("out_of_reach" in rule for rule in of["rules"])
    by = write_option("by", "rules" if is_whole else "both")
    by += "" if is_whole else ", which asks the model for what rules cannot decide"
    return [*lines, f"{mission}: to judge by code, as the rules are written: {by}"]


def is_misread(rule: Mapping[str, Any]) -> bool:
    """Whether the model judged many of the tickets that a rule of ``compare_with_code`` decides
    otherwise than it says."""
    return bool(
        rule.get("decided") and rule.get("followed", rule["decided"]) < LOUD * rule["decided"]
    )


def _describe(
    rules: CodedRules, counts: Mapping[str, Mapping[str, int]], names: Sequence[str]
) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for rule in rules.each:
        row: dict[str, Any]
        if isinstance(rule.code, OutOfReach):
            row = {"out_of_reach": rule.code.why}
        else:
            row = {"verdict": rule.code.verdict, **counts.get(rule.key, dict.fromkeys(names, 0))}
        rows.append(
            {"rule": rule.key, "text": rule.text, "provisional": rule.is_provisional, **row}
        )
    if HEADLINE_KEY in counts:
        rows.insert(0, {"rule": HEADLINE_KEY, "text": rules.grammar.silent, **counts[HEADLINE_KEY]})
    totals = {name: sum(count[name] for count in counts.values()) for name in names}
    return {"tickets": 0, **totals, "rules": rows if rules.each else []}


FEWEST_DECIDED = (
    5  # tickets that were held out and that a rule decided, below which nothing is known of it
)
TELLING = 20  # from which on a rule that was often wrong is named without being asked for
OFTEN_WRONG = 0.9  # share of right verdicts below which it is, at equal prices


class RuleFigures(NamedTuple):
    """Held-out tickets that a rule decided."""

    tickets: int
    share: float  # of right verdicts, each ticket weighed by those that it stands for
    verdict: str  # that it gave, most often
    given: int  # tickets that got this verdict
    wrong: int  # of these, judged wrong


RuleRecord = Mapping[str, RuleFigures]
"""By the rule that decided, empty where none spoke of the ticket."""


def read_record(
    source: str, guidance: Guidance, tickets: Iterable[Ticket] = ()
) -> dict[str, RuleFigures]:
    """How often the rules of a run's folder were right on its val, or else its test, each ticket
    weighed by those that it stands for; nothing of a file, and of a step that neither judged.

    A reason that was not asked for, or that ``max_new_tokens`` cut off before it named a rule, does
    not say which rule decided. Then the rule counts that gives the same verdict as code, if the
    run's ``tickets`` are known; other such tickets are left out.
    """
    path, _ = split_step(source)
    files, place = RunFolder(path), safe_name(guidance.mission)
    if not path.is_dir() or not files.commit["number"]:
        return {}
    figures = [
        row for row in files.read_committed(f"{place}/metrics.jsonl") if _is_of(row, guidance)
    ]
    figures = [row for row in figures if row["split"] == "val"] or figures
    rows = [
        row for row in files.read_committed(f"{place}/selections.jsonl") if _is_of(row, guidance)
    ]
    rows = [row for row in rows if row["split"] == "val"] or rows
    rows = [row for row in rows if row["epoch"] == rows[-1]["epoch"]]
    counted = Counter(row["label"] for row in rows)
    scale = (
        {label: figures[-1]["classes"][label]["n"] / n for label, n in counted.items()}
        if figures
        else {}
    )
    find_rule = _make_finder(files, guidance, rows, tickets)
    decided: dict[str, list[RunRow]] = {}
    weights: dict[str, list[float]] = {}
    for row in rows:
        key = find_rule(row)
        if key is None:
            continue
        decided.setdefault(key, []).append(row)
        right, whole = weights.setdefault(key, [0.0, 0.0])
        weight = scale.get(row["label"], 1.0)
        weights[key] = [right + weight * row["label_match"], whole + weight]
    return {
        key: RuleFigures(len(of), round(weights[key][0] / weights[key][1], 6), *_count_main(of))
        for key, of in sorted(decided.items())
    }


def _count_main(rows: Sequence[RunRow]) -> tuple[str, int, int]:
    """The verdict that most rows of selections.jsonl have, how many have it, and how many of these
    are wrong."""
    [(verdict, given)] = Counter(row["verdict"] or "" for row in rows).most_common(1)
    return (
        verdict,
        given,
        sum(not row["label_match"] for row in rows if (row["verdict"] or "") == verdict),
    )


def find_limit(verdict: str, prices: Prices) -> float:
    """The share of right verdicts below which a rule that gives ``verdict`` is one to doubt: where
    the prices differ, the other verdict would cost less then."""
    if prices["fail"] == prices["pass"]:
        return OFTEN_WRONG
    wrong = prices["pass" if verdict == "fail" else "fail"]
    return wrong / (prices["fail"] + prices["pass"])


def name_doubtful(mission: str, record: RuleRecord, prices: Prices = EQUAL) -> list[str]:
    """A line for each rule that was often wrong, and for tickets that no rule speaks of, with what
    to do about it."""
    lines = []
    for key, of in record.items():
        limit = find_limit(of.verdict, prices)
        if of.tickets < TELLING or of.share >= limit:
            continue
        said = (
            f"{key} was right for {of.share:.0%} of the {of.tickets:,} held-out tickets that "
            f"it decided"
        )
        if not key:
            did, other, were = (
                ("failed", "passes", "good")
                if of.verdict == "fail"
                else ("passed", "fails", "failures")
            )
            said = (
                f"{of.wrong:,} of {of.given:,} held-out tickets that {did} because no rule "
                f"{other} them were {were}"
            )
            if of.verdict not in PASS_FAIL:
                said = (
                    f"{of.wrong:,} of {of.given:,} held-out tickets judged {of.verdict} as "
                    f"no rule speaks of them were wrong"
                )
        if prices["fail"] != prices["pass"]:
            said += f" (at these prices a {of.verdict} pays where {limit:.1%} or more are right)"
        lines.append(f"{mission}: {said}; stageb automate finds which verdicts need no person")
    return lines


def _make_finder(
    files: RunFolder, guidance: Guidance, rows: list[RunRow], tickets: Iterable[Ticket]
) -> Callable[[RunRow], str | None]:
    """Make what names the rule of a row of selections.jsonl: empty where none spoke of it, None
    where nobody knows."""
    if all(row["verdict"] is not None and find_cited_rule(row["reason"]) for row in rows):
        return lambda row: find_cited_rule(row["reason"])
    config = parse_run(files.path).config
    assert isinstance(config, LoopConfig)  # it learnt guidance
    limits = [decode.max_new_tokens for decode in config.sampler.grid]
    cut = {
        (row["ticket_key"], row["verdict"], row["reason"])
        for row in files.read_committed(f"{safe_name(guidance.mission)}/trajectories.jsonl")
        if _is_of(row, guidance)
        and row["decode"] != BY_RULES
        and row["tokens"] >= limits[row["decode"]]
    }
    mine = {ticket.key: ticket for ticket in tickets if ticket.mission == guidance.mission}
    coded = code_rules(
        {guidance.mission: guidance}, mine.values(), words_of(config.prompt, config.model)
    )
    judge = CodeJudge(coded)

    def find(row: RunRow) -> str | None:
        key = find_cited_rule(row["reason"])
        if row["verdict"] is None:
            return None
        if key or (row["reason"] and (row["ticket_key"], row["verdict"], row["reason"]) not in cut):
            return key
        ruling = judge.judge(mine[row["ticket_key"]]) if row["ticket_key"] in mine else None
        return find_cited_rule(ruling.rule) if ruling and ruling.verdict == row["verdict"] else None

    return find


def _is_of(row: Mapping[str, Any], guidance: Guidance) -> bool:
    return row["split"] != "train" and bool(row["guidance_step"] == guidance.step)
