"""Pictures without loss keep their pixels: packed, loaded, unpacked, packed again, and read by other programs."""

from __future__ import annotations

import io
import itertools
import shutil
import tarfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
import webdataset
from numpy.typing import NDArray
from PIL import Image
from support.datasets.field_values import notes
from support.datasets.packed import packed_jpeg
from support.pictures.pngs import (
    CHANNELS,
    GRAY,
    GRAY_ALPHA,
    PALETTE,
    RGB,
    RGB_ALPHA,
    png,
    with_surplus,
)
from support.sources.pack_sources import jpeg_bytes, pixels, saved, write_files
from support.sources.unpacked_sources import assert_same_epochs, epoch

import fastpipe
from fastpipe import _engine
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.packing.unpack import unpack
from fastpipe.tools.verify.verification import verify

DEPTHS = {
    GRAY: (1, 2, 4, 8, 16),
    PALETTE: (1, 2, 4, 8),
    RGB: (8, 16),
    GRAY_ALPHA: (8, 16),
    RGB_ALPHA: (8, 16),
}
SIZES = {"tiny": (9, 7), "strips": (210, 190)}  # height, width: as stored bytes, and as strips
COLOURS = np.random.default_rng(5).integers(0, 256, 768, dtype=np.uint8).tobytes()


def grain(height: int, width: int, channels: int, bits: int) -> NDArray[np.integer]:
    """Soft shapes with some grain in each channel, below 2**bits."""
    planes = [pixels(width, height, seed=seed)[:, :, 0] for seed in range(channels)]
    fine = np.random.default_rng(channels).integers(0, 256, (height, width, channels))
    return (np.stack(planes, axis=2).astype(int) * 256 + fine) >> (16 - bits)


def pngs() -> dict[str, bytes]:
    found = {}
    for (size, (height, width)), color, interlaced in itertools.product(
        SIZES.items(), DEPTHS, (False, True)
    ):
        for bits in DEPTHS[color]:
            samples = grain(height, width, CHANNELS[color], bits)
            palette = COLOURS[: 3 << bits] if color == PALETTE else None
            tokens: dict[str, Any] = {"none": None}
            if color == PALETTE:
                tokens["clear"] = bytes(range(0, 240, 17))[: 1 << bits]
            elif color in (GRAY, RGB):
                tokens["clear"] = samples[3, 4].astype(">u2").tobytes()
            for kind, transparency in tokens.items():
                name = f"{size}-{color}-{bits}-{kind}-{interlaced}.png"
                more = {"palette": palette, "transparency": transparency, "interlaced": interlaced}
                found[name] = png(samples, bits=bits, color=color, filters=(0, 1, 2, 3, 4), **more)
    return found


def deep(channels: int) -> NDArray[np.uint16]:
    return grain(45, 70, channels, 16).astype(np.uint16)


def others() -> dict[str, bytes]:
    return {
        **{
            f"{mode}.{name}": saved(name, mode)
            for name in ("bmp", "tiff", "tga")
            for mode in ("L", "P", "RGB", "RGBA")
        },
        **{f"{mode}.gif": saved("gif", mode) for mode in ("1", "L", "P")},
        **{f"{mode}.ppm": saved("ppm", mode) for mode in ("1", "L", "RGB")},
        **{
            f"{mode}.webp": saved("webp", mode, lossless=True, exact=True)
            for mode in ("RGB", "RGBA")
        },
        **{f"{mode}.jp2": saved("jpeg2000", mode) for mode in ("L", "RGB", "RGBA")},
        "deep.tiff": saved("tiff", "I;16"),
        **{
            f"deep-{count}.tiff": cv2.imencode(".tiff", deep(count))[1].tobytes()
            for count in (3, 4)
        },
        "two.ico": saved("ico"),
        "clear.gif": saved("gif", "P", transparency=3),
    }


FILES = {**pngs(), **others()}


def rgb(data: bytes) -> NDArray[np.uint8]:
    """As Pillow shows it; of gray of 16 bits, which it clips, the higher byte."""
    with Image.open(io.BytesIO(data)) as image:
        if image.mode.startswith("I;16"):
            return np.repeat(
                (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)[:, :, None], 3, axis=2
            )
        image.load()
        image.info.pop("transparency", None)  # Pillow warns of some
        return np.asarray(image.convert("RGB"))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, and JPEGs among them, in two classes; packed, in their order."""
    root = tmp_path_factory.mktemp("lossless")
    pictures = {**FILES, "photo.jpg": jpeg_bytes(), "wide.jpg": jpeg_bytes((99, 40))}
    placed = {
        f"class-{number % 2}/{name}": data for number, (name, data) in enumerate(pictures.items())
    }
    write_files(root / "source", placed)
    fastpipe.pack(root / "source", root / "packed", shuffle=False, shard_size="0.5MB", workers=2)
    return root


def names(index: PackedIndex) -> list[str]:
    """The names of the samples' files."""
    return [note["path"].rpartition("/")[2] for note in notes(index.path)]


