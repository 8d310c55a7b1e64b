"""Tests of sources.picture.jpeg: which libturbojpeg is loaded, and what is said where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import turbojpeg

from fastpipe.errors import PackError
from fastpipe.sources.picture import jpeg
from fastpipe.sources.picture.jpeg import BUNDLED, open_turbojpeg

MAPS = Path("/proc/self/maps")


def mapped() -> set[str]:
    """The libturbojpeg files in this process's memory."""
    files = {line.split(maxsplit=5)[-1] for line in MAPS.read_text().splitlines()}
    return {file for file in files if "turbojpeg" in Path(file).name and ".so" in Path(file).name}


def test_a_checkout_brings_none_along() -> None:
    assert not BUNDLED.exists()
    assert isinstance(open_turbojpeg(), turbojpeg.TurboJPEG)


@pytest.mark.skipif(not MAPS.exists(), reason="only Linux tells what is mapped")
def test_the_one_that_a_wheel_brings_is_taken_before_the_systems(
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


def test_one_that_cannot_be_loaded_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = tmp_path / BUNDLED.name
    bundled.write_bytes(b"half of it is missing")
    monkeypatch.setattr(jpeg, "BUNDLED", bundled)
    with pytest.raises(
        PackError, match=r"came with fastpipe at .*install fastpipe again, with pip's --force-reinstall"
    ):
        open_turbojpeg()


def test_where_there_is_none_the_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turbojpeg, "find_library", lambda _: None)
    monkeypatch.setattr(turbojpeg, "DEFAULT_LIB_PATHS", {"Linux": [], "Darwin": []})
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    with pytest.raises(PackError, match=r"libturbojpeg0 \(Debian\).*libturbojpeg \(Ubuntu\).*jpeg-turbo \(Home"):
        open_turbojpeg()
