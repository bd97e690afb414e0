"""Training rows for the shipped model: a prompt read once, and several answers to it side by side.

A row is a prefix and segments that each see the prefix and themselves only, which is how the product reads them (shared
text once, tickets forked after it). Rollout rows: guidance, then tickets with their two-line answers. Reflection rows: one
bundle of cases, then several admissible answers, drawn from ``teach``.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stageb.engines.protocol import Prompt
from stageb.guidance.prompts import WORDS, Case, answer_text, case_name, ordered_cases, reflection_prompt, rollout_prompt
from stageb.guidance.types import HEADLINE_KEY, Guidance, Rule, Verdict
from stageb.tiny import words
from stageb.tiny.worlds import CANONICAL, Book, Condition, Facts, Kind, Style, World, WorldRule, draw_rule, draw_world, stems

Masks = dict[tuple[Condition, ...], tuple[int, float]]
"""Conditions that hold together -> (bit mask of the cases that meet them, price of stating them)."""

FAILS_BY_DEFAULT = {"en": "A ticket fails unless a rule passes it.", "zh": "除非有规则判为通过，否则不通过。"}
RATIONALE = {"en": "wrong cases share it", "zh": "判错的案例都有"}
MOST_EVIDENCE = 3


@dataclass(frozen=True, slots=True)
class Row:
    """A shared text and what follows it: (own text, answer) pairs."""

    system: str
    segments: tuple[tuple[str, str], ...]  # (user text, answer); reflection rows repeat one user text


def headline(language: str, default: Verdict, rng: random.Random, unseen: bool) -> str:
    """G0: neutral half of the time, otherwise with the mission's own words."""
    if default == "fail":
        return FAILS_BY_DEFAULT[language]
    neutral = WORDS[language].neutral_headline
    if rng.random() < 0.6:
        return neutral
    if language == "zh":
        return rng.choice(
            (f"检查{words.han(rng, 2, 4)}。{neutral}", f"检查{words.han(rng, 2, 4)}和{words.han(rng, 2, 4)}。")
        )
    a, b = words.plain(rng, unseen), words.plain(rng, unseen)
    return rng.choice(
        (f"Inspect the {a} {b}. {neutral}", f"Check the {a} and the {b}.", f"{a.capitalize()} {b} inspection.")
    )


def guidance_of(world: World, book: Book, top: str, style: Style, step: int = 0) -> Guidance:
    """The book as the product's guidance."""
    rules = [Rule(HEADLINE_KEY, top), *(Rule(key, rule.text(world.language, style)) for key, rule in book.rules.items())]
    return Guidance(world.mission, step, tuple(rules), 1 + max((int(rule.key[1:]) for rule in rules), default=0))


def numbered(rules: Sequence[WorldRule], rng: random.Random) -> dict[str, WorldRule]:
    """The rules under ascending keys, sometimes with gaps, as removed rules leave them."""
    number, book = 0, {}
    for rule in rules:
        number += 1 if rng.random() < 0.85 else rng.randint(2, 9)
        book[f"G{number}"] = rule
    return book


# ---------------------------------------------------------------------------------------------------------- rollout rows


def rollout_row(
    rng: random.Random, difficulty: float, unseen: bool = False, chinese: float = 0.12, tickets: int = 12
) -> Row:
    """A guidance and tickets with right answers, half pass and half fail where the guidance allows it."""
    world = draw_world(rng, difficulty, unseen, chinese)
    most = 1 + round(difficulty * rng.choice((3, 6, 6, 12)))
    drawn = (draw_rule(world, rng) for _ in range(rng.randint(0 if rng.random() < 0.05 else 1, most)))
    rules = [rule for rule in drawn if rule is not None]
    if sum(rule.inverted for rule in rules) > 1:  # two "fail unless" rules fail nearly everything
        rules = [rule for rule in rules if not rule.inverted]
    default: Verdict = "fail" if any(rule.verdict == "pass" for rule in rules) and rng.random() < 0.3 else "pass"
    book = Book(numbered(rules, rng), default)
    guidance = guidance_of(world, book, headline(world.language, default, rng, unseen), Style.draw(rng))
    segments = []
    system = ""
    for _ in range(tickets):
        facts = aimed_facts(world, book, rng, rng.choice(("pass", "fail")))
        verdict, reason, _ = book.judge(facts, world.language)
        prompt = rollout_prompt(world.ticket(facts, rng), guidance, world.language)
        system = prompt.system
        segments.append((prompt.user, answer_text(verdict, reason, world.language)))
    return Row(system, tuple(segments))


