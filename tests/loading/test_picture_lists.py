"""Lists of pictures: each is what a loader of that picture alone gives; draws, offsets, damage, sources."""

from __future__ import annotations

import itertools
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.pictures.drawn import smooth_noise
from support.sources.pack_sources import jpeg_bytes

import fastpipe
from fastpipe.dataset.format import columns
from fastpipe.dataset.format.fields import MAX_PICTURES
from fastpipe.tools.verify.verification import verify

COUNT = 17
PAGES = [number * 5 % 4 for number in range(COUNT)]  # of each sample
FIRST = [sum(PAGES[:number]) for number in range(COUNT)]  # its first page among all


def page(number: int) -> bytes | Any:
    """A JPEG, or a picture without loss, of a size of its own."""
    size = (60 + number % 7 * 9, 50 + number % 5 * 11)
    return jpeg_bytes(size, seed=number) if number % 3 else smooth_noise(*size, seed=number)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists") / "data"
    with fastpipe.Writer(folder, {"pages": "images", "turns": "json"}) as writer:
        for number in range(COUNT):
            pages = [page(FIRST[number] + place) for place in range(PAGES[number])]
            image = smooth_noise(40, 30, seed=number)
            writer.add(image, label=number % 2, key=str(number), pages=pages, turns=[number])
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each page as a sample of its own, in order."""
    folder = tmp_path_factory.mktemp("alone") / "data"
    with fastpipe.Writer(folder) as writer:
        for number in range(sum(PAGES)):
            writer.add(page(number), key=str(number))
    return folder


def batches(data: Any, **options: Any) -> Iterator[dict[str, Any]]:
    chosen = {"size": (24, 32), "drop_last": False, "fields": ["pages", "key", "id"], **options}
    with fastpipe.loader(data, 5, **chosen) as loader:
        yield from loader


@pytest.mark.parametrize("crop", [fastpipe.Resize(), fastpipe.CenterCrop(resize=40)])
def test_each_picture_is_that_of_a_loader_of_it_alone(data: Path, alone: Path, crop: Any) -> None:
    expected = [
        row
        for batch in batches(alone, crop=crop, train=False, fields=["image"])
        for row in batch["image"]
    ]
    seen = 0
    for batch in batches(data, crop=crop, hflip=False):
        for pages, key in zip(batch["pages"], batch["key"], strict=True):
            number = int(key)
            assert pages.shape == (PAGES[number], 3, 24, 32)
            for place, picture in enumerate(pages):
                assert torch.equal(picture, expected[FIRST[number] + place])
                seen += 1
    assert seen == sum(PAGES)


def test_flat_has_the_same_and_offsets(data: Path) -> None:
    flat = {"docs": fastpipe.Images("pages", form="flat"), "id": "id"}
    for batch, other in zip(batches(data, fields=flat), batches(data), strict=True):
        assert list(batch) == ["docs", "docs_offsets", "id"]
        offsets = batch["docs_offsets"].tolist()
        for row, (start, stop) in enumerate(itertools.pairwise(offsets)):
            assert torch.equal(batch["docs"][start:stop], other["pages"][row])


def test_draws_are_of_seed_epoch_sample_and_number(data: Path) -> None:
    def pages(**options: Any) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = {}
        for batch in batches(data, **options):
            found.update(zip(batch["key"], batch["pages"], strict=True))
        return found

    expected = pages()
    for others in (
        pages(num_workers=1, shuffle=False),
        pages(fields=["image", "key", "pages"]),
        {**pages(rank=0, world_size=2), **pages(rank=1, world_size=2)},
    ):
        assert expected.keys() == others.keys()
        assert all(torch.equal(expected[key], others[key]) for key in expected)
    other_seed = pages(seed=1)
    assert not all(torch.equal(expected[key], other_seed[key]) for key in expected)


def test_two_equal_pictures_of_a_sample_have_crops_of_their_own(tmp_path: Path) -> None:
    picture = jpeg_bytes((200, 200), seed=0)
    with fastpipe.Writer(tmp_path / "data", {"pages": "images"}) as writer:
        writer.add(picture, key="0", pages=[picture, picture])
    (batch,) = batches(tmp_path / "data", fields=["pages"])
    assert not torch.equal(batch["pages"][0][0], batch["pages"][0][1])


def test_views_and_several_crops(data: Path) -> None:
    views = [fastpipe.View(), fastpipe.View(16)]
    for batch in batches(data, views=views):
        first, second = batch["pages"]
        for row, key in enumerate(batch["key"]):
            assert first[row].shape == (PAGES[int(key)], 3, 24, 32)
            assert second[row].shape == (PAGES[int(key)], 3, 16, 16)
    five = fastpipe.FiveCrop(resize=40)
    for batch in batches(data, crop=five, train=False):
        for pages, key in zip(batch["pages"], batch["key"], strict=True):
            assert pages.shape == (PAGES[int(key)], 5, 3, 24, 32)


def test_single_samples_have_whole_pictures(data: Path) -> None:
    samples = fastpipe.open(data).with_fields(["pages", "key", "turns"])
    for sample in samples:
        number = int(sample["key"])
        assert sample["turns"] == [number]
        assert len(sample["pages"]) == PAGES[number]
        for place, picture in enumerate(sample["pages"]):
            source = page(FIRST[number] + place)
            if not isinstance(source, bytes):
                expected = np.asarray(source.convert("RGB")).transpose(2, 0, 1)
                assert np.array_equal(picture.numpy(), expected)
    with pytest.raises(fastpipe.ConfigError, match="lists of images, which a single sample has"):
        samples.cropped(fastpipe.Resize(), size=16)


def test_members_of_the_shard_and_verify(data: Path, copied: Any) -> None:
    copy = copied(data)
    index = fastpipe.open(copy).stored[0].index
    shard = index.shards[0].path
    with tarfile.open(shard) as tar:
        names = [name.split(".", 1)[1] for name in tar.getnames()]
    assert sum(name.startswith("pages.") for name in names) == sum(PAGES)
    assert verify(copy).sound
    column = copy / "fields" / "pages.npy"
    intact = column.read_bytes()
    records = index.column("pages").take(np.arange(COUNT)).values
    data_of_shard = shard.read_bytes()
    rng = np.random.default_rng(0)
    for record in records[::5]:
        damaged = bytearray(data_of_shard)
        damaged[int(record["offset"]) + int(rng.integers(record["size"]))] ^= 4
        shard.write_bytes(damaged)
        assert not verify(copy).sound
    shard.write_bytes(data_of_shard)
    column.write_bytes(intact[:-8])
    assert not verify(copy).sound


def test_a_damaged_picture_is_the_fault_of_its_sample(data: Path, copied: Any) -> None:
    copy = copied(data)
    index = fastpipe.open(copy).stored[0].index
    ragged = index.column("pages").take(np.array([7]))
    record = ragged.values[-1]
    shard = index.shards[0].path
    with shard.open("r+b") as file:
        file.seek(int(record["offset"]))
        file.write(b"no picture")
    with pytest.raises(fastpipe.SampleError, match=r"sample 7"):
        list(batches(copy))
    for batch in batches(copy, on_error="replace"):
        assert "7" not in batch["key"]
        for pages, key in zip(batch["pages"], batch["key"], strict=True):
            assert len(pages) == PAGES[int(key)]


def test_what_a_writer_refuses(tmp_path: Path) -> None:
    image = smooth_noise(30, 20, seed=0)
    values: list[Any] = [[image, b"no image"], image, ["nowhere.jpg"], [7], None, (), [image]]
    with fastpipe.Writer(tmp_path / "data", {"pages": "images"}) as writer:
        for number, value in enumerate(values):
            writer.add(image, key=str(number), pages=value)
    reasons = dict(writer.summary.tally.rejected)
    assert sorted(reasons) == ["0", "1", "2", "3"]
    assert reasons["0"].startswith("field pages: image 1: ")
    assert "expected a list of images" in reasons["1"]
    assert "does not exist" in reasons["2"]
    assert "image 0: expected an image as a path" in reasons["3"]
    samples = fastpipe.open(tmp_path / "data").with_fields(["pages"])
    assert [len(sample["pages"]) for sample in samples] == [0, 0, 1]


def test_a_list_has_a_limit(data: Path, copied: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    image = np.zeros((2, 2, 3), np.uint8)
    with (
        pytest.raises(fastpipe.PackError, match="expected at most 4,096 images, got 4,097"),
        fastpipe.Writer(copied(data).parent / "many", {"pages": "images"}) as writer,
    ):
        writer.add(image, key="0", pages=[b""] * (MAX_PICTURES + 1))
    monkeypatch.setattr(columns, "MAX_PICTURES", 2)
    with pytest.raises(fastpipe.DatasetError, match="cannot have 3 pictures; expected at most 2"):
        list(batches(data))


def test_a_preview_needs_images(data: Path, tmp_path: Path) -> None:
    with (
        fastpipe.loader(data, 4, size=32, fields=["turns"]) as loader,
        pytest.raises(fastpipe.ConfigError, match='has fields without "image"'),
    ):
        fastpipe.preview(loader, tmp_path / "preview.png")


def test_json_lines_with_lists_of_paths(tmp_path: Path) -> None:
    lines = []
    for number in range(5):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg_bytes((40, 30), seed=number))
        pages = [f"{place}.jpg" for place in range(number)]
        lines.append(json.dumps({"image": f"{number}.jpg", "pages": pages, "one": "0.jpg"}))
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    fields = {"pages": "pages:images", "one": "one:images"}
    fastpipe.pack(tmp_path / "list.jsonl", tmp_path / "packed", fields=fields)
    samples = fastpipe.open(tmp_path / "packed").with_fields(["image", "pages", "one", "key"])
    images = {sample["key"]: sample["image"] for sample in samples}
    for sample in samples:
        number = int(Path(sample["key"]).stem)
        assert len(sample["pages"]) == number
        assert all(
            torch.equal(picture, images[f"{place}.jpg"])
            for place, picture in enumerate(sample["pages"])
        )
        assert torch.equal(sample["one"][0], images["0.jpg"])


def test_parquet_with_lists_of_images(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    pictures = [jpeg_bytes((40, 30), seed=number) for number in range(4)]
    cells = [[{"bytes": data, "path": None} for data in pictures[:number]] for number in range(4)]
    table = arrow.table({"image": pictures, "pages": cells})
    parquet.write_table(table, tmp_path / "rows.parquet")
    fastpipe.pack(
        tmp_path / "rows.parquet",
        tmp_path / "packed",
        fields={"pages": "pages:images"},
        shuffle=False,
    )
    samples = fastpipe.open(tmp_path / "packed").with_fields(["pages", "image"])
    assert [len(sample["pages"]) for sample in samples] == [0, 1, 2, 3]
    assert torch.equal(samples[3]["pages"][2], samples[2]["image"])


def test_buckets_are_refused(data: Path) -> None:
    with pytest.raises(fastpipe.ConfigError, match=r"Pass a size and crop=fastpipe\.Letterbox\(\)"):
        fastpipe.loader(data, 4, size="bucket", fields=["image", "pages"])


def test_a_copy_of_the_dataset_joined(data: Path) -> None:
    opened = fastpipe.open(data)
    for chosen in (opened.select(range(3, 15)), fastpipe.concat(opened, opened)):
        for batch in batches(chosen):
            for pages, key in zip(batch["pages"], batch["key"], strict=True):
                assert len(pages) == PAGES[int(key)]
