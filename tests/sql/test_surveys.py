"""A survey costs little more than one walk over what an old snapshot keeps from vacuum."""

from contextlib import AsyncExitStack

import asyncpg
import msgspec
import pytest

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.store.connect import connect
from chronos_runtime.store.migrations import Connection
from chronos_runtime.store.sql import query

DEAD, ALIVE = 20_000, 10

_ENQUEUE = """
    insert into chronos.jobs (id, topic, kind, priority, payload, max_attempts)
    select gen_random_uuid(), 'default', 'greet', 5, '{}', 5 from generate_series(1, $1)
"""
_WALK = """
    select seq from chronos.jobs where state = 'ready' order by topic, priority, seq limit 1
"""


async def touched_pages(connection: Connection, statement: str, *arguments: object) -> int:
    """How many pages a statement touches, one that is touched again counting again."""
    explain = "explain (analyze, buffers, format json) "
    plan = msgspec.json.decode(await connection.fetchval(explain + statement, *arguments))[0][
        "Plan"
    ]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize("survey", ["survey_topics", "survey_unserved"])
async def test_dead_entries_at_the_head_of_a_topic_are_walked_over_once(
    dsn: str, connection: Connection, survey: str
) -> None:
    await connection.execute(_ENQUEUE, DEAD)
    async with AsyncExitStack() as stack:
        old, surveyor = await asyncpg.connect(dsn), await connect(DatabaseConfig(dsn=dsn))
        stack.push_async_callback(old.close)
        stack.push_async_callback(surveyor.close)
        await old.execute("begin isolation level repeatable read; select 1")
        await connection.execute("delete from chronos.jobs")
        await connection.execute(_ENQUEUE, ALIVE)
        walk = await touched_pages(surveyor, _WALK)
        assert walk > DEAD / 100, "the dead are still there"
        assert await touched_pages(surveyor, query(survey), 1_000) < 1.5 * walk
