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
from setuptools.command.build_py import build_py

BUILDS = {
    "release": (["-O3", "-g0"], []),
    "debug": (["-O0", "-g", "-D_GLIBCXX_ASSERTIONS"], []),
    "asan": (
        [
            "-O1",
            "-g",
            "-fno-omit-frame-pointer",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
        ],
        ["-fsanitize=address,undefined"],
    ),
    "tsan": (["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=thread"], ["-fsanitize=thread"]),
}

# By the names of pkg-config, with a few of the functions that the engine calls.
LIBRARIES = {
    "libjpeg": ("jpeg_read_scanlines", "jpeg_crop_scanline", "jpeg_read_coefficients"),
    "libdeflate": ("libdeflate_zlib_decompress", "libdeflate_zlib_compress"),
}

MISSING_LIBRARY = """
fastpipe needs the headers of libjpeg-turbo and libdeflate, and pkg-config to find them ({why}).
Install them, then try again:
    Debian:  apt-get install libjpeg62-turbo-dev libdeflate-dev pkg-config
    Ubuntu:  apt-get install libjpeg-turbo8-dev libdeflate-dev pkg-config
    macOS:   brew install jpeg-turbo libdeflate pkgconf
"""


def pkg_config(*arguments: str) -> list[str]:
    """What pkg-config says; ends the build with the packages to install if one is absent."""
    tool = os.environ.get("PKG_CONFIG", "pkg-config")
    if shutil.which(tool) is None:
        sys.exit(MISSING_LIBRARY.format(why=f"{tool} is not installed"))
    run = subprocess.run([tool, *arguments], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(
            MISSING_LIBRARY.format(why=f"it knows no package named {' or '.join(arguments[1:])}")
        )
    return shlex.split(run.stdout)


def to_link(name: str) -> list[str]:
    """A library's archive, if it can go into a shared library; else what pkg-config says.

    The archive's symbols stay inside the engine. Those of a shared library are looked up in the whole process, where
    another version of it may come first.
    """
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    # Debian's libdeflate.pc names a folder where it does not lie; the compiler knows.
    asked = subprocess.run(
        [*compiler, f"-print-file-name={name}.a"], capture_output=True, text=True
    ).stdout.strip()
    for archive in (Path(*pkg_config("--variable=libdir", name), f"{name}.a"), Path(asked)):
        if sys.platform != "linux" or not archive.is_absolute() or not archive.exists():
            continue
        hidden = [str(archive), "-Wl,--exclude-libs,ALL"]
        needed = [f"-Wl,-u,{function}" for function in LIBRARIES[name]]
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run(
                [*compiler, "-shared", *needed, *hidden, "-o", f"{folder}/tried.so"],
                capture_output=True,
            )
        if run.returncode == 0:
            return hidden
    return pkg_config("--libs", name)


def extension() -> Pybind11Extension:
    kind = os.environ.get("FASTPIPE_BUILD", "release")
    if kind not in BUILDS:
        sys.exit(f"FASTPIPE_BUILD={kind!r}: expected one of {', '.join(BUILDS)}")
    compile_args, link_args = BUILDS[kind]
    warnings = ["-Wall", "-Wextra"] + (
        ["-Werror"] if os.environ.get("FASTPIPE_WERROR") == "1" else []
    )
    return Pybind11Extension(
        "fastpipe._engine",
        sources=sorted(str(path) for path in Path("csrc").rglob("*.cc")),
        depends=sorted(str(path) for path in Path("csrc").rglob("*.h")),
        include_dirs=["csrc"],
        cxx_std=17,
        # A product and a sum made into one operation would round differently: the same weights on every machine.
        extra_compile_args=[
            *pkg_config("--cflags", *LIBRARIES),
            *warnings,
            *compile_args,
            "-ffp-contract=off",
            "-pthread",
        ],
        extra_link_args=[
            *(flag for name in LIBRARIES for flag in to_link(name)),
            *link_args,
            "-pthread",
        ],
    )


class BuildPy(build_py):
    """Puts the pages of the documentation into the package. `fastpipe docs` shows them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # the checkout has them
            return
        for page in Path("docs").rglob("*.md"):
            is_for_contributors = page.parts[1] in ("development", "architecture.md")
            if not is_for_contributors:
                copy = Path(self.build_lib, "fastpipe", page)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(page, copy)


class BuildExt(build_ext):
    """Compiles a source only if FASTPIPE_OBJECTS has no object of it, under the hash of all that it is made from."""

    def build_extensions(self) -> None:
        kept = os.environ.get("FASTPIPE_OBJECTS")
        if kept:
            compile_one, folder = self.compiler._compile, Path(kept)
            folder.mkdir(parents=True, exist_ok=True)
            compiler = subprocess.run(
                [*self.compiler.compiler_so[:1], "--version"], capture_output=True, check=True
            )
            versions = [sys.version, pybind11.__version__, *pkg_config("--modversion", *LIBRARIES)]
            headers = b"".join(path.read_bytes() for path in sorted(Path("csrc").rglob("*.h")))

            def compile_or_take(
                made: str, source: str, ext: str, cc: list[str], extra: list[str], pp: Any
            ) -> None:
                flags = [
                    flag for flag in (*self.compiler.compiler_so, *cc, *extra) if flag != "-Werror"
                ]
                made_from = (
                    repr([*versions, *flags]).encode(),
                    compiler.stdout,
                    headers,
                    Path(source).read_bytes(),
                )
                found = (
                    folder
                    / f"{Path(source).stem}-{hashlib.sha256(b'|'.join(made_from)).hexdigest()[:32]}.o"
                )
                if not found.exists():
                    compile_one(made, source, ext, cc, extra, pp)
                    unfinished = found.with_suffix(f".{os.getpid()}")
                    shutil.copyfile(made, unfinished)
                    unfinished.replace(found)
                shutil.copyfile(found, made)

            self.compiler._compile = compile_or_take
        super().build_extensions()


# Only what compiles asks for the libraries: metadata and source distributions can be made without it.
COMPILING = {"build", "build_ext", "bdist_wheel", "install", "develop", "editable_wheel"} & set(
    sys.argv
)

ParallelCompile("FASTPIPE_BUILD_JOBS", default=0).install()
setup(
    ext_modules=[extension()] if COMPILING else [],
    cmdclass={"build_ext": BuildExt, "build_py": BuildPy},
)
