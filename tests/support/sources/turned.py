"""Photos that EXIF turns, with a bright rectangle, made and read by Pillow alone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

import fastpipe

SHOWN = 20, 40  # width and height of a photo as viewers and annotation tools show it
BOX = 0, 0, 10, 10  # of the rectangle there
_BACK = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
Pixels = NDArray[np.uint8]


def rectangle(
    size: tuple[int, int] = SHOWN, box: tuple[int, ...] = BOX, value: int = 255
) -> Pixels:
    """(H, W) zeros, with a value in the box."""
    found = np.zeros(size[::-1], np.uint8)
    found[box[1] : box[3], box[0] : box[2]] = value
    return found


def as_stored(shown: Pixels, orientation: int) -> Pixels:
    """The pixels that a file has, whose EXIF orientation makes this picture of them."""
    image = Image.fromarray(shown)
    stored = image.transpose(_BACK[orientation]) if orientation in _BACK else image
    stored.getexif()[274] = orientation
    np.testing.assert_array_equal(ImageOps.exif_transpose(stored), shown)
    return np.array(stored)


def photo(orientation: int, size: tuple[int, int] = SHOWN, box: tuple[int, ...] = BOX) -> bytes:
    """A gray JPEG that is shown with a bright rectangle."""
    exif = Image.Exif()
    exif[274] = orientation
    file = io.BytesIO()
    Image.fromarray(as_stored(rectangle(size, box), orientation)).save(
        file, "JPEG", quality=95, exif=exif
    )
    return file.getvalue()


def photos(folder: Path, size: tuple[int, int] = SHOWN, box: tuple[int, ...] = BOX) -> None:
    """1.jpg to 8.jpg, each with the orientation that it is called after."""
    folder.mkdir(parents=True)
    for orientation in range(1, 9):
        (folder / f"{orientation}.jpg").write_bytes(photo(orientation, size, box))


def stored_size(orientation: int, size: tuple[int, int] = SHOWN) -> tuple[int, int]:
    return size[::-1] if orientation > 4 else size


def bright_box(values: Any) -> list[int]:
    """The box of the bright pixels of a picture, (H, W) or (C, H, W)."""
    pixels = np.asarray(values)
    bright = pixels > 128 if pixels.ndim == 2 else (pixels > 128).any(axis=0)
    ys, xs = np.nonzero(bright)
    return [int(edge) for edge in (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)]


def samples(packed: Path, *fields: str) -> dict[int, dict[str, Any]]:
    """The fields of the photos that `photos` made, by orientation."""
    data = fastpipe.open(packed).with_fields(("key", "image", *fields))  # type: ignore[attr-defined]
    return {int(Path(sample["key"]).stem): sample for sample in data}


def check_boxes(packed: Path, *, exif: str, size: tuple[int, int] = SHOWN) -> None:
    """Each photo has one box, that of its bright pixels, and the size that it has stored, or shown."""
    found = samples(packed, "boxes")
    assert sorted(found) == list(range(1, 9))
    for orientation, sample in found.items():
        expected = size if exif == "apply" else stored_size(orientation, size)
        assert tuple(sample["image"].shape[:0:-1]) == expected, orientation
        assert sample["boxes"].tolist() == [bright_box(sample["image"])], orientation
