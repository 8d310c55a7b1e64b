"""Loaders' figures -> Prometheus's metrics. Needs prometheus_client (`fastpipe-loader[prometheus]`).

    from fastpipe.prometheus import LoaderCollector

    prometheus_client.REGISTRY.register(LoaderCollector({"train": train, "val": val}))
    prometheus_client.start_http_server(9400)

Names and units follow Prometheus's guide (prometheus.io/docs/practices/naming).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fastpipe.distribution import install_extra
from fastpipe.errors import ConfigError
from fastpipe.loading.loader import Loader

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise ImportError(
        f"fastpipe.prometheus needs prometheus_client: {install_extra('prometheus')}"
    ) from missing

__all__ = ["LoaderCollector"]

_Family = CounterMetricFamily | GaugeMetricFamily


@dataclass(frozen=True)
class _Metric:
    """A metric, and the values of Stats.as_dict that it gets."""

    name: str  # without "fastpipe_"
    description: str
    # A name in Stats.as_dict; or by value of `label`, such as the name of a stage.
    values: str | dict[str, str]
    label: str = ""


_LOADER_STAGES = {
    stage: f"{stage}_s" for stage in ("plan", "wait", "transfer", "augment", "device")
}
_THREAD_STAGES = {
    stage: f"{stage}_s" for stage in ("read", "decode", "resize", "convert")
}
_COUNTERS = (
    _Metric("batches", "Batches given to the training loop.", "batches"),
    _Metric("samples", "Samples given to the training loop.", "samples"),
    _Metric(
        "samples_replaced",
        "Samples that could not be decoded and were replaced by other samples.",
        "replaced",
    ),
    _Metric(
        "step_seconds",
        "Time between giving a batch and the request for the next batch: the training steps.",
        "step_s",
    ),
    _Metric(
        "held_seconds",
        "The part of the steps' time in which the loop waited for its device's earlier steps.",
        "held_s",
    ),
    _Metric(
        "load_seconds",
        "Time that the training loop waited in the loader for batches.",
        "load_s",
    ),
    _Metric(
        "stage_seconds",
        "Time in the loader by stage; device: a GPU's own time for copies and augmentation.",
        _LOADER_STAGES,
        "stage",
    ),
    _Metric(
        "thread_seconds",
        "Time that the engine's threads spent in each stage, summed over threads.",
        _THREAD_STAGES,
        "stage",
    ),
    _Metric(
        "images",
        "Images that have passed each stage of the engine, prefetched images included.",
        {"read": "images_read", "decode": "images_decoded"},
        "stage",
    ),
    _Metric(
        "images_failed", "Images that could not be read or decoded.", "images_failed"
    ),
    _Metric(
        "images_converted",
        "Images of an unpacked source that were no baseline JPEGs or PNGs.",
        "images_converted",
    ),
    _Metric("read_bytes", "Compressed bytes read.", "bytes_read"),
    _Metric("shards_opened", "Shards opened.", "shards_opened"),
    _Metric(
        "fetched_bytes",
        "Bytes of remote shards that came over the network.",
        "fetched_bytes",
    ),
    _Metric(
        "cache_hit_bytes",
        "Bytes of remote samples that the cache had, or another process fetched.",
        "cache_hit_bytes",
    ),
    _Metric("requests", "Requests for ranges of remote shards.", "requests"),
    _Metric("request_retries", "Requests of these that were made again.", "retries"),
    _Metric(
        "fetch_wait_seconds",
        "Part of the loop's waiting in which samples had not come yet.",
        "fetch_wait_s",
    ),
    _Metric("prepare_seconds", "Time that prepare= took, in its thread.", "prepare_s"),
    _Metric(
        "prepare_wait_seconds",
        "Part of the loop's waiting in which prepare= had not returned.",
        "prepare_wait_s",
    ),
)
_QUEUES = (
    "rows_waiting",
    "batches_making",
    "batches_ready",
    "batches_copying",
    "hints_waiting",
    "ranges_waiting",
    "requests_under_way",
)
_GAUGES = (
    _Metric(
        "epoch",
        "Epoch of the latest iteration; -1 before the first iteration.",
        "epoch",
    ),
    _Metric("threads", "Threads of the engine, and those that convert.", "threads"),
    _Metric("threads_busy", "Threads that are working on an image.", "threads_busy"),
    _Metric(
        "queue_depth",
        "Lengths of the queues: rows that wait for a thread; batches that are being made, are "
        "ready, or are being copied to the device; ranges that the kernel is to read ahead; ranges "
        "of remote shards to be requested, and requests under way.",
        {queue: queue for queue in _QUEUES},
        "queue",
    ),
    _Metric(
        "slots",
        "Batch buffers in use and free.",
        {"lent": "slots_lent", "idle": "slots_idle"},
        "state",
    ),
    _Metric(
        "ring_bytes",
        "Memory that holds remote samples which no cache keeps.",
        "ring_bytes",
    ),
    _Metric(
        "pinned_bytes", "Page-locked host memory of the batch buffers.", "pinned_bytes"
    ),
    _Metric(
        "load_ratio",
        "Time in the loader divided by the time of the steps, since the loader was created; for a "
        "shorter period, divide the rates of fastpipe_load_seconds_total and "
        "fastpipe_step_seconds_total.",
        "load_ratio",
    ),
)


class LoaderCollector(Collector):
    """The figures of some loaders, one value of the label `loader` for each.

    Register one collector for all loaders, because a registry accepts each metric name only once.
    It keeps no loader alive: it leaves out loaders that no longer exist. The counters of each
    loader start at 0.

    Args:
        loaders: loaders by label value.

    Raises:
        ConfigError: `loaders` is not a mapping of names to loaders.
    """

    def __init__(self, loaders: Mapping[str, Loader]) -> None:
        if not _are_named_loaders(loaders):
            raise ConfigError(
                "loaders: expected a mapping of names to loaders, such as "
                f'{{"train": loader}}; got {loaders!r}'
            )
        self._loaders = {name: weakref.ref(loader) for name, loader in loaders.items()}

    def collect(self) -> Iterator[_Family]:
        """The metrics of this moment; prometheus_client calls this in its own thread."""
        stats_by_loader = {}
        for name, reference in self._loaders.items():
            loader = reference()
            if loader is not None:
                stats_by_loader[name] = loader.stats().as_dict()
        for metric in _COUNTERS:
            yield _fill(CounterMetricFamily, metric, stats_by_loader)
        for metric in _GAUGES:
            yield _fill(GaugeMetricFamily, metric, stats_by_loader)


def _are_named_loaders(loaders: object) -> bool:
    if not isinstance(loaders, Mapping):
        return False
    return all(isinstance(name, str) for name in loaders) and all(
        isinstance(loader, Loader) for loader in loaders.values()
    )


def _fill(
    family: type[_Family],
    metric: _Metric,
    stats_by_loader: Mapping[str, Mapping[str, float]],
) -> _Family:
    """Makes a metric with its values for each loader."""
    labels = ["loader"]
    if metric.label:
        labels.append(metric.label)
    filled = family(f"fastpipe_{metric.name}", metric.description, labels=labels)
    for loader, stats in stats_by_loader.items():
        if isinstance(metric.values, str):
            filled.add_metric([loader], stats[metric.values])
            continue
        for label_value, name in metric.values.items():
            filled.add_metric([loader, label_value], stats[name])
    return filled


def __dir__() -> list[str]:
    return list(__all__)
