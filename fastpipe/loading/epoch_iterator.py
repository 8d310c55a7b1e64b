"""One pass over a loader: the batches of an epoch, in order, and the times of the training loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

import torch

from fastpipe.device.transfer import Batch
from fastpipe.errors import EngineError
from fastpipe.loading import programs
from fastpipe.loading.epoch_sequence import EpochSequence
from fastpipe.loading.epoch_watch import EpochWatch
from fastpipe.loading.evaluated_on_training import note_epoch
from fastpipe.loading.in_turn import note_turn
from fastpipe.loading.prefetcher import Prefetcher
from fastpipe.loading.state import Position
from fastpipe.loading.trained_in_order import count_batch
from fastpipe.loading.uncompiled import uncompiled

# A shorter time is that of a look whether the device is ready, which does not hold the loop back.
_MIN_HELD_S = 1e-4


class EpochIterator:
    """Iterates over one epoch, which begins with the first batch.

    It does not begin before, because training frameworks make iterators that they never use.

    Args:
        epochs: those of the loader. The epoch that is next when the first batch is asked for is the
            one that this iterator goes through.
        on_batch: is called at each batch but the first, with the seconds that the loop waited in
            here, and the seconds of the training step before.
    """

    def __init__(
        self, epochs: EpochSequence, on_batch: Callable[[float, float], None]
    ) -> None:
        self._epochs = epochs
        self._on_batch = on_batch
        self._prefetcher: Prefetcher | None = None  # None: the epoch has not begun
        # Where the loop stands. Until another iterator begins, or set_epoch is called, the same
        # object is `epochs.position`, of which a state of the loader is made.
        self._position = Position()
        self._handed_out_at: float | None = None  # when the last batch was
        self._has_failed = False
        self._has_ended = False
        self._num_loaded = epochs.num_loaded  # states, when the epoch began
        self._num_begun = epochs.num_begun  # epochs, when this one had begun
        self._watches: list[EpochWatch] = []

    def __iter__(self) -> EpochIterator:
        if self._has_ended:
            programs.warn_used_up(self._position.epoch)
        return self

    def __reduce__(self) -> NoReturn:
        raise EngineError(
            "an iterator of a loader has threads and cannot be copied or pickled. To go on in another "
            "process, call fastpipe.loader(...) there, and load_state_dict(loader.state_dict())"
        )

    def __len__(self) -> int:
        """Number of batches that this iterator has not given yet."""
        # Before the first batch it may still be any epoch: the one that is next then.
        if self._prefetcher is None:
            return self._epochs.num_next
        return len(self._prefetcher)

    def skip_to(self, batch: int) -> None:
        """Lets the epoch begin at this batch, if it has not begun and would begin earlier."""
        if self._prefetcher is None:
            position = self._epochs.next
            position.batches = max(batch, position.batches)

    @uncompiled
    def __next__(self) -> Batch:
        with self._epochs.lock:
            if self._has_failed:
                raise EngineError(
                    "an error ended this epoch; start a new one: for images, labels in loader"
                )
            stats = self._epochs.maker.stats
            requested_at_s = time.perf_counter()
            if self._prefetcher is None:
                prefetcher = self._epochs.begin()
                # Ctrl-C may come between any two lines. In this order, an epoch that has begun has
                # its position.
                self._position = self._epochs.position
                self._prefetcher = prefetcher
                self._num_loaded = self._epochs.num_loaded
                self._num_begun = self._epochs.num_begun
                self._watches = self._epochs.watches
            else:
                for watch in self._watches:
                    watch.come_back()
            if torch.is_grad_enabled():
                self._epochs.has_had_gradients = True
            if len(self._prefetcher) == 0:
                self._end_epoch(self._prefetcher)
                raise StopIteration
            if self._num_begun != self._epochs.num_begun:
                self._warn_of_newer(self._prefetcher)
            elif self._num_loaded != self._epochs.num_loaded:
                self._num_loaded = self._epochs.num_loaded
                programs.warn_loaded_in_loop(self._position, self._epochs.next)
            # The part of this call in which the loop was held back because the device is behind.
            held_before_s = stats.held_s
            try:
                batch = self._next_batch(self._prefetcher)
                self._measure(requested_at_s, stats.held_s - held_before_s)
                self._position.batches += 1
                note_turn(self._prefetcher)
                count_batch()
                return batch
            except BaseException as problem:
                # An epoch must not look complete: after any interruption the next call raises.
                self._has_failed = True
                self._prefetcher.cancel()
                if isinstance(problem, StopIteration):
                    # The loop would take it for the end.
                    raise RuntimeError(
                        "a module of augment= raised StopIteration, as next() on an exhausted "
                        "iterator does. Fix that module"
                    ) from problem
                raise

    def _warn_of_newer(self, prefetcher: Prefetcher) -> None:
        """Says that this iterator goes on though another one of its loader has begun after it."""
        newer = self._epochs.find_newer(prefetcher)
        if newer is not None:
            programs.warn_interleaved(prefetcher.start.epoch, newer.start.epoch)
        elif prefetcher.recipe.shuffle:
            # Loops in loops over an evaluation, as for all pairs, need no state and no epoch.
            newer_epoch = self._epochs.maker.stats.epoch
            programs.warn_older_goes_on(prefetcher.start.epoch, newer_epoch)

    def _end_epoch(self, prefetcher: Prefetcher) -> None:
        """Moves the loop's position from the end of this epoch to the beginning of the next one.

        Raises ConfigError if another rank has gone through this epoch with other options.
        """
        batches = self._position.batches
        self._epochs.agreement.check(prefetcher.recipe, batches, is_end=batches > 0)
        if not self._has_ended:
            if self._num_begun != self._epochs.num_begun:
                self._warn_of_newer(prefetcher)
            if not self._epochs.has_had_gradients and not prefetcher.start.batches:
                programs.warn_epoch_without_gradients(
                    prefetcher.recipe, self._epochs.facts.random_by_default
                )
            programs.warn_replaced(self._epochs.maker.stats, prefetcher.recipe)
            self._epochs.count_end(prefetcher.start, prefetcher.recipe)
            note_epoch(prefetcher.recipe)
            for watch in self._watches:
                watch.end(self._position.batches - prefetcher.start.batches)
        self._has_ended = True
        programs.warn_cycled(self, self._epochs)
        programs.warn_repeated_rows(prefetcher.num_unmarked_repeats, prefetcher.recipe)
        if prefetcher.has_unmarked_order:
            programs.warn_other_order(prefetcher.recipe)
        # A program may call next() again after the end; the position has been moved then, and has
        # no batches.
        if self._position.batches:
            self._position.epoch += 1
            self._position.batches = 0

    def _next_batch(self, prefetcher: Prefetcher) -> Batch:
        """Waits for the next batch; has the engine and the device begin what comes after it."""
        epochs = self._epochs
        transfer = epochs.transfer
        epochs.maker.engine.check_usable()  # another thread may have closed the loader
        if self._position.batches.bit_count() == 1:  # after 1, 2, 4, 8, ... batches
            epochs.agreement.check(prefetcher.recipe, self._position.batches)

        transfer.collect()
        room = prefetcher.fill(prefetcher.capacity)
        if room:
            # If no batch of this epoch is pending, `room` also has the place of the one taken now.
            pending = min(room, epochs.prefetch_factor)
            epochs.prefetch_next(self._position, pending=pending)
        staged = prefetcher.take(transfer.lookahead)

        # At the end of the epoch, batches of the next one follow on the device's queue.
        missing = transfer.lookahead - len(prefetcher)
        if missing > 0:
            epochs.prefetch_next(self._position, staged=missing)

        batch = transfer.hand_over(staged)
        epochs.maker.stats.batches += 1
        epochs.maker.stats.samples += len(staged.valid)
        return batch

    def _measure(self, requested_at_s: float, held_s: float) -> None:
        """Counts the time of the loop in here, and the time of the step before."""
        stats = self._epochs.maker.stats
        now_s = time.perf_counter()
        load_s = now_s - requested_at_s
        if held_s >= _MIN_HELD_S:
            # The device was still busy with an earlier step, so it did not wait.
            load_s = 0.0
        stats.load_s += load_s
        if self._handed_out_at is not None:
            step_s = now_s - self._handed_out_at - load_s
            stats.step_s += step_s
            self._on_batch(load_s, step_s)
        self._handed_out_at = now_s
