"""What users pass in place of a folder of images or of a dataset, and images that lie beside class folders."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.sources.people import photos

import fastpipe


def test_an_image_or_a_file_of_a_dataset_in_place_of_a_folder(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "ant/1.jpg", "bee/2.jpg")
    with pytest.raises(fastpipe.DatasetError, match=rf"is one image; pass .* {source}/ant"):
        fastpipe.open(source / "ant/1.jpg")
    fastpipe.pack(source, tmp_path / "packed")
    for name in ("index.npy", "dataset.json"):
        with pytest.raises(
            fastpipe.DatasetError,
            match=rf"is a file of a dataset; pass its folder: {tmp_path}/packed",
        ):
            fastpipe.open(tmp_path / "packed" / name)


def test_images_beside_class_folders_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = photos(tmp_path / "src", "ant/1.jpg", "bee/2.jpg", "3.jpg", "4.jpg")
    with caplog.at_level(logging.WARNING, "fastpipe"):
        assert len(fastpipe.open(source)) == 2
    assert "2 images beside the class folders are left out, such as 3.jpg" in caplog.text
