"""Fields of arrays in batches and single samples: their bits, whatever happens to the samples beside them."""

from __future__ import annotations

import io
import itertools
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.datasets.packed import damage
from support.pictures.drawn import smooth_noise
from support.sources.pack_sources import jpeg_bytes

import fastpipe
from fastpipe.dataset.format.array_file import ARRAY_DTYPES, numpy_dtype

COUNT = 23


def values_of(number: int) -> dict[str, torch.Tensor]:
    """Of one shape, of lengths that differ in one axis and in both, without axes, and one of every dtype."""
    generator = torch.Generator().manual_seed(number)
    arrays = {
        "latent": torch.randn(4, 6, 6, generator=generator).half(),
        "tokens": torch.randn(number % 4, 8, generator=generator).bfloat16(),
        "heat": torch.randn(number % 3 + 1, number % 5, generator=generator),
        "step": torch.tensor(number),
    }
    for dtype in ARRAY_DTYPES:
        numbers = np.arange(6).reshape(2, 3) + number
        if dtype == "bfloat16":
            arrays[f"of_{dtype}"] = torch.from_numpy(numbers).bfloat16()
        else:
            arrays[f"of_{dtype}"] = torch.from_numpy(numbers.astype(numpy_dtype(dtype)))
    return arrays


FIELDS = dict.fromkeys(values_of(0), "array")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arrays") / "data"
    with fastpipe.Writer(folder, FIELDS, shard_size=100_000) as writer:
        for number in range(COUNT):
            image = jpeg_bytes((50, 40), seed=number)
            writer.add(image, label=number % 3, key=str(number), **values_of(number))
    assert len(fastpipe.open(folder).stored[0].index.shards) > 2
    return folder


def check_batch(batch: dict[str, Any], names: Any = FIELDS) -> None:
    for row, key in enumerate(batch["key"]):
        expected = values_of(int(key))
        for name in names:
            got = batch[name][row]
            assert got.dtype == expected[name].dtype, name
            assert torch.equal(got, expected[name]), (name, key)


def epoch(data: Any, **options: Any) -> Iterator[dict[str, Any]]:
    chosen = {"size": 32, "num_workers": 2, "drop_last": False, "fields": ["image", "key", *FIELDS]}
    with fastpipe.loader(data, 5, **{**chosen, **options}) as loader:
        yield from loader


@pytest.mark.parametrize("verify", [False, True])
def test_batches_have_the_arrays_bit_by_bit(data: Path, verify: bool) -> None:
    keys = []
    for batch in epoch(data, verify=verify):
        check_batch(batch)
        assert batch["latent"].shape == (len(batch["key"]), 4, 6, 6)
        assert batch["step"].shape == (len(batch["key"]),)
        assert isinstance(batch["tokens"], list)
        keys += batch["key"]
    assert sorted(map(int, keys)) == list(range(COUNT))


def test_batches_that_are_kept_stay_as_they_are(data: Path) -> None:
    """Their memory is not lent again."""
    batches = list(epoch(data))
    batches += list(epoch(data, seed=1))
    for batch in batches:
        check_batch(batch)


def test_single_samples(data: Path) -> None:
    samples = fastpipe.open(data).with_fields(["image", "key", *FIELDS])
    for sample in samples:
        check_batch({name: [value] for name, value in sample.items()})


def test_views_and_several_crops_have_the_arrays_once(data: Path) -> None:
    for options in ({"views": 2}, {"crop": fastpipe.FiveCrop(resize=36), "train": False}):
        for batch in epoch(data, **options):
            check_batch(batch)


