"""From a command line to a frozen config: which loop it is for, its files and options in order, and
the help screens.

The standard library and PyYAML alone are imported, and jsonargparse for a help screen: a question
must not wait for torch.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import stat
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NoReturn

from stageb.cli import commands
from stageb.cli.commands import Loop, Tool
from stageb.cli.draft import LOOP, OPTIONS, ConfigFile, Draft, list_keys
from stageb.config import LearningConfig, require
from stageb.errors import CALLER, IN_PYTHON, BadInputError, BadLine, ConfigError, InputError, shown
from stageb.settings import inner_of, section_of
from stageb.store import trust
from stageb.untrusted import strict_yaml
from stageb.untrusted.strict_yaml import YamlError

FLAGS = ("help", "print_config", "fresh")  # options without a value
SHIPPED = Path(__file__).parents[1] / "configs"  # in a folder for each loop
SEEDS, MOST_SEEDS = "seeds", 1000
MAX_FILE_BYTES = 256 * 1024  # of a config file; one with every key is a hundredth of this

Word = tuple[
    str, str | ConfigFile | None
]  # an option's name, and its text or the file that it names; None where it has none


class WordParser(argparse.ArgumentParser):
    """For a command that reads its words itself: refuses as every command does, with
    ``InputError``."""

    def error(self, message: str) -> NoReturn:
        raise InputError(
            f"{self.prog}: {shown(message, 300)}; {self.prog} --help says what it takes"
        )


@dataclass(frozen=True)
class ParsedCommand:
    """A parsed command line."""

    loop: str
    config: Any  # the loop's frozen dataclass
    values: Mapping[str, Any]  # of every key, as plain data
    fresh: bool  # whether to start anew; about this one call, and so no key, as this
    seeds: int = 0  # how many runs to make, of as many seeds; 0: the one that the config tells of

    @property
    def resolved_yaml(self) -> str:
        """The config with every key, as ``--config`` reads it."""
        return strict_yaml.dump(self.values)


def parse(arguments: Sequence[str], command: str = "fit") -> ParsedCommand:
    """Parse ``arguments`` of fit or of another ``command`` with its keys. Raises ``InputError``;
    ``--help`` and ``--print_config`` print and exit."""
    words = read_words(arguments)
    loop, seeds = (
        find_loop(words),
        next((text for name, text in reversed(words) if name == SEEDS), "0"),
    )
    if not (isinstance(seeds, str) and seeds.isdecimal() and int(seeds) <= MOST_SEEDS):
        raise InputError(f"--seeds: {shown(str(seeds), 60)!r}: how many, at most {MOST_SEEDS}")
    words = [each for each in words if each[0] != SEEDS or command != "fit"]
    parsed = ParsedCommand(loop, *config_from(command, commands.loops()[loop], words), int(seeds))
    if (
        command == "fit"
        and (told := precision_of_launcher())
        and parsed.config.fabric.precision != told
    ):
        remedy = f"fabric run was given --precision {told}: leave one of them out"
        require(
            parsed.config.fabric.precision is None,
            "fabric.precision",
            parsed.config.fabric.precision,
            remedy,
        )
        return parse([*arguments, f"--fabric.precision={told}"], command)
    return parsed


def precision_of_launcher() -> str | None:
    """The precision that ``fabric run --precision`` was given: part of what a run is, so its config
    must tell it."""
    told = os.environ.get("LT_PRECISION") if "LT_CLI_USED" in os.environ else None
    return {"64": "64-true", "32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed"}.get(
        told or "", told
    )


def parse_run(folder: Path) -> ParsedCommand:
    """Parse the config of the run in ``folder``. Raises ``InputError`` where no run lies there.

    The config says what the run was, and anybody may have written it: ``trust.py`` tells what a
    command may act upon.
    """
    config = folder / "config.yaml"
    if not config.exists():
        raise InputError(
            shown(
                f"{folder}: no run lies there (it would hold config.yaml); name the folder of one"
            )
        )
    return parse([f"--config={trust.file_of(folder, config)}"])


def parse_tool(name: str, tool: Tool, arguments: Sequence[str]) -> tuple[Any, bool]:
    """A tool's config, and whether to start anew. Raises and exits as ``parse`` does."""
    config, _, fresh = config_from(name, tool, read_words(arguments))
    return config, fresh


