"""The results of modules on the first batches -> a warning if they are far from pixels in [0, 1]."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fastpipe.warnings_once import is_known, warn_once

_NUM_BATCHES = 2
_NUM_IMAGES = 16  # of each batch: a module may change some images only
# Pixels in [0, 1] have a mean in it, and a deviation of 0.5 at most. Modules that brighten, or that
# add noise, may leave [0, 1] a little.
_LEAST_MEAN = -0.5
_MOST_MEAN = 1.5
_MOST_DEVIATION = 0.75
# Pixels that were divided by 255 a second time have at most this mean and this deviation. No photo
# is as dark: of bytes, that is one level of 255.
_MOST_OF_DIVIDED = 1 / 255


class RangeWatch:
    """Looks at what a module returns, before it is normalised. It never waits for a device.

    A module may normalise by a function, or be made for pixels of 0 to 255: no look at the module
    shows that.
    """

    def __init__(self) -> None:
        self._num_looks = 0
        # On their way from the device: the module's name, its figures, and when they have come.
        self._pending: list[tuple[str, Tensor, Any]] = []

    def look(self, name: str, images: Tensor) -> None:
        """Looks at the result of the module called `name`, if it is one of the first batches."""
        self._warn_of_pending()
        if self._num_looks >= _NUM_BATCHES or images.device.type not in ("cpu", "cuda"):
            return
        self._num_looks += 1
        first_images = images[:_NUM_IMAGES].to(torch.float32)
        figures = torch.stack([first_images.mean(), first_images.std(correction=0)])
        if images.device.type == "cpu":
            _warn(name, figures)
            return
        copied = torch.empty(2, device="cpu", pin_memory=True)
        copied.copy_(figures, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._pending.append((name, copied, event))

    def _warn_of_pending(self) -> None:
        while self._pending and self._pending[0][2].query():
            name, figures, _ = self._pending.pop(0)
            _warn(name, figures)

    def __getstate__(self) -> dict[str, Any]:
        # Events of CUDA can neither be copied nor pickled.
        return {"_num_looks": self._num_looks, "_pending": []}


def _warn(name: str, figures: Tensor) -> None:
    warning = f"range of {name}"
    mean, deviation = figures.tolist()
    is_near = _LEAST_MEAN <= mean <= _MOST_MEAN and deviation <= _MOST_DEVIATION
    # Black images, mean 0 and deviation 0, may be those of the dataset.
    is_divided = 0 < mean <= _MOST_OF_DIVIDED and 0 < deviation <= _MOST_OF_DIVIDED
    if is_known(warning) or (is_near and not is_divided):
        return
    if is_divided:
        advice = (
            "The module gets pixels in [0, 1]: if it divides by 255, leave that out"
        )
    else:
        advice = (
            "If the module normalises, pass fastpipe.Augment(modules, mean=None, std=None); if its "
            "numbers are for pixels of 0 to 255, divide them by 255"
        )
    warn_once(
        warning,
        f"augment: {name} returned images with mean {mean:.3g} and standard deviation "
        f"{deviation:.3g}; expected pixels in [0, 1], which mean= and std= of fastpipe.Augment "
        f"normalise afterwards. {advice}",
    )
