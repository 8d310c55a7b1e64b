"""`fastpipe inspect`: a dataset -> figures about it, and a sheet of its images."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fastpipe.cli.console import AsJson, Dataset, check_new, err, exit_codes, out, place, print_json
from fastpipe.cli.inspect_tables import duplicates_table, inspection_tables, shuffle_table
from fastpipe.cli.tables import count, show
from fastpipe.errors import ConfigError
from fastpipe.errors.checks import whole
from fastpipe.show.inspection import inspect as inspect_index
from fastpipe.show.inspection import write_contact_sheet
from fastpipe.show.shuffle_score import shuffle_report
from fastpipe.sources.scan.opening import open_data


def inspect(
    data: Dataset,
    sheet: Annotated[
        Path | None,
        typer.Option(
            metavar="PNG", help="File for the contact sheet.", show_default="DATA-sheet.png in the current folder"
        ),
    ] = None,
    no_sheet: Annotated[bool, typer.Option("--no-sheet", help="Draw no contact sheet.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --sheet if it exists.")] = False,
    seed: Annotated[int, typer.Option(help="Seed for the images of the sheet, and for the order with --shuffle.")] = 0,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Compare the order of an epoch with a uniform permutation.")
    ] = False,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Samples in a batch of all ranks together, for --shuffle.", show_default="256"),
    ] = None,
    duplicates: Annotated[
        bool, typer.Option("--duplicates", help="List pictures that are there several times, by their hashes.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER", help="With --duplicates: list the pictures that OTHER has, too.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the content of a dataset, and draw a contact sheet.

    Shows counts, classes, histograms of sizes and dimensions, and draws a PNG of some images with their labels. With
    --shuffle it also measures how well an epoch mixes the samples: the class mix of a batch (1 for a uniform
    permutation, more if a batch has too few classes), the share of samples that stay in one batch with their neighbour
    in the shard, and the mean distance that samples move (uniform: 1/3 of the dataset). With --duplicates it lists
    pictures that are there several times, or with --against those that another dataset has, too.
    """
    with exit_codes():
        if sheet is not None and no_sheet:
            raise ConfigError("--sheet and --no-sheet exclude each other; pass only one of them")
        if sheet is not None:
            check_new(sheet, overwrite=overwrite)
        if batch_size is not None and not shuffle:
            raise ConfigError("--batch-size needs --shuffle: it is the batch of the order that is compared")
        if against is not None and not duplicates:
            raise ConfigError("--against needs --duplicates: it is the dataset that may have the same pictures")
        batch_size = 256 if batch_size is None else whole("--batch-size", batch_size, least=1, most=2**31)
        index = open_data(place(data))
        found = inspect_index(index)
        shuffled = shuffle_report(index, batch_size=batch_size, seed=seed) if shuffle else None
        twice = None
        if duplicates:
            from fastpipe.show.duplicates import duplicates as find_duplicates  # torch

            twice = find_duplicates(place(data), None if against is None else place(against))
        name = index.folder.name if isinstance(index.path, Path) else index.path.rsplit("/", 1)[-1]
        picture = None if no_sheet else sheet or Path(f"{name}-sheet.png")
        renewed = picture is not None and picture.exists()
        shown = replaced = 0
        if picture is not None:
            known = None if index.packed else index.fingerprint  # it need not be listed again
            shown, replaced = write_contact_sheet(place(data), picture, seed=seed, fingerprint=known)
        if as_json:
            drawn = {"sheet": None if picture is None else str(picture), "undecodable": replaced}
            more = {"shuffle": asdict(shuffled)} if shuffled else {}
            if twice is not None:
                more["duplicates"] = {"keys": twice.group_keys(), "others": twice.other_keys()}
            print_json({**found.as_dict(), **drawn, **more})
            return
        out.print(inspection_tables(found, ascii_only=out.options.ascii_only))
        if shuffled is not None:
            show(out, shuffle_table(shuffled))
        if twice is not None:
            show(out, duplicates_table(twice))
        if picture is not None:
            out.print(f"{count(shown, 'image')} drawn to {picture}{', which replaces an earlier file' * renewed}")
        if replaced:
            advice = "The dataset is damaged: fastpipe verify finds the damage, and --repair repairs it"
            if not index.packed:
                advice = "fastpipe pack reads every file to its end, and lists the damaged ones"
            err.print(
                f"fastpipe: {count(replaced, 'image')} could not be decoded; the sheet shows other images instead. "
                f"{advice}"
            )
