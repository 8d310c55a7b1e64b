"""What fastpipe.Writer is given, the loader and Dataset give back: each kind, from end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastpipe

KINDS = {
    "count": "int",
    "gaze": "floats",
    "tags": "classes",
    "caption": "text",
    "notes": "json",
    "sound": "bytes",
    "boxes": "boxes",
    "plain": "boxes",
    "joints": "keypoints",
    "none": "keypoints",
}
COUNT = 30


def sample_of(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    count = number % 3
    corners = np.sort(rng.random((count, 2, 2), dtype=np.float32) * 40, axis=1).reshape(count, 4)
    points = rng.random((count, 5, 3), dtype=np.float32) * 40
    return {
        "count": number,
        "gaze": rng.random(3, dtype=np.float32),
        "tags": [number % 4, 4 + number % 5],
        "caption": f"picture {number}, grün",
        "notes": {"number": number} if count else None,
        "sound": rng.bytes(number),
        "boxes": {"boxes": corners, "labels": list(range(count))},
        "plain": corners,
        "joints": points,
        "none": None,
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("written") / "data"
    with fastpipe.Writer(data, fields=KINDS) as writer:
        for number in range(COUNT):
            label = None if number % 7 == 3 else number % 2
            image = np.full((48, 60, 3), number * 8, dtype=np.uint8)
            writer.add(image, label=label, key=f"place/{number}", **sample_of(number))
    return data


def test_the_loader_gives_all_back(written: Path) -> None:
    names = ("image", "label", "id", "key", *KINDS)
    loader = fastpipe.loader(
        written, 8, size=(48, 60), crop=fastpipe.Resize(), hflip=False, drop_last=False, num_workers=2, fields=names
    )
    seen = []
    with loader:
        for batch in loader:
            for row, key in enumerate(batch["key"]):
                number = int(key.rpartition("/")[2])
                seen.append(number)
                expected = sample_of(number)
                assert abs(int(batch["image"][row].float().mean()) - number * 8) <= 2
                assert batch["label"][row] == (-1 if number % 7 == 3 else number % 2)
                for name in ("count", "caption", "notes", "sound"):
                    assert batch[name][row] == expected[name]
                assert np.array_equal(batch["gaze"][row].numpy(), expected["gaze"])
                assert batch["tags"][row].nonzero().ravel().tolist() == expected["tags"]
                boxes = expected["plain"]
                large = ((boxes[:, 2:] - boxes[:, :2]) >= 1).all(axis=1)
                assert np.array_equal(batch["plain"][row].numpy(), boxes[large])
                assert np.array_equal(batch["boxes"][row].numpy(), boxes[large])
                assert batch["boxes_labels"][row].tolist() == np.flatnonzero(large).tolist()
                assert np.array_equal(batch["joints"][row].numpy(), expected["joints"])
                assert batch["none"][row].shape[0] == 0
    assert sorted(seen) == list(range(COUNT))


def test_the_dataset_gives_all_back(written: Path) -> None:
    dataset = fastpipe.open(written).with_fields(("key", *KINDS))
    for sample in dataset.__getitems__(range(COUNT)):
        expected = sample_of(int(sample["key"].rpartition("/")[2]))
        for name in ("count", "caption", "notes", "sound"):
            assert sample[name] == expected[name]
        assert np.array_equal(sample["boxes"].numpy(), expected["plain"])
        assert np.array_equal(sample["joints"].numpy(), expected["joints"][..., :2])
        assert np.array_equal(sample["joints_visibility"].numpy(), expected["joints"][..., 2])


def test_soft_labels_need_labels(written: Path) -> None:
    for augment in (fastpipe.Augment.imagenet(mixup=0.2), fastpipe.Augment.imagenet(label_smoothing=0.1)):
        with pytest.raises(
            fastpipe.ConfigError,
            match=rf"soft labels.* samples without labels \(\d+ of {COUNT} of .*Leave them out with data.select",
        ):
            fastpipe.loader(written, 8, augment=augment)
    with fastpipe.loader(written, 8, size=16, augment=fastpipe.Augment.imagenet()) as loader:
        assert next(iter(loader))[0].dtype == torch.float32
