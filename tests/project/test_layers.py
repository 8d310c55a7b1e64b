"""Imports go down the layers: read from the sources of every fastpipe module, none of which is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.checkout import ROOT

PACKAGE = ROOT / "fastpipe"
CSRC = ROOT / "csrc"

# The folders (and the few modules beside them) from the ground up: each imports only from lines above its own, and
# from itself. After a name: what else it may import of what RESERVED lists.
LAYERS: dict[str, str] = {
    "distribution": "",
    "native": "fastpipe._engine",
    "errors": "",
    "arrays": "",
    "arguments": "",
    "completion": "",
    "pages": "",
    "warnings_once": "",
    "last_resort": "",
    "machine": "",
    "dataset/format": "fastpipe.native",
    "plan": "fastpipe.native",
    "store/remote": "fastpipe.native obstore huggingface_hub",
    "store": "",
    "engine": "fastpipe.native",
    "sources": "fastpipe.native pyarrow",
    "sources/picture": "fastpipe.native cv2 turbojpeg PIL tifffile",
    "sources/scan": "fastpipe.native",
    "device/augment": "torch kornia triton",
    "device": "torch",
    "dataset": "torch",
    "loading": "torch",
    "prometheus": "prometheus_client",
    "tools/show": "cv2 torch",
    "diagnosis": "torch",
    "packing/cluster": "ray",
    "packing/fields": "fastpipe.native torch",
    "packing/shard": "",
    "packing/pipeline": "",
    "packing/job": "",
    "packing/distributed": "",
    "packing/growth": "",
    "packing": "",
    "packing/encode": "torch",
    "wds": "fastpipe.native torch webdataset",
    "timm": "torch kornia",
    "": "fastpipe.native",  # fastpipe/__init__.py: the public names
    "tools/verify": "",
    "tools/doctor": "cv2 torch",
    "tools/bench": "cv2 turbojpeg PIL torch",
    "tools/demo": "cv2 turbojpeg",
    "tools/cli": "",
    "tools": "",
    "__main__": "",
}
# The same for the folders of csrc/.
CSRC_LAYERS = (
    *("third_party", "base", "io", "jpeg", "jpeg/decode", "jpeg/transcode"),
    *("coefficients", "png", "tiled", "resize", "plan", "engine", "python"),
)

FLOOR = {entry: number for number, entry in enumerate(LAYERS)}
RESERVED = {name for allowed in LAYERS.values() for name in allowed.split()}


def dotted(path: Path) -> str:
    """The module's name: fastpipe/plan/__init__.py is fastpipe.plan."""
    parts = ("fastpipe", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def entry_of(module: str) -> str:
    """The line of LAYERS that a fastpipe module belongs to: the longest that holds it."""
    path = "/".join(module.split(".")[1:])
    return max(
        (entry for entry in LAYERS if path == entry or path.startswith(f"{entry}/")),
        key=len,
        default="?",
    )


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
        reserved = name if name in RESERVED else name.split(".")[0]
        if reserved in RESERVED and reserved not in LAYERS[entry].split():
            allowed = ", ".join(
                folder for folder, names in LAYERS.items() if reserved in names.split()
            )
            found.append(
                f"line {line}: {reserved} may be imported only by {allowed}; not by {module}"
            )
        if name.split(".")[0] != "fastpipe" or name == "fastpipe._engine":
            continue
        target = entry_of(name)
        if target not in FLOOR:
            found.append(f"line {line}: {name} is in no layer; add its folder to LAYERS")
        elif target != entry and FLOOR[target] >= FLOOR[entry]:
            found.append(f"line {line}: {module} imports {name}, which is not in a layer below it")
    return found


def test_imports_go_down() -> None:
    found = []
    for module, path in MODULES.items():
        name = path.relative_to(PACKAGE.parent)
        assert entry_of(module) in LAYERS, (
            f"{name} is in no layer: add its folder to LAYERS "
            f"in tests/project/{Path(__file__).name} and to fastpipe/README.md"
        )
        source = path.read_text(encoding="utf-8")
        found += [
            f"{name}: {each}"
            for each in complaints(source, module, is_package=path.name == "__init__.py")
        ]
    assert not found, "\n".join(found)


def test_modules_of_a_folder_have_no_cycle() -> None:
    below: dict[str, set[str]] = {module: set() for module in MODULES}
    for module, path in MODULES.items():
        for _, name in imports(
            path.read_text(encoding="utf-8"), module, is_package=path.name == "__init__.py"
        ):
            if name in MODULES and name != module:
                below[module].add(name)
    # Take away what imports nothing that is left, until nothing is left or a cycle remains.
    while free := [module for module, targets in below.items() if not targets & below.keys()]:
        for module in free:
            del below[module]
    assert not below, f"these import one another in a circle: {below}"


def test_few_modules_lie_beside_the_folders() -> None:
    assert sorted(path.name for path in PACKAGE.glob("*.py")) == [
        "__init__.py",
        "__main__.py",
        "arguments.py",
        "arrays.py",
        "completion.py",
        "distribution.py",
        "errors.py",
        "last_resort.py",
        "native.py",
        "pages.py",
        "prometheus.py",
        "warnings_once.py",
    ]


def test_includes_go_down() -> None:
    found, files = [], sorted([*CSRC.rglob("*.h"), *CSRC.rglob("*.cc")])
    assert {path.parent.relative_to(CSRC).as_posix() for path in files} == set(CSRC_LAYERS)
    for path in files:
        floor = CSRC_LAYERS.index(path.parent.relative_to(CSRC).as_posix())
        for line in path.read_text(encoding="utf-8").splitlines():
            included = re.match(r'#include "(.+)/[^/]+"', line)
            if included and CSRC_LAYERS.index(included[1]) > floor:
                found.append(f"{path.relative_to(ROOT)}: {line} is not in a layer below it")
            if re.match(r"#include <(pybind11|Python)", line) and floor < CSRC_LAYERS.index(
                "python"
            ):
                found.append(f"{path.relative_to(ROOT)} knows Python: {line}")
    assert not found, "\n".join(found)


def test_forbidden_imports_are_seen() -> None:
    for module, source, complaint in (
        (
            "fastpipe.dataset.format.index",
            "from fastpipe.loading.loader import Loader",
            "imports fastpipe.loading.loader",
        ),
        (
            "fastpipe.plan.batch",
            "from ..loading.loader import Loader",
            "imports fastpipe.loading.loader",
        ),
        ("fastpipe.errors", "import fastpipe", "imports fastpipe, which"),
        (
            "fastpipe.loading.loader",
            "def f():\n    from fastpipe.packing.job.threads import pack",
            "line 2: fastpipe.l",
        ),
        (
            "fastpipe.packing.shard.plan",
            "from fastpipe.packing.job.threads import x",
            "imports fastpipe.packing.job",
        ),
        ("fastpipe.tools.cli", "import fastpipe.novelty", "in no layer"),
        ("fastpipe.plan.batch", "import torch.nn", "torch may be imported only by"),
        (
            "fastpipe.loading.state",
            "from fastpipe.native import _engine",
            "fastpipe.native may be imported only by",
        ),
        (
            "fastpipe.engine.slots",
            "from fastpipe import _engine",
            "fastpipe._engine may be imported only by native",
        ),
    ):
        (found,) = complaints(source, module)
        assert complaint in found
