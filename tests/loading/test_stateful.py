"""A loader's state in checkpoints of torch.distributed.checkpoint, and in graphs of torchdata.nodes."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.stateful import Stateful

import fastpipe

GLOBAL_BATCH, SEEN = 12, 2


def _process(rank: int, world_size: int, data: str, out: str, saves: bool) -> None:
    """Writes the samples of the rest of an epoch to OUT/WORLD_SIZE-RANK.json, after it has saved or loaded a state."""
    dist.init_process_group("gloo", init_method=f"file://{out}/met-{world_size}", rank=rank, world_size=world_size)
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
        assert isinstance(loader, Stateful)
        expected = [batch.ids.tolist() for batch in loader][SEEN:]
    assert expected
    for ranks, saves in ((2, True), (1, False), (4, False)):
        arguments = (ranks, str(flat), str(tmp_path), saves)
        torch.multiprocessing.start_processes(_process, arguments, nprocs=ranks, start_method="fork")
        parts = [json.loads((tmp_path / f"{ranks}-{rank}.json").read_text()) for rank in range(ranks)]
        assert [[*chain(*batch)] for batch in zip(*parts, strict=True)] == expected


def _graph(data: Path) -> Any:
    from torchdata.nodes import IterableWrapper, Loader, Mapper, Prefetcher

    train = fastpipe.loader(data, 4, size=8, num_workers=1)
    return Loader(Prefetcher(Mapper(IterableWrapper(train), lambda batch: batch.ids.tolist()), prefetch_factor=3))


def test_a_graph_of_nodes_goes_on_where_its_loop_was(flat: Path) -> None:
    pytest.importorskip("torchdata")
    whole = _graph(flat)
    epochs = [list(whole) for _ in range(2)]
    graph = _graph(flat)
    batches = iter(graph)
    seen = [next(batches) for _ in range(3)]
    state = json.loads(json.dumps(graph.state_dict()))
    again = _graph(flat)
    again.load_state_dict(state)
    assert seen + list(again) == epochs[0]
    assert list(again) == epochs[1]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_stateful_data_loader_says_what_to_do(flat: Path) -> None:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    loader = fastpipe.loader(flat, 4, size=8, num_workers=1)
    with pytest.raises(TypeError, match="already a loader: iterate over it"):
        next(iter(module.StatefulDataLoader(loader, batch_size=None)))
