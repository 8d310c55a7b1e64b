"""The arguments of fastpipe.loader() -> a Loader, or an error that says what to pass instead."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from fastpipe.arguments import refusing_unknown
from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.fields import FieldReader
from fastpipe.dataset.format.pixel_form import NO_FORM, PixelForm
from fastpipe.dataset.opening import as_dataset
from fastpipe.dataset.pixels import Pixels
from fastpipe.dataset.saved import check_saved
from fastpipe.dataset.two_packs import check_one_pack
from fastpipe.device.augment import Augment, as_augment
from fastpipe.device.streams import Stream, stream_of
from fastpipe.engine.engine import Engine
from fastpipe.engine.slots import SlotRing
from fastpipe.engine.stats import Stats
from fastpipe.engine.watchdog import Watchdog
from fastpipe.errors import ConfigError, choice, flag, format_count, positive, whole
from fastpipe.loading import notices, pairs
from fastpipe.loading.advice import Settings
from fastpipe.loading.batch_maker import BatchMaker
from fastpipe.loading.dark_images import warn_dark_images, warn_dark_second_images
from fastpipe.loading.default_crops import warn_cropped_objects, warn_cropped_twice
from fastpipe.loading.epoch_lengths import warn_of_short_epochs
from fastpipe.loading.evaluation import describe_random_defaults, warn_of_evaluation
from fastpipe.loading.loader import Loader
from fastpipe.loading.loader_facts import (
    LoaderFacts,
    describe_normalising,
    only_size,
)
from fastpipe.loading.mirrored_sides import warn_mirrored_sides
from fastpipe.loading.missing_shards import check_shards_exist
from fastpipe.loading.objects import check_class_count, names_of_labels, open_objects
from fastpipe.loading.options import (
    View,
    asks_for_images,
    check_together,
    make_field_reader,
    recipe_with_views,
)
from fastpipe.loading.parts_of_images import sampling_of_parts
from fastpipe.loading.prepare import Prepare
from fastpipe.loading.ranks import RankResolver, ranks_per_node
from fastpipe.loading.recipes import RecipeResolver
from fastpipe.loading.samplers import Sampling, parse_sampler
from fastpipe.loading.shared_twice import warn_shared_twice
from fastpipe.loading.tokens import count_tokens
from fastpipe.loading.unknown_arguments import INSTEAD
from fastpipe.loading.user_draws import warn_of_user_draws
from fastpipe.loading.values_of_boxes import warn_of_dropped_boxes
from fastpipe.machine.cpus import count_granted_cpus
from fastpipe.plan.arrays import Arrays
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.content import MAX_ROWS
from fastpipe.plan.crop_options import (
    batch_sizes,
    parse_crop,
    parse_flip_probability,
    parse_whole_images,
)
from fastpipe.plan.crops import Crop, Letterbox, Resize
from fastpipe.plan.epoch import check_image_sizes
from fastpipe.plan.maps import Maps
from fastpipe.plan.option_conflicts import conflict_error
from fastpipe.plan.partition import ALONE
from fastpipe.plan.patches import Patches
from fastpipe.plan.picture_lists import Images
from fastpipe.plan.placed import Boxes, Points
from fastpipe.plan.recipe import MAX_BATCH_SIZE, Recipe
from fastpipe.plan.texts import Text
from fastpipe.plan.whole_images import WholeImages

_WORKERS_HINT = (
    "workers are threads in this process; the default is the number of CPUs granted"
)
_SEED_HINT = (
    "the same seed gives the same batches; the default is 0. For other batches in each run: "
    "seed=torch.initial_seed()"
)
_ON_ERROR_HINT = "'replace' puts another sample in the place of one that cannot be decoded, and counts it"
_PREFETCH_HINT = "the number of batches to make in advance; the default is 2"
_DEFAULT_BATCH_SIZE = 256
_DEFAULT_SIZE = 224  # pixels
_PARTITION_HINT = 'pass "sample", "node" or the number of parts'


@refusing_unknown("fastpipe.loader", INSTEAD)
def loader(
    data: str | os.PathLike[str] | Dataset,
    batch_size: int | None = None,
    *,
    size: int
    | tuple[int, int]
    | str
    | WholeImages
    | Callable[[int], int | tuple[int, int]]
    | None = None,
    size_choices: Sequence[int | tuple[int, int]] | None = None,
    train: bool = True,
    crop: Crop | None = None,
    views: int | Sequence[View] | None = None,
    hflip: bool | float | None = None,
    shuffle: bool | None = None,
    seed: int = 0,
    sampler: Any = None,
    epoch_size: int | str | None = None,
    drop_last: bool | None = None,
    num_workers: int | None = None,
    prefetch_factor: int | None = 2,
    device: str | torch.device | None = None,
    channels: str = "rgb",
    dtype: torch.dtype = torch.uint8,
    augment: Augment | torch.nn.Module | Sequence[torch.nn.Module] | None = None,
    exact: bool = False,
    on_error: str = "raise",
    verify: bool = False,
    fields: Sequence[str | Boxes | Points | Arrays | Images | Maps | Text]
    | Mapping[str, str | Boxes | Points | Arrays | Images | Maps | Text]
    | None = None,
    prepare: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    partition: str | int = "sample",
    stall_timeout: float = 60.0,
) -> Loader:
    """Opens a dataset for training or evaluation.

    Args:
        data: a dataset, as returned by `fastpipe.open`, `fastpipe.concat` or `fastpipe.mix`, or
            what `fastpipe.open` takes.
        batch_size: number of samples in a batch of one rank. None: 256; with a budget
            (fastpipe.Patches(tokens=), Buckets(pixels=)), as many as fit into it.
        size: size of the output in pixels: a number for a square, or (height, width). None: 224. Or
            a function of the epoch's number that returns one, the same for the same epoch. Or
            "bucket" or fastpipe.Buckets(...): whole images in batches of similar shape;
            `image_sizes` and `pixel_mask` of a batch say which pixels are padding; with fit="cover"
            images are cut instead. Or fastpipe.Native(...): whole images, each at a size of its
            own: images are then a list of tensors. Or fastpipe.Patches(...): whole images as the
            patches that a vision transformer reads.
        size_choices: sizes of which each batch has one, selected by the seed, the same on all
            ranks.
        train: True: RandomResizedCrop and mirroring, shuffled, full batches only. False:
            CenterCrop, in shard order, every sample. Ranks have the same number of rows:
            `batch.valid` is False for those that repeat a sample.
        crop: how an image becomes a row: fastpipe.RandomResizedCrop, RandomCrop, CenterCrop, Resize
            or Letterbox; or several, for evaluation: FiveCrop, TenCrop; or all parts of each image, a
            row each: Grid (patches), CropAt (objects). None: `train` decides.
        views: several views of each image, as SimCLR and DINO need them: a number, or fastpipe.View
            objects. Images are then a list by view. None: one view, and no list.
        hflip: mirror images left to right: True (half of them), False, or a probability; None:
            `train` decides, and with size=fastpipe.Native(...) none is mirrored.
        shuffle: a new order in each epoch; None: `train` decides.
        seed: seed of order, crops and flips; whole number in [0, 2**64).
        sampler: which samples an epoch has, and in what order: fastpipe.Weighted, PerClass,
            Repeated or Sequential; a torch Sampler, whose random draws then follow from `seed` and
            the epoch; or a function of the epoch's number that returns numbers of samples, the same
            on all ranks. None: each sample once.
        epoch_size: samples in an epoch of all ranks together; the next epoch continues where it
            ends. None: the number of samples. In a mixture also "smallest" (None) or "largest": to
            the end of the first, or last, dataset.
        drop_last: leave out a last batch that is not full on all ranks; None: `train` decides.
        num_workers: C++ threads; None: the CPUs granted to this process by affinity and cgroup
            quota, divided by the ranks on this machine that are known now. 0, which tells a
            DataLoader to start no process, is 1 here.
        prefetch_factor: number of batches to make in advance, at least 1; None: 2.
        device: device of the batches: "cpu" (None), "cuda", "cuda:1", "xpu", "mps", or that of an
            extension of torch. "cuda" is the current GPU; if that is cuda:0 and a launcher set
            LOCAL_RANK, the GPU of that number.
        channels: channels of the images, which are converted as Pillow's `convert` does: "rgb";
            "gray", the luma, 1 channel; "rgba", 4 channels, where images without alpha are opaque;
            or "own", as they are stored: then all samples need the same number of channels. Gray
            with alpha has 4.
        dtype: dtype of the images: torch.uint8, 0 to 255; torch.uint16, 0 to 65535; or
            torch.float32, 0 to 1, of 16 bits where any sample has them. `augment` gets this, and
            decides on the dtype of its output.
        augment: the augmentation of each batch on the device: a fastpipe.Augment; or modules, for
            example kornia's, one or a list of them: fastpipe.Augment(modules), which also
            normalises. None: images stay as they are.
        exact: True: always decode at full size. False: random crops of at least twice the output's
            size in both directions are decoded at 1/2, 1/4 or 1/8 of the size, which is faster and
            changes pixels a little.
        on_error: if a sample cannot be read or decoded: "raise" a SampleError, or "replace" the
            sample by another one with its own label, which the seed selects. Too little memory, and
            an image that has too many pixels or is too small for a RandomCrop, are always errors;
            `data.select` leaves such images out.
        verify: True: compare the hashes of samples while reading, and of dataset.json, index.npy
            and the columns of `fields`. A sample with another hash cannot be decoded; a file with
            another one is a DatasetError. Without this, a changed bit may give wrong pixels or
            labels. What is not packed has no hashes.
        fields: names of the dataset's fields, and "image", "label", "id", "key", "source", "valid",
            "epoch": a batch is a dict with these keys. "crop_box", "mirrored" and "original_size"
            say how an image became its row. With size="bucket" also "image_size" and "pixel_mask",
            with mixup or cutmix "mix_index" and "mix_lam". Boxes, points, masks and maps move
            with the image; fastpipe.Boxes, Points, Arrays, Images, Maps and Text are names with
            options. Or a dict, for keys with other names: {"pixel_values": "image"}. None: a batch
            is (images, labels).
        prepare: a function of the entries of a batch of `fields`, all but images, masks, maps and
            arrays. It returns a dict of entries to add or to replace, such as tokens. It is called
            once a batch, ahead of the training loop, in one thread of its own. Its result must
            depend on the entries alone, so that a resumed run gets the same batches: for random
            draws, the entry "seeds", (N,) uint64, has a seed for each sample, of (seed, epoch,
            sample).
        rank, world_size: number of this process, and number of processes that train together and
            share each epoch; None: the values that torch.distributed has when an epoch begins if it
            is initialised, else 0 of 1.
        partition: "sample": all ranks share all samples of each global batch. "node": the ranks of
            a node share the node's own part of the dataset. Or the number of parts: the same number
            gives the same global batches on any number of nodes that divides it.
        stall_timeout: seconds without a batch after which the log says which thread is stuck, and
            where. After ten times as long the loader raises an EngineError.

    Returns:
        A Loader: iterate over it to get (images, labels), or a dict of the fields.

    Raises:
        ConfigError: an argument is wrong.
        DatasetError: `data` holds no finished dataset, and no images.

    Example:
        >>> train = fastpipe.loader("data/train", batch_size=8, size=32)
        >>> images, labels = next(iter(train))
        >>> images.shape, images.dtype, labels.shape
        (torch.Size([8, 3, 32, 32]), torch.uint8, torch.Size([8]))
        >>> normalise = fastpipe.Augment.imagenet()
        >>> val = fastpipe.loader("data/val", batch_size=8, size=32, train=False, augment=normalise)
        >>> sum(len(labels) for images, labels in val)
        24
    """
    # First everything that needs no dataset: opening one may take long.
    flag("train", train)
    ranks = RankResolver(rank, world_size)
    known_ranks = ranks.known() or ALONE
    if partition not in ("sample", "node"):
        partition = whole(
            "partition", partition, least=1, most=2**20, hint=_PARTITION_HINT
        )
    cpus = max(1, count_granted_cpus() // ranks_per_node(known_ranks))
    workers = _parse_workers(num_workers, cpus)
    if prefetch_factor is None:
        prefetch_factor = 2
    prefetch_factor = whole(
        "prefetch_factor", prefetch_factor, least=1, most=1024, hint=_PREFETCH_HINT
    )
    flag("exact", exact)
    flag("verify", verify)
    choice("on_error", on_error, ("raise", "replace"), hint=_ON_ERROR_HINT)
    stall_s = positive("stall_timeout", stall_timeout)
    notices.warn_bound_process()
    if prepare is not None and not callable(prepare):
        raise ConfigError(
            f"prepare: expected a function, got {_describe_no_function(prepare)}"
        )
    if prepare is not None and fields is None:
        raise ConfigError(
            "prepare= needs fields=: the function gets the fields of a batch as a dict. Add "
            'fields=("image", "label")'
        )

    stream = stream_of(device)
    pixels = Pixels(channels, dtype)
    with_images = fields is None or asks_for_images(fields)
    augmentation = None
    if augment is not None:
        augmentation = as_augment(augment)
    elif with_images:
        augmentation = pixels.augment
    shuffled = train
    if shuffle is not None:
        shuffled = flag("shuffle", shuffle)
    has_size = size is not None or size_choices is not None or views is not None
    if size is None and size_choices is None:
        size = _DEFAULT_SIZE
    whole_images = parse_whole_images(size, size_choices, crop, train=train)
    buckets = whole_images if isinstance(whole_images, Buckets) else None
    sizes = None
    if buckets is not None:
        height_width = buckets.largest
    elif whole_images is not None:
        height_width = (1, 1)  # not used: each row has a size of its own
    else:
        height_width, sizes = batch_sizes(size, size_choices, crop, train=train)
    has_own_sizes = whole_images is not None and whole_images.has_own_sizes
    budget = None if whole_images is None else whole_images.budget
    # Views may have sizes of their own, with which their crops are checked later. Until then any
    # crop has to pass.
    crop_size = height_width if views is None else (1, 1)
    drops_last = train
    if drop_last is not None:
        drops_last = flag("drop_last", drop_last)
    recipe_with = partial(
        Recipe,
        batch_size=_parse_batch_size(batch_size, budget),
        size=height_width,
        crop=whole_images or parse_crop(crop, crop_size, train=train),
        flip=parse_flip_probability(hflip, train=train and not has_own_sizes),
        shuffle=shuffled,
        drop_last=drops_last,
        seed=whole("seed", seed, least=0, most=2**64 - 1, hint=_SEED_HINT),
        sizes=sizes,
    )

    # The dataset, and what has to go together with it.
    dataset = as_dataset(data)
    _refuse_sample_format(dataset)
    if with_images:
        _refuse_without_images(dataset)
    form = pixels.form(dataset)
    parsed_epoch_size = _parse_epoch_size(epoch_size, dataset)
    recipe = recipe_with(content=dataset.content, epoch_size=parsed_epoch_size)
    if isinstance(whole_images, Patches):
        if views is not None:
            raise conflict_error("patches + pictures", "views")
        recipe = count_tokens(recipe, dataset, whole_images, fields)
    augments: tuple[Augment | None, ...] = (augmentation,)
    if views is not None:
        recipe, augments = recipe_with_views(views, recipe, augmentation, train=train)
    if not with_images and any(augment is not None for augment in augments):
        raise conflict_error("augment + fields without images")
    recipe = replace(recipe, objects=open_objects(dataset, recipe))
    sampling = parse_sampler(sampler, dataset, shuffle=shuffled, seed=recipe.seed)
    box_names = names_of_labels(dataset.index, recipe.crop)
    if recipe.crop.is_per_part:
        order_options = {
            "sampler": sampler,
            "epoch_size": epoch_size,
            "partition": partition,
            "on_error": on_error,
        }
        sampling = sampling_of_parts(recipe, order_options)
    labelled = sampling.labelled or box_names is not None
    check_together(dataset, recipe, augments, form, labelled=labelled)
    check_class_count(box_names, recipe.crop, augments)
    if sampling.ordered and shuffle:
        raise conflict_error("shuffle + ordered sampler", type(sampler).__name__)
    if sampling.listed is not None and epoch_size is not None:
        raise conflict_error("epoch_size + listing sampler")
    _check_grouping(recipe, sampling, partition)

    # The recipe for the ranks that are known now, to find errors before training starts.
    resolver = RecipeResolver(ranks, recipe, sampling, partition)
    recipe = resolver.current()
    check_image_sizes(recipe)
    for stored in dataset.stored:
        notices.warn_shared_by_nodes(stored.index, known_ranks, partition)
        notices.warn_unpacked(stored.index)
        if verify:
            check_saved(stored.index)
    check_one_pack(stored.index for stored in dataset.stored)
    check_shards_exist(dataset, replace_bad=on_error == "replace")
    reader = make_field_reader(dataset, recipe, augments, fields, form)

    # All options are checked: now the memory, and the engine, which starts its threads.
    stats = Stats()
    slots = _make_slots(recipe, form, stream, prefetch_factor, exact=exact)
    engine = Engine(
        dataset.index,
        workers,
        verify=verify,
        fields=_names_of_columns(recipe, reader),
        with_images=with_images,
    )
    prepared = None
    if prepare is not None and reader is not None:
        prepared = Prepare(prepare, reader.read, stats, recipe.seed)
    maker = BatchMaker(
        dataset.index,
        engine,
        slots,
        stats,
        Watchdog(stall_s, dataset.index, engine.activities),
        form,
        replace_bad=on_error == "replace",
        fields=reader,
        prepare=prepared,
        with_images=with_images,
        array_rings=_make_array_rings(reader, stream, prefetch_factor),
    )
    settings = Settings(
        workers,
        cpus,
        stream.device.type,
        exact=all(is_exact for _, is_exact in slots),
        compiled=any(augment is not None and augment.compiled for augment in augments),
        packed=dataset.index.packed,
        remote=engine.reader is not None,
    )
    facts = LoaderFacts(
        dataset,
        train,
        with_images,
        describe_normalising(augments[0]),
        only_size(recipe),
        describe_random_defaults(
            dataset, recipe, has_crop=crop is not None, has_hflip=hflip is not None
        ),
    )
    new_loader = Loader(
        dataset,
        resolver,
        maker,
        stream,
        augments,
        settings,
        prefetch_factor,
        _OPTION_NAMES,
        facts,
    )
    pairs.add_loader(facts)
    is_ordered = shuffle is False and crop is None and with_images
    warn_of_evaluation(
        dataset,
        recipe,
        augments,
        train=train,
        is_ordered=is_ordered and not whole_images,
    )
    is_shared_twice = warn_shared_twice(dataset, known_ranks)
    # The epochs of a part of the share are short for this reason.
    if train and not is_shared_twice:
        warn_of_short_epochs(dataset, recipe, epoch_size)
    notices.warn_small_area(dataset, whole_images)
    notices.warn_ordered_list(sampler, train=train, shuffle=shuffle)
    if with_images and crop is None and views is None and not whole_images:
        warn_cropped_twice(augments, train=train)
        if not train and reader is not None:
            warn_cropped_objects(dataset, reader.names)
    is_cropped = not whole_images and not isinstance(crop, (Resize, Letterbox))
    if with_images and is_cropped and reader is not None:
        warn_of_dropped_boxes(dataset, reader.requests)
    if with_images:
        notices.warn_swapped_size(dataset, size)
        if not has_size:
            notices.warn_small_images(dataset, _DEFAULT_SIZE)
        if views is None and whole_images is None:
            notices.warn_shrunk_images(dataset, height_width)
        if hflip is None and not views and recipe.flip:
            names = None if reader is None else reader.names
            warn_mirrored_sides(dataset, names)
        warn_dark_images(dataset, form)
        if reader is not None:
            warn_dark_second_images(dataset, reader.names, form)
    warn_of_user_draws(prepare, size, augments)
    if fields is None and box_names is None:
        notices.warn_no_labels(dataset)
        notices.warn_some_without_label(dataset)
    return new_loader


_OPTION_NAMES = tuple(inspect.signature(loader).parameters)


def _describe_no_function(value: object) -> str:
    """What the user has passed as `prepare`, and what to pass."""
    if isinstance(value, (list, tuple)) and value and all(map(callable, value)):
        if len(value) == 1:
            return "a list of one function; pass the function"
        return f"a list of {len(value)} functions; pass one function that calls them in turn"
    return repr(value)


def _parse_batch_size(batch_size: int | None, budget: int | None) -> int:
    """The number of samples in a batch; with a budget, the most that it has."""
    if batch_size is None:
        batch_size = _DEFAULT_BATCH_SIZE if budget is None else MAX_BATCH_SIZE
    return whole("batch_size", batch_size, least=1, most=MAX_BATCH_SIZE)


def _parse_workers(num_workers: int | None, cpus: int) -> int:
    if num_workers is None:
        num_workers = cpus
    workers = whole("num_workers", num_workers, least=0, most=1024, hint=_WORKERS_HINT)
    if workers > 0:
        return workers
    # 0 is usual for a DataLoader, where it means no worker processes. Here one thread is the least.
    notices.warn_one_thread(cpus)
    return 1


def _refuse_sample_format(dataset: Dataset) -> None:
    """Raises ConfigError if a dataset has a form of single samples, which batches would not have."""
    methods = dataset.sample_format.list_methods()
    if methods:
        raise ConfigError(
            f"data: {' and '.join(methods)} changes single samples, and a loader's batches would "
            "not have it. Pass augment=, size=, crop=, channels= or fields= to fastpipe.loader; or "
            "use torch.utils.data.DataLoader(data)"
        )


def _refuse_without_images(dataset: Dataset) -> None:
    """Raises ConfigError if samples have no image, and batches should."""
    if NO_FORM not in dataset.index.form_counts:
        return
    missing = int((dataset["width"] == 0).sum())
    if not missing:
        return
    lists = []
    for name, field in dataset.fields.items():
        if field.kind == "images":
            lists.append(name)
    names = lists or list(dataset.fields) or ["label"]
    raise ConfigError(
        f"{dataset.path}: {format_count(missing, 'sample')} of {len(dataset):,} have no image of "
        f'their own. Pass fields= without "image", such as fields={names[:2]}; or leave these '
        "samples out: data.select(lambda columns: columns['width'] > 0)"
    )


def _parse_epoch_size(epoch_size: int | str | None, data: Dataset) -> int | str | None:
    # An epoch of a mixture has no number of samples of its own: it ends with one of its datasets.
    if data.content.mixed and (epoch_size is None or isinstance(epoch_size, str)):
        return choice("epoch_size", epoch_size or "smallest", ("smallest", "largest"))
    if epoch_size is None:
        return None
    return whole("epoch_size", epoch_size, least=1, most=MAX_ROWS)


def _check_grouping(recipe: Recipe, sampling: Sampling, partition: str | int) -> None:
    """Raises ConfigError if two options say which samples share a batch."""
    if recipe.crop.budget is not None:
        if partition != "sample":
            raise conflict_error("budget + partition", f"partition={partition!r}")
        if sampling.by_class is not None:
            raise conflict_error("budget + PerClass")
    if isinstance(recipe.crop, Buckets) and sampling.by_class is not None:
        raise conflict_error("buckets + PerClass")


def _names_of_columns(recipe: Recipe, reader: FieldReader | None) -> tuple[str, ...]:
    """The fields that batches have or that decide about them, each once."""
    names = list(recipe.objects)
    if isinstance(recipe.crop, Patches) and recipe.crop.text_tokens is not None:
        names.append(recipe.crop.text_tokens)
    if reader is not None:
        names += reader.names
    return tuple(dict.fromkeys(names))


def _make_array_rings(
    reader: FieldReader | None, stream: Stream, prefetch_factor: int
) -> dict[str, SlotRing]:
    """The memory of each field of arrays, by name."""
    if reader is None:
        return {}
    keep = _kept_slots(stream, prefetch_factor)
    return {name: SlotRing((0, 0), keep, stream.slot) for name in reader.arrays}


def _kept_slots(stream: Stream, prefetch_factor: int) -> int:
    """How many idle buffers a ring keeps."""
    # One buffer is with the user or on its way to the device, one holds the batch that is handed
    # out, and the others are being filled.
    return prefetch_factor + 2 + stream.lookahead


def _make_slots(
    recipe: Recipe,
    form: PixelForm,
    stream: Stream,
    prefetch_factor: int,
    *,
    exact: bool,
) -> list[tuple[SlotRing, bool]]:
    """The batch buffers of each view, and whether the view is decoded exactly."""
    keep = _kept_slots(stream, prefetch_factor)
    slots = []
    for view in recipe.views:
        height, width = view.size or recipe.size
        batch_size = recipe.batch_size
        if view.crop.budget is not None:
            batch_size = min(batch_size, max(1, view.crop.budget // (height * width)))
        shape = (batch_size * view.crop.rows, height, width, form.channels)
        if view.crop.has_own_sizes:
            shape = (0, 1, 1, form.channels)  # grows with the first batches
        ring = SlotRing(shape, keep, stream.slot, form.dtype)
        is_exact = exact or not view.crop.may_be_reduced
        slots.append((ring, is_exact))
    return slots
