"""WebDataset tars with KEY.0.jpg and KEY.1.jpg; and shards of our own without images, packed again."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sources.pack_sources import jpeg_bytes
from support.sources.tars import write_tar

import fastpipe


def packed(source: Path, **options: Any) -> fastpipe.Dataset:
    fastpipe.pack(source, source.parent / "packed", **options)
    return fastpipe.open(source.parent / "packed")


def lists(data: fastpipe.Dataset, field: str) -> dict[str, list[int]]:
    """The widths of the pictures of each sample, by its key."""
    found = {}
    fields = data.with_fields([field, "key"])
    for number in range(len(data)):
        sample = fields[number]
        found[sample["key"]] = [picture.shape[2] for picture in sample[field]]
    return dict(sorted(found.items()))


def picture(width: int) -> bytes:
    return jpeg_bytes((width, 40), seed=width)


def test_numbered_pictures_are_a_list(tmp_path: Path) -> None:
    members = {}
    for number in range(5):
        for place in reversed(range(number)):
            members[f"{number}.{place}.jpg"] = picture(50 + 10 * place)
        members[f"{number}.json"] = json.dumps([number]).encode()
    data = packed(write_tar(tmp_path / "a.tar", members))
    assert {name: field.kind for name, field in data.fields.items()} == {
        "images": "images",
        "json": "json",
    }
    # A sample without a picture and without a label is none, as ever: its members are dropped.
    assert lists(data, "images") == {
        str(number): [50 + 10 * place for place in range(number)] for number in range(1, 5)
    }
    with fastpipe.loader(data, 2, size=16, fields=["images", "json"], train=False) as loader:
        assert sum(len(batch["json"]) for batch in loader) == 4


def test_more_than_ten_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    members = {f"a.{place}.png": png(20 + place) for place in range(12)}
    data = packed(write_tar(tmp_path / "a.tar", {**members, "a.cls": b"1"}))
    assert lists(data, "images") == {"a": [20 + place for place in range(12)]}
    assert data["label"].tolist() == [1]


def png(width: int) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.zeros((30, width, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


def test_lists_beside_an_image_and_with_names(tmp_path: Path) -> None:
    members = {
        "a.jpg": picture(60),
        "a.cam.0.jpg": picture(61),
        "a.cam.1.jpg": picture(62),
        "a.left.jpg": picture(60),
        "b.jpg": picture(63),
        "b.left.jpg": picture(63),
    }
    data = packed(write_tar(tmp_path / "a.tar", members))
    kinds = {name: field.kind for name, field in data.fields.items()}
    assert kinds == {"cam": "images", "left": "image"}
    assert lists(data, "cam") == {"a.jpg": [61, 62], "b.jpg": []}
    assert data[0][0].shape[0] == 3


def test_pictures_alone_are_images_with_a_dot_in_their_names(tmp_path: Path) -> None:
    members = {f"{name}.{number}.jpg": picture(50) for name in ("cat", "dog") for number in (0, 1)}
    source = write_tar(tmp_path / "a.tar", members)
    with pytest.raises(fastpipe.PackError, match="An ending begins at the first dot"):
        packed(source)


def test_a_user_names_the_list_or_one_picture(tmp_path: Path) -> None:
    members = {"a.0.jpg": picture(50), "a.1.jpg": picture(51), "a.txt": b"two"}
    source = write_tar(tmp_path / "a.tar", members)
    data = packed(source, fields={"views": "0.jpg:images"})
    assert lists(data, "views") == {"a": [50, 51]}
    first = packed(source, image_column="0.jpg", fields={"text": "txt"}, overwrite=True)
    assert first[0][0].shape == (3, 40, 50)


def test_shards_of_ours_without_images_are_packed_again(tmp_path: Path) -> None:
    fields = {"pages": "images", "turns": "json", "latent": "array"}
    with fastpipe.Writer(tmp_path / "data", fields, classes=["a", "b"]) as writer:
        for number in range(9):
            image = [picture(80)] if number % 4 == 0 else []
            pages = [picture(50 + place) for place in range(number % 3)]
            latent = np.full((2, 2), number, np.float16)
            key = f"chat/{number}"
            values = {"pages": pages, "turns": [number], "latent": latent}
            writer.add(*image, label=number % 2, key=key, **values)
    first = fastpipe.open(tmp_path / "data")
    fastpipe.pack(tmp_path / "data", tmp_path / "again", shuffle=False)
    again = fastpipe.open(tmp_path / "again")
    assert lists(again, "pages") == lists(first, "pages")
    assert again.classes == ["a", "b"]

    def rows(data: fastpipe.Dataset) -> dict[str, Any]:
        index = data.index
        columns = zip(
            data["key"],
            data["label"].tolist(),
            data["width"].tolist(),
            index.hashes(np.arange(len(index)), "identity").tolist(),
            data["turns"],
            strict=True,
        )
        return {key: rest for key, *rest in columns}

    assert rows(again) == rows(first)


def numbered_photos(ending: str) -> dict[str, bytes]:
    """Four photos, named image.0 and so on, two of a key, each with a member of its own."""
    members = {}
    for name in ("a.0", "a.1", "b.0", "b.1"):
        members[f"{name}.jpg"] = picture(50)
        members[f"{name}.{ending}"] = b"1"
    return members


REASON = "because a key ends at the first dot: a.0.jpg, a.1.jpg are one sample a"


def test_numbered_pictures_with_labels_of_their_own_are_refused(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "a.tar", numbered_photos("cls"))
    advice = "such as a_0.jpg for a.0.jpg"
    for read in (packed, fastpipe.open):
        with pytest.raises((fastpipe.PackError, fastpipe.DatasetError)) as refused:
            read(source)
        message = str(refused.value)
        assert f"4 images became 2 samples, {REASON}" in message
        assert "They have their own .cls" in message
        assert advice in message
        assert "--field images=0.jpg" in message
    # A user who names the list has decided.
    data = packed(source, fields={"images": "0.jpg"})
    assert lists(data, "images") == {"a": [50, 50], "b": [50, 50]}


def test_lists_of_pictures_are_mentioned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    members = {**numbered_photos("txt"), "a.cls": b"0", "b.cls": b"1"}
    source = write_tar(tmp_path / "a.tar", members)
    summary = fastpipe.pack(source, tmp_path / "packed")
    (lists_text,) = [str(text) for text in summary.assumed if "lists" in str(text)]
    assert f"images: 4 images became lists of 2 samples, {REASON}" in lists_text
    assert "They have their own .txt" in lists_text
    assert "(--field images=0.jpg)" in lists_text

    fastpipe.open(f"{tmp_path}/*.tar")
    assert f"4 images became lists of 2 samples, {REASON}" in caplog.text


def test_lists_without_members_of_their_own_are_not_doubted(tmp_path: Path) -> None:
    members = {"a.0.jpg": picture(50), "a.1.jpg": picture(51), "a.txt": b"two"}
    source = write_tar(tmp_path / "a.tar", members)
    summary = fastpipe.pack(source, tmp_path / "packed")
    (lists_text,) = [str(text) for text in summary.assumed]
    assert lists_text == (
        f"images: 2 images became lists of 1 sample, {REASON} "
        "(--field images=0.jpg --field txt=txt)"
    )
