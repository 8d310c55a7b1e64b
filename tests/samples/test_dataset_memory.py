"""Ten million samples cost a DataLoader's workers next to no memory of their own; a list of as many paths does."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ROOT
from conftest import frees_memory, run_script

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench.index_memory import FEW, in_fresh_process, make_dataset

SAMPLES = 10_000_000
PICKS = 20_000
WORKERS, EPOCHS = 8, 2

pytestmark = [frees_memory, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Path]]:
    """By their number of samples. The index of the larger one takes 360 MB of disk, for the time of the test."""
    folder = tmp_path_factory.mktemp("memory")
    for samples in (FEW, SAMPLES):
        make_dataset(folder / str(samples), samples)
    yield {samples: folder / str(samples) / "packed" for samples in (FEW, SAMPLES)}
    shutil.rmtree(folder)


def test_the_index_costs_the_workers_under_8_mb_in_all(datasets: dict[int, Path]) -> None:
    few = in_fresh_process(str(datasets[FEW]), FEW, PICKS, WORKERS, EPOCHS, "fork")
    many = in_fresh_process(str(datasets[SAMPLES]), SAMPLES, PICKS, WORKERS, EPOCHS, "fork")
    assert len(few) == len(many) == EPOCHS
    assert all(b - a < 8e6 for a, b in zip(few, many, strict=True)), (few, many)


def test_a_list_of_paths_costs_much_more() -> None:
    """A thirtieth of the samples: this shows that what the other test measures would be seen."""
    few = in_fresh_process("list", FEW, PICKS, WORKERS, EPOCHS, "fork")
    many = in_fresh_process("list", SAMPLES // 30, PICKS, WORKERS, EPOCHS, "fork")
    assert min(b - a for a, b in zip(few, many, strict=True)) > 40e6, (few, many)


def test_a_process_that_inherits_nothing_opens_it_with_under_1_mb(datasets: dict[int, Path]) -> None:
    """As workers that were spawned do: eight of them stay under 8 MB."""
    script = """
        import sys
        from pathlib import Path
        import numpy as np
        import fastpipe
        from bench.index_memory import private_bytes

        dataset = fastpipe.Dataset(sys.argv[1])
        for number in np.random.default_rng(0).integers(len(dataset), size=5000).tolist():
            dataset[number]
        print(private_bytes("self"))

        # No row was looked up in the map: then all processes that do would show 360 MB.
        mapping = Path("/proc/self/smaps").read_text().split("/index.npy", 1)[1]
        assert mapping.split("Rss:", 1)[1].split()[0] == "0", mapping[:400]
    """
    few, many = (
        run_script(f"import sys; sys.path.append({str(ROOT)!r})\n" + textwrap.dedent(script), datasets[n])
        for n in (FEW, SAMPLES)
    )
    assert (few.returncode, few.stderr, many.returncode, many.stderr) == (0, "", 0, "")
    assert int(many.stdout) - int(few.stdout) < 1e6
