"""Every word that a model reads or writes in the training-free loop, in one table per language.

Rollout: the system text holds what all tickets of a mission share (instructions, then guidance,
oldest rule first, so that an edit keeps the longest prefix), the user text holds one ticket's
summaries and nothing else: never its label, never its group_id. The answer is two lines, ``Verdict:
...`` and ``Reason: ...``.

Reflection: what was counted to set one kind of error apart, then cases of it beside rightly judged
ones of the same answer, right ones first. Cases go by short names (T1, T2, ...), which stand for
ticket_keys outside the prompt, and counted lines by their numbers: a rule that says [3] says what
line 3 does, in the tickets' own words. The answer is one JSON object.

The shipped model is trained on exactly these texts (``lab/tiny``): a change here means training it
again. Other models read the instruct texts (``prompt.style``), which take the place of some: they
explain more, show demonstrations behind the rules, name no form that could be copied as it stands,
and ask reflection for rules one a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from types import MappingProxyType
from typing import Any

from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Prompt, is_configured
from stageb.guidance.config import PromptConfig
from stageb.guidance.rules.conditions import Expression
from stageb.guidance.rules.evidence import NOTHING, Evidence
from stageb.guidance.rules.wordings import CHINESE, EN, ENGLISH, INSTRUCT, ZH, Grammar
from stageb.guidance.rules.wordings import Words as Words  # part of this module to all others
from stageb.guidance.words.labels import rank
from stageb.guidance.words.types import (
    HEADLINE_KEY,
    PASS_FAIL,
    UNCALIBRATED,
    Demonstration,
    Guidance,
    Ticket,
    Verdict,
)

VERDICT, REASON = "Verdict:", "Reason:"


def _filled(
    words: Words,
    forms: Mapping[str, str],
    of: Mapping[Verdict, Mapping[str, str]] = MappingProxyType({}),
    **changed: Any,
) -> Words:
    """Put ``forms`` in the places of ``<...>`` in ``words``, and those ``of`` a verdict in its own
    texts; change further fields. In texts that are templates themselves, curly brackets of a form
    are doubled."""

    def put(text: str, forms: Mapping[str, str] = forms, template: bool = True) -> str:
        doubled = {
            name: form.replace("{", "{{").replace("}", "}}") if template else form
            for name, form in forms.items()
        }
        return re.sub("<([A-Za-z ]+)>", lambda found: doubled[found[1]], text)

    texts: dict[str, Any] = {name: put(getattr(words, name)) for name in ("rollout", "reflection")}
    for name in ("counted", "right", "wrong"):
        texts[name] = {
            verdict: put(text, of.get(verdict, forms))
            for verdict, text in getattr(words, name).items()
        }
    texts["headlines"] = {
        verdict: put(text, template=False) for verdict, text in words.headlines.items()
    }
    return replace(words, **texts, **changed)


_FORMS: dict[str, dict[str, str]] = {  # for the verdict words that a language has by default
    "en": {
        "headline": "A ticket passes unless a rule fails it.",
        "failing headline": "A ticket fails unless a rule passes it.",
        "Pass": "Pass",
        "Fail": "Fail",
        **{
            f"{before}{verdict}": f"{before}{verdict}"
            for before in ("", "to ", "should ")
            for verdict in ("pass", "fail")
        },
    },
    "zh": dict(ZH.verdicts),
}
_TEMPLATES = {"en": EN, "zh": ZH}
_LISTED = {"en": ("{}, {}", "{} or {}"), "zh": ("{}、{}", "{}或{}")}
_FIRST = {
    "en": "one that begins with {} wins",
    "zh": "以“{}”开头的规则优先",
}  # says which of two rules wins
_FIRST_RULE = {  # the same for labels other than pass and fail
    "en": "the first wins, and of neighbours with points the one furthest above its least",
    "zh": "最前面的优先，相邻的计分规则则以超出最低分最多者优先",
}
_LABEL_HEADLINE = {
    "en": "A ticket is <first label> unless a rule says otherwise.",
    "zh": "除非有规则另行判定，否则为<first label>。",
}
_LABEL_FORMS = {  # for one label, against all others
    "en": {"to pass": "as {}", "should pass": "should be {}", "to fail": "as another label"},
    "zh": {"pass": "{}", "fail": "其他标签"},
}


def _name_all(language: str, verdicts: Sequence[str], first: str) -> dict[str, str]:
    """Make the forms that name all verdicts, and the rule that wins."""
    comma, either = _LISTED[language]
    return {
        "either": either.format(reduce(comma.format, verdicts[:-1]), verdicts[-1]),
        "first": first,
    }


for _language, _forms in _FORMS.items():
    _forms |= _name_all(
        _language,
        [_forms["pass"], _forms["fail"]],
        _FIRST[_language].format(_forms.get("Pass", _forms["pass"])),
    )

WORDS: dict[str, Words] = {
    language: _filled(words, _FORMS[language]) for language, words in _TEMPLATES.items()
}
"""Each language with its default verdict words."""


def find_words(rules: str) -> Words:
    """Find the words of the language in which ``rules``, one a line, are written: English unless
    one begins with a verdict of another language."""
    for words in WORDS.values():
        if re.search(
            rf"^\s*(G\d+\.\s*)?({'|'.join(words.verdicts.values())})\b",
            rules,
            re.MULTILINE | re.IGNORECASE,
        ):
            return words
    return WORDS["en"]


def words_of(prompt: PromptConfig, model: ModelConfig | None = None) -> Words:
    """Return the words that a config asks for, to be read by ``model``; None: by the shipped
    one."""
    model = model or ModelConfig()
    template, forms = _TEMPLATES[prompt.language], _FORMS[prompt.language]
    own, changed = prompt.verdict_words, dict[str, Any]()
    if own is not None:
        passes, fails = own["pass"], own["fail"]
        forms = _name_all(prompt.language, [passes, fails], _FIRST[prompt.language].format(passes))
        forms |= {
            "headline": f"A ticket is {passes} unless a rule says {fails}.",
            "Pass": passes,
            "Fail": fails,
        }
        forms |= {"failing headline": f"A ticket is {fails} unless a rule says {passes}."}
        for verdict, word in own.items():
            forms |= {
                verdict: word,
                f"to {verdict}": f"as {word}",
                f"should {verdict}": f"should be {word}",
            }
        changed = {
            "verdicts": {"pass": passes, "fail": fails},
            "verdict_wording": _find_any([fails, passes]),
        }
    if prompt.instructs(model):
        template = replace(template, **INSTRUCT[prompt.language])
    begun = begins_answers(prompt, model, model.is_local)
    return _filled(template, forms, **changed, begin=VERDICT if begun else "")


def choose_grammar(words: Words) -> Grammar:
    """Return the grammar of the language of ``words``, whatever verdict words a user gave it."""
    return CHINESE if words.language == "zh" else ENGLISH


def _find_any(words: Sequence[str]) -> re.Pattern[str]:
    """Compile a pattern of any of these ``words`` in a rule."""
    return re.compile(
        rf"(?<![a-z0-9])({'|'.join(map(re.escape, words))})(?![a-z0-9])", re.IGNORECASE
    )


def name_labels(words: Words, labels: tuple[Verdict, ...]) -> Words:
    """Return ``words`` for a mission whose tickets have these ``labels``: the same where they are
    pass and fail."""
    if labels == PASS_FAIL:
        return words
    return _with_labels(words.language, words.instruct is not None, words.begin, labels)


@cache
def _with_labels(
    language: str, has_instruct: bool, begin: str, labels: tuple[Verdict, ...]
) -> Words:
    """Put each label where pass stands, and all others where fail does."""
    template, between = _TEMPLATES[language], {"en": ", ", "zh": "”、“"}[language]
    listed = {"Pass": between.join(labels[:-1]), "Fail": labels[-1]}
    forms = _name_all(language, labels, _FIRST_RULE[language]) | {"first label": labels[0]} | listed
    forms |= {name.lower(): each for name, each in listed.items()}
    of_label = {
        label: {name: form.format(label) for name, form in _LABEL_FORMS[language].items()}
        for label in labels
    }
    texts: dict[str, Any] = {
        name: dict.fromkeys(labels, getattr(template, name)["pass"])
        for name in ("counted", "right", "wrong")
    }
    texts |= {
        **(INSTRUCT[language] if has_instruct else {}),
        "headlines": {labels[0]: _LABEL_HEADLINE[language]},
    }
    wording = _find_any(sorted(labels, key=len, reverse=True))
    changed = {
        "verdicts": {each: each for each in labels},
        "verdict_wording": wording,
        "begin": begin,
    }
    return _filled(replace(template, **texts), forms, of_label, **changed)


def begins_answers(prompt: PromptConfig, model: ModelConfig, continues: bool) -> bool:
    """Whether answers are begun for ``model``, whose engine may go on from there (``continues``) or
    not."""
    if prompt.prefill is not None:
        return prompt.prefill
    thinks = is_configured(model.thinking_ends, model.chat_template_kwargs)
    return continues and prompt.instructs(model) and not thinks


@dataclass(frozen=True, slots=True)
class Case:
    """One ticket as reflection sees it."""

    ticket: Ticket  # the ticket, its label included
    right: bool  # judged rightly, and with agreement
    # the reason that was given; empty where no answer could be used, None where none was asked for
    reason: str | None
    # the cost of judging it wrong, as tickets were drawn; 1 for the dearer label
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class ReflectionInput:
    """The part of a mission's tickets that one answer sees."""

    cases: tuple[Case, ...]  # in the order of ``ordered_cases``
    evidence: Evidence = NOTHING  # counted over all tickets that it may see
    # the key of the rule that decided all of them; empty where it is not asked to mend one
    rule: str = ""


