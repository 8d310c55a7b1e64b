"""Failure 4: each tensor of a batch that a worker sent holds an open file, for as long as the batch is kept."""

from __future__ import annotations

from pathlib import Path

from support.programs.children import run


def test_kept_batches_use_up_the_open_files() -> None:
    script = """
        import os, resource, sys
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Numbers(Dataset):
            def __len__(self):
                return 400

            def __getitem__(self, number):
                return torch.full((4,), number)

        def kept():
            batches = DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context="fork")
            return len([batch for batch in batches])

        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))  # where 1024 are usual
        try:
            kept()
        except (RuntimeError, OSError) as problem:
            assert "Too many open files" in str(problem), problem
        else:
            raise SystemExit("kept more batches than it may have files")
        torch.multiprocessing.set_sharing_strategy("file_system")
        print(kept())
    """
    assert run(script).figures() == 200


def test_fastpipe_keeps_batches_without_files(many_shards: Path) -> None:
    script = """
        import json, os, sys
        import fastpipe

        def count_open_files():
            return len(os.listdir("/proc/self/fd"))

        with fastpipe.loader(sys.argv[1], 2, size=32, num_workers=2) as loader:
            kept = list(loader)  # every shard is open from now on
            first_epoch = count_open_files()
            for _ in range(20):
                kept.extend(loader)
            print(json.dumps([len(kept), first_epoch, count_open_files()]))
    """
    batches, after_first_epoch, after_last_epoch = run(script, many_shards).figures()
    assert batches == 21 * 12
    assert after_last_epoch == after_first_epoch
