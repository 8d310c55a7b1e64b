"""A sample's key, label, size and note -> the bytes before and after its JPEG in a shard (docs/format.md)."""

from __future__ import annotations

from fastpipe.format import tar_writer as tar

# A header and a block for KEY.cls (a label has at most 20 digits), and the header of KEY.jpg.
BEFORE_BYTES = 3 * tar.BLOCK


def before_jpeg(key: str, label: int, jpeg_bytes: int) -> bytes:
    """KEY.cls and the header of KEY.jpg: BEFORE_BYTES bytes."""
    digits = str(label).encode()
    cls = tar.header(key + ".cls", len(digits)) + digits + tar.padding(len(digits))
    return cls + tar.header(key + ".jpg", jpeg_bytes)


def after_jpeg(key: str, jpeg_bytes: int, note: bytes) -> bytes:
    """The padding of KEY.jpg, and KEY.json with the note."""
    json = tar.header(key + ".json", len(note)) + note + tar.padding(len(note))
    return tar.padding(jpeg_bytes) + json
