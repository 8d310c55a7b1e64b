"""Imports go down the layers: read from the sources of every fastpipe module, none of which is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "fastpipe"

# From the bottom up, in the words of docs/architecture.md; L2 is a small stack of its own. An entry is a
# module or a package of fastpipe/; `__init__` is the namespace `fastpipe` itself. It imports only from the
# sets before its own, save that those of TOP may import one another without a cycle.
TOP = {
    "pack",
    "bench",
    "demo",
    "doctor",
    "inspection",
    "preview",
    "progress",
    "sheet",
    "shuffle_score",
    "tables",
    "verify",
}
LAYERS: tuple[set[str], ...] = (
    {"cgroups", "errors", "format", "draws", "names", "limits", "shards"},  # L0
    {"cpus"},
    {"rows"},  # L1: of an index,
    {"index", "config", "machine"},  # what is known of a dataset, of the options and of the machine
    {"crops", "order", "partition"},  # L2: what a plan is made of,
    {"readahead"},  # and what is read for it,
    {"plan"},  # the plan,
    {"watchdog"},  # what is looked at while it is carried out,
    {"engine", "pictures"},  # and what carries it out; single pictures, without a plan
    {"slots", "staging", "state", "streams", "stats", "ranks", "transform", "worker"},  # L3: memory, queues, figures,
    {"augment", "advice"},  # what is done on the device,
    {"transfer"},  # and the way there
    {"epoch"},  # L4: an epoch's batches,
    {"upcoming"},  # the next epoch's,
    {"course"},  # which one comes next,
    {"delivery"},  # how its batches are handed out,
    {"loader", "dataset"},  # and what hands out epochs
    {"monitoring", "prometheus", "diagnosis"},  # and looks at it, or at a loader of others
    {"__init__"},  # the public names
    TOP,  # L5
    {"cli", "__main__"},
)
LAYER = {entry: number for number, entries in enumerate(LAYERS) for entry in entries}

# What only some entries may import: the first part of a third-party name, or the extension.
RESERVED = {
    "torch": {entry for entry, layer in LAYER.items() if layer >= LAYER["slots"]},
    "kornia": {"augment"},
    "cv2": {"pack", "bench", "demo", "doctor", "sheet"},
    "turbojpeg": {"pack", "bench", "demo"},
    "webdataset": {"pack", "bench", "demo"},
    "PIL": {"bench"},
    "prometheus_client": {"prometheus"},
    "fastpipe._engine": {"rows", "engine", "pictures", "pack"},
}


def dotted(path: Path) -> str:
    """The module's name: fastpipe/pack/__init__.py is fastpipe.pack."""
    parts = ("fastpipe", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def entry_of(module: str) -> str:
    """The entry of LAYERS that a fastpipe module belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


MODULES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}
KNOWN = MODULES.keys() | {"fastpipe._engine"}


def imports(source: str, module: str, *, is_package: bool) -> Iterator[tuple[int, str]]:
    """Every import of a source, in functions and under TYPE_CHECKING too: its line and the full name.

    `from fastpipe import x` is of `fastpipe.x` where that is a module, else of `fastpipe`, which has an x.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                inside = module.split(".") if is_package else module.split(".")[:-1]
                parents = inside[: len(inside) - node.level + 1]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield node.lineno, inner if inner in KNOWN else base


def complaints(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """What a module imports against the rules, a sentence each."""
    entry, found = entry_of(module), []
    for line, name in imports(source, module, is_package=is_package):
        reserved = name if name == "fastpipe._engine" else name.split(".")[0]
        if reserved in RESERVED and entry not in RESERVED[reserved]:
            allowed = ", ".join(sorted(RESERVED[reserved]))
            found.append(f"line {line}: {reserved} may be imported only by {allowed}; not by {module}")
        if name.split(".")[0] != "fastpipe" or name == "fastpipe._engine":
            continue
        target = entry_of(name)
        if target not in LAYER:
            found.append(f"line {line}: {name} is in no layer; add {target!r} to LAYERS")
        elif target != entry and not (target in TOP and entry in TOP) and LAYER[target] >= LAYER[entry]:
            found.append(f"line {line}: {module} imports {name}, which is not in a layer below it")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down(module: str) -> None:
    path = MODULES[module]
    assert entry_of(module) in LAYER, (
        f"{path.relative_to(PACKAGE.parent)} is in no layer: add {entry_of(module)!r} to LAYERS "
        f"in tests/{Path(__file__).name} and to docs/architecture.md"
    )
    found = complaints(path.read_text(encoding="utf-8"), module, is_package=path.name == "__init__.py")
    assert not found, f"{path.relative_to(PACKAGE.parent)}:\n" + "\n".join(found)


def test_top_layer_has_no_cycle() -> None:
    below: dict[str, set[str]] = {entry: set() for entry in TOP}
    for module, path in MODULES.items():
        entry = entry_of(module)
        if entry in TOP:
            source = path.read_text(encoding="utf-8")
            for _, name in imports(source, module, is_package=path.name == "__init__.py"):
                if name.startswith("fastpipe.") and entry_of(name) in TOP - {entry}:
                    below[entry].add(entry_of(name))
    # Take away what imports nothing that is left, until nothing is left or a cycle remains.
    while free := [entry for entry, targets in below.items() if not targets & below.keys()]:
        for entry in free:
            del below[entry]
    assert not below, f"these import one another in a circle: {below}"


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("fastpipe.index", "from fastpipe.loader import Loader", "imports fastpipe.loader"),
        ("fastpipe.index", "from fastpipe.config import Config", "imports fastpipe.config"),
        ("fastpipe.plan", "from .loader import Loader", "imports fastpipe.loader"),
        ("fastpipe.errors", "import fastpipe", "imports fastpipe, which"),
        (
            "fastpipe.loader",
            "def f():\n    from fastpipe.pack import pack",
            "line 2: fastpipe.loader imports",
        ),
        ("fastpipe.pack.work", "from ..cli import main", "imports fastpipe.cli"),
        ("fastpipe.cli", "import fastpipe.novelty", "in no layer"),
        ("fastpipe.plan", "import torch.nn", "torch may be imported only by"),
        ("fastpipe.loader", "import kornia", "kornia may be imported only by augment"),
        ("fastpipe.demo.scene", "import PIL.Image", "PIL may be imported only by bench"),
        ("fastpipe.slots", "import fastpipe._engine", "fastpipe._engine may be imported only by"),
    ],
)
def test_forbidden_imports_are_seen(module: str, source: str, complaint: str) -> None:
    found = complaints(source, module)
    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fastpipe.engine", "from fastpipe import _engine\nfrom fastpipe.plan import BatchPlan"),
        ("fastpipe.loader", "import torch\nfrom fastpipe.errors import ConfigError"),
        (
            "fastpipe.pack.work",
            "import cv2\nfrom .report import Report\nfrom fastpipe._engine import transcode",
        ),
        ("fastpipe.demo.run", "import fastpipe\nfrom fastpipe.pack import pack"),
        ("fastpipe.cli", "import fastpipe\nfrom fastpipe.doctor import doctor"),
    ],
)
def test_allowed_imports_pass(module: str, source: str) -> None:
    assert complaints(source, module) == []
