"""Fields of maps: rows of numbers that lie on their image, cropped, resized and mirrored with it."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import kornia.augmentation
import numpy as np
import pytest
import torch
from PIL import Image
from support.remote.range_server import RangeServer
from support.running.soak import Tried, times
from torch.nn.functional import interpolate

import fastpipe
from fastpipe import Maps
from fastpipe.dataset.format.description import with_self_checksum
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, DatasetError, PackError, SampleError

COUNT = 24
# The long form: FASTPIPE_MAPS=10000 pytest tests/loading/test_maps.py -k torch
ROWS = int(os.environ.get("FASTPIPE_MAPS", times(600, 10_000)))
FIELDS = dict.fromkeys(("depth", "flow", "bands", "half", "level"), "map")


def values_of(number: int, height: int, width: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    return {
        "depth": rng.random((height, width), np.float32),
        "flow": rng.normal(size=(height, width, 2)).astype(np.float32),
        "bands": rng.integers(0, 65536, (height, width, 7), dtype=np.uint16),
        "half": rng.normal(size=(height, width, 1)).astype(np.float16),
        "level": rng.integers(0, 256, (height, width), dtype=np.uint8),
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Maps of each dtype, of the size of their images."""
    folder = tmp_path_factory.mktemp("maps") / "data"
    rng = np.random.default_rng(1)
    with fastpipe.Writer(folder, FIELDS) as writer:
        for number in range(COUNT):
            height, width = rng.integers(8, 70, 2).tolist()
            pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            writer.add(pixels, key=f"{number}", **values_of(number, height, width))
    return folder


def write(folder: Path, **values: Any) -> Path:
    """A dataset of one gray image of 40 x 20, with maps of these names."""
    with fastpipe.Writer(folder, dict.fromkeys(values, "map")) as writer:
        writer.add(np.zeros((20, 40, 3), np.uint8), key="one", **values)
    return folder


def damage_map(folder: Path, name: str, sample: int) -> None:
    """Changes the last byte of a map."""
    index = PackedIndex(folder)
    record = np.load(folder / "fields" / f"{name}.npy")[sample]
    shard = index.shards[int(index.records["shard"][sample])].path
    with open(shard, "r+b") as file:
        file.seek(int(record["offset"] + record["size"]) - 1)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([last ^ 1]))


def row_of(values: torch.Tensor, box: Any, *, flip: bool, size: Any, mode: str) -> torch.Tensor:
    """What torchvision's `resized_crop` of a tensor makes: crop, torch's interpolate, mirror."""
    left, top, right, bottom = (int(edge) for edge in box)
    planes = values if values.ndim == 3 else values[None]
    crop = planes[:, top:bottom, left:right][None].float()
    options = {"antialias": True} if mode == "bilinear" else {}
    row = interpolate(crop, size, mode=mode, **options)[0]
    if not values.dtype.is_floating_point:
        row = row.round()
    return row.flip(-1) if flip else row


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_rows_are_those_of_torch(data: Path, mode: str, tried: Tried) -> None:
    whole = fastpipe.open(data).with_fields(list(FIELDS))
    fields: list[Any] = ["image", "id", "mirrored", "crop_box"]
    for name in FIELDS:
        signs = (0,) if name == "flow" else None
        fields.append(Maps(name, interpolation=mode, flip_signs=signs))
    compared = 0
    for size in (16, (5, 33), 60):
        with fastpipe.loader(data, 6, size=size, fields=fields, num_workers=2) as loader:
            while compared < ROWS * (1 + (16, (5, 33), 60).index(size)) // 3:
                for batch in loader:
                    for row, number in enumerate(batch["id"].tolist()):
                        stored = whole[number]
                        for name in FIELDS:
                            flip = bool(batch["mirrored"][row])
                            expected = row_of(
                                stored[name].as_subclass(torch.Tensor),
                                batch["crop_box"][row],
                                flip=flip,
                                size=batch["image"].shape[2:],
                                mode=mode,
                            )
                            if name == "flow" and flip:
                                expected[0] = -expected[0]
                            got = batch[name][row]
                            expected = expected.to(got.dtype).reshape(got.shape)
                            assert torch.equal(got, expected), (name, number)
                            compared += 1
    tried(f"rows of maps, {mode}", compared, "the numbers of torch's interpolate, bit for bit")


