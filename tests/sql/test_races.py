"""Two sessions at one row: nothing is lost, nothing is doubled, nobody waits for ever.

One session does half of its work and waits at an open transaction; the other starts and, where
it must wait, is seen waiting before the first commits. No luck is involved.
"""

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID

import anyio
import asyncpg
import pytest

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.ids import Worker, new_job_ids
from chronos_runtime.store.connect import connect
from chronos_runtime.store.migrations import Connection
from chronos_runtime.store.sql import query
from tests.eventually import eventually
from tests.leases import lease

FIRST = UUID(int=0)
TOKEN = UUID(int=7)
ERROR = '{"type": "ValueError", "message": "boom"}'


class Session:
    """A connection as the store opens it, speaking the store's statements."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def fetch(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        return await self.connection.fetch(query(statement), *arguments)

    async def claim(self, token: UUID, room: int, lease_s: float = 30.0) -> list[UUID]:
        rows = await self.fetch(
            "claim_jobs", token, lease_s, ["default"], [room], [0] * 10, ["greet"], room, [], None
        )
        return [row["id"] for row in rows]

    async def finish(self, ids: Sequence[UUID], token: UUID = TOKEN) -> set[UUID]:
        count = len(ids)
        ended = ([0.5] * count, ["succeeded"] * count, ["1"] * count, [None] * count, True)
        [row] = await self.fetch("finish_jobs", sorted(ids), [token], [1], *ended)
        return set(ids if row["moved"] is None else row["moved"])

    async def give_back(
        self, ids: Sequence[UUID], token: UUID = TOKEN, delay_s: float | None = 60.0
    ) -> dict[UUID, str]:
        count = len(ids)
        fences = (ids, [token] * count, [1] * count)
        rows = await self.fetch(
            "return_jobs", *fences, [delay_s] * count, [ERROR] * count, [False] * count
        )
        return {row["id"]: row["state"] for row in rows}

    async def extend(self, ids: Sequence[UUID], token: UUID = TOKEN) -> set[UUID]:
        rows = await self.fetch("extend_leases", ids, [token] * len(ids), [1] * len(ids), 60.0)
        return {row["id"] for row in rows}

    async def cancel(self, ids: Sequence[UUID]) -> dict[UUID, str]:
        return {row["id"]: row["state"] for row in await self.fetch("cancel_jobs", ids)}

    async def reap(self) -> dict[UUID, str]:
        rows = await self.fetch("reap_jobs", None, None, FIRST, 1_000)
        return {row["id"]: row["next_state"] for row in rows}

    async def promote(self, limit: int) -> int:
        return int((await self.fetch("promote_jobs", limit))[0]["promoted"])

    async def enqueue(self, ids: Sequence[UUID], keys: Sequence[str | None]) -> set[UUID]:
        count = len(ids)
        rows = await self.fetch(
            "enqueue_jobs",
            ids,
            ["default"] * count,
            ["greet"] * count,
            [5] * count,
            ["{}"] * count,
            [None] * count,
            [None] * count,
            [5] * count,
            [None] * count,
            keys,
            None,
        )
        return {row["id"] for row in rows}

    async def enqueue_one(self, id: UUID, key: str) -> set[UUID]:
        rows = await self.fetch(
            "enqueue_job", id, "default", "greet", 5, "{}", None, None, 5, None, key, None
        )
        return {row["id"] for row in rows}

    async def is_waiting(self, other: "Session") -> bool:
        """Whether the other session stands before a lock."""
        waits = await self.connection.fetchval(
            "select exists (select from pg_locks where pid = $1 and not granted)",
            other.connection.get_server_pid(),
        )
        return bool(waits)


@asynccontextmanager
async def open_sessions(dsn: str, count: int) -> AsyncIterator[list[Session]]:
    async with AsyncExitStack() as stack:
        sessions = []
        for _ in range(count):
            connection = await connect(DatabaseConfig(dsn=dsn))
            stack.push_async_callback(connection.close)
            sessions.append(Session(connection))
        yield sessions


@pytest.fixture
async def pair(dsn: str, anyio_backend: object) -> AsyncIterator[tuple[Session, Session]]:
    async with open_sessions(dsn, 2) as [first, second]:
        yield first, second


async def make_jobs(
    connection: Connection, count: int, state: str, lease_s: float = 3_600.0
) -> list[UUID]:
    """Jobs in that state; running ones are held under TOKEN in their first attempt."""
    ids = new_job_ids(count)
    await connection.execute(
        """
        insert into chronos.jobs (id, kind, state, run_at)
        select id, 'greet', $2::chronos.job_state, now() - interval '1 minute'
        from unnest($1::uuid[]) as id
        """,
        ids,
        "ready" if state == "running" else state,
    )
    if state == "running":
        await lease(connection, ids, TOKEN, lease_s)
    return ids


async def states(connection: Connection) -> dict[UUID, str]:
    """Every job there is, live or ended, which must be there once."""
    rows = await connection.fetch("select id, state::text as state from chronos.all_jobs")
    assert len({row["id"] for row in rows}) == len(rows), "a job is there twice"
    return {row["id"]: row["state"] for row in rows}


async def while_open(
    first: Session, half: Callable[[], Awaitable[Any]], second: Callable[[], Awaitable[Any]]
) -> tuple[Any, Any]:
    """What both did, the second one wholly within the open transaction of the first."""
    async with first.connection.transaction():
        done = await half()
        with anyio.fail_after(10):
            return done, await second()


async def behind(
    sessions: tuple[Session, Session],
    half: Callable[[], Awaitable[Any]],
    whole: Callable[[], Awaitable[Any]],
) -> tuple[Any, Any]:
    """What both did, the second one having waited for the first one's commit."""
    first, second = sessions
    results: list[Any] = []

    async def run() -> None:
        results.append(await whole())

    async with anyio.create_task_group() as tasks, first.connection.transaction():
        done = await half()
        tasks.start_soon(run)
        await eventually(lambda: first.is_waiting(second))
    return done, results[0]


