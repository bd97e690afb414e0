"""Objects to tokens and back: one spelling, the longest beginning that can be read, one
rounding."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain

import pytest
from engines.tiny_models import bpe
from hypothesis import given, settings
from hypothesis import strategies as st
from two_channel.spelt import DESCS, placed, spelling

from stageb.errors import InputError
from stageb.two_channel.boxes.text import (
    COORDINATES,
    bin_of,
    bins_of,
    box_of,
    check_descs,
    expect,
    find_boxes,
    find_spelling,
    list_pieces,
    list_true_objects,
    parse,
    sort_objects,
    to_pixels,
    write_answer,
)
from stageb.two_channel.types import BINS, Detection, Object, Sample

OBJECTS = st.lists(placed(), max_size=5)


def write_text(objects: list[Detection], box_first: bool) -> str:
    """The answer as readable text, without the end token."""
    opening, head, middle, comma, tail, closing = list_pieces(box_first)

    def said(each: Detection) -> str:
        parts = (
            json.dumps(each.desc, ensure_ascii=False)[1:-1],
            comma.join(COORDINATES[number] for number in each.bins),
        )
        first, second = reversed(parts) if box_first else parts
        return f"{head}{first}{middle}{second}{tail}"

    return f"{opening}{comma.join(map(said, objects))}{closing}"


@given(OBJECTS, st.booleans())
@settings(max_examples=120)
def test_what_is_written_is_read_back_and_is_json_to_people(
    objects: list[Detection], box_first: bool
) -> None:
    s = spelling(box_first)
    made = write_answer(objects, s)
    parsed = parse(made.ids, s)
    assert (parsed.objects, parsed.complete, parsed.refused) == (tuple(objects), True, "")
    assert parse(made.ids[:-1], s) == parsed  # an engine may keep the token that ends it to itself
    said = s.tokenizer.decode(made.ids[:-1])
    assert said == write_text(objects, box_first)
    rows = json.loads(said.replace("<|coord_", "").replace("|>", ""))["objects"]
    assert [(row["desc"], tuple(row["bbox_2d"])) for row in rows] == [
        (each.desc, each.bins) for each in objects
    ]
    assert [next(iter(row)) == "bbox_2d" for row in rows] == [box_first] * len(rows)
    assert find_boxes(made.ids, s) == made.boxes
    for places, each in zip(made.boxes, objects, strict=True):
        assert tuple(s.bins[made.ids[place]] for place in places) == each.bins


@given(OBJECTS, st.booleans(), st.data())
@settings(max_examples=120)
def test_a_cut_answer_keeps_its_whole_objects_and_can_be_gone_on_with(
    objects: list[Detection], box_first: bool, data: st.DataObject
) -> None:
    s = spelling(box_first)
    ids = write_answer(objects, s).ids
    cut = data.draw(st.integers(0, len(ids) - len(s.closing) - 2))
    parsed = parse(ids[:cut], s)
    assert parsed.objects == tuple(objects[: len(parsed.objects)])
    assert parsed.tokens <= cut and not parsed.complete and parsed.refused == "cut short"
    rest = objects[len(parsed.objects) :]
    assert write_answer(rest, s, behind=ids[: parsed.tokens]).ids == ids


def test_what_is_not_as_it_must_be_ends_what_is_read() -> None:
    s = spelling()
    one, other = Detection("RBC", (1, 2, 3, 4)), Detection("WBC", (5, 6, 7, 8))
    ids, places = write_answer([one, other], s).ids, write_answer([one, other], s).boxes[1]
    kept = parse(ids[: places[0]], s).tokens
    text = s.tokenizer("R", add_special_tokens=False)["input_ids"]
    start = places[0] - len(s.middle)

    def but(place: int, *instead: int) -> tuple[int, ...]:
        return (*ids[:place], *instead, *ids[place + 1 :])

    wrong = {
        "no coordinate": but(places[1], *text),
        "corners that changed places": but(places[2], s.coordinates[4]),
        "corners that": but(places[3], s.coordinates[5]),
        "a special token in a desc": but(start - 1, s.end),
        "a desc that is no JSON text": but(
            start - 1, *s.tokenizer('"', add_special_tokens=False)["input_ids"]
        ),
        "a desc that is no clean text": but(
            start - 1, *s.tokenizer("\u200b", add_special_tokens=False)["input_ids"]
        ),
        "not of the form": but(places[3] + 1, *text),
    }
    for why, answer in wrong.items():
        parsed = parse(answer, s)
        assert parsed.objects == (one,) and parsed.tokens == kept and not parsed.complete, why
        assert parsed.refused.startswith(why)
    behind = parse((*ids, *text), s)
    assert (
        behind.objects == (one, other)
        and not behind.complete
        and behind.refused == "more behind its end"
    )
    # models have more rows than tokenizers have tokens
    beyond = parse(but(start - 1, len(s.tokenizer) + 7), s)
    assert beyond.objects == (one,)
    for garbage in ((), tuple(text) * 9, s.coordinates, (*s.opening, *s.comma)):
        assert parse(garbage, s).tokens == 0 and not parse(garbage, s).objects
    assert parse((*s.opening, *s.tail, s.end), s).complete


@given(st.integers(1, 5000), st.floats(0, 1), st.integers(0, BINS - 1))
def test_bins_are_the_nearest_points_and_their_own_inverse(
    size: int, share: float, number: int
) -> None:
    value = share * size
    assert abs(bin_of(value, size) * size / (BINS - 1) - value) <= size / (BINS - 1) / 2 * (
        1 + 1e-9
    )
    assert bin_of(box_of((number,) * 4, size, size)[0], size) == number
    assert (bin_of(0, size), bin_of(size, size), bin_of(-3, size), bin_of(size + 3, size)) == (
        0,
        BINS - 1,
        0,
        BINS - 1,
    )


def test_rounding_order_and_thin_boxes() -> None:
    assert (bin_of(999, 1998), bin_of(1, 1998), bin_of(0.99, 1998)) == (500, 1, 0)  # halves go up
    thin = bins_of((5000.0, 0.0, 5001.0, 9999.5), 10_000, 10_000)
    assert thin == (500, 0, 501, 999)
    assert bins_of((9999.0, 0.0, 10_000.0, 1.0), 10_000, 10_000) == (998, 0, 999, 1)
    sample = Sample(
        "a",
        "a",
        999,
        999,
        (Object("b", (5, 9, 7, 11)), Object("a", (9, 1, 10, 2)), Object("c", (1, 9, 2, 10))),
    )
    assert [each.desc for each in list_true_objects(sample)] == ["a", "c", "b"]
    assert sort_objects(reversed(list_true_objects(sample))) == list_true_objects(sample)
    assert to_pixels(list_true_objects(sample), 999, 999)[0] == sample.objects[1]


def test_tokenizers_and_descs_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(InputError, match=r"lacks 1000 coordinate tokens, such as <\|coord_0\|>"):
        find_spelling(bpe())
    objects = tuple(Object(desc, (0, 0, 1, 1)) for desc in DESCS)
    check_descs([Sample("a", "a", 9, 9, objects)], spelling())
    for desc in ("a <|im_end|>", "<|coord_7|>"):
        with pytest.raises(InputError, match=r"^a\.png: .*holds a special token"):
            check_descs([Sample("a.png", "a", 9, 9, (Object(desc, (0, 0, 1, 1)),))], spelling())


@pytest.mark.parametrize("box_first", [False, True])
def test_what_the_form_tells_of_an_answer_comes(box_first: bool) -> None:
    """Of an object's tokens those beside its coordinates and its desc; after a token of a desc its
    end is a guess."""
    s = spelling(box_first)
    objects = [
        Detection("RBC", (1, 2, 3, 4)),
        Detection("Platelets", (5, 6, 7, 8)),
        Detection('", "bbox_2d": [', (0, 0, 9, 9)),
    ]
    ids = write_answer(objects, s).ids
    last = max(place for place, token in enumerate(ids) if token in s.bins)
    for count in range(len(ids)):
        expected = expect(ids[:count], s)
        assert not set(expected) & set(s.bins)
        if 0 < count <= last and ids[count - 1] in s.bins and not box_first:
            # the comma, or all up to the next desc
            assert expected and ids[count : count + len(expected)] == expected
        elif count and ids[count - 1] in s.bins:
            assert expected and ids[count] == expected[0]
    assert expect((), s) == (*s.opening, *s.head)
    assert expect(ids[:2], s) == (*s.opening, *s.head)[2:]
    assert expect((7, 7, 7), s) == ()


@pytest.mark.parametrize("box_first", [False, True])
def test_an_object_of_twelve_tokens_takes_five_passes(box_first: bool) -> None:
    """Where each piece and each desc is one token."""
    s = spelling(box_first)
    short = replace(s, opening=(1,), head=(2,), middle=(3,), comma=(4,), tail=(5,), closing=(6,))
    box = [*chain.from_iterable((at, 4) for at in s.coordinates[:3]), s.coordinates[3]]
    each = [2, *box, 3, 9, 5] if box_first else [2, 9, 3, *box, 5]
    ids, passes = [1, *each, 4, *each, 4, *each], 0
    at = 0
    while at < len(ids):
        passes += 1
        at += 1
        for token in expect(ids[:at], short):
            if at < len(ids) and ids[at] == token:
                at += 1
    assert len(each) + 1 == 12 and passes == 1 + 3 * 5
