"""Trains a ResNet on packed photos: a folder of training data and one of validation data -> a checkpoint.

    fastpipe pack imagenet/train data/train
    fastpipe pack imagenet/val data/val
    python examples/train_imagenet.py data/train data/val --model resnet50 --checkpoint resnet50.pt
    torchrun --nproc-per-node=8 examples/train_imagenet.py data/train data/val --batch-size 2048

Under torchrun each process trains on one GPU, or all of them on the CPU. They share each batch, so that --resume goes
on with any number of processes that divides it. torch and fastpipe only. Copy it, with resnet.py, and change what you
like.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import fastpipe
from resnet import DEPTHS, ResNet

AMP = {"off": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
AUGMENT = ("none", "kornia", "randaugment")
MAY_CHANGE = (
    "train",
    "val",
    "device",
    "compile",
    "workers",
    "checkpoint",
    "resume",
    "resident_batch",
)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("train", help="packed training data")
    add("val", nargs="?", help="packed validation data; without it nothing is evaluated")
    add("--model", choices=DEPTHS, default="resnet50")
    add("--epochs", type=int, default=90)
    add(
        "--batch-size",
        type=int,
        default=256,
        help="samples a step, of all processes together (default: %(default)s)",
    )
    add("--size", type=int, default=224, help="of the pictures, pixels (default: %(default)s)")
    add(
        "--lr",
        type=float,
        default=0.1,
        help="highest learning rate of batches of 256; scaled by the batch size",
    )
    add(
        "--warmup",
        type=float,
        default=5,
        help="epochs in which the learning rate rises (default: %(default)s)",
    )
    add(
        "--weight-decay",
        type=float,
        default=5e-5,
        help="not on norms and biases (default: %(default)s)",
    )
    add("--label-smoothing", type=float, default=0.1)
    add(
        "--augment",
        choices=AUGMENT,
        default="none",
        help="more than crop and flip (default: %(default)s)",
    )
    add("--mixup", type=float, default=0.0, help="alpha of mixup, such as 0.2 (default: none)")
    add("--cutmix", type=float, default=0.0, help="alpha of cutmix, such as 1 (default: none)")
    add(
        "--erasing",
        type=float,
        default=0.0,
        help="probability that a box of a picture is blanked (default: 0)",
    )
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--amp", choices=AMP, help="mixed precision (default: bf16 on a GPU, off on the CPU)")
    add("--compile", action="store_true", help="compile the model with torch.compile")
    add("--workers", type=int, help="decoding threads (default: the CPUs granted)")
    add("--seed", type=int, default=0)
    add("--checkpoint", type=Path, default=Path("checkpoint.pt"), help="written after each epoch")
    add("--resume", action="store_true", help="go on from the checkpoint")
    add(
        "--resident-batch",
        action="store_true",
        help="take one batch again and again: the loop without a loader",
    )
    options = parser.parse_args(arguments)
    if min(options.epochs, options.batch_size, options.size) < 1:
        parser.error("--epochs, --batch-size and --size must be at least 1")
    on_cpu = torch.device(options.device).type == "cpu"
    if options.amp is None:
        options.amp = "off" if on_cpu else "bf16"
    if options.amp == "fp16" and on_cpu:
        parser.error("--amp fp16 needs a GPU; on the CPU pass --amp bf16 or --amp off")
    if options.checkpoint.exists() and not options.resume:
        parser.error(
            f"{options.checkpoint} is there already; pass --resume to go on from it, or another --checkpoint"
        )
    return options


def joined(options: argparse.Namespace) -> tuple[int, int]:
    """Under torchrun, joins the other processes and takes a GPU; returns this rank and the number of processes."""
    if "LOCAL_RANK" not in os.environ:
        return 0, 1
    backend = "gloo"
    if torch.device(options.device).type == "cuda":
        gpus = torch.cuda.device_count()
        options.device = f"cuda:{int(os.environ['LOCAL_RANK']) % gpus}"
        torch.cuda.set_device(options.device)
        if gpus >= int(os.environ["LOCAL_WORLD_SIZE"]):  # NCCL takes one process a GPU
            backend = "nccl"
    dist.init_process_group(backend)
    if options.batch_size % dist.get_world_size():
        sys.exit(
            f"train_imagenet: --batch-size {options.batch_size} cannot be shared by {dist.get_world_size()} processes; "
            "pass a multiple"
        )
    return dist.get_rank(), dist.get_world_size()


def summed(values: Tensor) -> Tensor:
    """The sum over all processes, in each of them."""
    if dist.is_initialized():
        dist.all_reduce(values)
    return values


def augmentation(name: str, **options: object) -> fastpipe.Augment:
    """The augmentation between crop and normalising, on the device, with parameters for each picture."""
    if name == "kornia":
        import kornia.augmentation as K  # noqa: N812

        modules = [
            K.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
            K.RandomGrayscale(p=0.1),
            K.RandomGaussianBlur((9, 9), (0.1, 2.0), p=0.3),
        ]
        return fastpipe.Augment(modules, **options)
    return (
        fastpipe.Augment.randaugment(**options)
        if name == "randaugment"
        else fastpipe.Augment.imagenet(**options)
    )


def opened(folder: str, options: argparse.Namespace, *, train: bool) -> fastpipe.Loader:
    """Opens a loader of normalised pictures on the device; in training, with labels as the options make them."""
    names = ("label_smoothing", "mixup", "cutmix", "erasing") if train else ()
    chosen = {name: getattr(options, name) for name in names}
    augment = augmentation(options.augment if train else "none", dtype=AMP[options.amp], **chosen)
    return fastpipe.loader(
        folder,
        options.batch_size // (dist.get_world_size() if dist.is_initialized() else 1),
        size=options.size,
        train=train,
        seed=options.seed,
        num_workers=options.workers,
        device=options.device,
        augment=augment,
    )


def grouped(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Parameters in two groups: what has one axis, norms and biases, is left without weight decay."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def learning_rate(step: int, steps: int, warmup_steps: float, highest: float) -> float:
    """The rate of a step of `steps`: straight up in the warm-up, then half a cosine down to 0."""
    if step < warmup_steps:
        return highest * (step + 1) / (warmup_steps + 1)
    return highest * 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / (steps - warmup_steps)))


def autocast(options: argparse.Namespace) -> torch.autocast:
    """Mixed precision as asked for."""
    return torch.autocast(
        torch.device(options.device).type, AMP[options.amp], enabled=options.amp != "off"
    )


def train_epoch(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    rates: list[float],
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    options: argparse.Namespace,
) -> str:
    """Takes a step for each rate; returns the loss and the speed in words."""
    total, waited_s = torch.zeros((), device=options.device), 0.0
    iterator = iter(batches)
    started = time.perf_counter()
    model.train()
    for rate in rates:
        asked = time.perf_counter()
        images, labels = next(iterator)
        waited_s += time.perf_counter() - asked
        for group in optimizer.param_groups:
            group["lr"] = rate
        with autocast(options):
            loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        total += loss.detach()  # stays on the device: asking for its value would wait for the GPU
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    mean = summed(total).item() / world_size / len(rates)
    seconds = time.perf_counter() - started
    if not math.isfinite(mean):
        sys.exit(
            f"train_imagenet: the loss became {mean}; try a smaller --lr, a longer --warmup or --amp bf16"
        )
    speed = f"{len(rates) * options.batch_size / seconds:,.0f} images/s, {1000 * seconds / len(rates):.1f} ms a step"
    return f"loss {mean:.3f}, {speed}, {100 * waited_s / seconds:.1f} % of it waiting for data"


@torch.no_grad()
def evaluate(model: nn.Module, batches: fastpipe.Loader, options: argparse.Namespace) -> str:
    """Classifies every sample once; returns in words how many are right."""
    counts = torch.zeros(3, dtype=torch.int64, device=options.device)
    model.eval()
    for batch in batches:
        images, labels = batch
        with autocast(options):
            logits = model(images)
        best = logits.topk(min(5, logits.shape[1])).indices == labels[:, None]
        best &= batch.valid[
            :, None
        ]  # the last batch may repeat samples that another process counts
        counts += torch.stack([best[:, 0].sum(), best.sum(), batch.valid.sum()])
    top1, top5, samples = summed(counts).tolist()
    return f"top-1 {100 * top1 / samples:.2f} %, top-5 {100 * top5 / samples:.2f} % of {samples} samples"


def resumed(options: argparse.Namespace, parts: dict[str, object]) -> int:
    """Loads the checkpoint's state into the parts; returns the epoch that comes next."""
    try:
        saved = torch.load(options.checkpoint, map_location=options.device, weights_only=True)
    except OSError as error:
        sys.exit(
            f"train_imagenet: there is no checkpoint to go on from: {error}; leave out --resume"
        )
    changed = [
        f"--{name.replace('_', '-')} was {was}, now {vars(options)[name]}"
        for name, was in saved["options"].items()
        if vars(options)[name] != was
    ]
    if changed:
        sys.exit(
            f"train_imagenet: {options.checkpoint} was made with other options: {'; '.join(changed)}. They decide the "
            "learning rate of every step (it falls to 0 in the last of --epochs), or the batches, so the two halves do "
            "not fit together. Pass the same, or train anew with another --checkpoint"
        )
    if saved["epoch"] + 1 == options.epochs:
        print(f"{options.checkpoint} has all {options.epochs} epochs: nothing to do", flush=True)
    for name, part in parts.items():
        part.load_state_dict(saved[name])
    return saved["epoch"] + 1


