"""Figures -> tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fastpipe.bench.child import Figures
from fastpipe.bench.contenders import NAMES
from fastpipe.bench.measure import Result
from fastpipe.inspection import Histogram, Inspection
from fastpipe.pack.job import Summary

_BAR = "█"
_BAR_WIDTH = 30
_MOST_CLASSES = 20


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(*columns, title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    return table


def throughput(results: Sequence[Result]) -> RenderableType:
    """Loaders against each other: images/s and what they take."""
    table = _table("loader", "images/s", "range", "fastpipe is", "CPUs", "1st batch", "memory")
    for result in results:
        figures = result.median
        table.add_row(
            NAMES[result.contender],
            f"{figures.images_per_s:,.0f}",
            f"{result.slowest:,.0f}-{result.fastest:,.0f}",
            "" if result.contender == "fastpipe" else f"{result.ratio:.2f} x",
            "?" if figures.cpus is None else f"{figures.cpus:.2f}",
            f"{figures.first_batch_s:.2f} s",
            "?" if figures.memory_mb is None else f"{figures.memory_mb:,.0f} MB",
        )
    return table


def stages(figures: Figures, workers: int, batch_size: int) -> RenderableType:
    """Where fastpipe's time goes: each stage as if it were the only one."""
    table = _table("fastpipe's stages", "runs in", "us an image", "images/s alone")
    pool = f"{workers} threads" if workers != 1 else "1 thread"
    rows = (
        ("read", pool, figures.read_us, workers),
        ("decode the crop", pool, figures.decode_us, workers),
        ("resize and collate into the batch", pool, figures.resize_us, workers),
        (f"plan and submit (batches of {batch_size})", "main thread", figures.plan_us, 1),
    )
    for name, where, micros, threads in rows:
        if micros is not None:
            table.add_row(name, where, f"{micros:,.1f}", f"{threads * 1e6 / max(micros, 1e-3):,.0f}")
    return table


def packing(summary: Summary) -> RenderableType:
    """What packing did."""
    info, tally = summary.info, summary.tally
    files = info["source"]["files"]
    table = Table.grid(padding=(0, 2))
    table.add_row("packed", f"{info['samples']:,} of {files:,} files, {len(info['classes']):,} classes")
    table.add_row("shards", f"{len(info['shards']):,}, {sum(s['size_bytes'] for s in info['shards']):,} bytes")
    if tally.source_bytes:
        share = tally.packed_bytes / tally.source_bytes
        table.add_row("size", f"{share:.1%} of the source's {tally.source_bytes:,} bytes (as JPEG)")
        speed = files / max(summary.seconds, 1e-9)
        table.add_row("time", f"{summary.seconds:.1f} s, {speed:,.0f} images/s")
    changes = info["counts"]["reencoded"]
    if changes:
        kinds = ", ".join(f"{count:,} {reason}" for reason, count in changes.items())
        table.add_row("encoded anew", f"{sum(changes.values()):,} ({kinds}); all others keep their exact pixels")
    if info["counts"]["exif_oriented"]:
        turned = "turned upright" if info["pack"]["apply_exif"] else "left as stored, as torchvision does"
        table.add_row("EXIF orientation", f"{info['counts']['exif_oriented']:,} carry one; {turned}")
    if info["counts"]["stray_bytes"]:
        table.add_row("stray bytes", f"{info['counts']['stray_bytes']:,} had bytes of no segment; left out")
    empty = [name for name, count in zip(info["classes"], info["class_counts"], strict=True) if not count]
    if empty:
        table.add_row("empty classes", ", ".join(empty[:10]) + (" ..." if len(empty) > 10 else ""))
    if summary.stray:
        names = ", ".join(summary.stray[:5]) + (" ..." if len(summary.stray) > 5 else "")
        table.add_row("no class", f"{len(summary.stray):,} beside the class folders left out: {names}")
    return table


def inspection(found: Inspection) -> RenderableType:
    """Counts, classes and histograms of a dataset."""
    head = Table.grid(padding=(0, 2))
    head.add_row("dataset", found.path)
    head.add_row("samples", f"{found.samples:,} in {found.shards:,} shards, {found.size_bytes:,} bytes")
    head.add_row("fingerprint", found.fingerprint)
    head.add_row("rejected", f"{found.counts['rejected']:,} at packing")
    classes = _table("class", "samples", title=f"{len(found.class_counts):,} classes")
    ordered = list(found.class_counts.items())
    for name, count in ordered[:_MOST_CLASSES]:
        classes.add_row(name, f"{count:,}")
    if len(ordered) > _MOST_CLASSES:
        rest = ordered[_MOST_CLASSES:]
        low, high = min(count for _, count in rest), max(count for _, count in rest)
        classes.add_row(f"... {len(rest):,} more", f"{low:,} to {high:,} each")
    return Group(
        head,
        Text(),
        classes,
        _histogram("size in kB", found.bytes, 1e-3),
        _histogram("width in pixels", found.width, 1),
        _histogram("height in pixels", found.height, 1),
        _histogram("megapixels", found.megapixels, 1),
    )


def _histogram(title: str, spread: Histogram, unit: float) -> RenderableType:
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
    for left, right, count in zip(spread.edges, spread.edges[1:], spread.counts, strict=False):
        bar = _BAR * -(-count * _BAR_WIDTH // most)
        table.add_row(f"{number(left)} to {number(right)}", f"{count:,}", bar)
    return Group(table, Text())


def show(console: Console, *parts: RenderableType) -> None:
    """Prints tables with an empty line after each."""
    for part in parts:
        console.print(part)
        console.print()
