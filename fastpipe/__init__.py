"""fastpipe: an input pipeline for training image models with PyTorch.

Pack a folder of photos once (`fastpipe pack SRC DST`), then iterate over batches of it:

    loader = fastpipe.loader("data/train", batch_size=256)
    for images, labels in loader: ...

A name is imported when it is first used: torch takes a second or two, and most commands of `fastpipe` do without it.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from fastpipe.errors import (
    ClusterError,
    ConfigError,
    DatasetError,
    EngineError,
    FastpipeError,
    ImageError,
    PackError,
    SampleError,
)

if TYPE_CHECKING:
    from fastpipe import wds
    from fastpipe.augment import Augment
    from fastpipe.diagnosis import diagnose
    from fastpipe.engine.stats import Stats
    from fastpipe.loading.factory import loader
    from fastpipe.loading.loader import Loader
    from fastpipe.loading.monitor import monitor
    from fastpipe.loading.options import View
    from fastpipe.loading.samplers import PerClass, Repeated, Sequential, Weighted, balanced
    from fastpipe.packing.api import add, pack, remove
    from fastpipe.packing.writer import Writer
    from fastpipe.plan.buckets import Buckets
    from fastpipe.plan.crops import CenterCrop, FiveCrop, Letterbox, RandomCrop, RandomResizedCrop, Resize, TenCrop
    from fastpipe.plan.placed import Boxes, Points
    from fastpipe.samples.dataset import Dataset
    from fastpipe.samples.opening import concat, mix, open
    from fastpipe.show.duplicates import duplicates
    from fastpipe.show.preview import preview

if importlib.util.find_spec("fastpipe._engine") is None:
    from fastpipe import native as native  # raises: it says why, and what to do

__version__ = "0.1.0"

__all__ = [
    "Augment",
    "Boxes",
    "Buckets",
    "CenterCrop",
    "ClusterError",
    "ConfigError",
    "Dataset",
    "DatasetError",
    "EngineError",
    "FastpipeError",
    "FiveCrop",
    "ImageError",
    "Letterbox",
    "Loader",
    "PackError",
    "PerClass",
    "Points",
    "RandomCrop",
    "RandomResizedCrop",
    "Repeated",
    "Resize",
    "SampleError",
    "Sequential",
    "Stats",
    "TenCrop",
    "View",
    "Weighted",
    "Writer",
    "__version__",
    "add",
    "balanced",
    "concat",
    "diagnose",
    "duplicates",
    "loader",
    "mix",
    "monitor",
    "open",
    "pack",
    "preview",
    "remove",
    "wds",
]

# Public names -> the modules that define them.
_OF_MODULES = {
    "augment": ("Augment",),
    "diagnosis": ("diagnose",),
    "engine.stats": ("Stats",),
    "loading.factory": ("loader",),
    "loading.loader": ("Loader",),
    "loading.monitor": ("monitor",),
    "loading.options": ("View",),
    "loading.samplers": ("PerClass", "Repeated", "Sequential", "Weighted", "balanced"),
    "packing.api": ("add", "pack", "remove"),
    "packing.writer": ("Writer",),
    "plan.buckets": ("Buckets",),
    "plan.crops": ("CenterCrop", "FiveCrop", "Letterbox", "RandomCrop", "RandomResizedCrop", "Resize", "TenCrop"),
    "plan.placed": ("Boxes", "Points"),
    "samples.dataset": ("Dataset",),
    "samples.opening": ("concat", "mix", "open"),
    "show.duplicates": ("duplicates",),
    "show.preview": ("preview",),
}
_MODULES = {name: module for module, names in _OF_MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "wds":  # a module itself; its import puts it here
        return importlib.import_module("fastpipe.wds")
    if name not in _MODULES:
        raise AttributeError(f"module 'fastpipe' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fastpipe.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
