"""The arguments of fastpipe.loader() for views, fields and augmentation, checked together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import torch

from fastpipe.arguments import refusing_unknown_fields
from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.fields import (
    MIXING_FIELDS,
    SAMPLE_FIELDS,
    FieldReader,
    check_mirrored,
    field_name,
    parse_fields,
)
from fastpipe.dataset.format.fields import PICTURE_KINDS, SPATIAL_KINDS
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.device.augment import Augment, as_augment
from fastpipe.device.augment.kornia_modules import DATA_KEYS
from fastpipe.device.augment.operation import Operation
from fastpipe.errors import ConfigError, whole
from fastpipe.loading import notices
from fastpipe.loading.mirrored_sides import warn_unswapped_points
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crop_options import (
    checked_sizes,
    parse_crop,
    parse_flip_probability,
)
from fastpipe.plan.crops import Crop, FiveCrop, TenCrop, parse_size
from fastpipe.plan.maps import Maps
from fastpipe.plan.native import Native
from fastpipe.plan.option_conflicts import conflict_error
from fastpipe.plan.patches import Patches
from fastpipe.plan.picture_lists import Images
from fastpipe.plan.recipe import Recipe, ViewRecipe, view_seed
from fastpipe.plan.whole_images import WholeImages

_MAX_VIEWS = 64


@refusing_unknown_fields("fastpipe.View")
@dataclass(frozen=True)
class View:
    """One view of each image, or several of one kind, for `fastpipe.loader(views=[...])`.

    An argument that is None is the loader's.

    Args:
        size: size of the view in pixels, which never changes: a number for a square, or (height,
            width).
        count: how many views of this kind, each with random crops of its own.
        crop, hflip, augment: as in `fastpipe.loader`. Soft labels have to be the same in all views.

    Example:
        >>> small = fastpipe.View(crop=fastpipe.RandomResizedCrop(scale=(0.05, 0.3)), size=16)
        >>> loader = fastpipe.loader("data/train", batch_size=8, size=32, views=[fastpipe.View(), small])
        >>> (large_images, small_images), labels = next(iter(loader))
        >>> large_images.shape, small_images.shape
        (torch.Size([8, 3, 32, 32]), torch.Size([8, 3, 16, 16]))
    """

    size: int | tuple[int, int] | None = None
    count: int = 1
    crop: Crop | None = None
    hflip: bool | float | None = None
    augment: Augment | torch.nn.Module | Sequence[torch.nn.Module] | None = None


def recipe_with_views(
    views: object, recipe: Recipe, augment: Augment | None, *, train: bool
) -> tuple[Recipe, tuple[Augment | None, ...]]:
    """The recipe of a loader with these views, and the augmentation of each view.

    `recipe` and `augment` are those of the loader. View 0 has the loader's seed, each other view a
    seed of its own.
    """
    parsed = _parse_views(views)  # one for each view of an image
    if not 2 <= len(parsed) <= _MAX_VIEWS:
        raise ConfigError(
            f"views: expected 2 to {_MAX_VIEWS} views of each image, got {len(parsed)}; for one, "
            "leave views out"
        )
    view_recipes = []
    augments = []
    sizes = recipe.sizes
    for number, view in enumerate(parsed):
        size = None
        if view.size is not None:
            size = parse_size(view.size)
        crop = _crop_of_view(view, size, recipe, train=train)
        # A view without a size of its own has the size of the batch. With size_choices= or a
        # schedule of sizes, batches have different ones: all of them have to suit its crop.
        if sizes is not None and size is None and not isinstance(crop, WholeImages):
            sizes = checked_sizes(sizes, crop, train=train)
        flip = recipe.flip
        if view.hflip is not None:
            flip = parse_flip_probability(view.hflip, train=train)
        view_recipes.append(
            ViewRecipe(size, crop, flip, view_seed(recipe.seed, number))
        )
        if view.augment is None:
            augments.append(augment)
        else:
            augments.append(as_augment(view.augment))

    # The batch has one tensor of labels, so all views have to mix and smooth them alike.
    label_options = []
    for augment in augments:
        label_options.append(None if augment is None else augment.label_options)
    if any(options != label_options[0] for options in label_options):
        raise conflict_error("views + different soft labels")
    first = view_recipes[0]
    recipe = replace(
        recipe,
        sizes=sizes,
        crop=first.crop,
        flip=first.flip,
        first_view_size=first.size,
        other_views=tuple(view_recipes[1:]),
    )
    return recipe, tuple(augments)


def _crop_of_view(
    view: View, size: tuple[int, int] | None, recipe: Recipe, *, train: bool
) -> Crop | WholeImages:
    crop: Crop | WholeImages = recipe.crop
    if isinstance(crop, WholeImages):
        # The sample decides the size of all its views.
        if view.size is not None or view.crop is not None:
            raise conflict_error("whole images + crop", repr(view))
    else:
        own_crop = crop if view.crop is None else view.crop
        crop = parse_crop(own_crop, size or recipe.size, train=train)
    if crop.rows > 1:
        raise conflict_error("views + several crops", type(crop).__name__)
    if crop.is_per_part:
        raise conflict_error("parts + other crops", repr(view))
    return crop


def _parse_views(views: object) -> list[View]:
    """A number of views, one View or several -> a View for each view of an image."""
    # True is an integral number for Python.
    if isinstance(views, Integral) and not isinstance(views, bool):
        hint = "for one view, leave views out"
        count = whole("views", views, least=2, most=_MAX_VIEWS, hint=hint)
        return [View()] * count
    place = ""
    given: Sequence[object] = [views]
    if isinstance(views, (tuple, list)) and views:
        place = " among them"
        given = views
    parsed = []
    for view in given:
        if not isinstance(view, View):
            raise ConfigError(
                "views: expected a number, such as 2, or fastpipe.View objects: "
                "[fastpipe.View(224, count=2), fastpipe.View(96, count=6)], got "
                f"{view!r}{place}"
            )
        count = whole("View(count=)", view.count, least=1, most=_MAX_VIEWS)
        parsed += [view] * count
    return parsed


def asks_for_images(fields: object) -> bool:
    """Whether a user's `fields=` has the images. What it cannot be is refused later."""
    requests = fields.values() if isinstance(fields, Mapping) else fields
    return not isinstance(requests, Iterable) or "image" in requests


