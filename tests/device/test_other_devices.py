"""Devices of other kinds than CUDA: what torch's module of a device can do decides which way its batches go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from fastpipe.device import streams
from fastpipe.device.streams import SideStream, Stream, stream_of
from fastpipe.errors import ConfigError


class Event:
    """As torch's."""

    def __init__(self, enable_timing: bool = False) -> None:
        assert not enable_timing

    def record(self) -> None:
        """In the one queue."""

    def query(self) -> bool:
        return True


def test_mps_has_one_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies wait where there is no event, else none does."""
    copies: list[tuple[torch.device, bool]] = []
    monkeypatch.setattr(
        torch.Tensor, "to", lambda self, device, non_blocking: copies.append((device, non_blocking))
    )
    monkeypatch.setattr(torch.mps, "device_count", lambda: 1)
    for event in (Event, None):
        monkeypatch.setattr(torch.mps, "Event", event)
        stream = stream_of("mps")
        assert type(stream) is Stream
        assert (stream.device, stream.copies, stream.lookahead) == (torch.device("mps", 0), True, 0)
        first, last = stream.mark(), stream.hand_over(stream.mark(), ())
        assert last.done()
        assert last.since(first) == 0.0
        stream.copy(torch.zeros(1))
    assert copies == [(torch.device("mps", 0), True), (torch.device("mps", 0), False)]
    with pytest.raises(ConfigError, match="got 'mps:1', but torch sees 1, mps:0 to mps:0"):
        stream_of("mps:1")


class Queue:
    """A stream of a device, which notes what it is asked."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def wait_event(self, event: object) -> None:
        self.log.append(f"{self.name} waits")


def test_a_device_with_streams_is_asked_for_nothing_of_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copies on the side stream, each with an event behind it; and the program's stream waits for what it is given."""
    log: list[str] = []
    side, program = Queue("side", log), Queue("program", log)

    class Timed:
        def __init__(self, enable_timing: bool = False) -> None:
            self.timed = enable_timing

        def record(self, stream: Queue) -> None:
            log.append(f"record in {stream.name}")

        def query(self) -> bool:
            return True

        def elapsed_time(self, later: Timed) -> float:
            assert self.timed
            assert later.timed
            return 1.0

    @contextmanager
    def entered(stream: Queue) -> Iterator[None]:
        log.append(f"to {stream.name}")
        yield

    cpu = torch.device("cpu")  # in the place of the device
    backend = SimpleNamespace(
        Stream=lambda device: side,
        Event=Timed,
        device=lambda device: nullcontext(),
        stream=entered,
        current_stream=lambda device=None: program,
        synchronize=lambda device: None,
    )
    monkeypatch.setattr(
        torch.Tensor,
        "record_stream",
        lambda tensor, stream: log.append(f"recorded for {stream.name}"),
    )
    stream = SideStream(cpu, backend)
    images = torch.arange(3.0)
    with stream.work():
        first = stream.mark()
        assert torch.equal(stream.copy(images), images)
        last = stream.mark()
    handed = stream.hand_over(last, (images, images))
    assert handed.done()
    assert last.since(first) == 0.001
    assert log == [
        "to side",
        *["record in side"] * 3,
        "record in program",
        "program waits",
        *["recorded for program"] * 2,
    ]
    monkeypatch.setattr(streams, "_allocate", refuse)
    with pytest.warns(RuntimeWarning, match="cannot pin 6 bytes"):
        assert SideStream(cpu, backend).slot((2, 3)).shape == (2, 3)


def refuse(size_bytes: int) -> None:
    raise RuntimeError("it cannot pin memory")


@pytest.mark.parametrize(("local_rank", "number"), [("1", 1), ("2", 0)])
def test_xpu_has_streams_and_a_device_for_each_rank(
    monkeypatch: pytest.MonkeyPatch, local_rank: str, number: int
) -> None:
    """None of torch.xpu but what it says of its devices, and makes on them, is replaced."""
    made: list[torch.device] = []
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    monkeypatch.setattr(torch.xpu, "device_count", lambda: 2)
    monkeypatch.setattr(torch.xpu, "current_device", lambda: 0)
    monkeypatch.setattr(torch.xpu, "Stream", made.append)
    monkeypatch.setattr(torch.xpu, "Event", SimpleNamespace)
    stream = stream_of("xpu")
    assert type(stream) is SideStream
    assert [stream.device] == made == [torch.device("xpu", number)]
    assert (stream.copies, stream.lookahead, stream.pinned_bytes) == (True, 1, 0)
