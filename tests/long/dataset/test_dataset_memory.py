"""Ten million samples cost a DataLoader's workers next to no memory of their own, with their captions and boxes, too; a
list of as many paths does."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.checkout import ROOT
from support.datasets.field_columns import add_fields
from support.programs.warm import run, run_script
from support.running.memory import frees_memory

sys.path.append(str(ROOT))  # last, so that fastpipe is the one under test

from bench import index_memory
from bench.index_memory import FEW, make_dataset
from fastpipe.dataset.format.description import with_self_checksum
from fastpipe.dataset.format.fields import FIELDS_FOLDER, Field, describe_field, sidecars
from fastpipe.dataset.format.layout import DATASET_FILE

SAMPLES = 10_000_000
PICKS = 20_000
WORKERS, EPOCHS = 8, 2

pytestmark = [frees_memory, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Path]]:
    """By their number of samples. The index of the larger one takes 520 MB of disk, for the time of the test."""
    folder = tmp_path_factory.mktemp("memory")
    for samples in (FEW, SAMPLES):
        make_dataset(folder / str(samples), samples)
        add_captions_and_boxes(folder / str(samples) / "packed", samples)
    yield {samples: folder / str(samples) / "packed" for samples in (FEW, SAMPLES)}
    shutil.rmtree(folder)


def add_captions_and_boxes(dataset: Path, samples: int) -> None:
    """Eight bytes of text and a box of no size for each sample: the offsets are written, the values are holes."""
    fields = [Field("caption", "text"), Field("boxes", "boxes")]
    add_fields(dataset, [])
    for field, rows, row in zip(fields, (8 * samples, samples), ((), (4,)), strict=True):
        values, offsets = ((dataset / FIELDS_FOLDER / name) for name in sidecars(field))
        np.lib.format.open_memmap(
            values, mode="w+", dtype="<f4" if row else "u1", shape=(rows, *row)
        )
        np.save(offsets, np.arange(0, rows + 1, rows // samples))
        described = describe_field(
            Field(field.name, field.kind, files=dict.fromkeys(sidecars(field), "0" * 16))
        )
        info = json.loads((dataset / DATASET_FILE).read_text())
        info["fields"][field.name] = described
        (dataset / DATASET_FILE).write_bytes(with_self_checksum(info)[1])


def private_of(script: str, data: Path) -> int:
    """The private bytes that a program says it has in the end."""
    head = f"import sys; sys.path.append({str(ROOT)!r})\nfrom bench.index_memory import private_bytes\n"
    done = run_script(head + textwrap.dedent(script), data)
    assert (done.returncode, done.stderr) == (0, "")
    return int(done.stdout)


def more_for_many(script: str, datasets: dict[int, Path]) -> int:
    """The private bytes that the large dataset costs more than the small one: the least of three measurements, as the
    memory that a program allocates beside them differs by half a MB from run to run."""
    return min(
        private_of(script, datasets[SAMPLES]) - private_of(script, datasets[FEW]) for _ in range(3)
    )


def private_of_workers(data: object, samples: int) -> list[int]:
    """The private bytes of a DataLoader's workers, all together, after each epoch."""
    done = run(
        index_memory.__file__, "--row", data, samples, PICKS, WORKERS, EPOCHS, "fork", timeout_s=300
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_a_process_that_inherits_nothing_reads_all_of_it_with_under_1_mb(
    datasets: dict[int, Path],
) -> None:
    """As workers that were spawned do: eight of them stay under 8 MB."""
    script = """
        from pathlib import Path
        import numpy as np
        import fastpipe

        dataset = fastpipe.open(sys.argv[1]).with_fields(("image", "caption", "boxes", "label"))
        for numbers in np.random.default_rng(0).integers(len(dataset), size=(100, 50)).tolist():
            for sample in dataset.__getitems__(numbers):
                assert (sample["caption"], sample["boxes"].tolist()) == ("\\0" * 8, [[0, 0, 0, 0]])
        print(private_bytes("self"))

        # No row was looked up in the map: then all processes that do would show 520 MB.
        mapping = Path("/proc/self/smaps").read_text().split("/index.npy", 1)[1]
        assert mapping.split("Rss:", 1)[1].split()[0] == "0", mapping[:400]
    """
    assert more_for_many(script, datasets) < 1e6


def test_captions_and_boxes_cost_a_loader_nothing_of_the_size_of_the_dataset(
    datasets: dict[int, Path],
) -> None:
    script = """
        import fastpipe

        left = 60
        boxes = fastpipe.Boxes("boxes", min_size=0)
        options = {"size": 16, "num_workers": 2, "fields": ("image", "caption", boxes, "id")}
        with fastpipe.loader(sys.argv[1], 5, **options) as loader:
            while left:
                for batch in loader:
                    assert [len(boxes) for boxes in batch["boxes"]] == [1] * 5
                    left -= 1
                    if left == 0:
                        break
            print(private_bytes("self"))
    """
    assert more_for_many(script, datasets) < 8e6


def test_the_index_costs_the_workers_under_8_mb_in_all(datasets: dict[int, Path]) -> None:
    few, many = (private_of_workers(datasets[samples], samples) for samples in (FEW, SAMPLES))
    assert len(few) == len(many) == EPOCHS
    assert all(b - a < 8e6 for a, b in zip(few, many, strict=True)), (few, many)


def test_a_list_of_paths_costs_much_more() -> None:
    """A thirtieth of the samples: this shows that what the other test measures would be seen."""
    few, many = (private_of_workers("list", samples) for samples in (FEW, SAMPLES // 30))
    assert min(b - a for a, b in zip(few, many, strict=True)) > 40e6, (few, many)