def case_name(position: int) -> str:
    """Return the short name of the case at ``position`` (from 0) in a reflection prompt: T1, T2,
    ..."""
    return f"T{position + 1}"


def rule_lines(guidance: Guidance) -> str:
    """Write the guidance as the model reads it: the background first, then one ``Gk. text`` line
    for each rule."""
    background = [rule.text for rule in guidance.rules if rule.is_background]
    return "\n".join(
        [
            *background,
            *(f"{rule.key}. {rule.text}" for rule in guidance.rules if not rule.is_background),
        ]
    )


def ticket_text(ticket: Ticket) -> str:
    """Write a ticket's summaries, one ``image_n: text`` line each, and the counts of all images
    where there are several."""
    together = [("all images", ticket.counts)] if ticket.counts else []
    return "\n".join(f"{name}: {summary}" for name, summary in (*ticket.per_image, *together))


def render_guidance(guidance: Guidance) -> str:
    """Write all of a guidance that the verdicts under it depend on, as one text."""
    parts = guidance.shown, guidance.calibration, guidance.calibration.offsets
    further = [
        repr(part) for part in (*parts, guidance.judge) if part not in ((), UNCALIBRATED, "")
    ]
    return "\n".join([rule_lines(guidance), *further])


def rollout_prompt(ticket: Ticket, guidance: Guidance, words: Words) -> Prompt:
    """Write the prompt that asks for one ticket's verdict."""
    shown, words = ticket.images, name_labels(words, guidance.labels)
    system = words.rollout.format(mission=guidance.mission, rules=rule_lines(guidance))
    before = ""
    if words.instruct:
        before = f"{words.instruct.ticket}\n"
        examples = [demonstration_text(each, words) for each in guidance.shown]
        system = "\n\n".join([system, words.instruct.examples, *examples]) if examples else system
    if shown is None:
        return Prompt(system=system, user=before + ticket_text(ticket))
    lines = [
        words.image.format(name=name, place=place) for place, (name, _) in enumerate(shown.files, 1)
    ]
    user = "\n".join(lines) if shown.instead else ticket_text(ticket)
    return Prompt(
        system=f"{system}\n\n{words.images}",
        user=before + user,
        images=tuple(path for _, path in shown.files),
    )


