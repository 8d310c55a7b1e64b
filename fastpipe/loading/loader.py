"""A packed dataset -> batches of tensors, in a seeded order, decoded in advance by C++ threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from torch.utils.data import Sampler, SequentialSampler

from fastpipe.augment import Augment
from fastpipe.device.streams import Stream
from fastpipe.device.transfer import Batch, Transfer
from fastpipe.engine.stats import Stats
from fastpipe.errors import ConfigError, EngineError, whole
from fastpipe.loading.advice import LoadWatch, Settings
from fastpipe.loading.agreement import Agreement
from fastpipe.loading.course import Course, Delivery, uncompiled
from fastpipe.loading.epoch import Maker
from fastpipe.loading.ranks import Recipes
from fastpipe.loading.state import order_in, position_in, state_of
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crop_options import checked_crop, output_size
from fastpipe.plan.epoch import EpochPlan, check_pictures
from fastpipe.plan.impossible import impossible
from fastpipe.plan.recipe import Recipe, partition_of
from fastpipe.samples.dataset import Dataset


@dataclass(frozen=True)
class Parts:
    """What a loader makes batches with; for those of chosen samples, too, which fastpipe.preview draws."""

    recipes: Recipes
    maker: Maker
    stream: Stream
    augments: tuple[Augment | None, ...]  # of each view

    @property
    def recipe(self) -> Recipe:
        """Of an epoch that begins now."""
        return self.recipes.now()

    def transfer(self) -> Transfer:
        maker = self.maker
        views = list(zip(self.augments, (view.seed for view in self.recipe.views), strict=True))
        classes = len(maker.index.classes)
        return Transfer(self.stream, views, classes=classes, stats=maker.stats, watchdog=maker.watchdog)


class Samples(Sampler[Any]):
    """The numbers of the samples that this rank gets in the next epoch. Lightning and timm call its `set_epoch`."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self.set_epoch = loader.set_epoch

    def __iter__(self) -> Iterator[Any]:
        plan = self._plan()
        return (sample for number in range(len(plan)) for sample in plan.batch(number).ids.tolist())

    def __len__(self) -> int:
        last = (plan := self._plan()).batch(len(plan) - 1)
        return self._loader.batch_size * (len(plan) - 1) + len(last.samples)

    def _plan(self) -> EpochPlan:
        return EpochPlan(self._loader.parts.recipe, self._loader._course.next.epoch)


class InOrder(Samples, SequentialSampler):
    """The same if they are the same in each epoch. Lightning's overfit_batches takes no other."""


class Batches(Samples):
    """An empty list for each batch of the next epoch: `collate_fn` of the loader turns it into the batch. So the
    DataLoader that `accelerate.skip_first_batches` makes of both decodes nothing of what it skips.
    """

    def __iter__(self) -> Iterator[Any]:
        taken: Any = iter(self._loader)
        self._loader._taken = taken
        try:
            for number in range(len(self._loader)):
                taken.skip_to(number)
                yield []
            taken.skip_to(len(self._loader))
            next(taken, None)  # the epoch is over
        finally:
            if self._loader._taken is taken:
                self._loader._taken = None  # its batches are let go of, also where the loop has been left

    def __len__(self) -> int:
        return len(self._loader)


