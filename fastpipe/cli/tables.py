"""What several commands show -> tables and lines of progress for a terminal, and numbers with their nouns."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from rich import box
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fastpipe.bench.measure import NAMES, Figures, Result
from fastpipe.errors import readable
from fastpipe.machine.progress import shown
from fastpipe.packing.job.progress import PackProgress
from fastpipe.packing.job.summary import Summary
from fastpipe.sources.listing import Assumption

_SPEED_OVER_S = 5.0


def new_table(*columns: str, title: str | None = None) -> Table:
    """An empty table: the first column is a name, the others are figures."""
    table = Table(*columns, title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    return table


def show(console: Console, *parts: RenderableType) -> None:
    """Prints tables with an empty line after each."""
    for part in parts:
        console.print(part)
        console.print()


def count(number: int, word: str) -> str:
    """A number and its word: 1 file, 2 files, 3 classes."""
    ending = "" if number == 1 else "es" if word.endswith("s") else "s"
    return f"{number:,} {word}{ending}"


def throughput_table(results: Sequence[Result]) -> RenderableType:
    """Loaders against each other: images/s and what they take; the ratio is fastpipe's images/s by theirs."""
    table = new_table("loader", "images/s", "range", "ratio", "CPUs", "1st batch", "PSS")
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


def stages_table(figures: Figures, workers: int, batch_size: int) -> RenderableType:
    """Where fastpipe's time goes: each stage as if it were the only one."""
    table = new_table("fastpipe's stages", "runs in", "us per image", "images/s alone")
    pool = f"{workers} threads" if workers != 1 else "1 thread"
    rows = (
        ("read", pool, figures.read_us, workers),
        ("decode the crop", pool, figures.decode_us, workers),
        ("resize and collate into the batch", pool, figures.resize_us, workers),
        (f"plan and submit (batches of {batch_size})", "main thread", figures.plan_us, 1),
    )
    for name, where, micros, threads in rows:
        if micros is not None:
            table.add_row(
                name, where, f"{micros:,.1f}", f"{threads * 1e6 / max(micros, 1e-3):,.0f}"
            )
    return table


@contextlib.contextmanager
def pack_progress(console: Console) -> Iterator[Callable[[PackProgress], None]]:
    """Shows how far a pack is: a bar with images/s, MB/s and time left, or a line now and then."""
    seen: list[tuple[float, PackProgress]] = []  # of this step, over the last few seconds

    def words(now: PackProgress) -> str:
        seen.append((time.monotonic(), now))
        while len(seen) > 2 and seen[-1][0] - seen[1][0] > _SPEED_OVER_S:
            seen.pop(0)
        then_s, then = seen[0]
        span_s = max(seen[-1][0] - then_s, 1e-6)
        images, megabytes = (
            (now.files - then.files) / span_s,
            (now.bytes - then.bytes) / span_s / 1e6,
        )
        doing = f"{now.step}: " if now.step != "packing" else ""
        uploaded = f"  {now.uploaded_bytes / 1e6:,.0f} MB uploaded" if now.uploaded_bytes else ""
        rejected = f"  {now.rejected} rejected" if now.rejected else ""
        tasks = (
            f"  task {now.tasks:,}/{now.total_tasks:,}, {now.workers:,} CPUs"
            if now.total_tasks
            else ""
        )
        if tasks and not console.is_terminal and megabytes:  # a bar has it anyway
            tasks += f"  {timedelta(seconds=round((now.total_bytes - now.bytes) / 1e6 / megabytes))} left"
        rates = f"{images:,.0f} images/s  {megabytes:.1f} MB/s"
        return f"{doing}{now.files:,}/{now.total_files:,} files  {rates}{tasks}{uploaded}{rejected}"

    with shown(console, "packing", words) as show:

        def update(now: PackProgress) -> None:
            if not seen or now.step != seen[-1][1].step:
                seen[:] = [(time.monotonic(), now)]
            show(now)

        yield update


