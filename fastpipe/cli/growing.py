"""`fastpipe add`, `remove` and `log`: a packed dataset -> its next version, or a table of its versions."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from fastpipe.cli.console import AsJson, Packed, err, exit_codes, out, place, print_json
from fastpipe.cli.options import declared, takes
from fastpipe.cli.pack import PYTHON_ONLY
from fastpipe.cli.tables import assumed_json, count, pack_progress, show_assumed
from fastpipe.errors import ConfigError, readable
from fastpipe.packing.api import ADD_OPTIONS
from fastpipe.packing.api import add as run_add
from fastpipe.packing.api import pack as run_pack
from fastpipe.packing.api import remove as run_remove
from fastpipe.packing.growth.grow import Grown
from fastpipe.packing.growth.version import versions

_MOST = 5  # rejected files in the summary
_OF_PACK = (*(name for name in ADD_OPTIONS if name not in PYTHON_ONLY), "executor", "address")


@takes([*declared(run_add, ("src", "dst", "by", "changed")), *declared(run_pack, _OF_PACK)])
def add(as_json: AsJson = False, **options: Any) -> None:
    """Add the images of SRC that a packed dataset does not have.

    They come into new shards, with the options of the dataset; until the end loaders see the old version. If the
    command is interrupted, run it again: it continues where it stopped.
    """
    with exit_codes():
        logging.getLogger("fastpipe.pack").setLevel(
            logging.ERROR
        )  # what is assumed is shown at the end
        with pack_progress(err) as progress:
            grown = run_add(**options, on_progress=progress)
        _tell(grown, options["dst"], as_json=as_json)


@takes(declared(run_remove, ["dst"]))
def remove(
    keys: Path | None = None,
    classes: list[str] | None = None,
    where: list[str] | None = None,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Remove samples from a packed dataset.

    Index and columns of its next version do not have them; shards stay. `fastpipe pack DST NEW` gives the space back.

    Args:
        keys (FILE): a file with a key on each line: paths of sources, as batch["key"] has them.
        classes (NAME): samples of a class; may be repeated.
        where (COMPARISON): samples for which it holds, such as 'score < 0.2': a column of numbers, label, width,
            height, channels, bits or class, an operator, and a value. May be repeated: then all hold.
    """
    with exit_codes():
        grown = run_remove(
            **options, keys=None if keys is None else _lines(keys), classes=classes, where=where
        )
        _tell(grown, options["dst"], as_json=as_json)


def log(data: Packed, as_json: AsJson = False) -> None:
    """List the versions of a dataset, the newest last: when each was made, and by which command.

    `fastpipe.open(DATA, version=N)` opens one, and a loader takes what it gives.
    """
    with exit_codes():
        found = versions(place(data))
        if as_json:
            print_json(found)
            return
        table = Table(
            "version", "when", "samples", "added", "removed", "command", box=None, pad_edge=False
        )
        for column in table.columns[:-1]:
            column.no_wrap = True
        for column in (table.columns[0], *table.columns[2:-1]):
            column.justify = "right"
        table.columns[-1].overflow = "fold"
        for entry in found:
            when = datetime.fromtimestamp(entry["time_ns"] / 1e9).strftime("%Y-%m-%d %H:%M")
            numbers = (f"{entry[name]:,}" for name in ("samples", "added", "removed"))
            table.add_row(str(entry["version"]), when, *numbers, readable(entry["command"]))
        out.print(table)


def _lines(file: Path) -> list[str]:
    """The lines that are not empty. A key may have any character but a line feed in it, such as U+2028."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise ConfigError(
            f"--keys {file}: expected a text file in UTF-8 with a key on each line ({problem})"
        ) from None
    return [bare for line in text.split("\n") if (bare := line.removesuffix("\r"))]


def _tell(grown: Grown, dst: str, *, as_json: bool) -> None:
    if as_json:
        own = {"version": grown.info["version"], "samples": grown.info["samples"]}
        said = {
            name: value
            for name, value in vars(grown).items()
            if name not in ("info", "rejected", "assumed")
        }
        rejected = [{"path": path, "reason": reason} for path, reason in grown.rejected]
        print_json({**own, **said, "rejected": rejected, "assumed": assumed_json(grown.assumed)})
        return
    parts = [
        f"{count(number, 'sample')} {what}"
        for what in ("added", "removed")
        if (number := getattr(grown, what))
    ]
    left = {
        "are there already": grown.known,
        "are copies of others": grown.copies,
        "have changed and were skipped": grown.skipped,
        "cannot be packed": len(grown.rejected),
    }
    parts += [f"{count(number, 'file')} {what}" for what, number in left.items() if number]
    done = grown.added or grown.removed
    now = f"version {grown.info['version']} of {dst} has {count(grown.info['samples'], 'sample')}"
    out.print(f"{'; '.join(parts) or 'nothing to do'}. {'Now' if done else 'Still'} {now}")
    for path, reason in grown.rejected[:_MOST]:
        out.print(f"    {path}: {reason}")
    show_assumed(out, grown.assumed)
