"""What a supervisor decided, carried out in the transaction that ends its job."""

from typing import TypeAlias
from uuid import UUID

import asyncpg

from chronos_runtime.errors import StoreUnavailable
from chronos_runtime.store.sql import query

DecisionConnection: TypeAlias = asyncpg.Connection
"""What `job.transaction()` gives."""


async def start_attempt(
    connection: DecisionConnection, task: UUID, *, id: UUID, payload: str | None, delay_s: float
) -> None:
    """Insert the next attempt of a failed task; see `Store.start_attempt`."""
    if not await connection.fetch(query("start_attempt"), task, id, payload, delay_s):
        raise StoreUnavailable(f"start_attempt: task {task}, or its unique key, changed just now")


async def escalate_job(connection: DecisionConnection, task: UUID) -> None:
    """Put a failed task with the dead letters."""
    if not await connection.fetch(query("escalate_jobs"), [task]):
        raise StoreUnavailable(f"escalate_jobs: task {task} changed just now")
