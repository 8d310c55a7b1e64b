"""A packed dataset -> batches of tensors, in a seeded order, decoded in advance by C++ threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from fastpipe.augment import Augment
from fastpipe.checks import whole
from fastpipe.device.streams import Stream
from fastpipe.device.transfer import Batch, Transfer
from fastpipe.engine.engine import Engine
from fastpipe.engine.slots import SlotRing
from fastpipe.engine.stats import Stats
from fastpipe.engine.watchdog import Watchdog
from fastpipe.errors import ConfigError, EngineError
from fastpipe.loading.advice import LoadWatch, Settings
from fastpipe.loading.course import Course, Delivery, uncompiled
from fastpipe.loading.epoch import Maker
from fastpipe.loading.fields import FieldReader, Prepare
from fastpipe.loading.looking import Look
from fastpipe.loading.probed import Probed
from fastpipe.loading.ranks import Recipes
from fastpipe.loading.state import global_batch_size_in, position_in, state_of
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crop_options import checked_crop, output_size
from fastpipe.plan.epoch import check_pictures
from fastpipe.plan.impossible import impossible
from fastpipe.plan.recipe import Recipe, batches_per_epoch
from fastpipe.samples.dataset import Dataset


class Loader(Probed):
    """Batches of a packed dataset. `fastpipe.loader` creates it; iterate over it once per epoch.

    Each batch is (images, labels): images uint8 of shape (N, 3, height, width) in torch.channels_last memory format,
    RGB, 0 to 255; labels int64 of shape (N,), -1 for a sample without one. With `augment`, they are the output of the
    augmentation. With `views`, images is a list of such tensors, one a view. A batch also has the attributes `ids`,
    (N,) int64, the samples' numbers in `loader.dataset`; `valid`, (N,) bool, the rows that count; and `epoch`. With
    `fields`, a batch is a dict of what was asked for. Tensors are on `device`, ready for the CUDA stream that is
    current when the loop gets them. The loader does not use a batch's memory again while a tensor refers to it.

    `look` makes single batches of chosen samples for fastpipe.preview.

    A loader is a context manager: leaving it ends the threads. `close`, deleting the loader and the end of the program
    also end them.
    """

    def __init__(
        self,
        data: Dataset,
        recipes: Recipes,
        *,
        num_workers: int,
        cpus: int,
        prefetch_factor: int,
        stream: Stream,
        augments: tuple[Augment | None, ...],
        exact: bool,
        on_error: str,
        stall_timeout_s: float,
        verify: bool,
        fields: FieldReader | None = None,
        prepare: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        self._data, self._recipes = data, recipes
        self._index = index = data.index
        recipe = recipes.now()  # what is asked of it here does not depend on the ranks
        check_pictures(recipe)
        stats = Stats()
        # One buffer is with the user (or on its way to the device), one with the batch being handed out, the rest are
        # being filled.
        keep = prefetch_factor + 2 + stream.lookahead
        views = []
        for view in recipe.views:
            shape = recipe.batch_size * view.crop.rows, *(view.size or recipe.size), 3
            views.append((SlotRing(shape, keep, stream.slot), exact or not view.crop.may_be_reduced))
        self._engine = engine = Engine(index, num_workers, verify=verify, fields=fields.names if fields else ())
        # None of the following knows the loader, so that dropping it ends the threads.
        self._maker = maker = Maker(
            index,
            engine,
            views,
            stats,
            Watchdog(stall_timeout_s, index, engine.activities),
            ahead=prefetch_factor,
            replace_bad=on_error == "replace",
            fields=fields,
            prepare=None if prepare is None or fields is None else Prepare(prepare, fields.read, stats),
        )
        self.look = Look(recipe, maker, stream, augments)
        transfer = self.look.transfer()
        self._snapshot = partial(_figures, maker, transfer, stream)
        self._device = stream.device
        compiled = any(augment is not None and augment.compiled for augment in augments)
        exacts = all(each for _, each in views)
        settings = Settings(num_workers, cpus, stream.device.type, exacts, compiled, index.packed, engine.fetches)
        self._watch = LoadWatch(self._snapshot, settings)
        self._course = Course(maker, transfer, recipes)

    @property
    def _recipe(self) -> Recipe:
        return self._recipes.now()

    @property
    def dataset(self) -> Dataset:
        """The dataset that the loader reads: `len(loader.dataset)` samples, `.classes`, `.class_to_idx`. A batch's
        `ids` are numbers of samples in it.
        """
        return self._data

    @property
    def batch_size(self) -> int:
        """Samples a batch, of each rank."""
        return self._recipe.batch_size

    @property
    def view_seeds(self) -> list[int]:
        """The seed of the random draws of each view. The rows of view k are those that a loader without views=, with
        the size, crop, hflip and augment of view k and with seed=view_seeds[k], has of the same samples. The first one
        is the loader's own seed.
        """
        return [view.seed for view in self._recipe.views]

    @property
    def classes(self) -> list[str]:
        """Class names; a label is a position in it."""
        return self._data.classes

    def __repr__(self) -> str:
        recipe = self._recipe
        if isinstance(recipe.crop, Buckets):
            what = "buckets"
        else:
            sizes = Counter("{} x {}".format(*(view.size or recipe.size)) for view in recipe.views)
            kinds = [f"{count} x ({size})" if recipe.more else size for size, count in sizes.items()]
            what = f"{' and '.join(kinds)} pixels"
        batches = f"{len(self)} batches of {self.batch_size}, {what}"
        ranks = self._recipe.ranks
        rank = f", rank {ranks.rank} of {ranks.world_size}" if ranks.world_size > 1 else ""
        return f"<fastpipe loader {str(self._index.path)!r}: {batches}, on {self._device}{rank}>"

    def __len__(self) -> int:
        """Number of batches in a whole epoch, also while the rest of a loaded epoch runs; `remaining` counts those."""
        return batches_per_epoch(self._recipe, self._course.next.epoch)

    @property
    def remaining(self) -> int:
        """Number of batches that are left: in the running epoch, in the loaded one after `load_state_dict`, or, between
        two epochs, in the next one.
        """
        return self._course.remaining

    @uncompiled
    def __iter__(self) -> Iterator[Batch]:
        """Starts the next epoch: the epoch of `set_epoch`, or the last epoch plus 1. After `load_state_dict`, the
        iteration continues at the loaded position.

        Reading a single batch with next(iter(loader)) also uses up an epoch: in a notebook, call set_epoch(0) after it,
        or fastpipe.preview(loader), which uses up none. After an error the iterator is finished:
        later calls raise EngineError, never StopIteration, so no epoch ends early without an error.
        """
        self._engine.check_usable()
        return Delivery(self._course, self._watch.add)

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch; later epochs count up from it. Optional.

        After `load_state_dict`, the loaded epoch number continues inside that epoch; any other number starts an epoch
        from its beginning.
        """
        self._course.set_epoch(whole("epoch", epoch, least=0, most=2**63 - 1))

    def set_size(self, size: int | tuple[int, int]) -> None:
        """Sets the size of the images, in pixels, for all epochs that begin from now on: a number, or (height, width).
        Views with a size of their own keep it.

        An epoch that is running keeps its size. A state remembers a size that was set here, for the rest of its epoch.

        Raises:
            ConfigError: the size is wrong, or too large for a RandomCrop, or the loader's sizes come from a function,
                size_choices= or buckets.
        """
        if isinstance(self._recipe.crop, Buckets):
            raise impossible("sizes of buckets", f"set_size({size!r})")
        if self._recipe.sizes is not None:
            source = "a function, size=" if self._recipe.sizes.schedule else "size_choices="
            raise ConfigError(
                f"set_size({size!r}): this loader's sizes come from {source}; leave set_size out, or pass one size to "
                "fastpipe.loader(..., size=)"
            )
        following = [view for view in self._recipe.views if view.size is None]
        if not following:
            raise impossible("sizes of views", f"set_size({size!r})")
        height_width = output_size(size)
        for view in following:
            checked_crop(view.crop, height_width, train=False)
        check_pictures(replace(self._recipe, size=height_width))
        with self._course.lock:
            self._recipes.size = height_width
            self.look = replace(self.look, recipe=self._recipe)

    def set_weights(self, weights: Any) -> None:
        """Sets the weights by which samples are drawn, for all epochs that begin from now on; see fastpipe.Weighted.
        For weights that follow from losses: `losses[batch.ids] = ...`. An epoch that is running keeps its own.

        A state names the weights of its epoch by a hash. To resume, pass these weights again: to `fastpipe.loader`, or
        here before `load_state_dict`.

        Raises:
            ConfigError: the loader draws by no weights, or they are wrong.
        """
        with self._course.lock:
            self._recipes.set_weights(weights, self._data)
            self.look = replace(self.look, recipe=self._recipe)

    def state_dict(self) -> dict[str, Any]:
        """The position of the loader: a small dictionary for JSON and torch.save, the same on all ranks.

        It counts the batches that the loop has got, not the batches made in advance. With it, a loader in another
        process gives the remaining batches, with any num_workers and prefetch_factor, and with any world_size if the
        global batch size stays the same.
        """
        size = None if self._recipes.size is None else self._course.size
        versions = [store.index.version for store in self._data.stores]
        return state_of(self._course.position, self._course.recipe, size, versions)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration continue at the position of a `state_dict`. Earlier batches are not decoded again.

        Raises:
            ConfigError: the state belongs to another dataset, or to another order of the samples.
        """
        rows = global_batch_size_in(state, self._index.content)
        opened = [(store.index.path, store.index.version) for store in self._data.stores]
        check = partial(position_in, state, opened=opened)
        position = check(self._recipes.of_batch(rows))
        if (size := state["size"]) is not None:
            try:
                self.set_size(size)
            except ConfigError as problem:
                raise ConfigError(
                    f"load_state_dict: the state's epoch has images of size {size}, from set_size, and this loader "
                    f"cannot have them ({problem}). Open the loader with the same size=, size_choices=, crop= and "
                    "views= as the one that saved the state, or start without the state"
                ) from problem
        self._course.go_on_at(position, self._recipes.of_batch(rows), check)

    def stats(self) -> Stats:
        """A snapshot of the loader's counts and times since its creation, and of its queues now. Any thread may call
        it; it takes 0.01 ms and delays no other thread.
        """
        return self._snapshot()

    def close(self) -> None:
        """Ends the threads and closes all shards; iterating afterwards raises EngineError. Batches that the loop has
        got stay valid.

        Waits for the rows that threads are working on: a few milliseconds, or up to a second where a large picture is
        converted (`images_converted` of `stats()`). If a read does not end, close() returns after
        10 s and leaves that thread alone.
        """
        self._engine.close()
        if self._maker.prepare is not None:
            self._maker.prepare.close()

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
            "this is already a loader: iterate over it, it gives whole batches and no single samples. For samples by "
            "number, and as the dataset of torch's DataLoader, Subset or random_split, use "
            f"fastpipe.open({str(self._index.path)!r})"
        )

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _figures(maker: Maker, transfer: Transfer, stream: Stream) -> Stats:
    """What has been done so far, and what is where at the moment."""
    engine = maker.engine
    epochs = [] if engine.is_foreign() else [epoch for each in list(maker.epochs) if (epoch := each()) is not None]
    made = [work.done for epoch in epochs for work in list(epoch.works)]
    return replace(
        maker.stats,
        **engine.counters(),
        **engine.levels(),
        batches_making=made.count(False),
        batches_ready=made.count(True),
        batches_copying=transfer.under_way,
        slots_lent=sum(ring.lent for ring, _ in maker.views),
        slots_idle=sum(ring.idle for ring, _ in maker.views),
        pinned_bytes=stream.pinned_bytes,
    )
