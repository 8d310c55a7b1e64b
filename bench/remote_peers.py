"""Other loaders of remote data beside fastpipe: the same photos, the same link, a cache of half of the data.

    make bench-peers PEERS="streaming litdata webdataset"      # each in an environment of its own, in build/peers
    python -m bench.remote_peers PHOTOS [--work FOLDER]

Each loader runs two epochs in a process of its own, with 2 workers, from a server that answers as S3 does, behind
100 MB/s and 30 ms. What comes out is random-resized crops to 224 of uint8, by the way that each loader's documentation
shows. Then each runs an epoch of fewer, undecoded samples while the server flips one bit of an image once, and while it
answers 503 once for each file. All of it in one run of less than 10 minutes, which prints one table.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.roster import INSTALLED, ROOT

PEERS = ("fastpipe", "streaming", "streaming:600", "litdata", "webdataset")
BATCH = 64


class Amount(NamedTuple):
    """How much a loader reads.

    Attributes:
        folder: behind the loader's name, of its files.
        copies: of the photos.
        shard_bytes: of a file.
        patience_s: how long a run may take.
    """

    folder: str
    copies: int
    shard_bytes: int
    patience_s: float


ALL = Amount("", 10, 32 << 20, 240.0)
# For faults: a file is as likely to be asked for as among many. Streaming refuses a cache of less than four files.
FEW = Amount("-few", 2, 4 << 20, 75.0)


def photo_files(photos: Path, copies: int) -> list[tuple[Path, int]]:
    """The photos and their labels, so many times, shuffled once."""
    import random

    classes = sorted(folder.name for folder in photos.iterdir() if folder.is_dir())
    files = [(path, classes.index(path.parent.name)) for path in sorted(photos.glob("*/*"))]
    many = files * copies
    random.Random(0).shuffle(many)
    return many


def write(peer: str, photos: Path, out: Path) -> None:
    """A loader's own format of the photos."""
    amount = FEW if out.name.endswith(FEW.folder) else ALL
    files = photo_files(photos, amount.copies)
    if peer == "streaming":
        _torchvision()
        from streaming import MDSWriter

        columns = {"image": "bytes", "label": "int"}
        with MDSWriter(out=str(out), columns=columns, size_limit=amount.shard_bytes) as shards:
            for path, label in files:
                shards.write({"image": path.read_bytes(), "label": label})
    elif peer == "litdata":
        from litdata import optimize

        optimize(
            _litdata_sample,
            files,
            str(out),
            chunk_bytes=amount.shard_bytes,
            num_workers=1,
            verbose=False,
        )
    else:  # fastpipe's shards are WebDataset's
        import fastpipe

        with fastpipe.Writer(out, shard_size=amount.shard_bytes) as writer:
            for path, label in files:
                writer.add(path.read_bytes(), label=label)


def _litdata_sample(photo: tuple[Path, int]) -> dict[str, Any]:
    return {"image": photo[0].read_bytes(), "label": photo[1]}


def decoded(jpeg: bytes, label: int) -> tuple[Any, int]:
    """torchvision's usual transform, of PIL images."""
    from PIL import Image

    return _torchvision()(Image.open(io.BytesIO(jpeg)).convert("RGB")), label


@functools.cache
def _torchvision() -> Any:
    """Its transform for training. The shim makes torchvision importable with any build of torch."""
    sys.path.append(str(ROOT / "bench" / "peers"))
    from import_torchvision import training_transform

    return training_transform(224)


def raw(jpeg: bytes, label: int) -> tuple[bytes, int]:
    """The sample as it came."""
    return jpeg, label


