"""Trainers get the batches of the loader, on one and two ranks; Accelerate and Hugging Face's Trainer skip, resume and
count as they do with torch's DataLoader.
"""

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


def ids(batches: Any) -> list[list[int]]:
    return [batch.ids.tolist() for batch in batches]


@pytest.fixture(autouse=True)
def single_process() -> Iterator[None]:
    """Accelerate keeps what it knows of the process in class attributes."""
    yield
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("options", [{}, {"shuffle": False, "drop_last": False}, {"size": "bucket"}, {"views": 2}])
def test_skip_first_batches(flat: Path, options: dict[str, Any]) -> None:
    from accelerate import skip_first_batches

    with loader_of(flat, **options) as loader:
        epochs = [ids(loader) for _ in range(3)]
        for skipped in (0, 1, 5, len(loader)):
            loader.set_epoch(1)
            rest = skip_first_batches(loader, skipped)
            assert len(rest) == len(loader) - skipped
            assert ids(rest) == epochs[1][skipped:]
            assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (2, 0)
            assert ids(loader) == epochs[2]


def test_what_is_skipped_is_not_decoded(flat: Path) -> None:
    from accelerate import Accelerator

    with loader_of(flat, prefetch_factor=1) as loader:
        accelerator = Accelerator(cpu=True)
        batches = list(accelerator.skip_first_batches(accelerator.prepare(loader), len(loader) - 1))
        assert (len(batches), loader.stats().images_decoded) == (1, 4)


def test_a_loop_that_is_left_keeps_no_batches(flat: Path) -> None:
    from accelerate import skip_first_batches

    with loader_of(flat) as loader:
        first = iter(skip_first_batches(loader, 2))
        next(first)
        second = iter(skip_first_batches(loader, 3))
        next(second)
        del first
        assert len(ids(second)) == len(loader) - 4
        third = iter(skip_first_batches(loader, 1))
        next(third)
        assert loader.stats().batches_making + loader.stats().batches_ready > 0
        del third
        assert loader.stats().batches_making + loader.stats().batches_ready == 0


def test_skipping_after_a_state_skips_no_more_than_either(flat: Path) -> None:
    from accelerate import skip_first_batches

    with loader_of(flat) as loader:
        whole = ids(loader)
        for loaded, skipped in ((3, 0), (3, 3), (3, 5), (5, 3)):
            loader.load_state_dict({**loader.state_dict(), "epoch": 0, "batches": loaded})
            assert ids(skip_first_batches(loader, skipped)) == whole[max(loaded, skipped) :]


def test_samplers(flat: Path) -> None:
    for rank in range(2):
        for options in (
            {},
            {"train": False},
            {"sampler": fastpipe.Repeated(2)},
            {"sampler": fastpipe.PerClass(samples=4)},
            {"size": "bucket"},
        ):
            with loader_of(flat, rank=rank, world_size=2, **options) as loader:
                loader.sampler.set_epoch(3)
                assert loader.stats().images_decoded == 0
                expected = list(loader.sampler)
                assert len(expected) == len(loader.sampler)
                assert len(loader.batch_sampler) == len(loader)
                batches = list(loader)
                assert expected == [number for batch in ids(batches) for number in batch]
                assert batches[0].epoch == 3


class Model(torch.nn.Module):
    """Notes the samples that it gets; its logits say what a picture's number is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))
        self.seen: list[list[int]] = []

    def forward(self, pixel_values: Any, labels: Any, id: Any) -> dict[str, torch.Tensor]:
        self.seen.append(id.tolist())
        logits = self.weight + torch.nn.functional.one_hot(labels.clamp(min=0), 3)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.fixture(scope="module")
def transformers(torchvision: ModuleType) -> Any:
    import transformers

    return transformers


def trainer_of(transformers: Any, loader: fastpipe.Loader, folder: Path, **options: Any) -> Any:
    class Trainer(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return loader

    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "steps", "save_steps": 3}
    settings = {**quiet, "num_train_epochs": 3, "logging_strategy": "no", **options}
    return Trainer(model=Model(), args=transformers.TrainingArguments(folder, **settings))


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
        settings = {**quiet, "num_train_epochs": 2, "per_device_train_batch_size": 4, "eval_strategy": "epoch"}
        trainer = Trainer(
            Model(),
            transformers.TrainingArguments(tmp_path, **settings),
            train_dataset=rows,
            eval_dataset=loader.dataset,
            compute_metrics=lambda found: counted.append(len(found.label_ids)) or {},
        )
        trainer.train()
    assert counted == [FLAT_IMAGES] * 2


@pytest.mark.parametrize("accumulated", [1, 2])
def test_trainer_resumes(transformers: Any, flat: Path, tmp_path: Path, accumulated: int) -> None:
    with loader_of(flat, fields=KEYS) as loader:
        whole = trainer_of(transformers, loader, tmp_path, gradient_accumulation_steps=accumulated)
        whole.train()
    assert len(whole.model.seen) == 3 * (FLAT_IMAGES // 4)
    folders = sorted(tmp_path.glob("checkpoint-*"))
    assert len(folders) > 3
    for folder in folders:
        with loader_of(flat, fields=KEYS) as loader:
            again = trainer_of(transformers, loader, tmp_path / "again", gradient_accumulation_steps=accumulated)
            again.train(resume_from_checkpoint=str(folder))
        done = len(whole.model.seen) - len(again.model.seen)
        assert again.model.seen == whole.model.seen[done:]


@pytest.mark.parametrize("trainer", trained_ranks.PROGRAMS)
def test_batches_are_those_of_the_loader_on_each_rank(textured: Path, tmp_path: Path, trainer: str) -> None:
    """Of two epochs, and after an interruption in the middle of the second one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)]), "OMP_NUM_THREADS": "1"}
    run = warm.run(trained_ranks.__file__, trainer, textured, tmp_path, environment=environment, timeout_s=300)
    assert run.returncode == 0, run.stdout + run.stderr
    options: dict[str, Any] = {}
    if trainer == "timm":
        crop = fastpipe.RandomResizedCrop(interpolation="bilinear")
        options = {"augment": fastpipe.Augment.imagenet(), "crop": crop, "seed": 0}
    for world_size in trained_ranks.WORLDS:
        for rank in range(world_size):
            given = {"rank": rank, "world_size": world_size, "num_workers": 1, "size": trained_ranks.SIZE, **options}
            with fastpipe.loader(textured, trained_ranks.GLOBAL_BATCH // world_size, **given) as loader:
                assert len(loader) < trained_ranks.SEEN
                direct = [trained_ranks.note(*batch) for _ in range(trained_ranks.EPOCHS) for batch in loader]
            whole, rest = json.loads((tmp_path / f"{world_size}-{rank}.json").read_text())
            assert whole == direct
            assert rest == direct[trained_ranks.SEEN :]
