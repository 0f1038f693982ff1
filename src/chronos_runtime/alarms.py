"""Alarms: schedules whose fire wakes a URL.

An alarm is `active` until its last fire has ended: `fired`, `failed` after `max_failures`
attempts or when the receiver is gone for good, or `cancelled`. It is kept for audit then, and its
name is free. Never are two fires of one alarm under way, and one that fails does not stop a series.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypedDict, Unpack
from uuid import uuid4

import msgspec

from chronos_runtime.checks import checked_delay, checked_instant, checked_name
from chronos_runtime.definitions import define_schedule
from chronos_runtime.errors import InputError, JobStateError
from chronos_runtime.fires import timetable_of
from chronos_runtime.processors.wake_payload import WAKE_KIND, WakePayload, wake_rules
from chronos_runtime.schedule import FireRecord, Fold, Gap, Schedule, Status
from chronos_runtime.schedules import add_schedule, change_schedule, list_schedules, read_schedule
from chronos_runtime.store import Store

MAX_FAILURES = 5  # The ladder 30 s, 1 m, 2 m, 4 m: a receiver has about eight minutes to be back.
_FIRES_MAX = 100


class AlarmTiming(TypedDict, total=False):
    """When an alarm goes off. One of `at`, `cron`, `every_s` must be given."""

    at: datetime
    cron: str
    every_s: float
    tz: str
    gap: Gap
    fold: Fold
    starts_at: datetime | None
    ends_at: datetime | None


class Alarms:
    """The alarms of one database, as `client.alarms`.

    >>> import anyio
    >>> from chronos_runtime import Client, MemoryStore
    >>> async def plan() -> str:
    ...     alarms = Client(MemoryStore()).alarms
    ...     alarm = await alarms.set("https://example.org/wake", cron="0 9 * * MON", name="weekly")
    ...     await alarms.cancel("weekly")
    ...     return (await alarms.get("weekly")).status
    >>> anyio.run(plan)
    'cancelled'
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def set(
        self,
        url: str,
        payload: object = None,
        *,
        name: str | None = None,
        max_failures: int = MAX_FAILURES,
        secret: str | None = None,
        headers: dict[str, str] | None = None,
        **timing: Unpack[AlarmTiming],
    ) -> Schedule:
        """Set an alarm: POST `payload` to `url` then. `secret` names one of `[wake] secrets`."""
        id = uuid4()
        name = str(id) if name is None else checked_name(name, "name")
        WakePayload(url=url, body=payload, secret=secret, headers=headers or {})
        wake = {
            "url": url,
            "body": payload,
            "secret": secret,
            "headers": headers or {},
            "alarm": "{{name}}",
            "occurrence": "{{occurrence}}",
        }
        definition = define_schedule(
            name,
            WAKE_KIND,
            wake,
            wake_rules(),
            overlap="skip",
            catch_up="one",
            max_attempts=max_failures,
            **timing,
        )
        fields = msgspec.structs.asdict(definition)
        return await add_schedule(self._store, Schedule(id=id, name=name, is_alarm=True, **fields))

    async def get(self, name: str) -> Schedule:
        """The alarm of that name: the active one, or else the last."""
        return (await self._read(name))[1]

    async def list(
        self,
        *,
        statuses: Sequence[Status] | None = None,
        after: Schedule | None = None,
        limit: int = 50,
    ) -> list[Schedule]:
        """One page of alarms, by name; `after` is the last one of the page before."""
        return await list_schedules(
            self._store, is_alarm=True, statuses=statuses, after=after, limit=limit
        )

    async def fires(self, name: str, limit: int = 50) -> Sequence[FireRecord]:
        """Its fires, live and ended, newest occurrence first."""
        _, alarm = await self._read(name)
        return await self._store.schedules.list_fires(alarm.id, limit)

    async def cancel(self, name: str) -> None:
        """End the alarm, and its fire if that waits; one that is being delivered may arrive."""
        _, alarm = await self._read(name)
        # The alarm first: fires that come after it cannot be, and those that are get cancelled.
        if not await self._store.schedules.end_alarm(alarm.id, "cancelled"):
            raise JobStateError(f"alarm {name!r} has ended already: {alarm.status}")
        fires = await self._store.schedules.list_fires(alarm.id, _FIRES_MAX)
        waiting = [fire.id for fire in fires if fire.state in ("scheduled", "ready")]
        if waiting:
            await self._store.cancel_jobs(waiting)

    async def snooze(
        self, name: str, *, until: datetime | None = None, for_s: float | None = None
    ) -> datetime:
        """Let the next fire, or the one that waits to be tried again, wait; until when.

        A series goes on from there.
        """
        now, alarm = await self._read(name)
        if (until is None) == (for_s is None):
            raise InputError("until, for_s: give one of them")
        if for_s is not None:
            until = now + timedelta(seconds=checked_delay(for_s, "for_s"))
        until = checked_instant(until, "until")
        if until <= now:
            raise InputError(f"until: {until} is past")
        if alarm.status != "active":
            raise JobStateError(f"alarm {name!r} has ended already: {alarm.status}")
        postponed = await self._store.schedules.postpone_fires(alarm.id, until)
        if alarm.next_run_at is None and not postponed:
            raise JobStateError(f"alarm {name!r} is being delivered: nothing of it waits")

        def put_off(read: Schedule, _: datetime) -> Schedule:
            return _put_off(read, until, has_waiting=bool(postponed))

        await change_schedule(self._store, name, put_off, is_alarm=True)
        return until

    async def _read(self, name: str) -> tuple[datetime, Schedule]:
        return await read_schedule(self._store, name, is_alarm=True)


def _put_off(alarm: Schedule, until: datetime, *, has_waiting: bool) -> Schedule:
    """The alarm with its next fire put off; beside one that waits, only what would come before."""
    if alarm.next_run_at is None:
        return alarm
    if alarm.once_at is not None:
        return msgspec.structs.replace(alarm, once_at=until, next_run_at=until)
    next_run_at: datetime | None = until
    if has_waiting:
        next_run_at = alarm.next_run_at
        if next_run_at <= until:
            next_run_at = timetable_of(alarm).next_after(until)
    return msgspec.structs.replace(alarm, next_run_at=next_run_at)
