"""`import fastpipe` is light and quiet, and its public names are exactly the locked ones."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.checkout import ROOT
from support.programs.scripts import run_script

import fastpipe

# Adding, renaming or removing a name here changes the public interface: say so in CHANGELOG.md.
PUBLIC = {
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
}

# numpy and torch come first: the threads and modules that they bring are theirs.
IMPORT = """
import sys, threading
from pathlib import Path
import numpy, torch

def threads():
    tasks = Path("/proc/self/task")
    return threading.active_count(), len(list(tasks.iterdir())) if tasks.exists() else 0

before = threads()
import fastpipe
for name in set(fastpipe.__all__) - {"Writer", "add", "pack", "remove"}:  # these need OpenCV and Pillow
    getattr(fastpipe, name)
print("threads", *before, *threads())
heavy = {"cv2", "huggingface_hub", "kornia", "obstore", "pandas", "PIL", "prometheus_client", "rich", "turbojpeg"}
heavy |= {"typer", "webdataset"}
print("modules", *(heavy & sys.modules.keys()))
"""

# CPU time, which other programs do not stretch, as a share of that of `import torch`: 1 to 2 s.
# Python's collector looks at all objects, torch's too, each time their number has grown by a quarter: 0.09 s wherever
# in a program that happens. It is not what the import costs.
SECONDS = """
import gc
import time
gc.disable()
began = time.process_time()
import numpy, torch
started = time.process_time()
import fastpipe
for name in set(fastpipe.__all__) - {"Writer", "add", "pack", "remove"}:  # these need OpenCV and Pillow
    getattr(fastpipe, name)
print((time.process_time() - started) / (started - began))
"""


def test_import_starts_no_thread_and_no_heavy_module() -> None:
    run = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    threads, modules = (line.split()[1:] for line in run.stdout.splitlines())
    assert threads[:2] == threads[2:], "importing fastpipe started a thread"
    assert modules == [], "importing fastpipe imported what only some commands need"


@pytest.mark.serial
def test_import_adds_less_than_a_tenth_to_that_of_torch() -> None:
    """The best of three: the first may have to compile the sources."""

    def share() -> float:
        return float(subprocess.check_output([sys.executable, "-c", SECONDS], text=True, timeout=120))

    assert any(share() < 0.1 for _ in range(3))


def test_import_does_without_torch() -> None:
    code = "import sys, fastpipe; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_opencv_it_packs_and_loads(textured: Path, tmp_path: Path) -> None:
    """There is no wheel of OpenCV for the free-threaded Python; what needs it says so."""
    script = """
        import sys
        sys.modules["cv2"] = None
        import fastpipe
        source, packed = sys.argv[1:]
        fastpipe.pack(source, packed)
        with fastpipe.loader(packed, 4, size=16, augment=fastpipe.Augment.imagenet()) as loader:
            assert len(list(loader)) == 5
        assert len(fastpipe.open(packed)[0]) == 2
        try:
            fastpipe.pack(source, packed + "-small", max_size=16)
        except fastpipe.PackError as problem:
            print(problem)
    """
    done = run_script(script, textured.with_name("source"), tmp_path / "packed")
    assert done.returncode == 0, done.stderr
    assert "OpenCV" in done.stdout
    assert "install it: pip install opencv-python-headless" in done.stdout


def test_public_names_are_locked() -> None:
    assert set(fastpipe.__all__) == PUBLIC
    assert len(fastpipe.__all__) == len(PUBLIC)


def test_public_names_exist() -> None:
    missing = [name for name in fastpipe.__all__ if not hasattr(fastpipe, name)]
    assert missing == []
    assert set(dir(fastpipe)) >= PUBLIC


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fastpipe' has no attribute 'DataLoader'"):
        fastpipe.DataLoader  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'DataLoader'"):
        from fastpipe import DataLoader  # noqa: F401


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (True, "is the source folder of fastpipe, and its C\\+\\+ engine is not built there"),
        (False, "Install fastpipe again"),
    ],
)
def test_without_the_engine_it_says_what_to_do(tmp_path: Path, source: bool, words: str) -> None:
    shutil.copytree(ROOT / "fastpipe", tmp_path / "fastpipe", ignore=shutil.ignore_patterns("*.so"))
    if source:
        (tmp_path / "setup.py").touch()
    command = [sys.executable, "-S", "-c", "import fastpipe"]
    here = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True, check=False)
    assert re.search(words, done.stderr)
    assert done.stderr.count("Traceback") == 1, done.stderr


def test_ctrl_c_while_the_engine_is_loaded_is_ctrl_c() -> None:
    code = """
import sys, numpy
from numpy._core import _internal
def interrupted(spec):
    raise KeyboardInterrupt
_internal._dtype_from_pep3118 = interrupted
import fastpipe
fastpipe.open
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode in (-signal.SIGINT, 130)
    assert done.stderr.count("Traceback") == 1, done.stderr