def test_a_batch_has_their_dtypes_and_shapes(data: Path) -> None:
    names = ["image", "depth", "bands", "half", "level"]
    with fastpipe.loader(data, 4, size=(8, 12), fields=names, num_workers=1) as loader:
        batch = next(iter(loader))
    assert list(batch) == names
    found = {name: (batch[name].dtype, tuple(batch[name].shape)) for name in names[1:]}
    assert found == {
        "depth": (torch.float32, (4, 8, 12)),
        "bands": (torch.uint16, (4, 7, 8, 12)),
        "half": (torch.float16, (4, 1, 8, 12)),
        "level": (torch.uint8, (4, 8, 12)),
    }


def test_single_samples_have_them_whole_and_cropped(data: Path) -> None:
    dataset = fastpipe.open(data).with_fields(["image", *FIELDS])
    sample = dataset[3]
    height, width = sample["image"].shape[1:]
    expected = values_of(3, height, width)
    assert torch.equal(
        sample["depth"].as_subclass(torch.Tensor), torch.from_numpy(expected["depth"])
    )
    assert tuple(sample["depth"].shape) == (height, width)
    assert tuple(sample["flow"].shape) == (2, height, width)
    cropped = fastpipe.open(data).cropped(fastpipe.CenterCrop(), 16, hflip=1.0)
    signed = [Maps(name, flip_signs=(0,)) if name == "flow" else name for name in FIELDS]
    cropped = cropped.with_fields(["image", *signed])
    options: dict[str, Any] = {"train": False, "hflip": 1.0, "num_workers": 1}
    with fastpipe.loader(data, COUNT, size=16, fields=["id", *signed], **options) as loader:
        batch = next(iter(loader))
    for row, number in enumerate(batch["id"].tolist()):
        for name in FIELDS:
            single = cropped[number][name].as_subclass(torch.Tensor)
            assert torch.equal(single, batch[name][row]), name


@pytest.mark.parametrize("hole", [0.0, float("nan"), -1.0])
def test_holes_do_not_bleed(tmp_path: Path, hole: float) -> None:
    """The mean of the valid numbers by their weights, as long as they have half of it."""
    rng = np.random.default_rng(5)
    values = rng.uniform(5, 9, (20, 40)).astype(np.float32)
    is_hole = rng.random((20, 40)) < 0.3
    is_hole[4:12, 10:30] = True
    values[is_hole] = hole
    folder = write(tmp_path / "data", depth=values)
    invalid = None if np.isnan(hole) else hole
    fields = ["image", Maps("depth", invalid=invalid)]
    with fastpipe.loader(
        folder, 1, size=(9, 17), fields=fields, crop=fastpipe.Resize(), train=False, num_workers=1
    ) as loader:
        got = next(iter(loader))["depth"][0]

    def resized(planes: Any) -> torch.Tensor:
        plane = torch.from_numpy(np.asarray(planes, np.float32))[None, None]
        return interpolate(plane, (9, 17), mode="bilinear", antialias=True)[0, 0]

    weights = resized(~is_hole)
    means = resized(np.where(is_hole, 0, values)) / weights
    known = weights >= 0.5
    assert 0 < int(known.sum()) < known.numel()
    assert torch.allclose(got[known], means[known], rtol=1e-6)
    assert float(got[known].min()) >= 5
    holes = got[~known]
    assert bool(torch.isnan(holes).all()) if np.isnan(hole) else bool((holes == hole).all())


