"""A pack step by step: the same files as in one piece."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

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
from fastpipe.packing.steps.lists import list_all
from fastpipe.packing.steps.parts import Job, read_parts
from fastpipe.packing.steps.work import convert_step, make_step
from fastpipe.store.store import Folder

OPTIONS = "--shard-size", SHARD_BYTES


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder; and its pack in one piece."""
    made = folder(tmp_path / "source")
    fastpipe.pack(made, tmp_path / "local", shard_size=SHARD_BYTES)
    return made


def step(source: object, destination: object, name: str, part: str | None = None) -> str:
    return succeeded("pack", source, destination, *OPTIONS, "--step", name, *(["--part", part] if part else []))


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


def test_shards_in_any_order_are_the_same(source: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    step(source, packed, "list")
    shards = len(list((tmp_path / "local").glob("shard-*.tar")))
    for number in random.Random(3).sample(range(shards), shards):
        step(source, packed, "make", f"{number + 1}/{shards}")
    step(source, packed, "publish")
    assert digests(packed) == digests(tmp_path / "local")


def test_steps_into_a_bucket(source: Path, tmp_path: Path, bucket: MemoryBucket) -> None:
    for name, part in (("list", None), ("convert", "1/1"), ("make", None), ("publish", None)):
        step(source, bucket.url("packed"), name, part)
    assert bucket.objects("packed") == files(tmp_path / "local")


def test_steps_in_the_wrong_order_say_which_comes_first(source: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"

    def refused(name: str, *more: str) -> str:
        return failed(1, "pack", source, packed, *OPTIONS, "--step", name, *more)

    assert "run --step list first" in refused("make")
    step(source, packed, "list")
    assert "listed with other options" in refused("make", "--tile", "0")
    step(source, packed, "make", "2/2")
    assert "shard 0 of " in refused("publish")
    step(source, packed, "make", "1/2")
    step(source, packed, "publish")
    assert digests(packed) == digests(tmp_path / "local")
    for part in ("0/2", "3/2", "half"):
        assert "expected I/N" in failed(2, "pack", source, packed, *OPTIONS, "--step", "make", "--part", part)
    assert "has no parts" in failed(2, "pack", source, packed, *OPTIONS, "--step", "list", "--part", "1/2")


def test_rows_are_converted_before_shards_are_made(tmp_path: Path) -> None:
    made = MAKERS["parquet"](tmp_path / "parquet")
    assert "--step convert (1 runs of rows)" in step(made, tmp_path / "packed", "list")
    told = failed(1, "pack", made, tmp_path / "packed", *OPTIONS, "--step", "make")
    assert "run --step convert for all parts first" in told


def test_each_step_has_the_options_of_the_list(source: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    step(source, packed, "list")
    for name in ("convert", "make", "publish"):
        refused = failed(1, "pack", source, packed, *OPTIONS, "--max-size", "100", "--step", name)
        assert "listed with other options" in refused, name
        step(source, packed, name)
    assert digests(packed) == digests(tmp_path / "local")


def test_a_spool_of_another_version(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "packed"
    step(source, packed, "list")
    monkeypatch.setattr("fastpipe.packing.pipeline.exchange._SPOOL_FORMAT", 99)
    assert "by other versions of the libraries" in failed(1, "pack", source, packed, *OPTIONS, "--step", "convert")
    step(source, packed, "list")
    listed = packed / SPOOL_FOLDER / "listed.json"
    listed.write_text(json.dumps({**json.loads(listed.read_text()), "new": 1}))
    assert "or of fastpipe" in failed(1, "pack", source, packed, *OPTIONS, "--step", "convert")
    for name in ("list", "convert", "make", "publish"):
        step(source, packed, name)
    assert digests(packed) == digests(tmp_path / "local")


def test_sources_that_are_listed_again(source: Path, tmp_path: Path) -> None:
    """A file that comes touches its own shard."""
    packed = tmp_path / "packed"
    for name in ("list", "make"):
        step(source, packed, name)
    shutil.copyfile(source / "class-0" / "00.jpg", source / "class-0" / "new.jpg")
    fastpipe.pack(source, tmp_path / "now", shard_size=SHARD_BYTES)
    step(source, packed, "list")
    assert "is not finished" in failed(1, "pack", source, packed, *OPTIONS, "--step", "publish")
    assert re.search(r"made \d+ shards .* [1-9]\d* of \d+ were there|made [1-9]", step(source, packed, "make"))
    step(source, packed, "publish")
    assert digests(packed) == digests(tmp_path / "now")


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "folder"])
def test_steps_of_other_sources(tmp_path: Path, kind: str) -> None:
    made = MAKERS[kind](tmp_path / kind)
    fastpipe.pack(made, tmp_path / "local", shard_size=SHARD_BYTES)
    for name in ("list", "convert", "make", "publish"):
        step(made, tmp_path / "packed", name)
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")


def test_a_spool_elsewhere_takes_nothing_else_away(source: Path, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "mine.txt").touch()
    for name in ("list", "convert", "make", "publish"):
        for packed in ("packed", "other"):  # two packs at a time
            succeeded("pack", source, tmp_path / packed, *OPTIONS, "--spool", spool, "--step", name)
        assert name == "publish" or len(list(spool.iterdir())) == 3
    assert [path.name for path in spool.iterdir()] == ["mine.txt"]
    assert digests(tmp_path / "packed") == digests(tmp_path / "other") == digests(tmp_path / "local")


def test_tables_that_come_move_the_rows_of_others(tmp_path: Path) -> None:
    made = MAKERS["parquet"](tmp_path / "parquet")
    for name in ("list", "convert"):
        step(made, tmp_path / "packed", name)
    shutil.copyfile(made / "0.parquet", made / "2.parquet")
    fastpipe.pack(made, tmp_path / "local", shard_size=SHARD_BYTES)
    for name in ("list", "convert", "make", "publish"):
        step(made, tmp_path / "packed", name)
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")


def test_no_shard_of_tables_that_have_changed_is_kept(tmp_path: Path) -> None:
    made = MAKERS["parquet"](tmp_path / "parquet")
    for name in ("list", "convert", "make"):
        step(made, tmp_path / "packed", name)
    table = made / "0.parquet"
    rows = pq.read_table(table)
    numbers = rows.column("vector").to_pylist()
    other = pa.array([[value + 1 for value in each] for each in numbers], rows.schema.field("vector").type)
    at = rows.schema.get_field_index("vector")
    pq.write_table(rows.set_column(at, rows.schema.field(at), other), table, row_group_size=3)
    fastpipe.pack(made, tmp_path / "local", shard_size=SHARD_BYTES)
    for name in ("list", "convert", "make", "publish"):
        step(made, tmp_path / "packed", name)
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")


def test_a_list_of_images_keeps_its_values(tmp_path: Path) -> None:
    photos = folder(tmp_path / "photos", images=8)
    names = sorted(path.relative_to(photos) for path in photos.glob("*/*.jpg"))
    rows = "".join(f"{name},{number},text {number}\n" for number, name in enumerate(names))
    (photos / "list.csv").write_text("image,number,caption\n" + rows)
    fastpipe.pack(photos / "list.csv", tmp_path / "local", shard_size=SHARD_BYTES)
    for name in ("list", "convert", "make", "publish"):
        step(photos / "list.csv", tmp_path / "packed", name)
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
        lambda: list_all(unseen),
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
