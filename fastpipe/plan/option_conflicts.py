"""The table of options that cannot go together by their meaning, and their errors.

A test compares docs/reference/together.md with it.
"""

from __future__ import annotations

from typing import NamedTuple

from fastpipe.errors import ConfigError


class Conflict(NamedTuple):
    """Two options that cannot go together. The texts are Markdown."""

    one: str
    other: str
    reason: str  # why they cannot
    instead: str  # what to do, as an imperative


# "one option + the other" -> the conflict. The order is that of the page.
CONFLICTS = {
    "mixing + boxes": Conflict(
        "`augment=` that mixes images (mixup, cutmix)",
        "boxes and points in `fields=`",
        "mixed images show objects only partly, so their boxes are undefined",
        "leave these fields out, or the mixing",
    ),
    "mixup + masks": Conflict(
        "`augment=` with mixup, or kornia's mosaic",
        "masks and second images in `fields=`",
        "a mixed pixel comes from two images, but a mask pixel has one id",
        "use cutmix alone, which pastes masks and second images, too; or leave these fields out",
    ),
    "several mixings + mix_index": Conflict(
        "`augment=` that mixes images several times, or with kornia's mosaic",
        '"mix_index" and "mix_lam" in `fields=`',
        "an image then has more than one partner",
        "leave them out, or mix once",
    ),
    "augment + fields without images": Conflict(
        "`augment=`",
        '`fields=` without "image"',
        "an augmentation changes the images of a batch",
        'add "image" to fields=, or leave augment= out',
    ),
    "mixing + several crops": Conflict(
        "`augment=` that mixes images (mixup, cutmix)",
        "`crop=` FiveCrop, TenCrop or RandomCrop(count=)",
        "a sample has one label for all of its crops, and mixed crops would need one each",
        "leave the mixing out",
    ),
    "buckets + lists of pictures": Conflict(
        '`size="bucket"`',
        "lists of images in `fields=`",
        "the size of a batch is that of its images, and the images of a list have other shapes",
        "pass a size and crop=fastpipe.Letterbox(), or size=fastpipe.Native()",
    ),
    "buckets + mosaic": Conflict(
        "`augment=` with kornia's mosaic",
        '`size="bucket"`',
        "a part of a mosaic may be padding alone, so that labels would have wrong shares",
        "use mixup or cutmix, whose shares are those of the images' pixels",
    ),
    "soft labels + unlabelled samples": Conflict(
        "`augment=` with soft labels (mixup, cutmix, `label_smoothing=`)",
        "samples without labels",
        "there is nothing to make soft",
        "leave them out with data.select(data['label'] >= 0), or give labels with "
        "data.with_labels(...)",
    ),
    "views + different soft labels": Conflict(
        "`views=` with several `augment=`",
        "soft labels (mixup, cutmix, `label_smoothing=`) that differ",
        "a batch has its labels once, for all views",
        "give all views the same mixup=, cutmix=, label_smoothing=, num_classes= and mixing "
        "modules",
    ),
    "parts + order": Conflict(
        "`crop=fastpipe.Grid()` or `CropAt()`",
        "`sampler=`, `epoch_size=`, `partition=`, mixtures",
        "an epoch has each patch or object of each image once",
        "leave them out, or pass crop=fastpipe.RandomCrop(count=)",
    ),
    "parts + other crops": Conflict(
        "`crop=fastpipe.Grid()` or `CropAt()`",
        "`views=`, `size_choices=`, `loader.set_size`, a function as `size=`, and lists of images in "
        "`fields=`",
        "a row is one patch or object of the image of a sample, and how many patches an image has "
        "follows from one size",
        "leave them out, or pass crop=fastpipe.RandomCrop(count=)",
    ),
    "parts + replace": Conflict(
        "`crop=fastpipe.Grid()` or `CropAt()`",
        '`on_error="replace"`',
        "no part of another image could take the place of a patch or object",
        "leave it out, or leave the damaged samples out with data.select",
    ),
    "views + several crops": Conflict(
        "`views=`",
        "`crop=` FiveCrop, TenCrop or RandomCrop(count=)",
        "a view is one crop of each image",
        "pass another crop, or leave views out",
    ),
    "hflip + FiveCrop": Conflict(
        "`hflip=`",
        "`crop=` FiveCrop or TenCrop",
        "they are for evaluation, and mirror by themselves or not at all",
        "pass hflip=False, or train=False without hflip; TenCrop has the crops of the mirrored "
        "image, too",
    ),
    "whole images + crop": Conflict(
        '`size="bucket"`, `size=fastpipe.Native()` or `Patches()`',
        "`crop=`, and `size=` or `crop=` of a View",
        "images are shown whole, and sizes follow from the images",
        "leave them out; interpolation and padding are options of fastpipe.Buckets, Native and Patches",
    ),
    "whole images + other sizes": Conflict(
        '`size="bucket"`, `size=fastpipe.Native()` or `Patches()`',
        "`size_choices=` and `loader.set_size`",
        "sizes follow from the images",
        "leave them out, or pass one size",
    ),
    "native sizes + augment": Conflict(
        "`size=fastpipe.Native()`",
        "`augment=`, and `dtype=torch.float32`",
        "each image has a size of its own, so that a batch is a list of images and not one tensor",
        "leave them out, and change the images in the training loop: (image.float() / 255 - mean) / "
        "std",
    ),
    "patches + augment": Conflict(
        "`size=fastpipe.Patches()`",
        "`augment=` with more than normalising",
        "a batch has patches of images, and no images",
        "pass fastpipe.Augment(mean=..., std=...), such as Augment.imagenet(), which normalises alone",
    ),
    "patches + pictures": Conflict(
        "`size=fastpipe.Patches()`",
        "`views=`, and masks, maps and second images in `fields=`",
        "only the image of a sample and lists of images are cut into patches",
        "leave them out, or pass size=fastpipe.Native() and cut the images in the training loop",
    ),
    "budget + partition": Conflict(
        "`fastpipe.Patches(tokens=)` or `fastpipe.Buckets(pixels=)`",
        '`partition="node"` or a number',
        "how many samples a batch has follows from its images, and each node would need equally many",
        'use partition="sample"',
    ),
    "budget + PerClass": Conflict(
        "`fastpipe.Patches(tokens=)` or `fastpipe.Buckets(pixels=)`",
        "`sampler=` PerClass",
        "its batches have equally many samples of each class, and these have as many as fit",
        "leave tokens= or pixels= out, and pass batch_size=",
    ),
    "moving module + unmovable fields": Conflict(
        "`augment=` with modules that may move pixels",
        "boxes, points, masks and second images in `fields=` that these cannot move",
        "they would stay in place",
        "use kornia's AugmentationSequential with data_keys=, or an augmentation that changes "
        "colours only, such as Augment.simclr(); or call the module in the training loop with the "
        "fields",
    ),
    "moving module + directions": Conflict(
        "`augment=` with modules that may move pixels",
        "maps in `fields=` with `flip_signs=`",
        "the directions would have to turn with the pixels",
        "mirror by the loader's hflip=, and use an augmentation that changes colours only, such as "
        "Augment.simclr()",
    ),
    "buckets + unknown module": Conflict(
        '`size="bucket"`',
        "`augment=` with modules that may move pixels, and of which fastpipe does not know how",
        "the padding could not be tracked, so image_sizes and pixel_mask would be wrong",
        "use kornia's geometric modules, Augment.randaugment() or one that changes colours only",
    ),
    "buckets + PerClass": Conflict(
        '`size="bucket"`',
        "`sampler=` PerClass",
        "buckets say by shape which samples are in a batch, PerClass says it by class",
        "pass one size",
    ),
    "set_size + sized views": Conflict(
        "`loader.set_size`",
        "`views=` that all have a size of their own",
        "no view has the size of the loader",
        "pass a fastpipe.View without a size",
    ),
    "mixture + listing sampler": Conflict(
        "`fastpipe.mix(...)`",
        "`sampler=` with PerClass, a torch Sampler or a function of the epoch",
        "both say which samples a batch has",
        "use fastpipe.concat(...) in place of fastpipe.mix(...)",
    ),
    "mixture + no replacement": Conflict(
        "`fastpipe.mix(...)`",
        "`sampler=` with Weighted(replacement=False)",
        "a mixture reads each dataset without an end, so there is no epoch in which a sample could "
        "come once only",
        "leave replacement out, or use fastpipe.concat(...)",
    ),
    "partition + listing sampler": Conflict(
        '`partition="node"` or a number',
        "`sampler=` with PerClass, a torch Sampler or a function of the epoch",
        "the sampler says which samples a batch has, so a node cannot keep to its own part of the "
        "dataset",
        'use partition="sample"',
    ),
    "shuffle + ordered sampler": Conflict(
        "`shuffle=True`",
        "`sampler=` with Sequential, PerClass, a torch Sampler or a function of the epoch",
        "both give the order",
        "leave shuffle out",
    ),
    "epoch_size + listing sampler": Conflict(
        "`epoch_size=`",
        "`sampler=` with a torch Sampler or a function of the epoch",
        "the sampler says how many samples an epoch has",
        "leave epoch_size out",
    ),
}


def conflict_error(conflict: str, got: str = "", advice: str = "") -> ConfigError:
    """The error about two options that cannot go together.

    Args:
        conflict: a key of CONFLICTS.
        got: the names or objects that the user passed; they follow the options in brackets.
        advice: what to do about these, in place of the conflict's own advice.
    """
    one, other, reason, instead = CONFLICTS[conflict]
    if not advice:
        advice = instead
    values = f" ({got})" if got else ""
    sentence = advice[0].upper() + advice[1:]
    message = f"{one} does not go with {other}{values}: {reason}. {sentence}"
    # The texts are Markdown for the docs; a message is plain text.
    return ConfigError(message.replace("`", ""))
