"""A source with more files than one task lists: listed by classes, cut by ranges of the order, to the same files."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.ray.sources import SHARD_BYTES, folder
from support.remote.memory_bucket import MemoryBucket
from support.sources.pack_sources import digests, files

import fastpipe
from fastpipe.packing.cluster import is_of_machine
from fastpipe.packing.shard.options import pack_options
from fastpipe.packing.steps import lists
from fastpipe.packing.steps.parts import Job, read_listed, read_parts
from fastpipe.packing.steps.work import run_step
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import Facts

OPTIONS = {"shard_size": SHARD_BYTES, "seed": 3}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two classes, some files that cannot be packed, one file beside the classes; and its pack in one piece."""
    made = folder(tmp_path / "source")
    (made / "notes.txt").write_text("beside the classes")
    fastpipe.pack(made, tmp_path / "local", **OPTIONS)
    return made


def in_steps(source: object, destination: object) -> None:
    for step in ("list", "convert", "make", "publish"):
        run_step(str(source), str(destination), step, None, OPTIONS)


def in_other_processes(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """As tasks get what they do and give what they found; in another order."""
    for item in reversed(list(items)):
        do, given = pickle.loads(pickle.dumps((function, item)))  # noqa: S301 (our own)
        yield pickle.loads(pickle.dumps(do(given)))  # noqa: S301


def test_a_run_that_a_machine_does_not_see_is_an_error_of_the_machine(source: Path, tmp_path: Path) -> None:
    job = Job.of(source, tmp_path / "packed", pack_options(**OPTIONS))
    with pytest.raises(FileNotFoundError, match="listed-0-0") as caught:
        lists._read_listed(job, ["listed-0-0"], 0, 1)
    assert is_of_machine(caught.value)


@pytest.mark.parametrize("most", [1, 5, 23])
def test_the_same_files_as_of_a_listing_in_memory(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(lists, "MOST_SOURCES", most)
    run_step(str(source), str(tmp_path / "packed"), "list", None, OPTIONS)
    job = Job.of(source, tmp_path / "packed", pack_options(**OPTIONS))
    assert read_listed(job).ranges == -(-24 // most)
    in_steps(source, tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")
    assert fastpipe.pack(source, tmp_path / "packed", **OPTIONS).already_packed


def test_all_that_is_known_of_the_sources_is_the_same(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = pack_options(**OPTIONS)
    facts = Facts.of(list_sources(source, options.seed, shuffle=True, how=options.source))
    job = Job.of(source, tmp_path / "packed", options)
    (tmp_path / "packed" / ".pack").mkdir(parents=True)
    whole = lists.list_all(job)
    shards = list(read_parts(job, "make"))
    monkeypatch.setattr(lists, "MOST_SOURCES", 4)
    listed = lists.list_all(job, in_other_processes)
    assert facts.stray == ["notes.txt"]
    for name, value in vars(facts).items():
        assert name == "taken_ns" or getattr(listed, name) == value, name
    assert replace(listed, taken_ns=0, ranges=1) == replace(whole, taken_ns=0)
    assert list(read_parts(job, "make")) == shards


def test_a_listing_that_was_interrupted_is_made_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MOST_SOURCES", 4)
    write, written = lists._write_range, []

    def fails(job: Job, listed: lists.Listed, names: object, number: int) -> None:
        if number == 3 and not written:
            written.append(number)
            raise KeyboardInterrupt
        write(job, listed, names, number)  # type: ignore[arg-type]

    monkeypatch.setattr(lists, "_write_range", fails)
    with pytest.raises(KeyboardInterrupt):
        in_steps(source, tmp_path / "packed")
    with pytest.raises(fastpipe.PackError, match="run --step list first"):
        run_step(str(source), str(tmp_path / "packed"), "make", None, OPTIONS)
    in_steps(source, tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")
    assert not (tmp_path / "packed" / ".pack").exists()


def test_of_a_bucket_by_way_of_a_bucket(
    source: Path, tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = bucket.upload(source, "source")
    fastpipe.pack(url, tmp_path / "whole", **OPTIONS)
    monkeypatch.setattr(lists, "MOST_SOURCES", 6)
    in_steps(url, bucket.url("packed"))
    assert bucket.objects("packed") == files(tmp_path / "whole")
