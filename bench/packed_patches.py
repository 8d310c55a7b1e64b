"""Photos -> patches for NaFlex models: photos a second and CPU time, beside timm's loader.

    python -m bench.packed_patches PHOTOS [--tokens 256] [--rounds 5]

fastpipe.Patches with two threads, padded as timm's batches are and packed, beside timm's create_naflex_loader with two
workers, in evaluation: each photo is resized to at most so many patches of 16 x 16 and normalised. The contenders take
turns; the table has medians. CPU time is that of the process and its children. The last line says how full packed
batches are over an epoch of shapes of ImageNet's and of LAION's kind, which are drawn.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

import fastpipe
from bench.contenders import pack_copies, print_medians
from fastpipe.plan.dealing import deal_by_cost, samples_of_window

BATCH = 32
WORKERS = 2
PATCH = 16


class PhotoFiles(Dataset[tuple[Any, int]]):
    """Photos by Pillow, for timm's wrapper, which sets the transform."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.transform: Callable[[Image.Image], Any] | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        with Image.open(self.paths[number]) as photo:
            image = photo.convert("RGB")
        if self.transform is None:
            return image, number
        return self.transform(image), number


def load_with_timm(paths: list[Path], tokens: int) -> Callable[[], int] | None:
    """None without timm."""
    import bench.peers.import_torchvision  # noqa: F401 - before timm imports it

    try:
        from timm.data.naflex_loader import create_naflex_loader
    except ImportError:
        return None
    loader = create_naflex_loader(
        PhotoFiles(paths),
        patch_size=PATCH,
        max_seq_len=tokens,
        batch_size=BATCH,
        is_training=False,
        interpolation="bicubic",
        num_workers=WORKERS,
        use_prefetcher=False,
        pin_memory=False,
        persistent_workers=False,
        device="cpu",
    )
    return lambda: sum(len(labels) for _, labels in loader)


def drawn_shapes(name: str, count: int) -> np.ndarray[Any, Any]:
    """(count, 2) widths and heights as ImageNet's (about 500 x 375) or LAION's (any) are spread."""
    rng = np.random.default_rng(0)
    if name == "ImageNet":
        areas = np.exp(rng.normal(np.log(400 * 350), 0.45, count))
        ratios = np.exp(rng.normal(np.log(1.2), 0.25, count))
    else:
        areas = np.exp(rng.normal(np.log(500 * 450), 0.9, count))
        ratios = np.exp(rng.normal(0, 0.45, count))
    widths = np.sqrt(areas * ratios)
    heights = np.sqrt(areas / ratios)
    return np.stack([widths, heights], axis=1).astype(np.int64).clip(8, 20_000)


def fill_of(shapes: np.ndarray[Any, Any], size: fastpipe.Patches) -> float:
    """How full batches are, in windows as a loader deals them out."""
    assert size.tokens is not None
    costs = size.costs(shapes)
    window = samples_of_window(float(costs.mean()), size.tokens, len(costs))
    batches = 0
    for start in range(0, len(costs), window):
        batches += len(deal_by_cost(costs[start : start + window], size.tokens, window).sizes)
    return float(costs.sum() / (batches * size.tokens))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--tokens", type=int, default=256, help="of a photo")
    parser.add_argument("--copies", type=int, default=2, help="how often each photo is packed")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = pack_copies(args.photos, folder, args.copies)
        options: dict[str, Any] = {
            "train": False,
            "num_workers": WORKERS,
            "augment": fastpipe.Augment.imagenet(),
        }
        padded = fastpipe.Patches(PATCH, max_tokens=args.tokens, enlarge=True, form="padded")
        packed = fastpipe.Patches(
            PATCH, tokens=BATCH * args.tokens, max_tokens=args.tokens, enlarge=True
        )
        padded_loader = fastpipe.loader(folder / "data", BATCH, size=padded, **options)
        packed_loader = fastpipe.loader(folder / "data", size=packed, **options)
        contenders: dict[str, Callable[[], int]] = {
            "fastpipe, two threads, padded": lambda: sum(len(batch.ids) for batch in padded_loader),
            "fastpipe, two threads, packed": lambda: sum(len(batch.ids) for batch in packed_loader),
        }
        timm = load_with_timm(paths, args.tokens)
        if timm is not None:
            contenders["timm's create_naflex_loader, two workers"] = timm
        print_medians(contenders, args.rounds, "photos")
    for shapes_name in ("ImageNet", "LAION"):
        shapes = drawn_shapes(shapes_name, 1_000_000)
        for tokens, most in ((65_536, 1024), (16_384, 1024), (8192, 576)):
            size = fastpipe.Patches(PATCH, tokens=tokens, max_tokens=most)
            sys.stdout.write(
                f"{shapes_name}'s shapes, {tokens} tokens of at most {most}: "
                f"{fill_of(shapes, size):.4f} full\n"
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
