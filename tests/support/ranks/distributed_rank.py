"""Each process of three that read two epochs; the second one is killed at its second batch.

distributed_rank.py DATA OUT: a rank that is left writes the samples that it saw to OUT/RANK.json.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

import fastpipe


def main(data: str, out: Path) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    rank = dist.get_rank()
    seen = []
    with fastpipe.loader(data, 3, size=8, num_workers=1, drop_last=False) as loader:
        for _ in range(2):
            for number, batch in enumerate(loader):
                if rank == 1 and number == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                seen += batch.ids.tolist()
        assert loader.stats().batches == 2 * len(loader)
    (out / f"{rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
