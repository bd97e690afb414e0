"""Rules that only a model can read, beside words: bin/bench questions

Two trials on each data set and seed, on the split of ``stageb fit``; test is looked at for the figures alone.

*One yes/no a rule.* Code learns rules from train. The model is asked of every ticket and each of their conditions whether
it holds, as one token behind a shared prompt; where P(yes) reaches a cut, fitted on train, the condition counts as met.

*Questions.* The model sees failures and passes side by side and asks yes/no questions, of which those are kept that tell
these tickets apart best. Its answers for all tickets become columns of them, in tenths of train, from which code learns as
from any column: from words alone, from answers alone, from both. Cases are shown from the first block of train alone, on
which no test of learning bets (``prequential.py``): what is proven is proven on tickets that no question was made from.

Then the same with train's labels dealt anew, half of each, where whatever is proven is a false proof.
"""

from __future__ import annotations

import argparse
import re
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lab.bench import labels
from lab.bench.learning import cells, data
from lab.bench.rows import device_name, write
from stageb import engines
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Decode, Engine, Prompt, Question, Request, Scorer
from stageb.errors import EngineError, InputError
from stageb.guidance.commands.use.black_box import classify_by_words
from stageb.guidance.learning.calibration import fit_logistic
from stageb.guidance.learning.gate.prequential import block_ends
from stageb.guidance.rules.conditions import reading
from stageb.guidance.rules.expression import Expression, Points, compile_expression
from stageb.guidance.rules.judge import read_rules, write_rule
from stageb.guidance.rules.parse import OutOfReach, RuleCode
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.tickets.groups import whole_groups
from stageb.guidance.tickets.splits import split_tickets
from stageb.guidance.words.config import ReflectionConfig
from stageb.guidance.words.costs import EQUAL
from stageb.guidance.words.types import Content, Guidance, Ticket, Verdict
from stageb.seeds import shuffled, stream

CONFIG = replace(labels.CONFIG, reflection=ReflectionConfig(scope="all"))
ENGLISH = WORDS["en"]
SIDES: tuple[Verdict, Verdict] = ("fail", "pass")
DRAWS, CASES, CHARS = 24, 8, 500  # answers that propose; tickets of each label that one sees; characters of each
MOST_PROPOSED, WEIGHED = 64, 128  # questions that are looked at, and the tickets that choose among them
CUT_ON, PASSES = 400, 3  # tickets that cuts of conditions are fitted on, and how often each is sought
TENTHS = np.arange(1, 10) / 10
MOST_CHARS = 1200  # of a ticket
ASK = "You read one ticket ({mission}) and answer one question about it with Yes or No.\n\nQuestion: {question}"
PROPOSE = (
    "You find out what tickets that fail have in common and tickets that pass have not. You write yes/no questions about a "
    "single ticket, one a line, and nothing else."
)
WANTED = (
    "Write six different questions, one a line, each about what many entries of list A have in common and those of list B "
    "have not, in general words, never about the particulars of one entry. Each question is about a single entry, begins "
    "with Is, Are, Does, Do, Has, Was or Were, and ends with a question mark, such as: Is the writer unhappy? Never speak "
    "of lists."
)
_QUESTION = re.compile(r"[\W\d]*((?:Is|Are|Does|Do|Did|Has|Have|Was|Were|Can|Could|Will|Would|Should)\b[^?]{8,160}\?)\W*")
_BARRED = re.compile(r"\b(?:lists?|pass(?:es)?|fails?|tickets)\b", re.IGNORECASE)

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Oracle:
    """The model that answers."""

    engine: Engine
    mission: str

    def ask(self, questions: Sequence[str], tickets: Sequence[Ticket]) -> Numbers:
        """The log-odds of yes: a row for each ticket, a column for each question."""
        if not isinstance(self.engine, Scorer):
            raise EngineError("questions want an engine that tells how probable an answer is")
        columns = []
        for question in questions:
            system = ASK.format(mission=self.mission, question=question)
            prompts = [Prompt(system, f"Ticket:\n{_text(ticket)}\n\nAnswer Yes or No.") for ticket in tickets]
            scores = self.engine.score([Question(prompt, ("Yes", "No")) for prompt in prompts])
            columns.append([yes - no for yes, no in scores])
        return np.array(columns, float).reshape(len(questions), len(tickets)).T

    def propose(self, tickets: Sequence[Ticket], seed: int) -> tuple[list[str], dict[str, Any]]:
        """Questions, those first that were asked most often, and what the answers were like."""
        decode = Decode(temperature=1.0, top_p=0.95, max_new_tokens=200, seed=seed)
        keys = [stream(seed, "questions", draw) for draw in range(DRAWS)]
        prompts = [Prompt(PROPOSE, f"{_cases(tickets, self.mission, key)}\n\n{WANTED}") for key in keys]
        requests = [Request(prompt, decode, (key,)) for prompt, key in zip(prompts, keys, strict=True)]
        answers = [answer.text for (answer,) in self.engine.generate(requests)]
        found = [list(dict.fromkeys(parse_questions(text))) for text in answers]
        spelt: dict[str, list[str]] = {}
        for question in (question for some in found for question in some):
            spelt.setdefault(" ".join(re.findall(r"\w+", question.lower())), []).append(question)
        told = {"answers": len(found), "readable": sum(map(bool, found)), "questions": len(spelt), "first": answers[0][:600]}
        return [same[0] for same in sorted(spelt.values(), key=len, reverse=True)][:MOST_PROPOSED], told


