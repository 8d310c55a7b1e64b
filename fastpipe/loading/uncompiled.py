"""A method that iterates -> the same method, which torch.compile leaves as it is."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_T = TypeVar("_T")

_REASON = (
    "fastpipe makes batches outside of compiled code. Without fullgraph=True a loop over a loader works in a compiled "
    "function. With it, compile the function that gets one batch, and keep the loop outside of it"
)


def uncompiled(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """torch.compiler.disable, which imports torch's compiler (a second) only where a program uses it already."""
    disabled: list[Callable[_P, _T]] = []

    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        if "torch._dynamo" not in sys.modules:
            return method(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(method))  # type: ignore[no-untyped-call]
        return disabled[0](*args, **kwargs)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    call._torchdynamo_disable_msg = _REASON  # type: ignore[attr-defined]
    return call
