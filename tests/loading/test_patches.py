"""Batches of patches: the pixels of Native, in the models' order; budgets, ranks, states, damage."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.datasets.packed import damage
from support.sources.pack_sources import jpeg_bytes

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, DatasetError

COUNT = 40
MULTIPLE = 8
# Each of at most 24 tokens of 8 x 8 pixels.
OPTIONS: dict[str, Any] = {"max_tokens": 24}
NATIVE = fastpipe.Native(max_pixels=24 * 64, multiple=MULTIPLE)
PACKED = fastpipe.Patches(8, tokens=100, **OPTIONS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patches") / "data"
    fields = {
        "boxes": "boxes",
        "words": "int",
        "caption": "text",
        "seg": "mask",
        "latent": "array",
    }
    with fastpipe.Writer(folder, fields) as writer:
        for number in range(COUNT):
            width, height = 20 + number % 7 * 9, 20 + number % 5 * 11
            writer.add(
                jpeg_bytes((width, height), seed=number),
                label=number % 2,
                key=str(number),
                boxes=[[0, 0, width / 2, height]],
                words=number % 9,
                caption=f"caption {number}",
                seg=None,
                latent=np.full((2, 3), number, dtype=np.float32),
            )
    return folder


def images_of(data: Path, **options: Any) -> dict[int, torch.Tensor]:
    """The images that Native makes, (channels, height, width), by the numbers of their samples."""
    images = {}
    with fastpipe.loader(data, 7, size=NATIVE, train=False, **options) as loader:
        for batch in loader:
            images.update(zip(batch.ids.tolist(), batch.images, strict=True))
    return images


def cut(image: torch.Tensor, merge: int = 1, frames: int = 0) -> torch.Tensor:
    """The patches of an image by torch: (patches, numbers). `frames` > 0: channels come first."""
    channels, height, width = image.shape
    side = MULTIPLE // merge
    rows, columns = height // MULTIPLE, width // MULTIPLE
    squares = image.reshape(channels, rows, merge, side, columns, merge, side)
    if frames:
        squares = squares.permute(1, 4, 2, 5, 0, 3, 6)  # ..., channels, height, width of a patch
        patches = squares.reshape(-1, channels, 1, side, side)
        return patches.expand(-1, -1, frames, -1, -1).flatten(1)
    squares = squares.permute(1, 4, 2, 5, 3, 6, 0)
    return squares.reshape(-1, side * side * channels)


def coords_of(image: torch.Tensor, merge: int = 1) -> torch.Tensor:
    """Row and column of the patches of an image, in the order of `cut`."""
    side = MULTIPLE // merge
    rows, columns = image.shape[1] // side, image.shape[2] // side
    grid = torch.stack(torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"), -1)
    grid = grid.reshape(rows // merge, merge, columns // merge, merge, 2)
    return grid.permute(0, 2, 1, 3, 4).reshape(-1, 2)


def parts_of(batch: Any) -> list[torch.Tensor]:
    """The patches of each image of a packed batch."""
    edges = batch.cu_seqlens.tolist()
    return [batch.patches[start:stop] for start, stop in pairwise(edges)]


@pytest.mark.parametrize(("merge", "frames"), [(1, 0), (2, 0), (2, 2), (4, 1)])
def test_patches_are_cut_out_of_natives_images(data: Path, merge: int, frames: int) -> None:
    images = images_of(data)
    size = fastpipe.Patches(
        MULTIPLE // merge,
        merge=merge,
        channels_first=frames > 0,
        frames=max(frames, 1),
        **OPTIONS,
    )
    seen = []
    with fastpipe.loader(data, 6, size=size, train=False) as loader:
        for batch in loader:
            assert batch.images is batch.patches
            assert batch.patch_valid.all()
            for place, number in enumerate(batch.ids.tolist()):
                image = images[number]
                assert torch.equal(parts_of(batch)[place], cut(image, merge, frames))
                start, stop = batch.cu_seqlens[place : place + 2].tolist()
                assert torch.equal(batch.coords[start:stop], coords_of(image, merge))
                side = MULTIPLE // merge
                height, width = image.shape[1:]
                assert batch.grids[place].tolist() == [height // side, width // side]
                seen.append(number)
    assert sorted(seen) == list(range(COUNT))


def test_packed_batches_have_one_shape_and_what_is_left_is_zero(data: Path) -> None:
    images = images_of(data)
    seen = []
    with fastpipe.loader(data, size=PACKED, seed=4) as loader:
        assert "up to 100 tokens, patches" in repr(loader)
        batches = list(loader)
        assert len(batches) == len(loader)
    for batch in batches:
        assert batch.patches.shape == (100, 192)
        assert batch.coords.shape == (100, 2)
        count = int(batch.cu_seqlens[-1])
        assert batch.cu_seqlens.dtype == torch.int32
        assert batch.patch_valid.tolist() == [True] * count + [False] * (100 - count)
        assert not batch.patches[count:].any()
        assert not batch.coords[count:].any()
        assert len(batch.labels) == len(batch.ids) == len(batch.grids) == len(batch.valid)
        for number, patches in zip(batch.ids.tolist(), parts_of(batch), strict=True):
            assert torch.equal(patches, cut(images[number]))
        seen += batch.ids.tolist()
    assert sorted(seen) == list(range(COUNT))


def test_padded_batches_have_a_row_for_each_image(data: Path) -> None:
    images = images_of(data)
    size = fastpipe.Patches(8, form="padded", **OPTIONS)
    with fastpipe.loader(data, 6, size=size, train=False) as loader:
        for batch in loader:
            for place, number in enumerate(batch.ids.tolist()):
                patches = cut(images[number])
                count = len(patches)
                assert torch.equal(batch.patches[place, :count], patches)
                assert not batch.patches[place, count:].any()
                assert torch.equal(batch.coords[place, :count], coords_of(images[number]))
                assert batch.patch_valid[place].tolist() == [True] * count + [False] * (24 - count)
            with pytest.raises(AttributeError, match='form="packed"'):
                _ = batch.cu_seqlens


@pytest.mark.parametrize("form", ["packed", "padded"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_normalised_patches_are_those_of_normalised_images(
    data: Path, form: str, dtype: torch.dtype
) -> None:
    augment = fastpipe.Augment.imagenet(dtype=dtype)
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    std = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    images = images_of(data)
    size = PACKED if form == "packed" else fastpipe.Patches(8, form=form, **OPTIONS)
    with fastpipe.loader(data, 6, size=size, augment=augment, train=False) as loader:
        for batch in loader:
            assert batch.patches.dtype == dtype
            assert not batch.patches[~batch.patch_valid].any()
            expected = torch.cat(
                [cut((images[number] / 255 - mean) / std) for number in batch.ids.tolist()]
            )
            tolerance = 1e-6 if dtype == torch.float32 else 0.02
            actual = batch.patches[batch.patch_valid].float()
            torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def test_channels_depths_and_mirroring(data: Path) -> None:
    size = fastpipe.Patches(8, **OPTIONS)
    for channels, dtype, numbers in (("gray", torch.uint16, 64), ("rgba", torch.uint8, 256)):
        options = {"channels": channels, "dtype": dtype, "hflip": 1.0}
        images = images_of(data, **options)
        with fastpipe.loader(data, 6, size=size, train=False, **options) as loader:
            for batch in loader:
                assert batch.patches.dtype == dtype
                assert batch.patches.shape[1] == numbers
                for number, patches in zip(batch.ids.tolist(), parts_of(batch), strict=True):
                    assert torch.equal(patches, cut(images[number]))


def test_fields_come_along(data: Path) -> None:
    fields = ["image", "coords", "cu_seqlens", "patch_valid", "grids", "boxes", "caption", "id"]
    with fastpipe.loader(data, size=PACKED, fields=fields, hflip=False) as loader:
        for batch in loader:
            assert list(batch) == fields
            for number, boxes, grid, caption in zip(
                batch["id"].tolist(), batch["boxes"], batch["grids"], batch["caption"], strict=True
            ):
                height, width = (grid * 8).tolist()
                np.testing.assert_allclose(boxes, [[0, 0, width / 2, height]], rtol=1e-6)
                assert caption == f"caption {number}"
    with fastpipe.loader(data, size=PACKED, fields=["image", "id", "latent"]) as loader:
        for batch in loader:
            assert batch["latent"][:, 1, 2].tolist() == batch["id"].tolist()
    with fastpipe.loader(data, size=PACKED, fields=["caption"]) as loader:
        assert sum(len(batch["caption"]) for batch in loader) == COUNT


def test_text_tokens_count_against_the_budget(data: Path) -> None:
    size = fastpipe.Patches(8, tokens=60, text_tokens="words", **OPTIONS)
    fields = ["cu_seqlens", "image", "words", "id"]
    with fastpipe.loader(data, size=size, fields=fields) as loader:
        batches = list(loader)
    seen = []
    for batch in batches:
        assert int(batch["cu_seqlens"][-1]) + int(batch["words"].sum()) <= 60
        seen += batch["id"].tolist()
    assert sorted(seen) == list(range(COUNT))
    without = fastpipe.Patches(8, tokens=60, **OPTIONS)
    with fastpipe.loader(data, size=without) as loader:
        assert len(loader) < len(batches)

    counted = fastpipe.open(data).with_column("more", np.full(COUNT, 50))
    size = fastpipe.Patches(8, tokens=60, text_tokens="more", **OPTIONS)
    with pytest.raises(ConfigError, match=r"has \d+ tokens, of its image and its text"):
        fastpipe.loader(counted, size=size)
    size = fastpipe.Patches(8, tokens=60, text_tokens="caption", **OPTIONS)
    with pytest.raises(ConfigError, match="got values such as 'caption 0'"):
        fastpipe.loader(data, size=size)
    size = fastpipe.Patches(8, tokens=60, text_tokens="wrds", **OPTIONS)
    with pytest.raises(ConfigError, match="did you mean 'words'"):
        fastpipe.loader(data, size=size)


def test_changed_text_tokens_are_an_error_with_verify(data: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(data, tmp_path / "copy"))
    file = folder / "fields" / "words.npy"
    content = bytearray(file.read_bytes())
    content[-8] ^= 1
    file.write_bytes(content)
    size = fastpipe.Patches(8, tokens=60, text_tokens="words", **OPTIONS)
    with pytest.raises(DatasetError, match=r"words\.npy has changed since it was packed"):
        fastpipe.loader(folder, size=size, verify=True)


def test_batch_size_is_the_most_images_of_a_batch(data: Path) -> None:
    with fastpipe.loader(data, 3, size=PACKED) as loader:
        counts = [len(batch.ids) for batch in loader]
    assert max(counts) == 3
    assert sum(counts) == COUNT
    assert len(loader.sampler) == COUNT


def ids_of(loader: Any) -> list[list[int]]:
    return [batch.ids.tolist() for batch in loader]


def test_ranks_take_the_batches_in_turn_and_a_state_moves_to_other_ranks(data: Path) -> None:
    options: dict[str, Any] = {"size": PACKED, "seed": 7}
    with fastpipe.loader(data, **options) as loader:
        whole = ids_of(loader)
        loader.set_epoch(0)
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        state = loader.state_dict()
    for world_size in (1, 2, 4):
        rest = []
        for rank in range(world_size):
            with fastpipe.loader(data, **options, rank=rank, world_size=world_size) as loader:
                assert len(loader) == len(whole) // world_size
                loader.load_state_dict(state)
                rest.append(ids_of(loader))
        in_turn = [batch for step in zip(*rest, strict=True) for batch in step]
        last = len(whole) // world_size * world_size
        assert in_turn == whole[4:last]
    with (
        fastpipe.loader(data, **options, rank=0, world_size=3) as loader,
        pytest.raises(ConfigError, match="after 4 batches of 1 ranks"),
    ):
        loader.load_state_dict(state)
    other = fastpipe.Patches(8, tokens=90, **OPTIONS)
    with (
        fastpipe.loader(data, size=other, seed=7) as loader,
        pytest.raises(ConfigError, match="the state does not fit this loader: patches was"),
    ):
        loader.load_state_dict(state)


def test_in_evaluation_ranks_have_equally_many_batches(data: Path) -> None:
    seen = []
    counts = set()
    for rank in range(3):
        with fastpipe.loader(data, size=PACKED, train=False, rank=rank, world_size=3) as loader:
            batches = list(loader)
        counts.add(len(batches))
        for batch in batches:
            seen += batch.ids[batch.valid].tolist()
    assert len(counts) == 1
    assert sorted(seen) == list(range(COUNT))


def test_a_damaged_sample_is_replaced_by_one_that_fits(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with fastpipe.Writer(folder) as writer:
        for number in range(COUNT):
            shape = (20 + number % 7 * 9, 20 + number % 5 * 11)
            writer.add(jpeg_bytes(shape, seed=number), key=str(number))
    for sample in (3, 17):
        damage(folder, sample)
    with fastpipe.loader(folder, size=PACKED, on_error="replace") as loader:
        batches = list(loader)
        assert loader.stats().replaced == 2
    seen = [number for batch in batches for number in batch.ids.tolist()]
    assert len(seen) == COUNT
    assert {3, 17}.isdisjoint(seen)
    for batch in batches:
        assert batch.patches.shape == (100, 192)
        assert int(batch.cu_seqlens[-1]) <= 100


def test_mixtures_samplers_and_lists_fill_batches_too(data: Path) -> None:
    weights = np.arange(COUNT) % 3
    one = fastpipe.open(data)
    for dataset, options in (
        (fastpipe.mix({one.select(np.arange(0, 20)): 1, one.select(np.arange(20, 40)): 3}), {}),
        (one, {"sampler": fastpipe.Weighted(weights)}),
        (one, {"sampler": lambda epoch: np.arange(COUNT)[::-1]}),
        (one, {"epoch_size": 31}),
        (one, {"sampler": fastpipe.Repeated(2)}),
    ):
        with fastpipe.loader(dataset, size=PACKED, **options) as loader:
            batches = list(loader)
        assert len(batches) > 1
        assert all(int(batch.cu_seqlens[-1]) <= 100 for batch in batches)


def test_a_folder_that_is_not_packed(tmp_path: Path) -> None:
    folder = tmp_path / "photos" / "cat"
    folder.mkdir(parents=True)
    for number in range(9):
        (folder / f"{number}.jpg").write_bytes(jpeg_bytes((30 + 9 * number, 40), seed=number))
    images = images_of(tmp_path / "photos")
    with fastpipe.loader(tmp_path / "photos", size=PACKED) as loader:
        for batch in loader:
            for number, patches in zip(batch.ids.tolist(), parts_of(batch), strict=True):
                assert torch.equal(patches, cut(images[number]))


def test_a_preview_draws_the_images(data: Path, tmp_path: Path) -> None:
    with fastpipe.loader(data, size=PACKED) as loader:
        drawn = fastpipe.preview(loader, tmp_path / "preview.png", rows=2)
    assert Path(drawn.path).stat().st_size > 1000


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of none to three pictures, without an image of their own."""
    folder = tmp_path_factory.mktemp("lists") / "data"
    with fastpipe.Writer(folder, {"pages": "images", "words": "int"}) as writer:
        for number in range(20):
            pages = []
            for page in range(number % 4):
                shape = (20 + 7 * ((number + page) % 5), 30 + 9 * page)
                pages.append(jpeg_bytes(shape, seed=5 * number + page))
            writer.add(key=str(number), pages=pages, words=number)
    return folder


