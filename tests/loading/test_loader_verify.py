"""Tests of fastpipe.loader(verify=True): changed bytes are bad samples, also where they still decode."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xxhash
from support.datasets.field_columns import add_fields
from support.datasets.packed import flip_unseen, packed_jpeg

import fastpipe
from fastpipe import DatasetError, SampleError
from fastpipe.dataset import two_packs
from fastpipe.dataset.format import description
from fastpipe.dataset.format.fields import FIELD_IMAGE_DTYPE, Field
from fastpipe.dataset.format.layout import INDEX_DTYPE
from fastpipe.dataset.format.packed_index import PackedIndex

Copy = Callable[[Path], Path]


def epoch(dataset: Path | fastpipe.Dataset, **options: object) -> torch.Tensor:
    with fastpipe.loader(dataset, 8, size=16, train=False, num_workers=2, **options) as loader:  # type: ignore[arg-type]
        return torch.cat([images for images, _ in loader])


def test_a_changed_bit_that_decodes_is_found_only_with_verify(textured: Path, copied: Copy) -> None:
    dataset = copied(textured)
    expected = f"{PackedIndex(dataset).records['xxh3_64'][13]:016x}"
    flip_unseen(dataset, 13)
    found = xxhash.xxh3_64_hexdigest(packed_jpeg(PackedIndex(dataset), 13))
    clean = epoch(textured)
    assert not torch.equal(epoch(dataset)[13], clean[13])
    with pytest.raises(SampleError, match=r"on_error='replace'") as caught:
        epoch(dataset, verify=True)
    assert caught.value.sample == 13
    reason = (
        f"the bytes have changed since they were packed: expected XXH3-64 {expected}, got {found}"
    )
    assert caught.value.reason == reason
    replaced = epoch(dataset, verify=True, on_error="replace")
    assert [number for number in range(23) if not torch.equal(replaced[number], clean[number])] == [
        13
    ]
    assert any(torch.equal(replaced[13], other) for other in clean)


def flip(file: Path, at: int, bit: int = 0) -> None:
    """Changes a bit of a file; `at` counts from its end if it is negative."""
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


@pytest.fixture
def with_fields(textured: Path, copied: Copy) -> Path:
    dataset = copied(textured)
    angles = list(range(-40, -40 + len(PackedIndex(dataset))))
    return add_fields(
        dataset,
        [(Field("angle", "int"), angles), (Field("tags", "classes", classes=9), [[3]] * 23)],
    )


LABEL = INDEX_DTYPE.itemsize - INDEX_DTYPE.fields["label"][1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "at", "fields"),
    [
        ("fields/angle.npy", -8, ("image", "angle")),
        ("fields/tags.npy", -4, ("image", "tags")),
    ],
)
def test_a_changed_label_or_column_is_an_error_with_verify(
    with_fields: Path, name: str, at: int, fields: tuple[str, ...]
) -> None:
    """Where the values are possible, nothing else tells."""
    options: dict[str, Any] = {"size": 16, "fields": fields, "train": False, "num_workers": 1}
    with fastpipe.loader(with_fields, 8, verify=True, **options) as whole:
        assert len(list(whole)) == 3
    flip(with_fields / name, at)
    with fastpipe.loader(with_fields, 8, **options) as unseen:
        assert len(list(unseen)) == 3
    with pytest.raises(
        DatasetError,
        match=f"{name} has changed since it was packed: expected XXH3-64 [0-9a-f]{{16}},",
    ):
        fastpipe.loader(with_fields, 8, verify=True, **options)


def test_a_changed_column_that_was_saved_is_an_error_with_verify(
    textured: Path, copied: Copy
) -> None:
    dataset = copied(textured)
    plain = fastpipe.open(dataset)
    plain.with_column("score", np.arange(23) / 7).with_labels(np.arange(23) % 2).save_columns(
        dataset
    )
    options: dict[str, Any] = {
        "size": 16,
        "fields": ("image", "score", "label"),
        "train": False,
        "num_workers": 1,
    }
    for name in ("score", "label"):
        (file,) = (dataset / "columns").glob(f"{name}-*.npy")
        with fastpipe.loader(dataset, 8, verify=True, **options) as whole:
            assert [batch["score"].dtype for batch in whole] == [torch.float64] * 3
        flip(file, -8)
        with fastpipe.loader(dataset, 8, **options) as unseen:
            assert len(list(unseen)) == 3
        with pytest.raises(
            DatasetError, match=f"the column '{name}' has changed: expected XXH3-64 .*save_columns"
        ):
            fastpipe.loader(dataset, 8, verify=True, **options)
        flip(file, -8)


def test_what_is_packed_is_compared_beside_what_is_not(textured: Path, copied: Copy) -> None:
    """Files that are not packed have no hashes."""
    dataset = copied(textured)
    flip_unseen(dataset, 13)
    data = fastpipe.concat(dataset, textured.parent / "source")
    assert len(epoch(data)) == 46
    with pytest.raises(SampleError, match=r"sample 13 .*expected XXH3-64"):
        epoch(data, verify=True)
    assert len(epoch(data.select(np.arange(46) != 13), verify=True)) == 45


def test_a_changed_class_name_is_an_error_with_verify(textured: Path, copied: Copy) -> None:
    dataset = copied(textured)
    flip(
        dataset / "dataset.json",
        (dataset / "dataset.json").read_bytes().index(PackedIndex(dataset).classes[0].encode()),
    )
    epoch(dataset)
    with pytest.raises(DatasetError, match=r"dataset\.json has changed since it was packed"):
        epoch(dataset, verify=True)
    with pytest.raises(DatasetError, match=r"dataset\.json has changed since it was packed"):
        fastpipe.loader(fastpipe.mix({textured: 1.0, dataset: 1.0}), 8, size=16, verify=True)


def test_large_files_are_compared_beside_the_epoch(
    textured: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes with the last batch at the latest, however slow the disk is."""
    dataset = copied(textured)
    flip(dataset / "index.npy", -LABEL)
    monkeypatch.setattr(description, "_AT_ONCE_BYTES", 0)
    monkeypatch.setattr(two_packs, "_MOST_BYTES", 0)
    begin, hash_of = threading.Event(), description.file_hash

    def waiting(file: Path, ended: Callable[[], bool]) -> str:
        begin.wait()
        return hash_of(file, ended)

    monkeypatch.setattr(description, "file_hash", waiting)
    with fastpipe.loader(dataset, 8, size=16, train=False, num_workers=1, verify=True) as loader:
        batches = iter(loader)
        next(batches)
        begin.set()
        with pytest.raises(DatasetError, match=r"index\.npy has changed since it was packed"):
            list(batches)
    begin.clear()
    fastpipe.loader(textured, 8, size=16, train=False, num_workers=1, verify=True).close()
    begin.set()
    for thread in threading.enumerate():
        if thread.name == "fastpipe-hashes":
            thread.join(300)
            assert not thread.is_alive()


