"""Operations of augmentations -> a Markdown table: what each costs by kornia, by torchvision and by us.

    python -m bench.augment_ops [--batch 64] [--size 224] [--rounds 9] [--only hue simclr] [--compile] [--device cuda]

All do the same work, with parameters of its own for each image; torchvision takes one a call, so it is called image by
image, as in a dataset. Figures are medians of milliseconds a batch: of CPU time, in one thread; on a GPU, until it has
done the work. The contenders take turns, so that a change of the machine's speed meets all of them.
"""

from __future__ import annotations

import argparse
import copy
import platform
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from math import isnan, nan
from statistics import median
from typing import Any

import kornia
import kornia.augmentation
import torch

from bench.augment_batch import Batch, Call, torchvision
from bench.gpu.loads import finish
from fastpipe import Augment
from fastpipe.device.augment import effects
from fastpipe.device.augment.pixels import IMAGENET_MEAN, IMAGENET_STD
from fastpipe.device.augment.presets import TRIVIAL_AUGMENT, numbers_of

NAMES = ("kornia module", "kornia function", "torchvision v2", "ours")
Row = tuple[str, Call, Call | None, Call, Call]
k: Any = kornia.augmentation
enhance: Any = kornia.enhance


def colours(batch: Batch, f: Any) -> Iterator[Row]:
    """Operations on colours."""
    x, each, ours, by_kornia = batch.images, batch.each, batch.ours, batch.kornia
    a, turns, span = 0.2 + 1.6 * batch.share, 0.4 * batch.share - 0.2, (0.2, 1.8)
    yield (
        "brightness",
        by_kornia(k.RandomBrightness(span, p=1.0)),
        lambda: enhance.adjust_brightness_accumulative(x, a),
        each(f.adjust_brightness, a),
        ours(effects.brightness, a),
    )
    yield (
        "contrast",
        by_kornia(k.RandomContrast(span, p=1.0)),
        lambda: enhance.adjust_contrast_with_mean_subtraction(x, a),
        each(f.adjust_contrast, a),
        ours(effects.contrast, a),
    )
    yield (
        "saturation",
        by_kornia(k.RandomSaturation(span, p=1.0)),
        lambda: enhance.adjust_saturation_with_gray_subtraction(x, a),
        each(f.adjust_saturation, a),
        ours(effects.saturation, a),
    )
    yield (
        "hue",
        by_kornia(k.RandomHue((-0.2, 0.2), p=1.0)),
        lambda: enhance.adjust_hue(x, turns * 2 * torch.pi),
        each(f.adjust_hue, turns),
        ours(effects.hue, turns),
    )
    yield (
        "grayscale",
        by_kornia(k.RandomGrayscale(p=1.0)),
        lambda: kornia.color.rgb_to_grayscale(x).expand_as(x).contiguous(),
        each(lambda image, _: f.rgb_to_grayscale(image, 3), a),
        ours(effects.grayscale),
    )


def edges(batch: Batch, f: Any) -> Iterator[Row]:
    """Blur, sharpness, rotation."""
    x, each, ours, by_kornia = batch.images, batch.each, batch.ours, batch.kornia
    kernel, radius = (batch.taps, batch.taps), batch.taps // 2
    sigmas, factors, degrees = 0.1 + 1.9 * batch.share, 2 * batch.share, 60 * batch.share - 30
    yield (
        f"gaussian blur, {batch.taps} taps",
        by_kornia(k.RandomGaussianBlur(kernel, (0.1, 2.0), p=1.0)),
        lambda: kornia.filters.gaussian_blur2d(x, kernel, sigmas[:, None].expand(-1, 2)),
        each(lambda image, sigma: f.gaussian_blur(image, list(kernel), [sigma, sigma]), sigmas),
        ours(lambda images, sigmas: effects.gaussian_blur(images, sigmas, radius), sigmas),
    )
    yield (
        "sharpness",
        by_kornia(k.RandomSharpness((0.0, 2.0), p=1.0)),
        lambda: enhance.sharpness(x, factors),
        each(f.adjust_sharpness, factors),
        ours(effects.sharpness, factors),
    )
    numbers = numbers_of(
        "rotate", degrees.double().cpu().numpy() / 135, TRIVIAL_AUGMENT, (x.shape[2], x.shape[3])
    )
    yield (
        "rotate, nearest pixel",
        by_kornia(k.RandomRotation(30.0, resample="nearest", p=1.0)),
        lambda: kornia.geometry.transform.rotate(x, degrees, mode="nearest"),
        each(f.rotate, degrees),
        ours(effects.warp, torch.from_numpy(numbers).float().to(x.device)),
    )