def from_keywords(name: str, keywords: Mapping[str, Any]) -> Any:
    """The config that a Python caller gives, as ``draft_keywords`` reads it. Raises ``InputError``
    as ``parse`` does."""
    return draft_keywords(name, keywords).build()


def draft_keywords(name: str, keywords: Mapping[str, Any]) -> Draft:
    """The values that a Python caller gives to the tool ``name``, or else to the default loop: keys
    by name, sections as mappings, ``config`` one YAML file, or several of which later ones win,
    beneath them.

    Raises ``InputError`` as ``parse`` does.
    """
    CALLER.set(IN_PYTHON)
    given = {key: value for key, value in keywords.items() if key != "config"}
    try:
        plain = json.loads(json.dumps(given, default=_plain))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"stageb.{name}: {error}; give keys as stageb {name} --help lists them"
        ) from None
    named = keywords.get("config") or ()
    names = [named] if isinstance(named, str | Path) else list(named)
    files = [*(read_file(find_file(str(name))) for name in names), ConfigFile("keywords", plain)]
    entry = commands.tools().get(name) or commands.loops()[commands.DEFAULT]
    return draft_values(entry, [("config", file) for file in files])


def _plain(value: Any) -> Any:
    """A section, a path or another library's number as JSON can hold it. Raises ``TypeError`` for
    anything else."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Real):  # as numpy's are
        return int(value) if isinstance(value, Integral) else float(value)
    raise TypeError(f"{shown(repr(value), 60)} is no text, number, list or mapping")


def config_from(
    command: str, entry: Loop | Tool, words: Sequence[Word]
) -> tuple[Any, Mapping[str, Any], bool]:
    """The config that files and options give, in order, the same as plain data, and whether to
    start anew; or a screen."""
    names = [name for name, _ in words]
    if asked := next((name for name in names if name == "help" or name.endswith(".help")), None):
        show_help(command, entry, asked)
    if "fresh" in names and isinstance(entry, Tool) and not entry.fresh:
        raise InputError(
            f"unrecognized arguments: --fresh; stageb {command} --help lists all options"
        )
    draft = draft_values(entry, words)
    if "print_config" in names:
        sys.stdout.write(strict_yaml.dump(draft.values))
        sys.exit(0)
    return draft.build(), draft.values, "fresh" in names


def draft_values(entry: Loop | Tool, words: Sequence[Word]) -> Draft:
    """The values that files and options give, in order, on the defaults or on what an entry lays
    beneath."""
    find_defaults = (
        commands.import_object(entry.beneath) if isinstance(entry, Tool) and entry.beneath else None
    )
    fitting = (
        next(loop for loop in commands.loops().values() if entry in loop.tools.values())
        if find_defaults
        else None
    )
    fit_kind = commands.load_config_class(fitting) if fitting else None

    def read(beneath: Mapping[str, Any]) -> Draft:
        draft = Draft(commands.load_config_class(entry), ["config", *FLAGS], beneath, fit_kind)
        for name, value in words:
            if isinstance(value, ConfigFile):
                draft.add_file(value)
            elif name not in (LOOP, *FLAGS):
                draft.add_option(name, value)
        draft.check()
        return draft

    draft = read({})
    if beneath := find_defaults(draft.values) if find_defaults else {}:
        draft = read(beneath)
        trust.check(draft.values)
    return draft


def read_words(arguments: Sequence[str]) -> list[Word]:
    """Split ``arguments`` and read the config files among them. Raises ``InputError``."""
    words = list(split(arguments))
    loop = next((str(text) for name, text in reversed(words) if name == LOOP), commands.DEFAULT)
    return [
        (name, read_file(find_file(str(text), loop)) if name == "config" else text)
        for name, text in words
    ]


def split(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Every option's name and its value; None where it has none. Raises ``InputError`` for what is
    no option."""
    rest = list(arguments)
    while rest:
        word = "--help" if rest[0] == "-h" else rest[0]
        name, equals, text = word.removeprefix("--").partition("=")
        name = "log_level" if name == "log-level" else name  # as commands everywhere spell it
        if not word.startswith("--") or not name:
            told = shown(" ".join(word.split()), 60) or "''"
            raise InputError(
                f"unrecognized arguments: {told}; every option is --KEY VALUE, a list one "
                f"value: [a, b]"
            )
        flag = name in FLAGS or name.endswith(".help")
        if flag and equals:
            raise InputError(f"--{shown(name, 60)}: expected no value")
        value = text if equals else None
        del rest[0]
        if not flag and not equals and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        if value is None and name in ("config", LOOP):
            raise InputError(f"--{name}: expected a value")
        yield name, value


