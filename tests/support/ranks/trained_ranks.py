"""A program of a trainer -> the batches that its steps get, on one process and on two, whole and resumed in mid-epoch.

trained_ranks.py TRAINER DATA OUT: each rank writes OUT/WORLD_SIZE-RANK.json. TRAINER is a name of PROGRAMS; the trainer
connects the processes, after the loader was made.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from support.ranks.torchrun import free_port

import fastpipe

EPOCHS, GLOBAL_BATCH, SIZE = 2, 4, 16
SEEN = 7  # batches before the interruption, more than an epoch of 23 photos
WORLDS = 1, 2
KEYS = {"pixel_values": "image", "labels": "label"}

Noted = tuple[list[Any], list[Any]]  # of the whole run, and of the resumed one


def note(images: torch.Tensor, labels: torch.Tensor) -> list[Any]:
    """Tells order, crops and flips."""
    return [hashlib.sha1(images.contiguous().numpy().tobytes()).hexdigest(), labels.tolist()]


def loader_of(data: str, world: int, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(data, GLOBAL_BATCH // world, size=SIZE, num_workers=1, **options)


def timm(data: str, out: Path, world: int) -> Noted:
    from fastpipe.timm import TimmLoader, create_dataset, create_loader

    dist.init_process_group("gloo")

    def made() -> TimmLoader:
        options: dict[str, Any] = {"color_jitter": None, "device": "cpu", "distributed": world > 1}
        return create_loader(
            create_dataset(root=data), SIZE, GLOBAL_BATCH // world, is_training=True, **options
        )

    def trained(train: TimmLoader, first: int = 0) -> Iterable[list[Any]]:
        for epoch in range(first, EPOCHS):
            train.sampler.set_epoch(epoch)
            yield from (note(*batch) for batch in train)

    train, again = made(), made()
    whole = []
    for batch in trained(train):
        whole.append(batch)
        if len(whole) == SEEN:
            state = train.state_dict()
    again.load_state_dict(state)
    return whole, [*trained(again, state["epoch"])]


def accelerate(data: str, out: Path, world: int) -> Noted:
    """Resumed by `load_state`, and with `skip_first_batches`; both give the same. Its metrics may leave out rows."""
    from accelerate import Accelerator

    train, again = loader_of(data, world), loader_of(data, world)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(1, 1)
    model, train = accelerator.prepare(model, train)
    accelerator.register_for_checkpointing(train)
    whole = []
    for _ in range(EPOCHS):
        for batch in train:
            whole.append(note(*batch))
            if len(whole) == SEEN:
                accelerator.save_state(str(out / "accelerate"))
    accelerator.wait_for_everyone()  # the first rank writes the model
    accelerator.load_state(str(out / "accelerate"))
    rest = [note(*batch) for batch in train]

    valid = torch.cat(
        [
            accelerator.gather_for_metrics(batch.valid)
            for batch in loader_of(data, world, train=False)
        ]
    )
    assert valid.sum() == (samples := len(train.dataset))
    assert len(valid) == samples + samples % world, "a row is repeated"

    epoch, batches = divmod(SEEN, len(again))
    again.set_epoch(epoch)
    assert [note(*batch) for batch in accelerator.skip_first_batches(again, batches)] == rest
    return whole, rest


def trainer(data: str, out: Path, world: int) -> Noted:
    """Hugging Face's, as docs/how-to/recipes.md writes it; its evaluation counts each sample once."""
    import transformers

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(2))
            self.seen: list[Any] = []

        def forward(self, pixel_values: Any, labels: Any) -> dict[str, torch.Tensor]:
            if self.training:
                self.seen.append(note(pixel_values, labels))
            logits = self.weight.expand(len(labels), 2)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    train_on, val = (
        loader_of(data, world, fields=KEYS),
        loader_of(data, world, train=False, fields={**KEYS, "valid": "valid"}),
    )

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return train_on

        def get_eval_dataloader(self, _: object = None) -> Any:
            self.gather_function = self.accelerator.gather
            return val

        def prediction_step(self, model: Any, inputs: Any, *others: Any, **options: Any) -> Any:
            inputs["labels"] = inputs["labels"].masked_fill(~inputs.pop("valid"), -100)
            return super().prediction_step(model, inputs, *others, **options)

    def counted(found: Any) -> dict[str, int]:
        return {"samples": int((found.label_ids != -100).sum())}

    quiet: dict[str, Any] = {
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "logging_strategy": "no",
    }
    saving = {"save_strategy": "steps", "save_steps": SEEN}
    seen = []
    for resumed in (False, True):
        arguments = transformers.TrainingArguments(
            out / "trainer",
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=GLOBAL_BATCH // world,
            **saving,
            **quiet,
        )
        model = Model()
        run = Trainer(model, arguments, eval_dataset=val.dataset, compute_metrics=counted)
        run.train(
            resume_from_checkpoint=str(out / "trainer" / f"checkpoint-{SEEN}") if resumed else None
        )
        seen.append(model.seen)
        assert run.evaluate()["eval_samples"] == len(val.dataset)
        train_on = loader_of(data, world, fields=KEYS)
    return seen[0], seen[1]


