"""A version of a dataset that is not the newest one: how it shows itself."""

from __future__ import annotations

from pathlib import Path

from support.datasets.growing import photos

import fastpipe


def test_an_older_version_says_so(tmp_path: Path) -> None:
    source = photos(tmp_path / "source", 6)
    packed = tmp_path / "data"
    fastpipe.pack(source, packed)
    name = repr(str(packed))
    only_one = fastpipe.open(packed, version=1)
    assert repr(only_one) == f"<fastpipe dataset {name}: 6 samples, 3 classes>"
    photos(source, 3, first=100)
    fastpipe.add(source, packed)
    old = fastpipe.open(packed, version=1)
    assert repr(old) == f"<fastpipe dataset {name}, version 1 of 2: 6 samples, 3 classes>"
    assert "version 1 of 2: 4 samples of 6" in repr(old.select(range(4)))
    for newest in (fastpipe.open(packed), fastpipe.open(packed, version=2)):
        assert repr(newest) == f"<fastpipe dataset {name}: 9 samples, 3 classes>"
    assert ", version" not in repr(old + old)
