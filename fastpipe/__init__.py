"""fastpipe: an input pipeline for training image models with PyTorch.

Pack a folder of photos once (`fastpipe pack SRC DST`), then iterate over batches of it:

    loader = fastpipe.loader("data/train", batch_size=256)
    for images, labels in loader: ...
"""

from typing import TYPE_CHECKING, Any

from fastpipe import native as native
from fastpipe.augment import Augment
from fastpipe.diagnosis import diagnose
from fastpipe.engine.stats import Stats
from fastpipe.errors import ConfigError, DatasetError, EngineError, FastpipeError, ImageError, PackError, SampleError
from fastpipe.format.index import Index, open
from fastpipe.loading.factory import loader
from fastpipe.loading.loader import Loader
from fastpipe.monitoring.monitor import monitor
from fastpipe.plan.crops import CenterCrop, RandomResizedCrop, Resize
from fastpipe.samples.dataset import Dataset

if TYPE_CHECKING:
    from fastpipe.packing.api import pack as pack
    from fastpipe.packing.writer import Writer as Writer

__version__ = "0.1.0"

__all__ = [
    "Augment",
    "CenterCrop",
    "ConfigError",
    "Dataset",
    "DatasetError",
    "EngineError",
    "FastpipeError",
    "ImageError",
    "Index",
    "Loader",
    "PackError",
    "RandomResizedCrop",
    "Resize",
    "SampleError",
    "Stats",
    "Writer",
    "__version__",
    "diagnose",
    "loader",
    "monitor",
    "open",
    "pack",
]


def __getattr__(name: str) -> Any:
    """Packing is imported when it is first used: OpenCV, Pillow and TurboJPEG take longer than all the rest."""
    if name == "pack":
        from fastpipe.packing.api import pack

        return pack
    if name == "Writer":
        from fastpipe.packing.writer import Writer

        return Writer
    raise AttributeError(f"module 'fastpipe' has no attribute {name!r}")
