"""The operations of the presets: which samples they change, and by which numbers.

SimCLR: colour jitter, grayscale, blur. Its crop and flip are the loader's. RandAugment and
TrivialAugment: for each sample an operation and its strength, carried out group by group.

Sources: Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations", 2020,
appendix A; Cubuk et al., "RandAugment", 2020; Müller and Hutter, "TrivialAugment", 2021.
Operations and ranges of the last two are those of torchvision's RandAugment and TrivialAugmentWide,
in 31 steps from least to most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise, permutations
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastpipe.arrays import Float32s, Float64s, Int64s
from fastpipe.device.augment import effects, pixels
from fastpipe.device.augment.operation import (
    Array,
    Draws,
    Function,
    Operation,
    Step,
    Tensors,
    on_colour,
    on_rows,
)
from fastpipe.plan.crops import Size
from fastpipe.plan.draws import Stream, between

LAST_BIN = 30  # the greatest magnitude
MAX_LAYERS = 16  # Stream has as many numbers for the draws of layers

_JITTERS = (
    (Stream.BRIGHTNESS, effects.brightness),
    (Stream.CONTRAST, effects.contrast),
    (Stream.SATURATION, effects.saturation),
    (Stream.HUE, effects.hue),
)
_JITTER_ORDERS = tuple(permutations(range(len(_JITTERS))))


class Space(NamedTuple):
    """The strength of operations at the last bin."""

    shear: float  # tangent of the angle
    translate: float | None  # pixels; None: 150/331 of the image's side
    rotate: float  # degrees
    # Distance from 1 of the factors of brightness, saturation, contrast and sharpness.
    enhance: float
    posterize: int  # bits taken away


RANDAUGMENT = Space(shear=0.3, translate=None, rotate=30.0, enhance=0.9, posterize=4)
TRIVIAL_AUGMENT = Space(
    shear=0.99, translate=32.0, rotate=135.0, enhance=0.99, posterize=6
)

# The operations that a sample draws from. The order, torchvision's, decides what a seed draws.
PICKS = (
    "identity",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "brightness",
    "saturation",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
)
_WARPS = PICKS[1:6]  # these move pixels, by one function with a matrix for each sample
_SIGNED = PICKS[1:10]  # these go in one of two directions
# The functions, in the order in which groups are done, with how many numbers each sample has.
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
_GROUPS = (*_FUNCTIONS, "identity")  # samples that stay as they are come last
# (picks,) the position in _GROUPS of each pick's group.
_GROUP_OF_PICK = np.array(
    [_GROUPS.index("warp" if pick in _WARPS else pick) for pick in PICKS]
)


def numbers_of(pick: str, share: Float64s, space: Space, size: Size) -> Float64s:
    """The numbers that a pick's function is called with: (n, 6), a matrix of effects.warp, or one
    in the first column.

    Args:
        pick: one of PICKS.
        share: (n,) from -1 or 0 to 1, the part of the strength at the last bin.
        space: the strengths.
        size: (height, width) of the images in pixels.
    """
    numbers = np.zeros((len(share), 6))
    if pick in _WARPS:
        height, width = size
        # a b c d e f of effects.warp, first those of the identity.
        numbers[:, [0, 4]] = 1
        for entry, values in _matrix_entries(pick, share, space, size).items():
            column = "abcdef".index(entry)
            numbers[:, column] = values
        # From pixels to grid_sample's range of -1 to 1: a b c give x, and d e f give y.
        numbers[:, :3] *= 2 / width
        numbers[:, 3:] *= 2 / height
    elif pick in ("brightness", "saturation", "contrast", "sharpness"):
        numbers[:, 0] = 1 + share * space.enhance
    elif pick == "posterize":
        bits = 8 - share * space.posterize
        numbers[:, 0] = np.rint(bits)
    elif pick == "solarize":
        numbers[:, 0] = 1 - share
    return numbers


def _matrix_entries(
    pick: str, share: Float64s, space: Space, size: Size
) -> dict[str, Float64s]:
    """The entries of a warp's matrix, in pixels, that differ from those of the identity."""
    height, width = size
    if pick == "rotate":  # counter-clockwise around the middle
        angle = np.radians(share * space.rotate)
        sine = np.sin(angle)
        cosine = np.cos(angle)
        return {"a": cosine, "b": -sine, "d": sine, "e": cosine}
    if pick == "translate_x":
        return {"c": -_whole_pixels(share, space.translate, width)}
    if pick == "translate_y":
        return {"f": -_whole_pixels(share, space.translate, height)}
    tangent = share * space.shear
    if pick == "shear_x":  # the upper left corner stays
        return {"b": tangent, "c": tangent * height / 2}
    return {"d": tangent, "f": tangent * width / 2}


