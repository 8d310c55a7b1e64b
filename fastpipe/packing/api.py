"""`fastpipe.pack`, `add` and `remove`: images -> tar shards with an index; more samples; fewer
samples.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastpipe.arguments import by_single_name, refuse, refusing_unknown
from fastpipe.dataset.format.layout import JPEG_STORAGE, REJECTED_FILE
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import choice
from fastpipe.packing.cluster import THREADS, on_ray, session
from fastpipe.packing.growth import grow
from fastpipe.packing.growth.choice import SampleChoice
from fastpipe.packing.growth.grow import Grown
from fastpipe.packing.job import threads
from fastpipe.packing.job.contradictions import describe_contradictions
from fastpipe.packing.job.destination import destination_of
from fastpipe.packing.job.log import (
    log_assumed,
    log_contradictions,
    log_oriented,
    log_rejected,
    log_stray,
)
from fastpipe.packing.job.progress import PackProgress
from fastpipe.packing.job.replaced_classes import (
    assume_other_numbers_than_before,
    read_replaced_classes,
)
from fastpipe.packing.job.summary import Summary
from fastpipe.packing.job.training_beside import assume_other_numbers_beside
from fastpipe.packing.shard.options import (
    CHOICES,
    DEFAULT_SHARD_BYTES,
    READ_TIMEOUT_S,
    pack_options,
)
from fastpipe.sources.classes_from import ClassesFrom
from fastpipe.sources.files import source_path
from fastpipe.sources.picture.convert import MAX_PIXELS, MAX_SCANS, TILE

# The options of `add` that say how its source is read, and how this program works.
ADD_OPTIONS = (
    "format",
    "image_column",
    "label_column",
    "label_pattern",
    "fields",
    "image_root",
    "split",
    "split_list",
    "separator",
    "box_format",
    "run_order",
    "coordinates",
    "first_label",
    "first_pixel",
    "classes_from",
    "unlisted",
    "bad_boxes",
    "encoding",
    "workers",
    "on_error",
    "storage_options",
    "read_timeout",
    "spool",
)
# Parameters of `pack` that are not options of a pack.
_NOT_OPTIONS = ("src", "dst", "executor", "address", "on_progress")
# Arguments that people look for here -> what to write instead.
_INSTEAD_BY_NAMES = {
    "resize size image_size": "max_size= shrinks large images once, when they are packed. The size "
    "of a batch's images belongs to the loader: fastpipe.loader(dst, size=224)",
    "transform transforms augment crop": "images are stored whole; crops and augmentation belong to "
    "the loader: fastpipe.loader(dst, crop=..., augment=...)",
    "labels": "pass a CSV file with the columns path and label as src, or "
    "fastpipe.open(dst).with_labels(labels) afterwards",
    "classes": "pass classes_from=, which takes a list of names, too",
    "num_workers threads": "pass workers=, the number of threads",
}
_INSTEAD = by_single_name(_INSTEAD_BY_NAMES)
_NOT_OF_ADD = (
    "the dataset has it from its pack, and its new samples get the same; leave it out"
)


@refusing_unknown("fastpipe.pack", _INSTEAD)
def pack(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    format: str = "auto",
    image_column: str | None = None,
    label_column: str | None = None,
    label_pattern: str | None = None,
    fields: Mapping[str, str] | Sequence[str] | None = None,
    image_root: str | os.PathLike[str] | None = None,
    split: str | None = None,
    split_list: str | os.PathLike[str] | None = None,
    coordinates: str | None = None,
    first_label: int | None = None,
    first_pixel: int | None = None,
    classes_from: ClassesFrom | None = None,
    separator: str | None = None,
    box_format: str | None = None,
    run_order: str | None = None,
    unlisted: str | None = None,
    bad_boxes: str | None = None,
    encoding: str | None = None,
    workers: int | None = None,
    max_size: int | None = None,
    quality: int | None = None,
    lossless: bool = False,
    tile: int = TILE,
    shard_size: int | str = DEFAULT_SHARD_BYTES,
    seed: int = 0,
    shuffle: bool = True,
    on_error: str = "report",
    damaged: str = "reject",
    exif: str = "ignore",
    storage: str = JPEG_STORAGE,
    keep_metadata: bool = False,
    background: str | Sequence[int] | None = None,
    level: int = 0,
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
    """Packs a folder of images, tars, or what a file lists, into a dataset: what the command
    `fastpipe pack` does.

    JPEGs stay JPEGs and formats without loss become PNGs, both with their exact pixels; others, as
    a WebP with loss, become JPEGs of high quality. If the program is interrupted, run it again: it
    continues where it stopped. If the dataset is up to date, there is nothing to do.

    Args:
        src: a folder with one folder of images for each class, or a folder of images without
            classes; a tar file, or a folder of tar files (WebDataset), whose members such as
            KEY.txt and KEY.json become fields; a CSV, TSV or JSONL file that lists images; a folder
            with metadata.jsonl, .csv or .parquet; annotations of COCO, Pascal VOC, YOLO, labelme,
            CVAT, Label Studio and other tools; images beside masks; a folder of the splits train,
            val and the like (see `fastpipe docs sources`). Or the URL of one of these
            (s3://, gs://, az://, https://, hf://).
        dst: a new or empty folder for the dataset, or one that holds it, finished or not; or its
            URL (s3://, gs://, az://).
        format: what `src` is: "imagefolder", "webdataset", "parquet", "arrow", "csv" (or TSV),
            "jsonl", "coco", "voc", "yolo", "masks" or "annotations"; "auto": find out, and stop if
            it is not certain.
        image_column: column with the images, or with their paths; None: the only one.
        label_column: column with the labels; None: "label", if there is one.
        label_pattern: a regular expression that is searched in the path of each image, below the
            folder of the images; the text of its first group is the class: "(.+)/" takes the
            folder, "(.+)_" the start of the name; None: class folders or columns say the class.
        fields: further columns to store: name of the field -> column, or column:kind, such as
            {"caption": "text"}; None: all columns.
        image_root: folder or URL that paths of images are relative to; None: folder of the file
            that has them.
        split: part of `src` to pack, such as "train", if it has several. A class has the same
            number in all of them.
        split_list: file that says which images are of a split, for a source that does not say it
            itself: the path or name of an image on each line; or a path and a split, of which
            `split` picks one. The classes are those of all images of `src`.
        coordinates: boxes, points and masks are of the image as "shown", with its EXIF orientation
            applied, or as "stored"; None: as the width and height in the annotations say, else as
            the format's own tools do it: shown.
        first_label: number of the first class in YOLO's label files, or in a table whose labels are
            numbers, 0 or 1; None: 0.
        first_pixel: number of the first pixel in annotations of Pascal VOC, 0 or 1; with 1, as VOC
            counts, xmin and ymin become one smaller. None: 0 if a box begins at 0, else 1, and the
            summary names it.
        classes_from: names of all classes in the order of their numbers: a packed dataset, a source
            such as a folder of class folders, a text file with a name on each line, or a JSON file
            such as {"0": "cat"}; in Python also a list of names. A class of `src` that is not among
            them is refused, one that `src` lacks is kept. None: the classes of `src`.
        separator: what stands between the classes of an image in a text, such as "|" in "cat|dog",
            for fields of the kind classes; None: what the column has, and the summary names it.
        box_format: for a table with a row for each box, or bbox of COCO: what the four numbers are,
            as torchvision.ops.box_convert calls it: "xyxy" (left, top, right, bottom), "xywh"
            (left, top, width, height) or "cxcywh" (centre, width, height); None: what the names of
            the columns say, else "xywh", and the summary names it.
        run_order: for a table with run lengths of masks: whether pixels are numbered down the
            "columns" or along the "rows"; None: what the sizes of some images show, else "columns",
            and the summary names it.
        unlisted: images without a row of the table or an entry of COCO, in the folders of its
            images, or without annotations: "drop" them, or "keep" them as images without boxes and
            without a label; None: drop them, and the summary counts them.
        bad_boxes: what to do with boxes that end more than a pixel outside their image, or that
            cannot be read, such as a line of YOLO with a class that does not exist: "reject" the
            image; "clip" cuts boxes at the border of the image, and drops what lies outside or
            cannot be read; "drop" drops all of these boxes. The summary counts them. None:
            "reject".
        encoding: encoding of the text of a table (CSV, TSV, lists, JSONL, JSON), as Python calls
            it, such as "cp1252"; None: UTF-8, or UTF-16 where its first bytes say so.
        workers: number of threads; None: the CPUs granted to this process.
        max_size: shrink images whose longest side has more pixels; None: no limit.
        quality: store every image that is not a JPEG as a JPEG of this quality, 1 to 100; also used
            when a JPEG must be encoded again. None: lossless images become PNGs, others JPEGs of
            quality 95, or 90 if `max_size` shrinks them.
        lossless: never encode with loss: images that are not JPEGs, or are shrunk, are stored as
            PNGs, however large.
        tile: approximate width in pixels of a tile, the smallest part that can be decoded alone
            (restart markers); 0: no tiles.
        shard_size: size of a shard, about, in bytes or as text such as "256MB".
        seed: seed for the order of the samples.
        shuffle: False: keep the order of classes and paths. Training then mixes the samples of a
            large dataset less well.
        on_error: if a file cannot be packed: "report" lists it in rejected.jsonl and continues,
            "fail" stops.
        damaged: damaged JPEGs: "reject" them, or "decode" those that Pillow loads and encode them
            again. With "decode" the dataset has the same samples as torchvision's ImageFolder.
        exif: EXIF orientation: "ignore" leaves images as stored, "apply" rotates them upright, with
            their fields.
        storage: how JPEGs are stored, both with the same pixels: as JPEGs that are encoded again
            without loss ("jpeg"), or as their "coefficients", which load about twice as fast and
            take a third more bytes.
        keep_metadata: keep all metadata of JPEGs, not only the ICC profile.
        background: the colour that transparent images are put on, such as "white", "#ffffff" or
            [255, 255, 255]; None: they keep their alpha, and the summary counts them. A loader of
            RGB drops alpha, so the colours under transparent pixels become visible.
        level: which size of a multi-resolution TIFF (slides of microscopes) is packed: 0 is the
            largest, 1 the next, and so on.
        max_pixels: reject images with more pixels.
        max_scans: reject progressive JPEGs with more scans.
        overwrite: replace the dataset in `dst`, even if it is a different or a damaged dataset.
        storage_options: for URLs: options of obstore's stores, such as {"region": "eu-west-1"};
            None: credentials come from the environment, as for the cloud's own tools.
        read_timeout: for URLs: seconds without a byte after which a request is made again.
        spool: for a `dst` that is a URL: folder in which shards are made, before they are uploaded.
            On a cluster: folder or URL that all workers see, for lists and converted rows of
            tables; None: the cache folder; on a cluster: in `dst`.
        executor: run in "threads" of this process, or with "ray" in tasks of a Ray cluster: see
            `fastpipe docs cluster`. The bytes are the same.
        address: with `executor` "ray": the cluster, as "auto" (that of this machine) or HOST:PORT;
            None: $RAY_ADDRESS, else Ray is started on this machine.
        on_progress: called now and then, in this thread.

    Returns:
        What was packed: `summary.info` is the content of dataset.json.

    Raises:
        ConfigError: an option is wrong, or one of the folders is inside the other.
        PackError: the source or destination cannot be used, or writing fails.
        ClusterError: the cluster cannot be reached, or a task fails repeatedly.

    Example:
        >>> summary = fastpipe.pack("photos", "data/new")
        >>> summary.info["samples"], summary.info["classes"]
        (24, ['cat', 'dog'])
    """
    # This must be the first line: `locals` has the parameters, and nothing else yet.
    given = {
        name: value for name, value in locals().items() if name not in _NOT_OPTIONS
    }
    uses_ray = on_ray(executor, address)
    options = pack_options(**given)
    source = source_path(src, options.source.remote)
    destination = destination_of(dst)
    replaced_classes = read_replaced_classes(destination, options)
    if uses_ray:
        # Most packs need no Ray.
        from fastpipe.packing.distributed.pack import pack_on_ray

        summary = pack_on_ray(
            source, destination, options, address=address, on_progress=on_progress
        )
    else:
        summary = threads.pack(source, destination, options, on_progress=on_progress)
    if isinstance(destination, Path) and not summary.already_packed:
        contradictions = describe_contradictions(PackedIndex(destination))
        summary = replace(summary, contradictions=contradictions)
        if options.source.classes is None:
            beside = assume_other_numbers_beside(
                destination, summary.info, summary.assumed
            )
            other_numbers = assume_other_numbers_than_before(
                replaced_classes, summary.info
            )
            summary = replace(
                summary, assumed=(*summary.assumed, *beside, *other_numbers)
            )
    log_assumed(source, summary.assumed)
    log_contradictions(source, summary.contradictions)
    if not summary.already_packed:
        log_oriented(source, summary.info)
    log_stray(source, summary.stray)
    log_rejected(source, summary.tally.rejected, f"{destination}/{REJECTED_FILE}")
    return summary


def add(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    by: str = "path",
    changed: str = "error",
    executor: str = THREADS,
    address: str | None = None,
    on_progress: Callable[[PackProgress], None] = lambda _: None,
    **options: Any,
) -> Grown:
    """Adds the samples that a dataset does not have yet: what the command `fastpipe add` does; see
    `fastpipe docs growing`.

    They are converted with the options of the dataset, and come into new shards; its own shards
    stay as they are. Until the end loaders see the old version. If the program is interrupted, run
    it again: it continues where it stopped.

    Args:
        src: as for `fastpipe pack`. Sources that `dst` has are not packed again.
        dst: a packed dataset: its folder, or its URL (s3://, gs://, az://).
        by: a source counts as known if its "path" in `src` is that of a sample; with "content" also
            if its image is, so that renamed copies are left out.
        changed: a source that has changed since it was packed: stop with an "error", "replace" its
            sample, or "skip" it.
        executor, address: as for `pack`.
        on_progress: called now and then, in this thread.
        **options: those of `pack` that say how `src` is read, workers, on_error, storage_options,
            read_timeout, spool.

    Returns:
        A summary: `added` samples, and sources that were `known`; `info` is the content of
            dataset.json.

    Raises:
        ConfigError: an option is wrong, or one of the folders is inside the other.
        DatasetError: there is no dataset, or it is damaged.
        PackError: the source cannot be used, its fields differ, or another program writes to
            the dataset.
        ClusterError: as for `pack`.

    Example:
        >>> grown = fastpipe.add("more-photos", "data/growing")
        >>> len(fastpipe.open("data/growing"))
        26
    """
    choice("by", by, CHOICES["by"])
    choice("changed", changed, CHOICES["changed"])
    names = sorted(options.keys() - set(ADD_OPTIONS))
    unknown = {name: options[name] for name in names}
    known = ("by", "changed", "executor", "address", *ADD_OPTIONS)
    of_pack = inspect.signature(pack).parameters
    refuse("fastpipe.add", unknown, known, dict.fromkeys(of_pack, _NOT_OF_ADD))
    given = pack_options(**options)
    source = source_path(src, given.source.remote)
    destination = destination_of(dst)
    if on_ray(executor, address):
        # Most programs need no Ray.
        from fastpipe.packing.distributed.pack import make_on_ray

        with session(address, workers=given.workers) as cpus:
            grown = grow.add(
                source,
                destination,
                given,
                by=by,
                changed=changed,
                on_progress=on_progress,
                make=make_on_ray(cpus),
            )
    else:
        grown = grow.add(
            source, destination, given, by=by, changed=changed, on_progress=on_progress
        )
    log_assumed(src, grown.assumed)
    log_rejected(src, grown.rejected)
    return grown


@refusing_unknown("fastpipe.remove")
def remove(
    dst: str | os.PathLike[str],
    *,
    keys: Iterable[str] | None = None,
    classes: str | Sequence[str] | None = None,
    where: str | Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    read_timeout: float = READ_TIMEOUT_S,
) -> Grown:
    """Removes samples from a dataset: what the command `fastpipe remove` does; see
    `fastpipe docs growing`.

    They are gone from the next version; their bytes stay in the shards until
    `fastpipe.pack(dst, new)`. With several of the three, a sample is removed if it matches all.

    Args:
        dst: a packed dataset: its folder, or its URL (s3://, gs://, az://).
        keys: keys of samples, as `batch["key"]` has them: the paths of their sources.
        classes: names of classes: their samples are removed. The classes stay in the list, so that
            labels do not change.
        where: comparisons such as "score < 0.2", with label, width, height, channels, bits, class,
            or a field of numbers, with <, <=, >, >=, == or !=, and a value. All have to be true.
        storage_options, read_timeout: as for `pack`.

    Returns:
        A summary: `removed` samples; `info` is the content of dataset.json.

    Raises:
        ConfigError: a key, class or column does not exist, or no sample would be left.
        DatasetError: there is no dataset, or it is damaged.
        PackError: another program writes to the dataset.

    Example:
        >>> removed = fastpipe.remove("data/growing", where="width < 40")
        >>> len(fastpipe.open("data/growing")) < 26
        True
    """
    given = pack_options(storage_options=storage_options, read_timeout=read_timeout)
    chosen = SampleChoice(keys, classes, where)
    return grow.remove(destination_of(dst), given, chosen)
