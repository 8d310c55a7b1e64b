"""Tests of native_build.py: sources join in units, and are compiled again when what they are made from has changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.native import native_build


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine of one file and its header, and a program, in a folder of their own."""
    monkeypatch.setattr(native_build, "ROOT", tmp_path)
    monkeypatch.setattr(native_build, "CSRC", tmp_path / "csrc")
    texts = {
        "csrc/part/part.h": "int part();\n",
        "csrc/part/part.cc": '#include "part/part.h"\nint part() { return 3; }\n',
        "csrc/python/module.cc": "this is no C++ and has no place in a program\n",
        "tests/tool/tool.cc": '#include "part/part.h"\nint main() { return part(); }\n',
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def made(
    checkout: Path, number: int, sanitizers: str = "", *, optimised: bool = False
) -> tuple[int, dict[str, int]]:
    """(what the program returns, by object: when it was made)."""
    objects, folder = checkout / "objects", checkout / str(number)
    program = native_build.build(
        checkout / "tests" / "tool", folder, sanitizers, optimised=optimised, objects=objects
    )
    found = {
        str(path.relative_to(objects)): path.stat().st_mtime_ns
        for path in objects.rglob("*")
        if path.is_file()
    }
    return subprocess.run([program], check=False).returncode, found


def test_objects_are_used_again(checkout: Path) -> None:
    first, again = made(checkout, 1), made(checkout, 2)
    assert first == again
    assert first[0] == 3
    assert sorted(name.split(".")[0] for name in first[1]) == ["O0/csrc-0", "O0/tool-0"]


def test_a_changed_source_is_compiled_and_the_others_are_not(checkout: Path) -> None:
    _, before = made(checkout, 1)
    (checkout / "csrc/part/part.cc").write_text("int part();\nint part() { return 4; }\n")
    code, after = made(checkout, 2)
    assert code == 4
    assert len(after) == 2, "the object of the text before is not kept"
    assert len(before.items() & after.items()) == 1


def test_a_changed_header_counts_for_all(checkout: Path) -> None:
    _, before = made(checkout, 1)
    (checkout / "csrc/part/part.h").write_text("int part();\n#define UNUSED\n")
    code, after = made(checkout, 2)
    assert code == 3
    assert len(after) == 2
    assert not before.keys() & after.keys()


def test_flags_and_compilers_count(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, plain = made(checkout, 1)
    _, optimised = made(checkout, 2, optimised=True)
    assert len(optimised) == 4
    assert plain.items() < optimised.items()
    monkeypatch.setattr(native_build, "_tools", lambda: ["another compiler"])
    _, others = made(checkout, 3)
    assert len(others) == 4
    assert not plain.keys() & others.keys()


def add_sources(checkout: Path, *bodies: str) -> None:
    """A source for each body, of a function that the program does not call."""
    for number, body in enumerate(bodies):
        text = (
            f"namespace {{\n\n{body}\n\n}}  // namespace\n\nint f{number}() {{ return used(); }}\n"
        )
        (checkout / "csrc" / "part" / f"f{number}.cc").write_text(f"int f{number}();\n{text}")


def test_sources_are_compiled_together_but_for_those_that_define_the_same_name(
    checkout: Path,
) -> None:
    add_sources(checkout, "int used() { return 1; }")
    assert len(made(checkout, 1)[1]) == 2
    add_sources(checkout, "int used() { return 1; }", "int used() { return 2; }")
    code, objects = made(checkout, 2)
    assert code == 3
    assert len(objects) == 3
