"""A server, a network or a disk that fails: batches stay right, or an error says what, where and how often."""

from __future__ import annotations

import gzip
import logging
import random
import re
import threading
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.datasets.packed import flip_unseen
from support.remote.cases import digest, digests
from support.remote.range_server import Fault, RangeServer, Request
from support.running.soak import Tried, long_form, times

import fastpipe
from fastpipe.dataset.format.folder import Url
from fastpipe.errors import DatasetError, SampleError
from fastpipe.store.remote import objects
from fastpipe.store.remote.cache import Cache
from fastpipe.store.remote.options import RemoteOptions

Loaders = Callable[..., Any]
Expected = Callable[..., list[str]]

PASSING: dict[str, Callable[[Request], Fault]] = {
    "403": lambda _: Fault(status=403),
    "404": lambda _: Fault(status=404),
    "429 with Retry-After": lambda _: Fault(status=429, headers={"Retry-After": "1"}),
    "503 with Retry-After": lambda _: Fault(status=503, headers={"Retry-After": "1"}),
    "500": lambda _: Fault(status=500),
    "reset before the answer": lambda _: Fault(cut=-1),
    "reset in the body": lambda asked: Fault(cut=(asked.stop - asked.start) // 2),
    "short body": lambda _: Fault(short=7),
    "200 for a range": lambda _: Fault(status=200),
    "wrong Content-Range": lambda asked: Fault(
        headers={"Content-Range": f"bytes 5-{asked.stop - asked.start + 4}/9"}
    ),
    "flipped bit": lambda asked: Fault(flip=(asked.stop - asked.start) // 2),
    "stalled socket": lambda asked: Fault(stall=(asked.stop - asked.start) // 3, stall_s=5.0),
}


def only_shards(fault: Callable[[Request], Fault | None]) -> Callable[[Request], Fault | None]:
    """The same, but dataset.json and index.npy come as they should."""
    return lambda asked: fault(asked) if asked.path.startswith("shard") else None


@pytest.mark.parametrize("kind", PASSING)
@pytest.mark.usefixtures("quick")
def test_a_fault_that_passes_changes_no_batch(
    local_digests: Expected,
    range_server: RangeServer,
    open_remote: Loaders,
    kind: str,
    tried: Tried,
) -> None:
    faulted: list[Request] = []

    def fault(asked: Request) -> Fault | None:
        if asked.attempt > 0 or random.Random(asked.number).random() < 0.5:
            return None
        faulted.append(asked)
        return PASSING[kind](asked)

    range_server.fault = only_shards(fault)
    epochs, wanted = 0, times(4, 850)
    with open_remote(range_server.url, cache_limit=0, read_timeout=0.5) as remote:
        while len(faulted) < wanted:
            range_server._attempts.clear()
            epochs += 1
            found = digests(remote)
            assert found == local_digests(epochs)[-len(found) :]
        assert remote.stats().retries >= 0.8 * len(faulted)
        (cache,) = remote.maker.engine.reader.caches.remote
        assert (cache.objects.busy_at > 0) == (
            "Retry-After" in kind
        )  # then fewer requests are made at a time
    tried(f"remote: {kind}", len(faulted), "the batches of the local dataset")


FINAL = {
    "403": (Fault(status=403), "HTTP 403", "Check the credentials"),
    "404": (Fault(status=404), "HTTP 404", "dataset.json lists this shard"),
    "503": (Fault(status=503), "HTTP 503", "overloaded"),
    "reset": (Fault(cut=-1), "the connection broke off", "Check the network"),
    "short body": (Fault(short=7), "the server sent", "Check the network"),
    "200 for a range": (Fault(status=200), "HTTP 200 instead of 206", "has to answer ranges"),
    "a size that is not told": (
        Fault(headers={"Content-Range": "bytes 0-9/*"}),
        "CONTENT_RANGE",
        "give sizes",
    ),
    "stalled socket": (
        Fault(stall=10, stall_s=5.0),
        "no byte for read_timeout seconds",
        "Check the network",
    ),
}


@pytest.mark.parametrize("kind", FINAL)
def test_a_fault_that_stays_is_named(
    range_server: RangeServer, open_remote: Loaders, kind: str, tried: Tried
) -> None:
    fault, answer, advice = FINAL[kind]
    with open_remote(range_server.url, read_timeout=0.1) as loader:
        range_server.fault = only_shards(lambda _: fault)
        with pytest.raises(DatasetError) as caught:
            next(iter(loader))
    text = str(caught.value)
    where = rf"^{re.escape(range_server.url)}/shard-\d+\.tar, bytes [0-9,]+ to [0-9,]+ cannot be fetched: "
    assert re.match(where, text), text
    assert answer in text
    assert re.search(r"after \d+ attempts in [0-9.]+ s", text)
    assert advice in text
    assert len(traceback.format_exception(caught.value)) < 30
    assert "Debug source" not in "".join(traceback.format_exception(caught.value))
    tried(f"remote, for good: {kind}", 1, "an error with URL, range, attempts and the last answer")


def test_credentials_that_expire_are_asked_for_again(
    local_digests: Expected, range_server: RangeServer, open_remote: Loaders
) -> None:
    with open_remote(range_server.url, cache_limit=0) as remote:
        found = digests(remote)
        asked = len(range_server.requests)
        range_server.fault = lambda request: (
            Fault(status=403) if request.number < asked + 6 else None
        )
        assert found + digests(remote) == local_digests(2)


def test_a_server_that_is_gone_for_a_time(
    remote_packed: Path,
    local_digests: Expected,
    range_server: RangeServer,
    open_remote: Loaders,
    tried: Tried,
) -> None:
    port = int(range_server.url.rsplit(":", 1)[1])
    wanted = local_digests()
    with open_remote(range_server.url, cache_limit=0, read_timeout=20.0) as remote:
        batches = iter(remote)
        range_server.stop()
        back: list[RangeServer] = []
        gone_s = 60 if long_form() else 0.1
        threading.Timer(gone_s, lambda: back.append(RangeServer(remote_packed, port=port))).start()
        assert [digest(batch) for batch in batches] == wanted
        assert back, "nothing was fetched after the server came back"
        back[0].stop()
    tried("remote: no server for a time, up to a minute", 1, "the batches of the local dataset")


def test_a_server_that_was_never_there(
    open_remote: Loaders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong port is named soon, and not when a server would have had time to start again."""
    monkeypatch.setitem(objects._FIRST_CONTACT_S, "closed", 0.2)
    monkeypatch.setattr(objects, "_TELL_AFTER_S", 0.05)
    with pytest.raises(
        DatasetError,
        match=r"127\.0\.0\.1:9 \(Connection refused\).* check the endpoint, and that the server is up",
    ):
        open_remote("http://127.0.0.1:9/x", read_timeout=20.0)
    (told,) = [text for text in caplog.messages if "Connection refused" in text]
    assert "The request is made again for up to 0 s" in told
    assert told.startswith("http://127.0.0.1:9/x/dataset.json cannot be fetched: no connection")


def test_an_error_of_any_kind_reaches_the_loop(
    range_server: RangeServer, open_remote: Loaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that nobody reports is waited for without an end."""
    release = Cache.release

    def fail(cache: Cache, blocks: Iterable[int]) -> None:
        release(cache, blocks)
        raise OSError("no lock")

    with open_remote(range_server.url) as loader:
        monkeypatch.setattr(Cache, "release", fail)
        with pytest.raises(OSError, match="no lock"):
            list(loader)


def test_requests_are_made_again_for_no_longer_than_the_log_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long the pauses are that a server which has answered would get."""
    patiences_s: list[float] = []

    def pause_s(attempt: int, busy: bool, patience_s: float) -> float:
        patiences_s.append(patience_s)
        return 60.0

    monkeypatch.setitem(objects._FIRST_CONTACT_S, "closed", 0.2)
    monkeypatch.setattr(objects, "pause_s", pause_s)
    remote = objects.Objects(Url("http://127.0.0.1:9/x"), RemoteOptions())
    with pytest.raises(DatasetError, match=r"after [23] attempts in 0\.[0-9] s"):
        remote.fetched("dataset.json", 0, None)
    assert set(patiences_s) == {0.2}


@pytest.mark.parametrize("has_answered", [False, True])
def test_a_host_that_does_not_exist(has_answered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that no name server knows is tried for seconds; a server that is lost, for longer."""
    monkeypatch.setitem(objects._FIRST_CONTACT_S, "host", 0.0)
    remote = objects.Objects(Url("http://nowhere.invalid/x"), RemoteOptions())
    remote._connection.has_answered = has_answered
    num_requests = 0

    async def request() -> str:
        nonlocal num_requests
        num_requests += 1
        if num_requests < 3:
            raise OSError(
                'kind: Connect, "dns error", "failed to lookup address information: Name or service '
                'not known"'
            )
        return "answer"

    if has_answered:
        assert remote.wait(remote.insist(request, "URL cannot be fetched")) == "answer"
        return
    with pytest.raises(DatasetError, match=r"No host has that name: check it in the URL"):
        remote.wait(remote.insist(request, "URL cannot be fetched"))
    assert num_requests == 1


def test_a_replaced_object_is_an_error(range_server: RangeServer, open_remote: Loaders) -> None:
    with open_remote(range_server.url, cache_limit=0) as loader:
        for _ in loader:
            pass
        for name in {request.path for request in range_server.requests if "shard" in request.path}:
            range_server.etags[name] = '"another"'
        with pytest.raises(
            DatasetError, match=r"shard-\d+\.tar was replaced while it was read: expected ETag"
        ):
            digests(loader, 2)


def test_a_shard_that_was_not_uploaded(
    remote_packed: Path, open_remote: Loaders, copied: Callable[[Path], Path]
) -> None:
    """dataset.json is there, so the URL is right."""
    copy = copied(remote_packed)
    for shard in copy.glob("shard-*.tar"):
        shard.unlink()
    with RangeServer(copy) as server, open_remote(server.url) as loader:
        words = (
            r"shard-\d+\.tar.* HTTP 404 .*\. dataset\.json lists this shard, .*: upload it again"
        )
        with pytest.raises(DatasetError, match=words):
            digests(loader)


def test_a_file_of_another_size_is_an_error(
    remote_packed: Path, open_remote: Loaders, copied: Callable[[Path], Path]
) -> None:
    copy = copied(remote_packed)
    for shard in copy.glob("shard-*"):
        with open(shard, "ab") as file:
            file.write(b"more")
    with (
        RangeServer(copy) as server,
        open_remote(server.url) as loader,
        pytest.raises(DatasetError, match=r"expected .* as dataset.json has it"),
    ):
        next(iter(loader))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("limit", [0, "1GB"])
def test_a_sample_that_is_damaged_in_the_bucket(
    remote_packed: Path, open_remote: Loaders, copied: Callable[[Path], Path], limit: Any
) -> None:
    copy = copied(remote_packed)
    flip_unseen(copy, 123)
    with RangeServer(copy) as server:
        with open_remote(server.url, train=False, cache_limit=limit) as loader:
            with pytest.raises(
                SampleError, match=r"sample 123 .*fetched again and are no better"
            ) as caught:
                digests(loader)
            assert caught.value.shard.startswith(server.url)
        with (
            open_remote(copy, train=False, on_error="replace", verify=True) as local,
            open_remote(server.url, train=False, on_error="replace", cache_limit=limit) as remote,
        ):
            assert digests(remote) == digests(local)
            assert remote.stats().replaced == 1


def test_a_cache_that_was_changed_is_fetched_anew(
    local_digests: Expected,
    range_server: RangeServer,
    open_remote: Loaders,
    tmp_path: Path,
    tried: Tried,
) -> None:
    with open_remote(range_server.url) as first:
        assert digests(first) == local_digests()
    (folder,) = [each for each in (tmp_path / "cache").iterdir() if each.is_dir()]
    rng = np.random.default_rng(8)
    flips = 0
    for shard in folder.glob("shard-*.tar"):
        data = bytearray(shard.read_bytes())
        for place in rng.integers(0, len(data), 3):
            data[place] ^= 1 << int(rng.integers(8))
            flips += 1
        with open(shard, "r+b") as file:
            file.write(data)
    range_server.forget()
    with open_remote(range_server.url) as second:
        assert digests(second) == local_digests()
    assert (
        0
        < sum(sent for name, sent in range_server.sent_by_name.items() if "shard" in name)
        < 2 * flips << 20
    )
    tried("remote: bits of the cache's files flipped", flips, "fetched anew")


def test_the_watchdog_says_what_does_not_come(
    range_server: RangeServer,
    open_remote: Loaders,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It warns, and the loader goes on when bytes come again."""

    def stalled_until_it_is_told(_: Request) -> Fault | None:
        return None if caplog.records else Fault(stall=10, stall_s=0.1)

    monkeypatch.setattr("fastpipe.engine.watchdog._ERROR_FACTOR", 1000)
    with (
        caplog.at_level(logging.WARNING),
        open_remote(range_server.url, stall_timeout=0.3) as loader,
    ):
        range_server.fault = only_shards(stalled_until_it_is_told)
        next(iter(loader))
    url = re.escape(range_server.url)
    assert re.search(
        rf"stuck fetching byte \d+ of {url}/shard-\d+\.tar, for \d+ s",
        caplog.records[0].getMessage(),
    )


def test_closed_while_nothing_comes(range_server: RangeServer, open_remote: Loaders) -> None:
    asked = threading.Event()

    def close() -> None:
        asked.wait(300.0)
        loader.close()

    with open_remote(range_server.url, read_timeout=300.0) as loader:
        range_server.fault = only_shards(lambda _: (asked.set(), Fault(stall=10, stall_s=300.0))[1])
        threading.Thread(target=close).start()
        with pytest.raises(fastpipe.EngineError, match="closed"):
            next(iter(loader))


@pytest.mark.usefixtures("quick")
def test_what_is_no_dataset(remote_packed: Path, range_server: RangeServer, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="holds no packed dataset"):
        fastpipe.open(f"{range_server.url}/elsewhere", cache_dir=tmp_path)
    description = (remote_packed / "dataset.json").read_bytes()
    # Not a field that this version alone has.
    other_version = b'{"format": "fastpipe-dataset", "format_version": 2, "fingerprint": "0"}'
    with RangeServer(tmp_path) as server:
        for content, words in [
            (b'{"format": "another"}', "does not describe a fastpipe dataset"),
            (description.replace(b"160", b"161"), "has been changed: expected the hash"),
            (other_version, "json has format version 2; this fastpipe"),
            (gzip.compress(description), r"compressed by gzip.*Content-Encoding"),
        ]:
            (tmp_path / "dataset.json").write_bytes(content)
            with pytest.raises(DatasetError, match=words):
                fastpipe.open(server.url, cache_dir=tmp_path / "cache")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("name", "at"), [("index.npy", 3000), ("dataset.json", 500)])
def test_a_small_file_that_is_garbled_on_its_way(
    range_server: RangeServer, remote_packed: Path, tmp_path: Path, name: str, at: int
) -> None:
    """It comes again, as a sample does; one that is wrong each time is an error."""
    left = [1]

    def fault(asked: Request) -> Fault | None:
        if asked.path != name or not left[0]:
            return None
        left[0] -= 1
        return Fault(status=206 if "range" in asked.headers else 200, flip=at)

    range_server.fault = fault
    index = fastpipe.open(range_server.url, cache_dir=tmp_path).index
    assert (index.folder / name).read_bytes() == (remote_packed / name).read_bytes()
    assert sum(request.path == name for request in range_server.requests) == 2
    left[0] = 100
    (index.folder / name).unlink()
    with pytest.raises(DatasetError, match=f"{name} has been changed|{name} is not valid JSON"):
        fastpipe.open(range_server.url, cache_dir=tmp_path)
    assert not list(index.folder.glob(".*"))


def test_a_watchdog_place_of_a_row_in_the_ring(
    range_server: RangeServer, open_remote: Loaders
) -> None:
    with open_remote(range_server.url, cache_limit=0) as loader:
        reader, index = loader.maker.engine.reader, loader.dataset.index
        with reader.brought(np.array([50, 100])) as where:
            record = index.records_of(np.array([100]))[0]
            assert where.shard.tolist() == [len(index.shards)] * 2
            place = int(record["offset"]) + int(where.shift[1])
            assert reader.origin(len(index.shards), place + 77) == (
                record["shard"],
                record["offset"] + 77,
            )
        assert reader.origin(len(index.shards), place + 77) is None  # given back
        assert reader.origin(2, 99) == (2, 99)
