"""The batch of a training loop: images and labels, and which samples they are of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

# Attributes that this program has read of a batch: it knows of them.
names_read: set[str] = set()
_NOTED_NAMES = frozenset(["ids", "valid"])


class ImageBatch(tuple[Any, torch.Tensor]):
    """(images, labels), and which samples they are of.

    With several views, images is a list of tensors, one a view.

    Programs that rebuild batches take it for a named tuple (torch's pytree, pin_memory, Lightning),
    or for a tuple (Hugging Face's Trainer). A batch that they build has images and labels, but no
    `ids`, `valid` and `epoch`.

    Attributes:
        images: as the loader's `augment` leaves them; without it (N, channels, height, width). With
            several views, a list of these.
        labels: (N,) int64, or soft ones (N, classes).
        ids: (N,) int64, the samples' numbers in `loader.dataset`. Repacking changes ids, but not
            keys.
        valid: (N,) bool, rows that count. A row with False repeats a sample that counts on another
            rank.
        epoch: number of the epoch.
        image_sizes: (N, 2) int64, with size="bucket": height and width in pixels of the image at
            the top left of each row, before the augmentation moves or mixes pixels. The rest of the
            row is padding.
        pixel_mask: (N, height, width) bool, with size="bucket": True for the pixels of the image,
            False for padding. It moves with the image; of mixed images it shows where either is.
            With several views, a list.
        patches: with size=fastpipe.Patches(...), the pixels patch by patch; see there.
        coords: with size=fastpipe.Patches(...), the row and column of each patch in its image.
        cu_seqlens: with fastpipe.Patches(form="packed"), where the patches of each image begin and
            end.
        patch_valid: with size=fastpipe.Patches(...), bool, False for patches that only fill the
            batch up.
        grids: with size=fastpipe.Patches(...), the rows and columns of patches of each image.
    """

    _fields = ("images", "labels")

    ids: torch.Tensor
    valid: torch.Tensor
    epoch: int
    image_sizes: torch.Tensor
    pixel_mask: Any
    patches: torch.Tensor
    coords: torch.Tensor
    cu_seqlens: torch.Tensor
    patch_valid: torch.Tensor
    grids: torch.Tensor

    def __new__(
        cls, images: Any, labels: torch.Tensor | None = None, **attributes: Any
    ) -> ImageBatch:
        if labels is None:  # called with one pair, as a tuple is
            images, labels = images
        batch = super().__new__(cls, (images, labels))
        for name in _NOTED_NAMES & attributes.keys():
            # So that `__getattr__` sees who reads it.
            attributes[f"_{name}"] = attributes.pop(name)
        vars(batch).update(attributes)
        return batch

    def __getnewargs__(self) -> Any:
        return tuple(self)

    @classmethod
    def _make(cls, parts: Iterable[torch.Tensor]) -> ImageBatch:
        return cls(*parts)

    def _asdict(self) -> dict[str, torch.Tensor]:
        return dict(zip(self._fields, self, strict=True))

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, str):
            raise TypeError(
                f"this batch is (images, labels), and not a dict, so it has no [{position!r}]: write "
                "`for images, labels in loader`, or batch.images. For batches that are dicts pass "
                f'fields=("image", "label") to fastpipe.loader, and write batch["image"]'
            )
        return super().__getitem__(position)

    @property
    def images(self) -> Any:
        """As the loader's `augment` leaves them; without it (N, channels, height, width).

        A list of these by view.
        """
        return self[0]

    @property
    def labels(self) -> torch.Tensor:
        """(N,) int64, or soft ones (N, classes)."""
        return self[1]

    def __dir__(self) -> list[str]:
        """The names of this batch, and what tuples have."""
        names = {"images", "labels"}
        names.update(dir(tuple))
        for name in vars(self):
            names.add(name.removeprefix("_"))
        if "image_sizes" in names:
            names.add("pixel_mask")
        return sorted(names)

    def __getattr__(self, name: str) -> Any:
        if name == "pixel_mask" and "image_sizes" in vars(self):
            # If nothing moves it, it is only made for programs that use it.
            return pixel_mask(self.image_sizes, self[0])
        if name in _NOTED_NAMES and f"_{name}" in vars(self):
            names_read.add(name)
            return vars(self)[f"_{name}"]
        if name in ("ids", "valid", "epoch"):
            raise AttributeError(
                f"this batch has no {name}: another library rebuilt it from (images, labels). Pass "
                'fields=("image", "label", "id", "valid", "epoch") to fastpipe.loader: a batch is '
                "then a dict with them"
            )
        if name in ("patches", "coords", "cu_seqlens", "patch_valid", "grids"):
            raise AttributeError(
                f"this batch has no {name}: batches of size=fastpipe.Patches(...) have it, and "
                'cu_seqlens those of form="packed"'
            )
        if name in ("image_sizes", "pixel_mask"):
            raise AttributeError(
                f'this batch has no {name}: its images fill it. Batches of size="bucket" have it'
            )
        raise AttributeError(
            f"a batch has no attribute {name!r}; it has images, labels, ids, valid and epoch"
        )


def pixel_mask(image_sizes: torch.Tensor, images: Any) -> Any:
    """(N, height, width) bool: the pixels at the top left of each row that its image fills.

    A list by view.
    """
    if isinstance(images, list):
        return [pixel_mask(image_sizes, view) for view in images]
    row_count, column_count = images.shape[-2:]
    rows = torch.arange(row_count, device=image_sizes.device)
    columns = torch.arange(column_count, device=image_sizes.device)
    heights, widths = image_sizes.unbind(1)
    in_height = rows < heights[:, None]
    in_width = columns < widths[:, None]
    return in_height[:, :, None] & in_width[:, None, :]
