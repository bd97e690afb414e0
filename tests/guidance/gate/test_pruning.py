from collections.abc import Callable

from guidance.made import guidances
from guidance.trials import PRESENT, World, numbered, rules
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.config import GateConfig
from stageb.guidance.gate.pruning import earned, lighter, traded
from stageb.guidance.reflection.edits import apply, named
from stageb.guidance.types import HEADLINE_KEY, Guidance, Operation, Rule

TWO = Guidance("m", 5, (Rule("G0", "headline"), Rule("G2", "Fail if a is b."), Rule("G7", "Pass if e is f.")), 9)


def add(text: str) -> Operation:
    return Operation("add", None, (), text, "", ())


@st.composite
def edits(draw: st.DrawFn, guidance: Guidance) -> list[Operation]:
    """An edit that ``guidance`` allows: rules added, and some of its own rewritten or removed."""
    own = [rule.key for rule in guidance.rules if rule.key != HEADLINE_KEY]
    touched = draw(st.lists(st.sampled_from(own), unique=True, max_size=3)) if own else []
    operations = [add(f"new rule {n}") for n in range(draw(st.integers(0, 3)))]
    for key in touched:
        op = draw(st.sampled_from(["update", "remove"]))
        operations.append(Operation(op, key, (), "rewritten" if op == "update" else "", "", ()))  # type: ignore[arg-type]
    return operations


def at_most(count: int) -> Callable[[Guidance], bool]:
    return lambda guidance: len(guidance.rules) <= count


# What goes


@given(guidances())
def test_each_rule_but_the_headline_is_left_out_once(guidance: Guidance) -> None:
    texts = [rule.text for rule in guidance.rules]
    without = [
        contender.guidance for contender in lighter(guidance, "P4") if contender.proposals[0].operations[0].op == "remove"
    ]
    assert [[rule.text for rule in each.rules] for each in without] == [
        texts[:place] + texts[place + 1 :] for place in range(1, len(texts))
    ]
    assert all(each.step == guidance.step + 1 for each in without)
    assert [contender.proposals[0].index for contender in lighter(guidance, "P4")] == list(
        range(len(lighter(guidance, "P4")))
    )


def test_rules_that_say_nearly_the_same_are_made_one() -> None:
    rules_ = ["Fail if the left flange is loose.", "Pass if e is f.", "Fail if the left flange is loose!", "Fail if a is b."]
    guidance = Guidance("m", 5, (Rule("G0", rules_[0]), *(Rule(f"G{n}", text) for n, text in enumerate(rules_, 1))), 9)
    merged = [each.guidance for each in lighter(guidance, "P5") if each.proposals[0].operations[0].op == "merge"]
    assert [[rule.key for rule in each.rules] for each in merged] == [["G0", "G1", "G2", "G4"]]


# What rules earn


def test_a_rule_earns_what_leaving_it_out_would_cost() -> None:
    world = World(numbered(8), [1.0] * 4 + [0.0] * 4)
    world.table["headline / Fail if a is b. / Pass if e is f."] = world.present
    world.table["headline / Pass if e is f."] = [0.5, 0.0] + [1.0] * 2 + [0.0] * 4  # without G2: a mean of 1.5 / 8 less
    world.table["headline / Fail if a is b."] = [1.0] * 5 + [0.0] * 3  # without G7: 1 / 8 more
    assert earned(TWO, world.jury(present=TWO), range(8)) == {"G2": 0.1875, "G7": -0.125}
    assert earned(TWO, world.jury(GateConfig(fn_weight=2), TWO), [0, 1]) == {"G2": 0.5 * (0.5 + 0.5 * 1.0), "G7": 0.0}
    assert earned(TWO, world.jury(present=TWO), []) == {"G2": 0.0, "G7": 0.0}
    assert earned(PRESENT, world.jury(), [0, 1]) == {}
    assert rules(TWO) in {text for text, _ in world.asked}


# Room for new rules


@given(guidances().flatmap(lambda guidance: st.tuples(st.just(guidance), edits(guidance))), st.integers(1, 9), st.data())
def test_room_is_made_by_the_rules_that_earn_least_and_no_more_of_them_than_needed(
    made: tuple[Guidance, list[Operation]], most: int, data: st.DataObject
) -> None:
    guidance, operations = made
    earns = {rule.key: data.draw(st.sampled_from([-0.1, 0.0, 0.2, 0.3])) for rule in guidance.rules[1:]}
    touched = {key for operation in operations for key in named(operation)}
    spare = [rule.key for rule in guidance.rules[1:] if rule.key not in touched]
    found = traded(guidance, operations, at_most(most), earns)
    if found is None:
        bare = [*operations, *(Operation("remove", key, (), "", "", ()) for key in spare)]
        assert len(apply(guidance, bare).rules) > most
        return
    assert list(found[: len(operations)]) == operations
    gone = [operation.key for operation in found[len(operations) :]]
    assert set(gone) <= set(spare)
    assert len(apply(guidance, found).rules) <= most
    assert not gone or len(apply(guidance, found[:-1]).rules) > most
    assert [earns[key or ""] for key in gone] == sorted(earns[key] for key in spare)[: len(gone)]
