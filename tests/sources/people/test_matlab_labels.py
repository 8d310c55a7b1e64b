"""Labels in files of MATLAB: the message has a program that writes them into a CSV file."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkout import ROOT
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, write

import fastpipe
from fastpipe.errors import PackError
from fastpipe.sources.matlab_labels import GROUND_TRUTH_REMEDY, matlab_remedy


def run_named_program(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs the program that a message names, in a folder, and returns the file that it writes."""
    match = re.search(r'python -c "(.+?)" > (\S+?);', text)
    assert match is not None
    monkeypatch.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(match[1], {})
    return write(folder / match[2], printed.getvalue())


def save(file: Path, **values: Any) -> Path:
    scipy_io = pytest.importorskip("scipy.io")
    file.parent.mkdir(parents=True, exist_ok=True)
    scipy_io.savemat(file, values)
    return file


@becomes(
    "Flowers-102: `jpg/` beside `imagelabels.mat`; or this file",
    "refused, with a program that writes a CSV file; packed with that, 0 to 101",
    "labels.csv --image-root jpg --first-label 1",
)
def test_flowers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "flowers"
    photos(source / "jpg", "image_00001.jpg", "image_00002.jpg", "image_00003.jpg")
    file = save(source / "imagelabels.mat", labels=np.array([[3, 3, 1]]))
    for passed in (file, source):
        with pytest.raises(
            PackError, match="is a file of MATLAB, which fastpipe does not read"
        ) as caught:
            fastpipe.pack(passed, tmp_path / "packed")
    assert "fastpipe pack labels.csv DST --image-root jpg --first-label 1" in str(caught.value)
    assert "setid.mat beside it has the splits" in str(caught.value)
    (text,) = assumed(fastpipe.pack(source / "jpg", tmp_path / "packed"))
    assert "labels: none, though" in text

    table = run_named_program(text, source, monkeypatch)
    fastpipe.pack(
        table, tmp_path / "packed", image_root=source / "jpg", first_label=1, overwrite=True
    )
    assert labels(tmp_path) == {
        "image_00001.jpg": "2",
        "image_00002.jpg": "2",
        "image_00003.jpg": "0",
    }


@becomes(
    "Stanford Cars: `devkit/cars_train_annos.mat`",
    "refused, with a program that writes a CSV file; packed with that, 0 to 195",
    "labels.csv --image-root cars_train --first-label 1",
)
def test_cars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path / "cars_train", "00001.jpg", "00002.jpg")
    columns = [("bbox_x1", "O"), ("class", "O"), ("fname", "O")]
    cars = np.array([[(39, 14, "00001.jpg"), (36, 3, "00002.jpg")]], dtype=columns)
    file = save(tmp_path / "devkit" / "cars_train_annos.mat", annotations=cars)
    with pytest.raises(PackError, match="--image-root cars_train --first-label 1") as caught:
        fastpipe.pack(file, tmp_path / "packed")
    table = run_named_program(str(caught.value), file.parent, monkeypatch)
    fastpipe.pack(table, tmp_path / "packed", image_root=tmp_path / "cars_train", first_label=1)
    assert labels(tmp_path) == {"00001.jpg": "13", "00002.jpg": "2"}


@becomes(
    "ImageNet: `val/` without folders, `ILSVRC2012_validation_ground_truth.txt` and `meta.mat` of the "
    "devkit beside it",
    "no labels; a program that writes them by the names of folders is named",
    "val.csv --image-root val",
)
def test_ground_truth_of_imagenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in (1, 2, 3)]
    photos(tmp_path / "val", *names)
    kit = tmp_path / "ILSVRC2012_devkit_t12" / "data"
    write(kit / "ILSVRC2012_validation_ground_truth.txt", "2\n1\n2\n")
    # Its numbers are in another order than the names.
    columns = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")]
    synsets = np.array([[(1, "n02119789", "fox"), (2, "n01440764", "tench")]], dtype=columns)
    save(kit / "meta.mat", synsets=synsets.T)
    (text,) = assumed(fastpipe.pack(tmp_path / "val", tmp_path / "packed"))
    assert text.startswith("labels: none, though")
    assert GROUND_TRUTH_REMEDY in text

    table = run_named_program(text, kit, monkeypatch)
    fastpipe.pack(table, tmp_path / "packed", image_root=tmp_path / "val", overwrite=True)
    assert fastpipe.open(tmp_path / "packed").classes == ["n01440764", "n02119789"]
    assert labels(tmp_path) == dict(
        zip(names, ["n01440764", "n02119789", "n01440764"], strict=True)
    )


def test_folders_of_imagenet_beside_the_devkit_say_nothing(tmp_path: Path) -> None:
    photos(tmp_path / "val", "n01440764/ILSVRC2012_val_00000001.JPEG", "n02119789/2.JPEG")
    write(tmp_path / "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", "2\n1\n")
    assert not fastpipe.pack(tmp_path / "val", tmp_path / "packed").assumed


@pytest.mark.parametrize("name", ["digitStruct.mat", "cars_test_annos.mat", "meta.mat"])
def test_other_files_name_the_page(name: str) -> None:
    text = matlab_remedy(name)
    assert "columns path and label, by SciPy's loadmat" in text
    assert "`fastpipe docs own-labels`" in text


def test_the_program_for_flowers_with_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos(tmp_path / "jpg", "image_00001.jpg", "image_00002.jpg", "image_00003.jpg")
    save(tmp_path / "imagelabels.mat", labels=np.array([[3, 3, 1]]))
    splits = {"trnid": [[3, 1]], "valid": [[2]], "tstid": [[]]}
    save(tmp_path / "setid.mat", **{name: np.array(ids, int) for name, ids in splits.items()})
    page = (ROOT / "docs" / "how-to" / "own-labels.md").read_text("utf-8")
    program = page.partition("Flowers-102, with its splits:\n\n")[2].partition("\n\nThen")[0]
    monkeypatch.chdir(tmp_path)
    exec(textwrap.dedent(program), {})
    fastpipe.pack(
        tmp_path / "flowers.csv",
        tmp_path / "packed",
        image_root=tmp_path / "jpg",
        split="train",
        first_label=1,
    )
    assert labels(tmp_path) == {"image_00001.jpg": "2", "image_00003.jpg": "0"}
