"""The cache on the disk: its limit, what survives a kill, who shares it, and what is refused."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.programs import warm
from support.remote.cases import digests
from support.remote.range_server import RangeServer, Request
from support.running.process_state import open_shards
from support.running.soak import Tried, times
from support.running.waiting import wait_until, wait_until_unused

import fastpipe
from fastpipe import warnings_once
from fastpipe.errors import ConfigError, DatasetError
from fastpipe.store.remote.blocks import BLOCK_BYTES, Blocks
from fastpipe.store.remote.cache import ALLOTTED, SYNCED, WRITTEN, Cache
from fastpipe.store.remote.cache_root import (
    Hold,
    datasets,
    disk_bytes,
    make_root,
    small_bytes,
    used_at,
)
from fastpipe.store.remote.contents import kept_datasets
from fastpipe.store.remote.requests import request_thread
from fastpipe.store.remote.wants import Wants

Loaders = Callable[..., Any]
HANG_S = 300.0


def shards_sent(server: RangeServer) -> int:
    return sum(sent for name, sent in server.sent_by_name.items() if name.startswith("shard"))


@contextmanager
def watched(folder: Path) -> Iterator[list[int]]:
    """What a folder takes on the disk, looked at each 10 ms."""
    found, stop = [0], threading.Event()

    def look() -> None:
        while not stop.wait(0.01):
            found.append(disk_bytes(folder))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def test_eight_ranks_fetch_the_dataset_once(
    range_server: RangeServer, open_remote: Loaders, remote_bytes: int
) -> None:
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(open_remote(range_server.url, rank=rank, world_size=8))
            for rank in range(8)
        ]
        for _ in zip(*ranks, strict=True):
            pass
        assert shards_sent(range_server) <= 1.05 * remote_bytes
        for _ in zip(*ranks, strict=True):
            pass
        assert shards_sent(range_server) <= 1.05 * remote_bytes
        assert sum(rank.stats().fetched_bytes for rank in ranks) == shards_sent(range_server)


def test_half_of_the_dataset_in_the_cache(
    range_server: RangeServer,
    open_remote: Loaders,
    remote_bytes: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warnings_once.forget_all()
    limit = remote_bytes // 2
    fetched = []
    with watched(tmp_path) as taken:
        for epoch in range(
            3
        ):  # one loader would begin the next epoch before the end of the one at hand
            with open_remote(range_server.url, cache_limit=limit, drop_last=False) as loader:
                loader.set_epoch(epoch)
                digests(loader)
                fetched.append(loader.stats())
    assert fetched[0].fetched_bytes <= 1.05 * remote_bytes
    missing = (
        remote_bytes - limit + 2 * BLOCK_BYTES
    )  # one gives way to the next, and some blocks are small
    assert fetched[1].fetched_bytes <= missing
    assert fetched[2].fetched_bytes <= missing
    assert fetched[1].cache_hit_bytes >= 0.4 * remote_bytes
    assert 0.8 * limit < max(taken) <= limit
    assert caplog.text.count("pass a larger cache_limit= to fastpipe.open") == 1
    assert f"is full: cache_limit= is {limit / 1e9:.3g} GB" in caplog.text


def test_ranks_keep_to_the_limit_together(
    range_server: RangeServer, open_remote: Loaders, remote_bytes: int, tmp_path: Path
) -> None:
    limit = remote_bytes // 4
    options = {"cache_limit": limit, "world_size": 4}
    with ExitStack() as stack, watched(tmp_path) as taken:
        ranks = [
            stack.enter_context(open_remote(range_server.url, rank=rank, **options))
            for rank in range(4)
        ]
        for _ in range(2):
            for _ in zip(*ranks, strict=True):
                pass
    assert len(taken) > 10
    assert 0.6 * limit < max(taken) <= limit


def test_a_smaller_limit_gives_room_back(
    local_digests: Callable[..., list[str]],
    range_server: RangeServer,
    open_remote: Loaders,
    remote_bytes: int,
    tmp_path: Path,
) -> None:
    expected = local_digests()
    with open_remote(range_server.url) as first:
        assert digests(first) == expected
    del first
    wait_until_unused(tmp_path / "cache")
    assert disk_bytes(tmp_path) > remote_bytes
    with open_remote(range_server.url, cache_limit=remote_bytes // 3) as second:
        assert disk_bytes(tmp_path) <= remote_bytes // 3
        assert digests(second) == expected


def test_a_dataset_that_nobody_uses_makes_room(
    remote_packed: Path,
    range_server: RangeServer,
    open_remote: Loaders,
    many_shards: Path,
    remote_bytes: int,
    tmp_path: Path,
) -> None:
    with (
        RangeServer(many_shards) as other,
        fastpipe.loader(fastpipe.open(other.url, cache_dir=tmp_path / "cache"), 8) as loader,
    ):
        digests(loader)
        limit = disk_bytes(tmp_path) + remote_bytes // 2
        with open_remote(range_server.url, cache_limit=limit) as second:  # in use: it stays
            digests(second)
            assert len(datasets(tmp_path / "cache")) == 2
    del loader, second
    wait_until_unused(tmp_path / "cache")
    with open_remote(range_server.url, cache_limit=limit):
        assert len(datasets(tmp_path / "cache")) == 1


KILLED = """
    import sys, fastpipe
    data = fastpipe.open(sys.argv[1], cache_dir=sys.argv[2])
    loader = fastpipe.loader(data, 16, size=64, seed=3, num_workers=2)
    for _ in range(100):
        for _ in loader:
            pass
