"""Write objects as tokens of one line, ``{"objects": [{"desc": "RBC", "bbox_2d": [<|coord_12|>,
...]}, ...]}``, and parse them. With ``box_first`` an object is ``{"bbox_2d": [<|coord_12|>, ...],
"desc": "RBC"}``, so that its name is conditioned on its box (Chen et al. 2022, Pix2Seq).

An answer has exactly one spelling. Its fixed pieces are tokenised separately, so that every object
ends at the end of a token: a rollout can be cut after any object and continued without changing a
token. The parser accepts only this spelling.

A coordinate v on an axis of n pixels is in bin floor(999 v / n + 1/2), the nearest of 1,000 points
from edge to edge; bin b is the coordinate b n / 999. A true box whose two bins would be equal is
made one bin wide.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from stageb.errors import InputError
from stageb.two_channel.types import (
    BINS,
    CUT_SHORT,
    Bins,
    Box,
    Detection,
    Object,
    ParsedAnswer,
    Sample,
)
from stageb.untrusted.clean_text import text_fault

COORDINATES = tuple(f"<|coord_{number}|>" for number in range(BINS))  # the tokens, in order

CATEGORIES = "{categories}"  # stands for their names in a prompt
TEXTS = 1 << 16  # whose ids are remembered
OPENING, COMMA, CLOSING = '{"objects": [', ", ", "]}"
# before, between and behind the two parts of an object
NAME_FIRST = ('{"desc": "', '", "bbox_2d": [', "]}")
BOX_FIRST = ('{"bbox_2d": [', '], "desc": "', '"}')

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a tokenizer spells answers: the ids of each fixed piece. Made by ``find_spelling``."""

    box_first: bool  # an object's box stands before its desc
    opening: Ids  # {"objects": [
    head: Ids  # {"desc": "
    middle: Ids  # ", "bbox_2d": [
    comma: Ids  # between two coordinates, and between two objects
    tail: Ids  # ]} of an object
    closing: Ids  # ]} of all
    end: int  # the token that ends an answer
    coordinates: Ids  # by bin
    bins: Mapping[int, int]  # by coordinate's id
    reserved: frozenset[int]  # ids that no desc may hold: special and added ones
    tokenizer: Any


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """An answer in tokens."""

    ids: Ids
    # of each object that was written: where its four coordinates stand
    boxes: tuple[tuple[int, int, int, int], ...]


def list_pieces(box_first: bool) -> tuple[str, ...]:
    """The fixed pieces of an answer: opening, head, middle, comma, tail, closing."""
    head, middle, tail = BOX_FIRST if box_first else NAME_FIRST
    return OPENING, head, middle, COMMA, tail, CLOSING


def find_spelling(tokenizer: Any, box_first: bool = False) -> Spelling:
    """The spelling of ``tokenizer``, from transformers. Raises ``InputError`` if it has no
    coordinate tokens or no EOS token, or does not decode its own tokens exactly."""
    known = tokenizer.get_vocab()
    missing = [token for token in COORDINATES if token not in known]
    if missing:
        raise InputError(
            f"the tokenizer lacks {len(missing)} coordinate tokens, such as {missing[0]}: add "
            f"them to it"
        )
    if tokenizer.eos_token_id is None:
        raise InputError(
            "the tokenizer names no eos_token, so no answer could end: name one in its "
            "tokenizer_config.json"
        )
    coordinates = tuple(known[token] for token in COORDINATES)
    opening, head, middle, comma, tail, closing = (
        _encode_piece(tokenizer, piece) for piece in list_pieces(box_first)
    )
    reserved = (
        frozenset(tokenizer.added_tokens_decoder)
        | frozenset(tokenizer.all_special_ids)
        | frozenset(coordinates)
    )
    bins = {token: number for number, token in enumerate(coordinates)}
    end = int(tokenizer.eos_token_id)
    parts = opening, head, middle, comma, tail, closing
    return Spelling(box_first, *parts, end, coordinates, bins, reserved, tokenizer)


