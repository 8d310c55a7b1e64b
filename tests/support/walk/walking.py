"""Numbers of draws -> how each ended: in forked processes of some draws each, with a watchdog."""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import gc
import json
import logging
import os
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

CHUNK = 40
HANG_S = 300.0
BATCH = "a batch"


@dataclass
class Ended:
    """A draw.

    Attributes:
        how: "done", "refused: ...", or "failed: " and the error.
        words: a program that does it again, and the error; empty where it is as the docs say.
    """

    number: int
    how: str
    words: str = ""


def walk(
    seed: int,
    numbers: range | list[int],
    folder: Path,
    told: Callable[[Ended], None],
    counts: Counter[str],
) -> None:
    """Does these draws; `told` of each; `counts` what was done."""
    with _forked(lambda pipe: _make(folder, pipe)) as made:
        assert made.line(HANG_S) == "made", "the data could not be made"
    with _served(folder) as url:
        left = list(numbers)
        while left:
            left = _chunk(seed, left, folder, url, told, counts)


def _make(folder: Path, pipe: IO[str]) -> None:
    from support.walk.walked_data import make

    make(folder)
    pipe.write("made\n")


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The URL of a server in a process of its own."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(KeyboardInterrupt):
            from support.remote.range_server import RangeServer

            with RangeServer(folder) as server:
                os.write(theirs, f"{server.url}\n".encode())
                signal.pause()
        os._exit(0)
    os.close(theirs)
    try:
        with open(ours) as file:
            yield file.readline().strip()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@contextlib.contextmanager
def _forked(body: Callable[[IO[str]], None]) -> Iterator[_Child]:
    """Runs it in a child."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        code = 1
        try:
            with os.fdopen(theirs, "w", buffering=1) as pipe:
                body(pipe)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(theirs)
    try:
        yield _Child(child, ours)
    finally:
        os.close(ours)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


class _Child:
    """A process that writes lines."""

    def __init__(self, process: int, pipe: int) -> None:
        self.process = process
        self._pipe = pipe
        self._read = b""

    def line(self, timeout_s: float) -> str | None:
        """The next one; "" at the end, None if nothing comes for so long."""
        while b"\n" not in self._read:
            if not select.select([self._pipe], [], [], timeout_s)[0]:
                return None
            more = os.read(self._pipe, 1 << 16)
            if not more:
                return ""
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()


def _chunk(
    seed: int,
    left: list[int],
    folder: Path,
    url: str,
    told: Callable[[Ended], None],
    counts: Counter[str],
) -> list[int]:
    """Does some of these draws; those that are left."""
    now, rest = left[:CHUNK], left[CHUNK:]
    with (
        tempfile.TemporaryFile("w+") as errors,
        _forked(lambda pipe: _do(seed, now, folder, url, pipe, errors)) as child,
    ):
        while True:
            line = child.line(HANG_S)
            if line == BATCH:
                continue
            if line:
                found = json.loads(line)
                counts.update(found["counts"])
                if not now:
                    return rest
                told(Ended(now.pop(0), found["how"], found["words"]))
                continue
            if line is None:
                os.kill(child.process, signal.SIGABRT)  # all threads say where they are
                time.sleep(1.0)
            errors.seek(0)
            how = "failed: hangs" if line is None else "failed: the process died"
            number = now[0] if now else -1
            told(Ended(number, how, f"{_described(seed, number, folder)}\n{errors.read()[-6000:]}"))
            return now[1:] + rest


def drawn(seed: int, number: int, known: Any) -> Any:
    """Every sixth draw is of single samples."""
    from support.walk.dataset_walk import draw_dataset
    from support.walk.drawing import draw

    return (draw if number % 6 else draw_dataset)(seed, number, known, urls=True)


def again(seed: int, made: Any) -> str:
    """How a draw is done once more, and the program of it."""
    command = f"# PYTHONPATH=.:tests python -m support.walk.walking --seed {seed} --only {made.number}"
    return f"{command}\n{made.call()}  # {made.deed} {made.how}"


def _described(seed: int, number: int, folder: Path) -> str:
    from support.walk.walked_data import make

    return again(seed, drawn(seed, number, make(folder)))


def _do(seed: int, numbers: list[int], folder: Path, url: str, pipe: IO[str], errors: IO[str]) -> None:
    """Draws, one after the other; a line of JSON for each, and one at the end."""
    import cv2  # noqa: F401 (the threads that it starts are no leak)
    import torch
    from support.walk import taking
    from support.walk.dataset_walk import DatasetWalk
    from support.walk.deeds import Walk
    from support.walk.model import Wrong
    from support.walk.walked_data import make

    os.dup2(errors.fileno(), 2)
    faulthandler.enable(errors, all_threads=True)
    torch.set_num_threads(1)
    os.environ["FASTPIPE_CACHE"] = str(folder / "cache")
    warnings.simplefilter("error")
    logging.getLogger("fastpipe").setLevel(logging.ERROR)
    known = make(folder)
    taking.told_of_batch.append(lambda: print(BATCH, file=pipe, flush=True))
    gc.collect()
    gc.freeze()  # of the imported modules nothing is garbage
    counts: Counter[str] = collections.Counter()
    before: tuple[int, int] | None = None
    remote = False
    for number in numbers:
        made = drawn(seed, number, known)
        remote = remote or made.by_url
        began = time.process_time()
        ended = Ended(number, "")
        try:
            ended.how = (Walk if made.kind == "loader" else DatasetWalk)(made, folder, url, counts).do()
        except Wrong as error:
            ended.how, ended.words = f"failed: {error}"[:300], traceback.format_exc(limit=-3)
        except Exception as error:
            ended.how, ended.words = f"failed: {type(error).__name__}: {error}"[:300], traceback.format_exc(limit=-6)
        if ended.words:
            ended.words = f"{_described(seed, number, folder)}\n{ended.words}"
        counts["cpu ms"] += int(1000 * (time.process_time() - began))
        gc.collect()
        held = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        if before is None:
            before = held
        if not ended.words and not remote and (held[0] > before[0] or held[1] > before[1]):
            time.sleep(0.2)  # the system may still be clearing away threads
            gc.collect()
            held = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
            if held[0] > before[0] or held[1] > before[1]:
                ended.words = f"{_described(seed, number, folder)}\nfiles and threads were {before} and are {held}"
                ended.how = "failed: something is left"
        before = (max(before[0], held[0]), max(before[1], held[1]))
        pipe.write(json.dumps({**asdict(ended), "counts": {}}) + "\n")
    pipe.write(json.dumps({"counts": counts}) + "\n")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", type=int, nargs="*")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "fastpipe-walk")
    chosen = parser.parse_args()
    import kornia.augmentation
    import torch  # noqa: F401

    import fastpipe

    fastpipe.loader, fastpipe.Dataset, kornia.augmentation.ColorJitter  # noqa: B018 (imported once, for all children)
    ends: Counter[str] = Counter()
    counts: Counter[str] = Counter()

    def told(ended: Ended) -> None:
        ends[ended.how if not ended.words else "failed"] += 1
        if sum(ends.values()) % 100 == 0:
            _say(f"=== {json.dumps({**ends, **counts})}")
        if ended.words:
            _say(f"--- draw {ended.number}: {ended.how}\n{ended.words}")

    numbers: Any = chosen.only or range(chosen.first, chosen.first + chosen.count)
    walk(chosen.seed, numbers, chosen.folder, told, counts)
    _say(json.dumps({**ends, **counts}))


if __name__ == "__main__":
    main()
