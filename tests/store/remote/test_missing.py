"""A URL of a bucket without dataset.json -> a message that says what is there in its place."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.remote.range_server import Fault, RangeServer
from support.remote.s3 import Bucket

import fastpipe
from fastpipe.errors import DatasetError

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def filled(bucket: Bucket) -> Bucket:
    """A bucket with the files of datasets, photos and an empty folder, as some programs make it."""
    for name in ("sets/train/dataset.json", "sets/val/dataset.json", "photos/cat/1.jpg", "new/"):
        bucket.client.put_object(Bucket=bucket.name, Key=name, Body=b"")
    return bucket


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("sets/trian", "No file is there; did you mean '{}/sets/train'?"),
        ("phtoos", "No file is there; did you mean '{}/photos'?"),
        ("sets/zzz", "No file is there. Check the URL"),
        ("new", "No file is there. Check the URL"),
        ("sets", "There are packed datasets in it: train, val. Pass one of them, such as {}/sets/"),
        ("photos", "Images have to be packed first: fastpipe pack {0}/photos {0}/photos-packed"),
    ],
)
def test_what_is_there(filled: Bucket, folder: str, words: str) -> None:
    with pytest.raises(DatasetError, match=r"holds no packed dataset: .*HTTP 404") as caught:
        fastpipe.open(filled.url(folder), storage_options=filled.options)
    text = str(caught.value)
    root = f"s3://{filled.name}"
    assert words.format(root) in text
    assert caught.value.__cause__ is None
    is_of_photos = folder == "photos"
    assert ("fastpipe pack s3" in text) is is_of_photos


def test_a_whole_bucket(bucket: Bucket) -> None:
    """What is packed of it goes into no other bucket, which may not exist."""
    root = f"s3://{bucket.name}"
    with pytest.raises(DatasetError, match=r"No file is there\. Check the URL"):
        fastpipe.open(root, storage_options=bucket.options)
    bucket.client.put_object(Bucket=bucket.name, Key="1.jpg", Body=b"")
    with pytest.raises(DatasetError, match=f"fastpipe pack {re.escape(root)} DST$"):
        fastpipe.open(root, storage_options=bucket.options)


@pytest.mark.parametrize("status", [403, 404])
def test_a_traceback_ends_with_one_error(
    remote_packed: Path, open_remote: Callable[..., Any], status: int
) -> None:
    """Its frames are those of the package, without obstore's text and the thread of requests."""
    with (
        RangeServer(remote_packed, fault=lambda _: Fault(status=status)) as server,
        pytest.raises(DatasetError) as caught,
    ):
        open_remote(server.url)
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback (most recent call last)") == 1
    assert "Debug source" not in shown
    assert "in insist" not in shown
