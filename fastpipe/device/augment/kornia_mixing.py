"""A module of kornia that mixes images -> an operation that mixes them and their labels.

kornia draws the parameters. Mixup and boxes are then applied here, without a mask that would make
the host wait for the device; the pixels are those of the module called directly. kornia's mosaic
composes images itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastpipe.arrays import Float64s, Int64s
from fastpipe.device.augment import kornia_modules
from fastpipe.device.augment.inputs import check_result
from fastpipe.device.augment.normalised import box_share
from fastpipe.device.augment.operation import (
    Array,
    Draws,
    ModuleOperation,
    Step,
    Tensors,
)
from fastpipe.device.augment.pixels import inside
from fastpipe.errors import ConfigError
from fastpipe.plan.crops import Size
from fastpipe.plan.draws import Stream

Parameters = dict[str, Tensor]
Arrays = dict[str, Array]
_CPU = torch.device("cpu")

# The functions below turn the parameters that kornia drew for n images into arrays:
# "partners" (k, n), the rows whose images make each result, its own row first;
# "shares" (k, n), their shares; and
# "boxes" (n, 4) top, left, bottom, right, that are pasted. kornia counts x before y.


def _mixup(module: Any, parameters: Parameters, draws: Draws, size: Size) -> Arrays:
    """The partner's share is kornia's lambda."""
    partners = parameters["mixup_pairs"].numpy()
    shares = parameters["mixup_lambdas"].numpy()
    return _arrays_of_pairs(partners, shares)


def _cutmix(module: Any, parameters: Parameters, draws: Draws, size: Size) -> Arrays:
    """The partner's share is that of the box's pixels."""
    # (n, 4, 2): x, y of the corners, clockwise from the left top. The bottom right corner is a
    # pixel of the box.
    corners = parameters["crop_src"][0].numpy().astype(np.int64)
    top_left = corners[:, 0, ::-1]
    bottom_right = corners[:, 2, ::-1] + 1
    boxes_tlbr = np.concatenate([top_left, bottom_right], axis=1)
    partners = parameters["mix_pairs"][0].numpy()
    return _arrays_of_boxes(partners, boxes_tlbr, draws, size)


def _patchmix(module: Any, parameters: Parameters, draws: Draws, size: Size) -> Arrays:
    """As for cutmix."""
    top_left = parameters["patch_coords"].numpy()[:, ::-1]  # (n, 2): y, x
    bottom_right = top_left + module.patch_size
    boxes_tlbr = np.concatenate([top_left, bottom_right], axis=1)
    partners = parameters["mix_pairs"].numpy()
    return _arrays_of_boxes(partners, boxes_tlbr, draws, size)


def _mosaic(module: Any, parameters: Parameters, draws: Draws, size: Size) -> Arrays:
    """A tile's share is the part of the window that it fills.

    The tiles go down the columns, from left to right.
    """
    columns, rows = module.flags["mosaic_grid"]
    start_x, start_y = parameters["src"][:, 0].numpy().T  # (n,) each, of the window
    height, width = size
    across = _filled_parts(start_x, columns, width)
    down = _filled_parts(start_y, rows, height)
    # (columns, rows, n) -> (columns * rows, n)
    shares = across[:, None] * down[None]
    shares = shares.reshape(columns * rows, -1)
    return {
        "partners": parameters["permutation"].numpy().T,
        "shares": shares.astype(np.float32),
    }


def _filled_parts(start: NDArray[Any], tiles: int, side: int) -> Float64s:
    """(tiles, n): the part of a window, `side` long, that each tile of the same length fills."""
    # Tiles [begin, begin + side), (tiles, 1), and windows [start, start + side), (n,).
    begin = side * np.arange(tiles)[:, None]
    overlap_end = np.minimum(start + side, begin + side)
    overlap_start = np.maximum(start, begin)
    overlap = np.clip(overlap_end - overlap_start, 0, side)
    return np.asarray(overlap / side)


def _arrays_of_pairs(partners: Int64s, shares: NDArray[Any]) -> Arrays:
    """Arrays for one partner a row, with its share, (n,)."""
    shares = shares.astype(np.float32)
    return {
        "partners": np.stack([np.arange(len(partners)), partners]),
        "shares": np.stack([1 - shares, shares]),
    }


def _arrays_of_boxes(
    partners: Int64s, boxes_tlbr: Int64s, draws: Draws, size: Size
) -> Arrays:
    """Arrays for boxes (n, 4), top, left, bottom, right, of one partner a row, that are pasted."""
    shares = box_share(boxes_tlbr, partners, draws, size)
    arrays = _arrays_of_pairs(partners, shares)
    arrays["boxes"] = boxes_tlbr
    return arrays


_ARRAYS_OF_CLASS: dict[str, Callable[[Any, Parameters, Draws, Size], Arrays]] = {
    "RandomMixUpV2": _mixup,
    "RandomCutMixV2": _cutmix,
    "PatchMix": _patchmix,
    "RandomMosaic": _mosaic,
}


class KorniaMixing(ModuleOperation):
    """Mixes the images of a batch, and their labels, as one of kornia's modules would.

    Raises:
        ConfigError: labels cannot follow this module.
    """

    mixes = True

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(module)
        name = type(module).__name__
        if not kornia_modules.is_own(module) or name not in _ARRAYS_OF_CLASS:
            raise ConfigError(
                f"augment: {name} mixes images, and fastpipe does not know how it mixes labels; "
                f"expected one of {', '.join(_ARRAYS_OF_CLASS)}. Use one of these, or mix in the "
                "training loop, where you have the labels"
            )
        if name == "RandomCutMixV2":
            generator: Any = module._param_generator
            if generator.num_mix != 1:
                raise ConfigError(
                    f"augment: RandomCutMixV2(num_mix={generator.num_mix}): the boxes of several "
                    "mixes overlap, so the labels' shares are not known. Pass num_mix=1; for more, "
                    "list the module twice"
                )
        self._arrays_of = _ARRAYS_OF_CLASS[name]
        self._is_mosaic = name == "RandomMosaic"
        self.in_pairs = not self._is_mosaic
        if name == "RandomMixUpV2":
            self.moves = frozenset(["shown"])
        elif self.in_pairs:
            self.moves = frozenset(["shown", "mask", "image"])

    @torch.no_grad()
    def plan(self, draws: Draws, size: Size, position: int) -> Step:
        """Host: whether it mixes, kornia's parameters.

        Arrays: "partners", "shares" and "boxes", as the functions above make them.
        """
        kornia_modules.move_to_device(self.module, _CPU)
        if self._is_mosaic:
            self._check_mosaic(size)
        seeds = draws.sample_bits(Stream.MODULE, position).view(np.int64)
        batch_seed = draws.generator_seed(Stream.MODULE, position)
        parameters = kornia_modules.draw_parameters(
            self.module, seeds, batch_seed, draws.channels, size
        )
        arrays = self._arrays_of(self.module, parameters, draws, size)

        # The module's probability leaves some images as they are: their own share is 1, and their
        # box is empty.
        is_mixed = parameters["batch_prob"].numpy() > 0.5
        unmixed_shares = np.zeros_like(arrays["shares"])
        unmixed_shares[0] = 1
        arrays["shares"] = np.where(is_mixed, arrays["shares"], unmixed_shares)
        if "boxes" in arrays:
            arrays["boxes"] = np.where(is_mixed[:, None], arrays["boxes"], 0)
        return Step((bool(is_mixed.any()), parameters), arrays)

    def run(
        self,
        images: Tensor,
        first_row: int,
        host: tuple[bool, Parameters],
        tensors: Tensors,
    ) -> Tensor:
        is_any_mixed, parameters = host
        if not is_any_mixed:
            return images
        if self._is_mosaic:
            result = self.module(images, params=parameters)
            return check_result(self.module, result, len(images))
        partner = images.index_select(0, tensors["partners"][1])
        if "boxes" not in tensors:
            partner_share = tensors["shares"][1]  # (n,)
            return images.lerp_(partner, partner_share[:, None, None, None])
        height, width = images.shape[2:]
        in_box = inside(tensors["boxes"], height, width)  # (n, height, width)
        return torch.where(in_box[:, None], partner, images)

    def move(
        self, kind: str, values: Tensor, host: tuple[bool, Parameters], tensors: Tensors
    ) -> Tensor:
        """Pastes boxes; after a mixup, rows show what either image shows."""
        if "boxes" in tensors:
            return self.run(values, 0, host, tensors)
        partner = values.index_select(0, tensors["partners"][1])
        partner_shares = tensors["shares"][1]
        has_partner = (partner_shares > 0)[:, None, None, None]
        return torch.maximum(values, partner * has_partner)

    def mixed_labels(self, labels: Tensor, host: Any, tensors: Tensors) -> Tensor:
        """Each row becomes the sum of its images' labels by their shares."""
        mixed = labels.new_zeros(())  # 0, to which the first product is added
        sources = zip(tensors["partners"], tensors["shares"], strict=True)
        for partners, shares in sources:
            # (n, classes) and (n, 1)
            labels_of_partner = labels.index_select(0, partners)
            mixed = mixed + labels_of_partner * shares[:, None]
        return mixed

    def _check_mosaic(self, size: Size) -> None:
        flags = self.module.flags
        if flags["output_size"] not in (None, size) or min(flags["mosaic_grid"]) < 2:
            raise ConfigError(
                f"augment: RandomMosaic(output_size={flags['output_size']}, "
                f"mosaic_grid={flags['mosaic_grid']}): the labels' shares are known only for "
                "windows as large as an image, in a grid of at least (2, 2). Leave out "
                "output_size, and pass the size to the loader: fastpipe.loader(size=)"
            )
