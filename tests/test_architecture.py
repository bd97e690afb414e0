"""Who may import whom, and how long things may be. Read from the source, so a rule holds inside
functions too."""

from __future__ import annotations

import ast
import graphlib
import sys
from collections import Counter
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from lab.measures import count_tokens, find_names
from stageb.engines.registry import ENGINES
from stageb.guidance import LOOP
from stageb.guidance.exports.registry import EXPORTERS

ROOT = Path(__file__).parent.parent
MODULES = {
    str(path.relative_to(ROOT).with_suffix("")): path
    for package in ("lab", "stageb")
    for path in sorted((ROOT / package).rglob("*.py"))
}
LOOPS = tuple(sorted(path.parent.name for path in (ROOT / "stageb").glob("*/loop.py")))
ROOT_FILES = 7

# From the ground up: what stands on a floor may import from its own package, and from all floors
# below.
FLOORS = (
    {"errors", "seeds", "settings", "config", "draws", "tiny", "demo"},
    {"store"},
    {"untrusted", "job"},
    {"runs"},
    {"training"},
    {"engines"},
    {"cli"},
    set(LOOPS),
    {"__init__", "__main__"},
)
# Inside a package: what stands in a room may import from that and from those before it, in
# functions too.
ROOMS = {
    "guidance": (
        *({"words", "config"}, {"rules"}, {"exports"}, {"tickets"}),
        *({"judging"}, {"learning"}, {"commands"}, {"loop", "start"}),
    ),
    "two_channel": (
        {"types", "config"},
        {"boxes"},
        {"model"},
        {"learning"},
        {"commands"},
        {"loop"},
    ),
    "engines": (
        {"config", "protocol", "registry"},
        {"chat"},
        {"native", "remote"},
        {"outline", "scripted"},
    ),
}
# How many files the package may have. Lines are no measure: a limit on them made lines wide and
# packed.
FILES = 346
# It names what stands above it in strings, so that nothing is imported before it is needed.
REGISTRY = "stageb/__init__"

# Of loop two_channel.
TORCHLESS = (
    "__init__ boxes/augmentation commands/boxes commands/card commands/run config "
    "learning/targets boxes/data boxes/imports boxes/formats learning/schedule boxes/text types"
).split()

# Of things that there are several of: each, and the files that may name one. Adding one touches its
# own file and its table.
SEVERAL = {
    # the latter is made of SQL
    "an export": (EXPORTERS.values(), {"guidance/exports/registry", "guidance/exports/dbt"}),
    "an engine": (
        [engine.build for engine in ENGINES.values()],
        # which explains what a checkpoint lacks
        {"engines/registry", "engines/native/api", "engines/outline"},
    ),
    "a command": (
        [tool.run for tool in LOOP.tools.values()],
        {
            "guidance/__init__",
            "__init__",
            *(f"guidance/commands/use/{name}" for name in ("automate", "evaluate", "fit")),
        },
        # the others offer some to Python, or judge as predict does
    ),
    "an environment": (
        ("stageb.ppo.envs.snake", "stageb.ppo.envs.twenty48"),
        {"ppo/make", "ppo/envs/snake_agent", "ppo/envs/snake_gym"},  # of Snake
    ),
}