class Loader:
    """Batches of a packed dataset. `fastpipe.loader` creates it; iterate over it once per epoch.

    Each batch is (images, labels), or with `fields` a dict. Images are uint8 of shape (N, 3, height, width) in
    torch.channels_last memory format, RGB, 0 to 255, unless `channels` and `dtype` ask for others; labels int64 of
    shape (N,), -1 for a sample without one. With `augment`, both are its output. A batch also has the attributes `ids`,
    (N,) int64, the samples' numbers in `loader.dataset`; `valid`, (N,) bool, the rows that count; and `epoch`. Tensors
    are on `device`, ready for its stream that is current when the loop gets them. Their memory is not used again
    while a tensor refers to it.

    The end of a `with` block, `close`, deleting the loader and the end of the program end the threads.
    """

    num_workers, prefetch_factor = 0, None  # as of a DataLoader without processes; threads are in `stats()`
    _taken: Any = None  # the iterator of `batch_sampler`

    def __init__(self, data: Dataset, parts: Parts, settings: Settings) -> None:
        self._data, self.parts = data, parts
        transfer = parts.transfer()
        # None of the following knows the loader, so that dropping it ends the threads.
        self._snapshot = partial(_figures, parts, transfer)
        self._watch = LoadWatch(self._snapshot, settings)
        self._course = Course(parts.maker, transfer, parts.recipes, Agreement(data))

    @property
    def dataset(self) -> Dataset:
        """The dataset that the loader reads. A batch's `ids` are numbers of samples in it."""
        return self._data

    @property
    def batch_size(self) -> int:
        """Samples a batch, of each rank."""
        return self.parts.recipe.batch_size

    @property
    def view_seeds(self) -> list[int]:
        """The seed of each view; the first one is the loader's own. View k has the rows that a loader without views=,
        with the size, crop, hflip and augment of view k and with seed=view_seeds[k], has of the same samples.
        """
        return [view.seed for view in self.parts.recipe.views]

    @property
    def classes(self) -> list[str]:
        """Class names; a label is a position in it."""
        return self._data.classes

    def __repr__(self) -> str:
        recipe = self.parts.recipe
        if isinstance(recipe.crop, Buckets):
            what = "buckets"
        else:
            sizes = Counter("{} x {}".format(*(view.size or recipe.size)) for view in recipe.views)
            kinds = [f"{count} x ({size})" if recipe.more else size for size, count in sizes.items()]
            what = f"{' and '.join(kinds)} pixels"
        batches = f"{len(self)} batches of {self.batch_size}, {what}"
        ranks = self.parts.recipe.ranks
        rank = f", rank {ranks.rank} of {ranks.world_size}" if ranks.world_size > 1 else ""
        return f"<fastpipe loader {str(self._data.index.path)!r}: {batches}, on {self.parts.stream.device}{rank}>"

    def __len__(self) -> int:
        """Number of batches in a whole epoch, also while the rest of a loaded epoch runs; `remaining` counts those."""
        return partition_of(self.parts.recipe, self._course.next.epoch).batches

    @property
    def remaining(self) -> int:
        """Number of batches that are left in the running epoch, or in the next one if none is running."""
        return self._course.remaining

    @uncompiled
    def __iter__(self) -> Iterator[Batch]:
        """Starts the next epoch: that of `set_epoch`, or the last one plus 1; or continues at the loaded position.

        next(iter(loader)) also uses up an epoch: in a notebook, call set_epoch(0) after it. After an error the iterator
        raises EngineError, never StopIteration, so no epoch ends early without an error.
        """
        self.parts.maker.engine.check_usable()
        return Delivery(self._course, self._watch.add)

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch; later epochs count up from it. Optional.

        The number of a loaded epoch continues inside that epoch; any other starts an epoch from its beginning.
        """
        self._course.set_epoch(whole("epoch", epoch, least=0, most=2**63 - 1))

    def set_size(self, size: int | tuple[int, int]) -> None:
        """Sets the size of the images, in pixels, for all epochs that begin from now on: a number, or (height, width).
        Views with a size of their own keep it. A state remembers it for the rest of its epoch.

        Raises:
            ConfigError: the size is wrong, or too large for a RandomCrop, or the loader's sizes come from a function,
                size_choices= or buckets.
        """
        recipe = self.parts.recipe
        if isinstance(recipe.crop, Buckets):
            raise impossible("sizes of buckets", f"set_size({size!r})")
        if recipe.sizes is not None:
            source = "a function, size=" if recipe.sizes.schedule else "size_choices="
            raise ConfigError(
                f"set_size({size!r}): this loader's sizes come from {source}; leave set_size out, or pass one size to "
                "fastpipe.loader(..., size=)"
            )
        following = [view for view in recipe.views if view.size is None]
        if not following:
            raise impossible("sizes of views", f"set_size({size!r})")
        height_width = output_size(size)
        for view in following:
            checked_crop(view.crop, height_width, train=False)
        check_pictures(replace(recipe, size=height_width))
        with self._course.lock:
            self.parts.recipes.size = height_width

    def set_weights(self, weights: Any) -> None:
        """Sets the weights by which samples are drawn, for all epochs that begin from now on; see fastpipe.Weighted.

        A state names the weights of its epoch by a hash: pass them again before `load_state_dict`.

        Raises:
            ConfigError: the loader draws by no weights, or they are wrong.
        """
        with self._course.lock:
            self.parts.recipes.set_weights(weights, self._data)

    def forget_ahead(self) -> None:
        """Lets go of batches of the next epoch that were made ahead, after a change of what makes them."""
        with self._course.lock:
            self._course.forget_ahead()

    def state_dict(self) -> dict[str, Any]:
        """The position of the loader: a small dictionary for JSON and torch.save, the same on all ranks.

        It counts the batches that the loop has got. With it, a loader in another process gives the remaining batches,
        with any num_workers, and with any world_size if the global batch size stays the same.
        """
        size = None if self.parts.recipes.size is None else self._course.size
        return state_of(self._course.position, self._course.recipe, size, self._data)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration continue at the position of a `state_dict`. Earlier batches are not decoded again.

        Raises:
            ConfigError: the state belongs to another dataset, or to another order of the samples.
        """
        order = order_in(state, self._data)
        rows, check = order.get("global_batch_size"), partial(position_in, state, order)
        position = check(self.parts.recipes.of_batch(rows))
        if (size := state["size"]) is not None:
            try:
                self.set_size(size)
            except ConfigError as problem:
                raise ConfigError(
                    f"load_state_dict: the state's epoch has images of size {size}, from set_size, and this loader "
                    f"cannot have them ({problem}). Open the loader with the same size=, size_choices=, crop= and "
                    "views= as the one that saved the state, or start without the state"
                ) from problem
        self._course.go_on_at(position, self.parts.recipes.of_batch(rows), check)

    @property
    def sampler(self) -> Samples:
        """The numbers of the samples of the next epoch, without decoding them. Its `set_epoch` is the loader's."""
        return Samples(self) if self.parts.recipe.shuffle or self.parts.recipe.picks else InOrder(self)

    @property
    def batch_sampler(self) -> Batches:
        """With `collate_fn`, the next epoch for torch's DataLoader."""
        return Batches(self)

    def collate_fn(self, _: object) -> Any:
        """The batch that `batch_sampler` has come to."""
        return next(self._taken)

    def stats(self) -> Stats:
        """The loader's counts and times so far, and its queues now. Any thread may call it; it takes 0.01 ms."""
        return self._snapshot()

    def close(self) -> None:
        """Ends the threads and closes all shards; iterating afterwards raises EngineError. Batches that the loop has
        got stay valid. Waits for the rows that threads are working on, milliseconds, or 10 s if a read does not end.
        """
        self.parts.maker.engine.close()
        if self.parts.maker.prepare is not None:
            self.parts.maker.prepare.close()

    def __reduce__(self) -> NoReturn:
        raise EngineError(
            "a loader owns threads and cannot be copied or pickled; call fastpipe.loader(...) in the process that "
            "iterates over it. torch's DataLoader takes no loader as its dataset: a loader gives the batches itself"
        )

    def __next__(self) -> NoReturn:
        raise TypeError(
            "a loader is no iterator: for one batch, write next(iter(loader)), which uses up an epoch; for all: for "
            "batch in loader"
        )

    def __getitem__(self, sample: object) -> NoReturn:
        """torch's DataLoader, Subset and random_split call this, if they get a loader as their dataset."""
        raise TypeError(
            "this is already a loader: iterate over it, or give it to a trainer as its dataloader. It gives whole "
            "batches and no single samples. For samples by number, and as the dataset of torch's DataLoader, Subset or "
            "random_split, use "
            f"fastpipe.open({str(self._data.index.path)!r})"
        )

    def _not_a_dataloader(self) -> NoReturn:
        """Accelerate's and Ray's prepare_data_loader ask for an option of a DataLoader, and make another one of it."""
        raise AttributeError(
            "a loader is no DataLoader, and none can be made of it: it shares epochs among the ranks and moves batches "
            "to device= itself. Iterate over it, without prepare_data_loader; accelerator.prepare leaves it as it is"
        )

    drop_last = worker_init_fn = property(_not_a_dataloader)

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _figures(parts: Parts, transfer: Transfer) -> Stats:
    """What has been done so far, and what is where at the moment."""
    maker, engine = parts.maker, parts.maker.engine
    epochs = [] if engine.is_foreign() else [epoch for each in list(maker.epochs) if (epoch := each()) is not None]
    made = [work.done for epoch in epochs for work in list(epoch.works)]
    return replace(
        maker.stats,
        **engine.figures(),
        batches_making=made.count(False),
        batches_ready=made.count(True),
        batches_copying=transfer.under_way,
        slots_lent=sum(ring.lent for ring, _ in maker.views),
        slots_idle=sum(ring.idle for ring, _ in maker.views),
        pinned_bytes=parts.stream.pinned_bytes,
    )
