"""A name server that is gone in the middle of an epoch: batches stay right, and come when it is back."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.remote.range_server import RangeServer
from support.running.soak import Tried, long_form

# Reads the epoch in a process that has files of its own for names; waits after two batches until it is told to go on.
EPOCH = """
    import hashlib, sys, fastpipe
    data = fastpipe.open(sys.argv[1], cache_dir=sys.argv[2], cache_limit=0, read_timeout=20.0)
    with fastpipe.loader(data, 16, size=64, seed=3, num_workers=2) as loader:
        for number, (images, labels) in enumerate(loader):
            print(hashlib.sha256(images.numpy().tobytes() + labels.numpy().tobytes()).hexdigest(), flush=True)
            if number == 1:
                sys.stdin.readline()
        print(loader.stats().retries, loader.maker.engine.reader.caches.remote[0].objects.trouble, flush=True)
"""


def test_a_name_server_that_is_gone_for_a_time(
    local_digests: Callable[..., list[str]], range_server: RangeServer, tmp_path: Path, tried: Tried
) -> None:
    """The process has its own /etc/hosts and /etc/resolv.conf, in a mount namespace."""
    hosts, servers = tmp_path / "hosts", tmp_path / "resolv.conf"
    names = "127.0.0.1 localhost shards.test\n"
    hosts.write_text(names)
    servers.write_text(
        "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
    )  # nobody listens there
    inside = (
        f'mount --bind {hosts} /etc/hosts && mount --bind {servers} /etc/resolv.conf && exec "$@"'
    )
    order = ["unshare", "--mount", "--map-root-user", "sh", "-c", inside, "sh"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*order, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs the right to mount in a namespace")
    expected = local_digests()
    range_server.latency_s = (
        0.1  # most requests are still to come after two batches, also on a busy machine
    )
    url = range_server.url.replace("127.0.0.1", "shards.test")
    program = [sys.executable, "-c", textwrap.dedent(EPOCH), url, str(tmp_path / "cache")]
    child = subprocess.Popen(
        [*order, *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    found = [child.stdout.readline().strip() for _ in range(2)]
    hosts.write_text("")
    range_server.hang_up()  # so that new connections are made, which need the name
    time.sleep(0.3)
    range_server.hang_up()  # those that were being made when the name went
    asked = len(range_server.requests)
    child.stdin.write("\n")
    child.stdin.flush()
    time.sleep(60 if long_form() else 0.3)
    assert len(range_server.requests) == asked, "requests came while the name was not known"
    hosts.write_text(names)
    said = child.communicate(timeout=300)[0].splitlines()
    assert [*found, *said[:-1]] == expected
    retries, trouble = said[-1].split(" ", 1)
    assert int(retries) > 0
    assert re.fullmatch(r"no connection to \S+ \(dns error\)", trouble)
    tried(
        "remote: no name server for a time, up to a minute", 1, "the batches of the local dataset"
    )
