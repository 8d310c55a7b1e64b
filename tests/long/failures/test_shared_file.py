"""Failure 16: workers that were forked share the position in a file that the dataset has opened."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from support.programs.children import run

import fastpipe


def test_workers_read_from_each_others_position() -> None:
    script = """
        import json, os, sys, tempfile, time
        import numpy as np
        from torch.utils.data import DataLoader, Dataset

        class Records(Dataset):
            def __init__(self, path, early):
                self.path = path
                self.file = open(path, "rb", buffering=0) if early else None

            def __len__(self):
                return 4_000

            def __getitem__(self, number):
                if self.file is None:
                    self.file = open(self.path, "rb", buffering=0)
                self.file.seek(8 * number)
                time.sleep(1e-4)  # what a slower disk needs
                return self.file.read(8) == np.int64(number).tobytes()

        def wrong(early):
            loader = DataLoader(Records(path, early), 100, num_workers=2, multiprocessing_context="fork")
            return sum(int((~batch).sum()) for batch in loader)

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "records")
            np.arange(4_000).tofile(path)
            print(json.dumps([wrong(early=True), wrong(early=False)]))
    """
    early, late = run(script).figures()
    assert early > 0
    assert late == 0


def test_fastpipe_opens_files_in_each_process(flat: Path) -> None:
    """The parent has read from its dataset, and so has its files open."""
    dataset = fastpipe.open(flat)
    expected = [dataset[number][1] for number in range(10)]
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def read(numbers: range) -> None:
        answers.put([(number, dataset[number][1]) for _ in range(20) for number in numbers])

    children = [context.Process(target=read, args=(range(start, 10, 2),)) for start in range(2)]
    for child in children:
        child.start()
    read_there = {label for _ in children for label in answers.get(timeout=300)}
    for child in children:
        child.join(300)
    assert sorted(read_there) == list(enumerate(expected))
