"""`fastpipe add`, `remove` and `log`: a dataset -> its next version, or a table of its versions."""

from __future__ import annotations

import logging
import shlex
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fastpipe.dataset.format.folder import check_local
from fastpipe.errors import ConfigError, did_you_mean_path, readable
from fastpipe.packing.api import add as run_add
from fastpipe.packing.api import remove as run_remove
from fastpipe.packing.growth.grow import Grown
from fastpipe.packing.growth.version import versions
from fastpipe.sources.options import Format
from fastpipe.tools.cli import options
from fastpipe.tools.cli.console import err, exit_codes, out, place, print_json
from fastpipe.tools.cli.pack_report import (
    grown_table,
    pack_progress,
    print_assumed,
    print_rejected,
)

# How the command of a pack begins in the history of a dataset.
_PACK = "fastpipe pack SRC DST"
By = StrEnum("By", "PATH CONTENT")
Changed = StrEnum("Changed", "ERROR REPLACE SKIP")


def add(
    src: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="A source, as for `fastpipe pack`. Images that DST has are not packed again.",
        ),
    ],
    dst: options.GrowingData,
    by: Annotated[
        By,
        typer.Option(
            help="A file counts as known if its path in SRC is that of a sample; with content also if "
            "its image is, so that renamed copies are left out.",
            rich_help_panel=options.SOURCE,
        ),
    ] = By.PATH,
    changed: Annotated[
        Changed,
        typer.Option(
            help="If a known file has changed since it was packed: stop with an error, replace its "
            "sample, or skip it.",
            rich_help_panel=options.SOURCE,
        ),
    ] = Changed.ERROR,
    format: options.SourceFormat = Format.AUTO,
    image_column: options.ImageColumn = None,
    image_root: options.ImageRoot = None,
    split: options.Split = None,
    split_list: options.SplitList = None,
    unlisted: options.UnlistedImages = None,
    bad_boxes: options.BadBoxesOf = None,
    encoding: options.Encoding = None,
    label_column: options.LabelColumn = None,
    label_pattern: options.LabelPattern = None,
    classes_from: options.ClassesFrom = None,
    first_label: options.FirstLabel = None,
    first_pixel: options.FirstPixel = None,
    fields: options.Fields = None,
    separator: options.Separator = None,
    box_format: options.FormatOfBoxes = None,
    run_order: options.OrderOfRuns = None,
    coordinates: options.CoordinatesOf = None,
    workers: options.Workers = None,
    on_error: options.IfFileFails = options.OnError.REPORT,
    spool: options.Spool = None,
    executor: options.On = options.Executor.THREADS,
    address: options.Address = None,
    as_json: options.AsJson = False,
) -> None:
    """Add the images of SRC that a packed dataset does not have.

    They come into new shards, with the options of the dataset; until the end loaders see the old
    version. If the command is interrupted, run it again: it continues where it stopped.
    """
    with exit_codes():
        # The log has the assumptions, which are printed at the end.
        logging.getLogger("fastpipe.pack").setLevel(logging.ERROR)
        with pack_progress(err) as on_progress:
            grown = run_add(
                src,
                dst,
                by=by,
                changed=changed,
                format=format,
                image_column=image_column,
                image_root=image_root,
                split=split,
                split_list=split_list,
                unlisted=unlisted,
                bad_boxes=bad_boxes,
                encoding=encoding,
                label_column=label_column,
                label_pattern=label_pattern,
                classes_from=classes_from,
                first_label=first_label,
                first_pixel=first_pixel,
                fields=fields or None,
                separator=separator,
                box_format=box_format,
                run_order=run_order,
                coordinates=coordinates,
                workers=workers,
                on_error=on_error,
                spool=spool,
                executor=executor,
                address=address,
                on_progress=on_progress,
            )
        _print_change(grown, dst, "added", as_json=as_json)


