"""Images of 16 bits that use few of them, in a loader of 8 bits -> a warning.

Medical images and those of sensors often have 12 bits in 16. `pack` says it of what it packs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import numpy as np
import torch

from fastpipe.arrays import Int64s
from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.format.folder import Url
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.errors import FastpipeError
from fastpipe.plan.spread import spread
from fastpipe.warnings_once import is_known, remember

_LOG = logging.getLogger("fastpipe")

_NUM_RECORDS_READ = 64
_NUM_DECODED = 4
_MOST_PIXELS = 1 << 24  # of an image that is decoded: a fraction of a second
_MOST_BITS = 14  # 8 bits of such values are a quarter of the range, or less
# A value of 8 bits becomes one of 16 bits by this factor.
_FROM_8_BITS = 257


def warn_dark_images(data: Dataset, form: PixelForm) -> None:
    """Says if a loader of 8 bits leaves the samples' own images dark.

    `form`: of the loader's images.
    """
    stored_bits = {stored.bits for stored in data.index.form_counts}
    if 16 not in stored_bits or not _is_looked_at(data, "", form):
        return
    bits = _value_bits(data)
    if 0 < bits <= _MOST_BITS:
        _LOG.warning(
            f"{data.path} has images of 16 bits a channel, with values of up to {bits} bits (below "
            f"{1 << bits:,}) in a few of them. The loader divides them by 256, so they "
            'are dark: pass dtype=torch.uint16 or torch.float32, with channels="gray" for gray images, '
            "and scale them in augment="
        )


def warn_dark_second_images(
    data: Dataset, names: Iterable[str], form: PixelForm
) -> None:
    """Says if a loader of 8 bits leaves second images, such as depths in millimetres, few levels.

    Args:
        data: the dataset.
        names: of the fields of the loader.
        form: of the loader's images.
    """
    for name in names:
        field = data.fields.get(name)
        is_second_image = field is not None and field.kind == "image"
        if not is_second_image or not _is_looked_at(data, name, form):
            continue
        bits = _value_bits_of_second(data, name)
        if 0 < bits <= _MOST_BITS:
            _LOG.warning(
                f"images of {name!r} in {data.path} have 16 bits a channel, with values of up to {bits} bits "
                f"(below {1 << bits:,}) in a few of them. The loader divides them by 256, so few levels are "
                "left: pass dtype=torch.uint16. Measured numbers, such as a depth, are better packed as kind "
                "'map'"
            )


def _is_looked_at(data: Dataset, name: str, form: PixelForm) -> bool:
    """Whether images are decoded for a warning, which is done once. `name`: "" or a field's."""
    looked_at = f"dark {data.path} {name}"
    # Behind a URL, images would be fetched.
    if form.bits != 8 or isinstance(data.index.path, Url) or is_known(looked_at):
        return False
    remember(looked_at)
    return True


def _value_bits(data: Dataset) -> int:
    """The bits of the largest value in some images of 16 bits; 0: none was decoded."""
    ids = np.array(spread(len(data), _NUM_RECORDS_READ), dtype=np.int64)
    areas = _areas_of(data, ids)
    is_fit = (data.content.records_of(ids)["bits"] == 16) & (areas <= _MOST_PIXELS)
    smallest_first = np.argsort(areas[is_fit], kind="stable")
    chosen = ids[is_fit][smallest_first][:_NUM_DECODED]
    most = 0
    for values in _read(data.with_pixels("gray", torch.uint16), chosen, 0):
        most = max(most, int(values.max()))
    return most.bit_length()


def _value_bits_of_second(data: Dataset, name: str) -> int:
    """The same of second images; 0: none of those that were decoded has 16 bits."""
    ids = np.array(spread(len(data), _NUM_DECODED), dtype=np.int64)
    chosen = ids[_areas_of(data, ids) <= _MOST_PIXELS]
    # Gray images of colours of 8 bits would have other values between.
    samples = data.with_fields([name]).with_pixels("rgb", torch.uint16)
    most = 0
    for values in _read(samples, chosen, name):
        if bool((values % _FROM_8_BITS).any()):
            most = max(most, int(values.max()))
    return most.bit_length()


def _areas_of(data: Dataset, ids: Int64s) -> Int64s:
    """(n,) the pixels of the samples' own images."""
    records = data.content.records_of(ids)
    return np.asarray(records["width"].astype(np.int64) * records["height"])


def _read(samples: Dataset, ids: Int64s, entry: int | str) -> Iterator[torch.Tensor]:
    """The values of images, without those that are missing or damaged."""
    for number in ids.tolist():
        try:
            image = samples[number][entry]
        except FastpipeError:
            continue  # whoever reads the sample gets the error
        if image is not None:
            yield image.to(torch.int32)
