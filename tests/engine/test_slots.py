"""Tests of the ring of batch buffers: memory is lent again only when nothing looks at it any more."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastpipe.engine.slots import SlotRing

SHAPE = (2, 3, 4, 3)


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=8))
def test_each_begins_at_a_multiple_of_64_bytes(sizes: list[int]) -> None:
    """JAX takes only such memory without a copy."""
    ring = SlotRing((0,), keep=2)
    slots = [ring.take((size, 3)) for size in sizes]
    assert [slot.shape for slot in slots] == [(size, 3) for size in sizes]
    assert not any(slot.ctypes.data % 64 for slot in slots)
    for number, slot in enumerate(slots):
        slot[...] = number
    assert all((slot == number).all() for number, slot in enumerate(slots))


def test_no_more_than_keep_idle_buffers_are_held() -> None:
    ring = SlotRing((1 << 20,), keep=2)
    slots = [ring.take() for _ in range(6)]
    addresses = {slot.ctypes.data for slot in slots}
    del slots
    again = [ring.take() for _ in range(2)]
    assert {slot.ctypes.data for slot in again} <= addresses
    assert len(ring._idle) == 0


def test_memory_beyond_twice_that_goes_with_its_batch() -> None:
    ring = SlotRing((1 << 20,), keep=2)
    slots = [ring.take() for _ in range(6)]
    beneath = [weakref.ref(slot.base) for slot in slots]
    del slots
    assert [reference() is None for reference in beneath] == [False] * 4 + [True] * 2


def test_nothing_that_python_runs_is_called_when_a_slot_dies() -> None:
    """An exception of Ctrl-C would be lost there; see Note [callbacks]."""
    ring = SlotRing(SHAPE, keep=2)
    slot = ring.take()
    called: list[str] = []
    sys.setprofile(
        lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None
    )
    del slot
    sys.setprofile(None)
    assert called == []


def test_views_of_a_tensor_keep_the_slot() -> None:
    ring = SlotRing(SHAPE, keep=4)
    slot = ring.take()
    slot[...] = 7
    kept = torch.from_numpy(slot)[:1].permute(0, 3, 1, 2)[0, 0]
    del slot
    gc.collect()
    for _ in range(5):
        ring.take()[...] = 9
    assert (kept == 7).all()
    address = kept.data_ptr()
    del kept
    assert ring.take().ctypes.data == address


def test_the_ring_may_be_gone_before_its_slots() -> None:
    ring = SlotRing(SHAPE, keep=2)
    slot = ring.take()
    memory = weakref.ref(slot.base)
    del ring
    slot[...] = 3
    tensor = torch.from_numpy(slot)
    del slot
    gc.collect()
    assert memory() is not None
    assert (tensor == 3).all()
    del tensor
    gc.collect()
    assert memory() is None, "nobody is left who could lend it again"


@given(st.lists(st.one_of(st.none(), st.integers(0, 100)), max_size=60), st.integers(0, 4))
def test_any_order_of_taking_and_letting_go(steps: list[int | None], keep: int) -> None:
    """None takes a slot and marks it; a number lets go of one of those that are held."""
    ring = SlotRing(SHAPE, keep=keep)
    held: list[tuple[int, torch.Tensor]] = []
    for mark, step in enumerate(steps):
        if step is None:
            slot = ring.take()
            slot[...] = mark
            held.append((mark, torch.from_numpy(slot)))
            del slot
        elif held:
            held.pop(step % len(held))
        assert all((tensor == mark).all() for mark, tensor in held)
        assert len(ring._idle) <= keep


def test_slots_die_in_any_thread() -> None:
    ring = SlotRing(SHAPE, keep=3)
    wrong: list[int] = []

    def work(mark: int) -> None:
        for _ in range(400):
            slot = ring.take()
            slot[...] = mark
            tensor = torch.from_numpy(slot)
            del slot
            if not bool((tensor == mark).all()):
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    kept = ring.take()
    assert len(ring._lent) == 1, "all others have come back"
    del kept


def test_slots_of_sixteen_bits_are_lent_again_as_any() -> None:
    ring = SlotRing(SHAPE, 1, dtype=np.uint16)
    slot = ring.take()
    assert (slot.shape, slot.dtype, slot.nbytes) == (SHAPE, np.uint16, 2 * 72)
    slot[:] = 65535
    address, kept = slot.ctypes.data, torch.from_numpy(slot)
    del slot
    other = ring.take()
    assert other.ctypes.data != address
    assert (kept == 65535).all()
    del kept, other
    assert ring.take((4, 3, 4, 3)).nbytes == 4 * 72
