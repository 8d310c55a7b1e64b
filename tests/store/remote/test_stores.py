"""URLs of each kind: S3 (moto's server), the Hub (a server that answers as it does), file://, and others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.remote.cases import digests
from support.remote.range_server import Fault, RangeServer
from support.remote.s3 import KEYS, environment

import fastpipe
from fastpipe.dataset.format.folder import Url
from fastpipe.errors import ConfigError, DatasetError
from fastpipe.packing.shard.options import pack_options
from fastpipe.store.remote.options import place_of

Loaders = Callable[..., Any]


# Scheme -> storage_options for a server at an address. Google Cloud Storage and Azure Blob Storage answer a range as S3
# does; objects are asked for by other paths, and requests are signed in other ways.
CLOUDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "s3": lambda address: {"endpoint": address, "region": "us-east-1", **KEYS},
    "gs": lambda address: {"base_url": address, "skip_signature": True},
    "az": lambda address: {"endpoint": address, "account_name": "me", "account_key": "a2V5"},
}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SIGNED = {"s3": "AWS4-HMAC-SHA256 Credential=testing/", "gs": "", "az": "SharedKey me:"}


@pytest.fixture
def clouds(remote_packed: Path, tmp_path: Path) -> Path:
    """A folder to serve: the bucket `pictures` with the dataset in deep/train."""
    (tmp_path / "clouds" / "pictures" / "deep").mkdir(parents=True)
    (tmp_path / "clouds" / "pictures" / "deep" / "train").symlink_to(remote_packed)
    return tmp_path / "clouds"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("scheme", CLOUDS)
def test_clouds(
    local_digests: Callable[..., list[str]], clouds: Path, open_remote: Loaders, scheme: str
) -> None:
    with RangeServer(clouds) as server:
        options = CLOUDS[scheme](server.url)
        with open_remote(
            f"{scheme}://pictures/deep/train", storage_options=options, cache_limit=0
        ) as remote:
            assert digests(remote) == local_digests()
        assert "pictures/deep/train/dataset.json" in {request.path for request in server.requests}
        signatures = [request.headers.get("authorization", "") for request in server.requests]
        assert all(signature.startswith(SIGNED[scheme]) for signature in signatures), signatures[:2]
        with pytest.raises(
            DatasetError, match=rf"{scheme}://pictures/other holds no packed dataset: .*HTTP 404"
        ):
            open_remote(f"{scheme}://pictures/other/", storage_options=options)
        url = f"{scheme}://pictures/other"
        words = f"Images have to be packed first: fastpipe pack {url} {url}-packed"
        with pytest.raises(DatasetError, match=words):
            open_remote(url, storage_options=options)


@pytest.mark.usefixtures("quick")
def test_an_endpoint_with_the_name_of_the_bucket(clouds: Path, open_remote: Loaders) -> None:
    with RangeServer(clouds) as server:
        options = {**CLOUDS["s3"](server.url), "endpoint": f"{server.url}/pictures"}
        words = r"/pictures ends with the bucket's name, .*: leave the name out of the endpoint"
        with pytest.raises(DatasetError, match=words):
            open_remote("s3://pictures/deep/train", storage_options=options)


def test_a_bucket_that_does_not_exist(clouds: Path, open_remote: Loaders) -> None:
    body = b"<Error><Code>NoSuchBucket</Code></Error>"
    with RangeServer(clouds) as server:
        server.fault = lambda _: Fault(status=404, body=body)
        words = r"^s3://pictures/deep/.* after 1 attempt .*There is no such bucket: check its name"
        with pytest.raises(DatasetError, match=words):
            open_remote("s3://pictures/deep/train", storage_options=CLOUDS["s3"](server.url))


def test_credentials_of_the_environment(
    clouds: Path, open_remote: Loaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RangeServer(clouds) as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        assert len(open_remote("s3://pictures/deep/train").dataset) == 160
        assert all(SIGNED["s3"] in request.headers["authorization"] for request in server.requests)


def test_options_that_no_store_knows(open_remote: Loaders) -> None:
    with pytest.raises(
        ConfigError, match=r"storage_options: s3://bucket/x cannot be opened with colour, "
    ):
        open_remote("s3://bucket/x", storage_options={"colour": "red", "skip_signature": True})
    with pytest.raises(ConfigError, match="storage_options: expected only client_options for http"):
        open_remote("http://127.0.0.1/x", storage_options={"region": "x"})
    for options in ({"endpoint": "127.0.0.1:9000"}, {"aws_endpoint_url": "127.0.0.1:9000"}):
        with pytest.raises(
            ConfigError,
            match=r"the endpoint 127.* of s3://bucket/x has to begin with https:// or http",
        ):
            open_remote(
                "s3://bucket/x",
                storage_options={**options, "skip_signature": True},
                read_timeout=0.2,
            )
    # obstore would panic.
    with pytest.raises(ConfigError, match=r'pass \{"client_options": \{"allow_http": True\}\}'):
        open_remote("s3://bucket/x", storage_options={"allow_http": True})
    with pytest.raises(ConfigError, match="storage_options: expected a dict"):
        open_remote("http://127.0.0.1/x", storage_options=[1])
    with pytest.raises(
        ConfigError, match="cache_dir: expected a folder, got ''"
    ):  # a variable that is not set
        open_remote("http://127.0.0.1/x", cache_dir="")


@pytest.mark.parametrize(
    "given",
    [
        {"cache_dir": "cache"},
        {"cache_limit": "8MB"},
        {"storage_options": {"region": "eu-west-1"}},
        {"read_timeout": 5},
    ],
)
def test_options_of_urls_are_refused_without_one(remote_packed: Path, given: Any) -> None:
    """Whatever lies here: a packed dataset, photos, tars."""
    (name,) = given
    photos = remote_packed.parent / "source"
    for data in (
        remote_packed,
        str(remote_packed),
        remote_packed.as_uri(),
        photos,
        f"{remote_packed}/*.tar",
    ):
        with pytest.raises(
            ConfigError, match=rf"^{name}=: expected the URL .* got {re.escape(str(data))}"
        ):
            fastpipe.open(data, **given)
    usual = {
        "cache_dir": None,
        "cache_limit": 200 * 10**9,
        "storage_options": {},
        "read_timeout": 20,
    }
    assert len(fastpipe.open(remote_packed, **usual)) == 160  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            "ftp://host/x",
            "has the scheme ftp://, which fastpipe cannot read; it reads s3://, gs://",
        ),
        ("s3n://bucket/x", "has the scheme s3n://"),
        ("s3://", "expected s3://BUCKET/FOLDER"),
        (
            "s3://bucket//x",
            "has an empty name between slashes, or a name . or ..; expected s3://BUCKET/FOLDER",
        ),
        ("gs:///bucket/x", "has an empty name between slashes"),
        ("s3://bucket/x/../y", "a name . or .."),
        ("hf://models/x/y/z", "expected hf://datasets/ORG/NAME/FOLDER"),
        ("https://host/x?token=1", "has a query"),
        ("file://host/x", "expected file:///FOLDER"),
        ("file:///x/a#1", "write %3F for ? and %23 for #"),
        ("https://user:secret@host/x", "the URL of host has a user name or a password"),
    ],
)
def test_urls_that_nobody_reads(data: str, words: str) -> None:
    for take in (fastpipe.loader, fastpipe.open):
        with pytest.raises(ConfigError, match=f"^(data: )?.*{re.escape(words)}") as caught:
            take(data)  # type: ignore[operator]
        assert "secret" not in str(caught.value)


def test_what_is_a_url() -> None:
    assert place_of("S3://bucket/a/b/") == Url("S3://bucket/a/b")
    assert place_of("file:///data/my%20set") == Path("/data/my set")
    assert place_of("data/train") == "data/train"
    assert place_of(Path("x")) == Path("x")
    assert pack_options(spool="file:///data/my%20spool").spool == Path("/data/my spool")
    with pytest.raises(DatasetError, match=r"pathlib\.Path damages URLs: pass the URL as a string"):
        fastpipe.loader(Path("s3://bucket/train"))


@pytest.mark.parametrize("url", ["s3:/bucket/train", "GS:/bucket/train", "https:/host/train"])
def test_a_url_with_one_slash(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no folder "s3:" here, neither to read nor to write."""
    monkeypatch.chdir(tmp_path)
    meant = re.escape(url.replace(":/", "://"))
    words = rf"has one slash behind \w+:, and a URL has two: pass '{meant}'"
    with pytest.raises(ConfigError, match=words):
        fastpipe.open(url)
    with pytest.raises(ConfigError, match=words):
        fastpipe.pack(url, tmp_path / "packed")
    with pytest.raises(ConfigError, match=words):
        fastpipe.Writer(url)
    with pytest.raises(ConfigError, match=words):
        fastpipe.pack(tmp_path, url)
    assert not list(tmp_path.iterdir())
    assert place_of(f"./{url}") == f"./{url}"


