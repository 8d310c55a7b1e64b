"""What a user asks of a loader -> a Loader, or an error that says what to pass instead."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from fastpipe.augment import Augment, as_augment
from fastpipe.checks import choice, flag, positive, whole
from fastpipe.device.streams import stream_of
from fastpipe.engine.limits import MAX_PIXELS
from fastpipe.errors import ConfigError
from fastpipe.format.index import Index
from fastpipe.loading.loader import Loader
from fastpipe.loading.options import checked_crop, flip_probability, output_size
from fastpipe.loading.ranks import in_nodes, ranks_of, ranks_per_node
from fastpipe.machine.cpus import granted_cpus
from fastpipe.plan.batch import Recipe
from fastpipe.plan.crops import Crop
from fastpipe.plan.partition import Ranks

_WORKERS_HINT = "they are threads in this process: pass 1 for the fewest, or leave it out for the CPUs granted"
_PREFETCH_HINT = "batches made ahead; leave it out for 2"

_REFUSED = {
    "collate_fn": "images are collated in C++, straight into the batch; combine tensors after the loader",
    "worker_init_fn": "workers are C++ threads that run no Python; all randomness comes from seed=",
    "persistent_workers": "threads always live as long as the loader; leave it out",
    "pin_memory": 'device="cuda" pins by itself; leave it out',
    "sampler": "the order comes from seed=, shuffle= and set_epoch()",
    "batch_sampler": "the order comes from seed=, shuffle= and set_epoch()",
    "generator": "pass seed=, a whole number",
    "multiprocessing_context": "there are no worker processes; leave it out",
    "in_order": "batches always come in order; leave it out",
    "pin_memory_device": "pass device=; leave it out",
    "dataset": "the first argument is the folder that `fastpipe pack` wrote",
    "timeout": "pass stall_timeout=, seconds without a batch until the log says why",
    "transform": "choose crop=, hflip= and size=, and pass augment=, which works on the batch of tensors",
}


def loader(
    data: str | os.PathLike[str],
    batch_size: int = 256,
    *,
    size: int | tuple[int, int] = 224,
    train: bool = True,
    crop: Crop | None = None,
    hflip: bool | float | None = None,
    shuffle: bool | None = None,
    seed: int = 0,
    drop_last: bool | None = None,
    num_workers: int | None = None,
    prefetch_factor: int = 2,
    device: str | torch.device | None = None,
    augment: Augment | torch.nn.Module | Sequence[torch.nn.Module] | None = None,
    exact: bool = False,
    on_error: str = "raise",
    verify: bool = False,
    max_pixels: int = MAX_PIXELS,
    rank: int | None = None,
    world_size: int | None = None,
    partition: str = "sample",
    canonical_nodes: int | None = None,
    stall_timeout: float = 60.0,
    **unknown: object,
) -> Loader:
    """Opens a packed dataset for training or evaluation.

    Args:
        data: the folder that `fastpipe pack` wrote.
        batch_size: samples a batch, of each rank.
        size: of the output in pixels: a number, or (height, width).
        train: True: RandomResizedCrop and mirroring, shuffled, full batches only.
            False: CenterCrop, in shard order, every sample. With several ranks the last batch may then hold samples a
            second time, so that all ranks have as many rows; `Loader.valid` tells which.
        crop: how a picture becomes its row: fastpipe.RandomResizedCrop, CenterCrop or Resize; None: as `train` says.
        hflip: mirror left and right: True (half of the time), False, or a probability; None: as `train` says.
        shuffle: a new order each epoch; None: as `train` says.
        seed: picks order, crops and flips; whole number in [0, 2**64).
        drop_last: leave out a last batch that is not full on all ranks; None: as `train` says.
        num_workers: C++ threads; None: the CPUs granted to this process by affinity and cgroup quota, divided by the
            ranks on this machine (LOCAL_WORLD_SIZE, which torchrun sets; without it, all ranks).
        prefetch_factor: batches made ahead of the one handed out, at least 1.
        device: where batches end up: "cpu" (None), "cuda", "cuda:1". For a GPU, batches are made in pinned memory,
            copied as uint8 and augmented on a stream of their own, each before the one before it is handed out.
        augment: what is done with each batch on the device: fastpipe.Augment, a list of modules (kornia's, for
            instance), or any module; see fastpipe.Augment. None: batches stay uint8.
        exact: True: always decode at full size. False: random crops of at least twice the output's size in both
            directions are decoded at 1/2, 1/4 or 1/8, which is faster and changes pixels a little.
            CenterCrop and Resize are always exact, so that evaluation is.
        on_error: a sample that cannot be read or decoded: "raise" a SampleError, or "replace" it by another, which is
            drawn from the seed, counted in stats(), and decoded with its own label. One for which there is not enough
            memory is an EngineError, either way.
        verify: True: compare the hash of each sample's bytes with the one that was packed, as it is read. A changed bit
            that still decodes gives wrong pixels otherwise. A sample that differs is one that cannot be decoded.
        max_pixels: of one picture, as it lies in the shard: a larger one is a DatasetError before any memory is made
            for it. A dataset that was packed with a larger --max-pixels needs the same here.
        rank, world_size: this process among those that train together, which share each epoch; None: those of
            torch.distributed where it is initialised, else 0 of 1.
        partition: "sample": all ranks share all samples of each global batch; every node reads all of the dataset in
            time. "node": each node's ranks share the samples of its own part of the dataset, and read nothing else.
        canonical_nodes: parts that partition="node" cuts the dataset into; the same number gives the same global
            batches on any number of nodes that divides it. None: the number of nodes.
        stall_timeout: seconds without a batch until the log says which thread is stuck at what; after ten times as many
            that becomes an EngineError.

    Returns:
        A Loader: iterate it for (images, labels).

    Raises:
        ConfigError: an argument is wrong.
        DatasetError: `data` holds no finished dataset.
    """
    for name in unknown:
        if name in _REFUSED:
            raise ConfigError(f"fastpipe.loader() takes no {name}: {_REFUSED[name]}")
        raise TypeError(f"fastpipe.loader() got an unexpected argument {name!r}")
    flag("train", train)
    height_width = output_size(size)
    everyone = ranks_of(rank, world_size)
    ranks, sequences = _sharing(everyone, partition, canonical_nodes)
    recipe = Recipe(
        batch_size=whole("batch_size", batch_size, least=1, most=2**20),
        size=height_width,
        crop=checked_crop(crop, height_width, train=train),
        flip=flip_probability(hflip, train=train),
        shuffle=train if shuffle is None else flag("shuffle", shuffle),
        drop_last=train if drop_last is None else flag("drop_last", drop_last),
        seed=whole("seed", seed, least=0, most=2**64 - 1),
        ranks=ranks,
        sequences=sequences,
    )
    stream = stream_of(device)
    augmentation = None if augment is None else as_augment(augment)
    cpus = max(1, granted_cpus() // ranks_per_node(everyone))
    return Loader(
        Index(data, max_pixels=whole("max_pixels", max_pixels, least=1, most=65535 * 65535)),
        recipe,
        num_workers=whole(
            "num_workers", cpus if num_workers is None else num_workers, least=1, most=1024, hint=_WORKERS_HINT
        ),
        cpus=cpus,
        prefetch_factor=whole("prefetch_factor", prefetch_factor, least=1, most=1024, hint=_PREFETCH_HINT),
        stream=stream,
        augment=augmentation,
        exact=flag("exact", exact),
        on_error=choice("on_error", on_error, ("raise", "replace")),
        stall_timeout_s=positive("stall_timeout", stall_timeout),
        verify=flag("verify", verify),
    )


def _sharing(everyone: Ranks, partition: object, canonical_nodes: object) -> tuple[Ranks, int]:
    """The ranks in their groups, and the number of sequences; see Note [partition]."""
    if choice("partition", partition, ("sample", "node")) == "node":
        return in_nodes(everyone, canonical_nodes)
    if canonical_nodes is not None:
        raise ConfigError(f'canonical_nodes={canonical_nodes!r} is for partition="node"; leave it out, or pass that')
    return everyone, 1
