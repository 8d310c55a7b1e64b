"""Tests of packing into a folder that holds a dataset already: nothing is done, it is refused, or it is replaced."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sources.pack_sources import digests, jpeg_bytes, write_folder, write_large_folder

from fastpipe.errors import PackError
from fastpipe.packing.job import destination
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard import journal
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.picture.convert import EncodeOptions


def states(folder: Path) -> dict[str, tuple[int, int]]:
    """What a file system tells of files: another inode or time, and they were written anew."""
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in folder.iterdir()}


def test_a_finished_dataset_is_left_alone(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "source")
    first = pack(source, tmp_path / "packed")
    before, content = states(tmp_path / "packed"), digests(tmp_path / "packed")
    again = pack(source, tmp_path / "packed", PackOptions(workers=1))
    assert again.already_packed
    assert again.info == first.info
    assert states(tmp_path / "packed") == before
    assert digests(tmp_path / "packed") == content


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (PackOptions(seed=1), "seed 0 there, 1 now"),
        (PackOptions(shard_size=200_000), "shard_size 256000000 there, 200000 now"),
        (PackOptions(EncodeOptions(max_size=20)), "max_size None there, 20 now"),
        (PackOptions(EncodeOptions(keep_metadata=True)), "keep_metadata False there, True now"),
        (PackOptions(EncodeOptions(tile=8)), "tile 32 there, 8 now"),
        (PackOptions(EncodeOptions(tile=0)), "tile 32 there, 0 now"),
    ],
)
def test_other_options_need_overwrite(tmp_path: Path, options: PackOptions, words: str) -> None:
    source, packed = write_folder(tmp_path / "source"), tmp_path / "packed"
    pack(source, packed)
    before = digests(packed)
    with pytest.raises(PackError) as caught:
        pack(source, packed, options)
    assert words in str(caught.value)
    assert "--overwrite" in str(caught.value)
    assert digests(packed) == before, "a refusal leaves the dataset as it was"

    replaced = PackOptions(options.encode, options.shard_size, options.seed, overwrite=True)
    assert not pack(source, packed, replaced).already_packed
    pack(source, tmp_path / "fresh", options)
    assert digests(packed) == digests(tmp_path / "fresh")


@pytest.mark.parametrize("change", ["added", "removed", "same size", "class"])
def test_changed_sources_need_overwrite(tmp_path: Path, change: str) -> None:
    source, packed = write_folder(tmp_path / "source"), tmp_path / "packed"
    pack(source, packed)
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
    with pytest.raises(PackError, match=r"the source files have changed.*--overwrite"):
        pack(source, packed)
    pack(source, packed, PackOptions(overwrite=True))
    pack(source, tmp_path / "fresh")
    assert digests(packed) == digests(tmp_path / "fresh")


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


@pytest.mark.parametrize("how", ["permissions", "link", "copy", "touch"])
def test_files_with_a_new_time_and_the_same_content_are_packed_already(tmp_path: Path, how: str) -> None:
    source, packed = write_folder(tmp_path / "source"), tmp_path / "packed"
    (source / "ant" / "bad.jpg").write_bytes(b"bad")
    pack(source, packed)
    content = digests(packed)
    time.sleep(0.01)
    for file in [file for file in source.rglob("*") if file.is_file()]:
        renew(file, how)
    assert pack(source, packed).already_packed
    assert digests(packed) == content
    looked_at: list[Path] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(destination.Repack, "remade", lambda *_: looked_at.append(source))
        assert pack(source, packed).already_packed
    assert not looked_at, "the second time nobody has to look"


@pytest.mark.parametrize("before", [True, False])
def test_other_content_of_the_same_size_and_time_is_seen(tmp_path: Path, before: bool) -> None:
    """Also where a file could not be packed, and now can."""
    source, packed = write_folder(tmp_path / "source"), tmp_path / "packed"
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
    assert sorted(os.listdir(packed)) == ["dataset.json", "index.npy", "shard-000000.tar", "sources.npy"]


def test_a_damaged_dataset_is_not_taken_for_packed(tmp_path: Path) -> None:
    source, packed = write_folder(tmp_path / "source"), tmp_path / "packed"
    pack(source, packed)
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
        with pytest.raises(PackError, match=r"or a damaged dataset: .*--overwrite"):
            pack(source, packed)
        pack(source, packed, PackOptions(overwrite=True))
        assert digests(packed) == whole


def test_overwrite_has_nothing_to_do_where_nothing_differs(tmp_path: Path) -> None:
    source, packed = write_folder(tmp_path / "source"), tmp_path / "packed"
    pack(source, packed)
    before = states(packed)
    assert pack(source, packed, PackOptions(overwrite=True)).already_packed
    assert states(packed) == before


def test_the_old_dataset_stays_until_a_new_shard_is_there(tmp_path: Path) -> None:
    source, packed = write_folder(tmp_path / "source"), tmp_path / "packed"
    pack(source, packed)
    whole = digests(packed)
    bad = tmp_path / "bad"
    (bad / "a").mkdir(parents=True)
    (bad / "a" / "1.jpg").write_bytes(b"no image")
    with pytest.raises(PackError, match="none of the 1 files"):
        pack(bad, packed, PackOptions(overwrite=True))
    assert {name: digest for name, digest in digests(packed).items() if ".pack" not in name} == whole
    assert pack(source, packed).already_packed


def test_files_that_were_rejected_do_not_pass_for_packed_where_none_may_be(tmp_path: Path) -> None:
    source, packed = write_folder(tmp_path / "source"), tmp_path / "packed"
    (source / "ant" / "bad.jpg").write_bytes(b"no image")
    pack(source, packed)
    with pytest.raises(PackError, match=r"1 files were rejected.*--overwrite"):
        pack(source, packed, PackOptions(fail_fast=True))


def test_a_stop_while_replacing_never_takes_an_old_shard_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another seed the only shard has the same size; only its content tells it from the old one."""
    source, packed = write_folder(tmp_path / "source"), tmp_path / "packed"
    pack(source, packed)
    other = PackOptions(seed=1, overwrite=True)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(journal.Journal, "make_way", stop)
    with pytest.raises(KeyboardInterrupt):
        pack(source, packed, other)
    monkeypatch.undo()
    pack(source, packed, other)
    pack(source, tmp_path / "fresh", other)
    assert digests(packed) == digests(tmp_path / "fresh")