def tonal(batch: Batch, f: Any) -> Iterator[Row]:
    """Operations on tones."""
    x, each, ours, by_kornia = batch.images, batch.each, batch.ours, batch.kornia
    bits = (2 + 6 * batch.share).round()
    yield (
        "posterize",
        by_kornia(k.RandomPosterize((2.0, 8.0), p=1.0)),
        lambda: enhance.posterize(x, bits.int()),
        each(lambda image, value: f.posterize(image, int(value)), bits),
        ours(effects.posterize, bits),
    )
    yield (
        "solarize",
        by_kornia(k.RandomSolarize(0.4, 0.0, p=1.0)),
        lambda: enhance.solarize(x, batch.share),
        each(f.solarize, batch.share),
        ours(effects.solarize, batch.share),
    )
    yield (
        "autocontrast",
        by_kornia(k.RandomAutoContrast(p=1.0)),
        lambda: enhance.normalize_min_max(x),
        each(lambda image, _: f.autocontrast(image), bits),
        ours(effects.autocontrast),
    )
    yield (
        "equalize",
        by_kornia(k.RandomEqualize(p=1.0)),
        lambda: enhance.equalize(x),
        each(lambda image, _: f.equalize(image), bits),
        ours(effects.equalize),
    )


def presets(batch: Batch, v2: Any) -> Iterator[Row]:
    """From uint8 to normalised float32, the drawing of parameters included."""
    theirs, by_kornia, ours = batch.torchvision_chain, batch.kornia_chain, batch.augment
    classes: Any = {"num_classes": len(batch.labels)}
    yield "imagenet", by_kornia(), None, theirs(), ours(Augment.imagenet())
    yield (
        "imagenet, erasing=0.25",
        by_kornia(k.RandomErasing(p=0.25)),
        None,
        theirs(v2.RandomErasing(0.25)),
        ours(Augment.imagenet(erasing=0.25)),
    )
    yield (
        "imagenet, mixup=0.2",
        batch.mixed(k.RandomMixUpV2(p=1.0), by_kornia()),
        None,
        batch.mixed(v2.MixUp(alpha=0.2, **classes), theirs()),
        ours(Augment.imagenet(mixup=0.2, **classes)),
    )
    yield (
        "imagenet, cutmix=1.0",
        batch.mixed(k.RandomCutMixV2(p=1.0), by_kornia()),
        None,
        batch.mixed(v2.CutMix(alpha=1.0, **classes), theirs()),
        ours(Augment.imagenet(cutmix=1.0, **classes)),
    )
    factors, kernel, sigma = (0.8, 0.8, 0.8, 0.2), (batch.taps, batch.taps), (0.1, 2.0)
    yield (
        "simclr",
        by_kornia(
            k.ColorJitter(*factors, p=0.8),
            k.RandomGrayscale(p=0.2),
            k.RandomGaussianBlur(kernel, sigma, p=0.5),
        ),
        None,
        theirs(
            v2.RandomApply([v2.ColorJitter(*factors)], 0.8),
            v2.RandomGrayscale(0.2),
            v2.RandomApply([v2.GaussianBlur(kernel, sigma)], 0.5),
        ),
        ours(Augment.simclr()),
    )
    yield (
        "randaugment",
        by_kornia(k.auto.RandAugment(2, 9)),
        None,
        theirs(v2.RandAugment(2, 9)),
        ours(Augment.randaugment()),
    )
    yield (
        "trivial_augment",
        by_kornia(k.auto.TrivialAugment()),
        None,
        theirs(v2.TrivialAugmentWide()),
        ours(Augment.trivial_augment()),
    )


