"""Tests of fastpipe.dataset.format.tar_writer: the bytes are those of Python's tarfile."""

from __future__ import annotations

import io
import tarfile

import pytest

from fastpipe.dataset.format import tar_writer as tar


@pytest.mark.parametrize("name", ["0000000000.jpg", "0000012345.json", "x" * 100])
@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 4_294_967_295, 8**11 - 1])
def test_a_header_is_tarfiles(name: str, size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o444
    assert tar.header(name, size) == member.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.parametrize(
    "sizes", [[], [0], [1], [512], [5000, 513], [8192], [8193, 7], [9216 - 512, 512]]
)
def test_an_archive_is_tarfiles(sizes: list[int]) -> None:
    ours = b"".join(
        tar.header(f"{n}.jpg", size) + b"x" * size + tar.padding(size)
        for n, size in enumerate(sizes)
    )
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number, size in enumerate(sizes):
            member = tarfile.TarInfo(f"{number}.jpg")
            member.size, member.mode = size, 0o444
            archive.addfile(member, io.BytesIO(b"x" * size))
    assert ours + tar.end(len(ours)) == file.getvalue()


@pytest.mark.parametrize(("name", "size"), [("x" * 101, 1), ("x", 8**11), ("ü", 1)])
def test_what_a_header_cannot_hold(name: str, size: int) -> None:
    with pytest.raises(ValueError, match=r"does not fit|ascii"):
        tar.header(name, size)
