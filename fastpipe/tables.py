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
from fastpipe.doctor import Check
from fastpipe.inspection import Histogram, Inspection
from fastpipe.names import readable
from fastpipe.pack.job import Summary
from fastpipe.shuffle_score import ShuffleReport

_BAR_WIDTH = 30
_MOST_CLASSES = 20


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(*columns, title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    return table


def throughput(results: Sequence[Result]) -> RenderableType:
    """Loaders against each other: images/s and what they take; the ratio is fastpipe's images/s by theirs."""
    table = _table("loader", "images/s", "range", "ratio", "CPUs", "1st batch", "PSS")
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
    table.add_row("packed", f"{info['samples']:,} of {count(files, 'file')}, {count(len(info['classes']), 'class')}")
    shard_bytes = sum(shard["size_bytes"] for shard in info["shards"])
    table.add_row("shards", f"{len(info['shards']):,}, {shard_bytes:,} bytes")
    if tally.source_bytes:
        share = tally.packed_bytes / tally.source_bytes
        table.add_row("size", f"{share:.1%} of the source's {tally.source_bytes:,} bytes (as JPEG)")
        speed = summary.files / max(summary.seconds, 1e-9)
        table.add_row("time", f"{summary.seconds:.1f} s, {speed:,.0f} files/s")
    changes = info["counts"]["reencoded"]
    if changes:
        kinds = ", ".join(f"{pictures:,} {reason}" for reason, pictures in changes.items())
        table.add_row("encoded anew", f"{sum(changes.values()):,} ({kinds}); all others keep their exact pixels")
    if info["counts"]["exif_oriented"]:
        turned = "turned upright" if info["pack"]["apply_exif"] else "left as stored (--exif apply turns them upright)"
        table.add_row("EXIF orientation", f"{info['counts']['exif_oriented']:,} carry one; {turned}")
    if info["counts"]["stray_bytes"]:
        table.add_row("stray bytes", f"{info['counts']['stray_bytes']:,} had bytes of no segment; left out")
    empty = [name for name, samples in zip(info["classes"], info["class_counts"], strict=True) if not samples]
    if empty:
        table.add_row("empty classes", _names(empty))
    if summary.stray:
        where = f"{count(len(summary.stray), 'file')} beside the class folders, left out"
        table.add_row("no class", f"{where}: {_names(summary.stray)}")
    if summary.dropped:
        kinds = ", ".join(f"{members:,} {kind}" for kind, members in sorted(summary.dropped.items()))
        table.add_row("left out", f"{kinds}: members that are neither picture nor label")
    return table


def _names(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(readable(name) for name in names[:most]) + (" ..." if len(names) > most else "")


def count(number: int, word: str) -> str:
    """A number and its word: 1 file, 2 files, 3 classes."""
    ending = "" if number == 1 else "es" if word.endswith("s") else "s"
    return f"{number:,} {word}{ending}"


def inspection(found: Inspection, *, ascii_only: bool) -> RenderableType:
    """Counts, classes and histograms of a dataset; ascii_only: for terminals that have no block characters."""
    head = Table.grid(padding=(0, 2))
    head.add_row("dataset", readable(found.path))
    head.add_row("samples", f"{found.samples:,} in {count(found.shards, 'shard')}, {found.size_bytes:,} bytes")
    head.add_row("fingerprint", found.fingerprint)
    head.add_row("rejected", f"{found.counts['rejected']:,} at packing")
    classes = _table("class", "samples", title=count(len(found.class_counts), "class"))
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
        classes,
        _histogram("size in kB", found.bytes, 1e-3, bar),
        _histogram("width in pixels", found.width, 1, bar),
        _histogram("height in pixels", found.height, 1, bar),
        _histogram("megapixels", found.megapixels, 1, bar),
    )


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


def show(console: Console, *parts: RenderableType) -> None:
    """Prints tables with an empty line after each."""
    for part in parts:
        console.print(part)
        console.print()


def shuffle(report: ShuffleReport) -> RenderableType:
    """How an epoch is shuffled, beside what it is compared with."""
    title = f"shuffle: {report.samples:,} samples in batches of {report.batch_size:,}"
    table = _table("order", "class mix", "neighbours kept", "displacement", title=title)
    rows = (("an epoch", report.epoch), ("uniform permutation", report.uniform), ("as in the shards", report.shards))
    for name, score in rows:
        table.add_row(name, f"{score.class_mix:.3f}", f"{score.neighbours:.3%}", f"{score.displacement:.3f}")
    return table


def doctor(checks: Sequence[Check]) -> RenderableType:
    """One line a check: what was found, the verdict, and what to do."""
    table = Table("check", "found", "verdict", "what to do", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = table.columns[2].no_wrap = True
    table.columns[1].overflow = table.columns[3].overflow = "fold"
    for check in checks:
        table.add_row(check.name, readable(check.found), check.verdict.value, readable(check.advice))
    return table