# The first pattern that fits a module names all that it may import beside stageb, lab and the
# standard library.
THIRD_PARTY = {
    "stageb/cli/parsing": {"jsonargparse"},
    "stageb/cli/sweep": {"optuna"},
    "stageb/untrusted/strict_yaml": {"yaml"},
    "stageb/job/world": {"torch"},
    "stageb/untrusted/pictures": {"PIL"},
    "stageb/runs/loggers": {"lightning", "lightning_fabric"},
    "stageb/runs/progress": {"rich"},
    "stageb/runs/figures": {"matplotlib", "rich"},
    "stageb/job/placement": {"lightning_fabric", "torch"},
    "stageb/job/devices": {"torch"},
    "stageb/draws": {"torch"},
    "stageb/training/step": {"torch"},
    "stageb/training/ppo": {"torch"},
    "stageb/training/run": {"safetensors", "torch"},
    "stageb/ppo/export": {"onnxruntime", "torch"},
    "stageb/*/loop": {"torch"},
    "stageb/guidance/*progress": {"rich"},
    "stageb/untrusted/workbook": {"pyarrow", "python_calamine"},
    "stageb/guidance/exports/sheet": {"xlsxwriter"},
    "stageb/guidance/learning/calibrate": {"numpy"},
    "stageb/guidance/learning/terms": {"numpy"},
    "stageb/guidance/learning/compared_cards": {"numpy"},
    "stageb/guidance/learning/lists": {"numpy"},
    "stageb/guidance/learning/material": {"numpy"},
    "stageb/guidance/learning/scales": {"numpy"},
    "stageb/guidance/learning/scorecards": {"numpy"},
    "stageb/guidance/learning/word_choice": {"numpy"},
    "stageb/*/accuracies": {"rich"},
    "stageb/*/summary": {"rich"},
    "stageb/*/report/charts": {"matplotlib"},
    "stageb/*/report/page": {"jinja2"},
    "stageb/*/audit/page": {"matplotlib"},
    "stageb/*/serve/app": {"starlette"},
    "stageb/*/serve/main": {"h11", "uvicorn"},
    "stageb/engines/config": {"transformers"},
    "stageb/engines/protocol": set[str](),
    "stageb/engines/scripted": set[str](),
    "stageb/engines/remote/openai": {"transformers"},
    "stageb/engines/native/kernels": {"torch", "triton"},
    "stageb/engines/*": {
        "huggingface_hub",
        "jinja2",
        "numpy",
        "safetensors",
        "tokenizers",
        "torch",
        "transformers",
    },
    "stageb/ppo/__init__": set[str](),
    "stageb/ppo/config": set[str](),
    "stageb/ppo/schedule": set[str](),
    "stageb/ppo/make": {"torch"},
    "stageb/ppo/envs/gym": {"PIL", "gymnasium", "numpy", "torch"},
    "stageb/ppo/envs/gym_*": {"gymnasium", "numpy"},
    "stageb/ppo/envs/snake_gym": {"gymnasium", "numpy", "torch"},
    "stageb/ppo/envs/snake": {"PIL", "torch"},
    "stageb/ppo/play": {"PIL", "torch"},
    "stageb/ppo/envs/twenty48": {"PIL", "torch"},
    "stageb/ppo/*": {"safetensors", "torch"},
    "stageb/guidance/commands/use/classifier": {"numpy", "sklearn"},
    "stageb/guidance/commands/use/black_box": {"sklearn", "threadpoolctl"},
    "stageb/growth/__init__": set[str](),
    "stageb/growth/config": set[str](),
    "stageb/growth/lifecycle": set[str](),
    "stageb/growth/views": set[str](),
    "stageb/growth/types": set[str](),
    "stageb/growth/tasks": {"sklearn", "torch"},
    "stageb/growth/compare": {"matplotlib"},
    "stageb/growth/play": {"matplotlib", "torch"},
    "stageb/growth/*": {"safetensors", "torch"},
    "stageb/two_channel/model/adapters": {"peft", "torch"},
    "stageb/two_channel/model/views": {"numpy", "torch"},
    "stageb/two_channel/learning/learner": {"torch", "transformers"},
    "stageb/two_channel/boxes/metrics": {"faster_coco_eval", "numpy", "scipy"},
    "stageb/two_channel/model/model": {"tokenizers", "torch", "transformers"},
    "stageb/two_channel/boxes/drawing": {"PIL"},
    "stageb/two_channel/boxes/shapes": {"PIL"},
    "stageb/two_channel/model/tower": {"torch", "transformers"},
    "stageb/two_channel/learning/recorded": {"torch", "transformers"},
    **{f"stageb/two_channel/{name}": set[str]() for name in TORCHLESS},
    "stageb/two_channel/*": {"safetensors", "torch"},
    "stageb/*": set[str](),
    "lab/bench/__init__": set[str](),
    "lab/bench/__main__": set[str](),
    "lab/bench/learning/*": {"gepa", "matplotlib", "scipy", "sklearn", "torch"},
    "lab/bench/automate": {"mapie", "numpy", "sklearn", "sureband"},
    "lab/bench/lake": {"duckdb"},
    "lab/bench/peers": {"matplotlib"},
    "lab/bench/rivals": {
        "fasterrisk",
        "imodels",
        "interpret",
        "numpy",
        "pandas",
        "pystreed",
        "wittgenstein",
    },
    "lab/bench/snake_sb3": {"numpy", "stable_baselines3", "torch"},
    "lab/bench/games": {"gymnasium", "numpy", "stable_baselines3", "torch"},
    "lab/bench/snake*": {"gymnasium", "numpy", "torch"},
    "lab/models/*": {"torch", "transformers"},
    "lab/bench/*": {"numpy", "tokenizers", "torch", "transformers"},
    "lab/tiny/*": {"numpy", "safetensors", "tokenizers", "torch", "transformers"},
    "lab/*": set[str](),
}

