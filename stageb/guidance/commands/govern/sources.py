"""The guidance that an argument of ``stageb guidance`` names, and the words that go with it."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import dataclass, field
from typing import Any, get_args

from stageb.cli.draft import Draft
from stageb.cli.parsing import find_file, parse_run, read_file
from stageb.errors import InputError, shown
from stageb.guidance.config import Language, LoopConfig, PromptConfig
from stageb.guidance.rules.prompts import WORDS, Words, words_of
from stageb.guidance.rules.read_guidance import read_guidance, split_step
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import Guidance

SOURCE = """\
SOURCE is a run's folder (out/first), a guidance.json, or a text file of rules (.txt); each may end
in @STEP, for the guidance of that step, from a run's snapshots or a shared file's history
(out/first@3).

A text file of rules has [the mission] on a line of its own, and below it one rule per line. A
line may begin with its number, "G4. Fail if ..."; "G0. ..." is the headline (default: a neutral
one); lines that begin with # are ignored. Learning neither changes nor removes a rule that is
marked as fixed, "G4 (fixed). Fail if ..."."""
OF_PROMPT = "of the prompt and a default headline (default: the run's, or en)"


def add_language(parser: ArgumentParser) -> None:
    """The option of a command whose words are those of a prompt."""
    parser.add_argument("--language", choices=get_args(Language), help=OF_PROMPT)


def add_columns(parser: ArgumentParser, default: str) -> None:
    """Add the options, one of which may say what the columns of ticket files mean, and is parsed
    to ``columns``; ``default`` says in words what they mean otherwise."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--columns",
        type=parse_columns,
        metavar="NAME=VALUE,...",
        help=f"what the columns of ticket files mean, as for predict (default: {default})",
    )
    either.add_argument(
        "--config",
        type=read_columns,
        dest="columns",
        metavar="FILE",
        help="a config file that says so, such as the one that stageb new writes",
    )


def parse_columns(text: str) -> ColumnsConfig:
    """Parse ``--columns``. Raises ``InputError`` as ``predict`` does."""
    draft = Draft(_TableKeys)
    draft.add_option("columns", text)
    return _build(draft)


def read_columns(name: str) -> ColumnsConfig:
    """Read the columns of a config file. Raises ``InputError`` as ``fit`` does."""
    draft = Draft(_TableKeys, fit_kind=LoopConfig)
    draft.add_file(read_file(find_file(name)))
    return _build(draft)


def parse_step(text: str) -> int:
    """Read a step. Raises ``ArgumentTypeError``."""
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ArgumentTypeError(f"{text!r}: a step is a whole number, 0 or more")
    return int(text)


def read_source(source: str, args: Any) -> dict[str, Guidance]:
    """The guidance that ``source`` names, by mission, in the language that ``args`` asks for."""
    return read_guidance(source, args.mission, WORDS[args.language] if args.language else None)


def get_only(found: dict[str, Guidance], source: str) -> Guidance:
    """The guidance of the only mission. Raises ``InputError`` where there are more."""
    if len(found) > 1:
        names = shown(", ".join(map(repr, found)), 400)
        raise InputError(
            shown(f"{source} holds several missions; choose one by --mission: {names}")
        )
    (guidance,) = found.values()
    return guidance


def choose_words(source: str, language: str | None = None) -> Words:
    """The words of a prompt: of the ``language`` given, or of the config of the run that is the
    ``source``."""
    path, _ = split_step(source)
    if language or not path.is_dir():
        return WORDS[language or "en"]
    config = parse_run(path).config
    if not isinstance(config, LoopConfig):
        raise InputError(shown(f"{path}: a run of loop {config.loop} has no guidance"))
    return words_of(config.prompt, config.model)


# Inside -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TableKeys:
    """The keys of a file that ``stageb new`` writes, of which the columns alone are taken."""

    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    tickets: list[str] = field(default_factory=list)
    seed: int = 0
    prompt: PromptConfig = field(default_factory=PromptConfig)


def _build(draft: Draft) -> ColumnsConfig:
    draft.check()
    keys: _TableKeys = draft.build()
    return keys.columns
