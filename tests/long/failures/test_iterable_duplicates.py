"""Failure 9: each worker has the whole of an IterableDataset, and every sample comes once from each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from support.pictures.drawn import FLAT_IMAGES, flat_number
from support.programs.children import run

import fastpipe


def test_every_worker_yields_everything() -> None:
    script = """
        import json, sys
        from torch.utils.data import DataLoader, IterableDataset, get_worker_info

        class Stream(IterableDataset):
            def __init__(self, split):
                self.split = split

            def __iter__(self):
                worker = get_worker_info()
                numbers = range(10)
                return iter(numbers[worker.id :: worker.num_workers] if self.split else numbers)

        def samples(split):
            loader = DataLoader(Stream(split), batch_size=5, num_workers=2, multiprocessing_context="fork")
            return sorted(int(number) for batch in loader for number in batch)

        print(json.dumps([samples(False), samples(True)]))
    """
    as_it_is, split = run(script).figures()
    assert as_it_is == sorted([*range(10), *range(10)])
    assert split == list(range(10))


def test_fastpipe_gives_every_sample_once(flat: Path) -> None:
    for workers in (1, 5):
        with fastpipe.loader(
            flat, 8, size=16, train=False, shuffle=True, num_workers=workers
        ) as loader:
            for _ in range(2):
                seen = Counter(
                    flat_number(image[:, 2, 2].numpy()) for images, _ in loader for image in images
                )
                assert seen == Counter(range(FLAT_IMAGES))
