"""Credentials that end in the middle of an epoch: new ones are asked for, once, and no batch changes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.remote.cases import digests
from support.remote.range_server import Fault, RangeServer, Request

from fastpipe.dataset.format.folder import Url
from fastpipe.errors import ConfigError, DatasetError, FastpipeError, PackError
from fastpipe.store.remote import objects
from fastpipe.store.remote.connection import Connection, lacks_credentials
from fastpipe.store.remote.options import RemoteOptions

Loaders = Callable[..., Any]
Expected = Callable[..., list[str]]

EXPIRED = Fault(
    status=400,
    body=b"<Error><Code>ExpiredToken</Code><Message>The token has expired.</Message></Error>",
)


class TokenService:
    """Gives out tokens that hold for some time, and refuses requests with others: as STS and S3 do it.

    Args:
        life_s: of a token.
        told_s: of a token, as its holder is told.
        most: tokens that it gives out at most; None: any number.
    """

    def __init__(self, life_s: float, told_s: float, most: int | None = None) -> None:
        self._life_s, self._told_s, self._most = life_s, told_s, most
        self._lock = threading.Lock()
        self.ends: dict[str, float] = {}
        self.refused = 0

    def __call__(self) -> dict[str, Any]:
        """A token, for obstore."""
        with self._lock:
            if self._most is None or len(self.ends) < self._most:
                self.ends[f"token-{len(self.ends)}"] = time.monotonic() + self._life_s
            return {
                "access_key_id": "key",
                "secret_access_key": "secret",
                "token": list(self.ends)[-1],
                "expires_at": datetime.now(UTC) + timedelta(seconds=self._told_s),
            }

    def fault(self, asked: Request) -> Fault | None:
        """Of a server that looks at the token."""
        if time.monotonic() < self.ends.get(asked.headers.get("x-amz-security-token", ""), 0.0):
            return None
        with self._lock:
            self.refused += 1
        return EXPIRED


@pytest.fixture
def bucket(remote_packed: Path, tmp_path: Path) -> Path:
    """A folder that is served, with the dataset at bucket/train."""
    folder = tmp_path / "served"
    (folder / "bucket").mkdir(parents=True)
    (folder / "bucket" / "train").symlink_to(remote_packed)
    return folder


def options(server: RangeServer, tokens: TokenService) -> dict[str, Any]:
    return {"endpoint": server.url, "region": "us-east-1", "credential_provider": tokens}


def test_tokens_that_end_soon(local_digests: Expected, bucket: Path, open_remote: Loaders) -> None:
    """obstore asks for the next one 300 s before the end: so here as soon as it has had one for 0.1 s."""
    tokens = TokenService(life_s=1000.0, told_s=299.0)
    with (
        RangeServer(bucket, latency_s=0.11, fault=tokens.fault) as server,
        open_remote(
            "s3://bucket/train", storage_options=options(server, tokens), cache_limit=0
        ) as remote,
    ):
        assert digests(remote) == local_digests()
        assert len(tokens.ends) >= 3
        assert tokens.refused == 0


def test_tokens_that_end_too_early(
    local_digests: Expected, bucket: Path, open_remote: Loaders
) -> None:
    tokens = TokenService(life_s=1000.0, told_s=3600.0)
    with RangeServer(bucket, latency_s=0.02, fault=tokens.fault) as server:
        expected = local_digests(3)
        with open_remote(
            "s3://bucket/train", storage_options=options(server, tokens), cache_limit=0
        ) as remote:
            found = digests(remote)
            for _ in range(2):
                tokens.ends = dict.fromkeys(tokens.ends, 0.0)  # all are taken back
                given = len(tokens.ends)
                found += digests(remote)
                assert len(tokens.ends) == given + 1, (
                    "each request that was refused asked for a token of its own"
                )
        assert found == expected
        assert tokens.refused > 3


def test_no_new_token(bucket: Path, open_remote: Loaders) -> None:
    tokens = TokenService(life_s=1000.0, told_s=3600.0, most=1)
    with (
        RangeServer(bucket, fault=tokens.fault) as server,
        open_remote(
            "s3://bucket/train", storage_options=options(server, tokens), cache_limit=0
        ) as remote,
    ):
        digests(remote)
        tokens.ends = dict.fromkeys(tokens.ends, 0.0)
        with pytest.raises(
            DatasetError,
            match=r"s3://bucket/train/shard-\d+\.tar, bytes .* cannot be fetched: HTTP 400 .*after 4 attempts .*"
            "Check the credentials",
        ):
            digests(remote, 3)


@pytest.mark.parametrize("lacks", [True, False])
def test_a_refused_request_without_credentials_says_so(
    bucket: Path, open_remote: Loaders, monkeypatch: pytest.MonkeyPatch, lacks: bool
) -> None:
    """Without any, obstore asks the machine's role for some, which no test has."""
    monkeypatch.setattr("fastpipe.store.remote.objects.lacks_credentials", lambda *_: lacks)
    tokens = TokenService(life_s=1000.0, told_s=3600.0)
    with (
        RangeServer(bucket, fault=lambda _: Fault(status=403)) as server,
        pytest.raises(DatasetError) as caught,
    ):
        open_remote("s3://bucket/train", storage_options=options(server, tokens))
    assert "HTTP 403" in str(caught.value)
    assert ("No credentials were found: AWS_ACCESS_KEY_ID is not set" in str(caught.value)) is lacks
    assert ("Check the credentials" in str(caught.value)) is not lacks
    assert "amazonaws.com" not in str(caught.value)  # the server was named