def test_a_map_of_another_scale_lies_on_the_same_part(tmp_path: Path) -> None:
    """A quarter of the image's size; its numbers say where they are."""
    columns = np.broadcast_to(np.arange(10, dtype=np.float32), (5, 10))
    folder = write(tmp_path / "data", place=columns)
    crop = fastpipe.CenterCrop(resize=20)
    fields = ["image", "place", "crop_box"]
    with fastpipe.loader(
        folder, 1, size=20, crop=crop, fields=fields, train=False, num_workers=1
    ) as loader:
        batch = next(iter(loader))
    assert batch["crop_box"].tolist() == [[10, 0, 30, 20]]
    row = batch["place"][0]
    assert row.shape == (20, 20)
    # Pixel x of the row is at 10 + x + 0.5 of the image, and at a quarter of this in the map.
    expected = (10 + np.arange(20) + 0.5) / 4 - 0.5
    assert np.allclose(row.numpy(), expected, atol=0.13)  # half a pixel of the image


def test_directions_are_mirrored_if_the_user_says_which(data: Path) -> None:
    options: dict[str, Any] = {"size": 16, "num_workers": 1}
    with pytest.raises(ConfigError, match=r"'flow' has maps of two or three.*flip_signs=\(0,\)"):
        fastpipe.loader(data, 4, fields=["image", "flow"], **options)
    with pytest.raises(ConfigError, match="pass hflip=False"):
        fastpipe.loader(data, 4, fields=["image", "flow"], **options)
    fastpipe.loader(data, 4, fields=["image", "flow"], hflip=False, **options).close()
    by_signs = {}
    for signs in ((), (0,), (0, 1)):
        fields = ["image", Maps("flow", flip_signs=signs), "mirrored"]
        with fastpipe.loader(data, 8, fields=fields, **options) as loader:
            batch = next(iter(loader))
        by_signs[signs] = batch["flow"]
        mirrored = batch["mirrored"]
    assert 0 < int(mirrored.sum()) < 8
    plain = by_signs[()]
    factor = torch.where(mirrored, -1.0, 1.0)[:, None, None]
    assert torch.equal(by_signs[0,][:, 0], plain[:, 0] * factor)
    assert torch.equal(by_signs[0,][:, 1], plain[:, 1])
    assert torch.equal(by_signs[0, 1], plain * factor[:, None])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "flow", "flip_signs": (2,)}, "flip_signs= has channels of floats, from 0 to 1"),
        ({"name": "bands", "flip_signs": (0,)}, "the maps are uint16"),
        ({"name": "depth", "interpolation": "bicubic"}, "'auto', 'bilinear' or 'nearest'"),
        ({"name": "depth", "invalid": "none"}, "expected a number, such as 0"),
        ({"name": "flow", "flip_signs": 0}, r"expected numbers of channels.*such as \(0,\)"),
        ({"name": "image"}, "'image' is not a field"),
        ({"name": "depht"}, "did you mean 'depth'"),
    ],
)
def test_what_cannot_be_is_refused(data: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fastpipe.loader(data, 4, size=8, fields=["image", Maps(**options)], num_workers=1)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("invalid", [None, -7.0])
def test_outside_of_the_image_stands_invalid_or_0(
    tmp_path: Path, mode: str, invalid: float | None
) -> None:
    folder = write(tmp_path / "data", depth=np.full((20, 40), 3, np.float32))
    fields = ["image", Maps("depth", invalid=invalid, interpolation=mode)]
    with fastpipe.loader(
        folder, 1, size=40, crop=fastpipe.Letterbox(), fields=fields, train=False, num_workers=1
    ) as loader:
        row = next(iter(loader))["depth"][0]
    outside = 0.0 if invalid is None else invalid
    assert bool((row[10:30] == 3).all())
    assert bool((row[:10] == outside).all())
    assert bool((row[30:] == outside).all())


def test_a_padded_crop_repeats_what_its_mode_says(data: Path) -> None:
    """As masks are: each number of a padded row is where the mask has the same one."""
    folder = data.parent / "edges"
    ids = np.arange(200, dtype=np.uint8).reshape(10, 20)
    with fastpipe.Writer(folder, {"seg": "mask", "level": "map", "real": "map"}) as writer:
        pixels = np.zeros((10, 20, 3), np.uint8)
        writer.add(pixels, key="one", seg=ids, level=ids, real=ids.astype(np.float32))
    for mode in ("edge", "reflect", "symmetric", "constant"):
        crop = fastpipe.RandomCrop(padding=6, padding_mode=mode)
        with fastpipe.loader(
            folder, 1, size=(9, 18), crop=crop, fields=["image", "seg", "level", "real"],
            num_workers=1, drop_last=False,
        ) as loader:  # fmt: skip
            for _ in range(12):
                (batch,) = loader
                assert torch.equal(batch["level"], batch["seg"])
                assert torch.equal(batch["real"], batch["seg"].float())


def test_rows_of_own_sizes_have_maps_of_these_sizes(data: Path) -> None:
    size = fastpipe.Native(max_pixels=40 * 40, multiple=8, min_pixels=64)
    fields = ["image", "depth", "bands"]
    with fastpipe.loader(data, 5, size=size, fields=fields, num_workers=2) as loader:
        for batch in loader:
            for image, depth, bands in zip(*batch.values(), strict=True):
                assert depth.shape == image.shape[1:]
                assert bands.shape == (7, *image.shape[1:])
    whole = fastpipe.open(data).with_fields(["image", "depth", "id"])
    kept = fastpipe.Native(max_pixels=70 * 70, multiple=1, min_pixels=1)
    fields = ["image", Maps("depth", interpolation="nearest"), "id"]
    with fastpipe.loader(data, 4, size=kept, fields=fields, train=False, num_workers=1) as loader:
        for batch in loader:
            for number, depth in zip(batch["id"].tolist(), batch["depth"], strict=True):
                assert torch.equal(depth, whole[number]["depth"].as_subclass(torch.Tensor))


def test_several_crops_and_views_have_maps_of_their_own(data: Path) -> None:
    fields = ["image", "depth", "half"]
    with fastpipe.loader(
        data, 3, size=8, crop=fastpipe.FiveCrop(), fields=fields, train=False, num_workers=1
    ) as loader:
        batch = next(iter(loader))
    assert batch["depth"].shape == (3, 5, 8, 8)
    assert batch["half"].shape == (3, 5, 1, 8, 8)
    with fastpipe.loader(data, 3, size=8, views=2, fields=fields, num_workers=1) as loader:
        batch = next(iter(loader))
    assert [view.shape for view in batch["depth"]] == [(3, 8, 8)] * 2
    assert not torch.equal(*batch["depth"])


@pytest.mark.parametrize("invalid", [None, float("nan"), -1.0])
def test_kornia_moves_them_as_masks(data: Path, invalid: float | None) -> None:
    fields = ["image", Maps("depth", invalid=invalid), "bands"]
    turn = kornia.augmentation.AugmentationSequential(
        kornia.augmentation.RandomRotation((90.0, 90.0), p=1.0),
        data_keys=["input", "mask"],
        same_on_batch=True,
    )
    options: dict[str, Any] = {"size": 16, "fields": fields, "train": False, "num_workers": 1}
    with fastpipe.loader(data, 4, **options) as loader:
        plain = next(iter(loader))
    with fastpipe.loader(data, 4, augment=turn, **options) as loader:
        turned = next(iter(loader))
    for name in ("depth", "bands"):
        assert turned[name].dtype == plain[name].dtype
        inner = (..., slice(1, -1), slice(1, -1))  # at the border kornia may take what is outside
        expected = plain[name].float().rot90(1, (-2, -1))
        assert torch.equal(turned[name].float()[inner], expected[inner])
    directed = ["image", Maps("flow", flip_signs=(0,))]
    with pytest.raises(ConfigError, match="directions would have to turn with the pixels"):
        fastpipe.loader(data, 4, augment=turn, **{**options, "fields": directed})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros((20, 40), np.float64), r"got float64; convert it, .*astype\(\"float32\"\)"),
        (np.zeros((2, 20, 40), np.float32), "in the shape of the sample's image, 40 x 20 pixels"),
        (np.zeros((40, 20), np.float32), "got 20 x 40"),
        (np.zeros(20, np.float32), r"shape \(height, width\) or \(height, width, channels\)"),
        (np.zeros((0, 40), np.float32), "of 1 to 65,535 pixels a side"),
        (np.zeros((20, 40, 0), np.uint8), "of 1 to 4,096 channels"),
        (None, "expected a value of kind map, got none"),
        ("depth.npy", "'depth.npy' does not exist"),
    ],
)
def test_a_map_that_cannot_be_is_rejected(tmp_path: Path, value: Any, words: str) -> None:
    with pytest.raises(PackError, match=words):
        write(tmp_path / "data", depth=value)


