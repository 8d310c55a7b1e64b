"""A network -> its training step, plain, compiled or as a CUDA graph; its time with a loader and without one."""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kornia.augmentation
import torch
from torch import Tensor
from torch.nn import functional

from bench.gpu.loads import Loads, endless, finish
from fastpipe import Augment

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from resnet import ResNet

Step = Callable[[Tensor, Tensor], Tensor]
MODES = ("eager", "compile", "graph")
_READY = 8  # steps, whose batches may be ready when a loader has rested; they are not measured


def augments(size: int) -> dict[str, Augment]:
    """What the batches go through: only normalising, four modules of kornia's, a policy."""
    k: Any = kornia.augmentation
    taps = size // 10 // 2 * 2 + 1
    modules = [
        k.RandomHorizontalFlip(p=0.5),
        k.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        k.RandomGrayscale(p=0.2),
        k.RandomGaussianBlur((taps, taps), (0.1, 2.0), p=0.5),
    ]
    return {
        "imagenet": Augment.imagenet(dtype=torch.bfloat16),
        "kornia": Augment(modules, dtype=torch.bfloat16),
        "randaugment": Augment.randaugment(dtype=torch.bfloat16),
    }


def step_of(name: str, classes: int, device: torch.device, mode: str = "eager") -> Step:
    """A training step in bfloat16, channels_last; returns the loss, on the device.

    Args:
        name: of a ResNet in examples/resnet.py.
        classes: how many.
        device: of the network.
        mode: of MODES; "graph" needs a GPU.
    """
    torch.manual_seed(0)
    model: Any = ResNet(name, classes).to(device, memory_format=torch.channels_last)
    if mode == "compile":
        model = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        # A graph may not keep autocast's copies of the weights beyond a step.
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step if mode != "graph" else _Captured(step)


class _Captured:
    """A step that is captured at its second call, and replayed from then on."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor, Tensor] | None = None
        self._loss = torch.empty(())

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        if self._inputs is None:
            self._inputs = images.clone(), labels.clone()
            side = torch.cuda.Stream(
                images.device
            )  # what is made once must not be made in the graph
            side.wait_stream(torch.cuda.current_stream(images.device))
            with torch.cuda.stream(side):
                loss = self._step(*self._inputs)
            torch.cuda.current_stream(images.device).wait_stream(side)
            return loss
        for mine, given in zip(self._inputs, (images, labels), strict=True):
            mine.copy_(given)
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(
                self._graph
            ):  # in mode "global": no thread may query an event meanwhile
                self._loss = self._step(*self._inputs)
        self._graph.replay()
        return self._loss


def ms_a_step(
    step: Step, batches: Iterator[tuple[Tensor, Tensor]], steps: int, device: torch.device
) -> float:
    """Milliseconds a step on the device, after the first ones: a loader that rests has their batches ready."""
    finish(device)
    for _ in range(_READY):
        step(*next(batches))
    first = _Moment(device)
    for _ in range(steps):
        step(*next(batches))
    last = _Moment(device)
    finish(device)
    return last.ms_since(first) / steps


class _Moment:
    """When the device has done what was queued before."""

    def __init__(self, device: torch.device) -> None:
        self._event = None
        self._at = time.perf_counter()
        if device.type == "cuda":
            self._event = torch.cuda.current_stream(device).record_event(
                torch.cuda.Event(enable_timing=True)
            )

    def ms_since(self, earlier: _Moment) -> float:
        if self._event is None or earlier._event is None:
            return 1e3 * (self._at - earlier._at)
        return float(earlier._event.elapsed_time(self._event))


def against_resident(
    loads: Loads,
    device: torch.device,
    threads: int,
    *,
    model: str,
    mode: str,
    steps: int,
    rounds: int,
    size: int,
) -> dict[str, Any]:
    """The step with the loader and with one batch that stays on the device, in turn; the rounds' median ratio."""
    found = {}
    for name, augment in augments(size).items():
        with loads.loader(device, threads, augment=augment) as loader:
            step, batches = step_of(model, len(loader.classes), device, mode), endless(loader)
            resident = itertools.repeat(next(batches))
            for _ in range(_READY):
                step(*next(batches))
            with_loader, without = [], []
            before = loader.stats()
            for _ in range(rounds):
                without.append(ms_a_step(step, resident, steps, device))
                with_loader.append(ms_a_step(step, batches, steps, device))
            done = loader.stats().since(before)
        ratios = [one / other for one, other in zip(with_loader, without, strict=True)]
        found[name] = {
            "loader_ms": with_loader,
            "resident_ms": without,
            "ratio": statistics.median(ratios),
            "waited_for_data_ms": 1e3 * done.wait_s / done.batches,
            "host_ms": 1e3 * (done.plan_s + done.transfer_s + done.augment_s) / done.batches,
            "side_stream_ms": 1e3 * done.device_s / done.batches,
        }
    return found
