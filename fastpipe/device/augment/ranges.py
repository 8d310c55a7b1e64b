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
# A module that divides by 255 divides the mean, too. One that changes images otherwise may do some more.
_LEAST_DIVISOR = 160
_MOST_DIVISOR = 400


class RangeWatch:
    """Looks at what a module returns, before it is normalised. It never waits for a device.

    A module may normalise by a function, or be made for pixels of 0 to 255: no look at the module
    shows that.
    """

    def __init__(self, *, is_normalised: bool) -> None:
        """`is_normalised`: the results are normalised, so pixels in [0, 1] are expected."""
        self._is_normalised = is_normalised
        self._num_looks = 0
        # On their way from the device: the module's name, its figures, and when they have come.
        self._pending: list[tuple[str, Tensor, Any]] = []

    def mean_of(self, images: Tensor) -> Tensor | None:
        """The mean of what a module gets, if it is one of the first batches.

        The module may write into the images.
        """
        if self._num_looks >= _NUM_BATCHES or images.device.type not in ("cpu", "cuda"):
            return None
        return images[:_NUM_IMAGES].to(torch.float32).mean()

    def look(self, name: str, images: Tensor, mean_before: Tensor) -> None:
        """Looks at the result of the module called `name`.

        `mean_before`: of what it has got.
        """
        self._warn_of_pending()
        self._num_looks += 1
        first_images = images[:_NUM_IMAGES].to(torch.float32)
        figures = torch.stack(
            [first_images.mean(), first_images.std(correction=0), mean_before]
        )
        if images.device.type == "cpu":
            self._warn(name, figures)
            return
        copied = torch.empty(3, device="cpu", pin_memory=True)
        copied.copy_(figures, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._pending.append((name, copied, event))

    def _warn_of_pending(self) -> None:
        while self._pending and self._pending[0][2].query():
            name, figures, _ = self._pending.pop(0)
            self._warn(name, figures)

    def _warn(self, name: str, figures: Tensor) -> None:
        warning = f"range of {name}"
        mean, deviation, mean_before = figures.tolist()
        is_near = _LEAST_MEAN <= mean <= _MOST_MEAN and deviation <= _MOST_DEVIATION
        is_divided = (
            mean > 0
            and _LEAST_DIVISOR * mean <= mean_before
            and mean_before <= _MOST_DIVISOR * mean
        )
        is_expected = is_near or not self._is_normalised
        if is_known(warning) or (is_expected and not is_divided):
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

    def __getstate__(self) -> dict[str, Any]:
        # Events of CUDA can neither be copied nor pickled.
        return {**vars(self), "_pending": []}
