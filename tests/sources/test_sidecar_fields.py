"""Files beside images that are called like them, as captions and latents lie there -> fields by their ending."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.programs.cli_run import failed, succeeded
from support.sources.pack_sources import jpeg_bytes, saved

import fastpipe
from fastpipe.errors import PackError

NAMES = ("cat/a", "cat/b.c", "dog/ä")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for number, name in enumerate(NAMES):
        image = folder / f"{name}.jpg"
        image.parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(jpeg_bytes((30, 20), seed=number))
        (folder / f"{name}.txt").write_text(f" a photo {number}\n", encoding="utf-8-sig")
        np.save(folder / f"{name}.npy", np.full((4, 2), number, np.float16))
        np.save(folder / f"{name}.depth.npy", np.full((20, 30), number, np.float32))
        (folder / f"{name}.seg.png").write_bytes(saved("PNG", "L", (30, 20)))
        (folder / f"{name}.json").write_text(f'{{"number": {number}}}')
    return folder


@pytest.fixture
def captioned(tmp_path: Path) -> Path:
    """Images with a caption beside each, and nothing else."""
    folder = tmp_path / "captioned"
    for number, name in enumerate(NAMES):
        image = folder / f"{name}.jpg"
        image.parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(jpeg_bytes((30, 20), seed=number))
        (folder / f"{name}.txt").write_text(f"a photo {number}\n")
    return folder


def packed(source: Path, fields: dict[str, str], **options: Any) -> fastpipe.Dataset:
    destination = source.parent / "packed"
    fastpipe.pack(source, destination, fields=fields, workers=1, **options)
    return fastpipe.open(destination)


def test_each_ending_is_a_field(source: Path) -> None:
    fields = {
        "caption": "txt",
        "latent": "*.npy",
        "depth": ".depth.npy:map",
        "seg": "seg.png",
        "note": "json",
    }
    data = packed(source, fields)
    kinds = {name: field.kind for name, field in data.fields.items()}
    assert kinds == {
        "caption": "text",
        "latent": "array",
        "depth": "map",
        "seg": "mask",
        "note": "json",
    }
    assert data.classes == ["cat", "dog"]
    found = {}
    for sample in data.with_fields(["key", "label", *fields]):
        found[sample["key"]] = sample
    assert sorted(found) == sorted(f"{name}.jpg" for name in NAMES)
    for number, name in enumerate(NAMES):
        sample = found[f"{name}.jpg"]
        assert sample["caption"] == f"a photo {number}"
        assert sample["note"] == {"number": number}
        assert sample["label"] == (name[:3] == "dog")
        assert sample["latent"].unique().tolist() == [number]
        assert sample["depth"].shape == (20, 30)
        assert sample["seg"].shape == (20, 30)


def test_images_without_classes_and_names_with_both_endings(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg_bytes((30, 20), seed=number))
        (tmp_path / f"{number}.jpg.txt").write_text(f"{number}")
    data = packed(tmp_path, {"caption": "txt"})
    assert sorted(data["caption"][:]) == ["0", "1", "2"]
    assert data.classes == []


def test_what_has_no_file_is_said(captioned: Path, caplog: pytest.LogCaptureFixture) -> None:
    (captioned / "dog" / "ä.txt").unlink()
    with caplog.at_level("WARNING", "fastpipe.pack"):
        data = packed(captioned, {"caption": "txt"})
    assert sorted(data["caption"][:]) == ["", "a photo 0", "a photo 1"]
    assert "caption: none for 1 image without a file that ends in .txt" in caplog.text


def test_the_files_that_are_read_are_not_called_unread(captioned: Path, tmp_path: Path) -> None:
    printed = succeeded("pack", captioned, tmp_path / "one")
    words = " ".join(printed.replace("│", "").split())
    assert "--field caption=txt packs the text of a.txt with a.jpg" in words
    printed = succeeded("pack", captioned, tmp_path / "two", "--field", "caption=txt")
    assert "not read" not in printed
    assert "caption (text)" in printed


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("caption=caption", "no image in .* has a file of the same name with the ending .caption"),
        ("boxes=txt:boxes", "expected one of the kinds text, json, mask, image, array, map"),
        ("other=xyz", "expected one of the kinds"),
    ],
)
def test_what_no_image_has_is_refused(
    captioned: Path, tmp_path: Path, field: str, words: str
) -> None:
    printed = failed(1, "pack", captioned, tmp_path / "data", "--field", field)
    assert re.search(words, " ".join(printed.split()))


def test_a_text_that_cannot_be_read_is_rejected(captioned: Path) -> None:
    (captioned / "cat" / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(PackError, match=r"cat/a.txt: 'utf-8' codec can't decode"):
        packed(captioned, {"caption": "txt"}, on_error="fail")


def test_a_changed_text_is_another_captioned(captioned: Path) -> None:
    first = packed(captioned, {"caption": "txt"})
    (captioned / "cat" / "a.txt").write_text("another")
    second = packed(captioned, {"caption": "txt"}, overwrite=True)
    assert first.index.fingerprint != second.index.fingerprint
    assert "another" in second["caption"][:].tolist()
