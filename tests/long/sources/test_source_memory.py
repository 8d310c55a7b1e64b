"""The memory that it takes to list or pack sources that are large, or say that they are; each in its own program."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.pictures.raw_files import BOMBS
from support.programs.scripts import run_script
from support.running.memory import PEAK, frees_memory
from support.sources.listed import flat_photos, write_lines
from support.sources.pack_sources import jpeg_bytes
from support.sources.tables import jpegs
from support.sources.tars import END, header, member, pax

pytestmark = pytest.mark.serial

# The first run, of a small source, imports what the second one needs.
MEASURE = f"""
import sys
from pathlib import Path
{PEAK}
from fastpipe.errors import PackError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.kinds import list_sources
what, small, source = sys.argv[1], *map(Path, sys.argv[2:4])

def run(source, name):
    if what == "list":
        return len(list_sources(source, 0).sources)
    return pack(source, source.with_name(name), PackOptions(workers=1)).tally.rejected

run(small, "packed small")
before = peak_bytes()
try:
    words = run(source, "packed")
except PackError as problem:
    words = problem
print(words)
print((peak_bytes() - before) // 10**6)
"""


def measured(what: str, small: Path, source: Path) -> tuple[str, int]:
    """Lists or packs a source: what comes of it, and the MB that it takes beside what a small source has taken."""
    command = [sys.executable, "-c", MEASURE, what, str(small), str(source)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    words, megabytes = ended.stdout.strip().rsplit("\n", 1)
    return words, int(megabytes)


@frees_memory
def test_parquet(tmp_path: Path) -> None:
    """A row group of 300 MB, as pandas writes them; and a cell of 300 MB that is 10 kB in the file."""
    small = tmp_path / "small.parquet"
    pq.write_table(pa.table({"image": jpegs(2)}), small)
    noise = random.Random(1).randbytes(20_000)
    images = [b"none %d" % number + noise for number in range(15_000)]
    many = tmp_path / "many" / "a.parquet"
    many.parent.mkdir()
    pq.write_table(
        pa.table({"image": [*images, *jpegs(1)]}), many, compression="none", row_group_size=20_000
    )
    assert pq.ParquetFile(many).num_row_groups == 1
    words, megabytes = measured("pack", small, many)
    assert words.count("not an image") == 15_000, words[:500]
    assert megabytes < 150
    zeros = tmp_path / "zeros" / "a.parquet"
    zeros.parent.mkdir()
    pq.write_table(pa.table({"image": [bytes(300_000_000), *jpegs(1)]}), zeros, compression="zstd")
    assert zeros.stat().st_size < 1_000_000
    words, megabytes = measured("pack", small, zeros)
    assert "a.parquet/000000" in words
    assert megabytes < 5 * 300


@frees_memory
def test_coco(tmp_path: Path) -> None:
    """Annotations of 60 MB, of 10,000 images; json.load would take 300 MB."""

    def write(file: Path, images: int, annotations: int) -> None:
        listed = [
            {"id": at, "file_name": f"{at}.jpg", "width": 40, "height": 30} for at in range(images)
        ]
        polygon = [round(at * 0.37, 2) for at in range(200)]
        note: dict[str, Any] = {"category_id": 1, "bbox": [1, 2, 10, 20], "segmentation": [polygon]}
        with open(file, "w") as out:
            out.write(
                '{"images": '
                + json.dumps(listed)
                + ', "categories": [{"id": 1, "name": "a"}], "annotations": ['
            )
            out.write(
                ", ".join(
                    json.dumps({**note, "id": at, "image_id": at % images})
                    for at in range(annotations)
                )
            )
            out.write("]}")

    (tmp_path / "0.jpg").write_bytes(jpeg_bytes())
    write(tmp_path / "small.json", 2, 2)
    write(tmp_path / "a.json", 10_000, 45_000)
    assert (tmp_path / "a.json").stat().st_size > 50e6
    words, megabytes = measured("list", tmp_path / "small.json", tmp_path / "a.json")
    assert words == "10000"
    assert megabytes < 30


@frees_memory
def test_manifests(tmp_path: Path) -> None:
    """100 MB of captions; a line without end; a quote without end."""
    photos = flat_photos(tmp_path / "photos", 3)
    small = write_lines(photos / "small.jsonl", {"path": "000.jpg"})
    lines = ({"path": f"{number}.jpg", "caption": "x" * 100_000} for number in range(1000))
    words, megabytes = measured("list", small, write_lines(photos / "a.jsonl", *lines))
    assert words == "1000"
    assert megabytes < 30
    with open(photos / "b.csv", "wb") as endless:
        endless.write(b"path\n")
        endless.truncate(300_000_000)
    words, megabytes = measured("list", small, photos / "b.csv")
    assert "expected at most 16,777,216 bytes in a line" in words
    assert megabytes < 80
    (photos / "c.csv").write_bytes(b'path\n"' + b"x,\n" * 30_000_000)
    words, megabytes = measured("list", small, photos / "c.csv")
    assert "field larger than field limit" in words
    assert megabytes < 30


# Lists tars or converts pictures with so many MB beside what the program has already, and says what comes of each.
BOUNDED = """
    import resource, sys
    from pathlib import Path
    from PIL import BmpImagePlugin, IcoImagePlugin, TiffImagePlugin
    from fastpipe.errors import ImageError, PackError
    from fastpipe.sources.kinds import list_sources
    from fastpipe.sources.picture.convert import EncodeOptions, convert

    what, megabytes, *files = sys.argv[1:]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (int(megabytes) << 20), resource.RLIM_INFINITY))
    for file in map(Path, files):
        try:
            if what == "list":
                print(len(list_sources(file, 0).sources), "sources")
            else:
                convert(file.read_bytes(), EncodeOptions(max_pixels=100_000))
        except (ImageError, PackError) as problem:
            print(problem)
