"""Generated photos -> a small network that tells their ten classes apart, on the CPU, in about a minute.

    fastpipe demo --photos 1200
    python examples/train_demo.py

The first command makes the photos (docs/development/demo-photos.md) and packs them. This program
trains four convolutions on five sixths of them with batches of fastpipe.loader, tests on the others, and ends with
exit code 1 if fewer than 80 % of these are recognised. 10 % would be chance.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn import functional

import fastpipe

PARTS = 6  # of the photos; one of them is for the test
SIZE, BATCH_SIZE, EPOCHS, RATE = 48, 32, 15, 0.01
# The object may lie near the edge, so the crops keep most of the picture.
SCALE, RATIO = (0.85, 1.0), (3 / 4, 8 / 5)
LEAST = 0.80

Batches = Collection[tuple[Tensor, Tensor]]


def network(classes: int) -> nn.Sequential:
    """Four convolutions, each halving the picture; then the greatest response anywhere in it."""
    layers: list[nn.Module] = []
    for channels_in, channels in ((3, 16), (16, 32), (32, 64), (64, 128)):
        convolution = nn.Conv2d(channels_in, channels, 3, padding=1, bias=False)
        layers += [convolution, nn.MaxPool2d(2), nn.BatchNorm2d(channels), nn.ReLU()]
    head = [nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, classes)]
    return nn.Sequential(*layers, *head).to(memory_format=torch.channels_last)


def normalised(images: Tensor) -> Tensor:
    """uint8 (N, 3, H, W) -> float32 with mean 0 and deviation 1 in each picture, since brightness tells nothing."""
    pixels = images.float()
    deviation, mean = torch.std_mean(pixels, (1, 2, 3), keepdim=True)
    return (pixels - mean) / deviation


def learn(model: nn.Module, batches: Batches) -> None:
    """Trains; a line every five epochs."""
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, total_steps=EPOCHS * len(batches)
    )
    model.train()
    for epoch in range(1, EPOCHS + 1):
        losses = []
        for images, labels in batches:
            quarters = int(torch.randint(4, ()))  # the classes look the same from every side
            pictures = torch.rot90(normalised(images), quarters, (2, 3))
            loss = functional.cross_entropy(model(pictures), labels, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        if epoch % 5 == 0:
            print(f"epoch {epoch} of {EPOCHS}: loss {sum(losses) / len(losses):.3f}", flush=True)


@torch.no_grad()
def accuracy(model: nn.Module, batches: Batches) -> float:
    """The share of samples that are told right."""
    model.eval()
    right = samples = 0
    for images, labels in batches:
        right += int((model(normalised(images)).argmax(1) == labels).sum())
        samples += len(labels)
    return right / samples


def trained(training: Batches, testing: Batches, classes: int) -> float:
    """Makes a network and trains it; returns the share of test samples that it tells right."""
    torch.set_num_threads(
        1
    )  # such small steps gain little from more, and lose much where other programs run
    model = network(classes)
    learn(model, training)
    return accuracy(model, testing)


def main(arguments: list[str] | None = None) -> None:
    """Trains, tests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data",
        nargs="?",
        default="fastpipe-demo/packed",
        help="the dataset that `fastpipe demo` has packed",
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and crops")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    learnt, test = fastpipe.open(options.data).fold(0, of=PARTS, stratify="label")
    print(f"training on {len(learnt):,} photos", flush=True)

    torch.manual_seed(options.seed)
    crop = fastpipe.RandomResizedCrop(scale=SCALE, ratio=RATIO)
    with (
        fastpipe.loader(learnt, BATCH_SIZE, size=SIZE, crop=crop, seed=options.seed) as training,
        fastpipe.loader(test, 100, size=SIZE, crop=fastpipe.Resize(), train=False) as testing,
    ):
        share = trained(training, testing, len(training.classes))
    print(f"training took {time.perf_counter() - started:.0f} s")
    print(
        f"accuracy {100 * share:.1f} % of {len(test):,} photos that it has not seen; "
        f"expected {100 * LEAST:.0f} % or more"
    )
    if share < LEAST:
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except fastpipe.FastpipeError as error:
        sys.exit(f"train_demo: {error}")
