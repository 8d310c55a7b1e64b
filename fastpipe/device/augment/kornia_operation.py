"""A module of kornia -> an operation: its parameters are drawn ahead, for each sample.

    plan: which images it changes -> groups -> forward_parameters of the module, with draws by
          sample -> small arrays
    run:  only those images -> our formula of the module, or else the module itself, with these
          parameters
    move: masks, boxes and points of only those images -> the module, with the same parameters

Note [groups]
Some draws of kornia's modules are made once a call: the order of ColorJitter's steps, the policy of
TrivialAugment. A sample would get another order in another batch. So each sample belongs to a
group, by a hash; each group has its own draws of an epoch and is a call of its own. A module that
was made with `same_on_batch=True` has one group, and its draws belong to the batch, as its user
wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from fastpipe.arrays import Int64s
from fastpipe.device.augment import kornia_modules, pixels
from fastpipe.device.augment.by_sample import BySample, by_sample_on_cpu
from fastpipe.device.augment.formulas import Formula, Prepared, find_formula
from fastpipe.device.augment.inputs import check_result
from fastpipe.device.augment.kornia_modules import SHOWN, FieldKeys, FieldMover, movable
from fastpipe.device.augment.kornia_trials import (
    Nature,
    find_nature,
    find_parameters_on_device,
    find_tensor_leaves,
)
from fastpipe.device.augment.operation import (
    Array,
    Draws,
    ModuleOperation,
    StageSteps,
    StageWarps,
    Step,
    T,
    Tensors,
)
from fastpipe.device.augment.without_waits import WithoutWaits
from fastpipe.plan.crops import Size
from fastpipe.plan.draws import Stream

GROUPS = 2  # calls a batch of a module that draws something once a call
POLICY_GROUPS = 16  # calls a batch of a module that chooses among other modules
# Bytes of float32 images that a CPU does at once: 2 to 4 times as fast as 256 of 224 x 224.
CPU_BYTES = 2**24
# The same for a formula, for each thread: it makes few copies, and fewer images stay in the cache.
# Four of kornia's modules take two thirds of the time with it.
FORMULA_BYTES = 2**22
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


class Kornia(ModuleOperation):
    """Calls a module of kornia with parameters that depend on seed, epoch and sample.

    Args:
        module: one for which kornia_modules.is_planned holds.
        keys: the fields that its container moves.
    """

    def __init__(self, module: torch.nn.Module, keys: FieldKeys = FieldKeys()) -> None:  # noqa: B008
        super().__init__(module)
        # Other modules choose among modules; they have no probability of their own.
        self._has_probability = hasattr(module, "__batch_prob_generator__")
        self._draws_row_by_row = (
            kornia_modules.INSIDE_ONE_IMAGE in kornia_modules.names(module)
        )
        self.could_move = movable(module)
        self.moves = self.could_move & {"shown"}
        self._mover: FieldMover | None = None
        if keys.kinds & self.could_move:
            self._mover = FieldMover(module, keys)
            self.moves |= self._mover.kinds
        self._shown_mover: FieldMover | None = None  # made at the first use
        self._natures: dict[tuple[Size, int], Nature] = {}  # by size and channels
        # Which leaves of the parameters may be on the device; None: not found out yet.
        self._parameters_on_device: list[int] | None = None

    @property
    def memory_format(self) -> torch.memory_format | None:
        formula = find_formula(self.module)
        if formula is None:
            return super().memory_format
        return formula.memory_format

    @torch.no_grad()
    def plan(self, draws: Draws, size: Size, position: int) -> Step:
        """Host: its calls.

        Arrays of call i: "i.rows"; what its formula needs, "i.formula.NAME"; and the parameters of
        the module "i.LEAF", or "i.seeds" of its samples.
        """
        kornia_modules.move_to_device(self.module, _CPU)
        nature = self._nature(size, draws.channels)
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
                row_seeds, group_seed, rows, size, nature, formula
            )
            calls.append(call)
            for name, array in call_arrays.items():
                arrays[f"{number}.{name}"] = array
        return Step(calls, arrays)

    def _plan_call(
        self,
        row_seeds: Int64s,
        seed: int,
        rows: Int64s | None,
        size: Size,
        nature: Nature,
        formula: Formula | None,
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
        parameters = self._draw_parameters(row_seeds, seed, size, channels)
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
        needs_leaves = formula is None or bool(self.moves)
        if self._has_probability and needs_leaves:
            for leaf_index in find_tensor_leaves(leaves):
                arrays[str(leaf_index)] = leaves[leaf_index].numpy()
        call = Call(rows, seed, leaves, tree, nature, formula, prepared_host)
        return call, arrays

    def pixel_steps(self, step: Step, channels: int) -> StageSteps | None:
        if channels != 3:
            return None
        stage = []
        for number, call in enumerate(step.host):
            if (
                call.formula is None
                or call.formula.steps is None
                or call.leaves is None
            ):
                return None
            arrays = _with_prefix(step.arrays, f"{number}.formula.")
            stage.append((call.rows, call.formula.steps(arrays, call.prepared_host)))
        return stage

    def warps(self, step: Step) -> StageWarps | None:
        stage = []
        for number, call in enumerate(step.host):
            if call.formula is None or call.formula.warp is None:
                return None
            arrays = _with_prefix(step.arrays, f"{number}.formula.")
            stage.append((call.rows, call.formula.warp(arrays, call.prepared_host)))
        return stage

    def size_after(self, size: Size, channels: int) -> Size:
        return self._nature(size, channels).size

    def run(
        self, images: Tensor, first_row: int, host: list[Call], tensors: Tensors
    ) -> Tensor:
        """Makes the calls; raises ConfigError if the module returns no batch."""

        def augment(
            part: Tensor, call: Call, call_tensors: Tensors, begin: int, end: int
        ) -> object:
            if call.formula is None:
                parameters = self._parameters_of(part, call, call_tensors, begin, end)
                return self.module(part, params=parameters)
            part = part.to(torch.float32)
            prepared = self._prepared_of(part, call, call_tensors, begin, end)
            return call.formula.change(part, prepared.tensors, prepared.host)

        return self._make_calls(images, host, tensors, augment)

    def move(
        self, kind: str, values: Tensor, host: list[Call], tensors: Tensors
    ) -> Tensor:
        mover = self._mover
        if kind == "shown":
            if self._shown_mover is None:
                self._shown_mover = FieldMover(self.module, SHOWN)
                # It may look at others than the module does.
                self._parameters_on_device = None
            mover = self._shown_mover
        assert mover is not None  # else `moves` would not have this kind

        def move_part(
            part: Tensor, call: Call, call_tensors: Tensors, begin: int, end: int
        ) -> object:
            parameters = self._parameters_of(part, call, call_tensors, begin, end)
            return mover(part, parameters)

        return self._make_calls(values, host, tensors, move_part)

    @torch.no_grad()
    def interpolates_masks(self, size: Size, channels: int) -> bool:
        """Tries the module on masks of random ids, 1 and 2: a mean of both is no whole number."""
        if self._mover is None or "mask" not in self.moves:
            return False
        kornia_modules.move_to_device(self.module, _CPU)
        draws = Draws(np.arange(1000), seed=0, epoch=0, batch=0)
        seeds = draws.sample_bits(Stream.MODULE, 0).view(np.int64)
        # The first two images, of a thousand, that the module's probability chooses. A module that
        # chooses fewer is not tried: it changes next to nothing.
        changed = self._changed_rows(seeds, 0)[:2]
        if len(changed) < 2:
            return False
        generator = torch.Generator("cpu").manual_seed(0)
        shape = (2, 1, *size)
        ids = torch.randint(1, 3, shape, generator=generator, device=_CPU)
        masks = ids.to(torch.float32)
        parameters = self._draw_parameters(seeds[changed], 0, size, channels)
        moved = self._mover(masks, parameters)
        return not torch.equal(moved, moved.round())

    def _make_calls(
        self,
        images: Tensor,
        calls: list[Call],
        tensors: Tensors,
        act: Callable[[Tensor, Call, Tensors, int, int], object],
    ) -> Tensor:
        """Calls `act` with the rows [begin, end) of each call, and the call's tensors.

        `images` may also be masks or points. It is overwritten.
        """
        kornia_modules.move_to_device(self.module, images.device)
        # The parameters of a single image are there twice (`_at_least_two`), so the image is, too.
        is_single = len(images) == 1
        if is_single:
            other_dimensions = [1] * (images.ndim - 1)
            images = images.repeat(2, *other_dimensions)
        for number, call in enumerate(calls):
            call_tensors = _with_prefix(tensors, f"{number}.")
            rows = call_tensors.get("rows")
            # On a CPU a few rows at a time, which is faster.
            parts = self._parts_of(images, call)
            for begin, end in parts:
                # An index on the device, never a mask, for which the host would wait.
                part = images[begin:end]
                if rows is not None:
                    part = images.index_select(0, rows[begin:end])
                with WithoutWaits() if images.is_cuda else nullcontext():
                    result = act(part, call, call_tensors, begin, end)
                changed = check_result(self.module, result, len(part))
                if rows is not None:
                    rows_of_part = rows[begin:end]
                    images.index_copy_(0, rows_of_part, changed.to(images.dtype))
                elif len(parts) > 1:
                    # A formula may have changed the rows where they are.
                    if changed is not part:
                        images[begin:end] = changed
                else:
                    images = changed  # it may have another size
        if is_single:
            return images[:1]
        return images

    def _nature(self, size: Size, channels: int) -> Nature:
        if (size, channels) not in self._natures:
            self._natures[size, channels] = find_nature(self.module, size, channels)
        return self._natures[size, channels]

    def _parts_of(self, images: Tensor, call: Call) -> list[tuple[int, int]]:
        """The rows [begin, end) of a call that are done at once: CPU_BYTES on a CPU, else all."""
        count = len(images) if call.rows is None else len(call.rows)
        part_count = 1
        can_be_cut = call.nature.row_parameters is not None
        if call.formula is not None:
            # It has a row of numbers for each image, also where kornia's module has one for all.
            can_be_cut = not call.formula.changes_size
        if can_be_cut and pixels.on_cpu(images.device):
            bytes_at_once = CPU_BYTES
            if call.formula is not None:
                bytes_at_once = FORMULA_BYTES * torch.get_num_threads()
            image_bytes = 4 * images[0].numel()  # as float32
            rows_at_once = max(2, bytes_at_once // image_bytes)
            part_count = max(1, count // rows_at_once)
        # Parts that differ by at most one row.
        edges = np.linspace(0, count, part_count + 1).astype(int)
        return list(pairwise(edges.tolist()))

    def _groups(
        self, draws: Draws, position: int, seeds: Int64s, nature: Nature
    ) -> list[tuple[int | None, Int64s | None]]:
        """The groups of a batch, and the rows that it changes of each; see Note [groups].

        Group None: the batch. Rows None: all of them.
        """
        batch_seed = draws.group_seed(Stream.MODULE, position, None)
        rows = self._changed_rows(seeds, batch_seed)
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
        group_count = GROUPS if self._has_probability else POLICY_GROUPS
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

    def _changed_rows(self, seeds: Int64s, seed: int) -> Int64s:
        """The rows that the module's probability chooses. It is its first draw, made alone here."""
        count = len(seeds)
        module = self.module
        if not self._has_probability or module.p == module.p_batch == 1:
            return np.arange(count)
        with by_sample_on_cpu(seeds, seed):
            chosen = module.__batch_prob_generator__(
                (count,), module.p, module.p_batch, module.same_on_batch
            )
        return np.flatnonzero(chosen.numpy() > 0.5)

    def _draw_parameters(
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

    def _prepared_of(
        self, images: Tensor, call: Call, tensors: Tensors, begin: int, end: int
    ) -> Prepared:
        """What the call's formula needs for images that are the rows [begin, end) of the call."""
        assert call.formula is not None
        if call.leaves is None:
            # Large parameters are drawn where the images are.
            parameters = self._parameters_of(images, call, tensors, begin, end)
            drawn_there = call.formula.prepare(parameters, images.shape)
            assert drawn_there is not None
            return drawn_there
        prepared = {}
        for name, tensor in _with_prefix(tensors, "formula.").items():
            prepared[name] = tensor[begin:end]
        return Prepared(prepared, call.prepared_host)

    def _parameters_of(
        self, images: Tensor, call: Call, tensors: Tensors, begin: int, end: int
    ) -> Any:
        """The parameters for images, or masks, that are the rows [begin, end) of a call."""
        # None: large parameters are drawn here, where the images are, from the samples' seeds.
        if call.leaves is None or call.tree is None:
            generator_device = images.device
            # A trial without data is on "meta", which has no generators.
            if generator_device.type == "meta":
                generator_device = _CPU
            generator = torch.Generator(generator_device)
            generator.manual_seed(call.seed)
            # The shape of images, though these may be masks.
            size = images.shape[2:]
            shape = torch.Size((len(images), call.nature.channels, *size))
            seeds = tensors["seeds"][begin:end]
            with BySample(seeds, generator=generator, onto=images.device):
                return self.module.forward_parameters(shape)

        # On a device, parameters that were copied with the batch take the place of the host's. A
        # module without a probability chooses among other modules on the host: its parameters stay
        # there.
        leaves = list(call.leaves)
        if images.device != _CPU and self._has_probability:
            if self._parameters_on_device is None:
                mover = self._shown_mover or self._mover
                self._parameters_on_device = find_parameters_on_device(
                    self.module, mover, images, call.leaves, call.tree
                )
            for leaf_index in self._parameters_on_device:
                leaves[leaf_index] = tensors[str(leaf_index)]
        # The others, such as one number for all images, stay whole.
        for leaf_index in call.nature.row_parameters or ():
            leaves[leaf_index] = leaves[leaf_index][begin:end]
        return tree_unflatten(leaves, call.tree)


def _with_prefix(values: Mapping[str, T], prefix: str) -> dict[str, T]:
    """The values whose names have the prefix, by the rest of their names."""
    inner: dict[str, T] = {}
    for name, value in values.items():
        if name.startswith(prefix):
            inner[name.removeprefix(prefix)] = value
    return inner


def _at_least_two(rows: Int64s) -> Int64s:
    """The same, or a single row twice.

    kornia's parameters for one image do not show which of them have a row an image, and which are
    one number for all images: both have the length 1. With two images they differ.
    """
    return np.resize(rows, max(2, len(rows)))
