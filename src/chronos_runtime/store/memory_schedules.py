"""Schedules and alarms in memory: each method does what the statement of its name does."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from chronos_runtime.schedule import (
    ALARM_ENDS,
    Absence,
    Due,
    Fire,
    Fired,
    FireRecord,
    Firing,
    Schedule,
    Status,
)
from chronos_runtime.store.memory_bell import Bell
from chronos_runtime.store.memory_fires import fire_row, fire_rows, fired, wake_row
from chronos_runtime.store.memory_jobs import Jobs
from chronos_runtime.store.memory_row import Row
from chronos_runtime.store.memory_schedule_rules import EDITED, check, ended, later, seconds

_DUE_SOON_S = 15.0  # As in chronos.wake_schedulers.


class MemorySchedules:
    """The rows of `chronos.schedules`, beside the jobs of the same store."""

    def __init__(self, jobs: Jobs, bell: Bell, begin: Callable[[], Awaitable[float]]) -> None:
        self._jobs = jobs
        self._bell = bell
        self._begin_store = begin
        self._rows: dict[UUID, Schedule] = {}
        jobs.ended = self._note

    async def _begin(self) -> datetime:
        return datetime.fromtimestamp(await self._begin_store(), UTC)

    async def add_schedules(self, schedules: Sequence[Schedule]) -> set[UUID]:
        now = await self._begin()
        for one in schedules:
            check(one)
        added = []
        for one in sorted(schedules, key=lambda one: one.name):
            taken = {row.name for row in self._rows.values() if row.status not in ALARM_ENDS}
            if one.name in taken or one.id in self._rows:
                continue
            self._rows[one.id] = msgspec.structs.replace(
                one,
                version=1,
                absent_at=later(now, one.expect_success_within_s),
                created_at=now,
                updated_at=now,
            )
            added.append(one)
        self._wake_schedulers(now, added)
        return {one.id for one in added}

    async def edit_schedule(
        self, read: Schedule, edited: Schedule, *, expects_anew: bool = False
    ) -> bool:
        now = await self._begin()
        row = self._rows.get(read.id)
        if row is None or (row.version, row.next_run_at) != (read.version, read.next_run_at):
            return False
        written = msgspec.structs.replace(
            row,
            queued_at=row.queued_at if edited.status == "active" else None,
            version=row.version + 1,
            updated_at=now,
            **{name: getattr(edited, name) for name in EDITED},
        )
        if edited.overlap != "queue":
            written = msgspec.structs.replace(written, queued_at=None)
        if expects_anew:
            absent_at = later(now, edited.expect_success_within_s)
            written = msgspec.structs.replace(written, absent_at=absent_at, is_absent=False)
        check(written)
        self._rows[row.id] = written
        self._wake_schedulers(now, [written])
        return True

    async def get_schedules(self, names: Sequence[str]) -> tuple[datetime, list[Schedule]]:
        now = await self._begin()
        found = [row for row in self._rows.values() if row.name in names]
        return now, sorted(found, key=lambda row: (row.created_at or now, row.id))

    async def list_schedules(
        self,
        *,
        is_alarm: bool,
        statuses: Sequence[Status] | None,
        after: tuple[str, UUID],
        limit: int,
    ) -> list[Schedule]:
        await self._begin()
        found = [
            row
            for row in self._rows.values()
            if row.is_alarm == is_alarm
            and (statuses is None or row.status in statuses)
            and (row.name, row.id) > after
        ]
        return sorted(found, key=lambda row: (row.name, row.id))[:limit]

    async def list_origin(self, origin: str) -> list[Schedule]:
        await self._begin()
        found = [row for row in self._rows.values() if row.origin == origin]
        return sorted(found, key=lambda row: row.name)

    async def remove_schedules(self, ids: Sequence[UUID]) -> set[UUID]:
        await self._begin()
        return {id for id in ids if self._rows.pop(id, None) is not None}

    async def list_due(self, limit: int) -> Due:
        now = await self._begin()
        active = [row for row in self._rows.values() if row.status == "active" and not row.paused]
        by_cursor = sorted(
            (row for row in active if row.next_run_at is not None),
            key=lambda row: row.next_run_at or now,
        )
        ripe = [row for row in by_cursor if seconds(now, row.next_run_at) <= 0]
        queued = [row for row in active if row.queued_at is not None]
        free = sorted((row for row in queued if not self._lives(row.id)), key=lambda row: row.id)
        picked = {row.id: row for row in ripe[:limit] + free[:limit]}
        next_due_s = None
        if len(by_cursor) > len(ripe):
            next_due_s = seconds(now, by_cursor[len(ripe)].next_run_at)
        absent = sum(row.is_absent for row in self._rows.values())
        has_overdue = bool(self._overdue(now))
        return Due(now, next_due_s, bool(queued), has_overdue, absent, list(picked.values()))

    async def fire_schedules(self, firings: Sequence[Firing]) -> dict[UUID, Fired]:
        now = await self._begin()
        judged: list[tuple[Firing, bool]] = []
        rows: list[Row] = []
        for one in firings:  # All or nothing: a bad fire fails the batch before it begins.
            read, row = one.schedule, self._rows.get(one.schedule.id)
            if row is None or row.status != "active" or row.paused:
                continue
            if (row.version, row.next_run_at, row.queued_at) == (
                read.version,
                read.next_run_at,
                read.queued_at,
            ):
                lives = self._lives(row.id)
                judged.append((one, lives))
                rows += fire_rows(row, one, lives=lives, now=now)
        inserted = [row for row in sorted(rows, key=_by_fire_order) if self._insert(row)]
        results = {}
        for one, lives in judged:
            mine = [row for row in inserted if row.schedule_id == one.schedule.id]
            moved, results[one.schedule.id] = fired(
                self._rows[one.schedule.id], one, mine, lives=lives, now=now
            )
            check(moved)
            self._rows[moved.id] = moved
        soon = now.timestamp() + _DUE_SOON_S
        self._wake("chronos_ready", (row for row in inserted if row.state == "ready"))
        self._wake("chronos_due", (row for row in inserted if now.timestamp() < row.run_at < soon))
        return results

    def _insert(self, row: Row) -> bool:
        row.seq = self._jobs.next_seq()
        return self._jobs.insert(row)

    async def break_schedules(self, troubles: Sequence[tuple[Schedule, str]]) -> set[UUID]:
        now = await self._begin()
        broken = set()
        for read, error in troubles:
            row = self._rows.get(read.id)
            if row and row.version == read.version and row.status == "active":
                self._change(row, now, status="broken", broken_error=error, **_AT_REST)
                broken.add(row.id)
        return broken

    async def run_schedule(
        self, id: UUID, *, occurrence: datetime, job_id: UUID, payload: str
    ) -> bool | None:
        now = await self._begin()
        schedule = self._rows.get(id)
        if schedule is None:
            return None
        lives = self._lives(id)
        fire = Fire(job_id, occurrence, run_at=now, payload=payload)
        row = fire_row(schedule, fire, now)
        if self._insert(row):
            self._wake("chronos_ready", [row])
        return lives

    async def list_fires(self, id: UUID, limit: int) -> list[FireRecord]:
        await self._begin()
        rows = [row.record() for row in self._jobs if row.schedule_id == id]
        fires = [
            FireRecord(
                row.id,
                row.state,
                row.occurrence,
                row.enqueued_at,
                row.attempt,
                row.errors[-1] if row.errors else None,
                row.finished_at,
            )
            for row in rows
            if row.occurrence is not None
        ]
        fires.sort(key=lambda fire: (fire.occurrence, fire.enqueued_at), reverse=True)
        return fires[:limit]

    async def postpone_fires(self, id: UUID, until: datetime) -> set[UUID]:
        now = await self._begin()
        waiting = [
            row
            for row in self._jobs.live.values()
            if row.schedule_id == id and row.state != "running" and until > now
        ]
        for row in waiting:
            row.state, row.run_at = "scheduled", until.timestamp()
        return {row.id for row in waiting}

    async def end_alarm(self, id: UUID, status: Status, error: str | None = None) -> bool:
        now = await self._begin()
        row = self._rows.get(id)
        if row is None or not row.is_alarm or row.status != "active":
            return False
        changes = {"last_error": error or row.last_error, "version": row.version + 1}
        self._change(row, now, status=status, **changes, **_AT_REST)
        return True

    async def mark_absent(self, limit: int, *, kind: str, topic: str) -> list[Absence]:
        now = await self._begin()
        marked = sorted(self._overdue(now), key=lambda row: row.absent_at or now)[:limit]
        for row in marked:
            self._rows[row.id] = msgspec.structs.replace(row, is_absent=True)
            if row.expect_url is not None:
                told = wake_row(row, kind, topic, now)
                self._insert(told)
                self._wake("chronos_ready", [told])
        return [Absence(row.name, row.last_success_at, row.last_error) for row in marked]

    def _overdue(self, now: datetime) -> list[Schedule]:
        return [
            row
            for row in self._rows.values()
            if row.status == "active" and not row.paused and not row.is_absent
            if row.absent_at is not None and row.absent_at <= now
        ]

    async def prune_schedules(self, older_than_s: float, limit: int) -> int:
        before = await self._begin() - timedelta(seconds=older_than_s)
        old = [
            row
            for row in self._rows.values()
            if row.status not in ("active", "broken") and row.origin is None
            if row.updated_at is not None and row.updated_at < before
        ]
        pruned = sorted(old, key=lambda row: row.id)[:limit]
        for row in pruned:
            del self._rows[row.id]
        return len(pruned)

    def _note(self, job: Row) -> None:
        """As chronos.note_fires: carry the end of a fire to its schedule."""
        schedule = self._rows.get(job.schedule_id) if job.schedule_id else None
        if schedule is not None:
            self._rows[schedule.id] = ended(schedule, job)

    def _change(self, row: Schedule, now: datetime, **changes: Any) -> None:
        changed = msgspec.structs.replace(row, updated_at=now, **changes)
        check(changed)
        self._rows[row.id] = changed

    def _lives(self, schedule_id: UUID) -> bool:
        return any(row.schedule_id == schedule_id for row in self._jobs.live.values())

    def _wake(self, channel: str, rows: Iterable[Row]) -> None:
        self._bell.wake(channel, [row.topic for row in rows])

    def _wake_schedulers(self, now: datetime, schedules: Sequence[Schedule]) -> None:
        cursors = [one.next_run_at for one in schedules if one.next_run_at is not None]
        if self._bell.has_marks and any(seconds(now, at) < _DUE_SOON_S for at in cursors):
            self._bell.ring("chronos_due", "")


_AT_REST: dict[str, Any] = {"next_run_at": None, "queued_at": None}


def _by_fire_order(row: Row) -> tuple[datetime | None, UUID | None]:
    return row.occurrence, row.schedule_id