def save(options: argparse.Namespace, parts: dict[str, object], epoch: int) -> None:
    """Writes the state after an epoch; an interrupted write leaves the checkpoint before."""
    kept = {name: value for name, value in vars(options).items() if name not in MAY_CHANGE}
    unfinished = options.checkpoint.with_name(options.checkpoint.name + ".tmp")
    torch.save(
        {"epoch": epoch, "options": kept}
        | {name: part.state_dict() for name, part in parts.items()},
        unfinished,
    )
    os.replace(unfinished, options.checkpoint)


def main(arguments: list[str] | None = None) -> None:
    """Trains, evaluates and saves, epoch by epoch."""
    options = parsed(arguments)
    rank, world_size = joined(options)
    torch.manual_seed(options.seed)
    torch.backends.cudnn.benchmark = (
        True  # all batches have one size: let cuDNN look for its fastest kernels
    )
    train = opened(options.train, options, train=True)
    val = opened(options.val, options, train=False) if options.val else None
    if val is not None and val.classes != train.classes:
        sys.exit(
            f"train_imagenet: {options.val} has other classes than {options.train}; pack both from the same folders"
        )

    network = ResNet(options.model, len(train.classes)).to(
        options.device, memory_format=torch.channels_last
    )
    if options.compile:
        network.compile()
    model = DistributedDataParallel(network) if world_size > 1 else network
    optimizer = torch.optim.SGD(
        grouped(network, options.weight_decay), lr=options.lr, momentum=0.9, nesterov=True
    )
    scaler = torch.amp.GradScaler(torch.device(options.device).type, enabled=options.amp == "fp16")
    parts = {"model": network, "optimizer": optimizer, "scaler": scaler}
    first = resumed(options, parts) if options.resume else 0

    steps, highest = len(train), options.lr * options.batch_size / 256
    rates = [
        learning_rate(step, options.epochs * steps, options.warmup * steps, highest)
        for step in range(options.epochs * steps)
    ]
    batches = itertools.repeat(next(iter(train))) if options.resident_batch else train
    for epoch in range(first, options.epochs):
        train.set_epoch(epoch)
        trained = train_epoch(
            model, batches, rates[epoch * steps : (epoch + 1) * steps], optimizer, scaler, options
        )
        evaluated = f"; {evaluate(model, val, options)}" if val is not None else ""
        if rank == 0:
            save(options, parts, epoch)
            print(f"epoch {epoch + 1} of {options.epochs}: {trained}{evaluated}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except fastpipe.FastpipeError as error:
        sys.exit(f"train_imagenet: {error}")