def batches(
    peer: str, data: str, cache: Path, endpoint: str, limit: int, *, undecoded: bool
) -> Iterable[Any]:
    """A loader of two workers; an epoch each time that it is iterated."""
    from torch.utils.data import DataLoader

    made = raw if undecoded else decoded
    keep = {"collate_fn": list} if undecoded else {}
    if peer == "fastpipe":
        import fastpipe

        options = {
            "endpoint": endpoint,
            "region": "us-east-1",
            "virtual_hosted_style_request": False,
        }
        return fastpipe.loader(
            fastpipe.open(data, cache_dir=cache, cache_limit=limit, storage_options=options),
            BATCH,
            num_workers=2,
        )
    if peer.startswith("streaming"):
        _torchvision()
        import streaming
        from streaming.base.util import clean_stale_shared_memory

        clean_stale_shared_memory()  # what a run that was killed left in /dev/shm
        # Its shuffle takes samples of all shards in turn by default; with a block it stays in few of them for a time.
        keep_near = {"shuffle_block_size": int(peer.partition(":")[2])} if ":" in peer else {}

        class Photos(streaming.StreamingDataset):
            def __getitem__(self, at: Any) -> Any:
                sample = super().__getitem__(at)
                return made(sample["image"], sample["label"])

        shown = Photos(
            remote=data,
            local=str(cache),
            shuffle=True,
            batch_size=BATCH,
            cache_limit=limit,
            **keep_near,
        )
        return DataLoader(
            shown, batch_size=BATCH, num_workers=2, drop_last=True, persistent_workers=True, **keep
        )
    if peer == "litdata":
        import litdata
        from litdata.streaming import downloader

        downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = (
            True  # it has no option for servers without TLS
        )

        class Chunks(litdata.StreamingDataset):
            def __getitem__(self, at: Any) -> Any:
                sample = super().__getitem__(at)
                return made(sample["image"], sample["label"])

        options = {"endpoint_url": endpoint, "aws_access_key_id": "x", "aws_secret_access_key": "x"}
        chunks = Chunks(
            data, cache_dir=str(cache), shuffle=True, max_cache_size=limit, storage_options=options
        )
        return litdata.StreamingDataLoader(
            chunks, batch_size=BATCH, num_workers=2, drop_last=True, **keep
        )
    import webdataset

    names = [
        f"shard-{number:06d}.tar"
        for number in range(len(list(Path(os.environ["SERVED"]).glob("*.tar"))))
    ]
    urls = [f"pipe:curl -sf {endpoint}/{data.removeprefix('s3://')}/{name}" for name in names]
    tars = webdataset.WebDataset(
        urls, shardshuffle=len(urls), empty_check=False, nodesplitter=webdataset.single_node_only
    )
    pairs = (
        tars.shuffle(1000)
        .to_tuple("jpg", "cls")
        .map_tuple(bytes, int)
        .map(lambda pair: made(*pair))
    )
    return webdataset.WebLoader(pairs, batch_size=BATCH, num_workers=2, **keep)


def run(
    peer: str, data: str, cache: Path, endpoint: str, limit: int, known: Path | None
) -> dict[str, Any]:
    """Two epochs, or, with the hashes of all photos, one of undecoded samples: how many are none of them."""
    if known is not None:
        return _look(peer, data, cache, endpoint, limit, set(json.loads(known.read_text())))
    started, first_s, epochs = time.perf_counter(), 0.0, []
    loader = batches(peer, data, cache, endpoint, limit, undecoded=False)
    for _ in range(2):
        began, images = time.perf_counter(), 0
        for batch in loader:
            first_s = first_s or time.perf_counter() - started
            images += len(batch[1])
        epochs.append(images / (time.perf_counter() - began))
    return {"first_batch_s": first_s, "images_per_s": epochs}


def _look(
    peer: str, data: str, cache: Path, endpoint: str, limit: int, known: set[str]
) -> dict[str, Any]:
    if peer == "fastpipe":  # gives pixels; every sample's bytes are compared with their hash
        return {
            "samples": sum(
                len(batch[1])
                for batch in batches(peer, data, cache, endpoint, limit, undecoded=True)
            )
        }
    found = [
        hashlib.sha256(jpeg).hexdigest()
        for jpeg in _jpegs(batches(peer, data, cache, endpoint, limit, undecoded=True))
    ]
    return {"samples": len(found), "wrong": sum(digest not in known for digest in found)}


def _jpegs(loader: Iterable[Any]) -> Iterator[bytes]:
    for batch in loader:
        yield from (sample[0] for sample in batch)


SERVE = """
import sys, threading, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from support.remote.range_server import Fault, RangeServer
kind, seen, big = {kind!r}, set(), 8 << 20
def fault(asked):
    if kind == "" or not asked.path.endswith((".tar", ".mds", ".bin")):
        return None
    if kind == "503" and asked.path not in seen:
        seen.add(asked.path)
        return Fault(status=503, headers={{"Retry-After": "1"}})
    if kind == "flip" and not seen and asked.stop - asked.start > 200000:
        seen.add(asked.path)
        return Fault(flip=100000)
    return None
server = RangeServer(Path({folder!r}), latency_s=0.03, bytes_per_s=100e6, fault=fault)
print(server.url, flush=True)
sys.stdin.readline()
print(server.sent_bytes, flush=True)
"""


def python_of(peer: str) -> str:
    """The Python of a loader's environment; the checkout's own for fastpipe, and what writes its shards."""
    installed = INSTALLED / peer.partition(":")[0] / "bin" / "python"
    return sys.executable if peer == "fastpipe" or not installed.exists() else str(installed)


