"""Failure 13: one damaged or endless sample ends or stalls an epoch, and nobody says which it was."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.datasets.packed import damage
from support.pictures.drawn import smooth_noise
from support.programs.children import run

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex

_FILES = """
    import signal, sys
    from pathlib import Path
    import numpy as np
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset

    class Photos(Dataset):
        files = sorted(Path(sys.argv[1]).rglob("*.jpg"))

        def __len__(self):
            return len(self.files)

        def __getitem__(self, number):
            return np.asarray(Image.open(self.files[number]).convert("RGB"))

    timeout_s = float(sys.argv[2])
    for batch in DataLoader(Photos(), batch_size=2, num_workers=1, multiprocessing_context="fork", timeout=timeout_s):
        print(len(batch), flush=True)
        signal.alarm(3 if timeout_s == 0 else 300)  # ends a program that stands still
"""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Six pictures; number 3 is cut off, as by a download that broke."""
    folder = tmp_path / "source" / "only"
    folder.mkdir(parents=True)
    for number in range(6):
        smooth_noise(80, 60, seed=number).save(folder / f"{number}.jpg", quality=90)
    whole = (folder / "3.jpg").read_bytes()
    (folder / "3.jpg").write_bytes(whole[: len(whole) // 2])
    return tmp_path / "source"


def test_a_truncated_file_ends_the_epoch_without_its_name(photos: Path) -> None:
    ended = run(_FILES, photos, 0)
    assert ended.code == 1
    assert "OSError: Caught OSError in DataLoader worker process 0." in ended.complained
    assert "OSError: image file is truncated" in ended.complained
    assert "3.jpg" not in ended.complained


def test_a_file_that_never_answers_stalls_for_ever_or_until_the_timeout(photos: Path) -> None:
    """A pipe without a writer stands for a file on a server that is gone."""
    stuck = photos / "only" / "3.jpg"
    stuck.unlink()
    os.mkfifo(stuck)
    ended = run(_FILES, photos, 0)
    assert (ended.code, ended.said) == (-signal.SIGALRM, "2\n"), (
        "one batch, then nothing, and no word"
    )
    assert ended.complained == ""
    ended = run(_FILES, photos, 1)
    assert ended.code == 1
    assert "RuntimeError: DataLoader timed out after 1" in ended.complained
    assert "3.jpg" not in ended.complained


def test_a_sample_that_breaks_later_is_named_or_replaced(
    flat: Path, copied: Callable[[Path], Path]
) -> None:
    dataset = copied(flat)
    damage(dataset, 20)
    _, member, _ = PackedIndex(dataset).where(20)
    with (
        fastpipe.loader(dataset, 37, size=16, train=False, num_workers=2) as loader,
        pytest.raises(fastpipe.SampleError, match=f"member {member}"),
    ):
        next(iter(loader))
    with fastpipe.loader(
        dataset, 37, size=16, train=False, num_workers=2, on_error="replace"
    ) as loader:
        assert [len(labels) for _, labels in loader] == [37]
        assert loader.stats().replaced == 1
