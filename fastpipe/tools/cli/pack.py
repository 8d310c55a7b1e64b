"""`fastpipe pack`: a source -> tar shards with an index."""

from __future__ import annotations

import gc
import logging
import os
import shlex
import warnings
from enum import StrEnum
from typing import Annotated, Any

import typer

from fastpipe.dataset.format.fields import read_fields
from fastpipe.dataset.format.folder import scheme_of
from fastpipe.dataset.format.layout import REJECTED_FILE
from fastpipe.dataset.format.mirroring import can_be_mirrored
from fastpipe.errors import format_count, readable
from fastpipe.packing.api import pack as run_pack
from fastpipe.packing.job.log import format_rejected
from fastpipe.packing.job.summary import Summary
from fastpipe.packing.shard.publish import read_rejected
from fastpipe.pages import name_page
from fastpipe.sources.files import SourcePath, source_path
from fastpipe.sources.folders.splits import is_for_evaluation
from fastpipe.sources.options import Format
from fastpipe.sources.picture.convert import MAX_PIXELS, MAX_SCANS, TILE
from fastpipe.sources.scan.opening import open_data
from fastpipe.sources.tables.manifest_reader import METADATA
from fastpipe.tools.cli import options
from fastpipe.tools.cli.console import err, exit_codes, out, place, print_json
from fastpipe.tools.cli.pack_report import (
    pack_progress,
    pack_table,
    print_assumed,
    print_rejected,
)
from fastpipe.tools.show.inspection import BoxCounts, count_boxes

_BATCH_SIZE = 256
_LEAST_BATCHES = 4
Damaged = StrEnum("Damaged", "REJECT DECODE")
Exif = StrEnum("Exif", "IGNORE APPLY")
Storage = StrEnum("Storage", "JPEG COEFFICIENTS")


