"""Caches have a folder of their own, also for users without a home."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from fastpipe.machine.cache_folder import cache_folder


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FASTPIPE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_users_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert cache_folder() == Path(tempfile.gettempdir()) / f"fastpipe-{os.getuid()}"


@pytest.mark.parametrize(
    ("name", "value", "there"),
    [
        ("FASTPIPE_CACHE", "caches", "caches"),
        ("XDG_CACHE_HOME", "caches", "caches/fastpipe"),
        ("HOME", "home", "home/.cache/fastpipe"),
    ],
)
def test_a_relative_folder_is_that_of_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str, there: str
) -> None:
    monkeypatch.setenv(name, value)
    assert cache_folder() == tmp_path / there
