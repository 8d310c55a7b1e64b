"""Errors of obstore, as it raises them -> what they are, as data: `failure_of` reads the texts that obstore has now."""

from __future__ import annotations

import http.server
import pickle
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from obstore.store import HTTPStore, from_url
from support.remote.range_server import Fault, RangeServer
from support.remote.s3 import Bucket, Proxy, Wrong

from fastpipe.dataset.format.folder import Url
from fastpipe.errors import DatasetError
from fastpipe.store.remote.objects import Objects
from fastpipe.store.remote.options import RemoteOptions
from fastpipe.store.remote.retry import (
    REMEDIES,
    Failure,
    RequestError,
    WrongAnswerError,
    failure_of,
    kind_of_failure,
    pause_s,
)

ONCE: Any = {"max_retries": 0, "retry_timeout": timedelta(0)}
PATIENT: Any = {"allow_http": True, "read_timeout": timedelta(seconds=300)}
SOON: Any = {"allow_http": True, "read_timeout": timedelta(seconds=0.2)}  # gives up
EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The token has expired.</Message></Error>"


def failure(work: Callable[[], object]) -> Failure:
    """What the error of a request is."""
    with pytest.raises(Exception, match=r".") as caught:
        work()
    return failure_of(caught.value)


def test_errors_of_s3(bucket: Bucket) -> None:
    """Of moto's server, and of a proxy before it."""

    def store(name: str = bucket.name, **options: Any) -> Any:
        config = {**bucket.options, "client_options": PATIENT, "retry_config": ONCE, **options}
        return from_url(f"s3://{name}", **config)

    there = store()
    obstore.put(there, "a", b"0123456789")
    assert failure(lambda: obstore.get(there, "none")) == ("missing", "HTTP 404 Not Found", 404)
    assert failure(lambda: obstore.get(store("no-such-bucket"), "a")).kind == "bucket"
    assert (
        failure(lambda: obstore.get(there, "a", options={"if_match": "another"})).kind == "replaced"
    )
    assert failure(lambda: obstore.get_range(there, "a", start=20, end=30)).status == 416
    assert failure(lambda: obstore.put(there, "a", b"1", mode={"e_tag": "another"})).status == 412
    assert failure(lambda: obstore.get(there, "a//b")).kind == "refused"
    bucket.client.put_object(Bucket=bucket.name, Key="a//b", Body=b"")
    assert failure(lambda: list(obstore.list(there))).kind == "name"
    with Proxy(bucket.options["endpoint"]) as proxy:
        behind = store(endpoint=proxy.url)
        kinds = {
            301: "region",
            400: "refused",
            **dict.fromkeys((401, 403), "denied"),
            **dict.fromkeys((408, 429, 500, 503), "overloaded"),
        }
        for status, kind in kinds.items():
            proxy.fault = lambda _, status=status: Wrong(status)
            found = failure(lambda: obstore.get(behind, "a"))
            assert (found.kind, found.status) == (kind, 0 if status == 301 else status)
            assert f"HTTP {status}" in found.words or status == 301
        proxy.fault = lambda _: Wrong(lose_answer=True)
        assert failure(lambda: obstore.get(behind, "a")) == (
            "network",
            "the connection broke off",
            0,
        )
        proxy.fault = lambda asked: Wrong(503) if "partNumber=2" in asked.target else None
        parts = store(
            endpoint=proxy.url,
            retry_config={"max_retries": 1, "retry_timeout": timedelta(seconds=300)},
        )
        found = failure(
            lambda: obstore.put(
                parts, "large", bytes(11 << 20), chunk_size=5 << 20, max_concurrency=1
            )
        )
        assert found.kind == "overloaded"
        assert found.words.startswith("HTTP 503")
        assert found.words.endswith(" (part 2, 2 requests an attempt)")


@pytest.fixture
def web(tmp_path: Path) -> Iterator[RangeServer]:
    (tmp_path / "file").write_bytes(bytes(1000))
    with RangeServer(tmp_path) as server:
        yield server


