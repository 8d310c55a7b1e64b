"""`fastpipe pack` and `unpack`: a folder of images, tars, or lists of images -> tar shards with an index; and back."""

from __future__ import annotations

import gc
import logging
import warnings
from enum import StrEnum
from inspect import signature
from typing import Any

from fastpipe.cli.console import AsJson, Packed, err, exit_codes, out, place, print_json
from fastpipe.cli.options import declared, takes
from fastpipe.cli.tables import assumed_json, count, pack_progress, pack_table, show_assumed
from fastpipe.errors import readable
from fastpipe.format.layout import REJECTED_FILE
from fastpipe.machine.progress import WorkProgress, shown
from fastpipe.packing.api import pack as run_pack
from fastpipe.packing.job.summary import Summary
from fastpipe.packing.shard.publish import read_rejected
from fastpipe.packing.unpack import unpack as run_unpack
from fastpipe.sources.files import SourcePath, source_path

PYTHON_ONLY = ("storage_options", "read_timeout", "on_progress")


@takes(
    declared(run_pack, (name for name in signature(run_pack).parameters if name not in PYTHON_ONLY))
)
def pack(as_json: AsJson = False, **options: Any) -> None:
    """Turn a folder of images, WebDataset shards, or files that list images, into tar shards with an index.

    Images keep their exact pixels: JPEGs stay JPEGs, and formats without loss become PNGs. If the command is
    interrupted, run it again: it continues where it stopped.
    """
    with exit_codes():
        # A file's metadata may be odd, which costs no pixel; what keeps a file out has its reason among the rejected.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        logging.getLogger("PIL").addHandler(logging.NullHandler())
        logging.getLogger("fastpipe.pack").setLevel(
            logging.ERROR
        )  # what is assumed is shown at the end
        gc.freeze()  # the imports' objects stay: the collector need not walk them again and again
        try:
            with pack_progress(err) as progress:
                summary = run_pack(**options, on_progress=progress)
        except KeyboardInterrupt:
            err.print("fastpipe: finished shards are kept; run the same command again to continue")
            raise
        destination = source_path(options["dst"])
        if as_json:
            print_json(_pack_json(summary, destination))
        else:
            _tell_pack(summary, destination)


def _pack_json(summary: Summary, destination: SourcePath) -> dict[str, Any]:
    info = {
        name: value
        for name, value in summary.info.items()
        if name not in ("shards", "classes", "class_counts")
    }
    return {
        **info,
        "classes": len(summary.info["classes"]),
        "shards": len(summary.info["shards"]),
        "packed_bytes": summary.info["stored_bytes"],
        "rejected": read_rejected(destination),
        "outside_classes": [readable(name) for name in summary.stray],
        "members_left_out": dict(summary.dropped),
        "assumed": assumed_json(summary.assumed),
        "files_read": summary.files,
        "seconds": summary.seconds,
        "resumed_shards": summary.resumed,
        "already_packed": summary.already_packed,
        "uploaded_bytes": summary.uploaded_bytes,
    }


def _tell_pack(summary: Summary, destination: SourcePath) -> None:
    if summary.already_packed:
        out.print(
            f"{destination} is already packed from these sources with these options; nothing to do"
        )
        before = summary.info["counts"]["rejected"]
        if before:
            out.print(f"{count(before, 'file')} were rejected: see {destination / REJECTED_FILE}")
        show_assumed(out, summary.assumed)
        return
    if summary.resumed:
        out.print(f"continued after {count(summary.resumed, 'shard')} from an earlier run")
    out.print(pack_table(summary))
    rejected = read_rejected(destination)
    if rejected:
        out.print(
            f"rejected  {count(len(rejected), 'file')}, listed in {destination / REJECTED_FILE}:"
        )
        for entry in rejected[:5]:
            out.print(f"    {entry['path']}: {entry['reason']}")
        if len(rejected) > 5:
            out.print(f"    ... and {len(rejected) - 5:,} more")
    else:
        out.print("rejected  none")
    show_assumed(out, summary.assumed)


Format = StrEnum("Format", "FOLDER WEBDATASET")  # what unpacking writes


@takes(declared(run_pack, ["workers"]))
def unpack(
    data: Packed, dst: str, format: Format = Format.FOLDER, as_json: AsJson = False, **options: Any
) -> None:
    """Write the images of a dataset as ordinary JPEGs, and PNGs where they have no loss.

    They have the same pixels and coefficients, also if the dataset was packed with --storage coefficients.

    Args:
        dst: new or empty folder for the images.
        format: one folder of files for each class, or tar shards (WebDataset).
    """

    def words(now: WorkProgress) -> str:
        return f"{now.done:,}/{now.total:,} images"

    with exit_codes():
        with shown(err, "unpacking", words) as show:
            found = run_unpack(place(data), place(dst), format, **options, on_progress=show)
        if as_json:
            print_json(
                {"images": found.images, "bytes": found.bytes, "fields_left_out": found.left_out}
            )
            return
        out.print(f"{count(found.images, 'image')}, {found.bytes:,} bytes, in {dst}")
        if found.left_out:
            out.print(
                f"left out: the fields {', '.join(found.left_out)}; --format webdataset keeps them"
            )
