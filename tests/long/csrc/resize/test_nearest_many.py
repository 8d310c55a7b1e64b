"""The resizing of masks against torchvision's in many more cases than the gate has time for."""

from __future__ import annotations

from types import ModuleType

import pytest
from support.pictures.torchvision_masks import differing_in_random_cases


@pytest.mark.usefixtures("one_thread")
def test_no_pixel_differs_in_ten_thousand_cases(torchvision: ModuleType) -> None:
    import torchvision.transforms.v2 as v2  # it needs the fixture

    assert differing_in_random_cases(v2, 10_000) == 0
