"""Tables in other encodings than UTF-8, as Excel and other programs of Windows write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.programs.cli_run import succeeded
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos

import fastpipe
from fastpipe.errors import ConfigError, PackError

TEXT = "path,label\na.jpg,Kätzchen\né.jpg,dog\n"
EXPECTED = {"a.jpg": "Kätzchen", "é.jpg": "dog"}
LINES = '{"path": "a.jpg", "label": "Kätzchen"}\n{"path": "é.jpg", "label": "dog"}\n'
ARRAY = '[{"path": "a.jpg", "label": "Kätzchen"},\n {"path": "é.jpg", "label": "dog"}]'
TABLES = {
    "a.csv": TEXT,
    "b.csv": TEXT.replace(",", ";"),
    "c.csv": TEXT.replace(",", "\t").replace("\n", "\r\n"),
    "d.txt": "a.jpg Kätzchen\né.jpg dog\n",
    "e.jsonl": LINES,
    "f.json": ARRAY,
    "g.json": LINES,
}


@becomes(
    'UTF-16 with or without BOM (Excel\'s "Unicode text"), UTF-32, UTF-8 with BOM',
    "read, by their first bytes",
)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("name", TABLES)
def test_encodings_that_the_first_bytes_tell(tmp_path: Path, name: str, encoding: str) -> None:
    photos(tmp_path, *EXPECTED)
    (tmp_path / name).write_bytes(TABLES[name].encode(encoding))
    fastpipe.pack(tmp_path / name, tmp_path / "packed")
    assert labels(tmp_path) == EXPECTED


@becomes(
    "cp1252 (Excel on Windows)",
    "rows with other letters are rejected, with the option",
    "--encoding cp1252",
)
@pytest.mark.parametrize("name", TABLES)
def test_an_encoding_that_a_user_names(tmp_path: Path, name: str) -> None:
    photos(tmp_path, *EXPECTED)
    (tmp_path / name).write_bytes(TABLES[name].encode("cp1252"))
    if not name.endswith(".json"):  # it may be COCO's
        with pytest.raises(PackError, match="--encoding says another one, such as cp1252 of Excel"):
            fastpipe.pack(tmp_path / name, tmp_path / "packed")
    fastpipe.pack(tmp_path / name, tmp_path / "packed", encoding="cp1252")
    assert labels(tmp_path) == EXPECTED


@becomes("the same with such letters in the header row", "refused", "--encoding cp1252")
def test_a_header_in_cp1252(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg")
    (tmp_path / "a.csv").write_bytes("path;Größe;label\na.jpg;1;cat\n".encode("cp1252"))
    with pytest.raises(
        PackError,
        match=r"as UTF-8 text; got a byte 0xf6\. --encoding says another one, such as cp1252",
    ):
        fastpipe.pack(tmp_path / "a.csv", tmp_path / "packed")
    succeeded("pack", tmp_path / "a.csv", tmp_path / "packed", "--encoding", "cp1252")
    assert labels(tmp_path) == {"a.jpg": "cat"}
    assert list(fastpipe.open(tmp_path / "packed").fields) == ["gr__e"]


def test_a_wrong_encoding(tmp_path: Path) -> None:
    photos(tmp_path, *EXPECTED)
    (tmp_path / "a.csv").write_text(TEXT, "utf-8")
    with pytest.raises(
        PackError, match=r"a\.csv: expected text in ascii .*; --encoding says another one"
    ):
        fastpipe.pack(tmp_path / "a.csv", tmp_path / "packed", encoding="ascii")
    for name in ("klingon", "hex"):
        with pytest.raises(
            ConfigError, match=r"^encoding: expected an encoding of text that Python knows"
        ):
            fastpipe.pack(tmp_path / "a.csv", tmp_path / "packed", encoding=name)
    with pytest.raises(PackError, match=r"^encoding: it has no effect on a folder of images"):
        fastpipe.pack(photos(tmp_path / "only", "x.jpg"), tmp_path / "other", encoding="utf-8")


@becomes(
    "`fotos/IMG_0.JPG`, and beside `fotos/` a table that has `fotos\\img_0.jpg`, in cp1252",
    "the images without labels; the command that packs the table is named",
    "the table with --encoding cp1252 and its column of labels",
)
@pytest.mark.parametrize("encoding", ["cp1252", "utf-8"])
@pytest.mark.parametrize(
    "written", ["fotos\\img_{}.jpg", "fotos/img_{}.jpg", "fotos/IMG_{}.JPG", "img_{}"]
)
def test_a_table_above_that_excel_wrote(tmp_path: Path, written: str, encoding: str) -> None:
    photos(tmp_path, "src/fotos/IMG_0.JPG", "src/fotos/IMG_1.JPG")
    table = tmp_path / "src/etiquetas.csv"
    rows = [written.format(0) + ";Árbol", written.format(1) + ";Niño"]
    text = "\r\n".join(["archivo;clase", *rows, ""])
    table.write_bytes(text.encode(encoding))
    (notice,) = assumed(fastpipe.pack(tmp_path / "src/fotos", tmp_path / "images"))
    options = " --label-column clase"
    if encoding == "cp1252":
        options = " --encoding cp1252" + options
    images = tmp_path / "src/fotos"
    assert (
        f"fastpipe pack {table} DST --image-root {images} --image-column archivo{options}. "
        in notice
    )
    with pytest.raises(PackError, match=f"{table}.*{options}"):
        fastpipe.pack(tmp_path / "src", tmp_path / "root")
    choices: dict[str, Any] = {"image_root": images, "image_column": "archivo"}
    fastpipe.pack(table, tmp_path / "packed", label_column="clase", encoding=encoding, **choices)
    assert sorted(filter(None, labels(tmp_path).values())) == ["Niño", "Árbol"]


def test_a_table_that_excel_wrote_needs_one_more_command(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    table = tmp_path / "etiquetas.csv"
    table.write_bytes("archivo;clase\na.jpg;Árbol\nb.jpg;Niño\n".encode("cp1252"))
    options = "[.] Pass --encoding cp1252 --label-column clase$"
    with pytest.raises(PackError, match=options):
        fastpipe.pack(table, tmp_path / "packed")
