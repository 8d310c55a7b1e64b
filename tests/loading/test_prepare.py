"""prepare=: entries that a user's function makes of a batch's other entries, ahead of the loop, in its own thread."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.batches.asked_fields import asked
from support.datasets.packed import damage
from support.devices.fake_stream import FakeStream

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.loading.loader import Loader

FIELDS = (
    "image",
    "label",
    "id",
    "key",
    "caption",
    "boxes",
    "joints",
    "gaze",
    "count",
    "valid",
    "epoch",
)


def loader_of(
    data: Path, prepare: Callable[[dict[str, Any]], Mapping[str, Any]], **options: Any
) -> Loader:
    options = {
        "size": 16,
        "num_workers": 2,
        "fields": FIELDS,
        "flip_pairs": [(0, 1)],
        "seed": 3,
        **options,
    }
    options["fields"] = asked(options["fields"], options)
    return fastpipe.loader(data, 8, prepare=prepare, **options)


def tokens(batch: dict[str, Any]) -> dict[str, Any]:
    """Letters, padded; of the caption, the key and the number."""
    texts = [
        f"{caption}{key}{number}"
        for caption, key, number in zip(batch["caption"], batch["key"], batch["id"], strict=True)
    ]
    most = max(map(len, texts))
    ids = torch.tensor(
        [[*map(ord, text), *[0] * (most - len(text))] for text in texts], dtype=torch.int32
    )
    boxes = np.array([len(each) for each in batch["boxes"]])
    return {
        "tokens": ids,
        "texts": texts,
        "label": batch["label"] * 10,
        "many": boxes.astype(np.float16),
    }


def test_entries_are_added_and_replaced(fielded: Path) -> None:
    whole = {"min_size": 0}
    with (
        loader_of(fielded, lambda batch: {}, **whole) as plain,
        loader_of(fielded, tokens, **whole) as loader,
    ):
        for _ in range(2):
            batches = list(loader)
            for batch, other in zip(batches, plain, strict=True):
                assert list(batch) == [
                    *FIELDS[:6],
                    "boxes_labels",
                    *FIELDS[6:],
                    "tokens",
                    "texts",
                    "many",
                ]
                for key in ("image", "gaze", "count", "id"):
                    assert torch.equal(batch[key], other[key])
                given = {**other, "label": other["label"].numpy(), "id": other["id"].numpy()}
                expected = tokens(given)
                assert torch.equal(batch["tokens"], expected["tokens"])
                assert batch["tokens"].dtype == torch.int32
                assert batch["texts"] == expected["texts"]
                assert torch.equal(batch["label"], other["label"] * 10)
                assert batch["many"].tolist() == [len(each) for each in other["boxes"]]
                assert batch["many"].dtype == torch.float16
            assert len(batches) == len(loader)
        stats = loader.stats()
    assert stats.prepare_s > 0
    assert 0 <= stats.prepare_wait_s <= stats.wait_s


def test_what_the_function_gets(fielded: Path) -> None:
    seen: list[dict[str, Any]] = []

    def look(batch: dict[str, Any]) -> dict[str, Any]:
        seen.append(batch)
        batch["y"][:] = -7  # a copy
        return {}

    names = {
        "pixels": "image",
        "y": "label",
        "words": "caption",
        "found": "boxes",
        "points": "joints",
        "at": "epoch",
    }
    with loader_of(fielded, look, fields=names, hflip=False, train=False) as loader:
        batches = list(loader)
    assert [list(given) for given in seen] == [
        ["y", "words", "found", "found_labels", "points", "at", "seeds"]
    ] * len(batches)
    for given, batch in zip(seen, batches, strict=True):
        assert given["words"] == batch["words"]
        assert given["at"] == 0
        assert all(
            len(boxes) == len(labels)
            for boxes, labels in zip(given["found"], given["found_labels"], strict=True)
        )
        assert [len(points) for points in given["points"]] == [
            len(points) for points in batch["points"]
        ]
        assert batch["y"].min() >= 0


def test_changes_in_place_stay_with_the_function(fielded: Path) -> None:
    def spoil(batch: dict[str, Any]) -> dict[str, Any]:
        for name in ("boxes", "joints", "boxes_labels"):
            for values in batch[name]:
                values[:] = -7
        for note in batch["notes"]:
            if note is not None:
                note.clear()
        batch["gaze"][:] = -7
        batch["caption"].clear()
        return {}

    whole = {"min_size": 0, "fields": (*FIELDS, "notes")}
    with (
        loader_of(fielded, lambda batch: {}, **whole) as plain,
        loader_of(fielded, spoil, **whole) as loader,
    ):
        for batch, other in zip(loader, plain, strict=True):
            assert torch.equal(batch["gaze"], other["gaze"])
            assert batch["caption"] == other["caption"]
            assert batch["notes"] == other["notes"]
            for name in ("boxes", "joints", "boxes_labels"):
                for values, other_values in zip(batch[name], other[name], strict=True):
                    assert torch.equal(values, other_values)


def test_one_copy_brings_all_to_the_device(fielded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loader_of(fielded, tokens) as loader:
        expected = list(loader)
    copied: list[torch.Tensor] = []

    class Stream(FakeStream):
        def copy(self, tensor: torch.Tensor) -> torch.Tensor:
            copied.append(super().copy(tensor))
            return copied[-1]

    stream = Stream()
    monkeypatch.setattr(sys.modules["fastpipe.loading.factory"], "stream_of", lambda device: stream)
    with loader_of(fielded, tokens) as loader:
        batches = list(loader)
    places = {tensor.untyped_storage().data_ptr() for tensor in copied}
    assert len(copied) == 2 * len(batches)
    for batch, other in zip(batches, expected, strict=True):
        assert torch.equal(batch["tokens"], other["tokens"])
        assert batch["tokens"].untyped_storage().data_ptr() in places


def test_an_exception_names_batch_and_samples(fielded: Path) -> None:
    def fails(batch: dict[str, Any]) -> dict[str, Any]:
        if (
            batch["epoch"] == 0
            and len(ids := batch["id"])
            and calls.append(ids.tolist()) is None
            and len(calls) == 2
        ):
            raise KeyError("no such word")
        return {}

    calls: list[list[int]] = []
    with loader_of(fielded, fails) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(
            ConfigError,
            match=r"prepare: batch 1 of epoch 0, samples [\d, ]+.*KeyError\('no such word'\)",
        ) as caught:
            next(batches)
        assert f"samples {', '.join(map(str, calls[1]))}: the function failed: " in str(
            caught.value
        )
        assert isinstance(caught.value.__cause__, KeyError)
        assert len(list(loader)) == len(loader)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("image", r"'image' is not decoded yet .* Change 'image' in the training loop, or by aug"),
        ("labels", r"the function gets label, seeds, and no 'labels'; did you mean 'label'\?"),
        (
            "caption",
            r"and no 'caption'. Pass it to fastpipe.loader, too: fields=\[..., 'caption'\]",
        ),
    ],
)
def test_an_entry_that_the_function_does_not_get(fielded: Path, key: str, words: str) -> None:
    options: dict[str, Any] = {"size": 8, "num_workers": 1, "fields": ("image", "label")}
    with (
        fastpipe.loader(fielded, 4, prepare=lambda batch: {"x": batch[key]}, **options) as loader,
        pytest.raises(ConfigError, match=words),
    ):
        next(iter(loader))


def test_eight_samples_of_a_larger_batch_are_named(fielded: Path) -> None:
    def fails(batch: dict[str, Any]) -> dict[str, Any]:
        raise ConfigError(f"not {len(batch['label'])} labels")

    options: dict[str, Any] = {"size": 8, "num_workers": 1, "train": False}
    with (
        fastpipe.loader(fielded, 9, fields=("image", "label"), prepare=fails, **options) as loader,
        pytest.raises(
            ConfigError, match=r"samples 0, 1, 2, 3, 4, 5, 6, 7 and 1 more: not 9 labels$"
        ),
    ):
        next(iter(loader))


def test_other_samples_in_the_place_of_bad_ones(
    fielded: Path, copied: Callable[[Path], Path]
) -> None:
    data = copied(fielded)
    damage(data, 5)
    keys: list[str] = []

    def note(batch: dict[str, Any]) -> dict[str, Any]:
        return {"again": list(batch["key"])}

    with loader_of(data, note, on_error="replace", train=False, hflip=False) as loader:
        for batch in loader:
            assert batch["again"] == batch["key"]
            keys += batch["key"]
        assert loader.stats().replaced == 1
    assert len(keys) > len(set(keys))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fields": None}, "prepare= needs fields="),
        ({"prepare": 3}, "expected a function, got 3"),
        ({"prepare": [len]}, "expected a function, got a list of one function; pass the function"),
        ({"prepare": [len, len]}, "got a list of 2 functions; pass one function that calls them"),
        (
            {"prepare": lambda batch: None},
            "expected a dict of entries to add or to replace, got NoneType",
        ),
        ({"prepare": lambda batch: {"image": 1}}, "'image' is made by other threads"),
        ({"prepare": lambda batch: {1: 1}}, "expected texts as keys, got 1"),
        (
            {"prepare": lambda batch: {"x": torch.zeros(1, dtype=torch.bfloat16)}},
            "of a dtype that numpy has",
        ),
        ({"prepare": lambda batch: {"x": np.array(["a"])}}, "of a dtype that numpy has"),
        ({"prepare": lambda batch: next(iter(()))}, "StopIteration"),
    ],
)
def test_what_cannot_be_is_refused(fielded: Path, options: dict[str, Any], words: str) -> None:
    options = {"prepare": tokens, **options}
    with pytest.raises(ConfigError, match=words), loader_of(fielded, **options) as loader:
        next(iter(loader))


def test_the_thread_ends_with_the_loader(fielded: Path) -> None:
    # A test that failed may keep its loader, and so the loader's thread: pytest holds its frames.
    earlier = set(threading.enumerate())

    def threads() -> set[threading.Thread]:
        started = set(threading.enumerate()) - earlier
        return {thread for thread in started if thread.name.startswith("fastpipe-prepare")}

    def none_is_left() -> bool:
        deadline = time.monotonic() + 300
        while threads() and time.monotonic() < deadline:
            time.sleep(0.01)
        return not threads()

    loader = loader_of(fielded, tokens)
    assert not threads()
    next(iter(loader))
    assert threads()
    loader.close()
    assert none_is_left()
    other = loader_of(fielded, tokens)
    next(iter(other))
    del other
    assert none_is_left()
