"""The kinds of crops: how an image becomes its rows of a batch, and how their pixels are made."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any, Self

import numpy as np

from fastpipe.arrays import Int64s
from fastpipe.completion import PublicNames
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.errors import ConfigError, choice, flag, pair, positive, whole

Size = tuple[int, int]  # (height, width) in pixels

MAX_OUTPUT_PIXELS = 16384  # of a side of the output
MAX_CROPS = 1024  # of an image
INTERPOLATIONS = ("bilinear", "bicubic", "nearest")
PADDING_MODES = ("constant", "edge", "reflect", "symmetric")


def parse_size(value: object, name: str = "size", hint: str = "") -> Size:
    """Checks `size`: a number for a square, or (height, width), as in torchvision.

    `hint` ends the message if it is wrong.
    """
    sides = value if isinstance(value, (tuple, list)) else (value, value)
    if len(sides) != 2:
        raise ConfigError(
            f"{name}: expected a number or (height, width), got {value!r}"
        )
    hint = hint or "pass a number for a square, or (height, width)"
    height, width = (
        whole(name, side, least=1, most=MAX_OUTPUT_PIXELS, hint=hint) for side in sides
    )
    return height, width


@dataclass(frozen=True)
class Rendering:
    """How the pixels of rows are made from those of images. The names are the engine's keywords."""

    interpolation: str = "bilinear"
    # A pixel of a shrunk image is a mean of all pixels that it covers.
    antialias: bool = True
    # Or one of PADDING_MODES; "none": no crop reaches beyond its image.
    padding_mode: str = "none"
    # The colour of padding_mode="constant": red, green, blue, alpha, 0 to 255.
    fill: tuple[int, ...] = (0, 0, 0, 0)
    mask_fill: int = 0  # the id in masks outside an image's own mask

    def keywords(self, form: PixelForm) -> dict[str, Any]:
        """The engine's keywords for rows of this form; `fill` is converted as images are."""
        fill = self.fill[: form.channels]
        if form.channels == 1:
            red, green, blue, _ = self.fill
            # Pillow's formula for convert("L").
            weighted_sum = 19595 * red + 38470 * green + 7471 * blue
            gray = (weighted_sum + 32768) >> 16
            fill = (gray,)
        if form.bits == 16:
            fill = tuple(257 * value for value in fill)
        return {**asdict(self), "fill": fill}


@dataclass(frozen=True, kw_only=True)
class BaseCrop(PublicNames):
    """A kind of crop.

    All options are keywords, because the first argument of torchvision's crops is the size.
    """

    interpolation: str = "bilinear"
    antialias: bool = True
    mask_fill: int = 0

    # Loaders use these.
    _NOT_PUBLIC = frozenset(
        [
            "budget",
            "costs",
            "has_own_sizes",
            "is_per_part",
            "is_random",
            "may_be_reduced",
            "objects_field",
            "rendering",
            "rows",
        ]
    )

    is_random = False  # each epoch has other crops
    may_be_reduced = False  # True: the image may be decoded at a fraction of its size
    has_own_sizes = False  # True: each row has a size that follows from its image
    # True: a row of a batch is one of the parts of its image, which may have any number of them.
    is_per_part = False

    @property
    def rows(self) -> int:
        """Rows of each image in a batch."""
        return 1

    @property
    def objects_field(self) -> str | None:
        """The field of boxes that decides where images are cut; None: no field does."""
        return None

    @property
    def budget(self) -> int | None:
        """What the images of a batch may have in all, in tokens or pixels; None: no such limit."""
        return None

    def costs(self, pictures: Int64s) -> Int64s:
        """(n,) what images of these widths and heights, (n, 2), take of the budget."""
        raise NotImplementedError

    def __new__(cls, *size: object, **options: object) -> Self:
        # Without this, a size or a wrong option would give Python's message, which does not say
        # where a size belongs.
        known: list[str] = []
        for kind in cls.__mro__[:-1]:  # the options of the class itself come first
            for name in inspect.get_annotations(kind):
                if f"{name}=" not in known:
                    known.append(f"{name}=")
        if not size and "size" in options:
            size = (options["size"],)
        wrong = [repr(value) for value in size]
        if not wrong:
            wrong = [f"{name}=" for name in options if f"{name}=" not in known]
        if wrong:
            *first_options, last_option = known
            expected = f"{', '.join(first_options)} and {last_option} by name"
            hint = ""
            if size:
                hint = f". {cls._hint(size[0])}"
            raise ConfigError(
                f"{cls.__name__}: expected {expected}, got {', '.join(wrong)}{hint}"
            )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        name = self.interpolation
        if isinstance(name, Enum):  # torchvision's or Pillow's
            name = name.name.lower()
        object.__setattr__(
            self, "interpolation", choice("interpolation", name, INTERPOLATIONS)
        )
        if not flag("antialias", self.antialias) and name == "nearest":
            raise ConfigError(
                "antialias: it has no effect with interpolation='nearest'; leave antialias out"
            )
        whole("mask_fill", self.mask_fill, least=0, most=255)

    @property
    def rendering(self) -> Rendering:
        return Rendering(self.interpolation, self.antialias, mask_fill=self.mask_fill)

    @classmethod
    def _hint(cls, size: object) -> str:
        """The end of the error about a size: where it belongs."""
        return (
            f"The size of the output belongs to the loader: fastpipe.loader(..., size={size!r}, "
            f"crop=fastpipe.{cls.__name__}())"
        )


