"""Tables whose columns have the pixels of images as numbers."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from support.sources.becomes import becomes
from support.sources.people import photos, write

import fastpipe
from fastpipe.errors import PackError

PIXELS = [[(100 * image + number) % 256 for number in range(64)] for image in range(2)]


def in_one_cell() -> str:
    rows = [f"{label},{' '.join(map(str, pixels))},Training" for label, pixels in enumerate(PIXELS)]
    return "\n".join(["emotion,pixels,Usage", *rows]) + "\n"


def in_columns(*names: str) -> str:
    rows = [f"{label},{','.join(map(str, pixels))}" for label, pixels in enumerate(PIXELS)]
    header = [",".join(["label", *names])] if names else []
    return "\n".join([*header, *rows]) + "\n"


PIXEL_NAMES = [f"pixel{number}" for number in range(1, 65)]
PLACES = [f"{row}x{column}" for row in range(1, 9) for column in range(1, 9)]


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize(
    ("text", "place"),
    [
        (in_one_cell(), "the column 'pixels'"),
        (in_columns(*PIXEL_NAMES), "the columns pixel1 to pixel64"),
        (in_columns(*PLACES), "the columns 1x1 to 8x8"),
        (in_columns(), "each line"),
    ],
)
@becomes(
    "FER2013: `emotion,pixels,Usage` with `70 80 82 ...`; MNIST as CSV: `label,pixel1,...`, `label,1x1,...`, "
    "or no header; also the folder that has this table alone",
    "refused, with the program that writes the images",
)
def test_tables_of_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, place: str, is_folder: bool
) -> None:
    table = write(tmp_path / "src/numbers.csv", text)
    with pytest.raises(PackError) as caught:
        fastpipe.pack(table.parent if is_folder else table, tmp_path / "none")
    message = str(caught.value)
    assert (
        f"the pixels of images are numbers in {place}, and fastpipe does not read these" in message
    )
    # The program that the message shows writes the images.
    monkeypatch.chdir(table.parent)
    program = message.partition("\n")[2].replace("    with", "with").replace("\n    ", "\n")
    exec(program, {"fastpipe": fastpipe, "csv": csv, "np": np})
    data = fastpipe.open(table.parent / "DST")
    assert list(data["label"]) == [0, 1]
    for index, pixels in enumerate(PIXELS):
        image = np.asarray(data[index][0])
        assert image[0].ravel().tolist() == pixels


@becomes("a table of images with many columns of small numbers", "read as before")
def test_numbers_that_are_no_pixels(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    names = ",".join(f"p{number}" for number in range(70))
    numbers = ",".join(["1"] * 70)
    table = write(tmp_path / "t.csv", f"image,{names}\na.jpg,{numbers}\nb.jpg,{numbers}\n")
    fastpipe.pack(table, tmp_path / "packed", fields=["tags=p*:classes"])
    assert list(fastpipe.open(tmp_path / "packed")["key"]) == ["a.jpg", "b.jpg"]


@becomes(
    "MNIST as it is downloaded: `train-images-idx3-ubyte.gz`, or unpacked",
    "refused: the format is named",
    "fastpipe.Writer",
)
@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("source", ["", "MNIST/raw", "MNIST/raw/{}"])
def test_arrays_of_mnist(tmp_path: Path, source: str, ending: str) -> None:
    raw = tmp_path / "src/MNIST/raw"
    raw.mkdir(parents=True)
    images = f"train-images-idx3-ubyte{ending}"
    for name in (images, f"train-labels-idx1-ubyte{ending}"):
        (raw / name).write_bytes(b"\x00\x00\x08\x01\x00\x00\x00\x02\x01\x02")
    # Of a folder, any of its files is named.
    words = (
        rf"ubyte{ending} is a file of arrays in the format IDX, as of MNIST, .*fastpipe[.]Writer"
    )
    with pytest.raises(PackError, match=words):
        fastpipe.pack(tmp_path / "src" / source.format(images), tmp_path / "packed")
