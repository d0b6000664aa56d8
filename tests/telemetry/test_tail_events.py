"""Events as they are committed: no gap and nothing twice at the seam, bounded for the slow."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.conventions import Emitter
from telemetry.errors import QueryError, StoreError
from telemetry.records import Batch, EventRecord, PolicyRecord
from telemetry.source import MemorySource, StoreSource
from telemetry.store.store import Store
from telemetry.watch.client import WatchClient
from telemetry.watch.service import StoreFaces
from telemetry.watch.tail_events import MOST_FOLLOWERS, Tail, Wanted, stored, stream, wanted
from telemetry.watch.wire import Dropped
from tests.telemetry.delivered import ODD_NAMES, RUN, T0, batch, deliver, event, minute, until
from tests.telemetry.served import store_faces

ALL = Wanted()


def policy(version: int, at: float = T0) -> PolicyRecord:
    return PolicyRecord(version=version, at=at, policy="vtc", previous="fcfs", **RUN)


def always() -> bool:
    return True


def ids(rows: list[Any]) -> list[str]:
    return [getattr(r, "event_id", "") or f"policy {r.version}" for r in rows]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_what_is_stored_and_heard_comes_once_and_in_order(
    before: int, both: int, after: int
) -> None:
    """`both` rows are committed after the follower subscribed and before it reads the store."""
    tail = Tail()
    follower = tail.follow(ALL)
    assert follower is not None
    rows = [event(i, T0 + i) for i in range(before + both + after)]
    for one in rows[before:]:
        tail.hear([batch(one)], T0)
        tail.hear([batch(one)], T0)  # delivered again
    follower_ends_when_empty(follower)
    with_store = MemorySource()
    if rows[: before + both]:
        from telemetry.otlp import encode

        _, logs = encode(batch(*rows[: before + both]))
        assert logs is not None
        with_store.feed((), [logs])
    found = list(stream(follower, with_store, T0, always))
    assert ids(found) == [r.event_id for r in rows]
    with_store.close()


def follower_ends_when_empty(follower: Any) -> None:
    """As if the client went away after the last row that is queued."""
    take = follower.take

    def once_empty(timeout_s: float) -> Any:
        return take(timeout_s) if follower._rows or follower._dropped else None

    follower.take = once_empty


def test_a_slow_reader_loses_the_oldest_and_is_told_how_many() -> None:
    tail = Tail(most_queued=3)
    follower = tail.follow(ALL)
    assert follower is not None
    tail.hear([batch(*(event(i) for i in range(10)))], T0)
    follower_ends_when_empty(follower)
    found = list(stream(follower, MemorySource(), None, always))
    assert found[0] == Dropped(7)
    assert ids(found[1:]) == ["v7", "v8", "v9"]


def test_what_the_store_writes_of_itself_is_found_though_nobody_delivers_it(
    tmp_path: Path,
) -> None:
    now = [T0]
    with Store.open(tmp_path) as store:
        follower = Tail().follow(ALL)
        assert follower is not None
        found = stream(
            follower, StoreSource(store), None, always, wall=lambda: now[0], look_every_s=0.01
        )
        own = {"engine": "store", "run_id": "store", "pool": "store"}
        before, after = (
            EventRecord(event_id=f"ack-{at}", at=at, kind="acknowledge", **own)
            for at in (T0 - 100, T0 + 1)
        )
        follower.put(event(1))
        assert next(found) == event(1)  # it follows from T0 on
        for row in (before, after):
            one = Batch(**own, emitter=Emitter.STORE, sealed=True, seq=1, logs=(row,))
            deliver(store, one)
        deliver(store, batch(event(2, T0 + 1)))  # an engine's: its delivery is yet to be heard
        now[0] += 10.0
        assert next(found) == after
        follower.put(event(2, T0 + 1))
        assert next(found) == event(2, T0 + 1)


def test_kinds_and_tenants_choose() -> None:
    rows = [
        event(1, kind="preempt", tenant="a"),
        event(2, kind="preempt", tenant="b", cause_tenant="a"),
        event(3, kind="evict", tenant="b"),
        policy(4),
    ]
    kinds = wanted(["preempt"], [])
    tenants = wanted([], ["a"])
    assert [kinds.takes(r) for r in rows] == [True, True, False, False]
    assert [tenants.takes(r) for r in rows] == [True, True, False, True]
    assert [wanted(["policy"], ["a"]).takes(r) for r in rows] == [False, False, False, True]
    assert not ALL.takes(minute("a"))
    with pytest.raises(QueryError, match="100 and 1000 at most"):
        wanted([str(i) for i in range(101)], [])


def test_there_are_only_so_many_followers_and_each_makes_room() -> None:
    tail = Tail()
    followers = [tail.follow(ALL) for _ in range(MOST_FOLLOWERS)]
    assert tail.follow(ALL) is None
    assert followers[0] is not None
    tail.leave(followers[0])
    assert tail.follow(ALL) is not None


def test_stored_rows_of_both_tables_come_in_order_of_time(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        deliver(store, batch(event(1, T0 + 1), event(3, T0 + 3), policy(2, T0 + 2)))
        found = list(stored(StoreSource(store), ALL, float("-inf")))
        assert ids(found) == ["v1", "policy 2", "v3"]
        assert ids(list(stored(StoreSource(store), ALL, T0 + 2))) == ["policy 2", "v3"]


# --- over gRPC -----------------------------------------------------------------------------------


class Reader(threading.Thread):
    """Follows a tail on a thread of its own."""

    def __init__(self, client: WatchClient, **asked: Any) -> None:
        super().__init__(daemon=True)
        self.rows: queue.Queue[Any] = queue.Queue()
        self.following = threading.Event()
        self._stream = client.tail(following=self.following.set, **asked)
        self.start()

    def run(self) -> None:
        try:
            for row in self._stream:
                self.rows.put(row)
        except StoreError as e:
            self.rows.put(e)

    def next(self) -> Any:
        return self.rows.get(timeout=10.0)


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[tuple[Store, StoreFaces, WatchClient]]:
    with Store.open(tmp_path / "store") as store:
        faces = StoreFaces(StoreSource(store))
        with store_faces(faces, f"unix:{tmp_path}/s") as address:
            client = WatchClient(address)
            yield store, faces, client
            client.close()


def commit(store: Store, faces: StoreFaces, *rows: Any) -> None:
    deliver(store, batch(*rows))
    for _, listener in faces.listeners:
        listener.hear([batch(*rows)], T0)


def test_a_client_gets_the_stored_ones_and_then_each_as_it_is_committed(
    followed: tuple[Store, StoreFaces, WatchClient],
) -> None:
    store, faces, client = followed
    odd = event(1, T0 + 1.5, tenant="".join(ODD_NAMES)[:200], value=2.5, detail="[red]")
    commit(store, faces, odd, policy(1, T0 + 2))
    reader = Reader(client, since=T0)
    assert reader.next() == odd
    assert reader.next() == policy(1, T0 + 2)
    assert reader.following.wait(10.0)
    commit(store, faces, event(2, T0 + 3))
    assert reader.next() == event(2, T0 + 3)


def test_without_a_beginning_only_what_comes_is_told(
    followed: tuple[Store, StoreFaces, WatchClient],
) -> None:
    store, faces, client = followed
    commit(store, faces, event(1))
    reader = Reader(client, kinds=["mark"])
    assert reader.following.wait(10.0)
    commit(store, faces, event(2, kind="evict"), event(3))
    assert reader.next() == event(3)


def test_a_client_that_goes_away_gives_its_place_up(
    followed: tuple[Store, StoreFaces, WatchClient],
) -> None:
    _, faces, client = followed
    reader = Reader(client)
    assert reader.following.wait(10.0)
    assert len(faces.tail._followers) == 1
    client.close()
    until(lambda: not faces.tail._followers)
