"""The libraries at hand -> what decides a packed picture's bytes besides the source and the options."""

from __future__ import annotations

import functools
from importlib import metadata

import numpy as np
import xxhash

from fastpipe.errors import PackError
from fastpipe.native import _engine
from fastpipe.packing.picture.jpeg import encode_jpeg

__all__ = ["versions"]


def versions(*, masks: bool = False) -> dict[str, str]:
    """By library: the engine's libjpeg-turbo transcodes, Pillow decodes, OpenCV shrinks, libturbojpeg encodes.

    Args:
        masks: also libdeflate, which compresses them.
    """
    return {**_versions(), "libdeflate": _engine.LIBDEFLATE_VERSION} if masks else _versions()


@functools.cache
def _versions() -> dict[str, str]:
    found = {"engine": _engine.LIBJPEG_TURBO_VERSION, "libturbojpeg": _encoder()}
    for name in ("pillow", "pillow-heif", "opencv-python-headless"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def _encoder() -> str:
    """The hash of what libturbojpeg makes of a fixed picture, for it tells no version."""
    picture = np.random.RandomState(0).randint(0, 256, (40, 40, 3)).astype(np.uint8)
    try:
        encoded = encode_jpeg(picture, quality=95, subsampling="444") + encode_jpeg(
            picture, quality=90, subsampling="420"
        )
    except PackError:  # JPEGs can be packed without it
        return "missing"
    return xxhash.xxh3_64_hexdigest(encoded)
