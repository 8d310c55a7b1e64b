"""Boxes and points, moved on the host: what is not chosen keeps every bit, and names, rows and labels stay together."""

from __future__ import annotations

import numpy as np
from support.batches.kornia_cases import k

from fastpipe import Augment
from fastpipe.plan.placed import Placed

SIZE = (40, 50)


def made(count: int) -> dict[str, Placed]:
    """Many boxes and points that lie close to the left and upper border, where rounding shows."""
    rng = np.random.default_rng(3)
    rows = np.sort(rng.integers(0, count, 200))
    low = rng.random((200, 2)) ** 8
    edges = np.concatenate([low, low + rng.random((200, 2)) * 30], axis=1).astype(np.float32)
    points = rng.random((200, 3, 3)).astype(np.float32) ** 8
    return {
        "all": Placed(edges, rows, np.arange(200)),
        "joints": Placed(points, rows, flip_pairs=((0, 1),)),
        "few": Placed(edges[:2], np.array([1, 1])),
    }


def test_rows_that_are_not_chosen_keep_every_bit() -> None:
    augment = Augment(k.AugmentationSequential(k.RandomAffine((20.0, 30.0), p=0.5), data_keys=None))
    places = made(16)
    plan = augment.plan(np.arange(16), SIZE, seed=0, epoch=0, batch=0)
    chosen = np.isin(places["all"].rows, plan.hosts[0][0].rows)
    assert 0 < chosen.sum() < 200
    after = augment.move_places(plan, places)
    same = (after["all"].values == places["all"].values).all(axis=1)
    assert (same == ~chosen).all()
    assert (after["all"].labels == np.arange(200)).all()
    assert ((after["joints"].values == places["joints"].values).all(axis=(1, 2)) == ~chosen).all()


def test_each_field_is_moved_alike_in_any_company() -> None:
    augment = Augment(k.AugmentationSequential(k.RandomPerspective(p=1.0), data_keys=None))
    places = made(5)
    plan = augment.plan(np.arange(5), SIZE, seed=0, epoch=0, batch=0)
    together = augment.move_places(plan, places)
    for name, alone in places.items():
        one = augment.move_places(plan, {name: alone})
        np.testing.assert_allclose(one[name].values, together[name].values, atol=1e-4)
    assert not np.allclose(together["joints"].values, places["joints"].values, atol=1e-2)


def test_a_batch_without_boxes_and_without_points() -> None:
    augment = Augment(k.AugmentationSequential(k.RandomPerspective(p=1.0), data_keys=None))
    plan = augment.plan(np.arange(2), SIZE, seed=0, epoch=0, batch=0)
    rows = np.zeros(0, dtype=np.int64)
    boxes = Placed(np.zeros((0, 4), dtype=np.float32), rows)
    points = Placed(np.zeros((0, 2, 3), dtype=np.float32), rows, flip_pairs=((0, 1),))
    after = augment.move_places(plan, {"boxes": boxes, "points": points})
    assert after["boxes"].values.shape == (0, 4)
    assert after["points"].values.shape == (0, 2, 3)
