"""Files that were deleted from a source: their samples stay, and `add` and `pack` say so."""

from __future__ import annotations

import pathlib
import re
import shutil
from pathlib import Path

import pytest
from support.datasets.growing import photos

import fastpipe
from fastpipe.errors import PackError


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a source, and the dataset that was packed of it."""
    photos(tmp_path / "src", 30)
    fastpipe.pack(tmp_path / "src", tmp_path / "dst", workers=2)
    return tmp_path


def delete(work: Path, count: int) -> list[str]:
    """Deletes so many files of the source, and returns their paths in it."""
    files = sorted((work / "src/c1").iterdir())[:count]
    for file in files:
        file.unlink()
    return [f"c1/{file.name}" for file in files]


def add(work: Path, source: str = "src", **options: str) -> str:
    """What `fastpipe add` says of missing files."""
    grown = fastpipe.add(work / source, work / "dst", **options)
    texts = [assumption.text for assumption in grown.assumed]
    return " ".join(text for text in texts if "any more" in text)


@pytest.mark.parametrize("others", ["nothing", "new", "broken"])
def test_add_says_which_samples_to_remove(work: Path, others: str) -> None:
    deleted = delete(work, 2)
    if others == "new":
        photos(work / "src", 1, first=100)
    elif others == "broken":
        (work / "src/c0/broken.jpg").write_bytes(b"no picture")
    text = add(work)
    assert text.startswith(f"2 samples are not in {work / 'src'} any more, such as c1/")
    lines = ", ".join(deleted)
    assert text.endswith(
        f"they stay. To remove them: fastpipe remove {work / 'dst'} --keys FILE, with these lines in "
        f"FILE: {lines}"
    )
    fastpipe.remove(work / "dst", keys=deleted)
    assert add(work) == ""


def test_the_line_for_many_samples_works(work: Path) -> None:
    deleted = delete(work, 7)
    line = re.search(r"fastpipe\.remove\(.*\.exists\(\)\]\)", add(work))
    assert line is not None
    exec(line[0], {"fastpipe": fastpipe, "pathlib": pathlib})
    keys = set(fastpipe.open(work / "dst")["key"])
    assert len(keys) == 23
    assert not keys & set(deleted)


def test_another_source_has_lost_nothing(work: Path) -> None:
    photos(work / "more", 6, first=100)
    assert add(work, "more") == ""
    # Samples of "more" are not in "src", and never were.
    assert add(work) == ""
    next((work / "more/c0").iterdir()).unlink()
    assert add(work, "more").startswith("1 sample is not in ")
    assert add(work) == ""


def test_most_files_were_deleted_on_purpose(work: Path) -> None:
    shutil.rmtree(work / "src/c0")
    shutil.rmtree(work / "src/c1")
    assert add(work) == ""


def test_a_renamed_copy_keeps_its_sample(work: Path) -> None:
    file = next((work / "src/c1").iterdir())
    file.rename(file.with_name("renamed.jpg"))
    assert add(work, by="content") == ""


def test_images_of_other_splits_are_not_missing(tmp_path: Path) -> None:
    photos(tmp_path / "src/train", 12)
    photos(tmp_path / "src/val", 6, first=50)
    fastpipe.pack(tmp_path / "src", tmp_path / "dst", split="train")
    assert add(tmp_path, split="train") == ""
    assert add(tmp_path, split="val") == ""
    assert add(tmp_path, split="train") == ""


def test_pack_names_no_new_images_where_files_are_gone_only(work: Path) -> None:
    deleted = delete(work, 1)
    with pytest.raises(PackError) as caught:
        fastpipe.pack(work / "src", work / "dst")
    text = str(caught.value)
    assert "1 file is gone. To remove its sample: fastpipe remove" in text
    assert f"with this line in FILE: {deleted[0]}. " in text
    assert "new images" not in text
