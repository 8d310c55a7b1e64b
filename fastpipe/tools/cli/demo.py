"""`fastpipe demo`: generated photos -> a dataset, an epoch, a comparison and a drawn batch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from fastpipe.dataset.format.folder import check_local
from fastpipe.errors import ConfigError, format_count, whole
from fastpipe.machine.cpus import count_granted_cpus
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.tools.bench.measure import GROUPS, NAMES, Task, compare
from fastpipe.tools.cli.bench import print_round
from fastpipe.tools.cli.console import err, exit_codes, out
from fastpipe.tools.cli.pack_report import pack_progress, pack_table
from fastpipe.tools.cli.tables import show, throughput_table

_BATCH_SIZE = 64
_REPEATS = 3
_SECONDS = 1.0


def demo(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The folder for the photos, the dataset and the sheet; without it: fastpipe-demo.",
        ),
    ] = Path("fastpipe-demo"),
    photos: Annotated[
        int, typer.Option(metavar="N", help="The number of photos to generate.")
    ] = 600,
) -> None:
    """Generate photos, and try fastpipe on them.

    Packs the photos, loads an epoch, compares the speed with torch's DataLoader and draws a
    training batch.
    """
    # These import torch, which takes seconds.
    from fastpipe.loading.factory import loader
    from fastpipe.tools.demo.photos import write_photos
    from fastpipe.tools.show.inspection import write_contact_sheet

    with exit_codes():
        whole("--photos", photos, least=1, most=1_000_000)
        check_local("DIR", folder, "folder")
        _check_own_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "photos"
        truth = folder / "truth"
        data = folder / "packed"
        sheet = folder / "batch.png"
        num_workers = count_granted_cpus()

        out.print(
            f"* generating {format_count(photos, 'photo')} in {source} (synthetic: lit, textured "
            "shapes of ten classes)"
        )
        out.print(
            f"* writing boxes, masks and captions of their objects to {truth} (photos.json is in "
            "COCO's format)"
        )
        write_photos(source, photos, workers=num_workers, truth=truth)
        out.print(f"* packing them into {data}")
        with pack_progress(err) as on_progress:
            summary = pack(
                source, data, PackOptions(overwrite=True), on_progress=on_progress
            )

        out.print("* iterating one training epoch")
        start_s = time.perf_counter()
        with loader(data, _BATCH_SIZE, drop_last=False) as batches:
            num_images = sum(len(labels) for _, labels in batches)
        epoch_s = time.perf_counter() - start_s

        out.print(f"* drawing a training batch in {sheet}")
        write_contact_sheet(data, sheet, train=True)

        contenders = ["fastpipe", *GROUPS["torch"]]
        names = ", ".join(NAMES[name] for name in contenders)
        out.print(
            f"* measuring each loader {_REPEATS} times, with {format_count(num_workers, 'worker')}: "
            f"{names}"
        )
        results = compare(
            Task(str(data), _BATCH_SIZE, num_workers, 224),
            contenders,
            repeats=_REPEATS,
            seconds=_SECONDS,
            warmup_s=0.5,
            on_run=print_round,
        )

        if not summary.already_packed:
            out.print(pack_table(summary))
        out.print(
            f"one epoch: {format_count(num_images, 'image')} in {epoch_s:.2f} s including the start of "
            f"the threads, {num_images / epoch_s:,.0f} images/s"
        )
        out.print()
        show(out, throughput_table(results))
        out.print(f"open {sheet}: it shows a training batch as the model sees it")
        out.print(
            f"next: fastpipe inspect {data}, or fastpipe bench {data} --against torch"
        )


def _check_own_folder(folder: Path) -> None:
    """Refuses a folder with a user's files: the demo writes only into a folder of its own."""
    from fastpipe.tools.demo.photos import is_photo_folder

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; pass a new folder: fastpipe demo DIR")
    if (
        folder.is_dir()
        and any(folder.iterdir())
        and not is_photo_folder(folder / "photos")
    ):
        raise ConfigError(
            f"{folder} is not empty, and no earlier demo made it; pass a new folder: fastpipe demo "
            "DIR"
        )
