"""A Python program as it starts -> one whose DataLoaders are watched; what goes wrong in here never reaches it."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import json
import os
import sys
import sysconfig
from collections.abc import Sequence
from types import FrameType, ModuleType
from typing import Any

from .files import Log, arm, note

FOLDER = "FASTPIPE_WATCH"  # the variable that names the folder
_WATCHED = "torch.utils.data.dataloader"
_MOST_LOADERS = 32


def install() -> None:
    """Watches all DataLoaders that this process will make, if the variable names a folder."""
    folder = os.environ.get(FOLDER)
    if not folder or not os.path.isdir(folder):
        return
    arm(folder)
    with open(os.path.join(folder, f"process-{os.getpid()}.json"), "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "python": sys.version.split()[0]}, file)
    sys.meta_path.insert(0, _Finder(folder))


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the module of DataLoader be found as ever, and changes it once it has been loaded."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _WATCHED:
            return None
        sys.meta_path.remove(self)
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path)
        spec = next((found for found in specs if found is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_patch(module: ModuleType) -> None:
                load(module)
                try:
                    patch(module, self._folder)
                except Exception as problem:
                    note(self._folder, problem)

            spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


def patch(module: Any, folder: str) -> None:
    """Changes four methods of torch.utils.data.dataloader, so that they tell."""
    loader_class, iterator_class = module.DataLoader, module._BaseDataLoaderIter
    make, begin = loader_class.__init__, loader_class.__iter__
    get_iterator, next_batch = loader_class._get_iterator, iterator_class.__next__

    @functools.wraps(make)
    def watched_make(self: Any, *arguments: Any, **options: Any) -> None:
        made_at = _caller()
        self.__dict__["_fastpipe_made_at"] = made_at
        try:
            make(self, *arguments, **options)
        except ValueError as problem:
            refused = Log(os.path.join(folder, f"refused-{os.getpid()}.jsonl"))
            refused.write({"made_at": made_at, "error": str(problem)[:1000]})
            refused.close()
            raise

    @functools.wraps(begin)
    def watched_begin(self: Any) -> Any:
        watch = self.__dict__.get("_fastpipe_watch")
        if watch is not None and watch.here() and self._iterator is not None:
            watch.began()  # with the workers that it has; without, it makes an iterator, as below
        return begin(self)

    @functools.wraps(get_iterator)
    def watched_iterator(self: Any) -> Any:
        watch = None
        try:
            watch = _watch_of(self, folder)
        except Exception as problem:
            note(folder, problem)
        if watch is None:
            return get_iterator(self)
        watch.began()
        try:
            iterator = watch.iterator(self, get_iterator)
        except BaseException as problem:
            watch.failed(problem)
            raise
        iterator._fastpipe_watch = watch
        return iterator

    @functools.wraps(next_batch)
    def watched_next(self: Any) -> Any:
        watch = self.__dict__.get("_fastpipe_watch")
        if watch is None or not watch.here():
            return next_batch(self)
        watch.asked()
        try:
            batch = next_batch(self)
        except StopIteration:
            watch.ended()
            raise
        except BaseException as problem:
            watch.failed(problem)
            raise
        watch.came(batch)
        return batch

    loader_class.__init__ = watched_make
    loader_class.__iter__ = watched_begin
    loader_class._get_iterator = watched_iterator
    iterator_class.__next__ = watched_next


_made = 0


def _watch_of(loader: Any, folder: str) -> Any:
    """The watch of a DataLoader; None in a worker process and for what is too much to watch."""
    global _made
    from torch.utils.data import get_worker_info

    from .watch import LoaderWatch

    watch = loader.__dict__.get("_fastpipe_watch")
    if get_worker_info() is not None or not os.path.isdir(folder):
        return None
    if watch is None or not watch.here():
        if _made >= _MOST_LOADERS:
            return None
        _made += 1
        watch = LoaderWatch(folder, loader, loader.__dict__.get("_fastpipe_made_at", ""))
        loader.__dict__["_fastpipe_watch"] = watch
    return watch


def _caller() -> str:
    """The line of the user's own that makes a DataLoader: the innermost outside of installed packages."""
    own = os.path.dirname(__file__)
    installed = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")} | {own})
    frame: FrameType | None = sys._getframe(2)
    first = ""
    while frame is not None:
        line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        first = first or line
        if not frame.f_code.co_filename.startswith(installed):
            return line
        frame = frame.f_back
    return first
