"""What texts teach: words that speak for each verdict, in lists that rules name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stageb.__main__ import main
from stageb.guidance.learning.material import Material
from stageb.guidance.learning.rule_sets import learn_rule_sets
from stageb.guidance.learning.terms import Contingency, find_terms
from stageb.guidance.learning.tiers import learn_cards, learn_compared
from stageb.guidance.learning.word_choice import FEWEST_WORDS, find_lists
from stageb.guidance.rules.candidates import SearchSpace, reading
from stageb.guidance.rules.conditions import Mentions, OneOf
from stageb.guidance.rules.conditions.words import STOP_WORDS, find_whole_words
from stageb.guidance.rules.value_types import ANY, read_summaries
from stageb.guidance.rules.word_lists import read_word_list
from stageb.guidance.words.types import Ticket

TOPICS = {
    "pass": "clean quiet tight sealed even smooth bright steady level firm dry neat".split(),
    "fail": "burnt noisy loose leaking uneven rough dim shaking tilted soft wet torn".split(),
    "late": "late lost wrong missing empty unsigned illegible stained double foreign void expired".split(),
}
TOPICS |= {"clean": TOPICS["pass"], "worn": TOPICS["fail"]}
FILLED = (
    "the a pump valve line north crew shift report panel of and to with number two seen "
    "today site room".split()
)


def write(path: Path, labels: list[str], count: int = 360) -> Path:
    """Notes of ten words: three of their label's topic and at times one of another's, among words
    that all have."""
    draw, lines = Random(7), []
    for n in range(count):
        label = labels[n % len(labels)]
        other = draw.choice([each for each in labels if each != label])
        words = (
            draw.sample(TOPICS[label], 3)
            + draw.sample(TOPICS[other], draw.random() < 0.4)
            + draw.sample(FILLED, 6)
        )
        draw.shuffle(words)
        lines.append(
            {
                "mission": "notes",
                "group_id": f"g{n}",
                "label": label,
                "per_image": {"image_1": " ".join(words)},
            }
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


PARTS = "接头 螺丝 插头 挡风板 轴承 电机 阀门 密封圈 传感器 控制柜".split()
STATES = "松动 漏油 生锈 断裂 过热 未拧紧 无法启动 不合格".split()
ACTS = "清洁 润滑 巡检 校准 更换 保养".split()
PLACES = "机房 泵站 仓库 屋顶 二号车间".split()


def write_chinese(seed: int) -> list[Ticket]:
    """Notes without spaces: a place, a part and a state fail, an act on a part passes."""
    draw, tickets = Random(seed), []
    for n in range(240):
        place, part, state, act = (draw.choice(each) for each in (PLACES, PARTS, STATES, ACTS))
        fails = [
            f"{place}的{part}{state}了",
            f"{part}{state}，在{place}",
            f"{state}：{place}{part}",
        ]
        passes = [f"{act}{place}的{part}", f"{part}{act}，在{place}", f"在{place}{act}了{part}"]
        is_fail = n % 2 > 0
        text = draw.choice(fails if is_fail else passes)
        tickets.append(Ticket("m", f"g{n}", "fail" if is_fail else "pass", (("image_1", text),)))
    return tickets


@pytest.mark.parametrize("seed", range(3))
def test_words_are_found_where_a_script_writes_no_spaces(seed: int) -> None:
    """A piece of a word has nearly always the same neighbour: 未拧 stands before 紧."""
    readings = [reading(each) for each in write_chinese(seed)]
    words = find_whole_words(readings)
    written = {*PARTS, *STATES, *ACTS, *PLACES}
    pieces = {
        word[start:end]
        for word in written
        for start in range(len(word))
        for end in range(start + 2, len(word) + 1)
    }
    assert written <= words and not words & (pieces - written)
    assert not any("的" in (word[0], word[-1]) or "了" in (word[0], word[-1]) for word in words)
    said = {term.word for term in find_terms(readings, SearchSpace(wide=True)) if term.word}
    assert said <= words  # nor may a rule name such a piece


@pytest.mark.parametrize(
    "labels", [["pass", "fail"], pytest.param(["clean", "worn", "late"], marks=pytest.mark.slow)]
)
def test_words_of_texts_are_named_lists_that_all_judge_alike(
    labels: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tickets, run = write(tmp_path / "notes.jsonl", labels), tmp_path / "out" / "run"
    fit = ["fit", "--config", "tickets", "--config", "frugal", "--tickets", str(tickets)]
    fit += ["--fabric.accelerator", "cpu", "--fabric.devices", "1"]
    fit += ["--output.root", str(tmp_path / "out"), "--output.run_name", "run"]
    assert main(fit) == 0
    (learnt,) = json.loads((run / "notes" / "guidance.json").read_text()).values()
    texts = [text for key, text in learnt["experiences"].items() if key != "G0"]
    lists = [each for each in map(read_word_list, texts) if each]
    rules = texts[len(lists) :]
    assert f"with {len(lists)} word lists, after" in capsys.readouterr().out
    # lists first, then rules
    assert len(lists) >= len(labels) and not any(map(read_word_list, rules))
    words = {word for each in lists for word in each.words}
    topics = {word for label in labels for word in TOPICS[label]}
    assert len(words & topics) > 0.8 * len(topics) and not words & STOP_WORDS
    # each is named, by a word of its own
    assert all(f'"{each.name}" word' in " ".join(rules) for each in lists)
    assert all(each.name in each.words for each in lists) and len(
        {each.name for each in lists}
    ) == len(lists)
    rows = [json.loads(line) for line in (run / "notes" / "metrics.jsonl").read_text().splitlines()]
    assert [row["acc"] for row in rows if row["split"] == "test"][-1] > 0.9
    sizes = json.loads((run / "notes" / "reflection.jsonl").read_text().splitlines()[0])["sizes"]
    assert all(
        entry["conditions"] <= (30 if len(labels) == 2 else 80)
        for entry in sizes
        if entry["most"] in (30, 80)
    )

    predict = ["predict", "--tickets", str(tickets), "--by", "rules"]
    # with the tickets that taught it, and without
    for guidance in (run, run / "notes" / "guidance.json"):
        output = tmp_path / f"{guidance.name}.jsonl"
        assert main([*predict, "--guidance", str(guidance), "--output", str(output)]) == 0
    judged = [
        [(row["verdict"], row["reason"]) for row in map(json.loads, path.read_text().splitlines())]
        for path in (tmp_path / "run.jsonl", tmp_path / "guidance.json.jsonl")
    ]
    assert judged[0] == judged[1]
    assert (
        main(
            [
                "guidance",
                "export",
                str(run),
                "--format",
                "python",
                "--tickets",
                str(tickets),
                "--output",
                str(tmp_path / "rules.py"),
            ]
        )
        == 0
    )
    module: dict[str, object] = {"__name__": "rules"}
    exec(compile((tmp_path / "rules.py").read_text(), "rules.py", "exec"), module)
    texts_of = [json.loads(line)["per_image"] for line in tickets.read_text().splitlines()]
    exported = [module["judge"]({"per_image": each}, "notes").verdict for each in texts_of]  # type: ignore[operator]
    assert exported == [verdict for verdict, _ in judged[0]]


@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.booleans(), min_size=6, max_size=6)),
        min_size=4,
        max_size=60,
    ),
    st.integers(1, 6),
)
@example([(n < 20, [n < 25, False, False, 5 < n < 25, False, n < 2]) for n in range(40)], 2)
def test_a_list_holds_whole_words_that_speak_for_its_tickets_by_themselves(
    rows: list[tuple[bool, list[bool]]], most: int
) -> None:
    names = ["leak", "lea*", "oil leak", "worn", "le", "dim"]
    terms = [Mentions((name,)) for name in names]
    held = np.array([mentioned for _, mentioned in rows], np.float64).T
    wanted = np.array([is_wanted for is_wanted, _ in rows], np.float64)
    tally = Contingency(terms, held.sum(axis=1), held @ wanted, len(rows), int(wanted.sum()))
    lists = find_lists(tally, {"leak", "worn", "dim"}, most)
    listed = [place for each in lists for place in each]
    assert len(lists) <= 2 and len({*listed}) == len(listed) <= most
    assert all(len(each) >= FEWEST_WORDS for each in lists)  # one word makes no list
    assert {names[place] for place in listed} <= {"leak", "worn", "dim"}
    for place in listed:
        share = held[place] @ wanted / max(1.0, held[place].sum())
        assert share > wanted.mean()
    # the surest of them: by how their mentions go with the label, and not by their odds alone
    varied = [place for place, each in enumerate(held) if 0 < each.sum() < len(rows)]
    sure = {place: np.corrcoef(held[place], wanted)[0, 1] for place in varied} if lists else {}
    others = {names.index(name) for name in ("leak", "worn", "dim")}.difference(listed)
    assert all(sure.get(other, 0.0) <= sure[place] + 1e-6 for other in others for place in listed)
    # that which names a list stands first
    assert all(sure[one] >= sure[two] - 1e-6 for each in lists for one, two in pairwise(each))


@pytest.mark.parametrize(("strong", "weak"), [(2, 0), (3, 0), (2, 2), (2, 3), (3, 3), (4, 2)])
def test_words_that_tell_much_and_words_that_tell_a_little_are_two_lists(
    strong: int, weak: int
) -> None:
    """Half of 200 tickets are wanted. A strong word stands in 40 of them and in none of the others,
    a weak one in 60 and 40; which of these are surer is no matter."""
    words = [f"w{n}" for n in range(strong + weak)]
    right = np.array([40.0] * strong + [60.0] * weak)
    wrong = np.array([0.0] * strong + [40.0] * weak)
    tally = Contingency([Mentions((word,)) for word in words], right + wrong, right, 200, 100)
    places = [*range(strong + weak)]
    found = [places[:strong], places[strong:]] if weak else [places]
    assert find_lists(tally, {*words}, 9) == found


@pytest.mark.parametrize("strong_first", [True, False])
def test_words_tell_much_by_how_their_mentions_are_parted_and_not_by_their_number(
    strong_first: bool,
) -> None:
    """Strong words stand in 60 wanted tickets each and in four others, weak ones in 20 and four:
    wherever they stand in the order of the terms."""
    right = [60.0, 20.0, 60.0, 20.0, 60.0] if strong_first else [20.0, 60.0, 60.0, 20.0, 60.0]
    strong = [place for place, each in enumerate(right) if each == 60]
    weak = [place for place, each in enumerate(right) if each == 20]
    words = [f"w{n}" for n in range(5)]
    tally = Contingency(
        [Mentions((word,)) for word in words], np.array(right) + 4, np.array(right), 200, 100
    )
    assert find_lists(tally, {*words}, 9) == [strong, weak]


@pytest.mark.parametrize(
    ("wanted", "right", "wrong", "is_listed"),
    [
        # of 200 tickets so many are wanted; of these, and of the others, so many mention the word
        (100, 11, 9, False),
        (100, 12, 8, False),  # 2 more than chance brings, of which a standard error is 2.1
        (100, 13, 7, True),
        (20, 4, 16, True),  # 2 more, of 1.3
        (20, 3, 17, False),
        (100, 75, 65, True),  # 5 more, of 3.2
        (100, 72, 68, False),
    ],
)
def test_a_listed_word_is_commoner_in_wanted_tickets_by_more_than_a_standard_error(
    wanted: int, right: int, wrong: int, is_listed: bool
) -> None:
    held = np.array([float(right + wrong)] * 2)
    tally = Contingency(
        [Mentions((word,)) for word in ("leak", "worn")],
        held,
        np.array([float(right)] * 2),
        200,
        wanted,
    )
    assert find_lists(tally, {"leak", "worn"}, 9) == [[0, 1]] * is_listed


@given(
    st.lists(st.integers(0, 255), min_size=1, max_size=4), st.integers(0, 255), st.integers(0, 255)
)
def test_a_table_that_is_turned_counts_all_other_tickets_as_wanted(
    held: list[int], wanted: int, among: int
) -> None:
    terms = [Mentions((f"w{n}",)) for n in range(len(held))]
    turned = Contingency.of(terms, held, wanted, among).turned
    direct = Contingency.of(terms, held, among & ~wanted, among)
    assert turned.held.tolist() == direct.held.tolist()
    assert turned.right.tolist() == direct.right.tolist()
    assert (turned.tickets, turned.wanted) == (direct.tickets, direct.wanted)


def test_beside_lists_no_stem_has_points() -> None:
    # each too rare for a list
    ends = "ation ating ator atile ational ate ated atory".split()
    texts = [(f"vibr{end} seen", True) for end in ends * 2] + [
        (f"{word} seen", False) for word in TOPICS["pass"] * 2
    ]
    texts += [("worn rim", True), ("torn rim", True), ("neat", False), ("dry", False)] * 3
    readings = [read_summaries((text,)) for text, _ in texts]
    masks, everyone = find_terms(readings, SearchSpace(wide=True)), (1 << len(texts)) - 1
    fails = sum(is_fail << place for place, (_, is_fail) in enumerate(texts))
    whole_words = find_whole_words(readings)
    words = masks.keep(term for term in masks if term.word in whole_words)
    labelled = {"fail": fails, "pass": everyone & ~fails}
    material = Material(
        masks, {}, labelled, fails, frozenset(), {"fail": 1.0, "pass": 1.0}, words=words
    )

    def find_stems(listing: Any) -> set[str]:
        learnt = learn_cards(listing, 5, material, everyone)
        lines = [
            line
            for rule_set in learnt
            for line in (
                *rule_set.lines,
                *(line for card in rule_set.cards for line in card.points),
            )
        ]
        return {term.word for line in lines for term in line if term.word.endswith(ANY)}

    assert find_stems(None) and not find_stems(partial(find_lists, whole_words=whole_words, most=4))


def make_notes(labels: Sequence[str], sealed: str) -> Material:
    """Notes that all have the last label so far. Three words of each speak for its label, one of
    another's topic for nothing; but where the seal is worn, which few are, the label is
    ``sealed``."""
    draw, rows, labelled = Random(5), 180, dict.fromkeys(labels, 0)
    readings = []
    for place in range(rows):
        told, is_worn = labels[place % len(labels)], draw.random() < 0.15
        words = draw.sample(TOPICS[told], 3) + draw.sample(TOPICS[draw.choice(labels)], 1)
        readings.append(
            read_summaries((f"seal: {'worn' if is_worn else 'new'}; {' '.join(words)}",))
        )
        labelled[sealed if is_worn else told] |= 1 << place
    masks, whole_words = find_terms(readings, SearchSpace(wide=True)), find_whole_words(readings)
    words_alone = masks.keep(term for term in masks if term.word in whole_words)
    wrong = (1 << rows) - 1 & ~labelled[labels[-1]]
    prices = dict.fromkeys(labels, 1.0)
    return Material(masks, {}, labelled, wrong, frozenset(), prices, words=words_alone)


@pytest.mark.parametrize("labels", [("fail", "pass"), ("late", "fail", "pass")])
@pytest.mark.parametrize("most", [4, 20])
def test_beside_word_lists_further_conditions_have_points(labels: Sequence[str], most: int) -> None:
    """And no word that is listed has others than its list."""
    of, rows = make_notes(labels, "fail"), 180
    listing = partial(find_lists, whole_words={term.word for term in of.words}, most=most)
    learn = learn_cards if len(labels) == 2 else partial(learn_compared, 0)
    alone, beside = (learn(listing, lines, of, (1 << rows) - 1) for lines in (0, 5))
    assert (
        [rule_set.size for rule_set in alone]
        == [sum(len(card.lists) for card in rule_set.cards) for rule_set in alone]
        != []
    )
    assert {rule_set.default for rule_set in alone} == {"pass"} or len(labels) > 2
    for card in (card for rule_set in beside for card in rule_set.cards):
        assert all(len({card.points[line] for line in words}) == 1 for words in card.lists)
    lines = [line for rule_set in beside for card in rule_set.cards for line in card.points]
    assert (OneOf("seal", ("worn",)),) in lines or (OneOf("seal", ("new",)),) in lines


@pytest.mark.parametrize("keeps", [False, True])
def test_texts_teach_word_lists_and_what_else_tells_but_not_in_the_place_of_fixed_rules(
    keeps: bool,
) -> None:
    of = replace(make_notes(("fail", "pass"), "fail"), keeps=keeps, verdicts=frozenset(["fail"]))
    folds = [sum(1 << place for place in range(fold, 180, 3)) for fold in range(3)]
    (rule_set,) = learn_rule_sets(of, folds, [30], lengths=[20]).values()
    if keeps:
        assert not rule_set.cards and not rule_set.replaces
        return
    (card,) = rule_set.cards
    listed = {line for words in card.lists for line in words}
    assert len(listed) > 10 and rule_set.size == len(card.lists) + len(card.points.keys() - listed)
    assert any("seal" in term.fields for line in card.points for term in line)
    assert rule_set.wrong.bit_count() < 18
