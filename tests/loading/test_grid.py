"""Tests of crop=Grid and GridAggregator: large images as patches, and outputs put together again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.datasets.packed import damage
from support.pictures.drawn import smooth_noise

import fastpipe
from fastpipe.errors import ConfigError, SampleError

pytestmark = [pytest.mark.usefixtures("one_thread")]

SHAPES = [(64, 48), (100, 61), (32, 32), (20, 90), (33, 32), (9, 11)]  # width, height
FIELDS = ("image", "label", *fastpipe.GridAggregator.FIELDS)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "data"
    with fastpipe.Writer(folder, {"mask": "mask"}, classes=["a", "b"]) as writer:
        for number, (width, height) in enumerate(SHAPES * 2):
            mask = np.full((height, width), number, dtype=np.uint8)
            picture = smooth_noise(width, height, seed=number)
            writer.add(picture, label=number % 2, mask=mask)
    return folder


def grid_loader(data: Path | fastpipe.Dataset, **options: Any) -> fastpipe.Loader:
    defaults: dict[str, Any] = {
        "size": 32,
        "crop": fastpipe.Grid(stride=20),
        "train": False,
        "fields": FIELDS,
        "num_workers": 1,
    }
    return fastpipe.loader(data, 7, **{**defaults, **options})


def add_all(aggregator: fastpipe.GridAggregator, loader: fastpipe.Loader) -> None:
    """Adds the images of a loader's batches as the outputs for them."""
    for batch in loader:
        aggregator.add(batch["image"].float(), batch)


def starts(side: int, patch: int, stride: int) -> list[int]:
    """Where patches begin: every `stride` pixels, the last one at the edge."""
    places = list(range(0, max(side - patch, 0), stride))
    return [*places, max(side - patch, 0)]


