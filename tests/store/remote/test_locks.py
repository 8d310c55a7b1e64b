"""A loader ends while requests are under way -> nothing stays locked or open; who waits is told for whom."""

from __future__ import annotations

import gc
import logging
import math
import os
import signal
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.programs import warm
from support.remote.cases import BATCH
from support.remote.range_server import Fault, RangeServer, Request
from support.running.process_state import open_files
from support.running.waiting import wait_until

import fastpipe
from fastpipe.store.remote.blocks import BLOCK_BYTES

Loaders = Callable[..., Any]

BLOCKS_BEGIN = 4096  # in the file `blocks`; what is before them is no lock on a block
IN_ORDER = {"shuffle": False, "read_timeout": 60.0}  # so a first batch needs the first shard only


def stalled(asked: Request) -> Fault | None:
    """The first shard comes; of the others, a few bytes."""
    later = asked.path.startswith("shard-") and asked.path != "shard-000000.tar"
    return Fault(stall=10, stall_s=300.0) if later else None


def locked(cache: Path) -> list[tuple[int, int]]:
    """The first and last block of each range that any process of this machine has locked in a cache's datasets."""
    inodes = {str(os.stat(file).st_ino) for file in cache.glob("*/blocks")}
    found = []
    for line in Path("/proc/locks").read_text().splitlines():
        *_, kind, _, device, first, last = line.split()
        if kind == "WRITE" and device.split(":")[-1] in inodes and int(first) >= BLOCKS_BEGIN:
            found.append((int(first) - BLOCKS_BEGIN, int(last) - BLOCKS_BEGIN))
    return found


CHILD = """
    import sys, fastpipe
    data = fastpipe.open(sys.argv[1], cache_dir=sys.argv[2])
    loader = fastpipe.loader(data, 16, size=64, shuffle=False, num_workers=2)
    for _ in loader:
        pass
"""


@pytest.fixture
def child(range_server: RangeServer, remote_packed: Path, tmp_path: Path) -> Iterator[warm.Started]:
    """A process that waits for blocks that do not come, and has them locked."""
    range_server.fault = stalled
    # Those of the first shard come, and are locked for a moment only.
    first_bytes = (remote_packed / "shard-000000.tar").stat().st_size
    num_coming = math.ceil(first_bytes / BLOCK_BYTES)

    def has_later_blocks() -> bool:
        return any(last >= num_coming for _, last in locked(tmp_path / "cache"))

    with open(os.devnull, "w") as nothing:
        process = warm.start(
            "-c", textwrap.dedent(CHILD), range_server.url, tmp_path / "cache", stderr=nothing
        )
    try:
        wait_until(has_later_blocks)
        yield process
    finally:
        process.kill()


@pytest.mark.parametrize("end", ["close", "del", "error", "ctrl-c"])
def test_no_block_stays_locked(
    remote_packed: Path, range_server: RangeServer, open_remote: Loaders, tmp_path: Path, end: str
) -> None:
    cache = tmp_path / "cache"
    range_server.fault = stalled

    def begun() -> Any:
        loader = open_remote(range_server.url, **IN_ORDER)
        next(iter(loader))
        wait_until(lambda: locked(cache))
        return loader

    def use() -> Any:
        loader = begun()
        if end == "close":
            loader.close()
        elif end == "error":
            with pytest.raises(ZeroDivisionError), loader:
                raise ZeroDivisionError
        elif end == "ctrl-c":
            main = threading.main_thread().ident
            assert main is not None

            def interrupt() -> None:
                wait_until(lambda: loader.stats().batches > 1)  # it is in next()
                signal.pthread_kill(main, signal.SIGINT)

            def go_on() -> None:
                threading.Thread(target=interrupt).start()
                list(loader)

            with pytest.raises(KeyboardInterrupt), loader:
                go_on()
        return None if end == "del" else loader

    kept = use()
    if end == "del":  # the thread of requests sees it a moment later
        wait_until(lambda: not locked(cache))
    assert not locked(cache)
    range_server.fault = None
    with (
        open_remote(range_server.url, **IN_ORDER) as again,
        open_remote(remote_packed, shuffle=False) as local,
    ):
        assert len(list(again)) == len(list(local))
        assert (
            not again.maker.engine.reader.wants.impatient
        )  # blocks that somebody else took too long for
    del kept


