"""A packed dataset -> batches of tensors, in a seeded order, decoded ahead by C++ threads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import torch

from fastpipe import config
from fastpipe.advice import LoadWatch, Settings
from fastpipe.augment import Augment, as_augment
from fastpipe.course import Course
from fastpipe.cpus import granted_cpus
from fastpipe.delivery import Delivery
from fastpipe.engine import Engine
from fastpipe.epoch import EpochWorks
from fastpipe.errors import ConfigError, EngineError
from fastpipe.index import Index
from fastpipe.limits import MAX_PIXELS
from fastpipe.partition import Ranks
from fastpipe.plan import EpochPlan, Recipe, batches_per_epoch
from fastpipe.ranks import in_nodes, ranks_of, ranks_per_node
from fastpipe.slots import SlotRing
from fastpipe.state import position_in, state_of
from fastpipe.stats import Stats
from fastpipe.streams import Stream, stream_of
from fastpipe.transfer import Batch, Transfer
from fastpipe.upcoming import Upcoming
from fastpipe.watchdog import Watchdog

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
    crop: config.Crop | None = None,
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
    config.flag("train", train)
    height_width = config.output_size(size)
    everyone = ranks_of(rank, world_size)
    ranks, sequences = _sharing(everyone, partition, canonical_nodes)
    recipe = Recipe(
        batch_size=config.whole("batch_size", batch_size, least=1, most=2**20),
        size=height_width,
        crop=config.checked_crop(crop, height_width, train=train),
        flip=config.flip_probability(hflip, train=train),
        shuffle=train if shuffle is None else config.flag("shuffle", shuffle),
        drop_last=train if drop_last is None else config.flag("drop_last", drop_last),
        seed=config.whole("seed", seed, least=0, most=2**64 - 1),
        ranks=ranks,
        sequences=sequences,
    )
    stream = stream_of(device)
    augmentation = None if augment is None else as_augment(augment)
    cpus = max(1, granted_cpus() // ranks_per_node(everyone))
    return Loader(
        Index(data, max_pixels=config.whole("max_pixels", max_pixels, least=1, most=65535 * 65535)),
        recipe,
        num_workers=config.whole(
            "num_workers", cpus if num_workers is None else num_workers, least=1, most=1024, hint=_WORKERS_HINT
        ),
        cpus=cpus,
        prefetch_factor=config.whole("prefetch_factor", prefetch_factor, least=1, most=1024, hint=_PREFETCH_HINT),
        stream=stream,
        augment=augmentation,
        exact=config.flag("exact", exact),
        on_error=config.choice("on_error", on_error, ("raise", "replace")),
        stall_timeout_s=config.positive("stall_timeout", stall_timeout),
        verify=config.flag("verify", verify),
    )


def _sharing(everyone: Ranks, partition: object, canonical_nodes: object) -> tuple[Ranks, int]:
    """The ranks in their groups, and the number of sequences; see Note [partition]."""
    if config.choice("partition", partition, ("sample", "node")) == "node":
        return in_nodes(everyone, canonical_nodes)
    if canonical_nodes is not None:
        raise ConfigError(f'canonical_nodes={canonical_nodes!r} is for partition="node"; leave it out, or pass that')
    return everyone, 1


class Loader:
    """Batches of a packed dataset. Made by `fastpipe.loader`; iterate it once an epoch.

    Each batch is (images, labels): images uint8 of shape (N, 3, height, width) in torch.channels_last memory format,
    RGB, 0 to 255; labels int64 of shape (N,). With `augment`, they are what that makes of them. Both are on `device`,
    ready for the stream that is current when they are handed out. A batch's memory is its own for as long as a tensor
    refers to it.

    A context manager: leaving it ends the threads. So does `close`, dropping the loader, or the end of the program.
    """

    def __init__(
        self,
        index: Index,
        recipe: Recipe,
        *,
        num_workers: int,
        cpus: int,
        prefetch_factor: int,
        stream: Stream,
        augment: Augment | None,
        exact: bool,
        on_error: str,
        stall_timeout_s: float,
        verify: bool,
    ) -> None:
        if len(index) == 0:
            raise ConfigError(f"{index.path} has no samples; pack a source that has")
        if batches_per_epoch(len(index), recipe) == 0:
            raise ConfigError(
                f"batch_size={recipe.batch_size} with drop_last=True leaves no batch: {index.path} has "
                f"{len(index)} samples{_for_ranks(recipe)}. Pass a smaller batch_size, or drop_last=False"
            )
        if recipe.batch_size * recipe.ranks.world_size % recipe.sequences:
            raise ConfigError(
                f"batch_size={recipe.batch_size}: expected one that, times world_size={recipe.ranks.world_size}, is a "
                f"multiple of the {recipe.sequences} canonical nodes, which give as many samples each to every batch"
            )
        if len(index) < recipe.sequences:
            raise ConfigError(
                f"{index.path} has {len(index)} samples, fewer than the {recipe.sequences} canonical nodes; "
                'pass partition="sample"'
            )
        self._index = index
        self._recipe = recipe
        self._stats = stats = Stats()
        height, width = recipe.size
        # One buffer is with the user (or on its way to the device), one with the batch being handed out, the rest are
        # being filled.
        keep = prefetch_factor + 2 + stream.lookahead
        slots = SlotRing((recipe.batch_size, height, width, 3), keep, stream.buffer)
        self._engine = engine = Engine(index, num_workers, verify=verify)
        watchdog = Watchdog(stall_timeout_s, index, engine.activities)
        full_size = exact or not isinstance(recipe.crop, config.RandomResizedCrop)

        # What follows knows nothing of the loader, so that dropping that ends the threads.
        def make(epoch: int, first: int) -> EpochWorks:
            return EpochWorks(
                index,
                EpochPlan(index, recipe, epoch),
                engine,
                slots,
                stats,
                first=first,
                ahead=prefetch_factor,
                exact=full_size,
                replace_bad=on_error == "replace",
                watchdog=watchdog,
            )

        def snapshot() -> Stats:
            return replace(
                stats,
                **engine.counters(),
                **engine.levels(),
                batches_copying=transfer.under_way(),
                slots_lent=slots.lent,
                slots_idle=slots.idle,
            )

        self._snapshot = snapshot
        transfer = Transfer(
            stream, augment, seed=recipe.seed, classes=len(index.classes), stats=stats, watchdog=watchdog
        )
        self._transfer = transfer
        compiled = augment is not None and augment.compiled
        settings = Settings(num_workers, cpus, stream.device.type, full_size, compiled)
        self._watch = LoadWatch(snapshot, settings)
        self._course = Course(Upcoming(make), batches_per_epoch(len(index), recipe))

    @property
    def classes(self) -> list[str]:
        """Class names; a label is a position in it."""
        return list(self._index.classes)

    def __len__(self) -> int:
        """Batches an epoch."""
        return batches_per_epoch(len(self._index), self._recipe)

    def __iter__(self) -> Iterator[Batch]:
        """Begins the next epoch: the one that `set_epoch` named, else one more than the last. After
        `load_state_dict`, goes on where that says.

        A look at one batch, next(iter(loader)), takes an epoch too. An iterator that raised is over: later calls raise
        EngineError, never StopIteration, so that no epoch is cut short unnoticed.
        """
        self._engine.check_usable()
        return Delivery(self._course, self._transfer, self._stats, on_batch=self._watch.add)

    @property
    def valid(self) -> torch.Tensor:
        """Rows of the last batch handed out that count: (N,) bool, on the loader's device.

        All do, save in an epoch's last batch where several ranks share what is left and drop_last is False: all ranks
        have as many rows then, and those that are False repeat a sample that counts elsewhere.

        Raises:
            EngineError: no batch of this epoch has been handed out.
        """
        valid = self._course.position.valid
        if valid is None:
            raise EngineError("loader.valid is that of a batch, and none of this epoch has been handed out")
        return valid

    def set_epoch(self, epoch: int) -> None:
        """Names the epoch that the next iteration gives; later ones count on from it. Optional.

        After `load_state_dict`, naming the epoch that was loaded goes on within it; any other begins anew.
        """
        self._course.set_epoch(config.whole("epoch", epoch, least=0, most=2**63 - 1))

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: a small dictionary fit for JSON and torch.save, the same on all ranks.

        It counts batches handed out, not those made ahead. With it a loader in another process gives the rest of the
        batches, with any num_workers and prefetch_factor, and with any world_size if the global batch stays the same.
        """
        return state_of(self._course.position, self._index.fingerprint, self._order())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the next iteration go on where `state_dict` was asked. What was handed out by then is not decoded again.

        Raises:
            ConfigError: the state is that of another dataset, or of another order of the samples.
        """
        self._course.go_on_at(position_in(state, self._index.fingerprint, self._order(), len(self)))

    def _order(self) -> dict[str, Any]:
        """The options that decide which samples are in which global batch."""
        recipe = self._recipe
        return {
            "seed": recipe.seed,
            "shuffle": recipe.shuffle,
            "drop_last": recipe.drop_last,
            "global_batch_size": recipe.batch_size * recipe.ranks.world_size,
            "sequences": recipe.sequences,
        }

    def stats(self) -> Stats:
        """A snapshot of what the loader has done since it was made, and of what is waiting in it now. Any thread may
        ask; it takes 0.01 ms and holds nobody up.
        """
        return self._snapshot()

    def close(self) -> None:
        """Ends the threads; iterating afterwards raises EngineError. Batches handed out stay valid.

        Waits for the rows that threads are at, a few milliseconds; a read that does not end is let be after 10 s.
        """
        self._engine.close()

    def __reduce__(self) -> NoReturn:
        raise EngineError(
            "a loader owns threads and cannot be copied or pickled; "
            "call fastpipe.loader(...) in the process that iterates it"
        )

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _for_ranks(recipe: Recipe) -> str:
    world_size = recipe.ranks.world_size
    return f", and a batch of {world_size} ranks takes {world_size * recipe.batch_size}" if world_size > 1 else ""