@dataclass(frozen=True, kw_only=True)
class PaddedCrop(BaseCrop):
    """A crop that may reach beyond the image."""

    fill: int | tuple[int, int, int] | tuple[int, int, int, int] = 0
    padding_mode: str = "constant"

    _NOT_PUBLIC = frozenset(["pads"])  # loaders use it

    def __post_init__(self) -> None:
        super().__post_init__()
        parts: tuple[object, ...]
        if isinstance(self.fill, (tuple, list)):
            parts = tuple(self.fill)
        else:
            parts = (self.fill, self.fill, self.fill, self.fill)
        if len(parts) not in (3, 4):
            raise ConfigError(
                "fill: expected a number or (red, green, blue) or (red, green, blue, alpha), got "
                f"{self.fill!r}"
            )
        fill = tuple(whole("fill", part, least=0, most=255) for part in parts)
        choice("padding_mode", self.padding_mode, PADDING_MODES)
        if self.padding_mode != "constant" and any(fill[:3]):
            raise ConfigError(
                f"fill: padding_mode={self.padding_mode!r} repeats pixels; leave fill out"
            )
        if len(fill) == 3:
            fill = (*fill, 255)  # opaque
        object.__setattr__(self, "fill", fill)

    @property
    def pads(self) -> bool:
        return True

    @property
    def rendering(self) -> Rendering:
        assert isinstance(self.fill, tuple)
        rendering = super().rendering
        if not self.pads:
            return rendering
        return replace(rendering, padding_mode=self.padding_mode, fill=self.fill)


@dataclass(frozen=True, kw_only=True)
class ResizedCrop(BaseCrop):
    """A crop of the image whose shorter side was resized to `resize` pixels."""

    resize: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resize is not None:
            whole("resize", self.resize, least=1, most=MAX_OUTPUT_PIXELS)


