"""The operations of SimCLR's augmentation: colour jitter, grayscale, blur; their effect on each sample of a batch.

Source: Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations", 2020, appendix A. Its crop
and flip are the loader's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fastpipe.augment import effects
from fastpipe.augment.operation import Draws, Operation, Step, on_colour, on_rows
from fastpipe.plan.draws import Stream

_JITTERS = (
    (Stream.BRIGHTNESS, effects.brightness),
    (Stream.CONTRAST, effects.contrast),
    (Stream.SATURATION, effects.saturation),
    (Stream.HUE, effects.hue),
)
_ORDERS = tuple(permutations(range(len(_JITTERS))))


class ColourJitter(Operation):
    """Brightness, contrast and saturation times 1 - x to 1 + x (at least 0), hue turned by -x to x; torchvision's.

    The order of the four is drawn for a batch, not for a sample. `strength` is that of the paper's 0.8, 0.8, 0.8, 0.2.
    """

    def __init__(self, strength: float, probability: float = 0.8) -> None:
        super().__init__()
        self.strength = strength
        self.probability = probability

    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Host: rows and order. Arrays: "rows" (m,), "factors" (m, 4) of brightness, contrast, saturation, hue."""
        rows = np.flatnonzero(draws.each(Stream.JITTER) < self.probability)
        reach = self.strength * 0.8
        low, high = max(0.0, 1 - reach), 1 + reach
        turn = self.strength * 0.2
        ranges = ((low, high), (low, high), (low, high), (-turn, turn))
        factors = [
            least + (most - least) * draws.each(stream)[rows]
            for (stream, _), (least, most) in zip(_JITTERS, ranges, strict=True)
        ]
        order = _ORDERS[int(draws.once(Stream.JITTER_ORDER) * len(_ORDERS))]
        return Step((rows, order), {"rows": rows, "factors": np.stack(factors, axis=1).astype(np.float32)})

    def run(
        self, images: Tensor, first: int, host: tuple[NDArray[np.int64], Any], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """Changes the rows drawn."""
        rows, order = host

        def jitter(images: Tensor, factors: Tensor) -> Tensor:
            for which in order:
                images = self.fast(_JITTERS[which][1])(images, factors[:, which])
            return images

        return on_rows(on_colour(jitter), images, first, rows, tensors["rows"], tensors["factors"])

    def extra_repr(self) -> str:
        return f"strength={self.strength}, probability={self.probability}"


class Grayscale(Operation):
    """Takes the colour from some samples."""

    def __init__(self, probability: float = 0.2) -> None:
        super().__init__()
        self.probability = probability

    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Host and array "rows": (m,)."""
        rows = np.flatnonzero(draws.each(Stream.GRAYSCALE) < self.probability)
        return Step(rows, {"rows": rows})

    def run(self, images: Tensor, first: int, host: NDArray[np.int64], tensors: Mapping[str, Tensor]) -> Tensor:
        """Changes the rows drawn."""
        return on_rows(on_colour(self.fast(effects.grayscale)), images, first, host, tensors["rows"])

    def extra_repr(self) -> str:
        return f"probability={self.probability}"


class Blur(Operation):
    """Blurs some samples with a kernel of about a tenth of the shorter side, sigma 0.1 to 2 pixels."""

    def __init__(self, probability: float = 0.5) -> None:
        super().__init__()
        self.probability = probability

    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Host: rows and the kernel's radius. Arrays: "rows" (m,), "sigmas" (m,)."""
        rows = np.flatnonzero(draws.each(Stream.BLUR) < self.probability)
        sigmas = 0.1 + 1.9 * draws.each(Stream.BLUR_SIGMA)[rows]
        # A tenth of the shorter side, made odd, and at least 3; which needs a pixel to reflect.
        radius = min(max(1, min(size) // 10 // 2), min(size) - 1)
        return Step((rows, radius), {"rows": rows, "sigmas": sigmas.astype(np.float32)})

    def run(
        self, images: Tensor, first: int, host: tuple[NDArray[np.int64], int], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """Changes the rows drawn."""
        rows, radius = host
        blur = partial(
            effects.gaussian_blur, radius=radius
        )  # never compiled: that makes it five times as slow on a CPU
        return on_rows(on_colour(blur), images, first, rows, tensors["rows"], tensors["sigmas"])

    def extra_repr(self) -> str:
        return f"probability={self.probability}"
