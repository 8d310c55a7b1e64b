"""Files that may hold several arrays, .npz and .safetensors -> the array of one that holds one.

Formats: numpy.org/doc/stable/reference/generated/numpy.savez.html, a zip of .npy files; and
huggingface.co/docs/safetensors, eight bytes with the length of a header in JSON, the header, and the
numbers of the tensors. Neither holds Python objects, so that reading one runs no code.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The first bytes of a zip, and of one without members.
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
_LENGTH_BYTES = 8
# As safetensors itself has it.
_MAX_HEADER_BYTES = 100_000_000
_METADATA = "__metadata__"
# An array of a file is read whole. Its zip may say any size.
_MAX_ARRAY_BYTES = 256 << 20
# torch.save writes a zip with this member.
_PICKLE_OF_TORCH = "data.pkl"
_DTYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "BF16": "V2",  # as .npy files have it
    "F32": "<f4",
    "F64": "<f8",
}


def is_container(data: bytes) -> bool:
    """Whether a file is an .npz, a file of torch.save, or a .safetensors."""
    return data.startswith(_ZIPS) or _is_safetensors(data)


def only_array(data: bytes) -> NDArray[Any]:
    """The array of a file that holds one.

    Raises:
        ValueError: it is damaged, or holds several arrays, none, or objects of Python.
    """
    if data.startswith(_ZIPS):
        return _array_of_zip(data)
    return _array_of_safetensors(data)


def _array_of_zip(data: bytes) -> NDArray[Any]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {member.filename: member for member in archive.infolist()}
            if any(name.endswith(_PICKLE_OF_TORCH) for name in members):
                raise ValueError(
                    "got a file of torch.save, which may run code when it is read; write it by "
                    "np.save(path, tensor.numpy())"
                )
            name = _only_name([name.removesuffix(".npy") for name in members])
            (member,) = members.values()
            if member.file_size > _MAX_ARRAY_BYTES:
                raise ValueError(f"an array of {member.file_size:,} bytes")
            content = archive.read(member)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as problem:
        raise ValueError(f"expected a zip of .npy files: {problem}") from None
    if not member.filename.endswith(".npy"):
        raise ValueError(f"expected a .npy file in the zip, got {name}")
    array: NDArray[Any] = np.lib.format.read_array(
        io.BytesIO(content), allow_pickle=False
    )
    return array


def _is_safetensors(data: bytes) -> bool:
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    has_header = 0 < length <= min(_MAX_HEADER_BYTES, len(data) - _LENGTH_BYTES)
    return has_header and data[_LENGTH_BYTES : _LENGTH_BYTES + 1] == b"{"


def _array_of_safetensors(data: bytes) -> NDArray[Any]:
    header_bytes = int.from_bytes(data[:_LENGTH_BYTES], "little")
    numbers = memoryview(data)[_LENGTH_BYTES + header_bytes :]
    try:
        header = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + header_bytes])
        header.pop(_METADATA, None)
        name = _only_name(list(header))
        entry = header[name]
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"tensor {name!r} has the dtype {entry['dtype']}")
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        shape = [int(length) for length in entry["shape"]]
        start, stop = entry["data_offsets"]
        part = numbers[start:stop]
    except (AttributeError, KeyError, TypeError, RecursionError) as problem:
        raise ValueError(
            f"the header of the .safetensors is damaged: {problem!r}"
        ) from None
    if len(part) != math.prod(shape) * dtype.itemsize:
        raise ValueError(
            f"tensor {name!r}: expected {math.prod(shape) * dtype.itemsize:,} bytes, got "
            f"{len(part):,}; the file is damaged or cut off"
        )
    return np.frombuffer(part, dtype).reshape(shape)


def _only_name(names: list[str]) -> str:
    if len(names) != 1:
        found = ", ".join(sorted(names)[:8]) or "none"
        raise ValueError(
            f"expected one array in the file, got {len(names)}: {found}; write each into a file of "
            "its own"
        )
    return names[0]
