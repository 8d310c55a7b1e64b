"""Builds the native engine, `fastpipe._engine`; everything else is in pyproject.toml.

FASTPIPE_BUILD picks the kind of build:
    release (default)  -O3
    debug              -O0 with debug information and libstdc++ assertions
    asan               address and undefined-behaviour sanitizers
    tsan               thread sanitizer
FASTPIPE_WERROR=1 makes warnings errors (the project's own checks set it).
FASTPIPE_OBJECTS=folder keeps compiled objects there, for another build of the same sources with the same flags.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import pybind11
from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup

BUILDS = {
    "release": (["-O3", "-g0"], []),
    "debug": (["-O0", "-g", "-D_GLIBCXX_ASSERTIONS"], []),
    "asan": (
        ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        ["-fsanitize=address,undefined"],
    ),
    "tsan": (["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=thread"], ["-fsanitize=thread"]),
}

MISSING_LIBJPEG = """
fastpipe needs the libjpeg-turbo headers, and pkg-config to find them ({why}).
Install them, then try again:
    Debian:  apt-get install libjpeg62-turbo-dev pkg-config
    Ubuntu:  apt-get install libjpeg-turbo8-dev pkg-config
    macOS:   brew install jpeg-turbo pkgconf
"""


def libjpeg(option: str) -> list[str]:
    """What pkg-config says of libjpeg-turbo; ends the build with the package to install if it is absent."""
    tool = os.environ.get("PKG_CONFIG", "pkg-config")
    if shutil.which(tool) is None:
        sys.exit(MISSING_LIBJPEG.format(why=f"{tool} is not installed"))
    run = subprocess.run([tool, option, "libjpeg"], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(MISSING_LIBJPEG.format(why="it knows no package named libjpeg"))
    return shlex.split(run.stdout)


def libjpeg_to_link() -> list[str]:
    """libjpeg-turbo's archive, if it can go into a shared library; else what pkg-config says.

    The archive's symbols stay inside the engine. Those of a shared library are looked up in the whole process, where
    another libjpeg may come first.
    """
    archive = Path(libjpeg("--variable=libdir")[0], "libjpeg.a")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    hidden = [str(archive), "-Wl,--exclude-libs,ALL"]
    if sys.platform == "linux" and archive.exists():
        needed = [f"-Wl,-u,{name}" for name in ("jpeg_read_scanlines", "jpeg_crop_scanline", "jpeg_read_coefficients")]
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run(
                [*compiler, "-shared", *needed, *hidden, "-o", f"{folder}/tried.so"], capture_output=True
            )
        if run.returncode == 0:
            return hidden
    return libjpeg("--libs")


def extension() -> Pybind11Extension:
    kind = os.environ.get("FASTPIPE_BUILD", "release")
    if kind not in BUILDS:
        sys.exit(f"FASTPIPE_BUILD={kind!r}: expected one of {', '.join(BUILDS)}")
    compile_args, link_args = BUILDS[kind]
    warnings = ["-Wall", "-Wextra"] + (["-Werror"] if os.environ.get("FASTPIPE_WERROR") == "1" else [])
    return Pybind11Extension(
        "fastpipe._engine",
        sources=sorted(str(path) for path in Path("csrc").rglob("*.cc")),
        depends=sorted(str(path) for path in Path("csrc").rglob("*.h")),
        include_dirs=["csrc"],
        cxx_std=17,
        # A product and a sum made into one operation would round differently: the same weights on every machine.
        extra_compile_args=[*libjpeg("--cflags"), *warnings, *compile_args, "-ffp-contract=off", "-pthread"],
        extra_link_args=[*libjpeg_to_link(), *link_args, "-pthread"],
    )


class BuildExt(build_ext):
    """Compiles a source only if FASTPIPE_OBJECTS has no object of it, under the hash of all that it is made from."""

    def build_extensions(self) -> None:
        kept = os.environ.get("FASTPIPE_OBJECTS")
        if kept:
            compile_one, folder = self.compiler._compile, Path(kept)
            folder.mkdir(parents=True, exist_ok=True)
            compiler = subprocess.run([*self.compiler.compiler_so[:1], "--version"], capture_output=True, check=True)
            versions = [sys.version, pybind11.__version__, *libjpeg("--modversion")]
            headers = b"".join(path.read_bytes() for path in sorted(Path("csrc").rglob("*.h")))

            def compile_or_take(made: str, source: str, ext: str, cc: list[str], extra: list[str], pp: Any) -> None:
                flags = [flag for flag in (*self.compiler.compiler_so, *cc, *extra) if flag != "-Werror"]
                made_from = (repr([*versions, *flags]).encode(), compiler.stdout, headers, Path(source).read_bytes())
                found = folder / f"{Path(source).stem}-{hashlib.sha256(b'|'.join(made_from)).hexdigest()[:32]}.o"
                if not found.exists():
                    compile_one(made, source, ext, cc, extra, pp)
                    unfinished = found.with_suffix(f".{os.getpid()}")
                    shutil.copyfile(made, unfinished)
                    unfinished.replace(found)
                shutil.copyfile(found, made)

            self.compiler._compile = compile_or_take
        super().build_extensions()


# Only what compiles asks for libjpeg: metadata and source distributions can be made without it.
COMPILING = {"build", "build_ext", "bdist_wheel", "install", "develop", "editable_wheel"} & set(sys.argv)

ParallelCompile("FASTPIPE_BUILD_JOBS", default=0).install()
setup(ext_modules=[extension()] if COMPILING else [], cmdclass={"build_ext": BuildExt})
