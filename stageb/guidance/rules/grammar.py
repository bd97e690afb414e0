"""The words in which rules are written, in each language: ``parse.py`` reads them, ``write.py`` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stageb.guidance.rules.expression import Relation


@dataclass(frozen=True, slots=True)
class Grammar:
    """How one language writes rules."""

    if_: tuple[str, ...]  # behind the verdict; the first is the one that we write
    unless: tuple[str, str]  # behind the verdict; behind a condition
    and_: str
    or_: str
    nor: str
    comma: str
    end: str
    relations: Mapping[str, tuple[Relation, bool]]  # between name and value -> what it says, and whether that is denied;
    # of several that say the same, the first is the one that we write
    missing: Mapping[str, bool]  # behind a name -> whether that is denied
    within: tuple[str, str]  # between a name and its lower limit, and between that and the upper one
    mentions: Mapping[str, bool]  # before a word -> whether that is denied
    counts: Mapping[str, bool]  # a count of conditions, with {count} and {parts} -> whether more than that many are denied
    part: str  # between the conditions that are counted, or have points
    points: str  # before the conditions that have some, with {least}
    scored: str  # between points and their condition


ENGLISH = Grammar(
    if_=(" if ",),
    unless=(" unless ", " unless "),
    and_=" and ",
    or_=" or ",
    nor=" nor ",
    comma=", ",
    end=".",
    relations={
        " is ": ("is", False),
        " is not ": ("is", True),
        " is above ": ("above", False),
        " is not above ": ("above", True),
        " is below ": ("below", False),
        " is not below ": ("below", True),
        " is neither ": ("is", True),
        " is at least ": ("below", True),
        " is at most ": ("above", True),
        **dict.fromkeys((" is over ", " is more than ", " is greater than ", " > "), ("above", False)),
        **dict.fromkeys((" is under ", " is less than ", " < "), ("below", False)),
        **dict.fromkeys((" is no more than ", " <= "), ("above", True)),
        **dict.fromkeys((" is no less than ", " >= "), ("below", True)),
        " = ": ("is", False),
        " != ": ("is", True),
        " equals ": ("equals", False),
        " differs from ": ("differs", False),
    },
    missing={" is missing": False, " is not missing": True},
    within=(" is above ", " and below "),
    mentions={"a summary mentions ": False, "a summary does not mention ": True, "no summary mentions ": True},
    counts={"at least {count} of ({parts})": False, "at most {count} of ({parts})": True},
    part="; ",
    points="it has {least} points or more: ",
    scored=" if ",
)
CHINESE = Grammar(
    if_=("：若", "："),
    unless=("：除非", "，除非"),
    and_="且",
    or_="或",
    nor="或",
    comma="、",
    end="。",
    relations={
        "为": ("is", False),
        "不为": ("is", True),
        "大于": ("above", False),
        "不大于": ("above", True),
        "小于": ("below", False),
        "不小于": ("below", True),
        "至少": ("below", True),
        "至多": ("above", True),
        "等于": ("equals", False),
        "不等于": ("differs", False),
    },
    missing={"缺失": False, "未缺失": True},
    within=("大于", "且小于"),
    mentions={"摘要提到": False, "摘要未提到": True, "摘要没有提到": True},
    counts={"至少{count}项成立（{parts}）": False, "至多{count}项成立（{parts}）": True},
    part="；",
    points="总分至少{least}：",
    scored="分若",
)