@pytest.mark.parametrize("beaten", [0, 1, 2])
async def test_a_heartbeat_between_snapshot_and_lock_loses_no_finish(
    pair: tuple[Session, Session], connection: Connection, beaten: int
) -> None:
    ids = await make_jobs(connection, 3, "running")
    first, second = pair
    beat, finished = await behind(
        pair, lambda: first.extend([ids[beaten]]), lambda: second.finish(ids)
    )
    assert beat == {ids[beaten]}
    assert finished == set(ids)
    assert await states(connection) == dict.fromkeys(ids, "succeeded")


@pytest.mark.parametrize("beaten", [0, 1, 2])
async def test_a_heartbeat_between_snapshot_and_lock_loses_no_return(
    pair: tuple[Session, Session], connection: Connection, beaten: int
) -> None:
    ids = await make_jobs(connection, 3, "running")
    first, second = pair
    _, returned = await behind(
        pair, lambda: first.extend([ids[beaten]]), lambda: second.give_back(ids)
    )
    assert returned == await states(connection) == dict.fromkeys(ids, "scheduled")
    rows = await connection.fetch(
        "select lease_token, lease_until, attempt, jsonb_array_length(errors),"
        " run_at > now() + interval '50 seconds' from chronos.jobs"
    )
    assert [tuple(row) for row in rows] == [(None, None, 1, 1, True)] * 3


