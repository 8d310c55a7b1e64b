"""A process of test_distributed.py and test_rank_processes.py, whose loader is made before the processes are connected.

late_ranks.py HOW DATA OUT: each rank writes the samples of its epochs to OUT/RANK.json.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import fastpipe


def early(data: str, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(data, 3, size=8, num_workers=1, drop_last=False, **options)


def connected(out: Path, rank: int, world_size: int, name: str = "store") -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{out}/{name}", rank=rank, world_size=world_size
    )
    dist.barrier()  # else one may end, and with it its sockets, while the other still connects


def samples(loader: Any) -> list[int]:
    """Of an epoch, those that count."""
    return [sample for batch in loader for sample in batch.ids[batch.valid].tolist()]


def written(out: Path, rank: int, found: object) -> None:
    (out / f"{rank}.json").write_text(json.dumps(found))


def launched(data: str, out: Path) -> None:
    """As torchrun starts it: an iteration before the processes are connected is refused, one afterwards shares."""
    loader = early(data)
    assert loader.remaining == len(loader)
    planned = len(loader)
    try:
        next(iter(loader))
    except fastpipe.ConfigError as problem:
        refused = str(problem)
    dist.init_process_group("gloo")
    assert len(loader) == planned
    written(
        out, dist.get_rank(), {"refused": refused, "epochs": [samples(loader) for _ in range(2)]}
    )
    dist.destroy_process_group()


def changing(data: str, out: Path) -> None:
    """Two ranks, then each by itself, then two again; an epoch that runs meanwhile keeps its ranks."""
    rank = int(os.environ["RANK"])
    loader = early(data)
    connected(out, rank, 2, "first")
    found, lengths = [samples(loader)], [len(loader)]
    running = iter(loader)
    first = next(running)
    dist.destroy_process_group()
    connected(out, 0, 1, f"alone-{rank}")
    state = loader.state_dict()
    rest = samples(running)
    found.append(first.ids[first.valid].tolist() + rest)
    found.append(samples(loader))
    lengths.append(len(loader))
    dist.destroy_process_group()
    connected(out, rank, 2, "again")
    loader.load_state_dict(state)
    lengths.append(loader.remaining)
    assert samples(loader) == rest
    found.append(samples(loader))
    written(out, rank, {"epochs": found, "lengths": lengths})
    dist.destroy_process_group()


def seeds(data: str, out: Path) -> None:
    """Each rank with a seed of its own: refused, on one of them at least, and the other one ends with it."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    refused = ""
    loader = early(data, seed=42 + rank)
    try:
        for _ in range(2):
            samples(loader)
            dist.barrier()
    except (fastpipe.ConfigError, RuntimeError) as problem:
        refused = str(problem)
    written(out, rank, refused)
    os._exit(0)  # the other rank may wait for this one


def lightning(data: str, out: Path) -> None:
    """As docs/how-to/recipes.md writes it: the loader is made before the trainer, which starts the second process."""
    import_module("bench.peers.import_torchvision")  # before Lightning imports it
    import pytorch_lightning as pl

    class Seeing(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen: dict[int, list[int]] = {}

        def training_step(self, batch: Any) -> Any:
            self.seen.setdefault(int(batch["epoch"]), []).extend(
                batch["id"][batch["valid"]].tolist()
            )
            return self.layer(torch.ones(1, 1)).sum()

        def configure_optimizers(self) -> Any:
            self.steps = self.trainer.estimated_stepping_batches
            return torch.optim.SGD(self.parameters(), lr=0.1)

    train = early(data, fields=("image", "id", "valid", "epoch"))
    model = Seeing()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", devices=2, strategy="ddp", **quiet)
    trainer.fit(model, train)
    assert model.steps == trainer.global_step == 2 * len(train)
    written(out, trainer.global_rank, list(model.seen.values()))


class Around(torch.utils.data.IterableDataset[Any]):
    """A loader as a dataset: whole batches, or single samples."""

    def __init__(self, loader: fastpipe.Loader, single: bool) -> None:
        self.loader = loader
        self.single = single

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            yield from batch.ids if self.single else [batch.ids]


def accelerated(data: str, out: Path, how: str) -> None:
    """Accelerate reads a DataLoader around a loader of the whole dataset, and deals it out in the way of HOW."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    dispatched = how == "dispatched"
    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatched)
    )
    around = Around(early(data, rank=0, world_size=1), single=not dispatched)
    wrapped = torch.utils.data.DataLoader(around, batch_size=None if dispatched else 3)
    found = [sample for batch in accelerator.prepare(wrapped) for sample in batch.tolist()]
    written(out, accelerator.process_index, found)


if __name__ == "__main__":
    how, data, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    programs = {"launched": launched, "changing": changing, "seeds": seeds, "lightning": lightning}
    if how in programs:
        programs[how](data, out)
    else:
        accelerated(data, out, how)
