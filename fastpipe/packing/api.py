"""`fastpipe.pack`: a folder of images, tars, or files that list images -> tar shards with an index, from Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastpipe.cluster.executor import THREADS, on_ray
from fastpipe.format.layout import JPEG_STORAGE
from fastpipe.packing import job
from fastpipe.packing.job import PackProgress, Summary
from fastpipe.packing.options import DEFAULT_SHARD_BYTES, READ_TIMEOUT_S, pack_options
from fastpipe.packing.output.destination import destination_of
from fastpipe.packing.picture.convert import MAX_PIXELS, MAX_SCANS, TILE
from fastpipe.packing.source.files import source_path


def pack(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    format: str = "auto",
    image_column: str | None = None,
    label_column: str | None = None,
    fields: Mapping[str, str] | Sequence[str] | None = None,
    image_root: str | os.PathLike[str] | None = None,
    split: str | None = None,
    workers: int | None = None,
    max_size: int | None = None,
    quality: int | None = None,
    tile: int = TILE,
    shard_size: int | str = DEFAULT_SHARD_BYTES,
    seed: int = 0,
    shuffle: bool = True,
    on_error: str = "report",
    damaged: str = "reject",
    exif: str = "ignore",
    storage: str = JPEG_STORAGE,
    keep_metadata: bool = False,
    max_pixels: int = MAX_PIXELS,
    max_scans: int = MAX_SCANS,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    read_timeout: float = READ_TIMEOUT_S,
    spool: str | os.PathLike[str] | None = None,
    executor: str = THREADS,
    address: str | None = None,
    on_progress: Callable[[PackProgress], None] = lambda _: None,
) -> Summary:
    """Packs a folder of images, tars, or what a file lists, into a dataset: what the command `fastpipe pack` does.

    JPEGs keep their exact pixels. If the program is interrupted, run it again: it continues where it stopped. If the
    dataset is there and up to date, there is nothing to do.

    Args:
        src: a folder with one folder of images for each class, a folder of images without classes, a tar file, or a
            folder of tar files (WebDataset). Members such as KEY.txt and KEY.json of WebDatasets become fields. Or a
            CSV, TSV or JSONL file that lists images, a folder with metadata.jsonl, .csv or .parquet, or annotations of
            COCO, Pascal VOC or YOLO: see docs/sources.md. Or a URL of these: see docs/remote.md.
        dst: a new or empty folder, or an unfinished or finished dataset; or the URL of one (s3://, gs://, az://).
        format: what `src` is: "imagefolder", "webdataset", "parquet", "arrow", "csv" (or TSV), "jsonl", "coco", "voc"
            or "yolo"; "auto": what it certainly is, otherwise there is an error that says what to choose.
        image_column: the column with the images, or with their paths; None: the only one there is.
        label_column: the column with the labels; None: "label", if there is one.
        fields: further columns to store: name of the field -> column, or column:kind, such as {"caption": "text"};
            None: all columns.
        image_root: the folder that paths of images are relative to; None: the folder of the file that has them.
        split: the part of `src` to pack, such as "train", if it has several.
        workers: number of threads; None: the CPUs granted to this process.
        max_size: shrink images whose longest side has more pixels; None: no limit.
        quality: JPEG quality, 1 to 100, of the images that `max_size` shrinks; None: 90.
        tile: approximate width in pixels of the smallest part that can be decoded alone; 0: no tiles.
        shard_size: fill shards up to this size, in bytes or as text such as "256MB".
        seed: for the order of the samples.
        shuffle: False: keep the order of classes and paths.
        on_error: if a file cannot be packed: "report" lists it in rejected.jsonl and continues, "fail" stops.
        damaged: damaged JPEGs: "reject" them, or "decode" those that Pillow loads and encode them again.
        exif: EXIF orientation: "ignore" leaves images as stored, "apply" rotates them upright, with their fields.
        storage: how images are stored: "jpeg", or "coefficients": about twice as fast to load, with the same pixels,
            and a third more bytes.
        keep_metadata: keep all metadata of JPEGs, not only the ICC profile.
        max_pixels: reject images with more pixels.
        max_scans: reject progressive JPEGs with more scans.
        overwrite: replace the dataset in `dst`, even if it is a different or a damaged dataset.
        storage_options: for URLs: options of obstore's stores, such as {"region": "eu-west-1"}; None: the environment
            says who one is, as for the cloud's own tools.
        read_timeout: for URLs: seconds without a byte after which a request is made again.
        spool: for a `dst` that is a URL: the folder in which shards are made, before they are uploaded. With
            executor="ray": a folder or URL that all workers see; None: beside the dataset.
        executor: "threads" of this process, or tasks of a "ray" cluster: see docs/cluster.md. The bytes are the same.
        address: of the Ray cluster: "auto" for that of this machine, or HOST:PORT; None: that of RAY_ADDRESS, else one
            is started on this machine.
        on_progress: called now and then, in this thread.

    Returns:
        What was packed: `summary.info` is the content of dataset.json.

    Raises:
        ConfigError: an option is wrong, or one of the folders is inside the other.
        PackError: the source or destination cannot be used, or the disk refuses.
        ClusterError: the cluster cannot be reached, or its machines fail a task again and again.
    """
    in_tasks = on_ray(executor, address)
    options = pack_options(
        workers=workers,
        max_size=max_size,
        quality=quality,
        tile=tile,
        shard_size=shard_size,
        seed=seed,
        shuffle=shuffle,
        on_error=on_error,
        damaged=damaged,
        exif=exif,
        storage=storage,
        keep_metadata=keep_metadata,
        max_pixels=max_pixels,
        max_scans=max_scans,
        overwrite=overwrite,
        format=format,
        image_column=image_column,
        label_column=label_column,
        fields=fields,
        image_root=image_root,
        split=split,
        storage_options=storage_options,
        read_timeout=read_timeout,
        spool=spool,
    )
    source, destination = source_path(src, options.source.remote), destination_of(dst)
    if in_tasks:
        from fastpipe.packing.steps.on_ray import pack_on_ray  # most packs need no Ray

        return pack_on_ray(source, destination, options, address=address, on_progress=on_progress)
    return job.pack(source, destination, options, on_progress=on_progress)
