"""A dataset whose single samples have another form: a loader would make batches without it, so it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fastpipe


@pytest.mark.parametrize(
    ("method", "changed"),
    [
        ("with_transform", lambda data: data.with_transform(lambda image: image * 0)),
        ("with_fields", lambda data: data.with_fields(["image", "key"])),
        ("cropped", lambda data: data.cropped(fastpipe.CenterCrop(), 64)),
        ("with_pixels", lambda data: data.with_pixels("gray")),
    ],
)
def test_a_form_of_single_samples_is_refused(
    flat: Path, method: str, changed: Callable[[fastpipe.Dataset], fastpipe.Dataset]
) -> None:
    data = changed(fastpipe.open(flat))
    with pytest.raises(fastpipe.ConfigError, match=rf"data: {method} changes single samples"):
        fastpipe.loader(data, 4)
