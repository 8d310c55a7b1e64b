"""The `fastpipe` command: words on a command line -> the work, and a readable account of it.

Exit codes: 0 done, 1 the data or the run failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import gc
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import fastpipe
from fastpipe import tables
from fastpipe.bench.child import Figures
from fastpipe.bench.contenders import GROUPS, NAMES, Task, runnable
from fastpipe.bench.measure import compare
from fastpipe.config import whole
from fastpipe.cpus import granted_cpus
from fastpipe.demo.run import PHOTOS, run_demo
from fastpipe.errors import ConfigError, FastpipeError
from fastpipe.format import REJECTED_FILE
from fastpipe.index import Index
from fastpipe.inspection import inspect as inspect_index
from fastpipe.inspection import write_contact_sheet
from fastpipe.names import readable
from fastpipe.pack.convert import MAX_PIXELS, MAX_SCANS, TILE, Conversion
from fastpipe.pack.job import PackOptions, Summary
from fastpipe.pack.job import pack as run_pack
from fastpipe.pack.progress import pack_progress

app = typer.Typer(
    help="The input pipeline for training vision models with PyTorch: pack photos once, load them fast.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out = Console(highlight=False, markup=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

_FEW_BATCHES = 8

AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON on standard output.")]
Dataset = Annotated[Path, typer.Argument(help="A folder that `fastpipe pack` wrote.")]


class OnError(StrEnum):
    """What packing does with a file that cannot be packed."""

    REPORT = "report"
    FAIL = "fail"


class Exif(StrEnum):
    """What packing does with an EXIF orientation."""

    IGNORE = "ignore"
    APPLY = "apply"


@contextlib.contextmanager
def _exit_codes() -> Iterator[None]:
    try:
        yield
    except ConfigError as problem:
        err.print(f"fastpipe: {readable(str(problem))}")
        raise typer.Exit(2) from problem
    except FastpipeError as problem:
        err.print(f"fastpipe: {readable(str(problem))}")
        raise typer.Exit(1) from problem
    except KeyboardInterrupt as problem:
        err.print("fastpipe: interrupted")
        raise typer.Exit(130) from problem
    except OSError as problem:
        err.print(f"fastpipe: the system refused: {readable(str(problem))}")
        raise typer.Exit(1) from problem


def _print_json(content: object) -> None:
    out.print(json.dumps(content, indent=1))


def _bytes(text: str) -> int:
    """A size such as 256MB, 1GiB or 1000000, in bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"expected a size such as 256MB or 1GiB, got {text!r}")
    number, prefix, binary = match.groups()
    unit: int = 1024 if binary else 1000
    return round(float(number) * float(unit) ** "_kmgt".index(prefix or "_"))


