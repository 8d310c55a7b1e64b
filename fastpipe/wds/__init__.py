"""Crops for WebDataset pipelines on any tar, without packing.

`crop` crops one sample at a time, `batch_crop` a batch.
"""

from fastpipe.wds.stages import BatchCrop, SampleCrop, batch_crop, crop

__all__ = ["BatchCrop", "SampleCrop", "batch_crop", "crop"]
