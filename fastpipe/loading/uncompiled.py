"""A method -> the same method, which torch.compile calls and does not compile."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

_REASON = (
    "fastpipe makes batches outside of compiled code. Without fullgraph=True a loop over a loader "
    "works in a compiled function. With it, compile the function that gets one batch, and keep the "
    "loop outside of it"
)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def uncompiled(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """As torch.compiler.disable, which imports torch's compiler and takes a second for it.

    This imports it only where the program has done so already.
    """

    @functools.cache
    def disabled() -> Callable[_P, _T]:
        return torch.compiler.disable(method)  # type: ignore[no-untyped-call, no-any-return]

    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        if "torch._dynamo" in sys.modules:
            return disabled()(*args, **kwargs)
        return method(*args, **kwargs)

    # torch's compiler looks at these two attributes of a function that it is about to trace.
    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    call._torchdynamo_disable_msg = _REASON  # type: ignore[attr-defined]
    return call
