"""`import fastpipe` is light and quiet, and its public names are exactly the locked ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.programs.scripts import run_script

import fastpipe

# Adding, renaming or removing a name here changes the public interface: say so in CHANGELOG.md.
PUBLIC = {
    "Arrays",
    "Augment",
    "Boxes",
    "Buckets",
    "CenterCrop",
    "ClusterError",
    "ConfigError",
    "CropAt",
    "Dataset",
    "DatasetError",
    "EngineError",
    "FastpipeError",
    "FiveCrop",
    "Grid",
    "GridAggregator",
    "ImageError",
    "Images",
    "Maps",
    "Letterbox",
    "Loader",
    "Native",
    "Patches",
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
    "Text",
    "View",
    "Weighted",
    "Writer",
    "__version__",
    "add",
    "balanced",
    "concat",
    "diagnose",
    "duplicates",
    "encode",
    "loader",
    "mix",
    "monitor",
    "open",
    "pack",
    "preview",
    "remove",
    "wds",
}

# The threads and modules that numpy and torch bring are theirs.
IMPORT = """
import json, os, sys

def threads():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1

import fastpipe
facts = {"torch": sorted({"numpy", "torch"} & sys.modules.keys())}

import numpy, torch
before = threads()
for name in set(fastpipe.__all__) - {"Writer", "add", "encode", "pack", "remove"}:  # these need OpenCV and Pillow
    getattr(fastpipe, name)
facts["threads"] = threads() - before
heavy = {"cv2", "huggingface_hub", "kornia", "obstore", "pandas", "PIL", "prometheus_client", "pyarrow", "ray", "rich"}
heavy |= {"numpy.random", "turbojpeg", "typer", "webdataset"}
facts["heavy"] = sorted(heavy & sys.modules.keys())

sys.modules["cv2"] = None  # there is no wheel of OpenCV for the free-threaded Python
source, packed = sys.argv[1:]
fastpipe.pack(source, packed)
with fastpipe.loader(packed, 4, size=16, augment=fastpipe.Augment.imagenet()) as loader:
    facts["batches"] = len(list(loader))
facts["sample"] = len(fastpipe.open(packed)[0])
try:
    fastpipe.pack(source, packed + "-small", max_size=16)
except fastpipe.PackError as problem:
    facts["refused"] = str(problem)
print(json.dumps(facts))
"""


@pytest.mark.new_python("what `import fastpipe` brings with it, and all that goes without OpenCV")
def test_what_an_import_brings(textured: Path, tmp_path: Path) -> None:
    done = run_script(IMPORT, textured.with_name("source"), tmp_path / "packed")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    refused = facts.pop("refused")
    assert facts == {"torch": [], "threads": 0, "heavy": [], "batches": 5, "sample": 2}
    assert "OpenCV" in refused
    assert "install it: pip install opencv-python-headless" in refused


def test_public_names_are_locked() -> None:
    assert set(fastpipe.__all__) == PUBLIC
    assert len(fastpipe.__all__) == len(PUBLIC)
    assert [name for name in PUBLIC if not hasattr(fastpipe, name)] == []
    assert set(dir(fastpipe)) >= PUBLIC


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fastpipe' has no attribute 'DataLoader'"):
        fastpipe.DataLoader  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'DataLoader'"):
        from fastpipe import DataLoader  # noqa: F401
