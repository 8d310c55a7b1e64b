"""Datasets in a bucket of S3, as moto's server answers: also when objects are replaced."""

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


def test_an_object_of_s3_that_is_replaced(
    remote_packed: Path,
    local_digests: Callable[..., list[str]],
    bucket: Bucket,
    open_remote: Loaders,
) -> None:
    url = bucket.upload(remote_packed, "replaced")
    with open_remote(url, storage_options=bucket.options, cache_limit=0) as remote:
        assert digests(remote) == local_digests()
        for file in remote_packed.glob("shard-*"):
            data = file.read_bytes()
            bucket.client.put_object(
                Bucket=bucket.name,
                Key=f"replaced/{file.name}",
                Body=data[:-1] + bytes([data[-1] ^ 1]),
            )
        with pytest.raises(
            DatasetError, match=r"shard-\d+\.tar was replaced while it was read: expected ETag"
        ):
            digests(remote, 3)
