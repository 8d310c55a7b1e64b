"""All modules of kornia on a simulated GPU, with small and large images and masks: the host waits for none."""

from __future__ import annotations

import pytest
from support.batches.augment_batches import differing
from support.batches.kornia_cases import CASES, MIXING_CASES
from support.batches.kornia_waits import waits_of
from support.batches.moved_masks import MOVING, OURS, bare, ids, keyed, moved, plan_of, shown_after
from support.devices.simulated_gpu import simulated

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("size", [(96, 100), (320, 320)], ids=["with maps", "large"])
def test_the_host_never_waits_whatever_the_size(size: tuple[int, int]) -> None:
    assert waits_of([*CASES, *MIXING_CASES], size, count=3) == {}


@pytest.mark.parametrize("name", ["RandomRain", "ColorJitter"])
def test_the_host_never_waits_for_many_images(name: str) -> None:
    assert waits_of([name], (32, 40), count=600) == {}


@pytest.mark.parametrize("name", [*MOVING, *OURS])
def test_the_host_waits_for_nothing_that_moves_with_images(name: str) -> None:
    augment, masks = bare(name), ids(4)
    plan = plan_of(augment, 4)
    expected = shown_after(augment, masks > 60, plan)
    with simulated() as gpu:
        result = shown_after(augment, masks > 60, plan, gpu)
        assert differing(result.cpu().float(), expected.float(), by=0.5) < 0.01
    if name in OURS:
        return
    augment = keyed(name)
    plan = plan_of(augment, 4)
    expected = moved(augment, masks, plan)
    with simulated() as gpu:
        result = moved(augment, masks, plan, gpu)
        assert differing(result.cpu(), expected, by=0.5) < 0.01
