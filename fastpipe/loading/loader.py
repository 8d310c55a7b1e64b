"""The object that `fastpipe.loader` returns: its epochs, its states, its figures and its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self

from fastpipe.arguments import refusing_unknown
from fastpipe.dataset.dataset import Dataset
from fastpipe.device.augment import Augment
from fastpipe.device.streams import Stream
from fastpipe.device.transfer import Transfer
from fastpipe.engine.stats import Stats
from fastpipe.errors import ConfigError
from fastpipe.loading import programs
from fastpipe.loading.advice import LoadWatch, Settings
from fastpipe.loading.agreement import Agreement
from fastpipe.loading.batch_maker import BatchMaker
from fastpipe.loading.dataloader_attributes import DataLoaderAttributes
from fastpipe.loading.epoch_iterator import EpochIterator
from fastpipe.loading.epoch_sequence import EpochSequence
from fastpipe.loading.loader_facts import LoaderFacts
from fastpipe.loading.objects import names_of_labels
from fastpipe.loading.recipes import RecipeResolver
from fastpipe.loading.state import make_state, parse_order, parse_position
from fastpipe.loading.uncompiled import uncompiled
from fastpipe.loading.unknown_arguments import (
    describe_constructor,
    describe_reading,
    describe_setting,
)
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crop_options import parse_crop
from fastpipe.plan.crops import parse_size
from fastpipe.plan.epoch import check_image_sizes
from fastpipe.plan.native import Native
from fastpipe.plan.option_conflicts import conflict_error
from fastpipe.plan.patches import Patches
from fastpipe.plan.recipe import Recipe
from fastpipe.plan.whole_images import WholeImages

# Public attributes that the constructor sets, for fastpipe.preview.
_SET_ONCE = frozenset(["augments", "maker", "stream"])


class Loader(DataLoaderAttributes):
    """Batches of a packed dataset. `fastpipe.loader` creates it; iterate over it once per epoch.

    Each batch is (images, labels), or with `fields` a dict. Images are uint8 of shape (N, 3,
    height, width) in torch.channels_last memory format, RGB, 0 to 255, unless `channels` and
    `dtype` ask for others; labels int64 of shape (N,), -1 for a sample without one. With `augment`,
    both are its output. A batch also has the attributes `ids`, (N,) int64, the samples' numbers in
    `loader.dataset`; `valid`, (N,) bool, the rows that count; and `epoch`. Tensors are on `device`,
    ready for its stream that is current when the loop gets them. Their memory is not used again
    while a tensor refers to it.

    The end of a `with` block, `close`, deleting the loader and the end of the program end the
    threads.

    Example:
        >>> with fastpipe.loader("data/train", batch_size=8, size=32) as loader:
        ...     for epoch in range(2):
        ...         for images, labels in loader:
        ...             pass
        ...     print(len(loader), "batches an epoch")
        3 batches an epoch
    """

    # Other folders of fastpipe use these.
    _NOT_PUBLIC = frozenset(["augments", "maker", "recipe", "stream"])

    if not TYPE_CHECKING:  # type checkers would allow every name

        def __getattr__(self, name: str) -> NoReturn:
            message = describe_reading(name, dir(self))
            raise AttributeError(message, name=name, obj=self)

        def __setattr__(self, name: str, value: object) -> None:
            # Batches would not change with such an attribute.
            is_from_constructor = name in _SET_ONCE and name not in vars(self)
            if not name.startswith("_") and not is_from_constructor:
                message = describe_setting(name, self._option_names)
                raise AttributeError(message, name=name, obj=self)
            super().__setattr__(name, value)

    def __new__(cls, *args: object, **options: object) -> Self:
        # Users of FFCV make a Loader of a path, which __init__ would refuse without a hint.
        is_from_factory = len(args) > 1 and isinstance(args[1], RecipeResolver)
        if (args or options) and not is_from_factory:
            raise ConfigError(describe_constructor(args, options))
        return super().__new__(cls)

    def __init__(
        self,
        data: Dataset,
        resolver: RecipeResolver,
        maker: BatchMaker,
        stream: Stream,
        augments: tuple[Augment | None, ...],
        settings: Settings,
        prefetch_factor: int,
        option_names: Collection[str],
        facts: LoaderFacts,
    ) -> None:
        self._data = data
        self._option_names = option_names  # the arguments of fastpipe.loader
        # fastpipe.preview makes batches of chosen samples with these three.
        self.maker = maker
        self.stream = stream
        self.augments = augments  # of each view

        transfer = make_transfer(maker, stream, augments, resolver.current())
        agreement = Agreement(data)
        self._epochs = EpochSequence(
            maker, transfer, resolver, agreement, prefetch_factor, facts
        )
        # A function, not a method: nothing in here may refer to the loader, so that its threads end
        # when it is dropped.
        self._read_stats = partial(_read_stats, self._epochs, stream)
        self._watch = LoadWatch(self._read_stats, settings)

    @property
    def dataset(self) -> Dataset:
        """The dataset that the loader reads. A batch's `ids` are numbers of samples in it.

        Example:
            >>> fastpipe.loader("data/train", batch_size=8).dataset
            <fastpipe dataset 'data/train': 24 samples, 2 classes>
        """
        return self._data

    @property
    def recipe(self) -> Recipe:
        """What decides the batches of an epoch that begins now."""
        return self._epochs.resolver.current()

    @property
    def batch_size(self) -> int:
        """Samples a batch, of each rank. With a budget, the most that batches may have.

        Example:
            >>> fastpipe.loader("data/train", batch_size=8).batch_size
            8
        """
        return self.recipe.batch_size

    @property
    def view_seeds(self) -> list[int]:
        """The seed of each view; the first one is the loader's own.

        View k has the rows that a loader without views=, with the size, crop, hflip and augment of
        view k and with seed=view_seeds[k], has of the same samples.

        Example:
            >>> options = {"batch_size": 8, "size": 32, "shuffle": False}
            >>> loader = fastpipe.loader("data/train", views=2, seed=5, **options)
            >>> (first, second), labels = next(iter(loader))
            >>> alone = fastpipe.loader("data/train", seed=loader.view_seeds[1], **options)
            >>> torch.equal(second, next(iter(alone)).images)
            True
        """
        return [view.seed for view in self.recipe.views]

    @property
    def classes(self) -> list[str]:
        """Class names; a label is a position in it. With CropAt and boxes that have labels, those of
        the boxes.

        Example:
            >>> fastpipe.loader("data/train", batch_size=8).classes
            ['cat', 'dog']
        """
        names = names_of_labels(self._data.index, self.recipe.crop)
        return self._data.classes if names is None else names

    def __repr__(self) -> str:
        recipe = self.recipe
        ranks = recipe.ranks
        text = (
            f"<fastpipe loader {str(self._data.index.path)!r}: {len(self)} batches of "
        )
        sizes = _describe_sizes(recipe)
        samples = f"{self.batch_size}"
        budget = recipe.crop.budget
        if budget is not None:
            unit = "tokens" if isinstance(recipe.crop, Patches) else "pixels"
            samples = f"up to {budget:,} {unit}"
        text += f"{samples}, {sizes}, on {self.stream.device}"
        if ranks.world_size > 1:
            text += f", rank {ranks.rank} of {ranks.world_size}"
        return text + ">"

    @property
    def remaining(self) -> int:
        """Number of batches that the running epoch, or else the next one, has not given yet.

        Example:
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32)
            >>> batch = next(iter(loader))
            >>> loader.remaining
            2
        """
        return self._epochs.num_remaining

    @uncompiled
    def __iter__(self) -> EpochIterator:
        """Starts the next epoch, or continues at the loaded position.

        The next epoch is that of `set_epoch`, or the last one plus 1. next(iter(loader)) also uses
        up an epoch: in a notebook, call set_epoch(0) after it. After an error the iterator raises
        EngineError, never StopIteration, so no epoch ends early without an error.
        """
        self.maker.engine.check_usable()
        return EpochIterator(self._epochs, self._watch.add)

    @refusing_unknown("loader.set_epoch")
    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch; later epochs count up from it. Optional.

        The number of a loaded epoch continues inside that epoch; any other starts an epoch from its
        beginning.

        Example:
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32)
            >>> images, labels = next(iter(loader))  # a look; it has begun epoch 0
            >>> loader.set_epoch(0)  # training begins with epoch 0
        """
        self._epochs.set_epoch(epoch)

    @refusing_unknown("loader.set_size")
    def set_size(self, size: int | tuple[int, int]) -> None:
        """Sets the size of the images, in pixels, for all epochs that begin from now on.

        Views with a size of their own keep it. A state remembers the size for the rest of its
        epoch.

        Args:
            size: a number for a square, or (height, width).

        Raises:
            ConfigError: the size is wrong, or too large for a RandomCrop, or the loader's sizes
                come from a function, size_choices=, buckets or Native.

        Example:
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32)
            >>> loader.set_size(48)
            >>> next(iter(loader))[0].shape
            torch.Size([8, 3, 48, 48])
        """
        recipe = self.recipe
        if isinstance(recipe.crop, WholeImages):
            raise conflict_error("whole images + other sizes", f"set_size({size!r})")
        if recipe.crop.is_per_part:
            raise conflict_error("parts + other crops", f"set_size({size!r})")
        if recipe.sizes is not None:
            source = "a function, size=" if recipe.sizes.schedule else "size_choices="
            raise ConfigError(
                f"set_size({size!r}): this loader's sizes come from {source}; leave set_size out, "
                "or pass one size to fastpipe.loader(..., size=)"
            )
        resized_views = [view for view in recipe.views if view.size is None]
        if not resized_views:
            raise conflict_error("set_size + sized views", f"set_size({size!r})")

        # All checks come first, so that a size that is refused changes nothing.
        height_width = parse_size(size)
        for view in resized_views:
            # `train` only chooses a crop where none is given.
            parse_crop(view.crop, height_width, train=False)
        check_image_sizes(replace(recipe, size=height_width))
        with self._epochs.lock:
            self._epochs.resolver.size = height_width

    @refusing_unknown("loader.set_weights")
    def set_weights(self, weights: Any) -> None:
        """Sets the weights by which samples are drawn, for all epochs that begin from now on.

        See fastpipe.Weighted. A state names the weights of its epoch by a hash: pass them again
        before `load_state_dict`.

        Raises:
            ConfigError: the loader draws by no weights, or they are wrong.

        Example:
            >>> weights = np.ones(24)
            >>> loader = fastpipe.loader("data/train", batch_size=8, sampler=fastpipe.Weighted(weights))
            >>> weights[:12] = 3  # these were hard
            >>> loader.set_weights(weights)
        """
        with self._epochs.lock:
            self._epochs.resolver.set_weights(weights, self._data)

    def discard_prefetched(self) -> None:
        """Discards the batches of the next epoch that were made in advance.

        Call it after you have changed something that makes them, such as the parameters of an
        augmentation.

        Example:
            >>> import kornia.augmentation as K
            >>> jitter = K.ColorJitter(0.1, 0.1, 0.1, 0.1, p=0.0)
            >>> augment = fastpipe.Augment([jitter])
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32, augment=augment)
            >>> for epoch in range(2):
            ...     for images, labels in loader:
            ...         pass
            ...     jitter.p = 0.8  # from the next epoch on
            ...     loader.discard_prefetched()
        """
        with self._epochs.lock:
            self._epochs.discard_prefetched()

    def state_dict(self) -> dict[str, Any]:
        """The position of the loader: a small dictionary for JSON and torch.save.

        It counts the batches that the loop has got, and is the same on all ranks. With it, a loader
        in another process gives the remaining batches, with any num_workers, and with any
        world_size if the global batch size stays the same.

        Example:
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32)
            >>> batches = iter(loader)
            >>> images, labels = next(batches)
            >>> state = loader.state_dict()
            >>> again = fastpipe.loader("data/train", batch_size=8, size=32)
            >>> again.load_state_dict(state)
            >>> torch.equal(next(iter(again))[0], next(batches)[0])  # the second batch, in both
            True
        """
        epochs = self._epochs
        # Only a size of set_size is in a state: another one is an option of the loader.
        size = None if epochs.resolver.size is None else epochs.size
        return make_state(epochs.position, epochs.running_recipe, size, self._data)

    @refusing_unknown("loader.load_state_dict")
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration continue at the position of a `state_dict`.

        Earlier batches are not decoded again.

        Raises:
            ConfigError: the state belongs to another dataset, or to another order of the samples.

        Example:
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32)
            >>> loader.load_state_dict(loader.state_dict())
        """
        order = parse_order(state, self._data)
        check = partial(parse_position, state, order)
        resolver = self._epochs.resolver
        # The ranks may be unknown yet, so the state decides how many there are assumed to be.
        position = check(resolver.for_state(order))
        size = state["size"]
        if size is not None:
            try:
                self.set_size(size)
            except ConfigError as problem:
                raise ConfigError(
                    f"load_state_dict: the state's epoch has images of size {size}, from set_size, "
                    f"and this loader cannot have them ({problem}). Open the loader with the same "
                    "size=, size_choices=, crop= and views= as the one that saved the state, or "
                    "start without the state"
                ) from problem
        # Asked again, because set_size has changed the recipe.
        self._epochs.resume_at(position, resolver.for_state(order), check)
        if resolver.ranks.seems_alone():
            try:
                check(resolver.current())
            except ConfigError as problem:
                programs.warn_of_more_ranks(problem)

    def stats(self) -> Stats:
        """The loader's counts and times so far, and its queues now.

        Any thread may call it; it takes 0.01 ms.

        Example:
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32)
            >>> for images, labels in loader:
            ...     pass
            >>> stats = loader.stats()
            >>> stats.batches, stats.samples
            (3, 24)
        """
        return self._read_stats()

    def close(self) -> None:
        """Ends the threads and closes all shards; iterating afterwards raises EngineError.

        Batches that the loop has got stay valid. Waits for the rows that threads are working on,
        milliseconds, or 10 s if a read does not end.

        Example:
            >>> loader = fastpipe.loader("data/train", batch_size=8, size=32)
            >>> loader.close()
        """
        self.maker.engine.close()
        if self.maker.prepare is not None:
            self.maker.prepare.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make_transfer(
    maker: BatchMaker,
    stream: Stream,
    augments: tuple[Augment | None, ...],
    recipe: Recipe,
) -> Transfer:
    """The way to the device of batches that `maker` makes by this recipe."""
    seeds = [view.seed for view in recipe.views]
    names = names_of_labels(maker.index, recipe.crop)
    if names is None:
        names = maker.index.classes
    return Transfer(
        stream,
        list(zip(augments, seeds, strict=True)),
        classes=len(names),
        stats=maker.stats,
        watchdog=maker.watchdog,
    )


def _describe_sizes(recipe: Recipe) -> str:
    if isinstance(recipe.crop, Buckets):
        return "buckets"
    if isinstance(recipe.crop, Patches):
        return "patches"
    if isinstance(recipe.crop, Native):
        return "own sizes"
    counts: Counter[str] = Counter()
    for view in recipe.views:
        height, width = view.size or recipe.size
        counts[f"{height} x {width}"] += 1
    sizes = []
    for size, count in counts.items():
        if recipe.other_views:
            size = f"{count} x ({size})"
        sizes.append(size)
    return f"{' and '.join(sizes)} pixels"


def _read_stats(epochs: EpochSequence, stream: Stream) -> Stats:
    """Reads what a loader has done so far, and what is where at the moment."""
    maker = epochs.maker
    engine = maker.engine
    num_making = 0
    num_ready = 0
    if not engine.is_foreign():
        # A forked child has no threads, and may not ask for their jobs.
        num_making, num_ready = epochs.count_pending()
    return replace(
        maker.stats,
        **engine.figures(),
        batches_making=num_making,
        batches_ready=num_ready,
        batches_copying=epochs.transfer.under_way,
        slots_lent=sum(ring.lent for ring, _ in maker.views),
        slots_idle=sum(ring.idle for ring, _ in maker.views),
        pinned_bytes=stream.pinned_bytes,
    )