def test_samples_show_the_pixels_of_their_files(work: Path) -> None:
    dataset = fastpipe.open(work / "packed")
    index = PackedIndex(work / "packed")
    assert verify(work / "packed").sound
    assert len(dataset) == len(FILES) + 2
    assert sum(index.info["counts"]["png"].values()) == len(FILES)
    assert index.info["counts"]["reencoded"] == {}
    for sample, name in enumerate(names(index)):
        if name in FILES:
            np.testing.assert_array_equal(
                dataset[sample][0].permute(1, 2, 0).numpy(), rgb(FILES[name]), err_msg=name
            )


def test_samples_keep_depth_and_alpha(work: Path) -> None:
    """All that a file has, by a reader that knows no PNG of ours."""
    index = PackedIndex(work / "packed")
    for sample, name in enumerate(names(index)):
        if name.startswith("deep-"):
            channels = int(name[5])
            stored = _engine.png_samples(packed_jpeg(index, sample))
            np.testing.assert_array_equal(stored, deep(channels)[:, :, [2, 1, 0, 3][:channels]])
        if name.endswith(".png"):
            stored = _engine.png_samples(packed_jpeg(index, sample))
            np.testing.assert_array_equal(stored, _engine.png_samples(FILES[name]), err_msg=name)
            assert stored.dtype == (np.uint16 if "-16-" in name else np.uint8)


