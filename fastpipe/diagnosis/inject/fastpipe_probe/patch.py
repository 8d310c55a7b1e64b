"""A Python program as it starts -> one whose DataLoaders are watched; what goes wrong in here never reaches it."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType, TracebackType
from typing import Any

from .files import Ending, arm, leave, noted
from .own import main_line, own_line, raised_at

FOLDER = "FASTPIPE_WATCH"  # the variable that names the folder
STOPPING = "stopping"  # a file in the folder: the program was asked to end
_WATCHED = "torch.utils.data.dataloader"
_MOST_LINES = 256


def install(folder: str) -> None:
    """Watches all DataLoaders that this process will make, if there still is the folder for the files."""
    if not os.path.isdir(folder):
        return
    arm(folder)
    leave(folder, {})
    sys.meta_path.insert(0, _Finder(folder))
    tell, tell_ignored = sys.excepthook, sys.unraisablehook

    def told(kind: type[BaseException], problem: BaseException, traceback: TracebackType | None) -> None:
        """Notes the error that ends this program; but one that was asked to end, and ends for that, is quiet."""
        stopping = os.path.exists(os.path.join(folder, STOPPING))
        with noted(folder):
            if not stopping and os.path.isdir(folder):
                ending = Ending(f"{kind.__name__}: {str(problem)[:4000]}", raised_at(problem))
                leave(folder, {"errors": [vars(ending)]})
        if not (stopping and kind.__name__ in ("KeyboardInterrupt", "SignalException")):
            tell(kind, problem, traceback)

    def told_ignored(problem: Any) -> None:
        """As `told`, of an error that Python ignores, as while it ends."""
        if problem.exc_type is not KeyboardInterrupt or not os.path.exists(os.path.join(folder, STOPPING)):
            tell_ignored(problem)

    sys.excepthook, sys.unraisablehook = told, told_ignored


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the module of DataLoader be found as ever, and changes it once it has been loaded."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != _WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_patch(module: ModuleType) -> None:
                load(module)
                with noted(self._folder):
                    patch(module, self._folder)

            spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


def patch(module: Any, folder: str) -> None:
    """Changes four methods of torch.utils.data.dataloader, so that they tell."""
    loader_class, iterator_class = module.DataLoader, module._BaseDataLoaderIter
    make, get_iterator = loader_class.__init__, loader_class._get_iterator
    reset, next_batch = iterator_class._reset, iterator_class.__next__
    lines: dict[Any, Any] = {}

    @functools.wraps(make)
    def watched_make(self: Any, *arguments: Any, **options: Any) -> None:
        frame = sys._getframe(1)
        made_at = own_line(frame) or f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self.__dict__["_fastpipe_made_at"] = made_at
        try:
            make(self, *arguments, **options)
        except ValueError as problem:
            leave(folder, {"refused": [{"made_at": made_at, "error": str(problem)[:1000]}]})
            raise

    @functools.wraps(get_iterator)
    def watched_iterator(self: Any) -> Any:
        watch = None
        with noted(folder):
            from torch.utils.data import get_worker_info

            from .watch import LoaderWatch

            if get_worker_info() is None and os.path.isdir(folder):
                watch = _here(self)
                if watch is None and len(lines) < _MOST_LINES:
                    watch = LoaderWatch(folder, self, self.__dict__.get("_fastpipe_made_at", ""), lines)
                    self.__dict__["_fastpipe_watch"] = watch
        if watch is None:
            return get_iterator(self)
        place = own_line(sys._getframe(1))
        watch.began(self, place)
        try:
            iterator = watch.iterator(self, get_iterator)
        except BaseException as problem:
            if (main := main_line(sys._getframe(1))) and "bootstrapping" in str(problem):  # Python's word
                leave(folder, {"unguarded": main})
            watch.failed(problem, None, self.dataset, place)
            raise
        iterator._fastpipe_watch = watch
        return iterator

    @functools.wraps(reset)
    def watched_reset(self: Any, loader: Any, *arguments: Any, **options: Any) -> None:
        if watch := _here(self):  # of workers that persist: an iterator that is made has none yet
            watch.began(loader, own_line(sys._getframe(1)))
        reset(self, loader, *arguments, **options)

    @functools.wraps(next_batch)
    def watched_next(self: Any) -> Any:
        watch = _here(self)
        if watch is None:
            return next_batch(self)
        try:
            return watch.next(self, next_batch)
        except StopIteration:
            raise
        except BaseException as problem:
            if not os.path.exists(os.path.join(folder, STOPPING)):
                watch.failed(problem, self, self._dataset, own_line(sys._getframe(1)))
            raise

    loader_class.__init__ = watched_make
    loader_class._get_iterator = watched_iterator
    iterator_class._reset = watched_reset
    iterator_class.__next__ = watched_next


def _here(watched: Any) -> Any:
    """The watch of a DataLoader or its iterator; None if it has none, or one of the process that forked this one."""
    watch = watched.__dict__.get("_fastpipe_watch")
    return watch if watch is not None and watch.here() else None
