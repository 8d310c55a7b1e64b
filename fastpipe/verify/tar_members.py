"""The tar headers of a shard -> its samples' members, as far as the headers lead through it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from fastpipe.format import tar_writer as tar
from fastpipe.format.open_file import read_at
from fastpipe.verify.shard_facts import ShardFacts


class SampleMember(NamedTuple):
    """A member of a sample.

    Attributes:
        ending: its name without "KEY.".
        offset, size: of its bytes in the shard.
    """

    ending: str
    offset: int
    size: int


def sample_members(shard: ShardFacts, file: BinaryIO) -> Iterator[list[SampleMember]]:
    """The members of each sample: label, image, note, and those of its fields.

    Raises:
        OSError: the shard cannot be read.
        ValueError: a header is not as it was packed.
    """
    at = 0
    for _ in range(shard.samples):
        key = shard.key(at)
        found: list[SampleMember] = []
        for endings in (("cls",), shard.pictures, ("json",), *shard.members):
            head = read_at(file.fileno(), tar.BLOCK, at)
            ending = ending_in_header(head, key, endings)
            if ending is None and len(found) >= 3:
                continue  # a sample need not have all fields
            if ending is None:
                raise ValueError(f"no member {key}.{endings[0]} at byte {at}")
            found.append(SampleMember(ending, at + tar.BLOCK, size_in_header(head)))
            at += tar.BLOCK + tar.padded(found[-1].size, tar.BLOCK)
        yield found


def starts_in_tar(shard: ShardFacts) -> list[int] | None:
    """Where samples begin by the headers in the shard; None if they do not lead through it, or if it
    is elsewhere, or has other samples, too.
    """
    if shard.direct is not None or shard.removed:  # the headers do not say which samples these are
        return None
    try:
        with open(shard.path, "rb", buffering=0) as file:
            return [members[0].offset - tar.BLOCK for members in sample_members(shard, file)]
    except (OSError, ValueError):
        return None


def ending_in_header(head: bytes, key: str, endings: tuple[str, ...]) -> str | None:
    """Which of these members of a key a tar header announces; None: none of them."""
    for ending in endings:
        if head.startswith(f"{key}.{ending}\0".encode()) and head == tar.header(
            f"{key}.{ending}", size_in_header(head)
        ):
            return ending
    return None


def size_in_header(head: bytes) -> int:
    """The member's size by its tar header.

    Raises:
        ValueError: there is no number.
    """
    return int(head[tar.SIZE_FIELD], 8)