# What the command line loads before it knows that there is work to do. They import one another and
# nothing else of stageb.
LIGHT = {
    f"stageb/{name}"
    for name in (
        "__init__ __main__ cli/__init__ cli/doctor cli/draft cli/commands cli/parsing config "
        "engines/__init__ "
        "engines/config engines/protocol engines/registry errors growth/__init__ growth/config "
        "growth/types guidance/__init__ "
        "guidance/commands/__init__ guidance/commands/use/__init__ guidance/commands/use/config "
        "guidance/rules/__init__ guidance/rules/conditions/__init__ guidance/rules/conditions/base "
        "guidance/rules/conditions/logic "
        "guidance/rules/conditions/numbers guidance/rules/conditions/pairs "
        "guidance/rules/conditions/values guidance/rules/conditions/words "
        "guidance/rules/candidates guidance/rules/evidence guidance/rules/fields "
        "guidance/rules/limits guidance/rules/predicates "
        "guidance/rules/prompts guidance/rules/value_types guidance/rules/wordings "
        "guidance/words/__init__ guidance/words/automation "
        "guidance/words/calibration guidance/words/column_names guidance/words/costs "
        "guidance/config guidance/words/former_keys guidance/words/labels guidance/words/texts "
        "guidance/words/types "
        "job/__init__ job/devices job/heartbeat job/lifetime job/process ppo/__init__ ppo/config "
        "runs/__init__ runs/figures "
        "seeds settings store/__init__ store/disk store/trust tiny/__init__ "
        "two_channel/__init__ two_channel/config "
        "untrusted/__init__ untrusted/clean_text untrusted/strict_yaml"
    ).split()
}

# Functions of their arguments: no clock, no file, no rank, no global random state.
STAGES = {
    "guidance": (
        "judging/rollout judging/answers judging/selection rules/prompts words/texts "
        "learning/bundles learning/at_once "
        "learning/proof learning/teacher learning/gathering learning/preparing "
        "learning/stacking learning/transitions "
        "learning/schedule tickets/splits learning/reflect learning/proposals rules/edits "
        "rules/candidates "
        "rules/evidence rules/fields rules/value_types rules/vocabulary rules/parse "
        "rules/conditions/base "
        "rules/conditions/logic rules/conditions/numbers rules/conditions/pairs "
        "rules/conditions/values rules/conditions/words rules/judge "
        "learning/gate/sequential learning/gate/race learning/gate/decide commands/use/compare"
    ).split(),
    "two_channel": (
        "boxes/text boxes/metrics boxes/augmentation learning/targets learning/losses "
        "learning/packing learning/schedule"
    ).split(),
    "ppo": "envs/snake envs/snake_agent envs/twenty48 agents environment rollout schedule".split(),
    "growth": ("blueprints hosts blocks lifecycle training tasks observation views policy").split(),
}
# loops that learn weights: their stages are functions of tensors
TENSORS = ("ppo", "growth", "two_channel")
WORLDLY = set(
    "datetime os pathlib random secrets socket subprocess tempfile threading time torch".split()
)
WORLDLY_HERE = {
    "stageb/store/journal",
    "stageb/store/taking",
    *(f"stageb/job/{name}" for name in ("lifetime", "placement", "watchdog", "world")),
}

