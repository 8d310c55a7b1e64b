"""The operations of the presets: which samples they change, with which numbers; then done.

SimCLR: colour jitter, grayscale, blur. Its crop and flip are the loader's. RandAugment and TrivialAugment: for each
sample an operation and how far it goes; then done, group by group.

Sources: Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations", 2020, appendix A; Cubuk
et al., "RandAugment", 2020; Müller and Hutter, "TrivialAugment", 2021; operations and ranges of the last two are those
of torchvision's RandAugment and TrivialAugmentWide, in 31 steps from least to most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastpipe.augment import effects, pixels
from fastpipe.augment.operation import Array, Draws, Function, Operation, Step, Tensors, on_colour, on_rows
from fastpipe.plan.draws import Float64s, Int64s, Stream

LAST_BIN = 30
MOST_LAYERS = 16  # as many streams as a draw has

Values = Float64s

_JITTERS = (
    (Stream.BRIGHTNESS, effects.brightness),
    (Stream.CONTRAST, effects.contrast),
    (Stream.SATURATION, effects.saturation),
    (Stream.HUE, effects.hue),
)
_ORDERS = tuple(permutations(range(len(_JITTERS))))


@dataclass(frozen=True)
class Space:
    """How far operations go at the last bin."""

    shear: float  # tangent of the angle
    translate: float | None  # pixels; None: 150/331 of the image's side
    rotate: float  # degrees
    enhance: float  # how far from 1 the factors of brightness, saturation, contrast and sharpness are
    posterize: int  # bits taken away


RANDAUGMENT = Space(shear=0.3, translate=None, rotate=30.0, enhance=0.9, posterize=4)
TRIVIAL_AUGMENT = Space(shear=0.99, translate=32.0, rotate=135.0, enhance=0.99, posterize=6)

# What a sample's draw picks from, in torchvision's order, which is part of what a seed means. Those that move pixels
# are one function, a warp with a matrix a sample.
PICKS = (
    *("identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate"),
    *("brightness", "saturation", "contrast", "sharpness"),
    *("posterize", "solarize", "autocontrast", "equalize"),
)
_WARPS = PICKS[1:6]
_SIGNED = PICKS[1:10]
# In the order in which the groups are done; how many numbers each sample's call has.
_FUNCTIONS: dict[str, tuple[Callable[..., Tensor], int]] = {
    "warp": (effects.warp, 6),
    "brightness": (effects.brightness, 1),
    "saturation": (effects.saturation, 1),
    "contrast": (effects.contrast, 1),
    "sharpness": (effects.sharpness, 1),
    "posterize": (effects.posterize, 1),
    "solarize": (effects.solarize, 1),
    "autocontrast": (effects.autocontrast, 0),
    "equalize": (effects.equalize, 0),
}

# Last those that stay as they are.
_FUNCTION_OF_PICK = np.array([[*_FUNCTIONS, "identity"].index("warp" if pick in _WARPS else pick) for pick in PICKS])


def numbers_of(pick: str, share: Values, space: Space, size: tuple[int, int]) -> Values:
    """What a pick's function is called with: (n, 6), a matrix of effects.warp, or the number in the first column.

    share, (n,), is how much of the way to the last bin: from -1 or 0 to 1. size is (height, width) in pixels.
    """
    height, width = size
    numbers = np.zeros((len(share), 6))
    if pick in _WARPS:
        numbers[:, [0, 4]] = 1
        for place, column in _moves(pick, share, space, size).items():
            numbers[:, "abcdef".index(place)] = column
        numbers *= np.array([2 / width] * 3 + [2 / height] * 3)
    elif pick in ("brightness", "saturation", "contrast", "sharpness"):
        numbers[:, 0] = 1 + share * space.enhance
    elif pick == "posterize":
        numbers[:, 0] = np.rint(8 - share * space.posterize)
    elif pick == "solarize":
        numbers[:, 0] = 1 - share
    return numbers


def _moves(pick: str, share: Values, space: Space, size: tuple[int, int]) -> dict[str, Values]:
    """The numbers of a warp's matrix, in pixels, that are not those of a matrix that moves nothing."""
    height, width = size
    sine, cosine = np.sin(angle := np.radians(share * space.rotate)), np.cos(angle)
    tangent = share * space.shear

    def whole(side: int) -> Values:
        """Whole pixels, towards 0; what is whole but for rounding stays."""
        most = 150 / 331 * side if space.translate is None else space.translate
        return np.asarray(np.sign(share) * np.floor(np.abs(share) * most + 1e-6))

    return {
        "rotate": {"a": cosine, "b": -sine, "d": sine, "e": cosine},  # counter-clockwise around the middle
        "translate_x": {"c": -whole(width)},
        "translate_y": {"f": -whole(height)},
        "shear_x": {"b": tangent, "c": tangent * height / 2},  # the upper left corner stays
        "shear_y": {"d": tangent, "f": tangent * width / 2},
    }[pick]