def find_file(name: str, loop: str = commands.DEFAULT) -> str:
    """The config file that a user calls ``name``: the one at that path, if any; else, for a bare
    name, the one that ships, of ``loop`` where several loops have one. ``name`` itself where there
    is none."""
    if "/" in name or Path(name).is_file():
        return name
    shipped = {
        path.parent.name: str(path) for path in SHIPPED.glob("*/*.yaml") if path.stem == name
    }
    return shipped.get(loop) or (next(iter(shipped.values())) if len(shipped) == 1 else name)


def read_file(path: str) -> ConfigFile:
    """Read a config file. Raises ``BadInputError``."""
    fault: tuple[int, str, str] = (
        0,
        "holds no keys",
        "write one 'key: value' a line (--print_config shows them all)",
    )
    remedy = "name a YAML file after --config"
    try:
        status = Path(path).stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            # it may never end, and each rank would read its own
            raise YamlError(0, "cannot be read (not a file)", remedy)
        if status.st_size > MAX_FILE_BYTES:
            raise YamlError(0, f"{status.st_size} bytes, too many for a config", remedy)
        data = Path(path).read_bytes()
        values, lines = strict_yaml.read(data.decode("utf-8"))
        if isinstance(values, dict):
            return ConfigFile(path, values, lines)
    except YamlError as error:
        fault = error.line, error.what, error.remedy
    # a ValueError is about bytes that are no UTF-8, or a name that no file can have
    except (OSError, ValueError) as error:
        reason = (
            "not UTF-8 text"
            if isinstance(error, UnicodeDecodeError)
            else getattr(error, "strerror", None) or error
        )
        shipped = sorted({shipped.stem for shipped in SHIPPED.glob("*/*.yaml")})
        also = "" if "/" in path else f", or one that ships: {', '.join(shipped)}"
        fault = 0, f"cannot be read ({reason})", f"{remedy}{also}"
    raise BadInputError("config file", [BadLine(path, *fault)])


def find_loop(words: Sequence[Word]) -> str:
    """The loop that the last ``--loop`` names, or else the last file that names one. Raises
    ``ConfigError``."""
    named = [("", commands.DEFAULT)]
    for file in (
        value for _, value in words if isinstance(value, ConfigFile) and LOOP in value.values
    ):
        loop = file.values[LOOP]
        named.append(
            (
                f" ({file.path}:{file.lines[LOOP,]})",
                loop if isinstance(loop, str) else json.dumps(loop),
            )
        )
    named += [(f" ({OPTIONS.path})", str(text)) for name, text in words if name == LOOP]
    for place, loop in named:
        if loop not in commands.loops():
            why = (
                f"; it cannot be loaded: {commands.unloaded()[loop]}"
                if loop in commands.unloaded()
                else ""
            )
            raise ConfigError(
                LOOP,
                loop,
                f"there is no such loop; choose from: {', '.join(commands.loops())}{place}{why}",
            )
    return named[-1][1]


