"""A module of kornia -> a stage of an augmentation: its parameters drawn ahead, for each sample.

    plan: which images it changes -> groups -> its own forward_parameters, with draws by sample -> small arrays
    run:  only those images -> the module, with these parameters

Note [groups]: some draws of kornia's modules are made once a call: the order of ColorJitter's steps, the policy of
TrivialAugment. A batch of other samples would get another. So each sample belongs to a group, by a hash; each group has
its own draws of an epoch and is a call of its own. A module that was made with `same_on_batch=True` has one group, and
its draws belong to the batch, as asked for.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from fastpipe.augment import kornia_modules
from fastpipe.augment.by_sample import BySample
from fastpipe.augment.inputs import checked_result
from fastpipe.augment.operation import Operation
from fastpipe.augment.plan import Draws, Step
from fastpipe.plan.draws import Stream

GROUPS = 2  # calls a batch of a module that draws something once a call
POLICY_GROUPS = 16  # and of a module that chooses among other modules
_LARGEST = 2**13  # numbers a sample; a larger parameter is made on the device
_WORD = 2**64 - 1
_CPU, _META = torch.device("cpu"), torch.device("meta")


@dataclass(frozen=True)
class Call:
    """One call of the module.

    Attributes:
        rows: numbers in the batch of the images that it changes; None: all of them. One image comes twice, because
            modules draw for one image as they draw once for a batch.
        seed: of its draws that are not by sample.
        leaves, tree: its parameters; None: made on the device.
    """

    rows: NDArray[np.int64] | None
    seed: int
    leaves: list[Any] | None
    tree: TreeSpec | None


@dataclass(frozen=True)
class _Nature:
    """What a module does with images of a size: found out once, with two images.

    Attributes:
        draws_once: it draws something once a call.
        whole_maps: parameters are as large as images.
        size: (height, width) of its results.
    """

    draws_once: bool
    whole_maps: bool
    size: tuple[int, int]


class Kornia(Operation):
    """Calls a module of kornia with parameters that depend on seed, epoch and sample.

    Args:
        module: with `forward_parameters`; see kornia_modules.is_planned.
    """

    by_rows = False
    module: Any

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        kornia_modules.keep_apart(self, module)
        self._single = hasattr(module, "__batch_prob_generator__")  # else it chooses among other modules
        self._row_by_row = kornia_modules.draws_row_by_row(module)
        self._natures: dict[tuple[int, int], _Nature] = {}
        self._on_device: list[int] | None = None

    @torch.no_grad()
    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Host: its calls. Arrays: a call's rows, and its parameters; or the samples' seeds."""
        kornia_modules.place(self.module, _CPU)
        nature = self._nature(size)
        seeds = draws.sample_bits(Stream.MODULE, position).view(np.int64)
        calls, arrays = [], {}
        for number, (group, rows) in enumerate(self._parts(draws, position, seeds, size, nature)):
            seed = draws.group_seed(Stream.MODULE, position, group)
            chosen = seeds if rows is None else seeds[rows]
            leaves, tree = None, None
            if nature.whole_maps:
                arrays[f"{number}.seeds"] = chosen
            else:
                leaves, tree = tree_flatten(self._drawn(chosen, seed, size))
                arrays |= {f"{number}.{place}": leaves[place].numpy() for place in self._tensors(leaves)}
            if rows is not None:
                arrays[f"{number}.rows"] = rows
            calls.append(Call(rows, seed, leaves, tree))
        return Step(calls, arrays)

    def size_after(self, size: tuple[int, int]) -> tuple[int, int]:
        """(height, width) of its results for images of `size`."""
        return self._nature(size).size

    def extra_repr(self) -> str:
        """The module, which is no child."""
        return repr(self.module)

    def run(self, images: Tensor, first: int, host: list[Call], tensors: Mapping[str, Tensor]) -> Tensor:
        """Carries its calls out; raises ConfigError where it returns no batch."""
        kornia_modules.place(self.module, images.device)
        for number, call in enumerate(host):
            prefix = f"{number}."
            given = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            part = images if call.rows is None else images.index_select(0, given["rows"])
            result = checked_result(self.module, self._called(part, call, given), len(part))
            if call.rows is None:
                images = result
            elif len(images) == 1:
                images = result[:1]
            else:
                images = images.index_copy_(0, given["rows"], result.to(images.dtype))
        return images

    def _nature(self, size: tuple[int, int]) -> _Nature:
        if size not in self._natures:
            with torch.no_grad(), BySample(torch.arange(2), generator=torch.Generator().manual_seed(0)) as mode:
                parameters = self.module.forward_parameters(torch.Size((2, 3, *size)))
            leaves = [leaf for leaf in tree_flatten(parameters)[0] if isinstance(leaf, Tensor)]
            after = size
            if self._single and self.module.p == self.module.p_batch == 1:
                with torch.no_grad():
                    after = tuple(self.module(torch.zeros(2, 3, *size), params=parameters).shape[2:])
            large = any(leaf.numel() > 2 * _LARGEST for leaf in leaves)
            self._natures[size] = _Nature(mode.others > 0, large, after)
        return self._natures[size]

    def _parts(
        self, draws: Draws, position: int, seeds: NDArray[np.int64], size: tuple[int, int], nature: _Nature
    ) -> list[tuple[int | None, NDArray[np.int64] | None]]:
        """The groups of a batch, and the rows of each that are changed; None: all rows."""
        rows = self._changed(seeds, draws.group_seed(Stream.MODULE, position, None), size)
        groups: list[int | None] = [None]
        if nature.draws_once and not self._by_batch and not self._row_by_row:
            groups = list(range(GROUPS if self._single else POLICY_GROUPS))
        if groups == [None] and len(rows) == len(seeds) > 1:
            return [(None, None)]
        of_row = draws.group_of(Stream.MODULE_GROUP, position, len(groups))[rows]
        parts = [(group, rows[of_row == number]) for number, group in enumerate(groups)]
        return [(group, np.resize(mine, max(2, len(mine)))) for group, mine in parts if len(mine)]

    @property
    def _by_batch(self) -> bool:
        """Whether its user asked for draws that belong to a batch."""
        return bool(self.module.same_on_batch) or getattr(self.module, "p_batch", 1) != 1

    def _changed(self, seeds: NDArray[np.int64], seed: int, size: tuple[int, int]) -> NDArray[np.int64]:
        """The rows that its probability chooses. The gate is its first draw, so it is drawn alone here."""
        count, module = len(seeds), self.module
        if not self._single or module.p == module.p_batch == 1:
            return np.arange(count)
        shape = (max(2, count), 3, *size)
        with self._draws(np.resize(seeds, shape[0]), seed):
            chosen = module.__batch_prob_generator__(shape, module.p, module.p_batch, module.same_on_batch)
        return np.flatnonzero(chosen.numpy()[:count] > 0.5)

    def _drawn(self, seeds: NDArray[np.int64], seed: int, size: tuple[int, int]) -> Any:
        if self._row_by_row:
            return self._drawn_row_by_row(seeds, size)
        with self._draws(seeds, seed):
            return self.module.forward_parameters(torch.Size((len(seeds), 3, *size)))

    def _drawn_row_by_row(self, seeds: NDArray[np.int64], size: tuple[int, int]) -> dict[str, Tensor]:
        """Of a module that draws once for each row: each row's are drawn alone."""
        rows = []
        for seed in seeds:
            with self._draws(seed[None], int(seed) & _WORD):
                rows.append(self.module.forward_parameters(torch.Size((1, 3, *size))))
        return {
            name: torch.cat([row[name] for row in rows]) if len(first) == 1 else first
            for name, first in rows[0].items()
        }

    def _draws(self, seeds: NDArray[np.int64], seed: int) -> BySample:
        return BySample(torch.from_numpy(seeds), generator=torch.Generator().manual_seed(seed))

    def _called(self, images: Tensor, call: Call, given: Mapping[str, Tensor]) -> object:
        if call.leaves is None or call.tree is None:
            generator = torch.Generator("cpu" if images.device.type == "meta" else images.device)
            with BySample(given["seeds"], generator=generator.manual_seed(call.seed), onto=images.device):
                parameters = self.module.forward_parameters(images.shape)
            return self.module(images, params=parameters)
        leaves = list(call.leaves)
        if images.device != _CPU:
            if self._on_device is None:
                self._on_device = self._wanted_there(images, call.leaves, call.tree)
            for place in self._on_device:
                leaves[place] = given[str(place)]
        return self.module(images, params=tree_unflatten(leaves, call.tree))

    def _tensors(self, leaves: list[Any]) -> list[int]:
        """The places of the parameters that may go to the device; those of a module that chooses others stay."""
        return [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)] if self._single else []

    def _wanted_there(self, images: Tensor, leaves: list[Any], tree: TreeSpec) -> list[int]:
        """The places of the parameters that it only computes with: found out once, on tensors without data.

        A module that asks for the value of a parameter on a device would wait for it there.
        """
        module = copy.deepcopy(self.module)
        kornia_modules.place(module, _META)
        images = torch.empty_like(images, device=_META)
        places = self._tensors(leaves)

        def works(wanted: list[int]) -> bool:
            trial = [leaf.to(_META) if place in wanted else leaf for place, leaf in enumerate(leaves)]
            try:
                module(images, params=tree_unflatten(trial, tree))
            except Exception:  # kornia has many for tensors of two devices, and torch for values that are not there
                return False
            return True

        if works(places):
            return places
        wanted: list[int] = []
        for place in places:
            wanted += [place] if works([*wanted, place]) else []
        return wanted
