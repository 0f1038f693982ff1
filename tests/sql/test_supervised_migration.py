"""Supervised attempts come to a database at work without rewriting what is there."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from chronos_runtime.store import migrations
from chronos_runtime.store.migrations import Connection, migrate
from chronos_runtime.store.sql import migrations as known_migrations
from chronos_runtime.store.sql import query

BEFORE = 2
"""The last migration without."""

_ENDED = """
insert into chronos.job_history (
    id, finished_at, run_at, enqueued_at, state, attempt, max_attempts, priority, topic, kind,
    payload
)
values (gen_random_uuid(), $1, now(), now(), $2, 1, 5, 5, 'default', 'greet', 'null')
"""


@pytest.fixture
async def old(
    empty_dsn: str, anyio_backend: object, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Connection]:
    """A database of the version before, with work in it."""
    connection = await asyncpg.connect(empty_dsn)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(migrations, "migrations", lambda: known_migrations()[:BEFORE])
            await migrate(connection)
        await connection.execute(
            "insert into chronos.jobs (id, kind) select gen_random_uuid(), 'greet'"
            " from generate_series(1, 100)"
        )
        for state in ("succeeded", "dead", "cancelled"):
            for days in (0, 1, 400):  # The last one stands in the default partition.
                at = await connection.fetchval("select now() - make_interval(days => $1)", -days)
                await connection.execute(_ENDED, at, state)
        yield connection
    finally:
        await connection.close()


async def files(connection: Connection) -> list[tuple[object, ...]]:
    """Where the tables' rows are kept: another file is a table rewritten."""
    rows = await connection.fetch(
        "select relname, relfilenode from pg_class where relkind = 'r'"
        " and relnamespace = 'chronos'::regnamespace"
        " and relname ~ '^(jobs|job_history.*|schedules)$' order by relname"
    )
    return [tuple(row) for row in rows]


async def test_no_table_is_rewritten_and_no_row_is_lost(old: Connection) -> None:
    before = await files(old)
    assert len(before) >= 4
    await migrate(old)
    assert await files(old) == before
    assert await old.fetchval("select count(*) from chronos.all_jobs") == 109
    assert await old.fetchval("select count(supervisor) from chronos.all_jobs") == 0


async def test_every_partition_takes_what_failed_and_refuses_what_lives(old: Connection) -> None:
    await migrate(old)
    await old.fetch(query("make_partitions"), 10)  # Made after the migration.
    for days in (0, 8, 400):
        at = await old.fetchval("select now() + make_interval(days => $1)", days)
        await old.execute(_ENDED, at, "failed")
        with pytest.raises(asyncpg.CheckViolationError, match="job_history_state_is_final"):
            await old.execute(_ENDED, at, "ready")
    places = await old.fetch(
        "select distinct tableoid from chronos.job_history where state = 'failed'"
    )
    assert len(places) == 3
