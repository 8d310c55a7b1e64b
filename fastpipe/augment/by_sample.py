"""torch's random functions, called for a batch -> numbers that depend on each sample's seed, not on the batch.

Note [draws by sample]: other people's modules draw with torch.rand and the like, mostly one row a sample: the first
dimension is the number of images, or a multiple of it. Such a call is answered row by row, from a hash of the sample's
seed, the number of the call and the place in the row: so a sample gets the same numbers in any batch, at any place and
on any device. All other draws (torch.randperm, one number a batch) are left to a generator.

Source of the hash: the finaliser of MurmurHash3 (Appleby, public domain), over Weyl steps as in splitmix.
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

_STEP = 0x9E3779B9  # 2**32 divided by the golden ratio, odd
_ROW_BYTES = 2**19  # on a CPU, rows as large as this are made one by one, in its cache
Arguments = tuple[Any, ...]
Keywords = Mapping[str, Any]


class _OtherError(Exception):
    """A draw is not one row a sample."""


class BySample(TorchFunctionMode):
    """While it is entered, random functions of torch are answered as Note [draws by sample] says.

    Args:
        seeds: (n,) int64, one a sample, on each device where draws are asked for.
        generator: makes all `others`, the draws that are not one row a sample; None: torch's global generators do.
        onto: a device where all tensors are made that the code inside wants on the CPU, or on no device in particular;
            None: nothing is moved.
    """

    def __init__(
        self, *seeds: Tensor, generator: torch.Generator | None = None, onto: torch.device | None = None
    ) -> None:
        super().__init__()
        self._seeds = {tensor.device.type: tensor for tensor in seeds}
        self._count = len(seeds[0])
        self._generator = generator
        self._onto = onto
        self._calls = 0
        self.others = 0

    def __torch_function__(
        self, function: Callable[..., Any], types: Sequence[type], args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        if self._onto is not None:
            args, keywords = self._moved(function, args, keywords)
        draw = _DRAWS.get(function)
        if draw is None or keywords.get("generator") is not None:
            return function(*args, **keywords)
        if "input" in keywords:
            args = (keywords.pop("input"), *args)
        try:
            made = draw(self, *args, **keywords)
        except _OtherError:
            self.others += 1
            if self._generator is not None and function not in _WITHOUT_GENERATOR:
                keywords["generator"] = self._generator
            return function(*args, **keywords)
        out = keywords.get("out")
        return made if out is None else out.resize_(made.shape).copy_(made)

    def _moved(self, function: Callable[..., Any], args: Arguments, kwargs: dict[str, Any]) -> tuple[Arguments, Any]:
        args = tuple(self._onto if isinstance(arg, torch.device) and arg.type == "cpu" else arg for arg in args)
        device = kwargs.get("device")
        if function in _device_constructors() if device is None else torch.device(device).type == "cpu":
            kwargs["device"] = self._onto
        return args, kwargs

    def uniform(self, shape: Sequence[int], dtype: torch.dtype | None, device: object) -> Tensor:
        """Numbers in [0, 1), multiples of 2**-24; _OtherError: the shape is not of one row a sample."""
        words, wide = self._words(shape, device), dtype or torch.get_default_dtype()
        numbers = words.bitwise_right_shift_(8).bitwise_and_(0xFFFFFF).to(torch.promote_types(wide, torch.float32))
        return numbers.mul_(2.0**-24).to(wide)

    def normal(self, shape: Sequence[int], dtype: torch.dtype | None, device: object) -> Tensor:
        """Numbers of the standard normal distribution."""
        numbers = self.uniform(shape, torch.float32, device)
        return numbers.mul_(2).add_(2.0**-24 - 1).erfinv_().mul_(math.sqrt(2)).to(dtype or torch.get_default_dtype())

    def _words(self, shape: Sequence[int], device: object) -> Tensor:
        """32 random bits for each element, int32."""
        rows = shape[0] if len(shape) else 0
        seeds = self._seeds.get(torch.device("cpu" if device is None else device).type)  # type: ignore[call-overload]
        if seeds is None or rows == 0 or rows % self._count:
            raise _OtherError
        self._calls += 1
        keys = _mix((seeds & 0xFFFFFFFF).add_(self._calls * _STEP).to(torch.int32)).bitwise_xor_(
            (seeds >> 32).to(torch.int32)
        )
        places = torch.arange(math.prod(shape) // self._count, dtype=torch.int32, device=seeds.device)
        places.mul_(_signed(_STEP))
        if seeds.device.type != "cpu" or 4 * len(places) < _ROW_BYTES:
            return _mix(places ^ keys[:, None]).view(*shape)
        words = torch.empty(self._count, len(places), dtype=torch.int32, device=seeds.device)
        for row, key in zip(words, keys, strict=True):
            _mix(torch.bitwise_xor(places, key, out=row))
        return words.view(*shape)


def _signed(word: int) -> int:
    return word - 2**32 if word >= 2**31 else word


def _mix(words: Tensor) -> Tensor:
    """Spreads each bit of an int32 over all of them, in place; a bijection."""
    words.bitwise_xor_(words.bitwise_right_shift(16).bitwise_and_(0xFFFF)).mul_(_signed(0x85EBCA6B))
    words.bitwise_xor_(words.bitwise_right_shift(13).bitwise_and_(0x7FFFF)).mul_(_signed(0xC2B2AE35))
    return words.bitwise_xor_(words.bitwise_right_shift(16).bitwise_and_(0xFFFF))


def _shape(size: Arguments, keywords: Keywords) -> Sequence[int]:
    """The size of a call, which may be written f(2, 3), f((2, 3)) or f(size=(2, 3))."""
    given: Sequence[Any] = keywords.get("size", size)
    return tuple(given[0]) if len(given) == 1 and np.ndim(given[0]) else given


Numbers = Callable[[BySample, Sequence[int], torch.dtype | None, object], Tensor]


def _sized(numbers: Numbers) -> Callable[..., Tensor]:
    """torch.rand or torch.randn."""
    return lambda mode, *size, dtype=None, device=None, **keywords: numbers(mode, _shape(size, keywords), dtype, device)


def _alike(numbers: Numbers) -> Callable[..., Tensor]:
    """torch.rand_like or torch.randn_like."""
    return lambda mode, like, dtype=None, device=None, **_: numbers(
        mode, like.shape, dtype or like.dtype, device or like.device
    )


def _randint(mode: BySample, *limits: Any, dtype: Any = None, device: Any = None, **keywords: Any) -> Tensor:
    *given, size = (*limits, keywords["size"]) if "size" in keywords else limits
    given += [keywords["high"]] if "high" in keywords else []
    high = given[-1]
    low = given[0] if len(given) > 1 else keywords.get("low", 0)
    numbers = mode.uniform(size, torch.float64, device)
    return numbers.mul_(high - low).floor_().add_(low).to(dtype or torch.int64)


def _bernoulli(mode: BySample, probability: Tensor, p: float | None = None, **_: Any) -> Tensor:
    numbers = mode.uniform(probability.shape, torch.float32, probability.device)
    return (numbers < (probability if p is None else p)).to(probability.dtype)


def _bernoulli_(mode: BySample, out: Tensor, p: Any = 0.5, **_: Any) -> Tensor:
    return out.copy_(mode.uniform(out.shape, torch.float32, out.device) < p)


def _uniform_(mode: BySample, out: Tensor, low: Any = 0.0, high: Any = 1.0, **keywords: Any) -> Tensor:
    low, high = keywords.get("from", low), keywords.get("to", high)
    return out.copy_(mode.uniform(out.shape, out.dtype, out.device).mul_(high - low).add_(low))


def _normal_(mode: BySample, out: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
    return out.copy_(mode.normal(out.shape, out.dtype, out.device).mul_(std).add_(mean))


def _normal(
    mode: BySample, mean: Any, std: Any = 1.0, size: Any = None, *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    given = [each for each in (mean, std) if isinstance(each, Tensor)]
    if not given and size is None:
        raise _OtherError
    if given:
        size, dtype, device = np.broadcast_shapes(*(each.shape for each in given)), given[0].dtype, given[0].device
    numbers: Tensor = mode.normal(size, dtype, device) * std + mean
    return numbers


def _left(*_: Any, **__: Any) -> Tensor:
    """Never one row a sample."""
    raise _OtherError


_DRAWS: dict[Any, Callable[..., Tensor]] = {
    torch.rand: _sized(BySample.uniform),
    torch.randn: _sized(BySample.normal),
    torch.rand_like: _alike(BySample.uniform),
    torch.randn_like: _alike(BySample.normal),
    torch.randint: _randint,
    torch.bernoulli: _bernoulli,
    torch.Tensor.bernoulli: _bernoulli,
    torch.Tensor.bernoulli_: _bernoulli_,
    torch.Tensor.uniform_: _uniform_,
    torch.Tensor.normal_: _normal_,
    torch.normal: _normal,
    **dict.fromkeys((torch.randperm, torch.multinomial, torch._sample_dirichlet, torch._standard_gamma), _left),
    torch.Tensor.exponential_: _left,
}
_WITHOUT_GENERATOR = {torch.rand_like, torch.randn_like}
