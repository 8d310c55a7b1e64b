"""Arguments of fastpipe.loader() for views, fields and augmentation -> checked; unknown ones -> what to write."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import torch

from fastpipe.augment import Augment, as_augment
from fastpipe.errors import ConfigError, whole
from fastpipe.format.pixel_form import PixelForm
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crop_options import checked_crop, fitting, flip_probability, output_size
from fastpipe.plan.crops import Crop, TenCrop
from fastpipe.plan.impossible import impossible
from fastpipe.plan.recipe import Recipe, ViewRecipe, view_seed
from fastpipe.samples.dataset import Dataset
from fastpipe.samples.fields import OF_MIXING, OF_SAMPLES, SPATIAL, FieldReader, check_mirrored, chosen_fields, name_of

_MOST_VIEWS = 64

# The names that something has in other loaders, or had here, where it is another argument now, or a method of the
# dataset -> what to write.
_SAME = {
    "collate_fn": "the loader collates images in C++, directly in the batch; combine tensors after the loader",
    "worker_init_fn": "workers are C++ threads that run no Python; all randomness comes from seed=",
    "persistent_workers multiprocessing_context": "there are no worker processes, and threads live as long as the "
    "loader; leave it out",
    "pin_memory pin_memory_device": 'device="cuda" already uses pinned memory; leave it out',
    "in_order": "batches always come in order; leave it out",
    "batch_sampler": "pass the sampler that it makes batches of as sampler=, and batch_size=",
    "generator": "pass seed=, a whole number",
    "timeout": "pass stall_timeout=, the seconds without a batch after which the log says why",
    "epoch": "call loader.set_epoch(), or load_state_dict() to resume",
    "num_replicas": "pass world_size=; with torch.distributed both it and rank= are known",
    "dataset root path folder urls": "pass a dataset of fastpipe.open, or the folder, as the first argument",
    "transform transforms": "pass crop=, hflip= and size=, and as augment= what is for the batch of tensors. For "
    "single images use torch's DataLoader(fastpipe.open(FOLDER).with_transform(transform))",
    "target_transform": "pass fastpipe.open(DATA).with_labels(labels) as the data, or change the labels of batches",
    "samples subset indices filter": "pass fastpipe.open(DATA).select(...) as the data, with numbers of samples, a "
    "mask, keys or a function of columns",
    "classes": "pass fastpipe.open(DATA).only(classes) as the data; keep_labels=True leaves labels as they are",
    "labels": 'it is an option of the data: fastpipe.mix({...}, labels="union"), '
    "fastpipe.open(DATA).only(classes, keep_labels=True), or .with_labels(labels) for other labels",
    "limit": "pass fastpipe.open(DATA).take(0.1) as the data",
    "kfold": "pass a part of the data: train, val = fastpipe.open(DATA).fold(0, of=5)",
    "weights class_weights sample_weights": "pass sampler=fastpipe.Weighted(weights), with weights of classes or "
    "samples, as of fastpipe.balanced(data). For weights of datasets pass fastpipe.mix({data: weight}) as the data",
    "replacement": "pass sampler=fastpipe.Weighted(weights, replacement=False)",
    "num_samples": "pass epoch_size=",
    "repeats num_repeats": "pass sampler=fastpipe.Repeated(3); with other samplers Repeated(3, sampler)",
    "canonical_nodes": "pass the number of nodes as partition=, for example partition=8",
    "max_pixels background cache_dir cache_limit storage_options read_timeout version split": "it is an option of "
    "opening: pass fastpipe.open(DATA, {name}=...) as the data",
    "mean std normalize": "pass augment=fastpipe.Augment.imagenet(), which takes mean=, std= and dtype=",
    "mode color_mode as_gray grayscale": 'pass channels="gray", "rgb", "rgba" or "own"',
    "image_size img_size resolution": "pass size=",
    "threads": "pass num_workers=; workers are C++ threads",
    "boxes min_box_size min_box_area": "it is an option of a field: "
    'fields=["image", fastpipe.Boxes("boxes", form="pad", min_size=1.0, min_area=0.0)]',
    "flip_pairs": 'it is an option of a field: fields=["image", fastpipe.Points("joints", flip_pairs=[(0, 1)])]',
    "mask_fill": "pass it to the crop: crop=fastpipe.RandomResizedCrop(mask_fill=255)",
    "mirror horizontal_flip": "pass hflip=",
}
_INSTEAD = {name: words.replace("{name}", name) for names, words in _SAME.items() for name in names.split()}


@dataclass(frozen=True)
class View:
    """One view of each image, or several of one kind: for `fastpipe.loader(views=[...])`. None: that of the loader.

    Args:
        size: of the view in pixels, which never changes: a number for a square, or (height, width).
        count: how many views of this kind, each with random crops of its own.
        crop, hflip, augment: as in `fastpipe.loader`. Soft labels have to be the same in all views.
    """

    size: int | tuple[int, int] | None = None
    count: int = 1
    crop: Crop | None = None
    hflip: bool | float | None = None
    augment: Augment | torch.nn.Module | Sequence[torch.nn.Module] | None = None


def recipe_of_views(
    views: object, recipe: Recipe, augment: Augment | None, *, train: bool
) -> tuple[Recipe, tuple[Augment | None, ...]]:
    """The recipe of a loader with these views, and what augments each of them; all else is the loader's."""
    given = list(_each(views))
    if not 2 <= len(given) <= _MOST_VIEWS:
        raise ConfigError(
            f"views: expected 2 to {_MOST_VIEWS} views of each image, got {len(given)}; for one, leave views out"
        )
    recipes, augments, sizes = [], [], recipe.sizes
    for number, view in enumerate(given):
        size = None if view.size is None else output_size(view.size)
        crop: Crop | Buckets = recipe.crop
        if not isinstance(crop, Buckets):
            crop = checked_crop(crop if view.crop is None else view.crop, size or recipe.size, train=train)
            sizes = sizes if sizes is None or size is not None else fitting(sizes, crop, train=train)
        elif view.size is not None or view.crop is not None:
            raise impossible("crops of buckets", repr(view))
        if crop.rows > 1:
            raise impossible("crops of views", type(crop).__name__)
        flip = recipe.flip if view.hflip is None else flip_probability(view.hflip, train=train)
        recipes.append(ViewRecipe(size, crop, flip, view_seed(recipe.seed, number)))
        augments.append(augment if view.augment is None else as_augment(view.augment))
    labelling = [None if each is None else each.labelling for each in augments]
    if any(each != labelling[0] for each in labelling):
        raise impossible("labels of views")
    first, more = recipes[0], tuple(recipes[1:])
    recipe = replace(recipe, sizes=sizes, crop=first.crop, flip=first.flip, first_size=first.size, more=more)
    return recipe, tuple(augments)


