"""`scripts/oldest`: the gate also runs the oldest kornia that pyproject.toml allows."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from support.checkout import ROOT

FILES = [
    *(f"tests/augment/{name}.py" for name in ("test_kornia_samples", "test_kornia_mixing", "test_augment_modules")),
    "tests/augment/test_kornia_fields.py",
    "tests/loading/test_loader_fields_kornia.py",
    "tests/long/augment/test_kornia_layouts.py",
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The script in a checkout whose environment is this one, and whose tests say which kornia they see."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "oldest", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    for name in FILES:
        text = f"def test_seen():\n    import kornia\n    assert 'build/kornia-0.1' in kornia.__file__, '{name}'\n"
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "scripts/oldest", *arguments], cwd=checkout, capture_output=True, text=True, check=False, timeout=300
    )


def test_the_versions_fit() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (kornia,) = (wanted for wanted in map(Requirement, project["dependencies"]) if wanted.name == "kornia")
    assert str(kornia.specifier) == "<1,>=0.9"
    pinned = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("kornia=="))
    assert kornia.specifier.contains(pinned.partition("==")[2])
    assert "step oldest" in (ROOT / "scripts" / "check").read_text()


def test_what_kornia_needs_is_asked_for() -> None:
    """Else pip would bring a newer torch than the oldest that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = {wanted.name: wanted.specifier for wanted in map(Requirement, project["dependencies"])}
    if not str(ours["kornia"]).endswith(f">={Version(version('kornia')).major}.{Version(version('kornia')).minor}"):
        pytest.skip("another kornia than the oldest is installed")
    theirs = [wanted for wanted in map(Requirement, requires("kornia") or []) if wanted.name in ours]
    assert {wanted.name for wanted in theirs} >= {"torch"}
    for wanted in theirs:
        if wanted.marker is None:
            (least,) = (each.version for each in ours[wanted.name] if each.operator == ">=")
            assert wanted.specifier.contains(least), f"{wanted}, and here {wanted.name}{ours[wanted.name]}"


def test_where_the_oldest_is_installed_the_tests_run_with_it_anyway(checkout: Path) -> None:
    done = run(checkout, version("kornia"))
    assert done.returncode == 0, done.stderr
    assert "the oldest version that is allowed" in done.stdout


def test_another_version_comes_before_the_installed_one(checkout: Path) -> None:
    made = checkout / "build" / "kornia-0.1" / "kornia"
    made.mkdir(parents=True)
    (made / "__init__.py").touch()
    assert Version(version("kornia")) != Version("0.1")
    done = run(checkout, "0.1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
    shutil.rmtree(made)
    assert run(checkout, "0.1").returncode != 0
