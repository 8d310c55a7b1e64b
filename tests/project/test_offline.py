"""Without URLs fastpipe opens no connection, and it writes nothing into the folders that it reads."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from support.pictures.drawn import smooth_noise

import fastpipe


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Path:
    """Has photos/, two class folders."""
    monkeypatch.chdir(tmp_path)
    for number in range(8):
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        smooth_noise(40, 50, seed=number).save(path)
    return tmp_path


def pack_and_load(packed: str) -> None:
    fastpipe.pack("photos", packed)
    for data in ("photos", packed):
        with fastpipe.loader(data, 4, size=32) as loader:
            for _ in loader:
                pass


def test_no_connection_is_opened(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        pytest.fail(f"a connection to {arguments[1:]}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    pack_and_load("packed")


def test_folders_that_are_read_stay_as_they_are(workplace: Path) -> None:
    pack_and_load("packed")
    before = times(workplace / "photos") | times(workplace / "packed")
    pack_and_load("packed-again")
    with fastpipe.loader("packed", 4, size=32) as loader:
        for _ in loader:
            pass
    assert times(workplace / "photos") | times(workplace / "packed") == before


def times(folder: Path) -> dict[Path, int]:
    """When each file and folder was last written, a folder also when a file came into it."""
    return {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}