"""


def test_killed_at_any_time(
    local_digests: Callable[..., list[str]],
    range_server: RangeServer,
    open_remote: Loaders,
    remote_bytes: int,
    tmp_path: Path,
    tried: Tried,
) -> None:
    """At one of the requests for shards; what is on its way then is fetched again."""
    draw = random.Random(4)
    expected = local_digests()
    kills = times(1, 50)
    for number in range(kills):
        cache = tmp_path / str(number)
        reached, last = threading.Event(), draw.randrange(4, 12)

        def hold(asked: Request, reached: threading.Event = reached, last: int = last) -> None:
            if asked.number >= last:
                reached.set()

        range_server.forget()
        range_server.fault = hold
        child = warm.start("-c", textwrap.dedent(KILLED), range_server.url, cache)
        assert reached.wait(300.0)
        child.kill()
        range_server.fault = None
        with open_remote(range_server.url, cache_dir=cache) as loader:
            assert digests(loader) == expected
        assert shards_sent(range_server) - remote_bytes < 16 << 20
    tried(
        "remote: kill -9 while shards are fetched", kills, "goes on; under 16 MiB are fetched again"
    )


def test_what_was_not_synced_is_fetched_again_after_the_machine_stopped(
    range_server: RangeServer,
    open_remote: Loaders,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    remote_bytes: int,
) -> None:
    with open_remote(range_server.url) as loader:
        digests(loader)
        states = loader.maker.engine.reader.caches.remote[0].states
        assert set(np.unique(states)) == {WRITTEN}
        loader.maker.engine.reader.fetcher.sync()
        assert set(np.unique(states)) == {SYNCED}
        states[:5] = WRITTEN
    del loader, states
    wait_until_unused(tmp_path / "cache")
    range_server.forget()
    monkeypatch.setattr("fastpipe.store.remote.cache.boot_id", lambda: b"the next one".ljust(36))
    with open_remote(range_server.url) as loader:
        assert set(np.unique(loader.maker.engine.reader.caches.remote[0].states[:5])) == {ALLOTTED}
        digests(loader)
        assert 4 << 20 <= shards_sent(range_server) <= 5 << 20


def test_a_full_disk_is_told_once(
    local_digests: Callable[..., list[str]],
    range_server: RangeServer,
    open_remote: Loaders,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    written = []
    write = Cache.write

    def full(self: Cache, shard: int, start: int, data: Any) -> None:
        if len(written) >= 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(start)
        write(self, shard, start, data)

    monkeypatch.setattr(Cache, "write", full)
    with open_remote(range_server.url) as remote:
        assert digests(remote, 2) == local_digests(2)
        assert remote.stats().fetched_bytes > 0
    told = [
        record.message
        for record in caplog.records
        if "takes no more (No space left on device)" in record.message
    ]
    assert len(told) == 1


def test_a_disk_that_does_not_write_is_told(
    range_server: RangeServer,
    open_remote: Loaders,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with open_remote(range_server.url) as loader:
        reader = loader.maker.engine.reader
        with monkeypatch.context() as patch:
            patch.setattr(reader.caches.remote[0], "sync", fails)
            reader.fetcher.sync()
    assert "cannot write to the cache in " in caplog.text
    assert ": Input/output error" in caplog.text


def test_network_file_systems_are_refused(tmp_path: Path) -> None:
    line = "36 35 98:0 / {} rw,noatime master:1 - {} server:/export rw\n"
    mounts = (
        line.format("/", "ext4")
        + line.format(tmp_path, "nfs4")
        + line.format(f"{tmp_path}/fast", "xfs")
    )
    (tmp_path / "fast").mkdir()
    make_root(tmp_path / "fast" / "cache", mounts)
    with pytest.raises(ConfigError, match=r"is on a network file system \(nfs4\)"):
        make_root(tmp_path / "cache", mounts)
    make_root(tmp_path, line.format("/", "ext4") + line.format(f"{tmp_path}x", "nfs"))


def test_a_folder_that_cannot_be_written(range_server: RangeServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        DatasetError, match=r"the cache in .* cannot be written: .*\. Pass cache_dir="
    ):
        fastpipe.open(range_server.url, cache_dir=tmp_path / "file")


def test_limits() -> None:
    from fastpipe.errors import size_bytes

    assert [size_bytes("cache_limit", text) for text in ("200GB", "1.5 TB", "512MiB", "0", 7)] == [
        200 * 10**9,
        1_500_000_000_000,
        512 << 20,
        0,
        7,
    ]
    for wrong in ("much", "-1GB", -1, None, True):
        with pytest.raises(ConfigError, match="cache_limit: expected a number of bytes"):
            size_bytes("cache_limit", wrong)


def test_a_claim_ends_with_its_cache(tmp_path: Path) -> None:
    """Which the kernel sees to: so it does when a process is killed."""

    def cache() -> Cache:
        hold = Hold(tmp_path, "a" * 32, "http://x/y")
        blocks = Blocks(np.array([5 << 20], dtype=np.uint64))
        return Cache(hold, ["shard-000000.tar"], blocks, 0, None, 10 << 20, hold)

    mine, other = cache(), cache()
    assert other.claim(2)
    assert (mine.claim(1), mine.claim(2)) == (True, False)
    assert not other.claim(1)
    other.close()
    assert mine.claim(2)
    mine.close()


def test_memory_of_what_is_not_kept(
    range_server: RangeServer, open_remote: Loaders, remote_bytes: int
) -> None:
    with open_remote(range_server.url, cache_limit=0, prefetch_factor=1, drop_last=False) as loader:
        taken = []
        for _ in loader:
            taken.append(loader.stats().ring_bytes)
        assert max(taken) <= 1.05 * remote_bytes
        assert taken[-1] < 0.7 * remote_bytes  # what has been used is given back


def test_a_dropped_loader_lets_go_of_everything(range_server: RangeServer, tmp_path: Path) -> None:
    def use() -> None:
        loader = fastpipe.loader(fastpipe.open(range_server.url, cache_dir=tmp_path), 32, size=32)
        next(iter(loader))

    use()
    wait_until_unused(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        use()
    wait_until_unused(tmp_path)
    wait_until(
        lambda: len(os.listdir("/proc/self/fd")) <= before + 20
    )  # connections are kept for a while


def test_a_large_index_is_copied_in_pieces(
    range_server: RangeServer, remote_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastpipe.store.remote.objects.REQUEST_BYTES", 1000)
    index = fastpipe.open(range_server.url, cache_dir=tmp_path).index
    assert (index.folder / "index.npy").read_bytes() == (remote_packed / "index.npy").read_bytes()
    pieces = [
        (request.start, request.stop)
        for request in range_server.requests
        if request.path == "index.npy"
    ]
    size = (remote_packed / "index.npy").stat().st_size
    assert sorted(pieces) == [(start, min(start + 1000, size)) for start in range(0, size, 1000)]


@pytest.mark.parametrize("limit", [0, "8MB"])
def test_an_epoch_that_begins_takes_nothing_from_the_one_before(
    range_server: RangeServer, open_remote: Loaders, monkeypatch: pytest.MonkeyPatch, limit: Any
) -> None:
    wrong: list[Any] = []
    monkeypatch.setattr(Wants, "again", lambda self, samples: wrong.append(samples))
    range_server.latency_s = 0.002
    with open_remote(range_server.url, cache_limit=limit) as loader:
        for _ in range(3):
            for _ in loader:
                pass
    assert not wrong


def test_a_part_that_is_forgotten_while_somebody_waits_is_asked_for_again(
    range_server: RangeServer, open_remote: Loaders
) -> None:
    range_server.latency_s = 0.1
    with open_remote(range_server.url, cache_limit=0) as loader:
        reader = loader.maker.engine.reader
        arrived = threading.Event()
        with reader.wants.lock:  # nothing begins before the part is forgotten
            ticket = reader.ticket(np.arange(5), lambda where: arrived.set())
            reader.wants.ring_parts.forget(ticket.pieces)
        assert arrived.wait(300.0)


def test_close_lets_go_of_the_cache(
    range_server: RangeServer, open_remote: Loaders, tmp_path: Path
) -> None:
    """At once: a folder of a network's file system is gone only when nobody has it open."""
    with open_remote(range_server.url) as loader:
        kept = list(loader)
        assert open_shards(tmp_path / "cache") > 0
        loader.close()
        assert open_shards(tmp_path / "cache") == 0
    assert kept


