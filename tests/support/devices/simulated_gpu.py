"""Tensors that claim to be on a GPU and are on the CPU -> what would wait for a GPU, mix devices, or miss a wait there.

Inside `simulated()`, "cuda:0" and "cuda:1" exist. Work is done at once, in the order in which it is queued, so values
are right whatever is forgotten. What is forgotten is noted:

    waits: calls in which the host would wait for the device
    copies: bytes of each copy from the host
    races: work that uses memory which another stream writes or reads, without having waited for that stream
    freed: memory that goes back to its stream while another one may still use it (record_stream)

A tensor of another device in a call raises RuntimeError, as on a GPU; a CPU tensor without dimensions may be there.

Source for copies: CUDA's "API synchronization behavior". A copy of more than 64 KB from pageable memory goes piece by
piece through a buffer of the driver, behind what is queued; a smaller one is taken at once.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from support.devices.simulated_parts import Clock, DeviceTensor, Event, Memory, Stream, learn
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

TAKEN_AT_ONCE_BYTES = 2**16
WAITING = {
    "_linalg_check_errors",
    "_local_scalar_dense",
    "_unique",
    "_unique2",
    "allclose",
    "bincount",
    "equal",
    "is_nonzero",
    "item",
    "linalg_eig",
    "masked_select",
    "nonzero",
    "unique_consecutive",
    "unique_dim",
    "unique_dim_consecutive",
}


class Generator(torch.Generator):
    """A generator of any device; it draws on the CPU."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        return super().__new__(cls, "cpu")

    def __init__(self, device: Any = "cpu") -> None:
        """The device was for __new__."""