def _each(views: object) -> Iterator[View]:
    if isinstance(views, Integral) and not isinstance(views, bool):
        views = [View(count=whole("views", views, least=2, most=_MOST_VIEWS, hint="for one view, leave views out"))]
    several = views if isinstance(views, (tuple, list)) else ()
    for view in several or [views]:
        if not isinstance(view, View):
            raise ConfigError(
                "views: expected a number, such as 2, or fastpipe.View objects: [fastpipe.View(224, count=2), "
                f"fastpipe.View(96, count=6)], got {view!r}{' among them' if several else ''}"
            )
        for _ in range(whole("View(count=)", view.count, least=1, most=_MOST_VIEWS)):
            yield view


def field_reader(
    data: Dataset, recipe: Recipe, augments: Sequence[Augment | None], fields: object, form: PixelForm
) -> FieldReader | None:
    """What reads the fields that a user asked for; None: none."""
    if fields is None:
        return None
    first = augments[0]
    own: tuple[str, ...] = (*OF_SAMPLES, "valid", "epoch")
    own += ("image_size", "pixel_mask") if isinstance(recipe.crop, Buckets) else ()
    own += OF_MIXING if first is not None and first.mixers else ()
    chosen = chosen_fields(data, fields, own=own)
    if not set(OF_MIXING).isdisjoint(map(name_of, chosen.values())) and first is not None and not first.in_pairs:
        raise impossible("mixed twice")
    if "image" not in chosen.values():
        raise ConfigError(
            f'fields: expected "image" among them, got {fields!r}; for samples without their images: '
            "fastpipe.open(DATA).with_fields(...)"
        )
    kinds = {name: data.fields[name].kind for name in map(name_of, chosen.values()) if name not in own}
    parts = [part for augment in augments if augment is not None for part in augment.moving_parts]
    mirroring = [part.name for part in parts if part.mirrors] + ["TenCrop"] * isinstance(recipe.crop, TenCrop)
    mirroring += ["hflip"] * any(view.flip > 0 for view in recipe.views)
    check_mirrored(chosen.values(), mirroring[-1] if mirroring else "")
    for view, augment in zip(recipe.views, augments, strict=True):
        if augment is not None:
            _check_augment(augment, kinds, view.size or recipe.size, form.channels)
    return FieldReader(data, chosen, [view.crop for view in recipe.views], form)


