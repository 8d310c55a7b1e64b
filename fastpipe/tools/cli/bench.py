"""`fastpipe bench`: a dataset -> images/s of fastpipe and of other loaders."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.layout import JPEG_STORAGE
from fastpipe.errors import ConfigError, format_count, whole
from fastpipe.machine.cpus import count_granted_cpus
from fastpipe.sources.scan.opening import open_data
from fastpipe.tools.bench.measure import GROUPS, NAMES, Figures, Task, compare
from fastpipe.tools.cli import options
from fastpipe.tools.cli.console import err, exit_codes, out, print_json
from fastpipe.tools.cli.tables import show, stages_table, throughput_table

# An epoch of fewer batches measures its end more than training does.
_FEW_BATCHES = 8


def bench(
    data: options.Data,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Loaders to compare with, separated by commas: torch.",
            show_default="none",
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(metavar="N", help="Samples in a batch.")
    ] = 128,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The number of threads or processes.",
            show_default="CPUs granted",
        ),
    ] = None,
    size: Annotated[
        int, typer.Option(metavar="PX", help="Output size in pixels.")
    ] = 224,
    repeats: Annotated[
        int,
        typer.Option(
            metavar="N", help="The number of rounds; the table shows medians."
        ),
    ] = 5,
    seconds: Annotated[
        float, typer.Option(metavar="S", help="Seconds that each run measures.")
    ] = (4.0),
    as_json: options.AsJson = False,
) -> None:
    """Measure images/s, and compare with other loaders.

    The task: random-resized crops, half of them mirrored, in uint8 batches on the CPU. Each run is
    a new process; the loaders run in turn.
    """
    with exit_codes():
        index = open_data(data)
        if workers is None:
            num_workers = count_granted_cpus()
        else:
            num_workers = whole("--workers", workers, least=1, most=1024)
        whole("--repeats", repeats, least=1, most=1000)
        whole("--size", size, least=1, most=4096)
        whole("--batch-size", batch_size, least=1, most=2**20)
        if not 0.1 <= seconds <= 3600:
            raise ConfigError(f"--seconds: expected 0.1 to 3600, got {seconds}")
        contenders = ["fastpipe"]
        if against:
            contenders += _parse_against(against)
            _check_comparable(index, data)

        batch_size = min(batch_size, len(index))
        task = Task(str(data), batch_size, num_workers, size)
        if not as_json:
            kb_per_sample = index.stored_bytes / len(index) / 1e3
            out.print(
                f"{format_count(len(index), 'sample')}, {kb_per_sample:.0f} kB each; "
                f"{format_count(num_workers, 'worker')}, batches of {batch_size}, {size} x {size}; "
                f"{format_count(repeats, 'round')} of {seconds:g} s"
            )
            if len(index) < _FEW_BATCHES * batch_size:
                out.print(
                    f"an epoch has fewer than {_FEW_BATCHES} batches. Here fastpipe runs one epoch "
                    "after another, while DataLoader gets one endless epoch. So with few "
                    "batches fastpipe looks slower than it is in training"
                )

        results = compare(
            task, contenders, repeats=repeats, seconds=seconds, on_run=print_round
        )
        if as_json:
            rows = [asdict(result) for result in results]
            print_json({"task": asdict(task), "results": rows, "skipped": {}})
            return
        show(
            out,
            throughput_table(results),
            stages_table(results[0].median, num_workers, batch_size),
        )


def _parse_against(against: str) -> list[str]:
    """The contenders of groups of loaders, such as "torch"."""
    contenders: list[str] = []
    for part in against.split(","):
        group = part.strip()
        if not group:
            continue
        if group not in GROUPS:
            raise ConfigError(
                f"--against: expected {', '.join(GROUPS)}, got {group!r}. To compare with DALI, "
                "FFCV and others, run python -m bench.run in a checkout of fastpipe"
            )
        contenders += [name for name in GROUPS[group] if name not in contenders]
    return contenders


def _check_comparable(index: Index, data: str) -> None:
    """Refuses datasets that only fastpipe can read."""
    if not isinstance(index.path, Path):
        raise ConfigError(
            "--against: the other loaders read files; bench a copy of the dataset in a folder"
        )
    if index.storage != JPEG_STORAGE:
        raise ConfigError(
            f"--against: the other loaders read JPEGs and PNGs, and {data} has coefficients; run "
            f"fastpipe unpack {data} DST, then bench DST"
        )


def print_round(number: int, contender: str, figures: Figures) -> None:
    err.print(
        f"round {number + 1}: {NAMES[contender]}: {figures.images_per_s:,.0f} images/s"
    )
