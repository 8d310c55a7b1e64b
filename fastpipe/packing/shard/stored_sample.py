"""A packed picture, its label, source and fields -> the bytes of its sample in a shard."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fastpipe.errors import readable
from fastpipe.format.fields import JPEG, PNG, Field, member
from fastpipe.format.sample_layout import BEFORE_BYTES, OURS, after_jpeg, before_jpeg, ending_of, field_member
from fastpipe.format.tar_writer import BLOCK, padded
from fastpipe.packing.picture.convert import Packed


def note_of(packed: Packed, path: str, kinds: Iterable[str]) -> bytes:
    """The content of KEY.json.

    Args:
        packed: picture and values.
        path: of its source.
        kinds: names of the fields, in the order of the values.
    """
    ours = {} if packed.class_name is None else {"class": packed.class_name}
    note: dict[str, Any] = {OURS: {**ours, "identity": f"{packed.identity:016x}"}, "path": readable(path)}
    if packed.change is not None:
        note["reencoded"] = packed.change
    for name, value in zip(kinds, packed.values, strict=True):
        if value.note is not None:
            note[name] = value.note
    return json.dumps(note).encode()


def stored_bytes(packed: Packed, note_bytes: int) -> int:
    """The size of a sample in a shard, without its bytes."""
    members = [len(value.member) for value in packed.values if value.member is not None]
    return BEFORE_BYTES - BLOCK + sum(BLOCK + padded(size, BLOCK) for size in (len(packed.jpeg), note_bytes, *members))


class StoredSample:
    """One sample, laid out.

    Args:
        key: its WebDataset key.
        packed: its picture and values.
        label: its label; NO_LABEL: none.
        path: its source.
        kinds: name -> kind of the fields, in the order of the values.

    Attributes:
        pieces: its bytes.
        size_bytes: how many these are.
        offsets: of the first byte of each field's member, from the sample's first byte; 0 where it has none.
    """

    def __init__(self, key: str, packed: Packed, label: int, path: str, kinds: Mapping[str, str]) -> None:
        before = before_jpeg(key, label, len(packed.jpeg), ending_of(packed.jpeg))
        text = note_of(packed, path, kinds)
        self.pieces = [before, packed.jpeg, after_jpeg(key, len(packed.jpeg), text)]
        self.size_bytes = sum(map(len, self.pieces))
        self.offsets: list[int] = []
        for (name, kind), value in zip(kinds.items(), packed.values, strict=True):
            data = value.member
            if data is None:
                self.offsets.append(0)
                continue
            ending = member(Field(name, kind), JPEG if data.startswith(b"\xff\xd8") else PNG)
            assert ending is not None  # a value of this kind is a member
            head, tail = field_member(key, ending, data)
            self.offsets.append(self.size_bytes + len(head))
            self.size_bytes += len(head) + len(data) + len(tail)
            self.pieces += (head, data, tail)
