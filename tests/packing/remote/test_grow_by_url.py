"""A dataset in a bucket that grows and shrinks: by compare-and-swap, so that no writer loses another's samples."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.datasets.growing import add_twice_at_once, photos
from support.remote.memory_bucket import MemoryBucket
from support.sources.pack_sources import files

import fastpipe
from fastpipe.errors import PackError
from fastpipe.store.store import Bucket as Store

SMALL = {"shard_size": 100_000, "workers": 2}


@pytest.fixture
def packed(bucket: MemoryBucket, tmp_path: Path) -> str:
    """The URL of a dataset of 30 photos, which are in tmp_path/src."""
    url = bucket.url("train")
    fastpipe.pack(photos(tmp_path / "src", 30), url, **SMALL)
    return url


def keys(data: Any) -> list[str]:
    """Of a loader's epoch."""
    with fastpipe.loader(data, 7, fields=["image", "key"], drop_last=False, size=32) as loader:
        return sorted(key for batch in loader for key in batch["key"])


@pytest.fixture
def opened(packed: str, tmp_path: Path) -> Callable[..., Any]:
    """Opens it as it is now, or in a version."""
    return partial(fastpipe.open, packed, cache_dir=tmp_path / "cache")


def test_a_dataset_in_a_bucket_grows_as_one_in_a_folder(
    bucket: MemoryBucket, packed: str, opened: Callable[..., Any], tmp_path: Path
) -> None:
    local = tmp_path / "local"
    fastpipe.pack(tmp_path / "src", local, **SMALL)
    before = bucket.objects("train")
    photos(tmp_path / "src", 8, first=30, classes=4)
    for place in (packed, local):
        assert fastpipe.add(tmp_path / "src", place).added == 8
        assert fastpipe.remove(place, classes="c1").removed == 12
    after, here = bucket.objects("train"), files(local)
    assert after.keys() == here.keys()
    assert {
        name for name in here if after[name] != here[name] and not name.endswith("dataset.json")
    } == set()
    assert {name for name in before if after[name] != before[name]} == {"dataset.json"}
    assert keys(opened()) == keys(local)
    assert len(keys(opened(version=1))) == 30
    again = fastpipe.add(tmp_path / "src", packed, changed="skip")
    assert (again.added, again.known) == (12, 26)  # what was removed comes again


def test_two_adds_at_once_lose_nothing(bucket: MemoryBucket, packed: str, tmp_path: Path) -> None:
    data = add_twice_at_once(packed, tmp_path)
    assert len(data) == 46
    versions = json.loads(bucket.objects("train")["dataset.json"])["history"]
    assert [entry["version"] for entry in versions] == [1, 2, 3]


def test_a_dataset_that_another_program_changes_meanwhile(
    bucket: MemoryBucket,
    packed: str,
    opened: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last moment: both have read the dataset, and one has written dataset.json."""
    others = photos(tmp_path / "others", 3, first=500)
    swap = Store.swap

    def late(store: Store, name: str, data: bytes, old: bytes | None, note: str = "") -> bool:
        if name == "dataset.json":
            monkeypatch.setattr(Store, "swap", swap)
            bucket.delete("train/.pack/plan.json")
            spool = tmp_path / "other spool"
            fastpipe.add(others, packed, spool=spool)
        return swap(store, name, data, old, note)

    monkeypatch.setattr(Store, "swap", late)
    more = photos(tmp_path / "more", 5, first=100)
    with pytest.raises(PackError, match="has changed meanwhile"):
        fastpipe.add(more, packed)
    assert fastpipe.add(more, packed).added == 5
    assert len(keys(opened())) == 38


def test_an_add_that_was_killed_goes_on_or_is_given_up(
    bucket: MemoryBucket,
    packed: str,
    opened: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = photos(tmp_path / "more", 5, first=100)
    with monkeypatch.context() as patch:  # as if it were killed: nothing is tidied up
        patch.setattr("fastpipe.packing.shard.journal.Journal.give_up", lambda _: None)
        patch.setattr("fastpipe.packing.growth.version.publish_dataset", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fastpipe.add(more, packed)
    assert len(keys(opened())) == 30
    other = photos(tmp_path / "other", 2, first=300)
    with pytest.raises(
        PackError,
        match=r"in use: fastpipe add \S+more \S+ is still running there, or was interrupted.*remove s3://\S+plan.json",
    ):
        fastpipe.add(other, packed)
    assert fastpipe.add(more, packed).added == 5
    shutil.rmtree(tmp_path / "more")
    assert fastpipe.add(other, packed).added == 2
    assert not any(name.startswith(".pack") for name in bucket.objects("train"))


def test_saved_labels_and_columns_are_carried_over(
    bucket: MemoryBucket, packed: str, opened: Callable[..., Any], tmp_path: Path
) -> None:
    local = tmp_path / "local"
    fastpipe.pack(tmp_path / "src", local, **SMALL)
    data = fastpipe.open(local)
    last = len(data.classes) - 1
    labels = [last] * len(data)
    with_both = data.with_labels(labels, classes=data.classes).with_column("score", labels)
    with_both.save_columns(local)
    bucket.upload(local / "columns", "train/columns")
    names = opened()["key"]
    fastpipe.remove(packed, keys=[names[0]])
    assert opened()["label"].tolist() == opened()["score"].tolist() == labels[1:]
    photos(tmp_path / "src", 3, first=30, classes=1)
    added = fastpipe.add(tmp_path / "src", packed, changed="skip")
    texts = " ".join(assumption.text for assumption in added.assumed)
    assert "keep the labels that save_columns wrote" in texts
    assert "score: save_columns wrote it for version 2" in texts
    grown = opened()
    assert "score" not in grown.columns
    assert set(grown["label"][: len(labels) - 1].tolist()) == {last}
