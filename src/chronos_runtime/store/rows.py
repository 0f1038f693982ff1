"""What goes to and comes from Postgres, where several statements do it alike."""

from collections.abc import Iterable, Sequence
from uuid import UUID

import asyncpg
import msgspec

from chronos_runtime.store import Claimed, JobRecord


def read_ids(rows: Iterable[asyncpg.Record]) -> set[UUID]:
    """The ids that a statement returned."""
    return {row["id"] for row in rows}


def fences(claims: Sequence[Claimed]) -> tuple[list[UUID], list[UUID], list[int]]:
    """Claims as arrays: ids, lease tokens, attempts."""
    return (
        [claim.id for claim in claims],
        [claim.lease_token for claim in claims],
        [claim.attempt for claim in claims],
    )


def job_record(row: asyncpg.Record) -> JobRecord:
    """A job as a statement that reads it returns it."""
    values = dict(row)
    for column in ("payload", "result", "errors"):
        values[column] = msgspec.json.decode(values[column]) if values[column] else None
    values["errors"] = values["errors"] or []
    return JobRecord(**values)
