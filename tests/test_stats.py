"""Tests of the numbers that a loader gives about itself; what they count is in test_loader.py."""

from __future__ import annotations

import dataclasses
import json

from fastpipe.stats import Stats


def test_a_new_loader_has_done_nothing() -> None:
    stats = Stats()
    assert stats.epoch == -1
    assert all(value == 0 for name, value in stats.as_dict().items() if name != "epoch")


def test_as_dict_is_ready_for_json() -> None:
    stats = Stats(epoch=3, batches=2, samples=64, wait_s=0.25)
    assert json.loads(json.dumps(stats.as_dict())) == {**dataclasses.asdict(stats), "load_ratio": 0.0}


def test_every_field_is_described() -> None:
    described = (Stats.__doc__ or "").partition("Attributes:")[2]
    for field in dataclasses.fields(Stats):
        assert field.name in described


def test_differences_are_of_all_but_the_epoch() -> None:
    before = Stats(epoch=1, batches=2, samples=64, wait_s=0.25)
    after = Stats(epoch=3, batches=5, samples=160, wait_s=1.0, step_s=2.0)
    assert after.since(before) == Stats(epoch=3, batches=3, samples=96, wait_s=0.75, step_s=2.0)
