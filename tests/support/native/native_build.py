"""The engine's sources and those of a program in C++ -> the program, with sanitizers or without.

Sources are compiled in units of several files: most of the time goes to the headers, which a unit reads once. Objects
stay in build/objects under names with a hash of all that they are made from, so a unit is compiled again when a source
of it, a header, a flag or the compiler has changed. `make clean` removes them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.checkout import ROOT

WARNINGS = ["-Wall", "-Wextra", "-Werror"]
# -g1: reports name functions and lines. The names of variables, for a debugger, would take a third of the time.
SANITIZED = ["-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]
CSRC = ROOT / "csrc"
OBJECTS = ROOT / "build" / "objects"
MOST_FILES = 12
# What a file alone may see: clang-format begins a line with it.
UNNAMED = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
DEFINED = re.compile(r"^(?!using namespace )[^\s/#}].*?\b(\w+)(?:[\[(;]| [={:])", re.MULTILINE)
MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)


def build(
    sources: Path,
    folder: Path,
    sanitizers: str = "",
    *,
    optimised: bool = True,
    objects: Path = OBJECTS,
) -> Path:
    """Compiles a program and the engine; returns the program, which has the name of its sources' folder.

    Args:
        sources: a folder below tests.
        folder: where to; it is made.
        sanitizers: as the compiler names them: "address,undefined" or "thread"; none by default.
        optimised: -O1; without it, -O0 compiles sooner and runs slower.
        objects: where objects are kept.

    Raises:
        subprocess.CalledProcessError: a source does not compile; the compiler has said why.
    """
    folder.mkdir(parents=True)
    level = "-O1" if optimised else "-O0"
    sanitized = [f"-fsanitize={sanitizers}", *SANITIZED] if sanitizers else []
    flags = [
        "-std=c++17",
        level,
        *sanitized,
        *WARNINGS,
        "-ffp-contract=off",
        "-pthread",
        *_pkg_config("--cflags"),
    ]
    kind = "-".join(["O1" if optimised else "O0", *filter(None, sanitizers.split(","))])
    engine = [path for path in sorted(CSRC.rglob("*.cc")) if path.parent.name != "python"]
    jobs = [(f"csrc-{number}", unit, [CSRC]) for number, unit in enumerate(units(engine))]
    for number, unit in enumerate(units(sorted(sources.glob("*.cc")))):
        jobs.append((f"{sources.name}-{number}", unit, [CSRC, sources, sources.parent]))
    with ThreadPoolExecutor(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    ) as threads:
        made = list(threads.map(lambda job: _compiled(*job, flags, objects / kind), jobs))
    program = folder / sources.name
    subprocess.run(
        [*_compiler(), *flags, *map(str, made), *_pkg_config("--libs"), "-o", str(program)],
        check=True,
    )
    return program


def units(sources: list[Path]) -> list[list[Path]]:
    """Files to compile as one: no two of them define a name of their own that is the same."""
    units: list[tuple[list[Path], set[str]]] = []
    for source in sources:
        text = source.read_text()
        names = {name for part in UNNAMED.findall(text) for name in DEFINED.findall(part)} | set(
            MACRO.findall(text)
        )
        for unit, taken in units:
            if len(unit) < MOST_FILES and not names & taken:
                unit.append(source)
                taken |= names
                break
        else:
            units.append(([source], names))
    return [unit for unit, _ in units]


def _compiled(
    name: str, unit: list[Path], includes: list[Path], flags: list[str], objects: Path
) -> Path:
    """A unit's object: the one that is there, or a new one in place of it."""
    command = [
        *_compiler(),
        *flags,
        *(f"-I{folder}" for folder in includes),
        "-x",
        "c++",
        "-c",
        "-",
    ]
    texts = [*unit, *sorted({header for folder in includes for header in folder.rglob("*.h")})]
    made_from = [*command, *map(str, unit), *_tools(), *map(Path.read_text, texts)]
    key = hashlib.sha256("\0".join(made_from).encode()).hexdigest()[:32]
    made = objects / f"{name}.{key}.o"
    if not made.exists():
        objects.mkdir(parents=True, exist_ok=True)
        unfinished = objects / f"{name}.{os.getpid()}.unfinished"
        _compile_into(unfinished, unit, command)
        unfinished.replace(made)
        for old in objects.glob(f"{name}.*.o"):
            if old != made:
                old.unlink(missing_ok=True)
    return made


def _compile_into(made: Path, unit: list[Path], command: list[str]) -> None:
    """Compiles files as one; where they do not go together after all, each alone, and then what is wrong is said."""

    def run(sources: list[Path], target: Path, **how: Any) -> int:
        text = "".join(f'#include "{source}"\n' for source in sources)
        return subprocess.run(
            [*command, "-o", str(target)], input=text, text=True, **how
        ).returncode

    if len(unit) > 1 and run(unit, made, stderr=subprocess.DEVNULL) == 0:
        return
    alone = [made.with_suffix(f".{number}.o") for number in range(len(unit))]
    for source, target in zip(unit, alone, strict=True):
        run([source], target, check=True)
    subprocess.run([*_compiler(), "-r", "-nostdlib", *map(str, alone), "-o", str(made)], check=True)
    for target in alone:
        target.unlink()


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "c++"))


@functools.cache
def _tools() -> list[str]:
    """The versions of the compiler and of the libraries, whose headers are the system's."""
    compiler = subprocess.run(
        [*_compiler(), "--version"], check=True, capture_output=True, text=True
    ).stdout
    return [compiler, *_pkg_config("--modversion")]


@functools.cache
def _pkg_config(option: str) -> list[str]:
    tool = os.environ.get("PKG_CONFIG", "pkg-config")
    command = [tool, option, "libjpeg", "libdeflate"]
    return shlex.split(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
