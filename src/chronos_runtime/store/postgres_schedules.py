"""Schedules and alarms on Postgres: one method, one statement of `schema/queries`."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from chronos_runtime.schedule import (
    Absence,
    Due,
    Fired,
    FireRecord,
    Firing,
    Schedule,
    Status,
)
from chronos_runtime.store.lane import Lane

_FIELDS = Schedule.__struct_fields__
_encode = msgspec.json.Encoder().encode


class PostgresSchedules:
    """The schedules of one database: fired on the lane of upkeep, edited on that of clients."""

    def __init__(self, *, upkeep: Lane, client: Lane) -> None:
        self._upkeep = upkeep
        self._client = client

    async def add_schedules(self, schedules: Sequence[Schedule]) -> set[UUID]:
        records = b"[" + b",".join(_record(one) for one in schedules) + b"]"
        rows = await self._client.fetch("add_schedules", records.decode())
        return {row["id"] for row in rows}

    async def edit_schedule(
        self, read: Schedule, edited: Schedule, *, expects_anew: bool = False
    ) -> bool:
        rows = await self._client.fetch(
            "edit_schedule",
            read.id,
            read.version,
            read.next_run_at,
            _record(edited).decode(),
            expects_anew,
        )
        return bool(rows)

    async def get_schedules(self, names: Sequence[str]) -> tuple[datetime, list[Schedule]]:
        rows = await self._client.fetch("get_schedules", names)
        return rows[0]["read_at"], _schedules(rows)

    async def list_schedules(
        self,
        *,
        is_alarm: bool,
        statuses: Sequence[Status] | None,
        after: tuple[str, UUID],
        limit: int,
    ) -> list[Schedule]:
        return _schedules(
            await self._client.fetch("list_schedules", is_alarm, statuses, *after, limit)
        )

    async def list_origin(self, origin: str) -> list[Schedule]:
        return _schedules(await self._client.fetch("list_origin", origin))

    async def remove_schedules(self, ids: Sequence[UUID]) -> set[UUID]:
        rows = await self._client.fetch("remove_schedules", ids)
        return {row["id"] for row in rows}

    async def list_due(self, limit: int) -> Due:
        rows = await self._upkeep.fetch("list_due", limit)
        first = rows[0]
        told = ("read_at", "next_due_s", "has_queued", "has_overdue", "absent")
        return Due(*(first[name] for name in told), _schedules(rows))  # type: ignore[call-arg]

    async def fire_schedules(self, firings: Sequence[Firing]) -> dict[UUID, Fired]:
        fires = [(one.schedule.id, fire) for one in firings for fire in one.fires]
        rows = await self._upkeep.fetch(
            "fire_schedules",
            [one.schedule.id for one in firings],
            [one.schedule.version for one in firings],
            [one.schedule.next_run_at for one in firings],
            [one.schedule.queued_at for one in firings],
            [one.next_at for one in firings],
            [one.missed for one in firings],
            [id for id, _ in fires],
            [fire.occurrence for _, fire in fires],
            [fire.job_id for _, fire in fires],
            [fire.run_at for _, fire in fires],
            [fire.payload for _, fire in fires],
        )
        return {row["id"]: Fired(row["occurrences"], row["skipped"]) for row in rows}

    async def break_schedules(self, troubles: Sequence[tuple[Schedule, str]]) -> set[UUID]:
        rows = await self._upkeep.fetch(
            "break_schedules",
            [schedule.id for schedule, _ in troubles],
            [schedule.version for schedule, _ in troubles],
            [error for _, error in troubles],
        )
        return {row["id"] for row in rows}

    async def run_schedule(
        self, id: UUID, *, occurrence: datetime, job_id: UUID, payload: str
    ) -> bool | None:
        rows = await self._client.fetch("run_schedule", id, occurrence, job_id, payload)
        return bool(rows[0]["overlaps"]) if rows else None

    async def list_fires(self, id: UUID, limit: int) -> list[FireRecord]:
        return [_fire_record(row) for row in await self._client.fetch("list_fires", id, limit)]

    async def postpone_fires(self, id: UUID, until: datetime) -> set[UUID]:
        rows = await self._client.fetch("postpone_fires", id, until)
        return {row["id"] for row in rows}

    async def end_alarm(self, id: UUID, status: Status, error: str | None = None) -> bool:
        return bool(await self._client.fetch("end_alarm", id, status, error))

    async def mark_absent(self, limit: int, *, kind: str, topic: str) -> list[Absence]:
        rows = await self._upkeep.fetch("mark_absent", limit, kind, topic)
        return [Absence(*row) for row in rows]

    async def prune_schedules(self, older_than_s: float, limit: int) -> int:
        rows = await self._upkeep.fetch("prune_schedules", older_than_s, limit)
        return int(rows[0]["removed"])


def _record(schedule: Schedule) -> bytes:
    """The schedule as one JSON object, its payload a part of it."""
    values = msgspec.structs.asdict(schedule)
    return _encode(values | {"payload": msgspec.Raw(schedule.payload.encode())})


def _schedules(rows: Sequence[asyncpg.Record]) -> list[Schedule]:
    """The schedules of rows, by column name: a newer schema may have more of them."""
    return [
        Schedule(**{name: row[name] for name in _FIELDS}) for row in rows if row["id"] is not None
    ]


def _fire_record(row: asyncpg.Record) -> FireRecord:
    error = row["error"]
    return FireRecord(**(dict(row) | {"error": msgspec.json.decode(error) if error else None}))
