"""A model over a dataset: outputs in order, fields that stay, an interrupted run, ranks, wrong models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.pictures.drawn import smooth_noise

import fastpipe

COUNT = 37
SIZE = 16


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encode") / "data"
    fields = {
        "caption": "text",
        "score": "int",
        "place": "floats",
        "tags": "classes",
        "extra": "json",
        "other": "array",
        "boxes": "boxes",
    }
    with fastpipe.Writer(folder, fields, classes=["cat", "dog"]) as writer:
        for number in range(COUNT):
            writer.add(
                smooth_noise(40 + number, 30, seed=number),
                label=None if number % 5 == 0 else number % 2,
                key=f"photos/{number}",
                caption=f"caption {number}",
                score=number,
                place=[number, 0.5],
                tags=["odd"] if number % 2 else ["even", "small"],
                extra={"n": number},
                other=np.full(3, number, np.int16),
                boxes=[[0, 0, 5, 5]],
            )
    return folder


def means(images: torch.Tensor) -> torch.Tensor:
    return images.float().mean(dim=(2, 3)).to(torch.bfloat16)


def expected(data: Path, **options: Any) -> torch.Tensor:
    with fastpipe.loader(data, COUNT, size=SIZE, train=False, **options) as loader:
        ((images, _),) = loader
        return means(images)


def rows(encoded: Any) -> list[dict[str, Any]]:
    names = ["latent", "label", "key", "caption", "score", "place", "tags", "extra", "other"]
    with fastpipe.loader(encoded, 8, fields=names, train=False) as loader:
        return [
            {name: batch[name][place] for name in names}
            for batch in loader
            for place in range(len(batch["key"]))
        ]


def test_outputs_are_a_dataset_with_the_other_fields(data: Path, tmp_path: Path) -> None:
    encoded = fastpipe.encode(data, means, tmp_path / "out", size=SIZE, batch_size=5)
    assert encoded.classes == ["cat", "dog"]
    assert "boxes" not in encoded.fields
    assert encoded.fields["latent"].dtype == "bfloat16"
    for number, (row, latent) in enumerate(zip(rows(encoded), expected(data), strict=True)):
        assert torch.equal(row["latent"], latent)
        assert row["key"] == f"photos/{number}"
        assert row["caption"] == f"caption {number}"
        assert row["label"] == (-1 if number % 5 == 0 else number % 2)
        assert (row["score"], row["extra"]) == (number, {"n": number})
        assert row["place"].tolist() == [number, 0.5]
        names = encoded.fields["tags"].names
        tags = {name for name, is_set in zip(names, row["tags"], strict=True) if is_set}
        assert tags == ({"odd"} if number % 2 else {"even", "small"})
        assert row["other"].tolist() == [number] * 3


class Interrupted(Exception):  # noqa: N818 (no mistake of the program)
    pass


def counting(most: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A model with large outputs that fails after so many images."""
    seen = 0

    def model(images: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        seen += len(images)
        if seen > most:
            raise Interrupted
        return means(images)[:, :, None, None].expand(-1, -1, 500, 500)

    model.seen = lambda: seen  # type: ignore[attr-defined]
    return model


def test_an_interrupted_run_goes_on(data: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"size": SIZE, "batch_size": 4}
    many: Any = counting(COUNT)
    whole = fastpipe.encode(data, many, tmp_path / "whole", **options)
    assert many.seen() == COUNT
    # Shards of the Writer's usual size hold all of this, so the Writer gets smaller ones.
    original = fastpipe.Writer.__init__

    def small(self: fastpipe.Writer, *args: Any, **more: Any) -> None:
        original(self, *args, shard_size=100_000, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastpipe.Writer, "__init__", small)
        with pytest.raises(Interrupted):
            fastpipe.encode(data, counting(30), tmp_path / "out", **options)
        rest: Any = counting(COUNT)
        again = fastpipe.encode(data, rest, tmp_path / "out", **options)
    assert 0 < rest.seen() < COUNT
    assert [str(row) for row in rows(again)] == [str(row) for row in rows(whole)]


def test_a_complete_dataset_is_returned_as_it_is(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = fastpipe.encode(data, means, tmp_path / "out", size=SIZE)
    never: Any = counting(0)
    again = fastpipe.encode(data, never, tmp_path / "out", size=SIZE)
    assert never.seen() == 0
    assert f"{tmp_path / 'out'} is complete, so nothing was encoded" in caplog.text
    assert [str(row) for row in rows(again)] == [str(row) for row in rows(first)]
    with pytest.raises(fastpipe.PackError, match="holds another dataset"):
        fastpipe.encode(data, means, tmp_path / "out", size=SIZE, field="other_name")


def test_outputs_of_another_dtype_are_an_error(data: Path, tmp_path: Path) -> None:
    seen = 0

    def model(images: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        seen += len(images)
        return means(images) if seen > 20 else means(images).float()

    with pytest.raises(fastpipe.PackError, match="expected float32 with 1 axes"):
        fastpipe.encode(data, model, tmp_path / "out", size=SIZE, batch_size=5)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.modes: list[bool] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.modes.append(self.training)
        return means(images)


def test_a_module_is_in_eval_mode_meanwhile(data: Path, tmp_path: Path) -> None:
    model = Model()
    fastpipe.encode(data, model, tmp_path / "out", size=SIZE, batch_size=20)
    assert model.modes == [False, False]
    assert model.training


def test_ranks_share_the_work(data: Path, tmp_path: Path) -> None:
    whole = fastpipe.encode(data, means, tmp_path / "whole", size=SIZE)
    parts = [
        fastpipe.encode(data, means, tmp_path / "out", size=SIZE, rank=rank, world_size=3)
        for rank in range(3)
    ]
    assert [len(part) for part in parts] == [12, 12, 13]
    places = [tmp_path / "out" / f"{rank}-of-3" for rank in range(3)]
    joined = fastpipe.concat(*places)
    assert [str(row) for row in rows(joined)] == [str(row) for row in rows(whole)]


def test_options_of_the_loader_count(data: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"crop": fastpipe.Resize(), "channels": "gray"}
    encoded = fastpipe.encode(data, means, tmp_path / "out", size=SIZE, **options)
    got = torch.stack([row["latent"] for row in rows(encoded)])
    assert torch.equal(got, expected(data, **options))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": 3}, "model: expected a function or a module"),
        ({"model": lambda images: images[:2]}, "expected a tensor with 37 rows"),
        ({"model": lambda images: images.tolist()}, "got list; return one tensor, such as"),
        ({"model": lambda images: images.float().sum()}, r"got the shape \(\)"),
        ({"batch_size": "8"}, "batch_size: expected a whole number"),
        ({"world_size": 0}, "world_size: expected 1 to"),
        ({"world_size": 99}, "has 37 samples for 99 ranks"),
        ({"on_error": "replace"}, "no argument on_error: each sample"),
        ({"field": "caption"}, "has 'caption' already"),
        ({"field": "label"}, "has 'label' already"),
        ({"rank": 2, "world_size": 2}, "rank: expected 0 to 1, got 2"),
        ({"shuffle": True}, "no argument shuffle: it encodes each sample once"),
        ({"fields": ["image"]}, "no argument fields: it gives the model the images"),
    ],
)
def test_what_cannot_be_is_refused(data: Path, tmp_path: Path, arguments: Any, words: str) -> None:
    chosen = {"model": means, "out": tmp_path / "out", "size": SIZE, **arguments}
    with pytest.raises(fastpipe.ConfigError, match=words):
        fastpipe.encode(data, **chosen)


def test_a_model_that_wants_float_learns_how(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as caught:
        fastpipe.encode(data, torch.nn.Conv2d(3, 4, 3), tmp_path / "out", size=SIZE)
    assert "pass augment=[]" in caught.value.__notes__[0]
