"""How a batch has the lists of pictures of its samples, and the memory that they go to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fastpipe.arguments import refusing_unknown_fields
from fastpipe.arrays import Int64s
from fastpipe.errors import choice
from fastpipe.plan.patches import PatchLayout


@refusing_unknown_fields("fastpipe.Images")
@dataclass(frozen=True)
class Images:
    """A field of kind "images", none to many images for each sample, in `fields=` of
    fastpipe.loader.

    Each image is cropped and resized by itself as the loader's `crop=`, `size=` and `hflip=` say,
    with draws of (seed, epoch, sample, number of the image). It stays uint8 or uint16: `augment=`
    does not change it. The name alone means these defaults.

    Args:
        name: the field's name.
        form: how the images come. "list": for each sample a tensor (K, channels, height, width).
            "flat": all images one behind the other, (all, channels, height, width), and
            NAME_offsets (N + 1,) int64: sample i has `images[offsets[i]:offsets[i + 1]]`.
            With `size=fastpipe.Patches(...)`, "flat" gives the patches of all images one behind
            the other, and NAME_grids, NAME_cu_seqlens and the like say which are whose.
            With `size=fastpipe.Native(...)`, images have sizes of their own, and there are lists
            of tensors (channels, height, width) in place of these tensors.

    Example:
        >>> pages = fastpipe.Images("pages", form="flat")
        >>> loader = fastpipe.loader("data/pages", batch_size=4, size=32, fields=(pages, "label"))
        >>> batch = next(iter(loader))
        >>> len(batch["pages"]) == batch["pages_offsets"][-1], batch["pages"].shape[1:]
        (tensor(True), torch.Size([3, 32, 32]))
    """

    name: str
    _: KW_ONLY
    form: str = "list"

    def __post_init__(self) -> None:
        choice("Images(form=)", self.form, ("list", "flat"))


class PictureListBatch(NamedTuple):
    """The pictures of a batch's samples, as the engine's threads make them.

    Attributes:
        slots: of each view, (M * k, height, width, channels): M pictures of k rows each; or, if
            they have sizes of their own, (pixels, 1, 1, channels).
        row_sizes: of each view, (M, 2) height and width, if they have sizes of their own.
        offsets: (n + 1,) sample i has the pictures from offsets[i] to offsets[i + 1].
        is_flat: the batch has one tensor, and not one for each sample.
        layout: of the patches that the pictures are cut into; None: they are not.
    """

    slots: Sequence[NDArray[Any]]
    row_sizes: Sequence[Int64s | None]
    offsets: Int64s
    is_flat: bool
    layout: PatchLayout | None = None
