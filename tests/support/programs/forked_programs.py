"""Programs in JSON -> how each ended, in JSON; each runs in a process forked off one that has MODULE already.

    python forked_programs.py DATASET MODULE < PROGRAMS > OUTCOMES

A program is {"code": source, with DATA for the dataset's folder and say() to tell how far it has come, "signal": to be
sent to it, "after": what it has to have said first, "delay_s": after that, "limit_s"}. It runs in the module __main__
and ends as any Python program does. An outcome is {"code": as of subprocess, None if it had to be killed, "seconds":
from the signal, or from what it said last, to its end, "said", "stderr", "left": whether another process of its session
was left}.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import time
from typing import Any

DATA = sys.argv[1]
importlib.import_module(sys.argv[2])
gc.freeze()  # what they share is not looked at as each of them ends: that would take most of their time


def say(word: str) -> None:
    """Each word comes whole: it is short."""
    os.write(says, f"{word}\n".encode())


def watch(process: int, heard: int, program: dict[str, Any], stderr: Any) -> dict[str, Any]:
    """Sends the signal when it is time and waits for the end."""
    begun = since = time.monotonic()
    said, code, sent = "", None, False
    due = None
    while code is None:
        now = time.monotonic()
        if due is not None and now >= due and not sent:
            os.kill(process, program["signal"])
            sent, since = True, now
        if now - begun > program.get("limit_s", 300):
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            break
        if select.select(
            [heard], [], [], 0.001 if due is None or sent else min(0.001, max(0, due - now))
        )[0]:
            words = os.read(heard, 65536).decode()
            said += words
            if words and not sent:
                since = time.monotonic()
            if not words:
                time.sleep(0.001)  # it has closed it, and ends
        if due is None and program.get("after", "\0") + "\n" in said:
            due = time.monotonic() + program.get("delay_s", 0.0)
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - since
    try:
        os.killpg(process, signal.SIGKILL)
        left = True
    except ProcessLookupError:
        left = False
    stderr.seek(0)
    return {
        "code": code,
        "seconds": seconds,
        "said": said,
        "stderr": stderr.read().decode(),
        "left": left,
    }


for program in json.load(sys.stdin):
    heard, says = os.pipe()
    with tempfile.TemporaryFile() as stderr:
        process = os.fork()
        if process == 0:
            os.setsid()
            os.dup2(stderr.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            break
        os.close(says)
        sys.stdout.write(json.dumps(watch(process, heard, program, stderr)) + "\n")
        sys.stdout.flush()
        os.close(heard)
else:
    sys.exit()

exec(compile(program["code"], "<program>", "exec"))