@app.command()
def pack(
    src: Annotated[Path, typer.Argument(help="A folder with one folder of images a class.")],
    dst: Annotated[Path, typer.Argument(help="Where the dataset goes.")],
    workers: Annotated[int | None, typer.Option(help="Threads.", show_default="CPUs granted")] = None,
    max_size: Annotated[
        int | None, typer.Option(metavar="PX", help="Shrink pictures whose longest side is over PX pixels.")
    ] = None,
    quality: Annotated[
        int | None, typer.Option(help="JPEG quality of shrunk pictures; 90 if not given.", show_default=False)
    ] = None,
    tile: Annotated[
        int,
        typer.Option(
            metavar="PX", help="Width, about, of the tiles that can be decoded alone (restart markers); 0: none."
        ),
    ] = TILE,
    shard_size: Annotated[str, typer.Option(metavar="SIZE", help="Fill shards up to this size.")] = "256MB",
    seed: Annotated[int, typer.Option(help="Picks the order of the samples.")] = 0,
    on_error: Annotated[
        OnError, typer.Option(help="Files that cannot be packed: list them and go on, or stop.")
    ] = OnError.REPORT,
    exif: Annotated[
        Exif, typer.Option(help="EXIF orientation: leave pictures as stored, or turn them upright.")
    ] = Exif.IGNORE,
    keep_metadata: Annotated[
        bool, typer.Option("--keep-metadata", help="Keep all metadata of JPEGs, not only the ICC profile.")
    ] = False,
    max_pixels: Annotated[int, typer.Option(help="Refuse larger pictures.")] = MAX_PIXELS,
    max_scans: Annotated[int, typer.Option(help="Refuse progressive JPEGs with more scans.")] = MAX_SCANS,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace another dataset, or a damaged one, in DST.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Turn a folder of images into tar shards with an index.

    JPEGs keep their exact pixels. Interrupted? Run the same command again: it goes on where it stopped.
    """
    with _exit_codes():
        if quality is not None and max_size is None:
            raise ConfigError("--quality is that of shrunk pictures and needs --max-size; all others stay as they are")
        conversion = Conversion(
            max_size=max_size,
            quality=90 if quality is None else quality,
            apply_exif=exif is Exif.APPLY,
            keep_metadata=keep_metadata,
            max_pixels=max_pixels,
            max_scans=max_scans,
            tile=tile,
        )
        options = PackOptions(
            conversion=conversion,
            shard_size=_bytes(shard_size),
            seed=seed,
            fail_fast=on_error is OnError.FAIL,
            overwrite=overwrite,
            workers=workers,
        )
        gc.freeze()  # the imports' objects stay: the collector need not walk them again and again
        try:
            with pack_progress(err) as progress:
                summary = run_pack(src, dst, options, on_progress=progress)
        except KeyboardInterrupt:
            err.print("fastpipe: whole shards are kept; the same command goes on from there")
            raise
        if as_json:
            _print_json(_pack_json(summary, dst))
        else:
            _tell_pack(summary, dst)


def _rejected(destination: Path) -> list[dict[str, str]]:
    """What rejected.jsonl lists: path and reason of each file that was not packed."""
    try:
        return [json.loads(line) for line in (destination / REJECTED_FILE).read_bytes().splitlines()]
    except FileNotFoundError:
        return []


def _pack_json(summary: Summary, destination: Path) -> dict[str, Any]:
    info = {name: value for name, value in summary.info.items() if name not in ("shards", "classes", "class_counts")}
    return {
        **info,
        "classes": len(summary.info["classes"]),
        "shards": len(summary.info["shards"]),
        "packed_bytes": summary.info["jpeg_bytes"],
        "rejected": _rejected(destination),
        "outside_classes": [readable(name) for name in summary.stray],
        "files_read": summary.files,
        "seconds": summary.seconds,
        "resumed_shards": summary.resumed,
        "already_packed": summary.already_packed,
    }


def _tell_pack(summary: Summary, destination: Path) -> None:
    if summary.already_packed:
        out.print(f"{destination} is already packed from these sources with these options; nothing to do")
        before = summary.info["counts"]["rejected"]
        if before:
            out.print(f"{tables.count(before, 'file')} had been rejected: see {destination / REJECTED_FILE}")
        return
    if summary.resumed:
        out.print(f"went on after {tables.count(summary.resumed, 'shard')} of an earlier run")
    out.print(tables.packing(summary))
    rejected = _rejected(destination)
    if rejected:
        out.print(f"rejected  {tables.count(len(rejected), 'file')}, listed in {destination / REJECTED_FILE}:")
        for entry in rejected[:5]:
            out.print(f"    {entry['path']}: {entry['reason']}")
        if len(rejected) > 5:
            out.print(f"    ... and {len(rejected) - 5:,} more")
    else:
        out.print("rejected  none")


@app.command()
def bench(
    data: Dataset,
    against: Annotated[
        str,
        typer.Option(metavar="NAMES", help=f"Compare with, by commas: {', '.join(GROUPS)}.", show_default="nothing"),
    ] = "",
    batch_size: Annotated[int, typer.Option(help="Samples a batch.")] = 128,
    workers: Annotated[int | None, typer.Option(help="Threads or processes.", show_default="CPUs granted")] = None,
    size: Annotated[int, typer.Option(help="Output size in pixels.")] = 224,
    repeats: Annotated[int, typer.Option(help="Rounds; medians are shown.")] = 5,
    seconds: Annotated[float, typer.Option(help="Time measured in each run.")] = 4.0,
    as_json: AsJson = False,
) -> None:
    """Measure images/s, and compare with other loaders.

    The task: random-resized crop, mirrored half of the time, uint8 batches on the CPU. Each run is a fresh process;
    contenders take turns.
    """
    with _exit_codes():
        index = Index(data)
        threads = granted_cpus() if workers is None else whole("--workers", workers, least=1, most=1024)
        whole("--repeats", repeats, least=1, most=1000)
        whole("--size", size, least=1, most=4096)
        whole("--batch-size", batch_size, least=1, most=2**20)
        if not 0.1 <= seconds <= 3600:
            raise ConfigError(f"--seconds: expected 0.1 to 3600, got {seconds}")
        contenders, skipped = _contenders(against)
        batch_size = min(batch_size, len(index))
        task = Task(str(data), batch_size, threads, size)
        if not as_json:
            out.print(
                f"{len(index):,} samples, {index.jpeg_bytes / len(index) / 1e3:.0f} kB each; "
                f"{tables.count(threads, 'worker')}, batches of {batch_size}, {size} x {size}; "
                f"{tables.count(repeats, 'round')} of {seconds:g} s"
            )
            if len(index) < _FEW_BATCHES * batch_size:
                out.print(
                    f"an epoch has fewer than {_FEW_BATCHES} batches: its end, where fastpipe stops and DataLoader is "
                    "let run on, weighs more than in training"
                )

        def tell(number: int, contender: str, figures: Figures) -> None:
            err.print(f"round {number + 1}: {NAMES[contender]}: {figures.images_per_s:,.0f} images/s")

        results = compare(task, contenders, repeats=repeats, seconds=seconds, on_run=tell)
        if as_json:
            _print_json(
                {
                    "task": asdict(task),
                    "results": [result.as_dict() for result in results],
                    "skipped": skipped,
                }
            )
            return
        tables.show(out, tables.throughput(results), tables.stages(results[0].median, threads, batch_size))
        for name, reason in skipped.items():
            out.print(f"not measured: {NAMES[name]}: {reason}")


def _contenders(against: str) -> tuple[list[str], dict[str, str]]:
    """Who takes part, and who cannot and why."""
    contenders = ["fastpipe"]
    for group in filter(None, (part.strip() for part in against.split(","))):
        if group not in GROUPS:
            raise ConfigError(f"--against: expected {', '.join(GROUPS)}, got {group!r}")
        contenders.extend(name for name in GROUPS[group] if name not in contenders)
    return runnable(contenders)


@app.command()
def inspect(
    data: Dataset,
    sheet: Annotated[
        Path | None,
        typer.Option(metavar="PNG", help="Where the contact sheet goes.", show_default="DATA-sheet.png, here"),
    ] = None,
    no_sheet: Annotated[bool, typer.Option("--no-sheet", help="Draw no contact sheet.")] = False,
    seed: Annotated[int, typer.Option(help="Picks the pictures of the sheet.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show what a dataset holds, and draw a contact sheet.

    Counts, classes, histograms of sizes and dimensions, and a PNG of some pictures with their labels.
    """
    with _exit_codes():
        if sheet is not None and no_sheet:
            raise ConfigError("--sheet and --no-sheet exclude each other; pass one")
        index = Index(data)
        found = inspect_index(index)
        picture = None if no_sheet else sheet or Path(f"{data.resolve().name}-sheet.png")
        shown, replaced = (0, 0) if picture is None else write_contact_sheet(data, picture, seed=seed)
        if as_json:
            _print_json(
                {**found.as_dict(), "sheet": None if picture is None else str(picture), "undecodable": replaced}
            )
            return
        out.print(tables.inspection(found, ascii_only=out.options.ascii_only))
        if picture is not None:
            out.print(f"{tables.count(shown, 'picture')} drawn to {picture}")
        if replaced:
            err.print(
                f"fastpipe: {tables.count(replaced, 'picture')} could not be decoded; others are shown instead. "
                "The dataset is damaged: pack its source again with --overwrite"
            )


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where to work.", show_default="fastpipe-demo")
    ] = Path("fastpipe-demo"),
    photos: Annotated[int, typer.Option(help="How many photos to make.")] = PHOTOS,
) -> None:
    """Do the main job on photos that it makes.

    Packs them, iterates an epoch, compares the throughput with torch's DataLoader and draws a training batch.
    """
    with _exit_codes():
        whole("--photos", photos, least=1, most=1_000_000)

        def say(text: str) -> None:
            out.print(f"* {text}")

        def tell(number: int, contender: str, figures: Figures) -> None:
            err.print(f"round {number + 1}: {NAMES[contender]}: {figures.images_per_s:,.0f} images/s")

        done = run_demo(folder, photos=photos, say=say, packing=lambda: pack_progress(err), on_run=tell)
        if not done.summary.already_packed:
            out.print(tables.packing(done.summary))
        out.print(
            f"one epoch: {done.epoch_images:,} images in {done.epoch_s:.2f} s, threads' start included, "
            f"{done.epoch_images / done.epoch_s:,.0f} images/s"
        )
        out.print()
        tables.show(out, tables.throughput(done.results))
        for name, reason in done.skipped.items():
            out.print(f"not measured: {NAMES[name]}: {reason}")
        out.print(f"look at {done.sheet}: a training batch, as the model sees it")
        out.print(f"more: fastpipe inspect {done.data}; fastpipe bench {done.data} --against torch")


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"fastpipe {fastpipe.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The console script."""
    app()