def pack_table(summary: Summary) -> RenderableType:
    info, tally, counts = summary.info, summary.tally, summary.info["counts"]
    pack = info["packs"][-1]
    files = pack["source"]["files"]
    table = Table.grid(padding=(0, 2))
    table.add_row(
        "packed",
        f"{info['samples']:,} of {count(files, 'file')}, {count(len(info['classes']), 'class')}",
    )
    shard_bytes = sum(shard["size_bytes"] for shard in info["shards"])
    table.add_row("shards", f"{len(info['shards']):,}, {shard_bytes:,} bytes")
    if tally.source_bytes:
        share = shard_bytes / tally.source_bytes
        table.add_row("size", f"{share:.1%} of the source's {tally.source_bytes:,} bytes")
        speed = summary.files / max(summary.seconds, 1e-9)
        table.add_row("time", f"{summary.seconds:.1f} s, {speed:,.0f} files/s")
    fields = ", ".join(f"{name} ({field['kind']})" for name, field in info["fields"].items())
    unlabelled = info["samples"] - sum(info["class_counts"])
    hint = (
        ""
        if info["classes"]
        else "; to give all one label, put the images into one subfolder: SRC/all/1.jpg"
    )
    pngs, anew, oriented = counts["png"], counts["reencoded"], counts["exif_oriented"]
    stray, frames = counts["stray_bytes"], counts["multi_frame"]
    turned = "left as stored (--exif apply rotates them upright)"
    if pack["options"]["apply_exif"]:
        turned = "rotated upright"
    empty = [
        name
        for name, samples in zip(info["classes"], info["class_counts"], strict=True)
        if not samples
    ]
    beside = f"{count(len(summary.stray), 'file')} next to the class folders, or without a row"
    dropped = ", ".join(f"{members:,} {kind}" for kind, members in sorted(summary.dropped.items()))
    for there, name, words in (
        (summary.uploaded_bytes, "uploaded", f"{summary.uploaded_bytes / 1e6:,.1f} MB"),
        (fields, "fields", fields),
        (unlabelled, "no label", f"{count(unlabelled, 'sample')}, with label -1{hint}"),
        (pngs, "stored as PNG", _by_reason(pngs)),
        (anew, "encoded again", f"{_by_reason(anew)}; all others keep their exact pixels"),
        (oriented, "EXIF orientation", f"{oriented:,} images have one; {turned}"),
        (
            stray,
            "stray bytes",
            f"{stray:,} JPEGs had bytes outside their segments; these bytes were left out",
        ),
        (frames, "frames", f"{frames:,} files have several; the first of each was packed"),
        (empty, "empty classes", _names(empty)),
        (summary.stray, "not packed", f"{beside}: {_names(summary.stray)}"),
        (dropped, "left out", f"{dropped}: members that are neither an image nor a label"),
    ):
        if there:
            table.add_row(name, words)
    return table


def show_assumed(console: Console, assumed: Sequence[Assumption]) -> None:
    """Prints what the source does not say for sure, in a frame; nothing, if there is nothing."""
    if not assumed:
        return
    text = Text("\n".join(f"- {readable(str(each))}" for each in assumed), overflow="fold")
    frame = Panel(
        text, title="assumed, please check", title_align="left", border_style="yellow", expand=False
    )
    console.print(
        frame, soft_wrap=False
    )  # else long lines would be cut off at the frame, with the options in them


def assumed_json(assumed: Sequence[Assumption]) -> list[dict[str, str]]:
    return [each._asdict() for each in assumed]


def _by_reason(counts: dict[str, int]) -> str:
    return f"{sum(counts.values()):,} ({', '.join(f'{pictures:,} {reason}' for reason, pictures in counts.items())})"


def _names(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(readable(name) for name in names[:most]) + (
        " ..." if len(names) > most else ""
    )
