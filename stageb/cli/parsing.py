"""From a command line to a frozen config: which loop it is for, its files and options in order, and the help screens.

The standard library and PyYAML alone are imported here, and jsonargparse for a help screen: a question must not wait for
torch.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from stageb.cli import registry
from stageb.cli.draft import LOOP, Draft, dotted, inner_of, section_of
from stageb.cli.registry import Loop, Tool
from stageb.errors import BadInputError, BadLine, ConfigError, InputError, shown
from stageb.store import trust
from stageb.untrusted import strict_yaml
from stageb.untrusted.strict_yaml import YamlError

FLAGS = ("help", "print_config", "fresh")  # options without a value
KEYWORDS = "keywords"  # stands for the file's name where a Python caller gives keys
MAX_FILE_BYTES = 256 * 1024  # of a config file; one with every key is a hundredth of this


class WordParser(argparse.ArgumentParser):
    """For a command that reads its words itself: refuses as every command does, with ``InputError``."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {shown(message, 300)}; {self.prog} --help says what it takes")


@dataclass(frozen=True)
class Asked:
    """What a command line asks for."""

    loop: str
    config: Any  # the loop's frozen dataclass
    resolved_yaml: str  # the same with every key, as ``--config`` reads it
    fresh: bool  # whether to start anew; about this one call, and so no key


def parse(arguments: Sequence[str], command: str = "fit") -> Asked:
    """What ``arguments`` ask for, of fit or of another ``command`` with its keys. Raises ``InputError``; ``--help`` and
    ``--print_config`` print and exit."""
    options = list(split(arguments))
    files = {path: read_file(str(path)) for name, path in options if name == "config"}
    loop = chosen_loop(options, files)
    table = "\n".join(f"  {name:<12}{entry.summary}" for name, entry in registry.LOOPS.items())
    screen = Screen(
        name=command,
        usage=f"stageb {command} [--loop NAME] [--config FILE] [--KEY VALUE ...] [--print_config] [--fresh]",
        epilog=f"loops:\n{table}\n\nstageb {command} --loop NAME --help lists a loop's keys; these are those of {loop}.",
        fresh=command == "fit",
    )
    config, resolved_yaml = config_from(registry.LOOPS[loop], options, files, screen)
    return Asked(loop, config, resolved_yaml, any(name == "fresh" for name, _ in options))


def parse_run(folder: Path) -> Asked:
    """What the run in ``folder`` was asked for. Raises ``InputError`` where no run lies there.

    The config says what the run was, and anybody may have written it: ``trust.py`` tells what a command may act upon.
    """
    config = folder / "config.yaml"
    if not config.exists():
        raise InputError(shown(f"{folder}: no run lies there (it would hold config.yaml); name the folder of one"))
    return parse([f"--config={trust.file_of(folder, config)}"])


def parse_tool(name: str, tool: Tool, arguments: Sequence[str]) -> tuple[Any, str, bool]:
    """A tool's config, the same as YAML text, and whether to start anew. Raises and exits as ``parse`` does."""
    options = list(split(arguments))
    files = {path: read_file(str(path)) for option, path in options if option == "config"}
    fresh = any(option == "fresh" for option, _ in options)
    if fresh and not tool.fresh:
        raise InputError(f"unrecognized arguments: --fresh; stageb {name} --help lists all options")
    usage = f"stageb {name} [--config FILE] [--KEY VALUE ...] [--print_config]{' [--fresh]' * tool.fresh}"
    config, resolved_yaml = config_from(tool, options, files, Screen(name, usage, epilog="", fresh=tool.fresh))
    return config, resolved_yaml, fresh


def from_keywords(name: str, entry: Loop | Tool, keywords: Mapping[str, Any]) -> Any:
    """The config that a Python caller gives: keys by name, sections as mappings, ``config`` a YAML file beneath them.

    Raises ``InputError`` as ``parse`` does.
    """
    path = keywords.get("config")
    given = {key: value for key, value in keywords.items() if key != "config"}
    try:
        node = strict_yaml.compose(strict_yaml.dump(plain(given)))
    except (yaml.YAMLError, YamlError) as error:
        raise InputError(f"stageb.{name}: {error}; give keys as stageb {name} --help lists them") from None
    files: dict[str | None, yaml.MappingNode] = {} if path is None else {str(path): read_file(str(path))}
    options = [*(("config", file) for file in files), *([("config", KEYWORDS)] if given else [])]
    return drafted(entry, options, files | {KEYWORDS: node}).build()