def show_help(command: str, entry: Loop | Tool, option: str) -> NoReturn:
    """Print the keys of a loop or tool, or for ``--KEY.help`` those of the section that may stand
    at KEY, and exit."""
    kind, key = commands.load_config_class(entry), option.removesuffix("help").removesuffix(".")
    annotation = dict(list_keys(kind)).get(key)
    if not key:
        text = _help_of(command, entry)
    elif section := section_of(annotation):
        text = _help(section, f"stageb {command} [--{key}.NAME VALUE ...]", key)
    elif item := section_of(inner_of(annotation, list)):
        text = _help(item, f'stageb {command} --{key} "[{{NAME: VALUE, ...}}, ...]"')
        # keys in braces are no options
        text = re.sub(r", --\S+\+ \S+", "", text).replace("\n  --", "\n    ")
    else:
        raise InputError(
            f"unrecognized arguments: --{shown(option, 60)}; stageb {command} --help lists all keys"
        )
    sys.stdout.write(text)
    sys.exit(0)


def _help_of(command: str, entry: Loop | Tool) -> str:
    """The keys of a loop or tool, and what its command takes beside."""
    flags = {"--print_config": "Print every key with its value, and exit."}
    if command == "fit" or (isinstance(entry, Tool) and entry.fresh):
        flags["--fresh"] = "Start anew; what an earlier call left is set aside."
    if command == "fit" and issubclass(commands.load_config_class(entry), LearningConfig):
        flags["--seeds N"] = "So many runs, seed after seed; then a table and a picture."
    loop, epilog = "", None
    if isinstance(entry, Loop):
        loop, table = (
            " [--loop NAME]",
            "\n".join(f"  {name:<12}{each.summary}" for name, each in commands.loops().items()),
        )
        name = next(name for name, each in commands.loops().items() if each is entry)
        epilog = (
            f"loops:\n{table}\n\nstageb {command} --loop NAME --help lists a loop's keys; "
            f"these are those of {name}."
        )
    usage = (
        f"stageb {command}{loop} [--config FILE] [--KEY VALUE ...] "
        f"{' '.join(f'[{flag}]' for flag in flags)}"
    )
    return _help(
        commands.load_config_class(entry),
        usage,
        None,
        flags,
        description=entry.summary,
        epilog=epilog,
    )


def _help(
    kind: type,
    usage: str,
    key: str | None = None,
    flags: Mapping[str, str] = types.MappingProxyType({}),
    description: str | None = None,
    epilog: str | None = None,
) -> str:
    """The keys of the dataclass ``kind``, which stands at ``key``; of a whole command also its
    ``flags``."""
    from jsonargparse import ArgumentParser, DefaultHelpFormatter, set_parsing_settings

    class Formatter(DefaultHelpFormatter, argparse.RawDescriptionHelpFormatter):
        """Keeps the lines of the table of loops."""

    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = ArgumentParser(
        None, usage, description, epilog, formatter_class=Formatter, add_help=bool(flags)
    )
    if flags:
        about = "A YAML file of keys, or the name of a config that ships; what follows wins."
        parser.add_argument("--config", metavar="FILE", help=about, default=argparse.SUPPRESS)
    for flag, about in flags.items():
        name, _, metavar = flag.partition(" ")
        takes: dict[str, Any] = {"metavar": metavar} if metavar else {"action": "store_true"}
        parser.add_argument(name, help=about, default=argparse.SUPPRESS, **takes)
    parser.add_class_arguments(kind, nested_key=key)
    sections = {
        f"{key}.{name}" if key else name
        for name, annotation in list_keys(kind)
        if dataclasses.is_dataclass(annotation)
    }
    for action in parser._actions:
        # jsonargparse would take a file's path there, a Draft takes pairs
        if action.dest in {*sections, key}:
            action.metavar, action.help = "NAME=VALUE,...", "Several of these at once."
    return str(parser.format_help())
