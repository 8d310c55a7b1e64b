"""Folders beside class folders that hold other files than images."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, write

import fastpipe
from fastpipe.errors import PackError
from fastpipe.sources.annotations import sidecar_files


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


def test_a_file_among_many_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of many files, only a sample is looked at for sidecar files: here the first and the sixth.
    monkeypatch.setattr(sidecar_files, "_NUM_CHECKED", 2)
    names = [f"{folder}/{number}.jpg" for folder in ("ant", "bee") for number in range(5)]
    source = photos(tmp_path / "src", *names)
    write(source / "manifests/labels.json", {"a": 1})
    texts = assumed(fastpipe.pack(source, tmp_path / "packed"))
    assert any("classes: manifests without any image" in text for text in texts)