class Gpu(TorchDispatchMode):
    """Two GPUs, and what was noted on them."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self.copies: list[int] = []
        self.races: list[str] = []
        self.freed: list[str] = []
        self.known: Clock = {}  # to the host
        self.index = 0
        self.generators = (Generator(), Generator())
        self._pinned: dict[int, int] = {}  # pieces of memory: address, bytes
        self._kept: list[Tensor] = []
        self.streams: list[Stream] = []
        self.defaults = [self.stream(torch.device("cuda", index)) for index in (0, 1)]
        self._current = list(self.defaults)

    def stream(self, device: Any = None, **options: Any) -> Stream:
        """A new stream."""
        self.streams.append(
            Stream(self, torch.device("cuda", self.number_of(device)), len(self.streams) + 1)
        )
        return self.streams[-1]

    def number_of(self, device: Any) -> int:
        """The GPU that torch means by a device."""
        if device is None:
            return self.index
        index = device if isinstance(device, int) else torch.device(device).index
        return self.index if index is None else index

    def current(self, device: Any = None) -> Stream:
        """The stream that work on the device goes to."""
        return self._current[self.number_of(device)]

    @contextmanager
    def on(self, stream: Stream | None) -> Iterator[None]:
        """torch.cuda.stream: it also makes the stream's device the current one."""
        if stream is None:
            yield
            return
        number, index = self.number_of(stream.device), self.index
        before, self._current[number], self.index = self._current[number], stream, number
        try:
            yield
        finally:
            self._current[number], self.index = before, index

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        """torch.cuda.device."""
        index, self.index = self.index, self.number_of(device)
        try:
            yield
        finally:
            self.index = index

    def exchange(self, index: int) -> int:
        """Sets the current GPU; returns the one before."""
        before, self.index = self.index, self.index if index < 0 else index
        return before

    def sleep(self, cycles: int) -> None:
        """torch.cuda._sleep: events after it are done when they have been asked some times."""
        self.current().asleep = 4

    def synchronize(self, device: Any = None) -> None:
        """torch.cuda.synchronize."""
        for stream in self.streams:
            if self.number_of(stream.device) == self.number_of(device):
                self.wait("synchronize", stream.clock)

    def register(self, address: int, size_bytes: int, flags: int) -> int:
        """cudaHostRegister."""
        self._pinned[address] = size_bytes
        return 0

    def unregister(self, address: int) -> int:
        """cudaHostUnregister."""
        del self._pinned[address]
        return 0

    def is_pinned(self, tensor: Tensor) -> bool:
        """Whether a CPU tensor is in page-locked memory."""
        address = tensor.data_ptr()
        return any(
            begin <= address < begin + size_bytes for begin, size_bytes in self._pinned.items()
        )

    def wait(self, what: str, clock: Clock) -> None:
        """Notes that the host waits for all that a clock knows."""
        learn(self.known, clock)
        self.waits.append(f"{what} in {_place()}")

    def knows(self, stream: Stream, other: int, work: int) -> bool:
        """Whether some work of another stream is done before what comes next on this one."""
        return max(stream.clock.get(other, 0), self.known.get(other, 0)) >= work

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        there = [tensor for tensor in tensors if isinstance(tensor, DeviceTensor)]
        wanted = kwargs.get("device")
        name = function._schema.name.partition("::")[2]
        if name == "is_pinned":
            return self.is_pinned(args[0])
        if not there and (wanted is None or wanted.type != "cuda"):
            return self._on_the_host(function, args, kwargs)
        device = there[0].device if wanted is None else wanted
        if device.type == "cuda":
            if kwargs.get("pin_memory"):
                raise RuntimeError("Only dense CPU tensors can be pinned")
            device = torch.device("cuda", self.number_of(device))
            kwargs |= {} if wanted is None else {"device": torch.device("cpu")}
        self._check_devices(name, tensors, device)
        stream = self.current(device if device.type == "cuda" else there[0].device)
        if self._waits(name, function, args, kwargs, tensors, device):
            self.wait(f"{name}.{function._schema.overload_name}".removesuffix("."), stream.clock)
        result = function(
            *tree_map_only(DeviceTensor, lambda tensor: tensor.held, args), **_held(kwargs)
        )
        if device.type != "cuda":
            self._launch(name, stream, there, [])
            return result
        return self._wrapped(
            function,
            name,
            stream,
            device,
            there,
            self._written(function, args, kwargs),
            result,
            args[1:],
        )

    def _on_the_host(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        pins = kwargs.pop("pin_memory", False)
        result = function(*args, **kwargs)
        if pins:
            self._pinned[result.data_ptr()] = result.nbytes
            self._kept.append(result)  # else pageable memory would get its address
        return result

    def _written(self, function: Any, args: Any, kwargs: Any) -> list[DeviceTensor]:
        """What a function changes of what it is given."""
        given = {
            **dict(zip((each.name for each in function._schema.arguments), args, strict=False)),
            **kwargs,
        }
        changed = {
            each.name
            for each in function._schema.arguments
            if each.alias_info and each.alias_info.is_write
        }
        leaves = tree_leaves([value for name, value in given.items() if name in changed])
        return [leaf for leaf in leaves if isinstance(leaf, DeviceTensor)]

    def _wrapped(
        self,
        function: Any,
        name: str,
        stream: Stream,
        device: torch.device,
        there: Sequence[DeviceTensor],
        written: Sequence[DeviceTensor],
        result: Any,
        rest: Any,
    ) -> Any:
        """What a function made, on the device; a function that makes no view is work of the stream."""
        known = {id(tensor.held): tensor for tensor in there}
        memories = {tensor.untyped_storage().data_ptr(): tensor.memory for tensor in there}

        def wrap(tensor: Tensor) -> DeviceTensor:
            if id(tensor) in known:
                if known[id(tensor)].shape != tensor.shape:
                    with (
                        no_dispatch()
                    ):  # unsqueeze_ and the like: what the tensor says of itself changes, too
                        function(known[id(tensor)], *rest)
                return known[id(tensor)]
            memory = memories.get(tensor.untyped_storage().data_ptr()) if tensor.numel() else None
            return DeviceTensor(tensor, device, memory or Memory(stream))

        made = tree_map_only(Tensor, wrap, result)
        is_view = not written and any(each.alias_info for each in function._schema.returns)
        if not is_view and not name.startswith(("empty", "new_empty")):
            outputs = [leaf for leaf in tree_leaves(made) if isinstance(leaf, DeviceTensor)]
            self._launch(name, stream, there, [*written, *outputs])
        return made

    def _launch(
        self,
        name: str,
        stream: Stream,
        read: Sequence[DeviceTensor],
        written: Sequence[DeviceTensor],
    ) -> None:
        """Work of a stream. See Note [who waits for whom] in simulated_parts.py."""
        learn(stream.clock, self.known)
        work = stream.clock[stream.number] = stream.clock.get(stream.number, 0) + 1
        uses = {
            tensor.memory: False for tensor in read if tensor.numel()
        }  # and whether it is written
        uses |= {tensor.memory: True for tensor in written if tensor.numel()}
        for memory, writes in uses.items():
            for other, number in (memory.wrote, *(memory.reads.items() if writes else ())):
                if other != stream.number and not self.knows(stream, other, number):
                    self.races.append(
                        f"{name} on stream {stream.number} beside stream {other} in {_place()}"
                    )
            if writes:
                memory.wrote, memory.reads = (stream.number, work), {}
            else:
                memory.reads[stream.number] = work

    def _check_devices(self, name: str, tensors: Sequence[Tensor], device: torch.device) -> None:
        if name in ("_to_copy", "copy_", "index", "index_put", "index_put_", "_index_put_impl_"):
            return
        for tensor in tensors:
            alone = tensor.device.type == "cpu" and tensor.ndim == 0
            if tensor.device != device and not alone and device.type == "cuda":
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but found at least two devices, {device} and "
                    f"{tensor.device}! (in {name})"
                )

    def _waits(
        self,
        name: str,
        function: Any,
        args: Any,
        kwargs: Any,
        tensors: Sequence[Tensor],
        device: torch.device,
    ) -> bool:
        """Whether the host waits in a function that uses the device."""
        if name in ("_to_copy", "copy_"):
            target = args[0].device if name == "copy_" else device
            source = args[1] if name == "copy_" else args[0]
            at_once = kwargs.get("non_blocking", False) or (
                name == "copy_" and len(args) > 2 and args[2]
            )
            if source.device.type == target.type or not source.numel():
                return False
            self.copies += [source.nbytes] if target.type == "cuda" else []
            if target.type == "cpu":  # `to` makes pinned memory for it
                return not at_once or (name == "copy_" and not self.is_pinned(args[0]))
            pinned = self.is_pinned(source) and kwargs.get("dtype") in (
                None,
                source.dtype,
            )  # else torch makes another
            return not at_once or (source.nbytes > TAKEN_AT_ONCE_BYTES and not pinned)
        if name.removeprefix("_").startswith(("index_put", "index")) and isinstance(
            args[1], (list, tuple)
        ):
            indices = [index for index in args[1] if index is not None]
            if name != "index" and not any(args[3:4]):  # torch makes it masked_fill
                value = args[2]
                if (
                    value.device.type == "cpu"
                    and value.numel() == 1
                    and all(_is_mask(index) for index in indices)
                ):
                    return any(index.device != device for index in indices)
            return any(_is_mask(index) or index.device != device for index in indices)
        if name == "repeat_interleave":
            return function._schema.overload_name == "Tensor" and kwargs.get("output_size") is None
        return name in WAITING or kwargs.get("check_errors", False)


