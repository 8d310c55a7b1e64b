"""A training script whose DataLoader is slow or hangs, for the tests of `fastpipe doctor --train-script`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.workers.script_runs import started_warm

from fastpipe.diagnosis.command import Watched, watch_command

TRAIN = """
    import sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Photos(Dataset):
        def __len__(self):
            return 100_000

        def __getitem__(self, number):
            if number == 40 and "stuck" in sys.argv:
                return wait_for_ever()
            time.sleep(0.02)
            return number

    def wait_for_ever():
        time.sleep(3600)

    def main(workers):
        print("training", *sys.argv[1:], flush=True)
        loader = DataLoader(Photos(), batch_size=4, num_workers=workers)
        for batch in loader:
            time.sleep(0.001)

    if __name__ == "__main__":
        main(0 if "alone" in sys.argv else 2)
"""


@pytest.fixture
def start_warm() -> Iterator[None]:
    """For those of which it makes no difference who imports torch."""
    with started_warm():
        yield


def write_train(folder: Path) -> Path:
    """The script as a file."""
    path = folder / "train.py"
    path.write_text(textwrap.dedent(TRAIN))
    return path


def line_of(text: str, path: Path) -> int:
    return 1 + [line.strip() for line in path.read_text().splitlines()].index(text)


def watched(*words: object, **limits: Any) -> Watched:
    options = {"batches": 40, "seconds": 300.0, "stall_timeout": 300.0, "output": 2, **limits}
    return watch_command(" ".join(map(str, words)), **options)
