"""Training rows for the shipped model: a prompt read once, and several answers to it side by side.

A row is a prefix and segments that each see the prefix and themselves only, which is how the
product reads them (shared text once, tickets forked after it). Rollout rows are made here:
guidance, then tickets with their two-line answers. Reflection rows come from ``lessons``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lab.tiny import words
from lab.tiny.rules import BETWEEN, COMPARISONS, Book, Condition, Facts, Style, WorldRule
from lab.tiny.worlds import World, draw_between, draw_condition, draw_limit, draw_rule
from stageb.guidance.rules.prompts import WORDS, answer_text, name_labels, rollout_prompt
from stageb.guidance.words.types import HEADLINE_KEY, PASS_FAIL, Guidance, Rule, Verdict

FAILS_BY_DEFAULT = {
    "en": "A ticket fails unless a rule passes it.",
    "zh": "除非有规则判为通过，否则不通过。",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A shared text and what follows it: (own text, answer) pairs."""

    system: str
    # (user text, answer); reflection rows repeat one user text
    segments: tuple[tuple[str, str], ...]
    # how much each answer weighs, one in the mean; empty: all the same
    shares: tuple[float, ...] = ()


def headline(language: str, default: Verdict, rng: random.Random, unseen: bool) -> str:
    """G0: neutral half of the time, otherwise with the mission's own words."""
    if default == "fail":
        return FAILS_BY_DEFAULT[language]
    neutral = WORDS[language].neutral_headline
    if rng.random() < 0.6:
        return neutral
    if language == "zh":
        return rng.choice(
            (
                f"检查{words.han(rng, 2, 4)}。{neutral}",
                f"检查{words.han(rng, 2, 4)}和{words.han(rng, 2, 4)}。",
            )
        )
    a, b = words.plain(rng, unseen), words.plain(rng, unseen)
    return rng.choice(
        (
            f"Inspect the {a} {b}. {neutral}",
            f"Check the {a} and the {b}.",
            f"{a.capitalize()} {b} inspection.",
        )
    )


def guidance_of(world: World, book: Book, top: str, style: Style, step: int = 0) -> Guidance:
    """The book as the product's guidance."""
    rules = [
        Rule(HEADLINE_KEY, top),
        *(Rule(key, rule.text(world.language, style)) for key, rule in book.rules.items()),
    ]
    number = 1 + max((int(rule.key[1:]) for rule in rules), default=0)
    return Guidance(world.mission, step, tuple(rules), number, labels=book.labels)


def numbered(rules: Sequence[WorldRule], rng: random.Random) -> dict[str, WorldRule]:
    """The rules under ascending keys, sometimes with gaps, as removed rules leave them."""
    number, book = 0, {}
    for rule in rules:
        number += 1 if rng.random() < 0.85 else rng.randint(2, 9)
        book[f"G{number}"] = rule
    return book


# ---------------------------------------------------------------------------------------------------------- rollout rows


def rollout_row(
    rng: random.Random,
    world: World,
    difficulty: float = 1.0,
    unseen: bool = False,
    tickets: int = 12,
    single: float | None = None,
) -> Row:
    """A guidance and tickets with right answers, half pass and half fail where the guidance allows
    it.

    ``single`` (see ``draw_rule``) is drawn where it is not given.
    """
    most = 1 + round(difficulty * rng.choice((3, 6, 6, 12, 16)))
    single = rng.choice((0.1, 0.3, 0.5, 0.9)) if single is None else single
    drawn = [
        draw_rule(world, rng, single=single)
        for _ in range(rng.randint(0 if rng.random() < 0.05 else 1, most))
    ]
    rules = [rule for rule in drawn if rule is not None]
    if sum(rule.inverted for rule in rules) > 1:  # two "fail unless" rules fail nearly everything
        rules = [rule for rule in rules if not rule.inverted]
    default: Verdict = (
        "fail" if any(rule.verdict == "pass" for rule in rules) and rng.random() < 0.3 else "pass"
    )
    book = Book(numbered(rules, rng), default)
    aimed = [aimed_facts(world, book, rng, rng.choice(("pass", "fail"))) for _ in range(tickets)]
    return judged_row(rng, world, book, aimed, unseen)


def labelled_row(rng: random.Random, world: World, unseen: bool = False, tickets: int = 12) -> Row:
    """The same for two to twelve labels of a mission's own, each wanted as often."""
    labels, single, drawn = (
        _draw_labels(rng, world, unseen),
        rng.choice((0.3, 0.6, 0.9)),
        range(rng.randint(1, 10)),
    )
    rules = [rule for _ in drawn if (rule := draw_rule(world, rng, "pass", single))]
    book = Book(
        numbered([replace(rule, verdict=rng.choice(labels)) for rule in rules], rng),
        labels[0],
        labels,
    )
    aimed = [aimed_facts(world, book, rng, rng.choice(labels)) for _ in range(tickets)]
    return judged_row(rng, world, book, aimed, unseen)