def check_descs(samples: Iterable[Sample], spelling: Spelling) -> None:
    """Raise ``InputError`` if the desc of an object cannot be encoded and parsed back."""
    first = {
        each.desc: sample.key for sample in reversed(tuple(samples)) for each in sample.objects
    }
    for desc, key in sorted(first.items()):
        ids = _encode_desc(desc, spelling)
        if spelling.reserved.intersection(ids):
            raise InputError(
                f"{key}: desc {desc!r} holds a special token of the model's tokenizer: take it "
                f"out of the data"
            )
        placed = Detection(desc, (0, 0, 1, 1))
        if parse(write_answer([placed], spelling).ids, spelling).objects != (placed,):
            raise InputError(
                f"{key}: desc {desc!r} is not read as it was written by the model's tokenizer: "
                f"spell it plainly"
            )


def fill_prompt(prompt: str, categories: Sequence[str]) -> str:
    """``prompt`` with ``{categories}`` replaced by the names of ``categories``."""
    return prompt.replace(CATEGORIES, ", ".join(categories))


# Pixels and bins


def bin_of(value: float, size: int) -> int:
    """The bin of a coordinate in pixels on an axis of ``size`` pixels, clipped to the axis."""
    return min(BINS - 1, max(0, math.floor((BINS - 1) * value / size + 0.5)))


def bins_of(box: Box, width: int, height: int) -> Bins:
    """The bins of a box in pixels; if the box has area, so have its bins."""
    x1, x2 = _widen(bin_of(box[0], width), bin_of(box[2], width))
    y1, y2 = _widen(bin_of(box[1], height), bin_of(box[3], height))
    return x1, y1, x2, y2


def box_of(bins: Bins, width: int, height: int) -> Box:
    """The box in pixels of ``bins``."""
    x1, y1, x2, y2 = (each / (BINS - 1) for each in bins)
    return x1 * width, y1 * height, x2 * width, y2 * height


def _widen(low: int, high: int) -> tuple[int, int]:
    if low < high:
        return low, high
    return (low, low + 1) if low < BINS - 1 else (low - 1, low)


def list_true_objects(sample: Sample) -> tuple[Detection, ...]:
    """The objects of a sample in bins, in the order of its answer (``sort_objects``)."""
    return sort_objects(
        Detection(each.desc, bins_of(each.box, sample.width, sample.height))
        for each in sample.objects
    )


def sort_objects(objects: Iterable[Detection]) -> tuple[Detection, ...]:
    """``objects`` from top to bottom, then from left to right, by their upper left corners."""
    return tuple(
        sorted(
            objects,
            key=lambda each: (each.bins[1], each.bins[0], each.bins[3], each.bins[2], each.desc),
        )
    )


def to_pixels(objects: Iterable[Detection], width: int, height: int) -> tuple[Object, ...]:
    """``objects`` in the pixels of an image of ``width`` x ``height``."""
    return tuple(Object(each.desc, box_of(each.bins, width, height)) for each in objects)


# Text and tokens


def write_answer(
    objects: Sequence[Detection], spelling: Spelling, behind: Sequence[int] = ()
) -> WrittenAnswer:
    """The answer that lists ``objects``, including the end token, or that continues ``behind`` with
    them.

    ``behind`` is a prefix of an answer up to and including the end of an object
    (``ParsedAnswer.ends``), or empty.
    """
    ids = list(behind or spelling.opening)
    boxes = []
    for number, each in enumerate(objects):
        ids += spelling.comma if number or behind else ()
        desc = _encode_desc(each.desc, spelling)
        numbers = [
            (*(spelling.comma if place else ()), spelling.coordinates[at])
            for place, at in enumerate(each.bins)
        ]
        parts = desc, tuple(chain(*numbers))
        first, second = reversed(parts) if spelling.box_first else parts
        begin = (
            len(ids)
            + len(spelling.head)
            + (0 if spelling.box_first else len(desc) + len(spelling.middle))
        )
        places = tuple(begin + place * (1 + len(spelling.comma)) for place in range(4))
        boxes.append((places[0], places[1], places[2], places[3]))
        ids += (*spelling.head, *first, *spelling.middle, *second, *spelling.tail)
    ids += (*spelling.closing, spelling.end)
    return WrittenAnswer(tuple(ids), tuple(boxes))


