"""Parts of the examples that train with fields: tokens, mean IoU, and what a detector has found."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from support.checkout import ROOT
from support.datasets.field_scenes import SHAPES, write_scenes
from torch import Tensor

import fastpipe

sys.path.append(str(ROOT / "examples"))

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A dataset to learn and another to test."""
    folder = tmp_path_factory.mktemp("scenes")
    return str(write_scenes(folder / "train", 96)), str(write_scenes(folder / "val", 24, seed=1))


def test_words_and_captions_of_a_clip() -> None:
    import train_clip

    tokens = train_clip.tokens_of(["A red disc", "a  RED, disc!", "disc red a", "", "word " * 99])
    assert tokens.shape == (5, train_clip.LONGEST)
    assert torch.equal(tokens[0], tokens[1])
    assert not torch.equal(tokens[0], tokens[2])
    assert (tokens[3] == 0).all()
    assert train_clip.same_captions(["a", "b", "a"], "cpu").tolist() == [
        [0.5, 0, 0.5],
        [0, 1, 0],
        [0.5, 0, 0.5],
    ]
    model = train_clip.Clip().eval()
    images = torch.rand(2, 3, 32, 32)
    short = model(images, train_clip.tokens_of(["a red disc"]))
    beside = model(images, train_clip.tokens_of(["a red disc", "a much longer caption", ""]))
    assert beside.isfinite().all()
    torch.testing.assert_close(beside[:, :1], short, atol=1e-4, rtol=0)


def test_the_mean_iou() -> None:
    import train_segmenter

    there = torch.tensor([[[0, 0, 1, 1], [0, 1, 1, 255]]], dtype=torch.uint8)
    found = torch.tensor([[[0, 1, 1, 1], [0, 0, 1, 2]]])

    class Finds(torch.nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.nn.functional.one_hot(found, 4).permute(0, 3, 1, 2).float()

    batch = {"image": torch.zeros(1, 3, 2, 4), "mask": there}
    assert train_segmenter.mean_iou(Finds(), [batch], 4) == pytest.approx((2 / 4 + 3 / 5) / 2)


def test_what_a_detector_has_found(data: tuple[str, str], torchvision: ModuleType) -> None:
    import train_detector

    with fastpipe.loader(
        data[1], 8, size=64, train=False, crop=fastpipe.Resize(), fields=train_detector.FIELDS
    ) as val:

        class Knows(torch.nn.Module):
            def __init__(self, shift: float, label: int) -> None:
                super().__init__()
                self.shift, self.label, self.batches = shift, label, iter(val)

            def forward(self, images: list[Tensor]) -> list[dict[str, Tensor]]:
                assert all(
                    image.shape == (3, 64, 64) and 0 <= image.min() <= image.max() <= 1
                    for image in images
                )
                made = []
                for target in train_detector.targets_of(next(self.batches)):
                    boxes = torch.cat(
                        [target["boxes"] + self.shift, torch.tensor([[0.0, 0, 1, 1]])]
                    )
                    labels = torch.cat([target["labels"] + self.label, torch.tensor([1])])
                    made.append(
                        {"boxes": boxes, "labels": labels, "scores": torch.tensor([0.9, 0.1])}
                    )
                return made

        for shift, label, share in ((0.0, 0, 1), (1.0, 0, 1), (30.0, 0, 0), (0.0, 1, 0)):
            batches = list(val)
            assert train_detector.found(Knows(shift, label), batches) == share
    assert len(SHAPES) == 3
