"""Sources that tasks list, and the files through which they reach other tasks: the same pack as of one machine."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.ray.sources import MAKERS, SHARD_BYTES, folder, packed_on_ray, stop_at
from support.ray.tasks_here import Cluster
from support.remote.memory_bucket import MemoryBucket
from support.sources.pack_sources import digests, files

import fastpipe
from fastpipe.errors import PackError
from fastpipe.packing.cluster import is_of_machine
from fastpipe.packing.distributed import listing
from fastpipe.packing.distributed.listing import list_in_tasks
from fastpipe.packing.distributed.pack import convert_part, make_part
from fastpipe.packing.distributed.spool import MAKE, Job, ListedSources, read_parts
from fastpipe.packing.shard.options import pack_options
from fastpipe.sources.facts import Facts
from fastpipe.sources.kinds import list_sources
from fastpipe.store.store import Folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder, with files that cannot be packed and one beside the classes; and its pack in threads."""
    root = folder(tmp_path / "source")
    (root / "notes.txt").write_text("beside the classes")
    fastpipe.pack(root, tmp_path / "local", shard_size=SHARD_BYTES)
    return root


@pytest.fixture
def job(source: Path, tmp_path: Path) -> Job:
    """A job whose destination has a work folder."""
    (tmp_path / "packed" / ".pack").mkdir(parents=True)
    return Job.of(source, tmp_path / "packed", pack_options(shard_size=SHARD_BYTES))


def stopped(source: Path, packed: Path, step: str, tasks: int) -> None:
    """A pack that is stopped when so many tasks of a step are done."""
    with pytest.raises(KeyboardInterrupt):
        packed_on_ray(source, packed, stop_at(step, tasks))


def test_sources_that_are_listed_again(tasks_here: Cluster, source: Path, tmp_path: Path) -> None:
    """A file that comes touches its own shard."""
    packed = tmp_path / "packed"
    stopped(source, packed, "packing", 5)
    shutil.copyfile(source / "class-0" / "00.jpg", source / "class-0" / "new.jpg")
    fastpipe.pack(source, tmp_path / "now", shard_size=SHARD_BYTES)
    packed_on_ray(source, packed)
    assert digests(packed) == digests(tmp_path / "now")


def test_a_spool_elsewhere_takes_nothing_else_away(
    tasks_here: Cluster, source: Path, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "mine.txt").touch()
    with pytest.raises(KeyboardInterrupt):
        packed_on_ray(source, tmp_path / "packed", stop_at("packing", 2), spool=spool)
    packed_on_ray(source, tmp_path / "other", spool=spool)
    assert len(list(spool.iterdir())) == 2, "the spool of the first pack stays"
    packed_on_ray(source, tmp_path / "packed", spool=spool)
    assert [path.name for path in spool.iterdir()] == ["mine.txt"]
    assert (
        digests(tmp_path / "packed") == digests(tmp_path / "other") == digests(tmp_path / "local")
    )


