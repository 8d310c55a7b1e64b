"""`fastpipe add`: the samples of a source that a packed dataset does not have -> its next version."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fastpipe.cli.console import Address, AsJson, On, err, exit_codes, out, print_json
from fastpipe.cli.pack import OnError
from fastpipe.cli.pack_progress import pack_progress
from fastpipe.cli.tables import count
from fastpipe.packing.api import add as run_add
from fastpipe.packing.growth.grow import Grown
from fastpipe.sources.options import Format

_MOST = 5  # rejected files in the summary


class By(StrEnum):
    """How a sample is known."""

    PATH = "path"
    CONTENT = "content"


class Changed(StrEnum):
    """What becomes of a source that has changed since it was packed."""

    ERROR = "error"
    REPLACE = "replace"
    SKIP = "skip"


def add(
    src: Annotated[str, typer.Argument(metavar="SRC", help="As of `fastpipe pack`. What DST has is not packed again.")],
    dst: Annotated[
        str,
        typer.Argument(metavar="DST", help="A folder that `fastpipe pack` wrote, or its URL (s3://, gs://, az://)."),
    ],
    by: Annotated[
        By,
        typer.Option(
            help="How samples are known: by the path of their file in SRC; with content also by their picture, so that "
            "renamed copies are left out."
        ),
    ] = By.PATH,
    changed: Annotated[
        Changed, typer.Option(help="A file that has changed since it was packed: stop, replace its sample, or skip it.")
    ] = Changed.ERROR,
    format: Annotated[Format, typer.Option(help="As of `fastpipe pack`.")] = Format.AUTO,
    image_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="As of `fastpipe pack`.", show_default="the only one")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="As of `fastpipe pack`.", show_default='"label"')
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COLUMN", help="As of `fastpipe pack`; may be repeated.", show_default="all columns"),
    ] = None,
    image_root: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="As of `fastpipe pack`.", show_default="folder of the file")
    ] = None,
    split: Annotated[str | None, typer.Option(metavar="NAME", help="As of `fastpipe pack`.")] = None,
    workers: Annotated[int | None, typer.Option(help="Number of threads.", show_default="CPUs granted")] = None,
    on_error: Annotated[
        OnError, typer.Option(help="If a file cannot be packed: list it and continue, or stop.")
    ] = OnError.REPORT,
    spool: Annotated[str | None, typer.Option(metavar="DIR", help="As of `fastpipe pack`.")] = None,
    on: Annotated[On, typer.Option(help="As of `fastpipe pack`.")] = On.THREADS,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Add the images of SRC that a packed dataset does not have.

    They come into new shards, with the options of the dataset; until the end loaders see the old version. If the
    command is interrupted, run it again: it continues where it stopped.
    """
    with exit_codes():
        with pack_progress(err) as progress:
            grown = run_add(
                src,
                dst,
                by=by.value,
                changed=changed.value,
                format=format.value,
                image_column=image_column,
                label_column=label_column,
                fields=field or None,
                image_root=image_root,
                split=split,
                workers=workers,
                on_error=on_error.value,
                spool=spool,
                executor=on.value,
                address=address,
                on_progress=progress,
            )
        if as_json:
            print_json(grown_json(grown))
            return
        out.print(grown_words(grown, dst))
        for path, reason in grown.rejected[:_MOST]:
            out.print(f"    {path}: {reason}")


def grown_json(grown: Grown) -> dict[str, object]:
    """What became of a dataset, for programs."""
    own = {"version": grown.info["version"], "samples": grown.info["samples"]}
    said = {name: value for name, value in vars(grown).items() if name not in ("info", "rejected")}
    return {**own, **said, "rejected": [{"path": path, "reason": reason} for path, reason in grown.rejected]}


def grown_words(grown: Grown, dst: str) -> str:
    """What became of a dataset, in a sentence."""
    parts = [f"{count(number, 'sample')} {what}" for what in ("added", "removed") if (number := getattr(grown, what))]
    left = {
        "are there already": grown.known,
        "are copies of others": grown.copies,
        "have changed and were skipped": grown.skipped,
        "cannot be packed": len(grown.rejected),
    }
    parts += [f"{count(number, 'file')} {what}" for what, number in left.items() if number]
    done = grown.added or grown.removed
    now = f"version {grown.info['version']} of {dst} has {count(grown.info['samples'], 'sample')}"
    return f"{'; '.join(parts) or 'nothing to do'}. {'Now' if done else 'Still'} {now}"
