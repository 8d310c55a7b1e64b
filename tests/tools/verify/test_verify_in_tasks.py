"""`fastpipe verify --on ray`: the report is that of a check by threads, whatever happens to tasks.

The cluster is in this process; real ones are in tests/long/ray.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.datasets.packed import damage
from support.programs.cli_run import failed, fp
from support.ray.tasks_here import tasks_here  # noqa: F401 (a fixture)
from support.remote.range_server import RangeServer

from fastpipe.dataset.format.folder import Url
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_FILE, shard_name
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ClusterError
from fastpipe.machine.progress import WorkProgress
from fastpipe.packing.cluster import RAY
from fastpipe.tools.verify import verification
from fastpipe.tools.verify.damage import Report
from fastpipe.tools.verify.verification import verify

pytestmark = pytest.mark.usefixtures("tasks_here")

Copy = Callable[[Path], Path]


def content(report: Report) -> str:
    """All of a report, byte for byte, but the time that it took."""
    return json.dumps({**report.as_dict(), "seconds": 0})


def damage_shards(dataset: Path) -> None:
    """A changed sample, two in one shard, a shard that is too short, one that is missing, one that is too long."""
    index = PackedIndex(dataset)
    first = index.shard_starts.tolist()
    for sample in (first[1], first[3], first[3] + 1, len(index) - 1):
        damage(dataset, sample)
    with open(dataset / shard_name(5), "r+b") as shard:
        shard.truncate(60_000)
    (dataset / shard_name(6)).unlink()
    with open(dataset / shard_name(2), "ab") as shard:
        shard.write(b"more")


def damage_rows(dataset: Path) -> None:
    """Rows of the index that are wrong and that are impossible, in a dataset with damaged shards."""
    damage_shards(dataset)
    size_bytes = (dataset / INDEX_FILE).stat().st_size
    with open(dataset / INDEX_FILE, "r+b") as file:
        for row in (3, 9, 20):
            file.seek(size_bytes - 36 * row)
            file.write(bytes([row] * 36))


def damage_index(dataset: Path) -> None:
    """No index.npy, so samples cannot be told apart."""
    damage_shards(dataset)
    (dataset / INDEX_FILE).write_bytes(b"no index")


@pytest.mark.parametrize("harm", [lambda _: None, damage_shards, damage_rows, damage_index])
def test_the_report_is_the_same(
    harm: Callable[[Path], None], many_shards: Path, copied: Copy
) -> None:
    dataset = copied(many_shards)
    harm(dataset)
    said: list[WorkProgress] = []
    there, here = verify(dataset, executor=RAY, on_progress=said.append), verify(dataset)
    assert content(there) == content(here)
    assert len(here.findings) >= (7 if harm.__name__.startswith("damage") else 0)
    assert len(said) >= 4  # several tasks
    assert (said[-1].done, said[-1].problems) == (len(PackedIndex(many_shards)), len(here.findings))


def test_fields_are_checked_too(fielded: Path, copied: Copy) -> None:
    dataset = copied(fielded)
    column = sorted((dataset / "fields").iterdir())[0]
    column.write_bytes(column.read_bytes()[:-1] + b"?")
    there = verify(dataset, executor=RAY)
    assert content(there) == content(verify(dataset))
    assert any(found.file.endswith(column.name) for found in there.findings)


def test_the_command_says_the_same(many_shards: Path, copied: Copy) -> None:
    assert fp("verify", many_shards, "--on", "ray").exit_code == 0
    dataset = copied(many_shards)
    damage_shards(dataset)
    there, here = fp("verify", dataset, "--on", "ray", "--json"), fp("verify", dataset, "--json")
    assert (there.exit_code, here.exit_code) == (1, 1)
    lines = [
        [line for line in each.stdout.splitlines() if '"seconds"' not in line]
        for each in (there, here)
    ]
    assert lines[0] == lines[1]


def test_a_dataset_behind_a_url(remote_packed: Path, copied: Copy) -> None:
    dataset = copied(remote_packed)
    for sample in (3, 123, 159):
        damage(dataset, sample)
    with RangeServer(dataset) as server:
        there = verify(Url(server.url), executor=RAY)
        assert content(there) == content(verify(Url(server.url)))
    assert [list(run) for run in there.bad_samples()] == [[3, 3], [123, 123], [159, 159]]


def test_a_machine_that_sees_another_dataset_finds_no_damage(
    many_shards: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = copied(many_shards)
    made = verification.SharedDataset.of

    def moved(*arguments: Any) -> verification.SharedDataset:
        seen = made(*arguments)
        (dataset / DATASET_FILE).write_text("{}")
        return seen

    monkeypatch.setattr(verification.SharedDataset, "of", moved)
    with pytest.raises(
        ClusterError,
        match=r"task verify shard-0.* has failed 5 times .* have to see the same dataset",
    ):
        verify(dataset, executor=RAY)


def test_refusals(many_shards: Path) -> None:
    assert "--quick reads no shard" in failed(2, "verify", many_shards, "--on", "ray", "--quick")
    assert "--address: it needs --on ray" in failed(2, "verify", many_shards, "--address", "auto")
