"""The state of a loader goes through torch.distributed.checkpoint whole, or is refused by the loader itself."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

import fastpipe
from fastpipe.errors import ConfigError

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),  # this is one process
    pytest.mark.filterwarnings("ignore:.*TypedStorage is deprecated"),  # of torch's own files
]
CHOICES: dict[str, tuple[Callable[[Path], fastpipe.Dataset], dict[str, Any]]] = {
    "everything": (fastpipe.open, {}),
    "weights": (fastpipe.open, {"sampler": fastpipe.Weighted({"ant": 3}), "epoch_size": 30}),
    "samples": (lambda flat: fastpipe.open(flat).select(range(30)), {}),
    "repeats": (fastpipe.open, {"sampler": fastpipe.Repeated(2)}),
    "classes": (lambda flat: fastpipe.open(flat).only(["ant", "bee"]), {}),
    "labels": (lambda flat: fastpipe.open(flat).with_labels([0, 1, -1] * 12 + [0]), {}),
    "buckets": (fastpipe.open, {"size": "bucket"}),
    "function": (fastpipe.open, {"sampler": lambda epoch: range(30)}),
    "concat": (lambda flat: fastpipe.concat(flat, fastpipe.open(flat).only(["ant"])), {}),
    "mixture": (
        lambda flat: fastpipe.mix({flat: 0.6, fastpipe.open(flat).only(["ant"]): 0.4}),
        {"epoch_size": 24},
    ),
    "other mixture": (
        lambda flat: fastpipe.mix({flat: 0.5, fastpipe.open(flat).only(["ant"]): 0.5}),
        {"epoch_size": 24},
    ),
}


def loader_of(dataset: Path, chosen: str = "everything", **options: Any) -> fastpipe.Loader:
    open_data, given = CHOICES[chosen]
    return fastpipe.loader(
        open_data(dataset), 4, **{"size": 8, "num_workers": 1, **given, **options}
    )


def ids(batches: Any) -> list[list[int]]:
    return [batch.ids.tolist() for batch in batches]


@pytest.fixture(scope="module")
def saved(
    flat: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, list[list[int]]]]:
    """Of each choice, a checkpoint after two batches, and the samples of the others."""
    found = {}
    for chosen in CHOICES:
        folder = tmp_path_factory.mktemp(chosen)
        with loader_of(flat, chosen) as loader:
            batches = iter(loader)
            next(batches), next(batches)
            dcp.save({"loader": loader, "step": 2}, checkpoint_id=folder)
            found[chosen] = folder, ids(batches)
    return found


def test_the_same_options_go_on(
    flat: Path, saved: Mapping[str, tuple[Path, list[list[int]]]]
) -> None:
    for chosen, (folder, rest) in saved.items():
        with loader_of(flat, chosen) as loader:
            dcp.load({"loader": loader, "step": 0}, checkpoint_id=folder)
            assert ids(loader) == rest, chosen


def test_other_options_are_refused_by_the_loader(
    flat: Path, saved: Mapping[str, tuple[Path, list[list[int]]]]
) -> None:
    other_order = "the state does not fit this loader: .*(was .* and is now|this loader reads)"
    words = rf"^load_state_dict: .*({other_order}|the state was saved with [12] stored dataset)"
    for of, into in itertools.permutations(CHOICES, 2):
        with loader_of(flat, into) as loader:
            with pytest.raises(ConfigError, match=words):
                dcp.load({"loader": loader}, checkpoint_id=saved[of][0])
            assert loader.state_dict()["batches"] == 0, "untouched"


def test_a_size_that_was_set_is_kept(flat: Path, tmp_path: Path) -> None:
    with loader_of(flat) as loader:
        loader.set_size(12)
        images, _ = next(iter(loader))
        dcp.save({"loader": loader}, checkpoint_id=tmp_path)
    with loader_of(flat) as loader:
        dcp.load({"loader": loader}, checkpoint_id=tmp_path)
        assert (
            {tuple(batch.images.shape) for batch in loader}
            == {tuple(images.shape)}
            == {(4, 3, 12, 12)}
        )
    with loader_of(flat, "buckets") as loader, pytest.raises(ConfigError, match="buckets was None"):
        dcp.load({"loader": loader}, checkpoint_id=tmp_path)


def test_a_size_that_was_not_set_is_the_loaders(
    flat: Path, saved: Mapping[str, tuple[Path, list[list[int]]]]
) -> None:
    with loader_of(flat) as loader:
        loader.set_size(12)
        dcp.load({"loader": loader}, checkpoint_id=saved["everything"][0])
        assert next(iter(loader)).images.shape == (4, 3, 12, 12)


def test_a_state_is_good_for_json_and_for_a_careful_torch_load(flat: Path) -> None:
    keys = ["version", "dataset", "dataset_versions", "order", "epoch", "batches", "size"]
    for chosen in CHOICES:
        with loader_of(flat, chosen) as loader:
            state = loader.state_dict()
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        assert torch.load(file, weights_only=True) == state == json.loads(json.dumps(state))
        assert list(state) == keys, "the same in every loader"
