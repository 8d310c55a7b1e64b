"""fastpipe.pack: the command's work from Python, with the same options and the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_run import fp, succeeded
from pack_sources import digests, exif, jpeg_bytes, saved, write_large_folder

import fastpipe
from fastpipe.errors import ConfigError, PackError
from fastpipe.format.index import Index


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures that every option changes something of."""
    root = write_large_folder(tmp_path_factory.mktemp("api") / "source", images=8)
    (root / "class-0" / "turned.jpg").write_bytes(saved(exif=exif(6)))
    (root / "class-0" / "progressive.jpg").write_bytes(saved(progressive=True))
    damaged = bytearray(jpeg_bytes())
    damaged[-60:-50] = bytes(10)
    (root / "class-1" / "damaged.jpg").write_bytes(damaged)
    return root


OPTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"workers": 1}, ["--workers", "1"]),
    ({"max_size": 60}, ["--max-size", "60"]),
    ({"max_size": 60, "quality": 50}, ["--max-size", "60", "--quality", "50"]),
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
    assert summary.info == Index(tmp_path / "packed").info


def test_progress_overwrite_and_on_error(source: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    packed = tmp_path / "packed"
    fastpipe.pack(source, packed, on_progress=lambda now: seen.append(now.files))
    assert seen == list(range(1, 12))
    assert fastpipe.pack(source, packed).already_packed
    with pytest.raises(PackError, match="holds a different dataset"):
        fastpipe.pack(source, packed, seed=1)
    assert not fastpipe.pack(source, packed, seed=1, overwrite=True).already_packed
    (source.parent / "bad" / "a").mkdir(parents=True, exist_ok=True)
    (source.parent / "bad" / "a" / "bad.jpg").write_bytes(b"no picture at all")
    with pytest.raises(PackError, match="cannot be packed: not an image"):
        fastpipe.pack(source.parent / "bad", tmp_path / "bad", on_error="fail")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quality": 80}, "--quality needs --max-size"),
        ({"shard_size": "much"}, "expected a size such as 256MB"),
        ({"exif": "turn"}, "expected 'ignore' or 'apply'"),
        ({"on_error": "stop"}, "expected 'report' or 'fail'"),
        ({"damaged": "keep"}, "expected 'reject' or 'decode'"),
        ({"overwrite": 1}, "expected True or False"),
        ({"shuffle": None}, "expected True or False"),
        ({"workers": 0}, "expected 1 to"),
    ],
)
def test_wrong_options_are_named(source: Path, tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fastpipe.pack(source, tmp_path / "packed", **options)
    with pytest.raises(ConfigError, match=words if "shuffle" not in options else "keeps the order"):
        fastpipe.Writer(tmp_path / "packed", **options)
    assert not (tmp_path / "packed").exists()


def test_the_command_still_names_a_wrong_size(source: Path, tmp_path: Path) -> None:
    result = fp("pack", source, tmp_path / "packed", "--shard-size", "much")
    assert result.exit_code == 2
    assert "expected a size such as 256MB or 1GiB" in " ".join(result.stderr.split())
