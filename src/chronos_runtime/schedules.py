"""Schedules as people and programs handle them: add, look, edit, pause, run, remove.

Every change is made on what was read, and made again if somebody was faster. All instants come
from the database's clock: the caller's own is never asked. A change is about future fires only;
what has fired is a job like any other.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID, uuid4

import msgspec

from chronos_runtime.checks import checked_name
from chronos_runtime.definitions import (
    TIMINGS,
    Rules,
    ScheduleOptions,
    change_definition,
    define_schedule,
)
from chronos_runtime.errors import InputError, ScheduleNotFound, StoreUnavailable
from chronos_runtime.fires import first_run_at, render, timetable_of
from chronos_runtime.handlers import HandlerFunction
from chronos_runtime.ids import new_job_id
from chronos_runtime.schedule import (
    ALARM_ENDS,
    Definition,
    FireRecord,
    Schedule,
    Status,
    define,
)
from chronos_runtime.store import Store
from chronos_runtime.timetable import Preview

PAGE_MAX = 1_000
_TRIES = 10  # Somebody may fire or edit between our read and our write, but not every time.
_FIRST = ("", UUID(int=0))

RulesOf = Callable[[str | HandlerFunction], tuple[str, Rules]]
Change = Callable[[Schedule, datetime], Schedule]


class ExtraFire(msgspec.Struct, frozen=True):
    """What `run_now` did: the job's id, and whether another fire of the schedule still lives.

    >>> ExtraFire(UUID(int=1), overlaps=False).overlaps
    False
    """

    id: UUID
    overlaps: bool


class Schedules:
    """The schedules of one database, as `client.schedules`.

    >>> import anyio
    >>> from chronos_runtime import Client, MemoryStore
    >>> async def plan() -> str:
    ...     client = Client(MemoryStore())
    ...     await client.schedules.add("nightly", "report", cron="0 3 * * *", tz="Europe/Berlin")
    ...     await client.schedules.pause("nightly")
    ...     return (await client.schedules.get("nightly")).status
    >>> anyio.run(plan)
    'active'
    """

    def __init__(self, store: Store, rules_of: RulesOf) -> None:
        self._store = store
        self._rules_of = rules_of

    async def add(
        self,
        name: str,
        kind: str | HandlerFunction,
        payload: object = None,
        *,
        paused: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Add a schedule; see `ScheduleOptions`. A paused one fires nothing before `resume`.

        Strings in the payload may hold `{{occurrence}}`, `{{name}}` and `{{schedule_id}}`, which
        each fire fills in.
        """
        checked_name(name, "name")
        known, rules = self._rules_of(kind)
        definition = define_schedule(name, known, payload, rules, **options)
        made = Schedule(id=uuid4(), name=name, paused=paused, **_flat(definition))
        return await add_schedule(self._store, made)

    async def get(self, name: str) -> Schedule:
        """The schedule of that name."""
        return (await read_schedule(self._store, name))[1]

    async def list(
        self,
        *,
        statuses: Sequence[Status] | None = None,
        after: Schedule | None = None,
        limit: int = 50,
    ) -> list[Schedule]:
        """One page of schedules, by name; `after` is the last one of the page before."""
        return await list_schedules(
            self._store, is_alarm=False, statuses=statuses, after=after, limit=limit
        )

    async def edit(
        self,
        name: str,
        *,
        payload: object = msgspec.UNSET,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Change what is given and nothing else.

        A new timing counts from now, and makes a finished schedule active again. Whatever is
        changed about a broken one, it is tried again.
        """

        def change(read: Schedule, now: datetime) -> Schedule:
            _, rules = self._rules_of(read.kind)
            definition = change_definition(name, read, rules, payload=payload, **options)
            return redefined(read, definition, now)

        anew = "expect_success_within_s" in options
        return await change_schedule(self._store, name, change, expects_anew=anew)

    async def pause(self, name: str) -> None:
        """Fire nothing more until it is resumed."""
        await change_schedule(self._store, name, lambda read, _: _replace(read, paused=True))

    async def resume(self, name: str) -> None:
        """Fire again, from the next occurrence on.

        What was missed meanwhile is not made up for, but for a single instant, which fires late.
        """
        await change_schedule(self._store, name, _resumed, expects_anew=True)

    async def remove(self, name: str) -> None:
        """Forget the schedule; jobs it fired stay."""
        _, schedule = await read_schedule(self._store, name)
        await self._store.schedules.remove_schedules([schedule.id])

    async def run_now(self, name: str) -> ExtraFire:
        """Fire once more, now, whatever timetable, pause and overlap say."""
        now, schedule = await read_schedule(self._store, name)
        payload = render(schedule.payload, name=name, id=schedule.id, occurrence=now)
        job_id = new_job_id()
        overlaps = await self._store.schedules.run_schedule(
            schedule.id, occurrence=now, job_id=job_id, payload=payload
        )
        if overlaps is None:
            raise ScheduleNotFound(f"no schedule has the name {name!r}")
        return ExtraFire(job_id, overlaps)

    async def preview(self, name: str, count: int = 10) -> Sequence[Preview]:
        """The next occurrences, with a note where a clock is put forward or back."""
        now, schedule = await read_schedule(self._store, name)
        return timetable_of(schedule).preview(now, count)

    async def fires(self, name: str, limit: int = 50) -> Sequence[FireRecord]:
        """Its fires, live and ended, newest occurrence first."""
        _checked_limit(limit)
        _, schedule = await read_schedule(self._store, name)
        return await self._store.schedules.list_fires(schedule.id, limit)


async def add_schedule(store: Store, schedule: Schedule) -> Schedule:
    """Add a schedule or an alarm, its cursor by the store's clock."""
    now, _ = await store.schedules.get_schedules([])
    next_run_at = first_run_at(schedule, now)
    if next_run_at is None:
        raise InputError(f"ends_at: {schedule.name!r} has no occurrence from now until then")
    added = _replace(schedule, next_run_at=next_run_at)
    if not await store.schedules.add_schedules([added]):
        raise InputError(f"name: {schedule.name!r} is taken; edit that one, or choose another name")
    return added


async def read_schedule(
    store: Store, name: str, *, is_alarm: bool = False
) -> tuple[datetime, Schedule]:
    """The store's clock and the schedule of a name; of alarms the living one, or the last."""
    now, found = await store.schedules.get_schedules([name])
    found = [one for one in found if one.is_alarm == is_alarm]
    if not found:
        what = "alarm" if is_alarm else "schedule"
        raise ScheduleNotFound(f"no {what} has the name {name!r}")
    return now, max(found, key=lambda one: one.status not in ALARM_ENDS)


async def list_schedules(
    store: Store,
    *,
    is_alarm: bool,
    statuses: Sequence[Status] | None,
    after: Schedule | None,
    limit: int,
) -> list[Schedule]:
    """One page of schedules or of alarms."""
    _checked_limit(limit)
    if unknown := set(statuses or ()) - set(Status.__args__):  # type: ignore[attr-defined]
        raise InputError(f"statuses: {sorted(unknown)} are none")
    begin = _FIRST if after is None else (after.name, after.id)
    return await store.schedules.list_schedules(
        is_alarm=is_alarm, statuses=statuses, after=begin, limit=limit
    )


async def change_schedule(
    store: Store, name: str, change: Change, *, is_alarm: bool = False, expects_anew: bool = False
) -> Schedule:
    """Read, change and write, until nobody came in between."""
    for _ in range(_TRIES):
        now, read = await read_schedule(store, name, is_alarm=is_alarm)
        changed = change(read, now)
        if await store.schedules.edit_schedule(read, changed, expects_anew=expects_anew):
            return changed
    raise StoreUnavailable(f"edit_schedule: {name!r} kept changing")


def redefined(read: Schedule, definition: Definition, now: datetime) -> Schedule:
    """The schedule with another definition; a new timing moves its cursor."""
    changed = define(read, definition)
    is_timed_anew = any(getattr(read, field) != getattr(changed, field) for field in TIMINGS)
    if is_timed_anew or read.status == "broken":
        next_run_at = first_run_at(changed, now)
        if next_run_at is None:
            raise InputError(f"ends_at: {read.name!r} has no occurrence from now until then")
        changed = _replace(changed, status="active", broken_error=None, next_run_at=next_run_at)
    return changed


def _resumed(read: Schedule, now: datetime) -> Schedule:
    next_run_at = read.next_run_at
    if next_run_at is not None and read.once_at is None:
        next_run_at = timetable_of(read).next_after(now)
    is_over = next_run_at is None and read.queued_at is None and read.status == "active"
    return _replace(
        read,
        paused=False,
        next_run_at=next_run_at,
        status="finished" if is_over else read.status,
    )


def _replace(schedule: Schedule, **changes: Any) -> Schedule:
    return msgspec.structs.replace(schedule, **changes)


def _flat(definition: Definition) -> dict[str, Any]:
    return msgspec.structs.asdict(definition)


def _checked_limit(limit: int) -> None:
    if not 1 <= limit <= PAGE_MAX:
        raise InputError(f"limit: {limit} is not from 1 to {PAGE_MAX}")
