"""Tests of opening a packed dataset: what it tells, and that each refusal names the path and the next step."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from support.datasets.members import member_of
from support.datasets.packed import packed_jpeg
from support.pictures.drawn import FLAT_CLASSES, FLAT_IMAGES

import fastpipe
from fastpipe.dataset.format import folder
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_DTYPE, INDEX_FILE, WORK_FOLDER
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import DatasetError

Copy = Callable[[Path], Path]


def assert_refused(dataset: Path, names: Path, reason: str, next_step: str) -> None:
    with pytest.raises(DatasetError) as caught:
        fastpipe.open(dataset)
    message = str(caught.value)
    assert str(names) in message
    assert re.search(reason, message), message
    assert re.search(next_step, message), message
    assert "\n" not in message


def edit_info(dataset: Path, **changes: Any) -> None:
    info = json.loads((dataset / DATASET_FILE).read_text())
    (dataset / DATASET_FILE).write_text(json.dumps({**info, **changes}))


def edit_records(dataset: Path, sample: int, **changes: int) -> None:
    records = np.load(dataset / INDEX_FILE)
    for name, value in changes.items():
        records[name][sample] = value
    np.save(dataset / INDEX_FILE, records)


def test_what_a_dataset_tells(flat: Path) -> None:
    index = fastpipe.open(str(flat)).index
    assert len(index) == FLAT_IMAGES
    assert index.classes == list(FLAT_CLASSES)
    assert repr(index) == f"<fastpipe dataset {str(flat)!r}: 37 samples, 3 classes, 1 shard>"
    assert sum(shard.samples for shard in index.shards) == FLAT_IMAGES
    assert [shard.path.stat().st_size for shard in index.shards] == [
        s.size_bytes for s in index.shards
    ]
    assert index.records.dtype == INDEX_DTYPE
    assert not index.records.flags.writeable
    assert index.jpeg_bytes == index.records["size"].sum()


def test_records_point_at_the_samples(flat: Path) -> None:
    index = fastpipe.open(flat).index
    for sample, record in enumerate(index.read(np.arange(len(index)))):
        jpeg = packed_jpeg(index, sample)
        assert jpeg[:2] == b"\xff\xd8"
        assert jpeg[-2:] == b"\xff\xd9"
        assert xxhash.xxh3_64_intdigest(jpeg) == record["xxh3_64"]


def test_where_a_sample_lies(flat: Path) -> None:
    shard, member, offset = fastpipe.open(flat).index.where(5)
    assert shard == str(flat / "shard-000000.tar")
    assert member == member_of(flat, 5)
    assert offset == fastpipe.open(flat).index.records[5]["offset"]


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    assert_refused(tmp_path / "no", tmp_path / "no", "does not exist", "fastpipe pack SRC")


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert_refused(
        tmp_path / "file", tmp_path / "file", "is a file, not a dataset", "fastpipe pack"
    )


def test_a_folder_of_photos(flat: Path) -> None:
    source = flat.parent / "source"
    with pytest.raises(
        DatasetError, match=re.escape(f"pack them first: fastpipe pack {source} DST")
    ):
        PackedIndex(source)


def test_an_unfinished_pack(flat: Path, copied: Copy) -> None:
    dataset = copied(flat)
    (dataset / DATASET_FILE).unlink()
    (dataset / WORK_FOLDER).mkdir()
    assert_refused(dataset, dataset, "unfinished pack", "Run the same `fastpipe pack` command, or")


def test_a_pack_under_way(flat: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = copied(flat)
    (dataset / DATASET_FILE).unlink()
    (dataset / WORK_FOLDER).mkdir()
    monkeypatch.setattr(folder, "holder_of_lock", {dataset / WORK_FOLDER / "lock": 77}.get)
    assert_refused(dataset, dataset, "no dataset yet", "process 77 is packing into it. Wait until")


def test_a_writer_of_this_program_that_has_not_ended(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "new") as writer:
        writer.add(np.zeros((8, 8, 3), np.uint8), key="a")
        with pytest.raises(DatasetError, match=r"this program is still writing it\. Open it after"):
            fastpipe.open(tmp_path / "new")


def test_ranks_are_told_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for num_ranks, is_said in (("1", False), ("2", True)):
        monkeypatch.setenv("WORLD_SIZE", num_ranks)
        with pytest.raises(DatasetError, match="does not exist") as caught:
            PackedIndex(tmp_path / "later")
        assert ("call torch.distributed.barrier() on all ranks" in str(caught.value)) == is_said


def test_an_unfinished_copy(flat: Path, copied: Copy) -> None:
    """There is nothing that a pack could continue, and it would refuse the folder."""
    dataset = copied(flat)
    (dataset / DATASET_FILE).unlink()
    assert_refused(dataset, dataset, "unfinished pack or copy", "into another folder")


NO_JSON = ("not valid JSON", "pack the source again")
NO_DATASET = ("not describe a fastpipe dataset", "expected format")
INVALID = ("has a missing or invalid field", "pack the source again")
# What dataset.json has, or what is changed in it -> what is said of it, and the next step.
DESCRIPTIONS: list[tuple[bytes | dict[str, Any], tuple[str, str]]] = [
    (b"", NO_JSON),
    (b"{", NO_JSON),
    (b"\xff\xfe\x00", NO_JSON),
    (b'{"format": ', NO_JSON),
    (b"[" * 100_000, NO_JSON),
    (b'{"samples": NaN', NO_JSON),
    (b'{"format": "fastpipe-dataset", "format_version": 1' + b"0" * 5000 + b"}", NO_JSON),
    (b'{"a":' * 50_000, NO_JSON),
    (b"[" * 200_000 + b"]" * 200_000, NO_JSON),
    (b"\0" * 1000, NO_JSON),
    (b'"\\ud800"', NO_DATASET),
    (
        b'{"format": "fastpipe-dataset", "format_version": 7e999}',
        ("format version inf; this fastpipe reads 1", "pack the source again"),
    ),
    (b"[]", NO_DATASET),
    (b"null", NO_DATASET),
    (b"{}", NO_DATASET),
    (b'{"format": "parquet", "version": 1}', NO_DATASET),
    *(
        (
            {"format_version": version},
            (
                re.escape(f"format version {version!r}; this fastpipe reads 1."),
                "No release of fastpipe wrote it; pack the source again",
            ),
        )
        for version in (0, -1, 1.0, True, "1", None)
    ),
    *(
        (
            {"format_version": version},
            (
                f"format version {version}; this fastpipe reads 1.",
                "Upgrade: pip install --upgrade fastpipe-loader",
            ),
        )
        for version in (2, 7, 10**30)
    ),
    ({"classes": None}, INVALID),
    ({"classes": 3}, INVALID),
    ({"classes": "abc"}, INVALID),
    ({"shards": [{"name": "shard-000000.tar"}]}, INVALID),
    ({"shards": [{"name": 7, "samples": 37, "size_bytes": 1000}]}, INVALID),
    ({"shards": [{"name": "shard-000000.tar", "samples": 37, "size_bytes": -1}]}, INVALID),
    ({"shards": [{"name": "shard-000000.tar", "samples": 37, "size_bytes": 2**64}]}, INVALID),
    ({"samples": "many"}, INVALID),
    ({"samples": float("inf")}, INVALID),
    ({"jpeg_bytes": []}, INVALID),
    ({"forms": 3}, INVALID),
    ({"forms": [{"channels": 3, "bits": 8}]}, INVALID),
    ({"forms": [{"channels": 2, "bits": 8, "samples": 37}]}, INVALID),
    ({"forms": [{"channels": 3, "bits": [8], "samples": 37}]}, INVALID),
    ({"version": 0}, INVALID),
    ({"version": "1"}, INVALID),
]


def test_wrong_descriptions(flat: Path, copied: Copy) -> None:
    dataset = copied(flat)
    whole = (dataset / DATASET_FILE).read_bytes()
    for change, (reason, next_step) in DESCRIPTIONS:
        if isinstance(change, bytes):
            (dataset / DATASET_FILE).write_bytes(change)
        else:
            edit_info(dataset, **change)
        assert_refused(dataset, dataset / DATASET_FILE, reason, next_step)
        (dataset / DATASET_FILE).write_bytes(whole)


def test_a_missing_index(flat: Path, copied: Copy) -> None:
    dataset = copied(flat)
    (dataset / INDEX_FILE).unlink()
    assert_refused(
        dataset, dataset / INDEX_FILE, "cannot be opened: No such file", "pack the source again"
    )


def test_an_index_of_another_kind(flat: Path, copied: Copy) -> None:
    """tests/dataset/format/test_hostile_index.py has pickles and archives."""
    dataset = copied(flat)
    (dataset / INDEX_FILE).write_bytes(b"hello, world, this is no array" * 20)
    assert_refused(
        dataset, dataset / INDEX_FILE, "not a complete .npy file", "pack the source again"
    )
    for array, found in [
        (np.array([{"a": 1}], dtype=object), r"\(1,\) of object"),
        (np.zeros(FLAT_IMAGES), r"\(37,\) of float64"),
        (np.zeros(FLAT_IMAGES - 1, dtype=INDEX_DTYPE), r"\(36,\)"),
        (np.zeros((FLAT_IMAGES, 1), dtype=INDEX_DTYPE), r"\(37, 1\)"),
    ]:
        np.save(dataset / INDEX_FILE, array)
        reason = f"not a complete .npy file of 37 rows of .*: got {found}"
        assert_refused(dataset, dataset / INDEX_FILE, reason, "pack the source again")
    gc.collect()  # a file that was left open warns here, and warnings are errors


def test_impossible_records(flat: Path, copied: Copy) -> None:
    dataset = copied(flat)
    whole = (dataset / INDEX_FILE).read_bytes()
    for changes in (
        {"shard": 1},
        {"shard": 2**32 - 1},
        {"offset": 2**63},
        {"offset": 2**64 - 1, "size": 10},
        {"size": 2**32 - 1},
        {"size": 0},
        {"width": 0},
        {"height": 0},
        {"label": -1},
        {"label": 3},
    ):
        edit_records(dataset, 9, **changes)
        index = PackedIndex(dataset)
        assert len(index.read(np.array([8, 10]))) == 2
        name, value = next(iter(changes.items()))
        with pytest.raises(
            DatasetError, match=rf"record of sample 9 is impossible: .*\b{name} {value}\b"
        ) as caught:
            index.read(np.array([3, 9]))
        assert str(dataset / INDEX_FILE) in str(caught.value)
        assert "pack the source again" in str(caught.value)
        (dataset / INDEX_FILE).write_bytes(whole)


def test_records_without_any_shard(flat: Path, copied: Copy) -> None:
    dataset = copied(flat)
    edit_info(dataset, shards=[])
    with pytest.raises(DatasetError, match="pack the source again"):
        fastpipe.open(dataset).index.read(np.array([0]))


def test_a_shard_name_stays_in_the_folder(flat: Path, copied: Copy) -> None:
    dataset = copied(flat)
    entry = json.loads((dataset / DATASET_FILE).read_text())["shards"][0]
    for name in ("../other.tar", "/etc/hostname"):
        edit_info(dataset, shards=[{**entry, "name": name}])
        with pytest.raises(DatasetError, match="pack the source again"):
            fastpipe.open(dataset)


def test_a_damaged_head_of_the_index_is_a_dataset_error(
    flat: Path, copied: Callable[[Path], Path]
) -> None:
    file = copied(flat) / "index.npy"
    data = file.read_bytes()
    refused = 0
    for bit in range(0, 8 * PackedIndex(flat).records.offset, 7):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        try:
            PackedIndex(file.parent)
        except DatasetError:
            refused += 1
    assert refused > 100  # the rest is padding
