"""Crops for WebDataset pipelines on any tar, without packing.

`crop` crops one sample at a time, `batch_crop` a batch.

Example:
    >>> import webdataset
    >>> crop = fastpipe.wds.crop(32)
    >>> samples = webdataset.WebDataset("data/train/shard-000000.tar", shardshuffle=False)
    >>> samples = samples.map(crop).to_tuple("jpg", "cls")
    >>> crop.set_epoch(0)  # before each epoch; then a seed and an epoch always give the same crops
    >>> image, label = next(iter(samples))
    >>> image.shape
    torch.Size([3, 32, 32])
"""

from fastpipe.wds.stages import BatchCrop, SampleCrop, batch_crop, crop

__all__ = ["BatchCrop", "SampleCrop", "batch_crop", "crop"]


def __dir__() -> list[str]:
    return list(__all__)
