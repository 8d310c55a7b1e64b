"""Tests of sources.picture.jpeg: which libturbojpeg is loaded, what is said where there is none, and what it writes."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import turbojpeg
from PIL import Image
from support.pictures.jpegs import SUBSAMPLINGS
from support.sources.pack_sources import luma, pillow, pixels

from fastpipe.errors import PackError
from fastpipe.sources.picture import jpeg
from fastpipe.sources.picture.jpeg import BUNDLED, encode_jpeg, open_turbojpeg, shrink

MAPS = Path("/proc/self/maps")


def mapped() -> set[str]:
    """The libturbojpeg files in this process's memory."""
    files = {line.split(maxsplit=5)[-1] for line in MAPS.read_text().splitlines()}
    return {file for file in files if "turbojpeg" in Path(file).name and ".so" in Path(file).name}


def test_a_checkout_brings_none_along() -> None:
    assert not BUNDLED.exists()
    assert isinstance(open_turbojpeg(), turbojpeg.TurboJPEG)


@pytest.mark.skipif(not MAPS.exists(), reason="only Linux tells what is mapped")
def test_the_one_of_a_wheel_is_taken_before_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turbojpeg.TurboJPEG()
    (system,) = (file for file in mapped() if str(tmp_path.parent) not in file)
    bundled = tmp_path / BUNDLED.name
    shutil.copyfile(system, bundled)
    monkeypatch.setattr(jpeg, "BUNDLED", bundled)

    class Ours(turbojpeg.TurboJPEG):  # type: ignore[misc]
        pass

    monkeypatch.setattr(jpeg, "TurboJPEG", Ours)
    codec = open_turbojpeg()
    assert isinstance(codec, Ours)
    assert str(bundled) in mapped()
    image = np.zeros((8, 8, 3), np.uint8)
    assert codec.encode(image) == turbojpeg.TurboJPEG().encode(image)


def test_one_that_cannot_be_loaded_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = tmp_path / BUNDLED.name
    bundled.write_bytes(b"half of it is missing")
    monkeypatch.setattr(jpeg, "BUNDLED", bundled)
    with pytest.raises(
        PackError,
        match=r"came with fastpipe at .*install fastpipe again: pip install --force-reinstall",
    ):
        open_turbojpeg()


def test_where_there_is_none_the_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turbojpeg, "find_library", lambda _: None)
    monkeypatch.setattr(turbojpeg, "DEFAULT_LIB_PATHS", {"Linux": [], "Darwin": []})
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    with pytest.raises(
        PackError, match=r"libturbojpeg0 \(Debian\).*libturbojpeg \(Ubuntu\).*jpeg-turbo \(Home"
    ):
        open_turbojpeg()


def test_encoded_jpegs() -> None:
    """Baseline, of the sampling that is asked for, whatever the order of the array in memory."""
    rgb = pixels(45, 37)
    for sampling in ("444", "420", "gray"):
        data = encode_jpeg(rgb, quality=92, sampling=sampling)
        assert data == encode_jpeg(np.asfortranarray(rgb), quality=92, sampling=sampling)
        assert b"\xff\xc0" in data
        assert b"\xff\xc2" not in data
        image = Image.open(io.BytesIO(data))
        assert (image.size, image.mode) == ((45, 37), "L" if sampling == "gray" else "RGB")
        expected = np.dstack([luma(rgb)] * 3) if sampling == "gray" else rgb
        assert np.abs(pillow(data).astype(int) - expected).mean() < 12
        assert turbojpeg.TurboJPEG().decode_header(data)[2] == SUBSAMPLINGS[sampling]


def test_opencv_keeps_to_one_thread() -> None:
    shrink(pixels(21, 11), 5)
    assert cv2.getNumThreads() <= 1