def pack(
    src: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="A folder with one folder of images for each class, or a folder of images without "
            "classes; a tar file, or a folder of tar files (WebDataset), whose members such as "
            "KEY.txt and KEY.json become fields; a CSV, TSV or JSONL file that lists images; a "
            "folder with metadata.jsonl, .csv or .parquet; annotations of COCO, Pascal VOC, YOLO, "
            "labelme, CVAT, Label Studio and other tools; images beside masks; a folder of the "
            f"splits train, val and the like: see {name_page('sources')}. Or the URL of one of "
            "these (s3://, gs://, az://, https://, hf://): see "
            f"{name_page('remote')}.",
        ),
    ],
    dst: Annotated[
        str,
        typer.Argument(
            metavar="DST",
            help="A new or empty folder for the dataset, or one that holds it, finished or not; or "
            "its URL (s3://, gs://, az://).",
        ),
    ],
    format: options.SourceFormat = Format.AUTO,
    image_column: options.ImageColumn = None,
    image_root: options.ImageRoot = None,
    split: options.Split = None,
    split_list: options.SplitList = None,
    unlisted: options.UnlistedImages = None,
    bad_boxes: options.BadBoxesOf = None,
    encoding: options.Encoding = None,
    label_column: options.LabelColumn = None,
    label_pattern: options.LabelPattern = None,
    classes_from: options.ClassesFrom = None,
    first_label: options.FirstLabel = None,
    first_pixel: options.FirstPixel = None,
    fields: options.Fields = None,
    separator: options.Separator = None,
    box_format: options.FormatOfBoxes = None,
    run_order: options.OrderOfRuns = None,
    coordinates: options.CoordinatesOf = None,
    max_size: Annotated[
        int | None,
        typer.Option(
            metavar="PX",
            help="Shrink images whose longest side has more pixels.",
            show_default="no limit",
            rich_help_panel=options.IMAGES,
        ),
    ] = None,
    quality: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Store every image that is not a JPEG as a JPEG of this quality, 1 to 100; also "
            "used when a JPEG must be encoded again.",
            show_default="PNGs of lossless images, else quality 95, or 90 with --max-size",
            rich_help_panel=options.IMAGES,
        ),
    ] = None,
    lossless: Annotated[
        bool,
        typer.Option(
            "--lossless",
            help="Never encode with loss: images that are not JPEGs, or are shrunk, are stored as "
            "PNGs, however large.",
            rich_help_panel=options.IMAGES,
        ),
    ] = False,
    exif: Annotated[
        Exif,
        typer.Option(
            help="EXIF orientation: ignore leaves images as stored, apply rotates them upright, "
            "with their fields.",
            rich_help_panel=options.IMAGES,
        ),
    ] = Exif.IGNORE,
    background: Annotated[
        str | None,
        typer.Option(
            metavar="COLOR",
            help="Put transparent images on this colour, such as white or #ffffff. Else they keep "
            "their alpha, and the summary counts them; a loader of RGB drops alpha, so the colours "
            "under transparent pixels become visible.",
            rich_help_panel=options.IMAGES,
        ),
    ] = None,
    damaged: Annotated[
        Damaged,
        typer.Option(
            help="Damaged JPEGs: reject them, or decode those that Pillow loads and encode them "
            "again. With decode the dataset has the same samples as torchvision's ImageFolder.",
            rich_help_panel=options.IMAGES,
        ),
    ] = Damaged.REJECT,
    keep_metadata: Annotated[
        bool,
        typer.Option(
            "--keep-metadata",
            help="Keep all metadata of JPEGs, not only the ICC profile.",
            rich_help_panel=options.IMAGES,
        ),
    ] = False,
    level: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Which size of a multi-resolution TIFF (slides of microscopes) is packed: 0 is the "
            "largest, 1 the next, and so on.",
            rich_help_panel=options.IMAGES,
        ),
    ] = 0,
    max_pixels: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Reject images with more pixels.",
            rich_help_panel=options.IMAGES,
        ),
    ] = MAX_PIXELS,
    max_scans: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Reject progressive JPEGs with more scans.",
            rich_help_panel=options.IMAGES,
        ),
    ] = MAX_SCANS,
    storage: Annotated[
        Storage,
        typer.Option(
            help="How JPEGs are stored, both with the same pixels: as JPEGs that are encoded again "
            "without loss (jpeg), or as their coefficients, which load about twice as fast and take "
            "a third more bytes.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = Storage.JPEG,
    tile: Annotated[
        int,
        typer.Option(
            metavar="PX",
            help="The width of a tile, the smallest part of a JPEG that can be decoded alone "
            "(restart markers), about, in pixels; 0: no tiles.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = TILE,
    shard_size: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="The size of a shard, about, in bytes or as text such as 256MB.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = "256MB",
    seed: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="The seed of the order of the samples.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = 0,
    no_shuffle: Annotated[
        bool,
        typer.Option(
            "--no-shuffle",
            help="Keep the order of classes and paths. Training then mixes the samples of a large "
            "dataset less well.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace the dataset in DST, even if it is a different or a damaged one.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    workers: options.Workers = None,
    on_error: options.IfFileFails = options.OnError.REPORT,
    spool: options.Spool = None,
    executor: options.On = options.Executor.THREADS,
    address: options.Address = None,
    as_json: options.AsJson = False,
) -> None:
    """Pack a folder of images, tars or a table into a dataset.

    A dataset is tar shards with an index. JPEGs stay JPEGs and lossless formats become PNGs, both
    with their exact pixels. If the command is interrupted, run it again: it continues where it
    stopped.
    """
    with exit_codes():
        # Odd metadata of a file cost no pixel. A file that cannot be packed is among the rejected.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        logging.getLogger("PIL").addHandler(logging.NullHandler())
        # The log has the assumptions, which are printed at the end.
        logging.getLogger("fastpipe.pack").setLevel(logging.ERROR)
        # The objects of imports stay; otherwise the garbage collector walks them again and again.
        gc.freeze()
        try:
            with pack_progress(err) as on_progress:
                summary = run_pack(
                    src,
                    dst,
                    format=format,
                    image_column=image_column,
                    image_root=image_root,
                    split=split,
                    split_list=split_list,
                    unlisted=unlisted,
                    bad_boxes=bad_boxes,
                    encoding=encoding,
                    label_column=label_column,
                    label_pattern=label_pattern,
                    classes_from=classes_from,
                    first_label=first_label,
                    first_pixel=first_pixel,
                    fields=fields or None,
                    separator=separator,
                    box_format=box_format,
                    run_order=run_order,
                    coordinates=coordinates,
                    max_size=max_size,
                    quality=quality,
                    lossless=lossless,
                    exif=exif,
                    background=background,
                    damaged=damaged,
                    keep_metadata=keep_metadata,
                    level=level,
                    max_pixels=max_pixels,
                    max_scans=max_scans,
                    storage=storage,
                    tile=tile,
                    shard_size=shard_size,
                    seed=seed,
                    shuffle=not no_shuffle,
                    overwrite=overwrite,
                    workers=workers,
                    on_error=on_error,
                    spool=spool,
                    executor=executor,
                    address=address,
                    on_progress=on_progress,
                )
        except KeyboardInterrupt:
            err.print(
                "fastpipe: finished shards are kept; run the same command again to continue"
            )
            raise
        if as_json:
            print_json(_as_json(summary, source_path(dst)))
        else:
            _print_summary(summary, src, dst)


def _as_json(summary: Summary, destination: SourcePath) -> dict[str, Any]:
    info = dict(summary.info)
    # Lists for each shard and each class would be too long; there are their lengths.
    del info["class_counts"]
    info["classes"] = len(info["classes"])
    info["shards"] = len(info["shards"])
    return {
        **info,
        "packed_bytes": summary.info["stored_bytes"],
        "rejected": read_rejected(destination),
        "outside_classes": [readable(name) for name in summary.stray],
        "members_left_out": dict(summary.dropped),
        "assumed": [assumption._asdict() for assumption in summary.assumed],
        "files_read": summary.files,
        "seconds": summary.seconds,
        "resumed_shards": summary.resumed,
        "already_packed": summary.already_packed,
        "uploaded_bytes": summary.uploaded_bytes,
    }


def _print_summary(summary: Summary, src: str, dst: str) -> None:
    destination = source_path(dst)
    rejected_file = str(destination / REJECTED_FILE)
    if summary.already_packed:
        out.print(
            f"{destination} is already packed from these sources with these options; nothing to do"
        )
        rejected_paths = [entry["path"] for entry in read_rejected(destination)]
        if rejected_paths:
            verb = "was" if len(rejected_paths) == 1 else "were"
            out.print(
                f"{format_rejected(rejected_paths)} {verb} rejected: see {rejected_file}"
            )
        print_assumed(summary.assumed)
        return

    if summary.resumed:
        out.print(
            f"continued after {format_count(summary.resumed, 'shard')} from an earlier run"
        )
    boxes: dict[str, BoxCounts] = {}
    if not scheme_of(dst):  # else the columns would have to be fetched
        boxes = count_boxes(open_data(place(dst)))
    has_table = any(os.path.exists(os.path.join(src, name)) for name in METADATA)
    is_folder = not os.path.isfile(src) and not has_table
    out.print(pack_table(summary, boxes, is_folder=is_folder))
    print_rejected(read_rejected(destination), rejected_file)
    print_assumed(summary.assumed)
    next_step = f"{_loader_call(dst, summary)} in Python"
    label_option = _find_label_option(summary)
    if label_option:
        next_step = f"the same command with {label_option} --overwrite, for a dataset with labels"
    out.print(f"next: fastpipe inspect {shlex.quote(dst)}, or {next_step}")


def _find_label_option(summary: Summary) -> str:
    """The option that gives the dataset labels, where it has none; "": nothing looks like labels."""
    if summary.info["classes"]:
        return ""
    for assumption in summary.assumed:
        if assumption.option.startswith("--label-column "):
            return assumption.option
    return ""


def _loader_call(dst: str, summary: Summary) -> str:
    """A loader that works with the dataset: as it is called, for training or for evaluation."""
    # A batch for training has to be full, and an epoch has several.
    batch_size = min(_BATCH_SIZE, max(1, summary.info["samples"] // _LEAST_BATCHES))
    name = dst.rstrip("/").rpartition("/")[2]
    is_training = not is_for_evaluation(name)
    options = ""
    if not is_training:
        options = ", train=False"
    fields = _fields_to_load(summary.info)
    if fields:
        names = ", ".join(f'"{name}"' for name in fields)
        comma = "," if len(fields) == 1 else ""
        options += f", fields=({names}{comma})"
    # Training mirrors images, which the loader refuses where only the user knows what becomes of
    # points and directions.
    if is_training and fields and not _can_be_mirrored(summary.info):
        options += ", hflip=False"
    return f"fastpipe.loader({dst!r}, batch_size={batch_size}{options})"


def _fields_to_load(info: dict[str, Any]) -> list[str]:
    """The fields that a loader needs: none where batches of (images, labels) say it all."""
    names = list(info["fields"])
    if any(form["channels"] == 0 for form in info["forms"]):
        return names  # some samples have no image of their own
    if info["classes"] or not names:
        return []
    return ["image", *names]


def _can_be_mirrored(info: dict[str, Any]) -> bool:
    fields = read_fields(info)
    return all(can_be_mirrored(field) for field in fields.values())