def without_aws(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """An environment in which nobody has set up AWS."""
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))


REFUSED = OSError(
    "Error performing GET https://s3.us-east-1.amazonaws.com/bucket/x in 1s - status code: 403 Forbidden"
)
NO_ROLE = OSError("Error performing PUT http://169.254.169.254/latest in 1s - kind: Timeout")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("error", [DatasetError, PackError])
@pytest.mark.parametrize("problem", [REFUSED, NO_ROLE])
def test_a_server_of_ones_own_that_nobody_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    problem: OSError,
    error: type[FastpipeError],
) -> None:
    without_aws(monkeypatch, tmp_path)
    monkeypatch.setitem(objects._FIRST_CONTACT_S, "role", 0.0)

    async def request() -> str:
        raise problem

    def message(storage: dict[str, Any]) -> str:
        remote = objects.Objects(Url("s3://bucket/x"), RemoteOptions(storage=storage), error)
        with pytest.raises(error) as caught:
            remote.wait(remote.insist(request, "URL cannot be fetched"))
        return str(caught.value)

    text = message({})
    assert "No credentials were found" in text
    assert "Requests go to amazonaws.com: for a server of your own set AWS_ENDPOINT_URL" in text
    assert "Check the credentials" not in text
    assert "amazonaws.com" in message({"access_key_id": "a", "secret_access_key": "b"})
    assert "amazonaws.com" not in message({"endpoint": "http://127.0.0.1:9"})
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        with monkeypatch.context() as context:
            context.setenv(variable, "http://127.0.0.1:9")
            assert "amazonaws.com" not in message({})


def test_where_credentials_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_aws(monkeypatch, tmp_path)
    url = Url("s3://bucket/train")
    assert lacks_credentials(url, {"region": "us-east-1"})
    for given in ({"access_key_id": "x"}, {"skip_signature": True}, {"aws_secret_access_key": "x"}):
        assert not lacks_credentials(url, given)
    assert not lacks_credentials(Url("gs://bucket/train"), {})
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        with monkeypatch.context() as context:
            context.setenv(name, "x")
            assert not lacks_credentials(url, {})
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").touch()
    assert not lacks_credentials(url, {})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("AWS_ACCESS_KEY_ID", "AKIA\r", r"has a control character \('\\r'\) at its end"),
        ("AWS_SECRET_ACCESS_KEY", "abc\r\n", r"has a control character \('\\r'\) at its end"),
        ("AWS_SESSION_TOKEN", "a\tbc", r"has a control character \('\\t'\) at position 1"),
        ("AWS_SESSION_TOKEN", "abc\u200b", r"has a character that is not ASCII .* at its end"),
    ],
)
def test_a_credential_that_no_header_can_have(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    Connection(Url("s3://bucket/data"), RemoteOptions())
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"^{name} {words}; set it again") as refused:
        Connection(Url("s3://bucket/data"), RemoteOptions())
    assert value.strip() not in str(refused.value)
    monkeypatch.delenv(name)
    option = name.lower().removeprefix("aws_")
    options = RemoteOptions(storage={option: value})
    with pytest.raises(ConfigError, match=f"storage_options: {option} {words}"):
        Connection(Url("s3://bucket/data"), options)


def test_keys_of_other_clouds_have_several_lines() -> None:
    account = '{"private_key": "-----BEGIN PRIVATE KEY-----\\nkey",\n "client_email": "a@b.c"}'
    options = RemoteOptions(storage={"service_account_key": account})
    with pytest.raises(ConfigError) as refused:  # it is no real key
        Connection(Url("gs://bucket/data"), options)
    assert "control character" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("key", "access_key_id"),
        ("secret", "secret_access_key"),
        ("client_kwargs", "endpoint"),
        ("anon", "skip_signature"),
        ("region_name", '"region"'),
        ("profile_name", "secret_access_key"),
    ],
)
def test_options_of_s3fs(name: str, instead: str) -> None:
    options = RemoteOptions(storage={name: "value"})
    with pytest.raises(ConfigError, match=f"{name} is an option of s3fs or boto3.*{instead}"):
        Connection(Url("s3://bucket/data"), options)


def test_all_options_of_s3fs_are_named_at_once() -> None:
    options = RemoteOptions(storage={"key": "a", "secret": "b", "client_kwargs": {}, "region": "c"})
    words = (
        "key, secret, client_kwargs are options of s3fs or boto3; .* calls them otherwise: "
        '{"access_key_id": "...", "secret_access_key": "...", "endpoint": "https://...", '
    )
    with pytest.raises(ConfigError, match=words):
        Connection(Url("s3://bucket/data"), options)
