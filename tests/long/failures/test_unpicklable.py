"""Failure 10: a data set goes to a worker that is not forked by pickle, which takes no lambda and nothing local."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from support.programs.children import run

import fastpipe


def test_lambdas_and_a_missing_main_under_spawn() -> None:
    script = """
        from torch.utils.data import DataLoader

        class Doubled:
            def __init__(self):
                self.transform = lambda number: 2 * number

            def __len__(self):
                return 4

            def __getitem__(self, number):
                return self.transform(number)

        if __name__ == "__main__":
            try:
                list(DataLoader(Doubled(), num_workers=1, multiprocessing_context="spawn"))
            except Exception as problem:  # of which class depends on Python
                assert "local object 'Doubled.__init__.<locals>.<lambda>'" in str(problem), problem
            else:
                raise SystemExit("a lambda was pickled")
            print(len(list(DataLoader(Doubled(), num_workers=1, multiprocessing_context="fork"))))
    """
    assert run(script).figures() == 4


def test_a_script_without_main_under_spawn() -> None:
    script = """
        from torch.utils.data import DataLoader

        print(len(list(DataLoader(range(4), num_workers=1, multiprocessing_context="spawn"))))
    """
    ended = run(script)
    assert ended.code == 1
    assert (
        "before the\n        current process has finished its bootstrapping phase"
        in ended.complained
    )
    assert "DataLoader worker (pid(s) " in ended.complained


def test_fastpipe_under_spawn(flat: Path) -> None:
    """Any callable may follow the loader, in a script without `if __name__ == "__main__"`."""
    script = """
        import multiprocessing, sys
        import fastpipe

        multiprocessing.set_start_method("spawn")
        double = lambda labels: 2 * labels
        with fastpipe.loader(sys.argv[1], 8, size=16, train=False, num_workers=2) as loader:
            print(sum(int(double(labels).sum()) for _, labels in loader))
    """
    assert run(script, flat).figures() == 2 * sum(number % 3 for number in range(37))


def test_a_loader_itself_says_why_it_is_not_pickled(flat: Path) -> None:
    with (
        fastpipe.loader(flat, 8, size=16, num_workers=1) as loader,
        pytest.raises(
            fastpipe.EngineError,
            match=r"In another process, call fastpipe\.loader\(\.\.\.\) there",
        ),
    ):
        pickle.dumps(loader)