def _whole_pixels(share: Float64s, most: float | None, side: int) -> Float64s:
    """The distance of a translation, rounded towards 0."""
    if most is None:
        most = 150 / 331 * side  # torchvision's: 150 pixels in an image of 331
    # A number that is whole except for rounding errors stays.
    whole_pixels = np.floor(np.abs(share) * most + 1e-6)
    return np.asarray(np.sign(share) * whole_pixels)


class Layer(NamedTuple):
    """One operation for each sample of a batch, in groups of samples with the same function."""

    # (n,) of the batch, group by group, ascending in each; rows that stay as they are come last.
    rows: Int64s
    # The function's name, and the group's places [begin, end) in `rows`.
    groups: tuple[tuple[str, int, int], ...]


class Policy(Operation):
    """Gives each sample operations of its own, one a layer.

    Args:
        space: the strengths of operations.
        layers: number of operations of a sample.
        magnitude: the bin of all samples; None: drawn evenly from all bins.
        spread: standard deviation of the bins around the magnitude; infinity: drawn evenly from 0
            to the magnitude.
        most: the greatest bin, with a magnitude.
        probability: of an operation in a layer.
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
        self.space = space
        self.layers = layers
        self.magnitude = magnitude
        self.spread = spread
        self.most = most
        self.probability = probability

    def plan(self, draws: Draws, size: Size, position: int) -> Step:
        """Host: the Layers.

        Arrays, for layer l: "l.moves" (n,), the place in the layer before of each image of the
        sorted layer, and "l.numbers" (n, 6). "back" (n,): the place of each row of the batch in the
        last layer.
        """
        layers: list[Layer] = []
        arrays: dict[str, Array] = {}
        # Each layer sorts the images anew, from the order of the layer before.
        place_of_row = np.arange(len(draws))
        for number in range(self.layers):
            layer, numbers = self._plan_layer(draws, size, number)
            layers.append(layer)
            arrays[f"{number}.moves"] = place_of_row[layer.rows]
            arrays[f"{number}.numbers"] = numbers
            place_of_row = np.argsort(layer.rows)
        arrays["back"] = place_of_row
        return Step(tuple(layers), arrays)

    def _plan_layer(
        self, draws: Draws, size: Size, number: int
    ) -> tuple[Layer, Float32s]:
        """Draws a layer, and the numbers of its functions: (n, 6), sorted as the layer's rows."""
        pick_draws = draws.each(Stream.OPERATION + number)
        is_changed = pick_draws < self.probability
        # One draw decides whether there is an operation, and which: a draw below the probability is
        # stretched to [0, 1). 0 picks the identity.
        stretched = pick_draws / (self.probability or 1)
        pick_draws = np.where(is_changed, stretched, 0)
        picks = (pick_draws * len(PICKS)).astype(np.int64)
        magnitude_draws = draws.each(Stream.MAGNITUDE + number)
        bins = self._bins(magnitude_draws)
        sign_draws = draws.each(Stream.SIGN + number)
        signs = np.where(sign_draws < 0.5, -1, 1)
        numbers = np.zeros((len(draws), 6))
        for index, pick in enumerate(PICKS):
            rows = np.flatnonzero(picks == index)
            share = bins[rows] / LAST_BIN
            if pick in _SIGNED:
                share = share * signs[rows]
            numbers[rows] = numbers_of(pick, share, self.space, size)

        # Sorts the rows group by group; in a group they stay ascending.
        group_of_row = _GROUP_OF_PICK[picks]
        order = np.argsort(group_of_row, kind="stable")
        sorted_groups = group_of_row[order]
        # (groups + 1,) where each group begins, and the end of the last one.
        group_numbers = np.arange(len(_FUNCTIONS) + 1)
        edges = np.searchsorted(sorted_groups, group_numbers).tolist()
        groups = []
        for name, (begin, end) in zip(_FUNCTIONS, pairwise(edges), strict=True):
            if begin < end:
                groups.append((name, begin, end))
        layer = Layer(order, tuple(groups))
        sorted_numbers = numbers[order].astype(np.float32)
        return layer, sorted_numbers

    def _bins(self, draws: Float64s) -> Float64s:
        """(n,) magnitudes, from as many draws."""
        if self.magnitude is None:
            return np.asarray(np.floor(draws * (LAST_BIN + 1)))
        if self.spread == math.inf:
            bins = draws * self.magnitude
        elif self.spread:
            # A uniform draw becomes a normal one by the inverse of the distribution function.
            normal = torch.special.ndtri(torch.from_numpy(draws))
            bins = self.magnitude + normal.numpy() * self.spread
        else:
            bins = np.full(len(draws), float(self.magnitude))
        return np.clip(bins, 0, self.most)

    def run(
        self, images: Tensor, first_row: int, host: tuple[Layer, ...], tensors: Tensors
    ) -> Tensor:
        if not pixels.on_cpu(images.device):
            return self._run_sorted(images, host, tensors)
        for number, layer in enumerate(host):
            numbers = tensors[f"{number}.numbers"]
            for name, begin, end in layer.groups:
                rows = layer.rows[begin:end]
                parameters = _parameters(name, numbers[begin:end])
                images = on_rows(
                    self._function(name),
                    images,
                    first_row,
                    rows,
                    torch.from_numpy(rows),
                    *parameters,
                )
        return images

    def move(
        self, kind: str, values: Tensor, host: tuple[Layer, ...], tensors: Tensors
    ) -> Tensor:
        """Warps the planes of "shown" as the images."""
        return self._run_sorted(values, host, tensors, only="warp")

    def _run_sorted(
        self,
        images: Tensor,
        host: tuple[Layer, ...],
        tensors: Tensors,
        only: str | None = None,
    ) -> Tensor:
        """Few launches: a layer sorts all images once, so that each group is a slice.

        `only`: the function that is done; None: all.
        """
        # Two buffers, `images` and `spare`, which change places at each sort.
        spare = torch.empty_like(images)
        for number, layer in enumerate(host):
            source = images
            images = torch.index_select(
                source, 0, tensors[f"{number}.moves"], out=spare
            )
            spare = source
            numbers = tensors[f"{number}.numbers"]
            for name, begin, end in layer.groups:
                if only is not None and name != only:
                    continue
                group = images[begin:end]
                # Functions work in place if they can, so most results are the group itself.
                changed = self._function(name)(
                    group, *_parameters(name, numbers[begin:end])
                )
                if changed is not group:
                    group.copy_(changed)
        return torch.index_select(images, 0, tensors["back"], out=spare)

    def _function(self, name: str) -> Function:
        # Alpha moves with the pixels; all other functions leave it as it is.
        function = self.fast(_FUNCTIONS[name][0])
        return function if name == "warp" else on_colour(function)

    def extra_repr(self) -> str:
        return (
            f"layers={self.layers}, magnitude={self.magnitude}, spread={self.spread}, "
            f"{self.space}"
        )


