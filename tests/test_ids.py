"""Ids ascend, tokens fence, and Postgres orders both as Python does."""

import copy
import os
import pickle
import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from uuid import RFC_4122, UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronos_runtime.ids import JobIds, Worker, fire_id, new_job_id, new_job_ids
from chronos_runtime.store.migrations import Connection

# How long an example takes says more about the machine's load than about the code.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

NOW_MS = 1_800_000_000_000
FIRST, LAST = UUID(int=0), UUID(int=2**128 - 1)


def stop_clock(monkeypatch: pytest.MonkeyPatch, ms: int = NOW_MS) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: ms * 1_000_000)


def milliseconds(id: UUID) -> int:
    return id.int >> 80


def is_ascending(ids: list[UUID]) -> bool:
    return all(first < second for first, second in pairwise(ids))


def test_a_job_id_is_a_uuid_of_version_7_that_tells_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop_clock(monkeypatch)
    for id in [new_job_id(), *JobIds().mint(100)]:
        assert (id.version, id.variant) == (7, RFC_4122)
    assert {milliseconds(id) for id in JobIds().mint(100)} == {NOW_MS}


def test_ids_of_one_millisecond_ascend_within_a_call_and_from_call_to_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop_clock(monkeypatch)
    ids = JobIds()
    minted = [id for _ in range(200) for id in ids.mint(3)]
    assert len(minted) == 600
    assert is_ascending(minted)


def test_the_highest_random_start_leaves_room_within_its_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop_clock(monkeypatch)
    monkeypatch.setattr(os, "urandom", lambda count: b"\xff" * count)
    minted = JobIds().mint(5_000)
    assert is_ascending(minted)
    assert {(milliseconds(id), id.version, id.variant) for id in minted} == {(NOW_MS, 7, RFC_4122)}


def test_a_millisecond_whose_numbers_are_used_up_is_followed_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop_clock(monkeypatch)
    ids = JobIds()
    (first,) = ids.mint(1)
    ids._low |= 2**62 - 3
    minted = ids.mint(5)
    assert is_ascending([first, *minted])
    assert {(milliseconds(id), id.version) for id in minted} == {(NOW_MS + 1, 7)}
    assert {id.variant for id in minted} == {RFC_4122}


def test_a_job_id_is_a_uuid_like_any_other() -> None:
    id = new_job_id()
    same = UUID(str(id))
    assert isinstance(id, UUID)
    assert id == same
    assert same == id
    assert len({id, same}) == 1
    assert repr(id) == repr(same)
    assert pickle.loads(pickle.dumps(id)) == copy.deepcopy(id) == same
    assert msgspec.json.encode(id) == msgspec.json.encode(same)
    assert sorted([LAST, id, FIRST]) == [FIRST, same, LAST]


@UNHURRIED
@given(
    st.lists(st.tuples(st.integers(NOW_MS - 5_000, NOW_MS + 5_000), st.integers(1, 5)), max_size=20)
)
def test_ids_ascend_whatever_the_clock_does(steps: list[tuple[int, int]]) -> None:
    ids = JobIds()
    minted: list[UUID] = []
    for ms, count in steps:
        with pytest.MonkeyPatch.context() as monkeypatch:
            stop_clock(monkeypatch, ms)
            minted += ids.mint(count)
    assert is_ascending(minted)
    assert all((id.version, id.variant) == (7, RFC_4122) for id in minted)


def test_a_clock_that_goes_back_does_not_hold_ids_up_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = JobIds()
    stop_clock(monkeypatch, NOW_MS + 60_000)
    ahead = ids.mint(1)
    stop_clock(monkeypatch, NOW_MS)
    assert {milliseconds(id) for id in ids.mint(1_000)} == {NOW_MS + 60_000}
    stop_clock(monkeypatch, NOW_MS + 60_001)
    (caught_up,) = ids.mint(1)
    assert milliseconds(caught_up) == NOW_MS + 60_001
    assert ahead[0] < caught_up