@dataclass(frozen=True, kw_only=True)
class RandomResizedCrop(BaseCrop):
    """A random part of the image, resized, with the sampling rule of torchvision's
    RandomResizedCrop.

    Args:
        scale: minimum and maximum share of the image's area, in (0, 1].
        ratio: minimum and maximum of width divided by height.
        interpolation: "bilinear", "bicubic" or "nearest", as Pillow computes them; also as
            torchvision's InterpolationMode or Pillow's Resampling.
        antialias: False: where the image shrinks, only the nearest pixels have a part in each pixel
            of the output, as in torch's interpolate of uint8 tensors, bit by bit.
        mask_fill: the id, 0 to 255, of pixels that come from outside the image: in the padding, and
            where `augment=` moves masks or erases pixels of them. A sample without a mask has it
            everywhere.

    Example:
        >>> crop = fastpipe.RandomResizedCrop(scale=(0.2, 1.0), interpolation="bicubic")
        >>> loader = fastpipe.loader("data/train", batch_size=8, size=32, crop=crop)
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    is_random = True
    may_be_reduced = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", pair("scale", self.scale, most=1.0))
        object.__setattr__(self, "ratio", pair("ratio", self.ratio))


@dataclass(frozen=True, kw_only=True)
class CenterCrop(ResizedCrop):
    """The image resized so that its shorter side is `resize`, then its centre: torchvision's Resize
    and CenterCrop.

    Args:
        resize: length of the shorter side in pixels before the crop; None: size * 256 / 224,
            rounded.
        interpolation, antialias, mask_fill: see RandomResizedCrop.

    Example:
        >>> crop = fastpipe.CenterCrop(resize=36)
        >>> loader = fastpipe.loader("data/val", batch_size=8, size=32, train=False, crop=crop)
    """


@dataclass(frozen=True, kw_only=True)
class Resize(BaseCrop):
    """The whole image, resized to the output's size, whatever its aspect ratio.

    Args:
        interpolation, antialias, mask_fill: see RandomResizedCrop.

    Example:
        >>> loader = fastpipe.loader("data/val", batch_size=8, size=32, train=False, crop=fastpipe.Resize())
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
class RandomCrop(PaddedCrop, ResizedCrop):
    """A part of the image at a random place, of the output's size: torchvision's RandomCrop, also
    after its Resize.

    With `count` several parts, each at a place of its own. An image is read once for all of them,
    and only the tiles that they touch are decoded: patches of large images. A batch then has images
    of shape (N, count, 3, height, width).

    An image that is smaller than the output, after resizing and padding, is a ConfigError without
    `pad_if_needed`: when the loader is made, for the index has the widths and heights.
    `on_error="replace"` replaces no such image.

    Args:
        resize: length of the shorter side in pixels before padding and crop; None: the image as it
            is.
        padding: pixels around the (resized) image: a number, (left and right, top and bottom), or
            (left, top, right, bottom).
        pad_if_needed: where the image is smaller than the output, adds the difference at both
            sides, as torchvision. In masks the padding is class 0, unless `mask_fill` gives it another
            id, such as 255 for a loss with ignore_index=255.
        fill: the colour of padding_mode="constant", 0 to 255: a number for all channels, (red,
            green, blue), which is opaque, or (red, green, blue, alpha). It is converted to the
            loader's `channels` and `dtype` as images are.
        padding_mode: "constant", "edge" (the pixel at the edge), "reflect" (mirrored, the edge
            once) or "symmetric" (mirrored, the edge twice).
        count: parts of each image. Each is mirrored and augmented by draws of its own.
        where: the name of a field of boxes: each part has the middle of one of the sample's boxes in
            it. The box is drawn for each part, and each pixel of the part is as likely to have its
            middle; at an edge the part is moved back. Of a sample without boxes, parts are
            anywhere. None: all parts are anywhere.
        interpolation, antialias: how images are resized; see RandomResizedCrop.
        mask_fill: see RandomResizedCrop.

    Example:
        >>> crop = fastpipe.RandomCrop(padding=4, pad_if_needed=True)
        >>> loader = fastpipe.loader("data/train", batch_size=8, size=32, crop=crop)
        >>> patches = fastpipe.RandomCrop(count=4)
        >>> images, labels = next(iter(fastpipe.loader("data/train", 8, size=16, crop=patches)))
        >>> images.shape, labels.shape
        (torch.Size([8, 4, 3, 16, 16]), torch.Size([8]))
    """

    padding: int | tuple[int, ...] = 0
    pad_if_needed: bool = False
    count: int = 1
    where: str | None = None

    is_random = True

    def __post_init__(self) -> None:
        super().__post_init__()
        parts: tuple[object, ...] = (self.padding,)
        if isinstance(self.padding, (tuple, list)):
            parts = tuple(self.padding)
        if len(parts) not in (1, 2, 4):
            raise ConfigError(
                "padding: expected a number, (left and right, top and bottom) or (left, top, "
                f"right, bottom), got {self.padding!r}"
            )
        padding = tuple(
            whole("padding", part, least=0, most=MAX_OUTPUT_PIXELS) for part in parts
        )
        # left, top, right, bottom. One number is repeated four times, and (left and right, top and
        # bottom) twice.
        object.__setattr__(self, "padding", padding * (4 // len(parts)))
        flag("pad_if_needed", self.pad_if_needed)
        whole("count", self.count, least=1, most=MAX_CROPS)
        if self.where is not None:
            check_field_name("RandomCrop(where=)", self.where)

        assert isinstance(self.fill, tuple)
        has_colour = self.fill[:3] != (0, 0, 0)
        changes_padding = has_colour or self.padding_mode != "constant"
        if changes_padding and not self.pads:
            raise ConfigError(
                "RandomCrop: fill and padding_mode work only with padding= or pad_if_needed=True; "
                "pass one of these, or leave them out"
            )
        changes_resize = self.interpolation != "bilinear" or not self.antialias
        if changes_resize and self.resize is None:
            raise ConfigError(
                "RandomCrop: interpolation and antialias work only with resize=; pass it, or leave "
                "them out"
            )

    @property
    def rows(self) -> int:
        return self.count

    @property
    def objects_field(self) -> str | None:
        return self.where

    @property
    def pads(self) -> bool:
        return self.pad_if_needed or self.padding != (0, 0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class Letterbox(PaddedCrop):
    """The whole image in its own aspect ratio: resized so that it just fits into the output, and
    padded.

    With a square output this is the padding to a square of detection models.

    Args:
        centered: True: the image is in the middle of the output. False: at its top left.
        rounded: True: the size of the resized image is rounded to whole pixels, as in timm
            (crop_mode="border") and Ultralytics. False: it is rounded down, as in torchvision's
            Resize(size=None, max_size=).
        fill, padding_mode: see RandomCrop.
        interpolation, antialias, mask_fill: see RandomResizedCrop.

    Example:
        >>> crop = fastpipe.Letterbox(fill=(124, 116, 104))
        >>> loader = fastpipe.loader("data/val", batch_size=8, size=32, train=False, crop=crop)
    """

    centered: bool = True
    rounded: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        flag("centered", self.centered)
        flag("rounded", self.rounded)


@dataclass(frozen=True, kw_only=True)
class FiveCrop(ResizedCrop):
    """For evaluation: the four corners and the centre of the image, as torchvision's Resize and
    FiveCrop give them.

    A batch has images of shape (N, 5, 3, height, width): top left, top right, bottom left, bottom
    right, centre.

    Args:
        resize: length of the shorter side in pixels before the crops; None: size * 256 / 224,
            rounded.
        interpolation, antialias, mask_fill: see RandomResizedCrop.

    Example:
        >>> crop = fastpipe.FiveCrop(resize=36)
        >>> loader = fastpipe.loader("data/val", batch_size=8, size=32, train=False, crop=crop)
        >>> next(iter(loader))[0].shape
        torch.Size([8, 5, 3, 32, 32])
    """

    @property
    def rows(self) -> int:
        return 5


@dataclass(frozen=True, kw_only=True)
class TenCrop(FiveCrop):
    """For evaluation: the crops of FiveCrop, whose options it has, and those of the mirrored image,
    as torchvision's Resize and TenCrop. A batch has images of shape (N, 10, 3, height, width).

    Args:
        resize, interpolation, antialias, mask_fill: see FiveCrop.

    Example:
        >>> crop = fastpipe.TenCrop(resize=36)
        >>> loader = fastpipe.loader("data/val", batch_size=8, size=32, train=False, crop=crop)
        >>> next(iter(loader))[0].shape
        torch.Size([8, 10, 3, 32, 32])
    """

    @property
    def rows(self) -> int:
        return 10


@dataclass(frozen=True, kw_only=True)
class Grid(PaddedCrop):
    """All patches of each image, from left to right and from top to bottom, for large images and
    sliding windows: fastpipe.loader(data, batch_size, size=512, crop=Grid(stride=384), train=False).

    Each row of a batch is a patch of `size`, and `batch_size` counts patches. Patches begin every
    `stride` pixels. The last ones of a row or column are moved back so that they end at the image's
    edge: all pixels are covered, and none comes from outside. Only an image that is smaller than a
    patch is padded, at the right and below. Patches of one image follow one another, with
    shuffle=True in random order. Of each patch only the tiles that it touches are decoded.

    "patch" in fields= has the number of each patch in its image and how many the image has, (N, 2)
    int64; "id" says which image, "crop_box" where in it. `fastpipe.GridAggregator` puts outputs of
    a model together again.

    Args:
        stride: pixels from one patch to the next: a number, or (vertical, horizontal). None: the
            size of a patch, so that patches do not overlap.
        fill, padding_mode: see RandomCrop.
        mask_fill: see RandomResizedCrop.
        interpolation, antialias: without effect, because patches are not resized.

    Example:
        >>> crop = fastpipe.Grid(stride=12)
        >>> loader = fastpipe.loader("data/val", batch_size=8, size=16, crop=crop, train=False)
        >>> next(iter(loader)).images.shape
        torch.Size([8, 3, 16, 16])
    """

    stride: int | Size | None = None

    _NOT_PUBLIC = frozenset(["counts", "left_tops", "steps"])  # loaders use them

    is_per_part = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride is not None:
            hint = "pass a number, or (vertical, horizontal)"
            stride = parse_size(self.stride, "Grid(stride=)", hint)
            object.__setattr__(self, "stride", stride)

    def steps(self, size: Size) -> Size:
        """(vertical, horizontal) pixels between patches of `size`, (height, width).

        Raises ConfigError if pixels between patches would be left out.
        """
        if self.stride is None:
            return size
        vertical, horizontal = parse_size(self.stride)
        if vertical > size[0] or horizontal > size[1]:
            raise ConfigError(
                f"Grid: stride={self.stride!r} is larger than the patches, size={size}: pixels "
                "between them would be left out; pass a smaller stride"
            )
        return vertical, horizontal

    def counts(self, pictures: Int64s, size: Size) -> Int64s:
        """(n, 2) columns and rows of patches of each image, (n, 2) widths and heights."""
        steps = self.steps(size)[::-1]
        room = np.maximum(pictures - size[::-1], 0)
        counts: Int64s = 1 + -(-room // steps)  # rounded up
        return counts

    def left_tops(self, patches: Int64s, pictures: Int64s, size: Size) -> Int64s:
        """(n, 2) x and y of the patches with these numbers, (n,), one of each image, (n, 2)."""
        steps = self.steps(size)[::-1]
        columns = self.counts(pictures, size)[:, 0]
        row, column = np.divmod(patches, columns)
        places = np.stack([column, row], axis=1)
        room = np.maximum(pictures - size[::-1], 0)
        left_tops: Int64s = np.minimum(places * steps, room)
        return left_tops


@dataclass(frozen=True, kw_only=True)
class CropAt(BaseCrop):
    """The objects of each image: the part at each of its boxes, resized to the output's size.

    Each row of a batch is an object, and `batch_size` counts objects. An epoch has each box of each
    image once, and no image without boxes. The objects of one image follow one another, with
    shuffle=True in random order. Of each object only the tiles that it touches are decoded, and
    pixels outside its part of the image have no influence.

    If the field has labels, the label of a row is that of its box, a number of
    data.fields[name].names; else it is the label of the sample. "patch" in fields= has the number
    of each box in its image and how many the image has, (N, 2) int64; "id" says which image,
    "crop_box" which part of it. The parts lie inside the image: one that a larger `scale` or
    `square` moves beyond the edge is shifted back, or cut off where it is larger than the image.
    It has at least one pixel on each side.

    Args:
        name: the name of a field of boxes.
        scale: sides of the part, in sides of the box, around its middle: 1.2 is a fifth more.
        square: True: the box becomes a square first, by its longer side, so that the object keeps its
            aspect ratio in a square output.
        interpolation, antialias, mask_fill: see RandomResizedCrop.

    Example:
        >>> crop = fastpipe.CropAt("boxes", scale=1.2, square=True)
        >>> loader = fastpipe.loader("data/objects", batch_size=8, size=32, crop=crop)
        >>> images, labels = next(iter(loader))
        >>> images.shape, labels.shape
        (torch.Size([8, 3, 32, 32]), torch.Size([8]))
    """

    name: str = field(default="boxes", kw_only=False)
    scale: float = 1.0
    square: bool = False

    is_per_part = True

    def __new__(cls, name: object = "boxes", **options: object) -> Self:
        return super().__new__(cls, **options)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_field_name("CropAt", self.name)
        positive("CropAt(scale=)", self.scale)
        flag("CropAt(square=)", self.square)

    @property
    def objects_field(self) -> str:
        return self.name


def check_field_name(option: str, name: object) -> None:
    """Raises ConfigError if the value of an option is not the name of a field."""
    if not isinstance(name, str):
        raise ConfigError(
            f'{option}: expected the name of a field of boxes, such as "boxes", got {name!r}'
        )


Crop = (
    RandomResizedCrop
    | RandomCrop
    | CenterCrop
    | Resize
    | Letterbox
    | FiveCrop
    | TenCrop
    | Grid
    | CropAt
)


def shorter_side(crop: CenterCrop | FiveCrop, size: Size) -> int:
    """The length of an image's shorter side, in pixels, before crops of `size` are cut out."""
    if crop.resize is None:
        return round(max(size) * 256 / 224)
    return crop.resize
