"""Datasets with pictures in tiles, also of more than 65,535 pixels a side: packed, loaded, grown, verified, mended."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.pictures.jpegs import picture
from support.pictures.tiffs import Pixels, pyramid, shown, tiled_tiff
from support.programs.cli_run import failed, succeeded

import fastpipe
from fastpipe.dataset.format.layout import INDEX_DTYPE, WIDE_INDEX_DTYPE
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import DatasetError, SampleError
from fastpipe.tools.verify.repair import repair
from fastpipe.tools.verify.verification import verify

WIDE = (70_000, 48)


def _write_photos(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        pixels = picture(90 + number, 70, "smooth", seed=number)
        Image.fromarray(pixels).save(folder / f"photo-{number}.jpg", quality=90)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos in one class, and in the other a picture that is too wide for a JPEG, and one of many bytes."""
    folder = tmp_path_factory.mktemp("tiled") / "source"
    _write_photos(folder / "photos", 6)
    slides = folder / "slides"
    slides.mkdir()
    # Repeated noise: it has the bytes of a slide, and takes little time to make.
    noise = np.tile(picture(700, 48), (1, 100, 1))
    (slides / "wide.tif").write_bytes(tiled_tiff(noise, side=16))
    large = np.tile(picture(500, 500), (4, 4, 1))
    (slides / "large.tif").write_bytes(tiled_tiff(large, side=256, colours="444"))
    return folder


@pytest.fixture(scope="module")
def packed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiled") / "packed"
    fastpipe.pack(source, folder)
    return folder


def _sample(data: fastpipe.Dataset, name: str) -> fastpipe.Dataset:
    return data.select([key.endswith(name) for key in data["key"]])


def _pixels(source: Path, name: str) -> Pixels:
    return shown(source / "slides" / name)


def test_the_index_is_wide_only_where_a_picture_needs_it(
    source: Path, packed: Path, tmp_path: Path
) -> None:
    records = np.load(packed / "index.npy")
    assert records.dtype == WIDE_INDEX_DTYPE
    assert WIDE_INDEX_DTYPE.itemsize == 58
    assert WIDE in list(zip(records["width"].tolist(), records["height"].tolist(), strict=True))
    assert json.loads((packed / "dataset.json").read_text())["index"]["is_wide"] is True
    shutil.copytree(source, tmp_path / "source")
    (tmp_path / "source/slides/wide.tif").unlink()
    fastpipe.pack(tmp_path / "source", tmp_path / "narrow")
    assert np.load(tmp_path / "narrow/index.npy").dtype == INDEX_DTYPE
    assert "is_wide" not in json.loads((tmp_path / "narrow/dataset.json").read_text())["index"]


@pytest.mark.parametrize("verify_bytes", [False, True])
@pytest.mark.parametrize("name", ["wide.tif", "large.tif"])
def test_crops_are_those_of_the_picture(
    source: Path, packed: Path, name: str, verify_bytes: bool
) -> None:
    whole = torch.from_numpy(_pixels(source, name)).permute(2, 0, 1)
    loader = fastpipe.loader(
        _sample(fastpipe.open(packed), name),
        1,
        size=40,
        crop=fastpipe.RandomCrop(count=60),
        fields=("image", "crop_box"),
        hflip=0.0,
        verify=verify_bytes,
    )
    for epoch in range(3):
        loader.set_epoch(epoch)
        (batch,) = loader
        for patch, box in zip(batch["image"][0], batch["crop_box"][0], strict=True):
            left, top, right, bottom = box.int().tolist()
            assert torch.equal(patch, whole[:, top:bottom, left:right])


def test_only_the_tiles_of_a_crop_are_read(packed: Path) -> None:
    data = _sample(fastpipe.open(packed), "large.tif")
    stored = int(PackedIndex(packed).records["size"].max())
    assert stored > 1 << 20
    loader = fastpipe.loader(data, 1, size=64, crop=fastpipe.RandomCrop(count=1), hflip=0.0)
    list(loader)
    # At most four tiles of 64.
    assert 0 < loader.stats().bytes_read < stored / 8


