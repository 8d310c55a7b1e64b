"""The device that a user names -> its stream, or a message that says what to pass instead."""

from __future__ import annotations

import errno
import gc
import mmap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.checkout import TESTS
from support.devices.fake_cuda import BROKEN, FakeCuda, simulate
from support.programs import warm

import fastpipe
from fastpipe.device.streams import Mark, Stream, stream_of
from fastpipe.errors import ConfigError

gpu = pytest.mark.gpu


def test_the_cpu_by_its_names() -> None:
    for device in (None, torch.device("cpu"), "cpu:0", "cpu"):
        stream = stream_of(device)
        assert type(stream) is Stream
        assert stream.device == torch.device("cpu")
    slot = stream.slot((2, 3))
    assert (slot.shape, slot.dtype) == ((2, 3), np.uint8)
    assert stream.pinned_bytes == 0
    with stream.work():
        first = stream.mark()
    mark = stream.hand_over(first, (torch.zeros(1),))
    assert mark.wait(0)
    assert mark.done()
    assert mark.since(first) == 0.0


def test_what_is_no_device_is_named() -> None:
    for device in ("gpu", "cuda:x", 3.5, [], ""):
        with pytest.raises(ConfigError, match=r'device: expected "cpu", "cuda".* got ') as caught:
            stream_of(device)
        assert repr(device) in str(caught.value)
    for device in ("meta", "xla"):
        with pytest.raises(
            ConfigError, match=f"{device}.*there is no torch.{device}; .*move the batches yourself"
        ):
            stream_of(device)


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
@pytest.mark.parametrize("built", [False, True])
def test_a_device_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, kind: str, built: bool
) -> None:
    monkeypatch.setattr(torch.get_device_module(kind), "is_available", lambda: False)
    monkeypatch.setattr(torch.get_device_module(kind), "_is_compiled", lambda: built, raising=False)
    why = "torch sees none" if built else f"this torch was built without {kind.upper()}"
    with pytest.raises(
        ConfigError, match=rf'device: got .{kind}:0., .*cannot be used: {why}; pass device="cpu"'
    ):
        stream_of(f"{kind}:0")


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
    monkeypatch: pytest.MonkeyPatch,
    cuda: FakeCuda,
    environment: dict[str, str],
    current: int,
    expected: int,
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    assert stream_of("cuda").device == torch.device("cuda", expected)
    assert stream_of("cuda:1").device == torch.device("cuda", 1)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return simulate(monkeypatch)


def test_slots_take_what_they_need(cuda: FakeCuda) -> None:
    """torch's own pinned memory comes in powers of two."""
    stream = stream_of("cuda:0")
    slots = [stream.slot((100, 11, 11, 3)) for _ in range(3)]
    assert [slot.shape for slot in slots] == [(100, 11, 11, 3)] * 3
    assert sorted(cuda.registered.values()) == [36_300] * 3
    assert {slot.ctypes.data for slot in slots} == cuda.registered.keys()
    assert stream.pinned_bytes == 3 * 36_300
    kept = torch.from_numpy(slots.pop())[:1]
    cuda.touched.clear()
    slots.clear()
    assert [call for call, _ in cuda.touched] == ["synchronize", "unregister"] * 2
    assert (len(kept), stream.pinned_bytes) == (1, 36_300)


def test_memory_that_cannot_be_pinned_is_said_once_and_does_without(cuda: FakeCuda) -> None:
    stream = stream_of("cuda:0")
    cuda.refuses = cuda.refuses_to_allocate = 1
    with pytest.warns(
        RuntimeWarning, match=r"cannot pin 150 bytes .*out of memory\); .*pageable.*ulimit -l"
    ):
        assert stream.slot((2, 5, 5, 3)).shape == (2, 5, 5, 3)
    for size in (4, 150, 1000):
        assert stream.slot((size,)).shape == (size,)  # warnings are errors: none comes
    assert stream.pinned_bytes == 0


def test_each_way_to_pin_memory_is_tried_on_its_own(cuda: FakeCuda) -> None:
    """One refused registration neither turns cudaHostAlloc off, nor itself where less is asked for."""
    stream = stream_of("cuda:0")
    cuda.refuses = 1000
    assert stream.slot((2000,)).shape == (2000,)
    assert (cuda.allocated, cuda.registered) == ([2000], {})
    kept = stream.slot((10,))
    assert list(cuda.registered.values()) == [10]
    tried = len(cuda.touched)
    assert stream.slot((3000,)).shape == (3000,)
    assert cuda.allocated == [2000, 3000]
    assert len(cuda.touched) == tried, "no second registration of as much"
    del kept


