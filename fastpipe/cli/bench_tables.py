"""Figures of loaders -> tables: loaders side by side, and the time of fastpipe's stages."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from fastpipe.bench.measure import Result
from fastpipe.bench.task import NAMES, Figures
from fastpipe.cli.tables import new_table


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
            table.add_row(name, where, f"{micros:,.1f}", f"{threads * 1e6 / max(micros, 1e-3):,.0f}")
    return table
