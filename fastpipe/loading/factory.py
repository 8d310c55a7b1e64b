"""The arguments of fastpipe.loader() -> a Loader, or an error that says what to pass instead."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray

from fastpipe.augment import Augment, as_augment
from fastpipe.checks import choice, flag, positive, whole
from fastpipe.device.streams import stream_of
from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import ConfigError
from fastpipe.format.folder import Url
from fastpipe.format.index import Index
from fastpipe.format.mixed_index import MixedIndex
from fastpipe.loading.choice import Choice
from fastpipe.loading.field_options import check_labelled, check_together, field_reader
from fastpipe.loading.loader import Loader
from fastpipe.loading.options import batch_sizes, buckets_of, checked_crop, flip_probability
from fastpipe.loading.ranks import Recipes, World, in_nodes, ranks_per_node
from fastpipe.loading.unknown import refuse
from fastpipe.loading.views import View, recipe_of_views
from fastpipe.machine.cpus import granted_cpus
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.content import ALL
from fastpipe.plan.crops import Crop
from fastpipe.plan.partition import ALONE, Ranks
from fastpipe.plan.placed import Boxes, Points
from fastpipe.plan.recipe import Recipe, batches_per_epoch
from fastpipe.remote.options import remote_options
from fastpipe.scan.opening import open_data

_LOG = logging.getLogger("fastpipe")

_WORKERS_HINT = "workers are threads in this process: the minimum is 1, the default is the number of CPUs granted"
_PREFETCH_HINT = "the number of batches to make in advance; the default is 2"


def loader(
    data: str | os.PathLike[str] | Mapping[str, float],
    batch_size: int = 256,
    *,
    size: int | tuple[int, int] | str | Buckets | Callable[[int], int | tuple[int, int]] = 224,
    size_choices: Sequence[int | tuple[int, int]] | None = None,
    train: bool = True,
    crop: Crop | None = None,
    views: int | Sequence[View] | None = None,
    hflip: bool | float | None = None,
    shuffle: bool | None = None,
    seed: int = 0,
    samples: Sequence[int] | NDArray[Any] | torch.Tensor | None = None,
    classes: Sequence[str] | None = None,
    labels: str | None = None,
    limit: float | None = None,
    kfold: tuple[int, int] | None = None,
    weights: Mapping[str, float] | Sequence[float] | NDArray[Any] | torch.Tensor | None = None,
    replacement: bool = True,
    repeats: int = 1,
    epoch_size: int | str | None = None,
    drop_last: bool | None = None,
    num_workers: int | None = None,
    prefetch_factor: int = 2,
    device: str | torch.device | None = None,
    augment: Augment | torch.nn.Module | Sequence[torch.nn.Module] | None = None,
    exact: bool = False,
    on_error: str = "raise",
    verify: bool = False,
    fields: Sequence[str | Boxes | Points] | Mapping[str, str | Boxes | Points] | None = None,
    prepare: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    max_pixels: int = MAX_PIXELS,
    rank: int | None = None,
    world_size: int | None = None,
    partition: str = "sample",
    canonical_nodes: int | None = None,
    stall_timeout: float = 60.0,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_limit: int | str = "200GB",
    storage_options: Mapping[str, Any] | None = None,
    read_timeout: float = 20.0,
    **unknown: object,
) -> Loader:
    """Opens a dataset for training or evaluation.

    Args:
        data: the folder that `fastpipe pack` wrote, or its URL: s3://, gs://, az://, http(s):// or
            hf://datasets/ORG/NAME/FOLDER. Or, for a first try, what is not packed: a folder with one folder
            of images for each class, a folder of images, a tar file, a folder of tar files, or a pattern of tars
            ("shards/*.tar"). That is slower: docs/quickstart.md. Or a mixture of these: {"data/a": 0.7, "data/b": 0.3}.
            Each batch then has rows of each dataset by these weights, and all batches are full.
        batch_size: number of samples in a batch of one rank.
        size: size of the output in pixels: a number for a square, or (height, width). Or a function of the epoch's
            number that returns one, for progressive resizing; it must give the same size for the same epoch. See also
            `Loader.set_size`. Or "bucket": whole images in their own aspect ratio, of about 224 * 224 pixels, in
            batches of images of like shape; the batch's `image_sizes` and `pixel_mask` say which pixels are padding.
            fastpipe.Buckets has options for it: Buckets(area=512 * 512), Buckets(min_size=800, max_size=1333).
        size_choices: sizes of which each batch has one, for training at several scales. The seed selects it, the same
            on all ranks.
        train: True: RandomResizedCrop and mirroring, shuffled, full batches only.
            False: CenterCrop, in shard order, every sample. With several ranks the last batch may then contain samples
            twice, so that all ranks have the same number of rows; `batch.valid` is False for the repeated rows.
        crop: how an image becomes a row: fastpipe.RandomResizedCrop, RandomCrop, CenterCrop, Resize or Letterbox; or
            several, for evaluation: FiveCrop, TenCrop. None: `train` decides.
        views: several views of each image, as SimCLR, BYOL, DINO and SwAV need them: a number, or fastpipe.View
            objects, each with its own size, crop, hflip and augment. A batch is then (list of images by view, labels),
            and the dict of `fields` has the list as "image", and such lists of boxes, points, masks and second images.
            None: one view, and no list.
        hflip: mirror images left to right: True (half of them), False, or a probability; None: `train` decides.
        shuffle: a new order in each epoch; None: `train` decides.
        seed: seed of order, crops and flips; whole number in [0, 2**64).
        samples: which samples of the dataset: their keys or their numbers, each once, or a mask with True or False for
            each sample. Numbers mean other samples when the dataset is packed again; keys, the paths of the sources,
            do not: fields=("image", "label", "key"). Without shuffle they come in this order. None: all.
        classes: names of the classes to read; None: all.
        labels: with `classes`: "renumber" (None): a label is the position in `classes`; "keep": it stays that of the
            dataset. In a mixture: "union" (None): classes of one name are one class; "offset": the classes of each
            dataset come after those of the datasets before it; "own": labels stay those of their dataset, and
            fields=("image", "label", "source") says of which.
        limit: read only this fraction of the samples, the same in each epoch and for each seed. A hash of each source
            file decides, so a smaller fraction is a part of a larger one.
        kfold: (folds, fold): the dataset is divided into `folds` parts. With train=True all but part `fold` are read,
            with train=False only this part. A hash of each source file decides, so the same file is never in two parts,
            packed in whatever way, or not packed; there the first loader reads 12 kB of each file for it.
        weights: samples are drawn by these: {class name: weight} or {key: weight}, where others have 1, or one weight
            for each sample of the dataset, by number. `fastpipe.balanced(index)` gives each class the same share.
        replacement: with `weights`: False: no sample is drawn twice in an epoch. It needs `epoch_size`.
        repeats: each sample comes so often in a row, each time with another crop and augmentation, on different ranks.
            An epoch then has a part of the samples.
        epoch_size: samples in an epoch of all ranks together, with repeats; the next epoch continues where it ends.
            None: the number of samples. In a mixture: a number; "smallest" (None): until the first dataset has come to
            its end; "largest": until the last one has.
        drop_last: leave out a last batch that is not full on all ranks; None: `train` decides.
        num_workers: C++ threads; None: the CPUs granted to this process by affinity and cgroup quota, divided by the
            ranks on this machine that are known now (LOCAL_WORLD_SIZE, which torchrun sets; without it, all ranks).
        prefetch_factor: number of batches to make in advance, at least 1.
        device: device of the batches: "cpu" (None), "cuda", "cuda:1". For a GPU, the loader makes batches in pinned
            memory, copies them as uint8 and augments them on a separate stream, one batch ahead of the training loop.
            "cuda" is the current GPU; if that is cuda:0 and a launcher set LOCAL_RANK, the GPU of that number.
        augment: the augmentation of each batch on the device: modules, for example kornia's, one or a list of them,
            or a fastpipe.Augment. Modules mean fastpipe.Augment(modules), so the result is normalised with ImageNet's
            mean and standard deviation. In kornia's AugmentationSequential(..., data_keys=["input", "mask",
            "bbox_xyxy", "keypoints"]), they move masks, boxes and points with the images. None: batches stay uint8.
        exact: True: always decode at full size. False: random crops of at least twice the output's size in both
            directions are decoded at 1/2, 1/4 or 1/8 of the size, which is faster and changes pixels a little.
            All other crops are always exact, and so is evaluation.
        on_error: if a sample cannot be read or decoded: "raise" a SampleError, or "replace" the sample by another one
            with its own label. The seed selects the other sample, and stats() counts it. If there is not enough memory
            for a sample, the loader always raises an EngineError. An image that has too many pixels, or is too small
            for a RandomCrop, is always an error, too, when the loader is made; `samples` leaves it out.
        verify: True: while reading, compare the hash of each sample's bytes with the packed hash. Without this, a
            changed bit may give wrong pixels. A sample with another hash counts as a sample that cannot be decoded.
            dataset.json, index.npy and the columns of `fields` are compared, too, for a label may have changed. One of
            these is always a DatasetError: at once, or, if they have over 256 MB, before the epoch's last batch.
        fields: what a batch contains: it is a dict with these keys, in this order. "image", "label", "id" (the sample's
            number in this packing), "key" (the path of its source), "valid" (rows that count), "epoch", and names of
            the dataset's fields. With size="bucket" also "image_size" and "pixel_mask"; with mixup or cutmix
            "mix_index", the row that is mixed into each row, and "mix_lam", the share of its own image. Boxes and
            points are cropped, resized and mirrored with the image, as in torchvision's v2; in place of a name,
            fastpipe.Boxes("boxes", form="pad") and fastpipe.Points("joints", flip_pairs=[(1, 2)]) say how. Or a dict,
            for keys with other names: {"pixel_values": "image", "labels": "label"}. None: a batch is (images, labels).
        prepare: a function of the entries of a batch of `fields` that are on the host: labels, ids, keys, texts and
            numbers (numpy arrays and lists), boxes and points (lists of arrays, before the augmentation moves them and
            small boxes are dropped). It returns a dict of entries to add or to replace, such as tokens. Tensors and
            arrays go to the device with the batch, all else stays as it is. It is called once a batch, ahead of the
            training loop, in one thread of its own. Its result must depend on nothing else, so that a resumed run gets
            the same batches.
        max_pixels: largest number of pixels of one stored image: a larger image is a DatasetError before memory is
            allocated for it. A dataset that was packed with a larger --max-pixels needs the same value here.
        rank, world_size: number of this process, and number of processes that train together and share each epoch;
            None: the values that torch.distributed has when an epoch begins if it is initialised, else 0 of 1.
        partition: "sample": all ranks share all samples of each global batch; over the epochs every node reads the
            whole dataset. "node": the ranks of a node share the samples of the node's own part of the dataset, and
            read nothing else.
        canonical_nodes: number of parts into which partition="node" divides the dataset; the same number gives the same
            global batches on any number of nodes that divides it. None: the number of nodes.
        stall_timeout: seconds without a batch after which the log says which thread is stuck, and where. After ten
            times as long the loader raises an EngineError.
        cache_dir: for a URL, as all that follow: the folder, on a disk of this machine, that keeps what has been
            fetched. All processes of the machine share it. None: shards in $FASTPIPE_CACHE, $XDG_CACHE_HOME/fastpipe or
            ~/.cache/fastpipe. Where no data is behind a URL, these four are refused.
        cache_limit: for a URL: the most that the folder may take on the disk, in bytes or as text: "200GB". If the
            dataset is larger, a part of it stays in the cache, and the rest is fetched in each epoch. 0: no shard is
            kept.
        storage_options: for a URL: options of obstore's store: {"region": "eu-west-1"}, {"skip_signature": True} for a
            public bucket, {"endpoint": "https://..."}. None: as the cloud's own tools find them.
        read_timeout: for a URL: seconds without a byte after which a request is made again. After 9 times as long
            without success the loader raises a DatasetError.

    Returns:
        A Loader: iterate over it to get (images, labels), or a dict of the fields.

    Raises:
        ConfigError: an argument is wrong.
        DatasetError: `data` holds no finished dataset, and no images.
    """
    refuse(unknown, [name for name in inspect.signature(loader).parameters if name != "unknown"])
    flag("train", train)
    buckets = buckets_of(size, size_choices, crop)
    if buckets is not None:
        height_width, sizes = buckets.largest, None
    else:
        height_width, sizes = batch_sizes(size, size_choices, crop, train=train)
    world = World(rank, world_size)
    everyone = world.known() or ALONE
    if choice("partition", partition, ("sample", "node")) == "sample" and canonical_nodes is not None:
        raise ConfigError(
            f'canonical_nodes={canonical_nodes!r} works only with partition="node"; pass '
            'partition="node", or leave canonical_nodes out'
        )
    shuffled = train if shuffle is None else flag("shuffle", shuffle)
    recipe = Recipe(
        batch_size=whole("batch_size", batch_size, least=1, most=2**20),
        size=height_width,
        crop=buckets or checked_crop(crop, height_width if views is None else (1, 1), train=train),  # views have sizes
        flip=flip_probability(hflip, train=train),
        shuffle=shuffled,
        drop_last=train if drop_last is None else flag("drop_last", drop_last),
        seed=whole("seed", seed, least=0, most=2**64 - 1),
        sizes=sizes,
    )
    stream = stream_of(device)
    augmentation = None if augment is None else as_augment(augment)
    augmentations: tuple[Augment | None, ...] = (augmentation,)
    if views is not None:
        recipe, augmentations = recipe_of_views(views, recipe, augmentation, train=train)
    check_together(recipe, augmentations, mixed=isinstance(data, Mapping))
    cpus = max(1, granted_cpus() // ranks_per_node(everyone))
    # Checked before the dataset is opened, which may take long.
    workers = whole("num_workers", cpus if num_workers is None else num_workers, least=1, most=1024, hint=_WORKERS_HINT)
    ahead = whole("prefetch_factor", prefetch_factor, least=1, most=1024, hint=_PREFETCH_HINT)
    flag("exact", exact)
    flag("verify", verify)
    choice("on_error", on_error, ("raise", "replace"))
    patience_s = positive("stall_timeout", stall_timeout)
    mixture = data if isinstance(data, Mapping) else None
    if mixture is not None:
        from fastpipe.loading.mixing import mixed_index, mixed_recipe, weights_of  # most programs read one dataset

        mixed_weights = weights_of(mixture)
    sources = [data] if mixture is None else list(mixture)
    remote = remote_options(cache_dir, cache_limit, storage_options, read_timeout, *sources)
    parts = [
        open_data(
            each,
            max_pixels=whole("max_pixels", max_pixels, least=1, most=65535 * 65535),
            remote=remote,
            fields=fields,
        )
        for each in sources
    ]
    index = parts[0] if mixture is None else mixed_index(parts, labels)
    chosen = Choice(samples, classes, labels, limit, kfold, weights, replacement, repeats, epoch_size)
    if mixture is not None:
        assert isinstance(index, MixedIndex)
        recipe = mixed_recipe(index, recipe, mixed_weights, chosen, train=train)
    elif not chosen.everything:
        from fastpipe.loading.content_options import content_of  # most programs read everything

        recipe = replace(recipe, content=content_of(index, chosen, train=train, shuffle=shuffled))
    recipes = Recipes(world, partial(_shared, index, recipe, partition, canonical_nodes))
    for part in parts:
        if isinstance(part.path, Url):
            _tell_nodes(part, everyone, partition)
        if not part.packed:
            check_unpacked(part, verify=verify)
    if augmentations[0] is not None and not isinstance(weights, Mapping):  # they draw no sample without a label
        check_labelled(index, recipe.content, augmentations[0])
    if prepare is not None and (fields is None or not callable(prepare)):
        raise ConfigError(
            f"prepare: expected a function, got {prepare!r}"
            if fields is not None
            else 'prepare= adds entries to batches that are dicts; say what they have, fields=("image", "label", ...)'
        )
    reader = field_reader(index, recipe, augmentations, fields)
    return Loader(
        index,
        recipes,
        num_workers=workers,
        cpus=cpus,
        prefetch_factor=ahead,
        stream=stream,
        augments=augmentations,
        exact=exact,
        on_error=on_error,
        stall_timeout_s=patience_s,
        verify=verify,
        fields=reader,
        prepare=prepare,
    )


def _tell_nodes(index: Index, everyone: Ranks, partition: str) -> None:
    """Says what sharing all samples costs where every node has to fetch them; one rank says it."""
    nodes = everyone.world_size // ranks_per_node(everyone)
    if partition == "sample" and nodes > 1 and everyone.rank == 0:
        _LOG.warning(
            '%s is read by %d nodes with partition="sample": over the epochs each of them fetches the whole dataset, '
            '%s GB, into a cache of its own. If each is to fetch its part only: fastpipe.loader(..., partition="node")',
            index.path,
            nodes,
            f"{int(index.shard_sizes.sum()) / 1e9:,.1f}",
        )


def _shared(index: Index, recipe: Recipe, partition: str, canonical_nodes: object, everyone: Ranks) -> Recipe:
    """The recipe where these ranks share epochs, see Note [partition]; ConfigError if a batch or node gets nothing."""
    ranks, sequences = in_nodes(everyone, canonical_nodes) if partition == "node" else (everyone, 1)
    recipe = replace(recipe, ranks=ranks, sequences=sequences)
    if len(index) == 0:
        raise ConfigError(f"{index.path} has no samples; pack a source that contains images")
    content, world, rows = recipe.content, everyone.world_size, recipe.batch_size * everyone.world_size
    whose = str(index.path) if content is ALL else f"an epoch of what was chosen of {index.path}"
    if content.weighting is not None:
        from fastpipe.loading.weight_options import check_distinct  # as above

        check_distinct(content, sequences)
    if batches_per_epoch(len(index), recipe) == 0:
        needs = f", and a global batch of {world} ranks needs {rows}" if world > 1 else ""
        raise ConfigError(
            f"batch_size={recipe.batch_size} with drop_last=True gives no full batch: {whose} has "
            f"{content.size(len(index))} samples{needs}. Pass a smaller batch_size, or drop_last=False"
        )
    if rows % sequences:
        raise ConfigError(
            f"batch_size={recipe.batch_size}: batch_size times world_size={world} must be a multiple of the "
            f"{sequences} canonical nodes, because each node gives the same number of samples to a batch"
        )
    counts = [content.size(len(index)), content.count(len(index))] if recipe.mixture is None else recipe.mixture.counts
    if min(counts) < sequences:
        raise ConfigError(
            f"{whose} has {min(counts)} samples{' of one dataset' if recipe.mixture else ''}, fewer than the "
            f'{sequences} canonical nodes; pass partition="sample"'
        )
    return recipe


_told: set[str] = set()


def check_unpacked(index: Index, *, verify: bool) -> None:
    """Says once a source, in the log "fastpipe", that it is not packed.

    Args:
        index: of an unpacked source.
        verify: the loader is to compare hashes.

    Raises:
        ConfigError: it is, and there are none.
    """
    if verify:
        raise ConfigError(
            f"verify=True compares each sample with the hash that `fastpipe pack` recorded, and {index.path} is not "
            "packed. Leave verify out: reading a file compares its size and time with those of the scan"
        )
    if index.fingerprint not in _told:
        _told.add(index.fingerprint)
        _LOG.warning("%s", gain(index))


def gain(index: Index) -> str:
    """What packing would change."""
    converted = int(index.counts["converted"])
    text = f"{index.path} is not packed: its {len(index):,} images are read where they lie."
    if converted:
        text += (
            f" {converted:,} of them are no baseline JPEGs, so they are converted again in each epoch, which takes "
            "several times as long as decoding."
        )
    return (
        f"{text} `fastpipe pack` stores all of them once, so that a loader decodes only the part of an image that it "
        "needs, reads the disk in large pieces, and checks the bytes; docs/performance.md has measurements"
    )