def parse_questions(text: str) -> list[str]:
    """The questions of an answer: lines that are one, and do not speak of what the model was shown."""
    found = (_QUESTION.fullmatch(line.strip()) for line in text.splitlines())
    return [match[1] for match in found if match and not _BARRED.search(match[1])]


@dataclass(frozen=True)
class Trial:
    """What is measured on one split."""

    oracle: Oracle
    train: Sequence[Ticket]
    test: Sequence[Ticket]
    seed: int
    most: int  # questions, at most

    def use_words(self) -> Iterator[tuple[str, Any]]:
        """What words alone give, and how the model applies what code learnt from them."""
        yield "words", _measure(self.learnt, self.train, self.test)
        if self.test:
            yield "yes_no_a_rule", self.apply(self.learnt[0])
        if self.test and find_spec("sklearn"):
            said = classify_by_words(self.train, self.test, EQUAL, self.seed)
            yield "tfidf_logistic", _share([verdict == t.label for verdict, t in zip(said, self.test, strict=True)])

    @cached_property
    def learnt(self) -> tuple[Guidance, bool]:
        """What words teach, and whether it is proven."""
        return labels.learn(self.train, CONFIG)

    def apply(self, guidance: Guidance) -> dict[str, Any]:
        """How the model applies what code learnt, a yes/no for each condition."""
        card = read_card(guidance, Vocabulary.of(self.train))
        if not card:
            return {"conditions": 0}
        asked = [f"Is this literally true of the ticket: {_spell(write_condition(part))}?" for _, part in card.parts]
        parts = (self.train[:CUT_ON], self.test)
        taught, judged = (self.oracle.ask(asked, tickets) for tickets in parts)
        fails, wanted = map(_fails, parts)
        holds = [compile_expression(part) for _, part in card.parts]
        said, code = (np.array([[bool(each(reading(ticket))) for each in holds] for ticket in tickets]) for tickets in parts)
        points = np.array([each for each, _ in card.parts], float)
        as_code = find_cuts(taught, said)
        cuts = fit_cuts(taught, as_code, points, card, fails)
        return {
            "conditions": len(asked),
            "code": _share(card.judge(code * points) == wanted),
            "at_half": _share(card.judge((judged > 0) * points) == wanted),
            "at_cuts_of_code": _share(card.judge((judged >= as_code) * points) == wanted),
            "at_cuts": _share(card.judge((judged >= cuts) * points) == wanted),
            "logistic": _share(classify(taught, fails, judged) == wanted),
            "conditions_as_code_at_cuts": _share(((judged >= as_code) == code).ravel()),
            "conditions_as_code_at_half": _share(((judged > 0) == code).ravel()),
            "conditions_auc_of_code": [_auc(judged[:, n], code[:, n]) for n in range(len(asked))],
            "asked": asked,
        }

    def use_questions(self) -> Iterator[tuple[str, Any]]:
        """What questions of the model's own give."""
        shown = find_first_block(self.train)
        proposed, told = self.oracle.propose(shown, self.seed)
        weighed = self.oracle.ask(proposed, shown[:WEIGHED])
        worth = [abs(_auc(column, _fails(shown[:WEIGHED])) - 0.5) for column in weighed.T]
        chosen = sorted(range(len(proposed)), key=lambda n: -worth[n])[: self.most]
        asked = [proposed[n] for n in chosen]
        yield "proposed", {**told, "kept": len(asked)}
        if not asked:
            return
        parts = (self.train, self.test)
        taught, judged = (self.oracle.ask(asked, tickets) for tickets in parts)
        fails, wanted = map(_fails, parts)
        tells = [(_auc(taught[:, n], fails), _auc(judged[:, n], wanted)) for n in range(len(asked))]
        rows = zip(asked, tells, strict=True)
        yield "questions", [{"text": text, "auc_train": before, "auc_test": after} for text, (before, after) in rows]
        yield "answers_logistic", _share(classify(taught, fails, judged) == wanted)
        cuts = np.quantile(taught, TENTHS, axis=0)
        for name, has_words in (("answers", False), ("both", True)):
            train, test = (
                add_columns(tickets, answers, cuts, has_words)
                for tickets, answers in zip(parts, (taught, judged), strict=True)
            )
            found = _measure(labels.learn(train, CONFIG), train, test)
            used = {int(number) for number in re.findall(r"question (\d+)", " ".join(found["rules"]))}
            yield name, {**found, "questions": [asked[number - 1] for number in sorted(used)]}


