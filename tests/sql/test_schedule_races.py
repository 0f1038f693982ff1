"""Two sessions at one schedule: each occurrence fires once, and nobody waits for ever."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.fires import firing_of
from chronos_runtime.schedule import Fired, Schedule
from chronos_runtime.store.migrations import Connection
from chronos_runtime.store.postgres import PostgresStore
from tests.sql.test_races import TOKEN, Session, behind, open_sessions, while_open


class Firer(Session):
    """A session that fires, edits and removes."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.connection)

    async def fire(self, read: Schedule, read_at: datetime) -> list[Any]:
        one = firing_of(read, read_at)
        return await self.fetch(
            "fire_schedules",
            [read.id],
            [read.version],
            [read.next_run_at],
            [read.queued_at],
            [one.next_at],
            [one.missed],
            [read.id for _ in one.fires],
            [fire.occurrence for fire in one.fires],
            [fire.job_id for fire in one.fires],
            [fire.run_at for fire in one.fires],
            [fire.payload for fire in one.fires],
        )

    async def remove(self, id: UUID) -> list[Any]:
        return await self.fetch("remove_schedules", [id])

    async def pause(self, id: UUID) -> str:
        return str(
            await self.connection.execute(
                "update chronos.schedules set paused = true, version = version + 1 where id = $1",
                id,
            )
        )


@pytest.fixture
async def pair(dsn: str, anyio_backend: object) -> AsyncIterator[tuple[Firer, Firer]]:
    async with open_sessions(dsn, 2) as [first, second]:
        yield Firer(first), Firer(second)


@pytest.fixture
async def store(dsn: str, anyio_backend: object) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(DatabaseConfig(dsn=dsn))
    yield store
    await store.close()


async def make_due(store: PostgresStore, **changes: Any) -> tuple[Schedule, datetime]:
    """A schedule that is due, as a scheduler reads it, and the clock read with it."""
    now, _ = await store.schedules.get_schedules([])
    plain: dict[str, Any] = {
        "interval_s": 1.0,
        "next_run_at": now.replace(microsecond=0) - timedelta(seconds=5),
    }
    schedule = Schedule(id=uuid4(), name="s", kind="greet", **(plain | changes))
    await store.schedules.add_schedules([schedule])
    due = await store.schedules.list_due(9)
    [read] = due.schedules
    return read, due.read_at


async def jobs(connection: Connection) -> int:
    return int(await connection.fetchval("select count(*) from chronos.jobs"))


async def test_a_schedule_that_another_process_is_firing_is_skipped(
    pair: tuple[Firer, Firer], store: PostgresStore, connection: Connection
) -> None:
    read, at = await make_due(store)
    first, second = pair
    won, lost = await while_open(first, lambda: first.fire(read, at), lambda: second.fire(read, at))
    assert (len(won), len(lost)) == (1, 0)
    assert await second.fire(read, at) == []
    assert await jobs(connection) == 1


async def test_a_fire_that_is_rolled_back_is_still_due(
    pair: tuple[Firer, Firer], store: PostgresStore, connection: Connection
) -> None:
    read, at = await make_due(store)
    first, second = pair
    transaction = first.connection.transaction()
    await transaction.start()
    await first.fire(read, at)
    await transaction.rollback()  # A crash inside the statement leaves as much.
    assert await jobs(connection) == 0
    assert len(await second.fire(read, at)) == 1
    assert await jobs(connection) == 1


async def test_an_edit_under_way_is_not_waited_for_and_wins(
    pair: tuple[Firer, Firer], store: PostgresStore, connection: Connection
) -> None:
    read, at = await make_due(store)
    first, second = pair
    _, fired = await while_open(first, lambda: first.pause(read.id), lambda: second.fire(read, at))
    assert fired == []
    assert await second.fire(read, at) == []
    assert await jobs(connection) == 0


@pytest.mark.parametrize("change", ["paused = true", "status = 'finished', next_run_at = null"])
async def test_a_change_by_sql_wins_too(
    pair: tuple[Firer, Firer], store: PostgresStore, connection: Connection, change: str
) -> None:
    read, at = await make_due(store)
    await connection.execute(f"update chronos.schedules set {change}")
    assert await pair[0].fire(read, at) == []
    assert await jobs(connection) == 0


