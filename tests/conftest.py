"""Small synthetic datasets, made and packed once a session, and the references that results are compared with."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from checkout import ROOT
from closing import add_options, watch_the_end
from cluster.ray_cluster import ray_cluster, ray_nodes  # noqa: F401 (fixtures)
from cost import pytest_runtest_call  # noqa: F401 (a hook)
from faults.packs import place, programs  # noqa: F401 (fixtures)
from field_columns import add_fields, values_of
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray
from PIL import Image
from remote.cases import local_digests, open_remote, quick, range_server, remote_bytes, remote_packed  # noqa: F401 (fixtures)
from remote.s3 import bucket, s3_server  # noqa: F401 (fixtures)
from side_by_side import forget_the_terminal, note_serial_tests, order_tests, prepare_worker, scheduler, workers
from soak import keep_faults, pytest_terminal_summary, tried  # noqa: F401 (a hook and a fixture)

from fastpipe.format.index import Index
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

# The programs of tests find fastpipe's byte code, as users do, for whom pip has written it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell starts what is to run in the background with Ctrl-C ignored, and the programs of tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run; no deadline, since the machine may be busy.
settings.register_profile(
    "fastpipe",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fastpipe")

# For tests of how much memory is in use: the address sanitizer keeps what was freed.
frees_memory = pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer keeps memory")

PHOTOS = ROOT.parent / "shared" / "data" / "photos"
FLAT_CLASSES = ("ant", "bee", "cow")
FLAT_IMAGES = 37


def smooth_noise(width: int, height: int, seed: int, cell: int = 12) -> Image.Image:
    """A picture with detail at two scales, so that a shift, a mirroring or a wrong filter shows."""
    rng = np.random.default_rng([seed, width, height])
    coarse = rng.integers(0, 256, (height // cell + 2, width // cell + 2, 3), dtype=np.uint8)
    base = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC), np.int16)
    grain = rng.integers(-12, 13, (height, width, 3))
    return Image.fromarray(np.clip(base + grain, 0, 255).astype(np.uint8))


def flat_colour(number: int) -> tuple[int, int, int]:
    """One colour a picture, far enough apart to survive JPEG; blue tells the class."""
    return 20 + number % 7 * 35, 20 + number // 7 * 35, 40 + number % 3 * 80


def flat_number(colour: NDArray[np.uint8]) -> int:
    """The picture that a pixel is of; its class is the number modulo 3."""
    red, green = np.rint((colour[:2].astype(float) - 20) / 35).astype(int)
    return int(green * 7 + red)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """A worker of pytest-xdist has a thread of its own: Python 3.12 would warn of every fork in it."""
    watch_the_end(config)
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.addinivalue_line("filterwarnings", "ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `pytest -n auto` means."""
    return workers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    forget_the_terminal()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    prepare_worker(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """See side_by_side.py."""
    return scheduler(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the tests into order; those marked `gpu` are skipped where there is none."""
    import torch

    keep_faults(config, items)
    order_tests(items)
    note_serial_tests(config, items)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(autouse=True, scope="session")
def no_syncs() -> Iterator[None]:
    """What is packed in this process need not last through a power cut: thousands of packs would wait for the disk.

    The programs that tests start sync as ever, and those of faults/ are tried at each of these calls.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread_beside_others() -> None:
    """The threads of torch in several workers would wait for CPUs more than they work."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        import torch

        torch.set_num_threads(1)


def _pack(source: Path, options: PackOptions | None = None) -> Path:
    destination = source.parent / "packed"
    pack(source, destination, options or PackOptions(workers=1))
    return destination


@pytest.fixture(scope="session")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """37 pictures of one colour each, 3 classes: a row of a batch tells which sample it is of."""
    source = tmp_path_factory.mktemp("flat") / "source"
    for number in range(FLAT_IMAGES):
        folder = source / FLAT_CLASSES[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        size = (24 + number, 60 - number)
        Image.new("RGB", size, flat_colour(number)).save(folder / f"{number:02d}.jpg", quality=95, subsampling=0)
    return _pack(source)


@pytest.fixture(autouse=True, scope="session")
def own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Scans of sources that are not packed are kept there, and not in the user's."""
    os.environ["FASTPIPE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """torch works on one thread: on small images, threads wait for one another longer than they work."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def textured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 detailed pictures of many sizes and subsamplings, 2 classes."""
    source = tmp_path_factory.mktemp("textured") / "source"
    for number in range(23):
        folder = source / f"class-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        picture = smooth_noise(40 + 17 * number % 97, 33 + 29 * number % 83, seed=number)
        picture.save(folder / f"{number}.jpg", quality=90, subsampling=number % 3)
    return _pack(source)


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6 pictures of several hundred pixels a side, lying, standing and long."""
    source = tmp_path_factory.mktemp("large") / "source"
    sizes = [(640, 480), (480, 640), (500, 375), (300, 300), (900, 280), (231, 517)]
    for number, (width, height) in enumerate(sizes):
        folder = source / f"class-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        smooth_noise(width, height, seed=number, cell=40).save(folder / f"{number}.jpg", quality=92)
    return _pack(source)


@pytest.fixture(scope="session")
def many_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 pictures of 40 to 60 kB in a dozen shards of at most 100 kB."""
    source = tmp_path_factory.mktemp("many") / "source"
    (source / "only").mkdir(parents=True)
    rng = np.random.default_rng(5)
    for number in range(24):
        pixels = rng.integers(0, 256, (128, 140, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(source / "only" / f"{number}.jpg", quality=95, subsampling=0)
    packed = _pack(source, PackOptions(workers=1, shard_size=100_000))
    assert len(Index(packed).shards) >= 8
    return packed


@pytest.fixture(scope="session")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 small pictures, of which 100 are there twice, under other names and in another class."""
    from PIL import Image

    root = tmp_path_factory.mktemp("thousand")
    rng = np.random.default_rng(0)
    for number in range(900):
        folder = root / "source" / ("rare" if number % 10 == 0 else "common")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{number}.jpg"
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
        if number < 100:
            other = root / "source" / "again"
            other.mkdir(exist_ok=True)
            shutil.copy(path, other / f"copy-{number}.jpg")
    pack(root / "source", root / "packed", PackOptions(workers=1))
    return root / "packed"


@pytest.fixture(scope="session")
def fielded(flat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flat pictures with a field of each kind that a column holds."""
    copy = Path(shutil.copytree(flat, tmp_path_factory.mktemp("fielded") / "packed"))
    return add_fields(copy, values_of(Index(copy)))


@pytest.fixture(scope="session")
def values(fielded: Path) -> dict[str, list[Any]]:
    """By field: the value of each sample of `fielded`."""
    return {field.name: made for field, made in values_of(Index(fielded))}


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path], Path]:
    """Copies a packed dataset, to be damaged."""

    def copy(dataset: Path) -> Path:
        return Path(shutil.copytree(dataset, tmp_path / "copy"))

    return copy


def damage(dataset: Path, sample: int) -> None:
    """Overwrites the middle of a sample's JPEG, from its start, with zeros; the shard keeps its size."""
    index = Index(dataset)
    shard, _, offset = index.where(sample)
    with open(shard, "r+b") as file:
        file.seek(offset)
        file.write(bytes(int(index.records[sample]["size"]) // 2))


def packed_jpeg(index: Index, sample: int) -> bytes:
    """The bytes of a sample, read by way of the index."""
    shard, _, offset = index.where(sample)
    with open(shard, "rb") as file:
        file.seek(offset)
        return file.read(int(index.records[sample]["size"]))


def pillow_picture(index: Index, sample: int) -> Image.Image:
    """A sample as Pillow decodes it."""
    return Image.open(io.BytesIO(packed_jpeg(index, sample))).convert("RGB")


def run_script(code: str, *arguments: object, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs Python in a process of its own; one that hangs fails the test."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.fixture(scope="session")
def torchvision() -> ModuleType:
    """torchvision, of which maybe only the Python parts work: its compiled ones are built for the usual torch alone."""
    from bench.peers.import_torchvision import torchvision

    return torchvision


@pytest.fixture(scope="session")
def photos() -> list[Path]:
    """24 real photos, where they lie beside the checkout; mark the test with `photos`."""
    found = sorted(PHOTOS.glob("*/*"))[::12] if PHOTOS.is_dir() else []
    if not found:
        pytest.skip(f"no photos at {PHOTOS}")
    return found


@pytest.fixture(scope="session")
def packed_photos(photos: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The photos, packed."""
    source = tmp_path_factory.mktemp("photos") / "source"
    for photo in photos:
        (source / photo.parent.name).mkdir(parents=True)
        shutil.copy(photo, source / photo.parent.name / photo.name)
    return _pack(source)
