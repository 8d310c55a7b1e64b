"""A call of kornia's modules on a GPU -> the same, but the host does not wait for the work that is queued there."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

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
