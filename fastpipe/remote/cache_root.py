"""The folder of a cache -> the datasets in it, and what they take of the disk; refused where it is on a network.

cache_dir/accounts                 bytes that the blocks of all datasets take
          FINGERPRINT/             a dataset's folder, as `fastpipe pack` writes it
                      url          where it came from
                      blocks       the states of its blocks
                      shard-*.tar  sparse, of the recorded size
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from fastpipe.errors import ConfigError, DatasetError
from fastpipe.remote.blocks import PAGE_BYTES

BLOCKS_FILE = "blocks"
URL_FILE = "url"
FINGERPRINT = re.compile(r"[0-9a-f]{16,64}")

_ACCOUNTS_FILE = "accounts"
_NETWORK = re.compile(r"nfs4?|cifs|smb3?|smbfs|afs|9p|fuse\.sshfs|ceph|fuse\.ceph")


def make_root(root: Path, mounts: str | None = None) -> None:
    """Makes the cache's folder.

    Args:
        mounts: the content of /proc/self/mountinfo; None: that of this process.

    Raises:
        ConfigError: it lies on a network file system.
        DatasetError: it cannot be made.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise unusable(root, problem) from problem
    kind = _file_system(root, Path("/proc/self/mountinfo").read_text() if mounts is None else mounts)
    if _NETWORK.fullmatch(kind):
        raise ConfigError(
            f"cache_dir={str(root)!r} lies on a network file system ({kind}); expected a folder on a disk of this "
            "machine, because a cache on the network is no faster than the bucket. Pass cache_dir=, for example on "
            "NVMe, or cache_limit=0 with a cache_dir on any local disk"
        )


def datasets(root: Path) -> list[Path]:
    """The folders of the datasets in a cache."""
    try:
        found = [Path(entry.path) for entry in os.scandir(root) if FINGERPRINT.fullmatch(entry.name)]
    except FileNotFoundError:
        return []
    return sorted(folder for folder in found if (folder / URL_FILE).exists())


def open_accounts(root: Path) -> int:
    """A descriptor of the account of all datasets; its first byte is the lock on the cache."""
    try:
        return os.open(root / _ACCOUNTS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as problem:
        raise unusable(root, problem) from problem


def disk_bytes(folder: Path) -> int:
    """What the files of a folder take on the disk."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:  # another process has removed it
                continue
    return total


def small_bytes(folder: Path) -> int:
    """What the files of a dataset that are no shards take; those of any size."""
    total = 4 * PAGE_BYTES  # the folders themselves
    for path, _, names in os.walk(folder):
        for name in names:
            if not (name.startswith("shard-") and name.endswith(".tar")):
                with suppress(FileNotFoundError):  # another process has given it its name
                    total += -(-os.lstat(os.path.join(path, name)).st_size // PAGE_BYTES) * PAGE_BYTES
    return total


def unusable(root: Path, problem: OSError) -> DatasetError:
    """The error for a cache that this process cannot write."""
    return DatasetError(
        f"the cache in {root} cannot be written: {problem.strerror or problem}. Pass cache_dir=, a folder on a local "
        "disk that this user may write"
    )


def _file_system(folder: Path, mounts: str) -> str:
    """The kind of file system that a folder lies on."""
    real, best, kind = os.path.realpath(folder), "", "unknown"
    for line in mounts.splitlines():
        before, _, behind = line.partition(" - ")
        where = before.split(" ")[4].encode().decode("unicode_escape")
        inside = real == where or real.startswith(where.rstrip("/") + "/")
        if inside and len(where) >= len(best):
            best, kind = where, behind.split(" ")[0]
    return kind