def remove(
    dst: options.GrowingData,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='A file with a source path on each line, such as cat/10.jpg, as data["key"] has them.',
        ),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            metavar="NAME",
            help="The samples of this class; may be repeated.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMPARISON",
            help="Samples that meet a condition, such as 'score < 0.2': a column of numbers, label, "
            "width, height, channels, bits or class; an operator; and a value. If it is repeated, "
            "samples must meet all conditions.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Remove samples from a packed dataset.

    At least one of --keys, --class and --where is required. With several, a sample is removed if
    it matches all. It is gone from the next version; its bytes stay in the shards until
    `fastpipe pack DST NEW`.
    """
    with exit_codes():
        key_lines = None if keys is None else _read_lines(keys)
        grown = run_remove(
            dst, keys=key_lines, classes=classes or None, where=where or None
        )
        if key_lines == [] and not as_json:
            err.print(f"--keys {keys}: the file names no key, so nothing is removed")
        _print_change(grown, dst, "removed", as_json=as_json)


def log(data: options.PackedData, as_json: options.AsJson = False) -> None:
    """List the versions of a dataset, the newest last.

    For each version: when it was made, its samples, and the command. `fastpipe.open(DATA,
    version=N)` opens one, for a loader.
    """
    with exit_codes():
        entries = versions(place(data))
        has_source = any(entry["command"].startswith(_PACK) for entry in entries)
        for entry in entries:
            # The recorded command of a pack has no paths.
            entry["command"] = _with_destination(entry["command"], data)
        if as_json:
            print_json(entries)
            return
        table = Table(box=None, pad_edge=False)
        table.add_column("version", justify="right", no_wrap=True)
        table.add_column("when", no_wrap=True)
        for header in ("samples", "added", "removed"):
            table.add_column(header, justify="right", no_wrap=True)
        table.add_column("command", overflow="fold")
        for entry in entries:
            when = datetime.fromtimestamp(entry["time_ns"] / 1e9)
            table.add_row(
                str(entry["version"]),
                when.strftime("%Y-%m-%d %H:%M"),
                f"{entry['samples']:,}",
                f"{entry['added']:,}",
                f"{entry['removed']:,}",
                readable(entry["command"]),
            )
        out.print(table)
        if has_source:
            out.print(
                "SRC: the source of the first pack; a dataset does not record where it was"
            )


def _with_destination(command: str, data: str) -> str:
    """A recorded command, with the path of the dataset as the user writes it.

    A pack records no paths, so that its bytes do not depend on them.
    """
    if not command.startswith(_PACK):
        return command
    return f"fastpipe pack SRC {shlex.quote(data)}{command.removeprefix(_PACK)}"


def _read_lines(file: Path) -> list[str]:
    """The lines of a file that are not empty."""
    check_local("keys", file, "file")
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        hint = did_you_mean_path(file)
        if not hint:
            hint = "; expected a text file with a source path on each line, such as cat/10.jpg"
        raise ConfigError(f"--keys: {file} does not exist{hint}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"--keys {file}: expected a text file in UTF-8 with a source path on each line ({error})"
        ) from None
    # str.splitlines would also split at characters that a key may have, such as U+2028.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return [line for line in lines if line]


def _print_change(grown: Grown, dst: str, action: str, *, as_json: bool) -> None:
    """Prints what an add ("added") or a removal ("removed") has changed."""
    rejected = [{"path": path, "reason": reason} for path, reason in grown.rejected]
    if as_json:
        print_json(
            {
                "version": grown.info["version"],
                "samples": grown.info["samples"],
                "added": grown.added,
                "removed": grown.removed,
                "known": grown.known,
                "copies": grown.copies,
                "skipped": grown.skipped,
                "seconds": grown.seconds,
                "uploaded_bytes": grown.uploaded_bytes,
                "rejected": rejected,
                "assumed": [assumption._asdict() for assumption in grown.assumed],
            }
        )
        return
    out.print(grown_table(grown, dst, action=action))
    if rejected:
        print_rejected(rejected)
    print_assumed(grown.assumed)