async def test_a_schedule_removed_and_made_again_is_another_one(
    pair: tuple[Firer, Firer], store: PostgresStore, connection: Connection
) -> None:
    read, at = await make_due(store)
    first, _ = pair
    await first.remove(read.id)
    again, at_again = await make_due(store, next_run_at=read.next_run_at)
    assert await first.fire(read, at) == []
    assert len(await first.fire(again, at_again)) == 1
    assert await jobs(connection) == 1


async def test_a_finish_waits_for_the_fire_of_its_schedule_and_both_are_noted(
    pair: tuple[Firer, Firer], store: PostgresStore, connection: Connection
) -> None:
    read, at = await make_due(store)
    first, second = pair
    job_id = uuid4()
    await store.schedules.run_schedule(read.id, occurrence=at, job_id=job_id, payload="null")
    [claimed] = await first.claim(TOKEN, 9)
    assert claimed == job_id
    fired, finished = await behind(
        pair, lambda: first.fire(read, at), lambda: second.finish([job_id])
    )
    assert (len(fired), finished) == (1, {job_id})
    _, [after] = await store.schedules.get_schedules(["s"])
    assert (after.last_outcome, after.last_fire_at is not None) == ("succeeded", True)
    assert after.next_run_at is not None
    assert after.next_run_at > at


async def test_a_fire_does_not_wait_for_a_finish_that_notes_its_schedule(
    pair: tuple[Firer, Firer], store: PostgresStore, connection: Connection
) -> None:
    read, at = await make_due(store)
    first, second = pair
    job_id = uuid4()
    await store.schedules.run_schedule(read.id, occurrence=at, job_id=job_id, payload="null")
    await first.claim(TOKEN, 9)
    finished, fired = await while_open(
        first, lambda: first.finish([job_id]), lambda: second.fire(read, at)
    )
    assert (finished, fired) == ({job_id}, [])  # The next pass fires it.
    assert len(await second.fire(read, at)) == 1


async def test_many_who_fire_edit_and_finish_at_once_lose_and_double_nothing(
    dsn: str, connection: Connection
) -> None:
    stores = [PostgresStore(DatabaseConfig(dsn=dsn)) for _ in range(4)]
    now, _ = await stores[0].schedules.get_schedules([])
    first_at = now.replace(microsecond=0) - timedelta(seconds=60)
    schedules = [
        Schedule(
            id=uuid4(),
            name=f"s{number}",
            kind="greet",
            interval_s=1.0,
            catch_up="all",
            next_run_at=first_at,
        )
        for number in range(20)
    ]
    await stores[0].schedules.add_schedules(schedules)
    fired: list[tuple[UUID, datetime]] = []

    async def fire(store: PostgresStore) -> None:
        for _ in range(15):
            due = await store.schedules.list_due(7)
            results: dict[UUID, Fired] = await store.schedules.fire_schedules(
                [firing_of(one, due.read_at) for one in due.schedules]
            )
            fired.extend((id, at) for id, one in results.items() for at in one.occurrences)

    async def edit(store: PostgresStore) -> None:
        for number in range(30):
            _, [read] = await store.schedules.get_schedules([f"s{number % 20}"])
            await store.schedules.edit_schedule(read, read)

    try:
        async with anyio.create_task_group() as tasks:
            for store in stores:
                tasks.start_soon(fire, store)
            tasks.start_soon(edit, stores[0])
    finally:
        for store in stores:
            await store.close()
    rows = await connection.fetch("select schedule_id, occurrence from chronos.jobs")
    stored = [(row["schedule_id"], row["occurrence"]) for row in rows]
    assert len(set(stored)) == len(stored)
    assert sorted(fired) == sorted(stored)
    for one in schedules:
        mine = sorted(at for id, at in stored if id == one.id)
        steps = {later - sooner for sooner, later in pairwise(mine)}
        assert mine[0] == first_at
        assert steps == {timedelta(seconds=1)}, "an occurrence is missing"
