"""A pack step by step: the same files as in one piece."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.programs.cli_run import failed, succeeded
from support.ray.sources import MAKERS, SHARD_BYTES, folder
from support.remote.memory_bucket import MemoryBucket
from support.sources.pack_sources import digests, files

import fastpipe
from fastpipe.errors import PackError
from fastpipe.packing.cluster import is_of_machine
from fastpipe.packing.shard.journal import SPOOL_FOLDER
from fastpipe.packing.shard.options import pack_options
from fastpipe.packing.steps import lists
from fastpipe.packing.steps.parts import Job, read_listed, read_parts
from fastpipe.packing.steps.work import convert_step, make_step, run_step
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import Facts
from fastpipe.store.store import Folder

OPTIONS = "--shard-size", SHARD_BYTES
STEPS = ("list", "convert", "make", "publish")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder, with files that cannot be packed and one beside the classes; and its pack in one piece."""
    made = folder(tmp_path / "source")
    (made / "notes.txt").write_text("beside the classes")
    fastpipe.pack(made, tmp_path / "local", shard_size=SHARD_BYTES)
    return made


def step(source: object, destination: object, name: str, part: str | None = None) -> str:
    return succeeded("pack", source, destination, *OPTIONS, "--step", name, *(["--part", part] if part else []))


def steps(source: object, destination: object, *names: str) -> None:
    """All of them, if none is named."""
    for name in names or STEPS:
        step(source, destination, name)


def refused(source: object, destination: object, name: str, *more: object) -> str:
    return failed(1, "pack", source, destination, *OPTIONS, "--step", name, *more)


