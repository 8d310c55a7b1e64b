"""Writes a state of the newest STATE_VERSION, and the rest of its epoch, which stay in the repository for ever.

    PYTHONPATH=.:tests .venv/bin/python -m support.batches.write_state

makes tests/loading/states/N.json, once.
"""

from __future__ import annotations

import json

from support.checkout import TESTS
from support.datasets.write_version import VERSIONS

import fastpipe
from fastpipe.loading.state import STATE_VERSION

STATES = TESTS / "loading" / "states"


def open_loader() -> fastpipe.Loader:
    """A loader of the dataset of format version 1: three batches of two samples."""
    return fastpipe.loader(VERSIONS / "1" / "jpeg", batch_size=2, size=24, seed=5, num_workers=1)


def main() -> None:
    with open_loader() as loader:
        loader.set_epoch(3)
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        ids = [batch.ids.tolist() for batch in batches]
    STATES.mkdir(exist_ok=True)
    with open(STATES / f"{STATE_VERSION}.json", "x", encoding="utf-8") as file:
        json.dump({"state": state, "ids": ids}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
