"""Crops for WebDataset pipelines on any tar, without packing: `crop` one sample at a time, `batch_crop` by batches."""

from fastpipe.wds.batches import BatchCrop, batch_crop
from fastpipe.wds.samples import SampleCrop, crop

__all__ = ["BatchCrop", "SampleCrop", "batch_crop", "crop"]
