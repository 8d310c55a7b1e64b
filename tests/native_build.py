"""The engine's sources and those of a program in C++ -> the program, with sanitizers or without.

Objects stay in build/objects under names with a hash of all that they are made from, so a source is compiled again when
it, a header, a flag or the compiler has changed. `make clean` removes them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from checkout import ROOT

WARNINGS = ["-Wall", "-Wextra", "-Werror"]
# -g1: reports name functions and lines. The names of variables, for a debugger, would take a third of the time.
SANITIZED = ["-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]
CSRC = ROOT / "csrc"
OBJECTS = ROOT / "build" / "objects"


def build(
    sources: Path, folder: Path, sanitizers: str = "", *, optimised: bool = True, objects: Path = OBJECTS
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
    flags = ["-std=c++17", level, *sanitized, *WARNINGS, "-ffp-contract=off", "-pthread", *_pkg_config("--cflags")]
    kind = "-".join(["O1" if optimised else "O0", *filter(None, sanitizers.split(","))])
    engine = [path for path in sorted(CSRC.rglob("*.cc")) if path.parent.name != "python"]
    jobs = [(source, [CSRC]) for source in engine]
    jobs += [(source, [CSRC, sources, sources.parent]) for source in sorted(sources.glob("*.cc"))]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2) as threads:
        made = list(threads.map(lambda job: _compiled(*job, flags, objects / kind), jobs))
    program = folder / sources.name
    subprocess.run([*_compiler(), *flags, *map(str, made), *_pkg_config("--libs"), "-o", str(program)], check=True)
    return program


def _compiled(source: Path, includes: list[Path], flags: list[str], objects: Path) -> Path:
    """A source's object: the one that is there, or a new one in place of it."""
    command = [*_compiler(), *flags, *(f"-I{folder}" for folder in includes), "-c", str(source)]
    texts = [source, *sorted({header for folder in includes for header in folder.rglob("*.h")})]
    made_from = [*command, *_tools(), *map(Path.read_text, texts)]
    key = hashlib.sha256("\0".join(made_from).encode()).hexdigest()[:32]
    name = "-".join(source.relative_to(ROOT).with_suffix("").parts)
    made = objects / f"{name}.{key}.o"
    if not made.exists():
        objects.mkdir(parents=True, exist_ok=True)
        unfinished = objects / f"{name}.{os.getpid()}.unfinished"
        subprocess.run([*command, "-o", str(unfinished)], check=True)
        unfinished.replace(made)
        for old in objects.glob(f"{name}.*.o"):
            if old != made:
                old.unlink(missing_ok=True)
    return made


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "c++"))


@functools.cache
def _tools() -> list[str]:
    """The versions of the compiler and of the libraries, whose headers are the system's."""
    compiler = subprocess.run([*_compiler(), "--version"], check=True, capture_output=True, text=True).stdout
    return [compiler, *_pkg_config("--modversion")]


@functools.cache
def _pkg_config(option: str) -> list[str]:
    tool = os.environ.get("PKG_CONFIG", "pkg-config")
    command = [tool, option, "libjpeg", "libdeflate"]
    return shlex.split(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
