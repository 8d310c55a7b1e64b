"""`fastpipe inspect`: a dataset -> figures about it, and a sheet of its images."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fastpipe.cli.console import AsJson, Dataset, check_new, err, exit_codes, out, place, print_json
from fastpipe.cli.options import takes
from fastpipe.cli.tables import count, new_table, show
from fastpipe.errors import ConfigError, readable, whole
from fastpipe.format.pixel_form import PixelForm
from fastpipe.show.inspection import (
    Histogram,
    Inspection,
    ShuffleReport,
    shuffle_report,
    write_contact_sheet,
)
from fastpipe.show.inspection import inspect as inspect_index
from fastpipe.sources.scan.opening import open_data

if TYPE_CHECKING:
    from fastpipe.show.duplicates import Duplicates

_BAR_WIDTH = 30
_MOST_CLASSES = 20
_MOST_GROUPS = 20


@takes()
def inspect(
    data: Dataset,
    sheet: Path | None = None,
    no_sheet: bool = False,
    overwrite: bool = False,
    seed: int = 0,
    compare_shuffle: bool = False,
    batch_size: int | None = None,
    duplicates: bool = False,
    against: str | None = None,
    as_json: AsJson = False,
) -> None:
    """Show the content of a dataset, and draw a contact sheet.

    Shows counts, classes, histograms of sizes and dimensions, and draws a PNG of some images with their labels. With
    --shuffle it also measures how well an epoch mixes the samples: the class mix of a batch (1 for a uniform
    permutation, more if a batch has too few classes), the share of samples that stay in one batch with their neighbour
    in the shard, and the mean distance that samples move (uniform: 1/3 of the dataset). With --duplicates it lists
    pictures that are there several times, or with --against those that another dataset has, too.

    Args:
        sheet (PNG): file for the contact sheet; None: DATA-sheet.png in the current folder.
        no_sheet: draw no contact sheet.
        overwrite: replace the file of --sheet if it exists.
        seed: seed for the images of the sheet, and for the order with --shuffle.
        compare_shuffle: compare the order of an epoch with a uniform permutation.
        batch_size: samples in a batch of all ranks together, for --shuffle; None: 256.
        duplicates: list pictures that are there several times, by their hashes.
        against (OTHER): with --duplicates: list the pictures that OTHER has, too.
    """
    with exit_codes():
        if sheet is not None and no_sheet:
            raise ConfigError("--sheet and --no-sheet exclude each other; pass only one of them")
        if sheet is not None:
            check_new(sheet, overwrite=overwrite)
        if batch_size is not None and not compare_shuffle:
            raise ConfigError(
                "--batch-size needs --shuffle: it is the batch of the order that is compared"
            )
        if against is not None and not duplicates:
            raise ConfigError(
                "--against needs --duplicates: it is the dataset that may have the same pictures"
            )
        batch_size = (
            256 if batch_size is None else whole("--batch-size", batch_size, least=1, most=2**31)
        )
        index = open_data(place(data))
        found = inspect_index(index)
        shuffled = (
            shuffle_report(index, batch_size=batch_size, seed=seed) if compare_shuffle else None
        )
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
            shown, replaced = write_contact_sheet(
                place(data), picture, seed=seed, fingerprint=known
            )
        if as_json:
            drawn = {"sheet": None if picture is None else str(picture), "undecodable": replaced}
            more = {"shuffle": asdict(shuffled)} if shuffled else {}
            if twice is not None:
                more["duplicates"] = {"keys": twice.group_keys(), "others": twice.other_keys()}
            print_json({**asdict(found), **drawn, **more})
            return
        out.print(inspection_tables(found, ascii_only=out.options.ascii_only))
        if shuffled is not None:
            show(out, shuffle_table(shuffled))
        if twice is not None:
            show(out, duplicates_table(twice))
        if picture is not None:
            out.print(
                f"{count(shown, 'image')} drawn to {picture}{', which replaces an earlier file' * renewed}"
            )
        if replaced:
            advice = (
                "The dataset is damaged: fastpipe verify finds the damage, and --repair repairs it"
            )
            if not index.packed:
                advice = "fastpipe pack reads every file to its end, and lists the damaged ones"
            err.print(
                f"fastpipe: {count(replaced, 'image')} could not be decoded; the sheet shows other images instead. "
                f"{advice}"
            )


def inspection_tables(found: Inspection, *, ascii_only: bool) -> RenderableType:
    """Counts, fields, classes and histograms of a dataset; ascii_only: for terminals that have no block characters."""
    head = Table.grid(padding=(0, 2))
    head.add_row("dataset", readable(found.path) + ("" if found.packed else " (not packed)"))
    what = "shard" if found.packed else "file"
    head.add_row(
        "samples", f"{found.samples:,} in {count(found.shards, what)}, {found.size_bytes:,} bytes"
    )
    pngs = sum(found.counts.get("png", {}).values())
    stored = {"jpeg": "JPEG"}.get(found.storage, found.storage)
    head.add_row("stored as", stored + (f"; {pngs:,} were packed as PNG" if pngs else ""))
    forms = [(PixelForm(each["channels"], each["bits"]), each["samples"]) for each in found.forms]
    if any(form != PixelForm() for form, _ in forms):
        head.add_row(
            "channels x bits", ", ".join(f"{form}: {samples:,}" for form, samples in forms)
        )
    head.add_row("fingerprint", found.fingerprint)
    head.add_row(
        "rejected", f"{found.counts['rejected']:,} at {'packing' if found.packed else 'the scan'}"
    )
    if not found.packed:
        head.add_row(
            "converted",
            f"{found.counts['converted']:,} in each epoch, because they are no baseline JPEGs or PNGs",
        )
    if found.unlabelled:
        head.add_row("without label", f"{found.unlabelled:,}")
    classes = new_table("class", "samples", title=count(len(found.class_counts), "class"))
    ordered = list(found.class_counts.items())
    for name, samples in ordered[:_MOST_CLASSES]:
        classes.add_row(readable(name), f"{samples:,}")
    if len(ordered) > _MOST_CLASSES:
        rest = ordered[_MOST_CLASSES:]
        low, high = min(samples for _, samples in rest), max(samples for _, samples in rest)
        classes.add_row(f"... {len(rest):,} more", f"{low:,} to {high:,} each")
    bar = "#" if ascii_only else "█"
    return Group(
        head,
        Text(),
        *([classes] if found.class_counts else []),
        *([_fields(found.fields)] if found.fields else []),
        _histogram("size in kB", found.bytes, 1e-3, bar),
        _histogram("width in pixels", found.width, 1, bar),
        _histogram("height in pixels", found.height, 1, bar),
        _histogram("megapixels", found.megapixels, 1, bar),
    )


def _fields(kinds: dict[str, str]) -> RenderableType:
    table = new_table("field", "kind", title=count(len(kinds), "field"))
    table.columns[1].justify = "left"  # a word, not a figure
    for name, kind in kinds.items():
        table.add_row(name, kind)
    return table


def shuffle_table(report: ShuffleReport) -> RenderableType:
    """How an epoch is shuffled, beside what it is compared with."""
    title = f"shuffle: {report.samples:,} samples in batches of {report.batch_size:,}"
    table = new_table("order", "class mix", "neighbours kept", "displacement", title=title)
    rows = (
        ("an epoch", report.epoch),
        ("uniform permutation", report.uniform),
        ("as in the shards", report.shards),
    )
    for name, score in rows:
        table.add_row(
            name, f"{score.class_mix:.3f}", f"{score.neighbours:.3%}", f"{score.displacement:.3f}"
        )
    return table


def duplicates_table(found: Duplicates) -> RenderableType:
    """The first pictures that are there several times, with the paths of their sources."""
    places = (
        f"in both {found.data.path} and {found.other.path}"
        if found.other
        else "there several times"
    )
    if not found.groups:
        return Text(readable(f"no picture is {places}"))
    title = f"{count(len(found.groups), 'picture')} {places}: {count(found.samples, 'sample')}"
    if found.contradictions:
        title += f"; {count(found.contradictions, 'picture')} with different classes"
    few = replace(found, groups=found.groups[:_MOST_GROUPS], others=found.others[:_MOST_GROUPS])
    table = new_table("samples", "the same in the other", title=readable(title))
    table.columns[1].justify = "left"
    for ours, theirs in zip(few.group_keys(), few.other_keys(), strict=True):
        table.add_row(
            *("\n".join(map(readable, each)) for each in (ours, theirs)), end_section=True
        )
    if not found.other:
        table.columns.pop()
    if len(found.groups) > _MOST_GROUPS:
        table.add_row(f"... {len(found.groups) - _MOST_GROUPS:,} more pictures; --json lists all")
    return table


def _histogram(title: str, spread: Histogram, unit: float, bar: str) -> RenderableType:
    def number(value: float) -> str:
        scaled = value * unit
        return f"{scaled:,.0f}" if scaled >= 10 or scaled == round(scaled) else f"{scaled:.2f}"

    low, tenth, half, ninetieth, high = spread.percentiles.values()
    title += (
        f": mean {number(spread.mean)}, median {number(half)}, 10 to 90 % {number(tenth)} to {number(ninetieth)}, "
        f"all {number(low)} to {number(high)}"
    )
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    most = max(spread.counts)
    for left, right, samples in zip(spread.edges, spread.edges[1:], spread.counts, strict=False):
        length = -(-samples * _BAR_WIDTH // most)
        table.add_row(f"{number(left)} to {number(right)}", f"{samples:,}", bar * length)
    return Group(table, Text())
