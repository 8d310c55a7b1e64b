"""A draw's options -> those that fastpipe refuses together, as the docs say."""

from __future__ import annotations

import torch
from support.walk.drawing import OF_BUCKETS, OF_MIXING, OF_PARTS, OF_PATCHES, USUAL, fields_of
from support.walk.model import MOVING, PLACED, Model, pair

import fastpipe
from fastpipe.plan.option_conflicts import CONFLICTS


def words(pair: str) -> str:
    """The beginning of the error of a pair of the product's table."""
    one, other, *_ = CONFLICTS[pair]
    return f"{one} does not go with {other}".replace("`", "")


def refusals(model: Model) -> set[str]:
    """Of each rule that is broken, words of which the message has one; empty: a loader takes the draw."""
    draw, options = model.draw, model.options
    own = {**fields_of(draw), **({} if model.data.rows[0].extra is None else {"extra": "floats"})}
    fields = [name for name in model.names if isinstance(name, str)]
    kinds = {own[name] for name in fields if name in own}
    views = options.get("views") is not None
    sized = isinstance(options.get("views"), (list, tuple)) and any(
        view.size is not None for view in options["views"]
    )
    several = model.crop is not None and model.crop.rows > 1
    five = isinstance(model.crop, fastpipe.FiveCrop)
    augment = options.get("augment")
    whole = model.buckets or model.native or model.patches
    fills_batches = not draw.mixed and not model.budget
    pictures = kinds & {"mask", "image", "map"}
    normalises = augment is None or getattr(augment, "only_normalises", False)
    is_float = model.with_images and model["dtype"] == torch.float32
    of_views = "augment=" in draw.options.get("views", "")
    soft = isinstance(augment, fastpipe.Augment) and augment.soft
    text = draw.options.get("augment", "")
    unlabelled = any(row.name is None for row in model.data.rows)
    paired = "flip_pairs" in draw.options.get("fields", "")
    without = model.weighted is not None and not model.weighted.replacement
    shares = [model.data.ids(share) for share in range(len(model.data.weights))]
    due = (
        [] if model.weights is None else [sum(model.weights[n] > 0 for n in ids) for ids in shares]
    )
    parts = model.parts
    named = len({row.name for row in model.data.rows} - {None})
    per_class = model.per_class
    each = 0 if per_class is None else int(per_class.samples) * model.repeats
    many = 0 if per_class is None else int(per_class.classes or model.rows // each)
    listing = model.listed or per_class is not None
    sizes_change = callable(model["size"]) or options.get("size_choices") is not None
    other_orders = (
        options.get("sampler") is not None
        or options.get("epoch_size") is not None
        or model["partition"] != "sample"
        or draw.mixed
    )
    objects_field = model.crop.objects_field
    labels_by_class = model.per_box or model.by_class or per_class is not None
    found: set[str] = set()
    for broken, *names in (
        (draw.mixed and listing, words("mixture + listing sampler")),
        (draw.mixed and without, words("mixture + no replacement")),
        (listing and model["partition"] != "sample", words("partition + listing sampler")),
        (model.ordered and options.get("shuffle") is True, words("shuffle + ordered sampler")),
        (model.listed and options.get("epoch_size") is not None, words("epoch_size + listing sampler")),
        (model.buckets and per_class is not None, words("buckets + PerClass")),
        (objects_field is not None and objects_field not in own, "of boxes"),
        (model.per_box and not model.size_of_epoch, "none of the"),
        (model.per_part and other_orders, words("parts + order")),
        (model.per_part and (views or sizes_change or "images" in kinds), words("parts + other crops")),
        (model.per_part and model["on_error"] == "replace", words("parts + replace")),
        (_leaves_gaps(model), "stride"),
        (model.per_box and soft, "num_classes"),
        (model.patches and (views or pictures), words("patches + pictures")),
        (model.patches and "pages" in fields, "flat"),
        (model.patches and not normalises, words("patches + augment")),
        (model.budget and model["partition"] != "sample", words("budget + partition")),
        (model.budget and per_class is not None, words("budget + PerClass")),
        (not model.patches and {*OF_PATCHES} & set(fields), "fields", "image, label"),
        (model.padded and "pages" in fields, words("buckets + lists of pictures")),
        (per_class is not None and (many * each != model.rows or not 0 < many <= named), "PerClass"),
        (not model.padded and "pixel_mask" in fields, "image_size", "pixel_mask"),
        (not (model.padded or model.native) and "image_size" in fields, "image_size", "pixel_mask"),
        (augment is not None and not model.with_images, words("augment + fields without images")),
        (of_views and not model.with_images, words("augment + fields without images")),
        ("pixel_mask" in fields and not model.with_images, "pixel_mask"),
        (model.native and (augment is not None or is_float or of_views), words("native sizes + augment")),
        (set(fields) - set(own) - _ALWAYS, "fields", "image, label"),
        (whole and (sized or "crop=" in draw.options.get("views", "")), words("whole images + crop")),
        (whole and "size_choices" in options, words("whole images + other sizes")),
        (whole and options.get("crop") is not None, words("whole images + crop")),
        ("size" in options and options["size"] is not None and options.get("size_choices") is not None, "size_choices"),
        (views and several, words("views + several crops")),
        (soft and "augment=" in draw.options.get("views", ""), words("views + different soft labels")),
        (five and model.train and model["hflip"] is None, words("hflip + FiveCrop")),
        (five and model.hflip, words("hflip + FiveCrop")),
        (several and soft and _mixes(text), words("mixing + several crops")),
        ("keypoints" in kinds and not paired and (model.mirrors or "Flip" in text), "flip_pairs"),
        (soft and unlabelled and not labels_by_class, words("soft labels + unlabelled samples")),
        (soft and _mixes(text) and kinds & {"boxes", "keypoints"}, words("mixing + boxes")),
        (soft and "mixup" in text and kinds & {"mask", "image", "map"}, words("mixup + masks")),
        ({"mix_lam", "mix_index"} & set(fields) and not _mixes(text), "mix_lam", "mix_index"),
        (_moves(text) and kinds & set(PLACED), words("moving module + unmovable fields")),
        ("RandomAffine" in text and "image" in kinds, words("moving module + unmovable fields")),
        (without and options.get("epoch_size") is None, "replacement"),
        (due and not all(due), "Weighted"),
        (without and due and model.size_of_epoch > due[0] // parts * parts * model.repeats, "epoch_size"),
        (fills_batches and model.drop_last and 0 < model.size_of_epoch < model.rows, "batch_size", "drop_last"),
        (model.rows % parts, "batch_size"),
        (min(model.size_of_epoch, *map(len, shares), model.count) < parts, "partition"),
        (_too_small(model), "resize", "crop"),
        (isinstance(options.get("epoch_size"), str) and not draw.mixed, "epoch_size"),
    ):  # fmt: skip
        if broken:
            found.update(str(name) for name in names)
    return found


_ALWAYS = {"image", *USUAL, *OF_BUCKETS, *OF_MIXING, *OF_PATCHES, *OF_PARTS}


def _too_small(model: Model) -> bool:
    """A crop out of less than it needs, in some view."""
    if model.buckets or model.native or model.patches:
        return False
    sizes = [model["size"]] if model["size_choices"] is None else model["size_choices"]
    sizes = [size(0) if callable(size) else size for size in sizes]
    views = model["views"] if isinstance(model["views"], (list, tuple)) else [fastpipe.View()]
    for view in views:
        crop = view.crop or model.crop
        resize = None if isinstance(crop, fastpipe.RandomCrop) else getattr(crop, "resize", None)
        of_view = sizes if view.size is None else [view.size]
        if resize is not None and any(max(pair(size)) > resize for size in of_view):
            return True
    return False


def _mixes(text: str) -> bool:
    return "mixup" in text or "cutmix" in text


def _moves(text: str) -> bool:
    return "data_keys" not in text and any(word in text for word in MOVING)


def _leaves_gaps(model: Model) -> bool:
    """A grid whose patches are smaller than its steps."""
    stride = getattr(model.crop, "stride", None)
    size = model["size"]
    if stride is None or callable(size) or isinstance(size, str) or model["size_choices"]:
        return False
    patch = pair(size)
    return any(step > side for step, side in zip(pair(stride), patch, strict=True))
