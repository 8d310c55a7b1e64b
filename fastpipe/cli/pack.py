"""`fastpipe pack`: a folder of images, tars, or files that list images -> tar shards with an index."""

from __future__ import annotations

import gc
import logging
import warnings
from enum import StrEnum
from typing import Annotated, Any

import typer

from fastpipe.cli.console import Address, AsJson, On, err, exit_codes, out, print_json
from fastpipe.cli.pack_progress import pack_progress
from fastpipe.cli.pack_table import pack_table
from fastpipe.cli.tables import count
from fastpipe.errors import ConfigError, readable
from fastpipe.format.layout import REJECTED_FILE
from fastpipe.packing.api import pack as run_pack
from fastpipe.packing.job.threads import Summary
from fastpipe.packing.shard.publish import read_rejected
from fastpipe.sources.files import SourcePath, source_path
from fastpipe.sources.options import Format
from fastpipe.sources.picture.convert import MAX_PIXELS, MAX_SCANS, TILE


class OnError(StrEnum):
    """What packing does with a file that cannot be packed."""

    REPORT = "report"
    FAIL = "fail"


class Damaged(StrEnum):
    """What packing does with a damaged JPEG that Pillow still loads."""

    REJECT = "reject"
    DECODE = "decode"


class Storage(StrEnum):
    """How images are stored."""

    JPEG = "jpeg"
    COEFFICIENTS = "coefficients"


class Step(StrEnum):
    """The steps of a pack that several programs share."""

    LIST = "list"
    CONVERT = "convert"
    MAKE = "make"
    PUBLISH = "publish"


class Exif(StrEnum):
    """What packing does with an EXIF orientation."""

    IGNORE = "ignore"
    APPLY = "apply"


