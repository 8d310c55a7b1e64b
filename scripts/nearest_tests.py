"""Prints the test files that are nearest to what has changed, the nearest first: by imports, then by the folder's name.

python scripts/nearest_tests.py [BASE]: changed is what differs from the commit BASE (main), committed or not. A test
file's distance is the number of imports from it to a changed file. Those of the long tier are left out.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import deque
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 40
FAR = 4


def git(*arguments: str, root: Path = ROOT) -> list[str]:
    return subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split()


def changed(base: str) -> set[str]:
    common = git("merge-base", base, "HEAD")[0]
    return {*git("diff", "--name-only", common), *git("ls-files", "--others", "--exclude-standard")}


def module_of(path: str) -> str:
    """The name that a file is imported by; those of tests/ are found without it."""
    return (
        path.removesuffix(".py").removesuffix("/__init__").removeprefix("tests/").replace("/", ".")
    )


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def distances(start: set[str], importers: dict[str, set[str]]) -> dict[str, int]:
    """By module: how many imports lie between it and one of `start`."""
    found = dict.fromkeys(start, 0)
    queue = deque(start)
    while queue:
        module = queue.popleft()
        for importer in importers.get(module, set()) - found.keys():
            found[importer] = found[module] + 1
            queue.append(importer)
    return found


def files_by_distance(changed_files: set[str], root: Path = ROOT) -> list[str]:
    """The test files of both tiers in a checkout that are near to these files, the nearest first."""
    listed = git("ls-files", "-co", "--exclude-standard", "*.py", root=root)
    paths = [path for path in listed if (root / path).exists()]
    importers: dict[str, set[str]] = {}
    for path in paths:
        for name in imported(root / path):
            importers.setdefault(name, set()).add(module_of(path))
    modules = {module_of(path) for path in changed_files if path.endswith(".py")}
    if any(path.startswith("csrc/") for path in changed_files):
        modules.add("fastpipe._engine")
    distance_of = distances(modules, importers)
    folders = {part for path in changed_files for part in Path(path).parts[1:-1]}
    ranked = []
    for path in paths:
        if not Path(path).name.startswith("test_"):
            continue
        in_its_folder = bool(folders & set(Path(path).parts[1:-1]))
        distance = distance_of.get(module_of(path), FAR + 1 - in_its_folder)
        if distance <= FAR:
            ranked.append((distance - in_its_folder, path))
    return [path for _, path in sorted(ranked)]


def main() -> None:
    files = files_by_distance(changed(sys.argv[1] if len(sys.argv) > 1 else "main"))
    gate = [path for path in files if not path.startswith("tests/long/")]
    print("\n".join(gate[:MOST]))


if __name__ == "__main__":
    main()