@dataclass(frozen=True)
class Layer:
    """A layer's rows in the batch, group by group, ascending in each; last those that stay as they are."""

    rows: Int64s
    groups: tuple[tuple[str, int, int], ...]  # that have samples: the function's name, first place and end in rows


class Policy(Operation):
    """Gives each sample operations of its own, one a layer. magnitude: the bin of all samples, or None: drawn evenly;
    spread: the standard deviation of bins around it, or infinity: drawn evenly from 0 to it; most: of all that is drawn
    so. probability: of an operation in a layer.
    """

    name = "RandAugment or TrivialAugment"
    moves = frozenset(["shown"])

    def __init__(
        self,
        space: Space,
        layers: int,
        magnitude: float | None,
        *,
        spread: float = 0.0,
        most: float = LAST_BIN,
        probability: float = 1.0,
    ) -> None:
        super().__init__()
        self.space, self.layers, self.magnitude = space, layers, magnitude
        self.spread, self.most, self.probability = spread, most, probability

    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Host: a Layer each. Arrays: for each layer l "l.moves" (n,), which image of the layer before comes where, and
        "l.numbers" (n, 6); "back" (n,), where each row of the batch is after the last layer.
        """
        layers: list[Layer] = []
        arrays: dict[str, Array] = {}
        back = np.arange(len(draws))
        for number in range(self.layers):
            layer, numbers = self._plan_layer(draws, size, number)
            layers.append(layer)
            arrays |= {f"{number}.moves": back[layer.rows], f"{number}.numbers": numbers}
            back = np.argsort(layer.rows)
        return Step(tuple(layers), arrays | {"back": back})

    def _plan_layer(self, draws: Draws, size: tuple[int, int], number: int) -> tuple[Layer, NDArray[np.float32]]:
        pick_at = draws.each(Stream.OPERATION + number)
        pick_at = np.where(pick_at < self.probability, pick_at / (self.probability or 1), 0)  # 0: stays as it is
        picked = (pick_at * len(PICKS)).astype(np.int64)
        at = draws.each(Stream.MAGNITUDE + number)
        bins = np.floor(at * (LAST_BIN + 1))
        if self.magnitude is not None:
            if self.spread == math.inf:
                bins = at * self.magnitude
            elif self.spread:
                bins = self.magnitude + torch.special.ndtri(torch.from_numpy(at)).numpy() * self.spread
            else:
                bins = np.full(len(draws), float(self.magnitude))
            bins = np.clip(bins, 0, self.most)
        sign = np.where(draws.each(Stream.SIGN + number) < 0.5, -1, 1)
        numbers = np.zeros((len(draws), 6))
        for code, pick in enumerate(PICKS):
            rows = np.flatnonzero(picked == code)
            share = bins[rows] / LAST_BIN * (sign[rows] if pick in _SIGNED else 1)
            numbers[rows] = numbers_of(pick, share, self.space, size)
        function = _FUNCTION_OF_PICK[picked]
        order = np.argsort(function, kind="stable")
        edges = np.searchsorted(function[order], np.arange(len(_FUNCTIONS) + 1))
        groups = tuple(
            (name, int(begin), int(end))
            for name, begin, end in zip(_FUNCTIONS, edges[:-1], edges[1:], strict=True)
            if begin < end
        )
        return Layer(order, groups), numbers[order].astype(np.float32)

    def run(self, images: Tensor, first: int, host: tuple[Layer, ...], tensors: Tensors) -> Tensor:
        if not pixels.on_cpu(images.device):
            return self._run_sorted(images, host, tensors)
        for number, layer in enumerate(host):
            numbers = tensors[f"{number}.numbers"]
            for name, begin, end in layer.groups:
                rows = layer.rows[begin:end]
                parameters = _parameters(name, numbers[begin:end])
                images = on_rows(self._function(name), images, first, rows, torch.from_numpy(rows), *parameters)
        return images

    def move(self, kind: str, values: Tensor, host: tuple[Layer, ...], tensors: Tensors) -> Tensor:
        """Warps where the images are in their rows as the images are."""
        return self._run_sorted(values, host, tensors, only="warp")

    def _run_sorted(self, images: Tensor, host: tuple[Layer, ...], tensors: Tensors, only: str | None = None) -> Tensor:
        """A whole batch with few launches: a layer sorts all images once, so that each group is a slice."""
        spare = torch.empty_like(images)
        for number, layer in enumerate(host):
            images, spare = torch.index_select(images, 0, tensors[f"{number}.moves"], out=spare), images
            numbers = tensors[f"{number}.numbers"]
            for name, begin, end in layer.groups:
                if only not in (None, name):
                    continue
                group = images[begin:end]
                made = self._function(name)(group, *_parameters(name, numbers[begin:end]))
                if made is not group:
                    group.copy_(made)
        return torch.index_select(images, 0, tensors["back"], out=spare)

    def _function(self, name: str) -> Function:
        function = self.fast(_FUNCTIONS[name][0])
        return function if name == "warp" else on_colour(function)

    def extra_repr(self) -> str:
        return f"layers={self.layers}, magnitude={self.magnitude}, spread={self.spread}, {self.space}"


def _parameters(name: str, numbers: Tensor) -> list[Tensor]:
    """A group's (m, 6) numbers -> what its function takes besides the images."""
    width = _FUNCTIONS[name][1]
    return [numbers] if width > 1 else [numbers[:, 0]] * width


