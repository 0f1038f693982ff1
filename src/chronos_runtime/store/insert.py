"""Inserting jobs: by COPY where nothing can clash, by one statement where something can.

Works on any asyncpg connection, also the caller's own in the middle of its transaction.
"""

from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import asyncpg

from chronos_runtime.store import NewJob
from chronos_runtime.store.sql import query

_COPY_FROM = 500  # Below, the set-up of a COPY costs more than it saves.
_COPY_BLOCK = 1_000  # Jobs per message, so that no other task waits long.
_STATEMENT_MAX = 5_000  # Keys and future jobs per statement, so that none runs for seconds.
_COPY_COLUMNS = ("id", "topic", "kind", "priority", "payload", "max_attempts", "timeout_s")


async def insert_jobs(connection: asyncpg.Connection, jobs: Sequence[NewJob]) -> set[UUID]:
    """Insert all in one transaction; the ids that went in."""
    if len(jobs) <= _STATEMENT_MAX and (len(jobs) < _COPY_FROM or not _any_plain(jobs)):
        return await _insert(connection, jobs)
    inserted: set[UUID] = set()
    async with connection.transaction():
        plain = [job for job in jobs if job.is_plain]
        others = [job for job in jobs if not job.is_plain]
        try:
            async with connection.transaction():  # A savepoint: a clash undoes no more than this.
                if plain:
                    await _copy(connection, plain)
            inserted.update(job.id for job in plain)
        except asyncpg.UniqueViolationError:
            others = list(jobs)  # Sent before, and the reply was lost: add what is missing.
        for start in range(0, len(others), _STATEMENT_MAX):
            inserted |= await _insert(connection, others[start : start + _STATEMENT_MAX])
    return inserted


def _any_plain(jobs: Sequence[NewJob]) -> bool:
    return any(job.is_plain for job in jobs)


async def _copy(connection: asyncpg.Connection, jobs: Sequence[NewJob]) -> None:
    await connection.copy_to_table(
        "jobs", schema_name="chronos", columns=_COPY_COLUMNS, source=_copy_blocks(jobs)
    )
    topics = list({job.topic for job in jobs})
    await connection.execute("select chronos.wake('chronos_ready', $1)", topics)


async def _copy_blocks(jobs: Sequence[NewJob]) -> AsyncIterator[bytes]:
    """COPY's text format, and not asyncpg's binary one, which fails on a caller's jsonb codec."""
    for start in range(0, len(jobs), _COPY_BLOCK):
        yield "".join(map(_copy_line, jobs[start : start + _COPY_BLOCK])).encode()


def _copy_line(job: NewJob) -> str:
    timeout_s = "\\N" if job.timeout_s is None else str(job.timeout_s)
    topic, kind, payload = _escaped(job.topic), _escaped(job.kind), _escaped(job.payload)
    return (
        f"{job.id.hex}\t{topic}\t{kind}\t{job.priority}\t{payload}\t{job.max_attempts}"
        f"\t{timeout_s}\n"
    )


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("\t", "\\t")
    return text.replace("\n", "\\n").replace("\r", "\\r")


async def _insert(connection: asyncpg.Connection, jobs: Sequence[NewJob]) -> set[UUID]:
    rows = await connection.fetch(
        query("enqueue_jobs"),
        [job.id for job in jobs],
        [job.topic for job in jobs],
        [job.kind for job in jobs],
        [job.priority for job in jobs],
        [job.payload for job in jobs],
        [job.run_at for job in jobs],
        [job.delay_s for job in jobs],
        [job.max_attempts for job in jobs],
        [job.timeout_s for job in jobs],
        [job.unique_key for job in jobs],
    )
    return {row["id"] for row in rows}


class BorrowedConnection:
    """The part of a store that enqueues, on a connection, and in a transaction, of the caller's."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def enqueue_jobs(self, jobs: Sequence[NewJob]) -> set[UUID]:
        """See `Store.enqueue_jobs`."""
        return await insert_jobs(self._connection, jobs)

    async def find_unique(self, keys: Sequence[str]) -> dict[str, UUID]:
        """See `Store.find_unique`."""
        rows = await self._connection.fetch(query("find_unique"), keys)
        return {row["unique_key"]: row["id"] for row in rows}
