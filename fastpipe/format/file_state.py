"""What os.stat or a server says of a file -> its state: as long as that stays, so does its content."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple


class FileState(NamedTuple):
    """Of a file.

    Attributes:
        size_bytes: of it.
        mtime_ns: in nanoseconds since 1970. Behind a URL it names the content: the hash of the ETag; where a server
            gives none, the time at which it was written.
        ctime_ns: the same, by the system's clock; behind a URL the end of the second in which it was written, for
            servers tell seconds only.
        is_regular: it is no folder, pipe, socket or device.
    """

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    is_regular: bool = True


def state_of(info: os.stat_result) -> FileState:
    """The state of a file of this machine."""
    return FileState(info.st_size, info.st_mtime_ns, info.st_ctime_ns, stat.S_ISREG(info.st_mode))
