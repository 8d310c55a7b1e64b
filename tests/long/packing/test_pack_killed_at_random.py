"""Packs of every kind of source, ended by SIGKILL at random moments: more or fewer threads go on, to the same bytes."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import tarfile
import time
from pathlib import Path

import pytest
from support.faults.forks import Forks
from support.running.soak import Tried, times
from support.sources.pack_sources import digests, write_large_folder
from support.sources.tables import write_table

SETTING = {
    "fastpipe.packing.pipeline.exchange._SPOOLED_BYTES": 300_000,
    "fastpipe.packing.pipeline.ahead.RUN_TASKS": 2,
}
KINDS = ("folder", "tar", "csv", "coco", "parquet")
SHARD_SIZE = "--shard-size", "400000"


def source_of(kind: str, root: Path) -> Path:
    """Some hundred photos in a dozen shards."""
    write_large_folder(root / "photos", images=120)
    photos = sorted((root / "photos").glob("*/*.jpg"))
    if kind == "tar":
        with tarfile.open(root / "photos.tar", "w") as out:
            for photo in photos:
                out.add(photo, str(photo.relative_to(root / "photos")))
        return root / "photos.tar"
    if kind == "csv":
        with open(root / "photos" / "list.csv", "w", newline="") as file:
            csv.writer(file).writerows(
                [("path", "label", "text"), *((p.relative_to(root / "photos"), p.parent.name, p.stem) for p in photos)]
            )
        return root / "photos" / "list.csv"
    if kind == "coco":
        images = [{"id": at, "file_name": str(p.relative_to(root / "photos"))} for at, p in enumerate(photos)]
        boxes = [{"id": at, "image_id": at, "category_id": at % 3, "bbox": [1, 2, 3, 4]} for at in range(len(photos))]
        categories = [{"id": number, "name": f"class {number}"} for number in range(3)]
        said = {"images": images, "annotations": boxes, "categories": categories}
        (root / "photos" / "instances.json").write_text(json.dumps(said))
        return root / "photos" / "instances.json"
    if kind == "parquet":
        for number in range(4):
            data = [photo.read_bytes() for photo in photos[number::4]]
            write_table(root / "tables" / f"{number}.parquet", data, rows_per_group=11)
        return root / "tables"
    return root / "photos"


@pytest.mark.parametrize("how", ["threads", "steps"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pack_killed_at_random_moments_goes_on(
    programs: Forks, tmp_path: Path, tried: Tried, kind: str, how: str
) -> None:
    source, packed, draw = source_of(kind, tmp_path), tmp_path / "packed", random.Random(5)

    def start(*options: object) -> int:
        return programs.start("pack", source, packed, *SHARD_SIZE, *options, setting=SETTING)

    def ways() -> list[tuple[object, ...]]:
        workers = "--workers", draw.choice((1, 2, 8))
        steps = [("--step", step, *workers) for step in ("list", "convert", "make", "publish")]
        return [workers] if how == "threads" else steps  # type: ignore[list-item]

    began = time.monotonic()
    assert programs.wait(start("--workers", 2)).code == 0
    took_s, whole = time.monotonic() - began, digests(packed)
    shutil.rmtree(packed)
    killed, wanted = 0, times(2, 200)
    while killed < wanted:
        for options in ways():
            while True:
                program = start(*options)
                if killed < wanted:
                    time.sleep(draw.uniform(0, took_s / 2))
                    os.kill(program, signal.SIGKILL)
                ended = programs.wait(program)
                assert ended.code in (0, -signal.SIGKILL), ended.err
                killed += ended.code != 0
                if ended.code == 0:
                    break
                if how == "threads":
                    options = ways()[0]
        assert digests(packed) == whole
        shutil.rmtree(packed)
    said = "pack of a folder, tar, list, COCO or Parquet, in threads or in steps, ended by SIGKILL at a random moment"
    tried(said, killed, "more or fewer threads, or the same step again, go on; same bytes")
