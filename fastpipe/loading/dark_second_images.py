"""Second images of 16 bits that use few of them, in a loader of 8 bits -> a warning.

Such a depth in millimetres has a few levels left. `notices.warn_dark_images` says it of the samples'
own images.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.format.folder import Url
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.errors import FastpipeError
from fastpipe.warnings_once import is_known, remember, warn_once

_NUM_DECODED = 4
_MOST_PIXELS = 1 << 24  # of an image that is decoded: a fraction of a second
_MOST_BITS = 14  # 8 bits of such values are a quarter of the range, or less
# A value of 8 bits becomes one of 16 bits by this factor.
_FROM_8_BITS = 257


def warn_dark_second_images(
    data: Dataset, names: Iterable[str], form: PixelForm
) -> None:
    """Says if second images of the fields of a loader are dark, for they lose 8 of 16 bits.

    Args:
        data: the dataset.
        names: of the fields.
        form: of the loader's images.
    """
    # Behind a URL, images would be fetched.
    if form.bits != 8 or isinstance(data.index.path, Url):
        return
    for name in names:
        field = data.fields.get(name)
        looked_at = f"dark second images {data.path} {name}"
        if field is None or field.kind != "image" or is_known(looked_at):
            continue
        remember(looked_at)
        bits = _value_bits(data, name)
        if not 0 < bits <= _MOST_BITS:
            continue
        warn_once(
            f"{looked_at}: told",
            f"images of {name!r} in {data.path} have 16 bits a channel, with values of up to {bits} bits "
            f"(below {1 << bits:,}) in a few of them. The loader divides them by 256, so few levels are "
            "left: pass dtype=torch.uint16. Measured numbers, such as a depth, are better packed as kind "
            "'map'",
        )


def _value_bits(data: Dataset, name: str) -> int:
    """The bits of the largest value in some images of 16 bits; 0: none has 16 bits."""
    step = max(1, len(data) // _NUM_DECODED)
    ids = np.arange(0, len(data), step, dtype=np.int64)[:_NUM_DECODED]
    records = data.content.records_of(ids)
    areas = records["width"].astype(np.int64) * records["height"]
    # Gray images of colours of 8 bits would have other values between.
    samples = data.with_fields([name]).with_pixels("rgb", torch.uint16)
    most = 0
    for sample_id in ids[areas <= _MOST_PIXELS].tolist():
        try:
            image = samples[sample_id][name]
        except FastpipeError:
            continue  # whoever reads the sample gets the error
        if image is None:
            continue
        values = image.to(torch.int32)
        if bool((values % _FROM_8_BITS).any()):
            most = max(most, int(values.max()))
    return most.bit_length()
