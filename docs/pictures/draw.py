"""Draws the pictures of the documentation: python docs/pictures/draw.py [--preview]

The SVG files follow from this script and from the table in docs/development/benchmarks.md.
With --preview it also draws preview.jpg, from the photos of `fastpipe demo`.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from svg import BLUE, COLOURS, GRAY, INK, ORANGE, PALE, Drawing

PICTURES = Path(__file__).resolve().parent
BENCHMARKS = PICTURES.parent / "development" / "benchmarks.md"


def draw_data_path() -> Drawing:
    """Photos -> shards -> plan -> threads -> batch -> GPU."""
    drawing = Drawing(920, 250, "The way of a photo from file to tensor")
    steps = [
        ("photos", "photos/cat/1.jpg", "one folder a class"),
        ("fastpipe pack", "shards and an index", "once; no pixel changes"),
        ("plan", "order, crop, flip", "from seed and epoch"),
        ("C++ threads", "decode only the crop", "straight into the batch"),
        ("GPU", "augment, normalise", "beside the training step"),
    ]
    width, gap = 156, 25
    for place, (name, what, how) in enumerate(steps):
        x = 20 + place * (width + gap)
        strong = name == "C++ threads"
        drawing.rectangle(x, 70, width, 110, fill=PALE, stroke=BLUE if strong else GRAY)
        drawing.text(x + width / 2, 102, name, size=17, anchor="middle", bold=True)
        drawing.text(x + width / 2, 132, what, size=13, anchor="middle")
        drawing.text(x + width / 2, 156, how, size=12, anchor="middle", fill="#57606a")
        if place > 0:
            drawing.arrow(x - gap + 2, 125, x - 3, 125)
    drawing.text(20, 40, "once", size=14, fill="#57606a")
    drawing.text(20 + 2 * (width + gap), 40, "in each epoch, in one process", size=14, fill="#57606a")
    drawing.text(20, 220, 'for images, labels in fastpipe.loader("data/train", device="cuda"): ...', size=15)
    return drawing


def draw_tiles() -> Drawing:
    """A photo in tiles, a crop, and the tiles that are decoded for it."""
    drawing = Drawing(720, 360, "Only the tiles that a crop touches are decoded")
    width, height, tile, scale = 500, 375, 32, 0.8
    crop_x, crop_y, crop_width, crop_height = 180, 90, 170, 150
    left, top = 30, 30
    for y in range(0, height, 16):
        for x in range(0, width, tile):
            is_touched = x < crop_x + crop_width and x + tile > crop_x and y < crop_y + crop_height and y + 16 > crop_y
            drawing.rectangle(
                left + x * scale,
                top + y * scale,
                (min(x + tile, width) - x) * scale,
                (min(y + 16, height) - y) * scale,
                fill="#bcd4f7" if is_touched else PALE,
                stroke="#ffffff",
                radius=0,
                line=1,
            )
    drawing.rectangle(
        left + crop_x * scale,
        top + crop_y * scale,
        crop_width * scale,
        crop_height * scale,
        stroke=ORANGE,
        line=3,
        radius=0,
    )
    x = left + width * scale + 25
    for place, (colour, words) in enumerate(
        [(PALE, "a tile: can be decoded alone"), ("#bcd4f7", "decoded for this crop"), (ORANGE, "the crop")]
    ):
        drawing.rectangle(x, 60 + 40 * place, 22, 22, fill=colour)
        drawing.text(x + 32, 76 + 40 * place, words)
    drawing.text(x, 220, "A JPEG in a shard has a restart", size=13, fill="#57606a")
    drawing.text(x, 240, "marker after each tile, about", size=13, fill="#57606a")
    drawing.text(x, 260, "32 pixels wide. Its pixels are", size=13, fill="#57606a")
    drawing.text(x, 280, "those of the source.", size=13, fill="#57606a")
    return drawing


def draw_shuffle() -> Drawing:
    """Shards -> chunks in a new order -> samples shuffled within windows of chunks."""
    chunks, samples, window = 8, 8, 4
    random = np.random.default_rng(3)
    order = random.permutation(chunks)
    rows = np.repeat(order, samples).reshape(-1, window * samples)
    shuffled = np.concatenate([random.permutation(row) for row in rows])
    drawing = Drawing(840, 330, "How an epoch is shuffled")
    stages = [
        ("on disk: chunks of about 8 MB, shuffled once by pack", np.repeat(np.arange(chunks), samples)),
        ("in an epoch: the chunks in a new order", np.repeat(order, samples)),
        ("then the samples within a window of chunks (32; here 4)", shuffled),
    ]
    for stage, (words, colours) in enumerate(stages):
        y = 40 + 96 * stage
        drawing.text(30, y, words, size=14)
        for place, colour in enumerate(colours):
            drawing.rectangle(30 + place * 12.2, y + 12, 11, 34, fill=COLOURS[colour], radius=1.5)
    drawing.rectangle(26, 240, window * samples * 12.2 + 4, 42, stroke=INK, radius=3)
    drawing.text(30, 312, "one window: read in large pieces, used in random order", size=13, fill="#57606a")
    return drawing


def draw_ranks() -> Drawing:
    """A global batch, shared by two ranks and by four."""
    drawing = Drawing(770, 270, "The same global batches on two ranks and on four")
    samples = np.random.default_rng(1).permutation(32)[:16]
    for stage, (ranks, words) in enumerate(
        [(1, "order of the epoch"), (2, "2 ranks, batch_size=4"), (4, "4 ranks, batch_size=2")]
    ):
        y = 36 + 76 * stage
        drawing.text(30, y + 22, words, size=14)
        for place, sample in enumerate(samples):
            x = 230 + place * 31 + place // 8 * 14
            rank = place % 8 // (8 // ranks)
            fill = PALE if ranks == 1 else COLOURS[rank]
            drawing.rectangle(x, y, 28, 34, fill=fill, radius=3)
            ink = INK if ranks == 1 else "#ffffff"
            drawing.text(x + 14, y + 22, str(sample), size=13, anchor="middle", fill=ink)
    for batch in range(2):
        drawing.rectangle(224 + batch * 262, 28, 257, 204, stroke=GRAY)
        drawing.text(352 + batch * 262, 254, f"global batch {batch}", size=13, anchor="middle")
    drawing.text(30, 254, "a colour is a rank", size=13, fill="#57606a")
    return drawing


def draw_benchmark() -> Drawing:
    """The first table of results in docs/development/benchmarks.md as bars."""
    page = BENCHMARKS.read_text(encoding="utf-8")
    section = page.partition("**Reading the photos as they are**")[2].partition("\nThree rows")[0]
    rates = [
        (name.strip("* "), int(rate.strip("* ").replace(",", "")))
        for name, rate in re.findall(r"^\| ([^|]+) \| ([*\d,]+) \|", section, re.MULTILINE)
    ]
    drawing = Drawing(820, 70 + 38 * len(rates), "Images per second on two CPUs")
    drawing.text(20, 32, "images/s, random crops of photos, 2 CPUs, 2 threads or workers", bold=True)
    longest = max(rate for _, rate in rates)
    for place, (name, rate) in enumerate(rates):
        y = 52 + 38 * place
        drawing.text(270, y + 19, name, size=14, anchor="end")
        is_ours = name == "fastpipe"
        drawing.rectangle(282, y, 440 * rate / longest, 28, fill=BLUE if is_ours else "#aeb8c2", radius=3)
        drawing.text(290 + 440 * rate / longest, y + 19, f"{rate:,}", size=14)
    return drawing


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "data-path.svg": draw_data_path,
    "tiles.svg": draw_tiles,
    "shuffle.svg": draw_shuffle,
    "ranks.svg": draw_ranks,
    "benchmark.svg": draw_benchmark,
}


def draw_preview(path: Path) -> None:
    """A preview of demo photos, small enough for a page."""
    import cv2

    import fastpipe
    from fastpipe.tools.demo.photos import write_photos

    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder) / "photos", 40)
        fastpipe.pack(Path(folder) / "photos", Path(folder) / "packed")
        augment = fastpipe.Augment.randaugment()
        with fastpipe.loader(Path(folder) / "packed", batch_size=8, augment=augment) as loader:
            fastpipe.preview(loader, Path(folder) / "sheet.png", rows=3)
        sheet = cv2.imread(str(Path(folder) / "sheet.png"))
    height, width = sheet.shape[:2]
    small = cv2.resize(sheet, (1200, height * 1200 // width), interpolation=cv2.INTER_AREA)
    cv2.imwrite(str(path), small)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preview", action="store_true", help="also draw preview.jpg")
    for name, draw in DRAWINGS.items():
        (PICTURES / name).write_text(draw().render(), encoding="utf-8")
    if parser.parse_args().preview:
        draw_preview(PICTURES / "preview.jpg")


if __name__ == "__main__":
    main()