@pytest.mark.parametrize("tokens", [None, 90])
@pytest.mark.parametrize("text_tokens", [None, "words"])
def test_lists_of_pictures(lists: Path, tokens: int | None, text_tokens: str | None) -> None:
    pictures: dict[int, list[torch.Tensor]] = {}
    with fastpipe.loader(lists, 4, size=NATIVE, fields=["pages", "id"], train=False) as loader:
        for batch in loader:
            pictures.update(zip(batch["id"].tolist(), batch["pages"], strict=True))
    if tokens is None:
        text_tokens = None
    size = fastpipe.Patches(8, tokens=tokens, text_tokens=text_tokens, **OPTIONS)
    fields = [fastpipe.Images("pages", form="flat"), "id", "words"]
    seen = []
    with fastpipe.loader(lists, 4, size=size, fields=fields, train=False) as loader:
        for batch in loader:
            edges = batch["pages_cu_seqlens"].tolist()
            offsets = batch["pages_offsets"].tolist()
            for place, number in enumerate(batch["id"].tolist()):
                pages = range(offsets[place], offsets[place + 1])
                for page, picture in zip(pages, pictures[number], strict=True):
                    patches = batch["pages"][edges[page] : edges[page + 1]]
                    assert torch.equal(patches, cut(picture))
                    sides = batch["pages_grids"][page] * 8
                    assert sides.tolist() == list(picture.shape[1:])
                seen.append(number)
            assert not batch["pages"][edges[-1] :].any()
            if tokens is not None:
                assert len(batch["pages"]) == tokens
                words = int(batch["words"].sum()) if text_tokens else 0
                assert edges[-1] + words <= tokens
    assert sorted(seen) == list(range(20))


def test_lists_of_pictures_have_one_form(lists: Path) -> None:
    size = fastpipe.Patches(8, **OPTIONS)
    with pytest.raises(ConfigError, match=r"pass fastpipe\.Images\('pages', form=\"flat\"\)"):
        fastpipe.loader(lists, 4, size=size, fields=["pages"])


def test_a_damaged_list_is_replaced_in_a_packed_batch(lists: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(lists, tmp_path / "copy"))
    index = PackedIndex(folder)
    column = fastpipe.open(folder).open_column("pages")
    record = column.take(np.array([7])).values[0]
    shard, _, _ = index.where(7)
    with open(shard, "r+b") as file:
        file.seek(int(record["offset"]))
        file.write(bytes(int(record["size"]) // 2))
    size = fastpipe.Patches(8, tokens=90, **OPTIONS)
    fields = [fastpipe.Images("pages", form="flat"), "id"]
    options: dict[str, Any] = {"size": size, "fields": fields, "on_error": "replace"}
    with fastpipe.loader(folder, **options) as loader:
        ids = [number for batch in loader for number in batch["id"].tolist()]
        assert loader.stats().replaced == 1
    assert len(ids) == 20
    assert 7 not in ids
