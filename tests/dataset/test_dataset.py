"""Tests of a fastpipe.Dataset in one process: its samples, what is refused, and what happens when files change."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.datasets.field_columns import hash_index
from support.datasets.members import member_of
from support.datasets.packed import damage, packed_jpeg
from support.pictures.drawn import FLAT_CLASSES, FLAT_IMAGES
from support.pictures.jpegs import full_decode
from support.programs import warm
from support.running.process_state import open_files
from torch.utils.data import DataLoader, Subset

import fastpipe
from fastpipe import ConfigError, DatasetError, SampleError
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_FILE
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.engine import limits

Copy = Callable[[Path], Path]


def expected(dataset: Path, sample: int) -> NDArray[np.uint8]:
    return full_decode(packed_jpeg(PackedIndex(dataset), sample))


def as_array(image: torch.Tensor) -> NDArray[np.uint8]:
    array: NDArray[np.uint8] = image.permute(1, 2, 0).numpy()
    return array


def small(image: torch.Tensor) -> torch.Tensor:
    """Of one size, so that pictures make a batch."""
    return torch.nn.functional.interpolate(image[None].float(), (8, 9))[0]


def test_every_picture_is_a_full_decode(textured: Path, large: Path) -> None:
    for path in (textured, large):
        dataset, index = fastpipe.open(path), PackedIndex(path)
        assert len(dataset) == len(index)
        for sample, (image, label) in enumerate(dataset):  # type: ignore[arg-type]
            assert image.dtype == torch.uint8
            assert np.array_equal(as_array(image), expected(path, sample))
            assert type(label) is int
            assert label == index.records["label"][sample]
        first = dataset[3][0].fill_(7)
        assert not torch.equal(first, dataset[3][0]), "images own their memory"


def test_classes_and_targets(flat: Path) -> None:
    dataset = fastpipe.open(str(flat))
    assert dataset.classes == list(FLAT_CLASSES)
    assert dataset.class_to_idx == {"ant": 0, "bee": 1, "cow": 2}
    targets = dataset.targets
    assert isinstance(targets, np.ndarray)
    assert not isinstance(targets, np.memmap)
    assert (targets.dtype, targets.shape) == (np.int64, (FLAT_IMAGES,))
    assert targets.tolist() == [label for _, label in dataset.__getitems__(range(FLAT_IMAGES))]
    assert not targets.flags.writeable
    assert np.shares_memory(targets, dataset.targets), "a view, not a copy"
    assert targets.flags.c_contiguous, "torch refuses the labels as they lie in the index"
    assert torch.tensor(targets).tolist() == targets.tolist()  # as its description says
    assert repr(dataset) == f"<fastpipe dataset {str(flat)!r}: 37 samples, 3 classes>"


def test_targets_of_chosen_samples(flat: Path) -> None:
    """They are read once, and are in no pickle."""
    dataset = fastpipe.open(flat)
    some = dataset.select([30, 2, 7])
    assert (
        some.targets.tolist()
        == dataset.targets[[30, 2, 7]].tolist()
        == [label for _, label in some]
    )
    assert some.targets is some.targets
    assert not some.targets.flags.writeable
    assert "targets" not in vars(pickle.loads(pickle.dumps(some)))  # noqa: S301 (our own)
    other = dataset.only(["cow", "ant"])
    assert other.targets.tolist() == [label for _, label in other]
    assert dataset.with_labels(np.arange(37) % 2).targets.tolist() == [
        number % 2 for number in range(37)
    ]
    assert repr(some) == f"<fastpipe dataset {str(flat)!r}: 3 samples of 37, 3 classes>"


def test_numbers_of_samples(flat: Path) -> None:
    dataset = fastpipe.open(flat)
    for number in (0, 36, -1, -37, np.int64(5), np.uint8(5), torch.tensor(5)):
        image, label = dataset[number]
        assert np.array_equal(as_array(image), expected(flat, int(number) % FLAT_IMAGES))
        assert label == dataset.targets[int(number)]
    for number in (37, -38, 2**70, np.int64(40)):
        for read in (lambda d, n=number: d[n], lambda d, n=number: d.__getitems__([0, n])):
            with pytest.raises(
                IndexError, match=rf"no sample {number}: {flat} has 37, numbered 0 to 36"
            ):
                read(fastpipe.open(flat))
    for wrong in (1.0, None, [1, 2], np.array([1, 2])):
        with pytest.raises(
            ConfigError,
            match=r"expected the number of a sample, .*; for several samples: data\.select",
        ):
            dataset[wrong]


def test_a_slice_gives_its_samples(flat: Path) -> None:
    dataset = fastpipe.open(flat)
    for part in (slice(0, 3), slice(-2, None), slice(30, 2, -9), slice(40, 50)):
        expected_ones = [dataset[number] for number in range(37)[part]]
        for (image, label), (other, other_label) in zip(dataset[part], expected_ones, strict=True):
            assert torch.equal(image, other)
            assert label == other_label


def test_a_dataloader_fetches_batches(textured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = fastpipe.open(textured).with_transform(small)
    assert dataset.transform is small
    asked = []
    real = fastpipe.Dataset.__getitems__

    def look(self: fastpipe.Dataset, samples: list[int]) -> Any:
        asked.append(list(samples))
        return real(self, samples)

    monkeypatch.setattr(fastpipe.Dataset, "__getitems__", look)
    batches = list(DataLoader(Subset(dataset, range(3, 13)), batch_size=4))
    assert asked == [[3, 4, 5, 6], [7, 8, 9, 10], [11, 12]]
    images = torch.cat([images for images, _ in batches])
    assert torch.equal(images, torch.stack([dataset[number][0] for number in range(3, 13)]))
    assert torch.cat([labels for _, labels in batches]).tolist() == dataset.targets[3:13].tolist()


def test_a_transform_that_fails_says_for_which_sample(flat: Path) -> None:
    def broken(image: torch.Tensor) -> None:
        raise ZeroDivisionError("by design")

    with pytest.raises(ZeroDivisionError, match="by design") as caught:
        fastpipe.open(flat).with_transform(broken)[-2]
    assert caught.value.__notes__ == [f"in the transform of sample 35 of {flat}"]


def test_a_dataset_without_samples(flat: Path, copied: Copy) -> None:
    dataset = copied(flat)
    info = json.loads((dataset / DATASET_FILE).read_text())
    info |= {"samples": 0, "shards": [], "class_counts": [0, 0, 0]}
    (dataset / DATASET_FILE).write_text(json.dumps(info))
    np.save(dataset / INDEX_FILE, np.load(dataset / INDEX_FILE)[:0])
    with pytest.raises(ConfigError, match="has no samples; pack a source that contains images"):
        fastpipe.open(dataset)


def test_a_bad_sample_is_named(flat: Path, copied: Copy) -> None:
    path = copied(flat)
    damage(path, 20)
    shard, member, offset = PackedIndex(path).where(20)
    dataset = fastpipe.open(path)
    for read in (lambda: dataset[20], lambda: dataset.__getitems__([19, 20, 21])):
        with pytest.raises(SampleError) as caught:
            read()
        error = caught.value
        assert (error.key, error.sample) == (dataset["key"][20], 20)
        assert (error.shard, error.member, error.offset) == (shard, member, offset)
        assert error.reason.startswith("the bytes are not a JPEG")
    assert np.array_equal(as_array(dataset[21][0]), expected(flat, 21))


@pytest.mark.filterwarnings(
    "ignore:This process:DeprecationWarning"
)  # a fork where there are threads
def test_a_sample_error_survives_other_processes(flat: Path, copied: Copy) -> None:
    """Pickled it keeps its attributes; torch's DataLoader makes it anew from its text."""
    path = copied(flat)
    damage(path, 2)
    with pytest.raises(SampleError) as caught:
        fastpipe.open(path)[2]
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (str(again), again.sample, again.reason) == (str(caught.value), 2, caught.value.reason)
    key = fastpipe.open(path)["key"][2]
    assert (again.key, again.member) == (key, member_of(path, 2))
    loader = DataLoader(fastpipe.open(path), batch_size=None, num_workers=1, timeout=300)
    with pytest.raises(SampleError, match=rf"sample 2 \({key}\) cannot be decoded"):
        list(loader)