def test_who_is_waited_for(
    range_server: RangeServer,
    open_remote: Loaders,
    child: warm.Started,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And when that process is killed, its blocks are fetched here at once."""

    def kill() -> None:
        wait_until(lambda: caplog.records)
        range_server.fault = None
        child.kill()

    monkeypatch.setattr("fastpipe.engine.watchdog._ERROR_FACTOR", 1000)
    killer = threading.Thread(target=kill)
    killer.start()
    with (
        caplog.at_level(logging.WARNING),
        open_remote(range_server.url, **IN_ORDER, stall_timeout=0.5) as loader,
    ):
        assert len(list(loader)) == len(loader)
        assert not loader.maker.engine.reader.wants.impatient
    killer.join()
    told = caplog.records[0].getMessage()
    assert "stuck awaiting" in told
    assert f"Another loader, in process {child.pid}, fetches bytes " in told
    assert (
        f"into the cache {loader.dataset.index.folder}. If it does not go on, close it or end its process"
        in told
    )


def test_another_loader_of_this_process_is_waited_for(
    range_server: RangeServer, open_remote: Loaders
) -> None:
    range_server.fault = stalled
    with (
        open_remote(range_server.url, **IN_ORDER) as first,
        open_remote(range_server.url, **IN_ORDER) as second,
    ):
        iterators = [iter(first), iter(second)]
        assert [len(next(each)[1]) for each in iterators] == [BATCH, BATCH]
        reader = second.maker.engine.reader
        # The delay that has been seen is looked at: a moment later, the other loader may try its request again.
        delays = []

        def is_awaiting() -> bool:
            delays.append(reader.delay())
            delay = delays[-1]  # not of the first shard, whose end may still be on its way
            return delay is not None and delay.stage == "awaiting" and delay.shard > 0

        wait_until(is_awaiting)
        delay = delays[-1]
        assert f"in this process {os.getpid()}, fetches bytes 0 to " in delay.note
        assert "of shard-000001.tar" in delay.note
        assert delay.shard > 0


def test_what_is_being_written_stays_locked(
    range_server: RangeServer, open_remote: Loaders, tmp_path: Path
) -> None:
    """A loader whose close() gives up on a slow disk, and no byte after it."""
    cache, writing, go_on = tmp_path / "cache", threading.Event(), threading.Event()
    written_unlocked: list[int] = []
    with open_remote(range_server.url, **IN_ORDER) as loader:
        kept = loader.maker.engine.reader.caches.remote[0]
        write = kept.write

        def slow(shard: int, start: int, data: Any) -> None:
            writing.set()
            assert go_on.wait(300.0)
            block = int(kept.blocks.first_blocks[shard]) + (start >> 20)
            if not any(first <= block <= last for first, last in locked(cache)):
                written_unlocked.append(block)
            write(shard, start, data)

        kept.write = slow
        reading = threading.Thread(target=lambda: next(iter(loader), None), daemon=True)
        threading.excepthook, hook = (
            (lambda _: None),
            threading.excepthook,
        )  # it is told that the loader is closed
        try:
            reading.start()
            assert writing.wait(300.0)
            loader.maker.engine.close(0.05)
            assert locked(cache)
            go_on.set()
            wait_until(lambda: not locked(cache))
            reading.join()
        finally:
            threading.excepthook = hook
    assert not written_unlocked


@pytest.mark.parametrize("end", ["epoch", "close", "del", "paths"])
def test_no_collection_is_needed(
    remote_packed: Path, range_server: RangeServer, open_remote: Loaders, tmp_path: Path, end: str
) -> None:
    """Of mixtures, whose batches wait for several readers; and of a Dataset that reads notes."""
    cache = tmp_path / "cache"

    def use() -> None:
        if end == "paths":
            samples = fastpipe.open(range_server.url, cache_dir=cache).with_fields(("key",))
            assert samples[7]["key"]
            index = fastpipe.open(range_server.url, cache_dir=cache).index
            assert index.open_shard(0).read(0, 10)
            return
        range_server.fault = None if end == "epoch" else stalled
        remote = fastpipe.open(range_server.url, cache_dir=cache, read_timeout=60.0)
        loader = open_remote(fastpipe.mix({remote: 1.0, remote_packed: 1.0}), shuffle=False)
        for _ in loader:
            if end != "epoch":
                break
        if end != "del":
            loader.close()

    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            use()
        wait_until(lambda: not open_files(cache))  # the thread of requests lets go last
    finally:
        gc.enable()