def aimed_facts(world: World, book: Book, rng: random.Random, wanted: Verdict) -> Facts:
    """Facts close to the edge of one of the rules; of the wanted verdict if a few tries find one."""
    facts = world.draw(rng)
    for _ in range(8):
        forced: dict[str, str] = {}
        planted: list[str] = []
        if book.rules and rng.random() < 0.85:
            rule = rng.choice(list(book.rules.values()))
            stated = [*rule.conditions, *([rule.exception] if rule.exception else [])]
            for condition in stated:
                if rng.random() < 0.75:
                    meet(world, condition, rng, forced, planted)
        facts = world.draw(rng, forced, planted)
        if book.judge(facts, world.language)[0] == wanted:
            break
    return facts


def meet(world: World, condition: Condition, rng: random.Random, forced: dict[str, str], planted: list[str]) -> None:
    """Add what makes a condition true."""
    if condition.kind == "mentions":
        planted.append(rng.choice(condition.values))
    elif condition.kind in ("above", "below"):
        for _ in range(4):
            value = world.number(rng, condition.attribute)
            if condition.holds(Facts({condition.attribute: value}, ())):
                forced[condition.attribute] = value
    elif condition.kind == "not":
        others = [value for value in world.values[condition.attribute] if value != condition.values[0]]
        forced[condition.attribute] = rng.choice(others)
    else:
        forced[condition.attribute] = rng.choice(condition.values)


# -------------------------------------------------------------------------------------------------------- reflection rows


@dataclass(frozen=True, slots=True)
class Judged:
    """One case with everything that the teacher may use."""

    facts: Facts
    case: Case
    decided_by: str  # the key of the rule that gave the answer


@dataclass(frozen=True, slots=True)
class Option:
    """An edit that the cases speak for."""

    score: float  # wrong cases turned, less three times the right ones spoilt, less a price for length
    op: str
    key: str | None
    rule: WorldRule | None  # None: remove
    turned: int  # bit mask of the cases that the edit turns


def reflection_row(
    rng: random.Random,
    difficulty: float,
    unseen: bool = False,
    chinese: float = 0.12,
    answers: int = 4,
    most_characters: int = 4200,
) -> tuple[Row, list[Option], list[Judged]]:
    """A bundle of cases and admissible answers; also what the teacher saw, for scoring a model's own answers."""
    while True:
        world = draw_world(rng, difficulty, unseen, chinese)
        hidden = hidden_rules(world, rng)
        known = known_rules(world, hidden, rng)
        judged = bundle(world, Book(dict(enumerate_keys(hidden)), "pass"), Book(known, "pass"), rng, most_characters)
        if judged is None:
            continue
        options = teach(world, Book(known, "pass"), judged)
        if not options:
            continue
        top = headline(world.language, "pass", rng, unseen)
        guidance = guidance_of(world, Book(known, "pass"), top, Style.draw(rng) if rng.random() < 0.3 else CANONICAL)
        prompt = reflection_prompt([j.case for j in judged], guidance, world.language, rng.choice((1, 1, 1, 2, 3, 4)))
        chosen = [draw_option(options, rng) for _ in range(answers)]
        texts = dict.fromkeys(operation_json(option, judged, world.language) for option in chosen)
        return Row(prompt.system, tuple((prompt.user, text) for text in texts)), options, judged


def enumerate_keys(rules: Sequence[WorldRule]) -> Iterator[tuple[str, WorldRule]]:
    """Rules under throw-away keys."""
    return ((f"H{number}", rule) for number, rule in enumerate(rules))


def hidden_rules(world: World, rng: random.Random) -> list[WorldRule]:
    """The rules that labels follow: mostly fail rules."""
    drawn = (draw_rule(world, rng, "fail" if rng.random() < 0.85 else "pass") for _ in range(rng.randint(1, 6)))
    return [rule for rule in drawn if rule is not None]


def known_rules(world: World, hidden: Sequence[WorldRule], rng: random.Random) -> dict[str, WorldRule]:
    """What the guidance says so far: some of the truth, some of it too broad, some junk."""
    share = rng.choice((0.0, 0.3, 0.6, 0.9))
    known = [rule for rule in hidden if rng.random() < share]
    known = [
        WorldRule(rule.verdict, rule.conditions[:1]) if len(rule.conditions) > 1 and rng.random() < 0.3 else rule
        for rule in known
    ]
    if rng.random() < 0.45:
        known += [rule for rule in (draw_rule(world, rng, "fail") for _ in range(rng.randint(1, 2))) if rule is not None]
    rng.shuffle(known)
    return numbered(known, rng)


