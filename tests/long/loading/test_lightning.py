"""Lightning resumes at an epoch's end and in its middle with the batches that an undisturbed run has."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = [
    # Lightning 2.6 asks torch's trees in a way that torch 2.13 is about to drop.
    pytest.mark.filterwarnings(
        "ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"
    ),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
    pytest.mark.usefixtures("one_thread"),
]


@pytest.fixture(scope="module")
def runs(torchvision: ModuleType) -> Any:
    from support.ranks import lightning_runs

    return lightning_runs


@pytest.mark.parametrize(
    ("saving", "options"),
    [
        ({"every_n_epochs": 1}, {"max_epochs": 3}),
        ({"every_n_train_steps": 1}, {"max_epochs": 3}),
        ({"every_n_train_steps": 3}, {"max_epochs": None, "max_steps": 12}),
        ({"every_n_train_steps": 2}, {"max_epochs": 3, "limit_train_batches": 3}),
    ],
)
def test_the_rest_is_that_of_an_undisturbed_run(
    runs: Any, flat: Path, tmp_path: Path, saving: dict[str, int], options: dict[str, Any]
) -> None:
    whole = runs.Noting()
    checkpoints = runs.pl.callbacks.ModelCheckpoint(
        tmp_path, filename="{step}", save_top_k=-1, **saving
    )
    with runs.loader_of(flat) as train:
        runs.fit(whole, train, callbacks=[checkpoints], **options)
    files = [(int(file.stem.partition("=")[2]), file) for file in tmp_path.glob("*.ckpt")]
    assert len(files) == len(whole.seen) // (
        saving.get("every_n_train_steps") or len(whole.seen) // 3
    )
    for done, file in files:
        rest = runs.Noting()
        with runs.loader_of(flat) as train:
            runs.fit(rest, train, resume=file, **options)
        assert rest.seen == whole.seen[done:]


def test_epochs_are_lightnings(runs: Any, flat: Path) -> None:
    """Also of a loader that has been used before, and of one for validation."""
    with (
        runs.loader_of(flat) as train,
        runs.loader_of(flat, train=False, shuffle=True, drop_last=True) as val,
    ):
        epochs = [[batch["id"].tolist() for batch in train] for _ in range(2)]
        module = runs.Validating()
        runs.fit(module, train, val=val, max_epochs=2, val_check_interval=0.5)
        assert module.seen == [*epochs[0], *epochs[1]]
        assert [loader.stats().epoch for loader in (train, val)] == [1, 1]
        assert len(module.validated) == 4 * len(val)
        assert module.validated[: len(val)] == module.validated[len(val) : 2 * len(val)], (
            "twice in epoch 0"
        )
        assert module.validated[: len(val)] != module.validated[2 * len(val) : 3 * len(val)]


def test_overfit_batches_takes_a_loader_without_shuffle(runs: Any, flat: Path) -> None:
    with runs.loader_of(flat, shuffle=False) as train:
        module = runs.Noting()
        runs.fit(module, train, max_epochs=3, overfit_batches=2)
        assert module.seen == module.seen[:2] * 3
