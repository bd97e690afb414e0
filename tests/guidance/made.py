"""Made-up values that several tests draw from."""

from __future__ import annotations

from hypothesis import strategies as st

from stageb.guidance.words.types import (
    TEACHING_FOLDS,
    UNCALIBRATED,
    Budget,
    Calibration,
    Demonstration,
    Guidance,
    Rule,
    Ticket,
    Verdict,
)
from stageb.untrusted.clean_text import is_unseen, text_fault

SEEN = st.characters(exclude_categories=("C", "Zl", "Zp")).filter(
    lambda character: not is_unseen(character)
)
LINE = st.text(SEEN, min_size=1, max_size=30).filter(lambda text: not text_fault(text))
VERDICT: st.SearchStrategy[Verdict] = st.sampled_from(["pass", "fail"])


def budgets() -> st.SearchStrategy[Budget]:
    """What was spent, or what is left: any chances."""
    chance = st.floats(0, 1)
    return st.builds(Budget, st.tuples(*[chance] * TEACHING_FOLDS))


@st.composite
def guidances(draw: st.DrawFn, mission: st.SearchStrategy[str] = LINE) -> Guidance:
    """Any guidance: gaps in the numbers, with metadata and without."""
    numbers = sorted({0, *draw(st.sets(st.integers(1, 40), max_size=6))})
    metadata: st.SearchStrategy[dict[str, object]] = st.just({}) | st.fixed_dictionaries(
        {"reflection_id": LINE, "sources": st.lists(LINE, max_size=2)}
    )
    rules = tuple(Rule(f"G{k}", draw(LINE), draw(metadata)) for k in numbers)
    spent = draw(st.just(Budget()) | budgets())
    shown = draw(st.lists(demonstrations(rules), max_size=2).map(tuple))
    calibration = draw(
        st.just(UNCALIBRATED)
        | st.builds(
            Calibration,
            st.floats(0.1, 9),
            st.floats(-9, 9),
            rules=st.floats(0, 9),
            points=st.floats(0, 9),
            reach=st.floats(0, 9),
        )
    )
    seen = st.frozensets(st.text("0123456789abcdef", min_size=12, max_size=12), max_size=3)
    taught_by, chosen_by = draw(seen), draw(seen)
    step, number = draw(st.integers(0, 99)), numbers[-1] + 1 + draw(st.integers(0, 9))
    return Guidance(
        draw(mission), step, rules, number, spent, taught_by, chosen_by, shown, calibration
    )


def demonstrations(rules: tuple[Rule, ...]) -> st.SearchStrategy[Demonstration]:
    """Demonstrations of some of the rules, and of labels alone."""
    decides = st.sampled_from([("", ""), *((rule.key, rule.text) for rule in rules)])
    images = st.lists(LINE, min_size=1, max_size=2).map(
        lambda texts: tuple((f"image_{n}", t) for n, t in enumerate(texts, 1))
    )
    return st.builds(
        lambda source, images, verdict, rule, points: Demonstration(
            source, images, verdict, rule[0], rule[1], points
        ),
        LINE,
        images,
        VERDICT,
        decides,
        st.just("") | LINE,
    )


def tickets(
    mission: str = "m", min_size: int = 0, max_size: int = 30
) -> st.SearchStrategy[list[Ticket]]:
    """Tickets of one mission, each once; groups may come back with the other label, texts may be
    equal."""
    text = st.text("ab ", min_size=1, max_size=12).map(lambda text: f"a: {text}")
    images = st.lists(text, min_size=1, max_size=2).map(
        lambda texts: tuple((f"image_{n}", t) for n, t in enumerate(texts, 1))
    )
    ticket = st.builds(
        Ticket, st.just(mission), st.integers(1, 40).map(lambda n: f"group-{n}"), VERDICT, images
    )
    return st.lists(
        ticket, min_size=min_size, max_size=max_size, unique_by=lambda ticket: ticket.key
    )
