"""`fastpipe bench`: a dataset -> images/s of fastpipe and of other loaders."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from fastpipe.bench.measure import GROUPS, NAMES, Figures, Task, compare
from fastpipe.cli.console import AsJson, Dataset, err, exit_codes, out, print_json
from fastpipe.cli.options import takes
from fastpipe.cli.tables import count, show, stages_table, throughput_table
from fastpipe.errors import ConfigError, whole
from fastpipe.format.layout import JPEG_STORAGE
from fastpipe.machine.cpus import count_granted_cpus
from fastpipe.sources.scan.opening import open_data

_FEW_BATCHES = 8


@takes()
def bench(
    data: Dataset,
    against: str | None = None,
    batch_size: int = 128,
    workers: int | None = None,
    size: int = 224,
    repeats: int = 5,
    seconds: float = 4.0,
    as_json: AsJson = False,
) -> None:
    """Measure images/s, and compare with other loaders.

    The task: random-resized crops, half of them mirrored, in uint8 batches on the CPU. Each run is a new process; the
    loaders run in turn.

    Args:
        against (NAMES): loaders to compare with, separated by commas: torch; None: nothing.
        batch_size: samples in a batch.
        workers: number of threads or processes; None: CPUs granted.
        size: output size in pixels.
        repeats: number of rounds; the table shows medians.
        seconds: seconds that each run measures.
    """
    with exit_codes():
        index = open_data(data)
        threads = (
            count_granted_cpus()
            if workers is None
            else whole("--workers", workers, least=1, most=1024)
        )
        whole("--repeats", repeats, least=1, most=1000)
        whole("--size", size, least=1, most=4096)
        whole("--batch-size", batch_size, least=1, most=2**20)
        if not 0.1 <= seconds <= 3600:
            raise ConfigError(f"--seconds: expected 0.1 to 3600, got {seconds}")
        groups = [group for group in map(str.strip, (against or "").split(",")) if group]
        if unknown := [group for group in groups if group not in GROUPS]:
            raise ConfigError(f"--against: expected {', '.join(GROUPS)}, got {unknown[0]!r}")
        contenders = [
            "fastpipe",
            *dict.fromkeys(name for group in groups for name in GROUPS[group]),
        ]
        if against and not isinstance(index.path, Path):
            raise ConfigError(
                "--against: the other loaders read files; bench a copy of the dataset in a folder"
            )
        if against and index.storage != JPEG_STORAGE:
            raise ConfigError(
                f"--against: the other loaders read JPEGs and PNGs, and {data} has coefficients; run "
                f"fastpipe unpack {data} DST, then bench DST"
            )
        batch_size = min(batch_size, len(index))
        task = Task(str(data), batch_size, threads, size)
        if not as_json:
            out.print(
                f"{len(index):,} samples, {index.stored_bytes / len(index) / 1e3:.0f} kB each; "
                f"{count(threads, 'worker')}, batches of {batch_size}, {size} x {size}; "
                f"{count(repeats, 'round')} of {seconds:g} s"
            )
            if len(index) < _FEW_BATCHES * batch_size:
                out.print(
                    f"an epoch has fewer than {_FEW_BATCHES} batches. At the end of an epoch fastpipe stops and "
                    "DataLoader runs on; here this counts more than in training"
                )

        results = compare(task, contenders, repeats=repeats, seconds=seconds, on_run=tell_run)
        if as_json:
            print_json(
                {
                    "task": asdict(task),
                    "results": [asdict(result) for result in results],
                    "skipped": {},
                }
            )
            return
        show(out, throughput_table(results), stages_table(results[0].median, threads, batch_size))


def tell_run(number: int, contender: str, figures: Figures) -> None:
    err.print(f"round {number + 1}: {NAMES[contender]}: {figures.images_per_s:,.0f} images/s")