def make_field_reader(
    data: Dataset,
    recipe: Recipe,
    augments: Sequence[Augment | None],
    fields: object,
    form: PixelForm,
) -> FieldReader | None:
    """Makes what reads the fields that a user asked for; None if there are none.

    Raises ConfigError if a field is unknown, or the crops or augmentations would make it wrong.
    """
    if fields is None:
        return None
    # All views mix alike, see `recipe_with_views`, so the first one stands for them.
    first_augment = augments[0]
    mixes = first_augment is not None and bool(first_augment.mixers)
    loader_fields = _list_loader_fields(recipe, mixes=mixes)
    chosen = parse_fields(data, fields, entries=loader_fields)
    names = [field_name(field) for field in chosen.values()]
    if mixes:
        notices.warn_mixed_without_shares(names)
    if (
        not set(MIXING_FIELDS).isdisjoint(names)
        and first_augment is not None
        and not first_augment.in_pairs
    ):
        raise conflict_error("several mixings + mix_index")
    if "image" not in chosen.values() and "pixel_mask" in names:
        raise ConfigError(
            f'fields: "pixel_mask" says which pixels of "image" count; got {fields!r} without '
            '"image". Add it'
        )

    # Points of a body need flip_pairs if anything mirrors the image.
    mirroring = _mirroring_option(recipe, augments)
    check_mirrored(chosen.values(), mirroring)
    if mirroring:
        warn_unswapped_points(data, chosen.values())
    kinds = {
        name: data.fields[name].kind for name in names if name not in loader_fields
    }
    directions = []
    for field in chosen.values():
        if isinstance(field, Maps):
            kinds[field.name] = "mask"  # maps are moved as masks are
            if field.flip_signs:
                directions.append(field.name)
    if isinstance(recipe.crop, Patches):
        unpatched = [name for name, kind in kinds.items() if kind in PICTURE_KINDS]
        if unpatched:
            raise conflict_error("patches + pictures", ", ".join(unpatched))
        for field in chosen.values():
            if isinstance(field, Images) and field.form != "flat":
                raise ConfigError(
                    f"fields: with size=fastpipe.Patches(...), the patches of lists of images lie "
                    f'one behind the other; pass fastpipe.Images({field.name!r}, form="flat")'
                )
    crop_pads = isinstance(recipe.crop, Buckets) and recipe.crop.pads
    if crop_pads and "images" in kinds.values():
        raise conflict_error("buckets + lists of pictures")
    if recipe.crop.is_per_part and "images" in kinds.values():
        raise conflict_error("parts + other crops", "a field of kind images")
    for view, augment in zip(recipe.views, augments, strict=True):
        if augment is not None:
            if directions and augment.moving_parts:
                part = augment.moving_parts[0]
                raise conflict_error(
                    "moving module + directions", part.name, ", ".join(directions)
                )
            size = view.size or recipe.size
            _check_augment(augment, kinds, size, form.channels)
    crops = [view.crop for view in recipe.views]
    return FieldReader(data, chosen, crops, form)


def _list_loader_fields(recipe: Recipe, *, mixes: bool) -> tuple[str, ...]:
    """The fields that a loader itself has, whatever the dataset. `mixes`: images are mixed."""
    loader_fields: tuple[str, ...] = (
        *SAMPLE_FIELDS,
        "valid",
        "epoch",
        "crop_box",
        "mirrored",
        "original_size",
    )
    if isinstance(recipe.crop, Buckets) and recipe.crop.pads:
        loader_fields += ("image_size", "pixel_mask")
    elif isinstance(recipe.crop, Native):
        loader_fields += ("image_size",)
    elif isinstance(recipe.crop, Patches):
        loader_fields += recipe.crop.fact_names
    elif recipe.crop.is_per_part:
        loader_fields += ("patch",)
    if mixes:
        loader_fields += MIXING_FIELDS
    return loader_fields