def _draw_labels(rng: random.Random, world: World, unseen: bool) -> tuple[Verdict, ...]:
    """Words that no other one equals but for case: values, names of things, or grades."""
    chinese = world.language == "zh"
    grades = words.scale(rng, unseen, chinese) if rng.random() < 0.4 else ()
    more = (
        rng.choice((words.value, words.name, words.name))(rng, unseen, chinese) for _ in range(16)
    )
    each = {label.lower(): label for label in (*grades, *more) if label[:1].isalpha()}
    return tuple(list(each.values())[: rng.randint(2, rng.choice((6, 8, 12)))])


def drill_row(
    rng: random.Random, world: World, unseen: bool = False, tickets: int = 12
) -> Row | None:
    """A row whose rules are of one kind or two, of the kinds that are learnt last: so a verdict
    hangs on nothing else. None where the world has none of these."""
    makers = (limits, *[comparisons] * 3, *[calculations] * 4, *[conjunctions] * 4, *[phrases] * 2)
    kinds = [rules for make in makers if (rules := make(rng, world))]
    if not kinds:
        return None
    rules = rng.choice(kinds)
    if rng.random() < 0.25:
        rules = [*rules, *rng.choice(kinds)][:12]
        rng.shuffle(rules)
    book = Book(numbered(rules, rng), "pass")
    aimed = [aimed_facts(world, book, rng, rng.choice(("pass", "fail"))) for _ in range(tickets)]
    return judged_row(rng, world, book, aimed, unseen)


def limits(rng: random.Random, world: World) -> list[WorldRule]:
    """One to three rules that compare numbers with limits of any length: of one attribute, or of
    two or three together."""
    names = list(world.numbers)
    rules = []
    for spot in range(rng.choice((1, 1, 2, 3)) if names else 0):
        chosen = rng.sample(names, min(len(names), rng.choice((1, 1, 2, 2, 3))))
        rules.append(
            WorldRule(_verdict(rng, spot), tuple(draw_limit(world, rng, name) for name in chosen))
        )
    return rules


def comparisons(rng: random.Random, world: World) -> list[WorldRule]:
    """One to four rules that compare two attributes, two thirds of them with one or two conditions
    more, of this kind or another."""
    pairs = [
        (one, other)
        for one in world.layout
        for other in world.layout
        if world.comparable(one, other) and one != other
    ]
    rules = []
    for spot in range(rng.choice((1, 1, 2, 2, 3, 4)) if pairs else 0):
        conditions = [draw_between(world, rng, *rng.choice(pairs))]
        for _ in range(rng.choice((0, 0, 1, 1, 1, 2))):
            between = rng.random() < 0.7
            taken = [name for each in conditions for name in each.attributes]
            drawn = (
                draw_between(world, rng, *rng.choice(pairs))
                if between
                else draw_condition(world, rng, taken, simple=True)
            )
            if drawn and drawn not in conditions:
                conditions.append(drawn)
        rules.append(WorldRule(_verdict(rng, spot), tuple(conditions)))
    return rules


def calculations(rng: random.Random, world: World) -> list[WorldRule]:
    """One or two rules about the product of two small numbers, now and then their sum or
    difference: against a limit, or against that of two others."""
    small = [
        name for name, scale in world.numbers.items() if scale.high <= 20 and not scale.decimals
    ]
    rules = []
    for spot in range(rng.choice((1, 1, 1, 2)) if len(small) > 1 else 0):
        sign, names = rng.choice("×××××+-"), rng.sample(small, min(4, len(small)))
        one, kind = f" {sign} ".join(names[:2]), rng.choice(("over", "under"))
        if len(names) == 4 and rng.random() < 0.7:
            condition = Condition(kind, one, (f" {sign} ".join(names[2:]),))  # type: ignore[arg-type]
        else:
            limit = world.draw(rng).value(one) or "6"
            condition = Condition(rng.choice(COMPARISONS), one, (limit,))
        rules.append(WorldRule(_verdict(rng, spot), (condition,)))
    return rules


def conjunctions(rng: random.Random, world: World) -> list[WorldRule]:
    """Several rules of two or three conditions over attributes that share their values; often one
    value in all of a rule, or in all of the rules, and attributes that stand in several of them."""
    if not world.alike or len(world.values) < 4:
        return []
    names, several = list(world.values), rng.choice((2, 3, 3, 3))
    names = rng.sample(names, min(len(names), rng.choice((4, 6, 9, 9, 16, 40))))
    fixed, rules = rng.choice((None, rng.choice(world.values[names[0]]))), []
    for spot in range(rng.randint(2, 10)):
        chosen = rng.sample(names, several)
        one = fixed if rng.random() < 0.9 else rng.choice(world.values[chosen[0]])
        drawn = [
            one if one in world.values[name] else rng.choice(world.values[name]) for name in chosen
        ]
        conditions = (
            Condition("is", name, (value,)) for name, value in zip(chosen, drawn, strict=True)
        )
        rules.append(
            WorldRule("pass" if spot and rng.random() < 0.05 else "fail", tuple(conditions))
        )
    return rules


