"""A packed dataset and values for its samples -> the same dataset with fields: sidecars and dataset.json, no members.

For tests of reading: what `fastpipe.Writer` makes is tested where it is written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.dataset.format.description import file_hash, with_self_checksum
from fastpipe.dataset.format.fields import FIELDS_FOLDER, Field, describe_field, sidecars
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_FILE
from fastpipe.dataset.format.packed_index import PackedIndex


def add_fields(dataset: Path, fields: list[tuple[Field, Sequence[Any]]]) -> Path:
    """Writes one value a sample for each field; see `columns` for what a value is."""
    folder = dataset / FIELDS_FOLDER
    folder.mkdir(exist_ok=True)
    info = json.loads((dataset / DATASET_FILE).read_text())
    described = info.get("fields", {})
    for field, values in fields:
        assert len(values) == info["samples"]
        hashes = {}
        for name, array in zip(sidecars(field), columns(field, values), strict=True):
            np.save(folder / name, array, allow_pickle=False)
            hashes[name] = xxhash.xxh3_64_hexdigest((folder / name).read_bytes())
        described[field.name] = describe_field(Field(**{**vars(field), "files": hashes}))
    _, text = with_self_checksum(info | {"fields": described})
    (dataset / DATASET_FILE).write_bytes(text)
    return dataset


def remove_labels(dataset: Path, samples: slice) -> None:
    """Has some samples have no label, as the index and the counts say."""
    records = np.load(dataset / INDEX_FILE)
    records["label"][samples] = -1
    np.save(dataset / INDEX_FILE, records)
    info = json.loads((dataset / DATASET_FILE).read_text())
    counts = np.bincount(
        records["label"][records["label"] >= 0], minlength=len(info["classes"])
    ).tolist()
    _, text = with_self_checksum(info | {"class_counts": counts})
    (dataset / DATASET_FILE).write_bytes(text)
    hash_index(dataset)


def hash_index(dataset: Path) -> None:
    """Has dataset.json describe the index.npy as it is now, as if it had been packed so."""
    info = json.loads((dataset / DATASET_FILE).read_text())
    info["index"]["file_xxh3_64"] = file_hash(dataset / INDEX_FILE)
    _, text = with_self_checksum(info)
    (dataset / DATASET_FILE).write_bytes(text)


def values_of(index: PackedIndex) -> list[tuple[Field, list[Any]]]:
    """A field of each kind, with values that tell which sample they are of; every third sample has no boxes."""
    rng = np.random.default_rng(4)
    records = np.asarray(index.records)
    boxes, joints = [], []
    for sample, (width, height) in enumerate(zip(records["width"], records["height"], strict=True)):
        count = sample % 3
        corners = np.sort(rng.random((count, 2, 2)) * (width, height), axis=1)
        boxes.append((corners.reshape(-1, 4).astype(np.float32), sample * 10 + np.arange(count)))
        seen = rng.integers(0, 3, (count, 4, 1))
        joints.append(np.concatenate([rng.random((count, 4, 2)) * (width, height), seen], axis=2))
    everyone = range(len(index))
    return [
        (Field("caption", "text"), [f"sample {n} ü" for n in everyone]),
        (Field("boxes", "boxes", labelled=True), boxes),
        (Field("plain", "boxes"), [value for value, _ in boxes]),
        (Field("joints", "keypoints", points=4), joints),
        (Field("count", "int"), [n * 10**15 for n in everyone]),
        (Field("gaze", "floats", width=2), [(n, -n / 3) for n in everyone]),
        (Field("tags", "classes", classes=6), [sorted({n % 6, n // 5 % 6}) for n in everyone]),
        (Field("notes", "json"), [{"n": n} if n % 2 else None for n in everyone]),
        (Field("sound", "bytes"), [bytes([n]) * n for n in everyone]),
    ]


def columns(field: Field, values: Sequence[Any]) -> list[NDArray[Any]]:
    """The arrays of a field's files.

    Args:
        field: its kind and numbers.
        values: an int, floats, numbers of classes, text, bytes, anything for JSON, (M, 4) boxes or, where they have
            labels, a pair of these and (M,) labels; (M, K, 3) points.
    """
    if field.kind == "int":
        return [np.array(values, dtype="<i8")]
    if field.kind == "floats":
        return [np.array(values, dtype="<f4").reshape(-1, field.width)]
    encode = {"text": str.encode, "bytes": bytes, "json": lambda value: json.dumps(value).encode()}
    if field.kind in encode:
        pieces = [encode[field.kind](value) for value in values]
        return [np.frombuffer(b"".join(pieces), dtype="u1"), _offsets(map(len, pieces))]
    boxes = [value[0] for value in values] if field.labelled else values
    dtype, shape = {
        "classes": ("<i4", (-1,)),
        "boxes": ("<f4", (-1, 4)),
        "keypoints": ("<f4", (-1, field.points, 3)),
    }[field.kind]
    arrays = [np.array(value, dtype=dtype).reshape(shape) for value in boxes]
    made = [np.concatenate(arrays), _offsets(map(len, arrays))]
    if field.labelled:
        made.append(
            np.concatenate([np.array(value[1], dtype="<i8").reshape(-1) for value in values])
        )
    return made


def _offsets(lengths: Any) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(list(lengths))]).astype("<i8")
