"""Failure 5: reading a Python object writes its reference count, so a forked worker copies page after page."""

from __future__ import annotations

from pathlib import Path

from support.programs.children import run


def test_a_list_is_copied_into_each_worker() -> None:
    script = """
        import json, os, re
        import numpy as np
        from torch.utils.data import DataLoader, Dataset

        COUNT = 200_000

        class Names(Dataset):
            def __init__(self, names):
                self.names = names

            def __len__(self):
                return COUNT // 4000

            def __getitem__(self, part):
                for name in self.names[4000 * part : 4000 * (part + 1)]:
                    len(str(name))
                smaps = open("/proc/self/smaps_rollup").read()
                return int(re.search(r"Private_Dirty: +([0-9]+) kB", smaps)[1])

        def grown_mb(names):
            loader = DataLoader(Names(names), batch_size=None, num_workers=2, multiprocessing_context="fork")
            private = [int(kilobytes) for kilobytes in loader]
            return [(private[at - 2] - private[at]) / 1e3 for at in (0, 1)]  # the two workers take turns

        names = [f"photos/class-{number % 1000:04d}/{number:09d}.jpg" for number in range(COUNT)]
        print(json.dumps([grown_mb(names), grown_mb(np.array(names, dtype="S64"))]))
    """
    as_list, as_array = run(script).figures()
    assert min(as_list) > 5, (
        "each worker has read, and so copied, half of 200,000 names of 80 bytes"
    )
    assert max(as_array) < 2


def test_the_dataset_is_a_mapped_index(flat: Path) -> None:
    """What a worker copies does not grow with the reading: neither index nor labels are Python objects."""
    script = """
        import json, re, sys
        from torch.utils.data import DataLoader
        import fastpipe

        def private_kb(samples):
            smaps = open("/proc/self/smaps_rollup").read()
            return int(re.search(r"Private_Dirty: +([0-9]+) kB", smaps)[1])

        dataset = fastpipe.open(sys.argv[1])
        numbers = [number % len(dataset) for number in range(5_000)]
        options = {"num_workers": 1, "multiprocessing_context": "fork", "collate_fn": private_kb}
        private = list(DataLoader(dataset, 100, sampler=numbers, **options))
        print(json.dumps([len(private), private[-1] - private[5]]))
    """
    batches, grown_kb = run(script, flat).figures()
    assert batches == 50
    assert grown_kb < 2000
