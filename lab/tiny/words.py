"""Arbitrary words for synthetic missions: what a model has to copy must never be what it has learnt
by heart.

Kinds: English words (out of the text of the standard library), made-up words from syllables, letter
strings, codes, numbers, compounds with ``_``, ``-`` or a space, in CamelCase or with a unit in
brackets, short grades (``low``, ``none``), scales of look-alikes (``brim``, ``vbrim``,
``brimmer``), and Chinese strings. English words whose hash falls in a tenth are held out of
training and make the "unseen" words of the evaluation; made-up kinds are unseen by chance alone.
"""

from __future__ import annotations

import random
import re
import sysconfig
import zlib
from collections import Counter
from functools import cache
from pathlib import Path

_ONSETS = (
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl kr l m n p pl pr qu r s sc sh sk sl sp st "
    "t th tr v w x z"
).split()
_VOWELS = "a e i o u ai ea ee ie oa oo ou y".split()
_CODAS = (
    "b ck d ff g l ll m n nd ng nk nt p r rd rk rm rn s sh sk ss st t th x z".split() + [""] * 12
)
_GRADES = (
    "low med medium high very_low very_high small big large none some many few more less yes no "
    "y n true false ok bad "
    "good poor fair excellent new old open closed on off left right up down absent present "
    "normal abnormal partial full "
    "empty 1 2 3 4 5 a b c d e f g h k l m o p r s t u w x"
).split()
_PREFIXES = (
    "v",
    "v",
    "x",
    "very_",
    "very ",
    "un",
    "non-",
    "not_",
    "semi",
    "sub",
    "over",
    "low-",
    "mid-",
    "1",
    "2",
)
_ENDINGS = ("er", "est", "s", "y", "ish", "-ok", "_2", "plus", "+", "-x")
_HAN = (
    "线缆标签接头密封支架螺丝电源风扇柜门地面墙体管道阀门油漆锈蚀裂缝松动缺失损坏完好正常异常"
    "红绿蓝黄黑白大中小高低左右上下前后新旧长短开关有无多少"
)
# a rule that mentions them could not be read back
_JOINTS = frozenset("and or nor is if unless equals".split())
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@cache
def english(unseen: bool) -> tuple[str, ...]:
    """English words of 2 to 12 letters; ``unseen`` ones never enter training."""
    counts: Counter[str] = Counter()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        counts.update(
            re.findall(
                r"\b[a-z]{2,12}\b", path.read_text(encoding="utf-8", errors="replace").lower()
            )
        )
    found = sorted(word for word, count in counts.items() if count > 1 and word not in _JOINTS)
    return tuple(word for word in found if (zlib.crc32(word.encode()) % 10 == 0) == unseen)


def made_up(rng: random.Random) -> str:
    """A pronounceable word of one to three syllables."""
    parts = (
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS)
        for _ in range(rng.choice((1, 2, 2, 2, 3)))
    )
    return "".join(parts)


def plain(rng: random.Random, unseen: bool) -> str:
    """One word of letters alone."""
    return rng.choice(english(unseen)) if rng.random() < 0.75 else made_up(rng)


def cased(rng: random.Random, word: str) -> str:
    """The word as some tables write it: mostly as it is, at times capitalised or in capitals."""
    kind = rng.random()
    if kind < 0.85:
        return word
    return word.capitalize() if kind < 0.96 else word.upper()


def name(rng: random.Random, unseen: bool, chinese: bool) -> str:
    """An attribute's name."""
    kind = rng.random()
    if chinese and kind < 0.6:
        return han(rng, 2, 4)
    if kind < 0.4:
        return cased(rng, plain(rng, unseen))
    if kind < 0.62:
        return cased(rng, rng.choice("__- ").join((plain(rng, unseen), plain(rng, unseen))))
    if kind < 0.87:
        return column(rng, unseen)
    if kind < 0.95:
        return "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 5)))
    return f"{plain(rng, unseen)}{rng.randint(1, 9)}"


def column(rng: random.Random, unseen: bool) -> str:
    """A column's name as databases and machines write it: ``RotationalSpeed``, ``airTemp``, ``Tool
    wear [min]``."""
    parts = [plain(rng, unseen) for _ in range(rng.choice((1, 2, 2, 2, 3, 4)))]
    kind = rng.random()
    if kind < 0.6:
        name = "".join(part.capitalize() for part in parts)
    elif kind < 0.7:
        name = parts[0] + "".join(part.capitalize() for part in parts[1:])
    else:
        name = rng.choice((" ", " ", "_")).join(parts[:3])
        name = name.capitalize() if kind < 0.9 else name
    if rng.random() < 0.6:
        return name
    opened, closed = rng.choice(("[]", "[]", "()"))
    return f"{name}{rng.choice((' ', ' ', ''))}{opened}{unit(rng).strip()}{closed}"


def value(rng: random.Random, unseen: bool, chinese: bool) -> str:
    """A categorical value."""
    kind = rng.random()
    if chinese and kind < 0.6:
        return han(rng, 1, 3)
    if kind < 0.35:
        return cased(rng, plain(rng, unseen))
    if kind < 0.6:
        return cased(rng, rng.choice(_GRADES))
    if kind < 0.7:
        return rng.choice(LETTERS)
    if kind < 0.8:
        return str(rng.randint(0, 10 ** rng.randint(1, 3)))
    if kind < 0.88:
        return cased(
            rng, rng.choice(("_", "-", " ")).join((plain(rng, unseen), plain(rng, unseen)))
        )
    if kind < 0.9:
        return f"{plain(rng, unseen)} ({plain(rng, unseen)})"
    return "".join(rng.choice(LETTERS + "0123456789") for _ in range(rng.randint(2, 6)))


