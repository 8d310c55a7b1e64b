"""A dataset behind a URL -> CPU seconds that each part of loading costs a fetched GB, and the least that it can cost.

    python -m bench.remote_cost PHOTOS [--threads 2] [--limit 200GB] [--work FOLDER]

Server and loader are processes of their own, so the server's CPU time counts apart. The loader's time is split by its
threads: the runtime that receives, the thread that plans and checks, those that write, those that decode. What the
kernel does in threads of its own (it writes the cache's pages to the disk) is what the machine was busy with besides.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xxhash

import fastpipe
from bench.cpu_seconds import Seconds, machine_seconds, process_seconds, thread_seconds
from bench.remote import BATCH, repeated, served
from fastpipe.dataset.format.packed_index import PackedIndex

_PIECE = 8 << 20


def loading(data: str | Path, server: int | None, threads: int, **options: Any) -> None:
    """Prints what an epoch costs; `options` are those of fastpipe.open."""
    with fastpipe.loader(fastpipe.open(data, **options), BATCH, num_workers=threads) as loader:
        before, began = thread_seconds(), time.perf_counter()
        served_before, machine_before = (
            process_seconds(server) if server else 0.0,
            machine_seconds(),
        )
        mine_before = time.process_time()
        for _ in loader:
            pass
        wall, after, done = time.perf_counter() - began, thread_seconds(), loader.stats()
        mine = time.process_time() - mine_before
        served_s = (process_seconds(server) if server else 0.0) - served_before
        machine = machine_seconds() - machine_before
        size = float(loader.dataset.index.shard_sizes.sum()) / 1e9
    show(f"{done.samples / wall:,.0f} images/s, {size / wall:.2f} GB/s, CPU seconds a GB:")
    for kind in sorted(after):
        did = after[kind].since(before.get(kind, Seconds()))
        show(
            f"  {kind:22} {did.ran / size:6.2f}  (user {did.user / size:.2f}, system {did.system / size:.2f})"
        )
    show(f"  {'the loader in all':22} {mine / size:6.2f}")
    show(f"  {'the server':22} {served_s / size:6.2f}")
    show(f"  {'the rest of the machine':22} {(machine - mine - served_s) / size:6.2f}")


def floors(url: str, name: str, size: int, folder: Path) -> None:
    """Prints what each step costs alone, a GB, in this thread: one copy out of the socket, into a file, one hash."""
    buffer = memoryview(bytearray(_PIECE))
    count = -(-1_000_000_000 // size)

    def receive() -> None:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            for _ in range(count):
                connection.sendall(
                    f"GET /{name} HTTP/1.1\r\nRange: bytes=0-{size - 1}\r\n\r\n".encode()
                )
                left, head = size, b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(1)
                while left:
                    left -= connection.recv_into(buffer[: min(left, _PIECE)])

    def write_to(file: int) -> Callable[[], None]:
        def write() -> None:
            os.ftruncate(file, count * size)
            place = 0
            while place < count * size:
                place += os.pwrite(file, buffer, place)

        return write

    def hashed() -> None:
        for _ in range(count * size // _PIECE):
            xxhash.xxh3_64_intdigest(buffer)

    memory = os.memfd_create("floor")
    with tempfile.TemporaryFile(dir=folder) as file:
        steps = {
            "out of the socket": receive,
            "into memory": write_to(memory),
            "into a file": write_to(file.fileno()),
            "the file to the disk": lambda: os.fsync(file.fileno()),
            "hashing": hashed,
        }
        for step, do in steps.items():
            machine, mine, began = machine_seconds(), time.thread_time(), time.perf_counter()
            do()
            mine, wall = time.thread_time() - mine, time.perf_counter() - began
            gigabytes = count * size / 1e9
            machine = (machine_seconds() - machine) / gigabytes
            show(
                f"  {step:22} {mine / gigabytes:6.2f}  (machine {machine:.2f}, {wall / gigabytes:.2f} s)"
            )
    os.close(memory)


def show(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main() -> None:
    """Prints the floors, an epoch of the local folder, and one from the server."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", default="200GB,0")
    parser.add_argument("--skip", default="", help="floors, local")
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "fastpipe-bench-remote"
    )
    chosen = parser.parse_args()
    data = repeated(chosen.photos, chosen.work, 1_300_000_000)
    shard = PackedIndex(data).shards[0]
    server, url = served(data, 1e9, 0.005)
    try:
        if "floors" not in chosen.skip:
            show("the least, CPU seconds a GB:")
            floors(url, shard.name, shard.path.stat().st_size, chosen.work)
        if "local" not in chosen.skip:
            for _ in range(2):
                show("the local folder:")
                loading(data, None, chosen.threads)
        for limit in chosen.limit.split(","):
            cache = Path(tempfile.mkdtemp(dir=chosen.work))
            show(f"1 GB/s, 5 ms, cache_limit={limit}:")
            loading(url, server.pid, chosen.threads, cache_dir=cache, cache_limit=limit)
            shutil.rmtree(cache, ignore_errors=True)
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
