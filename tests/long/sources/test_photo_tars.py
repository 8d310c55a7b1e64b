"""Real photos in a tar that `tar` made: packed, they give the bytes that their folder gives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.checkout import PHOTOS
from support.datasets.packed import packed_jpeg
from support.sources.listed import paths_of
from support.sources.pack_sources import assert_same_pixels, digests

from fastpipe.format.index import Index
from fastpipe.packing.job.threads import pack


@pytest.mark.photos
def test_real_photos_in_a_tar(tmp_path: Path) -> None:
    if not PHOTOS.is_dir():
        pytest.skip(f"no photos at {PHOTOS}")
    subprocess.run(["tar", "cf", tmp_path / "photos.tar", "-C", PHOTOS.parent, PHOTOS.name], check=True, timeout=300)
    pack(PHOTOS, tmp_path / "one")
    pack(tmp_path / "photos.tar", tmp_path / "other")
    assert digests(tmp_path / "one") == digests(tmp_path / "other")
    again = pack(tmp_path / "one", tmp_path / "again").info
    assert again["classes"] == Index(tmp_path / "one").classes
    assert (again["samples"], again["counts"]["rejected"]) == (300, 0)
    before, after = Index(tmp_path / "one"), Index(tmp_path / "again")
    paths = paths_of(tmp_path / "one")
    for sample, source in enumerate(paths_of(tmp_path / "again")[:40]):
        number = paths.index(source)
        assert_same_pixels(packed_jpeg(after, sample), packed_jpeg(before, number))
        assert after.records["label"][sample] == before.records["label"][number]
