"""The arguments of fastpipe.loader() for fields -> what reads them, or an error that says what to pass instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fastpipe.augment import Augment
from fastpipe.augment.annotations import Moving, mixes, mixing_ids, moving_parts, pasted
from fastpipe.errors import ConfigError
from fastpipe.format.index import Index
from fastpipe.format.layout import NO_LABEL
from fastpipe.loading.impossible import impossible
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.content import Content
from fastpipe.plan.crops import TenCrop
from fastpipe.plan.placed import Points
from fastpipe.plan.recipe import Recipe

if TYPE_CHECKING:
    from fastpipe.loading.fields import FieldReader

_AT_ONCE = 1 << 20  # records


def field_reader(
    index: Index, recipe: Recipe, augments: Sequence[Augment | None], fields: object
) -> FieldReader | None:
    """What reads the fields that a user asked for; None: none.

    Raises:
        ConfigError: an argument is wrong, or does not go with another.
        DatasetError: a field's files are missing or damaged.
    """
    from fastpipe.loading.fields import OF_MIXING, FieldReader, chosen_fields, name_of, own_names

    if fields is None:
        return None
    first = augments[0]
    own = own_names(index, bucketed=isinstance(recipe.crop, Buckets), mixing=first is not None and mixes(first))
    chosen = chosen_fields(index, fields, own=own)
    if not set(OF_MIXING).isdisjoint(map(name_of, chosen.values())) and first is not None and not first.in_pairs:
        raise impossible("mixed twice")
    if "image" not in chosen.values():
        raise ConfigError(
            f'fields: expected "image" among them, got {fields!r}; for samples without their images: '
            "fastpipe.Dataset(data, fields=...)"
        )
    kinds = {name: index.fields[name].kind for name in map(name_of, chosen.values()) if name not in own}
    parts = [part for augment in augments if augment is not None for part in moving_parts(augment)]
    mirroring = [part.name for part in parts if part.mirrors]
    mirroring += ["TenCrop"] if isinstance(recipe.crop, TenCrop) else []
    hflip = any(view.flip > 0 for view in recipe.views)
    mirroring += ["hflip"] if hflip else []
    for asked in chosen.values():
        if isinstance(asked, Points) and asked.flip_pairs is None and mirroring:
            raise ConfigError(
                f"fields: {asked.name!r} has points, and {mirroring[-1]} mirrors images: a left eye would become a "
                f"right eye. Pass fastpipe.Points({asked.name!r}, flip_pairs=[(1, 2), ...]), the numbers of the points "
                "that change places; flip_pairs=[] if there are none; or "
                f"{'hflip=False' if hflip else f'leave {mirroring[-1]} out'}"
            )
    for view, augment in zip(recipe.views, augments, strict=True):
        if augment is not None:
            _check_augment(augment, kinds, view.size or recipe.size)
    return FieldReader(index, recipe, chosen)


def check_labelled(index: Index, content: Content, augment: Augment) -> None:
    """Raises ConfigError where labels are to become soft, and samples that epochs are made of have none."""
    if not augment.soft or sum(index.class_counts) == len(index):
        return
    count = content.count(len(index))
    without = count - sum(index.class_counts)
    if content.samples is not None:
        parts = (content.samples[start : start + _AT_ONCE] for start in range(0, count, _AT_ONCE))
        without = sum(int((index.records_of(part)["label"] == NO_LABEL).sum()) for part in parts)
    if without > 0:
        raise impossible("unlabelled", f"{without:,} of {count:,} of {index.path}")


def check_together(recipe: Recipe, augments: Sequence[Augment | None], *, mixed: bool) -> None:
    """Refuses what does not go with several crops of each image, or with buckets; `mixed`: a mixture of datasets."""
    name = type(recipe.crop).__name__
    if recipe.crop.rows > 1 and recipe.flip > 0:
        raise impossible("mirrored crops", name)
    if isinstance(recipe.crop, Buckets) and mixed:
        raise impossible("mixture of buckets")
    for augment in augments:
        if augment is None:
            continue
        if recipe.crop.rows > 1 and mixes(augment):
            raise impossible("mixed crops", name)
        if isinstance(recipe.crop, Buckets) and any(each.mixes and not each.moves_shown for each in augment.stages):
            raise impossible("mixed buckets")
        for part in moving_parts(augment) if isinstance(recipe.crop, Buckets) else ():
            if not part.shows:
                raise impossible("padding", part.name)


def _check_augment(augment: Augment, kinds: dict[str, str], size: tuple[int, int]) -> None:
    from fastpipe.loading.fields import SPATIAL

    if mixes(augment):
        for pair, some in (("mixed places", ("boxes", "keypoints")), ("mixed masks", ("mask", "image"))):
            lost = [name for name, kind in kinds.items() if kind in some and kind not in pasted(augment)]
            if lost:
                raise impossible(pair, ", ".join(lost))
    for part in moving_parts(augment):
        left = {name: kind for name, kind in kinds.items() if kind in SPATIAL and kind not in part.moves}
        if left:
            raise ConfigError(
                f"augment: {part.name} may move pixels, but {', '.join(left)} would stay in place. {_way(part, left)}"
            )
    if "mask" in kinds.values() and (mixing := mixing_ids(augment, size)):
        raise ConfigError(
            f"augment: {mixing[0]} makes numbers in masks that are no ids, because it interpolates. "
            "Leave the masks out of extra_args=, or pass resample='nearest' there. RandomCrop also interpolates if the "
            "image is smaller than the crop: pass pad_if_needed=True"
        )


def _way(part: Moving, left: Mapping[str, str]) -> str:
    """What to do about fields that an augmentation leaves in place."""
    from fastpipe.augment.kornia_fields import DATA_KEYS

    if part.could_move >= set(left.values()):
        keys = sorted(part.moves | set(left.values()))
        return (
            f"Let kornia move them: kornia.augmentation.AugmentationSequential({part.name}(...), "
            f"data_keys={['input', *(DATA_KEYS[kind] for kind in keys)]})"
        )
    return (
        "Pass an augmentation that changes colours only, such as Augment.simclr(), or call the module in the training "
        "loop with the fields"
    )
