"""`fastpipe unpack`: a dataset -> its images as files."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fastpipe.errors import format_count
from fastpipe.machine.progress import WorkProgress, show_progress
from fastpipe.packing.unpack import unpack as run_unpack
from fastpipe.tools.cli import options
from fastpipe.tools.cli.console import err, exit_codes, out, place, print_json

Format = StrEnum("Format", "FOLDER WEBDATASET")


def unpack(
    data: options.PackedData,
    dst: Annotated[
        str, typer.Argument(metavar="DST", help="A new or empty folder for the images.")
    ],
    format: Annotated[
        Format,
        typer.Option(
            help="Write one folder of files for each class, or tar shards (WebDataset)."
        ),
    ] = Format.FOLDER,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The number of threads.",
            show_default="the CPUs granted to this process",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the images of a dataset as files.

    JPEGs are written as ordinary JPEGs, and lossless images as PNGs. They have the same pixels and
    coefficients, even if the dataset was packed with --storage coefficients.
    """

    def describe(progress: WorkProgress) -> str:
        return f"{progress.done:,}/{progress.total:,} images"

    with exit_codes():
        with show_progress(err, "unpacking", describe) as on_progress:
            unpacked = run_unpack(
                place(data),
                place(dst),
                format,
                workers=workers,
                on_progress=on_progress,
            )
        if as_json:
            print_json(
                {
                    "images": unpacked.images,
                    "bytes": unpacked.bytes,
                    "fields_left_out": unpacked.left_out,
                    "columns_left_out": unpacked.columns_left_out,
                    "labels": unpacked.labels,
                }
            )
            return
        out.print(
            f"{format_count(unpacked.images, 'image')}, {unpacked.bytes:,} bytes, in {dst}"
        )
        if unpacked.labels == "saved":
            out.print("labels: those that save_columns wrote beside the dataset")
        elif unpacked.labels == "stored":
            out.print(
                "labels: those of the shards; save_columns wrote others beside the dataset, and "
                "--format folder takes these"
            )
        if unpacked.columns_left_out:
            names = ", ".join(unpacked.columns_left_out)
            out.print(f"left out: the columns that save_columns wrote, {names}")
        if unpacked.left_out:
            names = ", ".join(unpacked.left_out)
            out.print(f"left out: the fields {names}; --format webdataset keeps them")
