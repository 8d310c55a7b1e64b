"""Tests of data.with_fields(...): dicts of the right values, which torchvision's v2 transforms."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from support.pictures.drawn import FLAT_IMAGES

import fastpipe
from fastpipe.dataset import tensors
from fastpipe.dataset.format.fields import FIELDS_FOLDER
from fastpipe.errors import ConfigError, DatasetError

FIELDS = (
    "id",
    "caption",
    "image",
    "boxes",
    "joints",
    "key",
    "count",
    "gaze",
    "tags",
    "notes",
    "sound",
    "label",
)
KEYS = [
    "id",
    "caption",
    "image",
    "boxes",
    "boxes_labels",
    "joints",
    "joints_visibility",
    *FIELDS[5:],
]


@pytest.fixture(params=["tv_tensors", "tensors"])
def kinds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType | None:
    """torchvision's tv_tensors; or none, as where it is not installed."""
    tensors._tv_tensors.cache_clear()
    if request.param == "tensors":
        monkeypatch.setitem(sys.modules, "torchvision", None)
    else:
        request.getfixturevalue("torchvision")
    found: ModuleType | None = tensors._tv_tensors()
    assert (found is None) == (request.param == "tensors")
    yield found
    tensors._tv_tensors.cache_clear()


def assert_sample(
    sample: dict[str, Any], number: int, values: dict[str, list[Any]], plain: Any
) -> None:
    assert sample["id"] == number
    for name in ("caption", "notes", "sound", "count"):
        assert sample[name] == values[name][number]
    assert torch.equal(torch.as_tensor(sample["image"]), plain[number][0])
    assert sample["label"] == plain[number][1]
    boxes, labels = values["boxes"][number]
    assert np.array_equal(sample["boxes"].numpy(), boxes)
    assert sample["boxes_labels"].tolist() == labels.tolist()
    joints = values["joints"][number].astype(np.float32)
    assert np.array_equal(sample["joints"].numpy(), joints[..., :2])
    assert np.array_equal(sample["joints_visibility"].numpy(), joints[..., 2])
    assert sample["tags"].nonzero().ravel().tolist() == values["tags"][number]
    assert sample["gaze"].tolist() == np.array(values["gaze"][number], dtype=np.float32).tolist()


def test_samples_are_dicts(
    fielded: Path, flat: Path, values: dict[str, list[Any]], kinds: ModuleType | None
) -> None:
    dataset, plain = fastpipe.open(fielded).with_fields(FIELDS), fastpipe.open(flat)
    for number in (0, 1, 2, 17, FLAT_IMAGES - 1):
        sample = dataset[number]
        assert list(sample) == KEYS
        assert_sample(sample, number, values, plain)
        if kinds is None:
            assert (
                type(sample["boxes"])
                is type(sample["image"])
                is type(sample["joints"])
                is torch.Tensor
            )
            continue
        size = tuple(plain[number][0].shape[1:])
        assert type(sample["image"]) is kinds.Image
        for name, kind in (("boxes", kinds.BoundingBoxes), ("joints", kinds.KeyPoints)):
            assert type(sample[name]) is kind
            assert sample[name].canvas_size == size
        assert sample["boxes"].format == kinds.BoundingBoxFormat.XYXY


def test_a_transform_gets_the_dict(fielded: Path, values: dict[str, list[Any]]) -> None:
    dataset = (
        fastpipe.open(fielded)
        .with_fields(("caption", "id"))
        .with_transform(lambda sample: (sample["caption"], len(sample)))
    )
    assert [dataset[-1], dataset[3]] == [(values["caption"][-1], 2), (values["caption"][3], 2)]


def test_without_image_nothing_is_decoded(fielded: Path, copied: Callable[[Path], Path]) -> None:
    copy = copied(fielded)
    for shard in copy.glob("*.tar"):
        shard.unlink()
    dataset = fastpipe.open(copy).with_fields(("caption", "boxes", "label"))
    assert [sample["caption"] for sample in dataset.__getitems__([4, 2])] == [
        "sample 4 ü",
        "sample 2 ü",
    ]