def test_shards_that_are_missing_or_changed(many_shards: Path, copied: Copy) -> None:
    path = copied(many_shards)
    dataset, index = fastpipe.open(path), PackedIndex(path)
    last = len(index) - 1
    index.shards[0].path.unlink()
    with pytest.raises(SampleError, match="the shard cannot be opened: No such file"):
        dataset[0]
    with open(index.shards[-1].path, "ab") as file:
        file.write(b"x")
    with pytest.raises(
        SampleError,
        match=r"the shard has changed since it was packed: expected \d+ bytes, found \d+",
    ):
        dataset[last]
    os.mkfifo(index.shards[0].path)
    with pytest.raises(SampleError, match="expected a regular file"):
        dataset[0]


def test_an_impossible_record_is_refused(flat: Path, copied: Copy) -> None:
    path = copied(flat)
    records = np.load(path / INDEX_FILE)
    records["offset"][4] = 2**40
    records["width"][5] += 1
    np.save(path / INDEX_FILE, records)
    hash_index(path)
    dataset = fastpipe.open(path)
    with pytest.raises(DatasetError, match="the record of sample 4 is impossible"):
        dataset[4]
    with pytest.raises(SampleError, match="dimensions differ from the index"):
        dataset[5]


def test_an_index_cut_short_while_in_use(flat: Path, copied: Copy) -> None:
    """An error, where touching the map would end the program with a bus error."""
    path = copied(flat)
    dataset = fastpipe.open(path)
    dataset[36]
    os.truncate(path / INDEX_FILE, 1000)
    with pytest.raises(DatasetError, match="truncated after it was opened"):
        dataset[36]


