"""Sources of four kinds for packs on a cluster, each with what can go wrong: rejected files, values that disagree; and
such packs.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.sources.pack_sources import write_large_folder
from support.sources.tables import write_table

import fastpipe
from fastpipe.packing.distributed.pack import pack_on_ray
from fastpipe.packing.job.destination import destination_of
from fastpipe.packing.job.progress import PackProgress
from fastpipe.packing.job.summary import Summary
from fastpipe.packing.shard.options import pack_options
from fastpipe.sources.files import source_path

SHARD_BYTES = 100_000  # three photos


def folder(root: Path, images: int = 22) -> Path:
    """Class folders; two files are no images, one of them the last in packing order."""
    write_large_folder(root, images=images)
    (root / "class-0" / "text.jpg").write_bytes(b"no image")
    (root / "class-1" / "empty.jpg").touch()
    return root


def tar(root: Path, images: int = 16) -> Path:
    """A WebDataset with notes, in two tars. An image is none."""
    photos = sorted(
        write_large_folder(root.with_name(f"{root.name}-photos"), images=images).glob("*/*.jpg")
    )
    root.mkdir()
    for number in range(2):
        with tarfile.open(root / f"{number}.tar", "w") as out:
            for at, photo in enumerate(photos):
                if at % 2 == number:
                    _add(out, f"{at:04d}", photo.read_bytes() if at != 7 else b"no image", at)
    return root


def _add(out: tarfile.TarFile, key: str, photo: bytes, number: int) -> None:
    note = {"vector": [0.5, number], "caption": f"photo {number}"}
    for ending, data in (
        ("jpg", photo),
        ("cls", str(number % 3).encode()),
        ("json", json.dumps(note).encode()),
    ):
        info = tarfile.TarInfo(f"{key}.{ending}")
        info.size = len(data)
        out.addfile(info, io.BytesIO(data))


def parquet(root: Path, images: int = 19) -> Path:
    """Two tables with texts, numbers and lists of names. A row has no image, and two have fewer numbers than others."""
    photos = sorted(
        write_large_folder(root.with_name(f"{root.name}-photos"), images=images).glob("*/*.jpg")
    )
    data = [photo.read_bytes() for photo in photos]
    for number, run in enumerate((data[:8], [*data[8:], None])):
        rows = range(len(run))
        columns: dict[str, Any] = {
            "label": [at % 4 for at in rows],
            "caption": [f"{number} {'long ' * at}" for at in rows],
            "vector": [[0.5, at] if at != 6 else [1.0] for at in rows],
            "tags": [[f"tag {at % 5}", f"of {number} {'x' * 40}"] for at in rows],
        }
        write_table(root / f"{number}.parquet", run, rows_per_group=3, **columns)
    return root


def metadata(root: Path, images: int = 17) -> Path:
    """Images with metadata.jsonl: numbers, of which one row has too few, and lists of names."""
    photos = sorted(write_large_folder(root, images=images).glob("*/*.jpg"))
    rows = [
        {
            "file_name": str(photo.relative_to(root)),
            "vector": [0.5, at] if at != 6 else [1.0],
            "tags": [f"tag {at % 5}", f"of {at // 4} {'x' * 200}"],
        }
        for at, photo in enumerate(photos)
    ]
    (root / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


FIELDS: dict[str, Any] = {
    "folder": None,
    "tar": None,
    "metadata": {"vector": "vector:floats", "tags": "tags:classes"},
    "parquet": {"caption": "caption", "tags": "tags:classes", "vector": "vector:floats"},
}
MAKERS = {"folder": folder, "tar": tar, "metadata": metadata, "parquet": parquet}


def packed_on_ray(
    source: object,
    destination: object,
    on_progress: Any = lambda _: None,
    **options: Any,
) -> Summary:
    """With small shards."""
    how = pack_options(**{"shard_size": SHARD_BYTES, **options})
    places = source_path(str(source), how.source.remote), destination_of(str(destination))
    return pack_on_ray(*places, how, address=None, on_progress=on_progress)


def stop_at(step: str, tasks: int) -> Callable[[PackProgress], None]:
    """A progress function that ends the pack, as Ctrl-C does, when so many tasks of a step are done."""

    def on_progress(progress: PackProgress) -> None:
        if progress.step == step and progress.tasks >= tasks:
            raise KeyboardInterrupt

    return on_progress


def made_sources(root: Path) -> dict[str, Path]:
    """Kind -> a source, with the pack of one machine; `local` says where that is."""
    sources = {kind: make(root / kind) for kind, make in MAKERS.items()}
    for kind, source in sources.items():
        fastpipe.pack(source, local(source), shard_size=SHARD_BYTES, fields=FIELDS[kind])
    return sources


def local(source: Path) -> Path:
    """The pack of one machine."""
    return source.parent / "local" / source.name
