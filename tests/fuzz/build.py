"""The fuzzer's and the engine's sources -> the fuzzer, with the sanitizers or without."""

from __future__ import annotations

import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
SANITIZED = ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
PLAIN = ["-O1"]


def build(folder: Path, *, sanitized: bool) -> Path:
    """Compiles into a folder that is made; returns the program.

    Raises:
        subprocess.CalledProcessError: a source does not compile; the compiler has said why.
    """
    folder.mkdir(parents=True)
    kind = SANITIZED if sanitized else PLAIN
    flags = ["-std=c++17", *kind, *WARNINGS, "-ffp-contract=off", "-pthread", *_pkg_config("--cflags")]
    includes = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'tests/fuzz'}"]
    sources = [path for path in sorted((ROOT / "csrc").glob("*.cc")) if path.name != "bindings.cc"]
    sources += sorted((ROOT / "tests/fuzz").glob("*.cc"))
    objects = [folder / f"{source.parent.name}-{source.stem}.o" for source in sources]

    def compile_one(source: Path, made: Path) -> None:
        subprocess.run([*_compiler(), *flags, *includes, "-c", str(source), "-o", str(made)], check=True)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2) as threads:
        list(threads.map(compile_one, sources, objects))
    program = folder / "fuzz"
    subprocess.run([*_compiler(), *flags, *map(str, objects), *_pkg_config("--libs"), "-o", str(program)], check=True)
    return program


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "c++"))


def _pkg_config(option: str) -> list[str]:
    tool = os.environ.get("PKG_CONFIG", "pkg-config")
    return shlex.split(subprocess.run([tool, option, "libjpeg"], check=True, capture_output=True, text=True).stdout)
