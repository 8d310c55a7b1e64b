"""A program for test_wds_start_methods: reads a tar in worker processes, from a parent that is as busy as can be.

python wds_in_workers.py TAR PACKED START_METHOD single|batched -> JSON: of each epoch, the hash of each sample's crop
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sys
import warnings
from typing import Any

import torch
import webdataset
from torch.utils.data import DataLoader

import fastpipe

SIZE = 32
# None: the pipeline is not told.
EPOCHS = (None, None, 0, 1, 0)


def pipeline(tar: str, form: str, function: Any) -> Any:
    stages = webdataset.WebDataset([tar, tar.replace("000", "001")], shardshuffle=False, empty_check=False)
    stages = stages.map(function) if form == "single" else stages.listed(4).map(function)
    return stages.to_tuple("__key__", "jpg") if form == "single" else stages


def hashes(loader: Any, form: str) -> dict[str, str]:
    found = {}
    for batch in loader:
        keys, images = batch if form == "single" else (batch["__key__"], batch["jpg"])
        for key, image in zip(keys, images, strict=True):
            found[key] = hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest()
    return found


def main() -> None:
    tar, packed, start_method, form = sys.argv[1:]
    warnings.filterwarnings("error")
    warnings.filterwarnings("ignore", "unclosed file", ResourceWarning)  # of webdataset
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # a fork where there are threads
    # Each worker of a forkserver would import them: all would do the same for seconds.
    multiprocessing.set_forkserver_preload(["torch", "webdataset", "fastpipe.wds"])
    busy = iter(fastpipe.loader(packed, 2, size=64, num_workers=2, prefetch_factor=4))
    next(busy)
    torch.set_num_threads(4)
    torch.ones(2_000_000).sin_()
    make = fastpipe.wds.crop if form == "single" else fastpipe.wds.batch_crop
    found = []
    # Workers that are spawned import torch for seconds: those of one epoch are as those of another, so they stay.
    for persistent in (True,) if start_method == "spawn" else (False, True):
        function = make(SIZE, seed=1) if form == "single" else make(SIZE, seed=1, num_workers=2)
        samples = pipeline(tar, form, function)
        next(iter(samples))  # used here, before the workers begin
        loader = DataLoader(
            samples,
            4 if form == "single" else None,
            num_workers=2,
            persistent_workers=persistent,
            multiprocessing_context=start_method,
            timeout=300,
        )
        for epoch in EPOCHS:
            if epoch is not None:
                function.set_epoch(epoch)
            found.append(hashes(loader, form))
        del loader
    function = make(SIZE, seed=1)
    function.set_epoch(0)
    found.append(hashes(DataLoader(pipeline(tar, form, function), 4 if form == "single" else None), form))
    sys.stdout.write(json.dumps(found))
    if sum(1 for _ in busy) == 0:
        raise SystemExit("the parent's loader does not go on")


if __name__ == "__main__":
    main()
