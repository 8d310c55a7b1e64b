"""The engine's sources and those of a program in C++ -> the program, with sanitizers or without."""

from __future__ import annotations

import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from checkout import ROOT

WARNINGS = ["-Wall", "-Wextra", "-Werror"]
SANITIZED = ["-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]


def build(sources: Path, folder: Path, sanitizers: str = "") -> Path:
    """Compiles a program and the engine; returns the program, which has the name of its sources' folder.

    Args:
        sources: a folder below tests.
        folder: where to; it is made.
        sanitizers: as the compiler names them: "address,undefined" or "thread"; none by default.

    Raises:
        subprocess.CalledProcessError: a source does not compile; the compiler has said why.
    """
    folder.mkdir(parents=True)
    kind = [f"-fsanitize={sanitizers}", *SANITIZED] if sanitizers else []
    flags = ["-std=c++17", "-O1", *kind, *WARNINGS, "-ffp-contract=off", "-pthread", *_pkg_config("--cflags")]
    includes = [f"-I{ROOT / 'csrc'}", f"-I{sources}", f"-I{sources.parent}"]
    files = [path for path in sorted((ROOT / "csrc").rglob("*.cc")) if path.parent.name != "python"]
    files += sorted(sources.glob("*.cc"))
    objects = [folder / f"{file.parent.name}-{file.stem}.o" for file in files]

    def compile_one(source: Path, made: Path) -> None:
        subprocess.run([*_compiler(), *flags, *includes, "-c", str(source), "-o", str(made)], check=True)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2) as threads:
        list(threads.map(compile_one, files, objects))
    program = folder / sources.name
    subprocess.run([*_compiler(), *flags, *map(str, objects), *_pkg_config("--libs"), "-o", str(program)], check=True)
    return program


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "c++"))


def _pkg_config(option: str) -> list[str]:
    tool = os.environ.get("PKG_CONFIG", "pkg-config")
    return shlex.split(subprocess.run([tool, option, "libjpeg"], check=True, capture_output=True, text=True).stdout)