def pack(
    src: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="A folder with one folder of images for each class, or a folder of images without classes; a tar "
            "file, or a folder of tar files (WebDataset); a CSV, TSV or JSONL file that lists images; a folder with "
            "metadata.jsonl, .csv or .parquet; annotations of COCO, Pascal VOC or YOLO. Or the URL of one of these "
            "(s3://, gs://, az://, https://, hf://).",
        ),
    ],
    dst: Annotated[
        str, typer.Argument(metavar="DST", help="Folder for the dataset, or its URL (s3://, gs://, az://).")
    ],
    format: Annotated[
        Format, typer.Option(help="What SRC is. auto: find out, and stop if it is not certain.")
    ] = Format.AUTO,
    image_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column with the images or their paths.", show_default="the only one"),
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column with the labels.", show_default='"label", if there is one'),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COLUMN",
            help="Store a column as a field; may be repeated. NAME=COLUMN:KIND also says the kind of the field.",
            show_default="all columns",
        ),
    ] = None,
    image_root: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Folder or URL that image paths are relative to.", show_default="folder of the file"
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="NAME", help="Part of SRC to pack, such as train, if it has several.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Number of threads.", show_default="CPUs granted")] = None,
    max_size: Annotated[
        int | None, typer.Option(metavar="PX", help="Shrink images whose longest side has more than PX pixels.")
    ] = None,
    quality: Annotated[
        int | None,
        typer.Option(
            help="Make JPEGs of this quality of all images that are none, and of those that are encoded again. If not "
            "given, images without loss become PNGs, and others JPEGs of quality 95, or 90 if --max-size shrinks them.",
            show_default=False,
        ),
    ] = None,
    lossless: Annotated[
        bool,
        typer.Option(
            "--lossless", help="Encode no image with loss: what is no JPEG, or is shrunk, becomes a PNG, however large."
        ),
    ] = False,
    tile: Annotated[
        int,
        typer.Option(
            metavar="PX",
            help="Approximate width of a tile, the smallest part that can be decoded alone "
            "(restart markers); 0: no tiles.",
        ),
    ] = TILE,
    shard_size: Annotated[str, typer.Option(metavar="SIZE", help="Size of a shard, about.")] = "256MB",
    seed: Annotated[int, typer.Option(help="Seed for the order of the samples.")] = 0,
    no_shuffle: Annotated[
        bool,
        typer.Option(
            "--no-shuffle",
            help="Keep the order of classes and paths. Training then mixes the samples of a large dataset less well.",
        ),
    ] = False,
    on_error: Annotated[
        OnError, typer.Option(help="If a file cannot be packed: list it and continue, or stop.")
    ] = OnError.REPORT,
    damaged: Annotated[
        Damaged,
        typer.Option(
            help="Damaged JPEGs: reject them, or decode those that Pillow loads and encode them again. With decode the "
            "dataset has the same samples as torchvision's ImageFolder."
        ),
    ] = Damaged.REJECT,
    exif: Annotated[
        Exif, typer.Option(help="EXIF orientation: leave images as stored, or rotate them upright.")
    ] = Exif.IGNORE,
    storage: Annotated[
        Storage,
        typer.Option(
            help="How JPEGs are stored: as they are, or as their coefficients. These have the same pixels, load about "
            "twice as fast and take a third more bytes."
        ),
    ] = Storage.JPEG,
    keep_metadata: Annotated[
        bool, typer.Option("--keep-metadata", help="Keep all metadata of JPEGs, not only the ICC profile.")
    ] = False,
    max_pixels: Annotated[int, typer.Option(help="Reject images with more pixels.")] = MAX_PIXELS,
    max_scans: Annotated[int, typer.Option(help="Reject progressive JPEGs with more scans.")] = MAX_SCANS,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace the dataset in DST, even if it is a different or a damaged dataset."),
    ] = False,
    spool: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="For a DST that is a URL: folder in which shards are made, before they are uploaded. On a cluster: "
            "folder or URL that all workers see.",
            show_default="pack in the cache folder; on a cluster: in DST",
        ),
    ] = None,
    on: Annotated[
        On,
        typer.Option(
            "--on", help="Run in threads of this process, or in tasks of a Ray cluster. The bytes are the same."
        ),
    ] = On.THREADS,
    address: Address = None,
    step: Annotated[
        Step | None,
        typer.Option(help="Run one step only, as jobs of Slurm do. See docs/cluster.md.", show_default=False),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="With --step convert or make: the I-th of N equal parts.", show_default="1/1"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Turn a folder of images, WebDataset shards, or files that list images, into tar shards with an index.

    Images keep their exact pixels: JPEGs stay JPEGs, and formats without loss become PNGs. If the command is
    interrupted, run it again: it continues where it stopped.
    """
    with exit_codes():
        # A file's metadata may be odd, which costs no pixel; what keeps a file out has its reason among the rejected.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        logging.getLogger("PIL").addHandler(logging.NullHandler())
        destination = source_path(dst)
        options: dict[str, Any] = {
            "format": format.value,
            "image_column": image_column,
            "label_column": label_column,
            "fields": field or None,
            "image_root": image_root,
            "split": split,
            "workers": workers,
            "max_size": max_size,
            "quality": quality,
            "lossless": lossless,
            "tile": tile,
            "shard_size": shard_size,
            "seed": seed,
            "shuffle": not no_shuffle,
            "on_error": on_error.value,
            "damaged": damaged.value,
            "exif": exif.value,
            "storage": storage.value,
            "keep_metadata": keep_metadata,
            "max_pixels": max_pixels,
            "max_scans": max_scans,
            "overwrite": overwrite,
            "spool": spool,
        }
        if step is not None or part is not None:
            if as_json:
                raise ConfigError("--json: a step says in one line what it did; leave it out, or --step")
            _run_step(src, dst, step, part, on, address, options)
            return
        gc.freeze()  # the imports' objects stay: the collector need not walk them again and again
        try:
            with pack_progress(err) as progress:
                summary = run_pack(src, dst, **options, executor=on.value, address=address, on_progress=progress)
        except KeyboardInterrupt:
            err.print("fastpipe: finished shards are kept; run the same command again to continue")
            raise
        if as_json:
            print_json(_pack_json(summary, destination))
        else:
            _tell_pack(summary, destination)


def _run_step(
    src: str, dst: str, step: Step | None, part: str | None, on: On, address: str | None, options: dict[str, Any]
) -> None:
    from fastpipe.packing.steps.work import run_step  # most packs are in one piece

    if step is None:
        raise ConfigError("--part: it needs --step, for it says which part of a step to run")
    if on is not On.THREADS or address is not None:
        raise ConfigError("--step: with --on ray and --address the steps are tasks; leave out these, or --step")
    out.print(run_step(src, dst, step.value, part, options))


def _rejected(summary: Summary, destination: SourcePath) -> list[dict[str, str]]:
    """What rejected.jsonl lists: path and reason of each file that was not packed."""
    if not summary.already_packed:
        return [{"path": readable(path), "reason": reason} for path, reason in sorted(summary.tally.rejected)]
    return read_rejected(destination)


def _pack_json(summary: Summary, destination: SourcePath) -> dict[str, Any]:
    info = {name: value for name, value in summary.info.items() if name not in ("shards", "classes", "class_counts")}
    return {
        **info,
        "classes": len(summary.info["classes"]),
        "shards": len(summary.info["shards"]),
        "packed_bytes": summary.info["stored_bytes"],
        "rejected": _rejected(summary, destination),
        "outside_classes": [readable(name) for name in summary.stray],
        "members_left_out": dict(summary.dropped),
        "files_read": summary.files,
        "seconds": summary.seconds,
        "resumed_shards": summary.resumed,
        "already_packed": summary.already_packed,
        "uploaded_bytes": summary.uploaded_bytes,
    }


def _tell_pack(summary: Summary, destination: SourcePath) -> None:
    if summary.already_packed:
        out.print(f"{destination} is already packed from these sources with these options; nothing to do")
        before = summary.info["counts"]["rejected"]
        if before:
            out.print(f"{count(before, 'file')} were rejected: see {destination / REJECTED_FILE}")
        return
    if summary.resumed:
        out.print(f"continued after {count(summary.resumed, 'shard')} from an earlier run")
    out.print(pack_table(summary))
    rejected = _rejected(summary, destination)
    if rejected:
        out.print(f"rejected  {count(len(rejected), 'file')}, listed in {destination / REJECTED_FILE}:")
        for entry in rejected[:5]:
            out.print(f"    {entry['path']}: {entry['reason']}")
        if len(rejected) > 5:
            out.print(f"    ... and {len(rejected) - 5:,} more")
    else:
        out.print("rejected  none")
