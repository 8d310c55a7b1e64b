"""A checkpoint of torch.distributed.checkpoint that two ranks save goes on with one rank and with four."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import fastpipe

GLOBAL_BATCH, SEEN = 12, 2


def _process(rank: int, world_size: int, data: str, out: str, saves: bool) -> None:
    """Writes the samples of the rest of an epoch to OUT/WORLD_SIZE-RANK.json, after it has saved or loaded a state."""
    dist.init_process_group(
        "gloo", init_method=f"file://{out}/met-{world_size}", rank=rank, world_size=world_size
    )
    loader = fastpipe.loader(data, GLOBAL_BATCH // world_size, size=8, num_workers=1)
    batches = iter(loader)
    if saves:
        for _ in range(SEEN):
            next(batches)
        dcp.save({"loader": loader}, checkpoint_id=f"{out}/checkpoint")
    else:
        dcp.load({"loader": loader}, checkpoint_id=f"{out}/checkpoint")
        batches = iter(loader)
    rest = [batch.ids.tolist() for batch in batches]
    Path(out, f"{world_size}-{rank}.json").write_text(json.dumps(rest))
    dist.destroy_process_group()


def test_saved_on_two_ranks_it_goes_on_with_one_and_with_four(flat: Path, tmp_path: Path) -> None:
    with fastpipe.loader(flat, GLOBAL_BATCH, size=8, num_workers=1) as loader:
        expected = [batch.ids.tolist() for batch in loader][SEEN:]
    assert expected
    for ranks, saves in ((2, True), (1, False), (4, False)):
        arguments = (ranks, str(flat), str(tmp_path), saves)
        torch.multiprocessing.start_processes(
            _process, arguments, nprocs=ranks, start_method="fork"
        )
        parts = [
            json.loads((tmp_path / f"{ranks}-{rank}.json").read_text()) for rank in range(ranks)
        ]
        assert [[*chain(*batch)] for batch in zip(*parts, strict=True)] == expected
