"""The name that pip knows the package by, and what is said of another project's package in the same folder."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
import types
import warnings
from pathlib import Path

import pytest
from support.checkout import ROOT

import fastpipe
from fastpipe import distribution
from fastpipe.distribution import (
    DISTRIBUTION,
    INSTALL_FOLDER,
    REINSTALL,
    install_extra,
    other_package_message,
)
from fastpipe.tools.cli import main
from fastpipe.tools.doctor import Verdict, libraries

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def site_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that fastpipe is installed in, as it seems to it, with our own metadata and others'."""
    monkeypatch.setattr(distribution, "INSTALL_FOLDER", str(tmp_path))
    for name in ("fastpipe_loader-0.1.0", "fastpipeline-0.0.2", "numpy-2.0.0"):
        (tmp_path / f"{name}.dist-info").mkdir()
    return tmp_path


def test_the_distribution_has_the_name_that_messages_give() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert install_extra("remote") == "pip install 'fastpipe-loader[remote]'"


def test_extras_in_messages_and_pages_exist() -> None:
    extras: set[str] = set()
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for path in [*pages, *(ROOT / "fastpipe").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        extras.update(re.findall(r"install_extra\(['\"](\w+)['\"]\)", text))
        for names in re.findall(r"fastpipe-loader\[([\w,]+)\]", text):
            extras.update(names.split(","))
        assert "fastpipe[" not in text, f"{path}: write fastpipe-loader[...]"
    assert len(extras) >= 6
    assert extras <= set(PROJECT["optional-dependencies"])


# Imported names that are not those of their distributions, and packages that a dependency needs itself.
DISTRIBUTION_OF = {
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "turbojpeg": "pyturbojpeg",
    "braceexpand": "webdataset",
    "yaml": "webdataset",
}
# Used only where the user has them; and a module that fastpipe doctor puts beside a program.
NOT_INSTALLED = {"huggingface_hub", "torchvision", "triton", "fastpipe_probe"}


def test_pip_installs_what_the_package_imports() -> None:
    """Here tools for tests bring many more packages than users have."""
    requirements = list(PROJECT["dependencies"])
    for extra in PROJECT["optional-dependencies"].values():
        requirements += extra
    installed = {re.split(r"[\W]", each.replace("-", "_"))[0].lower() for each in requirements}
    strangers = set()
    for path in (ROOT / "fastpipe").rglob("*.py"):
        for name in imported_packages(path):
            distribution_name = DISTRIBUTION_OF.get(name, name).replace("-", "_").lower()
            if distribution_name not in installed | NOT_INSTALLED:
                strangers.add(f"{path.relative_to(ROOT)}: {name}")
    assert strangers == set()


def imported_packages(path: Path) -> set[str]:
    """The packages beside Python's own and fastpipe that a module imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {"fastpipe"}


def test_no_other_package_here() -> None:
    assert Path(INSTALL_FOLDER, "fastpipe").samefile(Path(fastpipe.__file__).parent)
    assert other_package_message() == ""


def test_an_import_beside_the_other_package_warns(site_packages: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.reload(fastpipe)

    (site_packages / "fastpipe-0.0.1.dist-info").mkdir()
    with pytest.warns(UserWarning, match=r"fastpipe 0\.0\.1 of another project") as caught:
        importlib.reload(fastpipe)
    message = str(caught[0].message)
    assert str(site_packages) in message
    assert message.endswith(f"Run: pip uninstall fastpipe, and then: {REINSTALL}")


def test_the_doctor_names_the_other_package(site_packages: Path) -> None:
    check = libraries._check_package()
    assert (check.found, check.verdict) == (f"{DISTRIBUTION} {fastpipe.__version__}", Verdict.OK)
    (site_packages / "fastpipe-2.5.dist-info").mkdir()
    check = libraries._check_package()
    assert check.verdict is Verdict.BAD
    assert "fastpipe 2.5 of another project" in check.advice


def test_a_folder_that_cannot_be_listed(
    site_packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution, "INSTALL_FOLDER", str(site_packages / "package.zip"))
    assert other_package_message() == ""


def test_the_command_ends_where_the_other_package_was_installed_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """pip has then replaced fastpipe/__init__.py, and the rest of the folder is still ours."""
    other = types.ModuleType("fastpipe")
    monkeypatch.setattr(sys.modules["fastpipe.tools.cli"], "fastpipe", other)
    with pytest.raises(SystemExit) as caught:
        main()
    assert "does not have the __init__.py of fastpipe-loader" in str(caught.value)
    assert REINSTALL in str(caught.value)


def test_completion_shows_public_names_only() -> None:
    assert dir(fastpipe) == sorted(fastpipe.__all__)
