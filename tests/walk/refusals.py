"""A draw's options -> those that fastpipe refuses together, as the docs say."""

from __future__ import annotations

from walk.model import PLACED, Model, pair

import fastpipe

NEEDS_URL = ("cache_dir", "cache_limit", "storage_options", "read_timeout")


def refusals(model: Model) -> set[str]:
    """Of each rule that is broken, words of which the message has one; empty: a loader takes the draw."""
    draw, options = model.draw, model.options
    own = {} if draw.mixed else draw.parts[0].fields
    fields = [name for name in model.names if isinstance(name, str)]
    kinds = {own[name] for name in fields if name in own}
    views = options.get("views") is not None
    sized = isinstance(options.get("views"), (list, tuple)) and any(view.size is not None for view in options["views"])
    many = isinstance(model.crop, (fastpipe.FiveCrop, fastpipe.TenCrop))
    augment = options.get("augment")
    soft = isinstance(augment, fastpipe.Augment) and augment.soft
    text = draw.options.get("augment", "")
    unlabelled = any(part.labels[n] < 0 for part, c in zip(draw.parts, model.chosen, strict=True) for n in c)
    nameless = [part for part in draw.parts if not part.names]
    paired = "flip_pairs" in draw.options.get("fields", "")
    labels, classes = options.get("labels"), options.get("classes")
    without = options.get("replacement") is False
    due = sum(weight > 0 for weight in (model.weights or {}).values())
    most = due * model.repeats
    found: set[str] = set()
    for broken, *names in (
        (draw.mixed and options.get("samples") is not None, "samples"),
        (draw.mixed and options.get("weights") is not None, "weights"),
        (draw.mixed and model.buckets, "size", "bucket"),
        (draw.mixed and any(name in part.fields for part in draw.parts for name in fields), "fields", "image, label"),
        (not draw.mixed and "source" in fields, "source"),
        (not model.buckets and {"image_size", "pixel_mask"} & set(fields), "image_size", "pixel_mask"),
        (not draw.mixed and set(fields) - set(own) - _ALWAYS, "fields", "image, label"),
        (model.buckets and (sized or "crop=" in draw.options.get("views", "")), "View"),
        (model.buckets and "size_choices" in options, "size_choices"),
        (model.buckets and options.get("crop") is not None, "crop"),
        ("size" in options and options["size"] is not None and options.get("size_choices") is not None, "size_choices"),
        (views and many, "views", "Crop"),
        (soft and "augment=" in draw.options.get("views", ""), "views", "soft"),
        (many and model.train, "Crop"),
        (many and model.hflip, "Crop", "hflip"),
        (many and soft and not _smoothing_only(text), "Crop"),
        ("keypoints" in kinds and not paired and (model.mirrors or "Flip" in text), "flip_pairs"),
        (soft and unlabelled and not isinstance(options.get("weights"), dict), "label"),
        (soft and not _smoothing_only(text) and kinds & {"boxes", "keypoints"}, "augment", "mix", "field"),
        (soft and "mixup" in text and kinds & {"mask", "image"}, "augment", "mix", "field"),
        ({"mix_lam", "mix_index"} & set(fields) and not _mixes(text), "mix_lam", "mix_index"),
        (_moves(text) and kinds & set(PLACED), "augment", "data_keys"),
        ("RandomAffine" in text and "image" in kinds, "augment"),
        (without and model.weights is None, "replacement"),
        (without and options.get("epoch_size") is None, "replacement"),
        (labels is not None and not draw.mixed and classes is None, "labels"),
        (labels in ("union", "offset", "own") and not draw.mixed, "labels"),
        (labels in ("keep", "renumber") and draw.mixed, "labels"),
        (classes is not None and (nameless or (draw.mixed and labels in ("own", "offset"))), "classes"),
        (isinstance(options.get("weights"), dict) and nameless, "weights"),
        (any(not each for each in model.chosen), "samples", "classes", "limit", "kfold", "has no"),
        (options.get("verify") is True and any(not part.packed for part in draw.parts), "verify"),
        (options.get("canonical_nodes") is not None and model["partition"] != "node", "canonical_nodes"),
        (not draw.mixed and model.drop_last and 0 < model.size_of_epoch < model.rows, "batch_size", "drop_last"),
        (model["partition"] == "node" and model.rows % (options.get("canonical_nodes") or 1), "batch_size"),
        (_too_small(model), "resize", "crop"),
        (isinstance(options.get("epoch_size"), str) and not draw.mixed, "epoch_size"),
        (model.weights is not None and not due, "weights"),
        (without and model.weights is not None and model.size_of_epoch > most, "epoch_size", "replacement"),
        (not draw.by_url and set(NEEDS_URL) & set(options), *NEEDS_URL),
    ):  # fmt: skip
        if broken:
            found.update(str(name) for name in names)
    return found


_ALWAYS = {
    "image",
    "label",
    "id",
    "key",
    "valid",
    "epoch",
    "source",
    "image_size",
    "pixel_mask",
    "mix_lam",
    "mix_index",
}


def _too_small(model: Model) -> bool:
    """A crop out of less than it needs."""
    resize = getattr(model.crop, "resize", None)
    if resize is None or isinstance(model.crop, fastpipe.RandomCrop) or model.buckets:
        return False
    sizes = [model["size"]] if model["size_choices"] is None else model["size_choices"]
    sizes = [each(0) if callable(each) else each for each in sizes]
    return any(max(pair(size)) > resize for size in sizes)


def _mixes(text: str) -> bool:
    return "mixup" in text or "cutmix" in text


def _smoothing_only(text: str) -> bool:
    return not _mixes(text)


def _moves(text: str) -> bool:
    if "data_keys" in text:
        return False
    return any(word in text for word in ("RandomAffine", "RandomHorizontalFlip", "randaugment", "trivial_augment"))