def _mirroring_option(recipe: Recipe, augments: Sequence[Augment | None]) -> str:
    """An option or a module that mirrors images; "" if none does."""
    # The option that is the easiest to change comes first.
    if any(view.flip > 0 for view in recipe.views):
        return "hflip"
    if isinstance(recipe.crop, TenCrop):
        return "TenCrop"
    name = ""
    for augment in augments:
        for part in augment.moving_parts if augment is not None else ():
            if part.mirrors:
                name = part.name
    return name


def check_together(
    data: Dataset,
    recipe: Recipe,
    augments: Sequence[Augment | None],
    form: PixelForm,
    *,
    labelled: bool,
) -> None:
    """Raises ConfigError for options that exclude each other.

    `labelled`: the sampler picks no sample without a label.
    """
    crop = recipe.crop
    # FiveCrop and TenCrop are for evaluation: they mirror by themselves, or not at all.
    if isinstance(crop, FiveCrop) and recipe.flip > 0:
        raise conflict_error("hflip + FiveCrop", type(crop).__name__)
    for augment in augments:
        if augment is None:
            continue
        augment.moments(form.channels)  # raises if it does not suit so many channels
        if crop.rows > 1 and augment.mixers:
            raise conflict_error("mixing + several crops", type(crop).__name__)
        if isinstance(crop, Native):
            raise conflict_error("native sizes + augment")
        if isinstance(crop, Patches) and not augment.only_normalises:
            raise conflict_error("patches + augment")
        if isinstance(crop, Buckets) and crop.pads:
            _check_with_padding(augment)
        # Soft labels need a class for each sample.
        if augment.soft and not labelled:
            num_unlabelled = len(data) - sum(data.class_counts)
            if num_unlabelled:
                raise conflict_error(
                    "soft labels + unlabelled samples",
                    f"{num_unlabelled:,} of {len(data):,} of {data.path}",
                )


def _check_with_padding(augment: Augment) -> None:
    """Raises ConfigError if an augmentation would treat the padding of buckets as image."""
    for stage in augment.stages:
        if stage.mixes and "shown" not in stage.moves:
            raise conflict_error("buckets + mosaic")
    for part in augment.moving_parts:
        if "shown" not in part.moves:
            raise conflict_error("buckets + unknown module", part.name)


def _check_augment(
    augment: Augment, kinds: dict[str, str], size: tuple[int, int], channels: int
) -> None:
    """Raises ConfigError if an augmentation would make fields wrong; `kinds` are by field.

    Maps are moved and pasted as masks are, and stand here as masks.
    """
    # Mixup and cutmix paste another image. Fields that cannot be pasted with it would be wrong.
    if augment.mixers:
        # The conflict -> the kinds of fields that it is about.
        kinds_by_conflict = {
            "mixing + boxes": ("boxes", "keypoints"),
            "mixup + masks": PICTURE_KINDS,
        }
        for conflict, conflicting_kinds in kinds_by_conflict.items():
            unpasted = []
            for name, kind in kinds.items():
                if kind in conflicting_kinds and kind not in augment.pasted:
                    unpasted.append(name)
            if unpasted:
                raise conflict_error(conflict, ", ".join(unpasted))

    # A part that moves pixels has to move boxes, points and masks as well.
    for part in augment.moving_parts:
        unmoved = {}
        for name, kind in kinds.items():
            if kind in SPATIAL_KINDS and kind not in part.moves:
                unmoved[name] = kind
        if unmoved:
            raise conflict_error(
                "moving module + unmovable fields",
                f"{part.name}; {', '.join(unmoved)}",
                _suggest_data_keys(part, set(unmoved.values())),
            )

    # Ids of a mask must not be interpolated; nor are the numbers of maps.
    if "mask" in kinds.values():
        part_names = augment.names_interpolating_masks(size, channels)
        if part_names:
            raise ConfigError(
                f"augment: {part_names[0]} makes numbers in masks that are no ids, because it "
                "interpolates. Leave the masks out of extra_args=, or pass resample='nearest' "
                "there. RandomCrop also interpolates if the image is smaller than the crop: pass "
                "pad_if_needed=True"
            )


def _suggest_data_keys(part: Operation, unmoved_kinds: set[str]) -> str:
    """How kornia could move values of these kinds with the image; "" if it cannot move all."""
    if not unmoved_kinds <= part.could_move:
        return ""
    # The kinds that the part moves already stay among the keys.
    kinds_with_key = DATA_KEYS.keys() & part.moves
    kinds = sorted(kinds_with_key | unmoved_kinds)
    data_keys = ["input"]
    for kind in kinds:
        data_keys.append(DATA_KEYS[kind])
    return (
        "let kornia move them: kornia.augmentation.AugmentationSequential("
        f"{part.name}(...), data_keys={data_keys})"
    )