def test_closing_a_loader_on_a_slow_disk_delays_no_other(
    range_server: RangeServer, open_remote: Loaders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncing, sync = threading.Event(), threading.Event()
    with (
        open_remote(range_server.url, cache_dir=tmp_path / "slow") as slow,
        open_remote(range_server.url) as other,
    ):
        monkeypatch.setattr(
            slow.maker.engine.reader.caches.remote[0],
            "sync",
            lambda: (syncing.set(), sync.wait(300.0)),
        )
        next(iter(slow))
        fetcher = slow.maker.engine.reader.fetcher
        fetcher.in_thread(fetcher.sync)
        assert syncing.wait(300.0)
        closing = threading.Thread(target=slow.close)
        closing.start()
        assert len(list(other)) == len(other)
        waited = closing.is_alive()
        sync.set()
        closing.join()
        assert waited, "the other loader was held up until close() gave up, after 10 s"


@pytest.mark.parametrize(
    "where", ["thread of requests", "thread that writes", "inside the lock", "end of the program"]
)
def test_close_waits_for_no_thread_that_waits_for_it(
    range_server: RangeServer, open_remote: Loaders, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """As a __del__ does that closes a loader: it runs in any thread and line. So does a signal handler. At the end of
    a program, no other thread runs.
    """
    with open_remote(range_server.url) as loader:
        next(iter(loader))
        reader, took_s = loader.maker.engine.reader, []
        ended = threading.Event()

        def close() -> None:
            started = time.monotonic()
            loader.maker.engine.close(HANG_S)
            took_s.append(time.monotonic() - started)
            ended.set()

        if where == "thread of requests":
            request_thread().call(close)
        elif where == "thread that writes":
            reader.fetcher._writers.submit(close)
        elif where == "inside the lock":
            with reader.wants.lock:
                close()
        else:
            request_thread().call(lambda: ended.wait(HANG_S))
            monkeypatch.setattr(sys, "is_finalizing", lambda: True)
            close()
        assert ended.wait(HANG_S)
        assert took_s[0] < HANG_S


def test_the_dataset_that_was_used_last_stays(
    range_server: RangeServer, open_remote: Loaders, tmp_path: Path
) -> None:
    """Also if none of its blocks was fetched then."""
    cache = tmp_path / "cache"
    fastpipe.open(range_server.url, cache_dir=cache)
    (used,) = datasets(cache)
    unused = cache / ("0" * 32)
    unused.mkdir()
    for file in used.iterdir():
        (unused / file.name).write_bytes(file.read_bytes())
    os.utime(used / "blocks", (1e9, 1e9))
    os.utime(unused / "blocks", (1.5e9, 1.5e9))
    fastpipe.open(range_server.url, cache_dir=cache)
    assert used_at(used) > used_at(unused)
    os.utime(used / "blocks", (1e9, 1e9))
    with open_remote(range_server.url) as loader:
        list(loader)
        os.utime(used / "blocks", (1e9, 1e9))
    assert used_at(used) > used_at(unused)


def test_threads_open_one_url_at_the_same_time(range_server: RangeServer, tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def open_it(cache: Path) -> int:
        together.wait(300.0)
        return len(fastpipe.open(range_server.url, cache_dir=cache))

    with ThreadPoolExecutor(4) as threads:
        for each in range(4):
            assert list(threads.map(open_it, [tmp_path / str(each)] * 4)) == [160] * 4


def test_unfinished_files_of_killed_processes_go(
    range_server: RangeServer, open_remote: Loaders, tmp_path: Path
) -> None:
    fastpipe.open(range_server.url, cache_dir=tmp_path / "cache")
    (folder,) = datasets(tmp_path / "cache")
    (folder / ".index.npy.0").write_bytes(b"half")
    with open_remote(range_server.url):
        assert not list(folder.glob(".*"))
        (folder / ".index.npy.0").write_bytes(b"half")
        with open_remote(range_server.url):  # it may be the first one's
            assert list(folder.glob(".*"))


def test_a_file_that_gets_its_name_while_the_folder_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index.npy").write_bytes(b"1" * 5000)
    monkeypatch.setattr(os, "walk", lambda folder: [(folder, [], ["index.npy", ".index.npy.0"])])
    assert small_bytes(tmp_path) == 6 * 4096  # of folders and of the index


def test_datasets_of_other_users_stay(
    range_server: RangeServer, open_remote: Loaders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And are no error, where users share a cache."""
    other = tmp_path / "cache" / ("0" * 32)
    other.mkdir(parents=True)
    (other / "url").write_text("http://other/user\n")
    (other / "blocks").write_bytes(bytes(100_000))
    real = os.open

    def refused(path: Any, *given: Any, **named: Any) -> int:
        if str(path).startswith(str(other)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *given, **named)

    monkeypatch.setattr(os, "open", refused)
    with open_remote(range_server.url, cache_limit="1MB") as loader:  # room is needed
        assert len(list(loader)) == len(loader)
    assert (other / "blocks").exists()
    assert {each.url: each.in_use for each in kept_datasets(tmp_path / "cache")}[
        "http://other/user"
    ]


def test_a_cache_that_is_removed_while_a_dataset_uses_it(
    remote_packed: Path, range_server: RangeServer, tmp_path: Path
) -> None:
    local, remote = (
        fastpipe.open(remote_packed),
        fastpipe.open(range_server.url, cache_dir=tmp_path / "cache"),
    )
    assert remote[0][0].equal(local[0][0])
    shutil.rmtree(tmp_path / "cache")
    assert all(remote[sample][0].equal(local[sample][0]) for sample in range(0, 160, 7))
