"""A batch that accelerate or transformers has rebuilt still has images and labels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from accelerate.utils import honor_type, recursively_apply, send_to_device

import fastpipe


@pytest.mark.usefixtures("torchvision")  # which transformers imports
def test_programs_that_rebuild_tuples_find_images_and_labels(flat: Path, tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    trainer = Trainer(torch.nn.Linear(1, 1), TrainingArguments(str(tmp_path), use_cpu=True, report_to="none"))
    with fastpipe.loader(flat, 8, size=8, num_workers=1) as loader:
        batch = next(iter(loader))
    for made in (
        honor_type(batch, (each for each in batch)),
        recursively_apply(lambda tensor: tensor, batch),
        send_to_device(batch, "cpu"),
        trainer._prepare_inputs(batch),
    ):
        assert isinstance(made, type(batch))
        assert torch.equal(made.images, batch.images)
        assert torch.equal(made.labels, batch.labels)