"""


@pytest.mark.skipif(
    "san.so" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer needs memory of its own"
)
def test_tars(tmp_path: Path) -> None:
    """64 MB for headers that announce gigabytes, which are there, as holes."""
    jpeg = member("good.jpg", jpeg_bytes((16, 12)))
    made = {
        "pax": (
            header("pax", 2**33 - 1, b"x"),
            2**33,
            "an extended header of at most 1,048,576 bytes",
        ),
        "global": (
            header("pax", 2**33 - 1, b"g"),
            2**33,
            "an extended header of at most 1,048,576 bytes",
        ),
        "name": (
            header("@LongLink", 2**33 - 1, b"L"),
            2**33,
            "an extended header of at most 1,048,576 bytes",
        ),
        "link": (
            header("a", 2**33 - 1, b"2"),
            2**33,
            "expected 0 bytes after the header of a symbolic link",
        ),
        "behind": (jpeg + END, 2**33, "expected only zeros after the end of the tar"),
        "label": (jpeg + header("good.cls", 2**33 - 512), 2**33 + 4096, "1 sources"),
        "chain": (
            b"".join(pax(b"g", comment=b"x" * 900_000) for _ in range(100)),
            0,
            "the file ends at byte",
        ),
    }
    for name, (start, size, _) in made.items():
        (tmp_path / name).write_bytes(start)
        if size:
            os.truncate(tmp_path / name, size)
    ended = run_script(BOUNDED, "list", 64, *(tmp_path / name for name in made), timeout_s=300)
    assert ended.stderr == ""
    for line, (_, _, words) in zip(ended.stdout.splitlines(), made.values(), strict=True):
        assert words in line


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pictures(tmp_path: Path) -> None:
    """Small files that announce giants are refused in little memory; the gate looks at their words."""
    for name, data in BOMBS.items():
        (tmp_path / name).write_bytes(data)
    # The giants take 900 MB and more.
    ended = run_script(BOUNDED, "convert", 256, *(tmp_path / name for name in BOMBS), timeout_s=300)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(ended.stdout.splitlines()) == len(BOMBS), ended.stdout
