"""What the tests of remote datasets share: a packed dataset of 13 MB, a server, loaders; fixtures of conftest.py."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.remote.range_server import RangeServer

import fastpipe
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.store.remote import objects

IMAGES = 160
BATCH = 16
_OF_OPEN = ("cache_dir", "cache_limit", "storage_options", "read_timeout")


def shard_bytes(dataset: Path) -> int:
    """Bytes of its shards."""
    return sum(shard.stat().st_size for shard in dataset.glob("shard-*.tar"))


def digest(batch: tuple[Any, Any]) -> str:
    """Of a batch's images, of each view, and labels."""
    images, labels = batch
    parts = (*(images if isinstance(images, list) else [images]), labels)
    return hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()


def digests(loader: Any, epochs: int = 1) -> list[str]:
    """Of all batches of some epochs."""
    return [digest(batch) for _ in range(epochs) for batch in loader]


@pytest.fixture(scope="session")
def remote_packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """160 pictures of about 80 kB, 4 classes: 13 MB in 7 shards."""
    folder = tmp_path_factory.mktemp("remote") / "source"
    rng = np.random.default_rng(16)
    for number in range(IMAGES):
        (folder / f"class-{number % 4}").mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (200, 200, 3), dtype=np.uint8)
        picture = Image.fromarray(pixels)
        picture.save(folder / f"class-{number % 4}" / f"{number}.jpg", quality=95, subsampling=0)
    packed = folder.parent / "packed"
    pack(folder, packed, PackOptions(workers=2, shard_size=2_000_000))
    return packed


@pytest.fixture
def range_server(remote_packed: Path) -> Iterator[RangeServer]:
    """Serves that dataset."""
    with RangeServer(remote_packed) as serving:
        yield serving


@pytest.fixture(scope="session")
def remote_bytes(remote_packed: Path) -> int:
    """Bytes of its shards."""
    return shard_bytes(remote_packed)


@pytest.fixture
def open_remote(tmp_path: Path) -> Callable[..., Any]:
    """fastpipe.open, with a cache of the test's own, and fastpipe.loader for small crops; each gets its options."""

    def open_it(data: Any, **options: Any) -> Any:
        if isinstance(data, str):
            given = {name: options.pop(name) for name in _OF_OPEN if name in options}
            data = fastpipe.open(
                data, **{"cache_dir": tmp_path / "cache", "read_timeout": 2.0, **given}
            )
        return fastpipe.loader(data, BATCH, **{"size": 64, "seed": 3, "num_workers": 2, **options})

    return open_it


@pytest.fixture(scope="session")
def local_digests(remote_packed: Path) -> Callable[..., list[str]]:
    """The digests of the folder's batches, for `epochs` and options as `open_remote` takes them; each is made once."""
    known: dict[str, list[list[str]]] = {}

    def of(epochs: int = 1, **options: Any) -> list[str]:
        found = known.setdefault(repr(sorted(options.items())), [])
        if len(found) < epochs:
            with fastpipe.loader(
                remote_packed, BATCH, **{"size": 64, "seed": 3, "num_workers": 2, **options}
            ) as local:
                for epoch in range(len(found), epochs):
                    local.set_epoch(epoch)
                    found.append(digests(local))
        return [each for epoch in found[:epochs] for each in epoch]

    return of


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting between attempts."""
    monkeypatch.setattr(objects, "pause_s", lambda *_: 0.01)
