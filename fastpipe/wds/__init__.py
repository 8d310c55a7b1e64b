"""Crops for WebDataset pipelines on any tar, without packing: `crop` one sample at a time, `batch_crop` by batches."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastpipe.wds.stages import BatchCrop, SampleCrop, batch_crop, crop

__all__ = ["BatchCrop", "SampleCrop", "batch_crop", "crop"]


def __getattr__(name: str) -> Any:
    """Imported when it is first used, as the names of fastpipe are."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fastpipe.wds import stages

    return getattr(stages, name)