def demonstration_text(demonstration: Demonstration, words: Words) -> str:
    """Write a demonstration as the model reads it: the ticket, and the answer to give."""
    instruct, key = words.instruct, demonstration.rule
    assert instruct is not None  # other texts show none
    if key == HEADLINE_KEY:
        reason = instruct.none_holds.format(key=key)
    else:
        said = demonstration.points or demonstration.text.rstrip(".。")
        reason = instruct.holds.format(text=said, key=key) if key else instruct.by_label
    summaries = "\n".join(f"{name}: {summary}" for name, summary in demonstration.per_image)
    return f"{instruct.ticket}\n{summaries}\n{answer_text(demonstration.verdict, reason, words)}"


def reflection_prompt(
    shown: ReflectionInput, guidance: Guidance, words: Words, max_operations: int
) -> Prompt:
    """Write the prompt that asks for edits. Cases are named T1, T2, ... in the order given."""
    by = words.by.format(key=shown.rule) if shown.rule else ""
    counted = evidence_lines(shown, words)
    lines = [words.mission.format(mission=guidance.mission), rule_lines(guidance), *counted]
    lines += ["", words.mend.format(key=shown.rule)] if shown.rule else []
    heading = None
    for position, case in enumerate(shown.cases):
        label = case.ticket.label
        new_heading = (words.right[label] if case.right else words.wrong[label]).format(by=by)
        if new_heading != heading:
            lines += ["", new_heading]
            heading = new_heading
        name = "- " if words.instruct else f"{case_name(position)}. "
        lines.append(name + case_text(case, words))
    opening = rule_opening(shown, words)
    if words.instruct:
        lines += ["", words.instruct.ask.format(opening=opening)]
    counting = words.counting if counted else ""
    system = words.reflection.format(counting=counting, max_operations=max_operations)
    return Prompt(system=system, user="\n".join(lines))