class _OnSome(Operation):
    """Changes each sample with a probability."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def extra_repr(self) -> str:
        return f"probability={self.probability}"


class ColourJitter(_OnSome):
    """Brightness, contrast and saturation times 1 - x to 1 + x (at least 0), hue turned by -x to x; torchvision's.

    The order of the four is drawn for a batch, not for a sample. `strength` is that of the paper's 0.8, 0.8, 0.8, 0.2.
    """

    def __init__(self, strength: float, probability: float = 0.8) -> None:
        super().__init__(probability)
        self.strength = strength

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

    def run(self, images: Tensor, first: int, host: tuple[Int64s, Any], tensors: Tensors) -> Tensor:
        rows, order = host

        def jitter(images: Tensor, factors: Tensor) -> Tensor:
            for which in order:
                images = self.fast(_JITTERS[which][1])(images, factors[:, which])
            return images

        return on_rows(on_colour(jitter), images, first, rows, tensors["rows"], tensors["factors"])

    def extra_repr(self) -> str:
        return f"strength={self.strength}, {super().extra_repr()}"


class Grayscale(_OnSome):
    """Takes the colour from some samples."""

    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Host and array "rows": (m,)."""
        rows = np.flatnonzero(draws.each(Stream.GRAYSCALE) < self.probability)
        return Step(rows, {"rows": rows})

    def run(self, images: Tensor, first: int, host: Int64s, tensors: Tensors) -> Tensor:
        return on_rows(on_colour(self.fast(effects.grayscale)), images, first, host, tensors["rows"])


class Blur(_OnSome):
    """Blurs some samples with a kernel of about a tenth of the shorter side, sigma 0.1 to 2 pixels."""

    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Host: rows and the kernel's radius. Arrays: "rows" (m,), "sigmas" (m,)."""
        rows = np.flatnonzero(draws.each(Stream.BLUR) < self.probability)
        sigmas = 0.1 + 1.9 * draws.each(Stream.BLUR_SIGMA)[rows]
        # A tenth of the shorter side, made odd, and at least 3; which needs a pixel to reflect.
        radius = min(max(1, min(size) // 10 // 2), min(size) - 1)
        return Step((rows, radius), {"rows": rows, "sigmas": sigmas.astype(np.float32)})

    def run(self, images: Tensor, first: int, host: tuple[Int64s, int], tensors: Tensors) -> Tensor:
        rows, radius = host
        blur = on_colour(partial(effects.gaussian_blur, radius=radius))  # compiled, a CPU takes five times as long
        return on_rows(blur, images, first, rows, tensors["rows"], tensors["sigmas"])
