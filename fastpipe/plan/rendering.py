"""How the pixels of rows are made from those of pictures: what the engine has to know of a crop besides its place."""

from __future__ import annotations

from dataclasses import dataclass

INTERPOLATIONS = ("bilinear", "bicubic", "nearest")
PADDING_MODES = ("constant", "edge", "reflect", "symmetric")


@dataclass(frozen=True)
class Rendering:
    """The names and values are those of the engine's keywords.

    Attributes:
        interpolation: one of INTERPOLATIONS.
        antialias: where a picture shrinks, all pixels that one of the output covers have a part in it.
        padding_mode: one of PADDING_MODES; "none": no crop reaches beyond its picture.
        fill: of "constant": red, green, blue.
        mask_fill: the id in masks where nothing of a picture's own mask is.
    """

    interpolation: str = "bilinear"
    antialias: bool = True
    padding_mode: str = "none"
    fill: tuple[int, int, int] = (0, 0, 0)
    mask_fill: int = 0
