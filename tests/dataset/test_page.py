"""What a notebook shows of a dataset: its words, and pictures of its first samples."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.datasets.packed import damage
from support.pictures.drawn import FLAT_IMAGES, flat_number

import fastpipe
from fastpipe.engine.pictures import Pictures
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions


def pictures_of(page: str) -> list[Image.Image]:
    found = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)
    return [Image.open(io.BytesIO(base64.b64decode(each))) for each in found]


def words_of(page: str) -> str:
    return re.sub(r"<[^>]+>", "\n", page)


def test_words_and_pictures(fielded: Path) -> None:
    data = fastpipe.open(fielded)
    page = data._repr_html_()
    assert (
        f"{fielded}\n: {FLAT_IMAGES} samples\n3 classes: ant (13), bee (12), cow (12)\n"
        in words_of(page)
    )
    assert "caption (text)" in page
    shown = pictures_of(page)
    assert len(shown) == 8
    for number, picture in enumerate(shown):
        width, height = int(data["width"][number]), int(data["height"][number])
        assert picture.size == (96 * width // height, 96)
        image, label = data[number]
        assert flat_number(np.asarray(picture)[48, 5]) == flat_number(image[:, 0, 0].numpy())
        assert page.split("<figcaption>")[number + 1].startswith(f"{data.classes[label]}<")


def test_what_was_chosen_and_mixed(flat: Path) -> None:
    data = fastpipe.open(flat)
    some = data.select([30, 2]).with_labels([-1, 0]).with_column("score", [0.0, 1.0])
    page = some._repr_html_()
    assert f"2 samples of {FLAT_IMAGES}" in page
    assert "ant (1), bee (0), cow (0)" in page
    assert "score (column)" in page
    assert re.findall("<figcaption>(.*?)</", page) == ["no label", "ant"]
    numbers = [flat_number(np.asarray(each)[48, 5]) for each in pictures_of(page)]
    assert numbers == [flat_number(data[number][0][:, 0, 0].numpy()) for number in (30, 2)]
    other = (
        data.cropped(fastpipe.CenterCrop(), 8)
        .with_transform(lambda image: image * 0)
        .with_fields(["label"])
    )
    assert other._repr_html_() == data._repr_html_(), "the form of single samples changes nothing"
    assert "mixed 0.7 : 0.3" in fastpipe.mix({data: 0.7, data.select([30]): 0.3})._repr_html_()


def test_nothing_is_decoded_until_it_is_shown(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    rows = Pictures.rows

    def noted(pictures: Pictures, plan: object, *args: object, **options: object) -> object:
        decoded.append(1)
        return rows(pictures, plan, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Pictures, "rows", noted)
    data = fastpipe.open(flat).take(0.5).only(["bee"])
    repr(data)
    assert not decoded
    data.select([0, 1])._repr_html_()
    assert len(decoded) == 2


def test_a_damaged_sample_is_named(flat: Path, copied: Callable[[Path], Path]) -> None:
    copy = copied(flat)
    damage(copy, 1)
    page = fastpipe.open(copy)._repr_html_()
    assert len(pictures_of(page)) == 7
    assert re.search(r'alt="damaged" title="[^"]*sample 1\b', page)


def test_many_classes_with_any_names(tmp_path: Path) -> None:
    for number in range(15):
        folder = tmp_path / "source" / f"{number:02d} <b>&"
        folder.mkdir(parents=True)
        Image.new("RGB", (900 if number == 0 else 8, 8)).save(folder / "1.jpg")
    for data in (tmp_path / "source", tmp_path / "packed"):
        if data.name == "packed":
            pack(tmp_path / "source", data, PackOptions(workers=1, shuffle=False))
        page = fastpipe.open(data)._repr_html_()
        assert "00 &lt;b&gt;&amp; (1), " in page
        assert page.count(" (1)") == 12
        assert "11 &lt;b&gt;&amp; (1) and 3 more" in page
        assert [each.size for each in pictures_of(page)] == [(288, 96)] + [(96, 96)] * 7
