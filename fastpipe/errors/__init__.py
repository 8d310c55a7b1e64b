"""The tree of all errors that fastpipe raises, and names as messages show them; imports no sibling.

    FastpipeError
    ├── ConfigError (ValueError)     an argument or option is wrong
    ├── DatasetError                 a packed dataset is missing, unfinished or damaged
    │   └── SampleError              one sample of a dataset cannot be read or decoded
    ├── ImageError (ValueError)      one source image cannot be packed
    ├── PackError                    packing cannot continue
    ├── ClusterError                 a Ray cluster cannot be reached, or its machines fail a task
    └── EngineError (RuntimeError)   the native engine cannot start or continue, or was misused

Each message has the expected value, the actual value, the place and the next step.
"""

from __future__ import annotations

import os
import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class FastpipeError(Exception):
    """Base of every error that fastpipe raises on purpose."""


class ConfigError(FastpipeError, ValueError):
    """An argument or option has a wrong value; the message lists the accepted values."""


class DatasetError(FastpipeError):
    """A packed dataset is missing, unfinished, damaged or of another format version."""


class SampleError(DatasetError):
    """One sample cannot be read or decoded.

    torch's DataLoader creates the error of a worker process again, only from its text. Then `str(error)` is complete,
    and the attributes have the values in brackets.

    Attributes:
        shard: path of the shard file [""].
        key: the sample's WebDataset key in that shard [""].
        sample: the sample's number in the dataset (row of the index) [-1].
        offset: byte offset of the image in the shard [-1].
        reason: the cause, as text [""].
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        shard: str = "",
        key: str = "",
        sample: int = -1,
        offset: int = -1,
        reason: str = "",
        replace: bool = False,
    ) -> None:
        self.shard = shard
        self.key = key
        self.sample = sample
        self.offset = offset
        self.reason = reason
        if message is None:  # replace: the loader has on_error="replace"
            advice = "to train without it: fastpipe.loader(..., on_error='replace')"
            if replace:
                advice = (
                    "on_error='replace' found no other sample for its place; to list the damage: fastpipe verify DATA"
                )
            message = (
                f"sample {sample} (key {key}) cannot be decoded: {reason}\n"
                f"  at byte {offset} of {shard}\n"
                f"  {advice}; "
                "to repair the dataset: fastpipe verify DATA --repair SRC, or pack it again with --overwrite"
            )
        super().__init__(message)


class ImageError(FastpipeError, ValueError):
    """One source image cannot be packed; the message is the reason, without the path."""


class PackError(FastpipeError):
    """Packing cannot continue, because of the destination, the source folder or the disk."""


class ClusterError(FastpipeError):
    """A Ray cluster cannot be reached, or a task has failed on its machines again and again."""


class EngineError(FastpipeError, RuntimeError):
    """The native engine cannot start, has too little memory, gets no answer, or was used after close or in a child."""


def readable(name: str) -> str:
    """A file system's name as text that every terminal and file can hold.

    Bytes that are not UTF-8 become a backslash, x and two digits: `caf\\xe9.jpg`. So do control characters, which a
    terminal would act on, except line ends and tabs. Halves of a character, which no file has in its name but a program
    may pass, become a backslash, u and four digits.
    """
    try:
        text = os.fsencode(name).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        text = name.encode("utf-8", "backslashreplace").decode()
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
