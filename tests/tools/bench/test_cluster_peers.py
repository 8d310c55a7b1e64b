"""Tests of bench/cluster_peers.py: opened files are counted, workers found and killed, outputs read as they are."""

from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path

from bench.cluster_peers import Opened, Run, same, samples, struck_words


def made(files: dict[str, str], *, code: int | None = 0, found: Counter[str] | None = None) -> Run:
    return Run(code, 1.0, 1.0, 1.0, 10, "a worker", "", files, found or Counter())


def test_every_opening_of_a_file_counts(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(b"1")
    opened = Opened([tmp_path])
    for _ in range(3):
        (tmp_path / "1.jpg").read_bytes()
    list(tmp_path.iterdir())
    assert opened.look() == 3
    opened.close()


def test_what_outputs_come_to(tmp_path: Path) -> None:
    for number in range(2):
        with tarfile.open(tmp_path / f"{number}.tar", "w") as tar:
            tar.addfile(tarfile.TarInfo("a.jpg"))
            tar.addfile(tarfile.TarInfo(f"{number}.cls"))
    assert samples(tmp_path) == {"a.jpg": 2}
    first = made({"a": "1", "b": "2"})
    assert same(first, made({"a": "1", "b": "2"})) == "yes, all 2 files"
    assert same(first, made({"c": "1", "d": "2"})) == "the same files under other names"
    assert same(first, made({"a": "1", "b": "3"})) == "no: 1 of 2 files are equal"
    assert struck_words(made({"a": "1", "b": "2"}), first, 2) == "it ends; the same bytes"
    lost = made({"a": "1"}, found=Counter({"a.jpg": 2}))
    assert struck_words(lost, first, 2) == "it ends; 1 of 2 samples are there, 1 of them twice"
    assert struck_words(made({}, code=None), first, 2).startswith("no end within 300 s; 0 of 2")
