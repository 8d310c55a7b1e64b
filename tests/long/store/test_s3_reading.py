"""Datasets in a bucket of S3, as moto's server answers: whatever the cache keeps, and objects that are replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.remote.cases import digests
from support.remote.s3 import Bucket

from fastpipe.errors import DatasetError

Loaders = Callable[..., Any]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.usefixtures("quick")
def test_s3(remote_packed: Path, local_digests: Callable[..., list[str]], bucket: Bucket, open_remote: Loaders) -> None:
    url = bucket.upload(remote_packed, "deep/train")
    for limit in (0, "6MB", "1GB"):
        with open_remote(url, storage_options=bucket.options, cache_limit=limit) as remote:
            assert digests(remote, 2) == local_digests(2)
    other = bucket.url("deep/other")
    with pytest.raises(DatasetError, match=rf"{other} holds no packed dataset: .*HTTP 404"):
        open_remote(f"{other}/", storage_options=bucket.options)


def test_an_object_of_s3_that_is_replaced(remote_packed: Path, bucket: Bucket, open_remote: Loaders) -> None:
    url = bucket.upload(remote_packed, "replaced")
    with open_remote(url, storage_options=bucket.options, cache_limit=0) as remote:
        digests(remote)
        for file in remote_packed.glob("shard-*"):
            data = file.read_bytes()
            bucket.client.put_object(
                Bucket=bucket.name, Key=f"replaced/{file.name}", Body=data[:-1] + bytes([data[-1] ^ 1])
            )
        with pytest.raises(DatasetError, match=r"shard-\d+\.tar was replaced while it was read: expected ETag"):
            digests(remote, 3)
