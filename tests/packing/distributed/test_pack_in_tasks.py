"""Packs in tasks of a cluster: every file is the one of a pack on one machine; what is done is not done again.

The cluster is in this process; real ones are in tests/long/ray.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support.programs.cli_run import fp
from support.ray import counted
from support.ray.sources import (
    FIELDS,
    MAKERS,
    SHARD_BYTES,
    local,
    made_sources,
    packed_on_ray,
    stop_at,
)
from support.ray.tasks_here import Cluster
from support.remote.memory_bucket import MemoryBucket
from support.sources.pack_sources import digests, files, write_files

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.source_paths import SourcePaths
from fastpipe.errors import ClusterError, ConfigError, PackError
from fastpipe.machine import progress
from fastpipe.packing.job.progress import PackProgress
from fastpipe.sources.picture.jpeg import made_with
from fastpipe.tools.cli.pack_report import pack_progress


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Kind -> a source, with the pack of one machine beside it in `local`."""
    return made_sources(tmp_path_factory.mktemp("sources"))


@pytest.mark.parametrize("kind", MAKERS)
def test_every_file_is_that_of_one_machine(
    tasks_here: Cluster, made: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    source = made[kind]
    summary = packed_on_ray(source, tmp_path / "packed", fields=FIELDS[kind])
    expected = digests(local(source))
    assert digests(tmp_path / "packed") == expected
    assert len(summary.info["shards"]) >= 5
    assert summary.tally.rejected, "the source has samples that are rejected"
    written = [
        (root / "dataset.json").stat().st_mtime_ns for root in (local(source), tmp_path / "packed")
    ]
    assert written == sorted(written)  # that of its own listing


@pytest.mark.parametrize("harm", ["vanishes", "is cut"])
@pytest.mark.parametrize("kind", ["folder", "parquet"])
def test_a_shard_and_a_run_of_rows_that_were_lost_are_made_again(
    tasks_here: Cluster, made: dict[str, Path], tmp_path: Path, kind: str, harm: str
) -> None:
    """Their entries stand in the journal."""
    source, packed = made[kind], tmp_path / "packed"
    with pytest.raises(KeyboardInterrupt):
        packed_on_ray(source, packed, fields=FIELDS[kind], on_progress=stop_at("packing", 2))
    shards = sorted(packed.glob("shard-*.tar"))
    for lost in (shards[0], *sorted(packed.glob(".pack/spool/run-*"))[:1]):
        if harm == "vanishes":
            lost.unlink()
        else:
            os.truncate(lost, lost.stat().st_size - 1)
    summary = packed_on_ray(source, packed, fields=FIELDS[kind])
    assert summary.resumed == len(shards) - 1
    assert digests(packed) == digests(local(source))


def test_a_shard_that_vanishes_while_others_are_made_is_made_by_the_next_run(
    tasks_here: Cluster, made: dict[str, Path], tmp_path: Path
) -> None:
    packed = tmp_path / "packed"

    def lose_a_shard(progress: PackProgress) -> None:
        if progress.step == "packing" and progress.tasks == progress.total_tasks:
            (packed / "shard-000001.tar").unlink()

    with pytest.raises(
        PackError, match=r"shard 1 is not in .*packed any more.*Run the same command again"
    ):
        packed_on_ray(made["folder"], packed, lose_a_shard)
    summary = packed_on_ray(made["folder"], packed)
    assert summary.resumed == len(summary.info["shards"]) - 1
    assert digests(packed) == digests(local(made["folder"]))


@pytest.mark.parametrize("kind", ["folder", "parquet"])
def test_every_object_in_a_bucket_is_that_of_one_machine(
    tasks_here: Cluster, made: dict[str, Path], bucket: MemoryBucket, kind: str
) -> None:
    url = bucket.upload(made[kind], "source")
    spool = {"spool": bucket.url("spool")} if kind == "folder" else {}
    how = {"fields": FIELDS[kind], **spool}
    summary = packed_on_ray(url, bucket.url("packed"), **how)
    assert bucket.objects("packed") == files(local(made[kind]))
    assert bucket.objects("spool") == {}
    assert summary.info["samples"] > 10
    assert packed_on_ray(url, bucket.url("packed"), **how).already_packed


@pytest.mark.parametrize("kind", MAKERS)
def test_a_dataset_grows_in_tasks_as_in_threads(
    tasks_here: Cluster, made: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    """Every third sample is removed, and added again."""
    index = PackedIndex(local(made[kind]))
    thirds = np.arange(0, len(index), 3)
    keys = SourcePaths(index).of(thirds, index.records[thirds])
    found = {}
    for executor in ("threads", "ray"):
        dataset = Path(shutil.copytree(local(made[kind]), tmp_path / executor))
        fastpipe.remove(dataset, keys=keys)
        assert fastpipe.add(
            made[kind], dataset, fields=FIELDS[kind], executor=executor
        ).added == len(thirds)
        found[executor] = {
            name: each for name, each in digests(dataset).items() if "dataset.json" not in name
        }
    assert found["ray"] == found["threads"]
    assert not (tmp_path / "ray" / ".pack").exists()


def test_progress_counts_tasks(tasks_here: Cluster, made: dict[str, Path], tmp_path: Path) -> None:
    told: list[PackProgress] = []
    packed_on_ray(made["folder"], tmp_path / "packed", told.append)
    packing = [now for now in told if now.step == "packing"]
    shards = len(list((tmp_path / "packed").glob("shard-*.tar")))
    assert [now.tasks for now in packing] == list(range(shards + 1))
    assert packing[-1].files == packing[-1].total_files == 24
    assert packing[-1].rejected == 2
    assert packing[-1].total_tasks == shards
    assert {now.workers for now in told} == {2}
    told.clear()
    packed_on_ray(made["parquet"], tmp_path / "tables", told.append, fields=FIELDS["parquet"])
    assert [now.files for now in told if now.step == "converting"] == [0, 20]
    columns = len(list((tmp_path / "tables" / "fields").iterdir()))
    # Once for each column, and for the index and dataset.json.
    assert sum(now.step == "publishing" for now in told) == columns + 2


def test_a_line_of_progress_has_tasks_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    said = io.StringIO()
    with pack_progress(Console(file=said, width=200)) as show:
        show(PackProgress(0, 100, 0, 10_000_000, 0, "converting", total_tasks=10, workers=64))
        show(
            PackProgress(
                50, 100, 5_000_000, 10_000_000, 1, "converting", tasks=5, total_tasks=10, workers=64
            )
        )
    (line,) = said.getvalue().splitlines()
    rates = r"converting: 50/100 files  [\d,]+ images/s  [\d.]+ MB/s"
    assert re.fullmatch(rf"packing: {rates}  task 5/10, 64 CPUs  0:00:00 left  1 rejected", line), (
        line
    )


def test_what_is_done_is_not_done_again(
    tasks_here: Cluster, made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = counted.count_shards(monkeypatch, tmp_path / "log")

    for step, tasks in (("packing", 1), ("packing", 2)):
        with pytest.raises(KeyboardInterrupt):
            packed_on_ray(made["folder"], tmp_path / "packed", stop_at(step, tasks))
        with pytest.raises(fastpipe.DatasetError):
            fastpipe.open(tmp_path / "packed")
    summary = packed_on_ray(made["folder"], tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(local(made["folder"]))
    assert summary.resumed >= 2
    done = log.read_text().splitlines()
    assert len(done) - len(set(done)) <= 4  # those that ran when it was stopped, two each time
    assert packed_on_ray(made["folder"], tmp_path / "packed").already_packed
    assert not (tmp_path / "packed" / ".pack").exists()


def test_one_machine_goes_on_where_a_cluster_stopped(
    tasks_here: Cluster, made: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        packed_on_ray(
            made["parquet"], tmp_path / "packed", stop_at("packing", 4), fields=FIELDS["parquet"]
        )
    summary = fastpipe.pack(
        made["parquet"], tmp_path / "packed", shard_size=SHARD_BYTES, fields=FIELDS["parquet"]
    )
    assert digests(tmp_path / "packed") == digests(local(made["parquet"]))
    assert summary.resumed >= 2


def test_another_dataset_stays_as_it_is(
    tasks_here: Cluster, made: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(local(made["tar"]), tmp_path / "packed")
    before = digests(tmp_path / "packed")
    with pytest.raises(PackError, match="--overwrite"):
        packed_on_ray(made["folder"], tmp_path / "packed")
    assert digests(tmp_path / "packed") == before
    packed_on_ray(made["folder"], tmp_path / "packed", overwrite=True)
    assert digests(tmp_path / "packed") == digests(local(made["folder"]))


def test_a_driver_with_other_libraries_is_refused(
    tasks_here: Cluster, made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write its own versions into dataset.json."""
    for module in ("pipeline.exchange", "distributed.spool"):
        versions = lambda: made_with() if tasks_here.node else {"pillow": "1"}  # noqa: E731
        monkeypatch.setattr(f"fastpipe.packing.{module}.made_with", versions)
    with pytest.raises(PackError, match=r"by other versions of the libraries .*'pillow': '1'"):
        packed_on_ray(made["folder"], tmp_path / "packed")


def test_nothing_to_pack_and_fail_fast_say_why(
    tasks_here: Cluster, made: dict[str, Path], tmp_path: Path
) -> None:
    write_files(tmp_path / "source", {"a/text.jpg": b"no image"})
    with pytest.raises(PackError, match=r"the only file in .*; a/text\.jpg: "):
        packed_on_ray(tmp_path / "source", tmp_path / "packed")
    with pytest.raises(PackError, match=r"cannot be packed: .*--on-error fail"):
        packed_on_ray(made["folder"], tmp_path / "other", on_error="fail")


def test_a_disk_that_refuses_is_tried_on_the_other_node(
    tasks_here: Cluster, made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = counted.refuse_on_first_node(monkeypatch, tmp_path / "log")
    packed_on_ray(made["folder"], tmp_path / "packed")
    assert digests(tmp_path / "packed") == digests(local(made["folder"]))
    assert len(set(log.read_text().split())) == 2
    counted.refuse_everywhere(monkeypatch)
    with pytest.raises(
        ClusterError, match=r"task make shard-\S+ has failed 5 times .* log /.*No space left"
    ):
        packed_on_ray(made["folder"], tmp_path / "other")


def test_options_that_do_not_go_together(made: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^address: .*executor"):
        fastpipe.pack(made["folder"], tmp_path / "packed", address="auto")
    for executor in ("ray", "threads"):
        with pytest.raises(ConfigError, match=r"^spool: .* is in SRC .*; choose another folder"):
            fastpipe.pack(
                made["folder"],
                tmp_path / "packed",
                executor=executor,
                spool=made["folder"] / "spool",
            )
    with pytest.raises(ConfigError, match=r"^executor: expected"):
        fastpipe.pack(made["folder"], tmp_path / "packed", executor="dask")
    with pytest.raises(ConfigError, match=r"^spool: expected a folder of this machine.*s3://"):
        fastpipe.pack(made["folder"], "s3://bucket/packed", spool="s3://bucket/spool")


def test_the_api_and_the_command_run_on_the_cluster(
    tasks_here: Cluster, made: dict[str, Path], tmp_path: Path
) -> None:
    fastpipe.pack(made["folder"], tmp_path / "api", shard_size=SHARD_BYTES, executor="ray")
    options = "--shard-size", SHARD_BYTES, "--on", "ray", "--json"
    ran = fp("pack", made["folder"], tmp_path / "command", *options)
    assert ran.exit_code == 0, ran.stderr
    assert json.loads(ran.stdout)["samples"] == 22
    assert (
        digests(tmp_path / "api") == digests(tmp_path / "command") == digests(local(made["folder"]))
    )
