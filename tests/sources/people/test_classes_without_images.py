"""Folders beside class folders that hold other files than images."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, write

import fastpipe
from fastpipe.errors import PackError
from fastpipe.sources.kinds import list_sources


@becomes(
    "`images/` beside a folder of files of any other kind, such as `notes/odd.foo`",
    "refused, with the folder to pass",
    "SRC/images",
)
@becomes(
    "class folders beside a folder without an image, also by `--format imagefolder`",
    "the class without images is named, with one of its files",
    "--classes-from FILE",
)
def test_a_folder_of_other_files(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/a.jpg", "images/b.jpg")
    write(source / "notes/deep/odd.foo", "hello")
    with pytest.raises(PackError) as caught:
        fastpipe.pack(source, tmp_path / "none")
    assert "only the folder images has images, and notes has none" in str(caught.value)
    assert f"Pass {source / 'images'}" in str(caught.value)

    for folder, options in ((source, {"format": "imagefolder"}), (tmp_path / "cats", {})):
        photos(folder, "images/a.jpg", *(["cat/c.jpg"] if not options else []))
        write(folder / "notes/deep/odd.foo", "hello")
        summary = fastpipe.pack(folder, tmp_path / "packed", overwrite=True, **options)
        assert any(
            "classes: notes without any image, but with files such as notes/deep/odd.foo" in text
            for text in assumed(summary)
        )


@becomes(
    "a class whose images have no ending, beside others with one", "the classes of the folders"
)
def test_images_without_an_ending(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "cat/a.jpg", "dog/b.jpg")
    (source / "dog/b.jpg").rename(source / "dog/b")
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert labels(tmp_path) == {"cat/a.jpg": "cat", "dog/b": "dog"}
    assert assumed(summary) == []


def test_a_few_other_files_among_many_images(tmp_path: Path) -> None:
    names = [f"{folder}/{number}.jpg" for folder in ("ant", "bee") for number in range(5000)]
    for name in names:
        write(tmp_path / "src" / name, "")
    write(tmp_path / "src/manifests/labels.json", {"a": 1})
    photos(tmp_path / "src", "ant/0.jpg", "bee/0.jpg")
    listing = list_sources(tmp_path / "src", 0)
    assert any("classes: manifests without any image" in entry.text for entry in listing.assumed)
