"""torch's random functions, called for a batch -> numbers that depend on each sample's seed.

Note [draws by sample]
Modules of other libraries draw with torch.rand and the like, mostly one row a sample: the first
dimension is the number of images, or a multiple of it. Such a call is answered row by row, from a
hash of the sample's seed, the number of the call and the position in the row. So a sample gets the
same numbers in any batch, at any row and on any device. All other draws (torch.randperm, one number
a batch) are left to a generator.

Source of the hash: the finaliser of MurmurHash3 (Appleby, public domain), over Weyl steps as in
splitmix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from fastpipe.arrays import Int64s

_STEP = 0x9E3779B9  # 2**32 divided by the golden ratio, odd
_ROW_BYTES = 2**19  # larger rows are made one by one on a CPU, in its cache
Shape = Sequence[int]
Arguments = tuple[Any, ...]
Keywords = Mapping[str, Any]


class _NotBySampleError(Exception):
    """A draw is not one row a sample."""


class BySample(TorchFunctionMode):
    """While it is entered, random functions of torch are answered as Note [draws by sample] says.

    Args:
        seeds: (n,) int64, one a sample, on each device on which the code inside draws.
        generator: of all `others`, the draws that are not one row a sample; None: torch's global
            generators.
        onto: device of all tensors that the code inside makes on the CPU, or on no device in
            particular; None: they stay where they are.
    """

    def __init__(
        self,
        *seeds: Tensor,
        generator: torch.Generator | None = None,
        onto: torch.device | None = None,
    ) -> None:
        super().__init__()
        self._seeds = {tensor.device.type: tensor for tensor in seeds}
        self._count = len(seeds[0])
        self._generator = generator
        self._onto = onto
        self._calls = 0
        self.others = 0

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Arguments = (),
        kwargs: Keywords | None = None,
    ) -> Any:
        keywords = dict(kwargs or {})
        if self._onto is not None:
            args = self._redirect(function, args, keywords, self._onto)
        # A module that brings a generator of its own wants its numbers from there.
        draw = _DRAWS.get(function)
        if draw is None or keywords.get("generator") is not None:
            return function(*args, **keywords)
        # torch calls the first argument of some functions `input`; the functions below do not.
        if "input" in keywords:
            args = (keywords.pop("input"), *args)
        try:
            numbers = draw(self, *args, **keywords)
        except _NotBySampleError:
            self.others += 1
            if self._generator is not None and function not in _WITHOUT_GENERATOR:
                keywords["generator"] = self._generator
            return function(*args, **keywords)
        # As torch does with out=, whatever size it has.
        out = keywords.get("out")
        if out is None:
            return numbers
        return out.resize_(numbers.shape).copy_(numbers)

    def _redirect(
        self,
        function: Callable[..., Any],
        args: Arguments,
        keywords: dict[str, Any],
        onto: torch.device,
    ) -> Arguments:
        """The arguments with `onto` in place of the CPU; changes the keywords."""
        device = keywords.get("device")
        makes_on_default = device is None and function in _device_constructors()
        makes_on_cpu = device is not None and torch.device(device).type == "cpu"
        if makes_on_default or makes_on_cpu:
            keywords["device"] = onto
        return tuple(
            onto if isinstance(arg, torch.device) and arg.type == "cpu" else arg
            for arg in args
        )

    def uniform(
        self, shape: Shape, dtype: torch.dtype | None, device: object
    ) -> Tensor:
        """Numbers in [0, 1), multiples of 2**-24.

        Raises _NotBySampleError if the shape is not one row a sample.
        """
        words = self._words(shape, device)
        dtype = dtype or torch.get_default_dtype()
        upper_bits = words.bitwise_right_shift_(8).bitwise_and_(0xFFFFFF)
        # A narrower dtype is rounded once, at the end.
        numbers = upper_bits.to(torch.promote_types(dtype, torch.float32))
        return numbers.mul_(2.0**-24).to(dtype)

    def normal(self, shape: Shape, dtype: torch.dtype | None, device: object) -> Tensor:
        """Numbers of the standard normal distribution."""
        numbers = self.uniform(shape, torch.float32, device)
        # From [0, 1) to the open interval (-1, 1), because erfinv is infinite at its ends.
        numbers = numbers.mul_(2).add_(2.0**-24 - 1)
        numbers = numbers.erfinv_().mul_(math.sqrt(2))
        return numbers.to(dtype or torch.get_default_dtype())

    def _words(self, shape: Shape, device: object) -> Tensor:
        """32 random bits for each element, int32."""
        rows = shape[0] if len(shape) else 0
        device = "cpu" if device is None else device
        seeds = self._seeds.get(torch.device(device).type)  # type: ignore[call-overload]
        has_whole_samples = rows > 0 and rows % self._count == 0
        if seeds is None or not has_whole_samples:
            raise _NotBySampleError
        self._calls += 1

        # (n,) a key for each sample and call, of both halves of the seed.
        low_halves = seeds & 0xFFFFFFFF
        low_halves.add_(self._calls * _STEP)
        high_halves = (seeds >> 32).to(torch.int32)
        keys = _mix(low_halves.to(torch.int32))
        keys.bitwise_xor_(high_halves)
        # (row_size,) a Weyl step for each element of a row.
        row_size = math.prod(shape) // self._count
        steps = torch.arange(row_size, dtype=torch.int32, device=seeds.device)
        steps.mul_(_signed(_STEP))

        # (n, row_size) hashed at once or, if the rows are large, row by row in the CPU's cache.
        if seeds.device.type != "cpu" or 4 * row_size < _ROW_BYTES:
            words = _mix(steps ^ keys[:, None])
            return words.view(*shape)
        row_shape = (self._count, row_size)
        words = torch.empty(row_shape, dtype=torch.int32, device=seeds.device)
        for row, key in zip(words, keys, strict=True):
            torch.bitwise_xor(steps, key, out=row)
            _mix(row)
        return words.view(*shape)


def by_sample_on_cpu(seeds: Int64s, seed: int) -> BySample:
    """The mode for n seeds, one a sample, in which all draws are made on the CPU.

    `seed` is that of a generator for the draws that are not one row a sample.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    return BySample(
        torch.from_numpy(seeds), generator=generator, onto=torch.device("cpu")
    )


