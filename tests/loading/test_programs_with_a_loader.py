"""Programs that end, fork or are interrupted with a loader in mid-epoch: at once, with their exit code, in few words.

tests/long/loading has many more shapes, moments and forks: test_loader_exit.py, test_signals_at_any_moment.py,
test_forks.py.
"""

from __future__ import annotations

import os
import signal
import tempfile
import textwrap
from pathlib import Path

from support.programs import warm

HANG_S = 300

# Alive at the end: global names, a cycle that nothing collects, a generator that stands in a `with`, a monitor, an
# object with __del__; and a handler begins one more epoch after all of that.
IN_MANY_SHAPES = """
    import atexit, gc, os, sys
    import fastpipe
    from rich.console import Console

    def make():
        return fastpipe.loader(sys.argv[1], 2, size=128, num_workers=2, prefetch_factor=8)

    def batches_of_a_with():
        with make() as loader:
            yield from loader

    class Trainer:
        def __init__(self):
            self.loader = make()
            self.batches = iter(self.loader)
            next(self.batches)

        def __del__(self):
            self.loader.close()

    def last():
        loader = make()
        assert len(list(loader)) == len(loader)
        print("iterated at the end")

    gc.disable()
    loader = make()
    iterators = [iter(loader) for _ in range(5)]
    for batches in iterators:
        next(batches)
    ring = make()
    ring._itself = ring, iter(ring)
    next(ring._itself[1])
    del ring
    generator = batches_of_a_with()
    next(generator)
    trainer = Trainer()
    fastpipe.monitor(loader, every=0.01, console=Console(file=open(os.devnull, "w"))).__enter__()
    atexit.register(last)
    for batch in make():
        sys.exit(5)
"""


def test_a_program_ends_with_loaders_in_mid_epoch(large: Path) -> None:
    done = warm.run(
        "-c", textwrap.dedent(IN_MANY_SHAPES), large, timeout_s=HANG_S
    )  # -W error: the null device is open
    assert (done.returncode, done.stdout, done.stderr) == (5, "iterated at the end\n", "")


def test_a_program_ends_by_an_error_in_its_loop(large: Path) -> None:
    code = """
        import sys, fastpipe
        with fastpipe.loader(sys.argv[1], 2, size=128, num_workers=2, prefetch_factor=8) as loader:
            for batch in loader:
                raise KeyError("mine")
    """
    done = warm.run_script(code, large, timeout_s=HANG_S)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.endswith("KeyError: 'mine'\n")


def test_a_daemon_thread_may_iterate_while_the_program_ends(large: Path) -> None:
    code = """
        import sys, threading
        import fastpipe

        begun = threading.Event()

        def train():
            while True:
                for batch in fastpipe.loader(sys.argv[1], 2, size=128, num_workers=2):
                    begun.set()

        threading.Thread(target=train, daemon=True).start()
        begun.wait()
    """
    done = warm.run_script(code, large, timeout_s=HANG_S)
    if done.returncode == -signal.SIGABRT:
        # Before Python 3.14 a thread that wants the GIL back in torch's C++ code at that moment ends the program so
        # (cpython#87135), with a loader or without.
        assert done.stderr.endswith("terminate called without an active exception\n")
        return
    assert done.returncode == 0
    # The loader may have been closed under the thread, which may not have come to the end of saying so.
    assert done.stderr == "" or done.stderr.startswith("Exception in thread")


FORKS = """
    import logging, os, sys, traceback, warnings
    import torch
    import fastpipe

    warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # a fork where there are threads
    logging.getLogger("fastpipe").setLevel(logging.ERROR)  # a busy machine's loop is told that it waits
    torch.set_num_threads(1)  # OpenMP's threads do not outlive a fork, which is not ours to mend
    loader = fastpipe.loader(sys.argv[1], 2, size=128, num_workers=3, prefetch_factor=4)
    parents = fastpipe.open(sys.argv[1])
    expected = parents[1][0]
    batches = iter(loader)
    next(batches)  # the threads are at work from now on

    def work():
        for use in (lambda: next(batches), lambda: next(iter(loader))):
            try:
                use()
            except fastpipe.EngineError as problem:
                assert f"forked child {os.getpid()}" in str(problem), problem
            else:
                raise AssertionError("the parent's loader gave a batch in the child")
        assert torch.equal(fastpipe.open(sys.argv[1])[1][0], expected)
        assert torch.equal(parents[1][0], expected)
        with fastpipe.loader(sys.argv[1], 2, size=32, num_workers=2) as own:
            assert len(list(own)) == len(own)

    for ends_as_programs_do in (False, True):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work()
                code = 7
            except BaseException:
                traceback.print_exc()
            if ends_as_programs_do:
                sys.exit(code)
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(list(batches)) == len(loader) - 1, "the parent goes on"
    print("done")
"""


def test_a_fork_in_mid_epoch(large: Path) -> None:
    done = warm.run_script(FORKS, large, timeout_s=HANG_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_ctrl_c_ends_a_loop_with_one_traceback(large: Path) -> None:
    code = """
        import sys, fastpipe
        with fastpipe.loader(sys.argv[1], 2, size=96, num_workers=3, augment=fastpipe.Augment.simclr()) as loader:
            next(iter(loader))
            print("begun", flush=True)
            while True:
                for batch in loader:
                    pass
    """
    heard, said = os.pipe()
    with tempfile.TemporaryFile("w+") as errors, open(heard) as words:
        program = warm.start("-c", textwrap.dedent(code), large, stdout=said, stderr=errors)
        os.close(said)
        assert words.readline() == "begun\n"
        program.send_signal(signal.SIGINT)
        program.wait(HANG_S)
        errors.seek(0)
        traceback = errors.read()
    assert program.returncode in (-signal.SIGINT, 130)
    assert traceback.count("Traceback") == 1
    assert traceback.rstrip().endswith("KeyboardInterrupt")
