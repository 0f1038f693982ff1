"""What is noted of claims: as long as a job has a lease, it can be found by its claim."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from uuid import UUID

import pytest

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.ids import new_job_ids
from chronos_runtime.job import Finish, Job
from chronos_runtime.store import Claimed, Wanted
from chronos_runtime.store.migrations import Connection
from chronos_runtime.store.postgres import PostgresStore
from chronos_runtime.store.sql import query
from tests.store.world import FIRST, NO_FRONTIER, new_job

TOKENS = [UUID(int=number) for number in range(1, 10)]


@pytest.fixture
async def store(dsn: str, anyio_backend: object) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(DatabaseConfig(dsn=dsn))
    yield store
    await store.close()


async def claim(
    store: PostgresStore,
    token: UUID,
    room: int,
    *,
    lease_s: float = 30.0,
    over: Sequence[UUID] = (),
) -> list[Job]:
    return await store.claim_jobs(
        token,
        [Wanted("default", room, NO_FRONTIER)],
        kinds=["greet"],
        room=room,
        lease_s=lease_s,
        claimed_at=0.0,
        over=over,
    )


async def enqueue(store: PostgresStore, count: int) -> list[UUID]:
    ids = new_job_ids(count)
    await store.enqueue_jobs([new_job(id=id) for id in ids])
    return ids


async def noted(connection: Connection) -> dict[UUID, list[UUID]]:
    rows = await connection.fetch("select token, ids from chronos.claims order by token")
    return {row["token"]: sorted(row["ids"]) for row in rows}


async def finish(store: PostgresStore, *jobs: Job) -> None:
    await store.finish_jobs([Finish(job, "succeeded", 0.1) for job in jobs])


async def test_a_claim_is_noted_with_what_it_took(
    store: PostgresStore, connection: Connection
) -> None:
    ids = await enqueue(store, 5)
    await claim(store, TOKENS[0], 3)
    await claim(store, TOKENS[1], 3)
    assert await noted(connection) == {TOKENS[0]: ids[:3], TOKENS[1]: ids[3:]}


async def test_a_claim_that_took_nothing_leaves_nothing(
    store: PostgresStore, connection: Connection
) -> None:
    assert await claim(store, TOKENS[0], 3) == []
    assert await noted(connection) == {}


async def test_a_claim_leaves_every_index_of_the_jobs_alone(
    store: PostgresStore, connection: Connection
) -> None:
    await enqueue(store, 3)
    async with connection.transaction():
        rows = await connection.fetch(
            query("claim_jobs"),
            TOKENS[0],
            30.0,
            ["default"],
            [9],
            NO_FRONTIER,
            ["greet"],
            9,
            [],
            None,
        )
        hot = "select pg_stat_get_xact_tuples_hot_updated('chronos.jobs'::regclass)"
        assert await connection.fetchval(hot) == len(rows) == 3


async def test_a_claim_that_is_over_is_forgotten_by_the_next(
    store: PostgresStore, connection: Connection
) -> None:
    ids = await enqueue(store, 4)
    await finish(store, *await claim(store, TOKENS[0], 2))
    await claim(store, TOKENS[1], 2, over=[TOKENS[0], TOKENS[8]])
    assert await noted(connection) == {TOKENS[1]: ids[2:]}


async def test_a_claim_that_is_given_back_is_forgotten(
    store: PostgresStore, connection: Connection
) -> None:
    await enqueue(store, 4)
    await claim(store, TOKENS[0], 4)
    assert await store.release_claim(TOKENS[0]) == 4
    assert await noted(connection) == {}
    assert len(await claim(store, TOKENS[1], 4)) == 4


async def test_what_the_dead_left_behind_is_forgotten_once_no_job_has_it(
    store: PostgresStore, connection: Connection
) -> None:
    ids = await enqueue(store, 4)
    await finish(store, *await claim(store, TOKENS[0], 2, lease_s=-1.0))
    await claim(store, TOKENS[1], 2, lease_s=-1.0)
    assert await store.review_claims(100) == 1
    assert await noted(connection) == {TOKENS[1]: ids[2:]}, "this one is still to be reaped"
    assert len(await store.reap_jobs(limit=100, after=FIRST)) == 2
    assert await store.review_claims(100) == 1
    assert await noted(connection) == {}


async def test_a_claim_whose_time_has_not_come_is_not_reviewed(
    store: PostgresStore, connection: Connection
) -> None:
    ids = await enqueue(store, 1)
    await finish(store, *await claim(store, TOKENS[0], 1))
    assert await store.review_claims(100) == 0
    assert await noted(connection) == {TOKENS[0]: ids}


async def test_a_claim_whose_leases_were_extended_is_looked_at_when_the_first_of_them_ends(
    store: PostgresStore, connection: Connection
) -> None:
    await enqueue(store, 3)
    first, second, gone = await claim(store, TOKENS[0], 3, lease_s=-1.0)
    await finish(store, gone)
    for job, lease_s in ((first, 100.0), (second, 500.0)):
        await store.extend_leases([Claimed(job.id, job.lease_token, job.attempt)], lease_s)
    assert await store.review_claims(100) == 0
    ahead = await connection.fetchval("select look_at - now() from chronos.claims")
    assert timedelta(seconds=90) < ahead <= timedelta(seconds=100)
    until = await connection.fetchval("select min(lease_until) from chronos.jobs")
    assert await connection.fetchval("select look_at from chronos.claims") == until


async def test_a_job_is_reaped_once_though_old_claims_of_it_are_still_noted(
    store: PostgresStore, connection: Connection
) -> None:
    [id] = await enqueue(store, 1)
    for token in TOKENS[:3]:
        await claim(store, token, 1, lease_s=-1.0)
        assert [one.id for one in await store.reap_jobs(limit=100, after=FIRST)] == [id]
        assert await store.reap_jobs(limit=100, after=FIRST) == []
    assert list(await noted(connection)) == TOKENS[:3]


async def test_a_lease_that_belongs_to_no_claim_is_found_and_reaped(
    store: PostgresStore, connection: Connection
) -> None:
    ids = await enqueue(store, 6)
    await claim(store, TOKENS[0], 1)
    await claim(store, TOKENS[1], 3, lease_s=-1.0)
    await connection.execute("delete from chronos.claims where token = $1", TOKENS[1])
    assert await store.reap_jobs(limit=100, after=FIRST) == []
    assert await store.note_claims(limit=3, after=FIRST) == (ids[2], 2)
    assert await store.note_claims(limit=100, after=ids[2]) == (None, 0), "the token is noted now"
    assert [one.id for one in await store.reap_jobs(limit=100, after=FIRST)] == ids[1:3]
    assert await store.review_claims(100) == 1
    assert await store.note_claims(limit=100, after=FIRST) == (None, 1)
    assert [one.id for one in await store.reap_jobs(limit=100, after=FIRST)] == ids[3:4]


async def test_jobs_that_wait_and_leases_that_are_noted_are_none_of_the_patrols_business(
    store: PostgresStore, connection: Connection
) -> None:
    await enqueue(store, 6)
    await claim(store, TOKENS[0], 3, lease_s=-1.0)
    before = await noted(connection)
    assert await store.note_claims(limit=100, after=FIRST) == (None, 0)
    assert await noted(connection) == before


async def test_a_job_that_another_claim_holds_by_now_is_neither_given_back_nor_waited_for(
    store: PostgresStore, connection: Connection
) -> None:
    ids = await enqueue(store, 2)
    await claim(store, TOKENS[0], 1, lease_s=-1.0)
    await claim(store, TOKENS[1], 1, lease_s=-1.0)
    await store.reap_jobs(limit=100, after=FIRST)
    await claim(store, TOKENS[2], 2)
    assert await store.release_claim(TOKENS[0]) == 0
    assert await store.review_claims(100) == 1
    assert await noted(connection) == {TOKENS[2]: ids}
    held = await connection.fetch("select lease_token from chronos.jobs")
    assert [row["lease_token"] for row in held] == [TOKENS[2]] * 2
