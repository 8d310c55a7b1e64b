"""Files go to the packing threads in runs, and come back in order, one by one."""

from __future__ import annotations

import errno
import io
import os
import time
from pathlib import Path

import pytest
from PIL import Image
from support.sources.pack_sources import write_large_folder

import fastpipe
from fastpipe import _engine
from fastpipe.errors import PackError
from fastpipe.packing.job import planning
from fastpipe.packing.pipeline import ahead, converting
from fastpipe.packing.pipeline.converting import convert_sources
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import Listing, Source
from fastpipe.sources.picture import convert
from fastpipe.sources.picture.convert import EncodeOptions, Packed
from fastpipe.sources.picture.probe import EXPECTED
from fastpipe.sources.source_bytes import START_BYTES


@pytest.fixture(scope="module")
def listing(tmp_path_factory: pytest.TempPathFactory) -> Listing:
    """50 small pictures and one that is none."""
    root = tmp_path_factory.mktemp("pipeline")
    (root / "only").mkdir()
    for number in range(50):
        Image.new("RGB", (8 + number, 9), (number, 2 * number, 90)).save(
            root / "only" / f"{number}.jpg"
        )
    (root / "only" / "text.jpg").write_text("no picture")
    return list_sources(root, seed=1)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("run_bytes", "run_files"), [(1, 1), (2000, 16), (1 << 20, 4), (1 << 20, 1000)]
)
def test_every_file_comes_once_in_order(
    listing: Listing, workers: int, run_bytes: int, run_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(ahead, "RUN_TASKS", run_files)
    found = list(convert_sources(listing, listing.sources[7:], PackOptions(workers=workers)))
    assert [source for source, _ in found] == listing.sources[7:]
    for source, outcome in found:
        if source.path == "only/text.jpg":
            assert isinstance(outcome, str)
        else:
            assert not isinstance(outcome, str)
            assert outcome.width == 8 + int(Path(source.path).stem)


def test_a_large_file_that_is_no_picture_is_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only").mkdir()
    film = tmp_path / "only" / "clip.jpg"  # a film by its content
    film.write_bytes(b"\0\0\0\x20ftypisom\0\0\2\0isomiso2avc1mp41")
    os.truncate(film, 3 << 30)
    real = converting.read_source

    def start_only(root: Path, source: Source, most_bytes: int | None = None) -> bytes:
        assert most_bytes == START_BYTES, "it was read"
        return real(root, source, most_bytes)

    monkeypatch.setattr(converting, "read_source", start_only)
    listing = list_sources(tmp_path, seed=1)
    ((_, outcome),) = convert_sources(listing, listing.sources, PackOptions(workers=1))
    assert outcome == f"ISO media file (brand b'isom') is not supported; {EXPECTED}"


def test_what_came_before_an_error_of_the_system_is_handed_out(
    listing: Listing, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = converting.read_source
    broken = listing.sources[20].path

    def fail(root: Path, source: Source) -> bytes:
        if source.path == broken:
            raise OSError(errno.EIO, "Input/output error")
        return real(root, source)

    monkeypatch.setattr(converting, "read_source", fail)
    pictures = convert_sources(listing, listing.sources, PackOptions(workers=2))
    assert [next(pictures)[0] for _ in range(20)] == listing.sources[:20]
    with pytest.raises(PackError, match=r"cannot read .*Input/output error.*same command again"):
        next(pictures)


def test_closing_stops_within_a_run(listing: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "RUN_TASKS", 10)
    reads = []
    real = converting.read_source

    def slow(root: Path, source: Source) -> bytes:
        reads.append(source.path)
        time.sleep(0.03)
        return real(root, source)

    monkeypatch.setattr(converting, "read_source", slow)
    pictures = convert_sources(listing, listing.sources, PackOptions(workers=1))
    next(pictures)  # the first run is done, the second has begun
    pictures.close()
    assert 10 <= len(reads) < 20


@pytest.mark.parametrize(("kept_bytes", "again"), [(64 << 20, 0), (1, 11)])
def test_files_that_the_plan_is_made_of_are_converted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int, again: int
) -> None:
    """As far as they are kept in memory until then."""
    monkeypatch.setattr(planning, "_MAX_KEPT_BYTES", kept_bytes)
    read: list[str] = []
    real = converting.read_source

    def counted(root: Path, source: Source) -> bytes:
        read.append(source.path)
        return real(root, source)

    monkeypatch.setattr(converting, "read_source", counted)
    source = write_large_folder(tmp_path / "source", images=12)
    summary = fastpipe.pack(source, tmp_path / "packed", shard_size=100_000)
    assert len(summary.info["shards"]) > 2
    assert len(set(read)) == 12
    assert len(read) == 12 + again


def test_a_lack_of_memory_stops_the_pack_and_names_the_file(
    listing: Listing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a dataset holds must not depend on the machine's memory."""

    def fail(*_: object) -> Packed:
        raise MemoryError

    monkeypatch.setattr(converting, "convert", fail)
    with pytest.raises(
        PackError, match=rf"not enough memory for {listing.root}/only/.*--workers.*--max-pixels"
    ):
        list(convert_sources(listing, listing.sources, PackOptions(workers=2)))


def test_memory_that_the_engine_lacks_is_no_fault_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        problem = _engine.StatusError("not enough memory: for 9 x 9 pixels")
        problem.code = _engine.Code.out_of_memory
        raise problem

    monkeypatch.setattr(_engine, "transcode", fail)
    file = io.BytesIO()
    Image.new("RGB", (9, 9)).save(file, "JPEG")
    with pytest.raises(MemoryError):
        convert.convert(file.getvalue(), EncodeOptions())
