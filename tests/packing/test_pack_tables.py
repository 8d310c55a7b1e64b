"""Tests of packing Parquet and Arrow: the same samples as `datasets` has, in the order of a folder, each group once."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from support.programs.cli_run import failed, succeeded
from support.sources.pack_sources import digests, files, pillow, saved, turbo, write_files
from support.sources.tables import jpegs, paths_of, write_table

import fastpipe
from fastpipe.dataset.format.fields import read_fields
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError
from fastpipe.packing.job.progress import PackProgress
from fastpipe.packing.job.threads import pack
from fastpipe.packing.pipeline import ahead, converting, exchange, run_file
from fastpipe.packing.pipeline.converting import convert_sources
from fastpipe.packing.pipeline.run_file import (
    KeyRange,
    Sample,
    find_ranges,
    read_samples,
    write_run,
)
from fastpipe.packing.shard.options import PackOptions, pack_options
from fastpipe.packing.shard.publish import read_rejected
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import packing_order
from fastpipe.sources.tables.parquet_arrow import ParquetTable
from fastpipe.store.store import Folder
from fastpipe.tools.verify.repair import repair
from fastpipe.tools.verify.verification import verify

NAMES = ["zebra", "ant", "bee"]


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several spool files of a small source."""
    monkeypatch.setattr(exchange, "_SPOOLED_BYTES", 6000)


def samples_of(dataset: Path) -> dict[str, dict[str, Any]]:
    """Name -> all that a loader gives of a sample, with the image's pixels."""
    fields = tuple(read_fields(PackedIndex(dataset).info))
    opened = fastpipe.open(dataset).with_fields(("image", "label", *fields))
    found = {}
    for number, name in enumerate(paths_of(dataset)):
        sample = opened[number]
        found[name] = {**sample, "image": np.asarray(sample["image"])}
    return found


def assert_pixels(image: Any, source: bytes) -> None:
    np.testing.assert_array_equal(np.asarray(image).transpose(1, 2, 0), turbo(source))


# The judge: what Hugging Face's library wrote, it also reads.


@pytest.fixture(scope="module")
def judged() -> Any:
    datasets = pytest.importorskip("datasets")
    images = jpegs(11)
    rows = datasets.Dataset.from_dict(
        {
            "image": [{"bytes": data, "path": f"{at}.jpg"} for at, data in enumerate(images)],
            "label": [at % 3 for at in range(10)] + [-1],
            "caption": [f"photo {at} é" for at in range(11)],
            "tags": [[at % 2] for at in range(11)],
            "vector": [[at / 7, -1.5] for at in range(11)],
            "area": list(range(11)),
        }
    )
    rows = rows.cast_column("image", datasets.Image(decode=False))
    rows = rows.cast_column("label", datasets.ClassLabel(names=NAMES))
    return rows.cast_column("tags", datasets.Sequence(datasets.ClassLabel(names=["dark", "light"])))


def as_written(judged: Any, root: Path, layout: str) -> tuple[Path, Any, str | None]:
    """The dataset in one of the layouts of Hugging Face; the rows that the judge reads there; and the split."""
    import datasets

    source = root / "source"
    if layout == "one file":
        judged.to_parquet(source.with_suffix(".parquet"))
        return source.with_suffix(".parquet"), [("source.parquet", judged)], None
    if layout in ("push_to_hub", "push_to_hub in data"):
        folder = source / "data" if "data" in layout else source
        folder.mkdir(parents=True)
        prefix = "data/" if "data" in layout else ""
        parts = []
        for at in range(3):
            part = judged.shard(3, at, contiguous=True)
            part.to_parquet(folder / f"train-{at:05d}-of-00003.parquet", batch_size=2)
            parts.append((f"{prefix}train-{at:05d}-of-00003.parquet", part))
        judged.select([0]).to_parquet(folder / "test-00000-of-00001.parquet")
        return source, parts, "train"
    if layout == "save_to_disk":
        judged.save_to_disk(source, num_shards=2)
        parts = [judged.shard(2, at, contiguous=True) for at in range(2)]
        return (
            source,
            [(f"data-{at:05d}-of-00002.arrow", part) for at, part in enumerate(parts)],
            None,
        )
    datasets.DatasetDict({"train": judged.select([3]), "test": judged}).save_to_disk(source)
    return source, [("test/data-00000-of-00001.arrow", judged)], "test"


