"""Classes that come with `fastpipe add`, and are called nearly like one of the dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.sources.pack_sources import jpeg_bytes

import fastpipe


def photos(folder: Path, classes: list[str], seed: int = 0) -> Path:
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        picture = jpeg_bytes((32, 24), seed=seed + number)
        (folder / name / f"{seed + number}.jpg").write_bytes(picture)
    return folder


def add(source: Path, packed: Path, **options: Any) -> list[str]:
    """What `fastpipe add` says of new classes."""
    grown = fastpipe.add(source, packed, **options)
    return [text for text in map(str, grown.assumed) if "is new" in text]


@pytest.mark.parametrize("is_sorted", [True, False])
def test_a_class_in_other_letter_case(tmp_path: Path, is_sorted: bool) -> None:
    packed = tmp_path / "dst"
    fastpipe.pack(photos(tmp_path / "src", ["cat", "dog"]), packed)
    if not is_sorted:
        fastpipe.add(photos(tmp_path / "ant", ["ant"], seed=20), packed)
    more = photos(tmp_path / "more", ["Dog"], seed=10)
    assert add(more, packed) == [
        "the class 'Dog' is new: it differs from 'dog', which the dataset has, in letter case, spaces "
        "or separators alone, and is another class. If they mean the same, undo it: fastpipe remove "
        f"{packed} --class Dog; then name the class 'dog' in the source, such as its folder, and add "
        "it again"
    ]
    # What it names.
    fastpipe.remove(packed, classes="Dog")
    (more / "Dog").rename(more / "dog")
    assert add(more, packed) == []
    data = fastpipe.open(packed)
    counts = dict(zip(data.classes, data.class_counts, strict=True))
    assert (counts["dog"], counts["Dog"]) == (2, 0)


def test_classes_that_the_user_has_named(tmp_path: Path) -> None:
    packed = tmp_path / "dst"
    fastpipe.pack(photos(tmp_path / "src", ["cat", "dog"]), packed)
    more = photos(tmp_path / "more", ["Dog"], seed=10)
    texts = add(more, packed, classes_from=["cat", "dog", "Dog"])
    assert "differs from" not in str(texts)


def test_a_class_of_another_name(tmp_path: Path) -> None:
    packed = tmp_path / "dst"
    fastpipe.pack(photos(tmp_path / "src", ["bee", "cat"]), packed)
    (text,) = add(photos(tmp_path / "more", ["ant", "bee"], seed=10), packed)
    assert text.startswith("the class 'ant' is new, and comes last here: it is 2")
