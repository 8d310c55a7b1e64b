"""A URL of a bucket without dataset.json -> a message that says what is there in its place."""

from __future__ import annotations

import re

import pytest
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
        ("photos", "Photos have to be packed first: fastpipe pack {0}/photos {0}/photos-packed"),
    ],
)
def test_what_is_there(filled: Bucket, folder: str, words: str) -> None:
    with pytest.raises(DatasetError, match=r"holds no packed dataset: .*HTTP 404") as caught:
        fastpipe.open(filled.url(folder), storage_options=filled.options)
    text = str(caught.value)
    root = f"s3://{filled.name}"
    assert words.format(root) in text
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