class _UnparsableError(Exception):
    """Why the rest of an answer cannot be parsed."""


def parse(ids: Sequence[int], spelling: Spelling) -> ParsedAnswer:
    """The longest prefix of an answer, in whole objects, that ``write_answer`` could have written.

    The end token is optional; nothing may follow it.
    """
    objects: list[Detection] = []
    ends: list[int] = []
    try:
        at = _skip(ids, 0, spelling.opening)
        while not _stands(ids, at, spelling.closing):
            at = _skip(ids, at, spelling.comma) if objects else at
            placed, at = _parse_object(ids, at, spelling)
            objects.append(placed)
            ends.append(at)
        rest = ids[at + len(spelling.closing) :]
        if len(rest) and tuple(rest) != (spelling.end,):
            raise _UnparsableError("more behind its end")
    except _UnparsableError as refused:
        return ParsedAnswer(tuple(objects), tuple(ends), False, str(refused))
    return ParsedAnswer(tuple(objects), tuple(ends), True)


def cut_before_special(ids: Ids, spelling: Spelling) -> Ids:
    """The prefix of an answer that its model can be fed: up to the first special token that does
    not belong in an answer, such as an image token, for which the model would expect an image."""
    strange = spelling.reserved - {*spelling.coordinates, spelling.end}
    return ids[: next((at for at, token in enumerate(ids) if token in strange), None)]


def find_boxes(ids: Sequence[int], spelling: Spelling) -> tuple[tuple[int, int, int, int], ...]:
    """The indices of the four coordinates of each object in ``ids``, a prefix of an answer that
    ``parse`` accepts."""
    places = [place for place, token in enumerate(ids) if token in spelling.bins]
    return tuple(
        (places[i], places[i + 1], places[i + 2], places[i + 3]) for i in range(0, len(places), 4)
    )


def expect(ids: Sequence[int], spelling: Spelling) -> Ids:
    """The tokens that the spelling determines after ``ids``, a prefix of an answer: up to the next
    coordinate or desc, and as if another object followed each. Empty if none are determined. Only
    the end of ``ids`` is looked at."""
    start = next((at for at in range(len(ids), 0, -1) if ids[at - 1] in spelling.bins), 0)
    since = tuple(ids[start:])  # the last coordinate, or the answer's beginning
    next_object = (*spelling.tail, *spelling.comma, *spelling.head)
    if not start:  # before the first box
        return _expect_behind(
            since, (*spelling.opening, *spelling.head), spelling.middle, spelling.box_first
        )
    step = 1 + len(spelling.comma)
    written = next(
        count
        for count in range(1, 5)
        if count == 4 or not _stands_coordinate(ids, start - 1 - count * step, spelling)
    )
    if written < 4:  # within a box
        return _find_rest(since, spelling.comma)
    if spelling.box_first:  # behind a box, before its name
        return _expect_behind(since, spelling.middle, next_object, False)
    # behind a box that followed its name
    return _expect_behind(since, next_object, spelling.middle, False)


def _expect_behind(behind: Ids, fixed: Ids, following: Ids, ends: bool) -> Ids:
    """The rest of ``fixed``; behind it and the beginning of a desc the rest of ``following``,
    unless it ``ends`` there."""
    if len(behind) < len(fixed):
        return _find_rest(behind, fixed)
    desc = behind[len(fixed) :]
    if ends or not desc or behind[: len(fixed)] != fixed:
        return ()
    begun = next(
        (count for count in range(len(following) - 1, 0, -1) if desc[-count:] == following[:count]),
        0,
    )
    return following[begun:]


