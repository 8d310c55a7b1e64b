"""Crops for WebDataset pipelines on any tar, without packing: `crop` one sample at a time, `batch_crop` by batches."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastpipe.wds.batches import BatchCrop, batch_crop
    from fastpipe.wds.samples import SampleCrop, crop

__all__ = ["BatchCrop", "SampleCrop", "batch_crop", "crop"]


def __getattr__(name: str) -> Any:
    """Imported when it is first used, as the names of fastpipe are."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fastpipe.wds import batches, samples

    return getattr(batches if name in ("BatchCrop", "batch_crop") else samples, name)
