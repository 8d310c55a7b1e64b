"""A Python program as it starts -> one whose DataLoaders are watched; what goes wrong in here never reaches it."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType, TracebackType
from typing import Any

from .files import Ending, arm, leave, note
from .own import main_line, own_line, raised_at

FOLDER = "FASTPIPE_WATCH"  # the variable that names the folder
STOPPING = "stopping"  # a file in the folder: the program was asked to end
_WATCHED = "torch.utils.data.dataloader"
_MOST_LOADERS = 256


def install() -> None:
    """Watches all DataLoaders that this process will make, if the variable names a folder."""
    folder = os.environ.get(FOLDER)
    if not folder or not os.path.isdir(folder):
        return
    arm(folder)
    with open(os.path.join(folder, f"process-{os.getpid()}.json"), "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "python": sys.version.split()[0]}, file)
    sys.meta_path.insert(0, _Finder(folder))
    _note_the_end(folder)


def _note_the_end(folder: str) -> None:
    """Notes the error that ends this program; and keeps a program quiet that was asked to end, and ends for that."""
    tell = sys.excepthook

    def told(kind: type[BaseException], problem: BaseException, traceback: TracebackType | None) -> None:
        stopping = os.path.exists(os.path.join(folder, STOPPING))
        try:
            if not stopping and os.path.isdir(folder):
                ending = Ending(f"{kind.__name__}: {str(problem)[:4000]}", raised_at(problem))
                leave(folder, "ended", vars(ending))
        except Exception as trouble:
            note(folder, trouble)
        if not (stopping and kind.__name__ in ("KeyboardInterrupt", "SignalException")):
            tell(kind, problem, traceback)

    sys.excepthook = told


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
        frame = sys._getframe(1)
        made_at = own_line(frame) or f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self.__dict__["_fastpipe_made_at"] = made_at
        try:
            make(self, *arguments, **options)
        except ValueError as problem:
            leave(folder, "refused", {"made_at": made_at, "error": str(problem)[:1000]})
            raise

    @functools.wraps(begin)
    def watched_begin(self: Any) -> Any:
        watch = self.__dict__.get("_fastpipe_watch")
        if watch is not None and watch.here() and self._iterator is not None:
            watch.began(own_line(sys._getframe(1)))  # with the workers that it has; else it makes an iterator, as below
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
        line = own_line(sys._getframe(1))
        watch.began(line)
        try:
            iterator = watch.iterator(self, get_iterator)
        except BaseException as problem:
            if (main := main_line(sys._getframe(1))) and "bootstrapping" in str(problem):
                leave(folder, "unguarded", {"pid": os.getpid(), "place": main})
            watch.failed(problem, None, line)
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
            if not os.path.exists(os.path.join(folder, STOPPING)):
                watch.failed(problem, self, own_line(sys._getframe(1)))
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