def lightning(data: str, out: Path, world: int) -> Noted:
    """With a LightningDataModule, by `ddp` on two processes."""
    import pytorch_lightning as pl

    class Photos(pl.LightningDataModule):
        def train_dataloader(self) -> Any:
            return loader_of(data, world)

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen: list[Any] = []

        def training_step(self, batch: Any) -> torch.Tensor:
            self.seen.append(note(*batch))
            return self.layer(torch.ones(1, 1)).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    ranks: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": world,
        "strategy": "ddp" if world > 1 else "auto",
    }
    quiet: dict[str, Any] = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    models = Model(), Model()
    for model, resumed in zip(models, (None, out / f"step={SEEN}.ckpt"), strict=True):
        saving = pl.callbacks.ModelCheckpoint(
            out, filename="{step}", every_n_train_steps=SEEN, save_top_k=-1
        )
        run = pl.Trainer(max_epochs=EPOCHS, callbacks=[saving], **ranks, **quiet)
        run.fit(model, datamodule=Photos(), ckpt_path=resumed)
    return models[0].seen, models[1].seen


def nodes(data: str, out: Path, world: int) -> Noted:
    """A graph of torchdata.nodes."""
    from torchdata.nodes import IterableWrapper, Loader, Mapper, Prefetcher

    def graph() -> Any:
        return Loader(
            Prefetcher(
                Mapper(IterableWrapper(loader_of(data, world)), lambda batch: note(*batch)), 3
            )
        )

    train, again = graph(), graph()
    dist.init_process_group("gloo")
    whole = []
    for _ in range(EPOCHS):
        for batch in train:
            whole.append(batch)
            if len(whole) == SEEN:
                state = train.state_dict()
    again.load_state_dict(state)
    return whole, [*again]


def jax(data: str, out: Path, world: int) -> Noted:
    """By DLPack; JAX connects the processes."""
    import jax

    jax.distributed.initialize(
        f"127.0.0.1:{os.environ['MASTER_PORT']}", world, int(os.environ["RANK"])
    )
    ranks = {"rank": jax.process_index(), "world_size": jax.process_count()}

    def taken(images: torch.Tensor, labels: torch.Tensor) -> list[Any]:
        pixels = np.asarray(jax.dlpack.from_dlpack(images.permute(0, 2, 3, 1)))
        return note(torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()), labels)

    train, again = loader_of(data, world, **ranks), loader_of(data, world, **ranks)
    whole = []
    for _ in range(EPOCHS):
        for batch in train:
            whole.append(taken(*batch))
            if len(whole) == SEEN:
                state = train.state_dict()
    again.load_state_dict(state)
    rest = [taken(*batch) for batch in again]
    # Waits for all ranks. A forked process ends without JAX's own handler, and if rank 0, which has
    # the service, ends first, JAX aborts the others.
    jax.distributed.shutdown()
    return whole, rest


PROGRAMS = {each.__name__: each for each in (timm, accelerate, trainer, lightning, nodes, jax)}
IMPORTED = {  # once, before its processes are forked; torchvision before a trainer imports it
    "timm": ("fastpipe.timm",),
    "accelerate": ("accelerate", "torch._dynamo", "torch.distributed.fsdp"),
    "trainer": ("bench.peers.import_torchvision", "transformers.trainer", "torch._dynamo"),
    "lightning": ("bench.peers.import_torchvision", "pytorch_lightning", "torch._dynamo"),
    "nodes": ("torchdata.nodes",),
    "jax": (),  # it warns of forks
}


def _process(rank: int, world_size: int, port: int, name: str, data: str, out: Path) -> None:
    launched = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": world_size,
    }
    launched |= {"MASTER_PORT": port}
    os.environ.update({key: str(value) for key, value in launched.items()}, MASTER_ADDR="127.0.0.1")
    folder = out / str(world_size)
    folder.mkdir(exist_ok=True)
    noted = PROGRAMS[name](data, folder, world_size)
    (out / f"{world_size}-{rank}.json").write_text(json.dumps(noted))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    name, data, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    for module in IMPORTED[name]:
        import_module(module)
    for world in WORLDS:
        arguments = (world, free_port(), name, data, out)
        torch.multiprocessing.start_processes(_process, arguments, world, start_method="fork")
