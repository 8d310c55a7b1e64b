"""Images -> operations -> normalised -> boxes blanked -> mixed -> the output's dtype.

Planned, then carried out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastpipe.arrays import Float32s, Int64s
from fastpipe.completion import PublicNames
from fastpipe.device.augment import passes, pixels
from fastpipe.device.augment.canvases import Canvases
from fastpipe.device.augment.foreign import Foreign
from fastpipe.device.augment.inputs import (
    check_fits,
    check_labels,
    choose_class_count,
    without_torch_defaults,
)
from fastpipe.device.augment.moving import move_places
from fastpipe.device.augment.normalised import Mixing, one_hot
from fastpipe.device.augment.operation import (
    AugmentPlan,
    Draws,
    LaunchedRun,
    ModuleOperation,
    Operation,
    Step,
    Tensors,
)
from fastpipe.device.augment.options import moment_of_channels, parse_moments
from fastpipe.device.augment.pixels import affine, full_of, normalise, parts, to_unit
from fastpipe.device.augment.ranges import RangeWatch
from fastpipe.errors import ConfigError
from fastpipe.plan.crops import Size
from fastpipe.plan.placed import Placed

_CPU = torch.device("cpu")


class Chain(PublicNames, torch.nn.Module):
    """The stages of an augmentation, in the order of torchvision's recipes.

    Mixing comes last and in float32, and the output is rounded to its dtype once, after it: so a
    mixed pixel has the share that its label says.

    Args:
        before: operations before normalising.
        after: operations after normalising.
        dtype: of the output.
        mean, std: of pixels in [0, 1], or None.
    """

    # Loaders and previews use these.
    _NOT_PUBLIC = frozenset(
        [
            "all_operations",
            "compiled",
            "in_pairs",
            "mixers",
            "moments",
            "move_maps",
            "move_masks",
            "move_places",
            "move_shown",
            "moves",
            "moving_parts",
            "names_interpolating_masks",
            "normalise",
            "only_normalises",
            "operations",
            "partners",
            "pasted",
            "soft",
            "stages",
        ]
    )

    label_smoothing: float
    num_classes: int | None
    merge_geometry: bool = False

    def __init__(
        self,
        before: Sequence[Operation],
        after: Sequence[Operation],
        dtype: torch.dtype,
        mean: object,
        std: object,
    ) -> None:
        super().__init__()
        self.operations = torch.nn.ModuleList(before)
        self.stages = tuple(before)
        self._after = tuple(after)
        # A plan has a step for each of these, in this order, and one more for normalising.
        self._sequence = (*before, *after)
        self.dtype = dtype
        self.mean, self.std = parse_moments(mean, std)
        self._canvases = Canvases()
        # Of modules of others: by the number of the operation.
        self._watches: dict[int, RangeWatch] = {}
        for number, operation in enumerate(self.stages):
            is_of_others = isinstance(operation, (Foreign, ModuleOperation))
            if is_of_others:
                self._watches[number] = RangeWatch(is_normalised=self.mean is not None)

    @property
    def compiled(self) -> bool:
        """Whether fastpipe's own operations run through torch.compile."""
        return any(operation.compiles for operation in self.stages)

    @property
    def all_operations(self) -> tuple[Operation, ...]:
        """The operations before normalising and after it, in order."""
        return self._sequence

    @property
    def soft(self) -> bool:
        """Whether labels become soft: float32 (N, num_classes) instead of int64 (N,)."""
        return bool(self.mixers) or self.label_smoothing > 0

    @property
    def only_normalises(self) -> bool:
        """Whether it changes numbers of pixels alone: it needs no images, and no labels."""
        return not self._sequence and not self.soft

    @property
    def mixers(self) -> list[Operation]:
        """The operations that mix images, in order."""
        return [operation for operation in self._sequence if operation.mixes]

    @property
    def in_pairs(self) -> bool:
        """Whether each image is mixed once, with one other image."""
        mixers = self.mixers
        return len(mixers) == 1 and mixers[0].in_pairs

    @property
    def moves(self) -> frozenset[str]:
        """The kinds that move with images; see Operation."""
        return frozenset[str]().union(
            *(operation.moves for operation in self._sequence)
        )

    @property
    def pasted(self) -> frozenset[str]:
        """The kinds of fields that all mixing operations paste: cutmix pastes masks."""
        if not self.mixers:
            return frozenset()
        return frozenset[str].intersection(
            *(operation.moves for operation in self.mixers)
        )

    @property
    def moving_parts(self) -> list[Operation]:
        """The operations that move pixels, or may; without those that mix images."""
        return [
            operation
            for operation in self.stages
            if operation.may_move and not operation.mixes
        ]

    @without_torch_defaults(_CPU)
    def names_interpolating_masks(self, size: Size, channels: int = 3) -> list[str]:
        """The names of the operations that would put other numbers than ids into masks."""
        mixing = []
        for operation in self.stages:
            if operation.interpolates_masks(size, channels):
                mixing.append(operation.name)
            size = operation.size_after(size, channels)
        return mixing

    def moments(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """mean and std of pixels in [0, 1] for images with so many channels; 0 and 1 without
        normalising.

        Raises:
            ConfigError: another number of channels was given.
        """
        mean = moment_of_channels("mean", self.mean, channels, 0.0)
        std = moment_of_channels("std", self.std, channels, 1.0)
        return mean, std

    @without_torch_defaults(_CPU)
    def plan(
        self,
        samples: Int64s,
        size: Size,
        *,
        seed: int,
        epoch: int,
        batch: int,
        mixing_seed: int | None = None,
        image_sizes: Int64s | None = None,
        channels: int = 3,
        bits: int = 8,
    ) -> AugmentPlan:
        """Draws the augmentation of one batch, on the host.

        Args:
            samples: (n,) int64 sample numbers, at least one.
            size: (height, width) of the images in pixels.
            seed, epoch, batch: keys of the draws; batch is the number of the global batch in its
                epoch.
            mixing_seed: in place of seed, for mixing images: views with one such seed have one
                partner and one share.
            image_sizes: (n, 2), height and width of the image at the top left of each row, where
                the rest is padding. None: rows have no padding.
            channels: 1, 3 or 4.
            bits: 8 for uint8 or 16 for uint16.

        Raises:
            ConfigError: mean, std or a module does not fit the channels.
        """
        image_shares = None if image_sizes is None else image_sizes / size
        size = (int(size[0]), int(size[1]))
        draws = Draws(
            samples,
            seed=seed,
            epoch=epoch,
            batch=batch,
            image_shares=image_shares,
            channels=channels,
        )
        mixing_draws = draws
        if mixing_seed is not None:
            mixing_draws = replace(draws, seed=mixing_seed)

        steps = []
        sizes = [size]
        for position, operation in enumerate(self._sequence):
            operation_draws = mixing_draws if operation.mixes else draws
            steps.append(operation.plan(operation_draws, size, position))
            size = operation.size_after(size, channels)
            sizes.append(size)
        # Normalising is the last step of a plan, whatever its place in the chain.
        # After operations, 1 is white. Without operations, the images are normalised as they come.
        full = 1 if self.stages else full_of(bits)
        mean, std = self.moments(channels)
        steps.append(Step(None, affine(mean, std, full=full)))

        arrays = {}
        for number, step in enumerate(steps):
            for name, array in step.arrays.items():
                arrays[f"{number}.{name}"] = np.ascontiguousarray(array)
        # `steps` has those after normalising, too.
        stages = list(zip(self.stages, steps, strict=False))
        runs = passes.find_passes(
            stages, len(samples), channels, merge_geometry=self.merge_geometry
        )
        for run in runs:
            for name, array in run.arrays.items():
                arrays[passes.name_array(run, name)] = array
        return AugmentPlan(
            len(samples),
            tuple(sizes),
            channels,
            bits,
            hosts=tuple(step.host for step in steps),
            arrays=arrays,
            runs=tuple(runs),
        )

    def partners(self, plan: AugmentPlan) -> tuple[Int64s, Float32s]:
        """(n,) the row that is mixed into each row of a batch, and (n,) each row's own share.

        Needs `in_pairs`.
        """
        (mixer,) = self.mixers
        step = self._sequence.index(mixer)
        if isinstance(mixer, Mixing):
            return mixer.partners(plan.count), plan.arrays[f"{step}.share"]
        # A mixing module of kornia. Both arrays are (2, n): of the image itself, and of the one
        # that is mixed in.
        partners = plan.arrays[f"{step}.partners"][1]
        shares = plan.arrays[f"{step}.shares"][0]
        return partners, shares.astype(np.float32)

    @torch.no_grad()
    @without_torch_defaults(_CPU)
    def move_places(
        self, plan: AugmentPlan, places: Mapping[str, Placed]
    ) -> Mapping[str, Placed]:
        """Moves boxes and points, by name, as `carry_out` moves images; on the host, in pixels.

        Boxes, x0, y0, x1, y1, are clipped to the image; one that left it has no width or no height.
        """
        if self.moves.isdisjoint(("boxes", "keypoints")) or not places:
            return places
        tensors = {}
        for name, array in plan.arrays.items():
            tensors[name] = torch.from_numpy(array)

        def move_points(points: Tensor) -> Tensor:
            # The corners of boxes are points, too.
            return self._move(points, plan, tensors, "keypoints", "boxes")

        return move_places(plan, places, move_points)

    @torch.no_grad()
    def move_masks(
        self, masks: Tensor, plan: AugmentPlan, tensors: Tensors, fill: int = 0
    ) -> Tensor:
        """Moves masks or second images as `carry_out` moves images, on their device.

        Args:
            masks: (N, height, width) of ids; or images, (N, height, width, C), uint8 or uint16.
            plan, tensors: as for `carry_out`.
            fill: the id where pixels come from outside the image.
        """
        kind = "mask" if masks.ndim == 3 else "image"
        if kind not in self.moves:
            return masks
        return self._move_pixels(masks, kind, plan, tensors, fill)

    def move_maps(
        self, maps: Tensor, plan: AugmentPlan, tensors: Tensors, outside: float
    ) -> Tensor:
        """Moves maps, (N, height, width) or (N, height, width, C), as masks are moved.

        So no new numbers appear but `outside`, where pixels come from outside the image.
        """
        if "mask" not in self.moves:
            return maps
        moved = self._move_pixels(maps, "mask", plan, tensors, 0)
        if outside == 0:
            return moved
        inside = torch.ones_like(maps)
        inside = self._move_pixels(inside, "mask", plan, tensors, 0)
        return torch.where(inside > 0, moved, outside)

    def _move_pixels(
        self,
        pixels: Tensor,
        kind: str,
        plan: AugmentPlan,
        tensors: Tensors,
        fill: int,
    ) -> Tensor:
        """Moves (N, height, width) or (N, height, width, C), with `fill` from outside the image."""
        if pixels.ndim == 3:
            planes = pixels[:, None]
            return self._move_planes(planes, kind, plan, tensors, fill)[:, 0]
        planes = pixels.permute(0, 3, 1, 2)
        moved = self._move_planes(planes, kind, plan, tensors, fill)
        return moved.permute(0, 2, 3, 1)

    def _move_planes(
        self,
        planes: Tensor,
        kind: str,
        plan: AugmentPlan,
        tensors: Tensors,
        fill: int,
    ) -> Tensor:
        """Moves planes (N, c, height, width), with `fill` from outside the image."""
        # Operations fill with 0, so `fill` is subtracted before, and added again. float32 holds
        # integers of 16 bits exactly.
        values = planes.to(torch.float32, copy=True).sub_(fill)
        moved = self._move(values, plan, tensors, kind)
        return moved.add(fill).to(planes.dtype)

    @torch.no_grad()
    def move_shown(self, shown: Tensor, plan: AugmentPlan, tensors: Tensors) -> Tensor:
        """(N, height, width) bool, False for padding -> the same after `carry_out`."""
        if "shown" not in self.moves:
            return shown
        planes = shown[:, None].to(torch.float32)
        moved = self._move(planes, plan, tensors, "shown")
        return moved[:, 0] > 0.5

    def _move(
        self, values: Tensor, plan: AugmentPlan, tensors: Tensors, *kinds: str
    ) -> Tensor:
        """Moves values of the first kind by all operations that move one of the kinds."""
        with without_torch_defaults(values.device):
            for operation, host, step_tensors in self._steps(plan, tensors):
                if not operation.moves.isdisjoint(kinds):
                    values = operation.move(kinds[0], values, host, step_tensors)
        return values

    @torch.no_grad()
    def carry_out(
        self,
        images: Tensor,
        labels: Tensor,
        plan: AugmentPlan,
        tensors: Tensors,
        *,
        num_classes: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Applies a plan on the images' device, in its current stream; never waits for the device.

        Args:
            images: (N, C, height, width) uint8 or uint16, channels_last.
            labels: (N,) int64 on the same device, each below the number of classes.
            plan: of this batch.
            tensors: plan.arrays on the same device.
            num_classes: number of classes of the dataset; used if Augment(num_classes=) was not
                given.

        Returns:
            images, channels_last in this Augment's dtype; labels, unchanged or soft.

        Raises:
            ConfigError: the tensors do not match the plan, a module returned no batch, or
            num_classes is missing.
        """
        check_fits(images, labels, plan, tensors)
        classes = 0
        if self.soft:
            classes = choose_class_count(self.num_classes, num_classes)
        with without_torch_defaults(images.device):
            out = self._carry_out(images, plan, plan.split(tensors))
            if self.soft:
                check_labels(labels, classes)
                labels = self._soften(labels, classes, plan, tensors)
        return out, labels

    def normalise(self, images: Tensor, plan: AugmentPlan, tensors: Tensors) -> Tensor:
        """The same for an augmentation that only normalises."""
        with without_torch_defaults(images.device):
            return self._carry_out(images, plan, plan.split(tensors))

    def _carry_out(
        self, images: Tensor, plan: AugmentPlan, step_tensors: Sequence[Tensors]
    ) -> Tensor:
        """Carries out a plan; `step_tensors` has the tensors of each step, on the device."""
        # A CPU takes the batch in parts, so that the pixels of a part stay in its cache from the
        # first operation to the last. Of the operations after normalising, those before the first
        # one that needs the whole batch are done by part, and the others by batch.
        num_by_part = 0
        while num_by_part < len(self._after) and self._after[num_by_part].by_rows:
            num_by_part += 1
        first_after = len(self.stages)
        by_part = self._steps_of(
            first_after, self._after[:num_by_part], plan, step_tensors
        )
        by_batch = self._steps_of(
            first_after + num_by_part,
            self._after[num_by_part:],
            plan,
            step_tensors,
        )
        normalising = step_tensors[-1]

        out: Tensor | None = None
        for first_row, end in parts(images, self._part_bytes()):
            part = images[first_row:end]
            # The last stages may be one pass with normalising.
            last_run = self._run_that_ends(plan, part)
            num_stages = len(self.stages) if last_run is None else last_run.first
            part = self._operate(part, first_row, plan, step_tensors, num_stages)
            is_images = part.ndim == 4 and part.shape[1] == plan.channels
            if self.mean is None and not self._after and not is_images:
                # Nothing comes after the operations, so they may return results of any shape. Only
                # modules of others do, which need the whole batch: this part is all of it.
                return part.to(self.dtype)
            if out is None:
                # Only now the size of the results is known. Operations that come after were planned
                # for a size; without any, a module may return another one.
                planned_size = plan.sizes[-1] if self._after else None
                self._check_size(part, plan.channels, planned_size)
                # Mixing needs float32, and the output is rounded once, at the end.
                dtype = torch.float32 if by_batch else self.dtype
                shape = images.shape[:2] + part.shape[2:]
                out = self._canvases.take(shape, dtype, images.device)
            # The following operations work in the output, part by part, while it is in the cache.
            out_part = out[first_row:end]
            scale = normalising["scale"]
            shift = normalising["shift"]
            if last_run is None:
                normalise(part, scale, shift, out_part)
            else:
                self._check_size(part, plan.channels, plan.sizes[last_run.first])
                run_tensors = passes.tensors_of(last_run, step_tensors)
                passes.carry_out_into(
                    part, last_run, run_tensors, out_part, (scale, shift)
                )
            # In place, so the results are not taken.
            for operation, host, tensors in by_part:
                operation.run(out_part, first_row, host, tensors)
        assert out is not None
        for operation, host, tensors in by_batch:
            out = operation.run(out, 0, host, tensors)
        return out.to(self.dtype)

    def _part_bytes(self) -> int | None:
        """Bytes of the parts that a CPU takes a batch in; None if it has to be taken whole."""
        if not self.stages:
            return pixels.NORMALISE_BYTES
        if all(operation.by_rows for operation in self.stages):
            return pixels.PART_BYTES
        return None

    def _steps_of(
        self,
        first_step: int,
        operations: Sequence[Operation],
        plan: AugmentPlan,
        step_tensors: Sequence[Tensors],
    ) -> list[tuple[Operation, Any, Tensors]]:
        """Operations with their parts of a plan; the first one's is step `first_step`."""
        end = first_step + len(operations)
        hosts = plan.hosts[first_step:end]
        return list(zip(operations, hosts, step_tensors[first_step:end], strict=True))

    def _steps(
        self, plan: AugmentPlan, tensors: Tensors
    ) -> Iterator[tuple[Operation, Any, Tensors]]:
        """All operations with their parts of a plan."""
        # A plan has one step more, which normalises.
        return zip(self._sequence, plan.hosts, plan.split(tensors), strict=False)

    def _operate(
        self,
        images: Tensor,
        first_row: int,
        plan: AugmentPlan,
        step_tensors: Sequence[Tensors],
        num_stages: int,
    ) -> Tensor:
        """Runs the first operations on the rows of a batch from `first_row` on."""
        run_at = {}
        for run in plan.runs:
            if passes.can_carry_out(run, images):
                run_at[run.first] = run
        next_stage = 0
        for number, operation in enumerate(self.stages[:num_stages]):
            if number < next_stage:
                continue  # it was part of a run
            stage_run = run_at.get(number)
            # A kernel reads bytes itself.
            if number == 0 and not isinstance(stage_run, LaunchedRun):
                images = to_unit(images, self._first_memory_format(0))
            if stage_run is not None:
                self._check_size(images, plan.channels, plan.sizes[number])
                run_tensors = passes.tensors_of(stage_run, step_tensors)
                memory_format = self._first_memory_format(stage_run.end)
                images = passes.carry_out(images, stage_run, run_tensors, memory_format)
                next_stage = stage_run.end
                continue
            stage_format = operation.memory_format
            is_after_foreign = number > 0 and isinstance(
                self.stages[number - 1], Foreign
            )
            if not isinstance(operation, Foreign):
                # It was planned for images of this size. A user's module may have changed it.
                self._check_size(images, plan.channels, plan.sizes[number])
                if is_after_foreign:
                    # The module may keep its result, which this operation may overwrite.
                    images = images.to(torch.float32, copy=True)
            if stage_format is not None:
                # This copies only after an operation that left another format.
                images = images.contiguous(memory_format=stage_format)
            host = plan.hosts[number]
            watch = self._watches.get(number)
            mean_before = None if watch is None else watch.mean_of(images)
            images = operation.run(images, first_row, host, step_tensors[number])
            if watch is not None and mean_before is not None:
                watch.look(operation.name, images, mean_before)
        return images

    def _run_that_ends(self, plan: AugmentPlan, images: Tensor) -> LaunchedRun | None:
        """The run of a kernel that the last stage belongs to, if these images can have it."""
        for run in plan.runs:
            is_last = run.end == len(self.stages)
            if is_last and isinstance(run, LaunchedRun):
                return run if passes.can_carry_out(run, images) else None
        return None

    def _first_memory_format(self, first_stage: int) -> torch.memory_format:
        """That of the first operation, from this stage on, that works in one of them only."""
        for operation in self.stages[first_stage:]:
            if operation.memory_format is not None:
                return operation.memory_format
        return torch.channels_last

    def _check_size(self, images: Tensor, channels: int, size: Size | None) -> None:
        """Raises ConfigError unless they are images with so many channels, and of `size` if it is
        given.
        """
        shape = tuple(images.shape)
        if images.ndim != 4 or shape[1] != channels:
            raise ConfigError(
                f"augment: the operations returned shape {shape}; expected images (N, {channels}, "
                "height, width), with as many channels as before, to normalise. To get the output "
                "of modules unchanged, pass fastpipe.Augment(modules, mean=None, std=None)"
            )
        if size is not None and shape[2:] != size:
            raise ConfigError(
                f"augment: the operations changed the images' size from {size} to {shape[2:]}; "
                "erasing, mixup, cutmix and later operations of fastpipe or kornia need the same "
                f"size. Pass the new size to the loader: size={shape[2:]}"
            )

    def _soften(
        self, labels: Tensor, classes: int, plan: AugmentPlan, tensors: Tensors
    ) -> Tensor:
        """The soft labels of a batch."""
        soft = one_hot(labels, classes)
        for operation, host, step_tensors in self._steps(plan, tensors):
            if operation.mixes:
                soft = operation.mixed_labels(soft, host, step_tensors)
        if self.label_smoothing:
            soft.mul_(1 - self.label_smoothing)
            soft.add_(self.label_smoothing / classes)
        return soft