def test_a_sample_without_an_image_has_no_map(tmp_path: Path) -> None:
    writer = fastpipe.Writer(tmp_path / "data", {"depth": "map"})
    with pytest.raises(PackError, match="a field of kind map lies on the image"), writer:
        writer.add(key="one", depth=np.zeros((4, 4), np.float32))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("exif", ["apply", "ignore"])
def test_they_are_turned_with_their_image(tmp_path: Path, orientation: int, exif: str) -> None:
    """The image's own pixels, as a map of the image as it is stored."""
    pixels = np.arange(12 * 20, dtype=np.uint8).reshape(12, 20)
    file = io.BytesIO()
    tags = Image.Exif()
    tags[0x0112] = orientation
    Image.fromarray(pixels).save(file, "PNG", exif=tags)
    folder = tmp_path / "data"
    with fastpipe.Writer(folder, {"copy": "map"}, exif=exif) as writer:
        writer.add(file.getvalue(), key="one", copy=pixels)
    sample = fastpipe.open(folder).with_fields(["image", "copy"])[0]
    assert torch.equal(torch.as_tensor(sample["image"])[0], torch.as_tensor(sample["copy"]))


def test_directions_of_a_turned_image_are_rejected(tmp_path: Path) -> None:
    file = io.BytesIO()
    tags = Image.Exif()
    tags[0x0112] = 6
    Image.new("RGB", (20, 12)).save(file, "JPEG", exif=tags)
    writer = fastpipe.Writer(tmp_path / "data", {"flow": "map"}, exif="apply")
    with pytest.raises(PackError, match="may have directions, which would have to turn"), writer:
        writer.add(file.getvalue(), key="one", flow=np.zeros((12, 20, 2), np.float32))


