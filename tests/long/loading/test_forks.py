"""A hundred forks after import and in mid-iteration: no child hangs, and each reads samples of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.programs.warm import run_script

FORKS = 100

# Each child has 20 s; one that hangs is named and killed. All do the same work, so a lock that was held at the
# moment of the fork has a hundred chances to show.
COMMON = """
    import gc, logging, os, signal, sys, time, traceback, warnings
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # a fork where there are threads

    FORKS = int(sys.argv[2])

    def fork(number, work):
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            work()
            code = 7
        except BaseException:
            traceback.print_exc()
        if number % 10 == 0:  # some end as programs do, the others at once: torch takes long to leave
            sys.exit(code)
        os._exit(code)

    def ends_well(number, child):
        deadline = time.monotonic() + 60
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                assert os.waitstatus_to_exitcode(status) == 7, (number, status)
                return
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                raise SystemExit(f"child {number} hangs")
            time.sleep(0.001)
"""

AFTER_IMPORT = (
    COMMON
    + """
    import fastpipe

    fastpipe.open  # imported with torch, once for all children

    gc.freeze()  # what all children share is not looked at as each ends: that would take most of their time

    def work():
        dataset = fastpipe.open(sys.argv[1])
        image, label = dataset[len(dataset) // 2]
        assert int(image.sum()) > 0

    for number in range(FORKS):
        ends_well(number, fork(number, work))
    print("done")
"""
)

MID_ITERATION = (
    COMMON
    + """
    import torch
    import fastpipe
    from fastpipe import EngineError

    gc.freeze()
    # On a busy machine planning takes long enough to be told.
    logging.getLogger("fastpipe").addFilter(lambda record: "waited for data" not in record.getMessage())
    torch.set_num_threads(1)  # in the parent too: OpenMP's threads do not outlive a fork, which is not ours to mend
    loader = fastpipe.loader(sys.argv[1], 2, size=192, num_workers=3, prefetch_factor=4)
    parents = fastpipe.open(sys.argv[1])
    expected = parents[1][0]
    batches = iter(loader)

    def work():
        for use in (lambda: next(batches), lambda: next(iter(loader))):
            try:
                use()
            except EngineError as problem:
                assert f"forked child {os.getpid()}" in str(problem), problem
            else:
                raise AssertionError("the parent's loader gave a batch in the child")
        assert torch.equal(fastpipe.open(sys.argv[1])[1][0], expected)
        assert torch.equal(parents[1][0], expected)
        with fastpipe.loader(sys.argv[1], 2, size=32, num_workers=2) as own:
            assert sum(len(labels) for _, labels in own) == 2 * len(own)

    for number in range(FORKS):
        if len(batches) == 0:
            batches = iter(loader)
        child = fork(number, work)
        next(batches)  # the threads are at work at each fork
        ends_well(number, child)
    print("done")
"""
)


@pytest.mark.parametrize("script", [AFTER_IMPORT, MID_ITERATION], ids=["after import", "mid-iteration"])
def test_a_hundred_forks(script: str, large: Path) -> None:
    done = run_script(script, large, FORKS, timeout_s=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
