"""A dataset with captions -> an encoder of images and one of texts that agree, as CLIP's do.

    python examples/train_clip.py data/train --val data/val

The datasets have a field `caption` of text (the page Fields). Both encoders are small, and words become numbers by a
hash: replace them with yours; the loader and the loss stay. With --val, each epoch prints for how many images the
nearest caption of their batch is theirs.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import zlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import fastpipe

FIELDS = ("image", "caption")
VOCABULARY, LONGEST = 4096, 32  # numbers of words, words of a caption


def tokens_of(captions: list[str]) -> Tensor:
    """Captions -> (N, words) int64, 0 behind the last word. A word's number is a hash, so there is no word list."""
    rows = [re.findall(r"\w+", caption.lower())[:LONGEST] for caption in captions]
    tokens = torch.zeros(len(rows), max(1, *map(len, rows)), dtype=torch.int64)
    for row, words in zip(tokens, rows, strict=True):
        numbers = [1 + zlib.crc32(word.encode()) % (VOCABULARY - 1) for word in words]
        row[: len(numbers)] = torch.tensor(numbers, dtype=torch.int64)
    return tokens


class Clip(nn.Module):
    """Two encoders into one space, and the temperature of their likeness (Radford et al., 2021).

    Args:
        width: of the space.
    """

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, channels in ((3, 16), (16, 32), (32, 64), (64, 128)):
            convolution = nn.Conv2d(before, channels, 3, stride=2, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(channels), nn.ReLU()]
        self.images = nn.Sequential(
            *layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(128, width)
        )
        self.words = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.places = nn.Parameter(0.01 * torch.randn(LONGEST, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.texts = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, images: Tensor, tokens: Tensor) -> Tensor:
        """Images (N, 3, height, width) and tokens (M, words) -> (N, M): how well each pair goes together."""
        absent = tokens == 0
        absent[:, 0] = False  # an empty caption keeps one place
        states = self.texts(
            self.words(tokens) + self.places[: tokens.shape[1]], src_key_padding_mask=absent
        )
        text = states.masked_fill(absent[..., None], 0).sum(1) / (~absent).sum(1, keepdim=True)
        seen, read = (
            functional.normalize(self.images(images), dim=1),
            functional.normalize(text, dim=1),
        )
        return self.scale.clamp(max=math.log(100)).exp() * seen @ read.T


def same_captions(captions: list[str], device: str) -> Tensor:
    """(N, N): the share of each caption in the truth about each image. Equal captions share it evenly."""
    numbers = torch.tensor([captions.index(caption) for caption in captions], device=device)
    same = (numbers[:, None] == numbers).float()
    return same / same.sum(1, keepdim=True)


def train_epoch(
    model: nn.Module,
    batches: Iterable[dict[str, Any]],
    optimizer: torch.optim.Optimizer,
    device: str,
) -> float:
    """Trains for an epoch; returns the mean loss."""
    model.train()
    losses = []
    for batch in batches:
        logits = model(batch["image"], tokens_of(batch["caption"]).to(device))
        truth = same_captions(batch["caption"], device)
        loss = (
            functional.cross_entropy(logits, truth) + functional.cross_entropy(logits.T, truth)
        ) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())


@torch.no_grad()
def matched(model: nn.Module, batches: Iterable[dict[str, Any]], device: str) -> float:
    """The share of images whose nearest caption is theirs."""
    model.eval()
    right = images = 0
    for batch in batches:
        captions = batch["caption"]
        nearest = model(batch["image"], tokens_of(captions).to(device)).argmax(1).tolist()
        right += sum(
            captions[found] == caption for found, caption in zip(nearest, captions, strict=True)
        )
        images += len(captions)
    return right / images


def main(arguments: list[str] | None = None) -> None:
    """Trains, and prints a line an epoch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", help="packed dataset with the field caption")
    parser.add_argument("--val", help="another, to test with")
    parser.add_argument("--size", type=int, default=96, help="side of the images")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)

    torch.manual_seed(options.seed)
    made = {
        "fields": FIELDS,
        "size": options.size,
        "device": options.device,
        "augment": fastpipe.Augment.imagenet(),
    }
    crop = fastpipe.RandomResizedCrop(
        scale=(0.5, 1.0)
    )  # a smaller crop may lose what its caption tells
    train = fastpipe.loader(options.train, options.batch_size, crop=crop, seed=options.seed, **made)
    val = options.val and fastpipe.loader(
        options.val, options.batch_size, crop=fastpipe.Resize(), train=False, **made
    )
    model = Clip().to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), options.lr, weight_decay=0.01)
    for epoch in range(1, options.epochs + 1):
        line = f"epoch {epoch} of {options.epochs}: loss {train_epoch(model, train, optimizer, options.device):.3f}"
        print(
            line + (f", {100 * matched(model, val, options.device):.1f} % matched" if val else ""),
            flush=True,
        )


if __name__ == "__main__":
    try:
        main()
    except fastpipe.FastpipeError as error:
        sys.exit(f"train_clip: {error}")
