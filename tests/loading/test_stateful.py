"""A loader's state in graphs of torchdata.nodes, and what torchdata's StatefulDataLoader is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.checkpoint.stateful import Stateful

import fastpipe


def _graph(data: Path) -> Any:
    from torchdata.nodes import IterableWrapper, Loader, Mapper, Prefetcher

    train = fastpipe.loader(data, 4, size=8, num_workers=1)
    return Loader(
        Prefetcher(
            Mapper(IterableWrapper(train), lambda batch: batch.ids.tolist()), prefetch_factor=3
        )
    )


def test_a_loader_is_stateful(flat: Path) -> None:
    with fastpipe.loader(flat, 4, size=8, num_workers=1) as loader:
        assert isinstance(loader, Stateful)


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
