"""`fastpipe demo`: generated photos -> a dataset, an epoch, a comparison and a drawn batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastpipe.bench.task import NAMES, Figures
from fastpipe.cli.bench_tables import throughput_table
from fastpipe.cli.console import err, exit_codes, out
from fastpipe.cli.pack_progress import pack_progress
from fastpipe.cli.pack_table import pack_table
from fastpipe.cli.tables import show
from fastpipe.demo import PHOTOS
from fastpipe.errors.checks import whole


def demo(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]", help="Folder for the photos, the dataset and the sheet.", show_default="fastpipe-demo"
        ),
    ] = Path("fastpipe-demo"),
    photos: Annotated[int, typer.Option(help="Number of photos to generate.")] = PHOTOS,
) -> None:
    """Generate photos, and try fastpipe on them.

    Packs the photos, loads an epoch, compares the speed with torch's DataLoader and draws a training batch.
    """
    from fastpipe.demo.run import run_demo

    with exit_codes():
        whole("--photos", photos, least=1, most=1_000_000)

        def say(text: str) -> None:
            out.print(f"* {text}")

        def tell(number: int, contender: str, figures: Figures) -> None:
            err.print(f"round {number + 1}: {NAMES[contender]}: {figures.images_per_s:,.0f} images/s")

        done = run_demo(folder, photos=photos, say=say, packing=lambda: pack_progress(err), on_run=tell)
        if not done.summary.already_packed:
            out.print(pack_table(done.summary))
        out.print(
            f"one epoch: {done.epoch_images:,} images in {done.epoch_s:.2f} s including the start of the threads, "
            f"{done.epoch_images / done.epoch_s:,.0f} images/s"
        )
        out.print()
        show(out, throughput_table(done.results))
        for name, reason in done.skipped.items():
            out.print(f"not measured: {NAMES[name]}: {reason}")
        out.print(f"open {done.sheet}: it shows a training batch as the model sees it")
        out.print(f"more: fastpipe inspect {done.data}; fastpipe bench {done.data} --against torch")