def test_they_go_through_tars_and_back(data: Path, tmp_path: Path) -> None:
    """A WebDataset of it, and a dataset of that."""
    fastpipe.pack(data, tmp_path / "again", workers=1)
    again = fastpipe.open(tmp_path / "again")
    assert again.fields["bands"].shape == (None, None, 7)
    first = fastpipe.open(data).with_fields(["key", *FIELDS])
    second = again.with_fields(["key", *FIELDS])
    by_key = {sample["key"]: sample for sample in second}
    for sample in first:
        for name in FIELDS:
            assert torch.equal(sample[name], by_key[sample["key"]][name])


def test_damage_is_found_where_hashes_are_compared(data: Path, copied: Any) -> None:
    folder = copied(data)
    damage_map(folder, "depth", 5)
    options: dict[str, Any] = {"size": 8, "fields": ["image", "depth", "id"], "num_workers": 1}
    with (
        pytest.raises(SampleError, match="XXH3-64"),
        fastpipe.loader(folder, 4, verify=True, **options) as loader,
    ):
        list(loader)
    with fastpipe.loader(folder, 4, verify=True, on_error="replace", **options) as loader:
        ids = [number for batch in loader for number in batch["id"].tolist()]
    assert len(ids) == COUNT
    assert loader.stats().replaced == 1


@pytest.mark.parametrize("shape", [(60_000, 60_000), (1, 70_000), (0, 5)])
def test_a_record_that_is_impossible_is_named(data: Path, copied: Any, shape: Any) -> None:
    folder = copied(data)
    records = np.load(folder / "fields" / "depth.npy", mmap_mode="r+")
    header_bytes = int(records["size"][7]) - 4 * int(records["shape"][7].prod())
    records["shape"][7] = shape
    if shape != (60_000, 60_000):
        records["size"][7] = header_bytes + 4 * shape[0] * shape[1]
    records.flush()
    with (
        pytest.raises(DatasetError, match=r"the record of sample 7 is impossible"),
        fastpipe.loader(folder, 8, size=8, fields=["image", "depth"], num_workers=1) as loader,
    ):
        list(loader)


