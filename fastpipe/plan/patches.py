"""Whole images as the patches that a vision transformer reads: fastpipe.Patches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastpipe.arguments import refusing_unknown_fields
from fastpipe.arrays import Int64s
from fastpipe.errors import ConfigError, choice, flag, whole
from fastpipe.plan.crops import BaseCrop
from fastpipe.plan.order import members
from fastpipe.plan.own_sizes import MAX_SIDE, largest_sizes, rounded_sizes

_MAX_PATCH_SIZE = 128
_MAX_TOKENS = 1 << 22  # of a batch
_FORMS = ("packed", "padded")
# What a batch of patches has beside them, as attributes or as entries of a dict.
PATCH_FACTS = ("coords", "cu_seqlens", "patch_valid", "grids")


@dataclass(frozen=True)
class PatchLayout:
    """How the patches of a batch lie in its memory.

    *Note [order of patches]* in csrc/resize/patches.h has their order in an image.
    """

    patch_size: int  # the side of a patch, in pixels
    merge: int  # patches on a side of a square, whose patches are neighbours
    # Patches of the whole batch; None: as many as its images have.
    batch_patches: int | None = None
    # Patches from the beginning of a row to the next one's; None: rows lie one behind the other.
    row_patches: int | None = None
    # A patch is (channels, frames, height, width) for the loop, and not (height, width, channels).
    channels_first: bool = False
    frames: int = 1

    @property
    def pixels(self) -> int:
        """Of a patch."""
        return self.patch_size**2

    def counts(self, row_sizes: Int64s) -> Int64s:
        """(n,) patches of rows of these heights and widths, (n, 2)."""
        counts: Int64s = row_sizes.prod(axis=1) // self.pixels
        return counts

    def total(self, row_sizes: Int64s) -> int:
        """Patches of a batch with rows of these sizes, and with what stays empty."""
        if self.row_patches is not None:
            return len(row_sizes) * self.row_patches
        count = int(self.counts(row_sizes).sum())
        if self.batch_patches is not None:
            # A list of pictures that replaces a damaged one may have more than a batch should.
            return max(count, self.batch_patches)
        return count

    def starts(self, row_sizes: Int64s) -> Int64s:
        """(n,) the patch at which each row begins."""
        if self.row_patches is not None:
            return np.arange(len(row_sizes)) * self.row_patches
        counts = self.counts(row_sizes)
        starts: Int64s = np.cumsum(counts) - counts
        return starts

    def coords(self, row_sizes: Int64s) -> Int64s:
        """(patches, 2) row and column of each patch in its image, one image after the other."""
        counts = self.counts(row_sizes)
        # (patches,) in their images: from 0 on in each.
        numbers = members(np.stack([np.zeros_like(counts), counts], axis=1))
        columns = np.repeat(row_sizes[:, 1] // self.patch_size, counts)
        # A square of patches after the other, row by row; and so in each square.
        merge = self.merge
        squares, in_square = np.divmod(numbers, merge**2)
        square_rows, square_columns = np.divmod(squares, columns // merge)
        rows_in_square, columns_in_square = np.divmod(in_square, merge)
        rows = square_rows * merge + rows_in_square
        return np.stack([rows, square_columns * merge + columns_in_square], axis=1)

    def facts(self, row_sizes: Int64s) -> dict[str, NDArray[Any]]:
        """What a batch has beside patches of rows of these sizes, by name; see Patches."""
        counts = self.counts(row_sizes)
        total = self.total(row_sizes)
        # (patches of images,) where each lies among all patches of the batch.
        starts = self.starts(row_sizes)
        places = members(np.stack([starts, starts + counts], axis=1))
        coords = np.zeros((total, 2), dtype=np.int64)
        coords[places] = self.coords(row_sizes)
        patch_valid = np.zeros(total, dtype=np.bool_)
        patch_valid[places] = True
        facts = {
            "coords": coords,
            "patch_valid": patch_valid,
            "grids": row_sizes // self.patch_size,
        }
        if self.row_patches is not None:
            shape = (len(row_sizes), self.row_patches)
            facts["coords"] = coords.reshape(*shape, 2)
            facts["patch_valid"] = patch_valid.reshape(shape)
            return facts
        cu_seqlens = np.zeros(len(counts) + 1, dtype=np.int32)
        np.cumsum(counts, out=cu_seqlens[1:])
        facts["cu_seqlens"] = cu_seqlens
        return facts


@refusing_unknown_fields("fastpipe.Patches")
@dataclass(frozen=True, kw_only=True)
class Patches(BaseCrop):
    """Whole images as patches, each in its own aspect ratio: fastpipe.loader(size=Patches(16)).

    For vision transformers that take any resolution: NaViT, NaFlex (SigLIP 2, timm), Qwen-VL. The
    engine resizes each image as fastpipe.Native does, and writes its patches into the batch in the
    order of the model. A token is a patch, or the merge x merge patches that the model merges.

    With `tokens=` the images of a batch are packed: a batch has as many images as fit into so many
    tokens, all in one row, and the same shape each time. Its images lie near each other in the
    order of the epoch, so a batch is nearly full; the same seed gives the same batches on any
    number of ranks. `batch_size` is the most images that a batch has; left out, there is no limit.
    How many batches an epoch has follows from its images: it may change a little from epoch to
    epoch.

    A batch, in place of images: `patches`, (P, D), D = patch_size * patch_size * channels; `coords`,
    (P, 2), row and column of each patch in its image; `cu_seqlens`, (N + 1,) int32, the patch at
    which each image begins, and their end, as attention of variable length takes it; `patch_valid`,
    (P,), False for patches that fill up a batch, which are zeros; `grids`, (N, 2), rows and columns
    of patches of each image. In `fields=`, patches are "image", and the others have these names.

    Args:
        patch_size: the side of a patch in pixels.
        tokens: number of tokens of a batch of packed images. None: a batch has batch_size images.
        max_tokens: most tokens of an image. A larger image is made smaller.
        min_tokens: fewest tokens of an image. A smaller image is made larger. None: 1.
        merge: patches on a side of the square that the model merges into one token: 2 for Qwen-VL.
            The patches of a token are neighbours.
        enlarge: True: each image, also a small one, has as many of max_tokens as its shape allows,
            which is the rule of NaFlex; see fastpipe.Native.
        form: "packed": the images lie one behind the other. "padded": each has a row of its own,
            and `patches` is (N, max_tokens, D), `coords` (N, max_tokens, 2), `patch_valid`
            (N, max_tokens), which is timm's form.
        text_tokens: a field of the dataset with the number of text tokens of each sample. They
            count against `tokens`, too.
        channels_first: False: a patch is (height, width, channels), flat. True: (channels, height,
            width), as in Qwen-VL.
        frames: how often each patch is repeated, with channels_first=True: (channels, frames,
            height, width). 2 for Qwen-VL, which reads an image as a film of two frames.
        interpolation: see fastpipe.Native.
        antialias, mask_fill: see RandomResizedCrop.

    Example:
        >>> size = fastpipe.Patches(8, tokens=64, max_tokens=16)
        >>> batch = next(iter(fastpipe.loader("data/train", size=size)))
        >>> batch.patches.shape, batch.cu_seqlens[-1] == batch.patch_valid.sum()
        (torch.Size([64, 192]), tensor(True))
    """

    patch_size: int = field(default=16, kw_only=False)
    tokens: int | None = None
    max_tokens: int = 1024
    min_tokens: int | None = None
    merge: int = 1
    enlarge: bool = False
    form: str = "packed"
    text_tokens: str | None = None
    channels_first: bool = False
    frames: int = 1
    interpolation: str = "bicubic"

    has_own_sizes = True
    # Loaders use these.
    _NOT_PUBLIC = frozenset(
        [
            "fact_names",
            "identity",
            "layout",
            "limit",
            "resized",
            "tokens_of_rows",
        ]
    )

    def __new__(
        cls, patch_size: object = 16, *values: object, **options: object
    ) -> Self:
        return super().__new__(cls, *values, **options)

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("patch_size", self.patch_size, least=1, most=_MAX_PATCH_SIZE)
        whole("merge", self.merge, least=1, most=16)
        whole("frames", self.frames, least=1, most=16)
        whole("max_tokens", self.max_tokens, least=1, most=_MAX_TOKENS)
        flag("enlarge", self.enlarge)
        flag("channels_first", self.channels_first)
        choice("form", self.form, _FORMS)
        if self.min_tokens is not None:
            whole("min_tokens", self.min_tokens, least=1, most=self.max_tokens)
        if self.enlarge and self.min_tokens is not None:
            raise ConfigError(
                "Patches: with enlarge=True each image is as large as max_tokens allows; leave "
                "min_tokens out"
            )
        if self.frames > 1 and not self.channels_first:
            raise ConfigError(
                "Patches: frames= are of patches (channels, frames, height, width): pass "
                "channels_first=True, too"
            )
        self._check_budget()

    def _check_budget(self) -> None:
        """Raises ConfigError for options that do not go with `tokens`."""
        if self.tokens is None:
            if self.text_tokens is not None:
                raise ConfigError(
                    "Patches: text_tokens= count against the tokens of a batch: pass tokens=, too"
                )
            return
        whole("tokens", self.tokens, least=1, most=_MAX_TOKENS)
        if self.form == "padded":
            raise ConfigError(
                'Patches: tokens= are of form="packed"; with form="padded" a batch has batch_size '
                "images of max_tokens each. Leave tokens out, and pass batch_size="
                f"{max(1, self.tokens // self.max_tokens)} to fastpipe.loader"
            )
        if self.tokens < self.max_tokens:
            raise ConfigError(
                f"Patches: tokens={self.tokens} cannot hold an image of max_tokens={self.max_tokens}; pass "
                "more tokens, or a smaller max_tokens"
            )

    @classmethod
    def _hint(cls, size: object) -> str:
        return "Pass fastpipe.Patches(16, max_tokens=...) as size="

    @property
    def budget(self) -> int | None:
        return self.tokens

    @property
    def fact_names(self) -> tuple[str, ...]:
        """What a batch has beside patches."""
        if self.form == "padded":
            return "coords", "patch_valid", "grids"
        return PATCH_FACTS

    @property
    def identity(self) -> list[int | str | bool | None]:
        """The options that decide which samples share a batch. A loader's state compares them."""
        return [
            self.patch_size,
            self.tokens,
            self.max_tokens,
            self.min_tokens,
            self.merge,
            self.enlarge,
            self.text_tokens,
        ]

    @property
    def layout(self) -> PatchLayout:
        patches_of_token = self.merge**2
        batch_patches = None
        row_patches = None
        if self.tokens is not None:
            batch_patches = self.tokens * patches_of_token
        if self.form == "padded":
            row_patches = self.max_tokens * patches_of_token
        return PatchLayout(
            self.patch_size,
            self.merge,
            batch_patches,
            row_patches,
            self.channels_first,
            self.frames,
        )

    def resized(self, widths: Int64s, heights: Int64s) -> Int64s:
        """(n, 2) int64: width and height of each image in its row."""
        multiple = self.patch_size * self.merge
        pixels_of_token = multiple**2
        pictures = np.stack([widths, heights], axis=1)
        if self.enlarge:
            resized = largest_sizes(
                pictures,
                multiple=multiple,
                max_pixels=self.max_tokens * pixels_of_token,
            )
        else:
            resized = rounded_sizes(
                pictures,
                multiple=multiple,
                min_pixels=(self.min_tokens or 1) * pixels_of_token,
                max_pixels=self.max_tokens * pixels_of_token,
            )
        # In tokens. A side has one at least, so the other one may have to be cut short.
        longest = MAX_SIDE // multiple
        sides = np.minimum(resized.astype(np.int64) // multiple, longest)
        most_tokens = np.full(len(sides), self.max_tokens, dtype=np.int64)
        return _within(sides, most_tokens) * multiple

    def costs(self, pictures: Int64s) -> Int64s:
        """(n,) the tokens of images of these widths and heights, (n, 2)."""
        return self.tokens_of_rows(self.resized(pictures[:, 0], pictures[:, 1]))

    def tokens_of_rows(self, row_sizes: Int64s) -> Int64s:
        """(n,) the tokens of rows of these sizes, (n, 2)."""
        tokens: Int64s = row_sizes.prod(axis=1) // (self.patch_size * self.merge) ** 2
        return tokens

    def limit(self, row_sizes: Int64s, most_tokens: Int64s) -> Int64s:
        """The same sizes of rows, (n, 2), made smaller where they have more tokens, (n,)."""
        multiple = self.patch_size * self.merge
        return _within(row_sizes // multiple, most_tokens) * multiple


def _within(sides: Int64s, most: Int64s) -> Int64s:
    """Sides, (n, 2), of at most so many, (n,), in all: those that are too long are made shorter."""
    tokens = sides.prod(axis=1)
    scale = np.sqrt(np.minimum(most / tokens, 1.0))
    scaled = np.maximum((sides * scale[:, None]).astype(np.int64), 1)
    is_too_large = tokens > most
    shorter = np.where(is_too_large[:, None], scaled, sides)
    # Of a very long image the shorter side was rounded up to 1.
    others = np.minimum(shorter[:, ::-1], most[:, None])
    within: Int64s = np.minimum(shorter, most[:, None] // others)
    return within
