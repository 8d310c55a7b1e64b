"""Says which libturbojpeg PyTurboJPEG works with: the one that a wheel of ours brought along, else the system's."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from turbojpeg import TurboJPEG

from fastpipe.errors import PackError

__all__ = ["BUNDLED", "open_turbojpeg"]

# `scripts/build_wheel.py` puts it there; a build from source has none. Its soname is its own, so that it neither takes
# the place of a libturbojpeg that something else in the process has loaded, nor is taken for that.
BUNDLED = Path(__file__).resolve().parents[2] / "_lib" / "libturbojpeg-fastpipe.so.0"

Codec = TypeVar("Codec", bound=TurboJPEG)


def open_turbojpeg(codec: type[Codec] = TurboJPEG) -> Codec:
    """Load libturbojpeg and make a codec of it.

    Args:
        codec: TurboJPEG or a class derived from it.

    Returns:
        The codec; its library is BUNDLED where that exists, else the one that the system finds.

    Raises:
        PackError: there is none, or it cannot be loaded.
    """
    bundled = BUNDLED.exists()
    try:
        opened: Codec = codec(str(BUNDLED) if bundled else None)
    except (RuntimeError, OSError, AttributeError, KeyError) as error:
        if bundled:
            raise PackError(
                f"expected the libturbojpeg that came with fastpipe at {BUNDLED}, which cannot be loaded; "
                f"install fastpipe again, with pip's --force-reinstall: {error}"
            ) from error
        raise PackError(
            "libturbojpeg is missing or cannot be loaded; install it with "
            "apt install libturbojpeg0 (Debian), apt install libturbojpeg (Ubuntu) "
            f"or brew install jpeg-turbo (Homebrew): {error}"
        ) from error
    return opened
