"""Prints how much there is to read in each room, and how much the files must know of others:
``python -m lab.measures``

Tokens are words and signs, so neither wide lines nor short names change them. Names are what a file
takes of the package, each once: those that it imports, and those that it reads from imported
modules (``texts.shorten``).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
OURS = ("stageb", "lab")


def count_tokens(source: str) -> int:
    """Words, numbers and signs of a file, comments and docstrings among them."""
    return len(re.findall(r"\w+|[^\w\s]", source))


def find_names(tree: ast.Module) -> set[str]:
    """Find the names that a file uses from the package, dotted."""
    modules, names = dict[str, str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            ours = [alias for alias in node.names if alias.name.partition(".")[0] in OURS]
            modules |= {alias.asname or alias.name: alias.name for alias in ours}
        elif isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in OURS:
            for alias in node.names:
                dotted = f"{node.module}.{alias.name}"
                if _is_module(dotted):
                    modules[alias.asname or alias.name] = dotted
                else:
                    names.add(dotted)
    read = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules
    )
    return names | {f"{modules[ast.unparse(node.value)]}.{node.attr}" for node in read}


def _is_module(dotted: str) -> bool:
    path = ROOT / dotted.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def _room_of(path: Path) -> str:
    return str(path.parent.relative_to(ROOT))


def main() -> None:
    """Print both tables."""
    tokens, files, names = Counter[str](), Counter[str](), Counter[str]()
    for path in sorted((ROOT / "stageb").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        tokens[_room_of(path)] += count_tokens(source)
        files[_room_of(path)] += 1
        names[str(path.relative_to(ROOT))] = len(find_names(ast.parse(source)))
    print(f"{'room':<36}{'files':>6}{'tokens':>9}")
    for room in sorted(tokens):
        print(f"{room:<36}{files[room]:>6}{tokens[room]:>9,}")
    print(
        f"{'all':<36}{files.total():>6}{tokens.total():>9,}\n\nnames taken of the package, the "
        f"ten files that take most"
    )
    for name, count in names.most_common(10):
        print(f"{count:>4}  {name}")


if __name__ == "__main__":
    main()