def test_a_grid_puts_the_picture_together_again(source: Path, packed: Path) -> None:
    loader = fastpipe.loader(
        _sample(fastpipe.open(packed), "wide.tif"),
        32,
        size=40,
        crop=fastpipe.Grid(stride=37),
        fields=("image", *fastpipe.GridAggregator.FIELDS),
        train=False,
    )
    aggregator = fastpipe.GridAggregator()
    wholes = []
    for batch in loader:
        for _, whole in aggregator.add(batch["image"].float(), batch):
            wholes.append(whole)
    (whole,) = wholes
    expected = torch.from_numpy(_pixels(source, "wide.tif")).permute(2, 0, 1)
    assert torch.equal(whole.round().to(torch.uint8), expected)


def test_resized_as_the_same_pixels_in_a_png(source: Path, packed: Path, tmp_path: Path) -> None:
    (tmp_path / "pngs").mkdir()
    Image.fromarray(_pixels(source, "large.tif")).save(tmp_path / "pngs/large.png")
    fastpipe.pack(tmp_path / "pngs", tmp_path / "packed")
    images = [
        next(iter(fastpipe.loader(data, 1, size=size, train=False, **options)))[0]
        for size in (224, (100, 300))
        for options in ({}, {"dtype": torch.uint16})
        for data in (
            _sample(fastpipe.open(packed), "large.tif"),
            fastpipe.open(tmp_path / "packed"),
        )
    ]
    for ours, expected in zip(images[::2], images[1::2], strict=True):
        assert torch.equal(ours, expected)


def test_single_samples(source: Path, packed: Path) -> None:
    data = _sample(fastpipe.open(packed), "wide.tif")
    image, label = data[0]
    assert label == data.class_to_idx["slides"]
    assert np.array_equal(image.permute(1, 2, 0), _pixels(source, "wide.tif"))


def test_verify_and_repair(source: Path, packed: Path, tmp_path: Path) -> None:
    shutil.copytree(packed, tmp_path / "data")
    report = verify(tmp_path / "data")
    assert report.findings == []
    index = tmp_path / "data/index.npy"
    good = index.read_bytes()
    index.write_bytes(good[:-30] + b"\1" + good[-29:])
    found = verify(tmp_path / "data")
    assert found.findings
    repair(tmp_path / "data", source, found)
    assert index.read_bytes() == good

    # A byte in a tile of the wide picture.
    records = np.load(tmp_path / "data/index.npy")
    record = records[records["width"] == WIDE[0]][0]
    shard = tmp_path / "data/shard-000000.tar"
    place = int(record["offset"]) + int(record["size"]) // 2
    data = bytearray(shard.read_bytes())
    data[place] ^= 0x10
    shard.chmod(0o644)
    shard.write_bytes(data)
    (damage, *_) = verify(tmp_path / "data").findings
    assert "the image has changed since it was packed" in damage.problem
    with pytest.raises(SampleError, match="the bytes have changed since they were packed"):
        list(
            fastpipe.loader(
                _sample(fastpipe.open(tmp_path / "data"), "wide.tif"), 1, size=32, verify=True
            )
        )
    repair(tmp_path / "data", source, verify(tmp_path / "data"))
    assert verify(tmp_path / "data").findings == []


def test_joined_with_a_dataset_of_small_pictures(
    source: Path, packed: Path, tmp_path: Path
) -> None:
    _write_photos(tmp_path / "more/photos", 3)
    fastpipe.pack(tmp_path / "more", tmp_path / "small")
    small = fastpipe.open(tmp_path / "small")
    wide = fastpipe.open(packed)
    for joined in (fastpipe.concat(small, wide), fastpipe.concat(wide, small)):
        assert sorted(joined["width"].tolist()) == sorted([*small["width"], *wide["width"]])
        loader = fastpipe.loader(joined, 1, size=32, crop=fastpipe.RandomCrop())
        assert sum(len(labels) for _, labels in loader) == len(joined)


