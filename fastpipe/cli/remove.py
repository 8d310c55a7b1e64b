"""`fastpipe remove`: keys, classes or comparisons -> the next version of a dataset, without these samples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastpipe.cli.add import grown_json, grown_words
from fastpipe.cli.console import AsJson, exit_codes, out, print_json
from fastpipe.packing.api import remove as run_remove


def remove(
    dst: Annotated[
        str,
        typer.Argument(metavar="DST", help="A folder that `fastpipe pack` wrote, or its URL (s3://, gs://, az://)."),
    ],
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help='A file with a key on each line: paths of sources, as batch["key"] has them.'
        ),
    ] = None,
    classes: Annotated[
        list[str] | None, typer.Option("--class", metavar="NAME", help="Samples of a class; may be repeated.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMPARISON",
            help="Samples for which it holds, such as 'score < 0.2': a column of numbers, label, width, height, "
            "channels, bits or class, an operator, and a value. May be repeated: then all hold.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove samples from a packed dataset.

    Index and columns of its next version do not have them; shards stay. `fastpipe pack DST NEW` gives the space back.
    """
    with exit_codes():
        lines = None if keys is None else [line for line in keys.read_text(encoding="utf-8").splitlines() if line]
        grown = run_remove(dst, keys=lines, classes=classes, where=where)
        if as_json:
            print_json(grown_json(grown))
        else:
            out.print(grown_words(grown, dst))
