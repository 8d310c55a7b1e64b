"""Packs from and into buckets that are interrupted, meet faults, or find that something has changed."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from support.programs.cli_run import COMMAND
from support.remote.range_server import Fault, RangeServer, Request
from support.remote.s3 import Asked, Bucket, Proxy, Wrong
from support.running.patience import in_time
from support.running.soak import Tried, long_form, times
from support.sources.pack_sources import files, write_large_folder
from support.sources.tables import write_table

import fastpipe
from fastpipe.errors import DatasetError, PackError
from fastpipe.format.folder import Url
from fastpipe.store.remote import connection, objects
from fastpipe.store.remote.objects import Objects
from fastpipe.store.remote.options import RemoteOptions, remote_options

SMALL = {"shard_size": 100_000, "workers": 2}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_large_folder(tmp_path / "source", images=14)


@pytest.fixture
def local(tmp_path: Path, source: Path) -> dict[str, bytes]:
    """What a local pack of the source gives."""
    fastpipe.pack(source, tmp_path / "local", **SMALL)
    return files(tmp_path / "local")


def put_of(name: str) -> Callable[[Asked], bool]:
    return lambda asked: asked.method == "PUT" and name in asked.target


class EndedError(Exception):
    pass


def stop_after(shards: int, bucket: Bucket, key: str) -> Callable[[object], None]:
    """An on_progress that ends the pack when so many shards are recorded in the bucket."""

    def look(_: object) -> None:
        names = bucket.client.list_objects_v2(Bucket=bucket.name, Prefix=f"{key}/.pack/").get("Contents", ())
        if sum(each["Key"].endswith(".done") and "shard-" in each["Key"] for each in names) >= shards:
            raise EndedError

    return look


def change_a_byte(file: Path) -> None:
    """It has as many bytes; the time is of the same second, or nearly."""
    data = bytearray(file.read_bytes())
    data[-300] ^= 0x10
    file.write_bytes(data)


def test_an_interrupted_pack_goes_on_on_another_machine(
    tmp_path: Path, bucket: Bucket, source: Path, local: dict[str, bytes]
) -> None:
    there = {"storage_options": bucket.options, **SMALL}
    with pytest.raises(EndedError):
        fastpipe.pack(
            source, bucket.url("out"), spool=tmp_path / "one", on_progress=stop_after(2, bucket, "out"), **there
        )
    unfinished = bucket.objects("out")
    assert "dataset.json" not in unfinished
    with pytest.raises(DatasetError, match="holds no packed dataset"):
        fastpipe.open(bucket.url("out"), storage_options=bucket.options, cache_dir=tmp_path / "cache")
    kept = {name for name in unfinished if re.fullmatch(r"\.pack/shard-\d+-\w+\.done", name)}
    with Proxy(bucket.options["endpoint"]) as proxy:
        done = fastpipe.pack(
            source,
            bucket.url("out"),
            spool=tmp_path / "another",
            **SMALL,
            storage_options=bucket.through(proxy.url),
        )
        assert done.resumed == len(kept) >= 2
        for name in kept:  # they are not uploaded again
            shard = name.removeprefix(".pack/").rpartition("-")[0] + ".tar"
            assert not [asked for asked in proxy.asked if put_of(shard)(asked)]
    assert bucket.objects("out") == local


@pytest.mark.usefixtures("quick")
def test_only_a_shard_without_its_entry_is_made_again(
    tmp_path: Path, bucket: Bucket, source: Path, local: dict[str, bytes]
) -> None:
    def fail(asked: Asked) -> Wrong | None:
        return Wrong(403) if put_of(".pack/shard-000001-")(asked) else None

    with Proxy(bucket.options["endpoint"], fail) as proxy:
        there = {"storage_options": bucket.through(proxy.url), "spool": tmp_path / "spool", **SMALL}
        with pytest.raises(PackError, match=r"shard-000001-\w+\.done cannot be uploaded: HTTP 403"):
            fastpipe.pack(source, bucket.url("out"), **there)
        proxy.fault = lambda _: None
        proxy.asked.clear()
        fastpipe.pack(source, bucket.url("out"), **there)
        made = [asked.target.rpartition("/")[2] for asked in proxy.asked if put_of(".tar")(asked)]
    assert "shard-000000.tar" not in made
    assert made.count("shard-000001.tar") == 1
    assert bucket.objects("out") == local


def test_changed_sources_are_seen_by_their_etags(tmp_path: Path, bucket: Bucket, source: Path) -> None:
    url = bucket.upload(source, "in")
    there = {"storage_options": bucket.options, "spool": tmp_path / "spool", **SMALL}
    fastpipe.pack(url, bucket.url("out"), **there)
    assert fastpipe.pack(url, bucket.url("out"), **there).already_packed
    name = next(iter(sorted(source.rglob("*.jpg"))))
    change_a_byte(name)
    bucket.upload(source, "in")
    with pytest.raises(
        PackError, match="holds a different dataset, or a damaged dataset: the source files have changed"
    ):
        fastpipe.pack(url, bucket.url("out"), **there)
    done = fastpipe.pack(url, bucket.url("out"), overwrite=True, **there)
    assert not done.already_packed
    fastpipe.pack(source, tmp_path / "local", **SMALL)
    assert bucket.objects("out") == files(tmp_path / "local")


def test_a_change_while_packing_keeps_what_it_does_not_affect(tmp_path: Path, bucket: Bucket, source: Path) -> None:
    url = bucket.upload(source, "in")
    there = {"storage_options": bucket.options, **SMALL}
    with pytest.raises(EndedError):
        fastpipe.pack(
            url,
            bucket.url("out"),
            spool=tmp_path / "spool",
            on_progress=stop_after(2, bucket, "out"),
            **there,
        )
    names = [str(path.relative_to(source)) for path in source.rglob("*.jpg")]
    from fastpipe.sources.listing import Source, packing_order

    last = max(names, key=lambda name: packing_order(0, shuffle=True)(Source(name, 0, 0, 0, 0)))
    change_a_byte(source / last)
    bucket.upload(source, "in")
    done = fastpipe.pack(url, bucket.url("out"), spool=tmp_path / "spool", **there)
    assert done.resumed >= 2
    fastpipe.pack(source, tmp_path / "local", **SMALL)
    assert bucket.objects("out") == files(tmp_path / "local")


def test_a_file_that_is_replaced_while_it_is_packed(tmp_path: Path, source: Path) -> None:
    tar = tmp_path / "web" / "x.tar"
    tar.parent.mkdir()
    shutil.make_archive(str(tar.with_suffix("")), "tar", source)

    def replaced(request: Request) -> Fault | None:
        return Fault(headers={"ETag": '"another"'}) if request.number > 5 else None

    with RangeServer(tar.parent, fault=replaced) as server, pytest.raises(PackError) as caught:
        fastpipe.pack(f"{server.url}/x.tar", tmp_path / "packed", **SMALL)
    assert re.search(
        r"/x\.tar has changed while packing: it has another ETag\. Finished shards are kept", str(caught.value)
    )


def test_to_replace_a_dataset(tmp_path: Path, bucket: Bucket, source: Path, local: dict[str, bytes]) -> None:
    there = {"storage_options": bucket.options, "spool": tmp_path / "spool"}
    fastpipe.pack(source, bucket.url("out"), shard_size=150_000, **there)
    before = bucket.hashes("out")
    wanted = {name: hashlib.md5(data).hexdigest() for name, data in local.items()}
    with pytest.raises(PackError, match=r"holds a different dataset.*shard_size 150000 there, 100000 now.*--overwrite"):
        fastpipe.pack(source, bucket.url("out"), **SMALL, **there)
    seen: list[str] = []

    def look(asked: Asked) -> Wrong | None:
        """At each change, whether a dataset of old and new shards could be loaded."""
        if asked.method in ("PUT", "DELETE", "POST"):
            now = bucket.hashes("out")  # all of them at one moment
            if "dataset.json" not in now:
                seen.append("none")
            elif now["dataset.json"] == before["dataset.json"]:
                seen.append("old" if before.items() <= now.items() else "mixed")
            else:
                seen.append("new" if wanted.items() <= now.items() else "mixed")
        return None

    with Proxy(bucket.options["endpoint"], look) as proxy:
        fastpipe.pack(
            source,
            bucket.url("out"),
            overwrite=True,
            **SMALL,
            storage_options=bucket.through(proxy.url),
            spool=tmp_path / "spool",
        )
    assert set(seen) == {"old", "none", "new"}
    assert bucket.objects("out") == local


@pytest.mark.usefixtures("quick")
def test_a_replacement_that_is_killed_goes_on(
    tmp_path: Path, bucket: Bucket, source: Path, local: dict[str, bytes]
) -> None:
    there = {"storage_options": bucket.options, "spool": tmp_path / "spool"}
    fastpipe.pack(source, bucket.url("out"), shard_size=150_000, **there)
    deletes = 0

    def fail(asked: Asked) -> Wrong | None:
        nonlocal deletes
        deletes += asked.method == "DELETE" or "delete" in asked.target
        return Wrong(403) if deletes > 3 else None  # dataset.json is gone, and some of the shards

    with (
        Proxy(bucket.options["endpoint"], fail) as proxy,
        pytest.raises(PackError, match="cannot be removed: HTTP 403"),
    ):
        fastpipe.pack(
            source,
            bucket.url("out"),
            overwrite=True,
            **SMALL,
            storage_options=bucket.through(proxy.url),
            spool=tmp_path / "spool",
        )
    assert "dataset.json" not in bucket.objects("out")
    fastpipe.pack(source, bucket.url("out"), **SMALL, **there)
    assert bucket.objects("out") == local


def test_two_packs_at_the_same_place(tmp_path: Path, bucket: Bucket, source: Path, local: dict[str, bytes]) -> None:
    url, begun = bucket.url("out"), []
    there = {"storage_options": bucket.options, **SMALL}

    def meanwhile(_: object) -> None:
        if begun:
            return
        begun.append(True)
        with pytest.raises(PackError, match=rf"another pack is writing to {url}"):
            fastpipe.pack(source, url, spool=tmp_path / "one", **there)
        fastpipe.pack(source, url, spool=tmp_path / "another", **there)  # the same pack, on another machine

    fastpipe.pack(source, url, spool=tmp_path / "one", on_progress=meanwhile, **there)
    assert bucket.objects("out") == local

    def another(_: object) -> None:
        bucket.client.put_object(Bucket=bucket.name, Key="two/dataset.json", Body=b"{}")

    with pytest.raises(PackError, match=r"two/dataset\.json has appeared meanwhile: another program writes to"):
        fastpipe.pack(source, bucket.url("two"), spool=tmp_path / "one", on_progress=another, **there)


def test_a_shard_that_another_program_has_replaced(
    tmp_path: Path, bucket: Bucket, source: Path, local: dict[str, bytes]
) -> None:
    there = {"storage_options": bucket.options, "spool": tmp_path / "spool", **SMALL}

    def disturb(now: Any) -> None:
        if now.files == now.total_files and now.step == "packing":
            size = len(local["shard-000001.tar"])
            bucket.client.put_object(
                Bucket=bucket.name, Key="out/shard-000001.tar", Body=bytes(size), Metadata={"fastpipestate": "0"}
            )

    with pytest.raises(PackError, match=r"out/shard-000001\.tar is not what this pack has written there: another pro"):
        fastpipe.pack(source, bucket.url("out"), on_progress=disturb, **there)
    assert "dataset.json" not in bucket.objects("out")
    fastpipe.pack(source, bucket.url("out"), **there)
    assert bucket.objects("out") == local


FAULTS = {
    "503": Wrong(503),
    "429": Wrong(429),
    "500": Wrong(500),
    "reset": Wrong(),
    "answer lost": Wrong(lose_answer=True),
    "stall": Wrong(stall_s=20),
}


@pytest.mark.usefixtures("quick")
def test_faults_of_the_network(
    tmp_path: Path, bucket: Bucket, source: Path, local: dict[str, bytes], tried: Tried
) -> None:
    """Each fifth request meets a fault."""
    url = bucket.upload(source, "in")
    rng, met = random.Random(3), Counter[str]()

    def fault(asked: Asked) -> Wrong | None:
        if asked.attempt or rng.random() > 0.2:
            return None
        name = rng.choice(list(FAULTS)) if met["stall"] < 3 or long_form() else rng.choice(list(FAULTS)[:-1])
        met[name] += 1
        return FAULTS[name]

    for round_ in range(times(1, 40)):
        with Proxy(bucket.options["endpoint"], fault) as proxy:
            there = {"storage_options": bucket.through(proxy.url), "spool": tmp_path / "spool", "read_timeout": 0.5}
            fastpipe.pack(url, bucket.url(f"out{round_}"), **there, **SMALL)
        assert bucket.objects(f"out{round_}") == local
    assert met.total() >= 8
    tried(
        "packing by URL: 429, 500, 503, resets, lost answers, stalls; for a fifth of the requests",
        met.total(),
        "the bytes of a local pack",
    )


@pytest.mark.usefixtures("quick")
def test_a_list_that_breaks_off_goes_on_behind_its_last_name(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(f"in/{number % 3}/{number}.jpg" for number in range(40))
    for name in names:
        bucket.client.put_object(Bucket=bucket.name, Key=name, Body=name.encode())
    monkeypatch.setattr(objects, "_PAGE", 7)
    whole, asked_after = Objects._pages, list[str | None]()

    async def breaks_off(self: Objects, folder: str, after: str | None) -> AsyncIterator[Any]:
        asked_after.append(after)
        pages = 0
        async for page in whole(self, folder, after):
            yield page
            pages += 1
            if pages == 2 and len(asked_after) < 3:
                raise ConnectionResetError("status code: 503 Slow Down")

    monkeypatch.setattr(Objects, "_pages", breaks_off)
    there = Objects(Url(f"s3://{bucket.name}"), remote_options(None, 0, bucket.options, 20.0))
    assert [name for name, _ in there.listed("in")] == names
    assert asked_after == [None, names[13], names[27]]


@pytest.mark.parametrize("what", ["reading", "uploading"])
@pytest.mark.usefixtures("quick")
def test_a_fault_that_stays(tmp_path: Path, bucket: Bucket, source: Path, what: str) -> None:
    url = bucket.upload(source, "in")

    def fault(asked: Asked) -> Wrong | None:
        hit = asked.target.endswith(".jpg") if what == "reading" else put_of("shard-000001.tar")(asked)
        return Wrong(403) if hit and asked.method in ("GET", "PUT") else None

    named = {"reading": r"in/class-\d/\d+\.jpg, bytes 0 to [\d,]+ cannot be fetched", "uploading": "cannot be uploaded"}
    with Proxy(bucket.options["endpoint"], fault) as proxy:
        there = {"storage_options": bucket.through(proxy.url), "spool": tmp_path / "spool", **SMALL}
        with pytest.raises(PackError, match=rf"{named[what]}: HTTP 403.* after 4 attempts in .*Check the credentials"):
            fastpipe.pack(url, bucket.url("out"), **there)
    assert "dataset.json" not in bucket.objects("out")


@pytest.mark.usefixtures("quick")
def test_a_bucket_of_another_region_is_told_at_once(tmp_path: Path, bucket: Bucket, source: Path) -> None:
    """S3 answers with a redirect that names no URL."""
    with Proxy(bucket.options["endpoint"], lambda _: Wrong(301)) as proxy:
        there = {"storage_options": bucket.through(proxy.url), **SMALL}
        with pytest.raises(
            PackError, match=r"in cannot be looked at: .*after 2 attempts in .*another region: set AWS_REGION"
        ):
            fastpipe.pack(bucket.url("in"), tmp_path / "packed", **there)


@pytest.mark.usefixtures("quick")
def test_an_upload_that_does_not_succeed_names_all(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_LEAST_PART_BYTES", 5 << 20)
    monkeypatch.setattr(connection, "_PART_RETRIES", 1)
    monkeypatch.setattr(RemoteOptions, "patience_s", 1.5)
    source = tmp_path / "source"
    source.mkdir()
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(5)
    for number in range(5):
        noise = rng.integers(0, 256, (900, 900, 3), dtype=np.uint8)
        Image.fromarray(noise).save(source / f"{number}.jpg", quality=95, subsampling=0)
    fails = True

    def part_two(asked: Asked) -> Wrong | None:
        return Wrong(503) if fails and "partNumber=2" in asked.target else None

    with Proxy(bucket.options["endpoint"], part_two) as proxy:
        there = {"storage_options": bucket.through(proxy.url), "spool": tmp_path / "spool", "read_timeout": 0.5}
        with pytest.raises(PackError) as caught:
            fastpipe.pack(source, bucket.url("out"), **there)
        assert re.search(
            r"s3://.*/out/shard-000000\.tar cannot be uploaded: HTTP 503 .*\(part 2, 2 requests an attempt\), "
            r"after \d+ attempts in .*s\. The server is overloaded",
            str(caught.value),
        )
        assert bucket.unfinished_uploads() == 0
        fails = False
        proxy.asked.clear()
        fastpipe.pack(source, bucket.url("out"), **there)
        assert sum("partNumber" in asked.target for asked in proxy.asked) >= 2
    fastpipe.pack(source, tmp_path / "local")
    assert bucket.objects("out") == files(tmp_path / "local")


def command_of(bucket: Bucket, *arguments: object) -> tuple[list[str], dict[str, str]]:
    return [COMMAND, *map(str, arguments)], {**os.environ, **bucket.environment}


class KillAt:
    """Kills a program at the request that writes for the nth time."""

    running: subprocess.Popen[bytes]

    def __init__(self, reached: int) -> None:
        self.reached, self.writes = reached, 0

    def look(self, asked: Asked) -> Wrong | None:
        self.writes += asked.method not in ("GET", "HEAD")
        if self.writes >= self.reached and self.running.poll() is None:
            self.running.kill()
        return None


@pytest.mark.parametrize("kind", ["folder", "table"])
def test_a_pack_that_is_killed_goes_on(tmp_path: Path, bucket: Bucket, source: Path, tried: Tried, kind: str) -> None:
    if kind == "table":
        images = [path.read_bytes() for path in sorted(source.rglob("*.jpg"))]
        shutil.rmtree(source)
        write_table(source / "x.parquet", images, label=[number % 3 for number in range(len(images))])
    url = bucket.upload(source, "in")
    fastpipe.pack(source, tmp_path / "local", **SMALL)
    expected = files(tmp_path / "local")
    rng, kills = random.Random(7), 0
    for round_ in range(times(1, 100)):
        key = f"out{round_}"
        words, environment = command_of(
            bucket, "pack", url, bucket.url(key), "--shard-size", "100000", "--spool", tmp_path / "spool"
        )
        ended = KillAt(rng.randint(1, 30))
        with Proxy(bucket.options["endpoint"], ended.look) as proxy:
            environment["AWS_ENDPOINT_URL"] = proxy.url
            ended.running = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            ended.running.communicate(timeout=60)
        if ended.running.returncode != 0:
            kills += 1
            assert ended.running.returncode == -signal.SIGKILL
            left = bucket.objects(key)
            assert "dataset.json" not in left or expected.items() <= left.items()
        there = {"storage_options": bucket.options, "spool": tmp_path / "spool", **SMALL}
        fastpipe.pack(url, bucket.url(key), **there)
        assert bucket.objects(key) == expected
    tried("packing by URL: SIGKILL at a request that writes", kills, "a second run finishes; same bytes")


@pytest.mark.parametrize("where", ["reading", "uploading"])
def test_ctrl_c_while_a_request_stalls(tmp_path: Path, bucket: Bucket, source: Path, where: str) -> None:
    url = bucket.upload(source, "in")
    stalled: list[Asked] = []

    def stall(asked: Asked) -> Wrong | None:
        read = asked.method == "GET" and asked.target.endswith(".jpg")
        wrote = asked.method == "PUT" and "shard-000000.tar" in asked.target
        if read if where == "reading" else wrote:
            stalled.append(asked)
            return Wrong(stall_s=30)
        return None

    words, environment = command_of(
        bucket, "pack", url, bucket.url("out"), "--shard-size", "100000", "--spool", tmp_path / "spool"
    )
    with Proxy(bucket.options["endpoint"], stall) as proxy:
        environment["AWS_ENDPOINT_URL"] = proxy.url
        running = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not stalled and running.poll() is None:
            time.sleep(0.02)
        pressed = time.monotonic()
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=30)
        assert in_time(time.monotonic() - pressed, 4)
    assert running.returncode == 130, said
    assert "finished shards are kept; run the same command again to continue" in said
    assert "Traceback" not in said
    assert not list((tmp_path / "spool").iterdir())
