"""Files and folders that may not be read: the message has the command that allows it."""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.datasets.packed import damage
from support.programs.cli_run import fp
from support.sources.listed import refuse_to_list
from support.sources.pack_sources import write_folder

import fastpipe
from fastpipe.errors import DatasetError, PackError, SampleError, closed_path

Copy = Callable[[Path], Path]


@pytest.fixture
def close(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Takes the right to read a path away, as far as os.open and os.access tell; tests run as root."""

    def close_path(closed: Path) -> None:
        system_open = os.open
        system_access = os.access

        def refusing(path: Any, *args: Any, **options: Any) -> int:
            if os.fspath(path) == str(closed):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return system_open(path, *args, **options)

        def access(path: Any, mode: int) -> bool:
            return os.fspath(path) != str(closed) and system_access(path, mode)

        monkeypatch.setattr(os, "open", refusing)
        monkeypatch.setattr(os, "access", access)

    return close_path


def test_a_folder_that_pack_may_not_list(
    tmp_path: Path, close: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_folder(tmp_path / "source")
    close(source)
    refuse_to_list(source, monkeypatch)
    with pytest.raises(PackError) as caught:
        fastpipe.pack(source, tmp_path / "packed")
    assert str(caught.value) == (
        f"cannot read the folder {source}: permission denied. To allow it: chmod u+rx {source}"
    )


def test_a_class_folder_that_pack_may_not_read(
    tmp_path: Path, close: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_folder(tmp_path / "source")
    closed = source / "ant"
    system_stat = os.stat

    def refusing(path: Any, *args: Any, **options: Any) -> os.stat_result:
        # The folder itself has a state, but nobody may look for a file in it.
        if isinstance(path, (str, Path)) and closed in Path(path).parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return system_stat(path, *args, **options)

    close(closed)
    monkeypatch.setattr(os, "stat", refusing)
    with pytest.raises(PackError) as caught:
        fastpipe.pack(source, tmp_path / "packed")
    assert str(caught.value) == (
        f"cannot read the folder {closed}: permission denied. To allow it: chmod u+rx {closed}"
    )


def test_a_table_that_may_not_be_read(tmp_path: Path, close: Callable[[Path], None]) -> None:
    table = write_folder(tmp_path / "source") / "labels.csv"
    table.write_text("path,label\ncat/1.jpg,cat\n")
    close(table)
    with pytest.raises(PackError) as caught:
        fastpipe.pack(table, tmp_path / "packed")
    assert str(caught.value) == (
        f"cannot read {table}: permission denied. To allow it: chmod u+r {table}"
    )


def test_an_index_that_may_not_be_read(
    flat: Path, copied: Copy, close: Callable[[Path], None]
) -> None:
    dataset = copied(flat)
    index = dataset / "index.npy"
    close(index)
    with pytest.raises(DatasetError) as caught:
        fastpipe.open(dataset)
    assert str(caught.value) == (
        f"cannot read {index}: permission denied. To allow it: chmod u+r {index}"
    )
    assert type(caught.value) is DatasetError
    result = fp("verify", dataset)
    assert result.exit_code == 1
    words = result.stdout.replace("\n", " ")
    assert f"It may be sound: cannot read {index}: permission denied" in words
    assert "--repair" not in words


def test_a_dataset_json_that_may_not_be_read(
    flat: Path, copied: Copy, close: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = copied(flat)
    description = dataset / "dataset.json"
    close(description)
    read_bytes = Path.read_bytes

    def refusing(path: Path) -> bytes:
        if path == description:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refusing)
    with pytest.raises(DatasetError, match=r"cannot read .*dataset\.json: .*chmod u\+r "):
        fastpipe.open(dataset)


def test_a_shard_that_may_not_be_read_needs_no_repair(
    flat: Path, copied: Copy, close: Callable[[Path], None]
) -> None:
    dataset = copied(flat)
    damage(dataset, 3)
    close(dataset / "shard-000000.tar")
    with pytest.raises(SampleError, match=r"\n  cannot read .*tar: .*chmod u\+r ") as caught:
        fastpipe.open(dataset)[3]
    assert "--repair" not in str(caught.value)


def test_a_disk_that_refuses_is_not_answered_with_chmod(
    flat: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = copied(flat)
    system_open = os.open

    def refusing(path: Any, *args: Any, **options: Any) -> int:
        if str(path).endswith("index.npy"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return system_open(path, *args, **options)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(DatasetError, match="cannot be opened: Input/output error; restore it"):
        fastpipe.open(dataset)


def test_a_folder_above_need_not_be_listed(
    flat: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Home folders are often such: others may pass, and may not list them."""
    dataset = copied(flat)
    damage(dataset, 3)
    monkeypatch.setattr(
        os, "access", lambda path, mode: mode == os.X_OK or path not in dataset.parents
    )
    assert closed_path(dataset / "index.npy") == ""
    with pytest.raises(SampleError) as caught:
        fastpipe.open(dataset)[3]
    assert "permission denied" not in str(caught.value)


def test_only_the_owner_can_give_a_right(
    tmp_path: Path, close: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("")
    close(file)
    owner = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert closed_path(file) == (
        f"cannot read {file}: permission denied. Its owner, {owner}, can allow it: chmod a+r {file}"
    )
