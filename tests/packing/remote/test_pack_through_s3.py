"""Packing through an S3 server (moto's): who one is, and names that its protocol has to escape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.programs.cli_run import failed, succeeded
from support.remote.s3 import Bucket, new_bucket
from support.sources.pack_sources import files, jpeg_bytes, write_files, write_large_folder

import fastpipe
from fastpipe.errors import PackError


@pytest.fixture(scope="module")
def bucket(s3_server: str) -> Bucket:
    return new_bucket(s3_server)


def test_the_environment_says_who_one_is(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    source = write_large_folder(tmp_path / "source", images=4)
    url, out = bucket.upload(source, "in"), bucket.url("out/x")
    printed = succeeded("pack", url, out, "--shard-size", "100kB", "--spool", tmp_path / "spool")
    assert "uploaded" in printed
    assert "MB" in printed
    succeeded("pack", source, tmp_path / "local", "--shard-size", "100kB")
    assert bucket.objects("out/x") == files(tmp_path / "local")
    assert "sound" in succeeded("verify", out)
    again = json.loads(succeeded("pack", url, out, "--shard-size", "100kB", "--json"))
    assert (again["already_packed"], again["uploaded_bytes"], again["rejected"]) == (True, 0, [])
    repair = failed(2, "verify", out, "--repair", url)
    assert "DATA is a URL. Repair a copy in a folder, and upload it" in repair


def test_a_url_names_the_same_folder_as_src_and_as_dst(tmp_path: Path, bucket: Bucket) -> None:
    """Names in buckets have no escapes."""
    odd = "a b/50%/x%20y+ä%2F"
    there = {"storage_options": bucket.options}
    names = ("a b.jpg", "50%.jpg", "x#y?z.jpg", "ä+&.jpg", "x%20y.jpg")
    write_files(
        tmp_path / "photos",
        {f"class 0/{name}": jpeg_bytes(seed=at) for at, name in enumerate(names)},
    )
    url = bucket.upload(tmp_path / "photos", f"{odd}/photos")
    fastpipe.pack(url, bucket.url(f"{odd}/packed/"), **there)
    fastpipe.pack(tmp_path / "photos", tmp_path / "local")
    assert bucket.objects(f"{odd}/packed") == files(tmp_path / "local")
    assert (
        len(fastpipe.open(bucket.url(f"{odd}/packed"), cache_dir=tmp_path / "cache", **there)) == 5
    )


def test_an_object_whose_name_is_no_path_is_an_error_at_once(
    tmp_path: Path, bucket: Bucket
) -> None:
    words = r"in-\d cannot be listed: .*after 1 attempt in .*: rename that object, or move"
    for number, name in enumerate(("empty//part.jpg", "tab\t.jpg", "a/../b.jpg")):
        bucket.client.put_object(Bucket=bucket.name, Key=f"in-{number}/{name}", Body=jpeg_bytes())
        with pytest.raises(PackError, match=words):
            fastpipe.pack(
                bucket.url(f"in-{number}"), tmp_path / "packed", storage_options=bucket.options
            )
