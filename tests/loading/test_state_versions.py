"""A state that a release has saved continues the same epoch in later ones, or is refused.

`support/batches/write_state.py` has written `states/N.json`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.batches.write_state import STATES, open_loader

from fastpipe.errors import ConfigError
from fastpipe.loading.state import STATE_VERSION


def test_the_newest_version_has_a_state() -> None:
    assert (STATES / f"{STATE_VERSION}.json").exists()


@pytest.mark.parametrize("file", sorted(STATES.iterdir()), ids=lambda file: file.stem)
def test_a_saved_state_continues_or_is_refused(file: Path) -> None:
    saved = json.loads(file.read_text(encoding="utf-8"))
    with open_loader() as loader:
        if saved["state"]["version"] != STATE_VERSION:
            with pytest.raises(ConfigError, match="finish the epoch with the release"):
                loader.load_state_dict(saved["state"])
            return
        loader.load_state_dict(saved["state"])
        assert [batch.ids.tolist() for batch in loader] == saved["ids"], (
            "samples come in another order after a saved state: raise STATE_VERSION"
        )
        assert loader.state_dict().keys() == saved["state"].keys()
