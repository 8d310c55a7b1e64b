"""Tests of packs that are interrupted: they go on, and the bytes are the same."""

from __future__ import annotations

import os
import pickle
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.sources.pack_sources import digests, states, write_large_folder

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import DatasetError, PackError
from fastpipe.packing.job import destination as destination_of_packs
from fastpipe.packing.job import planning
from fastpipe.packing.job.progress import PackProgress
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.picture.jpeg import made_with

SHARDS = PackOptions(shard_size=100_000, workers=2)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_large_folder(tmp_path_factory.mktemp("resume") / "source", images=32)
    for name in ("bad", "worse"):
        (folder / "class-0" / name).write_bytes(name.encode())
    return folder


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    destination = tmp_path_factory.mktemp("undisturbed") / "packed"
    pack(source, destination, SHARDS)
    return digests(destination)


def shards(destination: Path) -> list[Path]:
    return sorted(destination.glob("shard-*.tar"))


def assert_unfinished(destination: Path) -> None:
    """No final name holds an unfinished file, and nobody takes the folder for a dataset."""
    for shard in shards(destination):
        with tarfile.open(shard) as tar:
            assert len(tar.getmembers()) % 3 == 0
    assert not (destination / "dataset.json").exists()
    with pytest.raises(DatasetError, match="unfinished pack" if shards(destination) else None):
        PackedIndex(destination)


def stop_after(source: Path, destination: Path, finished: int) -> None:
    def stop(_: PackProgress) -> None:
        if len(shards(destination)) >= finished:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(source, destination, SHARDS, on_progress=stop)


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "packed"


@pytest.mark.parametrize("finished", [0, 1, 5])
def test_an_interrupted_pack_goes_on(
    source: Path, destination: Path, undisturbed: dict[str, str], finished: int
) -> None:
    stop_after(source, destination, finished)
    assert_unfinished(destination)
    before = states(destination)
    assert finished <= len(before) <= finished + 2  # the next one was on its way to the disk
    summary = pack(source, destination, replace(SHARDS, workers=1))  # others go on, too
    assert digests(destination) == undisturbed
    assert before.items() <= states(destination).items()
    assert summary.resumed == len(before)
    assert len(summary.tally.rejected) == 2
    assert summary.info["packs"][0]["source"]["files"] == 34


def test_harmed_notes_of_an_unfinished_pack_count_for_nothing(
    source: Path, destination: Path, undisturbed: dict[str, str]
) -> None:
    for content in (b"", pickle.dumps([1]), b"[" * 100_000, b"[]\n", b"{}\n"):
        shutil.rmtree(destination, ignore_errors=True)
        stop_after(source, destination, 3)
        there = len(shards(destination))
        (note,) = (destination / ".pack").glob("shard-000001-*.done")
        note.write_bytes(content)
        assert pack(source, destination, SHARDS).resumed == there - 1, content[:10]
        assert digests(destination) == undisturbed


@pytest.mark.parametrize("name", ["shard-000002.tar", "index.npy"])
def test_nothing_is_written_through_a_link(
    source: Path, destination: Path, undisturbed: dict[str, str], tmp_path: Path, name: str
) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    stop_after(source, destination, 1)
    (destination / name).unlink(missing_ok=True)
    (destination / name).symlink_to(tmp_path / "precious")
    pack(source, destination, SHARDS)
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert digests(destination) == undisturbed


@pytest.mark.parametrize("harm", ["removed", "shortened"])
def test_a_harmed_shard_of_an_unfinished_pack_is_made_anew(
    source: Path, destination: Path, undisturbed: dict[str, str], harm: str
) -> None:
    stop_after(source, destination, 4)
    there = len(shards(destination))
    if harm == "removed":
        shards(destination)[1].unlink()
    else:
        os.truncate(shards(destination)[1], 512)
    assert pack(source, destination, SHARDS).resumed == there - 1
    assert digests(destination) == undisturbed


def test_an_unfinished_pack_of_other_options_needs_overwrite(
    source: Path, destination: Path, undisturbed: dict[str, str]
) -> None:
    stop_after(source, destination, 2)
    before = states(destination)
    with pytest.raises(
        PackError,
        match=r"unfinished pack with other sources or options: it was begun with --seed 0; now .* --seed 1",
    ):
        pack(source, destination, PackOptions(shard_size=100_000, seed=1))
    assert states(destination) == before
    pack(source, destination, PackOptions(shard_size=100_000, seed=1, overwrite=True))
    pack(source, destination, PackOptions(shard_size=100_000, overwrite=True))
    assert digests(destination) == undisturbed


def test_a_pack_does_not_go_on_with_another_pillow(
    source: Path, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(source, destination, 2)
    before = digests(destination)
    for module in (destination_of_packs, planning):
        monkeypatch.setattr(module, "made_with", lambda: {**made_with(), "pillow": "1.1.7"})
    with pytest.raises(PackError, match=r"it was begun with pillow [\d.]+; now it is 1\.1\.7\."):
        pack(source, destination, SHARDS)
    assert digests(destination) == before


def test_shards_of_another_format_are_made_anew(
    source: Path, destination: Path, undisturbed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index records in their notes may have other fields."""
    with monkeypatch.context() as patch:
        patch.setattr(planning, "FORMAT_VERSION", 6)
        stop_after(source, destination, 2)
    before = states(destination)
    assert len(before) >= 2
    pack(source, destination, SHARDS)
    assert digests(destination) == undisturbed
    assert not before.items() & states(destination).items()