LAYOUTS = [
    "one file",
    "push_to_hub",
    "push_to_hub in data",
    "save_to_disk",
    "save_to_disk of splits",
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_samples_are_those_that_datasets_reads(judged: Any, tmp_path: Path, layout: str) -> None:
    source, parts, split = as_written(judged, tmp_path, layout)
    summary = fastpipe.pack(source, tmp_path / "packed", split=split)
    assert summary.tally.rejected == []
    assert summary.info["classes"] == NAMES
    found = samples_of(tmp_path / "packed")
    assert set(found) == {f"{name}/{row:06d}" for name, part in parts for row in range(len(part))}
    for name, part in parts:
        for row, expected in enumerate(part):
            sample = found[f"{name}/{row:06d}"]
            assert_pixels(sample["image"], expected["image"]["bytes"])
            assert sample["label"] == expected["label"]
            assert sample["caption"] == expected["caption"]
            assert sample["area"] == expected["area"]
            np.testing.assert_array_equal(
                sample["vector"], np.array(expected["vector"], np.float32)
            )
            tags = PackedIndex(tmp_path / "packed").fields["tags"].names
            assert [tags[number] for number in np.flatnonzero(sample["tags"])] == [
                ["dark", "light"][t] for t in expected["tags"]
            ]


# The order and the bytes of a folder.


def test_all_fields_come_through_the_spool_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples of a dataset with fields of every kind: written to a run, and read from it, whole and in part."""
    images = jpegs(300)
    kinds = {
        "n": "int",
        "f": "floats",
        "c": "classes",
        "t": "text",
        "j": "json",
        "b": "bytes",
        "k": "keypoints",
    }
    with fastpipe.Writer(
        tmp_path / "source", {**kinds, "bo": "boxes", "m": "mask", "im": "image"}
    ) as writer:
        for at, image in enumerate(images):
            width = 40 + at % 7
            values = {
                "n": at,
                "f": [at / 3, -0.0],
                "c": [f"c{at}"],
                "t": "é\n",
                "j": {"a": [1, None]},
                "b": b"\0\xff",
            }
            boxes = {"boxes": [[0, 1, 2, 3.25]], "labels": [7]}
            mask = np.full((30, width), at * 100, np.uint16)
            rest = {"k": [[[1, 2, 1]]], "bo": boxes, "m": mask, "im": image} if at % 2 else {}
            writer.add(image, label=at, key=f"{at}", **values, **rest)
    listing = list_sources(tmp_path / "source", 5)
    place = packing_order(5, shuffle=True)
    samples = [
        Sample(place(source), source.size_bytes, outcome if at % 9 else "no picture")
        for at, (source, outcome) in enumerate(
            convert_sources(listing, listing.sources, PackOptions(workers=2))
        )
    ]
    monkeypatch.setattr(run_file, "_MARK_EVERY_BYTES", 20_000)
    store = Folder(tmp_path, tmp_path)
    write_run(store, "run", samples)
    for start, stop in ((0, 300), (0, 1), (299, 300), (100, 200), (127, 129), (128, 256)):
        bounds = KeyRange(samples[start].order_key, samples[stop - 1].order_key)
        (part,) = find_ranges(store, "run", (tmp_path / "run").stat().st_size, [bounds])
        for window in (1, 1000, 1 << 20):
            found = list(read_samples(store, "run", part, window))
            at = found.index(samples[start])
            assert found == samples[start - at : start - at + len(found)]
            assert at + stop - start <= len(found) <= stop - start + 2 * 40, (
                "not much more than what is asked for"
            )
    ((first, last),) = find_ranges(
        store, "run", (tmp_path / "run").stat().st_size, [KeyRange((0, ""), (0, ""))]
    )
    assert first == last == 0


def test_the_order_is_that_of_the_hash_of_names(tmp_path: Path) -> None:
    source = write_table(
        tmp_path / "a.parquet", jpegs(30), label=pa.array([at % 4 for at in range(30)])
    )
    names = [f"a.parquet/{row:06d}" for row in range(30)]
    pack(source, tmp_path / "packed", PackOptions(seed=3))
    assert paths_of(tmp_path / "packed") == sorted(
        names, key=lambda name: xxhash.xxh3_64_intdigest(name.encode(), 3)
    )
    pack(source, tmp_path / "sorted", PackOptions(shuffle=False))
    assert paths_of(tmp_path / "sorted") == sorted(
        names, key=lambda name: (int(name[-6:]) % 4, name)
    )


@pytest.mark.parametrize("seed", [0, 9])
def test_shards_are_those_of_a_folder_whose_files_are_called_as_the_rows(
    tmp_path: Path, small_runs: None, seed: int
) -> None:
    images = jpegs(40)
    write_files(
        tmp_path / "folder", {f"a.parquet/{row:06d}": data for row, data in enumerate(images)}
    )
    write_table(tmp_path / "tables" / "a.parquet", images, label=["a.parquet"] * 40)
    how = PackOptions(
        seed=seed
    )  # one shard: where there are several, the bytes of files and of tables differ
    pack(tmp_path / "folder", tmp_path / "of folder", how)
    pack(tmp_path / "tables", tmp_path / "of tables", how)
    direct, spooled = files(tmp_path / "of folder"), files(tmp_path / "of tables")
    assert "packs" in json.loads(direct.pop("dataset.json"))
    assert (
        PackedIndex(tmp_path / "of folder").classes
        == PackedIndex(tmp_path / "of tables").classes
        == ["a.parquet"]
    )
    spooled.pop("dataset.json")  # it names the size of the file, not of the images' files
    assert spooled == direct


def test_bytes_do_not_depend_on_runs_threads_or_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = jpegs(40)
    found = []
    for groups, run, workers in ((3, 5000, 1), (40, 1 << 30, 2), (7, 1, 4)):
        write_table(
            tmp_path / "a.parquet",
            images,
            rows_per_group=groups,
            text=[str(at) for at in range(40)],
        )
        monkeypatch.setattr(exchange, "_SPOOLED_BYTES", run)
        pack(tmp_path / "a.parquet", tmp_path / f"packed-{workers}", PackOptions(workers=workers))
        found.append(files(tmp_path / f"packed-{workers}"))
        found[-1].pop("dataset.json")  # it has the size of the file
    assert found[0] == found[1] == found[2]


def test_each_row_group_is_read_once(
    tmp_path: Path, small_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        write_table(tmp_path / "source" / f"{name}.parquet", jpegs(21), rows_per_group=5)
    read = Counter[tuple[str, int]]()
    was = pq.ParquetFile.iter_batches

    def iter_batches(
        self: Any, size: int, row_groups: list[int], columns: list[str], **how: Any
    ) -> Any:
        if "image" in columns:
            read.update((str(id(self)), group) for group in row_groups)
        assert how == {"use_threads": False}
        return was(self, size, row_groups, columns, **how)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_batches)
    pack(tmp_path / "source", tmp_path / "packed", PackOptions())
    assert sum(read.values()) == 10
    assert set(read.values()) == {1}


def test_more_spool_files_than_a_process_may_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_table(tmp_path / "a.parquet", jpegs(150), rows_per_group=50)
    pack(source, tmp_path / "whole", PackOptions())
    monkeypatch.setattr(exchange, "_SPOOLED_BYTES", 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 60, hard))
    try:
        pack(source, tmp_path / "packed", PackOptions(workers=2))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert files(tmp_path / "packed") == files(tmp_path / "whole")


# Columns.


def test_labels_of_all_kinds(tmp_path: Path) -> None:
    images = jpegs(4)
    cases: list[tuple[Any, list[str], list[int]]] = [
        (pa.array([2, 0, None, -1]), ["0", "1", "2"], [2, 0, -1, -1]),
        (pa.array(["dog", "cat", None, "dog"]), ["cat", "dog"], [1, 0, -1, 1]),
        (
            pa.array(["dog", "cat", "ant", "dog"]).dictionary_encode(),
            ["ant", "cat", "dog"],
            [2, 1, 0, 2],
        ),
        (pa.array([None] * 4), [], [-1] * 4),
        (pa.array([3, 0, 1, 2], pa.uint8()), ["0", "1", "2", "3"], [3, 0, 1, 2]),
    ]
    for number, (labels, classes, expected) in enumerate(cases):
        source = write_table(tmp_path / f"{number}.parquet", images, label=labels)
        summary = pack(source, tmp_path / f"packed-{number}", PackOptions(shuffle=False))
        assert summary.info["classes"] == classes
        found = samples_of(tmp_path / f"packed-{number}")
        assert [found[f"{number}.parquet/{row:06d}"]["label"] for row in range(4)] == expected


def test_labels_that_cannot_be_are_rejected(tmp_path: Path) -> None:
    write_table(tmp_path / "a.parquet", jpegs(3), label=[1, -2, 10**9])
    rejected = dict(pack(tmp_path / "a.parquet", tmp_path / "packed", PackOptions()).tally.rejected)
    assert rejected.keys() == {"a.parquet/000001", "a.parquet/000002"}
    assert "label: expected -1 (none) or 0 to 999,999, got -2" in rejected["a.parquet/000001"]

    features = {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["a", "b"]}}}}
    named = pa.table({"image": jpegs(3), "label": [1, 2, 0]})
    named = named.replace_schema_metadata({"huggingface": json.dumps(features)})
    pq.write_table(named, tmp_path / "b.parquet")
    summary = pack(tmp_path / "b.parquet", tmp_path / "named", PackOptions())
    assert summary.info["classes"] == ["a", "b"]
    ((name, reason),) = summary.tally.rejected
    assert name == "b.parquet/000001"
    assert "label: expected -1 (none) or 0 to 1, got 2" in reason


def test_columns_become_fields_of_the_kind_of_their_values(tmp_path: Path) -> None:
    columns = {
        "flag": [True, False],
        "score": [0.5, 1.0],
        "vector": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
        "ids": [[1, 2], [3, 3]],
        "words": [["a"], []],
        "objects": [
            {"bbox": [[1.0, 2.0, 3.0, 4.0]], "category": [5]},
            {"bbox": [], "category": []},
        ],
        "raw": [b"\0", None],
        "when": pa.array([0, 10**9], pa.timestamp("us", tz="UTC")),
        "price": pa.array([None, None], pa.decimal128(5, 2)),
        "kind": pa.array(["x", "y"]).dictionary_encode(),
        "other": pa.array([{"bytes": jpegs(2)[at], "path": "p"} for at in range(2)]),
    }
    write_table(tmp_path / "a.parquet", jpegs(2), **columns)
    summary = pack(tmp_path / "a.parquet", tmp_path / "packed", pack_options(image_column="image"))
    assert summary.tally.rejected == []
    assert {name: field["kind"] for name, field in summary.info["fields"].items()} == {
        "flag": "int",
        "score": "floats",
        "vector": "floats",
        "ids": "json",
        "words": "json",
        "objects": "json",
        "raw": "bytes",
        "when": "text",
        "price": "text",
        "kind": "text",
        "other": "image",
    }
    sample = samples_of(tmp_path / "packed")["a.parquet/000001"]
    assert (sample["flag"], sample["ids"], sample["words"], sample["kind"]) == (0, [3, 3], [], "y")
    assert sample["when"].startswith("1970-01-01 00:16:40")
    np.testing.assert_array_equal(sample["score"], [1.0])
    assert_pixels(sample["other"], jpegs(2)[1])


def test_field_says_name_and_kind(tmp_path: Path) -> None:
    mask = saved("PNG", "L", (40, 30))
    boxes = [{"bbox": [[1.0, 2.0, 3.0, 4.0]], "category": [5]}]
    columns = {"Image ID": ["x"], "objects": boxes, "seg": [mask], "ids": [[4, 2]], "left": [1]}
    write_table(tmp_path / "a.parquet", jpegs(1), **columns)
    given = ["name=Image ID", "boxes=objects:boxes", "seg=seg:mask", "ids=ids:classes"]
    packed = tmp_path / "packed"
    succeeded(
        "pack",
        tmp_path / "a.parquet",
        packed,
        *(word for each in given for word in ("--field", each)),
    )
    sample = samples_of(packed)["a.parquet/000000"]
    assert sample["name"] == "x"
    np.testing.assert_array_equal(sample["boxes"], [[1, 2, 4, 6]])
    np.testing.assert_array_equal(sample["boxes_labels"], [5])
    np.testing.assert_array_equal(sample["seg"], pillow(mask)[..., 0])
    assert "left" not in sample


def test_columns_are_named_as_those_of_a_manifest(tmp_path: Path) -> None:
    rows = [
        {"path": f"{number}.jpg", "Image ID": number, "a.b": number / 2, "id": 7}
        for number in range(2)
    ]
    for row, data in zip(rows, jpegs(2), strict=True):
        (tmp_path / row["path"]).write_bytes(data)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("a.parquet", "a.jsonl"):
        succeeded("pack", tmp_path / name, tmp_path / "packed" / name)
        kinds = {
            name: field.kind
            for name, field in PackedIndex(tmp_path / "packed" / name).fields.items()
        }
        assert kinds == {"image_id": "int", "a_b": "floats", "id_": "int"}
    assert digests(tmp_path / "packed/a.parquet") == digests(tmp_path / "packed/a.jsonl")


def test_what_is_not_certain_is_an_error(tmp_path: Path) -> None:
    one = jpegs(1)

    def refused(words: str, *options: object, **columns: Any) -> None:
        source = tmp_path / "a.parquet"
        pq.write_table(pa.table(columns), source)
        assert words in failed(1, "pack", source, tmp_path / "packed", *options)
        assert not (tmp_path / "packed" / "dataset.json").exists()

    refused(
        "several columns that may hold the images: a, b. --image-column picks one", a=one, b=one
    )
    refused("expected a column with images", a=["x"], b=[1])
    refused("has no such column; expected one of a, b", "--image-column", "c", a=one, b=[1])
    refused("has no such column; expected one of a, b", "--label-column", "c", a=one, b=[1])
    refused(
        "column 'label' is double; expected labels, as whole numbers or names", a=one, label=[1.5]
    )
    refused("column 'maps' is", a=one, maps=[[{"x": b"bytes"}]])
    refused(
        "column 't' is string; expected bytes, for --field m=t:mask",
        "--field",
        "m=t:mask",
        a=one,
        t=["x"],
    )


def test_a_format_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    source = write_table(tmp_path / "a.parquet", jpegs(1))
    assert "--format arrow: it holds parquet files" in failed(
        1, "pack", source, tmp_path / "p", "--format", "arrow"
    )
    source.rename(tmp_path / "table.bin")
    succeeded("pack", tmp_path / "table.bin", tmp_path / "packed", "--format", "parquet")
    assert paths_of(tmp_path / "packed") == ["table.bin/000000"]


SPLITS: list[tuple[list[str], str | None]] = [
    (["0000.parquet", "0001.parquet"], None),
    (["train/0000.parquet", "validation/0000.parquet"], "validation"),
    (["photos-val.parquet", "photos-train.parquet"], "val"),
    (["part-00000-of-00002.parquet", "part-00001-of-00002.parquet"], None),
    (["a.train.parquet", "b.parquet"], "train"),
    (
        [
            "train-00000-of-00002.parquet",
            "train-00001-of-00002.parquet",
            "test-00000-of-00001.parquet",
        ],
        "test",
    ),
]


def test_names_that_say_a_split(tmp_path: Path) -> None:
    for number, (names, split) in enumerate(SPLITS):
        source = tmp_path / f"source-{number}"
        for name in names:
            write_table(source / name, jpegs(1))
        summary = pack(
            source, tmp_path / f"packed-{number}", pack_options(format="parquet", split=split)
        )
        assert summary.info["samples"] == (2 if split is None else 1), names
        if split is not None:
            for other in (None, "nowhere"):
                with pytest.raises(PackError, match=r"has the splits .*; pass one of them"):
                    pack(source, tmp_path / "none", pack_options(format="parquet", split=other))
    one = pack(source / names[0], tmp_path / "one", pack_options())
    assert one.info["samples"] == 1, "a file of a split needs no --split"


def test_links_to_folders_are_followed_and_cycles_are_not(tmp_path: Path) -> None:
    write_table(tmp_path / "elsewhere" / "b.parquet", jpegs(2))
    write_table(tmp_path / "source" / "a.parquet", jpegs(1))
    (tmp_path / "source" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "source" / "self").symlink_to(".")
    pack(tmp_path / "source", tmp_path / "packed", PackOptions())
    assert sorted(paths_of(tmp_path / "packed")) == [
        "a.parquet/000000",
        "more/b.parquet/000000",
        "more/b.parquet/000001",
    ]


def test_files_with_other_columns_are_named(tmp_path: Path) -> None:
    write_table(tmp_path / "source" / "a.parquet", jpegs(1), text=["x"])
    write_table(tmp_path / "source" / "b.parquet", jpegs(1), text=[1])
    told = failed(1, "pack", tmp_path / "source", tmp_path / "packed")
    assert "b.parquet has other columns than a.parquet: fields is" in told


# Again, and changed.


def test_a_finished_dataset_is_already_packed(tmp_path: Path) -> None:
    source = write_table(tmp_path / "a.parquet", jpegs(9), label=[0, 1, 2] * 3, text=["t"] * 9)
    pack(source, tmp_path / "packed", PackOptions())
    assert not (tmp_path / "packed" / ".pack").exists()
    assert pack(source, tmp_path / "packed", PackOptions()).already_packed
    os.utime(source)  # newer, and the same
    assert pack(source, tmp_path / "packed", PackOptions()).already_packed
    before = source.stat().st_size
    images = jpegs(9)
    images[4] = images[4][:-40] + bytes(30) + images[4][-10:]
    write_table(source, images, label=[0, 1, 2] * 3, text=["t"] * 9)
    assert source.stat().st_size == before
    with pytest.raises(PackError, match="source files have changed"):
        pack(source, tmp_path / "packed", PackOptions())
    pack(source, tmp_path / "packed", PackOptions(overwrite=True))
    pack(source, tmp_path / "anew", PackOptions())
    assert files(tmp_path / "packed") == files(tmp_path / "anew")


def large_tables(root: Path, count: int = 2) -> Path:
    """Tables whose samples fill several shards."""
    images = jpegs(16, (260, 200))
    for at in range(count):
        write_table(root / f"{at}.parquet", images, rows_per_group=3, label=[at] * 16)
    return root


SEVERAL = PackOptions(shard_size=100_000, workers=2)


class StoppedError(Exception):
    pass


def stopped_in(step: str, after: int) -> Any:
    """A progress function that stops a pack."""
    count = 0

    def on_progress(progress: PackProgress) -> None:
        nonlocal count
        count += progress.step == step
        if count > after:
            raise StoppedError

    return on_progress


@pytest.mark.parametrize(
    ("step", "after"), [("converting", 12), ("converting", 31), ("packing", 28)]
)
def test_runs_that_are_there_are_not_converted_again(
    tmp_path: Path, small_runs: None, monkeypatch: pytest.MonkeyPatch, step: str, after: int
) -> None:
    source = large_tables(tmp_path / "source")
    pack(source, tmp_path / "whole", SEVERAL)
    with pytest.raises(StoppedError):
        pack(source, tmp_path / "packed", SEVERAL, on_progress=stopped_in(step, after))
    there = {
        path.name: path.stat().st_mtime_ns
        for path in (tmp_path / "packed" / ".pack" / "spool").iterdir()
    }
    assert len(there) > 3
    converted = []
    again = pack(source, tmp_path / "packed", SEVERAL, on_progress=converted.append)
    assert files(tmp_path / "packed") == files(tmp_path / "whole")
    assert (again.resumed > 0) == (step == "packing")
    done = sum(progress.step == "converting" for progress in converted)
    assert done <= 32 - len(there)  # a run has one sample or more


def test_a_file_that_changes_while_it_is_packed_stops_the_pack(
    tmp_path: Path, small_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = large_tables(tmp_path / "source", 4)
    for at_once in ("RUN_TASKS", "_RUN_ITEMS"):
        monkeypatch.setattr(ahead, at_once, 1)  # so that not all is read ahead

    def exchange(progress: PackProgress) -> None:
        if progress.files == 4:
            write_table(source / "3.parquet", jpegs(8), rows_per_group=3, label=[0] * 8)

    with pytest.raises(PackError, match=r"3\.parquet.* has changed while packing"):
        pack(source, tmp_path / "packed", SEVERAL, on_progress=exchange)
    pack(source, tmp_path / "packed", SEVERAL)
    pack(source, tmp_path / "anew", SEVERAL)
    assert digests(tmp_path / "packed") == digests(tmp_path / "anew")


def test_only_the_runs_of_a_changed_file_are_converted_again(
    tmp_path: Path, small_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = large_tables(tmp_path / "source")
    with pytest.raises(StoppedError):
        pack(source, tmp_path / "packed", SEVERAL, on_progress=stopped_in("packing", 9))
    write_table(source / "1.parquet", jpegs(5), label=[1] * 5)
    opened = []
    was = ParquetTable.read

    def read(self: Any, group: Any, columns: Any, *rest: Any) -> Iterator[Any]:
        if "image" in columns:
            opened.append(self.path.name)
        return was(self, group, columns, *rest)

    monkeypatch.setattr(ParquetTable, "read", read)
    pack(source, tmp_path / "packed", SEVERAL)
    # The rows of such small files are read once for the plan, and those of the changed one once more to pack them.
    assert (opened.count("0.parquet"), opened.count("1.parquet")) == (6, 2 * 2)
    pack(source, tmp_path / "anew", SEVERAL)
    assert digests(tmp_path / "packed") == digests(tmp_path / "anew")


def test_other_options_do_not_use_the_spool(tmp_path: Path, small_runs: None) -> None:
    source = large_tables(tmp_path / "source")
    with pytest.raises(StoppedError):
        pack(source, tmp_path / "packed", SEVERAL, on_progress=stopped_in("packing", 9))
    how = pack_options(
        shard_size=100_000, max_size=100, seed=4, storage="coefficients", overwrite=True
    )
    pack(source, tmp_path / "packed", how)
    pack(source, tmp_path / "anew", how)
    assert digests(tmp_path / "packed") == digests(tmp_path / "anew")


def test_a_damaged_spool_file_is_made_anew_or_named(tmp_path: Path, small_runs: None) -> None:
    source = large_tables(tmp_path / "source")
    pack(source, tmp_path / "whole", SEVERAL)
    with pytest.raises(StoppedError):
        pack(source, tmp_path / "unfinished", SEVERAL, on_progress=stopped_in("packing", 3))
    for harm in ("truncated", "flipped", "emptied", "other text", "link"):
        packed = Path(shutil.copytree(tmp_path / "unfinished", tmp_path / harm))
        victim = sorted((packed / ".pack" / "spool").iterdir())[2]
        data = victim.read_bytes()
        if harm == "truncated":
            os.truncate(victim, len(data) - 1)
        elif harm == "flipped":
            victim.write_bytes(data[:1000] + bytes([data[1000] ^ 1]) + data[1001:])
            with pytest.raises(PackError, match="has changed since it was written"):
                pack(source, packed, SEVERAL)
            victim.unlink()
        elif harm == "link":
            victim.rename(tmp_path / "elsewhere")
            victim.symlink_to(tmp_path / "elsewhere")
        else:
            victim.write_bytes(b"" if harm == "emptied" else b'{"a": [' * 100)
        pack(source, packed, SEVERAL)
        assert digests(packed) == digests(tmp_path / "whole"), harm


def test_a_repair_converts_only_what_the_damaged_shard_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = large_tables(tmp_path / "source", 6)
    images = jpegs(16, (260, 200))
    write_table(
        source / "1.parquet",
        [*images[:7], b"bad", None, *images[9:]],
        rows_per_group=3,
        label=[1] * 16,
    )
    packed = tmp_path / "packed"
    pack(source, packed, pack_options(shard_size=100_000, label_column="label"))
    whole = digests(packed)
    assert sum(name.endswith(".tar") for name in whole) > 2
    (packed / "shard-000001.tar").write_bytes(b"lost")
    read = Counter[str]()
    original = converting.convert_sample

    def convert_sample(row: Any, name: str, *rest: Any, **options: Any) -> Any:
        read[name] += 1
        return original(row, name, *rest, **options)

    monkeypatch.setattr(converting, "convert_sample", convert_sample)
    assert repair(packed, source, verify(packed)) == ["shard-000001.tar"]
    assert digests(packed) == whole
    lost = sum(shard["samples"] for shard in PackedIndex(packed).info["shards"][1:2])
    assert lost <= sum(read.values()) < 60, "and those that were rejected"
    assert verify(packed).sound


# Room, and pyarrow.


def test_the_room_on_the_disk_is_looked_at_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = write_table(tmp_path / "a.parquet", jpegs(20))
    size = f"{source.stat().st_size / 1e6:.1f} MB"
    free = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(exchange.shutil, "disk_usage", lambda _: free)
    with pytest.raises(
        PackError, match=rf"needs about {size} beside the dataset.*0\.0 MB are free there"
    ):
        pack(source, tmp_path / "packed", PackOptions())
    pack(
        source, tmp_path / "small", pack_options(max_size=20)
    )  # how little that takes nobody knows before
    monkeypatch.setattr(exchange, "_LARGE_SPOOL_BYTES", 1000)
    monkeypatch.setattr(free, "free", source.stat().st_size * 3 // 2)
    pack(source, tmp_path / "packed", PackOptions())
    assert f"needs about {size} beside the dataset until it is done" in caplog.text
    assert "; 0.1 MB are free there" in caplog.text


def test_a_missing_pyarrow_is_named_and_folders_need_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_table(tmp_path / "a.parquet", jpegs(1))
    write_files(tmp_path / "folder", {"1.jpg": jpegs(1)[0]})
    for name in [
        name for name in sys.modules if name.startswith("fastpipe.sources.tables.parquet_arrow")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "pip install 'fastpipe-loader[parquet]'" in failed(
        1, "pack", source, tmp_path / "packed"
    )
    succeeded("pack", tmp_path / "folder", tmp_path / "packed")


def test_rows_of_paths_are_files(tmp_path: Path) -> None:
    """As a manifest's: the shards are those of a CSV file with the same rows."""
    write_files(
        tmp_path / "photos", dict(zip(("a.jpg", "b/c.jpg", "b/d.jpg"), jpegs(3), strict=True))
    )
    columns = {
        "file": ["a.jpg", None, "b/c.jpg", "b/d.jpg"],
        "label": ["x", "y", None, "w"],
        "n": [1, 2, 3, 4],
    }
    pq.write_table(pa.table(columns), tmp_path / "photos" / "a.parquet", row_group_size=2)
    options = ["--image-column", "file"]
    succeeded("pack", tmp_path / "photos" / "a.parquet", tmp_path / "packed", *options)
    (tmp_path / "photos" / "a.csv").write_text(
        "file,label,n\na.jpg,x,1\n,y,2\nb/c.jpg,,3\nb/d.jpg,w,4\n"
    )
    succeeded("pack", tmp_path / "photos" / "a.csv", tmp_path / "csv")
    index, other = PackedIndex(tmp_path / "packed"), PackedIndex(tmp_path / "csv")
    assert [field.kind for field in index.fields.values()] == ["int"]
    assert index.classes == other.classes == ["w", "x"]
    for file in ("shard-000000.tar", "index.npy", "fields/n.npy"):
        assert (tmp_path / "packed" / file).read_bytes() == (tmp_path / "csv" / file).read_bytes()
    ((path, reason),) = [each.values() for each in read_rejected(tmp_path / "packed")]
    assert (path, reason) == (
        "a.parquet/000001",
        "column file: expected the path of an image, got none",
    )
    pq.write_table(pa.table({"file": ["a.jpg"], "raw": [b"x"]}), tmp_path / "photos" / "a.parquet")
    told = failed(1, "pack", tmp_path / "photos" / "a.parquet", tmp_path / "other", *options)
    assert "column 'raw': rows that name their images hold no bytes" in told
