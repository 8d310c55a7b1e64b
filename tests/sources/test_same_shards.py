"""The same photos as class folders, CSV, TSV, JSONL, metadata.* and COCO: the same shards, byte for byte."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
from support.sources.listed import class_folders, flat_photos, names_of, shard_bytes, write_lines

import fastpipe

Rows = list[dict[str, str]]


def write_csv(path: Path, rows: Rows, delimiter: str = ",") -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_parquet(path: Path, rows: Rows) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


WRITERS: dict[str, tuple[str, str, Callable[[Path, Rows], Path]]] = {
    "csv": ("list.csv", "path", write_csv),
    "tsv": ("list.tsv", "image", lambda path, rows: write_csv(path, rows, "\t")),
    "jsonl": ("list.jsonl", "file", lambda path, rows: write_lines(path, *rows)),
    "metadata.csv": ("metadata.csv", "file_name", write_csv),
    "metadata.jsonl": ("metadata.jsonl", "file_name", lambda path, rows: write_lines(path, *rows)),
    "metadata.parquet": ("metadata.parquet", "file_name", write_parquet),
}


def test_manifests_give_the_shards_of_the_folder(tmp_path: Path) -> None:
    photos = class_folders(tmp_path / "photos")
    rows = list(reversed(names_of(photos)))  # order in the manifest does not count
    for number, (form, shuffle) in enumerate([*((form, True) for form in WRITERS), ("csv", False)]):
        folder, listed = tmp_path / f"folder-{number}", tmp_path / f"listed-{number}"
        expected = fastpipe.pack(
            photos, folder, shard_size=100_000, shuffle=shuffle, format="imagefolder"
        )
        file, column, write = WRITERS[form]
        source = write(photos / file, [{column: path, "label": label} for path, label in rows])
        summary = fastpipe.pack(source, listed, shard_size=100_000, shuffle=shuffle)
        assert summary.info["classes"] == expected.info["classes"]
        assert summary.stray == []
        assert shard_bytes(listed) == shard_bytes(folder), form
        assert (listed / "index.npy").read_bytes() == (folder / "index.npy").read_bytes()
        assert fastpipe.pack(source, listed, shard_size=100_000, shuffle=shuffle).already_packed
        source.unlink()


def test_coco_gives_the_shards_of_a_folder_without_classes(tmp_path: Path) -> None:
    photos = flat_photos(tmp_path / "photos")
    fastpipe.pack(photos, tmp_path / "folder")
    paths = [path.name for path in photos.iterdir()]
    images = [{"id": number, "file_name": path} for number, path in enumerate(paths)]
    (tmp_path / "photos.json").write_text(
        json.dumps({"images": images, "annotations": [], "categories": []})
    )
    fastpipe.pack(tmp_path / "photos.json", tmp_path / "coco", image_root=photos)
    write_lines(tmp_path / "photos.jsonl", *({"path": path} for path in paths))
    fastpipe.pack(tmp_path / "photos.jsonl", tmp_path / "jsonl", image_root=photos)
    assert (
        shard_bytes(tmp_path / "coco")
        == shard_bytes(tmp_path / "jsonl")
        == shard_bytes(tmp_path / "folder")
    )