def test_keys_can_have_other_names(fielded: Path) -> None:
    keys = {
        "number": "id",
        "pixel_values": "image",
        "at": "boxes",
        "pose": "joints",
        "labels": "label",
    }
    plain = fastpipe.open(fielded).with_fields(tuple(keys.values()))
    companions = {"at_labels": "boxes_labels", "pose_visibility": "joints_visibility"}
    renamed = fastpipe.open(fielded).with_fields(keys)
    unpickled = pickle.loads(pickle.dumps(renamed))  # noqa: S301
    for dataset in (renamed, unpickled):
        for sample, other in zip(
            dataset.__getitems__([3, 8]), plain.__getitems__([3, 8]), strict=True
        ):
            assert set(sample) == {*keys, *companions}
            for key, name in {**keys, **companions}.items():
                assert str(sample[key]) == str(other[name])


WRONG_FIELDS: list[tuple[Any, str]] = [
    (("image", "photo"), "has image, label, id, key, source, caption, .*; got 'photo'"),
    (("image", "valid"), "got 'valid'"),
    ("image", "expected names"),
    (("caption", "caption"), "'caption' would be in a batch twice"),
    ((fastpipe.Boxes("boxes", form="pad"),), "a single sample has its boxes as one tensor"),
]


def test_wrong_fields(fielded: Path) -> None:
    for fields, words in WRONG_FIELDS:
        with pytest.raises(ConfigError, match=words):
            fastpipe.open(fielded).with_fields(fields)


def test_wrong_transforms(fielded: Path) -> None:
    with pytest.raises(ConfigError, match="transform: expected None or a callable"):
        fastpipe.open(fielded).with_fields(("image",)).with_transform(5)


def test_fields_and_transforms_come_in_any_order_and_stay(
    fielded: Path, values: dict[str, list[Any]]
) -> None:
    """Also where the dataset has read samples before: files that are open are those of one dataset."""
    data = fastpipe.open(fielded).with_fields(("caption", "id"))
    assert data[0] == {"caption": values["caption"][0], "id": 0}
    assert data.select([5, 3])[0] == {"caption": values["caption"][5], "id": 0}
    both = data + data.select([7])
    assert both[FLAT_IMAGES] == {"caption": values["caption"][7], "id": FLAT_IMAGES}
    assert data[5] == {"caption": values["caption"][5], "id": 5}
    one = fastpipe.open(fielded).with_transform(len).with_fields(("caption", "id", "label"))
    assert one[4] == 3
    assert one.select([4])[0] == one.with_fields(("image", "id", "label"))[1] == 3


def test_a_transform_of_image_alone_is_refused(fielded: Path) -> None:
    def by_name(*, image: Any) -> dict[str, Any]:
        return {"image": image}

    assert fastpipe.open(fielded).with_transform(by_name)[0][0].ndim == 3
    with pytest.raises(
        ConfigError, match="expected a function of the sample, a dict with the fields"
    ):
        fastpipe.open(fielded).with_fields(("image", "boxes")).with_transform(by_name)


def test_a_damaged_file_is_named(fielded: Path, copied: Callable[[Path], Path]) -> None:
    copy = copied(fielded)
    (copy / FIELDS_FOLDER / "boxes.npy").write_bytes(b"nothing")
    dataset = fastpipe.open(copy).with_fields(("image", "boxes"))
    with pytest.raises(DatasetError, match=r"boxes\.npy is not a complete \.npy file"):
        dataset[0]
    assert fastpipe.open(copy).with_fields(("image",))[0]["image"].ndim == 3


def test_torchvision_is_asked_for_with_pictures_and_boxes_only(
    fielded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a second to import."""
    asked: list[str] = []
    monkeypatch.setattr(tensors, "_tv_tensors", lambda: asked.append("torchvision"))
    fastpipe.open(fielded)[0]
    fastpipe.open(fielded).with_fields(("caption", "label"))[0]
    assert asked == []
    fastpipe.open(fielded).with_fields(("boxes",))[0]
    assert "torchvision" in asked