def rule_opening(shown: ReflectionInput, words: Words) -> str:
    """Return the beginning of a rule that turns the wrong cases; empty where answers are not rules
    alone."""
    label = next((case.ticket.label for case in shown.cases if not case.right), None)
    if words.instruct is None or label is None:
        return ""
    return words.instruct.opens.format(verdict=spell(label, words))


def spell(verdict: Verdict, words: Words) -> str:
    """Write a verdict as the first word of a rule."""
    spelled = words.verdicts[verdict]
    return spelled[:1].upper() + spelled[1:]


def evidence_lines(shown: ReflectionInput, words: Words) -> list[str]:
    """Write the evidence as the model reads it: a heading and a line for each clue; nothing where
    there is none."""
    evidence = shown.evidence
    label = next((case.ticket.label for case in shown.cases if not case.right), None)
    if label is None or not evidence.clues:
        return []
    opening = rule_opening(shown, words)
    return [
        "",
        words.counted[label].format(wrong=evidence.wrong, right=evidence.right),
        *(
            words.clue.format(
                place=place,
                wrong=clue.wrong,
                right=clue.right,
                text=clue_text(clue.conditions, words),
                opening=opening,
            )
            for place, clue in enumerate(evidence.clues, 1)
        ),
    ]


def clue_text(conditions: Sequence[Expression], words: Words) -> str:
    """Write conditions that hold together, in words that a rule can take over."""
    grammar = choose_grammar(words)
    return grammar.and_.join(condition.write(grammar) for condition in conditions)


def case_text(case: Case, words: Words) -> str:
    """Write one case on one line: its summaries, and for a wrong one the reasons of a person and of
    the answer, if given."""
    summaries = case.ticket.counts or " | ".join(
        " ".join(summary.split()) for _, summary in case.ticket.per_image
    )
    if case.ticket.reason and not case.right:
        summaries += words.person.format(reason=case.ticket.reason)
    if case.right or case.reason is None or words.instruct:
        return summaries
    return summaries + words.said.format(reason=case.reason or words.no_answer)


def ordered_cases(cases: Sequence[Case]) -> list[Case]:
    """Sort right cases before wrong ones, pass before fail, other labels by name, otherwise as
    given: the order in which a prompt names them."""
    return sorted(
        cases, key=lambda case: (not case.right, rank(case.ticket.label), case.ticket.label)
    )


def verdict_lines(words: Words) -> dict[Verdict, str]:
    """Return the first line of an answer, for each verdict."""
    return {verdict: f"{VERDICT} {spelling}" for verdict, spelling in words.verdicts.items()}


def answer_text(verdict: Verdict, reason: str, words: Words) -> str:
    """Write the two lines that a right answer consists of."""
    return f"{verdict_lines(words)[verdict]}\n{REASON} {reason}"