def maps_of(data: Any, epoch: int = 0, **options: Any) -> dict[int, bytes]:
    """The maps of each sample of an epoch, by its number."""
    fields: list[Any] = ["image", "id", "depth", Maps("flow", flip_signs=(0,)), "bands", "half"]
    found = {}
    with fastpipe.loader(
        data, 4, size=12, fields=fields, seed=3, num_workers=2, drop_last=False, **options
    ) as loader:
        loader.set_epoch(epoch)
        for batch in loader:
            for row, number in enumerate(batch["id"].tolist()):
                values = [batch[name][row] for name in ("depth", "flow", "bands", "half")]
                found[number] = b"".join(value.contiguous().numpy().tobytes() for value in values)
    return found


def test_ranks_and_a_url_give_the_same(data: Path, tmp_path: Path) -> None:
    expected = maps_of(data, epoch=2)
    assert len(expected) == COUNT
    assert maps_of(data, epoch=1) != expected
    for world_size in (2, 4):
        together: dict[int, bytes] = {}
        for rank in range(world_size):
            together |= maps_of(data, epoch=2, rank=rank, world_size=world_size)
        assert together == expected
    with RangeServer(data) as server:
        remote = fastpipe.open(server.url, cache_dir=tmp_path / "cache")
        assert maps_of(remote, epoch=2) == expected
        whole = remote.with_fields(["depth"])[5]["depth"]
        assert torch.equal(whole, fastpipe.open(data).with_fields(["depth"])[5]["depth"])


def test_a_resumed_epoch_gives_the_others(data: Path) -> None:
    options: dict[str, Any] = {"size": 12, "fields": ["image", "depth", "bands"], "num_workers": 2}
    with fastpipe.loader(data, 4, **options) as loader:
        batches = iter(loader)
        next(batches)
        next(batches)
        state = loader.state_dict()
        expected = list(batches)
    with fastpipe.loader(data, 4, **options) as loader:
        loader.load_state_dict(state)
        for batch, other in zip(loader, expected, strict=True):
            assert torch.equal(batch["depth"], other["depth"])
            assert torch.equal(batch["bands"], other["bands"])


def test_datasets_are_joined_only_if_their_maps_agree(data: Path, tmp_path: Path) -> None:
    joined = fastpipe.concat(data, data)
    with fastpipe.loader(joined, 8, size=8, fields=["image", "bands"], num_workers=1) as loader:
        assert next(iter(loader))["bands"].shape == (8, 7, 8, 8)
    other = write(tmp_path / "other", bands=np.zeros((20, 40, 3), np.uint16))
    assert "bands" not in fastpipe.concat(data, other).fields


@pytest.mark.parametrize("other", [np.zeros((20, 40, 3), np.uint8), np.zeros((20, 40), np.uint8)])
def test_maps_of_other_channels_are_rejected(tmp_path: Path, other: Any) -> None:
    with fastpipe.Writer(tmp_path / "data", {"bands": "map"}) as writer:
        pixels = np.zeros((20, 40, 3), np.uint8)
        writer.add(pixels, key="one", bands=np.zeros((20, 40, 2), np.uint8))
        writer.add(pixels, key="two", bands=other)
        writer.add(pixels, key="three", bands=np.zeros((10, 20, 2), np.uint8))
    ((key, reason),) = writer.summary.tally.rejected
    assert key == "two"
    assert "expected uint8 of the shape (height, width, 2), as in the samples before" in reason
    assert len(fastpipe.open(tmp_path / "data")) == 2


@pytest.mark.parametrize("shape", [[None, None, None], [None, None, 0], [None, None, 5000], [7]])
def test_a_description_of_other_shapes_is_refused(data: Path, copied: Any, shape: Any) -> None:
    folder = copied(data)
    info = json.loads((folder / "dataset.json").read_bytes())
    info["fields"]["bands"]["shape"] = shape
    (folder / "dataset.json").write_bytes(with_self_checksum(info)[1])
    with pytest.raises(DatasetError, match=r"the shape \(height, width\) or \(height, width, 1 to"):
        fastpipe.open(folder)
