"""From a schedule that is due to the jobs it fires.

Pure functions of the row and of the clock that was read with it, so that every process comes to
the same ids.
"""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from chronos_runtime.cron import Cron
from chronos_runtime.errors import InputError
from chronos_runtime.every import Every, Once
from chronos_runtime.ids import fire_id
from chronos_runtime.schedule import Definition, Fire, Firing, Schedule
from chronos_runtime.timetable import Timetable, jitter


def timetable_of(definition: Definition) -> Timetable:
    """When a schedule fires. Raises InputError where the row holds what cannot be evaluated.

    >>> table = timetable_of(Definition(kind="report", cron="0 3 * * *"))
    >>> str(table.next_after(datetime(2027, 1, 15, tzinfo=UTC)))
    '2027-01-15 03:00:00+00:00'
    """
    when: Cron | Every | Once
    if definition.cron is not None:
        when = Cron(definition.cron, definition.tz, definition.gap, definition.fold)
    elif definition.interval_s is not None:
        when = Every(definition.interval_s, definition.anchor_at)
    elif definition.once_at is not None:
        when = Once(definition.once_at)
    else:
        raise InputError("cron, every_s, at: give one of them")
    return Timetable(when, definition.starts_at, definition.ends_at)


def first_run_at(definition: Definition, now: datetime) -> datetime | None:
    """The cursor of a schedule made or changed at `now`. A single instant fires even if late.

    >>> now = datetime(2027, 1, 15, tzinfo=UTC)
    >>> first_run_at(Definition(kind="report", once_at=now - timedelta(hours=1)), now).hour
    23
    """
    return definition.once_at or timetable_of(definition).next_after(now)


def firing_of(schedule: Schedule, now: datetime) -> Firing:
    """What is to be fired of a schedule that is due, or whose waiting occurrence may go ahead.

    Under overlap `skip` and `queue` only the newest of several missed occurrences is wanted.
    """
    planned: tuple[datetime, ...] = ()
    next_at, missed = schedule.next_run_at, 0
    if next_at is not None and next_at <= now:
        plan = timetable_of(schedule).plan(
            next_at,
            now,
            catch_up=schedule.catch_up,
            catch_up_max=schedule.catch_up_max,
            late_s=schedule.late_s,
        )
        planned, missed = plan.fires, plan.missed
        if schedule.is_alarm and not planned:
            planned = (next_at,)  # Snoozed to an instant that is none of its timetable's.
        next_at = plan.next_at
    if schedule.overlap != "allow":
        missed += max(len(planned) - 1, 0)
        planned = planned[-1:]
    waiting = () if schedule.queued_at is None else (schedule.queued_at,)
    occurrences = sorted({*waiting, *planned})
    return Firing(schedule, [fire_of(schedule, at) for at in occurrences], next_at, missed)


def fire_of(schedule: Schedule, occurrence: datetime) -> Fire:
    """The job of an occurrence."""
    wait_s = jitter(schedule.id, occurrence, schedule.jitter_s)
    return Fire(
        fire_id(schedule.id, occurrence),
        occurrence,
        occurrence + timedelta(seconds=wait_s),
        render(schedule.payload, name=schedule.name, id=schedule.id, occurrence=occurrence),
    )


def render(payload: str, *, name: str, id: UUID, occurrence: datetime) -> str:
    """A payload's JSON text with `{{occurrence}}`, `{{name}}` and `{{schedule_id}}` filled in.

    They may stand anywhere in a string of the payload; nothing else is replaced.

    >>> at = datetime(2027, 1, 15, 3, tzinfo=UTC)
    >>> render('{"day": "{{occurrence}}"}', name="nightly", id=UUID(int=1), occurrence=at)
    '{"day": "2027-01-15T03:00:00+00:00"}'
    """
    if "{{" not in payload:
        return payload
    for place, value in {
        "{{occurrence}}": occurrence.astimezone(UTC).isoformat(),
        "{{name}}": name,
        "{{schedule_id}}": str(id),
    }.items():
        payload = payload.replace(place, msgspec.json.encode(value).decode()[1:-1])
    return payload
