"""How many requests are under way: as many as make the link faster, fewer where a server asks for it."""

from __future__ import annotations

from collections.abc import Callable

from fastpipe.store.remote.fetcher import MAX_REQUESTS, MIN_REQUESTS, Flow


def run(
    link: Callable[[int], float], seconds: int, *, busy: int = -1, starved: bool = False
) -> list[int]:
    """The most requests in each second, where `link` says how fast that many make it."""
    now = [0.0]
    flow, found = Flow(lambda: now[0]), []
    for second in range(seconds):
        for _ in range(10):
            now[0] += 0.1
            flow.add(int(link(flow.most) / 10), starved=starved, busy=second == busy)
        found.append(flow.most)
    return found


def test_more_requests_while_they_pay() -> None:
    assert max(run(lambda most: 10e6 * min(most, 40), 20)) >= 40
    assert run(lambda most: 10e6 * most, 20)[-1] == MAX_REQUESTS


def test_no_more_than_pay() -> None:
    assert run(lambda most: 100e6, 20)[-1] == MIN_REQUESTS


def test_a_busy_server_gets_fewer_and_later_more() -> None:
    found = run(lambda most: 10e6 * most, 40, busy=10)
    assert found[10] <= found[9] // 2
    assert found[-1] == MAX_REQUESTS


def test_nothing_is_learned_while_there_is_nothing_to_fetch() -> None:
    assert set(run(lambda most: 1e6, 10, starved=True)) == {MIN_REQUESTS}
