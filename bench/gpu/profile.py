"""A training loop on a GPU -> how much of the loader's work on it runs beside the step, its launches, its memory."""

from __future__ import annotations

from typing import Any

import torch

from bench.gpu.loads import Loads, endless, finish
from bench.gpu.training import augments, step_of

Interval = tuple[float, float]


def overlap(
    loads: Loads, device: torch.device, threads: int, *, model: str, size: int, steps: int = 20
) -> dict[str, Any]:
    """For each augmentation: the share of the side stream's time in which the step's stream is at work too."""
    found = {}
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    for name, augment in augments(size).items():
        with loads.loader(device, threads, augment=augment) as loader:
            step, batches = step_of(model, len(loader.classes), device), endless(loader)
            for _ in range(10):
                step(*next(batches))
            finish(device)
            with torch.profiler.profile(activities=activities) as profile:
                for _ in range(steps):
                    step(*next(batches))
                finish(device)
        found[name] = overlap_of(_by_stream(profile), steps)
    return found


def _by_stream(profile: torch.profiler.profile) -> dict[int, list[Interval]]:
    """When each stream of the device was at work, in microseconds; what a program marks by name is no work."""
    streams: dict[int, list[Interval]] = {}
    for event in profile.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.device_type() == torch.autograd.DeviceType.CUDA and not event.is_user_annotation():
            begin = event.start_ns() / 1e3
            streams.setdefault(event.device_resource_id(), []).append(
                (begin, begin + event.duration_ns() / 1e3)
            )
    return streams


def overlap_of(streams: dict[int, list[Interval]], steps: int) -> dict[str, float]:
    """What part of all other streams' time lies within that of the busiest one.

    Args:
        streams: when each was at work.
        steps: that were made.

    Returns:
        launches: kernels and copies of the other streams, a step; side_ms: their time, a step; hidden: the part of it
        that runs beside the busiest stream, 0 to 1.
    """
    merged = {stream: _merged(intervals) for stream, intervals in streams.items()}
    busiest = max(merged, key=lambda stream: sum(end - begin for begin, end in merged[stream]))
    others = [
        interval
        for stream, intervals in streams.items()
        if stream != busiest
        for interval in intervals
    ]
    side = _merged(others)
    side_us = sum(end - begin for begin, end in side)
    hidden_us = sum(
        max(0.0, min(end, other_end) - max(begin, other_begin))
        for begin, end in side
        for other_begin, other_end in merged[busiest]
    )
    return {
        "launches": len(others) / steps,
        "side_ms": side_us / 1e3 / steps,
        "hidden": hidden_us / side_us if side_us else 0.0,
    }


def _merged(intervals: list[Interval]) -> list[Interval]:
    """The same time without overlaps, in order."""
    done: list[Interval] = []
    for begin, end in sorted(intervals):
        if done and begin <= done[-1][1]:
            done[-1] = (done[-1][0], max(end, done[-1][1]))
        else:
            done.append((begin, end))
    return done


def memory(
    loads: Loads, device: torch.device, threads: int, *, model: str, size: int
) -> dict[str, int]:
    """Bytes reserved on the device after 100 and after 1,000 batches of a training loop, and page-locked bytes."""
    found = {}
    with loads.loader(device, threads, augment=augments(size)["randaugment"]) as loader:
        step, batches = step_of(model, len(loader.classes), device), endless(loader)
        for number in range(1, 1001):
            step(*next(batches))
            if number in (100, 1000):
                found[f"after_{number}_batches"] = torch.cuda.memory_reserved(device)
        found["pinned_bytes"] = loader.stats().pinned_bytes
    return found