@pytest.mark.parametrize(("size", "stride"), [(32, 20), (32, None), ((16, 24), (16, 7)), (40, 40)])
def test_patches_are_pillows_crops_in_order(images: Path, size: Any, stride: Any) -> None:
    dataset = fastpipe.open(images)
    height, width = (size, size) if isinstance(size, int) else size
    steps = size if stride is None else stride
    down, right = (steps, steps) if isinstance(steps, int) else steps
    expected = []
    for number, (image_width, image_height) in enumerate(SHAPES * 2):
        picture = Image.fromarray(dataset[number][0].permute(1, 2, 0).numpy())
        places = [
            (x, y)
            for y in starts(image_height, height, down)
            for x in starts(image_width, width, right)
        ]
        for patch, (x, y) in enumerate(places):
            pixels = np.asarray(picture.crop((x, y, x + width, y + height)))
            expected.append((number, patch, len(places), pixels))
    rows = 0
    with grid_loader(images, size=size, crop=fastpipe.Grid(stride=stride)) as loader:
        assert len(loader) == -(-len(expected) // 7)
        for batch in loader:
            for row in range(len(batch["id"])):
                number, patch, count, pixels = expected[rows]
                assert batch["id"][row] == number
                assert batch["patch"][row].tolist() == [patch, count]
                assert batch["label"][row] == number % 2
                assert np.array_equal(batch["image"][row].permute(1, 2, 0).numpy(), pixels)
                rows += 1
    assert rows == len(expected)


@pytest.mark.parametrize("num_workers", [1, 3])
def test_an_image_is_read_once_for_neighbouring_patches(images: Path, num_workers: int) -> None:
    with grid_loader(images, size=16, crop=fastpipe.Grid(stride=5)) as loader:
        expected = [batch["image"] for batch in loader]
    with grid_loader(
        images, size=16, crop=fastpipe.Grid(stride=5), num_workers=num_workers
    ) as loader:
        for batch, patches in zip(loader, expected, strict=True):
            assert torch.equal(batch["image"], patches)
        stats = loader.stats()
    # Seven patches of a batch are mostly of one image, and each thread gets its part of them.
    assert stats.images_read < 0.3 * num_workers * stats.images_decoded


def test_a_damaged_image_is_named(images: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(images, tmp_path / "copy"))
    damage(folder, 2)
    with grid_loader(folder) as loader, pytest.raises(SampleError, match="sample 2"):
        list(loader)


def test_shuffled_and_on_ranks_each_patch_comes_once(images: Path) -> None:
    with grid_loader(images) as loader:
        ordered = [
            (int(number), int(patch))
            for batch in loader
            for number, (patch, _) in zip(batch["id"], batch["patch"].tolist(), strict=True)
        ]
    patches = []
    for rank in range(2):
        options: dict[str, Any] = {"rank": rank, "world_size": 2, "train": True, "drop_last": False}
        with grid_loader(images, hflip=False, **options) as loader:
            for batch in loader:
                for row in torch.nonzero(batch["valid"])[:, 0].tolist():
                    patches.append((int(batch["id"][row]), int(batch["patch"][row][0])))
    assert sorted(patches) == sorted(ordered)
    assert patches[: len(patches) // 2] != ordered[: len(patches) // 2]


def test_a_resumed_run_has_the_same_patches(images: Path) -> None:
    with grid_loader(images, train=True) as loader:
        whole = [list(loader), list(loader)]
        loader.set_epoch(1)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
    with grid_loader(images, train=True) as loader:
        loader.load_state_dict(state)
        rest = list(loader)
    assert len(rest) == len(whole[1]) - 1
    for batch, other in zip(rest, whole[1][1:], strict=True):
        assert torch.equal(batch["image"], other["image"])
        assert torch.equal(batch["patch"], other["patch"])
    assert not torch.equal(whole[0][0]["id"], whole[1][0]["id"])
    with (
        grid_loader(images, train=True, crop=fastpipe.Grid(stride=16)) as loader,
        pytest.raises(ConfigError, match="the state does not fit this loader: grid was"),
    ):
        loader.load_state_dict(state)


@pytest.mark.parametrize("stride", [20, None, 7])
def test_patches_put_together_are_the_image(images: Path, stride: Any) -> None:
    dataset = fastpipe.open(images)
    aggregator = fastpipe.GridAggregator()
    numbers = []
    with grid_loader(images, crop=fastpipe.Grid(stride=stride)) as loader:
        for batch in loader:
            for number, whole in aggregator.add(batch["image"].float(), batch):
                assert torch.equal(whole, dataset[number][0].float())
                numbers.append(number)
    assert numbers == list(range(len(dataset)))


def test_mirrored_patches_are_mirrored_back(images: Path) -> None:
    dataset = fastpipe.open(images)
    aggregator = fastpipe.GridAggregator()
    count = 0
    mirrored = []
    with grid_loader(images, hflip=0.5) as loader:
        for batch in loader:
            mirrored += batch["mirrored"].tolist()
            for number, whole in aggregator.add(batch["image"].float(), batch):
                assert torch.equal(whole, dataset[number][0].float())
                count += 1
    assert count == len(dataset)
    assert 0 < sum(mirrored) < len(mirrored)


def test_an_image_begins_anew_after_a_break(images: Path) -> None:
    dataset = fastpipe.open(images)
    aggregator = fastpipe.GridAggregator()
    count = 0
    with grid_loader(images) as loader:
        batch = next(iter(loader))
        aggregator.add(batch["image"].float() + 1, batch)
        for batch in loader:
            for number, whole in aggregator.add(batch["image"].float(), batch):
                assert torch.equal(whole, dataset[number][0].float())
                count += 1
    assert count == len(dataset)


def test_gathered_patches_of_ranks_are_put_together(images: Path) -> None:
    """Two epochs of three ranks, whose last batches repeat patches."""
    dataset = fastpipe.open(images)
    aggregator = fastpipe.GridAggregator()
    loaders = [grid_loader(images, rank=rank, world_size=3) for rank in range(3)]
    for _ in range(2):
        numbers = []
        for batches in zip(*loaders, strict=True):
            batch = {name: torch.cat([part[name] for part in batches]) for name in FIELDS}
            for number, whole in aggregator.add(batch["image"].float(), batch):
                assert torch.equal(whole, dataset[number][0].float())
                numbers.append(number)
        assert sorted(numbers) == list(range(len(dataset)))
    for loader in loaders:
        loader.close()


def test_a_sample_without_an_image_is_one_patch(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "data", {"text": "text"}) as writer:
        writer.add(smooth_noise(64, 40, seed=0), key="a", label=0, text="with")
        writer.add(key="b", label=0, text="without")
    fields = ("id", "text", "patch")
    with grid_loader(tmp_path / "data", fields=fields, crop=fastpipe.Grid()) as loader:
        (batch,) = loader
    assert batch["patch"].tolist() == [[0, 4], [1, 4], [2, 4], [3, 4], [0, 1]]
    assert batch["text"] == ["with"] * 4 + ["without"]


def test_a_large_batch_has_the_same_patches(images: Path) -> None:
    with grid_loader(images, size=16, crop=fastpipe.Grid(stride=1)) as loader:
        expected = torch.cat([batch["image"] for batch in loader])
    with fastpipe.loader(
        images,
        4096,
        size=16,
        crop=fastpipe.Grid(stride=1),
        train=False,
        fields=("image",),
        num_workers=1,
    ) as large:
        patches = torch.cat([batch["image"] for batch in large])
    assert torch.equal(patches, expected)


def test_a_window_makes_seams_invisible(images: Path) -> None:
    """Outputs that differ from patch to patch change in steps where they are averaged, and not with a window."""

    def largest_step(window: str) -> float:
        aggregator = fastpipe.GridAggregator(window)
        steps = []
        with grid_loader(images) as loader:
            for batch in loader:
                levels = (batch["patch"][:, 0] % 2).float()
                outputs = levels[:, None, None, None].expand(-1, 1, 32, 32)
                for _, whole in aggregator.add(outputs, batch):
                    if whole.shape[2] > 32:
                        steps.append(float(whole[0].diff(dim=1).abs().max()))
        return max(steps)

    assert largest_step("mean") >= 0.5
    assert largest_step("hann") < 0.25


def test_outputs_of_a_stride_are_put_together(images: Path) -> None:
    dataset = fastpipe.open(images)
    data = dataset.select(
        lambda columns: (columns["width"] % 4 == 0) & (columns["height"] % 4 == 0)
    )
    aggregator = fastpipe.GridAggregator()
    count = 0
    with grid_loader(data, size=16, crop=fastpipe.Grid(stride=8)) as loader:
        for batch in loader:
            outputs = torch.nn.functional.avg_pool2d(batch["image"].double(), 4)
            for number, whole in aggregator.add(outputs, batch):
                image = data[number][0].double()
                assert torch.allclose(whole, torch.nn.functional.avg_pool2d(image, 4))
                count += 1
    assert count == len(data)
    with grid_loader(images, crop=fastpipe.Grid(stride=7)) as loader:
        batch = next(iter(loader))
    outputs = torch.nn.functional.avg_pool2d(batch["image"].float(), 4)
    with pytest.raises(ConfigError, match=r"begins at x=1\.75, y=0 of the outputs, between two"):
        aggregator.add(outputs, batch)


def test_wrong_outputs(images: Path) -> None:
    aggregator = fastpipe.GridAggregator()
    with grid_loader(images) as loader:
        batch = next(iter(loader))
    with pytest.raises(ConfigError, match="expected outputs of a floating dtype"):
        aggregator.add(batch["image"], batch)
    with pytest.raises(ConfigError, match=r"for the 7 patches of the batch, got \(3, 3, 32, 32\)"):
        aggregator.add(batch["image"][:3].float(), batch)
    without = {name: value for name, value in batch.items() if name != "patch"}
    with pytest.raises(ConfigError, match=r"has no patch; pass .*GridAggregator\.FIELDS"):
        aggregator.add(batch["image"].float(), without)
    with pytest.raises(ConfigError, match=r"the ratio of the patches, 32 x 32 .* got 16 x 32"):
        aggregator.add(batch["image"][..., ::2].float(), batch)
    with pytest.raises(ConfigError, match="'mean' or 'hann'"):
        fastpipe.GridAggregator("gauss")


def test_what_does_not_go_with_a_grid(images: Path) -> None:
    with pytest.raises(ConfigError, match=r"stride=\(40, 40\) is larger than the patches"):
        grid_loader(images, crop=fastpipe.Grid(stride=40))
    with pytest.raises(ConfigError, match=r"Grid\(stride=\): expected a number or"):
        fastpipe.Grid(stride=(1, 2, 3))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Grid gives as many rows as an image has parts"):
        fastpipe.open(images).cropped(fastpipe.Grid(), 32)
    with grid_loader(images) as loader:
        with pytest.raises(
            ConfigError, match="cannot draw crop=Grid: it shows one crop of each image"
        ):
            fastpipe.preview(loader, "nowhere.png")
        with pytest.raises(ConfigError, match="how many patches an image has follows"):
            loader.set_size(16)
    with pytest.raises(ConfigError, match="patch"):
        fastpipe.loader(images, 4, size=16, fields=("image", "patch"))


def smoothed(images: torch.Tensor) -> torch.Tensor:
    """A model that sees 3 pixels in each direction, and zeros beyond the edges."""
    kernel = torch.ones(3, 1, 7, 7) / 49
    return torch.nn.functional.conv2d(images.float(), kernel, padding=3, groups=3)


@pytest.mark.parametrize("window", ["mean", "hann"])
def test_with_a_margin_the_whole_is_that_of_the_whole_image(images: Path, window: str) -> None:
    dataset = fastpipe.open(images)
    aggregator = fastpipe.GridAggregator(window, margin=3)
    count = 0
    with grid_loader(images, crop=fastpipe.Grid(stride=26)) as loader:
        for batch in loader:
            for number, whole in aggregator.add(smoothed(batch["image"]), batch):
                image = dataset[number][0]
                if min(image.shape[1:]) >= 32:  # smaller ones are padded with the loader's fill
                    expected = smoothed(image[None])[0]
                    torch.testing.assert_close(whole, expected, atol=1e-3, rtol=0)
                    count += 1
    assert count > 5


def test_a_margin_that_leaves_gaps_and_outputs_without_edges(images: Path) -> None:
    aggregator = fastpipe.GridAggregator(margin=3)
    with (
        grid_loader(images, crop=fastpipe.Grid(stride=30)) as loader,
        pytest.raises(ConfigError, match=r"with margin=3 no patch has some of the pixels"),
    ):
        add_all(aggregator, loader)
    with grid_loader(images) as loader:
        batch = next(iter(loader))
    cut = torch.nn.functional.avg_pool2d(batch["image"].float(), 7, stride=1)
    with pytest.raises(ConfigError, match=r"26 x 26 are no whole part of patches of 32 x 32"):
        fastpipe.GridAggregator().add(cut, batch)
    with pytest.raises(ConfigError, match="use one aggregator for each output"):
        fastpipe.GridAggregator().add((cut, cut), batch)  # type: ignore[arg-type]