@dataclass(frozen=True)
class Card:
    """What code learnt, as points: of a list of rules, any one is enough."""

    verdict: Verdict  # from ``least`` points on
    least: float
    parts: Sequence[tuple[float, Expression]]

    def judge(self, points: Numbers) -> NDArray[np.bool_]:
        """Which tickets fail: a row for each."""
        reached: NDArray[np.bool_] = points.sum(axis=1) >= self.least
        return reached if self.verdict == "fail" else ~reached


def read_card(guidance: Guidance, vocabulary: Vocabulary) -> Card | None:
    """What a guidance that was learnt at once says; None where it has no rule."""
    codes = [rule.code for rule in read_rules(guidance, vocabulary, ENGLISH).each if not isinstance(rule.code, OutOfReach)]
    if not codes:
        return None
    for verdict, points in (("fail", codes[0].condition), ("pass", codes[0].exception)):
        if isinstance(points, Points):
            return Card(verdict, points.least, points.parts)
    passes = any(code.verdict == "pass" or not code.condition for code in codes)  # "Fail unless ..." opens such a list
    parts = [code.condition or code.exception for code in codes]
    return Card("pass" if passes else "fail", 1, [(1, part) for part in parts if part])


def write_condition(part: Expression) -> str:
    """It in words."""
    return write_rule(RuleCode("fail", part), ENGLISH).removeprefix("Fail if ").removesuffix(".")


