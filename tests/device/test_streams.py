"""The device that a user names -> its stream, or a message that says what to pass instead."""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import fastpipe
from fastpipe.device.cuda_stream import CudaStream, _Event
from fastpipe.device.streams import HostStream, stream_of
from fastpipe.errors import ConfigError

gpu = pytest.mark.gpu


@pytest.mark.parametrize("device", [None, "cpu", torch.device("cpu"), "cpu:0"])
def test_the_cpu_by_its_names(device: object) -> None:
    stream = stream_of(device)
    assert isinstance(stream, HostStream)
    assert stream.device == torch.device("cpu")
    for buffer in (stream.buffer((2, 3)), stream.slot((2, 3))):
        assert buffer.shape == (2, 3)
        assert buffer.dtype == np.uint8
    assert stream.pinned_bytes == 0
    with stream.work():
        first = stream.mark()
    mark = stream.hand_over(first, (torch.zeros(1),))
    assert mark.wait(0)
    assert mark.done()
    assert mark.since(first) == 0.0


@pytest.mark.parametrize("device", ["gpu", "cuda:x", 3.5, [], ""])
def test_what_is_no_device_is_named(device: object) -> None:
    with pytest.raises(ConfigError, match=r'device: expected "cpu", "cuda".* got ') as caught:
        stream_of(device)
    assert repr(device) in str(caught.value)


@pytest.mark.parametrize("device", ["mps", "xpu", "meta"])
def test_other_devices_are_refused_with_a_way_out(device: str) -> None:
    with pytest.raises(ConfigError, match="move the batches yourself"):
        stream_of(device)


@pytest.mark.parametrize("built", [None, "13.0"])
def test_cuda_that_is_not_there(monkeypatch: pytest.MonkeyPatch, built: str | None) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", built)
    why = "torch was built without CUDA" if built is None else "torch sees no GPU"
    with pytest.raises(ConfigError, match=rf'"?cuda.*cannot be used: .*{why}; pass device="cpu"'):
        stream_of("cuda")


def test_a_gpu_beyond_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigError, match=r"cuda:7.*cuda:0 to cuda:1"):
        stream_of("cuda:7")


def test_the_loader_refuses_a_wrong_device(flat: object) -> None:
    with pytest.raises(ConfigError, match="device: expected"):
        fastpipe.loader(flat, 4, size=16, device="gpu")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environment", "current", "expected"),
    [
        ({}, 0, 0),
        ({}, 3, 3),
        ({"LOCAL_RANK": "2"}, 0, 2),  # torchrun, and nobody has called set_device
        ({"LOCAL_RANK": "2"}, 3, 3),  # somebody has
        ({"LOCAL_RANK": "0"}, 0, 0),
        ({"LOCAL_RANK": "4"}, 0, 0),  # each process is shown GPUs of its own, or shares one
        ({"LOCAL_RANK": ""}, 0, 0),
    ],
)
def test_the_gpu_that_cuda_means(
    monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda, environment: dict[str, str], current: int, expected: int
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    assert stream_of("cuda").device == torch.device("cuda", expected)
    assert stream_of("cuda:1").device == torch.device("cuda", 1)


class FakeCuda:
    """CUDA's runtime, as far as page-locked memory needs it."""

    def __init__(self) -> None:
        self.registered: dict[int, int] = {}
        self.refuses = False
        self.log: list[str] = []

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        if self.refuses:
            return 2
        assert flags == 1
        self.registered[address] = size
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.log.append("unregister")
        del self.registered[address]
        return 0

    def cudaGetErrorString(self, status: int) -> str:  # noqa: N802
        return f"CUDA error {status}\nmore lines"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    real = torch.ones
    monkeypatch.setattr(torch.cuda, "cudart", lambda: fake)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: object())
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch, "ones", lambda *shape, device: real(*shape))
    monkeypatch.setattr(torch.cuda, "Event", lambda: "event")
    event = SimpleNamespace(synchronize=lambda event: fake.log.append(f"finish {event}"))
    monkeypatch.setattr(torch._C, "_CudaEventBase", event)
    return fake


def test_slots_take_what_they_need(cuda: FakeCuda) -> None:
    """torch's own pinned memory comes in powers of two."""
    stream = CudaStream(torch.device("cuda", 0))
    slots = [stream.slot((100, 11, 11, 3)) for _ in range(3)]
    assert [slot.shape for slot in slots] == [(100, 11, 11, 3)] * 3
    assert sorted(cuda.registered.values()) == [36_300] * 3
    assert {slot.ctypes.data for slot in slots} == cuda.registered.keys()
    assert stream.pinned_bytes == 3 * 36_300
    kept = torch.from_numpy(slots.pop())[:1]
    slots.clear()
    assert cuda.log == ["finish event", "unregister"] * 2
    assert (len(kept), stream.pinned_bytes) == (1, 36_300)


