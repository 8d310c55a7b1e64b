"""What a user says of pixels (channels, dtype), and a dataset -> the form that its pictures are converted to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.augment import Augment
from fastpipe.errors import ConfigError, choice
from fastpipe.format.pixel_form import PixelForm, count_forms
from fastpipe.samples.by_id import spans
from fastpipe.samples.data import Data

_CHANNELS = {"rgb": 3, "gray": 1, "rgba": 4}
_WORDS = {1: "1 (gray)", 3: "3 (RGB)", 4: "4 (with alpha)"}
_BITS = {torch.uint8: 8, torch.uint16: 16, torch.float32: None}


@dataclass(frozen=True)
class Pixels:
    """How a user wants pixels, checked. See fastpipe.loader."""

    channels: str = "rgb"
    dtype: torch.dtype = torch.uint8

    def __post_init__(self) -> None:
        choice("channels", self.channels, (*_CHANNELS, "own"))
        if self.dtype not in tuple(_BITS):  # which may be no key of a dict
            raise ConfigError(
                f"dtype: expected torch.uint8, torch.uint16 or torch.float32, got {self.dtype!r}; for other dtypes of "
                "batches pass augment=fastpipe.Augment(mean=None, std=None, dtype=torch.bfloat16)"
            )

    @property
    def augment(self) -> Augment | None:
        """What makes this dtype of batches of integers; None: nothing has to."""
        return None if _BITS[self.dtype] else Augment(mean=None, std=None)

    def form(self, data: Data) -> PixelForm:
        """What pictures of this dataset are converted to; ConfigError: "own", and they have several."""
        channels, bits = _CHANNELS.get(self.channels), _BITS[self.dtype]
        if channels and bits:
            return PixelForm(channels, bits)
        counts = _counts(data)
        if channels is None:
            kinds = Counter[int]()
            for form, count in counts.items():
                kinds[form.channels] += count
            if len(kinds) > 1:
                said = ", ".join(f"{count:,} of {_WORDS.get(each, each)}" for each, count in sorted(kinds.items()))
                raise ConfigError(
                    f'channels: "own" needs samples of one number of channels, got {said} in {data.path}. Pass '
                    'channels="rgb", "gray" or "rgba", which converts all samples, or choose samples of one kind: '
                    'data.select(lambda columns: columns["channels"] == 3)'
                )
            (channels,) = kinds
        return PixelForm(channels, bits or max(form.bits for form in counts))

    def of(self, pixels: NDArray[Any]) -> NDArray[Any]:
        """Pixels of that form in this dtype."""
        if _BITS[self.dtype]:
            return pixels
        return np.asarray(np.multiply(pixels, np.float32(1 / np.iinfo(pixels.dtype).max), dtype=np.float32))

    def __repr__(self) -> str:
        return f"channels={self.channels!r}, dtype={self.dtype}"


def _counts(data: Data) -> Counter[PixelForm]:
    """How many samples have which form; records are read only where some samples of several forms were chosen."""
    if data.content.samples is None or len(data.index.form_counts) == 1:
        return data.index.form_counts
    found = Counter[PixelForm]()
    for ids in spans(len(data)):
        found += count_forms(data.index.records_of(data.content.numbers(ids)))
    return found