def test_choosing_joining_and_mixing(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with fastpipe.Writer(other, {"latent": "array", "tokens": "array"}) as writer:
        for number in range(4):
            latent = torch.full((4, 3, 6), float(number)).half()
            tokens = torch.full((2, 8), float(number)).bfloat16()
            writer.add(
                jpeg_bytes(seed=number), label=0, key=f"9{number}", latent=latent, tokens=tokens
            )
    opened = fastpipe.open(data)
    for chosen in (opened.select(range(3, 20, 2)), fastpipe.concat(opened, opened)):
        for batch in epoch(chosen):
            check_batch(batch)
    # The second axis of "latent" differs between the two, so a batch has a list.
    joined = fastpipe.concat(opened, fastpipe.open(other))
    assert joined.fields["latent"].shape == (4, None, 6)
    batch = next(epoch(joined, fields=["image", "latent"]))
    assert isinstance(batch["latent"], list)


def test_a_bad_picture_is_replaced_with_its_arrays(data: Path, copied: Any) -> None:
    copy = copied(data)
    damage(copy, 3)
    batches = list(epoch(copy, on_error="replace"))
    assert all("3" not in batch["key"] for batch in batches)
    for batch in batches:
        check_batch(batch)


def damage_array(folder: Path, name: str, sample: int) -> None:
    """Flips a byte of a sample's array in its shard."""
    index = fastpipe.open(folder).stored[0].index
    record = index.column(name).take(np.array([sample]))[0]
    shard = index.shards[int(index.records["shard"][sample])].path
    with shard.open("r+b") as file:
        file.seek(int(record["offset"]) + int(record["size"]) - 1)
        byte = file.read(1)
        file.seek(-1, io.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def test_a_damaged_array_is_found_by_its_hash(data: Path, copied: Any) -> None:
    copy = copied(data)
    damage_array(copy, "latent", 7)
    with pytest.raises(fastpipe.SampleError, match=r"XXH3-64"):
        list(epoch(copy, verify=True))
    with pytest.raises(fastpipe.SampleError, match=r"XXH3-64"):
        list(epoch(copy, verify=True, views=2))
    for batch in epoch(copy, verify=True, on_error="replace"):
        check_batch(batch)
        assert "7" not in batch["key"]


def test_an_impossible_record_is_named(data: Path, copied: Any) -> None:
    for name, change in (("latent", 5), ("tokens", 2**31), ("heat", 2**32 - 1)):
        copy = copied(data)
        column = copy / "fields" / f"{name}.npy"
        records = np.load(column)
        records["shape"][4][0] = change
        np.save(column, records)
        with pytest.raises(fastpipe.DatasetError, match=rf"{name}.npy: the record of sample 4 is"):
            list(epoch(copy))
        shutil.rmtree(copy)


def test_an_offset_beyond_the_shard_is_a_sample_error(data: Path, copied: Any) -> None:
    copy = copied(data)
    column = copy / "fields" / "latent.npy"
    records = np.load(column)
    records["offset"][4] = 2**40
    np.save(column, records)
    with pytest.raises(fastpipe.SampleError, match="4"):
        list(epoch(copy))


def test_webdataset_reads_the_members(data: Path) -> None:
    shard = fastpipe.open(data).stored[0].index.shards[0].path
    with tarfile.open(shard) as tar:
        names = [member.name for member in tar if member.name.endswith(".latent.npy")]
        latent = np.load(io.BytesIO(tar.extractfile(names[0]).read()))  # type: ignore[union-attr]
    assert torch.equal(torch.from_numpy(latent), values_of(0)["latent"])


def test_what_a_writer_takes_and_refuses(tmp_path: Path) -> None:
    path = tmp_path / "saved.npy"
    np.save(path, np.ones((2, 2), np.float32))
    good: list[Any] = [
        np.ones((2, 2), np.float32),
        torch.ones(2, 2, requires_grad=True),
        torch.ones(2, 4)[:, ::2],
        np.asfortranarray(np.ones((2, 2), np.float32)),
        np.ones((2, 2), ">f4"),
        [[1.0, 1.0], [1.0, 1.0]],
        path,
        path.read_bytes(),
    ]
    bad: list[tuple[Any, str]] = [
        (None, "expected a value of kind array, got none"),
        (np.ones(2, np.float32), "expected float32 with 2 axes, as in the samples before; got"),
        (np.ones((2, 2)), "got float64 with 2"),
        ([[1.0], [1.0, 2.0]], "of one length on each axis"),
        (np.array([{}]), "expected one of bool"),
        ("nowhere.npy", "does not exist"),
        (b"no array", "as a .npy file"),
        ("text", "'text' does not exist"),
        ({}, "expected a numpy array"),
    ]
    image = smooth_noise(40, 30, seed=0)
    with fastpipe.Writer(tmp_path / "data", {"array": "array"}) as writer:
        for number, value in enumerate([*good, *(value for value, _ in bad)]):
            writer.add(image, key=str(number), array=value)
    assert writer.summary.info["samples"] == len(good)
    reasons = dict(writer.summary.tally.rejected)
    for number, (_, reason) in enumerate(bad, len(good)):
        assert reason in reasons[str(number)], reasons[str(number)]
    samples = fastpipe.open(tmp_path / "data").with_fields(["array"])
    assert all(torch.equal(sample["array"], torch.ones(2, 2)) for sample in samples)


def test_prepare_cannot_replace_an_array(data: Path) -> None:
    def prepare(batch: dict[str, Any]) -> dict[str, Any]:
        assert "latent" not in batch
        return {"latent": np.zeros(1)}

    with pytest.raises(fastpipe.ConfigError, match="'latent' is made by other threads"):
        list(epoch(data, prepare=prepare))


def test_arrays_are_no_column(data: Path) -> None:
    opened = fastpipe.open(data)
    assert "latent" not in opened.columns
    with pytest.raises(fastpipe.ConfigError, match=r"with_fields\(\['latent'\]\)"):
        opened.column("latent")


def test_forms(data: Path) -> None:
    fields = ["key", "image", fastpipe.Arrays("tokens", form="flat")]
    for batch in epoch(data, fields=fields):
        offsets = batch["tokens_offsets"].tolist()
        rows = [batch["tokens"][a:b] for a, b in itertools.pairwise(offsets)]
        assert offsets[-1] == len(batch["tokens"])
        check_batch({"key": batch["key"], "tokens": rows}, ["tokens"])
    fields = {"text": fastpipe.Arrays("tokens", form="pad"), "image": "image", "key": "key"}
    for batch in list(epoch(data, fields=fields)) + list(epoch(data, fields=fields)):
        counts = batch["text_counts"].tolist()
        assert batch["text"].shape == (len(counts), max(counts), 8)
        rows = [row[:count] for row, count in zip(batch["text"], counts, strict=True)]
        check_batch({"key": batch["key"], "tokens": rows}, ["tokens"])
        for row, count in zip(batch["text"], counts, strict=True):
            assert not row[count:].any()
    fields = ["key", "image", fastpipe.Arrays("latent", form="list"), fastpipe.Arrays("heat")]
    for batch in epoch(data, fields=fields):
        assert isinstance(batch["latent"], list)
        check_batch(batch, ["latent", "heat"])
    # An array of one shape may be flat, too.
    for batch in epoch(data, fields=["image", fastpipe.Arrays("latent", form="flat")]):
        assert batch["latent"].shape == (4 * len(batch["image"]), 6, 6)


def test_forms_that_the_shapes_do_not_allow(data: Path) -> None:
    for name, form in (("heat", "pad"), ("heat", "flat"), ("tokens", "tensor"), ("step", "pad")):
        request = fastpipe.Arrays(name, form=form)
        with pytest.raises(fastpipe.ConfigError, match="the arrays have the shape"):
            fastpipe.loader(data, 4, fields=["image", request])
    with pytest.raises(fastpipe.ConfigError, match="'auto', 'tensor', 'list', 'flat' or 'pad'"):
        fastpipe.Arrays("tokens", form="nested")
    with pytest.raises(fastpipe.ConfigError, match="a single sample has its array as one tensor"):
        fastpipe.open(data).with_fields([fastpipe.Arrays("tokens", form="pad")])
    with pytest.raises(fastpipe.ConfigError, match="not a field of the dataset"):
        fastpipe.loader(data, 4, fields=["image", fastpipe.Arrays("label")])


def test_batches_without_images(data: Path) -> None:
    """No picture is decoded, and all else is as beside images."""
    fields = ["key", "label", "id", *FIELDS]
    with_images = epoch(data, fields=["image", *fields])
    with fastpipe.loader(data, 5, size=32, drop_last=False, fields=fields) as loader:
        for batch, expected in zip(loader, with_images, strict=True):
            assert list(batch) == fields
            check_batch(batch)
            assert torch.equal(batch["id"], expected["id"])
            assert torch.equal(batch["label"], expected["label"])
        assert loader.stats().images_decoded == 0
    # Masks, boxes and points are on the crops that the images would have.
    assert list(next(epoch(data, fields=["label"], views=2))) == ["label"]


def test_without_images_a_damaged_picture_is_not_looked_at(data: Path, copied: Any) -> None:
    copy = copied(data)
    damage(copy, 3)
    keys = []
    for batch in epoch(copy, fields=["key", "latent"]):
        check_batch(batch, ["latent"])
        keys += batch["key"]
    assert len(keys) == COUNT