def test_steps_in_parts_make_the_same_files(source: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    assert re.search(r"listed 24 files; next: --step make \(\d+ shards\)", step(source, packed, "list"))
    assert "nothing to convert" in step(source, packed, "convert")
    for part in ("3/3", "1/3", "2/3", "1/3"):
        said = step(source, packed, "make", part)
    assert "made 0 shards" in said
    assert "packed 22 samples" in step(source, packed, "publish")
    assert digests(packed) == digests(tmp_path / "local")
    assert "already packed" in step(source, packed, "list")


@pytest.mark.parametrize("harm", ["vanishes", "is cut"])
def test_a_shard_that_is_lost_while_others_are_made_is_made_again(source: Path, tmp_path: Path, harm: str) -> None:
    packed = tmp_path / "packed"
    steps(source, packed, "list", "make")
    lost = packed / "shard-000001.tar"
    if harm == "vanishes":
        lost.unlink()
    else:
        os.truncate(lost, 1000)
    assert "shard 1 of" in refused(source, packed, "publish")
    said = step(source, packed, "make")
    assert re.search(r"made 1 shards .* (\d+) of \d+ were there", said), said
    step(source, packed, "publish")
    assert digests(packed) == digests(tmp_path / "local")


def test_steps_in_the_wrong_order_say_which_comes_first(source: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    assert "run --step list first" in refused(source, packed, "make")
    step(source, packed, "list")
    for name in ("convert", "make", "publish"):
        assert "listed with other options" in refused(source, packed, name, "--max-size", 100), name
    step(source, packed, "make", "2/2")
    assert "shard 0 of " in refused(source, packed, "publish")
    step(source, packed, "make", "1/2")
    step(source, packed, "publish")
    assert digests(packed) == digests(tmp_path / "local")
    for part in ("0/2", "3/2", "half"):
        assert "expected I/N" in failed(2, "pack", source, packed, *OPTIONS, "--step", "make", "--part", part)
    assert "has no parts" in failed(2, "pack", source, packed, *OPTIONS, "--step", "list", "--part", "1/2")
    tables = MAKERS["parquet"](tmp_path / "parquet")
    assert "--step convert (1 runs of rows)" in step(tables, tmp_path / "of tables", "list")
    assert "run --step convert for all parts first" in refused(tables, tmp_path / "of tables", "make")


def test_a_spool_of_another_version(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "packed"
    step(source, packed, "list")
    monkeypatch.setattr("fastpipe.packing.pipeline.exchange._SPOOL_FORMAT", 99)
    assert "by other versions of the libraries" in refused(source, packed, "convert")
    step(source, packed, "list")
    listed = packed / SPOOL_FOLDER / "listed.json"
    listed.write_text(json.dumps({**json.loads(listed.read_text()), "new": 1}))
    assert "or of fastpipe" in refused(source, packed, "convert")
    steps(source, packed)
    assert digests(packed) == digests(tmp_path / "local")


def test_sources_that_are_listed_again(source: Path, tmp_path: Path) -> None:
    """A file that comes touches its own shard."""
    packed = tmp_path / "packed"
    steps(source, packed, "list", "make")
    shutil.copyfile(source / "class-0" / "00.jpg", source / "class-0" / "new.jpg")
    fastpipe.pack(source, tmp_path / "now", shard_size=SHARD_BYTES)
    step(source, packed, "list")
    assert "is not finished" in refused(source, packed, "publish")
    assert re.search(r"made \d+ shards .* [1-9]\d* of \d+ were there|made [1-9]", step(source, packed, "make"))
    step(source, packed, "publish")
    assert digests(packed) == digests(tmp_path / "now")


def test_a_spool_elsewhere_takes_nothing_else_away(source: Path, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "mine.txt").touch()
    for name in STEPS:
        for packed in ("packed", "other"):  # two packs at a time
            succeeded("pack", source, tmp_path / packed, *OPTIONS, "--spool", spool, "--step", name)
        assert name == "publish" or len(list(spool.iterdir())) == 3
    assert [path.name for path in spool.iterdir()] == ["mine.txt"]
    assert digests(tmp_path / "packed") == digests(tmp_path / "other") == digests(tmp_path / "local")


def test_tables_that_come_move_the_rows_of_others(tmp_path: Path) -> None:
    made = MAKERS["parquet"](tmp_path / "parquet")
    steps(made, tmp_path / "packed", "list", "convert")
    shutil.copyfile(made / "0.parquet", made / "2.parquet")
    fastpipe.pack(made, tmp_path / "local", shard_size=SHARD_BYTES)
    steps(made, tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")


def test_no_shard_of_tables_that_have_changed_is_kept(tmp_path: Path) -> None:
    made = MAKERS["parquet"](tmp_path / "parquet")
    steps(made, tmp_path / "packed", "list", "convert", "make")
    table = made / "0.parquet"
    rows = pq.read_table(table)
    numbers = rows.column("vector").to_pylist()
    other = pa.array([[value + 1 for value in each] for each in numbers], rows.schema.field("vector").type)
    at = rows.schema.get_field_index("vector")
    pq.write_table(rows.set_column(at, rows.schema.field(at), other), table, row_group_size=3)
    fastpipe.pack(made, tmp_path / "local", shard_size=SHARD_BYTES)
    steps(made, tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")


def test_a_list_of_images_keeps_its_values(tmp_path: Path) -> None:
    photos = folder(tmp_path / "photos", images=8)
    names = sorted(path.relative_to(photos) for path in photos.glob("*/*.jpg"))
    rows = "".join(f"{name},{number},text {number}\n" for number, name in enumerate(names))
    (photos / "list.csv").write_text("image,number,caption\n" + rows)
    fastpipe.pack(photos / "list.csv", tmp_path / "local", shard_size=SHARD_BYTES)
    steps(photos / "list.csv", tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")
    assert len(list((tmp_path / "packed" / "fields").iterdir())) >= 3


def test_a_machine_that_does_not_see_the_destination_makes_none(source: Path, tmp_path: Path) -> None:
    """What it made would be lost; on another machine the task can run."""
    spool = tmp_path / "new" / "spool"
    succeeded("pack", source, tmp_path / "packed", *OPTIONS, "--spool", spool, "--step", "list")
    job = Job.of(source, tmp_path / "packed", pack_options(shard_size=SHARD_BYTES, spool=spool))
    part = next(read_parts(job, "make"))
    (tmp_path / "packed").rename(tmp_path / "elsewhere")
    unseen = replace(job, options=pack_options(shard_size=SHARD_BYTES))
    todo: list[Callable[[], object]] = [
        lambda: lists.list_all(unseen),
        lambda: convert_step(unseen, part),
        lambda: make_step(job, part),
    ]
    for run in todo:
        with pytest.raises(PackError, match=r"machines.* see .*by the same path") as told:
            run()
        assert is_of_machine(told.value)
        assert not (tmp_path / "packed").exists()


def test_a_file_that_another_worker_renames_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Folder(tmp_path, tmp_path)
    spool.write("0", b"a")
    spool.write("1", b"bc")
    partial = tmp_path / "2.partial"
    partial.touch()
    scandir = os.scandir

    @contextlib.contextmanager
    def renamed_meanwhile(folder: Path) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(folder) as entries:
            found = sorted(entries, key=lambda each: each.name, reverse=True)
        partial.unlink()
        yield found

    monkeypatch.setattr(os, "scandir", renamed_meanwhile)
    assert spool.sizes() == {"0": 1, "1": 2}


# A source with more files than one task lists: listed by classes, cut by ranges of the order, to the same files.


def in_other_processes(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """As tasks get what they do and give what they found; in another order."""
    for item in reversed(list(items)):
        do, given = pickle.loads(pickle.dumps((function, item)))  # noqa: S301 (our own)
        yield pickle.loads(pickle.dumps(do(given)))  # noqa: S301


def test_a_run_that_a_machine_does_not_see_is_an_error_of_the_machine(source: Path, tmp_path: Path) -> None:
    job = Job.of(source, tmp_path / "packed", pack_options(shard_size=SHARD_BYTES))
    with pytest.raises(FileNotFoundError, match="listed-0-0") as caught:
        lists._read_listed(job, ["listed-0-0"], 0, 1)
    assert is_of_machine(caught.value)


@pytest.mark.parametrize("most", [1, 5, 23])
def test_the_same_files_as_of_a_listing_in_memory(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(lists, "MOST_SOURCES", most)
    step(source, tmp_path / "packed", "list")
    job = Job.of(source, tmp_path / "packed", pack_options(shard_size=SHARD_BYTES))
    assert read_listed(job).ranges == -(-24 // most)
    steps(source, tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")
    assert fastpipe.pack(source, tmp_path / "packed", shard_size=SHARD_BYTES).already_packed


def test_all_that_is_known_of_the_sources_is_the_same(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = pack_options(shard_size=SHARD_BYTES)
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


def test_given_classes_are_those_of_a_listing_in_memory(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = [*reversed(fastpipe.open(tmp_path / "local").classes), "further"]
    fastpipe.pack(source, tmp_path / "named", shard_size=SHARD_BYTES, classes_from=classes)
    (tmp_path / "names.txt").write_text("\n".join(classes))
    monkeypatch.setattr(lists, "MOST_SOURCES", 4)
    named = ["--classes-from", tmp_path / "names.txt"]
    for name in STEPS:
        succeeded("pack", source, tmp_path / "packed", *OPTIONS, *named, "--step", name)
    assert digests(tmp_path / "packed") == digests(tmp_path / "named")
    assert fastpipe.open(tmp_path / "packed").classes == classes
    (tmp_path / "names.txt").write_text("\n".join(classes[1:]))
    with pytest.raises(PackError, match=f"{classes[0]!r}.*not among the"):
        run_step(str(source), str(tmp_path / "other"), "list", None, {"classes_from": tmp_path / "names.txt"})


def test_a_split_by_ranges(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its classes are those of all splits, and what is assumed of them is the same; so is a bucket's."""
    root = tmp_path / "root"
    for split, names in (("train", ("1", "2", "10")), ("val", ("2", "10", "11"))):
        for number, name in enumerate(names):
            (root / split / name).mkdir(parents=True)
            shutil.copy(sorted(source.rglob("*.jpg"))[number], root / split / name / f"{number}.jpg")
    options = pack_options(shard_size=SHARD_BYTES, split="val")
    facts = Facts.of(list_sources(root, options.seed, shuffle=True, how=options.source))
    assert (facts.classes, len(facts.assumed)) == (["1", "10", "11", "2"], 2)
    monkeypatch.setattr(lists, "MOST_SOURCES", 1)
    (tmp_path / "packed" / ".pack").mkdir(parents=True)
    listed = lists.list_all(Job.of(root, tmp_path / "packed", options), in_other_processes)
    assert listed.ranges == 3
    for name, value in vars(facts).items():
        assert name == "taken_ns" or getattr(listed, name) == value, name


def test_a_split_of_a_bucket(source: Path, tmp_path: Path, bucket: MemoryBucket) -> None:
    root = tmp_path / "root"
    for split, name in (("train", "ant"), ("train", "bee"), ("val", "bee")):
        (root / split / name).mkdir(parents=True)
        shutil.copy(next(source.rglob("*.jpg")), root / split / name / "1.jpg")
    url = bucket.upload(root, "root")
    with pytest.raises(PackError, match="has the splits train, val: --split picks one"):
        fastpipe.pack(url, tmp_path / "none")
    for place, name in ((url, "by-url"), (root, "here")):
        fastpipe.pack(place, tmp_path / name, split="val")
    assert digests(tmp_path / "by-url") == digests(tmp_path / "here")
    assert fastpipe.open(tmp_path / "here").classes == ["ant", "bee"]


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
        run_step(str(source), str(tmp_path / "packed"), "list", None, {"shard_size": SHARD_BYTES})
    assert "run --step list first" in refused(source, tmp_path / "packed", "make")
    steps(source, tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")
    assert not (tmp_path / "packed" / ".pack").exists()


def test_of_a_bucket_by_way_of_a_bucket(
    source: Path, tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = bucket.upload(source, "source")
    fastpipe.pack(url, tmp_path / "whole", shard_size=SHARD_BYTES)
    monkeypatch.setattr(lists, "MOST_SOURCES", 6)
    steps(url, bucket.url("packed"))
    assert bucket.objects("packed") == files(tmp_path / "whole")
