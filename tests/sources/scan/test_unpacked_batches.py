"""Batches of what is not packed: the same as of the packed dataset, for every kind of file and source."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.running.process_state import open_files
from support.sources.tars import tar_of_folder
from support.sources.unpacked_sources import (
    assert_same_epochs,
    bad_files,
    epoch,
    odd_pictures,
    packed,
    plain_pictures,
    web_tars,
    write_mixed,
)

import fastpipe
from fastpipe.errors import ConfigError, SampleError


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every kind of file, and what packing makes of it beside it."""
    root = tmp_path_factory.mktemp("mixed") / "photos"
    write_mixed(root, {**plain_pictures(), **odd_pictures(), **bad_files()})
    packed(root, root.parent / "packed")
    return root


def test_each_kind_of_file_gives_the_rows_of_the_packed_dataset(mixed: Path) -> None:
    dataset = fastpipe.open(mixed).index
    assert (dataset.packed, dataset.counts["rejected"]) == (False, len(bad_files()))
    assert len(dataset) == 14 + len(plain_pictures()) + len(odd_pictures())
    assert_same_epochs(epoch(mixed), epoch(mixed.parent / "packed"))


def test_the_usual_kinds_are_not_converted_and_the_others_are_counted(mixed: Path) -> None:
    assert fastpipe.open(mixed).index.counts["converted"] == len(odd_pictures()) - 1
    with fastpipe.loader(mixed, 8, train=False, size=32, num_workers=2) as loader:
        for _ in range(2):
            for _ in loader:
                pass
            stats = loader.stats()
            assert stats.images_failed == 0
        # LATE is one of them; and batches of the next epoch are made in advance.
        assert 2 * len(odd_pictures()) <= stats.images_converted <= 3 * len(odd_pictures())
        assert stats.samples == 2 * len(loader.dataset) <= stats.images_decoded
        assert stats.convert_s > 0


def test_each_kind_of_source(mixed: Path, tmp_path: Path) -> None:
    shards, coefficients = mixed.parent / "packed", tmp_path / "coefficients"
    fastpipe.pack(mixed, coefficients, storage="coefficients", shuffle=False)
    tars = tmp_path / "folder of tars"
    for folder in (tars, tmp_path / "shards", tmp_path / "shards of coefficients"):
        folder.mkdir()
    for name in ("ant", "bee"):
        tar_of_folder(mixed / name, tars / f"{name}.tar", name)
    for dataset, name in ((shards, "shards"), (coefficients, "shards of coefficients")):
        for shard in dataset.glob("*.tar"):
            shutil.copy(shard, tmp_path / name)
    for number, source in enumerate(
        (
            mixed / "ant",  # a flat folder
            tar_of_folder(mixed, tmp_path / "photos.tar", "photos"),
            tars,
            web_tars(tmp_path / "web tars"),
            tmp_path / "shards",
            tmp_path / "shards of coefficients",
        )
    ):
        assert_same_epochs(epoch(source), epoch(packed(source, tmp_path / f"packed-{number}")))


def test_batches_depend_on_neither_threads_nor_prefetching(mixed: Path) -> None:
    assert_same_epochs(
        epoch(mixed, num_workers=1, prefetch_factor=1),
        epoch(mixed, num_workers=4, prefetch_factor=5),
    )


def test_reduced_decodes_are_those_of_the_packed_dataset(mixed: Path) -> None:
    assert_same_epochs(epoch(mixed, size=12), epoch(mixed.parent / "packed", size=12))


def mean_classes(source: Path, **options: object) -> float:
    """How many classes a batch of 32 has, in the mean of two epochs."""
    with fastpipe.loader(source, 32, size=8, num_workers=2, **options) as loader:  # type: ignore[arg-type]
        counts = [len(labels.unique()) for _ in range(2) for _, labels in loader]
    return float(np.mean(counts))


@pytest.fixture(scope="module")
def in_classes(tmp_path_factory: pytest.TempPathFactory, mixed: Path) -> Path:
    """800 pictures in 40 classes."""
    root = tmp_path_factory.mktemp("classes")
    picture = next(mixed.rglob("00.jpg")).read_bytes()
    for name in range(40):
        (root / f"class-{name:02d}").mkdir(parents=True)
        for number in range(20):
            (root / f"class-{name:02d}" / f"{number}.jpg").write_bytes(picture)
    return root


def test_shuffled_batches_of_a_sorted_folder_have_many_classes(in_classes: Path) -> None:
    expected = 40 * (1 - (39 / 40) ** 32)  # 22.2
    assert abs(mean_classes(in_classes) - expected) < 1
    assert mean_classes(in_classes, train=False) < 3
    # Each rank of two nodes has a part of the dataset: a fair mix of the classes, too.
    with fastpipe.loader(
        in_classes, 32, size=8, rank=1, world_size=2, partition=2, drop_last=False
    ) as loader:
        labels = torch.cat([labels for _, labels in loader])
    assert len(labels) == 400
    assert len(labels.unique()) == 40