ANSWERS = {
    "cut in the body": (Fault(cut=5), ("network", "the connection broke off (UnexpectedEof)", 0)),
    "no answer": (Fault(cut=-1), ("network", "the connection broke off", 0)),
    "stalled": (Fault(stall=3, stall_s=300.0), ("network", "no byte for read_timeout seconds", 0)),
    "all of it": (
        Fault(status=200),
        ("incapable", "HTTP 200 instead of 206: the server sent the whole file", 0),
    ),
    "no size": (Fault(headers={"Content-Range": "bytes 0-9/*"}), "incapable"),
    "another range": (Fault(headers={"Content-Range": "bytes 5-14/99"}), "network"),
    "expired": (
        Fault(status=400, body=EXPIRED),
        ("denied", "HTTP 400 Bad Request (ExpiredToken)", 400),
    ),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_of_a_web_server(web: RangeServer, answer: str) -> None:
    fault, expected = ANSWERS[answer]
    web.fault = lambda _: fault
    store = HTTPStore(web.url, client_options=SOON if fault.stall else PATIENT, retry_config=ONCE)
    found = failure(lambda: obstore.get(store, "file", options={"range": (0, 10)}).bytes())
    assert found == expected if isinstance(expected, tuple) else found.kind == expected


def test_servers_that_are_not_there() -> None:
    for url, kinds, words in (
        # Where no name server answers, it is not known whether there is such a host.
        (
            "http://nowhere.invalid/x",
            ("host", "network"),
            "no connection to nowhere.invalid (dns error)",
        ),
        ("http://127.0.0.1:9/x", ("closed",), "no connection to 127.0.0.1:9 (Connection refused)"),
    ):
        store = HTTPStore(url, client_options=PATIENT, retry_config=ONCE)
        found = failure(lambda store=store: obstore.get(store, "dataset.json"))
        assert found.kind in kinds
        assert found[1:] == (words, 0)
        assert REMEDIES[found.kind].tries is None  # as long as there is time


def test_a_server_whose_certificate_nobody_here_trusts(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_self_signed(tmp_path / "server.pem"))
    with http.server.HTTPServer(("localhost", 0), http.server.BaseHTTPRequestHandler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"localhost:{server.server_port}"
        store = HTTPStore(f"https://{address}", client_options=PATIENT, retry_config=ONCE)
        found = failure(lambda: obstore.get(store, "dataset.json"))
        server.shutdown()
    assert found == ("certificate", f"{address} has no valid certificate (UnknownIssuer)", 0)
    assert "SSL_CERT_FILE" in REMEDIES["certificate"].loading


def _self_signed(file: Path) -> Path:
    """A certificate for localhost with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private_key = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private_key + certificate.public_bytes(pem))
    return file


def test_a_name_server_that_does_not_answer_is_no_unknown_host() -> None:
    for message, kind in (
        ("Name or service not known", "host"),
        ("nodename nor servname provided, or not known", "host"),
        ("Temporary failure in name resolution", "network"),
    ):
        problem = OSError(f'kind: Connect, "dns error", "failed to lookup: {message}"')
        assert failure_of(problem) == (kind, "no connection (dns error)", 0)


@pytest.mark.parametrize("answer", ["HTTP error: kind: Timeout", "status code: 403 Forbidden"])
def test_a_machine_without_a_role(answer: str) -> None:
    """obstore asks there if it finds no credentials; S3 is not asked at all."""
    problem = OSError(
        "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s - "
        f"{answer}"
    )
    failure = failure_of(problem)
    assert failure.kind == "role"
    assert "no credentials, as 169.254.169.254 has no role for this machine" in failure.words


def test_other_errors() -> None:
    assert failure_of(WrongAnswerError("3 bytes")) == ("network", "the server sent 3 bytes", 0)
    found = failure(lambda: from_url("s3://bucket/x", colour="red"))  # type: ignore[call-overload]
    assert found.words == "Configuration key: 'colour' is not valid for store 'S3'."


def test_pauses_grow_and_differ() -> None:
    assert len({pause_s(3, False, 180.0) for _ in range(20)}) > 10
    assert max(pause_s(1, False, 180.0) for _ in range(50)) <= 0.1
    assert 5.0 <= pause_s(30, False, 180.0) <= 10.0
    assert (
        min(pause_s(1, True, 180.0) for _ in range(50)) >= 0.5
    )  # a server that asks for fewer requests


def test_the_traceback_of_an_error_has_no_text_of_obstore() -> None:
    """Its errors have 40 lines, which say what the message says."""
    objects = Objects(Url("http://127.0.0.1:9/x"), RemoteOptions(read_timeout_s=0.02))
    with pytest.raises(DatasetError) as caught:
        objects.fetched("a.tar", 0, 10)
    assert kind_of_failure(caught.value) == "closed"
    text = "".join(traceback.format_exception(caught.value))
    assert "RequestError: no connection to 127.0.0.1:9 (Connection refused)\n" in text
    assert "Debug source" not in text


def test_a_failed_request_can_be_sent_to_another_process() -> None:
    error = RequestError(Failure("denied", "HTTP 403 Forbidden", 403))
    assert str(pickle.loads(pickle.dumps(error))) == "HTTP 403 Forbidden"  # noqa: S301
