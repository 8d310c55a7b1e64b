"""Ranks of a program that write with a Writer each: to one folder, or to one of their own."""

from __future__ import annotations

import fcntl
from pathlib import Path

import numpy as np
import pytest

import fastpipe
from fastpipe.errors import PackError


def write(folder: Path, **options: bool) -> None:
    with fastpipe.Writer(folder, classes=["ant"], **options) as writer:
        writer.add(np.zeros((8, 8, 3), np.uint8), label="ant")


@pytest.fixture
def second_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")


def advice(folder: Path) -> str:
    name = f"f'{folder}-{{rank}}'"
    return (
        f"give each rank a folder of its own and the same classes, fastpipe.Writer({name}, "
        f"classes=CLASSES), and read them as one dataset: fastpipe.concat(*[{name} for rank in range(2)])"
    )


@pytest.mark.usefixtures("second_rank")
def test_another_rank_has_finished(tmp_path: Path) -> None:
    write(tmp_path / "out")
    with pytest.raises(PackError) as caught:
        write(tmp_path / "out")
    assert f"if another rank has written it, {advice(tmp_path / 'out')}. If" in str(caught.value)
    write(tmp_path / "out-1")
    write(tmp_path / "out-0")
    parts = [f"{tmp_path / 'out'}-{rank}" for rank in range(2)]
    assert len(fastpipe.concat(*parts)) == 2


def test_one_process_may_replace_its_dataset(tmp_path: Path) -> None:
    write(tmp_path / "out")
    with pytest.raises(PackError, match=r"To write it anew, .* pass overwrite=True"):
        write(tmp_path / "out")


@pytest.mark.parametrize("world_size", ["1", "2"])
def test_another_rank_is_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world_size: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", world_size)
    (tmp_path / "out/.pack").mkdir(parents=True)
    with open(tmp_path / "out/.pack/lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PackError, match="another program is writing to") as caught:
            write(tmp_path / "out")
    assert (advice(tmp_path / "out") in str(caught.value)) == (world_size == "2")
    # The error of the lock says nothing more.
    assert caught.value.__suppress_context__


@pytest.mark.usefixtures("second_rank")
def test_replacing_what_another_rank_wrote_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "out", overwrite=True)
    write(tmp_path / "out", overwrite=True)
    assert caplog.text.count("rank 1 of 2 writes here with overwrite=True") == 1
    assert advice(tmp_path / "out") in caplog.text


@pytest.mark.usefixtures("second_rank")
@pytest.mark.parametrize("right", ["folder of its own", "rank 0 alone", "one process"])
def test_right_programs_may_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, right: str
) -> None:
    folder = tmp_path / "out"
    if right == "folder of its own":
        folder = tmp_path / "rank1" / "out"
    elif right == "rank 0 alone":
        monkeypatch.setenv("RANK", "0")
    else:
        monkeypatch.setenv("WORLD_SIZE", "1")
    write(folder, overwrite=True)
    assert not caplog.text
