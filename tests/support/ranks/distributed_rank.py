"""What each process of tests/long/loading/test_rank_processes.py runs: trains two epochs and writes down what it saw.

torchrun ... distributed_rank.py DATA OUT [die AT]
"""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import fastpipe


def main(data: str, out: Path, dies_at: int | None) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    rank = dist.get_rank()
    seen = []
    with fastpipe.loader(data, 3, size=8, num_workers=1, shuffle=True, drop_last=False) as loader:
        for epoch in range(2):
            loader.set_epoch(epoch)
            for number, batch in enumerate(loader):
                images, labels = batch
                if dies_at is None:  # a step that all take part in: hangs if one has fewer batches
                    total = torch.tensor([len(images)])
                    dist.all_reduce(total)
                elif rank == 1 and number == dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                pixels = images[:, :, 4, 4].tolist()
                seen.append({"pixels": pixels, "labels": labels.tolist(), "valid": batch.valid.tolist()})
        assert loader.stats().batches == 2 * len(loader)
    (out / f"{rank}.json").write_text(json.dumps(seen))
    if dies_at is None:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[4]) if len(sys.argv) > 3 else None)
