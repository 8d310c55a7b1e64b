"""Crops for WebDataset pipelines on any tar, without packing: `crop` one sample at a time, `batch_crop` by batches."""

from fastpipe.wds.stages import BatchCrop, SampleCrop, batch_crop, crop

__all__ = ["BatchCrop", "SampleCrop", "batch_crop", "crop"]