def _signed(word: int) -> int:
    """32 bits as torch.int32 has them."""
    return word - 2**32 if word >= 2**31 else word


def _mix(words: Tensor) -> Tensor:
    """Spreads each bit of an int32 over all of them, in place; a bijection."""
    _xor_shifted(words, 16)
    words.mul_(_signed(0x85EBCA6B))
    _xor_shifted(words, 13)
    words.mul_(_signed(0xC2B2AE35))
    return _xor_shifted(words, 16)


def _xor_shifted(words: Tensor, shift: int) -> Tensor:
    """words ^ (words >> shift) of unsigned 32 bits, in place."""
    # torch shifts an int32 with its sign: the mask takes the copies of the sign away.
    mask = (1 << (32 - shift)) - 1
    shifted = words.bitwise_right_shift(shift).bitwise_and_(mask)
    return words.bitwise_xor_(shifted)


def _shape(size: Arguments, keywords: Keywords) -> Shape:
    """The size of a call, which may be written f(2, 3), f((2, 3)) or f(size=(2, 3))."""
    size = keywords.get("size", size)
    if len(size) == 1 and np.ndim(size[0]):
        return tuple(size[0])
    return size


# The functions below have the arguments of torch's functions, after the mode.


def _rand(
    mode: BySample, *size: Any, dtype: Any = None, device: Any = None, **keywords: Any
) -> Tensor:
    return mode.uniform(_shape(size, keywords), dtype, device)


