"""fastpipe.Dataset and fastpipe.open on a URL: samples are fetched when they are asked for, in any process."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.programs.warm import run_script
from support.remote.cases import digests
from support.remote.range_server import Fault, RangeServer, Request

import fastpipe
from fastpipe.dataset.format.description import fingerprint, with_self_checksum
from fastpipe.dataset.format.layout import INDEX_DTYPE
from fastpipe.errors import DatasetError

SCRIPT = """
    import sys, fastpipe
    from torch.utils.data import DataLoader
    dataset = fastpipe.open(sys.argv[1], cache_dir=sys.argv[2])
    dataset[0]
    list(DataLoader(dataset, 8, num_workers=1, multiprocessing_context="fork"))
"""


@pytest.mark.parametrize("limit", [0, "6MB", "1GB"])
def test_samples_are_those_of_the_folder(
    remote_packed: Path, range_server: RangeServer, tmp_path: Path, limit: Any
) -> None:
    local, remote = (
        fastpipe.open(remote_packed),
        fastpipe.open(range_server.url, cache_dir=tmp_path, cache_limit=limit),
    )
    for numbers in ([5, 150, 17], [159], list(range(40, 90))):
        found = remote.__getitems__(numbers)
        for (image, label), (wanted, name) in zip(found, local.__getitems__(numbers), strict=True):
            assert label == name
            assert torch.equal(image, wanted)
    assert remote.classes == local.classes
    assert remote.index.form_counts == local.index.form_counts != {}
    assert range_server.sent_bytes < 1.5 * sum(
        shard.stat().st_size for shard in remote_packed.glob("shard-*")
    )


def test_samples_of_a_local_dataset_beside_a_remote_one(
    remote_packed: Path, range_server: RangeServer, tmp_path: Path
) -> None:
    remote = fastpipe.open(range_server.url, cache_dir=tmp_path)
    local = fastpipe.open(remote_packed)
    for both in (fastpipe.concat(remote, local), fastpipe.concat(local, remote)):
        for number in (3, 170):
            image, label = both[number]
            wanted, expected_label = local[number % 160]
            assert label == expected_label
            assert torch.equal(image, wanted)


def test_a_forked_worker_is_told_to_use_forkserver(
    range_server: RangeServer, tmp_path: Path
) -> None:
    ran = run_script(SCRIPT, range_server.url, tmp_path, timeout_s=300)
    assert "EngineError: process" in ran.stderr
    assert 'multiprocessing_context="forkserver"' in ran.stderr


def test_opening_reads_no_shard(
    remote_packed: Path, range_server: RangeServer, tmp_path: Path
) -> None:
    data = fastpipe.open(range_server.url, cache_dir=tmp_path)
    assert (len(data), data.classes, str(data.path)) == (
        160,
        fastpipe.open(remote_packed).classes,
        range_server.url,
    )
    assert {request.path for request in range_server.requests} == {"dataset.json", "index.npy"}
    range_server.forget()
    fastpipe.open(range_server.url, cache_dir=tmp_path)
    assert [request.path for request in range_server.requests] == ["dataset.json"]


def test_fields_and_sources(fielded: Path, tmp_path: Path, copied: Callable[[Path], Path]) -> None:
    fielded = copied(fielded)
    file = fielded / "dataset.json"
    info = json.loads(file.read_bytes())
    info.pop("self_xxh3_64", None)
    file.write_bytes(with_self_checksum({**info, "fingerprint": fingerprint(info)})[1])
    local = fastpipe.open(fielded)
    names = ("image", "label", "key", "id", *local.fields)
    with RangeServer(fielded) as served:
        for limit in (0, "1GB"):
            options: dict[str, Any] = {"cache_dir": tmp_path / str(limit), "cache_limit": limit}
            remote = fastpipe.open(served.url, **options)
            samples, wanted = remote.with_fields(names), local.with_fields(names)
            for number in (0, 17, 36):
                assert str(samples[number]) == str(wanted[number])
            ours = fastpipe.loader(remote, 8, size=32, fields=names, train=False)
            theirs = fastpipe.loader(fielded, 8, size=32, fields=names, train=False)
            for found, expected in zip(ours, theirs, strict=True):
                assert str(found) == str(expected)


def test_a_file_beside_the_shards_that_changes_in_the_cache(
    remote_packed: Path, range_server: RangeServer, tmp_path: Path
) -> None:
    """It is fetched anew where the dataset is opened. While it is in use, it is no reason to replace samples."""
    options: dict[str, Any] = {"size": 32, "train": False, "on_error": "replace"}
    with fastpipe.loader(remote_packed, 32, size=32, train=False) as local:
        expected = digests(local)
    for _ in range(2):
        with fastpipe.loader(
            fastpipe.open(range_server.url, cache_dir=tmp_path), 32, **options
        ) as loader:
            assert digests(loader) == expected
            file = loader.dataset.index.folder / "index.npy"
            data = bytearray(file.read_bytes())
            data[-INDEX_DTYPE.itemsize + INDEX_DTYPE.fields["xxh3_64"][1]] ^= 1  # type: ignore[index]
            file.write_bytes(data)
            with pytest.raises(
                DatasetError,
                match=r"index\.npy has changed .*: open the dataset again, which fetches",
            ):
                list(loader)


def test_pickled(remote_packed: Path, range_server: RangeServer, tmp_path: Path) -> None:
    import pickle

    dataset = fastpipe.open(
        range_server.url, cache_dir=tmp_path, storage_options={"client_options": {"timeout": "60s"}}
    )
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301
    assert torch.equal(again[3][0], fastpipe.open(remote_packed)[3][0])


def test_an_upload_of_shards_alone(range_server: RangeServer, tmp_path: Path) -> None:
    range_server.fault = lambda asked: Fault(status=404) if asked.path == "dataset.json" else None
    words = r"There are shards here: upload dataset\.json and index\.npy of the same pack"
    with pytest.raises(DatasetError, match=words):
        fastpipe.open(range_server.url, cache_dir=tmp_path)


def test_an_upload_without_its_index(range_server: RangeServer, tmp_path: Path) -> None:
    range_server.fault = lambda asked: Fault(status=404) if asked.path == "index.npy" else None
    words = r"has dataset.json, but index.npy is missing \(HTTP 404\): the upload .* is incomplete"
    with pytest.raises(DatasetError, match=words):
        fastpipe.open(range_server.url, cache_dir=tmp_path)


def test_tars_and_braces_by_url(range_server: RangeServer, tmp_path: Path) -> None:
    for name, words in (
        ("shard-000000.tar", "is a file of a dataset; pass the URL of its folder: http"),
        ("train-000000.tar", "Pass the URL of the folder of a packed dataset"),
        ("shard-{000000..000003}.tar", "Pass the URL of the folder of a packed dataset"),
    ):
        with pytest.raises(DatasetError, match=words):
            fastpipe.open(f"{range_server.url}/{name}", cache_dir=tmp_path)


@pytest.mark.parametrize("task", ["corrected", "another"])
def test_saved_columns_are_read_behind_a_url(
    remote_packed: Path, tmp_path: Path, copied: Callable[[Path], Path], task: str
) -> None:
    folder = copied(remote_packed)
    data = fastpipe.open(folder)
    labels = (np.asarray(data["label"]) + 1) % len(data.classes)
    if task == "another":
        # In the order of the dataset: with_labels reads the keys of such labels.
        labels = np.arange(len(data)) * len(data.classes) // len(data)
    scores = np.linspace(0, 1, len(data))
    corrected = data.with_labels(labels, classes=data.classes).with_column("score", scores)
    with RangeServer(folder) as served:
        assert "score" not in fastpipe.open(served.url, cache_dir=tmp_path).columns
        corrected.save_columns(folder)
        remote = fastpipe.open(served.url, cache_dir=tmp_path)
        np.testing.assert_array_equal(remote["label"], labels)
        np.testing.assert_array_equal(remote["score"], scores)
        served.forget()
        again = fastpipe.open(served.url, cache_dir=tmp_path)
        paths = [request.path for request in served.requests]
        assert paths == ["dataset.json", f"columns/{data.index.fingerprint}.json"]
        np.testing.assert_array_equal(again["label"], labels)
    # Another machine has no such cache.
    pickled = pickle.dumps(remote)
    shutil.rmtree(tmp_path)
    read = pickle.loads(pickled)  # noqa: S301
    np.testing.assert_array_equal(read._selection.added["score"].rows, scores)


@pytest.mark.parametrize("kind", ["denied", "page"])
def test_servers_without_saved_columns(
    remote_packed: Path, tmp_path: Path, copied: Callable[[Path], Path], kind: str
) -> None:
    """Some answer 403, and some with a page, for a file that does not exist."""
    folder = copied(remote_packed)
    fingerprint = fastpipe.open(folder).index.fingerprint
    name = f"columns/{fingerprint}.json"
    (folder / "columns").mkdir()
    (folder / name).write_text("<!doctype html><title>Welcome</title>")

    def deny(request: Request) -> Fault | None:
        is_denied = kind == "denied" and request.path == name
        return Fault(status=403) if is_denied else None

    with RangeServer(folder, fault=deny) as served:
        assert len(fastpipe.open(served.url, cache_dir=tmp_path)) == 160
        assert [request.path for request in served.requests].count(name) == 1
