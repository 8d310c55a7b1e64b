"""Paths and URLs of datasets -> a Dataset: one, all samples of several, or a mixture."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastpipe.arguments import by_single_name, refusing_unknown
from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.format.parts import starts_of
from fastpipe.dataset.saved import with_saved
from fastpipe.dataset.selection import Selection
from fastpipe.dataset.stored_dataset import StoredDataset
from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import ConfigError, DatasetError, PackError, positive, whole
from fastpipe.sources.picture.background import parse_background
from fastpipe.store.remote.options import remote_options

if TYPE_CHECKING:
    from fastpipe.sources.classes_from import ClassesFrom

# The sum of all weights, which is multiplied by numbers of rows: it must not become inf.
_MAX_TOTAL = 1e300
# Arguments that people look for here -> what to write instead.
_INSTEAD_BY_NAMES = {
    "batch_size size crop augment shuffle num_workers device": "it is an argument of the loader: "
    "fastpipe.loader(fastpipe.open(DATA), {name}=...)",
    "transform": "write fastpipe.open(DATA).with_transform(transform)",
    "fields": "write fastpipe.open(DATA).with_fields(fields), or pass fields= to the loader",
}
_INSTEAD = by_single_name(_INSTEAD_BY_NAMES)
_WEIGHTS = (
    "the weights belong to the datasets: fastpipe.mix({'data/a': 0.7, 'data/b': 0.3})"
)
_INSTEAD_OF_WEIGHTS = {"weights": _WEIGHTS, "probabilities": _WEIGHTS}
_LOG = logging.getLogger("fastpipe")


@refusing_unknown("fastpipe.open", _INSTEAD)
def open(
    data: str | os.PathLike[str],
    *,
    version: int | None = None,
    classes_from: ClassesFrom | None = None,
    split: str | None = None,
    max_pixels: int = MAX_PIXELS,
    background: str | Sequence[int] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_limit: int | str = "200GB",
    storage_options: Mapping[str, Any] | None = None,
    read_timeout: float = 20.0,
) -> Dataset:
    """Opens a dataset: to look at it, to choose from it, for `fastpipe.loader` or for torch's
    DataLoader.

    Args:
        data: a packed dataset: its folder, or its URL: s3://, gs://, az://, http(s):// or
            hf://datasets/ORG/NAME/FOLDER. Or, for a first try, images that are not packed: a folder
            with one folder of images for each class, a folder of images, a tar file, a folder of
            tar files, or a pattern of tars ("shards/*.tar"). That is slower.
        version: the version of a packed dataset, as `fastpipe log` lists them; None: the newest.
        classes_from: names of all classes in the order of their numbers, as `fastpipe.pack` takes
            them: a packed dataset, a source such as a folder of class folders, a text file with a
            name on each line, a JSON file such as {"0": "cat"}, or a list of names. Labels get
            these numbers by name: see `Dataset.with_classes`. None: the classes of the dataset.
        split: for a folder that is not packed and has the folders train, val or the like: the one
            to open, such as "train". A class has the same number in all splits. None: the folder
            has none.
        max_pixels: largest number of pixels of one stored image: a larger image is a DatasetError
            before memory is allocated for it. A dataset that was packed with a larger --max-pixels
            needs the same value here.
        background: for images that are not packed: the colour that transparent ones are put on,
            such as "white", "#ffffff" or [255, 255, 255]; None: a loader of RGB drops their alpha,
            so the colours under transparent pixels become visible.
        cache_dir: for a URL, as all that follow: the folder, on a disk of this machine, that keeps
            what has been fetched. All processes of the machine share it. None: shards in
            $FASTPIPE_CACHE, $XDG_CACHE_HOME/fastpipe or ~/.cache/fastpipe. Without a URL these four
            are errors.
        cache_limit: the most that the folder may take on the disk, in bytes or as text: "200GB". If
            the dataset is larger, a part of it stays in the cache, and the rest is fetched in each
            epoch. 0: no shard is kept.
        storage_options: options of obstore's store: {"region": "eu-west-1"}, {"skip_signature":
            True} for a public bucket, {"endpoint": "https://..."}. None: as the cloud's own tools
            find them.
        read_timeout: seconds without a byte after which a request is made again. After 9 times as
            long without success a DatasetError is raised.

    Raises:
        ConfigError: an argument is wrong.
        DatasetError: there is nothing of that kind, or a packed dataset is unfinished, damaged or
            of another format version.

    Example:
        >>> data = fastpipe.open("data/train")
        >>> data
        <fastpipe dataset 'data/train': 24 samples, 2 classes>
        >>> image, label = data[3]
        >>> image.dtype, data.classes[label]
        (torch.uint8, 'cat')
        >>> data["width"].max()
        np.int64(59)
    """
    if isinstance(data, str) and data.startswith("pipe:"):
        raise ConfigError(
            f"{data!r}: pipe: commands are not supported; pass the URL of a folder, such as "
            "s3://BUCKET/FOLDER"
        )
    remote = remote_options(cache_dir, cache_limit, storage_options, read_timeout, data)
    whole("max_pixels", max_pixels, least=1, most=2**60)
    color = parse_background(background)
    stored = StoredDataset(data, remote, max_pixels, version, split, color)
    dataset = Dataset(Selection((stored,)))
    if not len(dataset):
        raise ConfigError(
            f"{dataset.path} has no samples; pack a source that contains images"
        )
    saved: Dataset = with_saved(dataset)
    if classes_from is None:
        return saved
    # Most programs give no classes.
    from fastpipe.sources.classes_from import class_names

    try:
        names = class_names(classes_from, remote)
    except PackError as problem:  # the source is listed as packing does it
        raise DatasetError(str(problem)) from problem
    return saved._with_classes_from(names)


@refusing_unknown("fastpipe.concat")
def concat(
    *datasets: Dataset | str | os.PathLike[str], labels: str = "union"
) -> Dataset:
    """All samples of some datasets, each once an epoch. Of a mixture it takes each sample once,
    too.

    Args:
        datasets: datasets, as returned by `fastpipe.open`, or what it takes.
        labels: "union": classes of one name are one class; "offset": the classes of each dataset
            come after those of the datasets before it, with its number in front: "0/cat"; "own":
            labels stay those of their dataset, and the field "source" says of which dataset a
            sample is.

    Raises:
        ConfigError: there are no datasets, or a column of with_column is not in all of them.
        DatasetError: as `fastpipe.open`.

    Example:
        >>> fastpipe.concat("data/train", "data/val")
        <fastpipe dataset 'data/train + data/val': 48 samples, 2 classes>
    """
    if not datasets:
        raise ConfigError("concat: expected datasets, got none")
    parts = [as_dataset(data) for data in datasets]
    joined = Dataset._joined(parts, labels)
    _warn_of_similar_classes(joined, parts, labels)
    return joined


@refusing_unknown("fastpipe.mix", _INSTEAD_OF_WEIGHTS, position=_WEIGHTS)
def mix(datasets: Mapping[Any, float], *, labels: str = "union") -> Dataset:
    """A mixture: each batch has rows of each dataset by the weights, each dataset is read at its
    own pace, and all batches are full.

    Args:
        datasets: datasets, as returned by `fastpipe.open`, or what it takes, and the weight of
            each, above 0: {"data/a": 0.7, other: 0.3}. The weight of a dataset that is a mixture
            itself is divided among its shares, in proportion to their own weights.
        labels: as in `fastpipe.concat`.

    Raises:
        ConfigError: a weight is no number above 0, or as `fastpipe.concat`.
        DatasetError: as `fastpipe.open`.

    Example:
        >>> data = fastpipe.mix({"data/train": 0.75, "data/val": 0.25})
        >>> batch = next(iter(fastpipe.loader(data, batch_size=8, size=32, fields=("image", "source"))))
        >>> batch["source"].bincount()  # six rows of the first, two of the second
        tensor([6, 2])
    """
    if not isinstance(datasets, Mapping) or not datasets:
        raise ConfigError(f"mix: expected {{dataset: weight}}, got {datasets!r}")
    parts = [as_dataset(data) for data in datasets]
    weights: list[float] = []
    for (name, weight), part in zip(datasets.items(), parts, strict=True):
        part_weight = positive(f"mix: the weight of {name}", weight)
        # A part that is a mixture itself divides its weight among its own shares.
        inner_weights = part.content.weights
        total = math.fsum(inner_weights)
        for inner_weight in inner_weights:
            weights.append(part_weight * inner_weight / total)
    # So written, a sum that is no number is refused, too.
    weight_sum = sum(weights)
    if not weight_sum < _MAX_TOTAL:
        raise ConfigError(
            f"mix: expected weights with a sum below {_MAX_TOTAL:g}, got {weight_sum:g}; divide "
            "them all by the largest one"
        )

    # Its shares become shares of the whole. `first_ids` has one more: the number of all samples.
    sample_counts = [len(part) for part in parts]
    first_ids = starts_of(sample_counts)
    starts = []
    for part, first_id in zip(parts, first_ids, strict=False):
        starts_of_part = part.content.starts[:-1]
        starts.append(starts_of_part + first_id)
    joined_starts = np.concatenate(starts)
    share_starts = np.append(joined_starts, first_ids[-1])
    dataset = Dataset._joined(parts, labels)
    _warn_of_similar_classes(dataset, parts, labels)
    # A loader's state has the weights; equal proportions are the same mixture.
    total = math.fsum(weights)
    normalised = [round(weight / total, 12) for weight in weights]
    return dataset._with(
        weights=tuple(weights),
        share_starts=share_starts,
        identity={**dataset._selection.identity, "mixture": normalised},
    )


def _warn_of_numbered_classes(parts: Sequence[Dataset]) -> None:
    """Says if datasets have numbers as classes, and not equally many: they may mean other things."""
    first: Dataset | None = None
    for part in parts:
        classes = part.classes
        if not classes or classes != [str(number) for number in range(len(classes))]:
            continue
        if first is None:
            first = part
        elif len(first.classes) != len(classes):
            _LOG.warning(
                "the classes of %s and %s are numbers, %d and %d of them, and are joined by number: "
                "class '0' of both is taken as the same class. If they mean different things: "
                'labels="offset". To name them: fastpipe.open(DATA, classes_from=[NAMES])',
                first.path,
                part.path,
                len(first.classes),
                len(classes),
            )
            return


def _warn_of_similar_classes(
    joined: Dataset, parts: Sequence[Dataset], labels: str
) -> None:
    """Says if datasets write one name in several ways, such as cat and Cat."""
    if labels != "union":
        return
    _warn_of_numbered_classes(parts)
    from fastpipe.sources.folders.doubtful_classes import similar_classes

    for assumption in similar_classes(joined.classes):
        _LOG.warning("%s: %s", joined.path, assumption)


def as_dataset(data: object) -> Dataset:
    """A Dataset as it is; or opens a path or URL."""
    if isinstance(data, Dataset):
        return data
    return open(data)  # type: ignore[arg-type]