def find_cuts(log_odds: Numbers, code: NDArray[np.bool_]) -> Numbers:
    """From where on each condition's answers are a yes, so that fewest are not what ``code`` says."""

    def find(column: Numbers, truth: NDArray[np.bool_]) -> float:
        choices: list[float] = [np.inf, *np.unique(column)[::-1].tolist()]
        return choices[int(np.argmin([((column >= cut) != truth).sum() for cut in choices]))]

    return np.array([find(column, truth) for column, truth in zip(log_odds.T, code.T, strict=True)])


def fit_cuts(log_odds: Numbers, first: Numbers, points: Numbers, card: Card, fails: NDArray[np.bool_]) -> Numbers:
    """The cut of each condition by which fewest of these tickets are judged wrong, sought in turn, from ``first`` ones on:
    from even odds on no single step may help, where a model says yes to all."""
    cuts = first.copy()
    for _ in range(PASSES):
        for n, column in enumerate(log_odds.T):
            others = (log_odds >= cuts) * points
            others[:, n] = 0
            choices = [cuts[n], *np.unique(column), np.inf]
            rows = [np.c_[others, (column >= cut) * points[n]] for cut in choices]
            cuts[n] = choices[int(np.argmin([(card.judge(each) != fails).sum() for each in rows]))]
    return cuts


def classify(taught: Numbers, fails: NDArray[np.bool_], asked: Numbers) -> NDArray[np.bool_]:
    """Which of those ``asked`` about fail, by logistic regression on log-odds."""
    centre, scale = taught.mean(axis=0), taught.std(axis=0) + 1e-6
    rows, others = (np.c_[(each - centre) / scale, np.ones(len(each))] for each in (taught, asked))
    first, ridge = np.zeros(rows.shape[1]), np.r_[np.ones(rows.shape[1] - 1), 0.01]
    weights = fit_logistic(rows, fails.astype(float), np.ones(len(rows)), first, ridge)
    verdicts: NDArray[np.bool_] = others @ weights > 0
    return verdicts


def add_columns(tickets: Sequence[Ticket], answers: Numbers, cuts: Numbers, has_words: bool) -> list[Ticket]:
    """The tickets with answers as columns: how many of its ``cuts`` lie below each; without words, with nothing else."""
    below = [np.searchsorted(some, column, side="right") for some, column in zip(cuts.T, answers.T, strict=True)]

    def widen(place: int, ticket: Ticket) -> Ticket:
        content = ticket.content or Content((), tuple(text for _, text in ticket.per_image))
        content = content if has_words else Content((), ())
        columns = [(f"question {number}", str(column[place])) for number, column in enumerate(below, 1)]
        return replace(ticket, content=content._replace(fields=(*content.fields, *columns)))

    return [widen(place, ticket) for place, ticket in enumerate(tickets)]


def find_first_block(train: Sequence[Ticket]) -> list[Ticket]:
    """The tickets that teach before the first bet."""
    (splits,) = split_tickets(train, CONFIG).values()
    groups = whole_groups(splits.tested, train)
    return [train[i] for group in groups[: block_ends(len(groups))[0]] for i in group]


def deal_anew(train: Sequence[Ticket], seed: int) -> list[Ticket]:
    """The tickets with other labels, half of each."""
    dealt = shuffled([SIDES[place % 2] for place in range(len(train))], stream(seed, "questions dealt anew"))
    return [replace(ticket, label=label) for ticket, label in zip(train, dealt, strict=True)]


def _measure(learnt: tuple[Guidance, bool], train: Sequence[Ticket], test: Sequence[Ticket]) -> dict[str, Any]:
    """How what code learnt from ``train`` judges ``test``."""
    guidance, proven = learnt
    judge = read_rules(guidance, Vocabulary.of(train), ENGLISH).compile()
    right = [(judge(reading(ticket)).verdict or "pass") == ticket.label for ticket in test]
    return {"proven": proven, "rules": [rule.text for rule in guidance.rules[1:]], "test": _share(right)}


def _fails(tickets: Sequence[Ticket]) -> NDArray[np.bool_]:
    return np.array([ticket.label == "fail" for ticket in tickets], bool)


