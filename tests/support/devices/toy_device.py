"""A device "toy" of torch, by torch's own mechanism for devices of extensions. The CPU does all of its work, at once.

Its module, torch.toy, has what a test says: nothing but the device, events as torch.mps, or streams as torch.xpu. A
process cannot lose the device again, so the programs that tests start have it.

Source: torch.utils.backend_registration, since torch 2.10.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map_only

log: list[str] = []  # what was asked of the device's queues, in order


class Waits(backend_registration._DummyBackendModule):
    """The module torch.toy of a device without streams and events."""

    def __init__(self) -> None:
        self._generator = torch.Generator()

    def get_rng_state(self, device: object) -> Tensor:
        return self._generator.get_state()

    def set_rng_state(self, state: Tensor, device: object) -> None:
        self._generator.set_state(state)


class Event:
    """Done when it is asked again. No time is known of it where it was made without."""

    def __init__(self, enable_timing: bool = False) -> None:
        self._timed, self._asked = enable_timing, 0

    def record(self, stream: object = None) -> None:
        log.append("record" if stream is None else f"record in {stream}")

    def query(self) -> bool:
        self._asked += 1
        return self._asked > 1

    def elapsed_time(self, later: Event) -> float:
        assert self._timed
        assert later._timed
        return 1.0


class Queue(Waits):
    """torch.toy with events of one queue, as torch.mps."""

    Event = Event


class Streams(Queue):
    """torch.toy with streams, as torch.xpu."""

    class Stream:
        def __init__(self, device: torch.device) -> None:
            """On the one device that there is."""

        def __str__(self) -> str:
            return "the side stream"

        def wait_event(self, event: Event) -> None:
            raise AssertionError("it waits for nothing")

    class _Program:
        def __str__(self) -> str:
            return "the program's stream"

        def wait_event(self, event: Event) -> None:
            log.append("the program's stream waits")

    def current_stream(self, device: object = None) -> object:
        return self._Program()

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        yield

    @contextmanager
    def stream(self, stream: object) -> Iterator[None]:
        log.append(f"to {stream}")
        yield

    def synchronize(self, device: torch.device) -> None:
        """Nothing is ever behind."""


class ToyTensor(Tensor):
    """A CPU tensor, `held`, that is on the device."""

    held: Tensor

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> ToyTensor:
        made = Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device="toy:0",
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _carried_out(function, *args, **(kwargs or {}))

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.held.untyped_storage()

    def record_stream(self, stream: object) -> None:
        log.append(f"recorded for {stream}")


def _carried_out(function: Any, *args: Any, **kwargs: Any) -> Any:
    """On the CPU; results are on the device that is asked for, or that a tensor is on."""
    wanted = kwargs.get("device")
    given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, ToyTensor)]
    there = bool(given) if wanted is None else wanted.type == "toy"
    kwargs |= {} if wanted is None else {"device": torch.device("cpu")}
    if function is torch.ops.aten.copy_.default and not isinstance(args[1], ToyTensor):
        log.append("copy" if args[2:] == (True,) else "copy and wait")
    held: Any = tree_map_only(ToyTensor, lambda tensor: tensor.held, (args, kwargs))
    result = function(*held[0], **held[1])
    if not there:
        return result
    known = {id(tensor.held): tensor for tensor in given}
    return tree_map_only(
        Tensor, lambda made: known[id(made)] if id(made) in known else ToyTensor(made), result
    )


def install(module: Waits) -> None:
    """Gives this process the device, which can do what the module can."""
    backend_registration._setup_privateuseone_for_python_backend("toy", backend_module=module)
    library = torch.library.Library("_", "IMPL")
    library.fallback(_carried_out, "PrivateUse1")
    _kept.append(library)


_kept: list[object] = []  # a library that is gone does nothing
