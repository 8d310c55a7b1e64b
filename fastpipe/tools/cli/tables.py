"""Figures that several commands show -> tables for a terminal, and numbers with their nouns."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fastpipe.errors import format_count
from fastpipe.tools.bench.measure import NAMES, Figures, Result

_THROUGHPUT_COLUMNS = (
    "images/s: the median of the rounds; range: the slowest and the fastest round\n"
    "ratio: how many times faster fastpipe is than this loader\n"
    "CPUs: how many CPUs were busy on average\n"
    "1st batch: from making the loader to its first batch, without imports\n"
    "memory: of all its processes; a page that they share counts once"
)
_STAGE_COLUMNS = (
    "us per image: microseconds of one thread for an image\n"
    "images/s alone: the speed if the other stages took no time; the lowest takes the most time"
)


def new_table(*columns: str, title: str | None = None) -> Table:
    """An empty table: the first column is a name, the others are figures."""
    table = Table(
        *columns, title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    return table


def show(console: Console, *parts: RenderableType) -> None:
    """Prints tables with an empty line after each."""
    for part in parts:
        console.print(part)
        console.print()


def throughput_table(results: Sequence[Result]) -> RenderableType:
    """The speed of loaders, and what they take. The ratio is fastpipe's images/s by theirs."""
    table = new_table(
        "loader", "images/s", "range", "ratio", "CPUs", "1st batch", "memory"
    )
    # The name of a loader is what a reader looks for: figures may be narrow, names may not break.
    table.columns[0].no_wrap = True
    # So seven columns have room in 80 characters, with ranges of tens of thousands of images/s.
    table.show_edge = False
    table.padding = 0
    for result in results:
        figures = result.median
        ratio = ""
        if result.contender != "fastpipe":
            ratio = f"{result.ratio:.2f} x"
        # "?": the system does not say it.
        cpus = "?"
        if figures.cpus is not None:
            cpus = f"{figures.cpus:.2f}"
        memory = "?"
        if figures.memory_mb is not None:
            memory = f"{figures.memory_mb:,.0f} MB"
        table.add_row(
            NAMES[result.contender],
            f"{figures.images_per_s:,.0f}",
            f"{result.slowest:,.0f}-{result.fastest:,.0f}",
            ratio,
            cpus,
            f"{figures.first_batch_s:.2f} s",
            memory,
        )
    return Group(table, Text(_THROUGHPUT_COLUMNS))


def stages_table(figures: Figures, workers: int, batch_size: int) -> RenderableType:
    """The time of each of fastpipe's stages, and its speed if it were the only one."""
    table = new_table("fastpipe's stages", "runs in", "us per image", "images/s alone")
    pool = format_count(workers, "thread")
    rows = (
        ("read", pool, figures.read_us, workers),
        ("decode the crop", pool, figures.decode_us, workers),
        ("resize and collate into the batch", pool, figures.resize_us, workers),
        (
            f"plan and submit (batches of {batch_size})",
            "main thread",
            figures.plan_us,
            1,
        ),
    )
    for name, runs_in, stage_us, num_threads in rows:
        if stage_us is None:
            continue
        images_per_s = num_threads * 1e6 / max(stage_us, 1e-3)
        table.add_row(name, runs_in, f"{stage_us:,.1f}", f"{images_per_s:,.0f}")
    return Group(table, Text(_STAGE_COLUMNS))