def test_forked_processes_mint_different_ids_also_while_the_clock_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop_clock(monkeypatch)
    parent = JobIds()
    parent.mint(10)
    child = JobIds()
    child._ms, child._high, child._low = parent._ms, parent._high, parent._low  # As by a fork.
    stop_clock(monkeypatch, NOW_MS - 1_000)
    assert not set(parent.mint(100)) & set(child.mint(100))


def test_threads_that_share_a_mint_never_get_the_same_id() -> None:
    by_thread: list[list[UUID]] = [[] for _ in range(8)]
    start = threading.Barrier(len(by_thread))

    def mint(minted: list[UUID]) -> None:
        start.wait()
        for _ in range(100):
            minted += new_job_ids(3)

    threads = [threading.Thread(target=mint, args=(minted,)) for minted in by_thread]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(is_ascending(minted) for minted in by_thread)
    assert len({id for minted in by_thread for id in minted}) == 8 * 100 * 3


def test_no_ids_are_an_empty_list() -> None:
    assert new_job_ids(0) == []


def test_the_id_of_a_fire_is_of_its_schedule_and_its_instant_alone() -> None:
    occurrence = datetime(2026, 3, 29, 1, tzinfo=UTC)
    id = fire_id(UUID(int=1), occurrence)
    assert (id.version, id.variant) == (5, RFC_4122)
    assert id == fire_id(UUID(int=1), occurrence.astimezone(timezone(timedelta(hours=2))))
    others = {
        fire_id(UUID(int=schedule), occurrence + timedelta(microseconds=late))
        for schedule in range(1, 11)
        for late in range(100)
    }
    assert len(others) == 1_000
    assert id in others


def test_a_workers_tokens_ascend_between_its_id_and_its_last_token() -> None:
    worker = Worker()
    tokens = [worker.next_token() for _ in range(1_000)]
    assert is_ascending([worker.id, *tokens, worker.last_token])
    assert all(str(token).startswith(worker.name) for token in tokens)


def test_every_worker_is_somebody_else() -> None:
    workers = [Worker() for _ in range(1_000)]
    assert len({worker.id for worker in workers}) == len(workers)
    assert len({worker.name for worker in workers}) == len(workers)
    assert len({worker.next_token() for worker in workers}) == len(workers)


def test_threads_that_share_a_worker_never_get_the_same_token() -> None:
    worker, tokens = Worker(), list[UUID]()
    start = threading.Barrier(8)

    def issue() -> None:
        start.wait()
        tokens.extend([worker.next_token() for _ in range(500)])

    threads = [threading.Thread(target=issue) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(tokens)) == 8 * 500


@UNHURRIED
@given(st.binary(min_size=8, max_size=8), st.binary(min_size=8, max_size=8))
def test_no_token_of_a_worker_lies_in_the_range_of_another(ours: bytes, others: bytes) -> None:
    worker, other = Worker(ours), Worker(others)
    is_in_range = worker.id < other.next_token() <= worker.last_token
    assert is_in_range == (ours == others)


async def test_postgres_finds_a_workers_tokens_by_their_range(connection: Connection) -> None:
    edges = [Worker(bytes(8)), Worker(b"\xff" * 8), Worker(b"\x7f" + b"\xff" * 7), Worker()]
    tokens = [worker.next_token() for worker in edges for _ in range(3)]
    neighbours = [
        UUID(int=number)
        for worker in edges
        for number in (worker.id.int - 1, worker.last_token.int + 1)
        if 0 <= number < 2**128
    ]
    everything = [FIRST, LAST, *tokens, *neighbours, *new_job_ids(10)]
    assert await connection.fetchval(
        "select array(select * from unnest($1::uuid[]) as id order by id)", everything
    ) == sorted(everything)
    for worker in edges:
        found = await connection.fetchval(
            "select array(select * from unnest($1::uuid[]) as id where id between $2 and $3)",
            everything,
            worker.id,
            worker.last_token,
        )
        assert sorted(found) == sorted(
            id for id in everything if worker.id <= id <= worker.last_token
        )
        assert {id for id in found if id in tokens} == {
            token for token in tokens if str(token).startswith(worker.name)
        }
