"""Loaders' figures -> Prometheus's metrics, for the package prometheus_client (the extra `fastpipe[prometheus]`).

    from fastpipe.prometheus import LoaderCollector

    prometheus_client.REGISTRY.register(LoaderCollector({"train": train, "val": val}))
    prometheus_client.start_http_server(9400)

Names and units follow Prometheus's guide (prometheus.io/docs/practices/naming).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping

from fastpipe.engine.stats import Stats
from fastpipe.errors import ConfigError
from fastpipe.loading.loader import Loader

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise ImportError("fastpipe.prometheus needs prometheus_client: pip install 'fastpipe[prometheus]'") from missing

_Family = CounterMetricFamily | GaugeMetricFamily

# Name without "fastpipe_", what it is, and the name in Stats.as_dict; or a label, and a field for each of its values.
_Row = tuple[str, str, str | tuple[str, dict[str, str]]]
_COUNTERS: tuple[_Row, ...] = (
    ("batches", "Batches given to the training loop.", "batches"),
    ("samples", "Samples given to the training loop.", "samples"),
    ("samples_replaced", "Samples that could not be decoded and were replaced by other samples.", "replaced"),
    ("step_seconds", "Time between giving a batch and the request for the next batch: the training steps.", "step_s"),
    ("held_seconds", "The part of the steps' time in which the loop waited for its device's earlier steps.", "held_s"),
    ("load_seconds", "Time that the training loop waited in the loader for batches.", "load_s"),
    (
        "stage_seconds",
        "Time in the loader by stage; device: a GPU's own time for copies and augmentation.",
        ("stage", {stage: f"{stage}_s" for stage in ("plan", "wait", "transfer", "augment", "device")}),
    ),
    (
        "thread_seconds",
        "Time that the engine's threads spent in each stage, summed over threads.",
        ("stage", {stage: f"{stage}_s" for stage in ("read", "decode", "resize", "convert")}),
    ),
    (
        "images",
        "Images that have passed each stage of the engine, prefetched images included.",
        ("stage", {"read": "images_read", "decode": "images_decoded"}),
    ),
    ("images_failed", "Images that could not be read or decoded.", "images_failed"),
    ("images_converted", "Images of an unpacked source that were no baseline JPEGs or PNGs.", "images_converted"),
    ("read_bytes", "Compressed bytes read.", "bytes_read"),
    ("shards_opened", "Shards opened.", "shards_opened"),
    ("fetched_bytes", "Bytes of remote shards that came over the network.", "fetched_bytes"),
    ("cache_hit_bytes", "Bytes of remote samples that the cache had, or another process fetched.", "cache_hit_bytes"),
    ("requests", "Requests for ranges of remote shards.", "requests"),
    ("request_retries", "Requests of these that were made again.", "retries"),
    ("fetch_wait_seconds", "Part of the loop's waiting in which samples had not come yet.", "fetch_wait_s"),
    ("prepare_seconds", "Time that prepare= took, in its thread.", "prepare_s"),
    ("prepare_wait_seconds", "Part of the loop's waiting in which prepare= had not returned.", "prepare_wait_s"),
)
_QUEUES = (
    *("rows_waiting", "batches_making", "batches_ready", "batches_copying"),
    *("hints_waiting", "ranges_waiting", "requests_under_way"),
)
_GAUGES: tuple[_Row, ...] = (
    ("epoch", "Epoch of the latest iteration; -1 before the first iteration.", "epoch"),
    ("threads", "Threads of the engine, and those that convert.", "threads"),
    ("threads_busy", "Threads that are working on an image.", "threads_busy"),
    (
        "queue_depth",
        "Lengths of the queues: rows that wait for a thread; batches that are being made, are ready, or are being "
        "copied to the device; ranges that the kernel is to read ahead; ranges of remote shards to be requested, and "
        "requests under way.",
        ("queue", {queue: queue for queue in _QUEUES}),
    ),
    ("slots", "Batch buffers in use and free.", ("state", {"lent": "slots_lent", "idle": "slots_idle"})),
    ("ring_bytes", "Memory that holds remote samples which no cache keeps.", "ring_bytes"),
    ("pinned_bytes", "Page-locked host memory of the batch buffers.", "pinned_bytes"),
    (
        "load_ratio",
        "Time in the loader divided by the time of the steps, since the loader was created; for a shorter period, "
        "divide the rates of fastpipe_load_seconds_total and fastpipe_step_seconds_total.",
        "load_ratio",
    ),
)


class LoaderCollector(Collector):
    """The figures of some loaders, one value of the label `loader` for each. Register one collector for all loaders,
    because a registry accepts each metric name only once.

    It keeps no loader alive: it leaves out loaders that no longer exist. The counters of each loader start at 0.

    Args:
        loaders: loaders by label value.

    Raises:
        ConfigError: `loaders` is not a mapping of names to loaders.
    """

    def __init__(self, loaders: Mapping[str, Loader]) -> None:
        if not isinstance(loaders, Mapping) or not all(
            isinstance(name, str) and isinstance(loader, Loader) for name, loader in loaders.items()
        ):
            raise ConfigError(
                f'loaders: expected a mapping of names to loaders, such as {{"train": loader}}; got {loaders!r}'
            )
        self._loaders = {name: weakref.ref(loader) for name, loader in loaders.items()}

    def collect(self) -> Iterator[_Family]:
        """The metrics now; prometheus_client calls this in its own thread."""
        found = {name: loader.stats() for name, reference in self._loaders.items() if (loader := reference())}
        for family, rows in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
            yield from (_filled(family, row, found) for row in rows)


def _filled(family: type[_Family], row: _Row, found: Mapping[str, Stats]) -> _Family:
    name, words, source = row
    label, fields = ("", {"": source}) if isinstance(source, str) else source
    metric = family(f"fastpipe_{name}", words, labels=["loader", *([label] if label else [])])
    for loader, stats in found.items():
        values = stats.as_dict()
        for value, field in fields.items():
            metric.add_metric([loader, *([value] if label else [])], values[field])
    return metric