def _parameters(name: str, numbers: Tensor) -> list[Tensor]:
    """A group's (m, 6) numbers -> the arguments of its function after the images."""
    _, count = _FUNCTIONS[name]
    if count == 0:
        return []
    if count == 1:
        return [numbers[:, 0]]
    return [numbers]


class _SomeSamples(Operation):
    """Changes each sample with a probability."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def extra_repr(self) -> str:
        return f"probability={self.probability}"


class ColourJitter(_SomeSamples):
    """Brightness, contrast and saturation times 1 - x to 1 + x (at least 0), hue turned by -x to x;
    torchvision's.

    The order of the four is drawn for a batch, not for a sample.

    Args:
        strength: factor of the paper's 0.8, 0.8, 0.8, 0.2.
        probability: of a sample.
    """

    def __init__(self, strength: float, probability: float = 0.8) -> None:
        super().__init__(probability)
        self.strength = strength

    def plan(self, draws: Draws, size: Size, position: int) -> Step:
        """Host: rows and order.

        Arrays: "rows" (m,), "factors" (m, 4) of brightness, contrast, saturation, hue.
        """
        is_jittered = draws.each(Stream.JITTER) < self.probability
        rows = np.flatnonzero(is_jittered)
        # The paper's ColorJitter(0.8 s, 0.8 s, 0.8 s, 0.2 s), of strength s.
        reach = self.strength * 0.8
        low = max(0.0, 1 - reach)
        high = 1 + reach
        turn = self.strength * 0.2
        factor = (low, high)
        ranges = (factor, factor, factor, (-turn, turn))
        factors = []
        for (stream, _), (least, most) in zip(_JITTERS, ranges, strict=True):
            row_draws = draws.each(stream)[rows]
            factors.append(between(row_draws, least, most))
        order_draw = draws.once(Stream.JITTER_ORDER)
        order_index = int(order_draw * len(_JITTER_ORDERS))
        order = _JITTER_ORDERS[order_index]
        factors_f32 = np.stack(factors, axis=1).astype(np.float32)
        return Step((rows, order), {"rows": rows, "factors": factors_f32})

    def run(
        self, images: Tensor, first_row: int, host: tuple[Int64s, Any], tensors: Tensors
    ) -> Tensor:
        rows, order = host

        def jitter(images: Tensor, factors: Tensor) -> Tensor:
            for index in order:
                _, function = _JITTERS[index]
                images = self.fast(function)(images, factors[:, index])
            return images

        return on_rows(
            on_colour(jitter),
            images,
            first_row,
            rows,
            tensors["rows"],
            tensors["factors"],
        )

    def extra_repr(self) -> str:
        return f"strength={self.strength}, {super().extra_repr()}"


class Grayscale(_SomeSamples):
    """Takes the colour from some samples."""

    def plan(self, draws: Draws, size: Size, position: int) -> Step:
        """Host and array "rows": (m,)."""
        is_gray = draws.each(Stream.GRAYSCALE) < self.probability
        rows = np.flatnonzero(is_gray)
        return Step(rows, {"rows": rows})

    def run(
        self, images: Tensor, first_row: int, host: Int64s, tensors: Tensors
    ) -> Tensor:
        return on_rows(
            on_colour(self.fast(effects.grayscale)),
            images,
            first_row,
            host,
            tensors["rows"],
        )


class Blur(_SomeSamples):
    """Blurs some samples; the kernel has a tenth of the shorter side, sigma 0.1 to 2 pixels."""

    def plan(self, draws: Draws, size: Size, position: int) -> Step:
        """Host: rows and the kernel's radius. Arrays: "rows" (m,), "sigmas" (m,)."""
        is_blurred = draws.each(Stream.BLUR) < self.probability
        rows = np.flatnonzero(is_blurred)
        sigma_draws = draws.each(Stream.BLUR_SIGMA)[rows]
        sigmas = 0.1 + 1.9 * sigma_draws
        # A tenth of the shorter side, made odd, at least 3. Reflected borders need a side longer
        # than the radius.
        shorter_side = min(size)
        radius = max(1, shorter_side // 10 // 2)
        radius = min(radius, shorter_side - 1)
        arrays: dict[str, Array] = {
            "rows": rows,
            "sigmas": sigmas.astype(np.float32),
        }
        return Step((rows, radius), arrays)

    def run(
        self, images: Tensor, first_row: int, host: tuple[Int64s, int], tensors: Tensors
    ) -> Tensor:
        rows, radius = host
        # Not through `fast`: on a CPU the compiled form takes five times as long.
        blur = on_colour(partial(effects.gaussian_blur, radius=radius))
        return on_rows(
            blur, images, first_row, rows, tensors["rows"], tensors["sigmas"]
        )
