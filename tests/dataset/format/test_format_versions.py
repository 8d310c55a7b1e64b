"""Datasets of each format version that a release has written are read for ever; the bytes of the newest one stay.

`versions/N` beside this file has the datasets of version N. `support/datasets/write_version.py` has made them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.datasets import write_version
from support.datasets.write_version import VERSIONS
from support.programs.cli_run import failed, succeeded

import fastpipe
from fastpipe.dataset.format.description import SELF_CHECKSUM, with_self_checksum
from fastpipe.dataset.format.layout import DATASET_FILE, FORMAT_VERSION, READABLE_VERSIONS
from fastpipe.sources.picture.jpeg import made_with

NEWEST = VERSIONS / str(FORMAT_VERSION)
# What depends on the libraries of the machine that packs, or follows from it.
MACHINE = ("made_with", "self_xxh3_64")
CHANGED = (
    "the bytes of a packed dataset have changed: raise FORMAT_VERSION, and follow CONTRIBUTING.md, "
    "'A new format version'"
)


def expected_of(version: Path) -> dict[str, Any]:
    return dict(json.loads((version / "expected.json").read_text(encoding="utf-8")))


def test_each_version_that_is_read_has_its_datasets() -> None:
    folders = {path.name for path in VERSIONS.iterdir() if path.name.isdigit()}
    assert folders == {str(number) for number in READABLE_VERSIONS}
    assert max(READABLE_VERSIONS) == FORMAT_VERSION


@pytest.mark.parametrize("number", READABLE_VERSIONS)
def test_a_dataset_of_each_version_is_read(number: int) -> None:
    version = VERSIONS / str(number)
    for name, expected in expected_of(version)["datasets"].items():
        folder, _, old = name.partition(", version ")
        data = fastpipe.open(version / folder, version=int(old) if old else None)
        # By way of JSON, as what was expected has come: a tuple is a list there.
        assert json.loads(json.dumps(write_version.read_all(data))) == expected, name


@pytest.mark.parametrize("number", READABLE_VERSIONS)
def test_a_dataset_of_each_version_is_verified(number: int) -> None:
    version = VERSIONS / str(number)
    for folder in ("jpeg", "coefficients"):
        assert "damage" not in succeeded("verify", version / folder)


@pytest.mark.parametrize("number", READABLE_VERSIONS)
def test_a_dataset_of_each_version_grows(number: int, tmp_path: Path) -> None:
    shutil.copytree(VERSIONS / str(number) / "coefficients", tmp_path / "data")
    grown = fastpipe.add(VERSIONS / str(number) / "source" / "photos", tmp_path / "data")
    assert grown.added == 1  # the sample that version 2 of the dataset lacks
    assert grown.info["format_version"] == FORMAT_VERSION
    assert len(fastpipe.open(tmp_path / "data")) == 4


def test_a_newer_version_is_not_damaged(tmp_path: Path) -> None:
    """No command says to pack it again, which may be days of work."""
    data = tmp_path / "data"
    shutil.copytree(NEWEST / "jpeg", data)
    info = json.loads((data / DATASET_FILE).read_bytes())
    del info[SELF_CHECKSUM]
    _, text = with_self_checksum(info | {"format_version": FORMAT_VERSION + 1})
    (data / DATASET_FILE).write_bytes(text)
    photos = NEWEST / "source" / "photos"
    for command in (
        ("inspect", data, "--no-sheet"),
        ("verify", data),
        ("log", data),
        ("add", photos, data),
        ("pack", photos, data),
        ("unpack", data, tmp_path / "photos"),
    ):
        words = failed(1, *command)
        assert "Upgrade: pip install --upgrade fastpipe-loader" in words, command
        assert "again" not in words, command
        assert "--overwrite" not in words, command
        assert "damaged" not in words, command


def contents(folder: Path) -> dict[str, Any]:
    """The files of version 1 of a dataset, by name; of dataset.json all that no library decides."""
    files: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith(("v1/", "v2/", "columns/")):
            files[name] = path.read_bytes()
    description = folder / "v1" / "dataset.json"
    if not description.exists():
        description = folder / "dataset.json"
    info = json.loads(description.read_bytes())
    files["dataset.json"] = {name: info[name] for name in info if name not in MACHINE}
    assert set(MACHINE) <= info.keys()
    return files


def assert_same(packed: Path, stored: Path) -> None:
    actual, expected = contents(packed), contents(stored)
    assert list(actual) == list(expected), CHANGED
    assert list(actual["dataset.json"]) == list(expected["dataset.json"]), CHANGED
    different = [name for name in actual if actual[name] != expected[name]]
    assert different == [], f"{CHANGED}. These differ: {different}"


def test_the_bytes_of_packed_jpegs_stay(tmp_path: Path) -> None:
    write_version.pack_coefficients(NEWEST / "source", tmp_path / "data")
    assert_same(tmp_path / "data", NEWEST / "coefficients")


def test_the_bytes_of_every_field_stay(tmp_path: Path) -> None:
    if made_with()["zlib"] != expected_of(NEWEST)["made_with"]["zlib"]:
        pytest.skip("another zlib may compress the PNGs of this dataset otherwise")
    write_version.write_jpeg(NEWEST / "source", tmp_path / "data")
    assert_same(tmp_path / "data", NEWEST / "jpeg")
