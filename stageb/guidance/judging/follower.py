"""A stand-in for a language model, for tests and examples: it follows plain rules by their letter,
and learns from cases.

It is a fake. It reads the prompts of ``prompts.py`` (whose words tell it which kind of prompt it
has, and of which labels) and knows four shapes of rule: ``Fail if A is B.``, ``Pass if ...``, ``...
unless ...`` and ``... if a summary mentions WORD.``, with ``is not`` and ``and``; in Chinese
``不通过：若A为B。``. Summaries are read as ``A: B; C: D``, or as words where they hold nothing of the
kind. Of what was counted to set errors apart, it takes the first clue that has these shapes.
Everything is a function of the prompt, the temperature and the key, so the ``scripted`` engine can
run the whole loop on it, and the loop measurably learns.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Decode, Prompt
from stageb.guidance.rules.prompts import (
    VERDICT,
    WORDS,
    Words,
    answer_text,
    choose_grammar,
    name_labels,
    spell,
)
from stageb.guidance.words.types import HEADLINE_KEY, PASS_FAIL, Verdict
from stageb.seeds import stream, uniform

# the function that the scripted engine runs where none is named
FOLLOWER = "stageb.guidance.judging.follower:respond"
SLIPS = 0.03  # share of sampled answers that say the other verdict
GARBLES = 0.02  # share of sampled answers that cannot be parsed

_KEY = r"(G\d+)"
_RULE_LINE = re.compile(rf"{_KEY}\. (.+)")
_MENTIONS = re.compile(r".*\bmentions ")


@dataclass(frozen=True)
class _RuleForms:
    """The forms in which rules are written in one language."""

    lists: str  # where a reflection prompt lists the verdict words
    between: str  # what stands between two of them
    rule: str  # pattern of a rule: verdict word, if or unless, conditions
    writes: str  # a rule to be written: verdict word, conditions
    is_: str  # in a condition
    not_: str  # in its denial
    and_: str  # between conditions


_FORMS = {
    "en": _RuleForms(
        r"begins with (.+) and says",
        ", | or ",
        r"({}) (if|unless) (.+?)\.?",
        "{} if {}.",
        " is ",
        " is not ",
        " and ",
    ),
    "zh": _RuleForms(
        "规则以“(.+)”开头",
        "、|”、“|”?或“?",
        "({})：(若|除非)(.+?)。?",
        "{}：若{}。",
        "为",
        "不为",
        "且",
    ),
}


@dataclass(frozen=True)
class _Seen:
    """A case of a reflection prompt."""

    name: str
    facts: frozenset[str]
    reason: str


@dataclass(frozen=True)
class _ReflectionPrompt:
    """A reflection prompt, read."""

    wrong: list[_Seen]
    right: list[_Seen]
    label: Verdict  # that the wrong cases should get
    rule: str  # the key of the rule to mend; empty where the headings name none
    clues: list[str]  # conditions that were counted, the most telling first


def respond(prompt: Prompt, decode: Decode, key: int) -> str:
    """Answer a rollout or reflection prompt; make a remark on any other. Sampled answers slip and
    garble now and then."""
    draw = uniform(key, 0) if decode.temperature > 0 else 1.0
    if draw < GARBLES:
        return "Verdict: hard to say"
    for language, forms in _FORMS.items():
        words = _find_words(prompt.system, language)
        if prompt.system.startswith(words.rollout.partition("{")[0]):
            return _judge(prompt, words, forms, slip=draw < GARBLES + SLIPS)
        if prompt.system.startswith(words.reflection.partition("{")[0]):
            return _propose(prompt.user, words, forms, key)
    return "I judge inspection tickets and improve guidance, nothing else."


def _find_words(system: str, language: str) -> Words:
    """Find the words of a language, with the labels that a prompt lists."""
    words, forms = WORDS[language], _FORMS[language]
    found = re.search(rf"^{VERDICT} (.+)$|{forms.lists}", system, re.MULTILINE)
    labels = tuple(re.split(forms.between, found[1] or found[2])) if found else ()
    is_own = len(labels) > 1 and [label.lower() for label in labels] != [*words.verdicts.values()]
    return name_labels(words, labels) if is_own else words


def _find_rules(text: str, words: Words, forms: _RuleForms) -> dict[str, tuple[Verdict, bool, str]]:
    """Find the rules in a prompt, by key: the verdict, whether it is given where the conditions
    hold, and these."""
    spelled = {spell(verdict, words): verdict for verdict in words.verdicts}
    form = forms.rule.format("|".join(map(re.escape, spelled)))
    read = {key: re.fullmatch(form, text) for key, text in _RULE_LINE.findall(text)}
    return {
        key: (spelled[rule[1]], rule[2] in ("if", "若"), rule[3])
        for key, rule in read.items()
        if rule
    }


def _judge(prompt: Prompt, words: Words, forms: _RuleForms, slip: bool) -> str:
    """Write the two lines for one ticket: a Pass rule that holds wins over a Fail rule, and no rule
    means what the headline says; of other labels the first rule that holds wins, and no rule means
    the first label."""
    labels = tuple(words.verdicts)
    summaries = [line.partition(": ")[2] or line for line in prompt.user.splitlines()]
    facts = {fact.casefold() for fact in _list_facts(summaries, forms)}
    verdict = next(
        (each for each, text in words.headlines.items() if text in prompt.system), labels[0]
    )
    reason = f"{HEADLINE_KEY}: {choose_grammar(words).silent}"
    for rule_key, (given, if_, conditions) in _find_rules(prompt.system, words, forms).items():
        if if_ == all(_holds(term, facts, forms) for term in conditions.split(forms.and_)):
            verdict, reason = given, f"{rule_key}: {conditions}"
            if verdict == "pass" or labels != PASS_FAIL:
                break
    if slip:
        verdict = labels[labels.index(verdict) - 1]
    return answer_text(verdict, reason, words)


def _holds(term: str, facts: set[str], forms: _RuleForms) -> bool:
    term = _MENTIONS.sub("a summary mentions ", term.strip().casefold())
    if forms.not_ in term:
        return term.replace(forms.not_, forms.is_, 1) not in facts
    return term in facts


def _list_facts(summaries: Sequence[str], forms: _RuleForms) -> frozenset[str]:
    """Return the facts in summaries, each in the form of a rule's condition: attributes, and every
    word."""
    pairs = [part.partition(":") for summary in summaries for part in summary.split(";")]
    attributes = {
        f"{name.strip()}{forms.is_}{value.strip()}" for name, colon, value in pairs if colon
    }
    words = {
        f"a summary mentions {word.casefold()}"
        for summary in summaries
        for word in re.findall(r"\w+", summary)
    }
    return frozenset(attributes | words)


def _propose(user: str, words: Words, forms: _RuleForms, key: int) -> str:
    """Write one operation as JSON: a rule that tells the wrong cases from the right ones, or one
    rule less, or a narrower one."""
    asked = _parse_prompt(user, words, forms)
    known = _find_rules(user, words, forms)
    rules = {name: conditions for name, (_, _, conditions) in known.items()}
    blamed = Counter(
        name for case in asked.wrong if (name := case.reason.partition(":")[0]) in rules
    )
    mended = asked.rule if asked.rule in rules else ""
    if not mended and asked.label == next(iter(words.verdicts)) and blamed:
        mended = blamed.most_common(1)[0][0]
    if mended:
        operation = {"op": "remove", "key": mended, "rationale": "it judges tickets the wrong way"}
        turned = [
            case.name for case in asked.wrong if asked.rule or case.reason.startswith(f"{mended}:")
        ]
        if asked.right and uniform(key, 1) < 0.5:
            more = _find_condition(
                asked.right, asked.wrong, forms, key, set(rules[mended].split(forms.and_))
            )
            verdict = spell(known[mended][0], words)
            operation |= {
                "op": "update",
                "text": forms.writes.format(verdict, rules[mended] + forms.and_ + more),
            }
    else:
        # with other labels, a rule may move to the front
        taken = set(rules.values()) if tuple(words.verdicts) == PASS_FAIL else set[str]()
        condition = _find_clue(asked, forms, taken) or _find_condition(
            asked.wrong, asked.right, forms, key, taken
        )
        text = forms.writes.format(spell(asked.label, words), condition)
        operation = {"op": "add", "text": text, "rationale": "common to the wrong cases"}
        turned = [
            case.name for case in asked.wrong if case.facts.issuperset(condition.split(forms.and_))
        ]
    return json.dumps({"operations": [{**operation, "evidence": turned}]}, ensure_ascii=False)


def _parse_prompt(user: str, words: Words, forms: _RuleForms) -> _ReflectionPrompt:
    """Parse a reflection prompt: cases under their headings, and the clues that were counted."""
    by = f"(?:{words.by.format(key=_KEY)})?"
    headings = [
        (right, verdict, text.format(by=by))
        for right, texts in ((True, words.right), (False, words.wrong))
        for verdict, text in texts.items()
    ]
    clue = words.clue.replace("[", r"\[").format(
        place=r"\d+", wrong=r"\d+", right=r"\d+", text="(.+)"
    )
    cases: dict[bool, list[_Seen]] = {True: [], False: []}
    clues: list[str] = []
    right, label, rule = True, "fail", ""
    for line in user.splitlines():
        for kind, verdict, heading in headings:
            if found := re.fullmatch(heading, line):
                right, label, rule = kind, verdict, found[1] or ""
        if found := re.fullmatch(r"(T\d+)\. (.+)", line):
            text, said, reason = found[2].rpartition(words.said.partition("{")[0])
            if right or not said:
                text, reason = found[2], ""
            cases[right].append(_Seen(found[1], _list_facts(text.split(" | "), forms), reason))
        elif found := re.fullmatch(clue, line):
            clues.append(found[1])
    return _ReflectionPrompt(cases[False], cases[True], label, rule, clues)


def _find_clue(asked: _ReflectionPrompt, forms: _RuleForms, taken: set[str]) -> str:
    """Find the first clue that is new and that a wrong case bears out in words which this reader
    knows; empty without one."""
    for clue in asked.clues:
        if clue not in taken and any(
            case.facts.issuperset(clue.split(forms.and_)) for case in asked.wrong
        ):
            return clue
    return ""


def _find_condition(
    these: list[_Seen], others: list[_Seen], forms: _RuleForms, key: int, taken: set[str]
) -> str:
    """Find the condition, of one fact or two, that holds for most of ``these`` and fewest of
    ``others``."""
    attributes = [
        sorted(fact for fact in case.facts - taken if not _MENTIONS.match(fact)) for case in these
    ]
    facts = attributes if any(attributes) else [sorted(case.facts - taken) for case in these]
    sets = {terms for each in facts for size in (1, 2) for terms in combinations(each[:40], size)}

    def merit(terms: tuple[str, ...]) -> tuple[float, float]:
        held, lost = (
            sum(case.facts.issuperset(terms) for case in cases) / max(1, len(cases))
            for cases in (these, others)
        )
        return held - 2 * lost - 0.1 * len(terms), uniform(stream(key, *terms), 0)

    free = [terms for terms in sets if forms.and_.join(terms) not in taken]
    best: tuple[str, ...] = max(free, key=merit, default=())
    return forms.and_.join(best)


def with_follower(model: ModelConfig) -> ModelConfig:
    """Return ``model``, with the shipped follower of rules where the scripted engine is to run and
    no function is named."""
    unnamed = (
        model.engine == "scripted" and model.model_name_or_path == ModelConfig.model_name_or_path
    )
    return replace(model, model_name_or_path=FOLLOWER) if unnamed else model
