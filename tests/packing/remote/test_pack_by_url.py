"""Packing from and into buckets: the same bytes as from folder to folder, whatever the source and the destination."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from rich.console import Console
from support.ray.sources import folder, metadata, parquet, tar
from support.remote.memory_bucket import MemoryBucket
from support.remote.range_server import Fault, RangeServer, Request
from support.sources.listed import shard_bytes
from support.sources.pack_sources import (
    digests,
    files,
    jpeg_bytes,
    write_folder,
    write_large_folder,
)
from support.sources.tables import write_table

import fastpipe
from fastpipe.errors import ConfigError, PackError
from fastpipe.packing.job.progress import PackProgress
from fastpipe.packing.shard import publish
from fastpipe.sources.files import source_path
from fastpipe.store.remote import remote_path
from fastpipe.store.remote.options import remote_options
from fastpipe.tools.cli.pack_report import pack_progress
from fastpipe.tools.verify.repair import repair
from fastpipe.tools.verify.verification import verify

SMALL = {"shard_size": 100_000, "workers": 2}


def same(bucket: MemoryBucket, key: str, local: Path) -> None:
    """The dataset in the bucket has the files of the local one, byte by byte, and no others."""
    there, here = bucket.objects(key), files(local)
    assert there.keys() == here.keys()
    assert {name for name in here if there[name] != here[name]} == set()


def coco(folder: Path) -> Path:
    """Annotations and images."""
    images, annotations = [], []
    (folder / "images").mkdir(parents=True)
    for number in range(6):
        (folder / "images" / f"{number}.jpg").write_bytes(jpeg_bytes((60, 40), seed=number))
        images.append({"id": number, "file_name": f"{number}.jpg", "width": 60, "height": 40})
        annotations.append(
            {
                "id": number,
                "image_id": number,
                "category_id": 1,
                "bbox": [1, 2, 10, 20],
                "iscrowd": 0,
            }
        )
    said = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "cat"}]}
    (folder / "instances_train.json").write_text(json.dumps(said))
    return folder


def manifest(folder: Path) -> Path:
    """A CSV file, and images in folders; one row names no file."""
    write_folder(folder / "photos", images=9)
    with open(folder / "train.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", "caption"])
        for path in sorted((folder / "photos").rglob("*.jpg")):
            rows.writerow(
                [path.relative_to(folder / "photos"), path.parent.name, f"of {path.stem}"]
            )
        rows.writerow(["gone.jpg", "ant", "nothing"])
    return folder


def dataset(folder: Path) -> Path:
    """One that is packed, of which every third sample is removed."""
    fastpipe.pack(write_folder(folder.with_name("photos")), folder)
    fastpipe.remove(folder, classes="bee")
    return folder


SOURCES: dict[str, tuple[Callable[[Path], Path], str, dict[str, Any]]] = {
    "image folder": (folder, "", {}),
    "tars": (tar, "", {}),
    "one tar": (tar, "1.tar", {}),
    "parquet": (parquet, "", {}),
    "one parquet": (parquet, "1.parquet", {}),
    "coco": (coco, "", {}),
    "csv": (manifest, "train.csv", {"image_root": "photos"}),
    "metadata": (metadata, "", {}),
    "packed dataset": (dataset, "", {}),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_the_bytes_are_those_of_a_local_pack(
    tmp_path: Path, bucket: MemoryBucket, kind: str
) -> None:
    make, inner, options = SOURCES[kind]
    source = make(tmp_path / "source")
    url = bucket.upload(source, "in/source")
    here = {
        name: source / value if name == "image_root" else value for name, value in options.items()
    }
    there = {
        name: f"{url}/{value}" if name == "image_root" else value for name, value in options.items()
    }
    local = fastpipe.pack(source / inner, tmp_path / "local", **SMALL, **here)
    remote = fastpipe.pack(
        f"{url}/{inner}".rstrip("/"),
        bucket.url("out/train"),
        **SMALL,
        **there,
        spool=tmp_path / "spool",
    )
    same(bucket, "out/train", tmp_path / "local")
    assert remote.info == local.info
    assert (remote.stray, remote.dropped) == (local.stray, local.dropped)
    assert remote.uploaded_bytes >= sum(map(len, bucket.objects("out/train").values()))
    assert not list((tmp_path / "spool").iterdir())  # nothing is left on this machine


def test_a_manifest_here_and_its_images_there(tmp_path: Path, bucket: MemoryBucket) -> None:
    source = manifest(tmp_path / "source")
    url = bucket.upload(source / "photos", "photos")
    text = (source / "train.csv").read_text()
    by_url = text.replace("bee/", f"{url}/bee/")  # rows may also have whole URLs
    assert by_url != text
    (tmp_path / "urls").mkdir()
    (tmp_path / "urls" / "train.csv").write_text(by_url)
    fastpipe.pack(source / "train.csv", tmp_path / "local", image_root=source / "photos", **SMALL)
    found = fastpipe.pack(
        tmp_path / "urls" / "train.csv", tmp_path / "packed", image_root=url, **SMALL
    )
    assert [path for path, _ in found.tally.rejected] == ["gone.jpg"]
    for name in ("shard-000000.tar", "index.npy", "rejected.jsonl"):
        assert (tmp_path / "packed" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


def test_a_folder_that_a_program_has_made_is_empty(tmp_path: Path, bucket: MemoryBucket) -> None:
    bucket.put("out/", b"")  # as the consoles of the clouds do
    source = write_folder(tmp_path / "photos")
    packed = fastpipe.pack(source, bucket.url("out/"), **SMALL).info
    assert len(fastpipe.open(bucket.url("out"), cache_dir=tmp_path)) > 0
    assert fastpipe.pack(source, bucket.url("out"), overwrite=True, **SMALL).info == packed
    assert (
        fastpipe.pack(source, bucket.url("out"), overwrite=True, **SMALL, max_size=20).info
        != packed
    )


def test_a_whole_bucket_with_marks_of_folders(tmp_path: Path, bucket: MemoryBucket) -> None:
    source = write_folder(tmp_path / "source", images=4)
    for file in source.rglob("*.jpg"):
        bucket.put(str(file.relative_to(source)), file.read_bytes())
    for name in ("ant/", "cow/"):  # as the console of S3 makes them
        bucket.put(name, b"")
    fastpipe.pack(f"s3://{bucket.name}", tmp_path / "packed")
    fastpipe.pack(source, tmp_path / "local")
    assert digests(tmp_path / "packed") == digests(tmp_path / "local")


def test_sources_of_a_web_server(tmp_path: Path) -> None:
    web = tmp_path / "web"
    rows = manifest(web / "rows")
    cases: list[tuple[Path, dict[str, str]]] = [
        (parquet(web / "tables") / "0.parquet", {}),
        (tar(web / "my tars") / "0.tar", {}),
        (rows / "train.csv", {"image_root": "photos"}),
    ]
    with RangeServer(web) as server:
        for number, (file, options) in enumerate(cases):
            here = {name: file.parent / value for name, value in options.items()}
            url = f"{server.url}/{quote(str(file.relative_to(web)))}"
            there = {name: f"{url.rpartition('/')[0]}/{value}" for name, value in options.items()}
            fastpipe.pack(file, tmp_path / f"local{number}", **SMALL, **here)
            fastpipe.pack(url, tmp_path / f"packed{number}", **SMALL, **there)
            assert digests(tmp_path / f"packed{number}") == digests(tmp_path / f"local{number}")
        with pytest.raises(
            PackError,
            match="a web server has no list of its files; expected a file: a tar, a Parquet",
        ):
            fastpipe.pack(f"{server.url}/rows", tmp_path / "none")
        with pytest.raises(PackError, match=r"/rows/none\.tar does not exist; expected a folder"):
            fastpipe.pack(f"{server.url}/rows/none.tar", tmp_path / "none")


def test_rows_that_are_urls(tmp_path: Path) -> None:
    """Those of a web server have escapes; other ones say so, under their whole name."""
    folder = tmp_path / "web" / "my photos"
    write_folder(folder, images=3)
    names = [str(file.relative_to(folder)) for file in sorted(folder.rglob("*.jpg"))]
    (folder / names[0]).rename(folder / "50% ä.jpg")
    names[0] = "50% ä.jpg"
    (tmp_path / "local.csv").write_text("\n".join(["path", *names]))
    fastpipe.pack(tmp_path / "local.csv", tmp_path / "local", image_root=folder, **SMALL)
    with RangeServer(tmp_path / "web") as server:
        rows = [f"{server.url}/my%20photos/{quote(name)}" for name in names]
        (tmp_path / "urls.csv").write_text("\n".join(["path", *rows, "s3://other/a.jpg"]))
        root = f"{server.url}/my%20photos/"
        summary = fastpipe.pack(
            tmp_path / "urls.csv", tmp_path / "packed", image_root=root, **SMALL
        )
        words = r"lists URLs, such as https?://.* that all of them begin with: --image-root URL"
        with pytest.raises(PackError, match=words):
            fastpipe.pack(tmp_path / "urls.csv", tmp_path / "none", shuffle=False, **SMALL)
    assert shard_bytes(tmp_path / "packed") == shard_bytes(tmp_path / "local")
    reason = "a URL that is not in the image root; --image-root says where the images are (urls.csv/000005)"
    assert summary.tally.rejected == [("s3://other/a.jpg", reason)]


@pytest.mark.parametrize("inner", ["", "/1.parquet"])
def test_sources_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner: str) -> None:
    tables = parquet(tmp_path / "source")
    commit, hub = "0123456789abcdef0123456789abcdef01234567", tmp_path / "hub"
    about = hub / "api/datasets/org/photos"
    tree = about / "tree" / commit
    listed = tree / "data" if inner else tree  # it lists the folder that SRC is in
    for place in (about / "revision", listed.parent, hub / f"datasets/org/photos/resolve/{commit}"):
        place.mkdir(parents=True)
    (hub / f"datasets/org/photos/resolve/{commit}/data").symlink_to(tables)
    facts = {
        "id": "org/photos",
        "sha": commit,
        "siblings": [],
        "tags": [],
        "private": False,
        "downloads": 0,
    }
    (about / "revision/v1").write_text(json.dumps(facts))
    there = [
        {
            "type": "file",
            "path": f"data/{file.name}",
            "size": file.stat().st_size,
            "oid": f"{number:040x}",
        }
        for number, file in enumerate(sorted(tables.iterdir()), 1)
    ]
    listed.write_text(
        json.dumps([{"type": "directory", "path": "data", "size": 0, "oid": "0" * 40}, *there])
    )
    with RangeServer(hub) as server:
        monkeypatch.setattr(
            "huggingface_hub.constants.HF_HUB_OFFLINE", False
        )  # other tests switch it on
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
        monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", server.url)
        # ETags of the servers behind the Hub differ from each other; the commit says that nothing has changed.
        server.fault = lambda request: (
            Fault(headers={"ETag": f'"{request.number}"'}) if "resolve" in request.path else None
        )
        url = f"hf://datasets/org/photos@v1/data{inner}"
        fastpipe.pack(url, tmp_path / "packed", **SMALL)
        fastpipe.pack(f"{tables}{inner}", tmp_path / "local", **SMALL)
        assert digests(tmp_path / "packed") == digests(tmp_path / "local")
        assert fastpipe.pack(url, tmp_path / "packed", **SMALL).already_packed
        with pytest.raises(
            PackError, match=r"hf://datasets/org/photos@v1/data.*none\.parquet does not exist"
        ):
            fastpipe.pack(url.removesuffix("1.parquet") + "none.parquet", tmp_path / "none")


def test_a_footer_is_read_once_and_each_row_group_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [jpeg_bytes((300, 300), seed=number, quality=95) for number in range(40)]
    table = write_table(tmp_path / "web" / "x.parquet", images, rows_per_group=10, label=[0] * 40)
    monkeypatch.setattr(
        remote_path, "_PIECE_BYTES", 128 << 10
    )  # so a group is several of them, as it is usually
    monkeypatch.setattr(remote_path, "_MIN_PIECE_BYTES", 4 << 10)
    monkeypatch.setattr("fastpipe.packing.shard.plan.FEW", 10)
    with RangeServer(tmp_path / "web") as server:
        fastpipe.pack(f"{server.url}/x.parquet", tmp_path / "packed", **SMALL)
        size = table.stat().st_size
        footers = [
            request
            for request in server.requests
            if (request.start, request.stop) == (size - (64 << 10), size)
        ]
        assert len(footers) == 1
        first, ahead = (
            size / 4,
            3 * (128 << 10),
        )  # the plan looks at the first of the four, and reads on a little
        assert server.sent_bytes < 1.2 * size + first + ahead
        starts = Counter(
            request.start
            for request in server.requests
            if 4 << 10 < request.stop - request.start < size
        )
        assert max(starts.values()) == 2
        assert max(start for start, count in starts.items() if count == 2) < first + ahead


def test_members_of_a_tar_are_fetched_at_the_same_time_and_with_their_fields(
    tmp_path: Path,
) -> None:
    source = tar(tmp_path / "web", images=12)
    size = (source / "0.tar").stat().st_size
    members: list[Request] = []
    all_here = threading.Barrier(6)

    def wait_for_all(request: Request) -> None:
        if request.stop - request.start < size:  # else it is to list the tar
            members.append(request)
            all_here.wait(300)

    with RangeServer(source, fault=wait_for_all) as server:
        fastpipe.pack(f"{server.url}/0.tar", tmp_path / "packed", workers=1)
    assert len(members) == 6  # each sample has three members


def test_a_local_dataset_is_repaired_from_a_bucket(tmp_path: Path, bucket: MemoryBucket) -> None:
    url = bucket.upload(write_large_folder(tmp_path / "source"), "in")
    packed = tmp_path / "packed"
    fastpipe.pack(url, packed, **SMALL)
    before = digests(packed)
    shard = packed / "shard-000001.tar"
    data = bytearray(shard.read_bytes())
    data[5000] ^= 1
    shard.write_bytes(data)
    source = source_path(url, remote_options(None, 0, None, 20.0))
    assert repair(packed, source, verify(packed)) == [shard.name]
    assert digests(packed) == before


def test_a_writer_into_a_bucket(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [
        path.read_bytes() for path in sorted(write_large_folder(tmp_path / "source").rglob("*.jpg"))
    ]
    monkeypatch.setattr("fastpipe.packing.pipeline.ahead.RUN_TASKS", 1)

    def write(dst: object, upto: int, **options: Any) -> fastpipe.Writer:
        writer = fastpipe.Writer(dst, {"caption": "text"}, shard_size=100_000, workers=1, **options)  # type: ignore[arg-type]
        with writer:
            for number in range(24):
                if number == upto:
                    raise RuntimeError("ended")
                writer.add(
                    images[number], label=number % 3, key=f"photo {number}", caption=f"of {number}"
                )
        return writer

    with pytest.raises(RuntimeError, match="ended"):
        write(bucket.url("out"), 20, spool=tmp_path / "spool")
    unfinished = bucket.objects("out")
    assert "dataset.json" not in unfinished
    kept = sum(name.startswith(".pack/shard-") and name.endswith(".done") for name in unfinished)
    assert kept >= 2
    done = write(bucket.url("out"), 99, spool=tmp_path / "spool")
    assert done.summary.resumed == kept
    write(tmp_path / "local", 99)
    same(bucket, "out", tmp_path / "local")


def test_places_that_cannot_be(tmp_path: Path, bucket: MemoryBucket) -> None:
    source = write_folder(tmp_path / "source")
    options = {"spool": tmp_path / "spool"}
    for url in ("https://host/x", "hf://datasets/org/name/x", "ftp://host/x"):
        words = r"cannot write to (https|hf|ftp)://; it writes to s3://, gs://, az:// and to f"
        with pytest.raises(ConfigError, match=words):
            fastpipe.pack(source, url)
        with pytest.raises(ConfigError, match="fastpipe cannot write to"):
            fastpipe.Writer(url)
    with pytest.raises(
        ConfigError, match=r"DST s3:/bucket/x: pathlib\.Path damages URLs: pass the URL as a string"
    ):
        fastpipe.pack(source, Path("s3://bucket/x"))
    with pytest.raises(
        ConfigError, match=r"^spool: expected a folder of this machine, for a DST that is a URL"
    ):
        fastpipe.pack(source, tmp_path / "packed", spool=tmp_path / "spool")
    url = bucket.upload(source, "in")
    with pytest.raises(ConfigError, match="must not contain DST"):
        fastpipe.pack(url, f"{url}/packed", **options)
    with pytest.raises(
        PackError,
        match=r"s3://.*/in is not empty and holds no packed dataset: it has other files, such as ant/00\.jpg",
    ):
        fastpipe.pack(source, url, **options)
    with pytest.raises(PackError, match=r"s3://.*/none does not exist; expected a folder"):
        fastpipe.pack(bucket.url("none"), tmp_path / "packed", **options | {"spool": None})


def test_too_little_room_for_the_spool(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=200_000)
    monkeypatch.setattr("fastpipe.store.store.shutil.disk_usage", lambda _: usage)
    source = write_large_folder(tmp_path / "source")
    with pytest.raises(
        PackError, match=r"has 0\.2 MB free; expected at least 0\.3 MB, because shards are written"
    ):
        fastpipe.pack(source, bucket.url("out"), **SMALL, spool=tmp_path / "spool")


def test_a_full_disk_refuses_no_pack_that_has_nothing_to_do(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_large_folder(tmp_path / "source", images=8)
    options = {**SMALL, "spool": tmp_path / "spool"}
    fastpipe.pack(source, bucket.url("out"), **options)
    usage = SimpleNamespace(free=0)
    monkeypatch.setattr("fastpipe.store.store.shutil.disk_usage", lambda _: usage)
    assert fastpipe.pack(source, bucket.url("out"), **options).already_packed


def test_the_spool_holds_few_shards(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, spool, most = write_large_folder(tmp_path / "source", images=30), tmp_path / "spool", 0
    told: list[PackProgress] = []
    monkeypatch.setattr(
        "fastpipe.packing.shard.tar._BUFFER_BYTES", 4096
    )  # so that sizes are those of now

    def watch(now: PackProgress) -> None:
        nonlocal most
        told.append(now)
        most = max(
            most, sum(file.stat().st_size for file in spool.rglob("shard-*.tar*") if file.exists())
        )

    packed = fastpipe.pack(source, bucket.url("out"), **SMALL, spool=spool, on_progress=watch)
    assert sum(name.startswith("shard-") for name in bucket.objects("out")) >= 8
    sizes = [shard["size_bytes"] for shard in packed.info["shards"]]
    assert 0 < most <= max(map(sum, pairwise(sizes)))  # one is written, and one is uploaded
    uploaded = [now.uploaded_bytes for now in told]
    assert uploaded == sorted(uploaded)
    assert len(set(uploaded)) >= 8
    assert (told[-1].step, told[-1].files) == ("publishing", 30)
    screen = io.StringIO()
    with pack_progress(Console(force_terminal=True, width=200, file=screen)) as show:
        show(told[-1])
    assert "publishing: 30/30 files" in screen.getvalue()
    assert f"{told[-1].uploaded_bytes / 1e6:,.0f} MB uploaded" in screen.getvalue()


def _add_images(writer: fastpipe.Writer, first: int) -> None:
    for number in range(first, first + 8):
        pixels = np.full((40, 50, 3), number % 256, np.uint8)
        writer.add(pixels, label=first // 100, key=f"{number}")


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("ends_first", [0, 1])
def test_two_writers_at_the_same_place(
    tmp_path: Path, bucket: MemoryBucket, overwrite: bool, ends_first: int
) -> None:
    """As two ranks on two machines: the one that began first stops, whoever ends first."""
    url = bucket.url("out")
    if overwrite:
        with fastpipe.Writer(url, spool=tmp_path / "old") as old:
            _add_images(old, 200)
    writers = [
        fastpipe.Writer(url, spool=tmp_path / f"rank-{rank}", overwrite=overwrite)
        for rank in range(2)
    ]
    for rank, writer in enumerate(writers):
        writer.__enter__()
        _add_images(writer, 100 * rank)

    for rank in (ends_first, 1 - ends_first):
        if rank == 1:
            writers[1].__exit__(None, None, None)
        else:
            with pytest.raises(PackError, match=r"another program has begun .*fastpipe\.concat"):
                writers[0].__exit__(None, None, None)

    data = fastpipe.open(url)
    assert list(data["label"][:]) == [1] * 8
    assert not any(name.startswith(".pack/") for name in bucket.objects("out"))


def test_a_writer_that_begins_while_another_publishes(tmp_path: Path, bucket: MemoryBucket) -> None:
    """The one that publishes writes no dataset whose shards the other is about to replace."""
    url = bucket.url("out")
    first = fastpipe.Writer(url, spool=tmp_path / "first", overwrite=True)
    second = fastpipe.Writer(url, spool=tmp_path / "second", overwrite=True)
    write_columns = publish.write_columns

    def begin_second(*arguments: Any) -> Any:
        second.__enter__()
        return write_columns(*arguments)

    first.__enter__()
    _add_images(first, 0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publish, "write_columns", begin_second)
        with pytest.raises(PackError, match=r"another program has begun .*fastpipe\.concat"):
            first.__exit__(None, None, None)
    _add_images(second, 100)
    second.__exit__(None, None, None)
    data = fastpipe.open(url)
    assert list(data["label"][:]) == [1] * 8