def test_few_shards_are_open_at_a_time(many_shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_shards() -> int:
        return sum(name.endswith(".tar") for name in open_files(many_shards))

    monkeypatch.setattr(limits, "_MAX_OPEN_SHARDS", 3)
    dataset = fastpipe.open(many_shards)
    assert open_shards() == 0, "opened when it is read"
    for _ in range(2):
        for sample in range(len(dataset)):
            assert np.array_equal(as_array(dataset[sample][0]), expected(many_shards, sample))
            assert 1 <= open_shards() <= 3
    del dataset
    assert open_shards() == 0


def test_the_folder_of_the_program_may_change(
    flat: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(flat.parent)
    dataset, pickled = fastpipe.open(flat.name), pickle.dumps(fastpipe.open(flat.name))
    monkeypatch.chdir(tmp_path)
    assert torch.equal(dataset[1][0], pickle.loads(pickled)[1][0])  # noqa: S301


def test_another_dataset_in_its_place(flat: Path, textured: Path, copied: Copy) -> None:
    path = copied(flat)
    dataset, pickled = fastpipe.open(path), pickle.dumps(fastpipe.open(path))
    before, after = PackedIndex(flat).fingerprint, PackedIndex(textured).fingerprint
    shutil.rmtree(path)
    shutil.copytree(textured, path)
    message = f"now holds a different dataset: expected fingerprint {before}, got {after}"
    with pytest.raises(DatasetError, match=message):
        pickle.loads(pickled)[0]  # noqa: S301
    with pytest.raises(DatasetError, match=message):  # nothing of it was read yet
        dataset[0]


def test_threads_share_a_dataset(many_shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_MAX_OPEN_SHARDS", 2)  # so that they take shards from each other
    dataset = fastpipe.open(many_shards)
    wanted = [expected(many_shards, sample) for sample in range(len(dataset))]

    def read(seed: int) -> None:
        for sample in np.random.default_rng(seed).integers(len(dataset), size=60).tolist():
            assert np.array_equal(as_array(dataset[sample][0]), wanted[sample])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(4)))


def test_decoding_is_on_the_calling_thread_and_limits_nothing_outside_workers(large: Path) -> None:
    script = """
        import os, sys
        import cv2, torch
        import fastpipe
        cv2.setNumThreads(3)
        torch.set_num_threads(3)
        def threads():
            return len(os.listdir("/proc/self/task"))
        before = threads()
        dataset = fastpipe.open(sys.argv[1])
        for _ in range(3):
            dataset.__getitems__(range(len(dataset)))
        assert threads() == before, (before, threads())
        assert (cv2.getNumThreads(), torch.get_num_threads()) == (3, 3)
        assert "OPENCV_FOR_THREADS_NUM" not in os.environ
    """
    done = warm.run_script(script, large)
    assert (done.returncode, done.stderr) == (0, "")