# In tokens, since a limit on lines makes them wide; some 500 and 80 lines.
FILE_TOKENS, FUNCTION_TOKENS, PARAMETERS = 6200, 1050, 6
# Its functions are exempt: a Triton kernel is one function, which gets each tensor, size and
# constant as an argument.
KERNELS = "stageb/engines/native/kernels"

NAMES = 30  # that a file may take of the package
# The files that took more when this limit was set, and how many. A figure may only fall: cut a file
# that needs one more, or ask a file that knows them all. A file within the limit leaves this table.
TAKING_MORE = {"stageb/guidance/loop": 35}


@cache
def tree_of(module: str) -> ast.Module:
    """The source, read."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@cache
def nodes_of(module: str) -> tuple[ast.AST, ...]:
    """All that the source holds; to walk it costs more than to look at each."""
    return tuple(ast.walk(tree_of(module)))


@cache
def imports(module: str, at_once: bool = False) -> list[tuple[str, int]]:
    """What ``module`` imports, as dotted names with lines; names behind ``if TYPE_CHECKING`` are
    left out. ``at_once``: only what it imports as it is imported itself, rather than later, in a
    function."""
    nodes = nodes_of(module)
    later = (ast.FunctionDef, ast.AsyncFunctionDef) if at_once else ()
    skipped = {
        inner
        for node in nodes
        if isinstance(node, later)
        or (isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    found = []
    for node in nodes:
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: write imports in full"
            # `from stageb import seeds` names a module too
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(name, node.lineno) for name in (str(node.module), *filter(module_of, inner))]
    return found


def module_of(dotted: str) -> str | None:
    """The file of stageb or lab that a dotted name means, or None."""
    path = dotted.replace(".", "/")
    return next((name for name in (path, f"{path}/__init__") if name in MODULES), None)


def test_a_module_imports_only_what_its_place_allows() -> None:
    known = {"stageb", "lab", *sys.stdlib_module_names}
    for module in MODULES:
        allowed = known | next(
            names for pattern, names in THIRD_PARTY.items() if fnmatch(module, pattern)
        )
        for name, line in imports(module):
            assert name.partition(".")[0] in allowed, f"{module}:{line} imports {name}"


def test_what_is_installed_needs_nothing_that_stays_in_the_repository() -> None:
    for module in [module for module in MODULES if module.startswith("stageb/")]:
        for name, line in imports(module):
            assert name.partition(".")[0] != "lab", f"{module}:{line} imports {name}"
        # "lab.module:function" would be imported by its name
        for node in nodes_of(module):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not node.value.startswith("lab."), (
                    f"{module}:{node.lineno} names {node.value}"
                )


def test_what_answers_help_imports_nothing_heavy() -> None:
    for module in sorted(LIGHT):
        for name, line in imports(module):
            if name.partition(".")[0] == "stageb":
                assert module_of(name) in LIGHT, f"{module}:{line} imports {name}"


def test_a_stage_is_a_function_of_its_arguments() -> None:
    for module in [f"stageb/{loop}/{stage}" for loop, stages in STAGES.items() for stage in stages]:
        worldly = WORLDLY - {"torch"} if module.split("/")[1] in TENSORS else WORLDLY
        for name, line in imports(module):
            assert name.partition(".")[0] not in worldly, f"{module}:{line} imports {name}"
            assert module_of(name) not in WORLDLY_HERE, f"{module}:{line} imports {name}"
        for node in nodes_of(module):
            called = (
                node.func.id
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                else ""
            )
            assert called not in ("open", "print", "input"), f"{module} calls {called}"


def test_imports_go_one_way() -> None:
    """No module needs, as it is imported, one that needs it: what stands low knows nothing of what
    stands above."""
    graph = {
        module: {
            found
            for name, _ in imports(module, at_once=True)
            if (found := module_of(name)) and found != module
        }
        for module in MODULES
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which shows the circle


def test_only_conditions_tell_of_which_kind_they_are() -> None:
    """Each kind is a class in ``rules/conditions/``. Where others asked for it, each new one would
    change all of these."""
    room, bases = "stageb.guidance.rules.conditions", {"Condition", "Expression"}
    inside = [module for module in MODULES if module.startswith(room.replace(".", "/"))]
    classes = [
        node for module in inside for node in tree_of(module).body if isinstance(node, ast.ClassDef)
    ]
    kinds = set[str]()
    while (
        found := {
            each.name
            for each in classes
            if {ast.unparse(base) for base in each.bases} & (bases | kinds)
        }
        - kinds
    ):
        kinds |= found
    kinds -= bases
    assert {"Limit", "Mentions", "Not", "OneOf", "Points"} <= kinds
    for module in [name for name in MODULES if name.startswith("stageb/") and name not in inside]:
        named = {
            alias.asname or alias.name
            for node in nodes_of(module)
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(room)
            for alias in node.names
        }
        for node in [
            each for each in nodes_of(module) if isinstance(each, ast.Call | ast.MatchClass)
        ]:
            asked: list[ast.AST] = []
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "isinstance",
                "issubclass",
                "type",
            ):
                asked = [*node.args[1:]]
            elif isinstance(node, ast.MatchClass):
                asked = [node.cls]
            told = {
                each.id for part in asked for each in ast.walk(part) if isinstance(each, ast.Name)
            }
            assert not told & named & kinds, (
                f"{module}:{node.lineno} asks for {told & kinds}: give it a method"
            )


def test_fabrics_collectives_of_data_are_called_in_one_place() -> None:
    """They pass text through ungathered, and die of unequal shapes; ``World`` knows how to use
    them, and is watched."""
    for module in MODULES:
        if module == "stageb/job/world":
            continue
        for node in nodes_of(module):
            if isinstance(node, ast.Attribute) and node.attr in ("broadcast", "all_gather"):
                assert not ast.unparse(node.value).endswith("fabric"), (
                    f"{module}:{node.lineno} calls {ast.unparse(node)}"
                )


def test_loops_do_not_know_each_other() -> None:
    for module in MODULES:
        loop = module.split("/")[1]
        if loop not in LOOPS:
            continue
        for name, line in imports(module):
            other = [*name.split("."), ""][1]
            assert other == loop or other not in LOOPS, f"{module}:{line} imports {name}"


@cache
def named_by(module: str) -> set[str]:
    """The files that a file imports, or names in strings."""
    strings = (node.value for node in nodes_of(module) if isinstance(node, ast.Constant))
    dotted = [name for name, _ in imports(module)] + [
        each.partition(":")[0] for each in strings if isinstance(each, str)
    ]
    return set(filter(None, map(module_of, dotted)))


@pytest.mark.parametrize("kind", SEVERAL)
def test_one_of_several_is_named_by_its_table_alone(kind: str) -> None:
    """A loop is a folder that nothing names: see
    ``test_what_stands_low_knows_nothing_of_what_stands_above``."""
    several, tables = SEVERAL[kind]
    homes = {str(module_of(dotted.partition(":")[0])) for dotted in several}
    for module in [module for module in MODULES if module.startswith("stageb/")]:
        if module.removeprefix("stageb/") not in tables:
            assert named_by(module) & homes - {module} == set(), f"{module} names {kind}"


def test_loops_take_of_the_default_engine_what_it_offers() -> None:
    for module in [module for module in MODULES if module.split("/")[1] in LOOPS]:
        for name, line in imports(module):
            inside = (
                name.startswith("stageb.engines.native") and name != "stageb.engines.native.api"
            )
            assert not inside, (
                f"{module}:{line} imports {name}: take it from stageb.engines.native.api, or "
                f"offer it there"
            )


def floor_of(module: str) -> int:
    """The floor that a file of stageb stands on."""
    place = module.split("/")[1]
    return next(floor for floor, places in enumerate(FLOORS) if place in places)


def test_what_stands_low_knows_nothing_of_what_stands_above() -> None:
    """Names in strings count: they are imported too, only later."""
    for module in [module for module in MODULES if module.startswith("stageb/")]:
        place, floor = module.split("/")[1], floor_of(module)
        named = [
            (node.value.partition(":")[0], node.lineno)
            for node in nodes_of(module)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and module != REGISTRY
        ]
        for name, line in [*imports(module), *named]:
            found = module_of(name)
            if (
                not found
                or not found.startswith("stageb/")
                or found == "stageb/__init__"
                or found.split("/")[1] == place
            ):
                continue
            assert floor_of(found) < floor or floor_of(found) == floor == 0, (
                f"{module}:{line} names {name}"
            )


def test_the_root_of_the_package_is_small() -> None:
    files = [path.name for path in (ROOT / "stageb").glob("*.py")]
    assert len(files) <= ROOT_FILES, (
        f"{len(files)} files in stageb/, at most {ROOT_FILES}: {sorted(files)}"
    )


def room_of(module: str) -> int:
    """The room of its package that a file stands in."""
    _, package, place, *_ = module.split("/")
    rooms = [number for number, places in enumerate(ROOMS[package]) if place in places]
    assert rooms, (
        f"{module} stands in no room of {package}: move it into one, or give it a place in ROOMS"
    )
    return rooms[0]


def test_what_stands_in_a_low_room_knows_nothing_of_those_above() -> None:
    for module in [name for name in MODULES if name.split("/")[1] in ROOMS and name.count("/") > 1]:
        package, place = module.split("/")[1:3]
        for name, line in imports(module) if place != "__init__" else ():
            found = module_of(name)
            if (
                found
                and found.startswith(f"stageb/{package}/")
                and found.split("/")[2] != "__init__"
            ):
                assert room_of(found) <= room_of(module), (
                    f"{module}:{line} imports {name}, which stands above"
                )


def test_the_package_does_not_grow() -> None:
    files = [name for name in MODULES if name.startswith("stageb/")]
    assert len(files) <= FILES, (
        f"stageb/ has {len(files)} files, at most {FILES}: which one can take yours, or go?"
    )


def test_a_file_knows_few_names_of_others() -> None:
    """``python -m lab.measures`` counts them, too."""
    taken = {module: len(find_names(tree_of(module))) for module in MODULES}
    for module, count in taken.items():
        most = TAKING_MORE.get(module, NAMES)
        assert count <= most, f"{module} takes {count} names of the package, at most {most}"
    assert [module for module in TAKING_MORE if taken.get(module, 0) <= NAMES] == [], (
        "these need no exception any more"
    )


def test_random_choices_come_from_seeds_alone() -> None:
    """The shipped model's training, which no run repeats, is the exception."""
    users = [module for module in MODULES for name, _ in imports(module) if name == "random"]
    assert [module for module in users if not module.startswith("lab/tiny/")] == []