def _find_rest(begun: Ids, piece: Ids) -> Ids:
    """What of ``piece`` is missing where it was ``begun``; nothing where something else was."""
    return piece[len(begun) :] if piece[: len(begun)] == begun else ()


def _stands_coordinate(ids: Sequence[int], at: int, spelling: Spelling) -> bool:
    return at >= 0 and ids[at] in spelling.bins and _stands(ids, at + 1, spelling.comma)


def _parse_object(ids: Sequence[int], at: int, spelling: Spelling) -> tuple[Detection, int]:
    """The object that begins at ``at``, and where it ends. Raises ``_UnparsableError``."""
    at = _skip(ids, at, spelling.head)
    if spelling.box_first:
        bins, at = _parse_box(ids, at, spelling)
        desc, at = _parse_name(ids, _skip(ids, at, spelling.middle), spelling.tail, spelling)
        return Detection(desc, bins), at
    desc, at = _parse_name(ids, at, spelling.middle, spelling)
    bins, at = _parse_box(ids, at, spelling)
    return Detection(desc, bins), _skip(ids, at, spelling.tail)


def _parse_name(ids: Sequence[int], at: int, behind: Ids, spelling: Spelling) -> tuple[str, int]:
    """The desc that begins at ``at``, and where ``behind``, which follows it, ends. Raises
    ``_UnparsableError``."""
    end = at
    while not _stands(ids, end, behind):
        if end >= len(ids):
            raise _UnparsableError(CUT_SHORT)
        if ids[end] in spelling.reserved:
            raise _UnparsableError("a special token in a desc")
        end += 1
    return _decode_desc(ids[at:end], spelling), end + len(behind)


def _parse_box(ids: Sequence[int], at: int, spelling: Spelling) -> tuple[Bins, int]:
    """The four coordinates that begin at ``at``, and where they end. Raises
    ``_UnparsableError``."""
    numbers = []
    for place in range(4):
        at = _skip(ids, at, spelling.comma) if place else at
        if at >= len(ids):
            raise _UnparsableError(CUT_SHORT)
        if ids[at] not in spelling.bins:
            raise _UnparsableError("no coordinate where one must stand")
        numbers.append(spelling.bins[ids[at]])
        at += 1
    x1, y1, x2, y2 = numbers
    if x1 > x2 or y1 > y2:
        raise _UnparsableError("corners that changed places")
    return (x1, y1, x2, y2), at


def _decode_desc(ids: Sequence[int], spelling: Spelling) -> str:
    text = _decode(spelling.tokenizer, ids)
    known = len(spelling.tokenizer)
    try:
        desc = json.loads(f'"{text}"')
    except ValueError:
        raise _UnparsableError("a desc that is no JSON text") from None
    if any(token >= known for token in ids) or "\ufffd" in desc or text_fault(desc):
        raise _UnparsableError("a desc that is no clean text")
    return str(desc)


def _stands(ids: Sequence[int], at: int, piece: Ids) -> bool:
    return tuple(ids[at : at + len(piece)]) == piece


def _skip(ids: Sequence[int], at: int, piece: Ids) -> int:
    """Where ``piece``, which must stand at ``at``, ends. Raises ``_UnparsableError``."""
    if not _stands(ids, at, piece):
        short = tuple(ids[at:]) == piece[: len(ids) - at]
        raise _UnparsableError(CUT_SHORT if short else "not of the form")
    return at + len(piece)


def _encode_desc(desc: str, spelling: Spelling) -> Ids:
    return _encode(spelling.tokenizer, json.dumps(desc, ensure_ascii=False)[1:-1])


def _encode_piece(tokenizer: Any, piece: str) -> Ids:
    ids = _encode(tokenizer, piece)
    if (said := _decode(tokenizer, ids)) != piece:
        raise InputError(
            f"the tokenizer turns {piece!r} into {said!r}: take a checkpoint with a byte-level one"
        )
    return ids


# a thread that makes the next step ready must not ask a tokenizer that is at work
@lru_cache(TEXTS)
def _encode(tokenizer: Any, text: str) -> Ids:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(
        list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    return text
