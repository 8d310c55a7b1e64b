"""Packs and adds into S3 (moto's server), whose network fails, and which are killed or interrupted.

What does not need a server is tested with buckets in memory, in tests/packing/remote.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.datasets.growing import add_twice_at_once, photos
from support.programs.cli_run import COMMAND
from support.remote.s3 import Asked, Bucket, Proxy, Wrong
from support.running.patience import in_time
from support.running.soak import Tried, long_form, times
from support.sources.pack_sources import files, write_large_folder

import fastpipe
from fastpipe.errors import PackError
from fastpipe.store.remote import connection, objects
from fastpipe.store.remote.options import RemoteOptions

SMALL = {"shard_size": 100_000, "workers": 2}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_large_folder(tmp_path / "source", images=14)


@pytest.fixture
def local(tmp_path: Path, source: Path) -> dict[str, bytes]:
    """What a local pack of the source gives."""
    fastpipe.pack(source, tmp_path / "local", **SMALL)
    return files(tmp_path / "local")


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
        name = (
            rng.choice(list(FAULTS))
            if met["stall"] < 3 or long_form()
            else rng.choice(list(FAULTS)[:-1])
        )
        met[name] += 1
        return FAULTS[name]

    for round_ in range(times(1, 40)):
        with Proxy(bucket.options["endpoint"], fault) as proxy:
            there = {
                "storage_options": bucket.through(proxy.url),
                "spool": tmp_path / "spool",
                "read_timeout": 0.5,
            }
            fastpipe.pack(url, bucket.url(f"out{round_}"), **there, **SMALL)
        assert bucket.objects(f"out{round_}") == local
    assert met.total() >= 8
    tried(
        "packing by URL: 429, 500, 503, resets, lost answers, stalls; for a fifth of the requests",
        met.total(),
        "the bytes of a local pack",
    )


@pytest.mark.usefixtures("quick")
def test_an_upload_that_does_not_succeed_names_all(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_MIN_PART_BYTES", 5 << 20)
    monkeypatch.setattr(connection, "_PART_RETRIES", 1)
    monkeypatch.setattr(RemoteOptions, "patience_s", 1.5)
    source = tmp_path / "source"
    source.mkdir()
    rng = np.random.default_rng(5)
    for number in range(5):
        noise = rng.integers(0, 256, (900, 900, 3), dtype=np.uint8)
        Image.fromarray(noise).save(source / f"{number}.jpg", quality=95, subsampling=0)
    fails = True

    def part_two(asked: Asked) -> Wrong | None:
        return Wrong(503) if fails and "partNumber=2" in asked.target else None

    with Proxy(bucket.options["endpoint"], part_two) as proxy:
        there = {
            "storage_options": bucket.through(proxy.url),
            "spool": tmp_path / "spool",
            "read_timeout": 0.5,
        }
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


def test_a_pack_that_is_killed_goes_on(
    tmp_path: Path, bucket: Bucket, source: Path, tried: Tried
) -> None:
    url = bucket.upload(source, "in")
    fastpipe.pack(source, tmp_path / "local", **SMALL)
    expected = files(tmp_path / "local")
    rng, kills = random.Random(7), 0
    for round_ in range(times(1, 100)):
        key = f"out{round_}"
        words, environment = command_of(
            bucket,
            "pack",
            url,
            bucket.url(key),
            "--shard-size",
            "100000",
            "--spool",
            tmp_path / "spool",
        )
        ended = KillAt(rng.randint(1, 30))
        with Proxy(bucket.options["endpoint"], ended.look) as proxy:
            environment["AWS_ENDPOINT_URL"] = proxy.url
            ended.running = subprocess.Popen(
                words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            ended.running.communicate(timeout=300)
        if ended.running.returncode != 0:
            kills += 1
            assert ended.running.returncode == -signal.SIGKILL
            left = bucket.objects(key)
            assert "dataset.json" not in left or expected.items() <= left.items()
        there = {"storage_options": bucket.options, "spool": tmp_path / "spool", **SMALL}
        fastpipe.pack(url, bucket.url(key), **there)
        assert bucket.objects(key) == expected
    tried(
        "packing by URL: SIGKILL at a request that writes",
        kills,
        "a second run finishes; same bytes",
    )


@pytest.mark.parametrize("where", ["reading", "uploading"])
def test_ctrl_c_while_a_request_stalls(
    tmp_path: Path, bucket: Bucket, source: Path, where: str
) -> None:
    url = bucket.upload(source, "in")
    stalled: list[Asked] = []

    def stall(asked: Asked) -> Wrong | None:
        read = asked.method == "GET" and asked.target.endswith(".jpg")
        wrote = asked.method == "PUT" and "shard-000000.tar" in asked.target
        if read if where == "reading" else wrote:
            stalled.append(asked)
            return Wrong(stall_s=300)
        return None

    words, environment = command_of(
        bucket,
        "pack",
        url,
        bucket.url("out"),
        "--shard-size",
        "100000",
        "--spool",
        tmp_path / "spool",
    )
    with Proxy(bucket.options["endpoint"], stall) as proxy:
        environment["AWS_ENDPOINT_URL"] = proxy.url
        running = subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while not stalled and running.poll() is None:
            time.sleep(0.02)
        pressed = time.monotonic()
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=300)
        assert in_time(time.monotonic() - pressed, 4)
    assert running.returncode == 130, said
    assert "finished shards are kept; run the same command again to continue" in said
    assert "Traceback" not in said
    assert not list((tmp_path / "spool").iterdir())


@pytest.mark.parametrize("attempt", range(3))
def test_two_adds_at_once_lose_nothing(bucket: Bucket, tmp_path: Path, attempt: int) -> None:
    packed = bucket.url("train")
    fastpipe.pack(photos(tmp_path / "src", 30), packed, storage_options=bucket.options, **SMALL)
    data = add_twice_at_once(packed, tmp_path, storage_options=bucket.options)
    assert len(data) == 46
    versions = json.loads(bucket.objects("train")["dataset.json"])["history"]
    assert [entry["version"] for entry in versions] == [1, 2, 3]