def _randn(
    mode: BySample, *size: Any, dtype: Any = None, device: Any = None, **keywords: Any
) -> Tensor:
    return mode.normal(_shape(size, keywords), dtype, device)


def _rand_like(
    mode: BySample, like: Tensor, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    dtype = dtype or like.dtype
    device = device or like.device
    return mode.uniform(like.shape, dtype, device)


def _randn_like(
    mode: BySample, like: Tensor, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    dtype = dtype or like.dtype
    device = device or like.device
    return mode.normal(like.shape, dtype, device)


def _randint(
    mode: BySample, *limits: Any, dtype: Any = None, device: Any = None, **keywords: Any
) -> Tensor:
    """torch.randint(low=0, high, size)."""
    # Any of the three may be given by its name. Without a name they come in this order, and a
    # single limit is `high`.
    numbers = list(limits)
    if "size" in keywords:
        size = keywords["size"]
    else:
        size = numbers.pop()
    if "high" in keywords:
        numbers.append(keywords["high"])
    high = numbers[-1]
    low = keywords.get("low", 0)
    if len(numbers) > 1:
        low = numbers[0]
    draws = mode.uniform(size, torch.float64, device)
    draws.mul_(high - low).floor_().add_(low)
    return draws.to(dtype or torch.int64)


def _bernoulli(
    mode: BySample, probability: Tensor, p: float | None = None, **_: Any
) -> Tensor:
    # torch.bernoulli(probability), or bernoulli(like, p), which takes only the shape of `like`.
    draws = mode.uniform(probability.shape, torch.float32, probability.device)
    limit = probability if p is None else p
    is_drawn = draws < limit
    return is_drawn.to(probability.dtype)


def _bernoulli_(mode: BySample, out: Tensor, p: Any = 0.5, **_: Any) -> Tensor:
    draws = mode.uniform(out.shape, torch.float32, out.device)
    return out.copy_(draws < p)


def _uniform_(
    mode: BySample, out: Tensor, low: Any = 0.0, high: Any = 1.0, **keywords: Any
) -> Tensor:
    low = keywords.get("from", low)
    high = keywords.get("to", high)
    draws = mode.uniform(out.shape, out.dtype, out.device)
    return out.copy_(draws.mul_(high - low).add_(low))


def _normal_(
    mode: BySample, out: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any
) -> Tensor:
    draws = mode.normal(out.shape, out.dtype, out.device)
    return out.copy_(draws.mul_(std).add_(mean))


def _normal(
    mode: BySample,
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    **_: Any,
) -> Tensor:
    tensors = []
    for value in (mean, std):
        if isinstance(value, Tensor):
            tensors.append(value)
    if tensors:
        size = np.broadcast_shapes(*(tensor.shape for tensor in tensors))
        dtype = tensors[0].dtype
        device = tensors[0].device
    elif size is None:
        raise _NotBySampleError
    draws = mode.normal(size, dtype, device)
    numbers: Tensor = draws * std + mean
    return numbers


def _never_by_sample(*_: Any, **__: Any) -> Tensor:
    raise _NotBySampleError


_DRAWS: dict[Any, Callable[..., Tensor]] = {
    torch.rand: _rand,
    torch.randn: _randn,
    torch.rand_like: _rand_like,
    torch.randn_like: _randn_like,
    torch.randint: _randint,
    torch.bernoulli: _bernoulli,
    torch.Tensor.bernoulli: _bernoulli,
    torch.Tensor.bernoulli_: _bernoulli_,
    torch.Tensor.uniform_: _uniform_,
    torch.Tensor.normal_: _normal_,
    torch.normal: _normal,
    torch.randperm: _never_by_sample,
    torch.multinomial: _never_by_sample,
    torch._sample_dirichlet: _never_by_sample,
    torch._standard_gamma: _never_by_sample,
    torch.Tensor.exponential_: _never_by_sample,
}
_WITHOUT_GENERATOR = (torch.rand_like, torch.randn_like)  # functions that take none
