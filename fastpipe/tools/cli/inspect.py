"""`fastpipe inspect`: a dataset -> figures about it, and a sheet of its images."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastpipe.errors import ConfigError, format_count, whole
from fastpipe.sources.scan.opening import open_data
from fastpipe.tools.cli import options
from fastpipe.tools.cli.console import (
    check_new,
    exit_codes,
    out,
    place,
    print_json,
    print_problem,
)
from fastpipe.tools.cli.inspect_tables import (
    duplicates_table,
    inspection_tables,
    shuffle_table,
)
from fastpipe.tools.cli.tables import show
from fastpipe.tools.show.inspection import (
    ShuffleReport,
    shuffle_report,
    write_contact_sheet,
)
from fastpipe.tools.show.inspection import inspect as inspect_index

if TYPE_CHECKING:
    from fastpipe.tools.show.duplicates import Duplicates

_BATCH_SIZE = 256


def inspect(
    data: options.Data,
    sheet: Annotated[
        Path | None,
        typer.Option(
            metavar="PNG",
            help="The file of the contact sheet.",
            show_default="DATA-sheet.png in the current folder",
        ),
    ] = None,
    no_sheet: Annotated[
        bool, typer.Option("--no-sheet", help="Draw no contact sheet.")
    ] = False,
    overwrite: options.Overwrite = False,
    seed: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="The seed of the images on the sheet, and of the order with --shuffle.",
        ),
    ] = 0,
    compare_shuffle: Annotated[
        bool,
        typer.Option(
            "--shuffle",
            help="Compare the order of an epoch with a uniform permutation: the class mix of a "
            "batch (1 if uniform, more if a batch has too few classes), the share of samples that "
            "stay in one batch with their neighbour in the shard, and the mean distance that "
            "samples move (uniform: 1/3 of the dataset).",
        ),
    ] = False,
    batch_size: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="With --shuffle: samples in a batch of all ranks together.",
            show_default=str(_BATCH_SIZE),
        ),
    ] = None,
    duplicates: Annotated[
        bool,
        typer.Option(
            "--duplicates",
            help="List images that occur more than once, by their hashes.",
        ),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help="With --duplicates: list the images that are also in OTHER.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what is in a dataset, and draw a sheet of its images.

    Shows counts, classes, and histograms of sizes and dimensions. The contact sheet is a PNG of
    some images with their labels.
    """
    with exit_codes():
        if sheet is not None and no_sheet:
            raise ConfigError(
                "--sheet and --no-sheet exclude each other; pass only one of them"
            )
        if batch_size is not None and not compare_shuffle:
            raise ConfigError(
                "--batch-size needs --shuffle: it is the batch of the order that is compared"
            )
        if against is not None and not duplicates:
            raise ConfigError(
                "--against needs --duplicates: it is the dataset that may have the same images"
            )
        if batch_size is None:
            batch_size = _BATCH_SIZE
        whole("--batch-size", batch_size, least=1, most=2**31)

        index = open_data(place(data))
        picture: Path | None = None
        if not no_sheet:
            is_local = isinstance(index.path, Path)
            name = str(index.path).rsplit("/", 1)[-1]
            if is_local:
                name = index.folder.name
            picture = sheet or Path(f"{name}-sheet.png")
            check_new(picture, overwrite=overwrite)
        inspection = inspect_index(index)
        if not inspection.images:
            picture = None  # there is nothing to draw
        shuffle: ShuffleReport | None = None
        if compare_shuffle:
            shuffle = shuffle_report(index, batch_size=batch_size, seed=seed)
        copies: Duplicates | None = None
        if duplicates:
            # This imports torch, which takes seconds.
            from fastpipe.tools.show.duplicates import duplicates as find_duplicates

            copies = find_duplicates(
                place(data), None if against is None else place(against)
            )

        num_drawn = 0
        num_undecodable = 0
        replaces_file = False
        if picture is not None:
            replaces_file = picture.exists()
            # With the fingerprint of the scan, the images need not be listed again.
            fingerprint = None if index.packed else index.fingerprint
            num_drawn, num_undecodable = write_contact_sheet(
                place(data), picture, seed=seed, fingerprint=fingerprint
            )

        if as_json:
            content: dict[str, Any] = {
                **asdict(inspection),
                "sheet": None if picture is None else str(picture),
                "undecodable": num_undecodable,
            }
            if shuffle is not None:
                content["shuffle"] = asdict(shuffle)
            if copies is not None:
                content["duplicates"] = {
                    "keys": copies.group_keys(),
                    "others": copies.other_keys(),
                }
            print_json(content)
            return

        out.print(inspection_tables(inspection, ascii_only=out.options.ascii_only))
        if shuffle is not None:
            show(out, shuffle_table(shuffle))
        if copies is not None:
            show(out, duplicates_table(copies))
        if not inspection.images and not no_sheet:
            out.print(
                "no contact sheet was drawn: no sample has an image of its own. `fastpipe preview` "
                "draws lists of images"
            )
        if picture is not None:
            line = f"{format_count(num_drawn, 'image')} drawn to {picture}"
            out.print(
                f"{line}, which replaces an earlier file" if replaces_file else line
            )
        if num_undecodable:
            if index.packed:
                advice = (
                    "The dataset is damaged: fastpipe verify finds the damage, and --repair "
                    "repairs it"
                )
            else:
                advice = "fastpipe pack reads every file to its end, and lists the damaged ones"
            print_problem(
                f"{format_count(num_undecodable, 'image')} could not be decoded; the sheet "
                f"shows other images instead. {advice}"
            )
