"""Index records -> their forms of pixels: channels and bits, which dataset.json sums up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fastpipe.arrays import Bools, Records
from fastpipe.dataset.format.shard_list import count


class PixelForm(NamedTuple):
    """The channels of a picture's pixels, and their bits."""

    channels: int = 3  # 1: gray, 3: RGB, 4: RGB and alpha; gray with alpha counts as 4
    bits: int = 8  # of a channel: 8 or 16

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of an array of such pixels: uint8 or uint16."""
        return np.dtype(np.uint8 if self.bits == 8 else np.uint16)

    def __str__(self) -> str:
        return f"{self.channels} x {self.bits}"


# Of samples without an image.
NO_FORM = PixelForm(0, 0)
_CHANNELS = (1, 3, 4)
_BITS = (8, 16)
FORMS = tuple(PixelForm(channels, bits) for channels in _CHANNELS for bits in _BITS)

# (256, 256) by channels and bits, as records have them: whether the form exists.
_IS_POSSIBLE = np.zeros((256, 256), dtype=np.bool_)
for _form in FORMS:
    _IS_POSSIBLE[_form.channels, _form.bits] = True


def possible_forms(records: Records) -> Bools:
    """Whether records have pixels in one of FORMS, or neither pixels nor a form; in their shape."""
    has_width = has_images(records)
    has_height = records["height"] > 0
    has_form = _IS_POSSIBLE[records["channels"], records["bits"]]
    is_picture = has_width & has_height & has_form
    # (..., 4)
    columns = [records[name] for name in ("width", "height", "channels", "bits")]
    numbers = np.stack(columns, axis=-1)
    has_nothing = (numbers == 0).all(axis=-1)
    return np.asarray(is_picture | has_nothing)


def has_images(records: Records | np.void) -> Bools:
    """Whether samples have an image, in the shape of their records; or one of them."""
    return np.asarray(records["width"] > 0)


def count_forms(records: Records) -> Counter[PixelForm]:
    """How many records have each form."""
    # One number for both, so that bincount counts all forms in one pass: the channels in the high
    # byte, the bits in the low one.
    channels = records["channels"].astype(np.int64)
    codes = channels << 8 | records["bits"]
    counts = np.bincount(codes)
    forms = Counter[PixelForm]()
    for code in np.flatnonzero(counts).tolist():
        form = PixelForm(channels=code >> 8, bits=code & 255)
        forms[form] = int(counts[code])
    return forms


def describe_forms(counts: Counter[PixelForm]) -> list[dict[str, int]]:
    """The entry "forms" of dataset.json."""
    entries = []
    for form, samples in sorted(counts.items()):
        entries.append({**form._asdict(), "samples": samples})
    return entries


def read_forms(entries: Iterable[Any]) -> Counter[PixelForm]:
    """Reads the entry that `describe_forms` makes.

    Raises:
        KeyError, TypeError, ValueError: an entry is missing or impossible.
    """
    forms = Counter[PixelForm]()
    for entry in entries:
        channels = count(entry["channels"])
        bits = count(entry["bits"])
        form = PixelForm(channels, bits)
        forms[form] = count(entry["samples"])
    is_possible = forms.keys() <= {*FORMS, NO_FORM}
    if not is_possible:
        expected = ", ".join(str(form) for form in FORMS)
        got = ", ".join(str(form) for form in forms)
        raise ValueError(f"expected forms of {expected}; got {got}")
    return forms