def test_files_functions_and_parameter_lists_are_short() -> None:
    """``self`` and ``cls`` are no parameters here; those behind a ``*`` are."""
    for module in MODULES:
        source = MODULES[module].read_text(encoding="utf-8")
        tokens = count_tokens(source)
        assert tokens <= FILE_TOKENS, f"{module}: {tokens} tokens, at most {FILE_TOKENS}"
        for node in nodes_of(module) if module != KERNELS else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
                tokens = count_tokens("\n".join(lines))
                assert tokens <= FUNCTION_TOKENS, (
                    f"{module}: {node.name} has {tokens} tokens, at most {FUNCTION_TOKENS}"
                )
                names = {
                    each.arg
                    for each in ast.iter_child_nodes(node.args)
                    if isinstance(each, ast.arg)
                } - {"self", "cls"}
                assert len(names) <= PARAMETERS, (
                    f"{module}: {node.name} has {len(names)} parameters, at most {PARAMETERS}"
                )


def test_no_two_classes_have_one_name() -> None:
    """Who searches for one would find the other."""
    named = Counter(
        node.name
        for module in MODULES
        if module.startswith("stageb/")
        for node in nodes_of(module)
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in named.items() if count > 1] == []


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest imports them by their names alone, and refuses the second."""
    names = sorted(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert names == sorted(set(names))
