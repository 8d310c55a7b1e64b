"""Sources that go or change while they are packed, or between an interrupted pack and the next: each is seen."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.faults.packs import SMALL, assert_as_packed_anew, small_source
from support.running.soak import Tried, times
from support.sources.pack_sources import digests, jpeg_bytes

from fastpipe.errors import PackError
from fastpipe.packing.job import summary, threads
from fastpipe.packing.job.progress import PackProgress
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import Listing

CHANGED = "class-1/05.jpg"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return small_source(tmp_path / "source")


def vanish(file: Path) -> None:
    file.unlink()


def shorten(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def rewrite(file: Path) -> None:
    """Other bytes of the same size, in place."""
    time.sleep(0.02)  # a file system's clock may be that coarse
    file.write_bytes(bytes(file.stat().st_size))


def exchange(file: Path) -> None:
    """Another picture, larger, moved into its place."""
    other = file.with_name("other.tmp")
    other.write_bytes(jpeg_bytes((300, 200)) + b"more" * 9000)
    other.replace(file)


def block(file: Path) -> None:
    """A pipe in its place, which would be waited for in vain."""
    file.unlink()
    os.mkfifo(file)


def bury(file: Path) -> None:
    """A folder in its place."""
    file.unlink()
    file.mkdir()


def lose(file: Path) -> None:
    """The whole source folder goes, as when a disk is unplugged."""
    file.parents[1].rename(file.parents[1].with_name("elsewhere"))


CHANGES: dict[Callable[[Path], None], str] = {
    vanish: r"05.jpg has changed while packing: .* has disappeared \(No such file",
    shorten: r"05.jpg has changed while packing: it had [\d,]+ bytes when it was listed, and now has [\d,]+",
    rewrite: r"05.jpg has changed while packing: .* was written again, or something else is in its place",
    exchange: r"05.jpg has changed while packing: it had [\d,]+ bytes when it was listed, and now has [\d,]+",
    block: r"05.jpg has changed while packing: .* something else is in its place",
    bury: r"05.jpg has changed while packing: .* has disappeared \(Is a directory",
    lose: r"has changed while packing: .* has disappeared, with all of the source",
}
OUTCOME = "the pack names it and stops; a second run finishes; the bytes are those of the source as it is then"


@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changes_before_it_is_read_stops_the_pack(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tried: Tried,
    change: Callable[[Path], None],
) -> None:
    def then_change(root: Path, seed: int, **options: Any) -> Listing:
        listing = list_sources(root, seed, **options)
        change(source / CHANGED)
        return listing

    packed = tmp_path / "packed"
    with monkeypatch.context() as patched:
        patched.setattr(threads, "list_sources", then_change)
        with pytest.raises(PackError, match=CHANGES[change]) as caught:
            pack(source, packed, SMALL)
    assert "run the same command again" in str(caught.value)
    assert not (packed / "dataset.json").exists()
    if change is lose:
        source.with_name("elsewhere").rename(source)
    pack(source, packed, SMALL)
    assert_as_packed_anew(source, packed)
    tried("source file that goes or changes before it is read", 1, OUTCOME)


def change_while_reading(
    monkeypatch: pytest.MonkeyPatch, file: Path, change: Callable[[Path], None]
) -> None:
    """Reads come in halves from now on, and between the first two of one file that changes."""
    real, looked_at, changed = os.pread, file.stat(), []

    def half(handle: int, size_bytes: int, at: int) -> bytes:
        data = real(handle, size_bytes // 2 + 1, at)
        if not changed and os.path.samestat(os.fstat(handle), looked_at):
            changed.append(file)
            change(file)
        return data

    monkeypatch.setattr(os, "pread", half)


@pytest.mark.parametrize("change", [shorten, rewrite, lose])
def test_a_source_that_changes_while_it_is_read_stops_the_pack(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tried: Tried,
    change: Callable[[Path], None],
) -> None:
    packed = tmp_path / "packed"
    with monkeypatch.context() as patched:
        change_while_reading(patched, source / CHANGED, change)
        with pytest.raises(PackError, match=CHANGES[change]):
            pack(source, packed, SMALL)
    if change is lose:
        source.with_name("elsewhere").rename(source)
    pack(source, packed, SMALL)
    assert_as_packed_anew(source, packed)
    tried("source file that changes while it is read", 1, OUTCOME)


@pytest.mark.parametrize("change", [vanish, exchange, block, bury])
def test_a_source_that_is_replaced_while_it_is_read_is_packed_as_it_was(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tried: Tried,
    change: Callable[[Path], None],
) -> None:
    """An open file stays what it is, whatever takes its name; the next pack sees the change."""
    packed = tmp_path / "packed"
    one_shard = PackOptions(workers=1)  # so that no file is read twice: Note [plan]
    pack(source, tmp_path / "before", one_shard)
    with monkeypatch.context() as patched:
        change_while_reading(patched, source / CHANGED, change)
        pack(source, packed, one_shard)
    assert digests(packed) == digests(tmp_path / "before")
    with pytest.raises(PackError, match=r"the source files have changed.*--overwrite"):
        pack(source, packed, one_shard)
    tried(
        "source file that is replaced while it is read",
        1,
        "packed as it was; the next pack tells of the change",
    )


def test_a_source_that_changes_after_it_was_read_is_seen_by_the_next_pack(
    source: Path, tmp_path: Path, tried: Tried
) -> None:
    first = list_sources(source, 0).sources[0].path

    def change(now: PackProgress) -> None:
        if now.files == now.total_files:
            rewrite(source / first)

    pack(source, tmp_path / "packed", SMALL, on_progress=change)
    with pytest.raises(PackError, match=r"the source files have changed.*--overwrite"):
        pack(source, tmp_path / "packed", SMALL)
    pack(source, tmp_path / "packed", replace(SMALL, overwrite=True))
    assert_as_packed_anew(source, tmp_path / "packed")
    tried(
        "source file that changes after it was read, while the pack goes on",
        1,
        "the next pack tells of the change",
    )


def test_a_source_that_is_only_touched_by_a_backup_stops_nothing(
    source: Path, tmp_path: Path
) -> None:
    """Links and permissions are changed by what does not write: its times and size stay."""
    linked = tmp_path / "backup"

    def link(_: PackProgress) -> None:
        if not linked.exists():
            linked.mkdir()
            for file in source.rglob("*.jpg"):
                os.link(file, linked / file.name)
                file.chmod(0o644)

    pack(source, tmp_path / "packed", replace(SMALL, workers=1), on_progress=link)
    assert_as_packed_anew(source, tmp_path / "packed")


# After a pack was interrupted.


def rewrite_unseen(file: Path) -> None:
    """Other bytes of the same size; its time is put back to what it was."""
    written = file.stat()
    rewrite(file)
    os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))


def grow(file: Path) -> None:
    file.write_bytes(jpeg_bytes((300, 200)))


def unfinished(source: Path, packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All shards are there, the rest is not."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(summary, "publish_dataset", stop)
        with pytest.raises(KeyboardInterrupt):
            pack(source, packed, SMALL)


def shrink(file: Path) -> None:
    """A picture so small that it fits where none did."""
    file.write_bytes(jpeg_bytes((20, 20)))


@pytest.mark.parametrize("change", [vanish, rewrite_unseen, shrink, grow])
def test_only_what_a_change_concerns_is_packed_again(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tried: Tried,
    change: Callable[[Path], None],
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
    assert change is not rewrite_unseen or set(resumed) == {shards - 1}, (
        "only the shard of the source that changed"
    )
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
        PackError,
        match=rf"unfinished pack with other sources .*begun with the source {source}; now it is {other}\.",
    ):
        pack(other, packed, SMALL)
    assert digests(packed) == before
    source.rename(tmp_path / "moved")
    assert pack(tmp_path / "moved", packed, SMALL).resumed == len(
        list(packed.glob("shard-*.tar"))
    ), "the same files in another place are the same"