@pytest.mark.parametrize("name", ["dataset.json", "index.npy", "shard-000012.tar"])
def test_the_url_of_a_file_of_a_dataset(name: str) -> None:
    with pytest.raises(
        DatasetError,
        match=rf"^s3://bucket/train/{name} is a file of a dataset; pass the URL of its folder: "
        r"s3://bucket/train$",
    ):
        fastpipe.open(f"s3://bucket/train/{name}")


def test_a_folder_by_its_url(remote_packed: Path) -> None:
    assert (
        fastpipe.open(f"file://{remote_packed}").index.fingerprint
        == fastpipe.open(remote_packed).index.fingerprint
    )


@pytest.fixture
def hub(remote_packed: Path, tmp_path: Path) -> Path:
    """A folder to serve, as the Hub answers: facts of a dataset by its name, and files of a commit."""
    folder = tmp_path / "hub"
    facts = {
        "id": "org/photos",
        "sha": COMMIT,
        "siblings": [],
        "tags": [],
        "private": False,
        "downloads": 0,
    }
    revisions = folder / "api/datasets/org/photos/revision"
    revisions.mkdir(parents=True)
    (revisions / "main").write_text(json.dumps(facts))
    resolved = folder / f"datasets/org/photos/resolve/{COMMIT}/packed/train"
    resolved.parent.mkdir(parents=True)
    resolved.symlink_to(remote_packed)
    return folder


def test_the_hub(
    remote_packed: Path, hub: Path, open_remote: Loaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RangeServer(hub) as server:
        monkeypatch.setattr(
            "huggingface_hub.constants.HF_HUB_OFFLINE", False
        )  # other tests switch it on
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
        monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", server.url)
        url = "hf://datasets/org/photos/packed/train"
        with open_remote(remote_packed) as local:
            expected = digests(local)
        with open_remote(url, storage_options={"revision": "main"}) as remote:
            assert digests(remote) == expected
        assert all(COMMIT in request.path for request in server.requests[1:])
        with pytest.raises(DatasetError, match="the Hub does not give the dataset org/none"):
            open_remote("hf://datasets/org/none/train", storage_options={"revision": "main"})
        with pytest.raises(ConfigError, match="takes token and revision, got region"):
            open_remote("hf://datasets/org/other/train", storage_options={"region": "x"})
