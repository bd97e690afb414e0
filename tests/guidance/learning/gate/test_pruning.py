from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from guidance.made import guidances
from guidance.trials import PRESENT, World, numbered, rules
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.learning import simulated
from stageb.guidance.learning.gate.pruning import SHARE, Removal, credit_rules, prune, removal_edits
from stageb.guidance.learning.gate.sequential import next_level
from stageb.guidance.rules.edits import apply
from stageb.guidance.words.config import GateConfig
from stageb.guidance.words.types import Budget, Guidance, Operation, Rule
from stageb.seeds import stream

ALLOWED = Budget(removals=0.05, margin=0.02)
TWO = Guidance("m", 5, (Rule("G0", "headline"), Rule("G2", "Fail if a is b."), Rule("G7", "Pass if e is f.")), 9)

# What goes


@given(guidances())
def test_each_rule_but_the_headline_is_left_out_once(guidance: Guidance) -> None:
    texts = [rule.text for rule in guidance.rules]
    without = [edit.guidance for edit in removal_edits(guidance, "P4")]
    assert [[rule.text for rule in each.rules] for each in without] == [
        texts[:place] + texts[place + 1 :] for place in range(1, len(texts))
    ]
    assert all(each.step == guidance.step + 1 for each in without)
    assert [edit.proposals[0].index for edit in removal_edits(guidance, "P4")] == list(
        range(len(removal_edits(guidance, "P4")))
    )


@given(guidances(), st.data())
def test_fixed_rules_do_not_go(guidance: Guidance, data: st.DataObject) -> None:
    fixed = data.draw(st.sets(st.sampled_from([rule.key for rule in guidance.rules])))
    marked = [replace(rule, metadata={"fixed": True}) if rule.key in fixed else rule for rule in guidance.rules]
    guidance = replace(guidance, rules=tuple(marked))
    left = [edit.guidance for edit in removal_edits(guidance, "P4")]
    assert all(set(marked) - set(each.rules) <= {rule for rule in marked if rule.key not in fixed} for each in left)
    for key in fixed:
        with pytest.raises(ValueError, match="is fixed"):
            apply(guidance, [Operation("update", key, (), "another", "", ())])


# What rules earn


def test_a_rule_earns_what_leaving_it_out_would_cost() -> None:
    world = World(numbered(8), [1.0] * 4 + [0.0] * 4)
    world.table["headline / Fail if a is b. / Pass if e is f."] = world.present
    world.table["headline / Pass if e is f."] = [0.5, 0.0] + [1.0] * 2 + [0.0] * 4  # without G2: a mean of 1.5 / 8 less
    world.table["headline / Fail if a is b."] = [1.0] * 5 + [0.0] * 3  # without G7: 1 / 8 more
    assert world.answer(credit_rules(TWO, world.judge(present=TWO), range(8))) == {"G2": 0.1875, "G7": -0.125}
    assert world.answer(credit_rules(TWO, world.judge(GateConfig(fn_weight=2), TWO), [0, 1])) == {
        "G2": 0.5 * (0.5 + 0.5 * 1.0),
        "G7": 0.0,
    }
    assert world.answer(credit_rules(TWO, world.judge(present=TWO), [])) == {"G2": 0.0, "G7": 0.0}
    assert world.answer(credit_rules(PRESENT, world.judge(), [0, 1])) == {}
    assert rules(TWO) in {text for text, _ in world.asked}


# Which rule can go


def pruned(
    merits: Mapping[str, Sequence[float]], present: Sequence[float], left: Budget = ALLOWED, tested: int = 900
) -> Removal:
    """A search among rules, by what is made of each ticket without them; the last so many tickets are tested on."""
    world = World(numbered(len(present)), present)
    rules_ = (*PRESENT.rules, *(Rule(f"G{n}", name) for n, name in enumerate(merits, 1)))
    guidance = Guidance("m", 3, rules_, len(rules_))
    world.table[rules(guidance)] = present
    for name, without in merits.items():
        world.table[" / ".join(["the headline", *(other for other in merits if other != name)])] = without
    cut = max(0, len(present) - tested)
    race_on, pool = range(cut), range(cut, len(present))
    gate = replace(world.gate(race_on, pool, look=64), judge=world.judge(present=guidance))
    return world.answer(prune(guidance, "P3", gate, left))


def gone(removal: Removal) -> list[str]:
    """Keys of the rules that went."""
    return (
        [operation.key or "" for each in removal.winner.proposals for operation in each.operations] if removal.winner else []
    )


def test_the_rule_that_earns_nothing_goes_and_what_it_may_cost_is_taken_from_the_margin() -> None:
    present = [1.0] * 1000
    removal = pruned({"used": [float(i % 5 > 0) for i in range(1000)], "idle": present}, present)
    assert gone(removal) == ["G2"]
    assert [each.outcome for each in removal.tried] == ["dropped", "accepted"]
    assert removal.credits == {"G1": 0.2, "G2": 0.0}
    assert 0.004 < ALLOWED.margin - removal.left.margin < 0.005
    assert removal.left.removals == ALLOWED.removals - next_level(ALLOWED.removals, SHARE)


def test_a_rule_that_does_harm_goes_at_no_cost_even_where_nothing_is_left_of_the_margin() -> None:
    present = [float(i % 3 > 0) for i in range(400)]
    removal = pruned({"harmful": [1.0] * 400, "idle": present}, present, Budget(removals=0.05), 300)
    assert gone(removal) == ["G1"]
    assert removal.left.margin == 0


def test_rules_that_earn_their_place_stay_and_cost_nothing() -> None:
    present = [1.0] * 1200
    removal = pruned({f"{n}": [float(i % 20 != n) for i in range(1200)] for n in range(2)}, present)
    assert gone(removal) == []
    assert removal.left == ALLOWED
    assert {each.outcome for each in removal.tried} == {"dropped"}


def test_where_the_pool_is_too_small_no_rule_goes() -> None:
    present = [1.0] * 80
    removal = pruned({"idle": present}, present, tested=60)
    assert (gone(removal), removal.left) == ([], ALLOWED)
    assert [each.outcome for each in removal.tried] == ["unpromising"]
    assert pruned({}, present, tested=60).tried == ()


def test_a_rule_that_the_race_tickets_do_not_miss_but_others_do_stays_and_spends_its_level_alone() -> None:
    present = [1.0] * 1000
    removal = pruned({"missed later": [1.0 if i < 100 else float(i % 10 > 0) for i in range(1000)]}, present)
    assert gone(removal) == []
    assert [each.outcome for each in removal.tried] == ["futile"]
    assert removal.left == replace(ALLOWED, removals=ALLOWED.removals - next_level(ALLOWED.removals, SHARE))


def test_all_that_go_over_a_run_cost_no_more_than_the_margin() -> None:
    """Many rules that earn a little each, sought again and again."""
    for run in range(4):
        _, went, cost = simulated.removals(stream("many", run), 1024, 0.002, 0.0)
        assert cost <= simulated.CONFIG.removal_margin
    _, went, cost = simulated.removals(stream("idle"), 1024, 0.0, 0.0)
    assert went >= 2
