"""Turns a folder of JPEG files into a Markdown table: what decoding a random crop costs, by width of tile and decoder.

    python bench/decode_crops.py PHOTOS [--tiles 0 16 32 64 65500] [--repeats 7]

Every file is packed at each width of tile (0: no restart markers; 65500: a tile is a row). One random-resized crop of
it, and of the source itself, is decoded on one core, by both of the engine's decoders and, for comparison, by
libjpeg-turbo as a whole. All take turns, file by file; of each one's repeats the median CPU time counts.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from turbojpeg import TJPF_RGB, TurboJPEG

from fastpipe import _engine
from fastpipe.plan.crop_boxes import plan_crops
from fastpipe.plan.crops import RandomResizedCrop

AS_IT_LIES = "the source itself"
WHOLE = "whole picture, libjpeg-turbo"


def crop_of(jpeg: bytes, number: int) -> tuple[int, int, int, int]:
    """A training crop: x, y, width, height."""
    sides = [np.array([side]) for side in _engine.picture_size(jpeg)]
    crops = plan_crops(
        RandomResizedCrop(), (224, 224), *sides, seed=0, epoch=0, samples=np.array([number])
    )
    x, y, width, height = crops.bounds[0].tolist()
    return x, y, width, height


def cpu_us(work: Callable[[], object]) -> float:
    """CPU time of one call."""
    started = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - started) / 1e3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Time for decoding a random crop.")
    parser.add_argument("folder", type=Path, metavar="PHOTOS")
    parser.add_argument(
        "--tiles", type=int, nargs="+", default=[0, 16, 32, 64, 65500], help="tile widths in pixels"
    )
    parser.add_argument(
        "--repeats", type=int, default=7, help="number of decodes of each crop (default 7)"
    )
    arguments = parser.parse_args()
    codec = TurboJPEG()
    tiles = [AS_IT_LIES, *arguments.tiles]
    columns = {f"{method}, tile {tile}": (tile, method) for tile in tiles for method in methods()}
    took: dict[str, list[float]] = {name: [] for name in (WHOLE, *columns)}
    files_bytes, packed_bytes = 0, dict.fromkeys(tiles, 0)
    paths = sorted(
        path for path in arguments.folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")
    )
    for number, path in enumerate(paths):
        source = path.read_bytes()
        packed = {tile: _engine.transcode(source, tile=tile)[0] for tile in arguments.tiles} | {
            AS_IT_LIES: source
        }
        if None in packed.values():
            continue
        region = crop_of(source, number)
        files_bytes += len(source)
        for tile, jpeg in packed.items():
            packed_bytes[tile] += len(jpeg or b"")
        works: dict[str, Callable[[], object]] = {
            WHOLE: functools.partial(
                codec.decode, packed[arguments.tiles[0]], pixel_format=TJPF_RGB
            )
        }
        for name, (tile, method) in columns.items():
            works[name] = functools.partial(_engine.decode, packed[tile], region, method=method)
        runs = [[cpu_us(work) for work in works.values()] for _ in range(arguments.repeats)]
        for name, times in zip(works, zip(*runs, strict=True), strict=True):
            took[name].append(statistics.median(times))
    out = sys.stdout
    out.write(
        "| tile | size of the source's |"
        + "".join(f" {method}, us |" for method in methods())
        + "\n"
    )
    out.write("|---|---|" + "---|" * len(methods()) + "\n")
    for tile in tiles:
        cells = (
            f" {statistics.mean(took[f'{method}, tile {tile}']):.0f} |" for method in methods()
        )
        out.write(f"| {tile} | {packed_bytes[tile] / files_bytes:.4f} |" + "".join(cells) + "\n")
    out.write(f"\n{WHOLE}: {statistics.mean(took[WHOLE]):.0f} us\n")


def methods() -> list[str]:
    """The engine's decoders on this machine."""
    return _engine.decode_methods()


if __name__ == "__main__":
    main()
