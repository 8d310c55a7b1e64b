"""Tests of scripts/build_wheel.py and scripts/wheel: what a wheel holds, and that it works where nothing else is."""

from __future__ import annotations

import email
import io
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename
from support.checkout import ROOT

import fastpipe
from fastpipe import _engine
from fastpipe.sources.picture.jpeg import BUNDLED

pytestmark = [
    pytest.mark.skipif(
        platform.libc_ver()[0] != "glibc", reason="manylinux wheels are built on Linux with glibc"
    ),
    pytest.mark.skipif(
        "san.so" in os.environ.get("LD_PRELOAD", ""), reason="a wheel's engine is not sanitized"
    ),
]
elffile = pytest.importorskip("elftools.elf.elffile", reason="auditwheel brings it, on Linux")

PACKAGE = Path(fastpipe.__file__).resolve().parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INFO = f"fastpipe_loader-{fastpipe.__version__}.dist-info"
TURBOJPEG = f"fastpipe/{BUNDLED.relative_to(PACKAGE)}"
ENGINE = r"fastpipe/_engine\.[\w-]+\.so"
LIBJPEG = r"fastpipe_loader\.libs/libjpeg-[0-9a-f]+\.so[.\d]+"
LICENCES = {
    "LICENSE": ROOT / "LICENSE",
    **{
        name: ROOT / "licenses" / name
        for name in ("libdeflate.txt", "libjpeg-turbo.txt", "xxhash.txt")
    },
}
# Whether this system's libjpeg goes into the engine itself: Note [static libjpeg]
STATIC = (
    "jpeg"
    not in subprocess.run(
        ["ldd", _engine.__file__], capture_output=True, text=True, check=True
    ).stdout
)
SYSTEM = re.compile(
    r"(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt|ld-linux[\w-]*)\.so\.\d+"
)


OBJECTS = (
    ROOT / "build" / "objects" / "extension"
)  # `make test` has made them, unless a source changed since


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a wheel for this Python and the source distribution that it was built of."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, ROOT / "scripts" / "build_wheel.py", folder, "--no-build-isolation"]
    # Neither may get into a wheel: code for this machine alone, and another kind of build.
    spoiled = {
        "CFLAGS": "-march=nowhere",
        "CXXFLAGS": "-march=nowhere",
        "FASTPIPE_BUILD": "nothing",
    }
    objects = {"FASTPIPE_OBJECTS": str(OBJECTS)}
    environment = os.environ | spoiled | objects
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


@pytest.fixture(scope="module")
def metadata(files: dict[str, bytes]) -> Message:
    return email.message_from_bytes(files[f"{INFO}/METADATA"])


class Library:
    """What a compiled file tells the dynamic loader."""

    def __init__(self, content: bytes) -> None:
        elf = elffile.ELFFile(io.BytesIO(content))
        entries = list(elf.get_section_by_name(".dynamic").iter_tags())
        self.needed = {entry.needed for entry in entries if entry.entry.d_tag == "DT_NEEDED"}
        self.soname = next(
            (entry.soname for entry in entries if entry.entry.d_tag == "DT_SONAME"), ""
        )
        symbols = elf.get_section_by_name(".dynsym").iter_symbols()
        self.asked_for = {symbol.name for symbol in symbols if symbol["st_shndx"] == "SHN_UNDEF"}


@pytest.fixture(scope="module")
def libraries(files: dict[str, bytes]) -> dict[str, Library]:
    return {
        name: Library(content) for name, content in files.items() if content.startswith(b"\x7fELF")
    }


def test_tags_name_this_python_and_a_glibc_no_newer_than_this_one(
    wheel: Path, files: dict[str, bytes]
) -> None:
    _, version, _, tags = parse_wheel_filename(wheel.name)
    assert str(version) == fastpipe.__version__
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert {(tag.interpreter, tag.abi) for tag in tags} == {(python, python)}
    inside = email.message_from_bytes(files[f"{INFO}/WHEEL"]).get_all("Tag") or []
    assert set(inside) == {str(tag) for tag in tags}
    here = tuple(map(int, platform.libc_ver()[1].split(".")))
    for tag in tags:
        match = re.fullmatch(rf"manylinux(?:_(\d+)_(\d+)|\d+)_{platform.machine()}", tag.platform)
        assert match, tag.platform
        assert match[1] is None or (int(match[1]), int(match[2])) <= here