def test_add_and_remove(source: Path, tmp_path: Path) -> None:
    _write_photos(tmp_path / "source/photos", 3)
    (tmp_path / "source/slides").mkdir()
    _write_photos(tmp_path / "source/slides", 1)
    data = tmp_path / "data"
    fastpipe.pack(tmp_path / "source", data)
    assert np.load(data / "index.npy").dtype == INDEX_DTYPE
    shutil.copy(source / "slides/wide.tif", tmp_path / "source/slides")
    fastpipe.add(tmp_path / "source", data)
    assert np.load(data / "v2/index.npy").dtype == WIDE_INDEX_DTYPE
    assert 70_000 in fastpipe.open(data)["width"]
    assert verify(data).findings == []
    fastpipe.remove(data, keys=["slides/wide.tif"])
    # The records of shards that stay are those of the version before.
    assert 70_000 not in fastpipe.open(data)["width"]
    assert verify(data).findings == []


def test_the_command_line(tmp_path: Path, packed: Path) -> None:
    slides = tmp_path / "slides"
    slides.mkdir()
    levels = [picture(301, 203), picture(150, 101)]
    for number in range(3):
        (slides / f"{number}.svs").write_bytes(pyramid(levels))
        (slides / f"{number}.tif").write_bytes(pyramid(levels))
    output = succeeded("pack", slides, tmp_path / "data", "--level", 1)
    assert "6 of 6 files" in output
    assert set(fastpipe.open(tmp_path / "data")["width"].tolist()) == {150}
    options = json.loads((tmp_path / "data/dataset.json").read_text())["packs"][0]["options"]
    assert options["level"] == 1
    refused = failed(1, "pack", slides, tmp_path / "none", "--level", 7, "--on-error", "fail")
    assert "it has no level 7; its levels are 0: 301 x 203, 1: 150 x 101 pixels" in refused
    assert "in tiles 6, so that a crop reads only the tiles that it touches" in " ".join(
        output.split()
    )
    assert "sound" in succeeded("verify", packed)
    assert "JPEG; 2 in tiles" in succeeded("inspect", packed, "--no-sheet")


def test_a_source_that_is_not_packed(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "source/slides"
    folder.mkdir(parents=True)
    shutil.copy(source / "slides/large.tif", folder)
    loader = fastpipe.loader(tmp_path / "source", 1, size=64, train=False)
    fastpipe.pack(folder, tmp_path / "packed")
    packed_loader = fastpipe.loader(tmp_path / "packed", 1, size=64, train=False)
    assert torch.equal(next(iter(loader))[0], next(iter(packed_loader))[0])
    (folder / "large.tif").unlink()
    shutil.copy(source / "slides/wide.tif", folder)
    with pytest.raises(DatasetError, match="pack it first"):
        fastpipe.open(tmp_path / "source")


def test_as_a_field_it_is_decoded(source: Path, tmp_path: Path) -> None:
    """Second pictures are JPEGs or PNGs."""
    tiff = tiled_tiff(picture(90, 70))
    with fastpipe.Writer(tmp_path / "data", fields={"other": "image"}) as writer:
        writer.add(tiff, other=tiff)
    data = fastpipe.open(tmp_path / "data")
    batch = next(iter(fastpipe.loader(data, 1, size=64, train=False, fields=("image", "other"))))
    assert batch["other"].shape == batch["image"].shape
    assert (batch["other"].float() - batch["image"].float()).abs().mean() < 8


def test_crops_of_a_webdataset_pipeline() -> None:
    from fastpipe import wds

    tiff = tiled_tiff(picture(300, 200))
    crop = wds.crop(64, train=False)
    sample = crop({"__key__": "a", "tif": tiff, "cls": 1})
    assert np.asarray(sample["tif"]).shape[-2:] == (64, 64)
