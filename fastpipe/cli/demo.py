"""`fastpipe demo`: generated photos -> a dataset, an epoch, a comparison and a drawn batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastpipe.cli.bench import tell_run, tell_skipped
from fastpipe.cli.console import err, exit_codes, out
from fastpipe.cli.pack_progress import pack_progress
from fastpipe.cli.tables import pack_table, show, throughput_table
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

        done = run_demo(folder, photos=photos, say=say, packing=lambda: pack_progress(err), on_run=tell_run)
        if not done.summary.already_packed:
            out.print(pack_table(done.summary))
        out.print(
            f"one epoch: {done.epoch_images:,} images in {done.epoch_s:.2f} s including the start of the threads, "
            f"{done.epoch_images / done.epoch_s:,.0f} images/s"
        )
        out.print()
        show(out, throughput_table(done.results))
        tell_skipped(done.skipped)
        out.print(f"open {done.sheet}: it shows a training batch as the model sees it")
        out.print(f"more: fastpipe inspect {done.data}; fastpipe bench {done.data} --against torch")