def measured(peer: str, work: Path, kind: str) -> dict[str, Any]:
    """A loader in a process of its own, and what its server sent."""
    amount = FEW if kind else ALL
    served = work / "bucket" / (peer.partition(":")[0] + amount.folder)
    size = sum(file.stat().st_size for file in served.iterdir())
    program = SERVE.format(tests=str(ROOT / "tests"), kind=kind, folder=str(work))
    server = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    cache = Path(tempfile.mkdtemp(dir=work))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "S3_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "SERVED": str(served),
        "NO_ALBUMENTATIONS_UPDATE": "1",
    }
    order = [
        python_of(peer),
        "-m",
        "bench.remote_peers",
        "run",
        peer,
        f"s3://bucket/{served.name}",
        str(cache),
        url,
        str(size // 2),
    ]
    order += [str(work / "known.json")] if kind else []
    loader = subprocess.Popen(
        order,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
        process_group=0,  # so that its workers end with it
    )
    try:
        out, said = loader.communicate(timeout=amount.patience_s)
        last = said.strip().splitlines()[-1:] or [""]
        found = (
            json.loads(out.splitlines()[-1]) if loader.returncode == 0 else {"error": last[0][:200]}
        )
    except subprocess.TimeoutExpired:
        found = {"error": f"no end within {amount.patience_s:.0f} s"}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(loader.pid, signal.SIGKILL)
        loader.wait()
    sent = server.communicate("\n")[0].strip()
    shutil.rmtree(cache, ignore_errors=True)
    return {**found, "fetched": int(sent) / size}


def main() -> None:
    """Prints a line a loader and kind."""
    if sys.argv[1:2] == ["run"]:
        peer, data, cache, endpoint, limit, *known = sys.argv[2:]
        found = run(
            peer, data, Path(cache), endpoint, int(limit), Path(known[0]) if known else None
        )
        sys.stdout.write("\n" + json.dumps(found) + "\n")
        sys.stdout.flush()
        os._exit(0)
    if sys.argv[1:2] == ["write"]:
        write(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("photos", type=Path)
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "fastpipe-bench-peers"
    )
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--kinds", default=",flip,503")
    chosen = parser.parse_args()
    bucket = chosen.work / "bucket"
    bucket.mkdir(parents=True, exist_ok=True)
    hashes = [
        hashlib.sha256(path.read_bytes()).hexdigest() for path, _ in photo_files(chosen.photos, 1)
    ]
    names = dict.fromkeys(each.partition(":")[0] for each in chosen.peers.split(","))
    for peer, out in (
        (name, bucket / (name + amount.folder)) for name in names for amount in (ALL, FEW)
    ):
        if not out.exists():
            python = (
                sys.executable if peer == "webdataset" else python_of(peer)
            )  # fastpipe writes both
            order = [python, "-m", "bench.remote_peers", "write", peer, chosen.photos, out]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            subprocess.run([str(each) for each in order], check=True, env=environment, cwd=ROOT)
    hashes += _stored(bucket / "webdataset") if (bucket / "webdataset").exists() else []
    (chosen.work / "known.json").write_text(json.dumps(sorted(set(hashes))))
    kinds, began = chosen.kinds.split(","), time.monotonic()
    rows: dict[str, dict[str, dict[str, Any]]] = {peer: {} for peer in chosen.peers.split(",")}
    for kind in kinds:
        for peer, row in rows.items():
            row[kind] = measured(peer, chosen.work, kind)
            print(kind or "two epochs", peer, row[kind], flush=True)  # noqa: T201
    print("\n".join(table(rows)))  # noqa: T201
    print(f"in {time.monotonic() - began:.0f} s")  # noqa: T201


def table(rows: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """What came out, in Markdown."""
    lines = [
        "| loader | images/s, epoch 1 and 2 | fetched, times the data | first batch | one flipped bit | 503 |",
        "|---|---|---|---|---|---|",
    ]
    for peer, row in rows.items():
        cells = ["", "", ""]
        if "" in row:
            found = row[""]
            rates = ", ".join(f"{rate:,.0f}" for rate in found.get("images_per_s", []))
            first = f"{found['first_batch_s']:.1f} s" if "first_batch_s" in found else ""
            cells = [found.get("error", rates), f"{found['fetched']:.2f}", first]
        for kind in ("flip", "503"):
            found = row.get(kind, {})
            wrong = f"{found.get('wrong', 0)} wrong of {found.get('samples', 0):,} samples"
            cells.append(found.get("error", wrong))
        lines.append(f"| {peer} | {' | '.join(cells)} |")
    return lines


def _stored(packed: Path) -> list[str]:
    """The hashes of the JPEGs in shards."""
    import tarfile

    found = []
    for shard in sorted(packed.glob("*.tar")):
        with tarfile.open(shard) as members:
            for member in members:
                if member.name.endswith(".jpg"):
                    content = members.extractfile(member)
                    assert content is not None
                    found.append(hashlib.sha256(content.read()).hexdigest())
    return found


if __name__ == "__main__":
    main()