def check_together(
    data: Dataset, recipe: Recipe, augments: Sequence[Augment | None], form: PixelForm, *, labelled: bool
) -> None:
    """Refuses what does not go with several crops, buckets, channels, or samples without labels, unless `labelled`."""
    crop, in_buckets = recipe.crop, isinstance(recipe.crop, Buckets)
    if crop.rows > 1 and recipe.flip > 0:
        raise impossible("mirrored crops", type(crop).__name__)
    for augment in augments:
        if augment is None:
            continue
        augment.moments(form.channels)
        if crop.rows > 1 and augment.mixers:
            raise impossible("mixed crops", type(crop).__name__)
        if in_buckets and any(each.mixes and "shown" not in each.moves for each in augment.stages):
            raise impossible("mixed buckets")
        for part in augment.moving_parts:
            if in_buckets and "shown" not in part.moves:
                raise impossible("padding", part.name)
        if augment.soft and not labelled and (without := len(data) - sum(data.class_counts)):
            raise impossible("unlabelled", f"{without:,} of {len(data):,} of {data.path}")


def _check_augment(augment: Augment, kinds: dict[str, str], size: tuple[int, int], channels: int) -> None:
    if augment.mixers:
        for pair, some in (("mixed places", ("boxes", "keypoints")), ("mixed masks", ("mask", "image"))):
            lost = [name for name, kind in kinds.items() if kind in some and kind not in augment.pasted]
            if lost:
                raise impossible(pair, ", ".join(lost))
    for part in augment.moving_parts:
        left = {name: kind for name, kind in kinds.items() if kind in SPATIAL and kind not in part.moves}
        if not left:
            continue
        way = ""
        if part.could_move >= set(left.values()):
            from fastpipe.augment.kornia_modules import DATA_KEYS

            keys = ["input", *(DATA_KEYS[kind] for kind in sorted(DATA_KEYS.keys() & part.moves | set(left.values())))]
            way = (
                f"let kornia move them: kornia.augmentation.AugmentationSequential({part.name}(...), data_keys={keys})"
            )
        raise impossible("unmoved", f"{part.name}; {', '.join(left)}", way)
    if "mask" in kinds.values() and (mixing := augment.mixing_ids(size, channels)):
        raise ConfigError(
            f"augment: {mixing[0]} makes numbers in masks that are no ids, because it interpolates. "
            "Leave the masks out of extra_args=, or pass resample='nearest' there. RandomCrop also interpolates if the "
            "image is smaller than the crop: pass pad_if_needed=True"
        )


def refuse(names: Iterable[str], known: Collection[str]) -> None:
    """For the first name: ConfigError where other loaders have this argument, else TypeError, as Python's own."""
    for name in names:
        if name in _INSTEAD:
            raise ConfigError(f"fastpipe.loader() has no argument {name}: {_INSTEAD[name]}")
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {near[0]}=?" if near else f"it has {', '.join(known)}"
        raise TypeError(f"fastpipe.loader() got an unexpected argument {name!r}; {hint}")
