"""A class number in the JSON of a sample that is of no class of its field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastpipe.errors import ImageError
from fastpipe.packing.pipeline import read_values
from fastpipe.sources.listing import Listing, Source, SourceField


def read_classes(folder: Path, classes: list[Any]) -> list[Any]:
    data = json.dumps({"tags": classes}).encode()
    file = folder / "a.json"
    file.write_bytes(data)
    state = file.stat()
    field = SourceField("tags", "classes", in_note=True, names=("ant", "bee"), column="json")
    listing = Listing(folder, [], [], [], fields=(field,))
    source = Source(
        "a.json", -1, len(data), state.st_mtime_ns, state.st_ctime_ns, parts=(((0, len(data)),),)
    )
    return list(read_values._read_parts(listing, source))


def test_numbers_and_names_of_classes(tmp_path: Path) -> None:
    assert read_classes(tmp_path, [1, "ant"]) == [["bee", "ant"]]


@pytest.mark.parametrize("number", [2, -1, 1.0, None])
def test_a_number_of_no_class_rejects_the_sample_alone(tmp_path: Path, number: Any) -> None:
    with pytest.raises(ImageError, match=f"expected class numbers of 0 to 1, got {number}"):
        read_classes(tmp_path, [0, number])
