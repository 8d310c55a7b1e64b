"""fastpipe: an input pipeline for training image models with PyTorch.

Pack a folder of images once (`fastpipe pack SRC DST`), then iterate over batches of it:

    loader = fastpipe.loader("data/train", batch_size=256)
    for images, labels in loader: ...

A name is imported when it is first used: torch takes a second or two, and most commands of
`fastpipe` do without it.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from fastpipe import distribution as _distribution
from fastpipe import last_resort as _last_resort

# "as" says to type checkers that a name is public.
from fastpipe.errors import ClusterError as ClusterError
from fastpipe.errors import ConfigError as ConfigError
from fastpipe.errors import DatasetError as DatasetError
from fastpipe.errors import EngineError as EngineError
from fastpipe.errors import FastpipeError as FastpipeError
from fastpipe.errors import ImageError as ImageError
from fastpipe.errors import PackError as PackError
from fastpipe.errors import SampleError as SampleError

if TYPE_CHECKING:
    from fastpipe import wds as wds
    from fastpipe.dataset.dataset import Dataset as Dataset
    from fastpipe.dataset.opening import concat as concat
    from fastpipe.dataset.opening import mix as mix
    from fastpipe.dataset.opening import open as open
    from fastpipe.device.augment import Augment as Augment
    from fastpipe.device.grid_aggregator import GridAggregator as GridAggregator
    from fastpipe.diagnosis import diagnose as diagnose
    from fastpipe.engine.stats import Stats as Stats
    from fastpipe.loading.factory import loader as loader
    from fastpipe.loading.loader import Loader as Loader
    from fastpipe.loading.monitor import monitor as monitor
    from fastpipe.loading.options import View as View
    from fastpipe.loading.samplers import PerClass as PerClass
    from fastpipe.loading.samplers import Repeated as Repeated
    from fastpipe.loading.samplers import Sequential as Sequential
    from fastpipe.loading.samplers import Weighted as Weighted
    from fastpipe.loading.samplers import balanced as balanced
    from fastpipe.packing.api import add as add
    from fastpipe.packing.api import pack as pack
    from fastpipe.packing.api import remove as remove
    from fastpipe.packing.encode import encode as encode
    from fastpipe.packing.writer import Writer as Writer
    from fastpipe.plan.arrays import Arrays as Arrays
    from fastpipe.plan.buckets import Buckets as Buckets
    from fastpipe.plan.crops import CenterCrop as CenterCrop
    from fastpipe.plan.crops import CropAt as CropAt
    from fastpipe.plan.crops import FiveCrop as FiveCrop
    from fastpipe.plan.crops import Grid as Grid
    from fastpipe.plan.crops import Letterbox as Letterbox
    from fastpipe.plan.crops import RandomCrop as RandomCrop
    from fastpipe.plan.crops import RandomResizedCrop as RandomResizedCrop
    from fastpipe.plan.crops import Resize as Resize
    from fastpipe.plan.crops import TenCrop as TenCrop
    from fastpipe.plan.maps import Maps as Maps
    from fastpipe.plan.native import Native as Native
    from fastpipe.plan.patches import Patches as Patches
    from fastpipe.plan.picture_lists import Images as Images
    from fastpipe.plan.placed import Boxes as Boxes
    from fastpipe.plan.placed import Points as Points
    from fastpipe.plan.texts import Text as Text
    from fastpipe.tools.show.duplicates import duplicates as duplicates
    from fastpipe.tools.show.preview import preview as preview

if importlib.util.find_spec("fastpipe._engine") is None:
    # This raises an error that says why the engine is missing, and what to do.
    from fastpipe import native as native

_conflict = _distribution.other_package_message()
if _conflict:
    import warnings

    warnings.warn(_conflict, stacklevel=2)

_last_resort.add_handler()

__version__ = "0.1.0"

# Modules -> the public names that they define.
_NAMES = {
    "device.augment": "Augment",
    "device.grid_aggregator": "GridAggregator",
    "diagnosis": "diagnose",
    "packing.encode": "encode",
    "engine.stats": "Stats",
    "errors": "ClusterError ConfigError DatasetError EngineError FastpipeError ImageError "
    "PackError SampleError",
    "loading.factory": "loader",
    "loading.loader": "Loader",
    "loading.monitor": "monitor",
    "loading.options": "View",
    "loading.samplers": "PerClass Repeated Sequential Weighted balanced",
    "packing.api": "add pack remove",
    "packing.writer": "Writer",
    "plan.arrays": "Arrays",
    "plan.buckets": "Buckets",
    "plan.maps": "Maps",
    "plan.native": "Native",
    "plan.patches": "Patches",
    "plan.crops": "CenterCrop CropAt FiveCrop Grid Letterbox RandomCrop RandomResizedCrop Resize "
    "TenCrop",
    "plan.picture_lists": "Images",
    "plan.placed": "Boxes Points",
    "plan.texts": "Text",
    "dataset.dataset": "Dataset",
    "dataset.opening": "concat mix open",
    "tools.show.duplicates": "duplicates",
    "tools.show.preview": "preview",
}
_MODULES: dict[str, str] = {}
for _module, _names in _NAMES.items():
    _MODULES.update(dict.fromkeys(_names.split(), _module))

__all__ = sorted(["__version__", "wds", *_MODULES])


def __getattr__(name: str) -> Any:
    if name == "wds":  # a module itself; its import puts it here
        return importlib.import_module("fastpipe.wds")
    if name not in _MODULES:
        if name.startswith("__"):  # Python asks for these itself
            raise AttributeError(f"module 'fastpipe' has no attribute {name!r}")
        from fastpipe.arguments import describe_missing_name

        raise AttributeError(describe_missing_name(name, __all__))
    value = getattr(importlib.import_module(f"fastpipe.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
