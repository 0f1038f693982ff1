"""Arrays that asyncpg does not look into arrive as any other."""

from uuid import UUID

import asyncpg
import pytest

from chronos_runtime.ids import new_job_ids
from chronos_runtime.store.scalars import Scalars


async def test_scalars_arrive_as_the_list_they_are(connection: asyncpg.Connection) -> None:
    ids, numbers = new_job_ids(3), [1.5, None, 2.5]
    statement = "select $1::uuid[] as ids, $2::real[] as numbers"
    for _ in range(2):  # The second time the statement is prepared already.
        row = await connection.fetchrow(statement, Scalars(ids), Scalars(numbers))
        assert row is not None
        assert (row["ids"], row["numbers"]) == (ids, numbers)


async def test_an_empty_one_is_an_empty_array(connection: asyncpg.Connection) -> None:
    assert await connection.fetchval("select $1::uuid[]", Scalars([])) == []


async def test_the_same_one_can_be_sent_again(connection: asyncpg.Connection) -> None:
    ids = Scalars[UUID](new_job_ids(2))
    first = await connection.fetchval("select $1::uuid[]", ids)
    assert await connection.fetchval("select $1::uuid[]", ids) == first
    assert len(first) == 2


async def test_an_element_that_does_not_fit_is_refused_by_name(
    connection: asyncpg.Connection,
) -> None:
    with pytest.raises(asyncpg.DataError, match="element at index 1"):
        await connection.fetchval("select $1::real[]", Scalars([1.0, "two"]))