def _is_mask(index: Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def _held(kwargs: dict[str, Any]) -> dict[str, Any]:
    kwargs = {
        name: value for name, value in kwargs.items() if name not in ("pin_memory", "non_blocking")
    }
    held: dict[str, Any] = tree_map_only(DeviceTensor, lambda tensor: tensor.held, kwargs)
    return held


def _place() -> str:
    """The line of the program that called torch."""
    frame = sys._getframe(1)
    while frame.f_back and (
        "/simulated_" in frame.f_code.co_filename or "/torch/" in frame.f_code.co_filename
    ):
        frame = frame.f_back
    return f"{'/'.join(frame.f_code.co_filename.split('/')[-3:])}:{frame.f_lineno}"


@contextmanager
def _without_guards() -> Iterator[None]:
    """Lets torch's C++ enter and leave a GPU as it does the meta device, for which there is nothing to do."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * 20).in_dll(
        library, "_ZN3c104impl26device_guard_impl_registryE"
    )  # by c10::DeviceType
    cuda, meta = (int(getattr(torch._C._autograd.DeviceType, name)) for name in ("CUDA", "Meta"))
    before, guards[cuda] = guards[cuda], guards[meta]
    try:
        yield
    finally:
        guards[cuda] = before


def _forget() -> None:
    """Takes tensors of a GPU out of the dictionaries in which kornia keeps some for each device."""
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("kornia")]
    found = {
        id(value): value
        for names in modules
        for name, value in names.items()
        if name != "__builtins__"
    }
    for kept in [value for value in found.values() if type(value) is dict]:
        for key in list(kept):
            if any(isinstance(leaf, Tensor) and leaf.is_cuda for leaf in tree_leaves(kept[key])):
                del kept[key]


@contextmanager
def simulated() -> Iterator[Gpu]:
    """Makes torch see two GPUs, "cuda:0" and "cuda:1", in this thread; give the number, since torch asks for it."""
    gpu = Gpu()
    runtime = SimpleNamespace(
        cudaHostRegister=gpu.register,
        cudaHostUnregister=gpu.unregister,
        cudaGetErrorString=lambda status: "an error",
    )
    names = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: gpu.index,
        "device": gpu.device,
        "Stream": gpu.stream,
        "Event": lambda **options: Event(gpu, **options),
        "stream": gpu.on,
        "current_stream": gpu.current,
        "default_stream": lambda device=None: gpu.defaults[gpu.number_of(device)],
        "synchronize": gpu.synchronize,
        "cudart": lambda: runtime,
        "default_generators": gpu.generators,
        "_sleep": gpu.sleep,
        "_exchange_device": gpu.exchange,
        "_maybe_exchange_device": gpu.exchange,
    }
    if not torch.cuda.is_available():
        names["_lazy_init"] = lambda: None
    with ExitStack() as stack:
        _forget()
        stack.callback(_forget)
        stack.enter_context(_without_guards())
        for name, value in names.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value, create=True))
        stack.enter_context(mock.patch.object(torch._C, "_CudaEventBase", Event))
        stack.enter_context(mock.patch.object(torch, "Generator", Generator))
        for ask, change in (
            (
                torch._C._only_lift_cpu_tensors,
                torch._C._set_only_lift_cpu_tensors,
            ),  # torch.tensor(..., device=)
            (
                torch.__future__.get_overwrite_module_params_on_conversion,  # Module.to makes new parameters
                torch.__future__.set_overwrite_module_params_on_conversion,
            ),
        ):
            stack.callback(change, ask())
            change(True)
        stack.enter_context(
            torch.backends.cudnn.flags(enabled=False)
        )  # torch's build with CUDA would call its kernels
        stack.enter_context(gpu)
        yield gpu
