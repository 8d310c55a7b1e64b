"""Sources that change between an interrupted pack and the next: only what that concerns is packed again."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.faults.packs import SMALL, assert_as_packed_anew, small_source
from support.running.soak import Tried, times
from support.sources.pack_sources import digests, jpeg_bytes

from fastpipe.errors import PackError
from fastpipe.packing.job import threads
from fastpipe.packing.job.threads import pack
from fastpipe.sources.kinds import list_sources


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return small_source(tmp_path / "source")


def vanish(file: Path) -> None:
    file.unlink()


def rewrite(file: Path) -> None:
    """Other bytes of the same size; its time is put back to what it was."""
    time.sleep(0.02)  # a file system's clock may be that coarse
    written = file.stat()
    file.write_bytes(bytes(written.st_size))
    os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))


def grow(file: Path) -> None:
    file.write_bytes(jpeg_bytes((300, 200)))


def unfinished(source: Path, packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All shards are there, the rest is not."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threads, "publish_dataset", stop)
        with pytest.raises(KeyboardInterrupt):
            pack(source, packed, SMALL)


def shrink(file: Path) -> None:
    """A picture so small that it fits where none did."""
    file.write_bytes(jpeg_bytes((20, 20)))


@pytest.mark.parametrize("change", [vanish, rewrite, shrink, grow])
def test_only_what_a_change_concerns_is_packed_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tried: Tried, change: Callable[[Path], None]
) -> None:
    keep, packed = tmp_path / "keep", tmp_path / "packed"
    shutil.copytree(source, keep)
    paths = [one.path for one in list_sources(source, 0).sources]
    resumed, shards = [], len(pack(source, packed, SMALL).info["shards"])
    for path in paths[:: times(2, 1)]:
        for folder in (source, packed):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(keep, source)
        unfinished(source, packed, monkeypatch)
        change(source / path)
        resumed.append(pack(source, packed, SMALL).resumed)
        assert_as_packed_anew(source, packed)
    # Of so few sources one that comes or goes changes the size of shards; in tests of plans there are more.
    assert change is not rewrite or set(resumed) == {shards - 1}, "only the shard of the source that changed"
    tried(
        "source file that goes or changes after a pack was interrupted",
        len(resumed),
        "its shard is packed again; same bytes",
    )


def test_files_that_come_after_a_pack_was_interrupted(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "packed"
    unfinished(source, packed, monkeypatch)
    shards = len(list(packed.glob("shard-*.tar")))
    (source / "class-1" / "new.jpg").write_bytes(jpeg_bytes((20, 20)))
    assert pack(source, packed, SMALL).resumed >= shards - 1
    assert_as_packed_anew(source, packed)


def test_another_folder_is_not_taken_for_the_same_one_changed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "packed"
    unfinished(source, packed, monkeypatch)
    before = digests(packed)
    other = small_source(tmp_path / "other")
    (other / "class-0" / "bad").unlink()
    with pytest.raises(
        PackError, match=rf"unfinished pack with other sources .*source '{source}' there, '{other}' now"
    ):
        pack(other, packed, SMALL)
    assert digests(packed) == before
    source.rename(tmp_path / "moved")
    assert pack(tmp_path / "moved", packed, SMALL).resumed == len(list(packed.glob("shard-*.tar"))), (
        "the same files in another place are the same"
    )
