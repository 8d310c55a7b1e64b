"""fastpipe.Text: texts chosen, shuffled and dropped by draws of (seed, epoch, sample)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pictures.drawn import smooth_noise

import fastpipe

COUNT = 60
TAGS = ["1girl", "solo", "long hair", "hat", "smile", "sky"]
CAPTIONS = [f"caption {number}" for number in range(5)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts") / "data"
    fields = {"tags": "text", "captions": "json", "other": "json", "number": "int"}
    with fastpipe.Writer(folder, fields) as writer:
        image = smooth_noise(20, 20, seed=0)
        for number in range(COUNT):
            captions: Any = CAPTIONS if number else None
            tags = ",  ".join(TAGS)
            writer.add(
                image, key=str(number), tags=tags, captions=captions, other={"a": 1}, number=number
            )
    return folder


def texts(data: Any, request: fastpipe.Text, epochs: int = 1, **options: Any) -> list[list[str]]:
    """The texts of each epoch by the number of their sample."""
    chosen = {"size": 16, "drop_last": False, "fields": [request, "id"], **options}
    found = []
    with fastpipe.loader(data, 7, **chosen) as loader:
        for _ in range(epochs):
            of_epoch = [""] * COUNT
            for batch in loader:
                for number, text in zip(batch["id"].tolist(), batch[request.name], strict=True):
                    of_epoch[number] = text
            found.append(of_epoch)
    return found


def test_one_of_several_captions(data: Path) -> None:
    epochs = texts(data, fastpipe.Text("captions"), epochs=20)
    counts = Counter(text for epoch in epochs for text in epoch[1:])
    assert set(counts) == set(CAPTIONS)
    # 1,180 draws of five: a share is 236, with a standard deviation of 14.
    assert all(170 < count < 300 for count in counts.values())
    assert all(epoch[0] == "" for epoch in epochs)  # it has none
    assert epochs[0] != epochs[1]
    (first,) = texts(data, fastpipe.Text("captions", choose="first"))
    assert first == ["", *["caption 0"] * (COUNT - 1)]


def test_drop(data: Path) -> None:
    epochs = texts(data, fastpipe.Text("tags", drop=0.25), epochs=20)
    dropped = sum(text == "" for epoch in epochs for text in epoch)
    assert 230 < dropped < 370  # of 1,200; a standard deviation is 15
    assert set(texts(data, fastpipe.Text("tags", drop=1))[0]) == {""}
    assert set(texts(data, fastpipe.Text("tags"))[0]) == {",  ".join(TAGS)}


def test_tags_are_shuffled_behind_the_first_ones(data: Path) -> None:
    epochs = texts(data, fastpipe.Text("tags", shuffle_tags=True, keep=2), epochs=20)
    orders = Counter(text for epoch in epochs for text in epoch)
    for text in orders:
        tags = text.split(", ")
        assert tags[:2] == TAGS[:2]
        assert sorted(tags) == sorted(TAGS)
    # All 24 orders of four tags come, about 50 times each.
    assert len(orders) == 24
    assert all(20 < count < 90 for count in orders.values())


def test_the_draws_are_of_seed_epoch_and_sample(data: Path) -> None:
    request = fastpipe.Text("tags", shuffle_tags=True, drop=0.2)
    expected = texts(data, request, epochs=2)
    assert texts(data, request, epochs=2, num_workers=1, shuffle=False) == expected
    assert texts(data, request, epochs=2, seed=1) != expected
    # Two ranks have the same texts for their samples.
    merged = [""] * COUNT
    for rank in range(2):
        (of_rank,) = texts(data, request, rank=rank, world_size=2)
        merged = [one or other for one, other in zip(merged, of_rank, strict=True)]
    assert merged == expected[0]
    # prepare= gets them.
    with fastpipe.loader(
        data, 7, size=16, fields=[request, "id"], prepare=lambda batch: {"seen": batch["tags"]}
    ) as loader:
        for batch in loader:
            assert batch["seen"] == batch["tags"]


def test_prepare_gets_a_seed_for_each_sample(data: Path) -> None:
    def prepare(batch: dict[str, Any]) -> dict[str, Any]:
        return {"noise": np.array([np.random.default_rng(s).random() for s in batch["seeds"]])}

    def noise(**options: Any) -> list[dict[int, float]]:
        chosen = {"size": 16, "drop_last": False, "fields": ["id"], "prepare": prepare, **options}
        with fastpipe.loader(data, 7, **chosen) as loader:
            found = []
            for _ in range(2):
                of_epoch: dict[int, float] = {}
                for batch in loader:
                    ids = batch["id"].tolist()
                    of_epoch.update(zip(ids, batch["noise"].tolist(), strict=True))
                found.append(of_epoch)
            return found

    first, second = noise()
    assert len(set(first.values())) == COUNT
    assert first != second
    assert noise(shuffle=False)[0] == first
    assert noise(seed=1)[0] != first


def test_what_is_refused(data: Path) -> None:
    for name, words in (("number", "is a field of int"), ("label", "not a field of the dataset")):
        with pytest.raises(fastpipe.ConfigError, match=words):
            fastpipe.loader(data, 4, fields=[fastpipe.Text(name)])
    with pytest.raises(fastpipe.DatasetError, match=r"Text\('other'\): expected a text, or a list"):
        texts(data, fastpipe.Text("other"))
    with pytest.raises(fastpipe.ConfigError, match=r"texts are drawn by fastpipe\.loader"):
        fastpipe.open(data).with_fields([fastpipe.Text("tags")])
    for options, words in (
        ({"drop": 1.5}, r"Text\(drop=\): expected a probability, 0 to 1, got 1.5"),
        ({"choose": "last"}, "'random' or 'first'"),
        ({"keep": 2}, "pass shuffle_tags=True"),
        ({"separator": " ", "shuffle_tags": True}, "what stands between two tags"),
    ):
        with pytest.raises(fastpipe.ConfigError, match=words):
            fastpipe.Text("tags", **options)
