"""A user's choice of channels and dtype -> the form that the pictures of a dataset get."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.column_values import spans
from fastpipe.dataset.format.pixel_form import NO_FORM, PixelForm, count_forms
from fastpipe.device.augment import Augment
from fastpipe.errors import ConfigError, choice

_CHANNELS = {"rgb": 3, "gray": 1, "rgba": 4}
_CHANNEL_NAMES = {1: "1 (gray)", 3: "3 (RGB)", 4: "4 (with alpha)"}
# The bits that images are decoded to; None: as many as are stored, for floats.
_BITS = {torch.uint8: 8, torch.uint16: 16, torch.float32: None}


@dataclass(frozen=True)
class Pixels:
    """The channels and dtype that a user asks for, checked. See fastpipe.loader."""

    channels: str = "rgb"
    dtype: torch.dtype = torch.uint8

    def __post_init__(self) -> None:
        choice("channels", self.channels, (*_CHANNELS, "own"))
        if self.dtype not in tuple(_BITS):  # a user's value may not be hashable
            hint = (
                "for other dtypes of batches pass augment=fastpipe.Augment(mean=None, std=None, "
                "dtype=torch.bfloat16)"
            )
            if f"torch.{self.dtype}" in map(str, _BITS):
                hint = f"pass dtype=torch.{self.dtype}"
            raise ConfigError(
                "dtype: expected torch.uint8, torch.uint16 or torch.float32, got "
                f"{self.dtype!r}; {hint}"
            )

    @property
    def augment(self) -> Augment | None:
        """Turns batches of integers into this dtype; None: they have it already."""
        if _BITS[self.dtype]:
            return None
        return Augment(mean=None, std=None)

    def form(self, data: BaseDataset) -> PixelForm:
        """The form that pictures of this dataset are decoded to.

        Raises:
            ConfigError: channels are "own", and the samples have several numbers of them.
        """
        channels = _CHANNELS.get(self.channels)
        bits = _BITS[self.dtype]
        if channels and bits:
            return PixelForm(channels, bits)
        form_counts = _count_forms_of(data)
        form_counts.pop(NO_FORM, None)
        if not form_counts:
            return PixelForm(channels or 3, bits or 8)  # no sample has an image
        if channels is None:
            channels = _only_channels(form_counts, data)
        if bits is None:
            # A sample of 8 bits in 16 loses nothing; the other way round it would.
            bits = max(form.bits for form in form_counts)
        return PixelForm(channels, bits)

    def convert(self, pixels: NDArray[Any]) -> NDArray[Any]:
        """Converts decoded pixels, of `form`, to this dtype; floats are 0 to 1."""
        if _BITS[self.dtype]:
            return pixels
        # A product with a float32, as Augment computes it: a quotient may differ in the last bit.
        max_value = np.iinfo(pixels.dtype).max
        scale = np.float32(1 / max_value)
        return np.asarray(np.multiply(pixels, scale, dtype=np.float32))

    def __repr__(self) -> str:
        return f"channels={self.channels!r}, dtype={self.dtype}"


def _only_channels(form_counts: Counter[PixelForm], data: BaseDataset) -> int:
    """The number of channels that all samples have. ConfigError: they have several."""
    channel_counts = Counter[int]()
    for form, count in form_counts.items():
        channel_counts[form.channels] += count
    if len(channel_counts) > 1:
        texts = []
        for channels, count in sorted(channel_counts.items()):
            texts.append(f"{count:,} of {_CHANNEL_NAMES.get(channels, channels)}")
        raise ConfigError(
            f'channels: "own" needs samples of one number of channels, got {", ".join(texts)} in '
            f'{data.path}. Pass channels="rgb", "gray" or "rgba", which converts all samples, or '
            'choose samples of one kind: data.select(lambda columns: columns["channels"] == 3)'
        )
    (channels,) = channel_counts
    return channels


def _count_forms_of(data: BaseDataset) -> Counter[PixelForm]:
    """How many samples have which form. Records are read only where this is not known."""
    if data.content.samples is None or len(data.index.form_counts) == 1:
        return Counter(data.index.form_counts)
    form_counts = Counter[PixelForm]()
    for ids in spans(len(data)):
        numbers = data.content.numbers(ids)
        records = data.index.records_of(numbers)
        form_counts += count_forms(records)
    return form_counts
