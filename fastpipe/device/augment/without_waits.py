"""kornia's copies to a GPU, and its solving of equations -> the same without waiting for it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# CUDA copies at most this much of pageable memory aside at once, and need not wait for the copy to
# the GPU.
_COPIED_ASIDE_BYTES = 2**16


class WithoutWaits(TorchFunctionMode):
    """While it is entered, copies from the host to a GPU are queued, and torch.linalg.solve does
    not look for errors.

    A large copy of pageable memory would wait for all that is queued, so it goes by way of
    page-locked memory. If `solve` finds no solution, its results are not finite.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is torch.linalg.solve:
            # solve_ex returns the errors beside the solution, and does not wait for them.
            solution, _ = torch.linalg.solve_ex(*args, **kwargs)
            return solution
        if function in (torch.tensor, torch.as_tensor):
            device = torch.device(kwargs.get("device") or "cpu")
            is_on_gpu = getattr(args[0], "is_cuda", False)
            if device.type == "cuda" and not is_on_gpu:
                on_cpu = function(*args, **kwargs | {"device": "cpu"})
                return _send(on_cpu, device)
        if function is torch.Tensor.to:
            tensor = args[0]
            if tensor.is_cpu and not kwargs.get("copy"):
                # torch's own parser of the arguments: to(device), to(dtype), to(device, dtype), ...
                device, dtype, *_ = torch._C._nn._parse_to(*args[1:], **kwargs)
                if device is not None and device.type == "cuda":
                    return _send(tensor.to(dtype or tensor.dtype), device)
        return function(*args, **kwargs)


def _send(tensor: torch.Tensor, device: Any) -> torch.Tensor:
    """Queues a copy to the GPU."""
    if tensor.nbytes > _COPIED_ASIDE_BYTES:
        # The system may refuse to lock more memory: then the copy waits.
        with suppress(RuntimeError):
            # torch keeps the page-locked memory until it has been copied.
            page_locked = torch.empty_like(tensor, pin_memory=True)
            tensor = page_locked.copy_(tensor)
    return tensor.to(device, non_blocking=True)
