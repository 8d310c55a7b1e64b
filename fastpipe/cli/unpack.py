"""`fastpipe unpack`: a dataset -> its images as JPEG and PNG files."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from fastpipe.cli.console import AsJson, Packed, err, exit_codes, out, place, print_json
from fastpipe.cli.options import declared, takes
from fastpipe.cli.tables import count
from fastpipe.machine.progress import HowFar, shown
from fastpipe.packing.api import pack
from fastpipe.packing.unpack import unpack as run_unpack

Format = StrEnum("Format", "FOLDER WEBDATASET")  # what unpacking writes


@takes(declared(pack, ["workers"]))
def unpack(data: Packed, dst: str, format: Format = Format.FOLDER, as_json: AsJson = False, **options: Any) -> None:
    """Write the images of a dataset as ordinary JPEGs, and PNGs where they have no loss.

    They have the same pixels and coefficients, also if the dataset was packed with --storage coefficients.

    Args:
        dst: new or empty folder for the images.
        format: one folder of files for each class, or tar shards (WebDataset).
    """

    def words(now: HowFar) -> str:
        return f"{now.done:,}/{now.total:,} images"

    with exit_codes():
        with shown(err, "unpacking", words) as show:
            found = run_unpack(place(data), place(dst), format, **options, on_progress=show)
        if as_json:
            print_json({"images": found.images, "bytes": found.bytes, "fields_left_out": found.left_out})
            return
        out.print(f"{count(found.images, 'image')}, {found.bytes:,} bytes, in {dst}")
        if found.left_out:
            out.print(f"left out: the fields {', '.join(found.left_out)}; --format webdataset keeps them")
