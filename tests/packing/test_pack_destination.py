"""Tests of what packing refuses before it begins: destinations that are not its own, options out of range."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest
from support.sources.pack_sources import digests, files, write_folder

from fastpipe.errors import ConfigError, PackError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.pipeline import converting
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.listing import Source
from fastpipe.sources.picture.convert import EncodeOptions


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "source")


@pytest.mark.parametrize(
    ("destination", "words"),
    [("source", "must not contain"), ("source/inside", "must not contain"), (".", "must not contain")],
)
def test_source_and_destination_lie_apart(source: Path, destination: str, words: str) -> None:
    before = digests(source)
    with pytest.raises(ConfigError, match=words):
        pack(source, source.parent / destination)
    assert digests(source) == before


def test_a_destination_that_is_not_ours_is_not_touched(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"precious")
    with pytest.raises(PackError, match="file is a file; expected a folder"):
        pack(source, tmp_path / "file")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_bytes(b"precious")
    for options in (PackOptions(), PackOptions(overwrite=True)):
        with pytest.raises(PackError, match="foreign is not empty and holds no packed dataset"):
            pack(source, tmp_path / "foreign", options)
    assert files(tmp_path / "foreign") == {"thesis.txt": b"precious"}
    with pytest.raises(PackError, match=r"cannot use .*Not a directory"):
        pack(source, tmp_path / "file" / "below")


@pytest.mark.parametrize("kind", ["absent", "empty", "packed"])
def test_swapped_source_and_destination_are_named(source: Path, tmp_path: Path, kind: str) -> None:
    destination = tmp_path / "packed"
    if kind == "empty":
        destination.mkdir()
    elif kind == "packed":
        pack(source, destination)
    before = digests(source)
    with pytest.raises(PackError, match=rf"If {source} is the source, it comes first: fastpipe pack {source} DST"):
        pack(destination, source)
    assert digests(source) == before
    with pytest.raises(PackError, match="does not exist") as caught:
        pack(tmp_path / "nowhere", tmp_path / "new")
    assert "comes first" not in str(caught.value)


def test_a_tar_in_the_place_of_the_destination_is_named(tmp_path: Path) -> None:
    (tmp_path / "photos.tar").touch()
    with pytest.raises(PackError, match=r"If .*photos\.tar is the source, it comes first"):
        pack(tmp_path / "new", tmp_path / "photos.tar")


def test_an_empty_destination_is_fine(source: Path, tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir()
    assert pack(source, tmp_path / "packed").info["samples"] == 24


def test_the_lock_is_not_written_through_a_link(source: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "packed" / ".pack").mkdir(parents=True)
    (tmp_path / "packed" / ".pack" / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(PackError, match=r"cannot write to .*symbolic links"):
        pack(source, tmp_path / "packed")
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_work_folder_elsewhere_is_not_used(source: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / ".pack").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PackError, match=r"\.pack is a link; expected a folder"):
        pack(source, tmp_path / "packed")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_two_packs_at_once(source: Path, tmp_path: Path) -> None:
    (tmp_path / "packed" / ".pack").mkdir(parents=True)
    with open(tmp_path / "packed" / ".pack" / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PackError, match="another pack is writing to"):
            pack(source, tmp_path / "packed")
    assert pack(source, tmp_path / "packed").info["samples"] == 24


@pytest.mark.parametrize(
    "wrong",
    [
        {"shard_size": 99_999},
        {"seed": -1},
        {"workers": 0},
        {"encode": EncodeOptions(max_size=0)},
        {"encode": EncodeOptions(quality=101)},
        {"encode": EncodeOptions(max_pixels=0)},
        {"encode": EncodeOptions(max_scans=0)},
    ],
)
def test_options_out_of_range(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"expected [\d]+ to [\d]+, got"):
        PackOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("theirs", ["dataset.json", ".pack/notes.txt"])
def test_files_of_the_same_names_that_are_not_ours_are_never_touched(
    tmp_path: Path, theirs: str, overwrite: bool
) -> None:
    source, folder = write_folder(tmp_path / "source"), tmp_path / "theirs"
    for name in (theirs, "index.npy", "shard-000000.tar", "shard-mine.tar"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"name": "nobody else\'s"}')
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(PackError, match="not empty and holds no packed dataset"):
        pack(source, folder, PackOptions(overwrite=overwrite))
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_a_systems_error_stops_the_pack_and_rejects_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, packed = write_folder(tmp_path / "source"), tmp_path / "packed"
    real = converting.read_source

    def fail(root: Path, file: Source) -> bytes:
        if file.path == "ant/00.jpg":
            raise OSError(errno.EIO, "Input/output error")
        return real(root, file)

    monkeypatch.setattr(converting, "read_source", fail)
    with pytest.raises(PackError, match=r"cannot read .*ant/00.jpg: Input/output error.*run the same command again"):
        pack(source, packed)
    monkeypatch.undo()
    pack(source, packed)
    assert not (packed / "rejected.jsonl").exists()
