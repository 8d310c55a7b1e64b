"""A module of kornia that mixes images -> a stage that mixes them and says whose share each image has.

kornia draws the parameters. Mixup and boxes are then applied here, without a mask that would make the host wait for the
device; the pixels are those of the module called directly. kornia's mosaic composes images itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastpipe.augment import kornia_modules
from fastpipe.augment.by_sample import BySample
from fastpipe.augment.inputs import checked_result
from fastpipe.augment.normalised import box_share
from fastpipe.augment.operation import Apart, Array, Draws, Step, Tensors
from fastpipe.augment.pixels import inside
from fastpipe.errors import ConfigError
from fastpipe.plan.draws import Float64s, Int64s, Stream

Parameters = dict[str, Tensor]
Arrays = dict[str, Array]


def _mixup(module: Any, parameters: Parameters, draws: Draws, size: tuple[int, int]) -> Arrays:
    """The partner's share is kornia's lambda."""
    return _two(parameters["mixup_pairs"].numpy(), parameters["mixup_lambdas"].numpy())


def _cutmix(module: Any, parameters: Parameters, draws: Draws, size: tuple[int, int]) -> Arrays:
    """The partner's share is that of the box's pixels."""
    corners = parameters["crop_src"][0].numpy().astype(np.int64)  # (n, 4, 2): x, y of the corners, clockwise
    boxes = np.concatenate([corners[:, 0, ::-1], corners[:, 2, ::-1] + 1], axis=1)
    return _boxed(parameters["mix_pairs"][0].numpy(), boxes, draws, size)


def _patchmix(module: Any, parameters: Parameters, draws: Draws, size: tuple[int, int]) -> Arrays:
    """As for cutmix."""
    first = parameters["patch_coords"].numpy()[:, ::-1]
    return _boxed(
        parameters["mix_pairs"].numpy(), np.concatenate([first, first + module.patch_size], axis=1), draws, size
    )


def _mosaic(module: Any, parameters: Parameters, draws: Draws, size: tuple[int, int]) -> Arrays:
    """A tile's share is the part of the window that it fills. The tiles go down the columns, from left to right."""
    columns, rows = module.flags["mosaic_grid"]
    start = parameters["src"][:, 0].numpy()  # (n, 2): x, y of the window
    across, down = _filled(start[:, 0], columns, size[1]), _filled(start[:, 1], rows, size[0])
    shares = (across[:, None] * down[None]).reshape(columns * rows, -1)
    return {"partners": parameters["permutation"].numpy().T, "shares": shares.astype(np.float32)}


def _filled(start: NDArray[Any], tiles: int, side: int) -> Float64s:
    """(tiles, n): the part of a window, `side` long, that each tile of the same length fills."""
    begin = side * np.arange(tiles)[:, None]
    overlap = np.minimum(start + side, begin + side) - np.maximum(start, begin)
    return np.asarray(np.clip(overlap, 0, side) / side)


def _two(partner: Int64s, share: NDArray[Any]) -> Arrays:
    share = share.astype(np.float32)
    return {"partners": np.stack([np.arange(len(partner)), partner]), "shares": np.stack([1 - share, share])}


def _boxed(partner: Int64s, boxes: Int64s, draws: Draws, size: tuple[int, int]) -> Arrays:
    return _two(partner, box_share(boxes, partner, draws, size)) | {"boxes": boxes}


_KINDS: dict[str, Callable[[Any, Parameters, Draws, tuple[int, int]], Arrays]] = {
    "RandomMixUpV2": _mixup,
    "RandomCutMixV2": _cutmix,
    "PatchMix": _patchmix,
    "RandomMosaic": _mosaic,
}


class KorniaMixing(Apart):
    """Mixes the images of a batch, and their labels, as one of kornia's modules would; ConfigError: labels cannot
    follow.
    """

    mixes = True

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(module)
        name = type(module).__name__
        generator: Any = getattr(module, "_param_generator", None)
        if not kornia_modules.is_own(module) or name not in _KINDS:
            raise ConfigError(
                f"augment: {name} mixes images, and fastpipe does not know how it mixes labels; expected one of "
                f"{', '.join(_KINDS)}. Use one of these, or mix in the training loop, where you have the labels"
            )
        if name == "RandomCutMixV2" and generator.num_mix != 1:
            raise ConfigError(
                f"augment: RandomCutMixV2(num_mix={generator.num_mix}): the boxes of several mixes "
                "overlap, so the labels' shares are not known. Pass num_mix=1; for more, list the module twice"
            )
        self._arrays = _KINDS[name]
        self.in_pairs = self._arrays is not _mosaic
        if self.in_pairs:
            self.moves = frozenset(["shown"] if self._arrays is _mixup else ["shown", "mask", "image"])

    @torch.no_grad()
    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Host: whether it mixes, kornia's parameters. Arrays: "partners" and "shares" (images of one, n), "boxes"."""
        kornia_modules.place(self.module, torch.device("cpu"))
        self._check_size(size)
        seeds = torch.from_numpy(draws.sample_bits(Stream.MODULE, position).view(np.int64))
        generator = torch.Generator("cpu").manual_seed(draws.generator_seed(Stream.MODULE, position))
        with BySample(seeds, generator=generator, onto=seeds.device):
            parameters = self.module.forward_parameters(torch.Size((len(draws), draws.channels, *size)))
        arrays = self._arrays(self.module, parameters, draws, size)
        applied = parameters["batch_prob"].numpy() > 0.5
        own = np.zeros_like(arrays["shares"])
        own[0] = 1  # the first image of each is itself
        arrays["shares"] = np.where(applied, arrays["shares"], own)
        if "boxes" in arrays:
            arrays["boxes"] = np.where(applied[:, None], arrays["boxes"], 0)
        return Step((bool(applied.any()), parameters), arrays)

    def run(self, images: Tensor, first: int, host: tuple[bool, Parameters], tensors: Tensors) -> Tensor:
        applied, parameters = host
        if not applied:
            return images
        if self._arrays is _mosaic:
            return checked_result(self.module, self.module(images, params=parameters), len(images))
        partner = images.index_select(0, tensors["partners"][1])
        if "boxes" not in tensors:
            return images.lerp_(partner, tensors["shares"][1][:, None, None, None])
        return torch.where(inside(tensors["boxes"], *images.shape[2:])[:, None], partner, images)

    def move(self, kind: str, values: Tensor, host: tuple[bool, Parameters], tensors: Tensors) -> Tensor:
        """Pastes boxes; after a mixup, rows show what either image shows."""
        if "boxes" in tensors:
            return self.run(values, 0, host, tensors)
        partner = values.index_select(0, tensors["partners"][1])
        return torch.maximum(values, partner * (tensors["shares"][1] > 0)[:, None, None, None])

    def mixed_labels(self, labels: Tensor, host: Any, tensors: Tensors) -> Tensor:
        """Each row becomes the sum of its images' labels by their shares."""
        parts = zip(tensors["partners"], tensors["shares"], strict=True)
        return sum((labels.index_select(0, partner) * share[:, None] for partner, share in parts), labels.new_zeros(()))

    def _check_size(self, size: tuple[int, int]) -> None:
        if self._arrays is not _mosaic:
            return
        flags = self.module.flags
        if flags["output_size"] not in (None, size) or min(flags["mosaic_grid"]) < 2:
            raise ConfigError(
                f"augment: RandomMosaic(output_size={flags['output_size']}, mosaic_grid={flags['mosaic_grid']}): the "
                "labels' shares are known only for windows as large as an image, in a grid of at least (2, 2). Leave "
                "out output_size, and pass the size to the loader: fastpipe.loader(size=)"
            )
