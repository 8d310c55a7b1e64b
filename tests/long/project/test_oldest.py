"""`scripts/oldest`: the gate also runs the oldest kornia that pyproject.toml allows."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from support.checkout import ROOT

FILES = [
    *(
        f"tests/device/augment/{name}.py"
        for name in ("test_kornia_samples", "test_kornia_mixing", "test_augment_modules")
    ),
    "tests/device/augment/test_kornia_fields.py",
    "tests/loading/test_loader_fields_kornia.py",
    "tests/long/device/augment/test_kornia_layouts.py",
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
        ["bash", "scripts/oldest", *arguments],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_versions_fit() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (kornia,) = (
        wanted for wanted in map(Requirement, project["dependencies"]) if wanted.name == "kornia"
    )
    assert str(kornia.specifier) == "<1,>=0.9"
    pinned = next(
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line.startswith("kornia==")
    )
    assert kornia.specifier.contains(pinned.partition("==")[2])
    assert "step oldest" in (ROOT / "scripts" / "check").read_text()


def test_another_version_comes_before_the_installed_one(checkout: Path) -> None:
    made = checkout / "build" / "kornia-0.1" / "kornia"
    made.mkdir(parents=True)
    (made / "__init__.py").touch()
    assert Version(version("kornia")) != Version("0.1")
    done = run(checkout, "0.1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(FILES)} passed" in done.stdout
    shutil.rmtree(made)
    assert run(checkout, "0.1").returncode != 0
