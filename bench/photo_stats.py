"""Turns folders of JPEG files into a Markdown table of what matters for a loader's speed.

    python bench/photo_stats.py FOLDER [FOLDER ...]

Each folder is a column. Decoding is measured on one core: one warm-up pass over all files of a folder, held
in memory, then --repeats passes, of which the median CPU time counts. The folders take turns, so that a busy
machine hits all alike.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from turbojpeg import TJPF_BGR, TurboJPEG

_SUBSAMPLINGS = (
    "4:4:4",
    "4:2:2",
    "4:2:0",
    "gray",
    "4:4:0",
    "4:1:1",
    "4:4:1",
)  # in the order of TJSAMP_*


@dataclass
class Photos:
    """The JPEG files of one folder.

    Attributes:
        name: the folder's own name.
        jpegs: the files' bytes.
        sizes: (n, 2) width and height, pixels.
        subsamplings: (n,) places in _SUBSAMPLINGS.
        decode_s: CPU seconds of each pass over all files.
    """

    name: str
    jpegs: list[bytes]
    sizes: np.ndarray
    subsamplings: np.ndarray
    decode_s: list[float] = field(default_factory=list)


def read_photos(codec: TurboJPEG, folder: Path) -> Photos:
    """Read every .jpg, .jpeg and .JPEG file under a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not paths:
        raise SystemExit(f"expected JPEG files under {folder}, found none")
    jpegs = [path.read_bytes() for path in paths]
    headers = np.array([codec.decode_header(jpeg)[:3] for jpeg in jpegs])
    return Photos(folder.name, jpegs, headers[:, :2], headers[:, 2])


def decode_all(codec: TurboJPEG, photos: Photos) -> float:
    """Decode every file to BGR at full size; returns CPU seconds."""
    started = time.process_time()
    for jpeg in photos.jpegs:
        codec.decode(jpeg, pixel_format=TJPF_BGR)
    return time.process_time() - started


def rows(photos: Photos) -> dict[str, str]:
    """Give the table's rows of one folder: name of the figure -> figure."""
    pixels = photos.sizes.prod(axis=1)
    file_bytes = np.array([len(jpeg) for jpeg in photos.jpegs])
    bits = 8.0 * file_bytes / pixels
    decode_s = statistics.median(photos.decode_s)

    def percentiles(values: np.ndarray, show: Callable[[float], str]) -> str:
        return " / ".join(show(value) for value in np.percentile(values, (10, 50, 90)))

    shares = {
        f"share {name}": f"{np.mean(photos.subsamplings == place):.1%}"
        for place, name in enumerate(_SUBSAMPLINGS[:4])
    }
    return {
        "photos": str(len(photos.jpegs)),
        "median width x height": " x ".join(
            f"{value:.0f}" for value in np.median(photos.sizes, axis=0)
        ),
        "mean width x height": " x ".join(f"{value:.0f}" for value in photos.sizes.mean(axis=0)),
        "mean Mpixel": f"{pixels.mean() / 1e6:.3f}",
        "Mpixel p10 / p50 / p90": percentiles(pixels / 1e6, "{:.3f}".format),
        "share 500 pixels long": f"{np.mean(photos.sizes.max(axis=1) == 500):.1%}",
        "share landscape or square": f"{np.mean(photos.sizes[:, 0] >= photos.sizes[:, 1]):.1%}",
        "bits per pixel, all bits / all pixels": f"{8.0 * file_bytes.sum() / pixels.sum():.2f}",
        "bits per pixel p10 / p50 / p90": percentiles(bits, "{:.2f}".format),
        "mean bytes": f"{file_bytes.mean():.0f}",
        **shares,
        "full decode, images/s a core": f"{len(photos.jpegs) / decode_s:.0f}",
        "full decode, Mpixel/s a core": f"{pixels.sum() / decode_s / 1e6:.0f}",
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description="Properties of JPEG folders that matter for the speed of a loader."
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--repeats", type=int, default=5, help="number of timed passes for each folder (default 5)"
    )
    arguments = parser.parse_args()
    codec = TurboJPEG()
    columns = [read_photos(codec, folder) for folder in arguments.folders]
    for turn in range(1 + max(1, arguments.repeats)):
        for photos in columns:
            elapsed_s = decode_all(codec, photos)
            if turn:  # the first pass warms up
                photos.decode_s.append(elapsed_s)
    tables = [rows(photos) for photos in columns]
    out = sys.stdout
    out.write("| | " + " | ".join(photos.name for photos in columns) + " |\n")
    out.write("|---|" + "---|" * len(columns) + "\n")
    for figure in tables[0]:
        out.write(f"| {figure} | " + " | ".join(table[figure] for table in tables) + " |\n")
    out.write(
        f"\nPython {platform.python_version()}, numpy {np.__version__}, {platform.machine()}\n"
    )


if __name__ == "__main__":
    main()