def test_it_holds_the_package_its_libraries_and_licences_and_nothing_else(
    files: dict[str, bytes],
) -> None:
    modules = {path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*.py")}
    assert {name for name in files if name.endswith(".py")} == modules
    expected = [
        *map(re.escape, modules),
        r"fastpipe/py\.typed",
        r"fastpipe/_engine\.pyi",
        r"fastpipe/docs/[\w/-]+\.md",
        ENGINE,
        re.escape(TURBOJPEG),
        *(
            re.escape(f"{INFO}/{name}")
            for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt")
        ),
        *(re.escape(f"{INFO}/licenses/{name}") for name in LICENCES),
    ]
    if not STATIC:  # auditwheel puts the library in, and a note of it
        expected += [LIBJPEG, re.escape(f"{INFO}/sboms/") + r"[\w.-]+\.json"]
    for pattern in expected:
        assert [name for name in files if re.fullmatch(pattern, name)], f"nothing fits {pattern}"
    strangers = [
        name for name in files if not any(re.fullmatch(pattern, name) for pattern in expected)
    ]
    assert strangers == []


def test_no_library_is_looked_for_outside_but_what_every_system_has(
    libraries: dict[str, Library],
) -> None:
    assert len(libraries) == (2 if STATIC else 3)
    inside = {Path(name).name for name in libraries}
    for name, library in libraries.items():
        outside = {needed for needed in library.needed - inside if not SYSTEM.fullmatch(needed)}
        assert not outside, f"{name} needs {outside}"
    (engine,) = (library for name, library in libraries.items() if re.fullmatch(ENGINE, name))
    asks = any(re.fullmatch(LIBJPEG, f"fastpipe_loader.libs/{needed}") for needed in engine.needed)
    assert asks != STATIC
    assert any(name.startswith("jpeg_") for name in engine.asked_for) != STATIC


def test_libraries_have_names_that_no_library_of_the_system_has(
    libraries: dict[str, Library],
) -> None:
    """Else the loader would take the one that is there already, whichever that is, for both."""
    for name, library in libraries.items():
        assert re.fullmatch(ENGINE, name) or library.soname == Path(name).name


def test_the_engine_runs_with_the_libstdcxx_of_gcc_11(libraries: dict[str, Library]) -> None:
    """Note [waiting in a wheel]: GCC 12 and later give this function's calls a symbol that is not in it."""
    (engine,) = (library for name, library in libraries.items() if re.fullmatch(ENGINE, name))
    assert "pthread_cond_clockwait" in engine.asked_for
    assert "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE" not in engine.asked_for


def test_metadata_is_that_of_the_project(metadata: Message, files: dict[str, bytes]) -> None:
    assert metadata["Name"] == PROJECT["name"]
    assert metadata["Version"] == fastpipe.__version__ == PROJECT["version"]
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    always = {
        Requirement(text)
        for text in metadata.get_all("Requires-Dist") or []
        if "extra ==" not in text
    }
    assert always == {Requirement(text) for text in PROJECT["dependencies"]}
    assert b"fastpipe = fastpipe.tools.cli:main" in files[f"{INFO}/entry_points.txt"]


def test_licences_are_those_of_what_is_inside(metadata: Message, files: dict[str, bytes]) -> None:
    assert (
        metadata["License-Expression"]
        == f"{PROJECT['license']} AND BSD-2-Clause AND BSD-3-Clause AND IJG AND MIT AND Zlib"
    )
    assert set(metadata.get_all("License-File") or []) == set(LICENCES)
    for name, source in LICENCES.items():
        assert files[f"{INFO}/licenses/{name}"] == source.read_bytes()
    # Clause 2 of the IJG licence: the documentation has to say so.
    assert "based in part on the work of the Independent JPEG Group" in " ".join(
        str(metadata.get_payload()).split()
    )


def test_the_source_distribution_holds_what_a_build_needs(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    sources = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "csrc").rglob("*") if path.is_file()
    }
    assert {name for name in names if name.startswith("csrc/")} == sources
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE", "fastpipe/py.typed"} <= names
    assert not {name for name in names if name.startswith("tests/") or name.endswith(".so")}


def test_it_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """The dependencies are this environment's; fastpipe itself and its libraries are the wheel's."""
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
    ]
    subprocess.run(pip, check=True, timeout=600)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    smoke = [python, "-I", ROOT / "scripts" / "wheel_smoke.py"]
    # No compiler is on the path, and no library of the system is preferred.
    environment = {**os.environ, "PATH": str(python.parent)}
    environment.pop("LD_LIBRARY_PATH", None)
    run = subprocess.run(
        smoke, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.endswith(
        f"fastpipe {fastpipe.__version__} works on Python {platform.python_version()}\n"
    )
    assert "another project" not in run.stderr
    # What pip leaves of the other project, which is called fastpipe.
    (packages / "fastpipe-0.0.1.dist-info").mkdir()
    start = [python, "-I", "-c", "import fastpipe"]
    run = subprocess.run(start, capture_output=True, text=True, timeout=600, check=True)
    assert "the package fastpipe 0.0.1 of another project is also installed" in run.stderr