def _text(ticket: Ticket) -> str:
    return "\n".join(text for _, text in ticket.per_image)[:MOST_CHARS]


def _cases(tickets: Sequence[Ticket], mission: str, key: int) -> str:
    lines = [f"Mission: {mission}"]
    for side, name in zip(SIDES, "AB", strict=True):
        some = shuffled([ticket for ticket in tickets if ticket.label == side], stream(key, side))[:CASES]
        lines += [f"\nList {name}:", *(f"- {' '.join(_text(ticket).split())[:CHARS]}" for ticket in some)]
    return "\n".join(lines)


def _spell(condition: str) -> str:
    """A condition without the sign of a stem."""
    return re.sub(r"mentions (\w+)\*", r"mentions a word that begins with \1", condition)


def _share(right: Sequence[bool] | NDArray[np.bool_]) -> float | None:
    return round(float(np.mean(right)), 4) if len(right) else None


def _auc(values: Numbers, wanted: NDArray[np.bool_]) -> float:
    """The chance that one of those wanted has a higher value than another one, ties counted half; a half of one kind."""
    ours, others = values[wanted], np.sort(values[~wanted])
    if not len(ours) or not len(others):
        return 0.5
    below = np.searchsorted(others, ours, "left") + np.searchsorted(others, ours, "right")
    return round(float(below.mean() / 2 / len(others)), 4)


def measure(engine: Engine, tickets: Sequence[Ticket], seed: int, dealt: bool, most: int) -> dict[str, Any]:
    """The figures of one trial; where a part of it fails, those until then, and why."""
    began, parts = time.monotonic(), cells.split(tickets, seed)
    train, test = (deal_anew(parts["train"], seed), []) if dealt else (parts["train"], parts["test"])
    found: dict[str, Any] = {"tickets": {"train": len(train), "test": len(test)}}
    trial = Trial(Oracle(engine, tickets[0].mission), train, test, seed, most)
    for part in (trial.use_words, trial.use_questions):
        try:
            found.update(part())
        except Exception:  # the others go on
            found["error"] = found.get("error", "") + traceback.format_exc()
    return {**found, "seconds": round(time.monotonic() - began, 1)}


def main(arguments: Sequence[str]) -> int:
    """Run all trials, and write what is known after each."""
    parser = argparse.ArgumentParser(prog="bin/bench questions", description=__doc__)
    parser.add_argument("--model", default="stageb-tiny", help="a folder or a name")
    parser.add_argument("--data", type=Path, required=True, help="the folder with NAME/tickets.jsonl")
    parser.add_argument("--sets", required=True, help="names with commas between them")
    parser.add_argument("--seeds", default="1,2,3", help="of the splits; of the first two labels are dealt anew, too")
    parser.add_argument("--questions", type=int, default=24, help="that are kept, at most")
    parser.add_argument("--tickets", type=int, help="the first of each set, for a rehearsal")
    parser.add_argument("--out", required=True, help="a JSON file")
    given = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)
    engine = engines.build(ModelConfig(model_name_or_path=given.model), device)
    seeds = list(map(int, given.seeds.split(",")))
    trials: list[dict[str, Any]] = []
    for name in given.sets.split(","):
        tickets = data.load(name, given.data)
        if not tickets:
            raise InputError(f"--sets {name}: there is no {name}/tickets.jsonl in {given.data}")
        for seed, dealt in [*((seed, False) for seed in seeds), *((seed, True) for seed in seeds[:2])]:
            found = measure(engine, tickets[: given.tickets], seed, dealt, given.questions)
            trials.append({"set": name, "seed": seed, "dealt": dealt, **found})
            write(given.out, {"model": given.model, "device": device_name(), "trials": trials})
            print({key: each for key, each in trials[-1].items() if key not in ("questions", "error")}, flush=True)
    return 0
