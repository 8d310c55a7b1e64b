"""A hundred forks in mid-iteration: no child hangs, and each reads samples of its own."""

from __future__ import annotations

from pathlib import Path

from support.programs.warm import run_script

# All children do the same work, so a lock that was held at the moment of the fork has a hundred chances to show.
SCRIPT = """
    import gc, logging, os, sys, traceback, warnings
    import torch
    import fastpipe
    from fastpipe import EngineError

    warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # a fork where there are threads
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

    for number in range(100):
        if len(batches) == 0:
            batches = iter(loader)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work()
                code = 7
            except BaseException:
                traceback.print_exc()
            if number % 10 == 0:  # some end as programs do, the others at once: torch takes long to leave
                sys.exit(code)
            os._exit(code)
        next(batches)  # the threads are at work at each fork
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, number
    print("done")
"""


def test_a_hundred_forks(large: Path) -> None:
    done = run_script(SCRIPT, large, timeout_s=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
