"""`fastpipe verify`: a dataset -> whether it is sound, and if not, a list of all damage."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import typer

from fastpipe.cli.console import AsJson, Packed, err, exit_codes, out, place, print_json
from fastpipe.cli.options import declared, takes
from fastpipe.cli.tables import count, pack_progress
from fastpipe.errors import ConfigError, readable
from fastpipe.format.description import read_info
from fastpipe.format.folder import scheme_of
from fastpipe.format.layout import DATASET_FILE
from fastpipe.machine.progress import WorkProgress, shown
from fastpipe.sources.files import source_path
from fastpipe.verify.damage import Report
from fastpipe.verify.repair import repair as run_repair
from fastpipe.verify.verification import verify as run_verify

_SHOWN = 20


@takes(declared(run_verify, ("quick", "workers", "executor", "address")))
def verify(
    data: Packed,
    repair: str | None = None,
    image_root: str | None = None,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Check a dataset: structure, sizes, hashes, and that every image decodes.

    Names each damaged sample. --repair packs only the damaged shards again, and replaces a file only if the new file
    has the packed hash. Exit code 0: sound, or repaired; 1: damaged.

    Args:
        repair (SRC): restore damaged files from SRC, the source that you packed, or its URL.
        image_root (FOLDER): folder or URL that image paths of SRC are relative to.
    """
    with exit_codes():
        where = place(data)
        if repair is not None and not isinstance(where, Path):
            raise ConfigError(
                "--repair writes files, but DATA is a URL. Repair a copy in a folder, and upload it; or remove the "
                "damaged shards there and run the same fastpipe pack command again, with --overwrite"
            )
        if image_root is not None and repair is None:
            raise ConfigError("--image-root needs --repair: it says where the images of SRC are")
        with shown(err, "verifying", partial(_words, time.monotonic())) as progress:
            report = run_verify(where, **options, on_progress=progress)
        if not as_json:
            _tell(report)
        repaired: list[str] = []
        if repair is not None and not report.sound:
            with pack_progress(err) as packing:
                repaired = run_repair(
                    Path(where),
                    source_path(repair),
                    report,
                    image_root=image_root,
                    workers=options["workers"],
                    on_progress=packing,
                )
        if as_json:
            print_json({**report.as_dict(), "repaired": repaired})
        elif repaired:
            out.print(f"repaired: {', '.join(repaired)}; these files are again as they were packed")
        if not report.sound and not repaired:
            raise typer.Exit(1)


def _tell(report: Report) -> None:
    for found in report.findings[:_SHOWN]:
        out.print(readable(str(found)))
    if len(report.findings) > _SHOWN:
        out.print(f"... and {len(report.findings) - _SHOWN:,} more; --json lists all")
    what = f"{count(report.samples, 'sample')} in {count(report.shards, 'shard')}"
    if report.quick:
        what += "; checked only sizes and structure, read no shard"
    else:
        speed = f"{report.bytes / max(report.seconds, 1e-9) / 1e6:,.0f} MB/s"
        what += f", {report.bytes:,} bytes, each image decoded, in {report.seconds:.1f} s ({speed})"
    if report.sound:
        out.print(f"sound: {readable(report.path)}: {what}")
        return
    bad = sum(last - first + 1 for first, last in report.bad_samples())
    out.print(
        f"damaged: {readable(report.path)}: {count(len(report.findings), 'problem')}, {count(bad, 'sample')} "
        f"affected; checked {what}. {_next_step(report)}"
    )


def _next_step(report: Report) -> str:
    path = readable(report.path)
    if any(found.file == DATASET_FILE for found in report.findings):
        return (
            f"Only {DATASET_FILE} defines the correct content, so pack it again: fastpipe pack SRC "
            f"{path} --overwrite"
        )
    if scheme_of(report.path):
        return "To repair it: fastpipe verify COPY --repair SRC, with a copy in a folder; then upload that"
    repair = f"To repair it: fastpipe verify {path} --repair SRC"
    source = read_info(Path(report.path))["packs"][-1]["source"]
    if "made_by" not in source:
        return repair
    if any(found.file.startswith("shard-") for found in report.findings):
        return f"It has no SRC to repair its shards from: run the program that wrote it with {source['made_by']} again"
    return f"{repair}, where SRC is any other folder: it was written by {source['made_by']}, and its shards are enough"


def _words(started: float, now: WorkProgress) -> str:
    seconds = max(time.monotonic() - started, 1e-6)
    found = f"  problems: {now.problems}" if now.problems else ""
    rates = f"{now.done / seconds:,.0f} images/s  {now.bytes / seconds / 1e6:.1f} MB/s"
    return f"{now.done:,}/{now.total:,} samples  {rates}{found}"
