"""What the scheduler's statements cost with a hundred thousand schedules: what the due ones cost.

Explained as in `test_plans`: never analysed and analysed, with a generic and a custom plan.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from chronos_runtime.store.migrations import Connection
from tests.postgres import Databases
from tests.sql.test_plans import PAGES_PER_READ, PAGES_PER_WRITE, explain, plan_cache_mode

__all__ = ["plan_cache_mode"]  # A fixture of theirs, used here too.

pytestmark = pytest.mark.slow

SCHEDULES = 100_000
DUE = 100
QUEUED = 50
FIRE_PAGES = 3 * PAGES_PER_WRITE  # The row in eight indexes, its look for living fires, its job.

_LOAD = (
    "alter table chronos.schedules set (autovacuum_enabled = false)",
    "alter table chronos.jobs set (autovacuum_enabled = false)",
    f"""
    insert into chronos.schedules (
        id, name, kind, cron, overlap, next_run_at, queued_at, origin, is_alarm,
        expect_success_within_s, absent_at, paused, status
    )
    select
        gen_random_uuid(), 'schedule ' || number, 'greet', '@daily',
        case when number % 2 = 0 then 'queue' else 'allow' end,
        case when number % 50 <> 7 then
            now() + make_interval(secs => case when number <= {DUE} then -number else number end)
        end,
        case when number > {SCHEDULES} - 2 * {QUEUED} and number % 2 = 0 then now() end,
        case when number % 10 = 0 then 'shop' end, number % 10 = 1, 60,
        now() + interval '1 day', number % 50 = 9,
        case when number % 50 = 7 then 'finished' else 'active' end
    from generate_series(1, {SCHEDULES}) as number
    """,
    # Live fires of every schedule that has an occurrence waiting, and many plain jobs.
    """
    insert into chronos.jobs (id, kind, schedule_id, occurrence)
    select gen_random_uuid(), 'greet', id, now() from chronos.schedules where queued_at is not null
    """,
    f"""
    insert into chronos.jobs (id, kind)
    select gen_random_uuid(), 'greet' from generate_series(1, {SCHEDULES})
    """,
)


@pytest.fixture(scope="module")
def calendar_dsn(databases: Databases) -> Iterator[str]:
    """A database with many schedules."""
    with databases.fresh() as dsn:
        yield dsn


@pytest.fixture(scope="module", params=["never analysed", "analysed"])
async def calendar(
    calendar_dsn: str, request: pytest.FixtureRequest, anyio_backend: object
) -> AsyncIterator[Connection]:
    """A connection to it, in the state of statistics that the parameter names."""
    connection = await asyncpg.connect(calendar_dsn, statement_cache_size=0)
    try:
        if not await connection.fetchval("select exists (select from chronos.schedules)"):
            for statement in _LOAD:
                await connection.execute(statement)
        if request.param == "analysed":
            await connection.execute("analyze chronos.jobs, chronos.schedules")
        yield connection
    finally:
        await connection.close()


async def test_a_look_for_what_is_due_costs_what_is_due(
    calendar: Connection, plan_cache_mode: str
) -> None:
    plan = await explain(calendar, plan_cache_mode, "list_due", 250)
    plan.check(
        indexes={"schedules_due", "schedules_queued", "jobs_schedule", "schedules_pkey"},
        rows=DUE + QUEUED,
        pages_per_row=PAGES_PER_READ,
    )


async def test_a_fire_costs_what_it_fires(calendar: Connection, plan_cache_mode: str) -> None:
    rows = await calendar.fetch(
        "select id, version, next_run_at from chronos.schedules"
        " where status = 'active' and not paused and next_run_at <= now()"
    )
    ids: list[Any] = [row["id"] for row in rows]
    cursors = [row["next_run_at"] for row in rows]
    later = datetime.now(UTC) + timedelta(days=1)
    plan = await explain(
        calendar,
        plan_cache_mode,
        "fire_schedules",
        ids,
        [row["version"] for row in rows],
        cursors,
        [None] * len(ids),
        [later] * len(ids),
        [0] * len(ids),
        ids,
        cursors,
        [uuid4() for _ in ids],
        cursors,
        ["null"] * len(ids),
    )
    assert len(ids) > DUE / 2
    plan.check(indexes={"schedules_pkey"}, rows=len(ids), pages_per_row=FIRE_PAGES)


@pytest.mark.parametrize(
    ("statement", "arguments", "index"),
    [
        ("mark_absent", (10, "chronos.wake", "chronos"), "schedules_expected"),
        ("prune_schedules", (0, 10), "schedules_ended"),
        ("get_schedules", (["schedule 7", "schedule 8"],), "schedules_name"),
        ("list_schedules", (False, None, "schedule 5", uuid4(), 10), "schedules_name"),
    ],
)
async def test_each_of_the_others_goes_by_its_index(
    calendar: Connection,
    plan_cache_mode: str,
    statement: str,
    arguments: tuple[Any, ...],
    index: str,
) -> None:
    plan = await explain(calendar, plan_cache_mode, statement, *arguments)
    plan.check(indexes={index}, rows=10, pages_per_row=FIRE_PAGES)


async def test_fires_of_a_schedule_are_found_among_all_jobs(
    calendar: Connection, plan_cache_mode: str
) -> None:
    id = await calendar.fetchval(
        "select schedule_id from chronos.jobs where schedule_id is not null"
    )
    plan = await explain(calendar, plan_cache_mode, "list_fires", id, 10)
    plan.check(indexes={"jobs_schedule"}, rows=10, pages_per_row=PAGES_PER_READ)
