"""`fastpipe inspect`: a dataset -> figures about it, and a sheet of its pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastpipe import tables
from fastpipe.cli.console import AsJson, Dataset, err, exit_codes, out, print_json
from fastpipe.errors import ConfigError
from fastpipe.index import Index
from fastpipe.inspection import inspect as inspect_index
from fastpipe.inspection import write_contact_sheet


def inspect(
    data: Dataset,
    sheet: Annotated[
        Path | None,
        typer.Option(metavar="PNG", help="Where the contact sheet goes.", show_default="DATA-sheet.png, here"),
    ] = None,
    no_sheet: Annotated[bool, typer.Option("--no-sheet", help="Draw no contact sheet.")] = False,
    seed: Annotated[int, typer.Option(help="Picks the pictures of the sheet.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show what a dataset holds, and draw a contact sheet.

    Counts, classes, histograms of sizes and dimensions, and a PNG of some pictures with their labels.
    """
    with exit_codes():
        if sheet is not None and no_sheet:
            raise ConfigError("--sheet and --no-sheet exclude each other; pass one")
        index = Index(data)
        found = inspect_index(index)
        picture = None if no_sheet else sheet or Path(f"{data.resolve().name}-sheet.png")
        shown, replaced = (0, 0) if picture is None else write_contact_sheet(data, picture, seed=seed)
        if as_json:
            print_json({**found.as_dict(), "sheet": None if picture is None else str(picture), "undecodable": replaced})
            return
        out.print(tables.inspection(found, ascii_only=out.options.ascii_only))
        if picture is not None:
            out.print(f"{tables.count(shown, 'picture')} drawn to {picture}")
        if replaced:
            err.print(
                f"fastpipe: {tables.count(replaced, 'picture')} could not be decoded; others are shown instead. "
                "The dataset is damaged: pack its source again with --overwrite"
            )
