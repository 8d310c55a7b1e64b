"""A converted sample -> a record and a blob, and back; no field of either can run code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import xxhash

from fastpipe.errors import PackError
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.fields.agreement import gist
from fastpipe.packing.picture.convert import Packed

_FACTS = (
    "width",
    "height",
    "change",
    "oriented",
    "stray_bytes",
    "multi_frame",
    "source_size",
    "orientation",
    "jpeg_bytes",
    "identity",
    "class_name",
)


class Record(NamedTuple):
    """What a spool says of one sample: enough to cut shards and to agree on fields without the sample's bytes.

    Attributes:
        number: places it in packing order, with its name: the hash of its name, or its label.
        name: of the source.
        label: NO_LABEL: none.
        source_bytes: of the source's image.
        blob_bytes: of its blob; 0 where there is no picture.
        xxh3_64: of the blob.
        picture_bytes: of the picture as it is stored, which the blob begins with.
        reason: why there is no picture; None: there is one.
        facts: of the picture, as in Packed.
        values: for each field the bytes of its member, or None, and those of its note in JSON, or None.
        gists: for each field what its value must share with the others'.
    """

    number: int
    name: str
    label: int
    source_bytes: int
    blob_bytes: int = 0
    xxh3_64: int = 0
    picture_bytes: int = 0
    reason: str | None = None
    facts: Sequence[Any] = ()
    values: Sequence[Sequence[int | None]] = ()
    gists: Sequence[Any] = ()

    def line(self) -> bytes:
        """As a spool holds it, with its hash. Names may have bytes that are no UTF-8; these stand as escapes."""
        text = json.dumps(self, separators=(",", ":")).encode()
        return b"%b\t%x\n" % (text, xxhash.xxh3_64_intdigest(text))

    @classmethod
    def of_line(cls, line: bytes) -> Record:
        """Raises TypeError or ValueError if it is none, or has another hash."""
        text, _, digest = line.rstrip(b"\n").partition(b"\t")
        if int(digest, 16) != xxhash.xxh3_64_intdigest(text):
            raise ValueError("a record has another hash")
        return cls(*json.loads(text))

    @property
    def place(self) -> tuple[int, str]:
        """Where it stands in packing order."""
        return self.number, self.name


def record_of(
    place: tuple[int, str], label: int, source_bytes: int, outcome: Packed | str, kinds: Sequence[str]
) -> tuple[Record, bytes]:
    """The record and the blob of a sample.

    Args:
        place: its number and name.
        label, source_bytes: of its source.
        outcome: the picture, or why there is none.
        kinds: of its fields.
    """
    number, name = place
    if isinstance(outcome, str):
        return Record(number, name, label, source_bytes, reason=outcome), b""
    pieces, values = [outcome.jpeg], []
    for note, member in outcome.values:
        text = None if note is None else json.dumps(note).encode()
        pieces += [member or b"", text or b""]
        values.append((None if member is None else len(member), None if text is None else len(text)))
    blob = b"".join(pieces)
    facts = [getattr(outcome, fact) for fact in _FACTS]
    gists = [gist(kind, value.note) for kind, value in zip(kinds, outcome.values, strict=True)]
    sizes = len(blob), xxhash.xxh3_64_intdigest(blob), len(outcome.jpeg)
    return Record(number, name, label, source_bytes, *sizes, None, facts, values, gists), blob


def outcome_of(record: Record, blob: bytes, file: str) -> Packed | str:
    """The picture of a record, or why there is none.

    Raises:
        PackError: the blob is not the one that was written.
    """
    if record.reason is not None:
        return record.reason
    if len(blob) != record.blob_bytes or xxhash.xxh3_64_intdigest(blob) != record.xxh3_64:
        raise PackError(
            f"{file} has changed since it was written: the bytes of {record.name} have another hash. Remove it, then "
            "run the same command again: it is made anew"
        )
    at = record.picture_bytes
    values = []
    for member_bytes, note_bytes in record.values:
        member = None if member_bytes is None else blob[at : at + member_bytes]
        at += member_bytes or 0
        note = None if note_bytes is None else json.loads(blob[at : at + note_bytes])
        at += note_bytes or 0
        values.append(Stored(note, member))
    facts = dict(zip(_FACTS, record.facts, strict=True))
    facts["source_size"] = tuple(facts["source_size"])
    return Packed(blob[: record.picture_bytes], **facts, values=tuple(values))
