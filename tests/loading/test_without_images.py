"""Samples that have fields only: written, loaded, repaired, by URL, beside samples with an image."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import webdataset
from support.programs.cli_run import succeeded
from support.remote.range_server import RangeServer
from support.sources.pack_sources import jpeg_bytes

import fastpipe
from fastpipe.dataset.format.pixel_form import NO_FORM, PixelForm
from fastpipe.tools.verify.repair import repair
from fastpipe.tools.verify.verification import verify

COUNT = 23
FIELDS = {"pages": "images", "turns": "json", "latent": "array"}
ASKED = ["id", "key", "pages", "turns", "latent"]


def values_of(number: int) -> dict[str, Any]:
    pages = [jpeg_bytes((160 + 20 * number, 150), seed=number)] * (number % 4)
    latent = np.full((2, 3), number, np.float16)
    return {"pages": pages, "turns": [number, "why?"], "latent": latent}


def written(folder: Path, *, images: bool = False) -> Path:
    """With `images`, every third sample has an image."""
    with fastpipe.Writer(folder, FIELDS, classes=["a", "b"], shard_size=100_000) as writer:
        for number in range(COUNT):
            image = []
            if images and number % 3 == 0:
                image = [jpeg_bytes((80, 70), seed=number)]
            writer.add(*image, label=number % 2, key=f"chat/{number}", **values_of(number))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("without") / "data")


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("some") / "data", images=True)


def taken(data: Any, **options: Any) -> dict[int, str]:
    """What batches have of each sample, as text, by its number."""
    found = {}
    with fastpipe.loader(data, 4, size=16, fields=ASKED, drop_last=False, **options) as loader:
        for batch in loader:
            for place, number in enumerate(batch["id"].tolist()):
                pages = [page.numpy().tobytes() for page in batch["pages"][place]]
                latent = batch["latent"][place].tolist()
                row = (batch["key"][place], batch["turns"][place], latent, pages)
                found[number] = repr(row)
    return found


def test_they_load_like_others(data: Path) -> None:
    assert len(list(data.glob("shard-*"))) > 3
    rows = taken(data)
    assert sorted(rows) == list(range(COUNT))
    for number, row in rows.items():
        assert f"('chat/{number}', [{number}, 'why?'], [[{number}.0, " in row
    assert taken(data, verify=True, num_workers=1, shuffle=False) == rows
    halves = [taken(data, rank=rank, world_size=2) for rank in (0, 1)]
    assert {**halves[0], **halves[1]} == rows


def test_a_resumed_epoch_goes_on(data: Path) -> None:
    def ids(loader: fastpipe.Loader) -> list[list[int]]:
        return [batch["id"].tolist() for batch in loader]

    with fastpipe.loader(data, 4, fields=["id"]) as loader:
        whole = ids(loader)
        loader.set_epoch(0)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
    with fastpipe.loader(data, 4, fields=["id"]) as loader:
        loader.load_state_dict(state)
        assert ids(loader) == whole[1:]


def test_by_url_they_are_the_same(data: Path, tmp_path: Path) -> None:
    with RangeServer(data) as server:
        remote = fastpipe.open(server.url, cache_dir=tmp_path, cache_limit=0)
        assert taken(remote) == taken(data)
        assert remote.with_fields(["turns"])[3] == {"turns": [3, "why?"]}


@pytest.mark.parametrize("fields", [None, ["image", "turns"]])
def test_a_loader_of_images_says_what_to_pass(data: Path, some: Path, fields: Any) -> None:
    with pytest.raises(fastpipe.ConfigError, match=r"fields=\['pages'\]") as caught:
        fastpipe.loader(data, 4, fields=fields)
    assert "23 samples of 23 have no image" in str(caught.value)
    with pytest.raises(fastpipe.ConfigError, match="15 samples of 23 have no image"):
        fastpipe.loader(some, 4, fields=fields)


def test_samples_with_and_without_an_image_go_together(some: Path) -> None:
    opened = fastpipe.open(some)
    counts = opened.index.form_counts
    assert counts == {NO_FORM: 15, PixelForm(): 8}
    assert len(taken(some)) == COUNT
    pictured = opened.select(lambda columns: columns["width"] > 0)
    with fastpipe.loader(pictured, 4, size=16, drop_last=False) as loader:
        assert sum(len(labels) for _, labels in loader) == 8
    image, _ = opened[0]
    assert image.shape == (3, 70, 80)
    assert opened.with_fields(["turns"])[1] == {"turns": [1, "why?"]}
    with pytest.raises(fastpipe.ConfigError, match=r"chat/1, .* no image of its own"):
        opened[1]


def test_parts_by_hash_keep_samples_apart(data: Path) -> None:
    opened = fastpipe.open(data)
    parts = [opened.fold(part, of=3)[1] for part in range(3)]
    keys = [key for part in parts for key in part["key"]]
    assert sorted(keys) == sorted(opened["key"])
    assert all(len(part) for part in parts)


def test_fields_on_an_image_need_one(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "data", {"boxes": "boxes"}) as writer:
        writer.add(jpeg_bytes((40, 30)), key="0", boxes=[[1, 2, 9, 9]])
        writer.add(key="1", boxes=[[1, 2, 9, 9]])
        writer.add(key="2", boxes=None)
        writer.add(key="3")
        writer.add(None, key="4")
    rejected = (tmp_path / "data" / "rejected.jsonl").read_text()
    assert [json.loads(line)["path"] for line in rejected.splitlines()] == ["1", "3", "4"]
    assert "expected an image, or values of fields; got neither" in rejected
    assert "got NoneType. For a sample that has fields only, leave image out" in rejected
    assert (
        "boxes: a field of kind boxes lies on the image of its sample, which has none" in rejected
    )
    assert len(fastpipe.open(tmp_path / "data")) == 2


def test_verify_finds_each_changed_byte(some: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(some, copy)
    assert not verify(copy).findings
    rng = np.random.default_rng(0)
    shard = min(copy.glob("shard-*"))
    content = shard.read_bytes()
    for offset in rng.integers(0, len(content), 60).tolist():
        changed = bytearray(content)
        changed[offset] ^= 1 << int(rng.integers(8))
        shard.write_bytes(changed)
        assert verify(copy).findings, offset
    shard.write_bytes(content)
    assert not verify(copy).findings


def test_the_index_is_rebuilt_from_the_shards(some: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(some, copy)
    index = bytearray((copy / "index.npy").read_bytes())
    index[300:400] = bytes(100)
    (copy / "index.npy").write_bytes(index)
    assert verify(copy).findings
    (tmp_path / "source").mkdir()
    repair(copy, tmp_path / "source", verify(copy))
    assert (copy / "index.npy").read_bytes() == (some / "index.npy").read_bytes()
    assert not verify(copy).findings


def test_a_damaged_picture_of_a_list_is_a_bad_sample(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    index = fastpipe.open(copy).index
    records = index.column("pages").take(np.array([6])).values
    shard = index.shards[int(index.records["shard"][6])]
    content = bytearray(shard.path.read_bytes())
    content[int(records["offset"][1])] ^= 0xFF
    shard.path.write_bytes(content)
    options: dict[str, Any] = {"size": 16, "fields": ["pages", "id"], "drop_last": False}
    with (
        fastpipe.loader(copy, 4, **options) as loader,
        pytest.raises(fastpipe.SampleError, match="sample 6"),
    ):
        list(loader)
    with fastpipe.loader(copy, 4, on_error="replace", **options) as loader:
        numbers = [number for batch in loader for number in batch["id"].tolist()]
        assert loader.stats().replaced == 1
    assert len(numbers) == COUNT
    assert 6 not in numbers


@pytest.mark.parametrize("options", [{"storage": "coefficients"}, {"shard_size": 1_000_000}])
def test_the_order_depends_on_no_storage_and_no_size_of_shards(
    some: Path, tmp_path: Path, options: Any
) -> None:
    with fastpipe.Writer(tmp_path / "data", FIELDS, classes=["a", "b"], **options) as writer:
        for number in range(COUNT):
            image = [jpeg_bytes((80, 70), seed=number)] if number % 3 == 0 else []
            writer.add(*image, label=number % 2, key=f"chat/{number}", **values_of(number))
    first, other = fastpipe.open(some), fastpipe.open(tmp_path / "data")
    assert first.index.content == other.index.content
    assert first.index.jpeg_bytes == other.index.jpeg_bytes > 50_000
    assert first.content.chunk == other.content.chunk


def test_how_a_row_was_made_says_that_there_was_none(some: Path) -> None:
    fields = ["crop_box", "original_size", "id", "pages"]
    options: dict[str, Any] = {"size": 8, "crop": fastpipe.RandomCrop(resize=8)}
    with fastpipe.loader(some, 4, fields=fields, **options) as loader:
        for batch in loader:
            has_image = batch["id"] % 3 == 0
            assert torch.equal((batch["crop_box"] != 0).any(1), has_image)
            assert torch.equal((batch["original_size"] != 0).any(1), has_image)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_webdataset_reads_the_shards(some: Path) -> None:
    shards = [str(path) for path in sorted(some.glob("shard-*"))]
    samples = list(webdataset.WebDataset(shards, shardshuffle=False, empty_check=False))
    assert len(samples) == COUNT
    assert sum("jpg" in sample for sample in samples) == 8
    assert json.loads(samples[1]["json"])["turns"] == [1, "why?"]


def test_the_command_line_knows_them(data: Path, some: Path, tmp_path: Path) -> None:
    text = succeeded("inspect", data, "--sheet", tmp_path / "none.png")
    assert "none: the samples have fields only" in text
    assert "no contact sheet was drawn: no sample has an image of its own" in text
    text = succeeded("inspect", some, "--sheet", tmp_path / "sheet.png")
    assert "8; the other samples have fields only" in text
    assert "8 images drawn" in text
    text = succeeded("preview", data, "--out", tmp_path / "lists.png", "--rows", 2)
    assert "the images of 2 samples drawn" in text
    text = succeeded("preview", some, "--out", tmp_path / "photos.png", "--rows", 2)
    assert "2 images drawn" in text
    assert succeeded("unpack", some, tmp_path / "photos").startswith("8 images")
    succeeded("unpack", some, tmp_path / "tars", "--format", "webdataset")
    for path in some.glob("shard-*"):
        assert (tmp_path / "tars" / path.name).read_bytes() == path.read_bytes()


def test_a_dataset_of_them_can_be_joined_and_shown(data: Path, some: Path) -> None:
    both = fastpipe.concat(data, some)
    assert len(taken(both)) == 2 * COUNT
    assert "chat" not in fastpipe.open(data)._repr_html_()
    weighted = fastpipe.mix({data: 1, some: 1})
    with fastpipe.loader(weighted, 4, fields=["turns"]) as loader:
        assert len(next(iter(loader))["turns"]) == 4


def test_dtypes_of_images_do_not_matter(data: Path) -> None:
    options: dict[str, Any] = {"channels": "own", "fields": ["pages"]}
    with fastpipe.loader(data, 4, size=8, dtype=torch.uint16, **options) as loader:
        pages = next(iter(loader))["pages"]
    assert {page.dtype for page in pages} == {torch.uint16}