def test_memory_that_cannot_be_pinned_is_said_once_and_does_without(cuda: FakeCuda) -> None:
    stream = CudaStream(torch.device("cuda", 0))
    cuda.refuses = True
    with pytest.warns(RuntimeWarning, match=r"cannot pin 150 bytes .*\(CUDA error 2\); .*pageable.*ulimit -l"):
        assert stream.slot((2, 5, 5, 3)).shape == (2, 5, 5, 3)
    assert stream.slot((4,)).shape == stream.buffer((4,)).shape == (4,)  # warnings are errors: none comes
    assert stream.pinned_bytes == 0


def test_small_memory_that_cannot_be_pinned(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*shape: object, **options: object) -> torch.Tensor:
        raise RuntimeError("CUDA error: out of memory\nmore lines")

    stream = CudaStream(torch.device("cuda", 0))
    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.warns(RuntimeWarning, match=r"cannot pin 4 bytes .*out of memory\)"):
        assert stream.buffer((4,)).shape == (4,)


@pytest.mark.parametrize("take", ["slot", "buffer"])
def test_an_error_of_the_program_is_no_lack_of_memory(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, take: str
) -> None:
    """An earlier kernel has failed: every call of CUDA then says so, and it is the program's error that is raised."""
    theirs = RuntimeError("CUDA error: device-side assert triggered")

    def fail(*_: object, **__: object) -> None:
        raise theirs

    stream = CudaStream(torch.device("cuda", 0))
    cuda.refuses = True
    for name, place in (("synchronize", torch.cuda), ("ones", torch), ("empty", torch)):
        monkeypatch.setattr(place, name, fail)
    with pytest.raises(RuntimeError) as caught:
        getattr(stream, take)((4,))
    assert caught.value is theirs
    assert "CUDA_LAUNCH_BLOCKING=1" in theirs.__notes__[0]


def test_small_memory_is_the_hosts_whatever_the_default_device(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.empty(pin_memory=True) of no device in particular raises after torch.set_default_device("cuda")."""
    real = torch.empty
    asked: list[object] = []

    def pinned(*shape: object, pin_memory: bool, **options: object) -> torch.Tensor:
        asked.append(pin_memory)
        return real(*shape, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(torch, "empty", pinned)
    with torch.device("meta"):
        assert CudaStream(torch.device("cuda", 0)).buffer((4,)).shape == (4,)
    assert asked == [True]


@gpu
def test_buffers_are_pinned() -> None:
    stream = stream_of("cuda")
    assert torch.from_numpy(stream.buffer((8,))).is_pinned()
    slot = torch.from_numpy(stream.slot((3, 5000)))
    assert slot.is_pinned()
    slot.fill_(7)
    with stream.work():
        there = stream.copy(slot)
    del slot  # the copy is under way: its memory is kept until it is done
    assert int(there.cpu().min()) == 7


@gpu
def test_pinned_memory_can_be_made_and_dropped_again_and_again() -> None:
    stream = stream_of("cuda")
    for number in range(200):
        slot = torch.from_numpy(stream.slot((1 + number, 3001)))
        assert slot.is_pinned()
    del slot
    assert stream.pinned_bytes == 0


def test_an_error_that_an_event_reports_is_passed_on_as_what_it_is() -> None:
    class AsynchronousError(RuntimeError):
        pass

    theirs = AsynchronousError("CUDA error: an illegal memory access was encountered")

    def fail() -> bool:
        raise theirs

    for ask in (_Event(SimpleNamespace(query=fail)).done, lambda: _Event(SimpleNamespace(query=fail)).wait(1)):
        with pytest.raises(AsynchronousError) as caught:
            ask()
        assert caught.value is theirs
    assert "the loader did not cause this error" in theirs.__notes__[0]


def test_waiting_for_an_event_ends_when_it_has_fired_or_time_is_up() -> None:
    answers = iter([False, False, True])
    assert _Event(SimpleNamespace(query=lambda: next(answers))).wait(60)
    asked: list[bool] = []
    never = SimpleNamespace(query=lambda: asked.append(False))
    started = time.monotonic()
    assert not _Event(never).wait(0.2)
    assert time.monotonic() - started >= 0.2
    assert 1 < len(asked) <= 401, "it sleeps between two looks, and leaves the CPU to the engine's threads"