@pytest.mark.parametrize("verify", [False, True])
def test_an_index_and_a_description_of_two_packs(
    textured: Path, copied: Copy, tmp_path: Path, *, verify: bool
) -> None:
    """As rsync --size-only leaves them: both have the size of the other."""
    other = tmp_path / "other"
    fastpipe.pack(textured.parent / "source", other, seed=5)
    mixture = copied(textured)
    assert (mixture / "index.npy").stat().st_size == (other / "index.npy").stat().st_size
    shutil.copy(other / "index.npy", mixture)
    words = (
        r"index\.npy and dataset\.json do not belong together.*copy all files of the dataset again"
    )
    with pytest.raises(DatasetError, match=words):
        fastpipe.loader(mixture, 8, size=16, verify=verify)
    with pytest.raises(DatasetError, match=words):
        fastpipe.open(mixture)[0]
    with pytest.raises(DatasetError, match=words):
        fastpipe.loader(fastpipe.concat(textured, mixture), 8, size=16, verify=verify)


def test_an_index_of_another_pack_with_more_samples(
    textured: Path, flat: Path, copied: Copy
) -> None:
    mixture = copied(textured)
    shutil.copy(flat / "index.npy", mixture)
    words = (
        r"index\.npy is not .* of 23 rows .*if it is of another pack than dataset\.json, copy all"
    )
    with pytest.raises(DatasetError, match=words):
        fastpipe.open(mixture)


@pytest.mark.parametrize("name", ["index.npy", "fields/mask.npy"])
def test_a_damaged_index_or_column_replaces_no_sample(tmp_path: Path, name: str) -> None:
    """The offset of sample 4 is not a byte further: another sample would take its place, as if it were the bad one."""
    data = tmp_path / "data"
    picture = np.tile(np.arange(64, dtype=np.uint8), (48, 1))
    with fastpipe.Writer(data, fields={"mask": "mask"}) as writer:
        for number in range(8):
            writer.add(np.stack([picture] * 3, axis=2), label=0, key=str(number), mask=picture)
    row = (INDEX_DTYPE if name == "index.npy" else FIELD_IMAGE_DTYPE).itemsize
    options: dict[str, Any] = {
        "size": 16,
        "train": False,
        "num_workers": 1,
        "fields": ("image", "mask"),
    }
    with fastpipe.loader(data, 4, on_error="replace", **options) as loader:
        # A loader would not begin with a damaged index.
        flip(data / name, (4 - 8) * row + (4 if name == "index.npy" else 0))
        words = f"{name} has changed since it was packed: expected XXH3-64 .* --repair SRC"
        with pytest.raises(DatasetError, match=words):
            list(loader)
