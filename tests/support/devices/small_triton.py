"""What the kernels of a colour pass use of Triton, by torch on a CPU: the gate runs them without Triton.

Programs run one after the other. A pointer is the memory of a tensor and a place in it; addresses outside are errors.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import Tensor

KERNEL = "fastpipe.device.augment.triton_passes.kernel"

_program: tuple[int, ...] = ()
_programs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Pointer:
    memory: Tensor  # all elements of the tensor's storage
    place: Any  # an integer, or a tensor of them

    def __add__(self, distance: Any) -> Pointer:
        return Pointer(self.memory, self.place + distance)


class Kernel:
    """A function of programs, or one that they call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __getitem__(self, programs: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, enable_fp_fusion: bool, **constants: Any) -> None:
            global _program, _programs
            _programs = programs
            pointers = [_pointer_to(argument) for argument in arguments]
            for _program in itertools.product(*map(range, programs)):
                self._function(*pointers, **constants)

        return launch


def _pointer_to(argument: Any) -> Any:
    if not isinstance(argument, Tensor):
        return argument
    size = argument.untyped_storage().nbytes() // argument.element_size()
    memory = argument.as_strided((size,), (1,), 0)
    return Pointer(memory, argument.storage_offset())


def _load(pointer: Pointer, mask: Tensor | None = None, other: float = 0) -> Tensor:
    if mask is None:
        return pointer.memory[pointer.place]
    values = pointer.memory[torch.where(mask, pointer.place, 0)]
    return torch.where(mask, values, torch.tensor(other).to(values.dtype))


def _store(pointer: Pointer, values: Tensor, mask: Tensor | None = None) -> None:
    if mask is None:
        pointer.memory[pointer.place] = values
    else:
        pointer.memory[pointer.place[mask]] = values[mask].to(pointer.memory.dtype)


def _both(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Tensor]:
    return lambda first, second: function(torch.as_tensor(first), torch.as_tensor(second))


def _jit(function: Any = None, **_: Any) -> Any:
    return _jit if function is None else Kernel(function)


def _modules() -> dict[str, ModuleType]:
    language = ModuleType("triton.language")
    names = {
        "constexpr": int,
        "minimum": _both(torch.minimum),
        "maximum": _both(torch.maximum),
        "where": torch.where,
        "floor": torch.floor,
        "abs": torch.abs,
        "exp2": torch.exp2,
        "log2": torch.log2,
        "sum": torch.sum,
        "arange": torch.arange,
        "zeros": lambda shape, dtype: torch.zeros(shape, dtype=dtype),
        "int64": torch.int64,
        "float32": torch.float32,
        "load": _load,
        "store": _store,
        "program_id": lambda axis: torch.tensor(_program[axis]),
        "num_programs": lambda axis: _programs[axis],
    }
    for name, value in names.items():
        setattr(language, name, value)
    package = ModuleType("triton")
    package.jit = _jit  # type: ignore[attr-defined]
    package.language = language  # type: ignore[attr-defined]
    return {"triton": package, "triton.language": language}


@contextmanager
def small_triton() -> Iterator[None]:
    """Lets `triton_passes` find Triton, and launch its kernels on a CPU."""
    from fastpipe.device.augment import passes as augment_passes
    from fastpipe.device.augment.triton_passes import launch

    with (
        mock.patch.dict(sys.modules, _modules()),
        mock.patch.dict("os.environ", {"TRITON_INTERPRET": "1"}),
        mock.patch.object(augment_passes, "has_triton", return_value=True),
        mock.patch.object(launch, "has_triton", return_value=True),
    ):
        sys.modules.pop(KERNEL, None)
        launch._works_on.cache_clear()
        try:
            yield
        finally:
            # `import` finds a module in its package, too.
            sys.modules.pop(KERNEL, None)
            vars(sys.modules[launch.__package__]).pop("kernel", None)
            launch._works_on.cache_clear()