def scale(rng: random.Random, unseen: bool, chinese: bool) -> tuple[str, ...]:
    """Two to five values of one attribute that are easily taken for each other: they share pieces,
    or are digits."""
    kind = rng.random()
    size = rng.choice((2, 3, 3, 4, 4, 5))
    if chinese and kind < 0.6:
        base = han(rng, 1, 1)
        return tuple(
            dict.fromkeys(
                (
                    base,
                    *(rng.choice(("较", "很", "不", "极")) + base for _ in range(size - 1)),
                    han(rng, 1, 2),
                )
            )
        )
    if kind < 0.3:  # counts
        first, step = rng.randint(0, 9), rng.choice((1, 1, 1, 2, 5))
        counts = [str(first + step * spot) for spot in range(size)]
        more = rng.choice(("more", "plus", "+", "up", plain(rng, unseen)))
        last = rng.choice((more, counts[-1] + more, f"{counts[-2]}-{counts[-1]}"))
        return (*counts[:-1], last) if rng.random() < 0.7 else tuple(counts)
    if kind < 0.4:  # codes
        letters = rng.sample(LETTERS, 2)
        drawn = [
            rng.choice(letters) + rng.choice(("", "", "-")) + str(rng.randint(1, 12))
            for _ in range(size + 1)
        ]
        return tuple(dict.fromkeys((*drawn, letters[0])))
    bases = [
        rng.choice(_GRADES) if rng.random() < 0.35 else plain(rng, unseen)
        for _ in range(rng.choice((1, 2, 2, 3)))
    ]
    related = [
        rng.choice(_PREFIXES) + base if rng.random() < 0.7 else base + rng.choice(_ENDINGS)
        for base in (rng.choice(bases) for _ in range(size))
    ]
    return tuple(dict.fromkeys((*bases, *related)))[: max(2, size)]


_PAIRS = (
    "y n|t f|yes no|Y N|T F|0 1|1 2|+ -|true false|x o|a b|low high|present absent|on off".split(
        "|"
    )
)


def few(rng: random.Random, unseen: bool, chinese: bool) -> tuple[str, ...]:
    """Two to six short values that all attributes of a mission have: letters, digits, signs, a
    scale."""
    kind = rng.random()
    if chinese and kind < 0.4:
        return rng.choice((("是", "否"), ("有", "无"), ("低", "中", "高"), ("好", "坏")))
    if kind < 0.3:
        pair = tuple(rng.choice(_PAIRS).split())
        return (
            tuple(dict.fromkeys((*pair, rng.choice(("?", "b", "u", "na")))))
            if rng.random() < 0.35
            else pair
        )
    if kind < 0.5:
        letters = tuple(rng.sample(LETTERS, rng.choice((2, 3, 3, 4, 5, 6))))
        return tuple(letter.upper() for letter in letters) if rng.random() < 0.15 else letters
    if kind < 0.8:
        first = rng.choice((0, 1, 1, 1))
        return tuple(str(first + spot) for spot in range(rng.choice((2, 3, 3, 4, 4, 5))))
    if kind < 0.9:
        return scale(rng, unseen, chinese)
    codes = (
        "".join(rng.choice(LETTERS + "0123456789") for _ in range(2))
        for _ in range(rng.choice((2, 3, 4)))
    )
    return tuple(dict.fromkeys(("no", *codes)))


def family(rng: random.Random, count: int, unseen: bool) -> tuple[str, ...]:
    """Up to ``count`` names that belong together: numbered, the places of a grid, parts that come
    again, or long ones."""
    kind, joint = rng.random(), rng.choice("--_ ")
    if kind < 0.35:
        stem = rng.choice(
            (
                rng.choice(LETTERS),
                rng.choice(LETTERS).upper(),
                plain(rng, unseen),
                plain(rng, unseen) + joint,
            )
        )
        first = rng.choice((0, 1, 1, 1))
        return tuple(f"{stem}{first + spot}" for spot in range(count))
    side = next(size for size in range(1, 9) if size * size >= count)
    if kind < 0.55:
        rows, columns = (rng.sample(LETTERS, side) for _ in range(2))
        if rng.random() < 0.3:
            columns = [str(spot + 1) for spot in range(side)]
        names = [row + column for row in rows for column in columns]
        return tuple(name.upper() if kind < 0.5 else name for name in names[:count])
    if kind < 0.8:
        heads, tails = ([plain(rng, unseen) for _ in range(side)] for _ in range(2))
        return tuple(dict.fromkeys(head + joint + tail for head in heads for tail in tails))[:count]
    long = (joint.join(plain(rng, unseen) for _ in range(rng.randint(1, 4))) for _ in range(count))
    return tuple(dict.fromkeys(cased(rng, each) for each in long))


def unit(rng: random.Random) -> str:
    """A unit behind a number."""
    short = "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 3)))
    return rng.choice((" ", " ", "")) + rng.choice(
        (
            "%",
            "kg",
            "mm",
            "cm",
            "m",
            "s",
            "min",
            "days",
            "°C",
            "K",
            "Nm",
            "rpm",
            "V",
            short,
            short,
            short,
        )
    )


def han(rng: random.Random, shortest: int, longest: int) -> str:
    """A string of Chinese characters."""
    return "".join(rng.choice(_HAN) for _ in range(rng.randint(shortest, longest)))


def title(rng: random.Random, unseen: bool, chinese: bool) -> str:
    """A mission's name."""
    if chinese and rng.random() < 0.7:
        return han(rng, 3, 6)
    return " ".join(plain(rng, unseen) for _ in range(rng.randint(1, 3)))
