"""A case -> how a loader came through it.

    python faulted_epochs.py DATASET WORK < CASES > OUTCOMES

The program has calls.c preloaded.

DATASET is copied for each case, into a folder in WORK. A case has a "name", fit for a folder, and where wanted:

    options       of the loader, besides those below
    epochs        how many; 1
    step_s        seconds that a training step takes; 0
    shards        "linked": the shards are links to files in a folder beside the copy, as on another disk
    open_shards   how many shards are kept open
    after         batches handed out before `acts` and `fault`; 0: the loader has been made and nothing more
    acts          [[what, arguments], ...]: functions below
    fault         FAULT_* for calls.c; "{data}" stands for the copy, "{shards}" for the folder of the shards' files

An outcome is {"rows": a digest of each row handed out, "error", "replaced", "again": the rows of the next epoch,
without the fault, or its error, "said": warnings, "monitor": its lines}.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import logging
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from support.running.process_state import open_files

import fastpipe
from fastpipe.engine.limits import most_open_shards

Batch = tuple[torch.Tensor, torch.Tensor]

OPTIONS: dict[str, Any] = {
    "batch_size": 2,
    "size": 24,
    "train": False,
    "num_workers": 2,
    "prefetch_factor": 1,
}


class Said(logging.Handler):
    """Keeps what fastpipe's log says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def unlink(data: Path, name: str) -> None:
    (data / name).unlink()


def truncate(data: Path, name: str, length: int) -> None:
    os.truncate(data / name, length if length >= 0 else (data / name).stat().st_size + length)


def grow(data: Path, name: str) -> None:
    with open(data / name, "ab") as file:
        file.write(bytes(4096))


def replace(data: Path, name: str, change: str) -> None:
    """By another file, renamed to it: "same" bytes, "longer", or one "flipped" bit in the middle of each KB."""
    content = bytearray((data / name).read_bytes())
    if change == "longer":
        content += bytes(512)
    if change == "flipped":
        for at in range(700, len(content), 1024):
            content[at] ^= 4
    (data / "new").write_bytes(content)
    (data / "new").rename(data / name)


def zero(data: Path, name: str) -> None:
    """In place."""
    size = (data / name).stat().st_size
    with open(data / name, "r+b") as file:
        file.write(bytes(size))


def wait_until_open(data: Path, name: str) -> None:
    """The thread that reads ahead opens shards, too."""
    wait_for(lambda: str((data / name).resolve()) in open_files(data), f"{name} is not opened")


def wait_until_closed(data: Path, name: str) -> None:
    """Where few shards are kept open, once nothing is read ahead any more."""
    target = str((data / name).resolve())
    wait_for(
        lambda: all(target not in open_files(data) for _ in range(50)), f"{name} is not closed"
    )


def wait_for(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.005)


def set_fault(settings: dict[str, str]) -> None:
    """All names are there from the start: a program whose threads look them up may change values, not add names."""
    for name in ("UNDER", "CALLS", "EACH", "KIND", "NUMBER"):
        os.environ[f"FAULT_{name}"] = settings.get(f"FAULT_{name}", "0")
    ctypes.CDLL(None).fault_begin()
    os.environ["FAULT_AT"] = settings.get("FAULT_AT", "-1")


def rows_of(batch: Batch) -> list[str]:
    return [
        hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest()[:16] for image in batch[0]
    ]


def batches_of(loader: fastpipe.Loader, epochs: int) -> Iterator[Batch]:
    for _ in range(epochs):
        yield from loader


def outcome_of(case: dict[str, Any], dataset: Path, work: Path) -> dict[str, Any]:
    data = files = work / case["name"]
    shutil.copytree(dataset, data)
    if case.get("shards") == "linked":
        files = work / f"{case['name']}-files"
        files.mkdir()
        for shard in data.glob("*.tar"):
            shard.rename(files / shard.name)
            shard.symlink_to(files / shard.name)
    fault = {
        name: value.format(data=data, shards=files) for name, value in case.get("fault", {}).items()
    }
    outcome: dict[str, Any] = {"rows": [], "error": None}
    epochs, lines, said = case.get("epochs", 1), io.StringIO(), Said()
    logging.getLogger("fastpipe").addHandler(said)
    keep = (
        {"return_value": case["open_shards"]}
        if "open_shards" in case
        else {"side_effect": most_open_shards}
    )
    with mock.patch("fastpipe.engine.engine.most_open_shards", **keep):
        loader = fastpipe.loader(data, **{**OPTIONS, **case.get("options", {})})
    with loader, fastpipe.monitor(loader, every=0.4, console=Console(file=lines, width=400)):
        try:
            batches = batches_of(loader, epochs)
            for number in range(epochs * len(loader)):
                if number == case.get("after", 0):
                    for act, *arguments in case.get("acts", []):
                        globals()[act](data, *arguments)
                    if fault:
                        set_fault(fault)
                batch = next(batches)
                outcome["rows"] += rows_of(batch)
                time.sleep(case.get("step_s", 0))
        except fastpipe.FastpipeError as problem:
            outcome["error"] = {
                "type": type(problem).__name__,
                "text": str(problem),
                **vars(problem),
            }
        finally:
            if fault:
                set_fault({})
        outcome["replaced"] = loader.stats().replaced
        try:
            outcome["again"] = [row for batch in loader for row in rows_of(batch)]
        except fastpipe.FastpipeError as problem:
            outcome["again"] = str(problem)
    logging.getLogger("fastpipe").removeHandler(said)
    return {**outcome, "said": said.lines, "monitor": lines.getvalue()}


def main() -> None:
    warnings.simplefilter("error")
    dataset, work = (Path(argument).resolve() for argument in sys.argv[1:])
    logging.getLogger("fastpipe").propagate = False
    for case in json.load(sys.stdin):
        sys.stdout.write(json.dumps(outcome_of(case, dataset, work)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
