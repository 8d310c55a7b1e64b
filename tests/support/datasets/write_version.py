"""Writes the datasets of a format version, which stay in the repository for ever.

    PYTHONPATH=.:tests .venv/bin/python -m support.datasets.write_version

It makes the folder of FORMAT_VERSION in tests/dataset/format/versions, once; test_format_versions.py reads it for ever.
`1/source` has six pictures, and `1/expected.json` what the datasets hold:

    jpeg          JPEGs and PNGs with a field of each kind, written by `fastpipe.Writer`
    coefficients  JPEGs of class folders as coefficients, packed by `fastpipe.pack`; a file that was not packed; version
                  2, in which a sample is removed; a column that was added to it
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import xxhash
from numpy.typing import NDArray
from support.checkout import TESTS

import fastpipe
from fastpipe.dataset.format.layout import FORMAT_VERSION
from fastpipe.sources.picture.jpeg import made_with

VERSIONS = TESTS / "dataset" / "format" / "versions"
SIZE = 24
FIELDS = {
    "score": "int",
    "embedding": "floats",
    "tags": "classes",
    "caption": "text",
    "meta": "json",
    "raw": "bytes",
    "boxes": "boxes",
    "pose": "keypoints",
    "seg": "mask",
    "second": "image",
}


def draw(number: int) -> NDArray[np.uint8]:
    """A picture with a slope of its own in each channel."""
    rows, columns = np.mgrid[0 : 40 + number, 0:56].astype(np.uint8)
    channels = [rows * 3, columns * 2 + number * 9, rows + columns + number * 30]
    return np.stack(channels, axis=-1).astype(np.uint8)


def write_source(folder: Path) -> None:
    """JPEGs in two class folders, PNGs in a third one beside them, and a file that is no picture."""
    for number in range(4):
        path = folder / "photos" / ("ant", "bee")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = draw(number)
        assert cv2.imwrite(str(path), picture[:, :, 0] if number == 3 else picture)  # 3 is gray
    (folder / "photos" / "bee" / "damaged.jpg").write_bytes(b"\xff\xd8 not a JPEG")
    (folder / "drawings").mkdir()
    assert cv2.imwrite(str(folder / "drawings" / "4.png"), draw(4))
    assert cv2.imwrite(str(folder / "drawings" / "5.png"), draw(5).astype(np.uint16) * 257)


def samples(source: Path) -> Iterator[dict[str, Any]]:
    """What a Writer gets: each picture; every third one without what may be missing."""
    pictures = [*sorted(source.glob("photos/*/?.jpg")), *sorted(source.glob("drawings/*.png"))]
    for number, path in enumerate(pictures):
        height = 40 + int(path.stem)
        sample: dict[str, Any] = {
            "image": path.read_bytes(),
            "label": number % 3,
            "key": f"{path.parent.name}/{path.name}",
            "score": number * 10**12 - 5,
            "embedding": [number / 4, -1.5, 3e7],
        }
        if number % 3 != 2:
            corners = [[2, 3, 20 + number, 30], [0, 0, 56, height]]
            values = (np.arange(height * 56) // 300 + number).reshape(height, 56)
            sample |= {
                "tags": ["sharp", f"tag {number}"],
                "caption": f"größer {number} \U0001f600\n",
                "meta": {"n": number, "deep": [1.5, None, {"é": True}]},
                "raw": bytes(range(number * 3)),
                "boxes": {"boxes": corners, "labels": [number, 7]},
                "pose": [[[1, 2, 2], [3.25, 4, 1], [0, 0, 0]]],
                "seg": values.astype(np.uint8),
                "second": path.read_bytes(),
            }
        yield sample


def write_jpeg(source: Path, destination: Path) -> None:
    with fastpipe.Writer(destination, FIELDS, classes=["ant", "bee", "cow"], tile=16) as writer:
        for sample in samples(source):
            writer.add(**sample)


def pack_coefficients(source: Path, destination: Path) -> None:
    fastpipe.pack(source / "photos", destination, storage="coefficients", seed=3)


def grow_coefficients(destination: Path) -> None:
    """Version 2, which lacks a sample, with a column."""
    fastpipe.remove(destination, keys=["ant/2.jpg"])
    data = fastpipe.open(destination)
    data.with_column("doubt", np.arange(len(data)) / 8).save_columns(destination)


def read_all(data: fastpipe.Dataset) -> dict[str, Any]:
    """What a dataset holds, for JSON: keys, labels, classes, columns, and hashes of the pixels of a batch."""
    names = ("image", "label", *FIELDS) if set(FIELDS) <= set(data.fields) else ("image", "label")
    loader = fastpipe.loader(
        data,
        batch_size=len(data),
        size=SIZE,
        train=False,
        crop=fastpipe.Resize(),
        fields=names,
        num_workers=1,
    )
    with loader:
        batch = next(iter(loader))
    columns = {name: [plain(data[name][i]) for i in range(len(data))] for name in data.columns}
    return {
        "classes": list(data.classes),
        "columns": columns,
        "pixels": [xxhash.xxh3_64_hexdigest(image.numpy().tobytes()) for image in batch["image"]],
        "batch": {name: plain(batch[name]) for name in sorted(batch)},
    }


def plain(value: Any) -> Any:
    """A value of a column, for JSON: long arrays and bytes as their hash."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes {xxhash.xxh3_64_hexdigest(value)}"
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "numpy"):
        array = np.asarray(value)
        if array.size > 20:
            content = np.ascontiguousarray(array).tobytes()
            return f"{array.dtype} {array.shape} {xxhash.xxh3_64_hexdigest(content)}"
        return array.tolist()
    return value


def main() -> None:
    folder = VERSIONS / str(FORMAT_VERSION)
    folder.mkdir()  # what is in the repository stays as it is
    source = folder / "source"
    write_source(source)
    write_jpeg(source, folder / "jpeg")
    pack_coefficients(source, folder / "coefficients")
    grow_coefficients(folder / "coefficients")
    datasets = {
        "jpeg": fastpipe.open(folder / "jpeg"),
        "coefficients": fastpipe.open(folder / "coefficients"),
        "coefficients, version 1": fastpipe.open(folder / "coefficients", version=1),
    }
    expected = {name: read_all(data) for name, data in datasets.items()}
    content = {"made_with": made_with(), "datasets": expected}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (folder / "expected.json").write_text(f"{text}\n", encoding="utf-8")
    shutil.rmtree(folder / "coefficients" / ".pack", ignore_errors=True)


if __name__ == "__main__":
    main()
