"""A Python program as it starts -> one whose DataLoaders are watched.

Errors in here never reach the program.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType, TracebackType
from typing import Any

from .files import contain_errors, install_dump_handler, write_program_line
from .records import Ending
from .user_code import find_main_line, find_raising_line, find_user_line

FOLDER = "FASTPIPE_WATCH"  # the variable that names the folder
STOPPING = "stopping"  # a file in the folder: the program was asked to end
_PATCHED_MODULE = "torch.utils.data.dataloader"
_MAX_LINES = 256
# The errors of a program that ends by Ctrl-C or, as torchrun's, by a signal.
_ENDS_BY_SIGNAL = ("KeyboardInterrupt", "SignalException")


def install(folder: str) -> None:
    """Watches all DataLoaders that this process will make, if the folder still exists."""
    if not os.path.isdir(folder):
        return
    install_dump_handler(folder)
    write_program_line(folder, {})
    sys.meta_path.insert(0, _Finder(folder))
    _patch_excepthooks(folder)


def _patch_excepthooks(folder: str) -> None:
    """Records the error that ends the program, and keeps quiet about the end that was asked for."""
    excepthook = sys.excepthook
    unraisablehook = sys.unraisablehook

    def is_stopping() -> bool:
        return os.path.exists(os.path.join(folder, STOPPING))

    def record_and_report(
        kind: type[BaseException],
        problem: BaseException,
        traceback: TracebackType | None,
    ) -> None:
        with contain_errors(folder):
            if not is_stopping() and os.path.isdir(folder):
                text = f"{kind.__name__}: {str(problem)[:4000]}"
                ending = Ending(text, find_raising_line(problem))
                write_program_line(folder, {"errors": [vars(ending)]})
        if not (is_stopping() and kind.__name__ in _ENDS_BY_SIGNAL):
            excepthook(kind, problem, traceback)

    def report_unraisable(problem: Any) -> None:
        """For errors that Python ignores, as while it ends."""
        if problem.exc_type is not KeyboardInterrupt or not is_stopping():
            unraisablehook(problem)

    sys.excepthook = record_and_report
    sys.unraisablehook = report_unraisable


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module of DataLoader as ever, and patches it once it has been loaded."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _PATCHED_MODULE:
            return None
        # Otherwise find_spec would ask this finder again.
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_patch(module: ModuleType) -> None:
                load(module)
                with contain_errors(self._folder):
                    patch(module, self._folder)

            spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


def patch(module: Any, folder: str) -> None:
    """Changes four methods of torch.utils.data.dataloader, so that they report."""
    _patch_loader(module.DataLoader, folder)
    _patch_iterator(module._BaseDataLoaderIter, folder)


def _patch_loader(loader_class: Any, folder: str) -> None:
    """Patches the methods by which a DataLoader is made, and makes its iterator."""
    make = loader_class.__init__
    get_iterator = loader_class._get_iterator
    # Identity of a loader (its line and options) -> the LoaderLine that such loaders share.
    lines: dict[Any, Any] = {}

    @functools.wraps(make)
    def watched_make(self: Any, *arguments: Any, **options: Any) -> None:
        frame = sys._getframe(1)
        made_at = (
            find_user_line(frame) or f"{frame.f_code.co_filename}:{frame.f_lineno}"
        )
        # DataLoader.__setattr__ refuses some changes, and a subclass may have its own.
        self.__dict__["_fastpipe_made_at"] = made_at
        try:
            make(self, *arguments, **options)
        except ValueError as problem:
            with contain_errors(folder):
                error = {"made_at": made_at, "error": str(problem)[:1000]}
                write_program_line(folder, {"option_errors": [error]})
            raise

    @functools.wraps(get_iterator)
    def watched_iterator(self: Any) -> Any:
        watch = None
        with contain_errors(folder):
            watch = _find_or_make_watch(self, folder, lines)
        if watch is None:
            return get_iterator(self)
        place = find_user_line(sys._getframe(1))
        watch.begin_epoch(self, place)
        try:
            iterator = watch.make_iterator(self, get_iterator)
        except BaseException as problem:
            with contain_errors(folder):
                main_line = find_main_line(sys._getframe(1))
                # Python's words, if a spawned worker would start workers while it imports the main
                # script.
                if main_line and "bootstrapping" in str(problem):
                    write_program_line(folder, {"unguarded": main_line})
                watch.record_error(problem, None, self.dataset, place)
            raise
        iterator._fastpipe_watch = watch
        return iterator

    loader_class.__init__ = watched_make
    loader_class._get_iterator = watched_iterator


def _find_or_make_watch(loader: Any, folder: str, lines: dict[Any, Any]) -> Any:
    """Returns the watch of a DataLoader; None in a worker, after the end, and past 256 lines."""
    from torch.utils.data import get_worker_info

    from .watch import LoaderWatch

    if get_worker_info() is not None or not os.path.isdir(folder):
        return None
    watch = _find_watch(loader)
    if watch is None and len(lines) < _MAX_LINES:
        made_at = loader.__dict__.get("_fastpipe_made_at", "")
        watch = LoaderWatch(folder, loader, made_at, lines)
        loader.__dict__["_fastpipe_watch"] = watch
    return watch


def _patch_iterator(iterator_class: Any, folder: str) -> None:
    """Patches the methods by which an iterator begins an epoch, and gives a batch."""
    reset = iterator_class._reset
    next_batch = iterator_class.__next__

    @functools.wraps(reset)
    def watched_reset(self: Any, loader: Any, *arguments: Any, **options: Any) -> None:
        # Only workers that persist get here with a watch: while an iterator is made, it has none.
        watch = _find_watch(self)
        if watch is not None:
            watch.begin_epoch(loader, find_user_line(sys._getframe(1)))
        reset(self, loader, *arguments, **options)

    @functools.wraps(next_batch)
    def watched_next(self: Any) -> Any:
        watch = _find_watch(self)
        if watch is None:
            return next_batch(self)
        try:
            return watch.next_batch(self, next_batch)
        except StopIteration:
            raise
        except BaseException as problem:
            # The end that was asked for interrupts whoever waits for a batch.
            if not os.path.exists(os.path.join(folder, STOPPING)):
                place = find_user_line(sys._getframe(1))
                watch.record_error(problem, self, self._dataset, place)
            raise

    iterator_class._reset = watched_reset
    iterator_class.__next__ = watched_next


def _find_watch(watched: Any) -> Any:
    """Returns the watch of a DataLoader or its iterator; None if this process made none."""
    watch = watched.__dict__.get("_fastpipe_watch")
    if watch is None or not watch.is_of_this_process():
        return None
    return watch
