"""Photos -> what fields cost a loader: CPU time an image with them and without, in turn.

    python bench/fields_cost.py PHOTOS [--copies 4] [--rounds 15] [--batch-size 256]

Each photo gets a caption of 40 to 120 characters and 0 to 14 boxes with labels. The ratio is CPU time an image of the
whole process to that of the default, (images, labels), in the same round; the table has medians. Fields are read in the
thread that iterates, so that thread's own CPU time is in the table, too: it shows what the noise of the decoders hides.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fastpipe

DEFAULT = "(images, labels)"
VARIANTS: dict[str, tuple[str, ...] | None] = {
    DEFAULT: None,
    "image, label": ("image", "label"),
    "+ caption": ("image", "label", "caption"),
    "+ boxes": ("image", "label", "boxes"),
    "+ caption, boxes, id": ("image", "label", "caption", "boxes", "id"),
    "+ key": ("image", "label", "key"),
}


def write(photos: Path, data: Path, copies: int) -> int:
    """Packs each photo so many times, in random order."""
    rng = np.random.default_rng(0)
    files = copies * sorted(
        path for path in photos.glob("*/*") if path.suffix.lower() in (".jpg", ".jpeg")
    )
    with fastpipe.Writer(data, fields={"caption": "text", "boxes": "boxes"}) as writer:
        for number in rng.permutation(len(files)).tolist():
            corners = np.sort(rng.random((rng.integers(15), 2, 2)) * 100, axis=1).reshape(-1, 4)
            boxes = {"boxes": corners, "labels": rng.integers(0, 80, len(corners))}
            writer.add(
                files[number],
                label=number % 10,
                caption="word " * int(rng.integers(8, 25)),
                boxes=boxes,
            )
    return len(files)


def measure(loader: fastpipe.Loader, epochs: int) -> tuple[float, float]:
    """CPU microseconds an image: of the whole process, and of this thread."""
    everyone, own, images = time.process_time(), time.thread_time(), 0
    for _ in range(epochs):
        for batch in loader:
            images += len(batch["image"] if isinstance(batch, dict) else batch[0])
    return (time.process_time() - everyone) / images * 1e6, (
        time.thread_time() - own
    ) / images * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--epochs", type=int, default=1, help="of a variant in a round")
    parser.add_argument("--batch-size", type=int, default=256)
    options = parser.parse_args()
    torch.set_num_threads(1)
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        samples = write(options.photos, data, options.copies)
        made: dict[str, Any] = {
            name: fastpipe.loader(data, options.batch_size, num_workers=2, fields=fields)
            for name, fields in VARIANTS.items()
        }
        for loader in made.values():
            measure(loader, 1)  # warm-up
        for number in range(options.rounds):
            names = list(made)[number % len(made) :] + list(made)[: number % len(made)]
            for name in names:
                took[name].append(measure(made[name], options.epochs))
        for loader in made.values():
            loader.close()
    default = [whole for whole, _ in took[DEFAULT]]
    rows = [
        f"{samples} samples, batches of {options.batch_size}, {options.rounds} rounds; us an image\n"
    ]
    rows += ["| batch | process | ratio | iterating thread |\n", "|---|---|---|---|\n"]
    for name, found in took.items():
        whole = [each for each, _ in found]
        ratio = statistics.median(a / b for a, b in zip(whole, default, strict=True))
        own = statistics.median(each for _, each in found)
        rows.append(f"| {name} | {statistics.median(whole):.1f} | {ratio:.3f} | {own:.2f} |\n")
    sys.stdout.write("".join(rows))


if __name__ == "__main__":
    main()
