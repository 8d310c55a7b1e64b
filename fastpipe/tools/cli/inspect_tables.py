"""Figures about a dataset -> the tables that `fastpipe inspect` prints."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fastpipe.dataset.format.array_file import describe_shape
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.errors import format_count, readable
from fastpipe.tools.cli.tables import new_table
from fastpipe.tools.show.inspection import (
    BoxCounts,
    Histogram,
    Inspection,
    ShuffleReport,
)

if TYPE_CHECKING:
    from fastpipe.tools.show.duplicates import Duplicates

_BAR_WIDTH = 30
_MAX_CLASSES = 20
_MAX_GROUPS = 20
_SHUFFLE_COLUMNS = (
    "class mix: 1 as in a random order; above 1: batches hold too few classes; 0: all hold the same\n"
    "neighbours kept: samples whose next one in the shard is in the same batch\n"
    "displacement: mean distance between the places of a sample in the shards and in the epoch, as a "
    "part of the dataset; 0.333 in a random order"
)


def inspection_tables(inspection: Inspection, *, ascii_only: bool) -> RenderableType:
    """The counts, fields, classes and histograms of a dataset.

    Args:
        inspection: the figures.
        ascii_only: for terminals that have no block characters.
    """
    parts = [_head(inspection), Text()]
    if inspection.class_counts:
        title = format_count(len(inspection.class_counts), "class")
        parts.append(_class_table(title, "samples", inspection.class_counts))
    if inspection.fields:
        parts.append(_field_table(inspection))
    for name, boxes in inspection.boxes.items():
        if boxes.categories:
            categories = format_count(len(boxes.categories), "category")
            parts.append(
                _class_table(f"{name}: {categories}", "boxes", boxes.categories)
            )
    bar = "#" if ascii_only else "█"
    histograms = [
        ("size in kB", inspection.bytes, 1e-3),
        ("width in pixels", inspection.width, 1),
        ("height in pixels", inspection.height, 1),
        ("megapixels", inspection.megapixels, 1),
    ]
    for title, spread, unit in histograms:
        if spread is not None:
            parts.append(_histogram(title, spread, unit, bar))
    return Group(*parts)


def _head(inspection: Inspection) -> RenderableType:
    is_packed = inspection.packed
    table = Table.grid(padding=(0, 2))
    table.add_row(
        "dataset", readable(inspection.path) + ("" if is_packed else " (not packed)")
    )
    containers = format_count(inspection.shards, "shard" if is_packed else "file")
    table.add_row(
        "samples",
        f"{inspection.samples:,} in {containers}, {inspection.size_bytes:,} bytes",
    )
    if inspection.images < inspection.samples:
        text = "none: the samples have fields only"
        if inspection.images:
            text = f"{inspection.images:,}; the other samples have fields only"
        table.add_row("images", text)
    stored_as = "JPEG" if inspection.storage == "jpeg" else inspection.storage
    num_pngs = sum(inspection.counts.get("png", {}).values())
    if num_pngs:
        verb = "was" if num_pngs == 1 else "were"
        stored_as += f"; {num_pngs:,} {verb} packed as PNG"
    num_tiled = inspection.counts.get("tiled", 0)
    if num_tiled:
        stored_as += f"; {num_tiled:,} in tiles"
    table.add_row("stored as", stored_as)
    forms = [
        (PixelForm(form["channels"], form["bits"]), form["samples"])
        for form in inspection.forms
        if form["channels"]
    ]
    if any(form != PixelForm() for form, _ in forms):
        texts = [f"{form}: {num_samples:,}" for form, num_samples in forms]
        table.add_row("channels x bits", ", ".join(texts))
    table.add_row("fingerprint", inspection.fingerprint)
    step = "packing" if is_packed else "the scan"
    table.add_row("rejected", f"{inspection.counts['rejected']:,} at {step}")
    if not is_packed:
        num_converted = inspection.counts["converted"]
        text = "none"
        if num_converted:
            text = f"{num_converted:,} in each epoch: neither baseline JPEGs nor PNGs"
        table.add_row("converted", text)
    if inspection.unlabelled:
        table.add_row("without label", f"{inspection.unlabelled:,}")
    return table


def _class_table(
    title: str, counted: str, class_counts: dict[str, int]
) -> RenderableType:
    """How many samples, or boxes, each class has."""
    table = new_table("class", counted)
    classes = list(class_counts.items())
    for name, number in classes[:_MAX_CLASSES]:
        table.add_row(readable(name), f"{number:,}")
    rest = [number for _, number in classes[_MAX_CLASSES:]]
    if rest:
        name = f"... {len(rest):,} more"
        least = min(rest)
        most = max(rest)
        counts = f"{least:,} each"
        if most > least:
            counts = f"{least:,} to {most:,} each"
        table.add_row(name, counts)
    # A title of the table itself would break at the table's width.
    return Group(Text(title), table)


def _field_table(inspection: Inspection) -> RenderableType:
    fields = inspection.fields
    table = new_table("field", "kind")
    contents = {}
    for name, boxes in inspection.boxes.items():
        contents[name] = describe_boxes(boxes, inspection.samples)
    for name, form in inspection.arrays.items():
        contents[name] = f"{form.dtype} {describe_shape(form.shape)}"
    if contents:
        table.add_column("content")
    for column in table.columns[1:]:
        column.justify = "left"  # words, not figures
    for name, kind in fields.items():
        if contents:
            table.add_row(name, kind, contents.get(name, ""))
        else:
            table.add_row(name, kind)
    return Group(Text(format_count(len(fields), "field")), table)


def describe_boxes(boxes: BoxCounts, num_samples: int) -> str:
    """The numbers of boxes and categories."""
    text = format_count(boxes.boxes, "box")
    if boxes.categories:
        text += f" of {format_count(len(boxes.categories), 'category')}"
    text += f" in {format_count(boxes.samples_with_boxes, 'image')}"
    if boxes.samples < num_samples:
        text += f" of the {boxes.samples:,} that were counted"
    return text


def shuffle_table(report: ShuffleReport) -> RenderableType:
    """The order of an epoch, beside a uniform permutation and the order of the shards."""
    samples = format_count(report.samples, "sample")
    title = f"shuffle: {samples} in batches of {report.batch_size:,}"
    table = new_table(
        "order", "class mix", "neighbours kept", "displacement", title=title
    )
    orders = (
        ("an epoch", report.epoch),
        ("uniform permutation", report.uniform),
        ("as in the shards", report.shards),
    )
    for name, score in orders:
        table.add_row(
            name,
            f"{score.class_mix:.3f}",
            f"{score.neighbours:.3%}",
            f"{score.displacement:.3f}",
        )
    return Group(table, Text(_SHUFFLE_COLUMNS))


def duplicates_table(duplicates: Duplicates) -> RenderableType:
    """The first images that occur more than once, with the paths of their sources."""
    where = "more than once"
    if duplicates.other:
        where = f"in both {duplicates.data.path} and {duplicates.other.path}"
    if not duplicates.groups:
        return Text(readable(f"no image occurs {where}"))

    images = format_count(len(duplicates.groups), "image")
    title = f"{images} {where}: {format_count(duplicates.samples, 'sample')}"
    if duplicates.contradictions:
        title += f"; {format_count(duplicates.contradictions, 'image')} with different classes"
    # Only the paths of these are looked up.
    shown = replace(
        duplicates,
        groups=duplicates.groups[:_MAX_GROUPS],
        others=duplicates.others[:_MAX_GROUPS],
    )
    table = new_table("samples", title=readable(title))
    if duplicates.other:
        table.add_column("the same in the other")
    for keys, other_keys in zip(shown.group_keys(), shown.other_keys(), strict=True):
        row = ["\n".join(readable(key) for key in keys)]
        if duplicates.other:
            row.append("\n".join(readable(key) for key in other_keys))
        table.add_row(*row, end_section=True)
    num_more = len(duplicates.groups) - _MAX_GROUPS
    if num_more > 0:
        table.add_row(f"... {num_more:,} more; --json lists all")
    return table


def _histogram(title: str, spread: Histogram, unit: float, bar: str) -> RenderableType:
    def describe(value: float) -> str:
        scaled = value * unit
        if scaled >= 10 or scaled == round(scaled):
            return f"{scaled:,.0f}"
        return f"{scaled:.2f}"

    low, tenth, half, ninetieth, high = spread.percentiles.values()
    title += (
        f": mean {describe(spread.mean)}, median {describe(half)}, "
        f"80 % from {describe(tenth)} to {describe(ninetieth)}, "
        f"all from {describe(low)} to {describe(high)}"
    )
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    largest = max(spread.counts)
    bins = zip(spread.edges, spread.edges[1:], spread.counts, strict=False)
    for start, end, num_samples in bins:
        # Rounded up, so that a bin with one sample has a bar.
        length = -(-num_samples * _BAR_WIDTH // largest)
        table.add_row(
            f"{describe(start)} to {describe(end)}", f"{num_samples:,}", bar * length
        )
    return Group(Text(title), table, Text())
