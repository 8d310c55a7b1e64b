"""An object -> whether it is a lock, and whether somebody holds it."""

from __future__ import annotations

import threading
from typing import Any


def is_lock(value: Any) -> bool:
    """Whether an object is a lock.

    pickle refuses locks, or accepts them only for a process that is being spawned.
    """
    kind = type(value)
    is_of_threads = kind.__module__ == "_thread" and kind.__name__ in ("lock", "RLock")
    return is_of_threads or is_shared_lock(value)


def is_shared_lock(value: Any) -> bool:
    """Whether an object is a lock of multiprocessing, which all processes share."""
    return hasattr(value, "_semlock")


def find_held_kind(value: Any) -> str | None:
    """Returns the kind of a lock that somebody holds; None for any other object."""
    name = type(value).__name__
    if not is_lock(value) or name not in ("lock", "Lock", "RLock"):
        return None
    try:
        if is_shared_lock(value):
            if value._semlock._is_zero():
                return f"multiprocessing.{name}"
            return None
        # Python's locks have no method that asks without taking the lock, which would disturb the
        # program.
        is_held = repr(value).startswith("<locked")
    except Exception:
        return None
    if not is_held:
        return None
    return "threading.Lock" if name == "lock" else f"threading.{name}"


def belongs_to_thread(path: str, objects: dict[str, Any]) -> bool:
    """Whether Python itself uses a lock to wait for a thread or a condition.

    Such a lock is held all the time.

    `objects` are those around the lock, by their paths.
    """
    outer_path, _, _ = path.rpartition(".")
    return isinstance(objects.get(outer_path), threading.Thread) or "._waiters[" in path
