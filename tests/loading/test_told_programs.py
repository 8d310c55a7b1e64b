"""What a loader says once to a program that may not expect what it does: trainers' options, Accelerate, resuming."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import fastpipe
from fastpipe import warnings_once
from fastpipe.device import image_batch
from fastpipe.loading import factory, programs

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings_once.forget_all()
    monkeypatch.setattr(programs, "names_read", set())
    monkeypatch.setattr(image_batch, "names_read", programs.names_read)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING, "fastpipe"):
        yield caplog


def loader_of(data: Path, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(data, **{"batch_size": 4, "size": 8, "num_workers": 1, **options})


def in_module(monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> Any:
    """A module of this name, with this source."""
    module = types.ModuleType(name)
    exec(source, module.__dict__)
    monkeypatch.setitem(sys.modules, name, module)
    return module


TRAINER = """
class Trainer:
    def __init__(self, args):
        self.args = args

    def train(self, loader):
        for batch in loader:
            pass
"""
DEFAULTS = {
    "seed": 42,
    "data_seed": None,
    "dataloader_num_workers": 0,
    "dataloader_prefetch_factor": None,
}


@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        ({"dataloader_num_workers": 8}, {}, "(dataloader_num_workers=8) is for.*: num_workers=8"),
        ({"dataloader_num_workers": 1}, {}, ""),
        (
            {"dataloader_num_workers": 2, "dataloader_prefetch_factor": 4},
            {},
            ": num_workers=2, prefetch_factor=4",
        ),
        ({"dataloader_drop_last": True}, {"drop_last": False}, "drop_last=True"),
        (
            {"dataloader_persistent_workers": True},
            {},
            "no effect on this loader. Its threads stay from epoch to epoch",
        ),
        (
            {"per_device_train_batch_size": 64},
            {},
            "(per_device_train_batch_size=64) is for.*: batch_size=64",
        ),
        ({"per_device_train_batch_size": 8}, {}, ""),  # the default
        ({"per_device_eval_batch_size": 64}, {"train": False}, "batch_size=64"),
        ({"per_device_train_batch_size": 64}, {"train": False}, ""),
        ({"data_seed": 3}, {}, "(data_seed=3) is for.*: seed=3"),
        ({"seed": 5}, {}, "(seed=5) is for.*: seed=5"),
        ({"seed": 5}, {"seed": 5}, ""),
        ({"seed": 5, "data_seed": 3}, {"seed": 3}, ""),
        ({"seed": 5}, {"train": False}, ""),
        ({}, {}, ""),
    ],
)
def test_options_of_hugging_faces_trainer(
    flat: Path,
    log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    options: dict[str, Any],
    told: str,
) -> None:
    module = in_module(monkeypatch, "transformers.trainer", TRAINER)
    trainer = module.Trainer(SimpleNamespace(**{**DEFAULTS, **given}))
    with loader_of(flat, **options) as loader:
        for _ in range(2):
            trainer.train(loader)
    messages = [record.getMessage() for record in log.records]
    assert len(messages) == bool(told), messages
    for part in told.split(".*"):
        assert part in "".join(messages)


def test_a_state_that_accelerate_loads_says_that_the_loop_skips_nothing_more(
    flat: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def load_custom_state(obj, state):\n    obj.load_state_dict(state)\n"
    accelerate = in_module(monkeypatch, "accelerate.checkpointing", source)
    with loader_of(flat) as loader:
        start = loader.state_dict()
        running = iter(loader)
        for _ in range(3):
            next(running)  # type: ignore[call-overload]
        state = loader.state_dict()
        accelerate.load_custom_state(loader, start)
        loader.load_state_dict(state)  # the program's own call
        assert log.text == ""
        for _ in range(2):
            accelerate.load_custom_state(loader, state)
        assert log.text.count("the rest of epoch 0, from batch 3 on") == 1
        assert "`if step < resume_step: continue`, they are skipped twice" in log.text


def trained(**options: Any) -> torch.optim.Optimizer:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.AdamW([weight], **options)
    weight.grad = torch.ones(2)
    optimizer.step()
    return optimizer


@pytest.mark.parametrize("placed", ["", "set_epoch", "load_state_dict", "evaluation"])
def test_a_program_that_has_resumed_and_begins_with_epoch_0(
    flat: Path, log: pytest.LogCaptureFixture, placed: str
) -> None:
    optimizer = trained()
    with loader_of(flat, train=placed != "evaluation") as loader:
        if placed == "set_epoch":
            loader.set_epoch(0)
        elif placed == "load_state_dict":
            loader.load_state_dict(loader.state_dict())
        for _ in range(2):
            list(loader)
    assert log.text.count("the optimizer AdamW has a state already") == (not placed)
    assert optimizer.state


def test_a_schedule_shows_it_too(
    flat: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, last_epoch=-1)
    monkeypatch.setattr(programs.gc, "get_referrers", lambda *_: [optimizer, schedule])
    with loader_of(flat) as loader:
        list(loader)
        assert log.text == ""
    warnings_once.forget_all()
    schedule.load_state_dict({**schedule.state_dict(), "last_epoch": 7})
    with loader_of(flat) as loader:
        list(loader)
    assert "the schedule StepLR is at 7 already" in log.text


def test_a_program_that_begins_is_told_nothing_and_neither_is_its_second_loader(
    flat: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, loader_of(flat) as loader:
        patch.setattr(programs.gc, "get_referrers", lambda *_: [])
        list(loader)
    optimizer = trained()
    with loader_of(flat) as loader:
        list(loader)
    assert "has a state already" not in log.text
    assert optimizer.state


def test_num_workers_0_is_one_thread(
    flat: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factory, "count_granted_cpus", lambda: 12)
    for _ in range(2):
        with loader_of(flat, num_workers=0, prefetch_factor=None) as loader:
            assert loader.stats().threads == 1
            assert len(list(loader)) == len(loader)
    assert log.text.count("num_workers=0: one thread decodes") == 1
    assert "granted, 12" in log.text


def repeats_logged(
    log: pytest.LogCaptureFixture, data: Path, *, reads_valid: bool = False, **options: Any
) -> list[str]:
    """What the log says of an evaluation on two ranks that is repeated once."""
    log.clear()
    ranks = {"rank": 1, "world_size": 2}
    with loader_of(data, **{"train": False, **ranks, **options}) as loader:
        for _ in range(2):
            for batch in loader:
                if reads_valid:
                    assert len(batch.valid) == len(batch.ids)
    return [
        message for message in log.messages if "so that all ranks have the same number" in message
    ]


def test_rows_that_repeat_samples_of_an_evaluation(
    flat: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 37 samples are 19 and 18 of two ranks, and one row of the second rank repeats one."""
    (message,) = repeats_logged(log, flat)
    assert message.startswith("1 row of the last batch of rank 1 repeats samples")
    assert "batch.valid" in message

    warnings_once.forget_all()
    (message,) = repeats_logged(log, flat, fields=("image", "label"))
    assert 'fields=("image", "label", "valid")' in message


