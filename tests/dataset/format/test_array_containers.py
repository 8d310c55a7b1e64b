"""Files of one array, .npz and .safetensors, are stored as .npy files; those of several are refused by name."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastpipe
from fastpipe.dataset.format.array_file import encode_array, normalise_array_file
from fastpipe.errors import PackError

VALUES = np.arange(24, dtype=np.float16).reshape(2, 3, 4)


def npz(compressed: bool = False, **arrays: Any) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


def safetensors(**tensors: tuple[str, list[int], bytes]) -> bytes:
    """The file that safetensors.torch.save writes; by name the dtype, the shape and the bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, (dtype, shape, data) in tensors.items():
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


def of_values(name: str = "latent", **changes: Any) -> bytes:
    entry = {"dtype": "F16", "shape": [2, 3, 4], "data": VALUES.tobytes(), **changes}
    return safetensors(**{name: (entry["dtype"], entry["shape"], entry["data"])})


@pytest.mark.parametrize(
    "data",
    [
        npz(latent=VALUES),
        npz(True, latent=VALUES),
        npz(latent=np.asfortranarray(VALUES)),
        of_values(),
    ],
)
def test_the_array_is_stored_as_a_npy_file(data: bytes) -> None:
    assert normalise_array_file(data) == encode_array(VALUES)


def test_safetensors_own_files_are_read(tmp_path: Path) -> None:
    writer = pytest.importorskip("safetensors.torch")
    for dtype in (
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.bool,
        torch.uint8,
    ):
        tensor = (torch.arange(12).reshape(3, 4) % 5).to(dtype)
        data = writer.save({"x": tensor}, metadata={"made": "by a test"})
        with fastpipe.Writer(tmp_path / str(dtype), {"x": "array"}) as written:
            (tmp_path / "x.safetensors").write_bytes(data)
            written.add(key="one", x=tmp_path / "x.safetensors")
        sample = fastpipe.open(tmp_path / str(dtype)).with_fields(["x"])[0]
        assert sample["x"].dtype == dtype
        assert torch.equal(sample["x"], tensor)


def torch_saved() -> bytes:
    file = io.BytesIO()
    torch.save(torch.ones(3), file)
    return file.getvalue()


def bomb() -> bytes:
    """A zip of 300 kB that says that its array has 300 MB."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(300 << 20))
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (npz(a=VALUES, b=VALUES), "expected one array in the file, got 2: a, b; write each into"),
        (npz(), "got 0: none"),
        (npz(a=np.array([{}], object)), "allow_pickle=False"),
        (npz(a=VALUES)[:-30], "expected a zip of .npy files"),
        (torch_saved(), "a file of torch.save, which may run code"),
        (bomb(), "an array of 314,572,800 bytes"),
        (of_values(dtype="F8_E4M3"), "tensor 'latent' has the dtype F8_E4M3"),
        (of_values(shape=[2, 3, 5]), "expected 60 bytes, got 48; the file is damaged"),
        (of_values()[:-4], "expected 48 bytes, got 44; the file is damaged"),
        (of_values(shape="many"), "invalid literal"),
        (safetensors(), "got 0: none"),
        (len(b"{}").to_bytes(8, "little") + b"{]", "Expecting property name"),
        (len(b'{"a": 1}').to_bytes(8, "little") + b'{"a": 1}', "is damaged"),
    ],
)
def test_what_holds_no_single_array_is_rejected(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "array.bin"
    path.write_bytes(data)
    writer = fastpipe.Writer(tmp_path / "data", {"x": "array"})
    with pytest.raises(PackError, match=f"field x: .*{words}"), writer:
        writer.add(key="one", x=path)
