"""A module of kornia -> a stage of an augmentation: its parameters drawn ahead, for each sample.

    plan: which images it changes -> groups -> its own forward_parameters, with draws by sample -> small arrays
    run:  only those images -> the module, with these parameters
    move: masks, boxes and points of only those images -> the module, with the same parameters

Note [groups]: some draws of kornia's modules are made once a call: the order of ColorJitter's steps, the policy of
TrivialAugment. A batch of other samples would get another. So each sample belongs to a group, by a hash; each group has
its own draws of an epoch and is a call of its own. A module that was made with `same_on_batch=True` has one group, and
its draws belong to the batch, as asked for.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from fastpipe.augment import kornia_modules, pixels
from fastpipe.augment.by_sample import BySample
from fastpipe.augment.inputs import checked_result
from fastpipe.augment.kornia_modules import SHOWN, FieldKeys, FieldMover, movable
from fastpipe.augment.operation import Apart, Draws, Step, Tensors
from fastpipe.errors import ConfigError
from fastpipe.plan.draws import Int64s, Stream

GROUPS = 2  # calls a batch of a module that draws something once a call
POLICY_GROUPS = 16  # and of a module that chooses among other modules
CPU_BYTES = 2**24  # of float32 images that a CPU does at once: two to four times as fast as 256 of 224 x 224
_WORD = 2**64 - 1
_LARGEST = 2**13  # numbers a sample; a module with a larger parameter draws it on the device
_CPU, _META = torch.device("cpu"), torch.device("meta")


@dataclass(frozen=True)
class Nature:
    """What a module does with images of a size, with so many channels."""

    channels: int
    draws_once: bool  # something once a call
    whole_maps: bool  # parameters are as large as images
    size: tuple[int, int]  # (height, width) of its results
    by_row: frozenset[int] | None  # places of parameters with a row an image; None: it is called with all of them


@dataclass(frozen=True)
class Call:
    rows: Int64s | None  # in the batch, of the images that it changes, one image twice; None: all of them
    seed: int  # of its draws that are not by sample
    leaves: list[Any] | None  # and tree: its parameters; None: made on the device
    tree: TreeSpec | None
    nature: Nature


class Kornia(Apart):
    """Calls a module of kornia, see kornia_modules.is_planned, with parameters that depend on seed, epoch and sample;
    `keys`, of the container that it is in, say which fields it moves.
    """

    def __init__(self, module: torch.nn.Module, keys: FieldKeys = FieldKeys()) -> None:  # noqa: B008
        super().__init__(module)
        self._single = hasattr(module, "__batch_prob_generator__")  # else it chooses among other modules
        self._row_by_row = kornia_modules.INSIDE_ONE_IMAGE in kornia_modules.names(module)  # a call for each image
        self.could_move = movable(module)
        self._mover = FieldMover(module, keys) if keys.kinds & self.could_move else None
        self.moves = (self.could_move & {"shown"}).union(self._mover.kinds if self._mover else ())
        self._shower: FieldMover | None = None  # made where it is needed
        self._natures: dict[tuple[tuple[int, int], int], Nature] = {}
        self._on_device: list[int] | None = None

    @torch.no_grad()
    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Host: its calls. Arrays: a call's rows, and its parameters; or the samples' seeds."""
        kornia_modules.place(self.module, _CPU)
        nature = self._nature(size, draws.channels)
        seeds = _at_least_two(draws.sample_bits(Stream.MODULE, position).view(np.int64))
        calls, arrays = [], {}
        for number, (group, rows) in enumerate(self._grouped(draws, position, seeds, nature)):
            seed = draws.group_seed(Stream.MODULE, position, group)
            chosen = seeds if rows is None else seeds[rows]
            leaves, tree = None, None
            if nature.whole_maps:
                arrays[f"{number}.seeds"] = chosen
            else:
                leaves, tree = tree_flatten(self._drawn(chosen, seed, size, draws.channels))
                if self._single:  # parameters that may go to the device; those of modules that are chosen stay
                    arrays |= {f"{number}.{place}": leaves[place].numpy() for place in _tensors(leaves)}
            if rows is not None:
                arrays[f"{number}.rows"] = rows
            calls.append(Call(rows, seed, leaves, tree, nature))
        return Step(calls, arrays)

    def size_after(self, size: tuple[int, int], channels: int) -> tuple[int, int]:
        return self._nature(size, channels).size

    def run(self, images: Tensor, first: int, host: list[Call], tensors: Tensors) -> Tensor:
        """Carries its calls out; raises ConfigError where it returns no batch."""
        return self._carried_out(images, host, tensors, lambda part, parameters: self.module(part, params=parameters))

    def move(self, kind: str, values: Tensor, host: list[Call], tensors: Tensors) -> Tensor:
        if kind == "shown" and self._shower is None:
            self._shower, self._on_device = FieldMover(self.module, SHOWN), None
        mover = self._shower if kind == "shown" else self._mover
        assert mover is not None  # else `moves` has no such kind
        return self._carried_out(values, host, tensors, mover)

    @torch.no_grad()
    def mixes_ids(self, size: tuple[int, int], channels: int) -> bool:
        """Whether masks get numbers that are no ids, as those between two: tried on two masks of 1 and 2."""
        if self._mover is None or "mask" not in self.moves:
            return False
        kornia_modules.place(self.module, _CPU)
        seeds = Draws(np.arange(1000), seed=0, epoch=0, batch=0).sample_bits(Stream.MODULE, 0).view(np.int64)
        changed = self._changed(seeds, 0)[:2]
        if len(changed) < 2:
            return False
        ids = torch.randint(1, 3, (2, 1, *size), generator=torch.Generator("cpu").manual_seed(0), device=_CPU)
        made = self._mover(ids.to(torch.float32), self._drawn(seeds[changed], 0, size, channels))
        return not torch.equal(made, made.round())

    def _carried_out(
        self, images: Tensor, host: list[Call], tensors: Tensors, act: Callable[[Tensor, Any], object]
    ) -> Tensor:
        """Does something with the images, masks or points, and the parameters of each call."""
        kornia_modules.place(self.module, images.device)
        alone = len(images) == 1
        if alone:
            images = images.repeat(2, *[1] * (images.ndim - 1))
        for number, call in enumerate(host):
            prefix = f"{number}."
            given = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            rows, parts = given.get("rows"), self._in_parts(images, call)
            for begin, end in parts:
                part = images[begin:end] if rows is None else images.index_select(0, rows[begin:end])
                with WithoutWaits() if images.is_cuda else nullcontext():
                    made = act(part, self._parameters_of(part, call, given, begin, end))
                made = checked_result(self.module, made, len(part))
                if rows is not None:
                    images.index_copy_(0, rows[begin:end], made.to(images.dtype))
                elif len(parts) > 1:
                    images[begin:end] = made
                else:
                    images = made
        return images[:1] if alone else images

    def _nature(self, size: tuple[int, int], channels: int) -> Nature:
        if (size, channels) not in self._natures:
            self._natures[size, channels] = nature_of(self.module, size, channels)
        return self._natures[size, channels]

    def _in_parts(self, images: Tensor, call: Call) -> list[tuple[int, int]]:
        """Which rows of a call are done at once: (first, row after the last); a CPU does as many as CPU_BYTES says."""
        count = len(images) if call.rows is None else len(call.rows)
        pieces = 1
        if pixels.on_cpu(images.device) and call.nature.by_row is not None:
            pieces = max(1, count // max(2, CPU_BYTES // (4 * images[0].numel())))
        bounds = np.linspace(0, count, pieces + 1).astype(int).tolist()
        return list(pairwise(bounds))

    def _grouped(
        self, draws: Draws, position: int, seeds: Int64s, nature: Nature
    ) -> list[tuple[int | None, Int64s | None]]:
        """The groups of a batch, and the rows of each that are changed; None: all rows."""
        rows = self._changed(seeds, draws.group_seed(Stream.MODULE, position, None))
        groups: list[int | None] = [None]
        by_batch = self.module.same_on_batch or getattr(self.module, "p_batch", 1) != 1  # as its user asked for
        if nature.draws_once and not by_batch and not self._row_by_row:
            groups = list(range(GROUPS if self._single else POLICY_GROUPS))
        if groups == [None] and len(rows) == len(seeds):
            return [(None, None)]
        of_row = np.resize(draws.sample_bits(Stream.MODULE_GROUP, position) % np.uint64(len(groups)), len(seeds))[rows]
        parts = [(group, rows[of_row == number]) for number, group in enumerate(groups)]
        return [(group, _at_least_two(mine)) for group, mine in parts if len(mine)]

    def _changed(self, seeds: Int64s, seed: int) -> Int64s:
        """The rows that its probability chooses. The gate is its first draw, so it is drawn alone here."""
        count, module = len(seeds), self.module
        if not self._single or module.p == module.p_batch == 1:
            return np.arange(count)
        with self._draws(seeds, seed):
            chosen = module.__batch_prob_generator__((count,), module.p, module.p_batch, module.same_on_batch)
        return np.flatnonzero(chosen.numpy() > 0.5)

    def _drawn(self, seeds: Int64s, seed: int, size: tuple[int, int], channels: int) -> Any:
        if self._row_by_row:
            return self._drawn_row_by_row(seeds, (1, channels, *size))
        with self._draws(seeds, seed):
            return self.module.forward_parameters(torch.Size((len(seeds), channels, *size)))

    def _drawn_row_by_row(self, seeds: Int64s, shape: tuple[int, ...]) -> dict[str, Tensor]:
        """Of a module that draws once for each row: each row's are drawn alone."""
        rows = []
        for seed in seeds:
            with self._draws(seed[None], int(seed) & _WORD):
                rows.append(self.module.forward_parameters(torch.Size(shape)))
        return {
            name: torch.cat([row[name] for row in rows]) if len(first) == 1 else first
            for name, first in rows[0].items()
        }

    def _draws(self, seeds: Int64s, seed: int) -> BySample:
        return BySample(torch.from_numpy(seeds), generator=torch.Generator("cpu").manual_seed(seed), onto=_CPU)

    def _parameters_of(self, images: Tensor, call: Call, given: Tensors, begin: int, end: int) -> Any:
        """Its parameters for images, or masks, that belong to the rows from begin to end of a call."""
        if call.leaves is None or call.tree is None:
            generator = torch.Generator("cpu" if images.device.type == "meta" else images.device)
            with BySample(given["seeds"][begin:end], generator=generator.manual_seed(call.seed), onto=images.device):
                shape = len(images), call.nature.channels, *images.shape[2:]
                return self.module.forward_parameters(torch.Size(shape))
        leaves = list(call.leaves)
        if images.device != _CPU and self._single:
            if self._on_device is None:
                self._on_device = computed_with(
                    self.module, self._shower or self._mover, images, call.leaves, call.tree
                )
            for place in self._on_device:
                leaves[place] = given[str(place)]
        for place in call.nature.by_row or ():
            leaves[place] = leaves[place][begin:end]
        return tree_unflatten(leaves, call.tree)


def _tensors(leaves: list[Any]) -> list[int]:
    return [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]


def _at_least_two(rows: Int64s) -> Int64s:
    """The same, or the one row twice: a module's draws for one image look like draws for a whole batch."""
    return np.resize(rows, max(2, len(rows)))


@torch.no_grad()
def nature_of(module: Any, size: tuple[int, int], channels: int) -> Nature:
    """Draws parameters for two images of `size`; and for three, to see which of them have a row an image. ConfigError:
    it takes no images with so many channels, as far as a trial can tell.
    """
    parameters, others = _drawn(module, 2, size, channels)
    leaves = [leaf for leaf in tree_flatten(parameters)[0] if isinstance(leaf, Tensor)]
    large = any(leaf.numel() > 2 * _LARGEST for leaf in leaves)
    if not hasattr(module, "p_batch"):  # it chooses among other modules, on the host: so maps are drawn there
        return Nature(channels, others > 0, False, size, None)
    made: Tensor | None = None
    if channels != 3 or module.p == module.p_batch == 1:
        made = _tried(module, parameters, (2, channels, *size))
    if module.p_batch != 1:  # it changes a whole batch, or leaves it
        return Nature(channels, others > 0, large, size, None)
    after: tuple[int, int] = size
    by_row: frozenset[int] | None = None
    if made is not None and module.p == 1:
        height, width = made.shape[2:]
        after = (height, width)
    # One number is that of an image: RandomMotionBlur takes this image's kernel for all. RandomChannelDropout numbers
    # the rows of the whole call in `batch_idx`, so a part of them would have numbers that are too large for it.
    can_be_cut = not any(leaf.shape == (1,) for leaf in leaves) and "batch_idx" not in parameters
    if after == size and can_be_cut:
        more = leaves if large else tree_flatten(_drawn(module, 3, size, channels)[0])[0]
        pairs = enumerate(zip(leaves, more, strict=True))
        by_row = frozenset(place for place, (two, three) in pairs if len(two) != len(three))
    return Nature(channels, others > 0, large, after, by_row)


def _tried(module: Any, parameters: Any, shape: tuple[int, ...]) -> Tensor:
    """What it makes of black images, as if its probability were 1."""
    try:
        with _CPU:
            made: Tensor = module(torch.zeros(shape), params={**parameters, "batch_prob": torch.ones(shape[0])})
    except Exception as error:
        if shape[1] == 3:
            raise
        said, *_ = str(error).splitlines() or [type(error).__name__]
        raise ConfigError(
            f"augment: {type(module).__name__} refused images (N, {shape[1]}, height, width): {said.rstrip('.')}. "
            'Leave it out, or pass channels="rgb" to fastpipe.loader'
        ) from error
    return made


def computed_with(
    module: torch.nn.Module, mover: FieldMover | None, images: Tensor, leaves: list[Any], tree: TreeSpec
) -> list[int]:
    """The places of the parameters that it, and its mover of masks, only compute with, tried on tensors without data:
    to ask for the value of another on a device would wait for it there.
    """
    module, mover = copy.deepcopy((module, mover))  # one copy of the module that both have
    kornia_modules.place(module, _META)
    images = torch.empty_like(images, device=_META)
    places = _tensors(leaves)

    def works(wanted: list[int]) -> bool:
        trial = [leaf.to(_META) if place in wanted else leaf for place, leaf in enumerate(leaves)]
        try:
            module(images, params=tree_unflatten(trial, tree))
            if mover is not None and "mask" in mover.kinds:
                mover(images[:, :1], tree_unflatten(trial, tree))
        except Exception:  # kornia has many for tensors of two devices, and torch for values that are not there
            return False
        return True

    if works(places):
        return places
    wanted: list[int] = []
    for place in places:
        wanted += [place] if works([*wanted, place]) else []
    return wanted


def _drawn(module: Any, count: int, size: tuple[int, int], channels: int) -> tuple[Any, int]:
    """Parameters for some images, and how many draws were not by sample."""
    seeds, generator = torch.arange(count, device=_CPU), torch.Generator("cpu").manual_seed(0)
    with BySample(seeds, generator=generator, onto=_CPU) as mode:
        parameters = module.forward_parameters(torch.Size((count, channels, *size)))
    return parameters, mode.others


_TAKEN_AT_ONCE_BYTES = 2**16  # so much of pageable memory CUDA copies aside when it is asked to


class WithoutWaits(TorchFunctionMode):
    """While it is entered, copies from the host to a GPU are queued, and torch.linalg.solve does not look at errors.

    A large copy of pageable memory would wait for all that is queued, so it goes by way of page-locked memory. Where
    `solve` finds no solution, its results are not finite.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is torch.linalg.solve:
            return torch.linalg.solve_ex(*args, **kwargs)[0]
        device = torch.device(kwargs.get("device") or "cpu")
        if function in (torch.tensor, torch.as_tensor) and device.type == "cuda" and not getattr(args[0], "is_cuda", 0):
            return _sent(function(*args, **kwargs | {"device": "cpu"}), device)
        if function is torch.Tensor.to and args[0].is_cpu and not kwargs.get("copy"):
            device, dtype, *_ = torch._C._nn._parse_to(*args[1:], **kwargs)
            if device is not None and device.type == "cuda":
                return _sent(args[0].to(dtype or args[0].dtype), device)
        return function(*args, **kwargs)


def _sent(tensor: torch.Tensor, device: Any) -> torch.Tensor:
    if tensor.nbytes > _TAKEN_AT_ONCE_BYTES:
        with suppress(RuntimeError):  # no more memory can be locked: then the copy waits
            tensor = torch.empty_like(tensor, pin_memory=True).copy_(tensor)  # torch keeps it until it has been copied
    return tensor.to(device, non_blocking=True)
