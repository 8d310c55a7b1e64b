"""`fastpipe verify`: a dataset -> whether it is sound, and if not, a list of all damage."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from fastpipe.dataset.format.description import read_info
from fastpipe.dataset.format.folder import scheme_of
from fastpipe.dataset.format.layout import DATASET_FILE
from fastpipe.errors import ConfigError, closed_path, format_count, readable
from fastpipe.machine.progress import WorkProgress, show_progress
from fastpipe.sources.files import source_path
from fastpipe.tools.cli import options
from fastpipe.tools.cli.console import err, exit_codes, out, place, print_json
from fastpipe.tools.cli.pack_report import pack_progress
from fastpipe.tools.verify.damage import Report
from fastpipe.tools.verify.repair import repair as run_repair
from fastpipe.tools.verify.verification import verify as run_verify

_MAX_FINDINGS = 20


def verify(
    data: options.PackedData,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Check the hashes of dataset.json, index and columns, and the sizes of shards; read no "
            "shard.",
        ),
    ] = False,
    repair: Annotated[
        str | None,
        typer.Option(
            metavar="SRC",
            help="Restore damaged files from SRC, the source that was packed, or its URL.",
        ),
    ] = None,
    image_root: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="With --repair: the folder or URL that image paths of SRC are relative to.",
        ),
    ] = None,
    as_json: options.AsJson = False,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The number of threads, or of tasks of Ray at a time.",
            show_default="the CPUs granted to this process",
            rich_help_panel=options.WORK,
        ),
    ] = None,
    executor: Annotated[
        options.Executor,
        typer.Option(
            "--on",
            help="Read the shards in threads of this process, or with ray in tasks of a Ray "
            "cluster that sees them.",
            rich_help_panel=options.WORK,
        ),
    ] = options.Executor.THREADS,
    address: options.Address = None,
) -> None:
    """Check that a dataset is sound: structure, sizes, hashes, images.

    Names each damaged sample. --repair packs only the damaged shards again, and replaces a file
    only if the new file has the packed hash. Exit code 0: sound, or repaired; 1: damaged.
    """
    with exit_codes():
        data_place = place(data)
        if repair is not None and not isinstance(data_place, Path):
            raise ConfigError(
                "--repair writes files, but DATA is a URL. Repair a copy in a folder, and upload "
                "it; or remove the damaged shards there and run the same fastpipe pack command "
                "again, with --overwrite"
            )
        if image_root is not None and repair is None:
            raise ConfigError(
                "--image-root needs --repair: it says where the images of SRC are"
            )

        start_s = time.monotonic()

        def describe(progress: WorkProgress) -> str:
            return _describe_progress(progress, time.monotonic() - start_s)

        with show_progress(err, "verifying", describe) as on_progress:
            report = run_verify(
                data_place,
                quick=quick,
                workers=workers,
                executor=executor,
                address=address,
                on_progress=on_progress,
            )
        if not as_json:
            _print_report(report)

        repaired: list[str] = []
        if repair is not None and not report.sound:
            with pack_progress(err) as on_pack_progress:
                repaired = run_repair(
                    Path(data_place),
                    source_path(repair),
                    report,
                    image_root=image_root,
                    workers=workers,
                    on_progress=on_pack_progress,
                )
        if as_json:
            print_json({**report.as_dict(), "repaired": repaired})
        elif len(repaired) == 1:
            out.print(
                Text.assemble(
                    ("repaired", "green"), f": {repaired[0]}, as it was packed"
                )
            )
        elif repaired:
            files = ", ".join(repaired)
            out.print(
                Text.assemble(("repaired", "green"), f": {files}, as they were packed")
            )
        if not report.sound and not repaired:
            raise typer.Exit(1)


def _print_report(report: Report) -> None:
    shown = report.findings[:_MAX_FINDINGS]
    for damage in shown:
        out.print(readable(str(damage)))
    if len(report.findings) > _MAX_FINDINGS:
        num_more = len(report.findings) - _MAX_FINDINGS
        out.print(f"... and {num_more:,} more; --json lists all")
    path = readable(report.path)
    if report.sound:
        text = f": {path}: {_describe_check(report)}"
        out.print(Text.assemble(("sound", "green"), text))
        return
    num_samples = 0
    for first, last in report.bad_samples():
        num_samples += last - first + 1
    check = _describe_check(report)
    if report.bytes or report.quick:
        check = f"checked {check}"
    problems = format_count(len(report.findings), "problem")
    samples = format_count(num_samples, "sample")
    text = f": {path}: {problems}, {samples} affected; {check}. {_next_step(report)}"
    out.print(Text.assemble(("damaged", "red"), text))


def _describe_check(report: Report) -> str:
    """The parts of a dataset that were checked, and the speed."""
    samples = format_count(report.samples, "sample")
    shards = format_count(report.shards, "shard")
    text = f"{samples} in {shards}"
    if report.samples_unread:
        num_checked = report.samples - report.samples_unread
        text = (
            f"{num_checked:,} of {text} ({report.samples_unread:,} could not be read)"
        )
    if report.quick:
        return (
            f"{text}: checked the hashes of dataset.json, index and columns, and the sizes of "
            "shards; no shard was read"
        )
    if not report.bytes:
        return f"none of the {samples} in {shards} could be read"
    mb_per_s = report.bytes / max(report.seconds, 1e-9) / 1e6
    # A shard that is missing or cut off has images that nobody decoded.
    bytes_read = f"{report.bytes:,} bytes" + (
        ", each image decoded," if report.sound else " read"
    )
    return f"{text}, {bytes_read} in {report.seconds:.1f} s ({mb_per_s:,.0f} MB/s)"


def _next_step(report: Report) -> str:
    """The command that repairs a damaged dataset."""
    path = readable(report.path)
    if any(damage.file == DATASET_FILE for damage in report.findings):
        return (
            f"Only {DATASET_FILE} defines the correct content, so pack it again: fastpipe pack SRC "
            f"{path} --overwrite"
        )
    if scheme_of(report.path):
        return (
            "To repair it: fastpipe verify COPY --repair SRC, with a copy in a folder; then upload "
            "that"
        )
    for file in sorted({damage.file for damage in report.findings}):
        denied = closed_path(os.path.join(report.path, file))
        if denied:
            return f"It may be sound: {denied}"
    repair = f"To repair it: fastpipe verify {path} --repair SRC"
    info = read_info(Path(report.path))
    source = info["packs"][-1]["source"]
    if "made_by" not in source:
        return repair
    if any(damage.file.startswith("shard-") for damage in report.findings):
        return (
            "It has no SRC to repair its shards from: run the program that wrote it with "
            f"{source['made_by']} again"
        )
    return (
        f"{repair}, where SRC is any other folder: it was written by {source['made_by']}, and its "
        "shards are enough"
    )


def _describe_progress(progress: WorkProgress, seconds: float) -> str:
    seconds = max(seconds, 1e-6)
    images_per_s = progress.done / seconds
    mb_per_s = progress.bytes / seconds / 1e6
    text = f"{progress.done:,}/{progress.total:,} samples  {images_per_s:,.0f} images/s"
    text += f"  {mb_per_s:.1f} MB/s"
    if progress.problems:
        text += f"  problems: {progress.problems:,}"
    return text
