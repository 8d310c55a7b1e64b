"""The kinds of crops: how an image becomes its row of the batch, or its rows."""

from __future__ import annotations

from dataclasses import dataclass

from fastpipe.checks import flag, pair, whole
from fastpipe.errors import ConfigError
from fastpipe.plan.crop_base import MAX_OUTPUT_PIXELS, BaseCrop, PaddedCrop


@dataclass(frozen=True, kw_only=True)
class RandomResizedCrop(BaseCrop):
    """A random part of the image, resized, with the sampling rule of torchvision's RandomResizedCrop.

    Args:
        scale: minimum and maximum share of the image's area, in (0, 1].
        ratio: minimum and maximum of width divided by height.
        interpolation: "bilinear", "bicubic" or "nearest", as Pillow computes them; also as torchvision's
            InterpolationMode or Pillow's Resampling.
        antialias: False: where the image shrinks, only the nearest pixels have a part in each pixel of the output, as
            in torch's interpolate of uint8 tensors, bit by bit.
        mask_fill: the id, 0 to 255, of pixels that come from outside the image: in the padding, and where `augment=`
            moves masks or erases pixels of them. A sample without a mask has it everywhere.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", pair("scale", self.scale, most=1.0))
        object.__setattr__(self, "ratio", pair("ratio", self.ratio))

    @property
    def may_be_reduced(self) -> bool:
        return True

    @property
    def is_random(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class CenterCrop(BaseCrop):
    """The image resized so that its shorter side is `resize`, then its centre: torchvision's Resize and CenterCrop.

    Args:
        resize: length of the shorter side in pixels before the crop; None: size * 256 / 224, rounded.
        interpolation, antialias, mask_fill: see RandomResizedCrop.
    """

    resize: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_resize(self.resize)


@dataclass(frozen=True, kw_only=True)
class Resize(BaseCrop):
    """The whole image, resized to the output's size; this can change its aspect ratio.

    Args:
        interpolation, antialias, mask_fill: see RandomResizedCrop.
    """

    @classmethod
    def _hint(cls, size: object) -> str:
        hint = super()._hint(size)
        if not isinstance(size, int):
            return hint
        return (
            f"{hint}. For torchvision's Resize({size!r}) of the shorter side before a CenterCrop: "
            f"crop=fastpipe.CenterCrop(resize={size!r})"
        )


@dataclass(frozen=True, kw_only=True)
class RandomCrop(PaddedCrop):
    """A part of the image at a random place, of the output's size: torchvision's RandomCrop, also after its Resize.

    An image that is smaller than the output, after resizing and padding, is a ConfigError without `pad_if_needed`: when
    the loader is made, for the index has the widths and heights. `on_error="replace"` replaces no such image.

    Args:
        resize: length of the shorter side in pixels before padding and crop; None: the image as it is.
        padding: pixels around the (resized) image: a number, (left and right, top and bottom), or (left, top, right,
            bottom).
        pad_if_needed: where the image is smaller than the output, adds the difference at both sides, as torchvision.
        fill: of padding_mode="constant": a number, or (red, green, blue), 0 to 255.
        padding_mode: "constant", "edge" (the pixel at the edge), "reflect" (mirrored, the edge once) or "symmetric"
            (mirrored, the edge twice).
        interpolation, antialias: of the resize; they and mask_fill: see RandomResizedCrop.
    """

    resize: int | None = None
    padding: int | tuple[int, ...] = 0
    pad_if_needed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_resize(self.resize)
        object.__setattr__(self, "padding", _sides(self.padding))
        flag("pad_if_needed", self.pad_if_needed)
        if not self.pads and (self.fill, self.padding_mode) != ((0, 0, 0), "constant"):
            raise ConfigError(
                "RandomCrop: fill and padding_mode work only with padding= or pad_if_needed=True; pass one of these, "
                "or leave them out"
            )
        if self.resize is None and (self.interpolation, self.antialias) != ("bilinear", True):
            raise ConfigError(
                "RandomCrop: interpolation and antialias work only with resize=; pass it, or leave them out"
            )

    @property
    def sides(self) -> tuple[int, int, int, int]:
        """Left, top, right, bottom."""
        return _sides(self.padding)

    @property
    def pads(self) -> bool:
        return self.pad_if_needed or any(self.sides)

    @property
    def is_random(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class Letterbox(PaddedCrop):
    """The whole image in its own aspect ratio: resized so that it just fits into the output, and padded.

    With a square output this is the padding to a square of detection models. Sizes are rounded down, as in
    torchvision's Resize(size=None, max_size=).

    Args:
        centered: True: the image is in the middle of the output. False: at its top left.
        fill, padding_mode: see RandomCrop.
        interpolation, antialias, mask_fill: see RandomResizedCrop.
    """

    centered: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        flag("centered", self.centered)


@dataclass(frozen=True, kw_only=True)
class FiveCrop(BaseCrop):
    """For evaluation: the four corners and the centre of the image, as torchvision's Resize and FiveCrop give them.

    A batch has images of shape (N, 5, 3, height, width): top left, top right, bottom left, bottom right, centre.

    Args:
        resize: length of the shorter side in pixels before the crops; None: size * 256 / 224, rounded.
        interpolation, antialias, mask_fill: see RandomResizedCrop.
    """

    resize: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_resize(self.resize)

    @property
    def rows(self) -> int:
        return 5


@dataclass(frozen=True, kw_only=True)
class TenCrop(FiveCrop):
    """For evaluation: the crops of FiveCrop, and those of the mirrored image, as torchvision's Resize and TenCrop.

    A batch has images of shape (N, 10, 3, height, width).

    Args:
        resize, interpolation, antialias, mask_fill: see FiveCrop.
    """

    @property
    def rows(self) -> int:
        return 10


Crop = RandomResizedCrop | RandomCrop | CenterCrop | Resize | Letterbox | FiveCrop | TenCrop


def shorter_side(crop: CenterCrop | FiveCrop, size: tuple[int, int]) -> int:
    """What an image's shorter side is resized to before crops of a (height, width) are cut out."""
    return round(max(size) * 256 / 224) if crop.resize is None else crop.resize


def _check_resize(value: object) -> None:
    if value is not None:
        whole("resize", value, least=1, most=MAX_OUTPUT_PIXELS)


def _sides(value: object) -> tuple[int, int, int, int]:
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(parts) not in (1, 2, 4):
        raise ConfigError(
            f"padding: expected a number, (left and right, top and bottom) or (left, top, right, bottom), got {value!r}"
        )
    left, top, right, bottom = (
        whole("padding", part, least=0, most=MAX_OUTPUT_PIXELS) for part in parts * (4 // len(parts))
    )
    return left, top, right, bottom