def test_programs_that_know_of_repeated_rows(flat: Path, log: pytest.LogCaptureFixture) -> None:
    assert repeats_logged(log, flat, fields=("image", "label", "valid")) == []
    assert repeats_logged(log, flat, rank=0, world_size=1) == []
    assert repeats_logged(log, flat, train=True) == []
    assert repeats_logged(log, flat, rank=0) == []
    assert repeats_logged(log, flat, reads_valid=True) == []


@pytest.mark.parametrize("sets_epoch", [False, True])
def test_a_look_at_a_resumed_epoch_uses_it_up(
    flat: Path, log: pytest.LogCaptureFixture, sets_epoch: bool
) -> None:
    """37 samples are 9 batches of 4: the state stands at the third of them."""
    with loader_of(flat) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()

    def resume(taken: int) -> list[str]:
        """What the log says when so many batches are taken before the loop over all."""
        log.clear()
        with loader_of(flat) as loader:
            loader.load_state_dict(state)
            if sets_epoch:
                loader.set_epoch(0)
            looking = iter(loader)
            for _ in range(taken):
                next(looking)
            del looking
            if sets_epoch:
                loader.set_epoch(0)
            for _ in loader:
                pass
        return [message for message in log.messages if "loaded state continued" in message]

    (message,) = resume(1)
    if sets_epoch:
        assert "epoch 0 begins at its first batch again" in message
    else:
        assert "epoch 1 begins: the other 5 batches of epoch 0 are left out" in message
    assert resume(0) == []
    assert resume(2) == []


def test_an_epoch_that_is_resumed_again_is_not_left_out(
    flat: Path, log: pytest.LogCaptureFixture
) -> None:
    with loader_of(flat) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
    with loader_of(flat) as loader:
        loader.load_state_dict(state)
        next(iter(loader))
        loader.load_state_dict(state)
        assert len(list(loader)) == 6
    assert "loaded state continued" not in log.text
