"""Destinations: those that packing refuses before it begins, and those that hold a dataset already."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.sources.pack_sources import (
    digests,
    files,
    jpeg_bytes,
    states,
    write_files,
    write_folder,
    write_large_folder,
)

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, PackError
from fastpipe.packing.growth.version import versions
from fastpipe.packing.job.repack import Repack
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard import journal
from fastpipe.packing.shard.options import PackOptions, pack_options
from fastpipe.sources.picture.convert import EncodeOptions
from fastpipe.store import files as store_files


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "source")


@pytest.fixture
def packed(source: Path, tmp_path: Path) -> Path:
    """The dataset that it gives."""
    pack(source, tmp_path / "packed")
    return tmp_path / "packed"


def assert_as_packed_anew(source: Path, packed: Path, options: PackOptions | None = None) -> None:
    fresh = packed.with_name("fresh")
    pack(source, fresh, options)
    assert digests(packed) == digests(fresh)


def test_source_and_destination_lie_apart(source: Path) -> None:
    before = digests(source)
    for place in ("source", "source/inside", "."):
        with pytest.raises(ConfigError, match="must not contain"):
            pack(source, source.parent / place)
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
    place = tmp_path / "packed"
    if kind == "empty":
        place.mkdir()
    elif kind == "packed":
        pack(source, place)
    before = digests(source)
    with pytest.raises(
        PackError, match=rf"If {source} is the source, it comes first: fastpipe pack {source} DST"
    ):
        pack(place, source)
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


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOENT, "Choose another folder$"),
        (errno.EROFS, "Allow writing there, then run the same command again; or choose another"),
        (errno.ENOSPC, "Make room, then"),
        (errno.EIO, "Repair the disk, or allow writing and locks"),
    ],
)
def test_a_folder_that_cannot_be_created(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, advice: str
) -> None:
    """As in /proc: the system's reason, and not another pack."""

    def mkdir(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    words = f"cannot write to .*packed, or lock a file there: {os.strerror(code)}. {advice}"
    with pytest.raises(PackError, match=words):
        pack(source, tmp_path / "packed")


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
        with pytest.raises(PackError, match="another program is writing to"):
            pack(source, tmp_path / "packed")
    assert pack(source, tmp_path / "packed").info["samples"] == 24


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, 524])
def test_a_file_system_without_locks(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
) -> None:
    """As Lustre without the option flock, and NFS without its lock service: packing goes on, and says so."""

    def flock(*_: object) -> None:
        raise OSError(code, "no locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = tmp_path / "packed" / ".pack" / "lock"
    lock.parent.mkdir(parents=True)
    lock.write_bytes(b"another-machine 1 1")
    assert pack(source, tmp_path / "packed").info["samples"] == 24
    assert "has no locks (flock: no locks available), so packing goes on without one" in caplog.text


def test_another_pack_of_this_machine_is_noticed_without_locks(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = tmp_path / "packed" / ".pack" / "lock"
    lock.parent.mkdir(parents=True)
    lock.write_text(store_files._identify_process(os.getppid()))
    with pytest.raises(PackError, match="another program is writing to"):
        pack(source, tmp_path / "packed")
    # A process that has ended, and whose number another one has.
    lock.write_text(f"{store_files._identify_process(os.getppid())}0")
    assert pack(source, tmp_path / "packed").info["samples"] == 24


def test_options_out_of_range() -> None:
    encoding = ({"max_size": 0}, {"quality": 101}, {"max_pixels": 0}, {"max_scans": 0})
    for wrong in (*encoding, {"shard_size": 99_999}, {"seed": -1}, {"workers": 0}):
        with pytest.raises(ConfigError, match=r"expected [\d]+ to [\d]+, got"):
            pack_options(**wrong)


def test_files_of_the_same_names_that_are_not_ours_are_never_touched(
    source: Path, tmp_path: Path
) -> None:
    for number, theirs in enumerate(("dataset.json", ".pack/notes.txt")):
        names = (theirs, "index.npy", "shard-000000.tar", "shard-mine.tar")
        folder = write_files(
            tmp_path / str(number), dict.fromkeys(names, b'{"name": "nobody else\'s"}')
        )
        before = files(folder)
        for overwrite in (False, True):
            with pytest.raises(PackError, match="not empty and holds no packed dataset"):
                pack(source, folder, PackOptions(overwrite=overwrite))
            assert files(folder) == before


# Destinations that hold a dataset: nothing is done, it is refused, or it is replaced.


def test_a_finished_dataset_is_left_alone(source: Path, packed: Path) -> None:
    before, content = states(packed), digests(packed)
    for options in (PackOptions(workers=1), PackOptions(overwrite=True)):
        again = pack(source, packed, options)
        assert again.already_packed
        assert again.info == PackedIndex(packed).info
        assert states(packed) == before
        assert digests(packed) == content


OTHER_OPTIONS = [
    (PackOptions(shuffle=False), "without --no-shuffle; now it would be with --no-shuffle"),
    (
        PackOptions(EncodeOptions(apply_exif=True, tile=8)),
        "with --exif ignore, with --tile 32; now it would be with --exif apply, with --tile 8",
    ),
    (PackOptions(seed=1), "with --seed 0; now it would be with --seed 1 .seed=1."),
    (
        PackOptions(shard_size=200_000),
        "with --shard-size 256000000; now it would be with --shard-size 200000",
    ),
    (
        PackOptions(EncodeOptions(max_size=20)),
        "without --max-size; now it would be with --max-size 20 .max_size=20.",
    ),
    (
        PackOptions(EncodeOptions(keep_metadata=True)),
        "without --keep-metadata; now it would be with --keep-metadata",
    ),
    (PackOptions(EncodeOptions(tile=8)), "with --tile 32; now it would be with --tile 8"),
    (PackOptions(EncodeOptions(tile=0)), "with --tile 32; now it would be with --tile 0"),
    (
        PackOptions(EncodeOptions(storage="coefficients")),
        "with --storage jpeg; now it would be with --storage coefficients",
    ),
]


@pytest.mark.parametrize(("options", "words"), OTHER_OPTIONS)
def test_other_options_need_overwrite(
    source: Path, packed: Path, options: PackOptions, words: str
) -> None:
    before = digests(packed)
    with pytest.raises(PackError, match=rf"{words}.*--overwrite"):
        pack(source, packed, options)
    assert digests(packed) == before, "a refusal leaves the dataset as it was"
    assert not pack(source, packed, replace(options, overwrite=True)).already_packed
    assert_as_packed_anew(source, packed, options)


@pytest.mark.parametrize("change", ["added", "removed", "same size", "class"])
def test_changed_sources_need_overwrite(source: Path, packed: Path, change: str) -> None:
    if change == "added":
        (source / "ant" / "new.jpg").write_bytes(jpeg_bytes())
    elif change == "removed":
        (source / "ant" / "00.jpg").unlink()
    elif change == "same size":
        time.sleep(0.02)  # a file system's clock may be that coarse
        data = (source / "ant" / "00.jpg").read_bytes()
        (source / "ant" / "00.jpg").write_bytes(bytes(len(data)))
    else:
        (source / "zebra").mkdir()
    command = rf"remove {packed} --keys FILE" if change == "removed" else rf"add SRC {packed}\. "
    words = rf"{packed} is packed already.*have changed since.* {command}.*--overwrite"
    with pytest.raises(PackError, match=words):
        pack(source, packed)
    pack(source, packed, PackOptions(overwrite=True))
    assert_as_packed_anew(source, packed)


def test_moved_files_are_no_new_images(source: Path, packed: Path) -> None:
    """`fastpipe add` would give them a second class."""
    old = sorted((source / "ant").glob("*.jpg"))[:2]
    (source / "moth").mkdir()
    for file in old:
        file.rename(source / "moth" / f"m{file.name}")
    with pytest.raises(PackError) as caught:
        pack(source, packed)
    text = str(caught.value)
    assert "2 files are gone, 2 are new, 2 of the new ones have the images of files" in text
    pairs = [f"moth/m{file.name}, which was ant/{file.name}" for file in old]
    assert any(pair in text for pair in pairs)
    assert text.index("--overwrite") < text.index("fastpipe add")
    # With a new photo beside the moved ones, both ways are possible.
    (source / "moth" / "new.jpg").write_bytes(jpeg_bytes(seed=77))
    with pytest.raises(PackError, match=r"2 files are gone, 3 are new, .*To add the new images"):
        pack(source, packed)


def test_what_has_changed_in_a_source_is_counted(source: Path, packed: Path) -> None:
    first, second = sorted((source / "ant").glob("*.jpg"))[:2]
    first.unlink()
    second.write_bytes(second.read_bytes() + b"more")
    (source / "ant" / "new.jpg").write_bytes(jpeg_bytes(seed=77))
    words = "others: 1 file is gone, 1 is new, 1 is of another size or class. To add"
    with pytest.raises(PackError, match=words):
        pack(source, packed)


def renew(file: Path, how: str) -> None:
    """Gives a file a new time and leaves its content."""
    if how == "permissions":
        file.chmod(0o640)
    elif how == "link":
        os.link(file, file.parent.parent.parent / f"link-{file.parent.name}-{file.name}")
    elif how == "copy":
        shutil.copy2(file, file.with_suffix(".new"))
        os.replace(file.with_suffix(".new"), file)
    else:
        file.touch()


def describe_versions(packed: Path) -> list[tuple[int, int]]:
    """The versions that `fastpipe log` shows, and when each was made."""
    return [(version["version"], version["time_ns"]) for version in versions(packed)]


@pytest.mark.parametrize("how", ["permissions", "link", "copy", "touch"])
def test_files_with_a_new_time_and_the_same_content_are_packed_already(
    source: Path, tmp_path: Path, how: str
) -> None:
    packed = tmp_path / "packed"
    (source / "ant" / "bad.jpg").write_bytes(b"bad")
    pack(source, packed)
    content = digests(packed)
    versions_before = describe_versions(packed)
    time.sleep(0.01)
    for file in [file for file in source.rglob("*") if file.is_file()]:
        renew(file, how)
    assert pack(source, packed).already_packed
    assert digests(packed) == content
    assert describe_versions(packed) == versions_before
    looked_at: list[Path] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Repack, "remade", lambda *_: looked_at.append(source))
        assert pack(source, packed).already_packed
    assert not looked_at, "the second time nobody has to look"


@pytest.mark.parametrize("before", [True, False])
def test_other_content_of_the_same_size_and_time_is_seen(
    source: Path, tmp_path: Path, before: bool
) -> None:
    """Also where a file could not be packed, and now can."""
    packed = tmp_path / "packed"
    one, other = (jpeg_bytes(seed=seed) for seed in (1, 2))
    size = max(len(one), len(other))
    one, other = one + b"\0" * (size - len(one)), other + b"\0" * (size - len(other))
    file = source / "ant" / "changing.jpg"
    file.write_bytes(one if before else bytes(size))
    times = file.stat()
    pack(source, packed)
    time.sleep(0.01)
    file.write_bytes(other)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(PackError, match="the source files have changed"):
        pack(source, packed)


def test_fewer_shards_than_before(tmp_path: Path) -> None:
    """Replacing leaves no shard and no list of the old dataset behind."""
    source, packed = write_large_folder(tmp_path / "source", images=8), tmp_path / "packed"
    (source / "class-0" / "bad").write_bytes(b"bad")
    pack(source, packed, PackOptions(shard_size=100_000))
    assert {"rejected.jsonl", "shard-000001.tar"} <= set(os.listdir(packed))
    (source / "class-0" / "bad").unlink()
    pack(source, packed, PackOptions(overwrite=True))
    assert sorted(os.listdir(packed)) == [
        "dataset.json",
        "index.npy",
        "shard-000000.tar",
        "sources.npy",
    ]


def test_a_damaged_dataset_is_not_taken_for_packed(source: Path, packed: Path) -> None:
    whole = digests(packed)
    info = json.loads((packed / "dataset.json").read_text())
    del info["class_counts"]
    damages: list[Callable[[], object]] = [
        lambda: (packed / "shard-000000.tar").unlink(),
        lambda: os.truncate(packed / "shard-000000.tar", 5000),
        lambda: os.truncate(packed / "index.npy", 300),
        lambda: (packed / "dataset.json").write_text(json.dumps(info)),
    ]
    for damage in damages:
        damage()
        with pytest.raises(PackError, match=r"holds a damaged dataset: .*--overwrite"):
            pack(source, packed)
        pack(source, packed, PackOptions(overwrite=True))
        assert digests(packed) == whole


def test_the_old_dataset_stays_until_a_new_shard_is_there(
    source: Path, packed: Path, tmp_path: Path
) -> None:
    whole = digests(packed)
    bad = write_files(tmp_path / "bad", {"a/1.jpg": b"no image"})
    with pytest.raises(
        PackError,
        match=r"the only file in .* could not be packed; a/1\.jpg: not an image",
    ):
        pack(bad, packed, PackOptions(overwrite=True))
    assert {
        name: digest for name, digest in digests(packed).items() if ".pack" not in name
    } == whole
    assert pack(source, packed).already_packed


def test_files_that_were_rejected_do_not_pass_for_packed_where_none_may_be(
    source: Path, tmp_path: Path
) -> None:
    packed = tmp_path / "packed"
    (source / "ant" / "bad.jpg").write_bytes(b"no image")
    pack(source, packed)
    with pytest.raises(PackError, match=r"is packed without 1 file: .*--overwrite"):
        pack(source, packed, PackOptions(fail_fast=True))


def test_a_stop_while_replacing_never_takes_an_old_shard_for_a_new_one(
    source: Path, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another seed the only shard has the same size; only its content tells it from the old one."""
    other = PackOptions(seed=1, overwrite=True)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(journal.Journal, "remove_old_dataset", stop)
    with pytest.raises(KeyboardInterrupt):
        pack(source, packed, other)
    monkeypatch.undo()
    pack(source, packed, other)
    assert_as_packed_anew(source, packed, other)
