"""Requests on a socket -> programs, each in a process forked off this one, which has imported MODULES already.

    python warm_server.py SOCKET MODULES...

A request is a line of JSON: {"start": words after `python`, "environment", "folder"} with three file descriptors
(standard input, output, error), answered by the number of the process; or {"wait": number}, answered by its status as
of os.waitpid and its CPU seconds, or null while it runs. A program runs in a session of its own, and as `python` would
run it: as the module __main__ of its file or of `-c`, with what PYTHONPATH says, and with the sitecustomize that is
found there.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import socket
import sys
import types
import warnings
from pathlib import Path
from typing import Any, NoReturn

_MOST_BYTES = 1 << 16
_STRING = "<string>"


def serve(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Answers requests; returns in a forked child, with what it is to run and its input, output and error."""
    while True:
        data, handles = b"", []
        while not data.endswith(b"\n"):
            more, passed, _, _ = socket.recv_fds(requests, _MOST_BYTES, 3)
            if not more:
                os._exit(0)
            data, handles = data + more, [*handles, *passed]
        request = json.loads(data)
        answer: int | list[float] | None
        if "start" in request:
            answer = os.fork()
            if answer == 0:
                requests.close()
                return request, handles
            for handle in handles:
                os.close(handle)
        else:
            ended, status, used = os.wait4(request["wait"], os.WNOHANG)
            answer = [status, used.ru_utime + used.ru_stime] if ended else None
        requests.sendall(json.dumps(answer).encode() + b"\n")


def become(request: dict[str, Any], handles: list[int], paths: list[str]) -> tuple[str, str]:
    """Makes this process one that was just started; returns the program and its file."""
    os.setsid()
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    words = list(request["start"])
    safe = bool(os.environ.get("PYTHONSAFEPATH"))
    while words[0] in ("-P", "-W"):
        option = words.pop(0)
        safe = safe or option == "-P"
        if option == "-W":
            sys.warnoptions.append(words[0])
            warnings.simplefilter(words.pop(0))  # type: ignore[arg-type]
    if words[0] == "-c":
        file, code, first = _STRING, words.pop(1), ""
    else:
        file = words[0]
        code, first = Path(file).read_text(), os.path.dirname(file)
    sys.argv[:] = words
    sys.path[:] = [
        *([] if safe else [first]),
        *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
        *paths,
    ]
    return code, file


def run(code: str, file: str) -> None:
    """The program; it ends as any does."""
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ImportError):
        importlib.import_module("sitecustomize")
    main = types.ModuleType("__main__")
    if file != _STRING:
        main.__file__ = file
    sys.modules["__main__"] = main
    exec(compile(code, file, "exec"), main.__dict__)


def fail(problem: BaseException) -> NoReturn:
    """Tells of an error as Python does: without the frames of this file."""
    own = problem.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename == __file__:
        own = own.tb_next
    sys.last_type, sys.last_value, sys.last_traceback = (
        type(problem),
        problem.with_traceback(own),
        own,
    )
    sys.excepthook(type(problem), problem, own)
    sys.exit(1)


if __name__ == "__main__":
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    installed = [path for path in sys.path if path not in (*given, str(Path(__file__).parent))]
    connected = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what they share is not looked at as each of them ends: that would take most of their time
    program = become(*serve(connected), installed)
    try:
        run(*program)
    except Exception as problem:
        fail(problem)