async def test_a_cancel_between_snapshot_and_lock_ends_the_job_that_is_given_back(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    ids = await make_jobs(connection, 3, "running")
    first, second = pair
    asked, returned = await behind(
        pair, lambda: first.cancel([ids[1]]), lambda: second.give_back(ids)
    )
    assert asked == {ids[1]: "running"}
    assert returned == {ids[0]: "scheduled", ids[1]: "cancelled", ids[2]: "scheduled"}
    assert await states(connection) == returned


async def test_a_cancel_between_snapshot_and_lock_does_not_stop_a_finish(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    ids = await make_jobs(connection, 3, "running")
    first, second = pair
    _, finished = await behind(pair, lambda: first.cancel([ids[1]]), lambda: second.finish(ids))
    assert finished == set(ids)
    assert await states(connection) == dict.fromkeys(ids, "succeeded")


async def test_a_cancel_behind_a_finish_finds_nothing_to_cancel(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    ids = await make_jobs(connection, 2, "running")
    first, second = pair
    _, cancelled = await behind(pair, lambda: first.finish(ids[:1]), lambda: second.cancel(ids))
    assert cancelled == {ids[1]: "running"}
    assert await states(connection) == {ids[0]: "succeeded", ids[1]: "running"}


async def test_a_cancel_behind_a_claim_asks_the_new_owner(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    [id] = await make_jobs(connection, 1, "ready")
    first, second = pair
    claimed, cancelled = await behind(
        pair, lambda: first.claim(TOKEN, 1), lambda: second.cancel([id])
    )
    assert (claimed, cancelled) == ([id], {id: "running"})
    assert await connection.fetchval("select cancel_requested from chronos.jobs")


async def test_a_claim_passes_over_a_job_that_is_being_cancelled(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    ids = await make_jobs(connection, 2, "ready")
    first, second = pair
    _, claimed = await while_open(
        first, lambda: first.cancel(ids[:1]), lambda: second.claim(TOKEN, 2)
    )
    assert claimed == ids[1:]
    assert await states(connection) == {ids[0]: "cancelled", ids[1]: "running"}


async def test_the_reaper_passes_over_a_job_that_is_being_finished(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    ids = await make_jobs(connection, 2, "running", lease_s=-60.0)
    first, second = pair
    _, reaped = await while_open(first, lambda: first.finish(ids[:1]), second.reap)
    assert reaped == {ids[1]: "ready"}
    assert await second.reap() == {}
    assert await states(connection) == {ids[0]: "succeeded", ids[1]: "ready"}


async def test_a_finish_behind_the_reaper_matches_nothing(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    [id] = await make_jobs(connection, 1, "running", lease_s=-60.0)
    first, second = pair
    reaped, finished = await behind(pair, first.reap, lambda: second.finish([id]))
    assert (reaped, finished) == ({id: "ready"}, set())
    assert await states(connection) == {id: "ready"}


async def test_the_reaper_and_a_late_heartbeat_never_both_have_the_job(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    ids = await make_jobs(connection, 2, "running", lease_s=-60.0)
    first, second = pair
    _, reaped = await while_open(first, lambda: first.extend(ids[:1]), second.reap)
    assert reaped == {ids[1]: "ready"}, "passed over: it is being extended"
    assert await second.reap() == {}, "and now it has been"

    [id] = await make_jobs(connection, 1, "running", lease_s=-60.0)
    _, beaten = await while_open(first, first.reap, lambda: second.extend([id]))
    assert beaten == set(), "passed over: it is being reaped"
    assert await second.extend([id]) == set(), "and now it has been"


async def test_two_reapers_share_the_work(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    ids = await make_jobs(connection, 4, "running", lease_s=-60.0)
    first, second = pair
    rows, rest = await while_open(
        first, lambda: first.fetch("reap_jobs", None, None, FIRST, 2), second.reap
    )
    assert [row["id"] for row in rows] == ids[:2]
    assert list(rest) == ids[2:]


async def test_two_claims_at_once_take_different_jobs(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    ids = await make_jobs(connection, 10, "ready")
    first, second = pair
    ours, theirs = await while_open(
        first, lambda: first.claim(UUID(int=1), 4), lambda: second.claim(UUID(int=2), 100)
    )
    assert sorted(ours) == ids[:4]
    assert sorted(theirs) == ids[4:]


async def test_a_claim_that_is_rolled_back_leaves_its_jobs_to_others(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    ids = await make_jobs(connection, 3, "ready")
    first, second = pair
    transaction = first.connection.transaction()
    await transaction.start()
    assert len(await first.claim(UUID(int=1), 3)) == 3
    assert await second.claim(UUID(int=2), 3) == []
    await transaction.rollback()
    assert sorted(await second.claim(UUID(int=2), 3)) == ids


async def test_many_claims_at_once_take_every_job_once(dsn: str, connection: Connection) -> None:
    ids = await make_jobs(connection, 400, "ready")
    claimed: list[UUID] = []

    async def claim(session: Session, worker: Worker) -> None:
        while batch := await session.claim(worker.next_token(), 7):
            claimed.extend(batch)

    async with open_sessions(dsn, 6) as sessions, anyio.create_task_group() as tasks:
        for session in sessions:
            tasks.start_soon(claim, session, Worker())
    assert sorted(claimed) == ids


async def test_two_promotions_at_once_promote_different_jobs(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    ids = await make_jobs(connection, 10, "scheduled")
    first, second = pair
    ours, theirs = await while_open(first, lambda: first.promote(4), lambda: second.promote(100))
    assert (ours, theirs) == (4, 6)
    assert await states(connection) == dict.fromkeys(ids, "ready")


async def test_a_dead_job_two_people_retry_comes_back_once(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    [id] = await make_jobs(connection, 1, "running")
    first, second = pair
    await first.finish([id])
    await connection.execute("update chronos.job_history set state = 'dead'")
    ours, theirs = await behind(
        pair, lambda: first.fetch("retry_jobs", [id]), lambda: second.fetch("retry_jobs", [id])
    )
    assert ([row["id"] for row in ours], theirs) == ([id], [])
    assert await states(connection) == {id: "ready"}


async def test_of_two_jobs_with_one_key_the_first_to_commit_goes_in(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    [one, other] = new_job_ids(2)
    first, second = pair
    ours, theirs = await behind(
        pair, lambda: first.enqueue([one], ["k"]), lambda: second.enqueue([other], ["k"])
    )
    assert (ours, theirs) == ({one}, set())
    assert await states(connection) == {one: "ready"}


async def test_a_job_by_itself_waits_for_its_key_as_a_batch_does(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    [one, other] = new_job_ids(2)
    first, second = pair
    ours, theirs = await behind(
        pair, lambda: first.enqueue([one], ["k"]), lambda: second.enqueue_one(other, "k")
    )
    assert (ours, theirs) == ({one}, set())
    assert await states(connection) == {one: "ready"}


@pytest.mark.parametrize("owners_write", ["finish", "give_back"])
async def test_an_outcome_and_a_cancel_of_the_same_jobs_do_not_deadlock(
    dsn: str, pair: tuple[Session, Session], connection: Connection, owners_write: str
) -> None:
    """Both wait for row locks, so both must take them in one order."""
    [low, middle, high] = await make_jobs(connection, 3, "running")
    first, second = pair
    async with (
        open_sessions(dsn, 1) as [beating],
        anyio.create_task_group() as tasks,
        beating.connection.transaction(),
    ):
        await beating.extend([middle])
        # Must not hold `high` while it waits for `middle`: the cancel holds `low` by then.
        tasks.start_soon(getattr(first, owners_write), [high, middle, low])
        await eventually(lambda: beating.is_waiting(first))
        tasks.start_soon(second.cancel, [low, high])
        await eventually(lambda: beating.is_waiting(second))
    assert "running" not in (await states(connection)).values()


async def test_two_batches_with_the_same_keys_in_another_order_do_not_deadlock(
    dsn: str, pair: tuple[Session, Session]
) -> None:
    """An insert waits for another's uncommitted key while it holds its own."""
    keys = [f"key {number}" for number in range(400)]
    taken: list[str] = []

    async def enqueue(session: Session, order: list[str]) -> None:
        ids = new_job_ids(len(order))
        inserted = await session.enqueue(ids, order)
        taken.extend(key for id, key in zip(ids, order, strict=True) if id in inserted)

    for _ in range(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enqueue, pair[0], keys)
            tasks.start_soon(enqueue, pair[1], keys[::-1])
        assert sorted(taken) == sorted(keys)
        taken.clear()
        await pair[0].connection.execute("delete from chronos.jobs")


async def test_retention_does_not_stop_the_finishing_of_jobs_behind_a_long_reader(
    dsn: str, pair: tuple[Session, Session], connection: Connection
) -> None:
    """A drop that waits for a report or a dump has every finish wait behind it."""
    ids = await make_jobs(connection, 1, "running")
    await connection.fetchval("select chronos.make_history_partition('2001-01-01')")
    reading, dropping = pair
    dropped: list[str] = []

    async def drop() -> None:
        rows = await dropping.fetch("drop_partitions", 86_400.0)
        dropped.extend(row["name"] for row in rows)

    async with (
        open_sessions(dsn, 1) as [finishing],
        anyio.create_task_group() as tasks,
        reading.connection.transaction(),
    ):
        await reading.connection.fetch("select from chronos.all_jobs")
        tasks.start_soon(drop)
        await eventually(lambda: reading.is_waiting(dropping))
        with anyio.fail_after(5):
            assert await finishing.finish(ids) == set(ids)
    assert dropped == [], "a day that is being read is dropped another time"
    await drop()
    assert dropped == ["job_history_20010101"]


async def test_a_partition_is_made_another_time_when_somebody_reads_the_history(
    pair: tuple[Session, Session],
) -> None:
    reading, making = pair
    make = "select chronos.make_history_partition('2001-01-01')"
    async with reading.connection.transaction():
        await reading.connection.fetch("select from chronos.all_jobs")
        assert await making.connection.fetchval(make) is False
    assert await making.connection.fetchval(make) is True


async def test_partitions_that_another_process_drops_are_no_error(
    pair: tuple[Session, Session], connection: Connection
) -> None:
    await connection.fetchval("select chronos.make_history_partition('2001-01-01')")
    first, second = pair
    theirs: list[list[asyncpg.Record]] = []

    async def drop() -> None:
        theirs.append(await second.fetch("drop_partitions", 86_400.0))

    async def is_met() -> bool:
        return bool(theirs) or await first.is_waiting(second)

    async with anyio.create_task_group() as tasks, first.connection.transaction():
        ours = await first.fetch("drop_partitions", 86_400.0)
        tasks.start_soon(drop)
        await eventually(is_met)
    assert [row["name"] for row in ours] == ["job_history_20010101"]
    assert theirs == [[]]


JOBS = 200
SESSIONS = 8
ROUNDS = 40
Fences = tuple[list[UUID], list[int]]


class Storm:
    """Sessions that do everything to the same jobs at once."""

    def __init__(self, ids: list[UUID]) -> None:
        self.ids = ids
        self.done = Counter[str]()

    async def rage(self, session: Session, seed: int) -> None:
        chance, worker = random.Random(seed), Worker()
        for _ in range(ROUNDS):
            token = worker.next_token()
            # Half of the leases have run out when they begin: the reapers fight for them.
            lease_s = chance.choice([30.0, -1.0])
            rows = await session.fetch(
                "claim_jobs", token, lease_s, ["default"], [25], [0] * 10, ["greet"], 25, [], None
            )
            self.done["claim"] += len(rows)
            held = {row["id"]: row["attempt"] for row in rows}
            order = chance.sample(list(held), len(held))
            for act in chance.sample([self.beat, self.finish, self.give_back, self.sweep], 4):
                await act(session, chance, order, ([token] * len(held), [held[id] for id in order]))

    async def beat(
        self, session: Session, chance: random.Random, ids: list[UUID], fences: Fences
    ) -> None:
        beaten = await session.fetch("extend_leases", ids, *fences, 30.0)
        self.done["beat"] += len(beaten)

    async def finish(
        self, session: Session, chance: random.Random, ids: list[UUID], fences: Fences
    ) -> None:
        some = sorted(ids[: len(ids) // 8])
        if not some:
            return
        count = len(some)
        ended = ([0.1] * count, ["dead"] * count, None, [ERROR] * count, True)
        [row] = await session.fetch("finish_jobs", some, fences[0][:1], [1], *ended)
        moved = some if row["moved"] is None else row["moved"]
        self.done["finish"] += len(moved)
        # Back to life, so that the storm never runs out of jobs.
        revived = await session.fetch("retry_jobs", moved)
        assert len(revived) == len(moved)

    async def give_back(
        self, session: Session, chance: random.Random, ids: list[UUID], fences: Fences
    ) -> None:
        count = len(ids)
        delays_s = [chance.choice([None, 0.0, 0.001]) for _ in ids]
        rows = await session.fetch(
            "return_jobs", ids, *fences, delays_s, [ERROR] * count, [True] * count
        )
        self.done["give back"] += len(rows)

    async def sweep(
        self, session: Session, chance: random.Random, ids: list[UUID], fences: Fences
    ) -> None:
        reaped = await session.fetch("reap_jobs", None, None, FIRST, 50)
        promoted = await session.promote(50)
        cancelled = await session.cancel(chance.sample(self.ids, 5 if chance.random() < 0.1 else 0))
        self.done.update(reap=len(reaped), promote=promoted, cancel=len(cancelled))


async def test_everybody_at_the_same_jobs_loses_none_and_deadlocks_never(
    dsn: str, connection: Connection
) -> None:
    ids = await make_jobs(connection, JOBS, "ready")
    await connection.execute("update chronos.jobs set max_attempts = 100")
    storm = Storm(ids)
    async with open_sessions(dsn, SESSIONS) as sessions, anyio.create_task_group() as tasks:
        for seed, session in enumerate(sessions):
            tasks.start_soon(storm.rage, session, seed)
    left = await states(connection)
    assert sorted(left) == ids
    ended = storm.done["finish"] + storm.done["give back"] + storm.done["reap"]
    assert storm.done["claim"] == ended + Counter(left.values())["running"], "each claim ends once"
    acts = ("claim", "beat", "finish", "give back", "reap", "promote", "cancel")
    assert all(storm.done[act] > SESSIONS for act in acts), storm.done
    await connection.execute("select pg_stat_force_next_flush()")
    assert await deadlocks(connection) == 0


async def deadlocks(connection: Connection) -> int:
    return int(
        await connection.fetchval(
            "select deadlocks from pg_stat_database where datname = current_database()"
        )
    )
