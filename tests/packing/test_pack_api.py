"""fastpipe.pack: the command's work from Python, with the same options and the same bytes."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from support.programs.cli_run import succeeded
from support.sources.pack_sources import digests, exif, jpeg_bytes, saved, write_large_folder

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures that every option changes something of."""
    root = write_large_folder(tmp_path_factory.mktemp("api") / "source", images=8)
    (root / "class-0" / "turned.jpg").write_bytes(saved(exif=exif(6)))
    (root / "class-0" / "progressive.jpg").write_bytes(saved(progressive=True))
    (root / "class-0" / "picture.png").write_bytes(saved("PNG"))
    (root / "class-0" / "lossy.webp").write_bytes(saved("WEBP"))
    damaged = bytearray(jpeg_bytes())
    damaged[-60:-50] = bytes(10)
    (root / "class-1" / "damaged.jpg").write_bytes(damaged)
    return root


OPTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"workers": 1}, ["--workers", "1"]),
    ({"max_size": 60}, ["--max-size", "60"]),
    ({"max_size": 60, "quality": 50}, ["--max-size", "60", "--quality", "50"]),
    ({"quality": 50}, ["--quality", "50"]),
    ({"lossless": True}, ["--lossless"]),
    ({"tile": 0}, ["--tile", "0"]),
    ({"shard_size": 100_000}, ["--shard-size", "100000"]),
    ({"shard_size": "0.1MB"}, ["--shard-size", "0.1MB"]),
    ({"seed": 3}, ["--seed", "3"]),
    ({"shuffle": False}, ["--no-shuffle"]),
    ({"damaged": "decode"}, ["--damaged", "decode"]),
    ({"exif": "apply"}, ["--exif", "apply"]),
    ({"keep_metadata": True}, ["--keep-metadata"]),
    ({"max_pixels": 5000}, ["--max-pixels", "5000"]),
    ({"max_scans": 2}, ["--max-scans", "2"]),
]


@pytest.fixture(scope="module")
def usual(source: Path) -> dict[str, str]:
    fastpipe.pack(source, source.with_name("usual"))
    return digests(source.with_name("usual"))


@pytest.mark.parametrize(("options", "flags"), OPTIONS, ids=str)
def test_each_option_does_what_it_does_in_the_command(
    source: Path, usual: dict[str, str], tmp_path: Path, options: dict[str, Any], flags: list[str]
) -> None:
    summary = fastpipe.pack(source, str(tmp_path / "packed"), **options)
    succeeded("pack", source, tmp_path / "command", *flags)
    assert digests(tmp_path / "packed") == digests(tmp_path / "command")
    assert (digests(tmp_path / "packed") == usual) == ("workers" in options)
    assert summary.info == PackedIndex(tmp_path / "packed").info


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"quality": 80, "lossless": True}, "--lossless does not go with --quality"),
    ({"shard_size": "much"}, "^shard_size: expected a number of bytes, or text such as"),
    ({"exif": "turn"}, "expected 'ignore' or 'apply'"),
    ({"on_error": "stop"}, "expected 'report' or 'fail'"),
    ({"damaged": "keep"}, "expected 'reject' or 'decode'"),
    ({"overwrite": 1}, "expected True or False"),
    ({"shuffle": None}, "expected True or False"),
    ({"workers": 0}, "expected 1 to"),
    ({"storage": "pixels"}, r"^storage: .*jpeg.*coefficients"),
]


def test_wrong_options_are_named(source: Path, tmp_path: Path) -> None:
    for options, words in WRONG:
        with pytest.raises(ConfigError, match=words):
            fastpipe.pack(source, tmp_path / "packed", **options)
        with pytest.raises(
            ConfigError, match=words if "shuffle" not in options else "keeps the order"
        ):
            fastpipe.Writer(tmp_path / "packed", **options)
        assert not (tmp_path / "packed").exists()
    for option, words in (
        ("quailty", "did you mean quality=?"),
        ("field", "did you mean fields=?"),
        ("callback", "it has dst, fields, classes, classes_from, background,"),
    ):
        with pytest.raises(TypeError, match=re.escape(words)):
            fastpipe.Writer(tmp_path / "packed", **{option: 90})


WRONG_OF_SOURCE: list[tuple[dict[str, Any], str]] = [
    (
        {"fields": "caption"},
        "fields: expected names of fields and their columns, such as .* got 'caption'",
    ),
    ({"fields": [3]}, r"fields: expected names .* got \[3\]"),
    ({"fields": 3}, "fields: expected names .* got 3"),
    ({"fields": {"a": None}}, "--field a=None: expected the name of a column, got None"),
    ({"fields": {3: "a"}}, "--field 3=a: .*name"),
    ({"image_root": 5}, "image_root: expected the path of a folder, got 5"),
]


def test_wrong_words_about_a_source_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("path,caption\na.jpg,a\n")
    for options, words in WRONG_OF_SOURCE:
        with pytest.raises(ConfigError, match=words):
            fastpipe.pack(tmp_path / "a.csv", tmp_path / "packed", **options)


def test_the_log_names_what_was_left_out(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "fastpipe.pack"):
        fastpipe.pack(source, tmp_path / "packed")
    assert f"{source}: 1 file was not packed ({tmp_path}/packed/rejected.jsonl lists" in caplog.text
    assert "class-1/damaged.jpg: the JPEG is " in caplog.text
    assert "without a class" not in caplog.text


def test_the_log_names_images_without_a_class(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = write_large_folder(tmp_path / "source", images=4)
    for name in ("beside.jpg", "._beside.jpg"):  # macOS makes the second one
        (root / name).write_bytes(jpeg_bytes())
    with caplog.at_level(logging.WARNING, "fastpipe.pack"):
        fastpipe.pack(root, tmp_path / "packed")
    assert (
        f"{root}: 1 image without a class or a row is left out, such as beside.jpg" in caplog.text
    )


def test_one_picture_in_several_classes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A link to a class folder, or a copy in a second class: a network would learn both."""
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            data = jpeg_bytes((16, 16), seed=number + 10 * (name == "dog"))
            (tmp_path / "photos" / name / f"{number}.jpg").write_bytes(data)
    (tmp_path / "photos/cat/again.jpg").write_bytes((tmp_path / "photos/cat/0.jpg").read_bytes())
    assert fastpipe.pack(tmp_path / "photos", tmp_path / "sound").contradictions == ""
    (tmp_path / "photos/kitten").symlink_to(tmp_path / "photos/cat")
    with caplog.at_level(logging.WARNING, "fastpipe.pack"):
        text = fastpipe.pack(tmp_path / "photos", tmp_path / "packed").contradictions
    words = (
        r"^3 images are in the source several times with different labels, such as "
        rf"cat/(\S+)\.jpg and kitten/\S+\.jpg; .*fastpipe\.duplicates\('{tmp_path}/packed'\)"
    )
    assert re.search(words, text), text
    assert text in caplog.text
    report = succeeded("pack", tmp_path / "photos", tmp_path / "again")
    assert "3 images are in the source several times with" in " ".join(report.split())


def test_a_summary_prints_one_short_line(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.jpg").write_bytes(jpeg_bytes())
    (source / "b.jpg").write_bytes(b"no picture")
    summary = fastpipe.pack(source, tmp_path / "packed")
    num_bytes = (tmp_path / "packed/shard-000000.tar").stat().st_size
    line = f"1 sample in 1 shard, {num_bytes:,} bytes; 1 rejected"
    assert repr(summary) == f"<fastpipe summary: {line}>"
    again = fastpipe.pack(source, tmp_path / "packed")
    assert "; packed before; " in str(again)
