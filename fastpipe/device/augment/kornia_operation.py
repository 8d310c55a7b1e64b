"""A module of kornia -> an operation: its parameters are drawn ahead, for each sample.

plan: which images it changes -> groups -> forward_parameters of the module, with draws by
      sample -> small arrays
run:  only those images -> our formula of the module, or else the module itself, with these
      parameters
move: masks, boxes and points of only those images -> the module, with the same parameters
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_unflatten

from fastpipe.arrays import Int64s
from fastpipe.device.augment import kornia_modules, pixels
from fastpipe.device.augment.blurs import Array
from fastpipe.device.augment.by_sample import BySample
from fastpipe.device.augment.formulas import Formula, Prepared, find_formula
from fastpipe.device.augment.inputs import check_result
from fastpipe.device.augment.kornia_calls import Call, CallPlanner
from fastpipe.device.augment.kornia_modules import SHOWN, FieldKeys, FieldMover, movable
from fastpipe.device.augment.kornia_trials import find_parameters_on_device
from fastpipe.device.augment.operation import (
    Draws,
    ModuleOperation,
    StageBlurs,
    StageSteps,
    StageWarps,
    Step,
    T,
    Tensors,
    with_prefix,
)
from fastpipe.device.augment.without_waits import WithoutWaits
from fastpipe.plan.crops import Size
from fastpipe.plan.draws import Stream

# Bytes of float32 images that a CPU does at once: 2 to 4 times as fast as 256 of 224 x 224.
CPU_BYTES = 2**24
# The same for a formula, for each thread: it makes few copies, and fewer images stay in the cache.
# Four of kornia's modules take two thirds of the time with it.
FORMULA_BYTES = 2**22
_CPU = torch.device("cpu")


class Kornia(ModuleOperation):
    """Calls a module of kornia with parameters that depend on seed, epoch and sample.

    Args:
        module: one for which kornia_modules.is_planned holds.
        keys: the fields that its container moves.
    """

    def __init__(self, module: torch.nn.Module, keys: FieldKeys = FieldKeys()) -> None:  # noqa: B008
        super().__init__(module)
        self.could_move = movable(module)
        self.moves = self.could_move & {"shown"}
        self._mover: FieldMover | None = None
        if keys.kinds & self.could_move:
            self._mover = FieldMover(module, keys)
            self.moves |= self._mover.kinds
        self._shown_mover: FieldMover | None = None  # made at the first use
        self._planner = CallPlanner(module)
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
        calls, arrays = self._planner.plan(draws, size, position, bool(self.moves))
        return Step(calls, arrays)

    def pixel_steps(self, step: Step, channels: int) -> StageSteps | None:
        if channels != 3:
            return None
        return _make_stage(step, lambda formula: formula.steps)

    def warps(self, step: Step) -> StageWarps | None:
        return _make_stage(step, lambda formula: formula.warp)

    def blurs(self, step: Step) -> StageBlurs | None:
        return _make_stage(step, lambda formula: formula.blur)

    def size_after(self, size: Size, channels: int) -> Size:
        return self._planner.nature(size, channels).size

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

        return self._make_calls(images, host, tensors, augment, by_formula=True)

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

        return self._make_calls(values, host, tensors, move_part, by_formula=False)

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
        changed = self._planner.changed_rows(seeds, 0)[:2]
        if len(changed) < 2:
            return False
        generator = torch.Generator("cpu").manual_seed(0)
        shape = (2, 1, *size)
        ids = torch.randint(1, 3, shape, generator=generator, device=_CPU)
        masks = ids.to(torch.float32)
        parameters = self._planner.draw_parameters(seeds[changed], 0, size, channels)
        moved = self._mover(masks, parameters)
        return not torch.equal(moved, moved.round())

    def _make_calls(
        self,
        images: Tensor,
        calls: list[Call],
        tensors: Tensors,
        act: Callable[[Tensor, Call, Tensors, int, int], object],
        *,
        by_formula: bool,
    ) -> Tensor:
        """Calls `act` with the rows [begin, end) of each call, and the call's tensors.

        `images` may also be masks or points. It is overwritten. `by_formula`: `act` uses the formula
        of a call, if it has one, and else the module.
        """
        kornia_modules.move_to_device(self.module, images.device)
        # The parameters of a single image are there twice (`_at_least_two`), so the image is, too.
        is_single = len(images) == 1
        if is_single:
            other_dimensions = [1] * (images.ndim - 1)
            images = images.repeat(2, *other_dimensions)
        for number, call in enumerate(calls):
            call_tensors = with_prefix(tensors, f"{number}.")
            rows = call_tensors.get("rows")
            # On a CPU a few rows at a time, which is faster.
            parts = _parts_of(images, call, by_formula)
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

    def _prepared_of(
        self, images: Tensor, call: Call, tensors: Tensors, begin: int, end: int
    ) -> Prepared:
        """What the call's formula needs for images that are the rows [begin, end) of the call."""
        assert call.formula is not None
        if call.leaves is None:
            # Large parameters are drawn where the images are.
            parameters = self._parameters_of(images, call, tensors, begin, end)
            prepared_on_device = call.formula.prepare(parameters, images.shape)
            assert prepared_on_device is not None
            return prepared_on_device
        prepared = {}
        for name, tensor in with_prefix(tensors, "formula.").items():
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
            # The seeds decide what is drawn for each sample, the generator what is drawn once.
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
        if images.device != _CPU and self._planner.has_probability:
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


def _parts_of(images: Tensor, call: Call, by_formula: bool) -> list[tuple[int, int]]:
    """The rows [begin, end) of a call that are done at once: CPU_BYTES on a CPU, else all."""
    count = len(images) if call.rows is None else len(call.rows)
    part_count = 1
    can_be_cut = call.nature.row_parameters is not None
    bytes_at_once = CPU_BYTES
    if by_formula and call.formula is not None:
        # It has a row of numbers for each image, also where kornia's module has one for all.
        can_be_cut = not call.formula.changes_size
        bytes_at_once = FORMULA_BYTES * torch.get_num_threads()
    if can_be_cut and pixels.on_cpu(images.device):
        image_bytes = 4 * images[0].numel()  # as float32
        rows_at_once = max(2, bytes_at_once // image_bytes)
        part_count = max(1, count // rows_at_once)
    # Parts that differ by at most one row.
    edges = np.linspace(0, count, part_count + 1).astype(int)
    return list(pairwise(edges.tolist()))


def _make_stage(
    step: Step,
    find_maker: Callable[[Formula], Callable[[Mapping[str, Array], Any], T] | None],
) -> list[tuple[Int64s | None, T]] | None:
    """The rows and the `T` of each call of a module; None: a call is not made by such a formula.

    `find_maker`: formula -> what makes a `T` of the arrays and the host's part of `Prepared`.
    """
    stage = []
    for number, call in enumerate(step.host):
        # Without leaves the module draws by itself.
        if call.formula is None or call.leaves is None:
            return None
        make = find_maker(call.formula)
        if make is None:
            return None
        arrays = with_prefix(step.arrays, f"{number}.formula.")
        stage.append((call.rows, make(arrays, call.prepared_host)))
    return stage
