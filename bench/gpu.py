"""A packed dataset and a GPU -> how fast batches get there, whether the step hides it, and what it costs in memory.

    .venv/bin/python -m bench.gpu DATA [--batch-size 256] [--threads 1,2,4,8,16] [--seconds 4] [--json FILE]

Four questions, each answered with a line: images/s on the device against the CPU with as many threads; images/s by
threads; how much of the side stream's work runs beside the step's kernels; device memory after 100 and 1,000 batches.
With --device cpu only those that need no GPU are asked. docs/benchmarks.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import fastpipe

Interval = tuple[float, float]


def main(arguments: Sequence[str] | None = None) -> None:
    """Asks all questions and prints the answers."""
    options = _arguments().parse_args(arguments)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("bench: there is no CUDA device; pass --device cpu to measure everything that needs no GPU")
    loads = Loads(options.data, options.batch_size, options.seconds)
    threads = [int(word) for word in options.threads.split(",")]
    answers: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "batch_size": options.batch_size,
        "images_per_s_by_threads": by_threads(loads, device, threads),
    }
    if device.type == "cuda":
        answers["device_against_cpu"] = against_cpu(loads, device, max(threads), options.rounds)
        answers["overlap"] = overlap(loads, device, max(threads))
        answers["memory"] = memory(loads, device, max(threads))
    text = json.dumps(answers, indent=1)
    sys.stdout.write(text + "\n")
    if options.json is not None:
        options.json.write_text(text + "\n")


class Loads:
    """Makes loaders of one dataset and runs them against the clock."""

    def __init__(self, data: Path, batch_size: int, seconds: float) -> None:
        self._data = data
        self._batch_size = batch_size
        self._seconds = seconds

    def loader(self, device: torch.device, threads: int, **options: Any) -> fastpipe.Loader:
        """A training loader."""
        return fastpipe.loader(self._data, self._batch_size, device=device, num_workers=threads, **options)

    def images_per_s(self, device: torch.device, threads: int) -> float:
        """Batches as fast as they come, with nothing done to them, after a second to warm up."""
        with self.loader(device, threads) as loader:
            batches = endless(loader)
            _for_seconds(batches, 1.0, device)
            images, took_s = _for_seconds(batches, self._seconds, device)
        return images / took_s


def endless(loader: fastpipe.Loader) -> Iterator[torch.Tensor]:
    """Images of one epoch after the other."""
    while True:
        for images, _ in loader:
            yield images


def _for_seconds(batches: Iterator[torch.Tensor], seconds: float, device: torch.device) -> tuple[int, float]:
    _finish(device)
    started, images = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        images += len(next(batches))
    _finish(device)
    return images, time.perf_counter() - started


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def by_threads(loads: Loads, device: torch.device, threads: Sequence[int]) -> dict[int, float]:
    """images/s on the device for each number of threads."""
    return {count: round(loads.images_per_s(device, count), 1) for count in threads}


def against_cpu(loads: Loads, device: torch.device, threads: int, rounds: int) -> dict[str, Any]:
    """images/s on the device and on the CPU, in turn; the ratio is the median of the rounds'."""
    there, here = [], []
    for _ in range(rounds):
        there.append(loads.images_per_s(device, threads))
        here.append(loads.images_per_s(torch.device("cpu"), threads))
    ratios = [one / other for one, other in zip(there, here, strict=True)]
    return {"device": there, "cpu": here, "ratio": statistics.median(ratios)}


def overlap(loads: Loads, device: torch.device, threads: int, steps: int = 30) -> dict[str, float]:
    """The share of the side stream's time, copies and augmentation, in which the step's stream is at work too."""
    with loads.loader(device, threads, augment=fastpipe.Augment.simclr(dtype=torch.bfloat16)) as loader:
        batches, step = endless(loader), _step(device)
        for _ in range(10):
            step(next(batches))
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            for _ in range(steps):
                step(next(batches))
            _finish(device)
    return overlap_of(_by_stream(profile))


def _step(device: torch.device) -> Callable[[torch.Tensor], None]:
    """Stands for a training step: a few convolutions and their gradients, in bfloat16."""
    convolutions = [torch.nn.Conv2d(3, 128, 7, 2, 3), *(torch.nn.Conv2d(128, 128, 3, padding=1) for _ in range(6))]
    model = torch.nn.Sequential(*convolutions).to(device, torch.bfloat16, memory_format=torch.channels_last)

    def step(images: torch.Tensor) -> None:
        model(images).square().mean().backward()
        model.zero_grad()

    return step


def _by_stream(profile: torch.profiler.profile) -> dict[int, list[Interval]]:
    """When each stream of the device was at work, in microseconds."""
    streams: dict[int, list[Interval]] = {}
    for event in profile.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            begin = event.start_ns() / 1e3
            streams.setdefault(event.device_resource_id(), []).append((begin, begin + event.duration_ns() / 1e3))
    return streams


def overlap_of(streams: dict[int, list[Interval]]) -> dict[str, float]:
    """What part of all other streams' time lies within that of the busiest one.

    Args:
        streams: when each was at work.

    Returns:
        side_ms: time of the others, together; hidden: the part of it that runs beside the busiest stream, 0 to 1.
    """
    merged = {stream: _merged(intervals) for stream, intervals in streams.items()}
    busiest = max(merged, key=lambda stream: sum(end - begin for begin, end in merged[stream]))
    side = _merged([interval for stream, intervals in merged.items() if stream != busiest for interval in intervals])
    side_us = sum(end - begin for begin, end in side)
    hidden_us = sum(
        max(0.0, min(end, other_end) - max(begin, other_begin))
        for begin, end in side
        for other_begin, other_end in merged[busiest]
    )
    return {"side_ms": side_us / 1e3, "hidden": hidden_us / side_us if side_us else 0.0}


def _merged(intervals: list[Interval]) -> list[Interval]:
    """The same time without overlaps, in order."""
    done: list[Interval] = []
    for begin, end in sorted(intervals):
        if done and begin <= done[-1][1]:
            done[-1] = (done[-1][0], max(end, done[-1][1]))
        else:
            done.append((begin, end))
    return done


def memory(loads: Loads, device: torch.device, threads: int) -> dict[str, int]:
    """Bytes reserved on the device after 100 and after 1,000 batches of a training loop."""
    reserved = {}
    with loads.loader(device, threads, augment=fastpipe.Augment.simclr(dtype=torch.bfloat16)) as loader:
        batches, step = endless(loader), _step(device)
        for number in range(1, 1001):
            step(next(batches))
            if number in (100, 1000):
                reserved[f"after_{number}_batches"] = torch.cuda.memory_reserved(device)
    return reserved


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description="Speed of loading batches to a GPU.")
    parser.add_argument("data", type=Path, metavar="DATA", help="a folder that `fastpipe pack` wrote")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu (cuda)")
    parser.add_argument("--batch-size", type=int, default=256, help="samples in a batch (256)")
    parser.add_argument("--threads", default="1,2,4,8,16", help="numbers of threads, separated by commas (1,2,4,8,16)")
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of each run (4)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of device and CPU (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    return parser


if __name__ == "__main__":
    main()