def test_memory_that_cannot_be_mapped(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    stream = stream_of("cuda:0")
    assert stream.slot((40,)).shape == (40,)
    assert cuda.allocated == [40]


def test_pinned_memory_is_the_hosts_whatever_the_default_device(cuda: FakeCuda) -> None:
    """torch.empty(pin_memory=True) of no device in particular raises after torch.set_default_device("cuda")."""
    cuda.refuses = 1
    with torch.device("meta"):
        assert stream_of("cuda:0").slot((4,)).shape == (4,)
    assert cuda.allocated == [4]


def test_an_error_of_the_program_is_no_lack_of_memory(cuda: FakeCuda) -> None:
    """An earlier kernel has failed: every call of CUDA then says so, and it is the program's error that is raised."""
    stream = stream_of("cuda:0")
    cuda.refuses, cuda.broken = 1, True
    with pytest.raises(RuntimeError, match=BROKEN) as caught:
        stream.slot((4,))
    (note,) = caught.value.__notes__
    assert "CUDA_LAUNCH_BLOCKING=1" in note
    assert "augment=" in note, "the loader queues these kernels"


def test_only_the_streams_own_gpu_is_set_up(cuda: FakeCuda, textured: Path) -> None:
    """Half a GB of GPU 0 for each rank of a machine is taken by a call that finds it current."""
    with fastpipe.loader(
        textured, 4, size=16, device="cuda:1", augment=fastpipe.Augment.imagenet()
    ) as loader:
        for epoch in range(2):
            assert len(list(loader)) == 5, epoch
    del loader
    gc.collect()
    assert cuda.registered == {}
    calls = {call for call, _ in cuda.touched}
    assert calls == {"register", "query", "leave", "synchronize", "unregister"}
    assert {gpu for _, gpu in cuda.touched} == {1}
    assert cuda.current == 0, "the program's"


# The loop keeps a batch, whose copy has been made; its slot and the small arrays go when the loader is closed.
BREAKS = """
    import sys
    import pytest
    sys.path.append(sys.argv[2])
    from support.devices.fake_cuda import BROKEN, simulate
    import fastpipe

    cuda = simulate(pytest.MonkeyPatch())
    with fastpipe.loader(sys.argv[1], 4, size=16, device="cuda", augment=fastpipe.Augment.imagenet()) as loader:
        for images, labels in loader:
            if sys.argv[3] == "the loop's next call":
                cuda.broken = True
                raise RuntimeError(BROKEN)
            cuda.breaks = True
"""


@pytest.mark.parametrize("preview_samples", ["the loop's next call", "the one after that"])
def test_after_an_error_that_stays_the_traceback_is_printed(
    textured: Path, preview_samples: str
) -> None:
    """Where a kernel has failed, torch ends the process when it is given back pinned memory of its own."""
    run = warm.run_script(BREAKS, textured, TESTS, preview_samples)
    assert run.returncode == 1, run.stderr
    assert run.stderr.count("Traceback (most recent call last):") == 1
    assert f"RuntimeError: {BROKEN}" in run.stderr
    assert ("CUDA_LAUNCH_BLOCKING=1" in run.stderr) == (preview_samples != "the loop's next call")
    assert "Exception ignored" not in run.stderr


@gpu
def test_buffers_are_pinned() -> None:
    stream = stream_of("cuda")
    slot = torch.from_numpy(stream.slot((3, 5000)))
    assert slot.is_pinned()
    slot.fill_(7)
    with stream.work():
        there = stream.copy(slot)
    del slot  # the copy is under way: its memory is kept until it is done
    assert int(there.cpu().min()) == 7


def _mark(query: Callable[[], object]) -> Mark:
    return Mark(SimpleNamespace(query=query))


def test_an_error_that_an_event_reports_is_passed_on_as_what_it_is(cuda: FakeCuda) -> None:
    class AsynchronousError(RuntimeError):
        pass

    theirs = AsynchronousError("CUDA error: an illegal memory access was encountered")

    def fail() -> bool:
        raise theirs

    for ask in (_mark(fail).done, lambda: _mark(fail).wait(1)):
        with pytest.raises(AsynchronousError) as caught:
            ask()
        assert caught.value is theirs
    assert "CUDA_LAUNCH_BLOCKING=1" in theirs.__notes__[0]


def test_waiting_for_an_event_ends_when_it_has_fired_or_time_is_up(cuda: FakeCuda) -> None:
    answers = iter([False, False, True])
    assert _mark(lambda: next(answers)).wait(60)
    asked: list[bool] = []
    never = _mark(lambda: asked.append(False))
    started = time.monotonic()
    assert not never.wait(0.2)
    assert time.monotonic() - started >= 0.2
    assert 1 < len(asked) <= 401, (
        "it sleeps between two looks, and leaves the CPU to the engine's threads"
    )