def normalising(batch: Batch) -> dict[str, Call]:
    """uint8 -> normalised: as it is usually written, and by us with and without memory that is used again."""
    device = batch.bytes.device
    mean, std = (
        torch.tensor(each, device=device).view(1, 3, 1, 1) for each in (IMAGENET_MEAN, IMAGENET_STD)
    )
    keeps, narrow, fresh = (
        Augment.imagenet(),
        Augment.imagenet(dtype=torch.bfloat16),
        Augment.imagenet(),
    )

    def forget() -> object:
        fresh._canvases = copy.deepcopy(fresh._canvases)
        return fresh(batch.bytes)

    return {
        "plain": lambda: batch.bytes.float().div(255).sub(mean).div(std),
        "plain, in place": lambda: batch.bytes.float().div_(255).sub_(mean).div_(std),
        "plain, in place, to bfloat16": lambda: (
            batch.bytes.float().div_(255).sub_(mean).div_(std).bfloat16()
        ),
        "Augment.imagenet(), fresh memory": forget,
        "Augment.imagenet()": lambda: keeps(batch.bytes),
        "Augment.imagenet(dtype=torch.bfloat16)": lambda: narrow(batch.bytes),
    }


def measure(calls: Sequence[Call | None], rounds: int, device: torch.device) -> list[float]:
    """Milliseconds each, the median of so many rounds after one that does not count; None gives nan."""
    times: list[list[float]] = [[] for _ in calls]
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    for turn in range(rounds + 1):
        for mine, call in zip(times, calls, strict=True):
            if call is not None:
                finish(device)
                started = clock()
                call()
                finish(device)
                if turn:
                    mine.append(1000 * (clock() - started))
    return [median(mine) if mine else nan for mine in times]


def operations(batch: Batch, *, with_presets: bool = True) -> list[Row]:
    """All rows of the table."""
    import torchvision.transforms.v2 as v2

    rows = [
        *colours(batch, v2.functional),
        *edges(batch, v2.functional),
        *tonal(batch, v2.functional),
    ]
    return [*rows, *presets(batch, v2)] if with_presets else rows


@torch.no_grad()
def figures(
    count: int, size: int, device: torch.device, rounds: int
) -> dict[str, dict[str, float | None]]:
    """Milliseconds a batch by operation and contender; None where a library has no such operation."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, *calls in operations(Batch(count, size, device)):
            times = measure(calls, rounds, device)
            found[name] = {
                who: None if isnan(ms) else ms for who, ms in zip(NAMES, times, strict=True)
            }
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Time of augmentation operations.")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch (default 64)")
    parser.add_argument(
        "--size", type=int, default=224, help="height and width in pixels (default 224)"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=9,
        help="number of rounds; the table shows medians (default 9)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        help="run only operations whose names start with one of these words",
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="also run fastpipe through torch.compile, without presets",
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1 (default cpu)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.filterwarnings("ignore")
    device = torch.device(arguments.device)

    versions = f"torch {torch.__version__}, kornia {kornia.__version__}, torchvision {torchvision.__version__}"
    shape = f"{arguments.batch} x 3 x {arguments.size} x {arguments.size}"
    clock = "ms of CPU time a batch, one thread" if device.type == "cpu" else "ms a batch"
    on = platform.machine() if device.type == "cpu" else torch.cuda.get_device_name(device)
    sys.stdout.write(f"{versions}, Python {platform.python_version()}, {on}\n")
    sys.stdout.write(f"{shape}, float32; {clock}\n\n")
    names = (*NAMES, "ours, compiled") if arguments.compile else NAMES
    sys.stdout.write(f"| operation | {' | '.join(names)} |\n|---|{'---:|' * len(names)}\n")
    batch = Batch(arguments.batch, arguments.size, device)
    table: list[Sequence[Any]] = list(operations(batch, with_presets=not arguments.compile))
    if arguments.compile:
        extra = operations(
            Batch(arguments.batch, arguments.size, device, compile=True), with_presets=False
        )
        table = [(*row, other[-1]) for row, other in zip(table, extra, strict=True)]
    for name, *calls in table:
        if name.startswith(tuple(arguments.only)):
            cells = [
                "" if isnan(ms) else f"{ms:.1f}" for ms in measure(calls, arguments.rounds, device)
            ]
            sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")
            sys.stdout.flush()
    if arguments.only == [""] and not arguments.compile:
        alone = normalising(batch)
        sys.stdout.write("\n| normalising alone | ms | times as fast |\n|---|---:|---:|\n")
        times = measure(list(alone.values()), arguments.rounds, device)
        for name, ms in zip(alone, times, strict=True):
            sys.stdout.write(f"| {name} | {ms:.1f} | {times[0] / ms:.1f} |\n")


if __name__ == "__main__":
    with torch.no_grad():
        main()
