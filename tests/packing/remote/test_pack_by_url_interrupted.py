"""Packs from and into buckets that are interrupted, meet faults, or find that something has changed.

What servers and networks do to them is in tests/long/packing.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from support.remote.memory_bucket import Call, MemoryBucket, refusal
from support.remote.range_server import Fault, RangeServer, Request
from support.sources.pack_sources import files, write_large_folder

import fastpipe
from fastpipe.dataset.format.folder import Url
from fastpipe.errors import DatasetError, PackError
from fastpipe.store.remote import objects
from fastpipe.store.remote.objects import Objects
from fastpipe.store.remote.options import remote_options

SMALL = {"shard_size": 100_000, "workers": 2}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_large_folder(tmp_path / "source", images=14)


@pytest.fixture
def local(tmp_path: Path, source: Path) -> dict[str, bytes]:
    """What a local pack of the source gives."""
    fastpipe.pack(source, tmp_path / "local", **SMALL)
    return files(tmp_path / "local")


class EndedError(Exception):
    pass


def stop_after(shards: int, bucket: MemoryBucket, key: str) -> Callable[[object], None]:
    """An on_progress that ends the pack when so many shards are recorded in the bucket."""

    def look(_: object) -> None:
        notes = bucket.objects(f"{key}/.pack")
        if sum(name.startswith("shard-") and name.endswith(".done") for name in notes) >= shards:
            raise EndedError

    return look


def change_a_byte(file: Path, bucket: MemoryBucket, key: str) -> None:
    """Changes a source and its object, which stays as large; the time is of the same second, or nearly."""
    data = bytearray(file.read_bytes())
    data[-300] ^= 0x10
    file.write_bytes(data)
    bucket.put(key, bytes(data))


def test_an_interrupted_pack_goes_on_on_another_machine(
    tmp_path: Path, bucket: MemoryBucket, source: Path, local: dict[str, bytes]
) -> None:
    out = bucket.url("out")
    with pytest.raises(EndedError):
        fastpipe.pack(
            source, out, spool=tmp_path / "one", on_progress=stop_after(2, bucket, "out"), **SMALL
        )
    unfinished = bucket.objects("out")
    assert "dataset.json" not in unfinished
    with pytest.raises(DatasetError, match="holds no packed dataset"):
        fastpipe.open(out, cache_dir=tmp_path / "cache")
    kept = {name for name in unfinished if re.fullmatch(r"\.pack/shard-\d+-\w+\.done", name)}
    bucket.calls.clear()
    done = fastpipe.pack(source, out, spool=tmp_path / "another", **SMALL)
    assert done.resumed == len(kept) >= 2
    for name in kept:
        shard = name.removeprefix(".pack/").rpartition("-")[0] + ".tar"
        assert bucket.puts(shard) == 0, "it was uploaded again"
    assert bucket.objects("out") == local


def test_changed_sources_are_seen_by_their_etags(
    tmp_path: Path, bucket: MemoryBucket, source: Path
) -> None:
    url = bucket.upload(source, "in")
    there = {"spool": tmp_path / "spool", **SMALL}
    fastpipe.pack(url, bucket.url("out"), **there)
    assert fastpipe.pack(url, bucket.url("out"), **there).already_packed
    file = min(source.rglob("*.jpg"))
    change_a_byte(file, bucket, f"in/{file.relative_to(source)}")
    words = "is packed already, and the source files have changed since"
    with pytest.raises(PackError, match=words):
        fastpipe.pack(url, bucket.url("out"), **there)
    done = fastpipe.pack(url, bucket.url("out"), overwrite=True, **there)
    assert not done.already_packed
    fastpipe.pack(source, tmp_path / "local", **SMALL)
    assert bucket.objects("out") == files(tmp_path / "local")


def test_a_file_that_is_replaced_while_it_is_packed(tmp_path: Path, source: Path) -> None:
    tar = tmp_path / "web" / "x.tar"
    tar.parent.mkdir()
    shutil.make_archive(str(tar.with_suffix("")), "tar", source)

    def replaced(request: Request) -> Fault | None:
        return Fault(headers={"ETag": '"another"'}) if request.number > 5 else None

    words = r"/x\.tar has changed while packing: it has another ETag\. Finished shards are kept"
    with RangeServer(tar.parent, fault=replaced) as server, pytest.raises(PackError, match=words):
        fastpipe.pack(f"{server.url}/x.tar", tmp_path / "packed", **SMALL)


def test_to_replace_a_dataset(
    tmp_path: Path, bucket: MemoryBucket, source: Path, local: dict[str, bytes]
) -> None:
    out, spool = bucket.url("out"), tmp_path / "spool"
    fastpipe.pack(source, out, shard_size=150_000, spool=spool)
    before = bucket.objects("out")
    with pytest.raises(
        PackError,
        match=r"holds a different dataset.*with --shard-size 150000; now .*with --shard-size 100000.*--overwrite",
    ):
        fastpipe.pack(source, out, spool=spool, **SMALL)
    seen: list[str] = []

    def look(call: Call) -> None:
        """At each change, whether a dataset of old and new shards could be loaded."""
        if call.method not in ("PUT", "DELETE"):
            return
        now = bucket.objects("out")
        if "dataset.json" not in now:
            seen.append("none")
        elif now["dataset.json"] == before["dataset.json"]:
            seen.append("old" if before.items() <= now.items() else "mixed")
        else:
            seen.append("new" if local.items() <= now.items() else "mixed")

    bucket.fault = look
    fastpipe.pack(source, out, overwrite=True, spool=spool, **SMALL)
    assert set(seen) == {"old", "none", "new"}
    assert bucket.objects("out") == local


def test_two_packs_at_the_same_place(
    tmp_path: Path, bucket: MemoryBucket, source: Path, local: dict[str, bytes]
) -> None:
    url, begun = bucket.url("out"), []

    def meanwhile(_: object) -> None:
        if begun:
            return
        begun.append(True)
        with pytest.raises(PackError, match=rf"another program is writing to {url}"):
            fastpipe.pack(source, url, spool=tmp_path / "one", **SMALL)
        fastpipe.pack(
            source, url, spool=tmp_path / "another", **SMALL
        )  # the same pack, on another machine

    fastpipe.pack(source, url, spool=tmp_path / "one", on_progress=meanwhile, **SMALL)
    assert bucket.objects("out") == local

    def another(_: object) -> None:
        bucket.put("two/dataset.json", b"{}")

    with pytest.raises(
        PackError, match=r"two/dataset\.json has appeared meanwhile: another program writes to"
    ):
        fastpipe.pack(
            source, bucket.url("two"), spool=tmp_path / "one", on_progress=another, **SMALL
        )


def test_a_shard_that_another_program_has_replaced(
    tmp_path: Path, bucket: MemoryBucket, source: Path, local: dict[str, bytes]
) -> None:
    there = {"spool": tmp_path / "spool", **SMALL}

    def disturb(now: Any) -> None:
        if now.files == now.total_files and now.step == "packing":
            bucket.put(
                "out/shard-000001.tar", bytes(len(local["shard-000001.tar"])), fastpipestate="0"
            )

    with pytest.raises(
        PackError,
        match=r"out/shard-000001\.tar is not what this pack has written there: another pro",
    ):
        fastpipe.pack(source, bucket.url("out"), on_progress=disturb, **there)
    assert "dataset.json" not in bucket.objects("out")
    fastpipe.pack(source, bucket.url("out"), **there)
    assert bucket.objects("out") == local


@pytest.mark.usefixtures("quick")
def test_a_list_that_breaks_off_goes_on_behind_its_last_name(
    bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sorted(f"in/{number % 3}/{number}.jpg" for number in range(40))
    for name in names:
        bucket.put(name, name.encode())
    monkeypatch.setattr(objects, "_NAMES_PER_PAGE", 7)
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
    there = Objects(Url(f"s3://{bucket.name}"), remote_options(None, 0, None, 20.0))
    assert [name for name, _ in there.listed("in")] == names
    assert asked_after == [None, names[13], names[27]]


@pytest.mark.usefixtures("quick")
def test_faults_that_pass_and_faults_that_stay(
    tmp_path: Path, bucket: MemoryBucket, source: Path, local: dict[str, bytes]
) -> None:
    url = bucket.upload(source, "in")
    there = {"spool": tmp_path / "spool", **SMALL}
    once: set[Call] = set()

    def fail_once(call: Call) -> Exception | None:
        if call in once:
            return None
        once.add(call)
        return refusal(503 if len(once) % 2 else 500)

    bucket.fault = fail_once
    fastpipe.pack(url, bucket.url("out"), **there)
    assert bucket.objects("out") == local
    for method, name, words in (
        ("GET", ".jpg", r"in/class-\d/\d+\.jpg, bytes 0 to [\d,]+ cannot be fetched"),
        ("PUT", "shard-000001.tar", r"none/shard-000001\.tar cannot be uploaded"),
    ):
        bucket.fault = lambda call, at=(method, name): (
            refusal(403) if call.method == at[0] and call.name.endswith(at[1]) else None
        )
        with pytest.raises(
            PackError, match=rf"{words}: HTTP 403.* after 4 attempts in .*No credentials were"
        ):
            fastpipe.pack(url, bucket.url("none"), **there)
        assert "dataset.json" not in bucket.objects("none")


@pytest.mark.parametrize("replaces", [False, True])
def test_a_pack_that_ends_at_a_request_goes_on(
    tmp_path: Path, bucket: MemoryBucket, source: Path, local: dict[str, bytes], replaces: bool
) -> None:
    """As if it were killed there: before each third request that changes something."""
    there = {"spool": tmp_path / "spool", "overwrite": replaces, **SMALL}

    def empty_or_old(key: str) -> dict[str, bytes]:
        """The destination before; a small dataset lies there, if it is to be replaced."""
        if replaces:
            fastpipe.pack(source, bucket.url(key), shard_size=150_000, spool=tmp_path / "spool")
        bucket.calls.clear()
        return bucket.objects(key)

    empty_or_old("whole")
    fastpipe.pack(source, bucket.url("whole"), **there)
    changes = sum(call.method in ("PUT", "DELETE") for call in bucket.calls)
    assert changes > 10
    for last in range(0, changes, 3):
        left = last
        old = empty_or_old(f"out-{last}")

        def end(call: Call) -> Exception | None:
            nonlocal left
            left -= call.method in ("PUT", "DELETE")
            return DatasetError("ended") if left < 0 else None

        bucket.fault = end
        with pytest.raises(DatasetError, match="ended"):
            fastpipe.pack(source, bucket.url(f"out-{last}"), **there)
        bucket.fault = lambda _: None
        unfinished = bucket.objects(f"out-{last}")
        whole = old if unfinished.get("dataset.json") == old.get("dataset.json") else local
        assert "dataset.json" not in unfinished or whole.items() <= unfinished.items()
        fastpipe.pack(source, bucket.url(f"out-{last}"), **there)
        assert bucket.objects(f"out-{last}") == local