def test_tars_sorted_by_class_are_mixed_as_a_whole_and_others_read_in_chunks(
    tmp_path: Path,
) -> None:
    in_order = web_tars(tmp_path / "sorted", tars=4, samples=75, classes=30, in_order=True)
    mixed = web_tars(tmp_path / "mixed", tars=4, samples=75, classes=30)
    assert fastpipe.open(in_order).index.is_scattered
    assert not fastpipe.open(mixed).index.is_scattered
    expected = 30 * (1 - (29 / 30) ** 32)  # 19.9
    assert abs(mean_classes(in_order) - expected) < 1.5
    assert mean_classes(mixed) > expected - 1.5


def test_a_state_belongs_to_what_is_not_packed(mixed: Path) -> None:
    with (
        fastpipe.loader(mixed, 4, size=24) as loader,
        fastpipe.loader(mixed.parent / "packed", 4, size=24) as other,
        pytest.raises(ConfigError, match="the state was saved with another dataset"),
    ):
        other.load_state_dict(loader.state_dict())


def test_a_file_damaged_behind_its_header_is_named_or_replaced(mixed: Path, tmp_path: Path) -> None:
    root = shutil.copytree(mixed, tmp_path / "photos")
    photo, picture = root / "bee" / "01.jpg", next(root.rglob("picture.png"))
    data = photo.read_bytes()
    photo.write_bytes(data[:-200])
    samples = len(fastpipe.open(mixed))
    with pytest.raises(
        SampleError, match=r"\(bee/01\.jpg\) cannot be decoded: .*truncated"
    ) as caught:
        epoch(root, crop=fastpipe.Resize())
    assert caught.value.shard == str(photo)
    assert (caught.value.key, caught.value.offset) == ("bee/01.jpg", 0)
    assert f"at byte 0 of {photo}" in str(caught.value)
    assert "on_error='replace'" in str(caught.value)
    with fastpipe.loader(
        root, 8, train=False, crop=fastpipe.Resize(), size=8, on_error="replace"
    ) as loader:
        assert sum(len(labels) for _, labels in loader) == samples
        assert (loader.stats().replaced, loader.stats().images_failed) == (1, 1)
    # What is converted: a PNG whose pixels end early, behind a sound header.
    photo.write_bytes(data)
    png = bytearray(picture.read_bytes())
    png[-40] ^= 0xFF
    with fastpipe.loader(root, 8, train=False, crop=fastpipe.Resize(), size=8) as loader:
        times = picture.stat()
        picture.write_bytes(png)
        os.utime(picture, ns=(times.st_atime_ns, times.st_mtime_ns))
        with pytest.raises(
            SampleError, match=r"/picture\.png\) cannot be decoded: the PNG is corrupt"
        ):
            list(loader)


@pytest.mark.parametrize("name", ["00.jpg", "picture.png"])
def test_a_file_that_changes_after_the_scan_is_refused(
    mixed: Path, tmp_path: Path, name: str
) -> None:
    changes: dict[str, Callable[[Path], object]] = {
        "size": lambda file: file.write_bytes(file.read_bytes() + b"x"),
        "time": lambda file: file.write_bytes(file.read_bytes()),
        "gone": lambda file: file.unlink(),
    }
    for change, edit in changes.items():
        root = shutil.copytree(mixed, tmp_path / change)
        words = "the file has changed since it was scanned"
        if change == "gone":
            words = "cannot be (opened|read): No such file"
        with fastpipe.loader(root, 8, train=False, size=8) as loader:
            edit(next(root.rglob(name)))
            with pytest.raises(
                SampleError, match=rf"/{name}\) cannot be decoded: .*{words}"
            ) as caught:
                list(loader)
            assert ("make the loader again" in str(caught.value)) == (change != "gone")


def test_few_files_are_open_at_a_time(in_classes: Path) -> None:
    """A file is read once an epoch, so it need not stay open."""
    with fastpipe.loader(in_classes, 64, size=8, num_workers=4) as loader:
        most = max(len(open_files(in_classes)) for _ in loader)
        assert most <= 2 * 4 + 4 + 1  # of each thread two, what threads and the hints hold
        # Once for the hint, and once for the read where the hint was too early.
        assert loader.stats().shards_opened <= 2 * 800 + 100
    samples = fastpipe.open(in_classes)
    for number in range(0, 800, 50):
        assert samples[number][0].ndim == 3
    assert len(open_files(in_classes)) <= 2


def test_what_does_not_work_says_so(mixed: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"got 'txt'\. It is not packed: `fastpipe pack` keeps captions"
    ):
        fastpipe.loader(web_tars(tmp_path / "tars"), 4, fields=("image", "txt"))


def test_the_log_says_once_what_packing_gains(
    mixed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = shutil.copytree(mixed, tmp_path / "photos")
    (root / "ant" / "new.jpg").write_bytes((root / "ant" / "00.jpg").read_bytes())
    for _ in range(2):
        fastpipe.loader(root, 4, size=8).close()
    left_out, alpha, gains, dark = (record.getMessage() for record in caplog.records)
    assert f"{len(bad_files())} files are left out" in left_out
    assert "/cut.jpg: truncated JPEG" in left_out
    assert "1 image has alpha, which a loader of RGB drops" in alpha
    assert (
        f"{root} is not packed: its {len(fastpipe.open(root))} images are read where they lie"
        in gains
    )
    assert "converted again in each epoch" in gains
    assert "images of 16 bits a channel, with values of up to 8 bits" in dark
