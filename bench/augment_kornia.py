"""A list of kornia's modules -> a Markdown table: kornia called directly, and the stages of fastpipe.Augment.

    python -m bench.augment_kornia [--batch 256] [--size 224] [--rounds 5]

Milliseconds of CPU time a batch, in one thread, medians; the contenders take turns. "kornia" makes float32 images,
calls the modules and normalises. "plan" draws all parameters; "carry out" does the rest, on the CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import kornia.augmentation
import numpy as np
import torch

from bench.augment_batch import Batch
from fastpipe import Augment

k: Any = kornia.augmentation
LISTS: dict[str, Callable[[], list[torch.nn.Module]]] = {
    "ColorJitter, GaussianBlur, Grayscale, Erasing": lambda: [
        k.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        k.RandomGaussianBlur((23, 23), (0.1, 2.0), p=0.5),
        k.RandomGrayscale(p=0.2),
        k.RandomErasing(p=0.25),
    ],
    "PlasmaShadow": lambda: [k.RandomPlasmaShadow()],
    "GaussianNoise": lambda: [k.RandomGaussianNoise(std=0.1)],
    "ElasticTransform": lambda: [k.RandomElasticTransform()],
}


def main() -> None:
    """Prints a row a list."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    batch = Batch(options.batch, options.size)
    samples = np.arange(options.batch)
    sys.stdout.write(
        "| list | kornia | fastpipe: plan | fastpipe: carry out |\n|---|---:|---:|---:|\n"
    )
    for name, made in LISTS.items():
        direct, augment = batch.kornia_chain(*made()), Augment(made())
        taken: dict[str, list[float]] = {"kornia": [], "plan": [], "carry out": []}
        for number in range(options.rounds + 1):  # the first warms up
            taken["kornia"].append(seconds(direct))
            began = time.process_time()
            plan = augment.plan(samples, (options.size,) * 2, seed=0, epoch=0, batch=number)
            planned = time.process_time()
            tensors = {at: torch.from_numpy(array) for at, array in plan.arrays.items()}
            augment.carry_out(batch.bytes, batch.labels, plan, tensors)
            taken["plan"].append(planned - began)
            taken["carry out"].append(time.process_time() - planned)
        cells = [f"{1000 * median(times[1:]):.1f}" for times in taken.values()]
        sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")


def seconds(call: Callable[[], object]) -> float:
    """CPU time of a call."""
    began = time.process_time()
    call()
    return time.process_time() - began


if __name__ == "__main__":
    main()
