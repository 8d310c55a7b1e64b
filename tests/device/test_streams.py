"""The device that a user names -> its stream, or a message that says what to pass instead."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import fastpipe
from fastpipe.device.streams import CudaStream, HostStream, _Event, stream_of
from fastpipe.errors import ConfigError

gpu = pytest.mark.gpu


@pytest.mark.parametrize("device", [None, "cpu", torch.device("cpu"), "cpu:0"])
def test_the_cpu_by_its_names(device: object) -> None:
    stream = stream_of(device)
    assert isinstance(stream, HostStream)
    assert stream.device == torch.device("cpu")
    buffer = stream.buffer((2, 3))
    assert buffer.shape == (2, 3)
    assert buffer.dtype == np.uint8
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


def test_memory_that_cannot_be_pinned_is_said_once_and_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.empty

    def refuse(*shape: object, **options: object) -> torch.Tensor:
        if options.pop("pin_memory", False):
            raise RuntimeError("CUDA error: out of memory\nmore lines")
        return real(*shape, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: object())
    stream = CudaStream(torch.device("cuda", 0))
    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.warns(RuntimeWarning, match=r"cannot pin 150 bytes .*out of memory\); .*pageable.*ulimit -l"):
        assert stream.buffer((2, 5, 5, 3)).shape == (2, 5, 5, 3)
    assert stream.buffer((4,)).shape == (4,)  # warnings are errors: none comes


@gpu
def test_buffers_are_pinned() -> None:
    stream = stream_of("cuda")
    assert torch.from_numpy(stream.buffer((8,))).is_pinned()


def test_waiting_for_an_event_ends_when_it_has_fired_or_time_is_up() -> None:
    answers = iter([False, False, True])
    assert _Event(SimpleNamespace(query=lambda: next(answers))).wait(60)
    asked: list[bool] = []
    never = SimpleNamespace(query=lambda: asked.append(False))
    started = time.monotonic()
    assert not _Event(never).wait(0.2)
    assert time.monotonic() - started >= 0.2
    assert 1 < len(asked) <= 401, "it sleeps between two looks, and leaves the CPU to the engine's threads"