def test_tables_that_come_move_the_rows_of_others(tasks_here: Cluster, tmp_path: Path) -> None:
    tables = MAKERS["parquet"](tmp_path / "parquet")
    stopped(tables, tmp_path / "packed", "converting", 1)
    shutil.copyfile(tables / "0.parquet", tables / "2.parquet")
    fastpipe.pack(tables, tmp_path / "local", shard_size=SHARD_BYTES)
    packed_on_ray(tables, tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")


def test_no_shard_of_tables_that_have_changed_is_kept(tasks_here: Cluster, tmp_path: Path) -> None:
    tables = MAKERS["parquet"](tmp_path / "parquet")
    stopped(tables, tmp_path / "packed", "packing", 4)
    table = tables / "0.parquet"
    rows = pq.read_table(table)
    numbers = rows.column("vector").to_pylist()
    other = pa.array(
        [[value + 1 for value in vector] for vector in numbers], rows.schema.field("vector").type
    )
    position = rows.schema.get_field_index("vector")
    pq.write_table(
        rows.set_column(position, rows.schema.field(position), other), table, row_group_size=3
    )
    fastpipe.pack(tables, tmp_path / "local", shard_size=SHARD_BYTES)
    packed_on_ray(tables, tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")


def test_a_list_of_images_keeps_its_values(tasks_here: Cluster, tmp_path: Path) -> None:
    photos = folder(tmp_path / "photos", images=8)
    names = sorted(path.relative_to(photos) for path in photos.glob("*/*.jpg"))
    rows = "".join(f"{name},{number},text {number}\n" for number, name in enumerate(names))
    (photos / "list.csv").write_text("image,number,caption\n" + rows)
    fastpipe.pack(photos / "list.csv", tmp_path / "local", shard_size=SHARD_BYTES)
    packed_on_ray(photos / "list.csv", tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")
    assert len(list((tmp_path / "packed" / "fields").iterdir())) >= 3


def test_a_machine_that_does_not_see_the_destination_makes_none(
    source: Path, tmp_path: Path
) -> None:
    """Its files would be lost; on another machine the task can run."""
    spool = tmp_path / "new" / "spool"
    (tmp_path / "packed").mkdir()
    job = Job.of(source, tmp_path / "packed", pack_options(shard_size=SHARD_BYTES, spool=spool))
    listed = list_in_tasks(job)
    part = next(read_parts(job, listed, MAKE))
    (tmp_path / "packed").rename(tmp_path / "elsewhere")
    unseen = replace(job, options=pack_options(shard_size=SHARD_BYTES))
    tasks: list[Callable[[], object]] = [
        lambda: list_in_tasks(unseen),
        lambda: convert_part(unseen, listed, part._replace(runs=[("run-1", 1)])),
        lambda: make_part(unseen, listed, part),
        lambda: make_part(job, listed, part),
    ]
    for run in tasks:
        with pytest.raises(PackError, match=r"machines.* see .*by the same path") as caught:
            run()
        assert is_of_machine(caught.value)
        assert not (tmp_path / "packed").exists()


def test_a_file_that_another_worker_renames_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_run_that_a_machine_does_not_see_is_an_error_of_the_machine(job: Job) -> None:
    with pytest.raises(FileNotFoundError, match="listed-0-0") as caught:
        listing._read_listed(job, ["listed-0-0"], 0, 1)
    assert is_of_machine(caught.value)


@pytest.mark.parametrize("most", [1, 5, 23])
def test_the_same_files_as_of_a_listing_in_memory(
    tasks_here: Cluster, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(listing, "MAX_SOURCES", most)
    packed_on_ray(source, tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")
    assert fastpipe.pack(source, tmp_path / "packed", shard_size=SHARD_BYTES).already_packed


def test_all_that_is_known_of_the_sources_is_the_same(
    job: Job, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = Facts.of(
        list_sources(source, job.options.seed, shuffle=True, options=job.options.source)
    )
    whole = list_in_tasks(job)
    shards = list(read_parts(job, whole, MAKE))
    monkeypatch.setattr(listing, "MAX_SOURCES", 4)
    listed = list_in_tasks(job, in_other_processes)
    assert facts.stray == ["notes.txt"]
    assert replace(listed.facts, taken_ns=0) == replace(facts, taken_ns=0)
    assert listed.num_ranges == 6
    assert (listed.plan, listed.version) == (whole.plan, whole.version)
    assert list(read_parts(job, listed, MAKE)) == shards


def test_folders_with_a_dot_are_named(
    job: Job, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = next(source.rglob("*.jpg"))
    class_folders = sorted({path.parent for path in source.rglob("*.jpg")})[:2]
    for class_folder in class_folders:
        (class_folder / ".Trash-1000").mkdir()
        shutil.copy(image, class_folder / ".Trash-1000" / "1.jpg")
    facts = Facts.of(
        list_sources(source, job.options.seed, shuffle=True, options=job.options.source)
    )
    monkeypatch.setattr(listing, "MAX_SOURCES", 4)
    listed = list_in_tasks(job, in_other_processes)
    assert listed.facts.assumed == facts.assumed
    (text,) = [assumption.text for assumption in facts.assumed if "a dot" in assumption.text]
    assert text.startswith("folders whose names begin with a dot: 2, such as ")


def test_given_classes_are_those_of_a_listing_in_memory(
    tasks_here: Cluster, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = [*reversed(fastpipe.open(tmp_path / "local").classes), "further"]
    fastpipe.pack(source, tmp_path / "named", shard_size=SHARD_BYTES, classes_from=classes)
    (tmp_path / "names.txt").write_text("\n".join(classes))
    monkeypatch.setattr(listing, "MAX_SOURCES", 4)
    packed_on_ray(source, tmp_path / "packed", classes_from=tmp_path / "names.txt")
    assert digests(tmp_path / "packed") == digests(tmp_path / "named")
    assert fastpipe.open(tmp_path / "packed").classes == classes
    (tmp_path / "names.txt").write_text("\n".join(classes[1:]))
    with pytest.raises(PackError, match=f"{classes[0]!r}.*not among the"):
        packed_on_ray(source, tmp_path / "other", classes_from=tmp_path / "names.txt")


def test_a_split_by_ranges(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its classes are those of all splits, and what is assumed of them is the same; so is a bucket's."""
    root = tmp_path / "root"
    for split, names in (("train", ("1", "2", "10")), ("val", ("2", "10", "11"))):
        for number, name in enumerate(names):
            (root / split / name).mkdir(parents=True)
            shutil.copy(
                sorted(source.rglob("*.jpg"))[number], root / split / name / f"{number}.jpg"
            )
    options = pack_options(shard_size=SHARD_BYTES, split="val")
    facts = Facts.of(list_sources(root, options.seed, shuffle=True, options=options.source))
    assert (facts.classes, len(facts.assumed)) == (["1", "10", "11", "2"], 2)
    monkeypatch.setattr(listing, "MAX_SOURCES", 1)
    (tmp_path / "packed" / ".pack").mkdir(parents=True)
    listed = list_in_tasks(Job.of(root, tmp_path / "packed", options), in_other_processes)
    assert listed.num_ranges == 3
    assert replace(listed.facts, taken_ns=0) == replace(facts, taken_ns=0)


def test_a_split_of_a_bucket(source: Path, tmp_path: Path, bucket: MemoryBucket) -> None:
    root = tmp_path / "root"
    for split, name in (("train", "ant"), ("train", "bee"), ("val", "bee")):
        (root / split / name).mkdir(parents=True)
        shutil.copy(next(source.rglob("*.jpg")), root / split / name / "1.jpg")
    url = bucket.upload(root, "root")
    with pytest.raises(PackError, match="has the splits train, val; pass one of them"):
        fastpipe.pack(url, tmp_path / "none")
    for place, name in ((url, "by-url"), (root, "here")):
        fastpipe.pack(place, tmp_path / name, split="val")
    assert digests(tmp_path / "by-url") == digests(tmp_path / "here")
    assert fastpipe.open(tmp_path / "here").classes == ["ant", "bee"]


def write_range_or_stop(job: Job, listed: ListedSources, names: Any, range_index: int) -> None:
    """The task of range 3 is interrupted the first time."""
    mark = Path(str(job.destination)).with_name("stopped")
    if range_index == 3 and not mark.exists():
        mark.touch()
        raise KeyboardInterrupt
    WRITE_RANGE(job, listed, names, range_index)


WRITE_RANGE = listing._write_range


def test_a_listing_that_was_interrupted_is_made_again(
    tasks_here: Cluster, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_SOURCES", 4)
    monkeypatch.setattr(listing, "_write_range", write_range_or_stop)
    with pytest.raises(KeyboardInterrupt):
        packed_on_ray(source, tmp_path / "packed")
    packed_on_ray(source, tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")
    assert not (tmp_path / "packed" / ".pack").exists()


def test_of_a_bucket_by_way_of_a_bucket(
    tasks_here: Cluster,
    source: Path,
    tmp_path: Path,
    bucket: MemoryBucket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = bucket.upload(source, "source")
    fastpipe.pack(url, tmp_path / "whole", shard_size=SHARD_BYTES)
    monkeypatch.setattr(listing, "MAX_SOURCES", 6)
    packed_on_ray(url, bucket.url("packed"))
    assert bucket.objects("packed") == files(tmp_path / "whole")