def plain(value: Any) -> Any:
    """``value`` as YAML can hold it: sections as mappings, paths as texts, tuples as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, Path) else value


@dataclass(frozen=True)
class Screen:
    """What a help screen says of a command, beside its keys."""

    name: str
    usage: str
    epilog: str = ""
    fresh: bool = False  # whether it can start anew


def config_from(
    entry: Loop | Tool,
    options: Sequence[tuple[str, str | None]],
    files: Mapping[str | None, yaml.MappingNode],
    screen: Screen,
) -> tuple[Any, str]:
    """The config that files and options give, in order, and the same as YAML text; or a screen, and the end."""
    names = [name for name, _ in options]
    if asked := next((name for name in names if name == "help" or name.endswith(".help")), None):
        show_help(entry, screen, asked)
    draft = drafted(entry, options, files)
    resolved_yaml = strict_yaml.dump(draft.values)
    if "print_config" in names:
        sys.stdout.write(resolved_yaml)
        sys.exit(0)
    return draft.build(), resolved_yaml


def drafted(
    entry: Loop | Tool, options: Sequence[tuple[str, str | None]], files: Mapping[str | None, yaml.MappingNode]
) -> Draft:
    """The values that files and options give, in order, on the defaults or on what an entry lays beneath."""

    def read(beneath: Mapping[str, Any]) -> Draft:
        draft = Draft(registry.config_of(entry), ["config", *FLAGS], beneath)
        for name, text in options:
            if name == "config":
                draft.add_file(str(text), files[text])
            elif name not in (LOOP, *FLAGS):
                draft.add_option(name, text)
        draft.check()
        return draft

    draft = read({})
    beneath = registry.beneath_of(entry)(draft.values) if isinstance(entry, Tool) and entry.beneath else {}
    if beneath:
        draft = read(beneath)
        trust.check(draft.values)
    return draft


def split(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Every option's name and its value; None where it has none. Raises ``InputError`` for what is no option."""
    rest = list(arguments)
    while rest:
        word = "--help" if rest[0] == "-h" else rest[0]
        name, equals, text = word.removeprefix("--").partition("=")
        name = "log_level" if name == "log-level" else name  # as commands everywhere spell it
        if not word.startswith("--") or not name:
            told = shown(" ".join(word.split()), 60) or "''"
            raise InputError(f"unrecognized arguments: {told}; every option is --KEY VALUE, a list one value: [a, b]")
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


def read_file(path: str) -> yaml.MappingNode:
    """The keys of a config file, and their values, as nodes."""
    fault: tuple[int, str, str] = 0, "holds no keys", "write one 'key: value' a line (--print_config shows them all)"
    try:
        data = Path(path).read_bytes()
        if len(data) > MAX_FILE_BYTES:
            raise YamlError(0, f"{len(data)} bytes, too many for a config", "name a YAML file after --config")
        root = strict_yaml.compose(data.decode("utf-8"))
        if isinstance(root, yaml.MappingNode):
            return root
    except YamlError as error:
        fault = error.line, error.what, error.remedy
    except (OSError, ValueError) as error:  # a ValueError is about bytes that are no UTF-8, or a name that no file can have
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
        fault = 0, f"cannot be read ({reason})", "name a YAML file after --config"
    raise BadInputError("config file", [BadLine(path, *fault)])


def chosen_loop(options: Sequence[tuple[str, str | None]], files: Mapping[str | None, yaml.MappingNode]) -> str:
    """The loop that the last ``--loop`` names, or else the last file that names one. Raises ``ConfigError``."""
    named = [("", registry.DEFAULT)]
    for path in (text for name, text in options if name == "config"):
        for name, line, value, _ in strict_yaml.entries(files[path]):
            if name == LOOP:
                named.append((f" ({path}:{line})", value.value if isinstance(value, yaml.ScalarNode) else "no name"))
    named += [(" (command line)", str(text)) for name, text in options if name == LOOP]
    for place, loop in named:
        if loop not in registry.LOOPS:
            raise ConfigError(LOOP, loop, f"there is no such loop; choose from: {', '.join(registry.LOOPS)}{place}")
    return named[-1][1]


def show_help(entry: Loop | Tool, screen: Screen, option: str) -> NoReturn:
    """Print the keys of a loop or tool, or for ``--KEY.help`` those of the section that may stand at KEY, and exit."""
    kind, key = registry.config_of(entry), option.removesuffix("help").removesuffix(".")
    known = dict(dotted(kind))
    if not key:
        text = _help(kind, screen, entry.summary)
    elif section := section_of(known.get(key)):
        text = _help(section, Screen(screen.name, f"stageb {screen.name} [--{key}.NAME VALUE ...]"), key=key)
    elif item := section_of(inner_of(known.get(key), list)):
        text = _help(item, Screen(screen.name, f'stageb {screen.name} --{key} "[{{NAME: VALUE, ...}}, ...]"'))
        text = re.sub(r", --\S+\+ \S+", "", text).replace("\n  --", "\n    ")  # keys in braces are no options
    else:
        remedy = f"stageb {screen.name} --help lists all keys"
        raise InputError(f"unrecognized arguments: --{shown(option, 60)}; {remedy}")
    sys.stdout.write(text)
    sys.exit(0)


def _help(kind: type, screen: Screen, summary: str = "", key: str | None = None) -> str:
    """The keys of the dataclass ``kind``, which stands at ``key``; with a ``summary`` also what a command takes beside."""
    from jsonargparse import ArgumentParser, DefaultHelpFormatter, set_parsing_settings

    class Formatter(DefaultHelpFormatter, argparse.RawDescriptionHelpFormatter):
        """Keeps the lines of the table of loops."""

    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = ArgumentParser(
        prog=f"stageb {screen.name}",
        usage=screen.usage,
        description=summary or None,
        epilog=screen.epilog,
        formatter_class=Formatter,
        add_help=bool(summary),
    )
    plain: Any = {"default": argparse.SUPPRESS, "action": "store_true"}
    if summary:
        parser.add_argument(
            "--config", metavar="FILE", help="A YAML file of keys; what follows wins.", default=argparse.SUPPRESS
        )
        parser.add_argument("--print_config", help="Print every key with its value, and exit.", **plain)
    if screen.fresh:
        parser.add_argument("--fresh", help="Start anew; what an earlier call left is set aside.", **plain)
    parser.add_class_arguments(kind, nested_key=key)
    sections = {
        f"{key}.{name}" if key else name for name, annotation in dotted(kind) if dataclasses.is_dataclass(annotation)
    }
    for action in parser._actions:
        if action.dest in {*sections, key}:  # jsonargparse would take a file's path there, a Draft takes pairs
            action.metavar, action.help = "NAME=VALUE,...", "Several of these at once."
    return str(parser.format_help())
