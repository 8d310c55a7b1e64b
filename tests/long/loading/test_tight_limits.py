"""A loader where the system gives little: open files, memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.pictures.drawn import smooth_noise
from support.programs.warm import run_script
from support.running.memory import frees_memory
from support.running.soak import Tried, times

from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions


def test_a_thousand_shards_and_64_open_files(many_shards: Path, tried: Tried) -> None:
    script = """
        import hashlib, json, os, random, resource, sys
        import torch
        import fastpipe

        data = fastpipe.concat(*[fastpipe.open(sys.argv[1])] * 84)  # of a dozen shards

        def run(limit):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            digest, most = hashlib.sha256(), 0
            with fastpipe.loader(data, 48, size=16, num_workers=8, prefetch_factor=4) as loader:
                for epoch in range(int(sys.argv[2])):
                    for images, labels in loader:
                        digest.update(images.contiguous().numpy().tobytes())
                        most = max(most, len(os.listdir("/proc/self/fd")))
            numbers = random.Random(5).sample(range(len(data)), 300)
            for image, _ in data.__getitems__(numbers):
                digest.update(image.contiguous().numpy().tobytes())
            return digest.hexdigest(), most, loader.stats().samples, loader.stats().replaced

        own = [open(os.devnull) for _ in range(8)]  # the program has some, too
        few = run(64)
        many = run(1024)
        assert few[0] == many[0], "other pictures"
        assert few[1] <= 64 < many[1], (few, many)
        print(json.dumps(few[2:]))
        for file in own:
            file.close()
    """
    epochs = times(1, 10)
    done = run_script(script, many_shards, epochs, timeout_s=60 * epochs)
    assert done.returncode == 0, done.stderr  # which may hold advice, where the machine is busy
    assert json.loads(done.stdout) == [84 * 24 * epochs, 0]
    tried("RLIMIT_NOFILE=64, 1,000 shards, 8 threads", epochs, "an epoch as ever, byte for byte")


# Each limit is tried in a forked child, before torch or the loader have begun a thread.
MEMORY = """
    import hashlib, json, os, resource, signal, sys, time
    import torch
    import fastpipe

    fastpipe.loader  # imported while there is memory: an extension that cannot be mapped is an ImportError
    dataset, limits_mb, limit_name, options = sys.argv[1], *map(json.loads, sys.argv[2:])
    LIMIT, COLUMN = {"AS": (resource.RLIMIT_AS, 0), "DATA": (resource.RLIMIT_DATA, 5)}[limit_name]

    def limit(extra):
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[COLUMN]) * resource.getpagesize()
        if extra is not None:
            resource.setrlimit(LIMIT, (used + extra,) * 2)

    def epochs(when, extra):
        digest = hashlib.sha256()
        if when == "before":
            limit(extra)
        with fastpipe.loader(dataset, num_workers=4, prefetch_factor=4, **options) as loader:
            if when == "after":
                limit(extra)
            for epoch in range(2):
                for images, labels in loader:
                    digest.update(images.permute(0, 2, 3, 1).numpy())
        assert loader.stats().replaced == 0, "not enough memory is no fault of a sample"
        return digest.hexdigest()

    def outcome(*chosen):
        said, says = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                text = "whole " + epochs(*chosen)
            except (fastpipe.FastpipeError, MemoryError) as problem:
                text = f"{type(problem).__name__}: {problem}"
            os.write(says, text.encode())
            os._exit(0)
        os.close(says)
        deadline = time.monotonic() + 60
        ended = 0
        while not ended:
            ended, status = os.waitpid(child, os.WNOHANG)
            if not ended and time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.005)
        with os.fdopen(said) as file:
            return chosen[0], chosen[1], os.waitstatus_to_exitcode(status), file.read()

    wanted = [(when, int(mb * 2**20)) for when in ("before", "after") for mb in limits_mb]
    print(json.dumps([outcome("before", None)] + [outcome(*each) for each in wanted]))
"""


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures that take some MB to decode."""
    source = tmp_path_factory.mktemp("heavy") / "source"
    (source / "only").mkdir(parents=True)
    for number in range(4):
        picture = smooth_noise(1600, 1200, seed=number, cell=40)
        picture.save(source / "only" / f"{number}.jpg", quality=95)
    pack(source, source.with_name("packed"), PackOptions(workers=1))
    return source.with_name("packed")


LARGE_BATCHES = {"batch_size": 4, "size": 256}
SMALL_BATCHES = {"batch_size": 2, "size": 16}


@frees_memory
@pytest.mark.parametrize(
    ("limited", "data", "options", "on_error", "most_mb"),
    [
        (
            "AS",
            "many_shards",
            LARGE_BATCHES,
            "raise",
            800,
        ),  # a thread may reserve 128 MB for its heap, and fill little
        ("DATA", "heavy", SMALL_BATCHES, "raise", 100),
        ("DATA", "heavy", SMALL_BATCHES, "replace", 100),
    ],
)
def test_memory_ends(
    request: pytest.FixtureRequest,
    tried: Tried,
    limited: str,
    data: str,
    options: dict[str, int],
    on_error: str,
    most_mb: int,
) -> None:
    """Of its addresses, or its data, a program has more or less left. A cgroup's limit ends a process: no test of ours.

    The one ends in the program's own thread, which makes batches, the other in the loader's, which decode.
    """
    arguments = json.dumps(limited), json.dumps({**options, "on_error": on_error})
    limits_mb = [
        0,
        0.02,
        0.1,
        36,
        38,
        *np.geomspace(0.5, most_mb, times(5, 100)).tolist(),
    ]  # 38: the stacks just fit
    done = run_script(
        MEMORY, request.getfixturevalue(data), json.dumps(limits_mb), *arguments, timeout_s=600
    )
    assert done.returncode == 0, done.stderr
    (_, _, _, whole), *outcomes = json.loads(done.stdout)
    assert whole.startswith("whole ")
    for when, extra, code, text in outcomes:
        place = f"{extra / 2**20:.2f} MB, {when} the loader was made: {text}"
        assert code == 0, place
        assert text == whole or "emory" in text or "cannot start 4 threads" in text, place
    for when in ("before", "after"):
        texts = [text for at, _, _, text in outcomes if at == when]
        assert texts[0] != whole
        assert texts[-1] == whole
    tried(
        f"the memory limit reached (RLIMIT_{limited})",
        len(outcomes),
        "an error that says so, or all batches as ever",
    )
