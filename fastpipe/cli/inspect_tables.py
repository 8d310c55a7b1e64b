"""Figures about a dataset -> tables: its size, classes and histograms, and how well an epoch is shuffled."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fastpipe.cli.tables import count, new_table
from fastpipe.errors import readable
from fastpipe.format.pixel_form import PixelForm
from fastpipe.show.inspection import Histogram, Inspection
from fastpipe.show.shuffle_score import ShuffleReport

if TYPE_CHECKING:
    from fastpipe.show.duplicates import Duplicates

_BAR_WIDTH = 30
_MOST_CLASSES = 20
_MOST_GROUPS = 20


def inspection_tables(found: Inspection, *, ascii_only: bool) -> RenderableType:
    """Counts, fields, classes and histograms of a dataset; ascii_only: for terminals that have no block characters."""
    head = Table.grid(padding=(0, 2))
    head.add_row("dataset", readable(found.path) + ("" if found.packed else " (not packed)"))
    what = "shard" if found.packed else "file"
    head.add_row("samples", f"{found.samples:,} in {count(found.shards, what)}, {found.size_bytes:,} bytes")
    pngs = sum(found.counts.get("png", {}).values())
    stored = {"jpeg": "JPEG"}.get(found.storage, found.storage)
    head.add_row("stored as", stored + (f"; {pngs:,} were packed as PNG" if pngs else ""))
    forms = [(PixelForm(each["channels"], each["bits"]), each["samples"]) for each in found.forms]
    if any(form != PixelForm() for form, _ in forms):
        head.add_row("channels x bits", ", ".join(f"{form}: {samples:,}" for form, samples in forms))
    head.add_row("fingerprint", found.fingerprint)
    head.add_row("rejected", f"{found.counts['rejected']:,} at {'packing' if found.packed else 'the scan'}")
    if not found.packed:
        head.add_row(
            "converted", f"{found.counts['converted']:,} in each epoch, because they are no baseline JPEGs or PNGs"
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
    rows = (("an epoch", report.epoch), ("uniform permutation", report.uniform), ("as in the shards", report.shards))
    for name, score in rows:
        table.add_row(name, f"{score.class_mix:.3f}", f"{score.neighbours:.3%}", f"{score.displacement:.3f}")
    return table


def duplicates_table(found: Duplicates) -> RenderableType:
    """The first pictures that are there several times, with the paths of their sources."""
    places = f"in both {found.data.path} and {found.other.path}" if found.other else "there several times"
    if not found.groups:
        return Text(readable(f"no picture is {places}"))
    title = f"{count(len(found.groups), 'picture')} {places}: {count(found.samples, 'sample')}"
    if found.contradictions:
        title += f"; {count(found.contradictions, 'picture')} with different classes"
    few = replace(found, groups=found.groups[:_MOST_GROUPS], others=found.others[:_MOST_GROUPS])
    table = new_table("samples", "the same in the other", title=readable(title))
    table.columns[1].justify = "left"
    for ours, theirs in zip(few.group_keys(), few.other_keys(), strict=True):
        table.add_row(*("\n".join(map(readable, each)) for each in (ours, theirs)), end_section=True)
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
