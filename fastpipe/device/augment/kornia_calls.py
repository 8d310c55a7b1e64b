"""A module of kornia -> its calls for a batch, with their parameters, drawn ahead.

Note [groups]
Some draws of kornia's modules are made once a call: the order of ColorJitter's steps, the policy of
TrivialAugment. A sample would get another order in another batch. So each sample belongs to a
group, by a hash; each group has its own draws of an epoch and is a call of its own. A module that
was made with `same_on_batch=True` has one group, and its draws belong to the batch, as its user
wants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import TreeSpec, tree_flatten

from fastpipe.arrays import Int64s
from fastpipe.device.augment import kornia_modules
from fastpipe.device.augment.by_sample import by_sample_on_cpu
from fastpipe.device.augment.formulas import Formula, find_formula
from fastpipe.device.augment.kornia_trials import (
    Nature,
    find_nature,
    find_tensor_leaves,
)
from fastpipe.device.augment.operation import Array, Draws
from fastpipe.plan.crops import Size
from fastpipe.plan.draws import Stream

GROUPS = 2  # calls a batch of a module that draws something once a call
POLICY_GROUPS = 16  # calls a batch of a module that chooses among other modules
_UINT64_MASK = 2**64 - 1
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Call:
    """One call of the module, for some rows of a batch."""

    # The rows that it changes; a single row is there twice (`_at_least_two`). None: all rows.
    rows: Int64s | None
    seed: int  # of its draws that are not by sample
    # Its parameters, flattened by torch's pytree; None: they are drawn on the device.
    leaves: list[Any] | None
    tree: TreeSpec | None
    nature: Nature  # how the module treats images of this size
    formula: Formula | None = None  # None: the module itself is called
    # `Prepared.host` of the formula. None where the parameters are drawn on the device.
    prepared_host: Any = None


class CallPlanner:
    """Plans the calls of a module.

    Attributes:
        module: of kornia.
        has_probability: whether it has one of its own. Other modules choose among modules.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.has_probability = hasattr(module, "__batch_prob_generator__")
        self._draws_row_by_row = (
            kornia_modules.INSIDE_ONE_IMAGE in kornia_modules.names(module)
        )
        self._natures: dict[tuple[Size, int], Nature] = {}  # by size and channels

    def plan(
        self, draws: Draws, size: Size, position: int, keeps_leaves: bool
    ) -> tuple[list[Call], dict[str, Array]]:
        """The calls for a batch, and their arrays.

        Args:
            draws, size, position: as for `Operation.plan`.
            keeps_leaves: whether the module is called with its parameters also where it has a
                formula, to move what belongs to the images.
        """
        kornia_modules.move_to_device(self.module, _CPU)
        nature = self.nature(size, draws.channels)
        formula = find_formula(self.module)
        if formula is not None and not formula.fits(size, draws.channels):
            formula = None
        module_bits = draws.sample_bits(Stream.MODULE, position)
        seeds = _at_least_two(module_bits.view(np.int64))
        calls = []
        arrays: dict[str, Array] = {}
        groups = self._groups(draws, position, seeds, nature)
        for number, (group, rows) in enumerate(groups):
            group_seed = draws.group_seed(Stream.MODULE, position, group)
            row_seeds = seeds if rows is None else seeds[rows]
            call, call_arrays = self._plan_call(
                row_seeds, group_seed, rows, size, nature, formula, keeps_leaves
            )
            calls.append(call)
            for name, array in call_arrays.items():
                arrays[f"{number}.{name}"] = array
        return calls, arrays

    def nature(self, size: Size, channels: int) -> Nature:
        """How the module treats images of this size, tried once."""
        if (size, channels) not in self._natures:
            self._natures[size, channels] = find_nature(self.module, size, channels)
        return self._natures[size, channels]

    def changed_rows(self, seeds: Int64s, seed: int) -> Int64s:
        """The rows that the module's probability chooses. It is its first draw, made alone here."""
        count = len(seeds)
        module = self.module
        if not self.has_probability or module.p == module.p_batch == 1:
            return np.arange(count)
        with by_sample_on_cpu(seeds, seed):
            chosen = module.__batch_prob_generator__(
                (count,), module.p, module.p_batch, module.same_on_batch
            )
        return np.flatnonzero(chosen.numpy() > 0.5)

    def draw_parameters(
        self, seeds: Int64s, seed: int, size: Size, channels: int
    ) -> Any:
        """The module's parameters for images with these seeds, (n,), drawn on the CPU."""
        if not self._draws_row_by_row:
            return kornia_modules.draw_parameters(
                self.module, seeds, seed, channels, size
            )

        # The draws of this module differ with the number of rows, so each row's are made alone.
        rows = []
        for row_seed in seeds:
            alone = row_seed[None]
            unsigned_seed = int(row_seed) & _UINT64_MASK
            row_parameters = kornia_modules.draw_parameters(
                self.module, alone, unsigned_seed, channels, size
            )
            rows.append(row_parameters)
        # A parameter with one entry is that of the row; the others are the same for all rows.
        parameters = {}
        for name, value in rows[0].items():
            if len(value) == 1:
                value = torch.cat([row[name] for row in rows])
            parameters[name] = value
        return parameters

    def _plan_call(
        self,
        row_seeds: Int64s,
        seed: int,
        rows: Int64s | None,
        size: Size,
        nature: Nature,
        formula: Formula | None,
        keeps_leaves: bool,
    ) -> tuple[Call, dict[str, Array]]:
        """A call for the rows with these seeds, and its arrays."""
        arrays: dict[str, Array] = {}
        if rows is not None:
            arrays["rows"] = rows
        # Large parameters, such as maps of displacements, are not copied to a device. They are
        # drawn there, from the seeds.
        if nature.has_large_parameters:
            arrays["seeds"] = row_seeds
            return Call(rows, seed, None, None, nature, formula), arrays

        channels = nature.channels
        parameters = self.draw_parameters(row_seeds, seed, size, channels)
        leaves, tree = tree_flatten(parameters)
        prepared = None
        if formula is not None:
            shape = torch.Size((len(row_seeds), channels, *size))
            prepared = formula.prepare(parameters, shape)
        prepared_host = None
        if prepared is None:
            formula = None
        else:
            prepared_host = prepared.host
            for name, tensor in prepared.tensors.items():
                arrays[f"formula.{name}"] = tensor.numpy()
        # A module without a probability chooses among other modules. It does so on the host, so its
        # parameters stay there. With a formula the module is called only to move what belongs to
        # the images.
        needs_leaves = formula is None or keeps_leaves
        if self.has_probability and needs_leaves:
            for leaf_index in find_tensor_leaves(leaves):
                arrays[str(leaf_index)] = leaves[leaf_index].numpy()
        call = Call(rows, seed, leaves, tree, nature, formula, prepared_host)
        return call, arrays

    def _groups(
        self, draws: Draws, position: int, seeds: Int64s, nature: Nature
    ) -> list[tuple[int | None, Int64s | None]]:
        """The groups of a batch, and the rows that it changes of each; see Note [groups].

        Group None: the batch. Rows None: all of them.
        """
        batch_seed = draws.group_seed(Stream.MODULE, position, None)
        rows = self.changed_rows(seeds, batch_seed)
        # Its user wants one draw for the batch.
        batch_probability = getattr(self.module, "p_batch", 1)
        has_batch_probability = batch_probability != 1
        is_same_on_batch = self.module.same_on_batch or has_batch_probability
        needs_groups = nature.draws_once and not self._draws_row_by_row
        if is_same_on_batch or not needs_groups:
            if len(rows) == len(seeds):
                return [(None, None)]
            if len(rows) == 0:
                return []
            return [(None, _at_least_two(rows))]

        # The group of a sample, and a group's seed, are the same in any batch.
        group_count = GROUPS if self.has_probability else POLICY_GROUPS
        group_bits = draws.sample_bits(Stream.MODULE_GROUP, position)
        group_of_sample = group_bits % np.uint64(group_count)
        # A batch of one image has two seeds (`_at_least_two`), and so two equal entries here.
        group_of_seed = np.resize(group_of_sample, len(seeds))
        group_of_row = group_of_seed[rows]
        groups: list[tuple[int | None, Int64s | None]] = []
        for group in range(group_count):
            group_rows = rows[group_of_row == group]
            if len(group_rows):
                groups.append((group, _at_least_two(group_rows)))
        return groups


def _at_least_two(rows: Int64s) -> Int64s:
    """The same, or a single row twice.

    kornia's parameters for one image do not show which of them have a row an image, and which are
    one number for all images: both have the length 1. With two images they differ.
    """
    return np.resize(rows, max(2, len(rows)))