def test_a_bit_that_changes_where_a_png_begins_is_named(work: Path, tmp_path: Path) -> None:
    for place, offset in (("header", -512 + 10), ("first byte", 0), ("magic", 5)):
        copy = Path(shutil.copytree(work / "packed", tmp_path / place))
        index = PackedIndex(copy)
        sample = names(index).index("deep.tiff")
        shard, key, at = index.where(sample)
        data = bytearray(Path(shard).read_bytes())
        data[at + offset] ^= 4
        Path(shard).write_bytes(data)
        words = (
            f"tar header of {key}." if offset < 0 else "the image has changed since it was packed"
        )
        assert [
            words in each.problem for each in verify(copy).findings if each.sample == sample
        ] == [True], place


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_other_programs_read_the_samples(work: Path) -> None:
    seen = 0
    tars = sorted(map(str, (work / "packed").glob("*.tar")))
    for sample in webdataset.WebDataset(tars, shardshuffle=False):
        if "png" not in sample:
            continue
        source = _engine.png_samples(sample["png"])
        seen += 1
        with Image.open(io.BytesIO(sample["png"])) as image:
            image.load()
            if source.dtype == np.uint8:  # of 16 bits, Pillow keeps gray alone
                np.testing.assert_array_equal(np.asarray(image).reshape(source.shape), source)
        found = cv2.imdecode(np.frombuffer(sample["png"], np.uint8), cv2.IMREAD_UNCHANGED)
        order = {1: [0], 2: [0, 0, 0, 1], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[source.shape[2]]
        np.testing.assert_array_equal(found.reshape(*source.shape[:2], -1), source[:, :, order])
    assert seen == len(FILES)


def test_unpacked_files_are_a_source_of_the_same_pixels(work: Path, tmp_path: Path) -> None:
    index = PackedIndex(work / "packed")
    unpack(work / "packed", tmp_path / "files")
    unpack(work / "packed", tmp_path / "tars", "webdataset")
    for source in (work / "packed", tmp_path / "files", tmp_path / "tars"):
        fastpipe.pack(source, tmp_path / "again" / source.name, shuffle=False)
        again = PackedIndex(tmp_path / "again" / source.name)
        stored = {packed_jpeg(again, sample) for sample in range(len(again))}
        assert stored == {packed_jpeg(index, sample) for sample in range(len(index))}


def test_batches_are_those_of_the_files(work: Path, tmp_path: Path) -> None:
    fastpipe.pack(work / "source", tmp_path / "coefficients", shuffle=False, storage="coefficients")
    expected = epoch(work / "source")
    assert_same_epochs(expected, epoch(work / "packed"))
    assert_same_epochs(expected, epoch(tmp_path / "coefficients"))
    with fastpipe.loader(work / "source", 8, size=8, num_workers=2) as loader:
        next(iter(loader))
        assert loader.dataset.index.counts["converted"] == len(others())


def test_pngs_with_surplus_data_are_packed_and_loaded_as_any(tmp_path: Path) -> None:
    chosen = [
        name for name in FILES if name.startswith("strips") and name.endswith("-none-False.png")
    ]
    write_files(tmp_path / "source", {name: with_surplus(FILES[name]) for name in chosen})
    fastpipe.pack(tmp_path / "source", tmp_path / "packed", shuffle=False)
    index = PackedIndex(tmp_path / "packed")
    counts = index.info["counts"]
    assert (counts["png"], counts["reencoded"], counts["rejected"]) == ({"PNG": len(chosen)}, {}, 0)
    for sample, name in enumerate(names(index)):
        stored, expected = (
            _engine.png_samples(data) for data in (packed_jpeg(index, sample), FILES[name])
        )
        assert stored.dtype == expected.dtype
        expected = (
            expected if stored.shape == expected.shape else expected[:, :, [0, 0, 0, 1]]
        )  # of 16 bits
        np.testing.assert_array_equal(stored, expected, err_msg=name)
    for options in ({}, {"crop": None}):
        assert_same_epochs(
            epoch(tmp_path / "source", **options), epoch(tmp_path / "packed", **options)
        )
    ways = [fastpipe.open(tmp_path / name) for name in ("source", "packed")]
    as_it_lies, packed = ({data["key"][i]: data[i][0] for i in range(len(data))} for data in ways)
    assert as_it_lies.keys() == packed.keys()
    assert all(torch.equal(as_it_lies[key], packed[key]) for key in packed)


def test_samples_are_added_and_options_stay(tmp_path: Path) -> None:
    write_files(tmp_path / "new", {"class-0/new.png": saved("PNG", "RGBA", (41, 33))})
    old = {f"class-0/{name}": data for name, data in FILES.items() if name.startswith("tiny")}
    write_files(tmp_path / "old", old)
    for name, options in (("kept", {}), ("lossy", {"quality": 60})):
        fastpipe.pack(tmp_path / "old", tmp_path / name, **options)  # type: ignore[arg-type]
        fastpipe.add(tmp_path / "new", tmp_path / name)
        index = PackedIndex(tmp_path / name)
        stored = packed_jpeg(index, names(index).index("new.png"))
        assert (stored.startswith(b"\x89PNG"), "png" in index.info["counts"]) == (
            name == "kept",
            True,
        )
        assert sum(index.info["counts"]["png"].values()) == (len(old) + 1) * (name == "kept")
        assert verify(tmp_path / name).sound


def test_second_images_are_stored_as_the_first(tmp_path: Path) -> None:
    depth = grain(45, 70, 1, 16).astype(np.uint16)
    with fastpipe.Writer(tmp_path / "packed", {"depth": "image", "seg": "mask"}) as writer:
        for image in (saved("PNG", "RGBA"), jpeg_bytes()):
            writer.add(image, depth=depth, seg=depth[:, :, 0])
        writer.add(saved("GIF"), depth=jpeg_bytes(), seg=depth[:, :, 0] >> 8)
    assert verify(tmp_path / "packed").sound
    with tarfile.open(PackedIndex(tmp_path / "packed").shards[0].path) as tar:
        members = {each.name.partition(".")[2]: tar.extractfile(each).read() for each in tar}  # type: ignore[union-attr]
    np.testing.assert_array_equal(_engine.png_samples(members["depth.png"]), depth)
    dataset = fastpipe.open(tmp_path / "packed").with_fields(("image", "depth", "seg"))
    for sample in range(2):
        shown = dataset[sample]
        assert (shown["depth"].numpy() == depth[:, :, 0] >> 8).all()
        assert (shown["seg"].numpy() == depth[:, :, 0]).all()
    for again in ("repacked", "added"):
        if again == "repacked":
            fastpipe.pack(tmp_path / "packed", tmp_path / again)
        else:
            with fastpipe.Writer(tmp_path / again, {"depth": "image", "seg": "mask"}) as writer:
                writer.add(
                    jpeg_bytes((9, 9)),
                    key="first",
                    depth=jpeg_bytes((9, 9)),
                    seg=np.zeros((9, 9), np.uint8),
                )
            assert fastpipe.add(tmp_path / "packed", tmp_path / again).added == 3
        found = fastpipe.open(tmp_path / again).with_fields(("key", "image", "depth", "seg"))
        copies = {sample["key"]: sample for sample in found}
        for key, sample in zip(dataset["key"], dataset, strict=True):
            assert all(
                torch.equal(copies[key][name], sample[name]) for name in ("image", "depth", "seg")
            )


BLANK = {
    "gray": Image.new("L", (1000, 1000), 255),
    "black and white": Image.new("1", (1240, 1754), 1),
    "of 16 bits": Image.fromarray(np.full((2000, 500), 9, np.uint16)),
    "thin": Image.new("RGB", (65000, 1), (1, 2, 3)),
    "in colours": Image.new("RGB", (1000, 1000), (1, 2, 3)),
}


@pytest.mark.parametrize("storage", ["jpeg", "coefficients"])
def test_blank_pictures_are_loaded(tmp_path: Path, storage: str) -> None:
    """They take a thousand times fewer bytes than pixels."""
    with fastpipe.Writer(tmp_path / "packed", storage=storage) as writer:
        for name, picture in BLANK.items():
            writer.add(picture, key=name)
    assert verify(tmp_path / "packed").sound
    data = fastpipe.open(tmp_path / "packed")
    for name, picture, (image, _) in zip(BLANK, BLANK.values(), data, strict=True):
        assert (image.shape[2], image.shape[1]) == picture.size, name
        assert len(np.unique(image[0])) == 1, name
    with fastpipe.loader(data, 1, size=8, train=False) as loader:
        assert len(list(loader)) == len(BLANK)
