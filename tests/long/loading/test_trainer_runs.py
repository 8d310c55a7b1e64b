"""Hugging Face's Trainer evaluates all samples; each trainer gets the batches of the loader on one and two ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from support.checkout import ROOT, TESTS
from support.pictures.drawn import FLAT_IMAGES
from support.programs import warm
from support.ranks import trained_ranks

import fastpipe

pytestmark = [pytest.mark.usefixtures("one_thread")]
KEYS = {"pixel_values": "image", "labels": "label", "id": "id"}


def loader_of(dataset: Path, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(dataset, **{"batch_size": 4, "size": 8, "num_workers": 1, **options})


@pytest.fixture(autouse=True)
def single_process() -> Iterator[None]:
    """Accelerate keeps what it knows of the process in class attributes."""
    yield
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)


class Model(torch.nn.Module):
    """Its logits say what a picture's number is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))

    def forward(self, pixel_values: Any, labels: Any, id: Any) -> dict[str, torch.Tensor]:
        logits = self.weight + torch.nn.functional.one_hot(labels.clamp(min=0), 3)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.fixture(scope="module")
def transformers(torchvision: ModuleType) -> Any:
    import transformers

    return transformers


def test_all_samples_are_evaluated_beside_a_data_loader_of_the_trainer(
    transformers: Any, flat: Path, tmp_path: Path
) -> None:
    """At an epoch's end, where Accelerate would cut off rows for its own DataLoader."""
    rows = [{"pixel_values": 0, "labels": row % 3, "id": row} for row in range(13)]
    counted = []
    with loader_of(flat, train=False, fields=KEYS) as loader:

        class Trainer(transformers.Trainer):
            def get_eval_dataloader(self, _: object = None) -> fastpipe.Loader:
                self.gather_function = self.accelerator.gather
                return loader

        quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no"}
        settings = {
            **quiet,
            "num_train_epochs": 2,
            "per_device_train_batch_size": 4,
            "eval_strategy": "epoch",
        }
        trainer = Trainer(
            Model(),
            transformers.TrainingArguments(tmp_path, **settings),
            train_dataset=rows,
            eval_dataset=loader.dataset,
            compute_metrics=lambda found: counted.append(len(found.label_ids)) or {},
        )
        trainer.train()
    assert counted == [FLAT_IMAGES] * 2


@pytest.mark.parametrize("trainer", trained_ranks.PROGRAMS)
def test_batches_are_those_of_the_loader_on_each_rank(
    textured: Path, tmp_path: Path, trainer: str
) -> None:
    """Of two epochs, and after an interruption in the middle of the second one."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)]),
        "OMP_NUM_THREADS": "1",
    }
    run = warm.run(
        trained_ranks.__file__, trainer, textured, tmp_path, environment=environment, timeout_s=900
    )
    assert run.returncode == 0, run.stdout + run.stderr
    options: dict[str, Any] = {}
    if trainer == "timm":
        crop = fastpipe.RandomResizedCrop(interpolation="bilinear")
        options = {"augment": fastpipe.Augment.imagenet(), "crop": crop, "seed": 0}
    for world_size in trained_ranks.WORLDS:
        for rank in range(world_size):
            given = {
                "rank": rank,
                "world_size": world_size,
                "num_workers": 1,
                "size": trained_ranks.SIZE,
                **options,
            }
            with fastpipe.loader(
                textured, trained_ranks.GLOBAL_BATCH // world_size, **given
            ) as loader:
                assert len(loader) < trained_ranks.SEEN
                direct = [
                    trained_ranks.note(*batch)
                    for _ in range(trained_ranks.EPOCHS)
                    for batch in loader
                ]
            whole, rest = json.loads((tmp_path / f"{world_size}-{rank}.json").read_text())
            assert whole == direct
            assert rest == direct[trained_ranks.SEEN :]