def phrases(rng: random.Random, world: World) -> list[WorldRule]:
    """One to three rules about words of the notes, in all their endings, now and then with one
    about an attribute."""
    rules = []
    for spot in range(rng.choice((1, 1, 2, 3)) if world.vocabulary else 0):
        about = draw_condition(world, rng, taken=world.layout)
        if about is not None:
            rules.append(WorldRule(_verdict(rng, spot), (about,)))
    first = (
        draw_condition(replace(world, vocabulary=()), rng, simple=True)
        if rules and rng.random() < 0.5
        else None
    )
    return [*rules, WorldRule("fail", (first,))] if first else rules


def _verdict(rng: random.Random, spot: int) -> Verdict:
    return "pass" if spot and rng.random() < 0.2 else "fail"


def judged_row(
    rng: random.Random, world: World, book: Book, tickets: Sequence[Facts], unseen: bool
) -> Row:
    """Tickets with the answers that a book gives."""
    named = name_labels(WORDS[world.language], book.labels)
    top = (
        named.neutral_headline
        if book.labels != PASS_FAIL
        else headline(world.language, book.default, rng, unseen)
    )
    guidance = guidance_of(world, book, top, Style.draw(rng))
    segments = []
    system = ""
    for facts in tickets:
        verdict, reason, _ = book.judge(facts, world.language)
        prompt = rollout_prompt(world.ticket(facts, rng), guidance, named)
        system = prompt.system
        segments.append((prompt.user, answer_text(verdict, reason, named)))
    return Row(system, tuple(segments))


def aimed_facts(world: World, book: Book, rng: random.Random, wanted: Verdict) -> Facts:
    """Facts close to the edge of one of the rules; of the wanted verdict if a few tries find
    one."""
    facts = world.draw(rng)
    for _ in range(8):
        forced: dict[str, str] = {}
        planted: list[str] = []
        if book.rules and rng.random() < 0.85:
            rule = rng.choice(list(book.rules.values()))
            stated = [*rule.conditions, *([rule.exception] if rule.exception else [])]
            for condition in stated:
                if rng.random() < 0.7:
                    meet(world, condition, rng, forced, planted)
                elif rng.random() < 0.5:
                    miss(world, condition, rng, forced)
        facts = world.draw(rng, forced, planted)
        if book.judge(facts, world.language)[0] == wanted:
            break
    return facts


def meet(
    world: World,
    condition: Condition,
    rng: random.Random,
    forced: dict[str, str],
    planted: list[str],
) -> None:
    """Add what makes a condition true."""
    if condition.kind == "mentions":
        planted.append(rng.choice(condition.values))
    elif condition.kind in BETWEEN or condition.kind in COMPARISONS:
        _search(world, condition, rng, forced, True)
    elif condition.kind in ("not", "none"):
        others = [
            value for value in world.values[condition.attribute] if value not in condition.values
        ]
        forced[condition.attribute] = rng.choice(others)
    elif condition.kind != "silent":
        forced[condition.attribute] = rng.choice(condition.values)


def miss(world: World, condition: Condition, rng: random.Random, forced: dict[str, str]) -> None:
    """Add what makes a condition narrowly false: the number beside it, or a value that looks like
    it."""
    if condition.kind in BETWEEN or condition.kind in COMPARISONS:
        _search(world, condition, rng, forced, False)
    elif condition.kind in ("not", "none"):
        forced[condition.attribute] = rng.choice(condition.values)
    elif condition.attribute:
        others = [
            value for value in world.values[condition.attribute] if value not in condition.values
        ]
        alike = [
            value
            for value in others
            if any(value in own or own in value for own in condition.values)
        ]
        forced[condition.attribute] = rng.choice(alike or others)


def _search(
    world: World, condition: Condition, rng: random.Random, forced: dict[str, str], holds: bool
) -> None:
    """Values for which a comparison holds or not, numbers often close to the limit or to each
    other."""
    for _ in range(5):
        tried: dict[str, str] = {}
        near = (
            condition.values[0]
            if condition.kind in COMPARISONS and len(condition.attributes) == 1
            else None
        )
        for attribute in condition.attributes:
            if attribute in world.numbers:
                tried[attribute] = world.number(
                    rng, attribute, near if rng.random() < 0.6 else None
                )
            else:
                tried[attribute] = rng.choice(world.values[attribute])
            near = tried[attribute]
        if condition.holds(Facts(tried, ())) == holds:
            forced.update(tried)
            return
