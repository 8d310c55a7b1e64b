"""The thread that makes all requests of a process. It runs an event loop: a request that hangs is given up at once."""

from __future__ import annotations

import asyncio
import os
import threading

from fastpipe.errors import ConfigError, EngineError

THREAD_NAME = "fastpipe-requests"

# Note [obstore and fork]
# obstore's requests run in threads of a runtime that a process has once. After a fork the child has the runtime and
# none of its threads: a request would wait for ever. So a child of a process that has used obstore is refused; one of
# a process that has not starts its own.
_started: tuple[int, asyncio.AbstractEventLoop] | None = None  # the process, and the loop


def refuse_forked() -> None:
    """Raises EngineError in a forked child of a process that has read remote data; Note [obstore and fork]."""
    if _started is not None and _started[0] != os.getpid():
        raise EngineError(
            f"process {_started[0]} has read remote data, and this is its forked child {os.getpid()}: the threads "
            "that make requests do not exist here. Start workers in another way: pass "
            'multiprocessing_context="forkserver" to the DataLoader, or call '
            'torch.multiprocessing.set_start_method("forkserver") before'
        )


def loop_of_process() -> asyncio.AbstractEventLoop:
    """The event loop of the thread, which is started with the first dataset. obstore itself is imported here.

    Raises:
        ConfigError: obstore is not installed.
        EngineError: this is a forked child.
    """
    global _started
    refuse_forked()
    if _started is None:
        try:
            import obstore  # noqa: F401
        except ImportError as missing:
            raise ConfigError("reading a dataset by its URL needs obstore: pip install 'fastpipe[remote]'") from missing
        _started = os.getpid(), asyncio.new_event_loop()
        threading.Thread(target=_run, args=_started[1:], name=THREAD_NAME, daemon=True).start()
    return _started[1]


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
