"""Loaders' figures as Prometheus reads them: the text parses, and its numbers are those of stats()."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.prometheus import LoaderCollector

Found = dict[tuple[str, tuple[str, ...]], float]


def parsed(text: str) -> Found:
    """(name, values of the labels but `loader`) -> value, of one loader."""
    found: Found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(
                value for name, value in sorted(sample.labels.items()) if name != "loader"
            )
            assert (sample.name, labels) not in found
            found[sample.name, labels] = sample.value
    return found


@pytest.fixture
def loader(flat: Path) -> Iterator[fastpipe.Loader]:
    with fastpipe.loader(flat, 4, size=8, num_workers=2) as made:
        yield made


def test_every_figure_is_there(loader: fastpipe.Loader) -> None:
    list(loader)
    registry = prometheus_client.CollectorRegistry(auto_describe=True)
    registry.register(LoaderCollector({"train": loader}))
    found = parsed(prometheus_client.generate_latest(registry).decode())
    stats = loader.stats()
    assert found["fastpipe_samples_total", ()] == stats.samples == 36
    assert found["fastpipe_batches_total", ()] == 9
    assert found["fastpipe_images_total", ("decode",)] == stats.images_decoded
    assert found["fastpipe_read_bytes_total", ()] == stats.bytes_read
    assert found["fastpipe_stage_seconds_total", ("wait",)] == stats.wait_s
    assert found["fastpipe_thread_seconds_total", ("decode",)] == stats.decode_s > 0
    assert found["fastpipe_queue_depth", ("batches_ready",)] == stats.batches_ready
    assert found["fastpipe_slots", ("idle",)] == stats.slots_idle
    assert found["fastpipe_threads", ()] == 2
    assert found["fastpipe_epoch", ()] == 0
    assert found["fastpipe_load_ratio", ()] == pytest.approx(stats.load_ratio)
    assert len(found) == len(stats.as_dict()), "a figure of stats() each"
    for (name, _), value in found.items():
        assert name.startswith("fastpipe_")
        assert value >= 0


def test_loaders_are_told_apart_and_not_kept_alive(flat: Path) -> None:
    train = fastpipe.loader(flat, 4, size=8, num_workers=1)
    val = fastpipe.loader(flat, 5, size=8, train=False, num_workers=2)
    next(iter(val))
    registry = prometheus_client.CollectorRegistry(auto_describe=True)
    registry.register(LoaderCollector({"train": train, "val": val}))
    assert registry.get_sample_value("fastpipe_samples_total", {"loader": "train"}) == 0
    assert registry.get_sample_value("fastpipe_samples_total", {"loader": "val"}) == 5
    assert registry.get_sample_value("fastpipe_threads", {"loader": "val"}) == 2
    del val
    gc.collect()
    assert registry.get_sample_value("fastpipe_samples_total", {"loader": "val"}) is None
    train.close()
    assert registry.get_sample_value("fastpipe_samples_total", {"loader": "train"}) == 0


@pytest.mark.parametrize("loaders", [None, {"train": None}, ["train"]])
def test_what_is_no_loader(loaders: object) -> None:
    with pytest.raises(ConfigError, match="loaders: expected a mapping of names to loaders"):
        LoaderCollector(loaders)  # type: ignore[arg-type]


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fastpipe.prometheus", "fastpipe.prometheus"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    with pytest.raises(ImportError, match=r"pip install 'fastpipe-loader\[prometheus\]'"):
        importlib.import_module("fastpipe.prometheus")
