"""A Lightning program that notes which samples it gets; import it after torchvision, which Lightning imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

import fastpipe


class Noting(pl.LightningModule):
    """Notes the samples of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[Any] = []

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        self.seen.append(batch["id"].tolist())
        return self.weight * 1.0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Validating(Noting):
    """Notes those of validation, too."""

    def __init__(self) -> None:
        super().__init__()
        self.validated: list[Any] = []

    def validation_step(self, batch: Any, number: int) -> None:
        self.validated.append(batch["id"].tolist())


def loader_of(dataset: Path, **options: Any) -> fastpipe.Loader:
    fields = ("image", "id")
    return fastpipe.loader(
        dataset, **{"batch_size": 8, "size": 8, "num_workers": 1, "fields": fields, **options}
    )


def fit(
    module: Noting,
    loader: fastpipe.Loader,
    *,
    val: Any = None,
    resume: Path | None = None,
    **options: Any,
) -> None:
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }
    saving = {} if "callbacks" in options else {"enable_checkpointing": False}
    trainer = pl.Trainer(accelerator="cpu", devices=1, **quiet, **saving, **options)
    trainer.fit(module, loader, val, ckpt_path=resume)