def bundle(world: World, truth: Book, present: Book, rng: random.Random, most_characters: int) -> list[Judged] | None:
    """Cases as the product draws them: one kind of error, and right cases that got the same answer. None: too few errors."""
    noise, slips = rng.choice((0.0, 0.0, 0.02, 0.05, 0.1)), rng.choice((0.0, 0.02))
    focus: Verdict = "fail" if rng.random() < 0.65 else "pass"
    wrong: list[Judged] = []
    right: list[Judged] = []
    most = rng.randint(3, 24)
    for _ in range(rng.choice((40, 100, 200))):
        facts = world.draw(rng)
        label = truth.judge(facts, world.language)[0]
        if rng.random() < noise:
            label = "fail" if label == "pass" else "pass"
        verdict, reason, key = present.judge(facts, world.language)
        if rng.random() < slips:
            verdict = "fail" if verdict == "pass" else "pass"
        if (verdict == label) == (label == focus):
            continue  # neither an error of this kind nor its contrast
        case = Case(world.ticket(facts, rng, label), verdict == label, reason)
        (right if case.right else wrong).append(Judged(facts, case, key))
        if len(wrong) >= most and len(right) >= most:
            break
    if not wrong:
        return None
    chosen = right[:most] + wrong[:most]
    average = sum(len(s) for j in chosen for _, s in j.case.ticket.per_image) / len(chosen) + 12
    fits = int(most_characters / average)
    if len(chosen) > fits:
        chosen = right[: max(fits // 2, fits - len(wrong))] + wrong[: max(fits // 2, fits - len(right))]
    order = {id(judged.case): judged for judged in chosen}
    return [order[id(case)] for case in ordered_cases([j.case for j in chosen])]


def teach(world: World, present: Book, judged: Sequence[Judged]) -> list[Option]:
    """Every edit that the cases on show speak for, by exhaustive search over short conditions."""
    wrong = sum(1 << i for i, j in enumerate(judged) if not j.case.right)
    right = sum(1 << i for i, j in enumerate(judged) if j.case.right)
    masks = condition_masks(world, judged)

    def worth(mask: int, price: float) -> float:
        return (mask & wrong).bit_count() - 3 * (mask & right).bit_count() - price

    options: list[Option] = []
    shortlist = sorted(masks.items(), key=lambda item: -worth(item[1][0], item[1][1]))
    should_fail = next(j.case.ticket.label for j in judged if not j.case.right) == "fail"
    verdict: Verdict = "fail" if should_fail else "pass"
    for conditions, (mask, price) in shortlist[:12]:
        rule = WorldRule(verdict, conditions)
        options.append(Option(worth(mask, price + (0.0 if should_fail else 1.0)), "add", None, rule, mask & wrong))
        if should_fail:
            options += broadened(present, conditions, worth(mask, price), mask & wrong)
    for key, rule in present.rules.items():
        decided = sum(1 << i for i, j in enumerate(judged) if j.decided_by == key)
        if not decided & wrong:
            continue
        options.append(Option(worth(decided, 0.5), "remove", key, None, decided & wrong))
        if rule.exception is None and not rule.inverted and len(rule.conditions) == 1:
            options += narrowed(rule, key, masks, decided, worth, wrong)
    best = max((option.score for option in options), default=0.0)
    return [option for option in options if option.score > max(0.0, best - 3.0)]


def condition_masks(world: World, judged: Sequence[Judged]) -> Masks:
    """Short conditions that hold for a wrong case -> (bit mask of the cases that meet it, price)."""
    single: dict[Condition, int] = {}
    phrases: dict[str, int] = {}
    for index, j in enumerate(judged):
        for attribute, value in j.facts.values.items():
            if attribute in world.values:
                condition = Condition("is", attribute, (value,))
                single[condition] = single.get(condition, 0) | 1 << index
        for word in set(j.facts.notes):
            if len(word) > 1 and not any(c in word for c in "<>#/"):
                for form in (word, *stems(word)):
                    phrases[form] = phrases.get(form, 0) | 1 << index
    wrong = sum(1 << i for i, j in enumerate(judged) if not j.case.right)
    everyone = (1 << len(judged)) - 1
    masks: Masks = {}
    equal = [(condition, mask) for condition, mask in single.items() if mask & wrong]
    for condition, mask in equal:
        masks[condition,] = (mask, 0.0)
    for position, (one, mask) in enumerate(equal):
        for other, other_mask in equal[position + 1 :]:
            if one.attribute == other.attribute:
                both = Condition("in", one.attribute, (one.values[0], other.values[0]))
                masks[both,] = (mask | other_mask, 0.8)
            elif mask & other_mask & wrong:
                masks[one, other] = (mask & other_mask, 1.0)
    for condition, mask in single.items():
        have = sum(1 << i for i, j in enumerate(judged) if condition.attribute in j.facts.values)
        masks[Condition("not", condition.attribute, condition.values),] = (have & ~mask & everyone, 0.7)
    masks |= threshold_masks(world, judged)
    return masks | mention_masks(judged, phrases, wrong)


def threshold_masks(world: World, judged: Sequence[Judged]) -> Masks:
    """Comparisons at the values on show."""
    masks: Masks = {}
    for attribute in world.numbers:
        shown = {j.facts.values[attribute] for j in judged if attribute in j.facts.values}
        for value in shown:
            for condition in (Condition("above", attribute, (value,)), Condition("below", attribute, (value,))):
                masks[condition,] = (sum(1 << i for i, j in enumerate(judged) if condition.holds(j.facts)), 0.5)
    return masks


def mention_masks(judged: Sequence[Judged], phrases: Mapping[str, int], wrong: int) -> Masks:
    """Single words, and the best few of them joined, taken greedily by the wrong cases that each adds."""
    masks: Masks = {}
    clean: list[tuple[str, int]] = []
    for word, rough in phrases.items():
        if rough & wrong:
            condition = Condition("mentions", "", (word,))
            mask = sum(1 << i for i, j in enumerate(judged) if condition.holds(j.facts))
            if mask & wrong:
                masks[condition,] = (mask, 0.0 if any(word in j.facts.notes for j in judged) else 0.4)
                clean.append((word, mask))
    joined: tuple[str, ...] = ()
    covered = 0
    for _ in range(4):
        gains = [((m & wrong & ~covered).bit_count() - 3 * (m & ~wrong & ~covered).bit_count(), w, m) for w, m in clean]
        gain, _, word, mask = max(((g, len(w), w, m) for g, w, m in gains), default=(0, 0, "", 0))
        if gain < 2:
            break
        joined, covered = (*joined, word), covered | mask
        if len(joined) > 1:
            masks[Condition("mentions", "", joined),] = (covered, 0.3 * len(joined))
    return masks


def broadened(present: Book, conditions: tuple[Condition, ...], score: float, turned: int) -> list[Option]:
    """Rules about the same thing that could take the condition in: one more value, or one more word."""
    options = []
    for key, rule in present.rules.items():
        if rule.verdict != "fail" or rule.inverted or rule.exception or len(rule.conditions) != 1 or len(conditions) != 1:
            continue
        old, new = rule.conditions[0], conditions[0]
        kinds = (old.kind, new.kind)
        if old.attribute != new.attribute or kinds not in (("is", "is"), ("in", "is"), ("mentions", "mentions")):
            continue
        values = tuple(dict.fromkeys((*old.values, *new.values)))
        if len(values) > len(old.values) and len(values) <= 6:
            kind: Kind = "mentions" if old.kind == "mentions" else "in"
            wider = WorldRule("fail", (Condition(kind, old.attribute, values),))
            options.append(Option(score + 0.3, "update", key, wider, turned))
    return options


def narrowed(
    rule: WorldRule, key: str, masks: Masks, decided: int, worth: Callable[[int, float], float], wrong: int
) -> list[Option]:
    """The rule with an exception, or with one more condition, that lets the wrong cases go and keeps the right ones."""
    options = []
    own = rule.conditions[0].attribute
    for conditions, (mask, price) in masks.items():
        if len(conditions) > 1 or conditions[0].kind not in ("is", "mentions") or (own and conditions[0].attribute == own):
            continue
        spared = decided & mask
        option = WorldRule(rule.verdict, rule.conditions, exception=conditions[0])
        options.append(Option(worth(spared, price + 1.0), "update", key, option, spared & wrong))
    for condition in {c for conditions in masks for c in conditions if len(conditions) == 1 and c.kind == "not"}:
        if condition.attribute != own:
            spared = decided & masks[condition,][0]
            tight = WorldRule(rule.verdict, (*rule.conditions, Condition("is", condition.attribute, condition.values)))
            options.append(Option(worth(spared, 1.0), "update", key, tight, spared & wrong))
    return sorted(options, key=lambda option: -option.score)[:6]


def draw_option(options: Sequence[Option], rng: random.Random, temperature: float = 0.6) -> Option:
    """One option, by a softmax over scores."""
    best = max(option.score for option in options)
    return rng.choices(options, [math.exp((option.score - best) / temperature) for option in options])[0]


def operation_json(option: Option, judged: Sequence[Judged], language: str) -> str:
    """The answer that proposes an option."""
    operation: dict[str, object] = {"op": option.op}
    if option.key is not None:
        operation["key"] = option.key
    if option.rule is not None:
        operation["text"] = option.rule.text(language, CANONICAL)
    operation["rationale"] = RATIONALE[language]
    turned = [case_name(index) for index in range(len(judged)) if option.turned >> index & 1]
    operation["evidence"] = turned[:MOST_EVIDENCE]
    return json.dumps({"operations": [operation]}, ensure_ascii=False)


def prompt_of(row: Row, segment: int) -> Prompt:
    """The prompt of one of a row's segments."""
    return Prompt(row.system, row.segments[segment][0])
