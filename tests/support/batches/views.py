"""A view -> the options of a loader that has it alone."""

from __future__ import annotations

from typing import Any

import fastpipe


def options_of(view: fastpipe.View) -> dict[str, Any]:
    options = {name: getattr(view, name) for name in ("size", "crop", "hflip", "augment")}
    return {name: value for name, value in options.items() if value is not None}
